"""``kafkalog retention``: why segments are here and when they go, what if, and a pass by hand.

The daemon answers; this module asks and prints. Moments are UTC.

``kafkalog retention archived``: how far an archive has come, and a step of it by hand.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import click

from kafkalog.cli.arguments import config_pairs, moment_text, topic_argument, topic_configs_option
from kafkalog.cli.connection import end_with_failures, is_failed, output_option, with_client
from kafkalog.cli.output import print_table
from kafkalog.format.integers import INT64_MAX

if TYPE_CHECKING:
    from kafkalog.client import Client


_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"([0-9]{1,19})(ms|s|m|h|d)")
_KEEPERS = {
    "older_segment": "kept: an older one stays",
    "empty_active": "kept: active and empty",
    "high_watermark": "kept: readers do not see all of it yet",
    "policy": "kept: no delete in cleanup.policy",
    "no_limits": "kept: no limit is set",
    "disputed_start": "kept: where the log starts is disputed",
    "hold": "kept: not archived yet",
    "limits": "kept: inside the limits",
}
_SEGMENT_HEAD = ("segment", "next", "bytes", "newest", "state", "why", "bytes until")
_DUE_HEAD = ("earliest", "latest", "files gone")

partition_option = click.option(
    "--partition", type=click.IntRange(min=0), help="Default: all of the topic."
)


class Duration(click.ParamType[int]):
    """A number with a unit, as milliseconds."""

    name = "duration"

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """30d, 12h, 45m, 30s or 250ms."""
        if isinstance(value, int):
            return value
        found = _DURATION.fullmatch(value)
        if found is None:
            self.fail(f"'{value}' is no duration like 30d, 12h, 45m, 30s or 250ms", param, ctx)
        duration_ms = int(found[1]) * _UNITS_MS[found[2]]
        if duration_ms > INT64_MAX:
            self.fail(f"'{value}' is longer than a number of milliseconds can say", param, ctx)
        return duration_ms


@click.command()
@topic_argument()
@partition_option
@with_client
@output_option
@click.pass_context
def explain(
    ctx: click.Context, topic: str, partition: int | None, client: Client, output: str
) -> None:
    """Why each segment is still here, and when it goes. Exit 3 when a partition is not served.

    Example: kafkalog retention explain orders --partition 0
    """
    reports = [
        {"topic": topic, **entry}
        if is_failed(entry)
        else client.explain_retention(topic, entry["partition"])
        for entry in _partitions(client, topic, partition)
    ]
    if output == "json":
        click.echo(json.dumps(reports))
    else:
        for report in _done(reports):
            _print_report(report)
    end_with_failures(ctx, reports)


@click.command()
@topic_argument()
@topic_configs_option()
@click.option("--horizon", type=Duration(), required=True, help="How far to look: 30d, 12h, 45m.")
@click.option("--at", help="Start then: ms since 1970 or ISO-8601 with a zone. Default: now.")
@partition_option
@with_client
@output_option
@click.pass_context
def simulate(
    ctx: click.Context,
    topic: str,
    configs: tuple[str, ...],
    horizon: int,
    at: str | None,
    partition: int | None,
    client: Client,
    output: str,
) -> None:
    """What would go, and when, if these were the topic's configs. Nothing is changed.

    Exit 3 when a partition is not served.

    Example: kafkalog retention simulate orders --config retention.ms=86400000 --horizon 30d
    """
    answer = client.simulate_retention(
        topic, dict(config_pairs(configs)), horizon, at=at, partition=partition
    )
    if output == "json":
        click.echo(json.dumps(answer))
    else:
        for entry in _done(answer["partitions"]):
            _print_simulation(topic, entry)
    end_with_failures(ctx, [{"topic": topic, **entry} for entry in answer["partitions"]])


@click.command()
@click.argument("topic", required=False)
@partition_option
@click.option("--dry-run", is_flag=True, help="Say what would go; delete nothing.")
@with_client
@output_option
@click.pass_context
def run(
    ctx: click.Context,
    topic: str | None,
    partition: int | None,
    dry_run: bool,
    client: Client,
    output: str,
) -> None:
    """Run a retention pass now, over one topic or over all. Exit 3 when a partition failed.

    Example: kafkalog retention run orders --dry-run
    """
    if topic is None and partition is not None:
        raise click.UsageError("--partition needs a topic")
    wanted = None
    if topic is not None:
        entries = _partitions(client, topic, partition)
        wanted = [(topic, int(entry["partition"])) for entry in entries]
    answer = client.run_retention(wanted, dry_run=dry_run)
    if output == "json":
        click.echo(json.dumps(answer))
    else:
        _print_run(answer)
    end_with_failures(ctx, answer["partitions"])


def _partitions(client: Client, topic: str, partition: int | None) -> list[dict[str, Any]]:
    """The partition asked for, or all of the topic; with ``error_code`` when it is not served."""
    if partition is not None:
        return [{"partition": partition}]
    return client.partitions(topic)


def _done(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
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
    rows: list[tuple[str, ...]] = []
    for each in report["segments"]:
        if each["state"] == "deleting":
            base, size = str(each["base_offset"]), str(each["size_bytes"])
            gone = moment_text(each["files_gone_ms"])
            rows.append((base, "-", size, "-", "deleting", "-", "-", "-", "-", gone))
        else:
            rows.append(_segment_row(each))
    _print_table(
        (*_SEGMENT_HEAD, *_DUE_HEAD),
        rows,
    )


def _segment_row(each: dict[str, Any]) -> tuple[str, ...]:
    rule, until = each["rule"], each["bytes_until"]
    return (
        str(each["base_offset"]),
        str(each["next_offset"]),
        str(each["size_bytes"]),
        _newest(each),
        each["state"],
        _KEEPERS.get(each["keeper"], each["keeper"]) if rule is None else f"goes by {rule}",
        "-" if until is None else str(until),
        *_due_cells(each["due"]),
    )


def _newest(each: dict[str, Any]) -> str:
    """The moment that the time rule counts from, and where it is not a record's."""
    moment = moment_text(each["largest_timestamp_ms"])
    return moment if each["largest_timestamp_source"] == "record" else f"{moment} (file)"


def _print_simulation(topic: str, entry: dict[str, Any]) -> None:
    click.echo(
        f"Topic: {topic}\tPartition: {entry['partition']}\tFrom: {moment_text(entry['start_ms'])}"
        f"\tTo: {moment_text(entry['end_ms'])}"
    )
    _print_schedule(entry["schedule"])
    _print_table(
        ("segment", "reason", "bytes", *_DUE_HEAD),
        [
            (
                str(each["base_offset"]),
                each["reason"],
                str(each["size_bytes"]),
                *_due_cells(each["due"]),
            )
            for each in entry["segments"]
        ],
    )
    going = sum(each["size_bytes"] for each in entry["segments"])
    click.echo(
        f"{_counted(len(entry['segments']), going)} go, "
        f"{_counted(entry['segments_left'], entry['bytes_left'])} stay."
    )


def _print_run(answer: dict[str, Any]) -> None:
    rows: list[tuple[str, ...]] = [
        (
            f"{entry['topic']}-{entry['partition']}",
            str(each["base_offset"]),
            each["reason"],
            str(each["size_bytes"]),
        )
        for entry in answer["partitions"]
        for each in entry.get("segments", ())
    ]
    _print_table(("partition", "segment", "reason", "bytes"), rows)
    said = _counted(answer["segments"], answer["bytes"])
    click.echo(f"{said} would go." if answer["dry_run"] else f"{said} deleted.")


def _print_schedule(schedule: dict[str, Any] | None) -> None:
    if schedule is None:
        click.echo(
            "No check: it is compacted and the cleaner is off, so nothing goes until "
            "kafkalog retention run TOPIC."
        )
        return
    next_ms = schedule["next_check_ms"]
    who = "Checks by the cleaner" if schedule["runs_in"] == "log_cleaner" else "Checks"
    when = "one is running" if next_ms is None else f"next at {moment_text(next_ms)}"
    click.echo(
        f"{who}: {when}, then every {schedule['check_interval_ms']} ms; "
        f"files go {schedule['delete_delay_ms']} ms later."
    )


def _print_table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Nothing without rows."""
    if rows:
        print_table([tuple(cell.upper() for cell in head), *rows])


def _due_cells(due: dict[str, Any] | None) -> tuple[str, str, str]:
    if due is None:
        return "-", "-", "-"  # never, or nobody can say
    return (
        moment_text(due["earliest_ms"]),
        moment_text(due["latest_ms"]),
        moment_text(due["files_gone_ms"]),
    )


def _counted(segments: int, size_bytes: int) -> str:
    noun = "segment" if segments == 1 else "segments"
    return f"{segments} {noun} ({size_bytes} bytes)"


_COLUMNS = (
    ("PARTITION", "partition"),
    ("ARCHIVED OFFSET", "archived_offset"),
    ("LOG START", "log_start_offset"),
    ("HIGH WATERMARK", "high_watermark"),
    ("LAG", "lag"),
    ("HELD SEGMENTS", "held_segments"),
    ("HELD BYTES", "held_bytes"),
)


@click.command()
@click.argument("topic")
@click.option("--partition", type=click.IntRange(min=0), help="With --raise-to.")
@click.option(
    "--raise-to", type=click.IntRange(min=0), help="An archive has everything below this offset."
)
@with_client
@output_option
def archived(
    topic: str, partition: int | None, raise_to: int | None, client: Client, output: str
) -> None:
    """How far a topic is archived, and what archive.hold keeps until it is.

    With --raise-to, say first that an archive has come further: retention may then delete what
    lies below, and nothing takes that back.

    Example: kafkalog retention archived orders --partition 0 --raise-to 40000
    """
    if (partition is None) is not (raise_to is None):
        raise click.UsageError("--partition and --raise-to go together")
    if partition is not None and raise_to is not None:
        client.raise_archived_offsets(topic, {partition: raise_to})
    entries = client.archived_offsets(topic)
    if output == "json":
        click.echo(json.dumps({"topic": topic, "partitions": entries}))
        return
    rows = [tuple(str(entry[name]) for _, name in _COLUMNS) for entry in entries]
    print_table([tuple(head for head, _ in _COLUMNS), *rows])
