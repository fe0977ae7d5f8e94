"""Recovery of a segment: find the last good batch, rebuild the three indexes.

Runs in the loader, before anybody else sees the segment; ``remember_entries`` alone is for any
thread and changes no file. Reads chunks of about 2 MiB; per chunk one kernel call walks and checks
the batches and one more applies the index cadence (log-lifecycle 4), so no Python runs per batch.
A crash in the middle is harmless: there is no clean-shutdown mark, so it runs again.

Source: Kafka's LogSegment.recover and LogLoader. Differs from Kafka: a batch that starts at or
below the last offset before it counts as the first bad one, where Kafka notices it only when it
meets an index entry and then drops the whole segment. Which bad batches are a torn tail and which
are rot is the loader's question: the result says where and why.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog.errors import CorruptIndex
from kafkalog.format.batch_scan import BatchColumn, BatchRows, ScanStop
from kafkalog.log import segment_read
from kafkalog.log.index_cadence import IndexCadence
from kafkalog.log.offset_index import OffsetEntries, offset_entries
from kafkalog.log.time_index import TimeEntries, time_entries
from kafkalog.log.values import MAX_RELATIVE_OFFSET, NO_TIMESTAMP, TimestampOffset

if TYPE_CHECKING:
    from kafkalog.log.log_segment import LogSegment

OnBatches = Callable[[BatchRows, memoryview], None]

RECOVERY_CHUNK_BYTES = 2 * 1024 * 1024


class SegmentOffsetOverflow(Exception):
    """An offset lies more than 2^31 - 1 above the segment's base."""

    def __init__(self, segment: LogSegment, offset: int) -> None:
        super().__init__(f"offset {offset} is more than 2^31 - 1 above the base of its segment")
        self.segment = segment
        self.offset = offset


class BadBatch(enum.Enum):
    """Why recovery stopped before the end of the file."""

    PARTIAL = "partial"  # shorter than its header says, or than a header
    BAD_SIZE = "bad size"
    LEGACY = "legacy"  # a message set of magic 0 or 1
    BAD_MAGIC = "bad magic"
    SHORT_BATCH = "short batch"
    BAD_CRC = "bad crc"
    BAD_OFFSET = "bad offset"  # not above the offset before it, or below the segment's base


@dataclass(frozen=True, slots=True)
class RecoveryResult:
    """What recovery of one segment found and did."""

    valid_bytes: int
    truncated_bytes: int
    bad_position: int | None  # where the first bad batch starts; None when all were good
    bad_batch: BadBatch | None
    next_offset: int  # last good offset + 1; the base offset when none is left


@dataclass(slots=True)
class _Walk:
    """Where a walk over the batches ended and the index entries it gave."""

    valid_bytes: int
    next_offset: int
    bad_batch: BadBatch | None
    largest: TimestampOffset
    offset_entries: OffsetEntries
    time_entries: TimeEntries


def recover(segment: LogSegment, on_batches: OnBatches | None) -> RecoveryResult:
    """See LogSegment.recover."""
    segment.transaction_index.reset()  # on_batches finds the aborted transactions again
    size_bytes = segment.log_file.pin_for_write().size()
    walk = _walk(segment, size_bytes, on_batches)
    segment.offset_index.replace_entries(walk.offset_entries)
    segment.time_index.replace_entries(walk.time_entries)
    segment.restore(walk.valid_bytes, walk.largest)
    segment.seal()
    return RecoveryResult(
        valid_bytes=walk.valid_bytes,
        truncated_bytes=size_bytes - walk.valid_bytes,
        bad_position=None if walk.bad_batch is None else walk.valid_bytes,
        bad_batch=walk.bad_batch,
        next_offset=walk.next_offset,
    )


def rebuild_indexes(segment: LogSegment) -> None:
    """Write both indexes anew from the ``.log`` of a segment that is being opened for writing."""
    walk = _walk(segment, segment.size_bytes, None)
    segment.offset_index.replace_entries(walk.offset_entries)
    segment.time_index.replace_entries(walk.time_entries)
    segment.note_max_timestamp(walk.largest)


def remember_entries(segment: LogSegment) -> None:
    """Find the entries of damaged closed indexes again, in memory only.

    The forced last time entry is part of them. The files stay as they are: they are the writer's.
    CorruptIndex when the offsets do not fit an index: only an unclean load splits such a segment.
    """
    try:
        walk = _walk(segment, segment.size_bytes, None)
    except SegmentOffsetOverflow as error:
        path = segment.offset_index.file.path
        raise CorruptIndex(str(error), file=path, position=0) from error
    times = walk.time_entries
    last = times.timestamps[-1] if times.count else NO_TIMESTAMP
    if walk.largest.timestamp_ms > last:
        times.timestamps.append(walk.largest.timestamp_ms)
        times.relative.append(walk.largest.offset - segment.base_offset)
        times.count += 1
    segment.offset_index.keep_in_cache(walk.offset_entries)
    segment.time_index.keep_in_cache(times)
    segment.note_max_timestamp(walk.largest)


def _walk(segment: LogSegment, size_bytes: int, on_batches: OnBatches | None) -> _Walk:
    """Walk the good batches from the start of the segment."""
    base_offset = segment.base_offset
    cadence = IndexCadence(segment.index_interval_bytes)
    valid_bytes, next_offset = 0, base_offset
    bad_batch: BadBatch | None = None
    for chunk in segment_read.scan_chunks(
        segment, 0, size_bytes, check_crc=True, chunk_bytes=RECOVERY_CHUNK_BYTES
    ):
        rows = _rows_in_order(chunk.rows, next_offset - 1)
        if rows.count:
            next_offset = int(rows.column(BatchColumn.LAST_OFFSET)[-1]) + 1
            if next_offset - 1 - base_offset > MAX_RELATIVE_OFFSET:
                raise SegmentOffsetOverflow(segment, next_offset - 1)
            cadence.add(rows, chunk.position)
            valid_bytes = chunk.position + rows.consumed_bytes
            if on_batches is not None:
                on_batches(rows, chunk.data)
        if rows.count < chunk.rows.count:
            bad_batch = BadBatch.BAD_OFFSET
            break
        # Bytes behind a walk that ended well can only be too few for another header.
        stop = chunk.rows.stop
        bad_batch = BadBatch.PARTIAL if stop is ScanStop.END else BadBatch[stop.name]
    if valid_bytes == size_bytes:
        bad_batch = None
    return _Walk(
        valid_bytes,
        next_offset,
        bad_batch,
        cadence.largest or TimestampOffset(NO_TIMESTAMP, base_offset),
        *_entries(segment, cadence),
    )


def _entries(segment: LogSegment, cadence: IndexCadence) -> tuple[OffsetEntries, TimeEntries]:
    """Stores of the entries the cadence gave, at most as many as the files hold.

    An index file smaller than the entries (the topic's index size was lowered) stays sparse at the
    end of the segment; look-ups then walk further.
    """
    base = segment.base_offset
    offsets = cadence.offset_entries()[: segment.offset_index.max_entries]
    times = cadence.time_entries()[: max(segment.time_index.max_entries - 1, 0)]
    return (
        offset_entries(offsets[:, 0] - base, offsets[:, 1]),
        time_entries(times[:, 0], times[:, 1] - base),
    )


def _rows_in_order(rows: BatchRows, previous_last_offset: int) -> BatchRows:
    """The rows before the first one that does not lie behind those before it."""
    disorder = rows.first_disorder(previous_last_offset)
    if disorder is None:
        return rows
    position = int(rows.column(BatchColumn.POSITION)[disorder])
    start = rows.stop_position - rows.consumed_bytes
    return BatchRows(rows.table[:disorder], ScanStop.END, position, position - start)
