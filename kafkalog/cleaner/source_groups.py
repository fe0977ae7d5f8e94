"""The sources of a round as they lie in a log: their groups, their ends, what was aborted in them.

Reads indexes and, for the end of a segment, its tail; changes nothing. The thread that cleans.
Source: Kafka's Cleaner.groupSegmentsBySize and cleanSegments (4.1), log-lifecycle 12.5 and 12.6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.cleaner.cleaning_plan import SegmentSizes, group_segments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.cleaner.log_to_clean import LogToClean
    from kafkalog.log.log_segment import LogSegment
    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.log.values import AbortedTransaction


def source_groups(to_clean: LogToClean, end_offset: int) -> list[list[LogSegment]]:
    """The sources of each cleaned segment: all that begin below end_offset.

    Raises CorruptIndex as LogSegment.floor_entry.
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


def source_ends(sources: Sequence[LogSegment]) -> list[int]:
    """Up to which offset aborted transactions are looked for in each source of a group."""
    return [*(each.base_offset for each in sources[1:]), sources[-1].read_next_offset()]


def aborted_from(log: UnifiedLog, segment: LogSegment, end_offset: int) -> list[AbortedTransaction]:
    """Aborted transactions of the log that begin below end_offset, from segment on.

    As in Kafka, one that ended in the segment before the place where reading begins is among
    them, and one that ended below the log start is not.
    """
    found = log.local.collect_aborted(segment.base_offset, end_offset)
    return [each for each in found if each.last_offset >= log.log_start_offset]


def _sizes_of(segment: LogSegment) -> SegmentSizes:
    """What it weighs in a group. Raises CorruptIndex as LogSegment.floor_entry."""
    segment.floor_entry(segment.base_offset)  # these look-ups find entries of a damaged index again
    segment.floor_timestamp(0)
    return SegmentSizes(
        segment.base_offset,
        segment.size_bytes,
        segment.offset_index.size_in_bytes(),
        segment.time_index.size_in_bytes(),
    )
