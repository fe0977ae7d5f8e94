"""``kafkalog dirs move``, ``moves`` and ``cancel-move``: partitions between log directories."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import click

from kafkalog.cli.connection import output_option, with_client
from kafkalog.cli.table import print_table

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
    print_table([_HEAD, *map(_row, entries)])


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    name = f"{entry['topic']}-{entry['partition']}"
    if "error_code" in entry:
        return (name, "refused", "", "", "", "", "", entry["message"])
    numbers = (str(entry[key]) for key in ("copied_bytes", "size_bytes", "offset_lag"))
    return (name, entry["state"], *numbers, entry["source"], entry["target"], entry["reason"] or "")
