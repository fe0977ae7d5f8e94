"""Kafka's sentences about one log, word for word: what searches Kafka's logs finds them here too.

Pure; how Kafka names a segment: ``LogSegment.description``. Source: Kafka 4.1 ``UnifiedLog``,
``LocalLog``, ``LogSegment``; ``tests/oracle`` compares with the classes themselves. Differs from
Kafka: what names more than 100 segments does so in several lines, and ``files_deleted`` leaves out
the timestamps, which would be read for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kafkalog.log.segment.log_segment import LogSegment

_SEGMENTS_A_LINE = 100  # about 10 KB


def groups_of_one_line(segments: Sequence[LogSegment]) -> Iterator[Sequence[LogSegment]]:
    """Groups of at most 100 segments: what one sentence names."""
    for first in range(0, len(segments), _SEGMENTS_A_LINE):
        yield segments[first : first + _SEGMENTS_A_LINE]


def rolled(base_offset: int, duration_ms: int) -> str:
    """After a roll."""
    return f"Rolled new log segment at offset {base_offset} in {duration_ms} ms."


def start_moved(offset: int, reason: str) -> str:
    """After the log start moved."""
    return f"Incremented log start offset to {offset} due to {reason}"


def below_start(segments: Iterable[str], log_start_offset: int) -> str:
    """Before segments go that lie wholly below the log start."""
    texts = ",".join(segments)
    return f"Deleting segments due to log start offset {log_start_offset} breach: {texts}"


def over_size(segment: str, retention_bytes: int, left_bytes: int) -> str:
    """Before a segment goes that the log is too large for."""
    return (
        f"Deleting segment {segment} due to log retention size {retention_bytes} "
        f"breach. Log size after deletion will be {left_bytes}."
    )


def over_time(segment: str, retention_ms: int, *, has_timestamp: bool) -> str:
    """Before a segment goes that is too old."""
    based = (
        "largest record timestamp in the segment"
        if has_timestamp
        else "last modified time of the segment"
    )
    return (
        f"Deleting segment {segment} due to log retention time {retention_ms}ms "
        f"breach based on the {based}"
    )


def files_deleted(segments: Iterable[LogSegment]) -> str:
    """Before the files of segments are deleted."""
    texts = ",".join(
        f"LogSegment(baseOffset={segment.base_offset}, size={segment.size_bytes})"
        for segment in segments
    )
    return f"Deleting segment files {texts}"
