"""``kafkalog groups`` and ``kafkalog transactions``: committed offsets and open transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kafkalog.cli.arguments import execute_option
from kafkalog.cli.connection import exit_on_failures, is_failed, names_of, with_client_and_output
from kafkalog.cli.main import CommandGroup
from kafkalog.cli.output import Columns, confirm, is_printed, print_entries, print_table, yes_option

if TYPE_CHECKING:
    from kafkalog.client import Client

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


@groups.command("reset-offsets")
@click.argument("group")
@click.option("--to-earliest", "to", flag_value="earliest", help="To the log start offsets.")
@click.option("--to-latest", "to", flag_value="latest", help="To the end of each log.")
@click.option(
    "--to-datetime",
    help="To the first record at or after this time: ms since 1970, or ISO-8601 with a zone.",
)
@click.option("--to-offset", type=click.IntRange(0), help="To this offset, inside the log.")
@click.option("--shift-by", type=int, help="Forward by this number of offsets; negative: back.")
@click.option(
    "--topic", "topics", multiple=True, help="Repeatable. Default: all that the group committed."
)
@execute_option
@with_client_and_output
def reset_offsets(
    group: str,
    to: str | None,
    to_datetime: str | None,
    to_offset: int | None,
    shift_by: int | None,
    topics: tuple[str, ...],
    execute: bool,
    is_sure: bool,
    client: Client,
    output: str,
) -> None:
    """Reset the offsets of a group without members, or show what the new ones would be.

    Exit 3 when a partition could not be reset; the others are.

    Example: kafkalog groups reset-offsets billing --to-earliest --execute
    """
    values = {"timestamp": to_datetime, "offset": to_offset, "shift": shift_by}
    targets: list[tuple[Any, int | str | None]] = [] if to is None else [(to, None)]
    targets += [(name, value) for name, value in values.items() if value is not None]
    if len(targets) > 1:
        raise click.UsageError("Give one of the --to options or --shift-by, not several")
    if not targets:
        raise click.UsageError("Give --to-earliest, --to-latest, --to-datetime, ...")
    if execute:
        confirm(f"Reset the committed offsets of group {group}?", is_sure=is_sure)
    entries = client.reset_group_offsets(
        group, *targets[0], topics=topics or None, dry_run=not execute
    )
    document = {"group": group, "dry_run": not execute, "offsets": entries}
    if not is_printed(output, document, names_of(entries)):
        print_entries(_RESET_COLUMNS, (each for each in entries if not is_failed(each)))
    if not execute:
        click.echo("Nothing was changed; add --execute.", err=True)
    exit_on_failures(entries)


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
@click.option(
    "--partition", type=click.IntRange(min=0), required=True, help="Partition of the topic."
)
@click.option(
    "--start-offset",
    type=click.IntRange(min=0),
    required=True,
    help="As `transactions list` prints it.",
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
