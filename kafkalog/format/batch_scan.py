"""Batches of a chunk of segment bytes as numpy columns: fetch, recovery, verify and dump use this.

Owns the shell around the kernel: the table's memory, the CRC of large batches (C, releases the
interpreter lock), and the reading of the outcome. No Python statement per record, and per batch
only for those of INLINE_CRC_MAX bytes and more. Any thread.
Source: log-format.md 1.5 (Kafka 4.1 FileLogInputStream, DefaultRecordBatch.ensureValid).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from crc32c import crc32c

from kafkalog.format.record_batch import ATTRIBUTES_AT, CRC_AT
from kafkalog.kernels.batch_scan import (
    COLUMN_COUNT,
    BatchColumn,
    CrcState,
    ScanStop,
    count_batches,
    scan_batches,
)

if TYPE_CHECKING:
    from kafkalog.kernels.compile import Int64s, Int64Table

__all__ = ["BatchColumn", "BatchRows", "CrcState", "ScanStop", "scan"]

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


def _check_large(chunk: memoryview, table: Int64Table) -> int | None:
    """Check the CRC of rows that the kernel left; the first bad row, or None."""
    unchecked = np.flatnonzero(table[:, BatchColumn.CRC_STATE] == CrcState.UNCHECKED)
    for row in unchecked.tolist():
        position, size = table[row, :2].tolist()
        batch = chunk[position : position + size]
        if crc32c(batch[ATTRIBUTES_AT:]) != int.from_bytes(batch[CRC_AT:ATTRIBUTES_AT], "big"):
            return int(row)
        table[row, BatchColumn.CRC_STATE] = CrcState.VALID
    return None
