"""Offsets of many partitions: as JSON, as the limits of a batch, and how a batch is split.

Owns the text ``{"topic":{"0":123}}`` of options and checkpoints, which is that of Spark's Kafka
source, and its arithmetic: how `maxOffsetsPerTrigger` is shared out, and how `minPartitions` and
`maxRecordsPerPartition` cut ranges. Equal to the digit, so that a checkpoint goes from one source
to the other. Pure; any thread. Source: KafkaMicroBatchStream and KafkaOffsetRangeCalculator of
Spark 4.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING

from kafkalog.errors import KafkalogError
from kafkalog.format.integers import INT64_MAX
from kafkalog.format.topic_names import PARTITION_MAX, TopicPartition
from kafkalog.spark.option_values import wrong

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkalog.spark.logs import OffsetRange

PartitionOffsets = dict[TopicPartition, int]
"""A number of each partition: the next offset to read, or a time in ms."""

OffsetDocument = dict[str, dict[str, int]]
"""The same as JSON has it."""


class WrongCheckpoint(KafkalogError):
    """A checkpoint of Spark's holds no offsets of this source."""


LATEST = -1
EARLIEST = -2

_SHOWN_MAX = 200  # characters of what a checkpoint has instead

_WHOLE = re.compile(r"-?\d{1,19}", re.ASCII)
_OFFSETS_FORM = 'JSON as {"topic":{"0":23,"1":-1}} (-2: the earliest, -1: the latest)'
_TIMES_FORM = 'JSON as {"topic":{"0":1700000000000}} (ms since 1970)'
_PARTITIONS_FORM = 'JSON as {"topic":[0,1]}'


def parse_offsets(name: str, text: str) -> PartitionOffsets:
    """Of an option: offsets from 0 on, EARLIEST or LATEST. Raises InvalidOption."""
    return _numbers(name, text, _OFFSETS_FORM, low=EARLIEST)


def parse_times_ms(name: str, text: str) -> PartitionOffsets:
    """Of an option: a time in ms for each partition. Raises InvalidOption."""
    return _numbers(name, text, _TIMES_FORM, low=0)


def parse_partitions(name: str, text: str) -> tuple[TopicPartition, ...]:
    """Of an option: partitions of topics, sorted, each once. Raises InvalidOption."""
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


def document_of(offsets: Mapping[TopicPartition, int]) -> OffsetDocument:
    """As JSON, topics and partitions sorted: Spark compares offsets as text."""
    document: OffsetDocument = {}
    for at in sorted(offsets):
        document.setdefault(at.topic, {})[str(at.partition)] = offsets[at]
    return document


def offsets_of(document: Mapping[str, Mapping[str, int]]) -> PartitionOffsets:
    """Of a checkpoint: reverse of `document_of`, in whatever order somebody wrote it.

    Raises WrongCheckpoint: it may be damaged, or of a query with another source.
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


def _wrong_checkpoint(document: object) -> WrongCheckpoint:
    return WrongCheckpoint(
        f"The checkpoint has {json.dumps(document)[:_SHOWN_MAX]} where this source has offsets, "
        'as {"topic":{"0":23}}: it is damaged, or of another query. Restore it, or begin with a '
        "new checkpointLocation"
    )


def rate_limited(
    limit: int, start: Mapping[TopicPartition, int], latest: PartitionOffsets
) -> PartitionOffsets:
    """Where a batch of about ``limit`` offsets ends: each partition has its share of the lag.

    ``start`` has every partition of ``latest`` that can be read. A partition that has anything
    gets one offset at least, so the batch may be larger by as many offsets as there are partitions.
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
    """Offsets that wait; a partition that is not in ``start`` is new and waits from 0 on."""
    return sum(offset - start.get(at, 0) for at, offset in latest.items())


def split_ranges(
    ranges: Sequence[OffsetRange], min_partitions: int | None, records_max: int | None
) -> list[OffsetRange]:
    """At most ``records_max`` offsets each, and about ``min_partitions`` of them; empty ones go.

    Ranges with many offsets are split, those with few stay whole.
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
    """Its share of so many parts, a half rounded up as Java does."""
    return max(math.floor(size / total * count + 0.5), 1)


def _parts(offsets: OffsetRange, count: int) -> list[OffsetRange]:
    """In order and of about the same size; the last ones take what does not divide."""
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
    """The outer object."""
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
        raise ValueError("a name stands there twice")
    return found


def _whole(value: object) -> int | None:
    """Of a JSON number or, as Spark's Kafka source takes it too, of text; None for others."""
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
