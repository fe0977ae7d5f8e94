"""The bytes of a segment in chunks, and the batches in them: what reads, recovery and tools share.

Never changes a file. Any thread; of a chunk that is scanned only until the next one is asked for.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kafkalog.format.records.batch_scan import BatchRows, ScanStop, scan
from kafkalog.log.values import WouldBlock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.env.filesystem import File
    from kafkalog.log.segment.log_segment import LogSegment

HEADER = struct.Struct(">qi11xi8xq")  # base offset, length, last offset delta, max timestamp
LOG_OVERHEAD_BYTES = 12
SCAN_CHUNK_BYTES = 1024 * 1024
LARGEST_UNDOUBTED_BYTES = 64 * 1024 * 1024  # a rotten length may ask for a whole segment's memory


@dataclass(frozen=True, slots=True)
class ScannedChunk:
    """Bytes of a segment from ``position`` on and the whole batches in them."""

    position: int
    data: memoryview
    rows: BatchRows


def read_chunk(file: File, position: int, size: int, *, may_block: bool) -> memoryview:
    """Up to ``size`` bytes; shorter only at the end of the file. WouldBlock as LogSegment.read."""
    return _read_into(_chunk_memory(size), file, position, may_block=may_block)


def _chunk_memory(size: int) -> memoryview:
    return np.empty(size, dtype=np.uint8).data  # not zeroed, unlike a bytearray


def _read_into(buffer: memoryview, file: File, position: int, *, may_block: bool) -> memoryview:
    """What the file holds for the buffer; see read_chunk."""
    if may_block:
        return buffer[: file.pread_into(buffer, position)]
    done = file.try_pread_into(buffer, position)
    if done is None or done < len(buffer):
        raise WouldBlock(file.path)
    return buffer


def scan_chunks(
    segment: LogSegment,
    position: int,
    end: int,
    *,
    check_crc: bool,
    may_block: bool = True,
    chunk_bytes: int = SCAN_CHUNK_BYTES,
    file: File | None = None,
) -> Iterator[ScannedChunk]:
    """Walk all batches of ``[position, end)``; every chunk but the last holds at least one.

    The last chunk says with ``rows.stop`` why the walk ended. A batch that is larger than a chunk
    is read whole, never more than what is left before ``end``. The bytes of a chunk are good until
    the next one is asked for: it is read into the same memory. ``file``: the caller's own handle.
    """
    if position >= end:
        return
    if file is None:
        file = segment.log_file.acquire(may_block=may_block)
    wanted, memory = chunk_bytes, memoryview(b"")
    while position < end:
        size = min(wanted, end - position)
        if size > len(memory):
            memory = _chunk_memory(size)
        data = _read_into(memory[:size], file, position, may_block=may_block)
        rows = scan(data, check_crc=check_crc)
        is_last = position + len(data) >= end or len(data) < size  # somebody cut the file
        if rows.count == 0 and rows.stop is ScanStop.PARTIAL and not is_last:
            size = HEADER.unpack_from(data)[1] + LOG_OVERHEAD_BYTES
            if position + size <= end:
                wanted = size
                continue
        yield ScannedChunk(position, data, rows)
        if rows.count == 0 or rows.stop not in (ScanStop.END, ScanStop.PARTIAL):
            return
        position += rows.consumed_bytes
        wanted = chunk_bytes
