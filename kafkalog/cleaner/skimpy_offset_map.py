"""SkimpyOffsetMap: the last offset of each key in the range that a cleaning reads, in fixed memory.

A hash map from the MD5 of a key to an offset, 24 bytes a slot, filled to at most its load factor.
Beside it, when they take no more than a quarter of its memory, two rows of bits over the range:
the offsets whose key came again, and the offsets without key or value. They are written while the
map is built and make the second pass free of hashing within the range; what they do not know stays.

Never reads a file. One thread at a time; memory is taken by the first use and kept for the next.
Source: Kafka 4.1 `SkimpyOffsetMap`, `Cleaner.buildOffsetMapForSegment`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kafkalog.cleaner.config import SLOT_BYTES
from kafkalog.cleaner.record_batches import BatchInflater
from kafkalog.errors import InvalidConfig
from kafkalog.format.records.batch_scan import BatchColumn
from kafkalog.format.records.record_batch import CODEC_MASK
from kafkalog.kernels.compaction.key_hash import (
    PENDING_COLUMN_COUNT,
    PENDING_MAX,
    SCRATCH_BYTES,
    PendingColumn,
    hash_keys,
)
from kafkalog.kernels.compaction.offset_map import (
    MAP_CELL_COUNT,
    SLOT_WORDS,
    MapCell,
    MapStatus,
    find_offset,
    index_batches,
    look_up_batches,
)
from kafkalog.kernels.processor import LEVEL

if TYPE_CHECKING:
    from kafkalog.cleaner.record_batches import Flags, RecordBatches
    from kafkalog.kernels.compile import Bytes, Int64s, Int64Table

assert SLOT_BYTES == 8 * SLOT_WORDS

_SIZE, _LATEST = int(MapCell.SIZE), int(MapCell.LATEST_OFFSET)
_BITS_FIRST, _BITS_COUNT = int(MapCell.BITS_FIRST), int(MapCell.BITS_COUNT)
_RECORDS_READ, _ROW = int(MapCell.RECORDS_READ), int(MapCell.ROW)
_NO_BITS = np.empty(0, np.uint8)


class SkimpyOffsetMap:
    """See the module. `slots` keys would fill it, `capacity` is how many it takes."""

    def __init__(self, memory_bytes: int, load_factor: float) -> None:
        """Raises InvalidConfig when not even one key fits. Takes no memory yet."""
        # constant after construction
        self.slots = memory_bytes // SLOT_BYTES
        self.capacity = min(int(self.slots * load_factor), self.slots)
        self._bits_max = memory_bytes  # a quarter of the memory, two bits an offset
        if self.capacity < 1:
            raise InvalidConfig(
                f"log.cleaner.dedupe.buffer.size leaves {memory_bytes} bytes to a cleaner thread, "
                f"which at a load factor of {load_factor} hold no key at all"
            )
        self._inflater = BatchInflater()
        # state of the build at hand
        self._slots: Int64s = np.empty(0, np.int64)
        # the two rows, one after the other; empty when there are none
        self._bits_memory = self.bits = _NO_BITS
        self._cells = np.zeros(MAP_CELL_COUNT, np.int64)
        self._pending = np.zeros((PENDING_MAX, PENDING_COLUMN_COUNT), np.int64)
        self._scratch = np.zeros(SCRATCH_BYTES, np.uint8)
        self.clear()

    @property
    def size(self) -> int:
        """Keys."""
        return int(self._cells[_SIZE])

    @property
    def latest_offset(self) -> int:
        """The last offset that is covered; -1: none."""
        return int(self._cells[_LATEST])

    @property
    def utilization(self) -> float:
        """Keys by slots."""
        return self.size / self.slots

    @property
    def records_read(self) -> int:
        """Records that `index` went through since `clear`, put or not."""
        return int(self._cells[_RECORDS_READ])

    @property
    def bits_first(self) -> int:
        """Offset of the first bit."""
        return int(self._cells[_BITS_FIRST])

    @property
    def bits_end(self) -> int:
        """After the last offset of which the bit rows know everything; no less than bits_first."""
        known = min(self.bits_first + int(self._cells[_BITS_COUNT]), self.latest_offset + 1)
        return max(known, self.bits_first)

    def clear(self, first_offset: int = 0, end_offset: int = 0) -> None:
        """Forget everything and get ready for the offsets from first_offset on, before end_offset.

        Bit rows are kept over this range if it is not too long for the memory.
        """
        if self.size:
            self._slots[:] = 0
        count = max(end_offset - first_offset, 0)
        row_bytes = (count + 63) // 64 * 8
        self._cells[:] = 0
        self._cells[MapCell.CAPACITY] = self.capacity
        self._cells[MapCell.PROCESSOR_LEVEL] = LEVEL
        self._cells[_LATEST] = -1
        self._cells[_BITS_FIRST] = first_offset
        if not count or 8 * row_bytes > self._bits_max:
            self.bits = _NO_BITS
            return
        if len(self._bits_memory) < 2 * row_bytes:
            self._bits_memory = np.zeros(2 * row_bytes, np.uint8)
        self.bits = self._bits_memory[: 2 * row_bytes]
        self.bits[:] = 0
        self._cells[_BITS_COUNT] = count

    def note_latest(self, offset: int) -> None:
        """Everything up to this offset is covered: a gap at the end of a segment."""
        self._cells[_LATEST] = max(self.latest_offset, offset)

    def index(self, batches: RecordBatches, skip: Flags, start_offset: int) -> bool:
        """Pass 1 over one chunk: put the keyed records with an offset >= start_offset.

        skip  a flag per batch: control batch or aborted data, read but not put
        True: the map is full; the next keyed record, if only in the middle of a batch, did not go
        in, and latest_offset says how far the map reaches. Otherwise it reaches to the end of the
        last batch. Raises CorruptBatch for a batch that has to be put and is damaged; those before
        it are in the map.
        """
        if not len(self._slots):
            self._slots = np.zeros(self.slots * SLOT_WORDS, np.int64)
        rows = batches.rows
        compressed = np.flatnonzero(rows.column(BatchColumn.ATTRIBUTES) & CODEC_MASK)
        if len(compressed):
            is_read = ~skip & (rows.column(BatchColumn.LAST_OFFSET) >= start_offset)
            compressed = compressed[is_read[compressed]]
        for group in self._inflater.groups(batches, compressed):
            status = index_batches(
                batches.data,
                rows.table,
                group.data,
                group.plain_table,
                skip.view(np.uint8),
                group.first_row,
                group.end_row,
                start_offset,
                self._slots,
                self.bits,
                self._pending,
                self._scratch,
                self._cells,
            )
            row = int(self._cells[_ROW])
            if status == MapStatus.BAD_CRC:
                raise batches.wrong_crc(row)
            if status < 0:
                raise batches.malformed(row, status)
            if status == MapStatus.FULL:
                return True
        return False

    def look_up(self, data: Bytes, table: Int64Table, orders: Int64Table, flags: Bytes) -> int:
        """Flag superseded records: `look_up_batches`; the row of a fault is `fault_row`.

        An empty map supersedes nothing, and its batches count as not looked up.
        """
        if not self.size:
            flags[:] = 0
            return 0
        return look_up_batches(
            data, table, orders, self._slots, flags, self._pending, self._scratch, self._cells
        )

    @property
    def fault_row(self) -> int:
        """The row in which the last look-up found a fault."""
        return int(self._cells[_ROW])

    def get(self, key: bytes) -> int:
        """The last offset of a key; -1: absent. For tests and tools."""
        if not self.size:
            return -1
        self._pending[0, PendingColumn.KEY_POSITION] = 0
        self._pending[0, PendingColumn.KEY_LENGTH] = len(key)
        hash_keys(np.frombuffer(key, np.uint8), self._pending, 1, self._scratch, LEVEL)
        return find_offset(self._pending, self._slots)
