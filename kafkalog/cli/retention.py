"""``kafkalog retention``: why segments are kept and when they are deleted, what-if, and a pass now.

The daemon does the work; this module asks and prints. Times are UTC. ``retention archived`` shows
how far topics are archived, and raises an archived offset by hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kafkalog.cli.arguments import (
    IntRange,
    config_pairs,
    duration,
    partition_option,
    timestamp,
    topic_argument,
    topic_configs_option,
)
from kafkalog.cli.connection import (
    exit_on_failures,
    is_failed,
    name_of,
    names_of,
    with_client_and_output,
)
from kafkalog.cli.output import (
    Columns,
    confirm,
    is_printed,
    print_entries,
    print_rows,
    timestamp_text,
    yes_option,
)

if TYPE_CHECKING:
    from kafkalog.client import Client

_KEEPERS = {
    "older_segment": "kept: an older one stays",
    "empty_active": "kept: active and empty",
    "high_watermark": "kept: it has records above the high watermark",
    "policy": "kept: no delete in cleanup.policy",
    "no_limits": "kept: no limit is set",
    "disputed_start": "kept: two files disagree about the log start",
    "hold": "kept: not archived yet",
    "clock_jump": "kept: the clock jumped; run --accept-clock",
    "limits": "kept: inside the limits",
}
_DUE_HEADINGS = ("EARLIEST", "LATEST", "FILES GONE")
_SEGMENT_HEADINGS = (
    "SEGMENT", "NEXT", "BYTES", "NEWEST", "STATE", "WHY", "BYTES UNTIL", *_DUE_HEADINGS
)  # fmt: skip
_DEPARTURE_HEADINGS = ("SEGMENT", "REASON", "BYTES", *_DUE_HEADINGS)
_DELETED_HEADINGS = ("PARTITION", "SEGMENT", "REASON", "BYTES")
_ARCHIVED_COLUMNS: Columns = (
    ("PARTITION", "partition"),
    ("ARCHIVED OFFSET", "archived_offset"),
    ("LOG START", "log_start_offset"),
    ("HIGH WATERMARK", "high_watermark"),
    ("LAG", "lag"),
    ("LAG BYTES", "lag_bytes"),
    ("LAG SECONDS", "lag_seconds"),
    ("HELD SEGMENTS", "held_segments"),
    ("HELD BYTES", "held_bytes"),
)

Entries = list[dict[str, Any]]


@click.command()
@topic_argument()
@partition_option
@with_client_and_output
def explain(topic: str, partition: int | None, client: Client, output: str) -> None:
    """Show why each segment is kept, and when it is deleted.

    Exit 3 when a partition is not served.

    Example: kafkalog retention explain orders --partition 0
    """
    reports = [
        {"topic": topic, **entry}
        if is_failed(entry)
        else client.explain_retention(topic, entry["partition"])
        for entry in _partitions(client, topic, partition)
    ]
    if not is_printed(output, reports, names_of(reports)):
        for report in _served(reports):
            _print_report(report)
    exit_on_failures(reports)


@click.command()
@topic_argument()
@topic_configs_option
@click.option(
    "--horizon", type=duration, required=True, help="How far to look ahead: 30d, 12h, 45m."
)
@click.option(
    "--at", type=timestamp, help="Start time: ms since 1970 or ISO-8601 with a zone. Default: now."
)
@click.option(
    "--check-interval",
    type=duration,
    help="Time between two checks: 10m. Default: log.retention.check.interval.ms of the daemon.",
)
@partition_option
@with_client_and_output
def simulate(
    topic: str,
    configs: tuple[str, ...],
    horizon: int,
    at: int | None,
    check_interval: int | None,
    partition: int | None,
    client: Client,
    output: str,
) -> None:
    """Show what retention would delete, and when, if these were the topic's configs.

    Changes nothing. Cleaner threads check compacted topics, whatever the --check-interval. Exit 3
    when a partition is not served.

    Example: kafkalog retention simulate orders --config retention.ms=1d --horizon 30d
    """
    if check_interval == 0:
        raise click.BadParameter("it is more than 0", param_hint="--check-interval")
    answer = client.simulate_retention(
        topic,
        dict(config_pairs(configs)),
        horizon,
        at=None if at is None else str(at),
        partition=partition,
        check_interval_ms=check_interval,
    )
    entries = [{"topic": topic, **entry} for entry in answer["partitions"]]
    if not is_printed(output, answer, names_of(entries)):
        for entry in _served(entries):
            _print_simulation(topic, entry)
    exit_on_failures(entries)


@click.command()
@click.argument("topic", required=False)
@partition_option
@click.option("--dry-run", is_flag=True, help="Show what would be deleted; delete nothing.")
@click.option(
    "--accept-clock",
    is_flag=True,
    help="First trust the wall clock of the daemon: delete what is held because it jumped ahead.",
)
@yes_option
@with_client_and_output
def run(
    topic: str | None,
    partition: int | None,
    dry_run: bool,
    accept_clock: bool,
    is_sure: bool,
    client: Client,
    output: str,
) -> None:
    """Run a retention pass now, over one topic or all. Exit 3 when a partition failed.

    When the wall clock jumps ahead and more than half of a log would be deleted because of that,
    the log is held: only what is due by the clock before the jump is deleted. --accept-clock ends
    this for all topics, also when a topic is named. It cannot be undone, so it asks on a terminal.

    Example: kafkalog retention run orders --dry-run
    """
    if topic is None and partition is not None:
        raise click.UsageError("--partition needs a topic")
    if accept_clock and dry_run:
        raise click.UsageError("--accept-clock cannot be used with --dry-run: it lifts the hold")
    wanted = None
    if topic is not None:
        entries = _partitions(client, topic, partition)
        wanted = [(topic, int(entry["partition"])) for entry in entries]
    if accept_clock:
        question = "Trust the wall clock, and delete what is held of all topics?"
        confirm(f"{question} This cannot be undone.", is_sure=is_sure)
        client.accept_clock()
    answer = client.run_retention(wanted, dry_run=dry_run)
    if not is_printed(output, answer, names_of(answer["partitions"])):
        print_run(answer)
    exit_on_failures(answer["partitions"])


@click.command()
@click.argument("topic")
@click.option("--partition", type=IntRange(min=0), help="With --raise-to.")
@click.option(
    "--raise-to", type=IntRange(min=0), help="Record that all offsets below this one are archived."
)
@yes_option
@with_client_and_output
def archived(
    topic: str,
    partition: int | None,
    raise_to: int | None,
    is_sure: bool,
    client: Client,
    output: str,
) -> None:
    """Show how far a topic is archived, and what archive.hold keeps until then.

    --raise-to first raises the archived offset of a partition: retention may then delete what is
    below it. This cannot be undone, so it asks on a terminal.

    Example: kafkalog retention archived orders --partition 0 --raise-to 40000
    """
    if (partition is None) is not (raise_to is None):
        raise click.UsageError("--partition and --raise-to must be given together")
    if partition is not None and raise_to is not None:
        question = f"Let retention delete {topic}-{partition} below offset {raise_to}?"
        confirm(f"{question} This cannot be undone.", is_sure=is_sure)
        client.raise_archived_offsets(topic, {partition: raise_to})
    entries = client.archived_offsets(topic)
    document = {"topic": topic, "partitions": entries}
    if not is_printed(output, document, (f"{topic}-{one['partition']}" for one in entries)):
        print_entries(_ARCHIVED_COLUMNS, entries)


def _partitions(client: Client, topic: str, partition: int | None) -> Entries:
    """The named partition, or all of the topic; those that are not served are failed entries."""
    if partition is not None:
        return [{"partition": partition}]
    return client.partitions(topic)


def _served(entries: Entries) -> Entries:
    return [entry for entry in entries if not is_failed(entry)]


# ---- text


def _print_report(report: dict[str, Any]) -> None:
    click.echo(
        f"Topic: {report['topic']}\tPartition: {report['partition']}"
        f"\tLogStartOffset: {report['log_start_offset']}"
        f"\tHighWatermark: {report['high_watermark']}\tLogEndOffset: {report['log_end_offset']}"
        f"\tSize: {report['size_bytes']}"
    )
    _print_schedule(report["schedule"])
    if report["hold_offset"] is not None:
        held = _counted(report["held_segments"], report["held_bytes"])
        click.echo(
            f"archive.hold: archived below {report['hold_offset']}; {held} over the limits kept."
        )
    print_rows(_SEGMENT_HEADINGS, list(map(_segment_row, report["segments"])))


def _segment_row(segment: dict[str, Any]) -> tuple[object, ...]:
    base_offset, size_bytes = segment["base_offset"], segment["size_bytes"]
    if segment["state"] == "deleting":
        gone = timestamp_text(segment["files_gone_ms"])
        return (base_offset, None, size_bytes, None, "deleting", None, None, None, None, gone)
    newest = timestamp_text(segment["largest_timestamp_ms"])
    if segment["largest_timestamp_source"] != "record":
        newest += " (file)"
    rule, keeper = segment["rule"], segment["keeper"]
    return (
        base_offset,
        segment["next_offset"],
        size_bytes,
        newest,
        segment["state"],
        _KEEPERS.get(keeper, keeper) if rule is None else f"deleted by {rule}",
        segment["bytes_until"],
        *_due_cells(segment["due"]),
    )


def _print_simulation(topic: str, entry: dict[str, Any]) -> None:
    click.echo(
        f"Topic: {topic}\tPartition: {entry['partition']}"
        f"\tFrom: {timestamp_text(entry['start_ms'])}\tTo: {timestamp_text(entry['end_ms'])}"
    )
    _print_schedule(entry["schedule"])
    segments = entry["segments"]
    print_rows(
        _DEPARTURE_HEADINGS,
        [
            (each["base_offset"], each["reason"], each["size_bytes"], *_due_cells(each["due"]))
            for each in segments
        ],
    )
    deleted = _counted(len(segments), sum(each["size_bytes"] for each in segments))
    retained = _counted(entry["segments_left"], entry["bytes_left"])
    click.echo(f"{deleted} deleted, {retained} retained.")


def print_run(answer: dict[str, Any]) -> None:
    """Deleted segments, their sum, and what waits for an operator."""
    rows: list[tuple[object, ...]] = [
        (name_of(entry), each["base_offset"], each["reason"], each["size_bytes"])
        for entry in answer["partitions"]
        for each in entry.get("segments", ())
    ]
    print_rows(_DELETED_HEADINGS, rows)
    counted = _counted(answer["segments"], answer["bytes"])
    click.echo(f"{counted} would be deleted." if answer["dry_run"] else f"{counted} deleted.")
    served = _served(answer["partitions"])
    held = sum(each.get("clock_held_segments", 0) for each in served)
    if held:
        counted = _counted(held, sum(each["clock_held_bytes"] for each in served))
        click.echo(
            f"{counted} held: the wall clock jumped ahead. Put it right, or if it is right:"
            " kafkalog retention run --accept-clock"
        )


def _print_schedule(schedule: dict[str, Any] | None) -> None:
    if schedule is None:
        click.echo(
            "No check: the log is compacted and the cleaner is off, so nothing is deleted until"
            " kafkalog retention run TOPIC."
        )
        return
    next_ms = schedule["next_check_ms"]
    checks = "Checks by the cleaner" if schedule["runs_in"] == "log_cleaner" else "Checks"
    when = "one is running" if next_ms is None else f"next at {timestamp_text(next_ms)}"
    click.echo(
        f"{checks}: {when}, then every {schedule['check_interval_ms']} ms; files are deleted"
        f" {schedule['delete_delay_ms']} ms later."
    )


def _due_cells(due: dict[str, Any] | None) -> tuple[str, ...]:
    """Dashes for never, or when nobody can foresee it."""
    times = ("earliest_ms", "latest_ms", "files_gone_ms")
    return tuple(timestamp_text(None if due is None else due[name]) for name in times)


def _counted(segments: int, size_bytes: int) -> str:
    noun = "segment" if segments == 1 else "segments"
    return f"{segments} {noun} ({size_bytes} bytes)"
