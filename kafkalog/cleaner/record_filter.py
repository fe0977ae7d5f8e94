"""RecordFilter: pass 2 of a cleaning, one chunk in, the batches that stay out.

Owns the order of the steps: look up the keys that the bit rows of the map do not cover, let the
kernel decide and write, inflate and compress again only what is compressed and changes. The CRC of
every batch that loses something is checked. A batch that stays whole keeps its bytes, and its
damage if it has any. Never reads or writes a file. One thread.

Source: Kafka 4.1 `MemoryRecords.filterTo`, `Cleaner.cleanInto`. Differs from Kafka: a batch with a
wrong CRC is never rewritten, and one that loses all its records to the map must be sound as well
(Kafka checks neither and would put a right CRC over the damage); header names that are no UTF-8
keep their bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kafkalog.cleaner.record_batches import BatchInflater
from kafkalog.cleaner.stats import CleanerStats
from kafkalog.format.integers import INT64_MAX
from kafkalog.format.records.batch_scan import BatchColumn
from kafkalog.format.records.compression import compress
from kafkalog.format.records.record_batch import CODEC_MASK, DELETE_HORIZON_BIT, HEADER_BYTES
from kafkalog.kernels.compaction.batch_output import RECORD_GROWTH_MAX, OutCell, pack_batches
from kafkalog.kernels.compaction.record_filter import (
    FILTER_CELL_COUNT,
    ORDER_COLUMN_COUNT,
    BatchOutcome,
    BatchRetention,
    FilterCell,
    FilterStatus,
    OrderColumn,
    TombstoneRule,
    filter_batches,
    plan_batches,
)
from kafkalog.kernels.processor import LEVEL
from kafkalog.kernels.records.record_scan import MINIMUM_RECORD_BYTES, RECORD_COLUMN_COUNT

if TYPE_CHECKING:
    from kafkalog.cleaner.record_batches import Flags, InflatedGroup, RecordBatches
    from kafkalog.cleaner.skimpy_offset_map import SkimpyOffsetMap
    from kafkalog.errors import CorruptBatch
    from kafkalog.kernels.compile import Bytes, Int64s, Int64Table

__all__ = ["BatchRetention", "FilteredChunk", "RecordFilter", "TombstoneRule"]

_SIZE = int(BatchColumn.SIZE)
_BASE_TIMESTAMP = int(BatchColumn.BASE_TIMESTAMP)
_ATTRIBUTES, _RECORD_COUNT = int(BatchColumn.ATTRIBUTES), int(BatchColumn.RECORD_COUNT)
_OUT_POSITION, _OUT_ROWS = int(OutCell.OUT_POSITION), int(OutCell.OUT_ROWS)
_ROW = int(FilterCell.ROW)
_RETENTION, _DISCARDS = int(OrderColumn.RETENTION), int(OrderColumn.DISCARDS)
_FLAGS_START, _NEEDS_LOOK_UP = int(OrderColumn.FLAGS_START), int(OrderColumn.NEEDS_LOOK_UP)
_INFLATES = int(OrderColumn.INFLATES)
_LEVEL = int(LEVEL)  # numba takes 40 us to recognise an enum, and numpy 5 to compare with one
_PACKED_COLUMNS = [int(BatchColumn.POSITION), _SIZE, _ATTRIBUTES]
_COPIED = int(BatchOutcome.COPIED)


@dataclass(frozen=True, slots=True, eq=False)
class FilteredChunk:
    """What stays of a chunk.

    data        batches back to back; a view of the filter's buffer, valid until its next call
    table       a row per batch as `BatchRows.table`, positions in data
    statistics  of this chunk alone
    """

    data: memoryview
    table: Int64Table
    statistics: CleanerStats


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

        retention                a `BatchRetention` per batch
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
        cells[FilterCell.PROCESSOR_LEVEL] = _LEVEL
        return _ChunkPass(batches, orders, cells, self._map, self._buffers).run()


class _Buffers:
    """Working memory of a filter. `out` is what a FilteredChunk shows.

    plain  what stays of a group with inflated batches, before it is compressed into `out`
    """

    def __init__(self) -> None:
        self.inflater = BatchInflater()
        self.out: Bytes = np.empty(0, np.uint8)
        self.plain: Bytes = np.empty(0, np.uint8)
        self.flags: Bytes = np.empty(0, np.uint8)
        self.kept: Int64Table = np.empty((0, RECORD_COLUMN_COUNT), np.int64)

    def reserve(self, used: int, wanted: int) -> None:
        """At least wanted bytes after the first `used` of out, which stay."""
        if len(self.out) - used < wanted:
            grown = np.empty(used + wanted + (used + wanted) // 4, np.uint8)
            grown[:used] = self.out[:used]
            self.out = grown

    def reserve_plain(self, wanted: int) -> None:
        """At least so many bytes of plain; nothing stays."""
        if len(self.plain) < wanted:
            self.plain = np.empty(wanted + wanted // 4, np.uint8)

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


@dataclass(eq=False)
class _ChunkPass:
    """The state of filtering one chunk."""

    _batches: RecordBatches
    _orders: Int64Table
    _cells: Int64s
    _map: SkimpyOffsetMap
    _buffers: _Buffers

    def __post_init__(self) -> None:
        self._table = self._batches.rows.table
        self._out_table = np.empty(self._table.shape, np.int64)
        self._outcomes = np.zeros(len(self._table), np.int64)
        self._end = 0  # of what is written to `out`

    def run(self) -> FilteredChunk:
        """All steps."""
        table, cells = self._table, self._cells
        plan_batches(table, self._orders, self._map.bits, cells)
        self._buffers.reserve_kept(int(cells[FilterCell.RECORDS_MAX]))
        self._buffers.reserve(0, self._room)
        if cells[FilterCell.FLAGS]:
            flag_count = int(cells[FilterCell.FLAGS])
            self._look_up(self._batches.data, table, self._orders, flag_count, None)
        inflates = np.flatnonzero(self._orders[:, _INFLATES])
        for group in self._buffers.inflater.groups(self._batches, inflates):
            if len(group.rows):
                self._filter_inflated(group)
            else:
                self._cells[_OUT_POSITION] = self._end
                self._filter(group, self._buffers.out)
                self._end = int(self._cells[_OUT_POSITION])
        return self._result()

    @property
    def _room(self) -> int:
        """What all the batches may take but for what inflated ones grow by."""
        return int(self._cells[FilterCell.ROOM])

    def _look_up(
        self,
        data: Bytes,
        table: Int64Table,
        orders: Int64Table,
        flag_count: int,
        rows: Int64s | None,
    ) -> None:
        """Flag the superseded records of the rows whose orders say where.

        flag_count  all flags given out so far: those of other rows stay
        rows        which rows of the chunk those of table are; None: all
        """
        flags = self._buffers.reserve_flags(flag_count)
        status = self._map.look_up(data, table, orders, flags)
        if status < 0:
            row = self._map.fault_row
            raise self._damaged(row if rows is None else int(rows[row]), status)

    def _filter(self, group: InflatedGroup, out: Bytes) -> None:
        """The kernel into `out`; OUT_FULL cannot be, as the room is reserved before."""
        buffers = self._buffers
        status = filter_batches(
            self._batches.data,
            self._table,
            group.data,
            group.plain_table,
            self._orders,
            group.first_row,
            group.end_row,
            buffers.flags,
            self._map.bits,
            buffers.kept,
            out,
            self._out_table,
            self._outcomes,
            self._cells,
        )
        assert status != FilterStatus.OUT_FULL, "the room was reserved"
        row = int(self._cells[_ROW])
        if status == FilterStatus.BAD_CRC:
            raise self._batches.wrong_crc(row)
        if status < 0:
            raise self._damaged(row, status)

    def _filter_inflated(self, group: InflatedGroup) -> None:
        """A group in which batches were inflated: filter it, then compress what was rebuilt."""
        buffers, rows, cells = self._buffers, group.rows, self._cells
        sizes = group.plain_table[rows, _SIZE]
        counts = np.maximum(group.plain_table[rows, _RECORD_COUNT], 0)
        counts = np.minimum(counts, (sizes - HEADER_BYTES) // MINIMUM_RECORD_BYTES)
        needs_look_up = self._orders[rows, _NEEDS_LOOK_UP] != 0
        if needs_look_up.any():
            self._look_up_inflated(group, rows[needs_look_up], counts[needs_look_up])
        buffers.reserve_kept(int(counts.max()))
        buffers.reserve_plain(self._room + int((sizes + counts * RECORD_GROWTH_MAX).sum()))
        first = int(cells[_OUT_ROWS])
        cells[_OUT_POSITION] = 0
        self._filter(group, buffers.plain)
        self._pack(group, first, int(cells[_OUT_POSITION]))

    def _look_up_inflated(self, group: InflatedGroup, rows: Int64s, counts: Int64s) -> None:
        """Flag the records of these rows, which hold so many, after the flags of plain rows."""
        orders = self._orders[rows]
        ends = int(self._cells[FilterCell.FLAGS]) + np.cumsum(counts)
        orders[:, _FLAGS_START] = ends - counts
        self._look_up(group.data, group.plain_table[rows], orders, int(ends[-1]), rows)
        self._orders[rows] = orders

    def _pack(self, group: InflatedGroup, first: int, size: int) -> None:
        """Take what the group left, size bytes and the rows from first on, from plain to out."""
        span, table, buffers = slice(group.first_row, group.end_row), self._out_table, self._buffers
        outcomes = self._outcomes[span]
        is_changed = (self._orders[span, _INFLATES] != 0) & (outcomes > _COPIED)
        changed = np.flatnonzero(is_changed[outcomes >= _COPIED])
        rebuilt = table[first + changed][:, _PACKED_COLUMNS].tolist()
        streams = [
            compress(attributes & CODEC_MASK, buffers.plain.data[at + HEADER_BYTES : at + length])
            for at, length, attributes in rebuilt
        ]
        # Their records are not taken over: the streams, joined, go in their place.
        size -= sum(length - HEADER_BYTES for _, length, _ in rebuilt)
        stream_sizes = np.full(int(self._cells[_OUT_ROWS]) - first, -1)
        stream_sizes[changed] = [len(each) for each in streams]
        joined = np.frombuffer(b"".join(streams), np.uint8)
        buffers.reserve(self._end, size + len(joined) + self._room)
        self._end = pack_batches(
            buffers.plain, table, first, joined, stream_sizes, buffers.out, self._end, _LEVEL
        )

    def _result(self) -> FilteredChunk:
        cells, out_rows = self._cells.tolist(), int(self._cells[_OUT_ROWS])
        size, table = self._end, self._out_table[:out_rows]
        horizons = table[(table[:, _ATTRIBUTES] & DELETE_HORIZON_BIT) != 0, _BASE_TIMESTAMP]
        statistics = CleanerStats(
            batches_read=len(self._table),
            bytes_read=self._batches.rows.consumed_bytes,
            messages_read=cells[FilterCell.RECORDS_READ],
            batches_written=out_rows,
            bytes_written=size,
            messages_written=cells[OutCell.RECORDS_KEPT],
            invalid_messages_read=cells[FilterCell.NULL_KEYS],
            superseded=cells[FilterCell.SUPERSEDED],
            expired_tombstones=cells[FilterCell.EXPIRED_TOMBSTONES],
            aborted=cells[FilterCell.ABORTED],
            markers=cells[FilterCell.CONTROL],
            waiting_batches=len(horizons),
            next_horizon_ms=int(horizons.min()) if len(horizons) else None,
        )
        data = self._buffers.out.data[:size]
        return FilteredChunk(data, table, statistics)

    def _damaged(self, row: int, status: int) -> CorruptBatch:
        """The error of a kernel's fault: a wrong CRC explains more than what it led to."""
        self._batches.verify(row)
        return self._batches.malformed(row, status)
