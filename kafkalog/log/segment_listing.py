"""What an operator sees of each segment of one log: bounds, sizes, index entries, its last moment.

Owns nothing. For threads that may block: entries of closed indexes may have to be read. A segment
that deletion overtakes meanwhile is listed as it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafkalog.errors import CorruptIndex
from kafkalog.format.integers import INT64_MAX
from kafkalog.log import retention_pass
from kafkalog.log.offset_index import OffsetIndex
from kafkalog.log.time_index import TimeIndex
from kafkalog.log.would_block import WouldBlock

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.log.log_segment import LogSegment
    from kafkalog.log.retention_plan import Hold, LogFacts, SegmentFacts
    from kafkalog.log.unified_log import UnifiedLog


class ListedSegment(NamedTuple):
    """One segment that is served.

    next_offset             where the next segment begins, the log end for the active one
    has_record_timestamp    facts.largest_timestamp_ms is a record's, else the file's mtime
    *_index_bytes           of the entries; files of the active segment are preallocated larger
    """

    facts: SegmentFacts
    next_offset: int
    is_active: bool
    has_record_timestamp: bool
    offset_index_entries: int
    offset_index_bytes: int
    time_index_entries: int
    time_index_bytes: int


def list_segments(
    log: UnifiedLog, hold: Hold | None = None
) -> tuple[LogFacts, list[ListedSegment]]:
    """The log as it is published now and all its segments, oldest first; OSError."""
    segments, published = retention_pass.look(log, hold)
    facts = retention_pass.settled(published)
    following = [each.base_offset for each in segments[1:]]
    next_offsets = [*following, facts.log_end_offset]
    listed = [
        _listed(segment, fact, next_offset, is_active=segment is segments[-1])
        for segment, fact, next_offset in zip(segments, facts.segments, next_offsets, strict=True)
    ]
    return facts, listed


def _listed(
    segment: LogSegment, facts: SegmentFacts, next_offset: int, *, is_active: bool
) -> ListedSegment:
    offset_entries = _count(segment.offset_index, segment.floor_entry)
    time_entries = _count(segment.time_index, segment.floor_timestamp)
    return ListedSegment(
        facts,
        next_offset,
        is_active,
        has_record_timestamp=segment.max_timestamp_so_far().timestamp_ms >= 0,
        offset_index_entries=offset_entries,
        offset_index_bytes=offset_entries * OffsetIndex.entry_bytes,
        time_index_entries=time_entries,
        time_index_bytes=time_entries * TimeIndex.entry_bytes,
    )


def _count(index: OffsetIndex | TimeIndex, look_up: Callable[[int], object]) -> int:
    """Entries; those read for it are not kept: all segments at once would drive out the hot ones.

    The entries of a damaged index are found again by a look-up.
    """
    try:
        return index.store(may_block=False).count
    except WouldBlock:
        pass
    try:
        return index.read_store().count
    except CorruptIndex:
        look_up(INT64_MAX)
        return index.entry_count()
