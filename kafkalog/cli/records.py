"""``kafkalog records delete`` and ``kafkalog offsets get``.

``records delete`` takes the file of Kafka's kafka-delete-records and, without a terminal, prints
its lines; unlike the tool, it exits with 3 when a partition failed, and with 1 when all did.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from kafkalog.cli.arguments import (
    TIMESTAMP_KINDS,
    IntRange,
    before_time_option,
    isolation_option,
    partitions_option,
    timestamp,
    topic_names,
    topic_or_option,
)
from kafkalog.cli.connection import (
    RequestFailed,
    exit_after,
    exit_on_failures,
    failed_entry,
    is_failed,
    message_of,
    name_of,
    names_of,
    report_failures,
    with_client_and_output,
)
from kafkalog.cli.main import CommandGroup
from kafkalog.cli.output import (
    TEXT,
    Columns,
    confirm,
    is_asked,
    is_printed,
    print_entries,
    timestamp_text,
    yes_option,
)
from kafkalog.client import AccessDenied, InvalidRequest, TooLarge
from kafkalog.client.admin import HIGH_WATERMARK
from kafkalog.client.records import NO_OFFSET

if TYPE_CHECKING:
    from kafkalog.client import Client
    from kafkalog.client.fetch import OffsetAt
    from kafkalog.client.records import Isolation, Place

TOOL_HEAD = "Executing records delete operation\nRecords delete operation completed:\n"
_FORM = '{"partitions":[{"topic":"t","partition":0,"offset":40000}],"version":1}'
_BODY = re.compile(r"\b[Tt]he body\b")
_DELETED_COLUMNS: Columns = (
    ("TOPIC", "topic"),
    ("PARTITION", "partition"),
    ("NEW LOG START", "low_watermark"),
)


@click.command()
@topic_or_option
@click.option(
    "--offset-json-file", type=click.File("rb"), help=f"{_FORM}; offset -1: the high watermark."
)
@click.option("--partition", type=IntRange(min=0), help="Default: 0.")
@click.option(
    "--before-offset",
    type=IntRange(min=-1),
    help="Delete records below it; -1: the high watermark.",
)
@before_time_option
@click.option("--dry-run", is_flag=True, help="With TOPIC: show the new log start; delete nothing.")
@yes_option
@with_client_and_output
def delete(
    offset_json_file: Any,  # noqa: ANN401 - click's open file
    topic: str | None,
    partition: int | None,
    before_offset: int | None,
    before_time: int | None,
    dry_run: bool,
    is_sure: bool,
    client: Client,
    output: str,
) -> None:
    """Delete records below an offset, of TOPIC or as a file lists. Exit 3 when only some failed.

    Asks on a terminal. For all partitions of a topic: kafkalog topics trim.

    Example: kafkalog records delete orders --before-offset 40000
    """
    bounds = (before_offset, before_time)
    if offset_json_file is not None and (topic, partition, *bounds) == (None,) * 4 and not dry_run:
        body: bytes = offset_json_file.read()
        which = f"that {offset_json_file.name} names"
    elif offset_json_file is None and topic is not None and bounds.count(None) == 1:
        number, offset = partition or 0, before_offset
        if before_time is not None:
            offset = client.offset_at(topic, number, before_time).offset
            if offset == NO_OFFSET:  # all records are older
                offset = client.offset_range(topic, number)[1]
        entry = {"topic": topic, "partition": number, "offset": offset}
        body = json.dumps({"partitions": [entry], "version": 1}).encode()
        bound = "the high watermark" if offset == HIGH_WATERMARK else f"offset {offset}"
        which = f"of {topic}-{number} below {bound}"
    else:
        raise click.UsageError(
            "Give either --offset-json-file, or TOPIC and one of --before-offset and --before-time."
        )
    if dry_run:
        answer = _dry_run(client, entry)
    else:
        if offset_json_file is None and is_asked(is_sure=is_sure):
            with suppress(AccessDenied):
                _range_with(client, entry)
        confirm(f"Delete the records {which}?", is_sure=is_sure)
        answer = _deleted(client, body, None if offset_json_file is None else offset_json_file.name)
    entries = answer["partitions"]
    if not is_printed(output, answer, names_of(entries)):
        _print_deleted(entries, output)
    exit_after(map(is_failed, entries))


def _print_deleted(entries: list[dict[str, Any]], output: str) -> None:
    """A table, with the failures on standard error; as text the lines of kafka-delete-records.sh.

    The reasons are the daemon's, which name the offsets. Where all failed there are only those: the
    tool's lines say that it is completed.
    """
    deleted = [each for each in entries if not is_failed(each)]
    if output != TEXT or not deleted:
        if deleted:
            print_entries(_DELETED_COLUMNS, deleted)
        report_failures(entries)
        return
    click.echo(TOOL_HEAD, nl=False)
    for each in entries:
        result = "error" if is_failed(each) else "low_watermark"
        click.echo(f"partition: {name_of(each)}\t{result}: {each[result]}")


def _deleted(client: Client, body: bytes, file: str | None) -> dict[str, Any]:
    """The daemon's answer. The text of the file is sent unchanged, because the daemon checks it.

    Raises RequestFailed with the name of a file that the daemon refuses.
    """
    try:
        answer: dict[str, Any] = client.call("POST", "/v1/records:delete", body).json
    except (InvalidRequest, TooLarge) as error:
        if file is None:
            raise
        reason = _BODY.sub("it", message_of(error)).rstrip(".")
        raise RequestFailed(f"{file}: {reason}. The form is {_FORM}") from error
    return answer


def _dry_run(client: Client, entry: dict[str, Any]) -> dict[str, Any]:
    """What the daemon would answer. Raises RequestFailed for an offset that it would refuse."""
    topic, partition, offset = entry["topic"], entry["partition"], entry["offset"]
    start, end = _range_with(client, entry)
    click.echo("Nothing was deleted: this is a dry run.", err=True)
    low_watermark = end if offset == HIGH_WATERMARK else max(offset, start)
    found = {"topic": topic, "partition": partition, "low_watermark": low_watermark}
    return {"partitions": [found], "dry_run": True}


def _range_with(client: Client, entry: dict[str, Any]) -> tuple[int, int]:
    """Where the records of the partition are; RequestFailed for an offset above their end."""
    topic, partition, offset = entry["topic"], entry["partition"], entry["offset"]
    start, end = client.offset_range(topic, partition)
    if offset > end:
        raise RequestFailed(
            f"Offset {offset} is above the high watermark of {topic}-{partition}, {end}."
        )
    return start, end


# ---- offsets

_OFFSET_COLUMNS: Columns = (
    ("TOPIC", "topic"),
    ("PARTITION", "partition"),
    ("OFFSET", "offset"),
    ("TIMESTAMP", "timestamp"),
)
_PLACES: dict[str, Place] = {
    "latest": "latest",
    "earliest": "earliest",
    "max-timestamp": "max_timestamp",
}


def place_or_timestamp(text: str) -> Place | int:
    """A named place in the log, or a time."""
    if text in _PLACES:
        return _PLACES[text]
    return timestamp(text, f"{', '.join(_PLACES)}, {TIMESTAMP_KINDS}")


@click.group(cls=CommandGroup)
def offsets() -> None:
    """Look up offsets: where partitions start and end, and the first offset at a time."""


@offsets.command()
@click.argument("topics", nargs=-1, shell_complete=topic_names)
@partitions_option
@click.option(
    "--at",
    type=place_or_timestamp,
    metavar="TIMESTAMP",
    default="latest",
    help="latest, earliest, max-timestamp, or the first record at or after a time: ms since 1970 or"
    " ISO-8601.",
)
@isolation_option
@with_client_and_output
def get(
    topics: tuple[str, ...],
    numbers: tuple[int, ...],
    at: Place | int,
    isolation: Isolation | None,
    client: Client,
    output: str,
) -> None:
    """Print offsets of TOPICS, or of all topics.

    Without a terminal as topic:partition:offset, with "none" for a partition without such a record.
    Exit 3 when only some partitions failed.

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
    if not is_printed(output, entries, names_of(entries)):
        found_ones = [entry for entry in entries if not is_failed(entry)]
        if output == TEXT:
            for entry in found_ones:
                offset = "none" if entry["offset"] is None else entry["offset"]
                click.echo(f"{entry['topic']}:{entry['partition']}:{offset}")
        else:
            shown = ({**one, "timestamp": timestamp_text(one["timestamp"])} for one in found_ones)
            print_entries(_OFFSET_COLUMNS, shown)
    exit_on_failures(entries)


def offset_entry(found: OffsetAt) -> dict[str, Any]:
    """As a JSON object: None for -1, or a failed entry."""
    if found.error is not None:
        return failed_entry(found.topic, found.partition, found.error)
    return {
        "topic": found.topic,
        "partition": found.partition,
        "offset": None if found.offset == NO_OFFSET else found.offset,
        "timestamp": None if found.timestamp_ms == NO_OFFSET else found.timestamp_ms,
    }
