"""Putting cleaned segments in the place of their sources, and what belongs to that.

A swap that was published and then met a full disk or short descriptors is remembered with its log
(``LocalLog.pending_swap``): it has to end before the next one begins, because old files still have
names that a load would take for true. The thread that cleans; blocks.
Source: Kafka's UnifiedLog.replaceSegments, log-lifecycle 12.8.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from kafkalog.log.segment_swap import SegmentSwap

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalog.log.log_segment import LogSegment
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
    if log.proof.is_gapless:
        on_writer(log.end_gapless)
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
