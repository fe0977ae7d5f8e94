"""``kafkalog compact``: what a clean would save and why a log is not picked; cleans by hand.

The daemon answers; this module asks and prints. Moments are UTC.
"""

from __future__ import annotations

import datetime
import json
from typing import TYPE_CHECKING, Any, Literal

import click

from kafkalog.cli.connection import message_of, output_option, with_client
from kafkalog.client import ClientError

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
    if topic is not None and not report["logs"]:
        click.echo(_not_compacted(topic))
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


@click.command()
@click.argument("topic")
@partition_option
@with_client
@output_option
@click.pass_context
def pause(
    ctx: click.Context, topic: str, partition: int | None, client: Client, output: str
) -> None:
    """End cleans of the topic and begin none, until they are resumed or the daemon restarts.

    Pauses add up: each needs a resume of its own. `plan` works meanwhile.

    Example: kafkalog compact pause orders --partition 0
    """
    _order(ctx, client, "pause", _logs(client, topic, partition), output)


@click.command()
@click.argument("topic")
@partition_option
@with_client
@output_option
@click.pass_context
def resume(
    ctx: click.Context, topic: str, partition: int | None, client: Client, output: str
) -> None:
    """Take back one pause of each partition that was paused.

    Example: kafkalog compact resume orders
    """
    logs = _logs(client, topic, partition)
    paused = [each for each in logs if each["operator_pauses"]]
    if not paused:
        raise click.ClickException(f"Nobody paused the cleaning of topic {topic}.")
    _order(ctx, client, "resume", paused, output)


@click.command()
@click.argument("topic")
@partition_option
@with_client
@output_option
@click.pass_context
def abort(
    ctx: click.Context, topic: str, partition: int | None, client: Client, output: str
) -> None:
    """End cleans of the topic that run now, if any; the next turn may begin them again.

    Example: kafkalog compact abort orders
    """
    _order(ctx, client, "abort", _logs(client, topic, partition), output)


# ---- asking


def _need_topic(partition: int | None) -> None:
    if partition is not None:
        raise click.UsageError("--partition needs a topic")


def _logs(client: Client, topic: str | None, partition: int | None) -> list[dict[str, Any]]:
    """The compacted logs that were named."""
    if topic is None:
        _need_topic(partition)
    logs: list[dict[str, Any]] = client.cleaner_status(topic)["logs"]
    if topic is not None and not logs:
        raise click.ClickException(_not_compacted(topic))
    if partition is not None:
        logs = [each for each in logs if each["partition"] == partition]
        if not logs:
            raise click.ClickException(
                f"Topic {topic} has no partition {partition}, or it is not served."
            )
    return sorted(logs, key=lambda each: (each["topic"], each["partition"]))


def _not_compacted(topic: str) -> str:
    """What to do about a topic that the cleaner does not know."""
    return (
        f"Topic {topic} is not compacted, or none of its partitions is served. To compact it: "
        f"kafkalog configs alter --topic {topic} --add-config cleanup.policy=compact"
    )


def _order(
    ctx: click.Context,
    client: Client,
    verb: Literal["pause", "resume", "abort"],
    logs: list[dict[str, Any]],
    output: str,
) -> None:
    """Give the order to each, and tell the state after it; exit 3 when one was refused."""
    states: list[dict[str, Any]] = []
    for each in logs:
        topic, partition = each["topic"], each["partition"]
        try:
            states.append(client.steer_cleaner(topic, partition, verb))
        except ClientError as refusal:
            why = {"error_code": refusal.error_code, "error": message_of(refusal)}
            states.append({"topic": topic, "partition": partition, **why})
    if output == "json":
        click.echo(json.dumps(states))
    else:
        for state in states:
            if "error" not in state:
                is_free = state["state"] == "none"
                click.echo(
                    f"{_name(state)} {'may be cleaned' if is_free else f'is {_state(state)}'}."
                )
    _end(ctx, states)


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


def _state(entry: dict[str, Any]) -> str:
    return f"{entry['state']}({entry['pauses']})" if entry["pauses"] else str(entry["state"])


def _thread_row(thread: dict[str, Any]) -> tuple[str, ...]:
    last = thread["last_run"] or {}
    seconds, before = last.get("seconds"), last.get("bytes_before")
    speed = f"{before / _MIB / seconds:.1f}" if seconds and before is not None else _NONE
    busy = thread["topic"] is not None
    state = f"cleans {_name(thread)}" if busy else "idle" if thread["alive"] else "dead"
    ended = _moment(last.get("ended_ms"))
    if last and last["outcome"] != "cleaned":
        ended += f" ({last['outcome']} {_name(last)})"
    utilization = last.get("map_utilization")
    return (
        thread["thread"],
        state,
        _moment(thread["busy_since_ms"]),
        ended,
        speed,
        _NONE if utilization is None else f"{100 * utilization:.0f}%",
        str(thread["restarts"]),
    )


def _log_row(log: dict[str, Any]) -> tuple[str, ...]:
    return (
        _name(log),
        _state(log),
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
