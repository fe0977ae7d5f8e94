"""What one round of cleaning takes of a log, and which segments it combines.

``plan_cleaning`` says from where to where a log is dirty and whether that is worth a round;
``group_segments`` says which sources become one cleaned segment. Both are pure: facts in, values
out. ``LogToClean`` collects the facts of a log: what it published and, where a compaction lag asks
for timestamps, the heads and indexes of dirty segments; any thread, may read. ``source_groups`` is
the thread's that cleans and reads indexes. Source: Kafka's LogCleanerManager.cleanableOffsets,
LogToClean, Cleaner.groupSegmentsBySize and cleanSegments (4.1).
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.log.segment.index_repair import floor_entry, floor_timestamp
from kafkalog.log.values import MAX_RELATIVE_OFFSET

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.log.log_config import LogConfig
    from kafkalog.log.segment.log_segment import LogSegment
    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.log.values import AbortedTransaction


class CheckpointFault(enum.Enum):
    """Why the checkpointed offset is not believed."""

    BELOW_LOG_START = "the checkpointed offset lies below the log start"
    ABOVE_LOG_END = "the checkpointed offset lies above the log end"


class FirstDirty(NamedTuple):
    """Where the dirty part begins; with a fault the checkpoint has to be corrected."""

    offset: int
    fault: CheckpointFault | None


def first_dirty(checkpoint: int | None, log_start_offset: int, log_end_offset: int) -> FirstDirty:
    """The checkpointed offset (None: there is none) if it lies in the log, else the log start."""
    if checkpoint is None:
        return FirstDirty(log_start_offset, None)
    if checkpoint < log_start_offset:
        return FirstDirty(log_start_offset, CheckpointFault.BELOW_LOG_START)
    if checkpoint > log_end_offset:
        return FirstDirty(log_start_offset, CheckpointFault.ABOVE_LOG_END)
    return FirstDirty(checkpoint, None)


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """One segment. The timestamps are needed of dirty segments that are not active.

    largest_timestamp_ms  with min.compaction.lag.ms alone (``needs_largest_timestamps``)
    first_timestamp_ms    maximum of the first batch, -1 for none; ``needs_first_timestamps``
    """

    base_offset: int
    size_bytes: int
    largest_timestamp_ms: int | None = None
    first_timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CleaningFacts:
    """One log: all its segments by rising base offset, the active one last."""

    segments: tuple[SegmentFacts, ...]
    first_dirty_offset: int
    last_stable_offset: int


class NotCleanable(enum.Enum):
    """Why a log is not picked."""

    NOTHING_CLEANABLE = "no closed segment below the last stable offset is dirty and old enough"
    BELOW_RATIO = "the cleanable ratio is not above min.cleanable.dirty.ratio"


@dataclass(frozen=True, slots=True)
class CleaningPlan:
    """The range of one round. Bytes of a segment that is partly dirty count on both sides.

    overdue_ms  how long ago max.compaction.lag.ms asked for a round; 0: it does not
    obstacle    None: the log may be picked
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    overdue_ms: int
    obstacle: NotCleanable | None

    @property
    def cleanable_ratio(self) -> float:
        """Cleanable bytes / all bytes below the first uncleanable offset; 0 when there are none."""
        total_bytes = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total_bytes if total_bytes else 0.0

    @property
    def is_eligible(self) -> bool:
        """Whether the log may be picked."""
        return self.obstacle is None


def needs_largest_timestamps(config: LogConfig) -> bool:
    """Whether plan_cleaning asks for ``largest_timestamp_ms``."""
    return config.min_compaction_lag_ms > 0


def needs_first_timestamps(config: LogConfig, now_ms: int) -> bool:
    """Whether plan_cleaning asks for ``first_timestamp_ms``: no timestamp is older otherwise."""
    return config.max_compaction_lag_ms < now_ms


def plan_cleaning(facts: CleaningFacts, config: LogConfig, now_ms: int) -> CleaningPlan:
    """The range of a round at now_ms, and whether it is worth one."""
    closed, active = facts.segments[:-1], facts.segments[-1]
    dirty = facts.first_dirty_offset
    dirty_closed = _from(closed, dirty) if dirty < active.base_offset else ()
    uncleanable = min(facts.last_stable_offset, active.base_offset)
    young = _first_young(dirty_closed, config, now_ms)
    if young is not None:
        uncleanable = min(uncleanable, young)
    end = max(dirty, uncleanable)
    uncleanable = active.base_offset  # where the segment begins that holds the end
    if closed and end < active.base_offset:
        uncleanable = _from(closed, end)[0].base_offset
    clean_bytes = sum(each.size_bytes for each in facts.segments if each.base_offset < dirty)
    cleanable_bytes = 0
    if dirty < uncleanable:
        below = (each for each in _from(facts.segments, dirty) if each.base_offset < uncleanable)
        cleanable_bytes = sum(each.size_bytes for each in below)
    plan = CleaningPlan(
        first_dirty_offset=dirty,
        first_uncleanable_offset=uncleanable,
        clean_bytes=clean_bytes,
        cleanable_bytes=cleanable_bytes,
        overdue_ms=_overdue_ms(dirty_closed, config, now_ms),
        obstacle=NotCleanable.NOTHING_CLEANABLE,
    )
    if not plan.cleanable_bytes:
        return plan
    is_dirty = plan.cleanable_ratio > config.min_cleanable_dirty_ratio
    obstacle = None if is_dirty or plan.overdue_ms > 0 else NotCleanable.BELOW_RATIO
    return replace(plan, obstacle=obstacle)


def _base_offset(segment: SegmentFacts) -> int:
    return segment.base_offset


def _from(segments: tuple[SegmentFacts, ...], offset: int) -> tuple[SegmentFacts, ...]:
    """From the segment that would hold offset on."""
    return segments[max(bisect_right(segments, offset, key=_base_offset) - 1, 0) :]


def _first_young(
    dirty_closed: tuple[SegmentFacts, ...], config: LogConfig, now_ms: int
) -> int | None:
    """Base of the first segment with a record that is younger than min.compaction.lag.ms."""
    if not needs_largest_timestamps(config):
        return None
    for segment in dirty_closed:
        assert segment.largest_timestamp_ms is not None, "a fact that was asked for"
        if segment.largest_timestamp_ms > now_ms - config.min_compaction_lag_ms:
            return segment.base_offset
    return None


def _overdue_ms(dirty_closed: tuple[SegmentFacts, ...], config: LogConfig, now_ms: int) -> int:
    """See CleaningPlan; segments without a positive timestamp do not count."""
    if not needs_first_timestamps(config, now_ms):
        return 0
    stamps = []
    for segment in dirty_closed:
        assert segment.first_timestamp_ms is not None, "a fact that was asked for"
        if segment.first_timestamp_ms > 0:
            stamps.append(segment.first_timestamp_ms)
    if not stamps:
        return 0
    return max(now_ms - config.max_compaction_lag_ms - min(stamps), 0)


@dataclass(frozen=True, slots=True)
class SegmentSizes:
    """What a segment weighs in a group: bytes of the ``.log`` and of its index entries."""

    base_offset: int
    log_bytes: int
    offset_index_bytes: int
    time_index_bytes: int


def group_segments(
    sizes: Sequence[SegmentSizes],
    segment_bytes: int,
    index_bytes: int,
    first_uncleanable_offset: int,
) -> list[range]:
    """Which segments become one, as ranges of places in ``sizes``; every one is in one range.

    In each group the sizes as they are now stay within segment.bytes and segment.index.bytes, and
    the offsets within 2^31 - 1 of the group's base, where the next segment's base (after the last
    one: first_uncleanable_offset) stands for a segment's last offset. A single segment is always a
    group; an empty one joins whatever its offset, so that none is left every 2^31 records.
    """
    bases = [each.base_offset for each in sizes]
    ends = [*bases[1:], first_uncleanable_offset]
    groups: list[range] = []
    start = 0
    while start < len(sizes):
        first = sizes[start]
        log, offsets, times = first.log_bytes, first.offset_index_bytes, first.time_index_bytes
        end = start + 1
        while end < len(sizes):
            following = sizes[end]
            log += following.log_bytes
            offsets += following.offset_index_bytes
            times += following.time_index_bytes
            fits = log <= segment_bytes and offsets <= index_bytes and times <= index_bytes
            reach = ends[end] - 1 - first.base_offset
            if not fits or (following.log_bytes and reach > MAX_RELATIVE_OFFSET):
                break
            end += 1
        groups.append(range(start, end))
        start = end
    return groups


@dataclass(frozen=True, slots=True)
class LogToClean(CleaningPlan):
    """See the module. ``checkpoint_fault``: the checkpoint has to be set to first_dirty_offset."""

    log: UnifiedLog
    checkpoint_fault: CheckpointFault | None = None

    @classmethod
    def of(cls, log: UnifiedLog, checkpoint: int | None, now_ms: int) -> LogToClean:
        """The round that cleaning ``log`` at now_ms would be; checkpoint None: never cleaned.

        Raises OSError, CorruptIndex when a time index cannot be read or rebuilt, and
        UnsupportedMessageFormat when a segment is to be converted first.
        """
        config, segments = log.config, log.segments.values
        for segment in segments:
            if segment.holds_messages:
                raise log.local.unsupported(segment)
        dirty = first_dirty(checkpoint, log.log_start_offset, log.log_end_offset)
        first_asked = log.segments.floor(dirty.offset) or segments[0]
        facts = CleaningFacts(
            segments=tuple(
                _facts_of(each, config, now_ms)
                if each.base_offset >= first_asked.base_offset and each is not segments[-1]
                else SegmentFacts(each.base_offset, each.size_bytes)
                for each in segments
            ),
            first_dirty_offset=dirty.offset,
            last_stable_offset=log.last_stable_offset,
        )
        plan = plan_cleaning(facts, config, now_ms)
        return cls(**asdict(plan), log=log, checkpoint_fault=dirty.fault)

    @property
    def is_eligible(self) -> bool:
        """Whether it may be picked; not while it is disputed where the log starts."""
        return self.obstacle is None and self.log.disputed_start_offset is None


def _facts_of(segment: LogSegment, config: LogConfig, now_ms: int) -> SegmentFacts:
    """Facts of a dirty segment; reads only what the plan asks for."""
    largest = segment.largest_timestamp_ms() if needs_largest_timestamps(config) else None
    asks_first = needs_first_timestamps(config, now_ms)
    return SegmentFacts(
        segment.base_offset,
        segment.size_bytes,
        largest_timestamp_ms=largest,
        first_timestamp_ms=segment.first_batch_timestamp_ms() if asks_first else None,
    )


def source_groups(to_clean: LogToClean, end_offset: int) -> list[list[LogSegment]]:
    """The sources of each cleaned segment: all that begin below end_offset.

    Raises CorruptIndex as ``floor_entry``.
    """
    log = to_clean.log
    sources = log.segments.values_between(0, end_offset)
    groups = group_segments(
        [_sizes_of(each) for each in sources],
        log.config.max_segment_bytes,
        log.config.segment_index_bytes,
        to_clean.first_uncleanable_offset,
    )
    return [[sources[place] for place in group] for group in groups]


def aborted_from(log: UnifiedLog, segment: LogSegment, end_offset: int) -> list[AbortedTransaction]:
    """Aborted transactions of the log that begin below end_offset, from segment on.

    As in Kafka, one that ended in the segment before the place where reading begins is among
    them, and one that ended below the log start is not.
    """
    found = log.local.collect_aborted(segment.base_offset, end_offset)
    return [each for each in found if each.last_offset >= log.log_start_offset]


def _sizes_of(segment: LogSegment) -> SegmentSizes:
    """What it weighs in a group. Raises CorruptIndex as ``floor_entry``."""
    floor_entry(
        segment, segment.base_offset
    )  # these look-ups find entries of a damaged index again
    floor_timestamp(segment, 0)
    return SegmentSizes(
        segment.base_offset,
        segment.size_bytes,
        segment.offset_index.size_in_bytes(),
        segment.time_index.size_in_bytes(),
    )
