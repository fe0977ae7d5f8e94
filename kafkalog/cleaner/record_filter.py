"""RecordFilter: pass 2 of a cleaning, one chunk in, the batches that stay out.

Owns the order of the steps: look up the keys that the bit rows of the map do not cover, let the
kernel decide and write, inflate and compress again only what is compressed and changes, check the
CRC of every batch that loses something, and seal what was rebuilt. A batch that stays whole keeps
its bytes, and its damage if it has any. Never reads or writes a file. One thread.

Source: Kafka 4.1 `MemoryRecords.filterTo`, `Cleaner.cleanInto`; log-lifecycle.md 12.6.
Differs from Kafka: a batch with a wrong CRC is never rewritten, and one that loses all its records
to the map must be sound as well (Kafka checks neither and would put a right CRC over the damage);
header names that are no UTF-8 keep their bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kafkalog.format.batch_scan import BatchColumn, CrcState
from kafkalog.format.compression import compress
from kafkalog.format.integers import INT64_MAX
from kafkalog.format.record_batch import (
    ATTRIBUTES_AT,
    CRC_AT,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    LAST_OFFSET_DELTA_AT,
    LEADER_EPOCH_AT,
    LENGTH_AT,
    LOG_OVERHEAD,
    codec_of,
    compute_crc,
)
from kafkalog.kernels.batch_output import RECORD_GROWTH_MAX, OutCell
from kafkalog.kernels.filter_orders import (
    FILTER_CELL_COUNT,
    ORDER_COLUMN_COUNT,
    BatchOutcome,
    FilterCell,
    FilterStatus,
    OrderColumn,
    Retention,
    TombstoneRule,
)
from kafkalog.kernels.processor import LEVEL
from kafkalog.kernels.record_fields import MINIMUM_RECORD_BYTES, RECORD_COLUMN_COUNT
from kafkalog.kernels.record_filter import filter_batches, plan_batches

if TYPE_CHECKING:
    from kafkalog.cleaner.record_batches import Buffer, Flags, RecordBatches
    from kafkalog.cleaner.skimpy_offset_map import SkimpyOffsetMap
    from kafkalog.errors import CorruptBatch
    from kafkalog.kernels.compile import Bytes, Int64s, Int64Table

__all__ = ["FilterStatistics", "FilteredChunk", "RecordFilter", "Retention", "TombstoneRule"]

_SIZE = int(BatchColumn.SIZE)
_CRC_STATE = int(BatchColumn.CRC_STATE)
_BASE_TIMESTAMP = int(BatchColumn.BASE_TIMESTAMP)
_ATTRIBUTES, _RECORD_COUNT = int(BatchColumn.ATTRIBUTES), int(BatchColumn.RECORD_COUNT)
_OUT_POSITION, _OUT_ROWS = int(OutCell.OUT_POSITION), int(OutCell.OUT_ROWS)
_ROW = int(FilterCell.ROW)
_RETENTION, _DISCARDS = int(OrderColumn.RETENTION), int(OrderColumn.DISCARDS)


class FilterStatistics(NamedTuple):
    """Of one chunk. Records of batches that were dropped unread count as dropped, not as read."""

    batches_read: int
    bytes_read: int
    records_read: int
    batches_kept: int
    bytes_kept: int
    records_kept: int
    null_keys: int
    superseded: int
    expired_tombstones: int
    aborted: int
    control: int
    waiting_batches: int  # of those kept: with a delete horizon
    next_horizon_ms: int  # the first of theirs; INT64_MAX: none has one


@dataclass(frozen=True, slots=True, eq=False)
class FilteredChunk:
    """What stays of a chunk.

    data        batches back to back; a view of the filter's buffer, valid until its next call
    table       a row per batch as `BatchRows.table`, positions in data
    """

    data: memoryview
    table: Int64Table
    statistics: FilterStatistics


class RecordFilter:
    """Filters chunk after chunk with one map; its buffers are kept and grow with the chunks."""

    def __init__(self, offset_map: SkimpyOffsetMap) -> None:
        self._map = offset_map
        self._buffers = _Buffers()

    def filter(
        self,
        batches: RecordBatches,
        retention: Int64s,
        discard_records: Flags,
        marks_empty_transaction: Flags,
        *,
        now_ms: int,
        delete_retention_ms: int,
        tombstone_rule: TombstoneRule = TombstoneRule.PER_BATCH,
    ) -> FilteredChunk:
        """Decide and write.

        retention                a `Retention` per batch
        discard_records          all records of the batch go: aborted data, a marker that may go
        marks_empty_transaction  a marker without data left: gets a delete horizon
        Raises CorruptBatch for a batch that would have to change and is damaged.
        """
        orders = np.empty((batches.rows.count, ORDER_COLUMN_COUNT), np.int64)
        orders[:, _RETENTION] = retention
        orders[:, _DISCARDS] = discard_records
        orders[:, OrderColumn.MARKS_EMPTY_TRANSACTION] = marks_empty_transaction
        cells = np.zeros(FILTER_CELL_COUNT, np.int64)
        cells[FilterCell.LATEST_OFFSET] = self._map.latest_offset
        cells[FilterCell.BITS_FIRST] = self._map.bits_first
        cells[FilterCell.BITS_END] = self._map.bits_end
        cells[FilterCell.NOW_MS] = now_ms
        # Beyond 64 bits there is none, and the tombstone stays; as Kafka's, whose sum is negative.
        horizon_ms = now_ms + delete_retention_ms
        cells[FilterCell.NEW_HORIZON_MS] = horizon_ms if horizon_ms <= INT64_MAX else -1
        cells[FilterCell.TOMBSTONE_RULE] = tombstone_rule
        cells[FilterCell.PROCESSOR_LEVEL] = LEVEL
        return _ChunkPass(batches, orders, cells, self._map, self._buffers).run()


class _Buffers:
    """Working memory of a filter. `out` is what a FilteredChunk shows."""

    def __init__(self) -> None:
        self.out: Bytes = np.empty(0, np.uint8)
        self.flags: Bytes = np.empty(0, np.uint8)
        self.kept: Int64Table = np.empty((0, RECORD_COLUMN_COUNT), np.int64)

    def reserve(self, used: int, wanted: int) -> None:
        """At least wanted bytes behind the first `used` of out, which stay."""
        if len(self.out) - used < wanted:
            grown = np.empty(used + wanted + (used + wanted) // 4, np.uint8)
            grown[:used] = self.out[:used]
            self.out = grown

    def reserve_flags(self, count: int) -> Bytes:
        """So many flags; those that were set stay."""
        if len(self.flags) < count:
            grown = np.empty(count + count // 4, np.uint8)
            grown[: len(self.flags)] = self.flags
            self.flags = grown
        return self.flags[:count]

    def reserve_kept(self, count: int) -> None:
        """Rows for the records of one batch."""
        if len(self.kept) < count:
            self.kept = np.empty((count, RECORD_COLUMN_COUNT), np.int64)


class _ChunkPass:
    """The state of filtering one chunk."""

    def __init__(
        self,
        batches: RecordBatches,
        orders: Int64Table,
        cells: Int64s,
        offset_map: SkimpyOffsetMap,
        buffers: _Buffers,
    ) -> None:
        self._batches, self._map, self._buffers = batches, offset_map, buffers
        self._table = batches.rows.table
        self._orders, self._cells = orders, cells
        self._out_table = np.empty(self._table.shape, np.int64)
        self._outcomes = np.zeros(len(self._table), np.int64)

    def run(self) -> FilteredChunk:
        """All steps."""
        table, data, cells = self._table, self._batches.data, self._cells
        plan_batches(table, self._orders, cells)
        self._buffers.reserve_kept(int(cells[FilterCell.RECORDS_MAX]))
        self._buffers.reserve(0, self._room)
        if cells[FilterCell.FLAGS]:
            self._look_up(data, table, self._orders, int(cells[FilterCell.FLAGS]), 0)
        row = 0
        while row < len(table):
            status = self._filter(data, table, self._orders, self._outcomes, row)
            row = int(cells[_ROW])
            if status == FilterStatus.COMPRESSED:
                self._filter_compressed(row)
                row += 1
            elif status == FilterStatus.BAD_CRC:
                raise self._batches.wrong_crc(row)
            elif status < 0:
                raise self._damaged(row, status)
        return self._result()

    @property
    def _room(self) -> int:
        """What all the batches may take when none is inflated."""
        return int(self._cells[FilterCell.ROOM])

    def _look_up(
        self, data: Bytes, table: Int64Table, orders: Int64Table, flag_count: int, first_row: int
    ) -> None:
        """Flag the superseded records of the rows whose orders say where.

        flag_count  all flags given out so far: those of other rows stay
        first_row   the row of the chunk that the first one of `table` is
        """
        flags = self._buffers.reserve_flags(flag_count)
        status = self._map.look_up(data, table, orders, flags)
        if status < 0:
            raise self._damaged(first_row + self._map.fault_row, status)

    def _filter(
        self, data: Bytes, table: Int64Table, orders: Int64Table, outcomes: Int64s, row: int
    ) -> int:
        """The kernel into `out`; OUT_FULL cannot be, as the room is reserved before."""
        buffers = self._buffers
        status = filter_batches(
            data,
            table,
            orders,
            row,
            buffers.flags,
            self._map.bits,
            buffers.kept,
            buffers.out,
            self._out_table,
            outcomes,
            self._cells,
        )
        assert status != FilterStatus.OUT_FULL, "the room was reserved"
        return status

    def _filter_compressed(self, row: int) -> None:
        """One batch that may change: inflate, filter behind what is written, compress in place."""
        inflated = self._batches.inflate(row)
        orders = self._orders[row : row + 1]
        size = len(inflated.data)
        count = (size - HEADER_BYTES) // MINIMUM_RECORD_BYTES
        count = min(max(int(self._table[row, _RECORD_COUNT]), 0), count)
        if orders[0, OrderColumn.NEEDS_LOOK_UP]:
            # plain batches behind this one still need their flags
            first = int(self._cells[FilterCell.FLAGS])
            orders[0, OrderColumn.FLAGS_START] = first
            self._look_up(inflated.data, inflated.table, orders, first + count, row)
        start = int(self._cells[_OUT_POSITION])
        buffers, room = self._buffers, self._room
        buffers.reserve_kept(count)
        buffers.reserve(start, size + count * RECORD_GROWTH_MAX + room)
        outcomes = self._outcomes[row : row + 1]
        status = self._filter(inflated.data, inflated.table, orders, outcomes, 0)
        if status < 0:
            raise self._damaged(row, status)
        outcome = int(outcomes[0])
        if outcome == BatchOutcome.COPIED:
            self._replace_last(row, start, self._batches.batch(row))
            return
        self._batches.verify(row)
        if outcome in (BatchOutcome.REBUILT, BatchOutcome.EMPTIED):
            batch = bytearray(buffers.out[start : int(self._cells[_OUT_POSITION])])
            if outcome == BatchOutcome.REBUILT:
                batch = self._compressed(batch, row)
            batch[CRC_AT:ATTRIBUTES_AT] = compute_crc(batch).to_bytes(4, "big")
            buffers.reserve(start, len(batch) + room)
            self._replace_last(row, start, batch)

    def _compressed(self, batch: bytearray, row: int) -> bytearray:
        """The batch with its records compressed by its source's codec; without a CRC yet."""
        codec = codec_of(int(self._table[row, _ATTRIBUTES]))
        stream = compress(codec, memoryview(batch)[HEADER_BYTES:])
        header = batch[:HEADER_BYTES]
        header[ATTRIBUTES_AT + 1] |= codec
        length = HEADER_BYTES + len(stream) - LOG_OVERHEAD
        header[LENGTH_AT:LEADER_EPOCH_AT] = length.to_bytes(4, "big")
        return header + stream

    def _replace_last(self, row: int, start: int, batch: Buffer) -> None:
        """Put the batch in the place of the last one written, which began at start."""
        end = start + len(batch)
        self._buffers.out[start:end] = np.frombuffer(batch, np.uint8)
        self._cells[_OUT_POSITION] = end
        last = self._out_table[int(self._cells[_OUT_ROWS]) - 1]
        last[_SIZE] = len(batch)
        last[_CRC_STATE] = CrcState.UNCHECKED
        last[_ATTRIBUTES] = int.from_bytes(
            batch[ATTRIBUTES_AT:LAST_OFFSET_DELTA_AT], "big", signed=True
        )

    def _result(self) -> FilteredChunk:
        cells, out_rows = self._cells.tolist(), int(self._cells[_OUT_ROWS])
        size, table = cells[_OUT_POSITION], self._out_table[:out_rows]
        horizons = table[(table[:, _ATTRIBUTES] & DELETE_HORIZON_BIT) != 0, _BASE_TIMESTAMP]
        statistics = FilterStatistics(
            batches_read=len(self._table),
            bytes_read=self._batches.rows.consumed_bytes,
            records_read=cells[FilterCell.RECORDS_READ],
            batches_kept=out_rows,
            bytes_kept=size,
            records_kept=cells[OutCell.RECORDS_KEPT],
            null_keys=cells[FilterCell.NULL_KEYS],
            superseded=cells[FilterCell.SUPERSEDED],
            expired_tombstones=cells[FilterCell.EXPIRED_TOMBSTONES],
            aborted=cells[FilterCell.ABORTED],
            control=cells[FilterCell.CONTROL],
            waiting_batches=len(horizons),
            next_horizon_ms=int(horizons.min(initial=INT64_MAX)),
        )
        data = self._buffers.out.data[:size]
        return FilteredChunk(data, table, statistics)

    def _damaged(self, row: int, status: int) -> CorruptBatch:
        """The error of a kernel's fault: a wrong CRC explains more than what it led to."""
        self._batches.verify(row)
        return self._batches.malformed(row, status)
