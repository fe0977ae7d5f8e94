"""Where an offset lies in a log: its segment, the index entries around it, the byte of its batch.

Owns nothing. For threads that may block: reads index entries and up to an index interval of a
segment. A segment that compaction or deletion takes meanwhile is UnknownSegment.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.errors import UnknownSegment
from kafkalog.format.integers import INT64_MAX
from kafkalog.log.log_reads import check_bounds
from kafkalog.log.segment_read import position_of

if TYPE_CHECKING:
    from kafkalog.log.log_segment import LogSegment
    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.log.values import OffsetPosition, TimestampOffset


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
    check_bounds(log, offset)
    segments = log.segments.values
    number = max(bisect_right(segments, offset, key=lambda each: each.base_offset) - 1, 0)
    segment, is_active = segments[number], number == len(segments) - 1
    end = log.log_end_offset if is_active else segments[number + 1].base_offset
    try:
        return _place(log, segment, offset, end, is_active=is_active)
    except FileNotFoundError:
        if log.segments.get(segment.base_offset) is segment:
            raise
        raise UnknownSegment(
            "The segment of the offset went while it was looked at; ask again.",
            base_offset=segment.base_offset,
        ) from None


def _place(
    log: UnifiedLog, segment: LogSegment, offset: int, end: int, *, is_active: bool
) -> OffsetPlace:
    segment.floor_timestamp(INT64_MAX)  # finds the entries of a damaged index again
    return OffsetPlace(
        base_offset=segment.base_offset,
        next_offset=end,
        is_active=is_active,
        segment_bytes=segment.size_bytes,
        leader_epoch=log.epochs.epoch_for(offset),
        index_entry=segment.floor_entry(offset),
        time_entry=segment.time_index.floor_offset(offset),
        position=position_of(segment, offset),
        largest_timestamp_ms=segment.largest_timestamp_ms(),
    )
