"""``kafkalog transactions``: what is open in partitions, and an end to what Kafka left open."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from kafkalog.cli.command_group import CommandGroup
from kafkalog.cli.connection import output_option, with_client
from kafkalog.cli.table import print_table

if TYPE_CHECKING:
    from kafkalog.client import Client

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
