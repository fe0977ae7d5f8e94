"""``kafkalog compact``: what a clean would save and why a log is not picked; cleans by hand.

The daemon answers; this module asks and prints. Moments are UTC.
"""

from __future__ import annotations

import datetime
import json
from typing import TYPE_CHECKING, Any

import click

from kafkalog.cli.connection import output_option, with_client

if TYPE_CHECKING:
    from kafkalog.client import Client

_PARTIAL_FAILURE = 3
_NONE = "-"
_MIB = 1024 * 1024
_WHY_NOT = {
    "cleaner_off": "the cleaner is off (log.cleaner.enable, log.cleaner.threads)",
    "moving": "it moves to another log directory",
    "in_progress": "a cleaner thread has it",
    "paused": "paused",
    "uncleanable": "uncleanable; see `kafkalog compact status`",
    "waits_for_retry": "failed, is tried again soon",
    "unreadable": "its log directory failed",
    "nothing_cleanable": "nothing: what is dirty is active, too young or in a transaction",
    "below_ratio": "below min.cleanable.dirty.ratio",
}
_PLAN_HEAD = (
    "PARTITION",
    "DIRTY",
    "NEEDS",
    "RANK",
    "BYTES",
    "AFTER",
    "RECORDS",
    "AFTER",
    "WHY NOT",
)
_RUN_HEAD = ("PARTITION", "OUTCOME", "BYTES", "AFTER", "RECORDS", "AFTER", "SECONDS")
_THREAD_HEAD = ("THREAD", "STATE", "SINCE", "LAST CLEAN", "MB/S", "MAP", "RESTARTS")
_LOG_HEAD = ("PARTITION", "STATE", "CLEAN TO", "CLEANABLE TO", "DIRTY", "LAST CLEAN", "FAILURE")

partition_option = click.option(
    "--partition", type=click.IntRange(min=0), help="Default: all of the topic."
)


@click.command()
@click.argument("topic", required=False)
@partition_option
@with_client
@output_option
@click.pass_context
def plan(
    ctx: click.Context, topic: str | None, partition: int | None, client: Client, output: str
) -> None:
    """What a clean would take of each compacted log, and why none begins.

    The figures come from a clean that writes nothing: it reads what a real one reads.

    Example: kafkalog compact plan orders
    """
    logs = _logs(client, topic, partition)
    wanted = [each for each in logs if each["cleanable_bytes"]]
    runs = _clean(client, wanted, dry_run=True)
    if output == "json":
        found = {(run["topic"], run["partition"]): run for run in runs}
        for each in logs:
            each["dry_run"] = found.get((each["topic"], each["partition"]))
        click.echo(json.dumps(logs))
    else:
        _print_plan(logs, runs)
    _end(ctx, runs)


@click.command()
@click.argument("topic", required=False)
@partition_option
@with_client
@output_option
@click.pass_context
def run(
    ctx: click.Context, topic: str | None, partition: int | None, client: Client, output: str
) -> None:
    """Clean now, one topic or all that have something to clean. Exit 3 when a partition failed.

    Example: kafkalog compact run orders --partition 0
    """
    if topic is None:
        _need_topic(partition)
        runs = client.run_cleaner()
    else:
        runs = _clean(client, _logs(client, topic, partition), dry_run=False)
    if output == "json":
        click.echo(json.dumps(runs))
    elif not runs:
        click.echo("Nothing to clean.")
    else:
        _print_table(_RUN_HEAD, [_run_row(each) for each in runs])
    _end(ctx, runs)


@click.command()
@click.argument("topic", required=False)
@with_client
@output_option
def status(topic: str | None, client: Client, output: str) -> None:
    """The cleaner's threads, and how far each compacted log is.

    Example: kafkalog compact status --output json
    """
    report = client.cleaner_status(topic)
    if output == "json":
        click.echo(json.dumps(report))
        return
    if not report["enabled"]:
        click.echo("The cleaner is off (log.cleaner.enable, log.cleaner.threads).")
    rate = report["throttle_bytes_per_second"]
    if rate is not None:
        click.echo(f"All threads together read and write {rate:.0f} bytes a second at most.")
    if report["threads"]:
        _print_table(_THREAD_HEAD, [_thread_row(each) for each in report["threads"]])
    if report["logs"]:
        _print_table(_LOG_HEAD, [_log_row(each) for each in report["logs"]])
    for each in report["logs"]:
        if each["failure"] is not None:
            failure = each["failure"]
            what = "uncleanable" if failure["uncleanable"] else "is tried again"
            click.echo(f"{_name(each)} {what} after {failure['attempts']}: {failure['reason']}")


@click.command()
@click.argument("topic", required=False)
@partition_option
@with_client
@output_option
def retry(topic: str | None, partition: int | None, client: Client, output: str) -> None:
    """Try partitions again that failed to be cleaned: of one topic or all.

    Example: kafkalog compact retry orders
    """
    failed = [each for each in _logs(client, topic, partition) if each["failure"]]
    answers = [client.steer_cleaner(each["topic"], each["partition"], "retry") for each in failed]
    if output == "json":
        click.echo(json.dumps(answers))
    elif not failed:
        click.echo("Nothing failed.")
    else:
        for each in failed:
            click.echo(f"{_name(each)} is tried again.")


# ---- asking


def _need_topic(partition: int | None) -> None:
    if partition is not None:
        raise click.UsageError("--partition needs a topic")


def _logs(client: Client, topic: str | None, partition: int | None) -> list[dict[str, Any]]:
    """The compacted logs that were named."""
    if topic is None:
        _need_topic(partition)
    logs: list[dict[str, Any]] = client.cleaner_status(topic)["logs"]
    if partition is not None:
        logs = [each for each in logs if each["partition"] == partition]
    if topic is not None and not logs:
        raise click.ClickException(f"Topic {topic} has no such compacted partition.")
    return sorted(logs, key=lambda each: (each["topic"], each["partition"]))


def _clean(client: Client, logs: list[dict[str, Any]], *, dry_run: bool) -> list[dict[str, Any]]:
    """The runs of these; a clean takes its time, so each is asked for by itself."""
    runs: list[dict[str, Any]] = []
    for each in logs:
        runs += client.run_cleaner([(each["topic"], each["partition"])], dry_run=dry_run)
    return runs


def _end(ctx: click.Context, runs: list[dict[str, Any]]) -> None:
    """Tell failures; exit 3 when there were some."""
    failed = [run for run in runs if "error" in run]
    for each in failed:
        click.echo(f"Error: {_name(each)}: {each['error']}", err=True)
    if failed:
        ctx.exit(_PARTIAL_FAILURE)


# ---- printing


def _name(entry: dict[str, Any]) -> str:
    return f"{entry['topic']}-{entry['partition']}"


def _print_plan(logs: list[dict[str, Any]], runs: list[dict[str, Any]]) -> None:
    if not logs:
        click.echo("No topic is compacted.")
        return
    found = {(run["topic"], run["partition"]): run for run in runs}
    rows = []
    for each in logs:
        sizes = _sizes(found.get((each["topic"], each["partition"]), {}))
        why = each["why_not"]
        rows.append(
            (
                _name(each),
                _ratio(each["cleanable_ratio"]),
                _ratio(each["min_cleanable_ratio"]),
                _text(each["rank"]),
                *sizes,
                _NONE if why is None else _WHY_NOT.get(why, why),
            )
        )
    _print_table(_PLAN_HEAD, rows)


def _sizes(run: dict[str, Any]) -> tuple[str, ...]:
    keys = ("bytes_before", "bytes_after", "records_before", "records_after")
    return tuple(_text(run.get(key)) for key in keys)


def _run_row(run: dict[str, Any]) -> tuple[str, ...]:
    seconds = run.get("seconds")
    took = _NONE if seconds is None else f"{seconds:.1f}"
    return (_name(run), run["outcome"], *_sizes(run), took)


def _thread_row(thread: dict[str, Any]) -> tuple[str, ...]:
    last = thread["last_run"] or {}
    seconds, before = last.get("seconds"), last.get("bytes_before")
    speed = f"{before / _MIB / seconds:.1f}" if seconds and before is not None else _NONE
    busy = thread["topic"] is not None
    state = f"cleans {_name(thread)}" if busy else "idle" if thread["alive"] else "dead"
    utilization = last.get("map_utilization")
    return (
        thread["thread"],
        state,
        _moment(thread["busy_since_ms"]),
        _moment(last.get("ended_ms")),
        speed,
        _NONE if utilization is None else f"{100 * utilization:.0f}%",
        str(thread["restarts"]),
    )


def _log_row(log: dict[str, Any]) -> tuple[str, ...]:
    pauses = f"({log['pauses']})" if log["pauses"] else ""
    return (
        _name(log),
        log["state"] + pauses,
        _text(log["checkpoint"]),
        _text(log["first_uncleanable_offset"]),
        _ratio(log["cleanable_ratio"]),
        _moment(log["last_success_ms"]),
        _NONE if log["failure"] is None else log["failure"]["error"],
    )


def _print_table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    lines = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def _text(value: int | None) -> str:
    return _NONE if value is None else str(value)


def _ratio(value: float | None) -> str:
    return _NONE if value is None else f"{100 * value:.1f}%"


def _moment(wall_ms: int | None) -> str:
    if wall_ms is None:
        return _NONE
    moment = datetime.datetime.fromtimestamp(wall_ms / 1000, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
