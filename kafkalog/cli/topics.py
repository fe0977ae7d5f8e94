"""``kafkalog topics``: create, list, describe, alter, trim and delete.

Without a terminal ``list`` and ``describe`` print the lines of Kafka's kafka-topics. ``trim``
deletes the oldest records of all partitions of a topic, up to an offset or a time. It only shows
the new log starts without --execute. A prefix of each log is deleted. Timestamps need not rise with
offsets, so records older than the given time are retained after one that is not older.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from kafkalog.cli.arguments import (
    IntRange,
    before_time_option,
    config_pairs,
    execute_option,
    partitions_option,
    topic_argument,
    topic_configs_option,
)
from kafkalog.cli.configs import (
    altered_configs,
    confirm_deletions,
    names_of_changes,
    print_changes,
    print_configs,
)
from kafkalog.cli.connection import (
    exit_on_failures,
    failed_entry,
    is_failed,
    names_of,
    report_failures,
    with_client_and_output,
)
from kafkalog.cli.main import CommandGroup
from kafkalog.cli.output import TEXT, confirm, is_asked, is_printed, print_table, yes_option
from kafkalog.cli.records import offset_entry
from kafkalog.client import AccessDenied, ClientError

if TYPE_CHECKING:
    from kafkalog.client import Client


_LIST_HEADINGS = ("TOPIC", "PARTITIONS", "OFFLINE", "CONFIGS")
_HEADINGS = ("TOPIC", "PARTITION", "LOG-START", "NEW-START", "OFFSETS DELETED")


COLLISION_WARNING = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_')"
    " could collide. To avoid issues it is best to use either, but not both."
)


@click.group(cls=CommandGroup)
def topics() -> None:
    """Create, list, describe, alter, trim and delete topics."""


@topics.command()
@click.argument("name")
@click.option(
    "--partitions",
    type=IntRange(min=1),
    help="Number of partitions. Default: num.partitions of the daemon.",
)
@topic_configs_option
@click.option("--if-not-exists", is_flag=True, help="Do nothing if the topic exists.")
@with_client_and_output
def create(
    name: str,
    partitions: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    client: Client,
    output: str,
) -> None:
    """Create a topic.

    Example: kafkalog topics create orders --partitions 3 --config retention.ms=7d
    """
    pairs = dict(config_pairs(configs))
    if if_not_exists and name in client.list_topics():
        if not is_printed(output, client.describe_topic(name), [name]):
            click.echo(f"Topic {name} exists: nothing was changed.")
        return
    entity = client.create_topic(name, partitions=partitions, configs=pairs)
    if is_printed(output, entity, [name]):
        return
    if "." in name or "_" in name:
        click.echo(COLLISION_WARNING)
    click.echo(f"Created topic {name}.")


@topics.command("list")
@click.option("--exclude-internal", is_flag=True, help="Leave out Kafka's own topics.")
@with_client_and_output
def list_topics(exclude_internal: bool, client: Client, output: str) -> None:
    """List all topics. Without a terminal, and with --output name, one name per line.

    Example: kafkalog topics list --exclude-internal
    """
    names = client.list_topics()
    if exclude_internal:
        names = [name for name in names if not name.startswith("__")]
    if is_printed("name" if output == TEXT else output, names, names):
        return
    entities = {each["topic_name"]: each for each in client.describe_topics()}
    print_table(
        [_LIST_HEADINGS, *(_list_row(entities[each]) for each in names if each in entities)]
    )


def _list_row(entity: dict[str, Any]) -> tuple[object, ...]:
    offline = len(entity["offline_partitions"])
    return (entity["topic_name"], entity["partitions_count"], offline, _overrides(entity) or "-")


def _overrides(entity: dict[str, Any]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(entity["config_overrides"].items()))


@topics.command()
@topic_argument("name")
@click.option(
    "--partitions",
    type=IntRange(min=1),
    help="The new number of partitions; must be higher than now.",
)
@topic_configs_option
@click.option("--delete-config", "deleted", multiple=True, help="Config to reset; repeatable.")
@yes_option
@with_client_and_output
def alter(
    name: str,
    partitions: int | None,
    configs: tuple[str, ...],
    deleted: tuple[str, ...],
    is_sure: bool,
    client: Client,
    output: str,
) -> None:
    """Change configs or add partitions. Prints what changed, before and now.

    Changes are in force at once and survive a restart. Configs are changed first: when one is
    refused, no partitions are added. When records become due for deletion, says so on standard
    error, and asks on a terminal.

    Example: kafkalog topics alter orders --partitions 6 --config retention.ms=7d
    """
    to_set = dict(config_pairs(configs))
    if not to_set and not deleted and partitions is None:
        raise click.UsageError("Give --partitions, --config or --delete-config")
    changes = []
    if to_set or deleted:
        confirm_deletions(client, name, to_set, deleted, is_sure=is_sure)
        changes += altered_configs(client, name, to_set, deleted)
    if partitions is not None:
        before = client.describe_topic(name)["partitions_count"]
        try:
            client.grow_topic(name, partitions)
        except ClientError:
            if changes:  # they are in force, whatever becomes of the partitions
                print_changes(changes)
            raise
        changes.append({"name": "partitions", "before": before, "now": partitions})
    if not is_printed(output, {"topic": name, "changes": changes}, names_of_changes(changes)):
        print_changes(changes)


@topics.command()
@topic_argument("name", required=False)
@click.option("--configs", "with_configs", is_flag=True, help="Print every config and its sources.")
@with_client_and_output
def describe(name: str | None, with_configs: bool, client: Client, output: str) -> None:
    """Print id, partitions and configs of one topic, or of all.

    The reason why a partition is not served, and with NAME the offsets that it has lost, go to
    standard error. Without a terminal the lines are those of kafka-topics.

    Example: kafkalog topics describe orders --configs
    """
    entities = client.describe_topics() if name is None else [client.describe_topic(name)]
    if with_configs:
        for entity in entities:
            entity["configs"] = client.topic_configs(entity["topic_name"])
    if name is not None:  # of all topics it would read every segment
        entities[0]["lost_ranges"] = _lost_ranges(client, entities[0])
    if is_printed(output, entities, (entity["topic_name"] for entity in entities)):
        return
    node = client.broker_id()
    for entity in entities:
        if output == TEXT:
            for line in description_lines(entity, _overrides(entity), node):
                click.echo(line)
        else:
            _print_topic(client, entity)
        for fault in entity["offline_partitions"]:
            at = f"{entity['topic_name']}-{fault['partition_id']}"
            click.echo(f"{at} is not served: {fault['error']}", err=True)
        for lost in entity.get("lost_ranges", ()):
            click.echo(
                f"{entity['topic_name']}-{lost['partition_id']} has lost offsets"
                f" {lost['first_offset']} to {lost['last_offset']}:"
                " `kafkalog runbooks describe lost-offsets` says what to do.",
                err=True,
            )
        if with_configs:
            print_configs(f"topic {entity['topic_name']}", entity["configs"], is_all=True)


def _lost_ranges(client: Client, entity: dict[str, Any]) -> list[dict[str, int]]:
    """What the partitions that are served have lost, unless it was accepted."""
    topic, found = entity["topic_name"], list[dict[str, int]]()
    offline = {fault["partition_id"] for fault in entity["offline_partitions"]}
    for number in range(entity["partitions_count"]):
        if number in offline:
            continue
        try:
            lost = client.losses(topic, number)["lost"]
        except ClientError as error:
            report_failures([failed_entry(topic, number, error)])
        else:
            found += ({"partition_id": number, **each} for each in lost)
    return found


def _print_topic(client: Client, entity: dict[str, Any]) -> None:
    """A table of the topic, and one of its partitions."""
    topic = entity["topic_name"]
    row = (topic, entity["topic_id"], entity["partitions_count"], _overrides(entity) or "-")
    print_table([("TOPIC", "ID", "PARTITIONS", "CONFIGS"), row])
    offline = {fault["partition_id"] for fault in entity["offline_partitions"]}
    numbers = range(entity["partitions_count"])
    served = [(topic, number) for number in numbers if number not in offline]
    starts = client.list_offsets(served, "earliest") if served else []
    ends = client.list_offsets(served, "latest") if served else []
    lost = Counter[int]()
    for each in entity.get("lost_ranges", ()):
        lost[each["partition_id"]] += each["last_offset"] - each["first_offset"] + 1
    rows: list[tuple[object, ...]] = [
        (
            start.partition,
            start.offset,
            end.offset,
            end.offset - start.offset,
            f"served, {count} lost" if (count := lost[start.partition]) else "served",
        )
        for start, end in zip(starts, ends, strict=True)
        if start.error is None and end.error is None
    ]
    known = {row[0] for row in rows}
    rows += [(number, None, None, None, "offline") for number in numbers if number not in known]
    print_table([("PARTITION", "LOG START", "LOG END", "OFFSETS", "STATE"), *rows])


def description_lines(entity: dict[str, Any], configs: str, node: int) -> list[str]:
    """Kafka's lines: one of the topic, then one of each partition."""
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
@yes_option
@with_client_and_output
def delete(name: str, is_sure: bool, client: Client, output: str) -> None:
    """Delete a topic, and its files after file.delete.delay.ms. Asks on a terminal.

    Example: kafkalog topics delete orders
    """
    if is_asked(is_sure=is_sure):
        with suppress(AccessDenied):
            client.describe_topic(name)  # a question about no topic is a waste
    confirm(f"Delete topic {name} with all its records?", is_sure=is_sure)
    client.delete_topic(name)
    if not is_printed(output, {"topic": name, "deleted": True}, [name]):
        click.echo(f"Deleted topic {name}.")


# ---- trim


@topics.command()
@topic_argument()
@partitions_option
@click.option("--before-offset", type=IntRange(min=0), help="Delete records below it.")
@before_time_option
@execute_option
@with_client_and_output
def trim(
    topic: str,
    numbers: tuple[int, ...],
    before_offset: int | None,
    before_time: int | None,
    execute: bool,
    is_sure: bool,
    client: Client,
    output: str,
) -> None:
    """Delete the oldest records of a topic; shows the new log start of each partition.

    With --before-time all records of a partition are deleted if all are older. A partition whose
    timestamps are not in order retains older records after newer ones. Exit 3 when a partition
    failed; the others are trimmed.

    Example: kafkalog topics trim orders --before-time 2026-01-31T00:00:00Z --execute
    """
    if (before_offset is None) is (before_time is None):
        raise click.UsageError("Give either --before-offset or --before-time")
    partitions = numbers or range(client.describe_topic(topic)["partitions_count"])
    entries = _planned(
        client, [(topic, number) for number in partitions], before_offset, before_time
    )
    if execute:
        count = sum(_row(each)[-1] for each in entries if not is_failed(each))
        confirm(f"Delete the oldest records of {topic}, {count:,} offsets?", is_sure=is_sure)
        entries = _executed(client, entries)
    document = {"dry_run": not execute, "partitions": entries}
    if not is_printed(output, document, names_of(entries)):
        print_table([_HEADINGS, *(_row(each) for each in entries if not is_failed(each))])
    if not execute:
        click.echo("Nothing was deleted; add --execute.", err=True)
    exit_on_failures(entries)


def _planned(
    client: Client,
    partitions: list[tuple[str, int]],
    before_offset: int | None,
    before_time_ms: int | None,
) -> list[dict[str, Any]]:
    """The log start of each partition and the new one, or a failed entry."""
    starts = [offset_entry(each) for each in client.list_offsets(partitions, "earliest")]
    ends = [offset_entry(each) for each in client.list_offsets(partitions, "latest")]
    if before_time_ms is None:
        targets = [{"offset": before_offset}] * len(partitions)
    else:
        targets = [offset_entry(one) for one in client.list_offsets(partitions, before_time_ms)]
    return list(map(_plan, starts, ends, targets))


def _plan(start: dict[str, Any], end: dict[str, Any], target: dict[str, Any]) -> dict[str, Any]:
    """Without a record at or after the time, the log end. A log start never moves back."""
    for entry in (start, end, target):
        if is_failed(entry):
            return entry
    wanted = end["offset"] if target["offset"] is None else target["offset"]
    name = {"topic": start["topic"], "partition": start["partition"]}
    new_start = max(start["offset"], wanted)
    return {**name, "log_start_offset": start["offset"], "new_log_start_offset": new_start}


def _executed(client: Client, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The entries with the log starts after the deletion, or failed entries."""
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
            done.append(failed_entry(outcome.topic, outcome.partition, outcome.error))
        else:
            done.append({**entry, "new_log_start_offset": outcome.low_watermark})
    return done


def _row(entry: dict[str, Any]) -> tuple[Any, ...]:
    start, new_start = entry["log_start_offset"], entry["new_log_start_offset"]
    return (entry["topic"], entry["partition"], start, new_start, new_start - start)
