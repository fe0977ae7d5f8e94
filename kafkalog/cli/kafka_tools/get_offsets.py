"""``kafkalog compat kafka-get-offsets``: the tool's options, lines, messages and exit status.

Source: `GetOffsetShell` and `PartitionFilter` of org.apache.kafka.tools 4.1; tests/oracle compares
both.

Differs from Kafka: the reason why a partition was skipped is in the daemon's words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from kafkalog.cli.connection import message_of
from kafkalog.cli.kafka_tools.tool import ToolCommand, ToolFailed, client_of_tool, topic_pattern
from kafkalog.client import ClientError
from kafkalog.client.records import NO_OFFSET
from kafkalog.format.integers import INT32_MAX, INT64_MAX, INT64_MIN
from kafkalog.format.topic_names import is_internal

if TYPE_CHECKING:
    from kafkalog.client import Client
    from kafkalog.client.records import Place
    from kafkalog.format.topic_pattern import TopicPattern

# None: offsets in tiered storage, of which there are none
_PLACES: dict[str, Place | None] = {
    **dict.fromkeys(("latest", "-1"), "latest"),
    **dict.fromkeys(("earliest", "-2", "earliest-local", "-4"), "earliest"),
    **dict.fromkeys(("max-timestamp", "-3"), "max_timestamp"),
    **dict.fromkeys(("latest-tiered", "-5")),
}
_RULE = re.compile(r"([^:,]*)(?::(?:([0-9]*)|(?:([0-9]*)-([0-9]*))))?")


def _failed(reason: str) -> ToolFailed:
    return ToolFailed(f"Error occurred: {reason}")


@click.command("kafka-get-offsets", cls=ToolCommand, unknown=_failed, wrong=_failed)
@click.option("--topic", help="A name, a list or a regular expression. Default: all.")
@click.option("--partitions", help="Only these, as 0,1,2.")
@click.option("--topic-partitions", help="Instead of both: topic1:1,topic2:0-3,topic3,topic4:5-.")
@click.option(
    "--time",
    "at",
    default="latest",
    show_default=True,
    help="ms since 1970; -1 or latest, -2 or earliest, -3 or max-timestamp, -4 or earliest-local,"
    " -5 or latest-tiered.",
)
@click.option("--exclude-internal-topics", is_flag=True, help="Leave out Kafka's own topics.")
@client_of_tool()
def get_offsets(
    client: Client,
    topic: str | None,
    partitions: str | None,
    topic_partitions: str | None,
    at: str,
    exclude_internal_topics: bool,
) -> None:
    """As kafka-get-offsets.sh.

    Example: kafkalog compat kafka-get-offsets --bootstrap-server localhost:8082 --topic orders
    """
    try:
        if topic_partitions is not None and not (topic is None and partitions is None):
            raise ToolFailed("--topic-partitions cannot be used with --topic or --partitions")
        place = _place(at)
        if topic_partitions is not None:
            rules = partition_rules(topic_partitions)
        else:
            listed = listed_partitions(partitions or "")
            rules = [PartitionRule(topic_pattern(".*" if topic is None else topic), listed)]
        found = _partitions(client, rules, with_internal=not exclude_internal_topics)
        if not found:
            raise ToolFailed("Could not match any topic-partitions with the specified filters")
        if place is not None:
            _print_offsets(client, found, place)
    except ClientError as error:
        raise _failed(message_of(error)) from error
    except ToolFailed as error:
        raise _failed(error.message) from error


def _place(text: str) -> Place | int | None:
    if text in _PLACES:
        return _PLACES[text]
    try:
        timestamp_ms = int(text)
        if not INT64_MIN <= timestamp_ms <= INT64_MAX:
            raise ValueError(text)
    except ValueError as error:
        raise ToolFailed(
            f"Malformed time argument {text}. Please use -1 or latest / -2 or earliest / -3 or"
            " max-timestamp / -4 or earliest-local / -5 or latest-tiered, or a specified long"
            " format timestamp"
        ) from error
    return timestamp_ms


def _partitions(
    client: Client, rules: list[PartitionRule], *, with_internal: bool
) -> list[tuple[str, int]]:
    """Sorted by their names as one text, as Kafka prints them."""
    found = [
        (entity["topic_name"], number)
        for entity in client.describe_topics()
        if with_internal or not is_internal(entity["topic_name"])
        for number in range(entity["partitions_count"])
        if any(rule.allows(entity["topic_name"], number) for rule in rules)
    ]
    return sorted(found, key=lambda each: f"{each[0]}-{each[1]}")


def _print_offsets(client: Client, partitions: list[tuple[str, int]], place: Place | int) -> None:
    for entry in client.list_offsets(partitions, place):
        name = f"{entry.topic}-{entry.partition}"
        if entry.error is not None:
            reason = f"due to error: {message_of(entry.error)}"
            click.echo(f"Skip getting offsets for topic-partition {name} {reason}", err=True)
        elif entry.offset != NO_OFFSET:
            click.echo(f"{entry.topic}:{entry.partition}:{entry.offset}")


# ---- partitions that an option matches


@dataclass(frozen=True, slots=True)
class PartitionRule:
    """Topics by a pattern, and their listed partitions, or those in [lower, upper)."""

    pattern: TopicPattern
    numbers: frozenset[int] = frozenset()
    lower: int = 0
    upper: int = INT32_MAX

    def allows(self, topic: str, partition: int) -> bool:
        """Whether the rule matches the partition."""
        if not self.pattern.matches(topic):
            return False
        if self.numbers:
            return partition in self.numbers
        return self.lower <= partition < self.upper


def partition_rules(text: str) -> list[PartitionRule]:
    """``topic1:1,topic2:0-3,topic3,:5-``; a partition needs one rule that matches it."""
    return [_rule(part) for part in _java_split(text)]


def _rule(text: str) -> PartitionRule:
    found = _RULE.fullmatch(text)
    if found is None:
        # Kafka's tool also prints the name of the exception class.
        reason = f"Invalid rule specification: {text}"
        raise ToolFailed(f"org.apache.kafka.tools.TerseException: {reason}")
    topic, number, lower, upper = found.groups()
    pattern = topic_pattern(topic or ".*")
    if number:
        return PartitionRule(pattern, numbers=frozenset({int(number)}))
    return PartitionRule(pattern, lower=int(lower or 0), upper=int(upper or INT32_MAX))


def listed_partitions(text: str) -> frozenset[int]:
    """``0,1,2``; empty: all."""
    if not text:
        return frozenset()
    try:
        return frozenset(map(int, _java_split(text)))
    except ValueError as error:
        raise ToolFailed(
            "--partitions expects a comma separated list of numeric partition ids,"
            f" but received: {text}"
        ) from error


def _java_split(text: str) -> list[str]:
    """Split at commas, without empty parts at the end, as Java does."""
    parts = text.split(",")
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts
