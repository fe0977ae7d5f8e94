"""Kafka's sentences about logs, word for word: what searches Kafka's logs finds them here too.

Pure; how Kafka names a segment: ``LogSegment.description``. Source: Kafka 4.1 ``UnifiedLog``,
``LocalLog``, ``LogSegment``, ``LogManager``, ``Cleaner``; ``tests/oracle`` compares with the
classes themselves. Differs from Kafka: what names more than 100 segments does so in several lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.format.disk.properties import java_date

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


def files_deleted(segments: Iterable[str]) -> str:
    """Before the files of segments are deleted."""
    return f"Deleting segment files {', '.join(segments)}"


def empty_segment_rolled(
    base_offset: int, expected_offset: int, end_offset: int, *, timed: int, indexed: int
) -> str:
    """Before an empty active segment is replaced, with the entries of its two indexes."""
    return (
        f"Trying to roll a new log segment with start offset {base_offset}=max(provided offset = "
        f"{expected_offset}, LEO = {end_offset}) while it already exists and is active with size "
        f"0. Size of time index: {timed}, size of offset index: {indexed}."
    )


def empty_segment_recreated(base_offset: int, reason: str) -> str:
    """After that."""
    return f"Empty active segment at {base_offset} was deleted and recreated due to {reason}"


# ---- retention


def cleanup_begins() -> str:
    """A retention check begins."""
    return "Beginning log cleanup..."


def cleanup_ends(count: int, seconds: float) -> str:
    """A retention check ended; Kafka calls the deleted segments files."""
    return f"Log cleanup completed. {count} files deleted in {seconds:.3f} seconds"


def collecting(log_name: str) -> str:
    """Before the check looks at a log."""
    return f"Garbage collecting '{log_name}'"


# ---- the cleaner


def cleaning_begins(log_name: str) -> str:
    """A clean begins."""
    return f"Beginning cleaning of log {log_name}"


def map_begins(log_name: str, segment_count: int, start: int, end: int) -> str:
    """Before the first pass."""
    return (
        f"Building offset map for log {log_name} for {segment_count} segments in offset range "
        f"[{start}, {end})."
    )


def map_is_full(mapped_count: int, base_offset: int) -> str:
    """The first pass ended early."""
    return (
        f"Offset map is full, {mapped_count} segments fully mapped, segment with base offset "
        f"{base_offset} is partially mapped"
    )


def map_complete(log_name: str) -> str:
    """After the first pass."""
    return f"Offset map for log {log_name} complete."


def copy_begins(log_name: str, cleanable_horizon_ms: int, delete_horizon_ms: int) -> str:
    """Before the second pass."""
    return (
        f"Cleaning log {log_name} (cleaning prior to {java_date(cleanable_horizon_ms)}, discarding "
        f"tombstones prior to upper bound deletion horizon {java_date(delete_horizon_ms)})..."
    )


def segment_cleaned(
    source: str, log_name: str, target_base: int, *, delete_horizon_ms: int, modified_ms: int
) -> str:
    """Before a segment, which was modified then, is cleaned into the one of target_base."""
    deletes = "retaining" if modified_ms > delete_horizon_ms else "discarding"
    return (
        f"Cleaning {source} in log {log_name} into {target_base} with an upper bound deletion "
        f"horizon {delete_horizon_ms} computed from the segment last modified time of "
        f"{modified_ms},{deletes} deletes."
    )


def swapping(cleaned: str, sources: Iterable[str], log: str) -> str:
    """Before a cleaned segment takes the place of its sources."""
    return (
        f"Swapping in cleaned segment {cleaned} for segment(s) [{', '.join(sources)}] in log {log}"
    )
