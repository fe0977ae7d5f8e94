"""One retention pass over one log: the facts, the plan, and the plan carried out to the letter.

Owns nothing. ``facts_of`` and ``plan_of`` read what is published and may be called on any thread
(largest timestamps of segments that were never asked may come from their time index, which blocks);
``carry_out`` is the writer thread's. A crash in between is harmless: files that were renamed are
removed at the next start, and the log start is at least the first segment's base.
Source: Kafka 4.1 UnifiedLog.deleteOldSegments and deleteSegments, log-lifecycle 9.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, overload

import structlog

from kafkalog.log.retention_plan import (
    LogFacts,
    RetentionPlan,
    RetentionPolicy,
    Rule,
    SegmentFacts,
    plan,
)

if TYPE_CHECKING:
    from kafkalog.log.log_config import LogConfig
    from kafkalog.log.log_segment import LogSegment
    from kafkalog.log.unified_log import UnifiedLog

# Renames of one segment at most: log, three indexes, producer snapshot.
DIRECTORY_OPERATIONS_PER_SEGMENT = 5
_RULE = attrgetter("rule")
_log = structlog.get_logger(__name__)


class _Segments(Sequence[SegmentFacts]):
    """Facts of segments, made when they are looked at: most passes look at one or two."""

    def __init__(self, segments: tuple[LogSegment, ...]) -> None:
        self._segments = segments

    def __len__(self) -> int:
        return len(self._segments)

    @overload
    def __getitem__(self, index: int) -> SegmentFacts: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[SegmentFacts]: ...
    def __getitem__(self, index: int | slice) -> SegmentFacts | Sequence[SegmentFacts]:
        if isinstance(index, slice):
            return _Segments(self._segments[index])
        segment = self._segments[index]
        return SegmentFacts(segment.base_offset, segment.size_bytes, segment.largest_timestamp_ms())


def facts_of(log: UnifiedLog, hold_offset: int | None = None) -> LogFacts:
    """The log as it is published now."""
    high_watermark = log.high_watermark  # before the segments and the end: it is never above them
    segments = log.segments.values
    return LogFacts(
        segments=_Segments(segments),
        size_bytes=sum(map(attrgetter("size_bytes"), segments)),
        log_start_offset=log.log_start_offset,
        high_watermark=high_watermark,
        log_end_offset=log.log_end_offset,
        hold_offset=hold_offset,
    )


def policy_of(config: LogConfig) -> RetentionPolicy:
    """What the topic's configuration asks for."""
    return RetentionPolicy(config.is_deleted, config.retention_ms, config.retention_bytes)


def plan_of(log: UnifiedLog, now_ms: int, hold_offset: int | None = None) -> RetentionPlan:
    """What a pass over the log deletes now."""
    return plan(facts_of(log, hold_offset), policy_of(log.config), now_ms)


class Deleted(NamedTuple):
    """A segment that went."""

    rule: Rule
    base_offset: int
    size_bytes: int


def carry_out(
    log: UnifiedLog, planned: RetentionPlan, most: int | None = None
) -> tuple[Deleted, ...]:
    """Delete what was planned, at most the oldest ``most`` segments of it; what went.

    For a plan made on this thread just now. Files are renamed on return and removed after
    ``file.delete.delay.ms``. OSError: some of them went, the others are the next pass's.
    """
    if planned.is_rolled:
        log.roll()
    deleted: list[Deleted] = []
    for rule, group in groupby(planned.deletions[:most], _RULE):
        gone = tuple(_segment_at(log, deletion.base_offset) for deletion in group)
        _tell(log, rule, gone)
        log.delete_segments(gone, "segment deletion")
        deleted += [Deleted(rule, each.base_offset, each.size_bytes) for each in gone]
    return tuple(deleted)


def _segment_at(log: UnifiedLog, base_offset: int) -> LogSegment:
    segment = log.segments.get(base_offset)
    assert segment is not None, "the plan is of another moment"
    return segment


def _tell(log: UnifiedLog, rule: Rule, gone: tuple[LogSegment, ...]) -> None:
    """Kafka's sentence for each segment, so that what searches for it finds it."""
    size_bytes = log.size_bytes
    for segment in gone:
        stamp_ms = segment.max_timestamp_so_far().timestamp_ms
        size_bytes -= segment.size_bytes
        if rule is Rule.START_OFFSET:
            why = f"log start offset {log.log_start_offset} breach"
        elif rule is Rule.SIZE:
            why = (
                f"log retention size {log.config.retention_bytes} breach. "
                f"Log size after deletion will be {size_bytes}."
            )
        else:
            based = (
                "largest record timestamp in the segment"
                if stamp_ms >= 0
                else "last modified time of the segment"
            )
            why = f"log retention time {log.config.retention_ms}ms breach based on the {based}"
        _log.info(
            f"Deleting segment LogSegment(baseOffset={segment.base_offset}, "
            f"size={segment.size_bytes}, largestRecordTimestamp={stamp_ms}) due to {why}",
            partition=str(log.topic_partition),
            rule=rule.value,
        )
