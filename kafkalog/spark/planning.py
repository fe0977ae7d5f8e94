"""From offsets to tasks: the ranges of a batch or a trigger, and the pieces that tasks read.

Every number in a plan is fixed here, in the driver: a task reads exactly its piece. No pyspark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.spark.logs import OffsetRange
from kafkalog.spark.offset_reader import LossPolicy, OffsetReader
from kafkalog.spark.offsets import split_ranges
from kafkalog.spark.option_values import InvalidOption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.format.topic_names import TopicPartition
    from kafkalog.spark.filters import Wanted
    from kafkalog.spark.logs import Logs, Piece
    from kafkalog.spark.offsets import PartitionOffsets
    from kafkalog.spark.options import SourceOptions


def batch_ranges(logs: Logs, options: SourceOptions, wanted: Wanted) -> list[OffsetRange]:
    """What a batch query reads, without what its filters leave out.

    Raises InvalidOption, UnknownTopic and UnknownPartition, PartitionsGone for one that was deleted
    while this looked, and what reaching the logs raises.
    """
    reader = OffsetReader(logs, options)
    partitions = reader.partitions()
    first = reader.starting(partitions)
    last = reader.ending(partitions)
    there = [at for at in partitions if at in first and at in last]
    policy = LossPolicy(fails=options.fail_on_data_loss)
    policy.gone({at: first.get(at, 0) for at in partitions if at not in there})
    ranges = []
    for at in there:
        if not wanted.has(at):
            continue
        if first[at] > last[at]:
            raise InvalidOption(
                f"The query begins at offset {first[at]} of {at}, behind its end {last[at]}: give "
                "an earlier start or a later end"
            )
        ranges.append(_narrowed(reader, wanted, at, first[at], last[at]))
    return ranges


def _narrowed(
    reader: OffsetReader, wanted: Wanted, at: TopicPartition, first: int, last: int
) -> OffsetRange:
    """One partition's range within the filters; empty ones have equal bounds."""
    first = max(first, wanted.from_offset)
    last = max(min(last, wanted.to_offset), first)
    if wanted.least_time_ms is not None and first < last:
        offset = reader.first_at(at, wanted.least_time_ms)
        first = last if offset is None else min(max(first, offset), last)
    return OffsetRange(at.topic, at.partition, first, last)


def trigger_ranges(
    logs: Logs, options: SourceOptions, start: PartitionOffsets, end: PartitionOffsets
) -> list[OffsetRange]:
    """What a trigger reads between two offsets of its checkpoint; new partitions from their start.

    Raises DataLost or PartitionsGone, or tells of it: what is gone, what begins above 0 though
    nobody has read it, and what ends before it begins.
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
                "a partition that came while the query ran begins behind offset 0",
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
                "deleted and made anew?",
            )
        ranges.append(OffsetRange(at.topic, at.partition, first, max(first, end[at])))
    return ranges


def pieces_of(logs: Logs, options: SourceOptions, ranges: Sequence[OffsetRange]) -> list[Piece]:
    """One task each. At most maxRecordsPerPartition offsets, about minPartitions, and targetBytes.

    Fewer than minPartitions are split by offsets, as Spark's Kafka source does; what is then
    larger than targetBytes, by bytes.
    """
    split = split_ranges(ranges, options.min_partitions, options.max_records_per_partition)
    return [piece for each in split for piece in logs.pieces(each, options.target_bytes)]
