"""``kafkalog compact``: what cleaning would save, why a log is not cleaned, and cleaning by hand.

The daemon does the work; this module asks and prints. Times are UTC.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import click

from kafkalog.cli.arguments import include_internal_option, partition_option
from kafkalog.cli.connection import (
    exit_on_failures,
    failed_entry,
    is_failed,
    name_of,
    names_of,
    with_client_and_output,
)
from kafkalog.cli.output import is_printed, print_rows, timestamp_text
from kafkalog.client import ClientError
from kafkalog.format.topic_names import is_internal

if TYPE_CHECKING:
    from kafkalog.client import Client

_MIB = 1024 * 1024
_WHY_NOT = {
    "cleaner_off": "the cleaner is off (log.cleaner.enable, log.cleaner.threads)",
    "moving": "it moves to another log directory",
    "in_progress": "a cleaner thread is cleaning it",
    "paused": "paused",
    "uncleanable": "uncleanable; see `kafkalog compact status`",
    "waits_for_retry": "failed, waits for a retry",
    "unreadable": "its log directory failed",
    "nothing_cleanable": "nothing: what is dirty is active, too young or in a transaction",
    "below_ratio": "below min.cleanable.dirty.ratio",
}
_SIZES = ("bytes_before", "bytes_after", "records_before", "records_after")
_SIZE_HEADINGS = ("BYTES", "AFTER", "RECORDS", "AFTER")
_PLAN_HEADINGS = ("PARTITION", "DIRTY", "NEEDS", "RANK", *_SIZE_HEADINGS, "WHY NOT")
_RUN_HEADINGS = ("PARTITION", "OUTCOME", *_SIZE_HEADINGS, "SECONDS")
_THREAD_HEADINGS = ("THREAD", "STATE", "SINCE", "LAST CLEAN", "MB/S", "MAP", "RESTARTS")
_LOG_HEADINGS = (
    "PARTITION", "STATE", "CLEAN TO", "CLEANABLE TO", "DIRTY", "LAST CLEAN", "FAILURE"
)  # fmt: skip

Entries = list[dict[str, Any]]


@click.command()
@click.argument("topic", required=False)
@partition_option
@with_client_and_output
def plan(topic: str | None, partition: int | None, client: Client, output: str) -> None:
    """Show what cleaning would save in each compacted log, and why a log is not cleaned.

    The figures come from a dry run, which reads what a clean reads and writes nothing.

    Example: kafkalog compact plan orders
    """
    logs = _logs(client, topic, partition)
    runs = _clean(client, [each for each in logs if each["cleanable_bytes"]], dry_run=True)
    found = {name_of(run): run for run in runs}
    documents = [{**each, "dry_run": found.get(name_of(each))} for each in logs]
    if not is_printed(output, documents, names_of(logs)):
        rows = [_plan_row(each, found.get(name_of(each), {})) for each in logs]
        print_rows(_PLAN_HEADINGS, rows, "No topic is compacted.")
    exit_on_failures(runs)


@click.command()
@click.argument("topic", required=False)
@partition_option
@with_client_and_output
def run(topic: str | None, partition: int | None, client: Client, output: str) -> None:
    """Clean one topic, or all logs that have something to clean. Exit 3 when a partition failed.

    Example: kafkalog compact run orders --partition 0
    """
    if topic is None:
        _check_partition(partition)
        runs = client.run_cleaner()
    else:
        runs = _clean(client, _logs(client, topic, partition), dry_run=False)
    if not is_printed(output, runs, names_of(runs)):
        print_rows(_RUN_HEADINGS, list(map(_run_row, runs)), "Nothing to clean.")
    exit_on_failures(runs)


@click.command()
@click.argument("topic", required=False)
@include_internal_option
@with_client_and_output
def status(topic: str | None, with_internal: bool, client: Client, output: str) -> None:
    """Show the cleaner threads, and how far each compacted log is cleaned.

    The table leaves out partitions of internal topics with nothing to tell, unless TOPIC is one.

    Example: kafkalog compact status --output json
    """
    report = client.cleaner_status(topic)
    if is_printed(output, report, names_of(report["logs"])):
        return
    if not report["enabled"]:
        click.echo("The cleaner is off (log.cleaner.enable, log.cleaner.threads).")
    rate = report["throttle_bytes_per_second"]
    if rate is not None:
        click.echo(f"All threads together read and write at most {rate:.0f} bytes per second.")
    print_rows(_THREAD_HEADINGS, list(map(_thread_row, report["threads"])))
    is_whole = with_internal or topic is not None
    listed = report["logs"] if is_whole else [each for each in report["logs"] if _is_listed(each)]
    rows = list(map(_log_row, listed))
    print_rows(_LOG_HEADINGS, rows, None if topic is None else _not_compacted(topic))
    left_out = len(report["logs"]) - len(listed)
    if left_out:
        click.echo(f"{left_out} partitions of internal topics: --include-internal lists them.")
    for each in report["logs"]:
        if each["failure"] is not None:
            failure = each["failure"]
            state = "is uncleanable" if failure["uncleanable"] else "will be tried again"
            attempts = f"failed {failure['attempts']} times"
            click.echo(f"{name_of(each)} {attempts} and {state}: {failure['reason']}")


@click.command()
@click.argument("topic", required=False)
@partition_option
@with_client_and_output
def retry(topic: str | None, partition: int | None, client: Client, output: str) -> None:
    """Clear the failures of partitions, of one topic or all, so that they are cleaned again.

    Example: kafkalog compact retry orders
    """
    failed = [each for each in _logs(client, topic, partition) if each["failure"]]
    answers = [client.steer_cleaner(each["topic"], each["partition"], "retry") for each in failed]
    if is_printed(output, answers, names_of(failed)):
        return
    for each in failed:
        click.echo(f"{name_of(each)} will be tried again.")
    if not failed:
        click.echo("No partition has failed.")


@click.command()
@click.argument("topic")
@partition_option
@with_client_and_output
def pause(topic: str, partition: int | None, client: Client, output: str) -> None:
    """Abort cleans of the topic and start none, until they are resumed or the daemon restarts.

    Pauses are counted: each needs its own resume. `plan` works while a partition is paused.

    Example: kafkalog compact pause orders --partition 0
    """
    _steer(client, "pause", _logs(client, topic, partition), output)


@click.command()
@click.argument("topic")
@partition_option
@with_client_and_output
def resume(topic: str, partition: int | None, client: Client, output: str) -> None:
    """Take back one pause of each paused partition.

    Example: kafkalog compact resume orders
    """
    paused = [each for each in _logs(client, topic, partition) if each["operator_pauses"]]
    if not paused:
        raise click.ClickException(f"No partition of topic {topic} was paused by an operator.")
    _steer(client, "resume", paused, output)


@click.command()
@click.argument("topic")
@partition_option
@with_client_and_output
def abort(topic: str, partition: int | None, client: Client, output: str) -> None:
    """Abort running cleans of the topic, if any; the cleaner may start them again.

    Example: kafkalog compact abort orders
    """
    _steer(client, "abort", _logs(client, topic, partition), output)


# ---- requests


def _check_partition(partition: int | None) -> None:
    """Usage error for a partition without a topic."""
    if partition is not None:
        raise click.UsageError("--partition needs a topic")


def _logs(client: Client, topic: str | None, partition: int | None) -> Entries:
    """The compacted logs that the arguments name, sorted."""
    if topic is None:
        _check_partition(partition)
    logs: Entries = client.cleaner_status(topic)["logs"]
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
        f"kafkalog configs alter {topic} --config cleanup.policy=compact"
    )


def _steer(
    client: Client, action: Literal["pause", "resume", "abort"], logs: Entries, output: str
) -> None:
    """Send the action for each log and print its state afterwards; exit 3 when one was refused."""
    states: Entries = []
    for each in logs:
        at = each["topic"], each["partition"]
        try:
            states.append(client.steer_cleaner(*at, action))
        except ClientError as refusal:
            states.append(failed_entry(*at, refusal))
    if not is_printed(output, states, names_of(states)):
        for state in states:
            if not is_failed(state):
                shown = "may be cleaned" if state["state"] == "none" else f"is {_state(state)}"
                click.echo(f"{name_of(state)} {shown}.")
    exit_on_failures(states)


def _clean(client: Client, logs: Entries, *, dry_run: bool) -> Entries:
    """The runs of these logs. One request each, because a clean may take long."""
    runs: Entries = []
    for each in logs:
        runs += client.run_cleaner([(each["topic"], each["partition"])], dry_run=dry_run)
    return runs


# ---- rows


def _plan_row(log: dict[str, Any], dry_run: dict[str, Any]) -> tuple[object, ...]:
    why_not = log["why_not"]
    return (
        name_of(log),
        _percent(log["cleanable_ratio"]),
        _percent(log["min_cleanable_ratio"]),
        log["rank"],
        *map(dry_run.get, _SIZES),
        _WHY_NOT.get(why_not, why_not),
    )


def _run_row(run: dict[str, Any]) -> tuple[object, ...]:
    seconds = run.get("seconds")
    took = None if seconds is None else f"{seconds:.1f}"
    return (name_of(run), run["outcome"], *map(run.get, _SIZES), took)


def _thread_row(thread: dict[str, Any]) -> tuple[object, ...]:
    last = thread["last_run"] or {}
    seconds, before = last.get("seconds"), last.get("bytes_before")
    is_busy = thread["topic"] is not None
    ended = timestamp_text(last.get("ended_ms"))
    if last and last["outcome"] != "cleaned":
        ended += f" ({last['outcome']} {name_of(last)})"
    return (
        thread["thread"],
        f"cleans {name_of(thread)}" if is_busy else "idle" if thread["alive"] else "dead",
        timestamp_text(thread["busy_since_ms"]),
        ended,
        f"{before / _MIB / seconds:.1f}" if seconds and before is not None else None,
        _percent(last.get("map_utilization"), 0),
        thread["restarts"],
    )


def _is_listed(log: dict[str, Any]) -> bool:
    """One of an internal topic only when something is the matter with it."""
    is_quiet = log["state"] == "none" and log["failure"] is None
    return not (is_quiet and is_internal(log["topic"]))


def _log_row(log: dict[str, Any]) -> tuple[object, ...]:
    return (
        name_of(log),
        _state(log),
        log["checkpoint"],
        log["first_uncleanable_offset"],
        _percent(log["cleanable_ratio"]),
        timestamp_text(log["last_success_ms"]),
        None if log["failure"] is None else log["failure"]["error"],
    )


def _state(entry: dict[str, Any]) -> str:
    return f"{entry['state']}({entry['pauses']})" if entry["pauses"] else str(entry["state"])


def _percent(ratio: float | None, digits: int = 1) -> str | None:
    return None if ratio is None else f"{100 * ratio:.{digits}f}%"
