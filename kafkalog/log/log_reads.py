"""The read side of UnifiedLog: fetch and list-offsets, on any thread, without a lock.

Works on what the writer published. A look during which a deletion or a clean took a segment away is
done again unless what it found can lack nothing (``_undisturbed``): then it finds that the log
starts higher now, or the new segments.
Source: Kafka's UnifiedLog.read and fetchOffsetByTimestamp, log-lifecycle 7 and 8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from kafkalog.errors import CorruptBatch, InvalidRequest, OffsetAboveLogEnd, OffsetBelowLogStart
from kafkalog.format.integers import INT64_MAX
from kafkalog.log.lost_ranges import lost_offsets, refuse_missing, require_legal_gap
from kafkalog.log.values import NO_TIMESTAMP, FetchDataInfo, Isolation, TimestampOffset

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalog.log.log_segment import LogSegment
    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.log.values import AbortedTransaction

Found = TypeVar("Found")

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

    def look() -> FetchDataInfo:
        limit = limit_of(log, isolation)
        check_bounds(log, offset)
        if offset >= limit:
            return _answer(log, memoryview(b""), offset, offset)
        found = log.local.read(
            offset, max_bytes, max_offset=limit, min_one_batch=min_one_batch, may_block=may_block
        )
        if found is None or found.base_offset > offset:
            end_offset = limit if found is None else found.base_offset
            require_legal_gap(log, offset, end_offset, may_block=may_block)
        if found is None:
            return _answer(log, memoryview(b""), offset, offset)
        aborted: Sequence[AbortedTransaction] = ()
        if isolation is Isolation.LAST_STABLE and found.data:
            aborted = log.local.collect_aborted(offset, found.next_offset, may_block=may_block)
        return _answer(log, found.data, found.base_offset, found.next_offset, aborted)

    def is_whole(info: FetchDataInfo) -> bool:
        # What begins behind the offset may do so because what lay between was taken; and aborted
        # transactions are looked for in the segments that are there then.
        is_committed = isolation is Isolation.LAST_STABLE
        return len(info.data) > 0 and info.base_offset <= offset and not is_committed

    return _undisturbed(log, look, is_whole)


def _undisturbed(
    log: UnifiedLog, look: Callable[[], Found], is_whole: Callable[[Found], bool]
) -> Found:
    """What ``look`` finds; it looks again where a segment was taken away while it did.

    is_whole    what was found lacks nothing, whichever segments went
    Ends: only deletions and cleans take segments. Errors as of ``look``.
    """
    while True:
        # Before the bounds: a deletion moves the log start before it takes a segment.
        segments = log.segments.values
        try:
            found = look()
        except FileNotFoundError as error:
            if not _is_one_taken(log, segments):
                _refuse_when_gone(log)
                refuse_missing(log, error)
                raise
        except CorruptBatch:  # bounds of a segment from before a swap and from after it
            if not _is_one_taken(log, segments):
                raise
        else:
            if not _is_one_taken(log, segments) or is_whole(found):
                return found
        if not log.segments.values:
            _refuse_when_gone(log)


def _is_one_taken(log: UnifiedLog, segments: tuple[LogSegment, ...]) -> bool:
    """Whether one of the segments of a moment ago is there no more; a roll only adds one."""
    now = log.segments.values
    return now is not segments and now[: len(segments)] != segments


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

    def look() -> TimestampOffset | None:
        if timestamp_ms == MAX_TIMESTAMP:
            return _newest(log, may_block=may_block)
        return _first_at_or_after(log, timestamp_ms, may_block=may_block)

    # Never whole: the index of a segment that was taken has no entries, and a later one answers.
    found = _undisturbed(log, look, lambda _: False)
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
    """First live record at or after timestamp_ms; LostOffsets when it may have been a lost one.

    Differs from Kafka, which looks into one segment only and finds nothing when the records there
    lie below the log start.
    """
    for segment in log.segments.values_between(log.log_start_offset, INT64_MAX):
        if segment.largest_timestamp_ms(may_block=may_block) >= timestamp_ms:
            found = segment.find_offset_by_timestamp(
                timestamp_ms, log.log_start_offset, may_block=may_block
            )
            if found is not None:
                if log.lost_ranges:
                    _require_no_loss_before(log, found.offset, may_block=may_block)
                return found
    return None


def _require_no_loss_before(log: UnifiedLog, offset: int, *, may_block: bool) -> None:
    """LostOffsets when a lost range lies right in front of the batch that holds offset.

    The records there may have been the first of that time. With a batch in between, which was too
    early, they were too.
    """
    for lost in log.lost_ranges:
        first_offset = lost.last_offset + 1
        if log.log_start_offset < first_offset <= offset:
            following = log.local.read(first_offset, 1, may_block=may_block)
            if following is None or following.next_offset > offset:
                raise lost_offsets(log, lost)
