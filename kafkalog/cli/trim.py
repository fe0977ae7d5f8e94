"""``kafkalog topics trim``: records that are older than an offset or a moment, of whole topics.

Shown first, done with --execute. What goes is a prefix of each log: timestamps need not rise with
offsets, so records that are older than the moment stay where they lie behind one that is not.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from kafkalog.cli.completing import topic_argument
from kafkalog.cli.connection import message_of, output_option, with_client
from kafkalog.cli.moment import Moment
from kafkalog.cli.offsets import offset_entry
from kafkalog.cli.partial_failure import end_with_failures, is_failed
from kafkalog.cli.table import print_table

if TYPE_CHECKING:
    from kafkalog.client import Client

_HEADINGS = ("TOPIC", "PARTITION", "LOG-START", "NEW-START", "OFFSETS GONE")


@click.command()
@topic_argument()
@click.option(
    "--partition", "numbers", type=click.IntRange(min=0), multiple=True, help="Default: all."
)
@click.option("--before-offset", type=click.IntRange(min=0), help="What lies below it goes.")
@click.option(
    "--before-time", type=Moment(), help="What lies in front of the first record at or after it."
)
@click.option("--execute", is_flag=True, help="Do it; without, it is only shown.")
@with_client
@output_option
@click.pass_context
def trim(
    ctx: click.Context,
    topic: str,
    numbers: tuple[int, ...],
    before_offset: int | None,
    before_time: int | None,
    execute: bool,
    client: Client,
    output: str,
) -> None:
    """Delete the oldest records of a topic; shows each partition's new log start.

    With --before-time a partition whose records are all older loses all of them; one that is out of
    order keeps older records behind newer ones. Exit 3 when a partition failed; others are done.

    Example: kafkalog topics trim orders --before-time 2026-01-31T00:00:00Z --execute
    """
    if (before_offset is None) is (before_time is None):
        raise click.UsageError("Give either --before-offset or --before-time")
    partitions = numbers or range(client.describe_topic(topic)["partitions_count"])
    entries = _planned(
        client, [(topic, number) for number in partitions], before_offset, before_time
    )
    if execute:
        entries = _executed(client, entries)
    if output == "json":
        click.echo(json.dumps({"dry_run": not execute, "partitions": entries}))
    else:
        print_table([_HEADINGS, *(_row(each) for each in entries if not is_failed(each))])
    if not execute:
        click.echo("Nothing was deleted; add --execute.", err=True)
    end_with_failures(ctx, entries)


def _planned(
    client: Client,
    partitions: list[tuple[str, int]],
    before_offset: int | None,
    before_time_ms: int | None,
) -> list[dict[str, Any]]:
    """Of each partition its log start and the one that it shall have, or why that is unknown."""
    starts = [offset_entry(each) for each in client.list_offsets(partitions, "earliest")]
    ends = [offset_entry(each) for each in client.list_offsets(partitions, "latest")]
    if before_time_ms is None:
        places = [{"offset": before_offset}] * len(partitions)
    else:
        places = [offset_entry(one) for one in client.list_offsets(partitions, before_time_ms)]
    return [
        _plan(start, end, place) for start, end, place in zip(starts, ends, places, strict=True)
    ]


def _plan(start: dict[str, Any], end: dict[str, Any], place: dict[str, Any]) -> dict[str, Any]:
    """Nothing at or after the moment: all that can be read now. A log start never goes back."""
    for entry in (start, end, place):
        if is_failed(entry):
            return entry
    wanted = end["offset"] if place["offset"] is None else place["offset"]
    name = {"topic": start["topic"], "partition": start["partition"]}
    new_start = max(start["offset"], wanted)
    return {**name, "log_start_offset": start["offset"], "new_log_start_offset": new_start}


def _executed(client: Client, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The entries with the log starts that came of it, and the failures of those that failed."""
    wanted = {
        (entry["topic"], entry["partition"]): entry["new_log_start_offset"]
        for entry in entries
        if not is_failed(entry) and entry["new_log_start_offset"] > entry["log_start_offset"]
    }
    if not wanted:
        return entries
    outcomes = {(one.topic, one.partition): one for one in client.delete_records(wanted)}
    done = []
    for entry in entries:
        outcome = outcomes.get((entry["topic"], entry["partition"]))
        if outcome is None:
            done.append(entry)
        elif outcome.error is not None:
            name = {"topic": entry["topic"], "partition": entry["partition"]}
            error = outcome.error
            done.append({**name, "error_code": error.error_code, "error": message_of(error)})
        else:
            done.append({**entry, "new_log_start_offset": outcome.low_watermark})
    return done


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    start, new_start = entry["log_start_offset"], entry["new_log_start_offset"]
    numbers = (entry["partition"], start, new_start, new_start - start)
    return (entry["topic"], *map(str, numbers))
