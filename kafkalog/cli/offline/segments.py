"""``kafkalog segments list``, ``verify``, ``losses`` and ``accept-loss``.

``list`` and ``verify`` read the files of a partition directory without a daemon, and write nothing.
This module owns only the printed lines: batch headers are read by ``log/inspect/directory_facts``,
the rules of the format are ``log/inspect/directory_check``. ``losses`` and ``accept-loss`` ask a
daemon which offsets a partition has lost.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from kafkalog.broker.compaction.evidence import is_known_compacted
from kafkalog.cli.arguments import IntRange, check_partition_directory, topic_argument
from kafkalog.cli.connection import with_client_and_document
from kafkalog.cli.main import read_fault
from kafkalog.cli.output import (
    confirm,
    is_printed,
    output_option,
    print_table,
    timestamp_text,
    yes_option,
)
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.format.disk.file_names import LOG_SUFFIX, segment_file_name
from kafkalog.format.offset_ranges import lost_in_gap
from kafkalog.log.inspect.directory_check import list_directory, verify_directory
from kafkalog.log.inspect.directory_facts import proof_of, summarize_segments

if TYPE_CHECKING:
    from kafkalog.client import Client
    from kafkalog.log.inspect.findings import Finding


_HEADINGS = ("STATE", "BASE", "NEXT", "BYTES", "BATCHES", "RECORDS", "OLDEST", "NEWEST", "NOTE")


@click.command("list")
@click.argument("directory", type=click.Path(exists=True, file_okay=False))
@output_option
def list_command(directory: str, output: str) -> None:
    """List the segments of a partition directory, from their batch headers; CRCs are not checked.

    States: active (the last segment, to which a daemon appends), closed, broken (its batches end
    before its file does), old format (messages of Kafka before 0.11, see `kafkalog segments
    convert`; a compressed one counts as one record), or as the suffix of the file says: deleted,
    cleaned, swap. RECORDS does not count transaction markers. NOTE is the number of offsets between
    a segment and the one before it (compacted logs have such gaps), how many of these are lost, or
    how many are in both, which is damage. The directory should not be written meanwhile.

    Example: kafkalog segments list ./data/orders-0
    """
    check_partition_directory(directory)
    path, filesystem = os.path.abspath(directory), SystemFilesystem()
    try:
        found = list(summarize_segments(path, filesystem))
        orphans = list_directory(path, filesystem).orphans
        proof = proof_of(filesystem, path)
    except OSError as error:
        raise read_fault(error) from error
    segments: list[dict[str, Any]] = []
    next_offset: int | None = None
    for each in found:
        own = {name: getattr(each, name) for name in (*_FIELDS, *_TIMES)}
        own |= {"gap_offsets": None, "lost_offsets": 0}
        if each.stage:  # the file is not part of the log
            state = each.stage.removeprefix(".")
        else:
            is_whole = each.whole_bytes == each.size_bytes
            state = ("active" if each.is_last else "closed") if is_whole else "broken"
            if is_whole and each.is_old:
                state = "old format"
            if next_offset is not None:
                own["gap_offsets"] = each.base_offset - next_offset  # negative where they overlap
                lost = lost_in_gap(
                    next_offset,
                    each.base_offset,
                    is_gapless=proof.is_gapless,
                    orphans=orphans,
                    accepted=proof.accepted_losses,
                )
                own["lost_offsets"] = sum(last - first + 1 for first, last in lost)
            next_offset = each.next_offset
        segments.append({"state": state, **own})
    document = {"directory": directory, "segments": segments}
    names = (segment_file_name(each.base_offset, LOG_SUFFIX, each.stage) for each in found)
    if not is_printed(output, document, names):
        print_table([_HEADINGS, *map(_row, segments)])


_FIELDS = ("base_offset", "next_offset", "size_bytes", "whole_bytes", "batches", "records")
_TIMES = ("oldest_ms", "newest_ms")


def _row(document: dict[str, Any]) -> tuple[object, ...]:
    gap, lost = document["gap_offsets"], document["lost_offsets"]
    note = f"gap of {gap}, {lost} lost" if lost else f"gap of {gap}"
    if gap is None or gap <= 0:
        note = f"overlap of {-gap}" if gap else ""
    return (
        document["state"],
        *(document[name] for name in _FIELDS if name != "whole_bytes"),
        *(timestamp_text(document[name]) for name in _TIMES),
        note,
    )


@click.command()
@click.argument(
    "directories",
    metavar="DIRECTORY...",
    type=click.Path(exists=True, file_okay=False),
    nargs=-1,
    required=True,
)
@output_option
def verify(directories: tuple[str, ...], output: str) -> None:
    """Check all batches, indexes and snapshots of partition directories. Exit 1 with findings.

    They must not be written meanwhile: stop the daemon or make a copy. Whether offsets may be
    missing, and which losses were accepted, is read from the log directory around each, if there is
    one.

    Example: kafkalog segments verify ./data/orders-0 ./data/orders-1
    """
    for directory in directories:
        check_partition_directory(directory)
    found = {directory: _verified(directory) for directory in dict.fromkeys(directories)}
    document = [
        {"directory": directory, "findings": list(map(finding_json, findings))}
        for directory, findings in found.items()
    ]
    names = dict.fromkeys(each.file for findings in found.values() for each in findings)
    if not is_printed(output, document, names):
        for directory, findings in found.items():
            for finding in findings:
                click.echo(f"{finding.file} at {finding.position}: {finding.problem}")
            click.echo(f"{directory}: {f'{len(findings)} findings' if findings else 'sound'}")
    if names:
        raise click.exceptions.Exit(1)


def _verified(directory: str) -> list[Finding]:
    """The findings in a partition directory."""
    path, filesystem = os.path.abspath(directory), SystemFilesystem()
    try:
        is_compacted = is_known_compacted(path, filesystem)
        proof = proof_of(filesystem, path)
        return list(verify_directory(path, filesystem, is_compacted=is_compacted, proof=proof))
    except OSError as error:
        raise read_fault(error) from error


def finding_json(finding: Finding) -> dict[str, object]:
    """A finding as a JSON object."""
    return {
        "file": finding.file,
        "position": finding.position,
        "code": finding.code.value,
        "problem": finding.problem,
    }


_PARTITION = click.argument("partition", type=IntRange(min=0))
_LOSS_HEADINGS = ("STATE", "FIRST", "LAST", "OFFSETS")


@click.command()
@topic_argument()
@_PARTITION
@with_client_and_document
def losses(topic: str, partition: int, client: Client, output: str) -> None:
    """List the offsets that a partition has lost because a file is missing or was cut short.

    Fetches of lost offsets fail (500/50010) until the file is restored or the loss accepted. An
    accepted loss is a gap like those of compaction. Reads each segment.

    Example: kafkalog segments losses orders 0
    """
    _print(client.losses(topic, partition), output)


@click.command("accept-loss")
@topic_argument()
@_PARTITION
@click.argument("first", type=IntRange(min=0))
@click.argument("last", type=IntRange(min=0))
@yes_option
@with_client_and_document
def accept_loss(
    topic: str, partition: int, first: int, last: int, is_sure: bool, client: Client, output: str
) -> None:
    """Accept the loss of offsets FIRST to LAST of a partition, permanently; lists the losses left.

    Give a range as `kafkalog segments losses` prints it. From then on readers skip it without an
    error. If there is a backup of the file, restore it instead: stop the daemon, put the .log in
    its place and start. Asks on a terminal.

    Example: kafkalog segments accept-loss orders 0 40000 41999
    """
    question = f"Accept that offsets {first} to {last} of {topic}-{partition} are lost?"
    confirm(f"{question} This cannot be undone.", is_sure=is_sure)
    _print(client.accept_loss(topic, partition, first, last), output)


def _print(found: dict[str, Any], output: str) -> None:
    if is_printed(output, found):
        return
    rows: list[tuple[object, ...]] = [_LOSS_HEADINGS]
    for state in ("lost", "accepted"):
        for each in found[state]:
            first, last = each["first_offset"], each["last_offset"]
            rows.append((state, first, last, last - first + 1))
    print_table(rows)
