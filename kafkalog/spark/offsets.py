"""Offsets of many partitions: their JSON, the arithmetic of a batch, and pushed filters.

The JSON ``{"topic":{"0":123}}`` of options and checkpoints is that of Spark's Kafka source. So is
the arithmetic: how `maxOffsetsPerTrigger` is divided between partitions, and how `minPartitions`
and `maxRecordsPerPartition` split ranges. Both give the same numbers, so that a checkpoint can move
from one source to the other. Topic ids are in it as names without partitions,
``{"topic@<id>":{}}``, in which versions without ids see no offset, as should the Kafka source. No
topic has an @ in its name.

A plan uses filters on topic, partition and offset, and lower bounds of timestamp: records are not
in the order of their timestamps, so that only the first record at or after a time can be looked up.
`narrowed` says for each filter whether Spark has to apply it as well. Filters are Spark's, by
the names of their classes.

Pure, without pyspark; any thread. Source: KafkaMicroBatchStream and KafkaOffsetRangeCalculator of
Spark 4.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from kafkalog.errors import KafkalogError
from kafkalog.format.integers import INT64_MAX
from kafkalog.format.topic_names import PARTITION_MAX, TopicPartition
from kafkalog.spark.option_values import wrong

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kafkalog.spark.logs.values import OffsetRange


PartitionOffsets = dict[TopicPartition, int]
"""A number for each partition: the next offset to read, or a time in ms."""

TopicIds = dict[str, str]
"""The id of each topic that has one: a topic that is recreated gets another."""

OffsetDocument = dict[str, dict[str, int]]
"""Offsets and topic ids in the structure of their JSON."""


class WrongCheckpoint(KafkalogError):
    """A checkpoint of Spark does not hold offsets of this source."""


LATEST = -1
EARLIEST = -2

_ID_MARK = "@"
_SHOWN_MAX = 200  # characters of a wrong checkpoint in a message

_WHOLE = re.compile(r"-?\d{1,19}", re.ASCII)
_OFFSETS_FORM = 'JSON as {"topic":{"0":23,"1":-1}} (-2: the earliest, -1: the latest)'
_TIMES_FORM = 'JSON as {"topic":{"0":1700000000000}} (ms since 1970)'
_PARTITIONS_FORM = 'JSON as {"topic":[0,1]}'


def parse_offsets(name: str, text: str) -> PartitionOffsets:
    """The offsets in an option, or EARLIEST or LATEST. Raises InvalidOption."""
    return _numbers(name, text, _OFFSETS_FORM, low=EARLIEST)


def parse_times_ms(name: str, text: str) -> PartitionOffsets:
    """The times in an option, in ms, for each partition. Raises InvalidOption."""
    return _numbers(name, text, _TIMES_FORM, low=0)


def parse_partitions(name: str, text: str) -> tuple[TopicPartition, ...]:
    """The partitions in an option, sorted, each once. Raises InvalidOption."""
    found = set()
    for topic, numbers in _document(name, text, _PARTITIONS_FORM).items():
        if not isinstance(numbers, list):
            raise wrong(name, text, _PARTITIONS_FORM)
        for number in numbers:
            partition = _whole(number)
            if partition is None or not 0 <= partition <= PARTITION_MAX:
                raise wrong(name, text, _PARTITIONS_FORM)
            found.add(TopicPartition(topic, partition))
    return tuple(sorted(found))


def document_of(
    offsets: Mapping[TopicPartition, int], topic_ids: Mapping[str, str] | None = None
) -> OffsetDocument:
    """The JSON of offsets and the ids of their topics, sorted: Spark compares offsets as text."""
    document: OffsetDocument = {}
    for at in sorted(offsets):
        document.setdefault(at.topic, {})[str(at.partition)] = offsets[at]
    known = topic_ids or {}
    ids: OffsetDocument = {
        f"{topic}{_ID_MARK}{known[topic]}": {} for topic in document if topic in known
    }
    return document | ids


def offsets_of(document: Mapping[str, Mapping[str, int]]) -> PartitionOffsets:
    """The offsets in a checkpoint, in any order: reverse of `document_of`.

    Raises WrongCheckpoint: it is damaged, or of a query with another source.
    """
    try:
        found = {
            TopicPartition(topic, int(partition)): offset
            for topic, partitions in document.items()
            for partition, offset in partitions.items()
        }
    except (AttributeError, ValueError) as error:
        raise _wrong_checkpoint(document) from error
    if not all(type(each) is int and each >= 0 for each in found.values()):
        raise _wrong_checkpoint(document)
    return found


def topic_ids_of(document: Mapping[str, Mapping[str, int]]) -> TopicIds:
    """The topic ids in a checkpoint; none for topics that it has from another source."""
    parts = (name.rpartition(_ID_MARK) for name in document)
    return {topic: topic_id for topic, _, topic_id in parts if topic}


def recreated(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The topics whose id has changed, sorted. An id that is not known has not."""
    return sorted(topic for topic in before if now.get(topic, before[topic]) != before[topic])


def without_topics(
    offsets: Mapping[TopicPartition, int], topics: Sequence[str]
) -> PartitionOffsets:
    """The offsets of all other topics."""
    return {at: offset for at, offset in offsets.items() if at.topic not in topics}


def _wrong_checkpoint(document: object) -> WrongCheckpoint:
    return WrongCheckpoint(
        f"The checkpoint has {json.dumps(document)[:_SHOWN_MAX]} where this source has offsets, "
        'as {"topic":{"0":23}}: it is damaged, or of another query. Restore it, or begin with a '
        "new checkpointLocation"
    )


def rate_limited(
    limit: int, start: Mapping[TopicPartition, int], latest: PartitionOffsets
) -> PartitionOffsets:
    """The ends of a batch of about ``limit`` offsets, divided in proportion to the lag.

    ``start`` has every partition of ``latest`` that can be read. Each partition with a lag gets at
    least one offset, so that the batch may exceed the limit by the number of partitions.
    """
    lags = {at: latest[at] - start[at] for at in latest if at in start and latest[at] > start[at]}
    total = float(sum(lags.values()))
    ends = dict(latest)
    for at, lag in lags.items():
        share = limit * (lag / total)
        whole = math.ceil(share) if share < 1 else math.floor(share)
        ends[at] = min(latest[at], start[at] + whole)
    return ends


def lag_of(start: Mapping[TopicPartition, int], latest: PartitionOffsets) -> int:
    """The number of unread offsets; a partition outside ``start`` is new and unread from 0 on."""
    return sum(offset - start.get(at, 0) for at, offset in latest.items())


def split_ranges(
    ranges: Sequence[OffsetRange], min_partitions: int | None, records_max: int | None
) -> list[OffsetRange]:
    """About ``min_partitions`` ranges of at most ``records_max`` offsets, without empty ones.

    The largest ranges are split, small ones are not.
    """
    split = [each for each in ranges if _size(each) > 0]
    if records_max is not None:
        split = [part for each in split for part in _parts(each, -(-_size(each) // records_max))]
    if min_partitions is None or len(split) >= min_partitions:
        return split
    total = sum(map(_size, split))
    whole = {each for each in split if _part_count(_size(each), total, min_partitions) == 1}
    divided_total = total - sum(map(_size, whole))
    divided_min = max(min_partitions - len(whole), 1)
    return [
        part
        for each in split
        for part in _parts(
            each, 1 if each in whole else _part_count(_size(each), divided_total, divided_min)
        )
        if _size(part) > 0
    ]


def _size(offsets: OffsetRange) -> int:
    return offsets.to_offset - offsets.from_offset


def _part_count(size: int, total: int, count: int) -> int:
    """The share of a range in ``count`` parts, a half rounded up as in Java."""
    return max(math.floor(size / total * count + 0.5), 1)


def _parts(offsets: OffsetRange, count: int) -> list[OffsetRange]:
    """Parts of about the same size, in order; the last ones are larger by the remainder."""
    parts = []
    at = offsets.from_offset
    for part in range(count):
        end = at + (offsets.to_offset - at) // (count - part)
        parts.append(offsets._replace(from_offset=at, to_offset=end))
        at = end
    return parts


def _numbers(name: str, text: str, form: str, low: int) -> PartitionOffsets:
    found: PartitionOffsets = {}
    for topic, partitions in _document(name, text, form).items():
        if not isinstance(partitions, dict):
            raise wrong(name, text, form)
        for key, value in partitions.items():
            partition, number = _whole(key), _whole(value)
            if partition is None or not 0 <= partition <= PARTITION_MAX:
                raise wrong(name, text, form)
            if number is None or not low <= number <= INT64_MAX:
                raise wrong(name, text, form)
            found[TopicPartition(topic, partition)] = number
    return found


def _document(name: str, text: str, form: str) -> dict[str, object]:
    """The JSON object of an option."""
    try:
        document = json.loads(text, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise wrong(name, text, form) from error
    if not isinstance(document, dict) or not document:
        raise wrong(name, text, form)
    return document


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is there twice")
    return found


def _whole(value: object) -> int | None:
    """The integer in a JSON number or text, as Spark's Kafka source accepts it; None: neither."""
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


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
    """One of Spark's filters; ``kind`` is the name of its class."""

    kind: str
    column: str
    value: object = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """The partitions and offsets that pass the filters so far.

    tests           filters on topic and partition
    least_time_ms   a range begins with its first record that is not older; later ones may be older
    """

    tests: tuple[ColumnFilter, ...] = ()
    from_offset: int = 0
    to_offset: int = INT64_MAX
    least_time_ms: int | None = None

    def has(self, partition: TopicPartition) -> bool:
        """Whether records of that partition can pass."""
        tests = map(_test_of, self.tests)
        return all(test(partition) for test in tests if test is not None)


def narrowed(wanted: Wanted, given: ColumnFilter) -> tuple[Wanted, bool]:
    """What passes one more filter, and whether Spark need not apply it."""
    if given.kind == "IsNotNull":
        return wanted, given.column in _NEVER_NULL
    if given.column in ("topic", "partition"):
        if _test_of(given) is None:
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
    if least is None or least < 0:  # records without a timestamp have -1
        return wanted
    return replace(wanted, least_time_ms=max(wanted.least_time_ms or 0, least))


def _time_ms(value: object) -> int | None:
    """A time with a zone in ms, rounded down; None for any other value."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return math.floor(value.timestamp()) * 1000 + value.microsecond // 1000


def _test_of(given: ColumnFilter) -> Callable[[TopicPartition], bool] | None:
    """The test of a filter on topic or partition; None: Spark has to apply it."""
    value, kind = given.value, int if given.column == "partition" else str
    if given.kind in (*_EQUALS, "In"):
        members = _members(given)
        if members and all(isinstance(each, kind) for each in members):
            return lambda at: getattr(at, given.column) in members
    if given.column == "partition" and given.kind in _RANGES and isinstance(value, int):
        return lambda at: _RANGES[given.kind](at.partition, value)
    if given.column == "topic" and given.kind in _OF_TEXT and isinstance(value, str):
        return lambda at: _OF_TEXT[given.kind](at.topic, value)
    return None


def _members(given: ColumnFilter) -> tuple[object, ...]:
    """The values of a filter: several for ``In``, else one."""
    return given.value if isinstance(given.value, tuple) else (given.value,)
