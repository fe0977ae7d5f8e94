"""``kafkalog records delete``: kafka-delete-records' file and printed lines, honest exit status.

``kafkalog offsets get``: where partitions begin and end, and where a moment is in them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from kafkalog.cli.arguments import Moment, topic_names
from kafkalog.cli.connection import (
    PARTIAL_FAILURE,
    RequestFailed,
    end_with_failures,
    is_failed,
    message_of,
    output_option,
    with_client,
)
from kafkalog.cli.main import CommandGroup
from kafkalog.client import InvalidRequest, TooLarge
from kafkalog.client.admin import HIGH_WATERMARK
from kafkalog.client.records import NO_OFFSET

if TYPE_CHECKING:
    from kafkalog.client import Client
    from kafkalog.client.fetch import OffsetAt
    from kafkalog.client.records import Isolation, Place


TOOL_HEAD = "Executing records delete operation\nRecords delete operation completed:\n"


@click.command()
@click.option(
    "--offset-json-file",
    type=click.File("rb"),
    help='{"partitions":[{"topic":"t","partition":0,"offset":40000}],"version":1}; -1: all.',
)
@click.option("--topic", help="Instead of a file, with --before-offset or --before-time.")
@click.option("--partition", type=click.IntRange(min=0), help="Default: 0.")
@click.option(
    "--before-offset",
    type=click.IntRange(min=-1),
    help="Records below it go; -1 is the high watermark.",
)
@click.option(
    "--before-time",
    type=Moment(),
    help="What lies in front of the first record at or after it goes.",
)
@click.option(
    "--dry-run", is_flag=True, help="With --topic: show the new log start, delete nothing."
)
@with_client
@output_option
@click.pass_context
def delete(
    ctx: click.Context,
    offset_json_file: Any,  # noqa: ANN401 - click's open file
    topic: str | None,
    partition: int | None,
    before_offset: int | None,
    before_time: int | None,
    dry_run: bool,
    client: Client,
    output: str,
) -> None:
    """Delete records below an offset. Exit 3 when a partition failed.

    For all partitions of a topic: kafkalog topics trim.

    Example: kafkalog records delete --topic orders --before-offset 40000
    """
    places = (before_offset, before_time)
    if offset_json_file is not None and (topic, partition, *places) == (None,) * 4 and not dry_run:
        body: bytes = offset_json_file.read()
    elif offset_json_file is None and topic is not None and places.count(None) == 1:
        number = partition or 0
        offset = before_offset
        if before_time is not None:
            offset = _offset_at(client, topic, number, before_time)
        entry = {"topic": topic, "partition": number, "offset": offset}
        body = json.dumps({"partitions": [entry], "version": 1}).encode()
    else:
        raise click.UsageError(
            "Give either --offset-json-file, or --topic and one of --before-offset and"
            " --before-time."
        )
    if dry_run:
        answer = _would_be(client, entry)
    else:
        answer = _done(client, body, None if offset_json_file is None else offset_json_file.name)
    entries = answer["partitions"]
    if output == "json":
        click.echo(json.dumps(answer))
    else:
        _print_tool_lines(entries)
    if any(map(is_failed, entries)):
        ctx.exit(PARTIAL_FAILURE)


def _done(client: Client, body: bytes, file: str | None) -> dict[str, Any]:
    """The daemon's answer. RequestFailed names the file whose text it does not take.

    The file goes as it is: what is wrong in it is the daemon's to say.
    """
    try:
        answer: dict[str, Any] = client.call("POST", "/v1/records:delete", body).json
    except (InvalidRequest, TooLarge) as error:
        if file is None:
            raise
        raise RequestFailed(f"{file}: {message_of(error)}") from error
    return answer


def _offset_at(client: Client, topic: str, partition: int, moment_ms: int) -> int:
    """Of the first record at or after it; without one, behind all that can be read now."""
    found = client.offset_at(topic, partition, moment_ms).offset
    return client.offset_range(topic, partition)[1] if found == NO_OFFSET else found


def _would_be(client: Client, entry: dict[str, Any]) -> dict[str, Any]:
    """What the daemon would answer. RequestFailed for an offset that it would refuse."""
    topic, partition, offset = entry["topic"], entry["partition"], entry["offset"]
    start, end = client.offset_range(topic, partition)
    if offset > end:
        raise RequestFailed(f"{topic}-{partition} can be read up to {end}, not up to {offset}.")
    click.echo("Nothing was deleted: this is a dry run.", err=True)
    low_watermark = end if offset == HIGH_WATERMARK else max(offset, start)
    name = {"topic": topic, "partition": partition}
    return {"partitions": [{**name, "low_watermark": low_watermark}], "dry_run": True}


def _print_tool_lines(entries: list[dict[str, Any]]) -> None:
    """In the form of kafka-delete-records.sh, with our own reasons, which name the offsets."""
    click.echo(TOOL_HEAD, nl=False)
    for entry in entries:
        name = f"{entry['topic']}-{entry['partition']}"
        if is_failed(entry):
            click.echo(f"partition: {name}\terror: {entry['error']}")
        else:
            click.echo(f"partition: {name}\tlow_watermark: {entry['low_watermark']}")


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
