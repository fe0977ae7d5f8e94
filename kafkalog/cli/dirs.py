"""``kafkalog dirs`` and ``kafkalog tasks``: log directories, moves between them, background tasks.

Without a terminal the text of ``dirs describe`` is that of Kafka's kafka-log-dirs.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from kafkalog.cli.arguments import include_internal_option
from kafkalog.cli.connection import exit_after, is_failed, name_of, names_of, with_client_and_output
from kafkalog.cli.kafka_tools.log_dirs import tool_lines
from kafkalog.cli.main import CommandGroup
from kafkalog.cli.output import TEXT, TIMESTAMP_MAX_MS, is_printed, print_table, timestamp_text
from kafkalog.env.filesystem import DiskSpace
from kafkalog.format.topic_names import is_internal

if TYPE_CHECKING:
    from kafkalog.client import Client

_POLL_SECONDS = 1.0
_DIR_HEADINGS = ("DIRECTORY", "STATE", "PARTITIONS", "BYTES", "DISK USED", "AVAILABLE")
_IN_DIR_HEADINGS = ("PARTITION", "BYTES", "LAG OF MOVE", "DIRECTORY")
_MOVE_HEADINGS = (
    "PARTITION", "STATE", "COPIED", "OF BYTES", "OFFSET LAG", "FROM", "TO", "REASON"
)  # fmt: skip
_TASK_HEADINGS = ("TASK", "STATE", "PERIOD", "NEXT RUN", "LAST RUN", "TOOK", "RUNS", "FAILURES")


class PartitionName(click.ParamType[tuple[str, int]]):
    """``topic-0`` as topic and number."""

    name = "topic-partition"

    def convert(
        self, value: str | tuple[str, int], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        """The number is what follows the last dash."""
        if isinstance(value, tuple):
            return value
        topic, _, number = value.rpartition("-")
        if not topic or not (number.isascii() and number.isdigit()):
            self.fail(f"'{value}' is not a partition like orders-0", param, ctx)
        return topic, int(number)


partitions_argument = click.argument(
    "partitions", nargs=-1, required=True, type=PartitionName(), metavar="TOPIC-PARTITION..."
)


@click.group(cls=CommandGroup)
def dirs() -> None:
    """Describe the log directories, and move partitions between them."""


@dirs.command()
@click.option("--topics", "--topic-list", help="Only these topics, as a,b. Default: all.")
@include_internal_option
@with_client_and_output
def describe(topics: str | None, with_internal: bool, client: Client, output: str) -> None:
    """Show the partitions of each log directory with their bytes, and what is offline or full.

    DISK USED and AVAILABLE are those of df, now. The table has one line a directory for partitions
    of internal topics, unless --topics or --include-internal is given. The reason why a directory
    is offline, full, low or failing goes to standard error. --output json has that reason, and the
    bytes of the disk (-1: unknown). Without a terminal the lines are those of kafka-log-dirs, the
    last one its JSON: add --output table to read them.

    Example: kafkalog dirs describe --topics orders
    """
    answer = client.describe_log_dirs(topics or "")
    log_dirs = [log_dir for broker in answer["brokers"] for log_dir in broker["logDirs"]]
    if is_printed(output, answer, (log_dir["logDir"] for log_dir in log_dirs)):
        return
    if output == TEXT:
        for line in tool_lines(answer):
            click.echo(line)
    else:
        print_table([_DIR_HEADINGS, *map(_dir_row, log_dirs)])
        partitions = [
            (log_dir["logDir"], one) for log_dir in log_dirs for one in log_dir["partitions"]
        ]
        listed = partitions if with_internal or topics else _folded(partitions)
        print_table([_IN_DIR_HEADINGS, *(_in_dir_row(*each) for each in listed)])
        found = {_topic_of(one) for _, one in partitions}
        for name in [each for each in (topics or "").split(",") if each and each not in found]:
            click.echo(f"No partition of a topic {name} is in a log directory.", err=True)
    for log_dir in log_dirs:
        if log_dir["state"] != "online":
            click.echo(f"{log_dir['logDir']} is {log_dir['state']}: {log_dir['reason']}", err=True)


def _dir_row(log_dir: dict[str, Any]) -> tuple[object, ...]:
    sizes = sum(one["size"] for one in log_dir["partitions"])
    space = DiskSpace(*(log_dir[name] for name in ("totalBytes", "usableBytes", "usedBytes")))
    ratio = space.used_ratio
    spaces = (None, None) if ratio is None else (f"{ratio:.1%}", space.usable_bytes)
    return (log_dir["logDir"], log_dir["state"], len(log_dir["partitions"]), sizes, *spaces)


def _topic_of(partition: dict[str, Any]) -> str:
    return str(partition["partition"].rpartition("-")[0])


def _folded(partitions: list[tuple[str, dict[str, Any]]]) -> list[tuple[str, dict[str, Any]]]:
    """Those of internal topics as one entry a directory, behind the others; moves stay."""
    listed: list[tuple[str, dict[str, Any]]] = []
    internal: dict[str, list[int]] = {}
    for path, one in partitions:
        if one["isFuture"] or not is_internal(_topic_of(one)):
            listed.append((path, one))
        else:
            internal.setdefault(path, []).append(one["size"])
    for path, sizes in internal.items():
        name = f"internal topics ({len(sizes)})"
        listed.append((path, {"partition": name, "size": sum(sizes), "isFuture": False}))
    return listed


def _in_dir_row(path: str, partition: dict[str, Any]) -> tuple[object, ...]:
    lag = partition["offsetLag"] if partition["isFuture"] else None
    return (partition["partition"], partition["size"], lag, path)


# ---- moves


@dirs.command()
@partitions_argument
@click.option("--to", "log_dir", required=True, help="A log directory, as in log.dirs.")
@click.option("--wait", is_flag=True, help="Wait until all moves have ended; print progress.")
@with_client_and_output
def move(
    partitions: tuple[tuple[str, int], ...], log_dir: str, wait: bool, client: Client, output: str
) -> None:
    """Move partitions to another log directory while they are served.

    The daemon continues the moves also after a restart. Exit 3 when only some were refused or
    failed.

    Example: kafkalog dirs move orders-0 orders-3 --to /data/b --wait
    """
    entries = client.begin_moves(dict.fromkeys(partitions, log_dir))
    if wait:
        entries = _wait_for_end(client, entries)
    _print_moves(entries, output)
    exit_after(is_failed(each) or each["state"] in ("failed", "cancelled") for each in entries)


@dirs.command()
@with_client_and_output
def moves(client: Client, output: str) -> None:
    """List moves in progress, and those that ended since the start of the daemon.

    Example: kafkalog dirs moves
    """
    _print_moves(client.list_moves(), output)


@dirs.command("cancel-move")
@partitions_argument
@with_client_and_output
def cancel_move(partitions: tuple[tuple[str, int], ...], client: Client, output: str) -> None:
    """Cancel moves; the partitions stay in their log directory.

    Example: kafkalog dirs cancel-move orders-0
    """
    _print_moves([client.cancel_move(topic, number) for topic, number in partitions], output)


def _wait_for_end(client: Client, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The entries when all have ended; prints progress on standard error."""
    while any(entry.get("state") == "copying" for entry in entries):
        time.sleep(_POLL_SECONDS)
        now = {name_of(each): each for each in client.list_moves()}
        # The moves of a topic that was deleted meanwhile are not listed any more.
        entries = [
            now.get(name_of(entry), {**entry, "state": "cancelled"})
            if entry.get("state") == "copying"
            else entry
            for entry in entries
        ]
        copied = sum(entry.get("copied_bytes", 0) for entry in entries)
        size = sum(entry.get("size_bytes", 0) for entry in entries)
        left = sum(entry.get("state") == "copying" for entry in entries)
        click.echo(f"{left} moves in progress, {copied} of {size} bytes copied", err=True)
    return entries


def _print_moves(entries: list[dict[str, Any]], output: str) -> None:
    if not is_printed(output, entries, names_of(entries)):
        print_table([_MOVE_HEADINGS, *map(_move_row, entries)])


def _move_row(entry: dict[str, Any]) -> tuple[object, ...]:
    if is_failed(entry):
        return (name_of(entry), "refused", "", "", "", "", "", entry["message"])
    fields = ("state", "copied_bytes", "size_bytes", "offset_lag", "source", "target")
    return (name_of(entry), *(entry[field] for field in fields), entry["reason"] or "")


# ---- tasks


@click.group(cls=CommandGroup)
def tasks() -> None:
    """List the background tasks."""


@tasks.command("list")
@with_client_and_output
def list_tasks(client: Client, output: str) -> None:
    """Show of each task when it ran and runs next, how long it took, and what failed.

    Tasks that run once share a line by name; STATE says how many wait or run.

    Example: kafkalog tasks list --output json
    """
    answer = client.describe_tasks()
    entries = answer["tasks"]
    if is_printed(output, answer, (entry["name"] for entry in entries)):
        return
    print_table([_TASK_HEADINGS, *map(_task_row, entries)])
    for entry in entries:
        if entry["last_error"] is not None:
            failed_at = timestamp_text(entry["last_failure_ms"])
            click.echo(f"{entry['name']} failed last at {failed_at}: {entry['last_error']}")


def _task_row(entry: dict[str, Any]) -> tuple[object, ...]:
    took_ms, next_ms = entry["last_duration_ms"], entry["next_run_ms"]
    # A period of Long.MAX ms ends after the calendar does.
    is_never = next_ms is not None and next_ms > TIMESTAMP_MAX_MS
    return (
        entry["name"],
        _task_state(entry),
        "once" if entry["period_ms"] is None else f"{entry['period_ms']} ms",
        "never" if is_never else timestamp_text(next_ms),
        timestamp_text(entry["last_run_ms"]),
        None if took_ms is None else f"{took_ms} ms",
        entry["runs"],
        entry["failures"],
    )


def _task_state(entry: dict[str, Any]) -> str:
    """With counts for tasks that run once, of which there can be several."""
    if entry["period_ms"] is not None:
        return str(entry["state"])
    counts = ((entry[state], state) for state in ("running", "waiting"))
    return ", ".join(f"{count} {state}" for count, state in counts if count) or entry["state"]
