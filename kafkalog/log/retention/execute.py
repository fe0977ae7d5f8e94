"""One retention pass over one log: the facts, the plan, and the plan carried out to the letter.

Owns nothing. ``facts_of`` and ``plan_of`` read what is published and may be called on any thread
(largest timestamps of segments that were never asked may come from their time index, which blocks);
the three steps are the writer thread's, and between them the caller waits for the disk:

``begin``        rolls when all are to go. Then a flush of everything: else a power cut could take
                 the new segment's name and leave the old ones deleted, and the log would start
                 again at offset 0 and give acknowledged offsets twice.
``raise_start``  moves the log start. Then the start-offset checkpoint: renames need not become
                 durable in their order, and what comes back below the log start is not served.
``finish``       renames what lies below the log start, in as many turns as it takes. What a crash
                 leaves goes with the next pass.

``take_oldest``  is the whole pass on a disk that has no room for the checkpoint: one segment, so
                 that its renames need no order. After a power cut it may be there again, and its
                 records are served until the next pass.

Kafka deletes without waiting, and trusts the file system to keep the order of its renames. Source:
Kafka 4.1 UnifiedLog.deleteOldSegments and deleteSegments.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, pairwise, takewhile
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, overload

import structlog

from kafkalog.log import kafka_messages
from kafkalog.log.retention.plan import (
    Deletion,
    LogFacts,
    RetentionPlan,
    RetentionPolicy,
    Rule,
    SegmentFacts,
    plan,
)

if TYPE_CHECKING:
    from kafkalog.log.log_config import LogConfig
    from kafkalog.log.retention.plan import Hold
    from kafkalog.log.segment.log_segment import LogSegment
    from kafkalog.log.unified_log import UnifiedLog

# Renames of one segment at most: log, three indexes, producer snapshot.
DIRECTORY_OPERATIONS_PER_SEGMENT = 5
_log = structlog.get_logger(__name__)


class _Segments(Sequence[SegmentFacts]):
    """Facts of segments, made when they are asked for: most passes need one or two."""

    def __init__(self, segments: tuple[LogSegment, ...], *, may_block: bool = True) -> None:
        self._segments = segments
        self._may_block = may_block

    def __len__(self) -> int:
        return len(self._segments)

    @overload
    def __getitem__(self, index: int) -> SegmentFacts: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[SegmentFacts]: ...
    def __getitem__(self, index: int | slice) -> SegmentFacts | Sequence[SegmentFacts]:
        if isinstance(index, slice):
            return _Segments(self._segments[index], may_block=self._may_block)
        segment = self._segments[index]
        largest_ms = segment.largest_timestamp_ms(may_block=self._may_block)
        return SegmentFacts(segment.base_offset, segment.size_bytes, largest_ms)


def facts_of(log: UnifiedLog, hold: Hold | None = None, *, may_block: bool = True) -> LogFacts:
    """The log as it is published now; see ``inspect``."""
    return inspect(log, hold, may_block=may_block)[1]


def inspect(
    log: UnifiedLog, hold: Hold | None = None, *, may_block: bool = True
) -> tuple[tuple[LogSegment, ...], LogFacts]:
    """The published segments and the facts of these very segments.

    Where the facts of one need the disk, asking for them raises WouldBlock unless ``may_block``.
    """
    high_watermark = log.high_watermark  # before the segments and the end: it is never above them
    segments = log.segments.values
    return segments, LogFacts(
        segments=_Segments(segments, may_block=may_block),
        size_bytes=sum(map(attrgetter("size_bytes"), segments)),
        log_start_offset=log.log_start_offset,
        high_watermark=high_watermark,
        log_end_offset=log.log_end_offset,
        hold=hold,
        is_start_disputed=log.disputed_start_offset is not None,
    )


def read_all(facts: LogFacts) -> LogFacts:
    """The facts of all segments, read now: they no longer grow, and their sum is the log's size."""
    segments = tuple(facts.segments)
    size_bytes = sum(map(attrgetter("size_bytes"), segments))
    return facts._replace(segments=segments, size_bytes=size_bytes)


def policy_of(config: LogConfig) -> RetentionPolicy:
    """What the topic's configuration asks for."""
    return RetentionPolicy(config.has_delete_policy, config.retention_ms, config.retention_bytes)


def plan_of(log: UnifiedLog, now_ms: int, hold: Hold | None = None) -> RetentionPlan:
    """What a pass over the log deletes now."""
    return plan(facts_of(log, hold), policy_of(log.config), now_ms)


class Deleted(NamedTuple):
    """A segment that went."""

    base_offset: int
    size_bytes: int


def begin(log: UnifiedLog, planned: RetentionPlan) -> int:
    """Roll when all are to go; the active segment's base offset, for ``raise_start``.

    The plan may be of an earlier moment: an append may have rolled since.
    """
    active_base = log.local.active_segment.base_offset
    if planned.is_rolled and planned.deletions[-1].base_offset == active_base:
        log.roll()
    return log.local.active_segment.base_offset


def raise_start(
    log: UnifiedLog, now_ms: int, flushed_base: int, hold: Hold | None = None
) -> tuple[Deletion, ...]:
    """Move the log start after what a pass deletes, and say why; what ``finish`` will delete.

    flushed_base    from ``begin``; segments above it, which appends may have rolled since, stay
    """
    planned = _plan_below(log, now_ms, flushed_base, hold)
    assert not planned.is_rolled, "the active segment lies above its own base"
    _log_deletions(log, planned.deletions)
    if planned.deletions:
        log.increment_log_start_offset(planned.log_start_offset, "segment deletion")
    return planned.deletions


def finish(log: UnifiedLog, most: int | None = None) -> tuple[Deleted, ...]:
    """Delete the oldest ``most`` segments that lie wholly below the log start; what went.

    Files are renamed on return and removed after ``file.delete.delay.ms``. OSError: some of them
    went, the others are the next pass's.
    """
    if log.disputed_start_offset is not None:
        return ()
    start = log.log_start_offset
    # From the oldest on and no further: a part of a log of many segments reads few of them.
    below = takewhile(lambda pair: pair[1].base_offset <= start, pairwise(log.segments))
    gone = tuple(segment for segment, _ in islice(below, most))
    log.delete_segments(gone, "segment deletion")
    return tuple(Deleted(each.base_offset, each.size_bytes) for each in gone)


def take_oldest(
    log: UnifiedLog, now_ms: int, hold: Hold | None = None
) -> tuple[tuple[Deletion, ...], tuple[Deleted, ...]]:
    """Delete the oldest segment that a pass deletes, and say why; empty when there is none.

    The segment after it, with its name, is durable already: nothing has to be waited for.
    """
    flushed_base = min(log.local.recovery_point, log.local.active_segment.base_offset)
    oldest = _plan_below(log, now_ms, flushed_base, hold).deletions[:1]
    _log_deletions(log, oldest)
    gone = log.segments.values[: len(oldest)]
    log.delete_segments(gone, "segment deletion")
    return oldest, tuple(Deleted(each.base_offset, each.size_bytes) for each in gone)


def _plan_below(
    log: UnifiedLog, now_ms: int, flushed_base: int, hold: Hold | None
) -> RetentionPlan:
    """The plan over what is durable whatever happens: nothing above flushed_base goes."""
    facts = facts_of(log, hold)._replace(flushed_base=flushed_base)
    return plan(facts, policy_of(log.config), now_ms)


def _log_deletions(log: UnifiedLog, deletions: Sequence[Deletion]) -> None:
    """Kafka's sentences, so that what searches for them finds them."""
    size_bytes, below_start = log.size_bytes, []
    for deletion in deletions:
        segment = log.segments.get(deletion.base_offset)
        assert segment is not None, "the plan is of another moment"
        size_bytes -= segment.size_bytes
        if deletion.rule is Rule.START_OFFSET:
            below_start.append(segment)
            continue
        named = segment.description()
        if deletion.rule is Rule.SIZE:
            text = kafka_messages.over_size(named, log.config.retention_bytes, size_bytes)
        else:
            has_timestamp = segment.max_timestamp_so_far().timestamp_ms >= 0
            text = kafka_messages.over_time(
                named, log.config.retention_ms, has_timestamp=has_timestamp
            )
        _say(text, log, deletion.rule)
    for several in kafka_messages.groups_of_one_line(below_start):
        names = [segment.description() for segment in several]
        text = kafka_messages.below_start(names, log.log_start_offset)
        _say(text, log, Rule.START_OFFSET)


def _say(text: str, log: UnifiedLog, rule: Rule) -> None:
    _log.info(text, partition=str(log.topic_partition), rule=rule.value)
