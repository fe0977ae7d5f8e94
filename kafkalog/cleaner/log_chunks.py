"""The batches of a segment, chunk by chunk, for the two passes of a round.

Owns how far a read goes: a chunk is as large as the cleaner's buffer, and a batch that does not fit
is read whole, never more than what is left of the segment. A segment has to be sound from the first
batch to its last byte: what leads nowhere is damage, and a log with damage is not cleaned. The
thread that cleans; reads only. Source: Kafka's Cleaner.growBuffersOrFail, log-lifecycle 12.7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kafkalog.cleaner.record_batches import RecordBatches
from kafkalog.errors import CorruptBatch
from kafkalog.format.batch_scan import BatchColumn
from kafkalog.format.record_batch import HEADER_BYTES, LENGTH_AT, LOG_OVERHEAD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.log.log_segment import LogSegment


def chunks_of(
    segment: LogSegment,
    position: int,
    *,
    end_offset: int,
    chunk_bytes: int,
    max_decompressed_bytes: int,
    end_position: int | None = None,
) -> Iterator[RecordBatches]:
    """All batches of a closed segment from position on, where one begins, up to end_position.

    end_position  where a batch begins, too; None: to the segment's end

    The bytes of a chunk are good until the next one is asked for: it is read into the same memory.
    Raises CorruptBatch for bytes that are no batch and for offsets that do not rise or reach
    end_offset, the base of the next segment; OSError.
    """
    file = segment.log_file.acquire()
    end = segment.size_bytes if end_position is None else end_position
    wanted = max(chunk_bytes, HEADER_BYTES)
    memory = np.empty(0, np.uint8).data
    last_offset = segment.base_offset - 1 if position == 0 else -1
    while position < end:
        size = min(wanted, end - position)
        if size > len(memory):
            memory = np.empty(size, np.uint8).data
        data = memory[: file.pread_into(memory[:size], position)]
        batches = RecordBatches.of(
            data,
            file=segment.log_file.path,
            position=position,
            max_decompressed_bytes=max_decompressed_bytes,
            previous_last_offset=last_offset,
        )
        if not batches.rows.count:
            wanted = _size_of_batch(data, segment, position, end)
            continue
        last_offset = int(batches.rows.column(BatchColumn.LAST_OFFSET)[-1])
        if last_offset >= end_offset:
            raise batches.corrupt(batches.rows.count - 1, f"it reaches offset {end_offset}")
        yield batches
        position += batches.rows.consumed_bytes
        wanted = max(chunk_bytes, HEADER_BYTES)


def _size_of_batch(data: memoryview, segment: LogSegment, position: int, end: int) -> int:
    """Of the batch that begins the chunk and does not fit; CorruptBatch when it never will."""
    size = 0
    if len(data) >= HEADER_BYTES:
        size = int.from_bytes(data[LENGTH_AT : LENGTH_AT + 4], "big") + LOG_OVERHEAD
    if not len(data) < size <= end - position:
        raise CorruptBatch(
            f"Log segment may be corrupt: a batch reaches beyond its last byte, {end}",
            file=segment.log_file.path,
            position=position,
        )
    return size
