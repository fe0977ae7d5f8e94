"""``kafkalog groups``: list, describe, reset and delete consumer groups of a running daemon.

``kafkalog transactions``: what is open in partitions, and an end to what Kafka left open.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from kafkalog.cli.connection import end_with_failures, is_failed, output_option, with_client
from kafkalog.cli.main import CommandGroup
from kafkalog.cli.output import print_table

if TYPE_CHECKING:
    from kafkalog.client import Client


_NONE = "-"


@click.group(cls=CommandGroup)
def groups() -> None:
    """How far consumer groups have come, and setting them back or forth."""


@groups.command("list")
@with_client
@output_option
def list_groups(client: Client, output: str) -> None:
    """Groups that have commits or members.

    Example: kafkalog groups list
    """
    found = client.list_groups()
    if output == "json":
        click.echo(json.dumps({"groups": found}))
        return
    rows = [(each["group"], each["state"], str(each["members"])) for each in found]
    print_table([("GROUP", "STATE", "MEMBERS"), *rows])


@groups.command()
@click.argument("group")
@with_client
@output_option
def describe(group: str, client: Client, output: str) -> None:
    """Commits of a group beside the logs, and who reads each partition.

    Example: kafkalog groups describe billing
    """
    answer = client.describe_group(group)
    if output == "json":
        click.echo(json.dumps(answer))
        return
    readers = {
        (at["topic"], at["partition"]): member["instance_id"]
        for member in answer["members"]
        for at in member["partitions"]
    }
    commits = {(each["topic"], each["partition"]): each for each in answer["offsets"]}
    headings = ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID")
    rows = []
    for key in sorted(readers.keys() | commits.keys()):
        commit = commits.get(key, {})
        numbers = (_cell(commit.get(name)) for name in ("offset", "log_end_offset", "lag"))
        rows.append((key[0], str(key[1]), *numbers, readers.get(key, _NONE)))
    print_table([headings, *rows])


@groups.command("reset-offsets")
@click.argument("group")
@click.option("--to-earliest", "to", flag_value="earliest", help="The first record of each log.")
@click.option("--to-latest", "to", flag_value="latest", help="Behind the last record.")
@click.option("--to-datetime", help="The first record at or after: ms since 1970, or ISO-8601.")
@click.option("--to-offset", type=click.IntRange(0), help="This offset, inside the log.")
@click.option("--shift-by", type=int, help="So many records on, or back when negative.")
@click.option("--topic", "topics", multiple=True, help="Repeatable; none: all it has committed.")
@click.option("--execute", is_flag=True, help="Do it; without, it is only shown.")
@with_client
@output_option
@click.pass_context
def reset_offsets(
    ctx: click.Context,
    group: str,
    to: str | None,
    to_datetime: str | None,
    to_offset: int | None,
    shift_by: int | None,
    topics: tuple[str, ...],
    execute: bool,
    client: Client,
    output: str,
) -> None:
    """Set the offsets of a group without members; shows the new ones.

    Exit status 3 when a partition could not be reset: the others are.

    Example: kafkalog groups reset-offsets billing --to-earliest --execute
    """
    numbers = {"timestamp": to_datetime, "offset": to_offset, "shift": shift_by}
    places: list[tuple[Any, int | str | None]] = [] if to is None else [(to, None)]
    places += [(name, value) for name, value in numbers.items() if value is not None]
    if len(places) > 1:
        raise click.UsageError("Name one place to reset to")
    if not places:
        raise click.UsageError("Say where: --to-earliest, --to-latest, --to-datetime, ...")
    entries = client.reset_group_offsets(
        group, *places[0], topics=topics or None, dry_run=not execute
    )
    if output == "json":
        click.echo(json.dumps({"group": group, "dry_run": not execute, "offsets": entries}))
    else:
        rows = [
            (
                each["topic"],
                str(each["partition"]),
                _cell(each["old_offset"]),
                str(each["new_offset"]),
            )
            for each in entries
            if not is_failed(each)
        ]
        print_table([("TOPIC", "PARTITION", "OLD-OFFSET", "NEW-OFFSET"), *rows])
    if not execute:
        click.echo("Nothing was changed; add --execute.", err=True)
    end_with_failures(ctx, entries)


@groups.command()
@click.argument("group")
@with_client
def delete(group: str, client: Client) -> None:
    """Delete a group without members: all its commits.

    Example: kafkalog groups delete billing
    """
    client.delete_group(group)
    click.echo(f"Deleted group {group}.")


def _cell(value: int | None) -> str:
    return _NONE if value is None else str(value)


_COLUMNS = (
    ("TOPIC", "topic"),
    ("PARTITION", "partition"),
    ("START-OFFSET", "start_offset"),
    ("PRODUCER-ID", "producer_id"),
    ("EPOCH", "producer_epoch"),
    ("LAST-TIMESTAMP", "last_timestamp"),
)


@click.group(cls=CommandGroup)
def transactions() -> None:
    """Transactions that are open, and an end to those that a Kafka left open."""


@transactions.command("list")
@click.argument("topic")
@with_client
@output_option
def list_transactions(topic: str, client: Client, output: str) -> None:
    """Open transactions of a topic: readers of committed records wait at the first one.

    Those of sinks end by themselves; of an adopted directory's nobody else is left who could.

    Example: kafkalog transactions list orders
    """
    entries = [
        _entry(topic, each["partition"], producer)
        for each in client.partitions(topic)
        if each["leader"] >= 0
        for producer in client.describe_producers(topic, each["partition"])
        if producer["current_transaction_start_offset"] is not None
    ]
    if output == "json":
        click.echo(json.dumps({"transactions": entries}))
        return
    rows = [tuple(str(entry[name]) for _, name in _COLUMNS) for entry in entries]
    print_table([tuple(head for head, _ in _COLUMNS), *rows])


def _entry(topic: str, partition: int, producer: dict[str, Any]) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": partition,
        "start_offset": producer["current_transaction_start_offset"],
        "producer_id": producer["producer_id"],
        "producer_epoch": producer["producer_epoch"],
        "last_timestamp": producer["last_timestamp"],
    }


@transactions.command()
@click.argument("topic")
@click.option("--partition", type=click.IntRange(min=0), required=True, help="Of the topic.")
@click.option(
    "--start-offset", type=click.IntRange(min=0), required=True, help="Of transactions list."
)
@with_client
@output_option
def abort(topic: str, partition: int, start_offset: int, client: Client, output: str) -> None:
    """Abort one transaction: its records are never shown to readers of committed ones.

    Nothing takes that back. It is for transactions of a Kafka whose directory was adopted, as
    kafka-transactions.sh abort is for hanging ones.

    Example: kafkalog transactions abort orders --partition 0 --start-offset 4711
    """
    aborted = client.abort_transaction(topic, partition, start_offset)
    if output == "json":
        click.echo(json.dumps(aborted))
        return
    click.echo(
        f"Aborted the transaction of producer {aborted['producer_id']} in {topic}-{partition}: "
        f"committed records are readable below {aborted['last_stable_offset']}"
    )
