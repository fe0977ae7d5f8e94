"""``kafkalog retention archived``: how far an archive has come, and a step of it by hand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from kafkalog.cli.connection import output_option, with_client
from kafkalog.cli.table import print_table

if TYPE_CHECKING:
    from kafkalog.client import Client

_COLUMNS = (
    ("PARTITION", "partition"),
    ("ARCHIVED OFFSET", "archived_offset"),
    ("LOG START", "log_start_offset"),
    ("HIGH WATERMARK", "high_watermark"),
    ("LAG", "lag"),
    ("HELD SEGMENTS", "held_segments"),
    ("HELD BYTES", "held_bytes"),
)


@click.command()
@click.argument("topic")
@click.option("--partition", type=click.IntRange(min=0), help="With --raise-to.")
@click.option(
    "--raise-to", type=click.IntRange(min=0), help="An archive has everything below this offset."
)
@with_client
@output_option
def archived(
    topic: str, partition: int | None, raise_to: int | None, client: Client, output: str
) -> None:
    """How far a topic is archived, and what archive.hold keeps until it is.

    With --raise-to, say first that an archive has come further: retention may then delete what
    lies below, and nothing takes that back.

    Example: kafkalog retention archived orders --partition 0 --raise-to 40000
    """
    if (partition is None) is not (raise_to is None):
        raise click.UsageError("--partition and --raise-to go together")
    if partition is not None and raise_to is not None:
        client.raise_archived_offsets(topic, {partition: raise_to})
    entries = client.archived_offsets(topic)
    if output == "json":
        click.echo(json.dumps({"topic": topic, "partitions": entries}))
        return
    rows = [tuple(str(entry[name]) for _, name in _COLUMNS) for entry in entries]
    print_table([tuple(head for head, _ in _COLUMNS), *rows])
