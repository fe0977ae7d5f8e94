"""``kafkalog topics``: create, list, describe, alter, delete. Text is Kafka's.

``kafkalog topics trim``: records that are older than an offset or a moment, of whole topics.

Shown first, done with --execute. What goes is a prefix of each log: timestamps need not rise with
offsets, so records that are older than the moment stay where they lie behind one that is not.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from kafkalog.cli.arguments import Moment, config_pairs, topic_argument, topic_configs_option
from kafkalog.cli.configs import print_configs
from kafkalog.cli.connection import (
    end_with_failures,
    is_failed,
    message_of,
    output_option,
    with_client,
)
from kafkalog.cli.main import CommandGroup
from kafkalog.cli.output import print_table
from kafkalog.cli.records import offset_entry

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


COLLISION_WARNING = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_')"
    " could collide. To avoid issues it is best to use either, but not both."
)


@click.group(cls=CommandGroup)
def topics() -> None:
    """Create, list, describe, alter, trim and delete topics."""


topics.add_command(trim)


@topics.command()
@click.argument("name")
@click.option(
    "--partitions", type=click.IntRange(min=1), help="Default: num.partitions of the daemon."
)
@topic_configs_option()
@click.option("--if-not-exists", is_flag=True, help="An existing topic is no error.")
@with_client
@output_option
def create(
    name: str,
    partitions: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    client: Client,
    output: str,
) -> None:
    """Create a topic.

    Example: kafkalog topics create orders --partitions 3 --config retention.ms=86400000
    """
    pairs = dict(config_pairs(configs))
    if if_not_exists and name in client.list_topics():
        return
    entity = client.create_topic(name, partitions=partitions, configs=pairs)
    if output == "json":
        click.echo(json.dumps(entity))
        return
    if "." in name or "_" in name:
        click.echo(COLLISION_WARNING)
    click.echo(f"Created topic {name}.")


@topics.command("list")
@click.option("--exclude-internal", is_flag=True, help="Leave out Kafka's own topics.")
@with_client
@output_option
def list_topics(exclude_internal: bool, client: Client, output: str) -> None:
    """Names of all topics, one a line.

    Example: kafkalog topics list --exclude-internal
    """
    names = client.list_topics()
    if exclude_internal:
        names = [name for name in names if not name.startswith("__")]
    if output == "json":
        click.echo(json.dumps(names))
    else:
        for name in names:
            click.echo(name)


@topics.command()
@topic_argument("name")
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    help="How many it shall have; more than it has now.",
)
@topic_configs_option()
@click.option("--delete-config", "deleted", multiple=True, help="Config to reset; repeatable.")
@with_client
def alter(
    name: str,
    partitions: int | None,
    configs: tuple[str, ...],
    deleted: tuple[str, ...],
    client: Client,
) -> None:
    """Change configs or add partitions; at once, and for good. Says nothing when done.

    Configs first: a refused one leaves the partitions as they are.

    Example: kafkalog topics alter orders --partitions 6 --config retention.ms=86400000
    """
    to_set = dict(config_pairs(configs))
    if not to_set and not deleted and partitions is None:
        raise click.UsageError("Give --partitions, --config or --delete-config")
    if to_set or deleted:
        client.alter_topic_configs(name, to_set, to_delete=deleted)
    if partitions is not None:
        client.grow_topic(name, partitions)


@topics.command()
@topic_argument("name", required=False)
@click.option("--configs", "with_configs", is_flag=True, help="Every config and its sources.")
@with_client
@output_option
def describe(name: str | None, with_configs: bool, client: Client, output: str) -> None:
    """Id, partitions and configs of one topic, or of all.

    As in Kafka, a partition that is not served has no leader; why goes to standard error.

    Example: kafkalog topics describe orders --configs
    """
    entities = client.describe_topics() if name is None else [client.describe_topic(name)]
    if with_configs:
        for entity in entities:
            entity["configs"] = client.topic_configs(entity["topic_name"])
    if output == "json":
        click.echo(json.dumps(entities))
        return
    node = client.broker_id()
    for entity in entities:
        _print_description(entity, node)
        if with_configs:
            print_configs(f"topic {entity['topic_name']}", entity["configs"], is_all=True)


def _print_description(entity: dict[str, Any], node: int) -> None:
    overrides = entity["config_overrides"]
    configs = ",".join(f"{key}={value}" for key, value in sorted(overrides.items()))
    for line in description_lines(entity, configs, node):
        click.echo(line)
    for fault in entity["offline_partitions"]:
        name = f"{entity['topic_name']}-{fault['partition_id']}"
        click.echo(f"{name} is not served: {fault['error']}", err=True)


def description_lines(entity: dict[str, Any], configs: str, node: int) -> list[str]:
    """Kafka's: one of the topic, then one of each partition."""
    topic = entity["topic_name"]
    lines = [
        f"Topic: {topic}\tTopicId: {entity['topic_id']}\tPartitionCount:"
        f" {entity['partitions_count']}\tReplicationFactor: 1\tConfigs: {configs}"
    ]
    offline = {fault["partition_id"] for fault in entity["offline_partitions"]}
    for partition in range(entity["partitions_count"]):
        is_served = partition not in offline
        leader, isr, elr = (node, node, "") if is_served else ("none", "", node)
        lines.append(
            f"\tTopic: {topic}\tPartition: {partition}\tLeader: {leader}\tReplicas: {node}"
            f"\tIsr: {isr}\tElr: {elr}\tLastKnownElr: {elr}"
        )
    return lines


@topics.command()
@topic_argument("name")
@with_client
def delete(name: str, client: Client) -> None:
    """Delete a topic and, after its delay, its files. Says nothing when done.

    Example: kafkalog topics delete orders
    """
    client.delete_topic(name)
