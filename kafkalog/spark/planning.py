"""The plan of a query: its partitions, the offset ranges of a batch, and the pieces of its tasks.

Runs in the driver, which asks `Logs` once for each offset; a task reads exactly its piece. Owns
what a missing topic or partition means, and `LossPolicy`, which is options failOnDataLoss and
recreatedTopicStrategy. Without pyspark. Source: KafkaOffsetReaderAdmin of Spark 4.
"""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.errors import KafkalogError, UnknownPartition, UnknownTopic
from kafkalog.format.integers import INT64_MAX
from kafkalog.format.suggestions import did_you_mean
from kafkalog.format.topic_names import TopicPartition
from kafkalog.spark.logs.values import DataLost, OffsetRange, topic_recreated
from kafkalog.spark.offsets import (
    EARLIEST,
    LATEST,
    PartitionOffsets,
    TopicIds,
    recreated,
    split_ranges,
    without_topics,
)
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
_TO_RESTART = "option recreatedTopicStrategy=earliest reads the new topic from its start"


class PartitionsGone(KafkalogError):
    """Partitions of a query were deleted while it read them."""

    kafka_error = "UNKNOWN_TOPIC_OR_PARTITION"


class StreamOffset(NamedTuple):
    """A position of a stream: the next offset of each partition, and the ids of its topics."""

    offsets: PartitionOffsets
    topic_ids: TopicIds


class LossPolicy(NamedTuple):
    """Whether data loss ends the query or is a warning.

    restarts   a recreated topic is a warning, and is read from its start
    """

    fails: bool
    restarts: bool = False

    @classmethod
    def of(cls, options: SourceOptions) -> LossPolicy:
        """The policy of a query."""
        return cls(options.fail_on_data_loss, options.restarts_recreated_topics)

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

    def recreated(
        self, topics: Iterable[str], before: TopicIds, now: TopicIds, read_up_to: PartitionOffsets
    ) -> None:
        """Raise DataLost for the first of these topics, or log them."""
        for topic in topics:
            unread = [
                OffsetRange(topic, at.partition, read_up_to[at], INT64_MAX)
                for at in sorted(read_up_to)
                if at.topic == topic
            ]
            missing = unread[0] if unread else OffsetRange(topic, 0, 0, INT64_MAX)
            error = topic_recreated(missing, before[topic], now[topic])
            if not self.restarts:
                raise DataLost(missing, f"{error.reason}; {_TO_RESTART}")
            LOGGER.warning("%s; the new topic is read from its start", error)


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
        found, missing = _subscribed(self._options.subscription, self._logs.topics())
        return self._without(missing, found, missing_is_an_error=missing_is_an_error)

    def continued(self, read: StreamOffset) -> tuple[list[TopicPartition], TopicIds]:
        """The partitions of a stream that has read up to an offset, and the ids of their topics.

        Unless options say otherwise, raises DataLost for a topic that was recreated, PartitionsGone
        for a partition that was deleted, and what `partitions` raises for one that was not read.
        """
        found, missing = _subscribed(self._options.subscription, self._logs.topics())
        topic_ids, policy = self.topic_ids(found), LossPolicy.of(self._options)
        others = recreated(read.topic_ids, topic_ids)
        if not policy.restarts:  # else the plan of the batch logs it
            policy.recreated(others, read.topic_ids, topic_ids, read.offsets)
        if policy.fails:
            begin = without_topics(read.offsets, others)
            policy.gone({at: begin[at] for at in begin.keys() - set(found)})
        return self._without(missing, found, missing_is_an_error=policy.fails), topic_ids

    @staticmethod
    def _without(
        missing: list[KafkalogError], found: list[TopicPartition], *, missing_is_an_error: bool
    ) -> list[TopicPartition]:
        for error in missing:
            if missing_is_an_error:
                raise error
            LOGGER.warning("%s", error)
        return sorted(found)

    def topic_ids(self, partitions: Iterable[TopicPartition]) -> TopicIds:
        """The ids of the topics, to be looked up before offsets: these are not of older topics."""
        return self._logs.topic_ids({at.topic for at in partitions})

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


def batch_pieces(logs: Logs, options: SourceOptions, wanted: Wanted) -> list[Piece]:
    """The tasks of a batch query, within its filters.

    Raises InvalidOption, UnknownTopic and UnknownPartition, PartitionsGone for a partition that is
    deleted meanwhile, and the errors of `Logs`.
    """
    reader = OffsetReader(logs, options)
    partitions = reader.partitions()
    topic_ids = reader.topic_ids(partitions)
    return pieces_of(logs, options, batch_ranges(logs, options, wanted, partitions), topic_ids)


def batch_ranges(
    logs: Logs, options: SourceOptions, wanted: Wanted, partitions: Sequence[TopicPartition]
) -> list[OffsetRange]:
    """The offsets of these partitions that a batch query reads. Raises as `batch_pieces`."""
    reader = OffsetReader(logs, options)
    first = reader.starting(partitions)
    last = reader.ending(partitions)
    there = [at for at in partitions if at in first and at in last]
    policy = LossPolicy.of(options)
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


def trigger_pieces(
    logs: Logs, options: SourceOptions, start: StreamOffset, end: StreamOffset
) -> list[Piece]:
    """The tasks of a micro-batch.

    A recreated topic is read from its start, up to the end that was planned for it. If it was
    recreated after this plan, then nothing of it is read: its records are in the next batch. Raises
    or logs DataLost for it, and what `trigger_ranges` and `pieces_of` raise or log.
    """
    policy = LossPolicy.of(options)
    topic_ids = OffsetReader(logs, options).topic_ids(end.offsets)
    planned = start.topic_ids | end.topic_ids
    after_plan = recreated(planned, topic_ids)
    policy.recreated(after_plan, planned, topic_ids, start.offsets)
    before_plan = [each for each in recreated(start.topic_ids, planned) if each not in after_plan]
    policy.recreated(before_plan, start.topic_ids, planned, start.offsets)
    begin = without_topics(start.offsets, [*before_plan, *after_plan])
    until = without_topics(end.offsets, after_plan)
    return pieces_of(logs, options, trigger_ranges(logs, options, begin, until), topic_ids)


def trigger_ranges(
    logs: Logs, options: SourceOptions, start: PartitionOffsets, end: PartitionOffsets
) -> list[OffsetRange]:
    """The offsets that a micro-batch reads; a new partition is read from its log start.

    Raises or logs PartitionsGone for deleted partitions, and DataLost for a new partition that
    begins above offset 0 and for a log that ends below the offset that was read.
    """
    policy = LossPolicy.of(options)
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


def pieces_of(
    logs: Logs, options: SourceOptions, ranges: Sequence[OffsetRange], topic_ids: TopicIds
) -> list[Piece]:
    """A piece for each task, by maxRecordsPerPartition, minPartitions and targetBytes.

    Ranges are split by offsets as Spark's Kafka source does, then by bytes of log. Raises or logs
    PartitionsGone for partitions that were deleted since their ranges were planned.
    """
    split = split_ranges(ranges, options.min_partitions, options.max_records_per_partition)
    pieces = logs.all_pieces(split, options.target_bytes)
    begun = {each.range[:3] for each in pieces}  # no range is empty: it has pieces, or is gone
    gone: PartitionOffsets = {}
    for each in split:
        if each[:3] not in begun:
            gone.setdefault(TopicPartition(*each[:2]), each.from_offset)
    LossPolicy.of(options).gone(gone)
    return [replace(each, topic_id=topic_ids.get(each.range.topic)) for each in pieces]


def log_warnings(options: SourceOptions) -> None:
    """Log the options that have no effect."""
    for sentence in options.warnings:
        LOGGER.warning("%s", sentence)
