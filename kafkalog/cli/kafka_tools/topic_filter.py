"""Topics and partitions that an option of a tool matches: regular expressions, lists, ranges.

Source: `TopicFilter`, `PartitionFilter` and `GetOffsetShell` of Kafka 4.1.

Differs from Kafka: the expressions are RE2's (`TopicPattern`), without look-around and back
references.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog.cli.kafka_tools.tool import ToolFailed
from kafkalog.format.integers import INT32_MAX
from kafkalog.format.topic_names import is_internal
from kafkalog.format.topic_pattern import MalformedPattern, TopicPattern

if TYPE_CHECKING:
    from collections.abc import Iterable

_RULE = re.compile(r"([^:,]*)(?::(?:([0-9]*)|(?:([0-9]*)-([0-9]*))))?")


def topic_pattern(text: str) -> TopicPattern:
    """The names that an option lists or describes, separated by commas. Raises ToolFailed.

    Quotes at the ends, which a properties file may contain, are removed.
    """
    expression = re.sub(r"^[\"']+|[\"']+$", "", text.strip().replace(",", "|").replace(" ", ""))
    try:
        return TopicPattern(expression)
    except MalformedPattern as error:
        raise ToolFailed(f"{expression} is an invalid regex.") from error


def matching(names: Iterable[str], text: str | None, *, with_internal: bool = True) -> list[str]:
    """The names that the option matches, in their order; None: all."""
    pattern = None if text is None else topic_pattern(text)
    return [
        name
        for name in names
        if (with_internal or not is_internal(name)) and (pattern is None or pattern.matches(name))
    ]


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
