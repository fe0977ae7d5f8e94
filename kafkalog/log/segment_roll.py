"""Closing the active segment so that a failed close is undone: the log stays as it was.

A full disk or a shortage of descriptors must not end a log (reliability 2.2): whatever call of a
roll fails, the old segment is the active one again and the same roll can be tried later. Writer
thread. A crash in between is an unclean start, which rebuilds the indexes of unflushed segments.
Differs from Kafka: there any failure of a roll takes the log directory offline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.errors import CorruptIndex

if TYPE_CHECKING:
    from kafkalog.log.log_segment import LogSegment


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
