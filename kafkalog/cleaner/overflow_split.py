"""Splitting a segment of a running log whose offsets do not fit it (KAFKA-6264).

Old cleaners could leave such a segment; the loader splits it when it meets one, a round of the
cleaner too. Its batches are copied as they are into segments that begin where the range ends, each
with the aborted transactions that end in it, and these take its place whole or not at all. The
thread that cleans; blocks. Source: Kafka's LocalLog.splitOverflowedSegment, which does not copy the
transaction index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.cleaner.swapping import swap_in
from kafkalog.errors import CorruptBatch
from kafkalog.format.integers import INT64_MAX
from kafkalog.log.cleaned_segment import CleanedSegment
from kafkalog.log.segment_chunks import scan_chunks
from kafkalog.log.segment_split import plan_split

if TYPE_CHECKING:
    from kafkalog.cleaner.swapping import OnWriter
    from kafkalog.log.log_segment import LogSegment
    from kafkalog.log.segment_split import Piece
    from kafkalog.log.unified_log import UnifiedLog


def split_overflowed_segment(
    log: UnifiedLog, segment: LogSegment, on_writer: OnWriter, *, operations_max: int
) -> bool:
    """Cut it up if it has to be; False when all its offsets fit. Errors as of ``swap_in``.

    CorruptBatch when it is damaged: nothing behind the damage could be taken along.
    """
    pieces = plan_split(segment)
    if [piece.base_offset for piece in pieces] == [segment.base_offset] or not segment.size_bytes:
        return False
    end = pieces[-1].end if pieces else 0
    if end < segment.size_bytes:
        reason = "Corrupt record batch in a segment whose offsets do not fit it"
        raise CorruptBatch(reason, file=segment.log_file.path, position=end)
    made: list[CleanedSegment] = []
    try:
        ends = [*(piece.base_offset for piece in pieces[1:]), INT64_MAX]
        for piece, end_offset in zip(pieces, ends, strict=True):
            target = CleanedSegment(
                log.environment, log.local.directory, piece.base_offset, log.config
            )
            made.append(target)
            _copy(segment, piece, end_offset, target)
        new = [each.finish(segment.last_modified_ms) for each in made]
        swap_in(log, new, (segment,), on_writer, operations_max=operations_max)
    except BaseException:
        for each in made:
            each.delete()
        raise
    return True


def _copy(segment: LogSegment, piece: Piece, end_offset: int, target: CleanedSegment) -> None:
    """The batches of a piece as they are, and the transactions aborted below end_offset."""
    for chunk in scan_chunks(segment, piece.start, piece.end, check_crc=False):
        target.append(chunk.data[: chunk.rows.consumed_bytes], chunk.rows)
    target.add_aborted(
        each
        for each in segment.transaction_index.entries()
        if piece.base_offset <= each.last_offset < end_offset
    )
