"""Putting cleaned segments in the place of their sources, and splitting a segment that overflows.

A swap that was published and then met a full disk or a lack of descriptors is remembered with its
log (``LocalLog.pending_swap``). It has to end before the next one begins, because old files still
have names that a load would take for current ones.

Old cleaners could leave a segment whose offsets do not fit it (KAFKA-6264); the loader splits it
when it meets one, and so does a round. Its batches are copied as they are into segments that begin
where the range ends, each with the aborted transactions that end in it, and these take its place
whole or not at all.

The thread that cleans; blocks. Source: Kafka's UnifiedLog.replaceSegments and
LocalLog.splitOverflowedSegment (which does not copy the transaction index), log-lifecycle 12.8.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from kafkalog.errors import CorruptBatch
from kafkalog.format.integers import INT64_MAX
from kafkalog.log.segment.segment_file import scan_chunks
from kafkalog.log.segment.segment_split import plan_split
from kafkalog.log.segment.segment_swap import CleanedSegment, SegmentSwap

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalog.log.segment.log_segment import LogSegment
    from kafkalog.log.segment.segment_split import Piece
    from kafkalog.log.unified_log import UnifiedLog


T = TypeVar("T")


class OnWriter(Protocol):
    """Runs a call on the writer thread of the log's directory; returns or raises what it does.

    It may refuse by LogCleaningAborted instead: a clean that was aborted meanwhile swaps nothing.
    """

    def __call__(self, call: Callable[[], T], /) -> T:
        """See the class."""
        ...


def swap_in(
    log: UnifiedLog,
    new: Sequence[LogSegment],
    old: Sequence[LogSegment],
    on_writer: OnWriter,
    *,
    operations_max: int,
) -> None:
    """The closed ``.cleaned`` segments take the place of old, and snapshots of lost bases go.

    operations_max bounds the renames of one command. An error before the publication leaves the
    log as it was and none of the new files; one after it a swap that ``end_pending_swap`` ends.
    """
    assert log.local.pending_swap is None, "one swap after the other"
    swap = SegmentSwap(log.environment, log.local, new, old, renames_max=operations_max)
    log.local.pending_swap = swap
    try:
        gone = swap.run(on_writer)
    finally:
        if not swap.is_published:
            log.local.pending_swap = None
    _forget(log, gone, on_writer, operations_max)


def end_pending_swap(log: UnifiedLog, on_writer: OnWriter, *, operations_max: int) -> None:
    """What an earlier round could not do of a swap; nothing when there is none."""
    swap = log.local.pending_swap
    if swap is not None:
        _forget(log, swap.complete(on_writer), on_writer, operations_max)


def _forget(
    log: UnifiedLog, gone: Sequence[LogSegment], on_writer: OnWriter, operations_max: int
) -> None:
    """The swap is done: the snapshots of bases that are no more go too."""
    log.local.pending_swap = None
    merged = [each for each in gone if not log.segments.contains(each.base_offset)]
    for start in range(0, len(merged), operations_max):
        some = tuple(merged[start : start + operations_max])
        on_writer(partial(log.delete_snapshots_of, some))


def split_overflowed_segment(
    log: UnifiedLog, segment: LogSegment, on_writer: OnWriter, *, operations_max: int
) -> bool:
    """Cut it up if it has to be; False when all its offsets fit. Errors as of ``swap_in``.

    CorruptBatch when it is damaged: nothing after the damage could be taken along.
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
    for chunk in scan_chunks(segment.log_file, piece.start, piece.end, check_crc=False):
        target.append(chunk.data[: chunk.rows.consumed_bytes], chunk.rows)
    target.add_aborted(
        each
        for each in segment.transaction_index.entries()
        if piece.base_offset <= each.last_offset < end_offset
    )
