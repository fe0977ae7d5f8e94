"""Batches of a chunk of segment bytes as numpy columns: fetch, recovery, verify and dump use this.

Owns the shell around the kernel: the table's memory, the CRC of large batches (C, releases the
interpreter lock), and the reading of the outcome. No Python statement per record, and per batch
only for those of INLINE_CRC_MAX bytes and more. Any thread.
Source: log-format.md 1.5 (Kafka 4.1 FileLogInputStream, DefaultRecordBatch.ensureValid).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kafkalog.format.record_batch import is_crc_valid
from kafkalog.kernels.batch_scan import (
    CHOICE_CELL_COUNT,
    COLUMN_COUNT,
    INLINE_CRC_MAX,
    LARGE_COLUMN_COUNT,
    BatchColumn,
    CrcState,
    ScanStop,
    choose_batches,
    count_batches,
    scan_batches,
)

if TYPE_CHECKING:
    from kafkalog.kernels.compile import Int64s, Int64Table

__all__ = ["BatchChoice", "BatchColumn", "BatchRows", "CrcState", "ScanStop", "choose", "scan"]

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True, eq=False)
class BatchRows:
    """The whole batches of one chunk, and why the walk ended.

    table           int64[count, 14], see BatchColumn; positions count from the chunk's first byte
    stop            why the walk ended
    stop_position   byte behind the last row: where the batch begins that ended the walk
    consumed_bytes  bytes of the rows: stop_position minus start
    """

    table: Int64Table
    stop: ScanStop
    stop_position: int
    consumed_bytes: int

    @property
    def count(self) -> int:
        """Rows."""
        return int(self.table.shape[0])

    def column(self, column: BatchColumn) -> Int64s:
        """One column as a view, int64[count]."""
        return self.table[:, int(column)]

    def first_disorder(self, previous_last_offset: int = -1) -> int | None:
        """The first row whose offsets do not lie behind those before it; None when all do.

        A row is out of order when its base offset is not above the last offset of the row before
        (for the first row: previous_last_offset) or its last offset is below its base offset.
        """
        if not self.count:
            return None
        base, last = self.column(BatchColumn.BASE_OFFSET), self.column(BatchColumn.LAST_OFFSET)
        before = np.empty_like(last)
        before[0] = previous_last_offset
        before[1:] = last[:-1]
        wrong = (base <= before) | (last < base)
        first = int(wrong.argmax())
        return first if wrong[first] else None


def scan(chunk: Buffer, start: int = 0, *, check_crc: bool = True) -> BatchRows:
    """Walk the batches of chunk[start:].

    Stops without an error at whatever is no whole, sound batch: the caller knows what that means.
    With check_crc each row's CRC has been checked and the first wrong one ends the walk; without,
    CRC_STATE is UNCHECKED everywhere.
    """
    data = np.frombuffer(chunk, dtype=np.uint8)
    end = data.shape[0]
    table = np.empty((count_batches(data, start, end), COLUMN_COUNT), dtype=np.int64)
    outcome = np.zeros(3, dtype=np.int64)
    count = scan_batches(data, start, end, check_crc, table, outcome)
    reason, stop_position, unchecked = outcome.tolist()
    stop = ScanStop(reason)
    if check_crc and unchecked:
        bad_row = _check_large(memoryview(chunk), table[:count])
        if bad_row is not None:
            count, stop = bad_row, ScanStop.BAD_CRC
            stop_position = int(table[bad_row, BatchColumn.POSITION])
    return BatchRows(table[:count], stop, stop_position, stop_position - start)


class BatchChoice(NamedTuple):
    """The batches of a chunk that answer a fetch: ``batch_count`` of them in chunk[start:end].

    stop               why the walk ended; END also when the answer is full
    start              of the first batch that reaches the offset asked for, chosen or not; None:
                       no whole batch before ``end`` reaches it
    first_base_offset, first_last_offset   of that one
    last_offset        of the last one chosen
    """

    batch_count: int
    stop: ScanStop
    start: int | None
    end: int
    first_base_offset: int
    first_last_offset: int
    last_offset: int


def choose(
    chunk: Buffer, start_offset: int, *, max_offset: int, max_bytes: int, min_one_batch: bool
) -> BatchChoice:
    """From the first batch whose last offset reaches start_offset, as far as limits and CRCs allow.

    No batch with a base offset of max_offset or above, none with a wrong CRC (which ends the
    choice: BAD_CRC), max_bytes at most unless min_one_batch lets the first be larger.
    """
    data = np.frombuffer(chunk, dtype=np.uint8)
    large = np.empty((len(data) // INLINE_CRC_MAX + 1, LARGE_COLUMN_COUNT), dtype=np.int64)
    cells = np.empty(CHOICE_CELL_COUNT, dtype=np.int64)
    count = choose_batches(data, start_offset, max_offset, max_bytes, min_one_batch, large, cells)
    stop, start, end, first_base, first_last, last, large_count = cells.tolist()
    if large_count:
        view = memoryview(chunk)
        for position, size, index, previous_last in large[:large_count].tolist():
            if not is_crc_valid(view[position : position + size]):
                count, stop, end, last = index, ScanStop.BAD_CRC, position, previous_last
                break
    return BatchChoice(
        count, ScanStop(stop), None if start < 0 else start, end, first_base, first_last, last
    )


def _check_large(chunk: memoryview, table: Int64Table) -> int | None:
    """Check the CRC of rows that the kernel left; the first bad row, or None."""
    unchecked = np.flatnonzero(table[:, BatchColumn.CRC_STATE] == CrcState.UNCHECKED)
    for row in unchecked.tolist():
        position, size = table[row, :2].tolist()
        batch = chunk[position : position + size]
        if not is_crc_valid(batch):
            return int(row)
        table[row, BatchColumn.CRC_STATE] = CrcState.VALID
    return None
