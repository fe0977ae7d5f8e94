"""Lost ranges of a log: offsets that were acknowledged and that no segment holds any more.

A gap between two segments is a loss when something proves that records were there: the log is
gapless since its birth here, the offset index of the segment before leads behind its last byte, a
``.log`` is gone under a segment, or the load found what the missing segment left behind
(``lost_offsets``). All other gaps are legal: compaction leaves them. A lost range is refused
(LostOffsets) until an operator accepts it by name; then it is a gap like any other.

Asked where a read found nothing at the offset that it began with, never on the way of a fetch that
begins at a batch. Any thread; what is found is published through ``UnifiedLog.note_lost``.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from kafkalog.errors import LostOffsets
from kafkalog.format.disk.file_names import LOG_SUFFIX, segment_file_name
from kafkalog.format.integers import INT64_MAX
from kafkalog.format.offset_ranges import LostRange
from kafkalog.log.recovery.corruption_policy import has_whole_tail
from kafkalog.log.segment.index_repair import sound_floor
from kafkalog.log.values import WouldBlock

if TYPE_CHECKING:
    from kafkalog.log.segment.log_segment import LogSegment
    from kafkalog.log.unified_log import UnifiedLog


def require_legal_gap(log: UnifiedLog, offset: int, end_offset: int, *, may_block: bool) -> None:
    """LostOffsets when a range that overlaps [offset, end_offset), where no record is, is lost.

    WouldBlock when that has to be read and may_block is False.
    """
    _refuse_known(log, offset, end_offset)
    segments = log.segments.values_between(offset, min(end_offset, INT64_MAX - 1) + 1)
    for segment, following in pairwise(segments):
        lost = _lost_behind(log, segment, following, may_block=may_block)
        if lost is not None:
            log.note_lost(*lost)
    _refuse_known(log, offset, end_offset)


def _refuse_known(log: UnifiedLog, offset: int, end_offset: int) -> None:
    for lost in log.lost_ranges:
        if lost.last_offset >= offset and lost.first_offset < end_offset:
            raise lost_offsets(log, lost)


def lost_offsets(log: UnifiedLog, lost: LostRange) -> LostOffsets:
    """The refusal of a lost range."""
    at, (first, last) = log.topic_partition, lost
    return LostOffsets(
        f"Offsets {first} to {last} of partition {at} are lost: restore the file and restart, or "
        f"accept the loss (kafkalog segments accept-loss {at.topic} {at.partition} {first} {last})",
        file=f"{log.directory}/{segment_file_name(first, LOG_SUFFIX)}",
        position=0,
        topic=at.topic,
        partition=at.partition,
        first_offset=first,
        last_offset=last,
    )


def _lost_behind(
    log: UnifiedLog, segment: LogSegment, following: LogSegment, *, may_block: bool
) -> LostRange | None:
    """What is lost between the last batch of a closed segment and the next one's base."""
    known_offset = segment.base_offset  # a batch at or behind it was there
    if not log.proof.is_gapless:
        cut_offset = _indexed_behind_end(segment, may_block=may_block)
        if cut_offset is None:
            return None
        known_offset = cut_offset
    if not may_block:
        raise WouldBlock(segment.log_file.path)
    first_offset = segment.base_offset
    if segment.size_bytes:
        if not has_whole_tail(segment, sound_floor(segment, INT64_MAX).position):
            return None  # bytes are there: what they were is not lost, but damaged
        first_offset = segment.read_next_offset()
        if not log.proof.is_gapless and known_offset < first_offset:
            return None  # the index errs
    last_offset = following.base_offset - 1
    return LostRange(first_offset, last_offset) if first_offset <= last_offset else None


def _indexed_behind_end(segment: LogSegment, *, may_block: bool) -> int | None:
    """Offset of a batch that an index of a closed segment has behind its last byte."""
    if segment.offset_index.entry_count(may_block=may_block):
        last = segment.offset_index.last_entry(may_block=may_block)
        return last.offset if last.position >= segment.size_bytes else None
    if not segment.size_bytes and segment.time_index.entry_count(may_block=may_block):
        return segment.time_index.last_entry(may_block=may_block).offset
    return None


def is_emptied(segment: LogSegment) -> bool:
    """Whether a closed segment without a byte once had batches, as its indexes know."""
    return not segment.size_bytes and _indexed_behind_end(segment, may_block=True) is not None


def refuse_missing(log: UnifiedLog, error: FileNotFoundError) -> None:
    """LostOffsets when the file that was not found is the ``.log`` of a segment.

    The caller knows that no deletion overtook the read. Returns for other files, and when the whole
    directory is gone, which is a failed disk rather than a loss.
    """
    name = str(error.filename).rpartition("/")[2]
    segments = log.segments.values
    for number, segment in enumerate(segments):
        if segment.log_file.name == name and _is_missing(log, segment):
            is_active = number == len(segments) - 1
            end = log.log_end_offset if is_active else segments[number + 1].base_offset
            log.note_lost(segment.base_offset, end - 1)
            _refuse_known(log, segment.base_offset, end)


def _is_missing(log: UnifiedLog, segment: LogSegment) -> bool:
    exists = log.environment.filesystem.exists
    return not segment.log_file.exists() and exists(log.directory)


def look_for_lost(log: UnifiedLog) -> tuple[LostRange, ...]:
    """Look at every closed segment: the lost ranges that nobody accepted, now published.

    Blocks for a small read a segment. CorruptIndex, OSError.
    """
    while True:
        segments = log.segments.values
        found: list[LostRange] = []
        for segment, following in pairwise(segments):
            lost: LostRange | None = LostRange(segment.base_offset, following.base_offset - 1)
            if not _is_missing(log, segment):
                try:
                    lost = _lost_behind(log, segment, following, may_block=True)
                except FileNotFoundError:
                    continue  # deleted meanwhile: see below
            if lost is not None:
                found.append(lost)
        if log.segments.values[: len(segments)] == segments:
            break  # no deletion and no clean took one meanwhile
    for lost in found:
        log.note_lost(*lost)
    return log.lost_ranges


def refuse_lost(log: UnifiedLog) -> None:
    """LostOffsets for a log with lost ranges that nobody accepted; blocks, see look_for_lost."""
    for lost in look_for_lost(log):
        raise lost_offsets(log, lost)
