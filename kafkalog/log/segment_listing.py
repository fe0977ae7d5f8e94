"""What an operator sees of each segment of one log: bounds, sizes, its last moment, index entries.

Owns nothing. For threads that may block: the last moment of a segment that was never asked is read,
once, and index entries are counted where the files are. A segment that deletion overtakes meanwhile
is listed as it was.
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
    from collections.abc import Callable, Sequence

    from kafkalog.log.log_segment import LogSegment
    from kafkalog.log.retention_plan import Hold, LogFacts, SegmentFacts
    from kafkalog.log.unified_log import UnifiedLog


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
    segments, published = retention_pass.look(log, hold)
    facts = retention_pass.settled(published)
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
            _count(each.segment.offset_index, each.segment.floor_entry),
            _count(each.segment.time_index, each.segment.floor_timestamp),
        )
        for each in listed
    ]


def _count(index: OffsetIndex | TimeIndex, look_up: Callable[[int], object]) -> int:
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
        look_up(INT64_MAX)
        return index.entry_count()
