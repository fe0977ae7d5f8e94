"""What an operator sees of the segments of one log, and where an offset lies in it.

Bounds, sizes, last timestamp and index entries of each segment; of an offset its segment, the index
entries around it and the byte of its batch. Owns nothing. For threads that may block: a timestamp
that is not known yet is read once, index entries are counted in the files, and an offset costs up
to an index interval of a segment. A segment that is deleted meanwhile is listed as it was; asked
for an offset in it, UnknownSegment.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.errors import CorruptIndex, UnknownSegment
from kafkalog.format.integers import INT64_MAX
from kafkalog.log.retention import execute
from kafkalog.log.segment.index_repair import floor_entry, floor_timestamp
from kafkalog.log.segment.indexes import OffsetIndex, TimeIndex
from kafkalog.log.segment.segment_reader import position_of
from kafkalog.log.values import WouldBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalog.log.retention.plan import Hold, LogFacts, SegmentFacts
    from kafkalog.log.segment.log_segment import LogSegment
    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.log.values import OffsetPosition, TimestampOffset


class ListedSegment(NamedTuple):
    """One segment that is served.

    next_offset             where the next segment begins, the log end for the active one
    has_record_timestamp    facts.largest_timestamp_ms is a record's, else the file's mtime
    segment                 what ``count_index_entries`` looks at
    """

    facts: SegmentFacts
    next_offset: int
    is_active: bool
    has_record_timestamp: bool
    segment: LogSegment


class IndexEntries(NamedTuple):
    """How many a segment has; files of the active segment are preallocated larger."""

    offset_index_entries: int
    time_index_entries: int

    @property
    def offset_index_bytes(self) -> int:
        """Of the entries."""
        return self.offset_index_entries * OffsetIndex.entry_bytes

    @property
    def time_index_bytes(self) -> int:
        """Of the entries."""
        return self.time_index_entries * TimeIndex.entry_bytes


def list_segments(
    log: UnifiedLog, hold: Hold | None = None
) -> tuple[LogFacts, list[ListedSegment]]:
    """The log as it is published now and all its segments, oldest first; OSError."""
    segments, published = execute.inspect(log, hold)
    facts = execute.read_all(published)
    following = [each.base_offset for each in segments[1:]]
    next_offsets = [*following, facts.log_end_offset]
    listed = [
        ListedSegment(
            fact,
            next_offset,
            is_active=segment is segments[-1],
            has_record_timestamp=segment.max_timestamp_so_far().timestamp_ms >= 0,
            segment=segment,
        )
        for segment, fact, next_offset in zip(segments, facts.segments, next_offsets, strict=True)
    ]
    return facts, listed


def count_index_entries(listed: Sequence[ListedSegment]) -> list[IndexEntries]:
    """Of each; OSError. Opens two files a segment that is in no cache: for those that are shown."""
    return [
        IndexEntries(
            _count(each.segment, each.segment.offset_index, floor_entry),
            _count(each.segment, each.segment.time_index, floor_timestamp),
        )
        for each in listed
    ]


def _count(
    segment: LogSegment,
    index: OffsetIndex | TimeIndex,
    look_up: Callable[[LogSegment, int], object],
) -> int:
    """Entries; none is read, because those of all segments would drive out the hot ones.

    The entries of a damaged index are found again by a look-up.
    """
    try:
        return index.entry_count(may_block=False)
    except WouldBlock:
        pass
    try:
        return index.count_in_file()
    except CorruptIndex:
        look_up(segment, INT64_MAX)
        return index.entry_count()


class OffsetPlace(NamedTuple):
    """One offset. Moments are ms since 1970.

    next_offset             where the next segment begins, the log end in the last one
    leader_epoch            -1: none is known
    index_entry             of the offset index, the greatest at or below the offset; where it has
                            none the segment's beginning
    time_entry              of the time index, the last one for an offset that is no higher; None:
                            it has none
    position                in the ``.log``: of the batch that holds the offset, or where compaction
                            took it of the next one; None: nothing follows in the segment
    largest_timestamp_ms    of the segment, as time retention sees it
    """

    base_offset: int
    next_offset: int
    is_active: bool
    segment_bytes: int
    leader_epoch: int
    index_entry: OffsetPosition
    time_entry: TimestampOffset | None
    position: int | None
    largest_timestamp_ms: int


def locate(log: UnifiedLog, offset: int) -> OffsetPlace:
    """OffsetBelowLogStart, OffsetAboveLogEnd, UnknownSegment, OSError."""
    log.check_bounds(offset)
    segments = log.segments.values
    number = max(bisect_right(segments, offset, key=lambda each: each.base_offset) - 1, 0)
    segment, is_active = segments[number], number == len(segments) - 1
    end = log.log_end_offset if is_active else segments[number + 1].base_offset
    try:
        floor_timestamp(segment, INT64_MAX)  # finds the entries of a damaged index again
        return OffsetPlace(
            base_offset=segment.base_offset,
            next_offset=end,
            is_active=is_active,
            segment_bytes=segment.size_bytes,
            leader_epoch=log.epochs.epoch_for(offset),
            index_entry=floor_entry(segment, offset),
            time_entry=segment.time_index.floor_offset(offset),
            position=position_of(segment, offset),
            largest_timestamp_ms=segment.largest_timestamp_ms(),
        )
    except FileNotFoundError:
        if log.segments.get(segment.base_offset) is segment:
            raise
        raise UnknownSegment(
            "The segment of the offset went while it was looked at; ask again.",
            base_offset=segment.base_offset,
        ) from None
