"""What of a query's WHERE a plan can use: partitions, topics, offsets and the least timestamp.

Owns which filters leave out exactly the rows that they should (Spark need not look again) and
which only narrow the ranges. Times are not in order in a log, so that a first record at or after a
time can be looked up, but no last one before it: only lower bounds of `timestamp` are of use.
Filters are Spark's, by the names of their classes: no pyspark. Pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from kafkalog.format.integers import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.format.topic_names import TopicPartition

_NEVER_NULL = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})
_OF_TEXT: dict[str, Callable[[str, str], bool]] = {
    "StringStartsWith": str.startswith,
    "StringEndsWith": str.endswith,
    "StringContains": str.__contains__,
}
_RANGES: dict[str, Callable[[int, int], bool]] = {
    "GreaterThan": int.__gt__,
    "GreaterThanOrEqual": int.__ge__,
    "LessThan": int.__lt__,
    "LessThanOrEqual": int.__le__,
}
_EQUALS = ("EqualTo", "EqualNullSafe")


@dataclass(frozen=True, slots=True)
class ColumnFilter:
    """One of Spark's filters: ``kind`` is the name of its class, ``value`` None without one."""

    kind: str
    column: str
    value: object = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the filters so far leave. ``tests`` of (column, filter) are asked of each partition.

    Offsets from ``from_offset`` on and below ``to_offset``; ``least_time_ms``: older records in
    front of the first that is not older are left out, others are not.
    """

    tests: tuple[ColumnFilter, ...] = ()
    from_offset: int = 0
    to_offset: int = INT64_MAX
    least_time_ms: int | None = None

    def has(self, partition: TopicPartition) -> bool:
        """Whether rows of that partition can pass."""
        return all(_passes(each, partition) for each in self.tests)


def narrowed(wanted: Wanted, given: ColumnFilter) -> tuple[Wanted, bool]:
    """(what is left, whether the filter is done with). Not done with: Spark looks again."""
    if given.kind == "IsNotNull":
        return wanted, given.column in _NEVER_NULL
    if given.column in ("topic", "partition"):
        if not _is_understood(given):
            return wanted, False
        return replace(wanted, tests=(*wanted.tests, given)), True
    if given.column == "offset":
        return _narrowed_offsets(wanted, given)
    if given.column == "timestamp":
        return _narrowed_times(wanted, given), False
    return wanted, False


def _narrowed_offsets(wanted: Wanted, given: ColumnFilter) -> tuple[Wanted, bool]:
    if given.kind == "In":
        values = [each for each in _members(given) if isinstance(each, int)]
        if not values or len(values) < len(_members(given)):
            return wanted, False
        return _within(wanted, min(values), max(values) + 1), len(set(values)) == 1
    value = given.value
    if not isinstance(value, int):
        return wanted, False
    bounds = {
        "EqualTo": (value, value + 1),
        "EqualNullSafe": (value, value + 1),
        "GreaterThan": (value + 1, INT64_MAX),
        "GreaterThanOrEqual": (value, INT64_MAX),
        "LessThan": (0, value),
        "LessThanOrEqual": (0, value + 1),
    }
    if given.kind not in bounds:
        return wanted, False
    return _within(wanted, *bounds[given.kind]), True


def _within(wanted: Wanted, low: int, high: int) -> Wanted:
    return replace(
        wanted,
        from_offset=max(wanted.from_offset, low),
        to_offset=min(wanted.to_offset, max(high, 0)),
    )


def _narrowed_times(wanted: Wanted, given: ColumnFilter) -> Wanted:
    if given.kind == "In":
        times = [_time_ms(each) for each in _members(given)]
        known = [each for each in times if each is not None]
        least = min(known) if known and len(known) == len(times) else None
    elif given.kind in (*_EQUALS, "GreaterThan", "GreaterThanOrEqual"):
        least = _time_ms(given.value)
    else:
        return wanted
    if least is None or least < 0:  # records without a timestamp lie at -1
        return wanted
    return replace(wanted, least_time_ms=max(wanted.least_time_ms or 0, least))


def _time_ms(value: object) -> int | None:
    """Milliseconds of a time with a zone, rounded down; None for anything else."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return math.floor(value.timestamp()) * 1000 + value.microsecond // 1000


def _is_understood(given: ColumnFilter) -> bool:
    kind = int if given.column == "partition" else str
    if given.kind == "In":
        return bool(_members(given)) and all(isinstance(each, kind) for each in _members(given))
    if given.kind in _OF_TEXT:
        return given.column == "topic" and isinstance(given.value, str)
    if given.kind in _EQUALS:
        return isinstance(given.value, kind)
    is_range = given.kind in _RANGES
    return is_range and given.column == "partition" and isinstance(given.value, int)


def _passes(given: ColumnFilter, partition: TopicPartition) -> bool:
    """For a filter that is understood."""
    if given.column == "partition":
        if given.kind in _RANGES:
            assert isinstance(given.value, int)
            return _RANGES[given.kind](partition.partition, given.value)
        return partition.partition in _members(given)
    if given.kind in _OF_TEXT:
        assert isinstance(given.value, str)
        return _OF_TEXT[given.kind](partition.topic, given.value)
    return partition.topic in _members(given)


def _members(given: ColumnFilter) -> tuple[object, ...]:
    """The values that are equal to it: of ``In`` many, of an equation one."""
    return given.value if isinstance(given.value, tuple) else (given.value,)
