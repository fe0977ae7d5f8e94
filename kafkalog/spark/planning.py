"""The plan of a query: its partitions, the offset ranges of a batch, and the pieces of its tasks.

Runs in the driver, which asks `Logs` once for each offset; a task reads exactly its piece. Owns
what a missing topic or partition means, and `LossPolicy`, which is option failOnDataLoss. Without
pyspark. Source: KafkaOffsetReaderAdmin of Spark 4.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.errors import KafkalogError, UnknownPartition, UnknownTopic
from kafkalog.format.suggestions import did_you_mean
from kafkalog.format.topic_names import TopicPartition
from kafkalog.spark.logs.values import DataLost, OffsetRange
from kafkalog.spark.offsets import EARLIEST, LATEST, PartitionOffsets, split_ranges
from kafkalog.spark.option_values import InvalidOption
from kafkalog.spark.options import AtOffsets, AtTime, AtTimes, Extreme, Limit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafkalog.spark.logs.values import Logs, Piece
    from kafkalog.spark.offsets import Wanted
    from kafkalog.spark.options import SourceOptions, Subscription


LOGGER = logging.getLogger("kafkalog.spark")
"""Warnings of Spark's Python workers appear in the log of their executor."""

_WHAT_TO_DO = "option failOnDataLoss=false reads the records that are left"


class PartitionsGone(KafkalogError):
    """Partitions of a query were deleted while it read them."""

    kafka_error = "UNKNOWN_TOPIC_OR_PARTITION"


class LossPolicy(NamedTuple):
    """Whether data loss ends the query or is a warning."""

    fails: bool

    def lost(self, missing: OffsetRange, reason: str) -> None:
        """Raise DataLost, or log it: then the caller continues at ``missing.to_offset``."""
        if self.fails:
            raise DataLost(missing, f"{reason}; {_WHAT_TO_DO}")
        LOGGER.warning("%s", DataLost(missing, reason))

    def gone(self, read_up_to: PartitionOffsets) -> None:
        """Raise PartitionsGone, or log it. ``read_up_to``: the next offsets to read."""
        if not read_up_to:
            return
        names = ", ".join(f"{at} (read up to {read_up_to[at]})" for at in sorted(read_up_to))
        error = PartitionsGone(f"Partitions were deleted with unread records: {names}")
        if self.fails:
            raise PartitionsGone(f"{error.message}; {_WHAT_TO_DO}")
        LOGGER.warning("%s", error)


class OffsetReader:
    """Looks up the offsets of a batch. Not thread-safe, as `Logs`."""

    def __init__(self, logs: Logs, options: SourceOptions) -> None:
        self._logs = logs
        self._options = options

    def partitions(self, *, missing_is_an_error: bool = True) -> list[TopicPartition]:
        """The partitions that the query subscribes to, sorted.

        A named topic or partition that does not exist raises UnknownTopic or UnknownPartition, or
        is logged and left out.
        """
        there = self._logs.topics()
        found, missing = _subscribed(self._options.subscription, there)
        for error in missing:
            if missing_is_an_error:
                raise error
            LOGGER.warning("%s", error)
        return sorted(found)

    def starting(self, partitions: Sequence[TopicPartition]) -> PartitionOffsets:
        """The first offsets of the query. Raises InvalidOption."""
        return self._resolved(self._options.starting, partitions, is_start=True)

    def ending(self, partitions: Sequence[TopicPartition]) -> PartitionOffsets:
        """The end offsets of a batch query. Raises InvalidOption."""
        return self._resolved(self._options.ending, partitions, is_start=False)

    def earliest(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        """The log starts of the partitions that still exist."""
        found = self._logs.all_bounds(partitions)
        return {at: bounds.log_start_offset for at, bounds in found.items()}

    def latest(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        """The ends of the partitions that still exist."""
        found = self._logs.all_bounds(partitions)
        return {at: bounds.end_offset for at, bounds in found.items()}

    def _resolved(
        self, limit: Limit, partitions: Sequence[TopicPartition], *, is_start: bool
    ) -> PartitionOffsets:
        if limit is Extreme.EARLIEST:
            return self.earliest(partitions)
        if limit is Extreme.LATEST:
            return self.latest(partitions)
        if isinstance(limit, AtOffsets):
            _check_named(limit.option, limit.offsets, partitions)
            return self._of_extremes(limit.offsets)
        if isinstance(limit, AtTimes):
            _check_named(limit.option, limit.times_ms, partitions)
            times_ms = limit.times_ms
        else:
            times_ms = dict.fromkeys(partitions, limit.time_ms)
        return self._of_times(limit, times_ms, is_start=is_start)

    def _of_extremes(self, offsets: PartitionOffsets) -> PartitionOffsets:
        """The same with offsets for EARLIEST and LATEST, without partitions deleted meanwhile."""
        first = self.earliest(at for at, offset in offsets.items() if offset == EARLIEST)
        last = self.latest(at for at, offset in offsets.items() if offset == LATEST)
        known = {at: offset for at, offset in offsets.items() if offset >= 0}
        return known | first | last

    def _of_times(
        self, limit: AtTime | AtTimes, times_ms: PartitionOffsets, *, is_start: bool
    ) -> PartitionOffsets:
        found: PartitionOffsets = {}
        for at, offset in self._logs.all_offsets_at(times_ms).items():
            if offset is None and is_start and not self._options.is_latest_without_match:
                raise InvalidOption(
                    f"Option {limit.option}: {at} has no record at or after {times_ms[at]} ms; "
                    "option startingOffsetsByTimestampStrategy=latest begins at its end"
                )
            found[at] = LATEST if offset is None else offset
        return self._of_extremes(found)


def _subscribed(
    subscription: Subscription, there: dict[str, list[int]]
) -> tuple[list[TopicPartition], list[KafkalogError]]:
    """The existing partitions, and an error for each named topic or partition that is missing."""
    if subscription.pattern is not None:
        topics = [name for name in there if re.search(subscription.pattern, name)]
        return _all_of(topics, there), []
    known = [name for name in subscription.topics if name in there]
    missing: list[KafkalogError] = [
        unknown_topic(name, there) for name in subscription.topics if name not in there
    ]
    found = _all_of(known, there)
    for at in subscription.partitions:
        if at.topic not in there:
            missing.append(unknown_topic(at.topic, there))
        elif at.partition not in there[at.topic]:
            numbers = ", ".join(map(str, there[at.topic]))
            missing.append(
                UnknownPartition(f"There is no partition {at}: {at.topic} has {numbers}")
            )
        else:
            found.append(at)
    return found, missing


def _all_of(topics: Iterable[str], there: dict[str, list[int]]) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for topic in topics for number in there[topic]]


def unknown_topic(name: str, there: dict[str, list[int]]) -> UnknownTopic:
    """The error for a topic that does not exist, with the nearest name or some of ``there``."""
    some = ", ".join(list(there)[:10]) or "none"
    guess = did_you_mean(name, there) or f"; existing topics: {some}"
    return UnknownTopic(f"There is no topic {name}{guess}")


def _check_named(
    option: str, named: PartitionOffsets, partitions: Sequence[TopicPartition]
) -> None:
    """An option must name exactly the subscribed partitions. Raises InvalidOption."""
    missing = sorted(set(partitions) - named.keys())
    extra = sorted(named.keys() - set(partitions))
    if missing or extra:
        parts = [f"lacks {', '.join(map(str, missing))}"] if missing else []
        parts += [f"names {', '.join(map(str, extra))}, not subscribed to"] if extra else []
        raise InvalidOption(
            f"Option {option} {' and '.join(parts)}: it needs each partition of the query (-2: the "
            "earliest, -1: the latest offset)"
        )


def batch_ranges(logs: Logs, options: SourceOptions, wanted: Wanted) -> list[OffsetRange]:
    """The offsets that a batch query reads, within its filters.

    Raises InvalidOption, UnknownTopic and UnknownPartition, PartitionsGone for a partition that is
    deleted meanwhile, and the errors of `Logs`.
    """
    reader = OffsetReader(logs, options)
    partitions = reader.partitions()
    first = reader.starting(partitions)
    last = reader.ending(partitions)
    there = [at for at in partitions if at in first and at in last]
    policy = LossPolicy(fails=options.fail_on_data_loss)
    policy.gone({at: first.get(at, 0) for at in partitions if at not in there})
    for at in there:
        if wanted.has(at) and first[at] > last[at]:
            raise InvalidOption(
                f"The query begins at offset {first[at]} of {at}, after its end {last[at]}: give "
                "an earlier start or a later end"
            )
    ranges = [
        OffsetRange(at.topic, at.partition, first[at], last[at]) for at in there if wanted.has(at)
    ]
    return _narrowed(logs, wanted, ranges)


def _narrowed(logs: Logs, wanted: Wanted, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """The ranges within the filters; empty ones have equal bounds."""
    found = []
    for each in ranges:
        first = max(each.from_offset, wanted.from_offset)
        last = max(min(each.to_offset, wanted.to_offset), first)
        found.append(each._replace(from_offset=first, to_offset=last))
    if wanted.least_time_ms is None:
        return found
    full = [TopicPartition(*each[:2]) for each in found if each.from_offset < each.to_offset]
    offsets = logs.all_offsets_at(dict.fromkeys(full, wanted.least_time_ms))
    for slot, each in enumerate(found):
        offset = offsets.get(TopicPartition(*each[:2]), each.from_offset)
        first = each.to_offset if offset is None else max(each.from_offset, offset)
        found[slot] = each._replace(from_offset=min(first, each.to_offset))
    return found


def trigger_ranges(
    logs: Logs, options: SourceOptions, start: PartitionOffsets, end: PartitionOffsets
) -> list[OffsetRange]:
    """The offsets that a micro-batch reads; a new partition is read from its log start.

    Raises or logs PartitionsGone for deleted partitions, and DataLost for a new partition that
    begins above offset 0 and for a log that ends below the offset that was read.
    """
    policy = LossPolicy(fails=options.fail_on_data_loss)
    new = sorted(end.keys() - start.keys())
    of_new = OffsetReader(logs, options).earliest(new)
    policy.gone({at: start[at] for at in start.keys() - end.keys()})
    policy.gone({at: 0 for at in new if at not in of_new})
    for at, offset in of_new.items():
        if offset > 0:
            policy.lost(
                OffsetRange(at.topic, at.partition, 0, offset),
                "a partition that was added while the query ran begins above offset 0",
            )
    ranges = []
    for at in sorted(end):
        first = start.get(at, of_new.get(at))
        if first is None:
            continue
        if end[at] < first:
            policy.lost(
                OffsetRange(at.topic, at.partition, end[at], first),
                "the log ends before the offset that the query has read up to: was the topic "
                "deleted and recreated?",
            )
        ranges.append(OffsetRange(at.topic, at.partition, first, max(first, end[at])))
    return ranges


def pieces_of(logs: Logs, options: SourceOptions, ranges: Sequence[OffsetRange]) -> list[Piece]:
    """A piece for each task, by maxRecordsPerPartition, minPartitions and targetBytes.

    Ranges are split by offsets as Spark's Kafka source does, then by bytes of log.
    """
    split = split_ranges(ranges, options.min_partitions, options.max_records_per_partition)
    return logs.all_pieces(split, options.target_bytes)


def log_warnings(options: SourceOptions) -> None:
    """Log the options that have no effect."""
    for sentence in options.warnings:
        LOGGER.warning("%s", sentence)
