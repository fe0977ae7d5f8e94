"""``kafkalog offsets get``: where partitions begin and end, and where a moment is in them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from kafkalog.cli.command_group import CommandGroup
from kafkalog.cli.completing import topic_names
from kafkalog.cli.connection import message_of, output_option, with_client
from kafkalog.cli.moment import Moment
from kafkalog.cli.partial_failure import end_with_failures, is_failed
from kafkalog.client.records import NO_OFFSET

if TYPE_CHECKING:
    from kafkalog.client import Client
    from kafkalog.client.records import Isolation, OffsetAt, Place

_PLACES: dict[str, Place] = {
    "latest": "latest",
    "earliest": "earliest",
    "max-timestamp": "max_timestamp",
}


class PlaceOrMoment(Moment):
    """A named place, or a moment."""

    kinds = f"{', '.join(_PLACES)}, {Moment.kinds}"

    def convert(
        self,
        value: Any,  # noqa: ANN401 - click's
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:  # noqa: ANN401 - a Place stays one
        """The place's name in the client, or milliseconds."""
        return _PLACES[value] if value in _PLACES else super().convert(value, param, ctx)


@click.group(cls=CommandGroup)
def offsets() -> None:
    """Where partitions begin and end, and where a moment is in them."""


@offsets.command()
@click.argument("topics", nargs=-1, shell_complete=topic_names)
@click.option(
    "--partition", "numbers", type=click.IntRange(min=0), multiple=True, help="Default: all."
)
@click.option(
    "--at",
    type=PlaceOrMoment(),
    default="latest",
    show_default=True,
    help="latest, earliest, max-timestamp, or the first record at or after a moment: ms since 1970"
    " or ISO-8601.",
)
@click.option(
    "--isolation",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    help="read_committed: in front of the first open transaction.",
)
@with_client
@output_option
@click.pass_context
def get(
    ctx: click.Context,
    topics: tuple[str, ...],
    numbers: tuple[int, ...],
    at: Place | int,
    isolation: Isolation | None,
    client: Client,
    output: str,
) -> None:
    """Offsets of TOPICS, of all without one: topic:partition:offset, "none" where nothing is.

    Exit 3 when a partition has no answer.

    Example: kafkalog offsets get orders --at 2026-01-31T12:00:00Z
    """
    names = topics or tuple(client.list_topics())
    wanted = [
        (name, number)
        for name in names
        for number in numbers or range(client.describe_topic(name)["partitions_count"])
    ]
    found = client.list_offsets(wanted, at, isolation=isolation or "read_uncommitted")
    entries = [offset_entry(each) for each in found]
    if output == "json":
        click.echo(json.dumps(entries))
    else:
        for entry in entries:
            if not is_failed(entry):
                place = "none" if entry["offset"] is None else entry["offset"]
                click.echo(f"{entry['topic']}:{entry['partition']}:{place}")
    end_with_failures(ctx, entries)


def offset_entry(found: OffsetAt) -> dict[str, Any]:
    """As a document; None for an offset or a timestamp that there is not, or why it is unknown."""
    name = {"topic": found.topic, "partition": found.partition}
    if found.error is not None:
        return {**name, "error_code": found.error.error_code, "error": message_of(found.error)}
    offset, timestamp_ms = (
        None if number == NO_OFFSET else number for number in (found.offset, found.timestamp_ms)
    )
    return {**name, "offset": offset, "timestamp": timestamp_ms}
