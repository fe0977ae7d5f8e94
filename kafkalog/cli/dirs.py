"""``kafkalog dirs``: the log directories of a running daemon. Text is kafka-log-dirs'.

``kafkalog dirs move``, ``moves`` and ``cancel-move``: partitions between log directories.

``kafkalog tasks list``: the background tasks of a running daemon, one line each.
"""

from __future__ import annotations

import datetime
import json
import time
from typing import TYPE_CHECKING, Any

import click

from kafkalog.cli.connection import output_option, with_client
from kafkalog.cli.kafka_tools.log_dirs import tool_lines
from kafkalog.cli.main import CommandGroup
from kafkalog.cli.output import print_table

if TYPE_CHECKING:
    from kafkalog.client import Client


_PARTIAL_FAILURE = 3
_PROGRESS_SECONDS = 1.0
_HEAD = ("partition", "state", "copied", "of bytes", "offset lag", "from", "to", "reason")


class PartitionName(click.ParamType[tuple[str, int]]):
    """``topic-0`` as topic and number."""

    name = "topic-partition"

    def convert(
        self,
        value: str | tuple[str, int],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> tuple[str, int]:
        """The number stands behind the last dash."""
        if isinstance(value, tuple):
            return value
        topic, _, number = value.rpartition("-")
        if not topic or not (number.isascii() and number.isdigit()):
            self.fail(f"'{value}' is no partition like orders-0", param, ctx)
        return topic, int(number)


partitions_argument = click.argument(
    "partitions", nargs=-1, required=True, type=PartitionName(), metavar="TOPIC-PARTITION..."
)


@click.command()
@partitions_argument
@click.option("--to", "log_dir", required=True, help="A log directory, as log.dirs names it.")
@click.option("--wait", is_flag=True, help="Until all of them ended; tells how far they are.")
@with_client
@output_option
def move(
    partitions: tuple[tuple[str, int], ...], log_dir: str, wait: bool, client: Client, output: str
) -> None:
    """Move partitions to another log directory while they serve.

    Goes on in the daemon, also after a restart. Exit status 3 when some were refused or failed.

    Example: kafkalog dirs move orders-0 orders-3 --to /data/b --wait
    """
    entries = client.begin_moves(dict.fromkeys(partitions, log_dir))
    if wait:
        entries = _followed(client, entries)
    _print(entries, output)
    if any("error_code" in entry or entry["state"] in ("failed", "cancelled") for entry in entries):
        raise SystemExit(_PARTIAL_FAILURE)


@click.command()
@with_client
@output_option
def moves(client: Client, output: str) -> None:
    """Moves between log directories under way, and those that ended since the start.

    Example: kafkalog dirs moves
    """
    _print(client.list_moves(), output)


@click.command("cancel-move")
@partitions_argument
@with_client
@output_option
def cancel_move(partitions: tuple[tuple[str, int], ...], client: Client, output: str) -> None:
    """Give moves up; the partitions stay where they are.

    Example: kafkalog dirs cancel-move orders-0
    """
    _print([client.cancel_move(topic, number) for topic, number in partitions], output)


def _followed(client: Client, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The entries as they end; progress goes to standard error, a line a look."""
    while any(entry.get("state") == "copying" for entry in entries):
        time.sleep(_PROGRESS_SECONDS)
        now = {(each["topic"], each["partition"]): each for each in client.list_moves()}
        # A topic that was deleted meanwhile took its moves along.
        entries = [
            now.get(_key(entry), {**entry, "state": "cancelled"})
            if entry.get("state") == "copying"
            else entry
            for entry in entries
        ]
        copied = sum(entry.get("copied_bytes", 0) for entry in entries)
        size = sum(entry.get("size_bytes", 0) for entry in entries)
        left = sum(entry.get("state") == "copying" for entry in entries)
        click.echo(f"{left} on their way, {copied} of {size} bytes copied", err=True)
    return entries


def _key(entry: dict[str, Any]) -> tuple[str, int]:
    return entry["topic"], entry["partition"]


def _print(entries: list[dict[str, Any]], output: str) -> None:
    if output == "json":
        click.echo(json.dumps(entries))
        return
    print_table([_HEAD, *map(_move_row, entries)])


def _move_row(entry: dict[str, Any]) -> tuple[str, ...]:
    name = f"{entry['topic']}-{entry['partition']}"
    if "error_code" in entry:
        return (name, "refused", "", "", "", "", "", entry["message"])
    numbers = (str(entry[key]) for key in ("copied_bytes", "size_bytes", "offset_lag"))
    return (name, entry["state"], *numbers, entry["source"], entry["target"], entry["reason"] or "")


@click.group(cls=CommandGroup)
def dirs() -> None:
    """Look at the log directories, and move partitions between them."""


dirs.add_command(move)
dirs.add_command(moves)
dirs.add_command(cancel_move)


@dirs.command()
@click.option("--topics", "--topic-list", default="", help="Only these, as a,b. Default: all.")
@with_client
@output_option
def describe(topics: str, client: Client, output: str) -> None:
    """Partitions of each log directory with their bytes, and what is offline.

    The last line of the text is kafka-log-dirs' JSON; why a directory is offline goes to standard
    error. --output json adds that reason, and total and usable bytes (-1: unknown).

    Example: kafkalog dirs describe --topics orders | tail -1 | jq .
    """
    answer = client.describe_log_dirs(topics)
    if output == "json":
        click.echo(json.dumps(answer))
        return
    for line in tool_lines(answer):
        click.echo(line)
    for broker in answer["brokers"]:
        for log_dir in broker["logDirs"]:
            if log_dir["error"] is not None:
                click.echo(f"{log_dir['logDir']} is offline: {log_dir['reason']}", err=True)


_HEADINGS = ("TASK", "STATE", "PERIOD", "NEXT RUN", "LAST RUN", "TOOK", "RUNS", "FAILURES")
_NONE = "-"


@click.group(cls=CommandGroup)
def tasks() -> None:
    """Look at the background tasks."""


@tasks.command("list")
@with_client
@output_option
def list_tasks(client: Client, output: str) -> None:
    """When each task ran, runs next, how long it took and what failed.

    One-shot tasks share a line by name; STATE says how many wait or run.

    Example: kafkalog tasks list --output json
    """
    answer = client.describe_tasks()
    if output == "json":
        click.echo(json.dumps(answer))
        return
    entries = answer["tasks"]
    print_table([_HEADINGS, *(_row(entry) for entry in entries)])
    for entry in entries:
        if entry["last_error"] is not None:
            moment = _moment(entry["last_failure_ms"])
            click.echo(f"{entry['name']} failed last at {moment}: {entry['last_error']}")


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    return (
        entry["name"],
        _state(entry),
        "once" if entry["period_ms"] is None else f"{entry['period_ms']} ms",
        _moment(entry["next_run_ms"]),
        _moment(entry["last_run_ms"]),
        _NONE if entry["last_duration_ms"] is None else f"{entry['last_duration_ms']} ms",
        str(entry["runs"]),
        str(entry["failures"]),
    )


def _state(entry: dict[str, Any]) -> str:
    """With the counts where there can be more than one."""
    if entry["period_ms"] is not None:
        return str(entry["state"])
    counts = ((entry[state], state) for state in ("running", "waiting"))
    return ", ".join(f"{count} {state}" for count, state in counts if count) or entry["state"]


def _moment(wall_ms: int | None) -> str:
    """UTC to the second; a period of Long.MAX ms ends after the calendar does."""
    if wall_ms is None:
        return _NONE
    try:
        moment = datetime.datetime.fromtimestamp(wall_ms / 1000, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return "never"
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
