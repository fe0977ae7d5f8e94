"""The read side of UnifiedLog: fetch and list-offsets, on any thread, without a lock.

Works on what the writer published: the segment tuple and the bounds. Where another tuple is there
when a read is done, or a file is gone, and the answer could lack something for it, it looks again:
whom a deletion overtook finds that the log starts higher, whom a clean overtook the new segments.
Source: Kafka's UnifiedLog.read and fetchOffsetByTimestamp, log-lifecycle 7 and 8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.errors import InvalidRequest, OffsetAboveLogEnd, OffsetBelowLogStart
from kafkalog.format.integers import INT64_MAX
from kafkalog.log.values import NO_TIMESTAMP, FetchDataInfo, Isolation, TimestampOffset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.log.segment_read import SegmentRead
    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.log.values import AbortedTransaction

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3


def limit_of(log: UnifiedLog, isolation: Isolation) -> int:
    """First offset that a reader of this isolation may not see."""
    if isolation is Isolation.LOG_END:
        return log.log_end_offset
    if isolation is Isolation.HIGH_WATERMARK:
        return log.high_watermark
    return log.last_stable_offset


def read(
    log: UnifiedLog,
    offset: int,
    max_bytes: int,
    isolation: Isolation,
    *,
    min_one_batch: bool,
    may_block: bool,
) -> FetchDataInfo:
    """See UnifiedLog.read."""
    assert max_bytes >= 0
    while True:
        # Before the bounds: a deletion moves the log start before it takes a segment away.
        segments = log.segments.values
        limit = limit_of(log, isolation)
        check_bounds(log, offset)
        if offset >= limit:
            return _answer(log, memoryview(b""), offset, offset)
        aborted: Sequence[AbortedTransaction] = ()
        try:
            found = log.local.read(
                offset,
                max_bytes,
                max_offset=limit,
                min_one_batch=min_one_batch,
                may_block=may_block,
            )
            if isolation is Isolation.LAST_STABLE and found is not None and found.data:
                aborted = log.local.collect_aborted(offset, found.next_offset, may_block=may_block)
        except FileNotFoundError:
            _refuse_when_gone(log)
            if log.segments.values is segments:
                raise
            continue  # a deletion or a clean was faster
        if log.segments.values is not segments and not _is_whole(found, offset, isolation):
            if not log.segments.values:
                _refuse_when_gone(log)
            continue
        if found is None:
            return _answer(log, memoryview(b""), offset, offset)
        return _answer(log, found.data, found.base_offset, found.next_offset, aborted)


def _is_whole(found: SegmentRead | None, offset: int, isolation: Isolation) -> bool:
    """Whether a read misses nothing although segments came or went while it ran.

    What begins behind the offset may do so because what lay between was taken away; and the
    aborted transactions are looked for in the segments that are there then.
    """
    return (
        found is not None
        and found.base_offset <= offset
        and (isolation is not Isolation.LAST_STABLE or not found.data)
    )


def _refuse_when_gone(log: UnifiedLog) -> None:
    """The whole log went while it was read: its topic was deleted, or its partition moved."""
    if log.refusal is not None:
        raise log.refusal()


def check_bounds(log: UnifiedLog, offset: int) -> None:
    """OffsetBelowLogStart or OffsetAboveLogEnd where nobody can read from this offset on."""
    start, end = log.log_start_offset, log.log_end_offset
    if start <= offset <= end:
        return
    error = OffsetBelowLogStart if offset < start else OffsetAboveLogEnd
    raise error(
        f"Received request for offset {offset} for partition {log.topic_partition}, but we only "
        f"have log segments from offset {start} up to {end}.",
        log_start_offset=start,
        log_end_offset=end,
    )


def _answer(
    log: UnifiedLog,
    data: memoryview,
    base_offset: int,
    next_offset: int,
    aborted: Sequence[AbortedTransaction] = (),
) -> FetchDataInfo:
    """The answer with the watermarks of now."""
    return FetchDataInfo(
        data=data,
        base_offset=base_offset,
        next_offset=next_offset,
        log_start_offset=log.log_start_offset,
        high_watermark=log.high_watermark,
        log_end_offset=log.log_end_offset,
        last_stable_offset=log.last_stable_offset,
        aborted=aborted,
    )


def offset_for_timestamp(
    log: UnifiedLog, timestamp_ms: int, isolation: Isolation, *, may_block: bool
) -> TimestampOffset | None:
    """See UnifiedLog.offset_for_timestamp."""
    if timestamp_ms < MAX_TIMESTAMP:
        raise InvalidRequest(f"{timestamp_ms} names no offset: -1 latest, -2 earliest, -3 newest")
    limit = limit_of(log, isolation)
    if timestamp_ms == LATEST_TIMESTAMP:
        return TimestampOffset(NO_TIMESTAMP, limit)
    if timestamp_ms == EARLIEST_TIMESTAMP:
        return TimestampOffset(NO_TIMESTAMP, log.log_start_offset)
    while True:
        segments = log.segments.values
        try:
            if timestamp_ms == MAX_TIMESTAMP:
                found = _newest(log, may_block=may_block)
            else:
                found = _first_at_or_after(log, timestamp_ms, may_block=may_block)
        except FileNotFoundError:
            _refuse_when_gone(log)
            if log.segments.values is segments:
                raise
            continue  # a deletion or a clean was faster
        return found if found is not None and found.offset < limit else None


def _newest(log: UnifiedLog, *, may_block: bool) -> TimestampOffset | None:
    """First record with the largest timestamp of the log."""
    segments = [segment for segment in log.segments if segment.size_bytes]
    if not segments:
        return None
    newest = max(
        segments,
        key=lambda segment: segment.max_timestamp_so_far(may_block=may_block).timestamp_ms,
    )  # max takes the first one of equals, as Kafka does
    return newest.find_max_timestamp_record(may_block=may_block)


def _first_at_or_after(
    log: UnifiedLog, timestamp_ms: int, *, may_block: bool
) -> TimestampOffset | None:
    """First live record at or after timestamp_ms.

    Differs from Kafka, which looks into one segment only and finds nothing when the records there
    lie below the log start.
    """
    for segment in log.segments.values_between(log.log_start_offset, INT64_MAX):
        if segment.largest_timestamp_ms(may_block=may_block) >= timestamp_ms:
            found = segment.find_offset_by_timestamp(
                timestamp_ms, log.log_start_offset, may_block=may_block
            )
            if found is not None:
                return found
    return None
