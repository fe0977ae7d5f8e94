"""``kafkalog segments list DIR``: the segments of a partition directory, without a server.

Owns the printed lines alone; what headers say is ``log/inspect/directory_facts.py``. Nothing is
written.

``kafkalog segments verify DIR``: every invariant of the format, checked on files at rest.

Owns the printed lines alone; the rules are ``log/inspect/directory_check.py``. Nothing is written.

``kafkalog segments losses`` and ``accept-loss``: what a partition of a daemon has lost.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import click

from kafkalog.broker.compaction.evidence import is_known_compacted
from kafkalog.cli.arguments import moment_text, require_partition_directory, topic_argument
from kafkalog.cli.connection import output_option, with_client
from kafkalog.cli.output import print_table
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.format.offset_ranges import lost_in_gap
from kafkalog.log.inspect.directory_check import list_directory, verify_directory
from kafkalog.log.inspect.directory_facts import summarize_segments
from kafkalog.log.inspect.directory_proof import proof_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.client import Client
    from kafkalog.format.disk.log_proofs import CheckedOffsets
    from kafkalog.log.inspect.directory_facts import SegmentSummary
    from kafkalog.log.inspect.findings import Finding


_HEADINGS = ("STATE", "BASE", "NEXT", "BYTES", "BATCHES", "RECORDS", "OLDEST", "NEWEST", "NOTE")


@click.command("list")
@click.argument("directory", type=click.Path(exists=True, file_okay=False))
@output_option
def list_command(directory: str, output: str) -> None:
    """List the segments of a partition directory: what their batch headers say; no CRC is checked.

    State: active (the last one, which a start appends to), closed, broken (the headers end before
    the file does), or what the file's name says: deleted (set aside), cleaned, swap. Records are
    without transaction markers. The note tells how many offsets lie between a segment and the one
    before it (a compacted log may have such gaps), how many of them are lost, or are in both, which
    no sound log has. The directory should not be written meanwhile.

    Example: kafkalog segments list ./data/orders-0
    """
    require_partition_directory(directory)
    path, filesystem = os.path.abspath(directory), SystemFilesystem()
    try:
        found = list(summarize_segments(path, filesystem))
        orphans = list_directory(path, filesystem).orphans
        proof = proof_of(filesystem, path)
    except OSError as error:
        raise click.ClickException(str(error)) from error
    gaps = _gaps(found)
    losses = [_lost(each, gap, orphans, proof) for each, gap in zip(found, gaps, strict=True)]
    if output == "json":
        segments = list(map(_document, found, gaps, losses))
        click.echo(json.dumps({"directory": directory, "segments": segments}))
        return
    print_table([_HEADINGS, *map(_row, found, gaps, losses)])


def _gaps(segments: Sequence[SegmentSummary]) -> list[int | None]:
    """Offsets between each and the one before it, negative where they overlap.

    None for what has none before it, and for files that are no part of the log.
    """
    gaps, next_offset = list[int | None](), None
    for each in segments:
        gaps.append(None if each.stage or next_offset is None else each.base_offset - next_offset)
        if not each.stage:
            next_offset = each.next_offset
    return gaps


def _state(segment: SegmentSummary) -> str:
    if segment.stage:
        return segment.stage.removeprefix(".")
    if segment.whole_bytes < segment.size_bytes:
        return "broken"
    return "active" if segment.is_last else "closed"


def _lost(
    segment: SegmentSummary, gap: int | None, orphans: frozenset[int], proof: CheckedOffsets
) -> int:
    """How many offsets of the gap in front of a segment are lost, and were not accepted."""
    if not gap or gap < 0:
        return 0
    first, end = segment.base_offset - gap, segment.base_offset
    lost = lost_in_gap(
        first,
        end,
        is_gapless=proof.is_gapless,
        orphans=orphans,
        accepted=proof.accepted_losses,
    )
    return sum(last - first + 1 for first, last in lost)


def _note(gap: int | None, lost: int) -> str:
    if not gap:
        return ""
    if gap > 0:
        return f"gap of {gap}, {lost} lost" if lost else f"gap of {gap}"
    return f"overlap of {-gap}"


def _row(segment: SegmentSummary, gap: int | None, lost: int) -> tuple[str, ...]:
    return (
        _state(segment),
        str(segment.base_offset),
        str(segment.next_offset),
        str(segment.size_bytes),
        str(segment.batches),
        str(segment.records),
        moment_text(segment.oldest_ms),
        moment_text(segment.newest_ms),
        _note(gap, lost),
    )


def _document(segment: SegmentSummary, gap: int | None, lost: int) -> dict[str, object]:
    return {
        "state": _state(segment),
        "base_offset": segment.base_offset,
        "next_offset": segment.next_offset,
        "size_bytes": segment.size_bytes,
        "whole_bytes": segment.whole_bytes,
        "batches": segment.batches,
        "records": segment.records,
        "oldest_ms": segment.oldest_ms,
        "newest_ms": segment.newest_ms,
        "gap_offsets": gap,
        "lost_offsets": lost,
    }


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False))
@output_option
@click.pass_context
def verify(ctx: click.Context, directory: str, output: str) -> None:
    """Check all batches, indexes and snapshots of a partition directory. Exit 1 with findings.

    The directory must not be written meanwhile: stop the server or take a copy. Whether offsets may
    be missing, and which were given up (accept-loss), is read from the log directory around it,
    where there is one.

    Example: kafkalog segments verify ./data/orders-0
    """
    require_partition_directory(directory)
    path, filesystem = os.path.abspath(directory), SystemFilesystem()
    try:
        is_compacted = is_known_compacted(path, filesystem)
        proof = proof_of(filesystem, path)
        findings = verify_directory(path, filesystem, is_compacted=is_compacted, proof=proof)
    except OSError as error:
        raise click.ClickException(str(error)) from error
    if output == "json":
        rows = [finding_json(finding) for finding in findings]
        click.echo(json.dumps({"directory": directory, "findings": rows}))
    else:
        for finding in findings:
            click.echo(f"{finding.file} at {finding.position}: {finding.problem}")
        click.echo(f"{directory}: {f'{len(findings)} findings' if findings else 'sound'}")
    if findings:
        ctx.exit(1)


def finding_json(finding: Finding) -> dict[str, object]:
    """As both commands that tell findings print it."""
    return {
        "file": finding.file,
        "position": finding.position,
        "code": finding.code.value,
        "problem": finding.problem,
    }


_PARTITION = click.argument("partition", type=click.IntRange(min=0))
_LOSS_HEADINGS = ("STATE", "FIRST", "LAST", "OFFSETS")


@click.command()
@topic_argument()
@_PARTITION
@with_client
@output_option
def losses(topic: str, partition: int, client: Client, output: str) -> None:
    """Tell which offsets a partition has lost: their file is missing or was cut short.

    Fetches of what is lost are refused (500/50010) until the file is restored or the loss accepted;
    what is accepted is a gap like those of compaction. Looks at each segment.

    Example: kafkalog segments losses orders 0
    """
    _print(client.losses(topic, partition), output)


@click.command("accept-loss")
@topic_argument()
@_PARTITION
@click.argument("first", type=click.IntRange(min=0))
@click.argument("last", type=click.IntRange(min=0))
@with_client
@output_option
def accept_loss(
    topic: str, partition: int, first: int, last: int, client: Client, output: str
) -> None:
    """Give up the lost offsets FIRST to LAST of a partition, for good; shows what is left.

    A range as `kafkalog segments losses` names it. Readers pass it by from then on without being
    told. Restore the file instead if there is a backup of it: stop the daemon, put the .log in its
    place and start.

    Example: kafkalog segments accept-loss orders 0 40000 41999
    """
    _print(client.accept_loss(topic, partition, first, last), output)


def _print(found: dict[str, Any], output: str) -> None:
    if output == "json":
        click.echo(json.dumps(found))
        return
    rows = [
        (state, str(each["first_offset"]), str(each["last_offset"]), _count(each))
        for state in ("lost", "accepted")
        for each in found[state]
    ]
    print_table([_LOSS_HEADINGS, *rows])


def _count(lost: dict[str, int]) -> str:
    return str(lost["last_offset"] - lost["first_offset"] + 1)
