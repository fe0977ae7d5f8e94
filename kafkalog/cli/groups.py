"""``kafkalog groups`` and ``kafkalog transactions``: committed offsets and open transactions."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from kafkalog.cli.arguments import IntRange, execute_option, timestamp
from kafkalog.cli.connection import (
    RequestFailed,
    exit_on_failures,
    is_failed,
    name_of,
    names_of,
    with_client_and_output,
)
from kafkalog.cli.main import CommandGroup
from kafkalog.cli.output import Columns, confirm, is_printed, print_entries, print_table, yes_option
from kafkalog.client import UnknownGroup

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kafkalog.client import Client
    from kafkalog.client.admin import ResetPlace

_GROUP_COLUMNS: Columns = (("GROUP", "group"), ("STATE", "state"), ("MEMBERS", "members"))
_RESET_COLUMNS: Columns = (
    ("TOPIC", "topic"),
    ("PARTITION", "partition"),
    ("OLD-OFFSET", "old_offset"),
    ("NEW-OFFSET", "new_offset"),
)
_TRANSACTION_COLUMNS: Columns = (
    ("TOPIC", "topic"),
    ("PARTITION", "partition"),
    ("START-OFFSET", "start_offset"),
    ("PRODUCER-ID", "producer_id"),
    ("EPOCH", "producer_epoch"),
    ("LAST-TIMESTAMP", "last_timestamp"),
)
# What an option of a reset is in the HTTP API, and whether it has a value.
_PLACES: dict[str, tuple[ResetPlace, bool]] = {
    "to_earliest": ("earliest", False),
    "to_latest": ("latest", False),
    "to_datetime": ("timestamp", True),
    "to_offset": ("offset", True),
    "shift_by": ("shift", True),
}


@click.group(cls=CommandGroup)
def groups() -> None:
    """List, describe, reset and delete consumer groups."""


@groups.command("list")
@with_client_and_output
def list_groups(client: Client, output: str) -> None:
    """List groups that have committed offsets or members.

    Example: kafkalog groups list
    """
    found = client.list_groups()
    if not is_printed(output, {"groups": found}, (each["group"] for each in found)):
        print_entries(_GROUP_COLUMNS, found)


@groups.command()
@click.argument("group")
@with_client_and_output
def describe(group: str, client: Client, output: str) -> None:
    """Show the committed offsets of a group, its lag, and which member reads each partition.

    Example: kafkalog groups describe billing
    """
    answer = client.describe_group(group)
    readers, commits = readers_and_commits(answer)
    keys = sorted(readers.keys() | commits.keys())
    if is_printed(output, answer, (f"{topic}-{number}" for topic, number in keys)):
        return
    rows: list[tuple[object, ...]] = [
        ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID")
    ]
    for key in keys:
        commit = commits.get(key, {})
        offsets = (commit.get(name) for name in ("offset", "log_end_offset", "lag"))
        rows.append((*key, *offsets, readers.get(key)))
    print_table(rows)


def readers_and_commits(
    group: dict[str, Any],
) -> tuple[dict[tuple[str, int], str], dict[tuple[str, int], dict[str, Any]]]:
    """The member that reads each partition of a described group, and its committed offset."""
    readers = {
        (at["topic"], at["partition"]): member["instance_id"]
        for member in group["members"]
        for at in member["partitions"]
    }
    return readers, {(each["topic"], each["partition"]): each for each in group["offsets"]}


def _topic_and_partitions(text: str) -> tuple[str, list[int]]:
    """NAME or NAME:0,1; no numbers: all partitions."""
    name, colon, numbers = text.partition(":")
    listed = numbers.split(",") if colon else []
    if not all(number.isascii() and number.isdigit() for number in listed):
        raise click.BadParameter(f"'{text}' is not NAME or NAME:0,1")
    return name, list(map(int, listed))


@groups.command("reset-offsets")
@click.argument("group")
@click.option("--to-earliest", is_flag=True, help="To the log start offsets.")
@click.option("--to-latest", is_flag=True, help="To the end of each log.")
@click.option(
    "--to-datetime",
    type=timestamp,
    help="To the first record at or after this time: ms since 1970, or ISO-8601 with a zone.",
)
@click.option("--to-offset", type=IntRange(0), help="To this offset, inside the log.")
@click.option("--shift-by", type=int, help="Forward by this number of offsets; negative: back.")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    type=_topic_and_partitions,
    metavar="NAME[:0,1]",
    help="Repeatable. Default: all that the group committed.",
)
@click.option("--all-topics", is_flag=True, hidden=True, help="All that the group committed.")
@execute_option
@with_client_and_output
def reset_offsets(
    group: str,
    topics: tuple[tuple[str, list[int]], ...],
    all_topics: bool,
    execute: bool,
    is_sure: bool,
    client: Client,
    output: str,
    **places: Any,  # noqa: ANN401 - as click gives them
) -> None:
    """Reset the offsets of a group without members, or show what the new ones would be.

    Exit 3 when a partition could not be reset; the others are.

    Example: kafkalog groups reset-offsets billing --to-earliest --execute
    """
    targets = [
        (place, places[option] if has_value else None)
        for option, (place, has_value) in _PLACES.items()
        if places[option] not in (None, False)
    ]
    if len(targets) > 1:
        raise click.UsageError("Give one of the --to options or --shift-by, not several")
    if not targets:
        raise click.UsageError(
            "Say where to: --to-earliest, --to-latest, --to-datetime TIME, --to-offset OFFSET "
            "or --shift-by NUMBER. "
            f"Example: kafkalog groups reset-offsets {quote(group)} --to-earliest"
        )
    if topics and all_topics:
        raise click.UsageError("Give --topic or --all-topics, not both")
    if execute:
        confirm(f"Reset the committed offsets of group {group}?", is_sure=is_sure)
    ((to, value),) = targets
    try:
        entries = client.reset_group_offsets(
            group,
            to,
            value,
            topics=[name for name, numbers in topics if not numbers] if topics else None,
            partitions=[(name, number) for name, numbers in topics for number in numbers],
            dry_run=not execute,
        )
    except UnknownGroup as error:
        raise RequestFailed(f"Group {group} has no commit: name topics, --topic orders") from error
    document = {"group": group, "dry_run": not execute, "offsets": entries}
    if not is_printed(output, document, names_of(entries)):
        print_entries(_RESET_COLUMNS, (each for each in entries if not is_failed(each)))
    for asked, is_above, each in clipped(entries, to, value):
        bound = "above the end" if is_above else "before the start"
        taken = f"{each['new_offset']} is taken"
        click.echo(f"Offset {asked} is {bound} of {name_of(each)}; {taken}", err=True)
    if not execute:
        click.echo("Nothing was changed; add --execute.", err=True)
    exit_on_failures(entries)


def clipped(
    entries: Iterable[dict[str, Any]], to: ResetPlace, value: int | str | None
) -> Iterator[tuple[int, bool, dict[str, Any]]]:
    """The entries whose log has no such offset: what was asked, whether it is above the end."""
    for each in entries:
        if to not in ("offset", "shift") or is_failed(each):
            continue
        asked = int(value or 0) + (each["old_offset"] if to == "shift" else 0)
        if asked != each["new_offset"]:
            yield asked, asked > each["new_offset"], each


@groups.command()
@click.argument("group")
@yes_option
@with_client_and_output
def delete(group: str, is_sure: bool, client: Client, output: str) -> None:
    """Delete a group without members, with all its committed offsets. Asks on a terminal.

    Example: kafkalog groups delete billing
    """
    confirm(f"Delete group {group} with all its committed offsets?", is_sure=is_sure)
    client.delete_group(group)
    if not is_printed(output, {"group": group, "deleted": True}, [group]):
        click.echo(f"Deleted group {group}.")


# ---- transactions


@click.group(cls=CommandGroup)
def transactions() -> None:
    """List open transactions, and abort those that a Kafka broker left open."""


@transactions.command("list")
@click.argument("topic")
@with_client_and_output
def list_transactions(topic: str, client: Client, output: str) -> None:
    """List the open transactions of a topic; read_committed readers wait at the first one.

    Transactions of sinks end by themselves. Those in an adopted directory need `transactions
    abort`, because their producers are gone.

    Example: kafkalog transactions list orders
    """
    entries = [
        {
            "topic": topic,
            "partition": each["partition"],
            "start_offset": producer["current_transaction_start_offset"],
            "producer_id": producer["producer_id"],
            "producer_epoch": producer["producer_epoch"],
            "last_timestamp": producer["last_timestamp"],
        }
        for each in client.partitions(topic)
        if each["leader"] >= 0
        for producer in client.describe_producers(topic, each["partition"])
        if producer["current_transaction_start_offset"] is not None
    ]
    if not is_printed(output, {"transactions": entries}, names_of(entries)):
        print_entries(_TRANSACTION_COLUMNS, entries)


@transactions.command()
@click.argument("topic")
@click.option("--partition", type=IntRange(min=0), required=True, help="Partition of the topic.")
@click.option(
    "--start-offset", type=IntRange(min=0), required=True, help="As `transactions list` prints it."
)
@yes_option
@with_client_and_output
def abort(
    topic: str, partition: int, start_offset: int, is_sure: bool, client: Client, output: str
) -> None:
    """Abort one transaction: read_committed readers never see its records. Asks on a terminal.

    This cannot be undone. It is for transactions in an adopted directory of Kafka, as
    kafka-transactions.sh abort is for hanging ones.

    Example: kafkalog transactions abort orders --partition 0 --start-offset 4711
    """
    at = f"{topic}-{partition}"
    question = f"Abort the transaction at offset {start_offset} of {at}? This cannot be undone."
    confirm(question, is_sure=is_sure)
    aborted = client.abort_transaction(topic, partition, start_offset)
    if not is_printed(output, aborted, [at]):
        click.echo(
            f"Aborted the transaction of producer {aborted['producer_id']} in {at}:"
            f" committed records are readable below {aborted['last_stable_offset']}"
        )
