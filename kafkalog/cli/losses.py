"""``kafkalog segments losses`` and ``accept-loss``: what a partition of a daemon has lost."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from kafkalog.cli.completing import topic_argument
from kafkalog.cli.connection import output_option, with_client
from kafkalog.cli.table import print_table

if TYPE_CHECKING:
    from kafkalog.client import Client

_PARTITION = click.argument("partition", type=click.IntRange(min=0))
_HEADINGS = ("STATE", "FIRST", "LAST", "OFFSETS")


@click.command()
@topic_argument()
@_PARTITION
@with_client
@output_option
def losses(topic: str, partition: int, client: Client, output: str) -> None:
    """Tell which offsets a partition has lost: their file is missing or was cut short.

    Fetches of what is lost are refused (500/50010) until the file is restored or the loss accepted;
    what is accepted is a gap like those of compaction. Looks at each segment.

    Example: kafkalog segments losses orders 0
    """
    _print(client.losses(topic, partition), output)


@click.command("accept-loss")
@topic_argument()
@_PARTITION
@click.argument("first", type=click.IntRange(min=0))
@click.argument("last", type=click.IntRange(min=0))
@with_client
@output_option
def accept_loss(
    topic: str, partition: int, first: int, last: int, client: Client, output: str
) -> None:
    """Give up the lost offsets FIRST to LAST of a partition, for good; shows what is left.

    A range as `kafkalog segments losses` names it. Readers pass it by from then on without being
    told. Restore the file instead if there is a backup of it: stop the daemon, put the .log in its
    place and start.

    Example: kafkalog segments accept-loss orders 0 40000 41999
    """
    _print(client.accept_loss(topic, partition, first, last), output)


def _print(found: dict[str, Any], output: str) -> None:
    if output == "json":
        click.echo(json.dumps(found))
        return
    rows = [
        (state, str(each["first_offset"]), str(each["last_offset"]), _count(each))
        for state in ("lost", "accepted")
        for each in found[state]
    ]
    print_table([_HEADINGS, *rows])


def _count(lost: dict[str, int]) -> str:
    return str(lost["last_offset"] - lost["first_offset"] + 1)
