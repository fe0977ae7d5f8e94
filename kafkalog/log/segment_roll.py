"""When a segment has to roll, and closing it so that a failed close is undone.

``SegmentRoom`` is the rule of log-lifecycle 3 (Kafka's LogSegment.shouldRoll), told as what the
next set may measure, so that many sets can be held against one look.

A full disk or a shortage of descriptors must not end a log (reliability 2.2): whatever call of a
roll fails, the old segment is the active one again and the same roll can be tried later. Writer
thread. A crash in between is an unclean start, which rebuilds the indexes of unflushed segments.
Differs from Kafka: there any failure of a roll takes the log directory offline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafkalog.errors import CorruptIndex
from kafkalog.format.integers import INT64_MAX, INT64_MIN
from kafkalog.log.values import MAX_RELATIVE_OFFSET

if TYPE_CHECKING:
    from kafkalog.log.log_segment import LogSegment


_ANY_TIMESTAMP_MS = INT64_MAX
_NO_TIMESTAMP_MS = INT64_MIN


class SegmentRoom(NamedTuple):
    """The largest set that needs no new segment."""

    size_bytes: int
    timestamp_ms: int  # its maximum
    first_offset: int  # offsets from here
    last_offset: int  # up to here fit the indexes
    index_entries: int  # left in the fuller index; each batch may take one

    def holds(self, size_bytes: int, max_timestamp_ms: int, last_offset: int) -> bool:
        """Whether such a set can be appended without a roll."""
        return (
            size_bytes <= self.size_bytes
            and max_timestamp_ms <= self.timestamp_ms
            and self.index_entries > 0
            and self.first_offset <= last_offset <= self.last_offset
        )


def room_in(segment: LogSegment, max_bytes: int, max_age_ms: int, age_ms: int) -> SegmentRoom:
    """Room in the active segment; both ages in wall time, the latter since it was opened.

    May read the first batch: event time counts from its timestamp, wall time when it has none. An
    empty segment is never too old.
    """
    timestamp_ms = _ANY_TIMESTAMP_MS
    first_ms = segment.first_batch_timestamp_ms()
    if segment.size_bytes and first_ms >= 0:
        timestamp_ms = first_ms + max_age_ms
    elif segment.size_bytes and age_ms > max_age_ms:
        timestamp_ms = _NO_TIMESTAMP_MS
    return SegmentRoom(
        size_bytes=max_bytes - segment.size_bytes,
        timestamp_ms=timestamp_ms,
        first_offset=segment.base_offset,
        last_offset=segment.base_offset + MAX_RELATIVE_OFFSET,
        index_entries=min(segment.offset_index.free_slots, segment.time_index.free_slots),
    )


def seal_or_undo(segment: LogSegment) -> None:
    """Seal the active segment; on OSError it can be appended to again, or ``is_broken`` is set."""
    times = segment.time_index.entry_count()
    try:
        segment.seal()
    except OSError as cause:
        try:
            segment.offset_index.resize_to_max()
            segment.time_index.resize_to_max()
            segment.time_index.truncate_to_count(times)  # without the forced last entry
        except (OSError, CorruptIndex) as error:
            segment.is_broken = True
            cause.add_note(f"opening {segment.log_file.path} again failed: {error}")
        raise


def restore_names(segment: LogSegment, cause: OSError) -> None:
    """Undo a renaming to ``.deleted`` that was cut short; ``is_broken`` when that fails too."""
    try:
        segment.change_suffix("")
    except OSError as error:
        segment.is_broken = True
        cause.add_note(f"renaming {segment.log_file.path} back failed: {error}")
