"""SegmentFiles: the files of one segment and what is published of them; its bytes in chunks.

What reads, recovery and tools share: they get this, never the ``LogSegment`` that extends it.
Walks change no file. Any thread; the bytes of a chunk that is scanned are good only until the next
one is asked for.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kafkalog.format.records.batch_scan import BatchRows, ScanStop, scan
from kafkalog.log.values import TimestampOffset, WouldBlock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.env.filesystem import File
    from kafkalog.log.segment.indexes import OffsetIndex, TimeIndex
    from kafkalog.log.segment.segment_file import SegmentFile
    from kafkalog.log.segment.transaction_index import TransactionIndex

HEADER = struct.Struct(">qi11xi8xq")  # base offset, length, last offset delta, max timestamp
LOG_OVERHEAD_BYTES = 12
SCAN_CHUNK_BYTES = 1024 * 1024
LARGEST_UNDOUBTED_BYTES = 64 * 1024 * 1024  # a rotten length may ask for a whole segment's memory


class SegmentFiles:
    """The ``.log`` of a segment and its indexes; the writer thread alone changes the fields."""

    __slots__ = (
        "base_offset",
        "index_interval_bytes",
        "log_file",
        "max_timestamp",
        "offset_index",
        "size_bytes",
        "time_index",
        "transaction_index",
    )

    def __init__(
        self,
        base_offset: int,
        size_bytes: int,
        log_file: SegmentFile,
        offset_index: OffsetIndex,
        time_index: TimeIndex,
        transaction_index: TransactionIndex,
        index_interval_bytes: int,
    ) -> None:
        """Touches no disk. ``index_interval_bytes``: the distance of index entries."""
        # constant after construction
        self.base_offset = base_offset
        self.log_file = log_file
        self.offset_index = offset_index
        self.time_index = time_index
        self.transaction_index = transaction_index
        self.index_interval_bytes = index_interval_bytes
        # published to readers
        self.size_bytes = size_bytes
        self.max_timestamp: TimestampOffset | None = None  # None: not known yet

    @property
    def files(self) -> tuple[SegmentFile, ...]:
        """The ``.log`` and the indexes that exist, in the order in which they are renamed."""
        files = (self.log_file, self.offset_index.file, self.time_index.file)
        if self.transaction_index.exists:
            return (*files, self.transaction_index.file)
        return files


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
    segment: SegmentFiles,
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
        is_last = position + len(data) >= end or len(data) < size  # the file was cut
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
