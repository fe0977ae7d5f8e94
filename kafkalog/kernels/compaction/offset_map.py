"""The cleaner's hash map of keys: put the records of batches, look records up.

Owns the slots of `cleaner/skimpy_offset_map.py` and the two bit rows beside them. It has Kafka's
MD5 and Kafka's size of a slot (24 bytes), but another probing: an entry is in the slot that the
upper half of `hash * slots` gives, or in the next free one after it. Two keys with the same MD5
count as one.

Keys are taken from the batches, PENDING_MAX at a time, hashed in parallel (`key_hash.py`) and only
then looked up, so that the processor accesses many slots at once instead of waiting for each.
Records of compressed batches are inflated in a separate array.

Source: Kafka 4.1 `SkimpyOffsetMap`, `Cleaner.buildOffsetMapForSegment`.
"""

from __future__ import annotations

from enum import IntEnum

from kafkalog.kernels.compaction.key_hash import PENDING_MAX, hash_keys
from kafkalog.kernels.compile import (
    BYTES,
    BYTES_OUT,
    I64,
    I64_TABLE,
    I64_TABLE_OUT,
    I64S,
    I64S_OUT,
    Bytes,
    Int64s,
    Int64Table,
    inlined,
    kernel,
)
from kafkalog.kernels.crc32c import has_right_crc
from kafkalog.kernels.processor import prefetch
from kafkalog.kernels.records.batch_scan import BatchColumn
from kafkalog.kernels.records.record_scan import (
    MINIMUM_RECORD_BYTES,
    RECORD_COLUMN_COUNT,
    RecordColumn,
    RecordFault,
    as_int,
    read_record,
)

SLOT_WORDS = 3
"""First half of the hash, second half, offset + 1 (0: free)."""


class MapCell(IntEnum):
    """The state of a map that its kernels read and write."""

    SIZE = 0
    CAPACITY = 1
    LATEST_OFFSET = 2
    BITS_FIRST = 3
    """Offset of the first bit of each bit row."""
    BITS_COUNT = 4
    RECORDS_READ = 5
    """Adds up: records that pass 1 read, those of skipped batches as well."""
    ROW = 6
    """Out: the row at which the call stopped."""
    PROCESSOR_LEVEL = 7
    """In: `processor.LEVEL`, or a lower one."""


class LookUpColumn(IntEnum):
    """The columns of the orders of pass 2 (`record_filter.OrderColumn`) that a look-up uses."""

    FLAGS_START = 3
    """In: place in `flags` of the batch's first record; -1: it is not looked up."""
    SUPERSEDED_COUNT = 4
    """Out: how many of its records are; -1 when one has no key or no value."""


MAP_CELL_COUNT = len(MapCell) + RECORD_COLUMN_COUNT
"""The cells of MapCell and after them the fields of the current record."""


class MapStatus(IntEnum):
    """Results of the kernels that are no fault."""

    DONE = 0
    FULL = 1
    """The next keyed record found the map at its capacity."""
    BAD_CRC = 2
    """The batch of the row is damaged."""


_POSITION, _SIZE = int(BatchColumn.POSITION), int(BatchColumn.SIZE)
_BASE_OFFSET, _LAST_OFFSET = int(BatchColumn.BASE_OFFSET), int(BatchColumn.LAST_OFFSET)
_CRC_STATE = int(BatchColumn.CRC_STATE)
_ATTRIBUTES, _RECORD_COUNT = int(BatchColumn.ATTRIBUTES), int(BatchColumn.RECORD_COUNT)
_KEY_POSITION, _KEY_LENGTH, _OFFSET, _ROW, _RECORD, _HASH_LOW, _HASH_HIGH = 0, 1, 2, 3, 4, 5, 6
_MAP_SIZE, _CAPACITY, _LATEST, _BITS_FIRST, _BITS_COUNT = 0, 1, 2, 3, 4
_RECORDS_READ, _STOP_ROW, _LEVEL = 5, 6, 7
_FIELDS = len(MapCell)
_FLAGS_START = int(LookUpColumn.FLAGS_START)
_SUPERSEDED_COUNT = int(LookUpColumn.SUPERSEDED_COUNT)
_DONE, _FULL, _BAD_CRC = 0, 1, 2
_FIELD_OFFSET_DELTA = int(RecordColumn.OFFSET_DELTA)
_FIELD_KEY_POSITION = int(RecordColumn.KEY_POSITION)
_FIELD_KEY_LENGTH = int(RecordColumn.KEY_LENGTH)
_FIELD_VALUE_LENGTH = int(RecordColumn.VALUE_LENGTH)
_FIELD_END = int(RecordColumn.RECORD_END)
_LEFTOVER_IN_BATCH = int(RecordFault.LEFTOVER_IN_BATCH)
_BAD_COUNT, _MISNUMBERED = int(RecordFault.BAD_COUNT), int(RecordFault.MISNUMBERED)
_HEADER = 61
_CODEC_MASK = 7


@inlined
def _first_slot(low: int, count: int) -> int:
    """Where the search for a hash begins among this many slots."""
    return (low & 0xFFFFFFFF) * count >> 32


@inlined
def _prefetch_slots(pending: Int64Table, count: int, slots: Int64s) -> None:
    """Have the memory fetch all slots at once instead of one after the other."""
    for index in range(count):
        slot = _first_slot(pending[index, _HASH_LOW], len(slots) // SLOT_WORDS)
        prefetch(slots, slot * SLOT_WORDS)
        prefetch(slots, slot * SLOT_WORDS + 2)


@inlined
def _find(slots: Int64s, low: int, high: int) -> int:
    """First word of the slot that holds this hash, or of the free slot where it belongs.

    -1: another key is in every slot, which cannot be while the map is below its capacity.
    """
    count = len(slots) // SLOT_WORDS
    slot = _first_slot(low, count)
    for _ in range(count):
        word = slot * SLOT_WORDS
        if slots[word + 2] == 0 or (slots[word] == low and slots[word + 1] == high):
            return word
        slot += 1
        if slot == count:
            slot = as_int(0)
    return as_int(-1)


@inlined
def _set_bit(bits: Bytes, bit_row: int, offset: int, cells: Int64s) -> None:
    """Mark an offset in one of the two bit rows, if it is in their range."""
    bit = offset - cells[_BITS_FIRST]
    if 0 <= bit < cells[_BITS_COUNT]:
        bits[(bit >> 3) + bit_row * (len(bits) >> 1)] |= as_int(1) << (bit & 7)


@inlined
def _note_covered(table: Int64Table, row: int, start_offset: int, cells: Int64s) -> None:
    """The map covers the rows before this one."""
    if row > 0 and table[row - 1, _LAST_OFFSET] >= start_offset:
        cells[_LATEST] = max(cells[_LATEST], table[row - 1, _LAST_OFFSET])


@inlined
def _put_pending(
    table: Int64Table,
    start_offset: int,
    pending: Int64Table,
    count: int,
    slots: Int64s,
    bits: Bytes,
    cells: Int64s,
) -> int:
    """Put hashed keys until the map is full; how many were put.

    When it becomes full, LATEST_OFFSET, RECORDS_READ and ROW are those of the stop.
    """
    _prefetch_slots(pending, count, slots)
    for index in range(count):
        offset = pending[index, _OFFSET]
        if cells[_MAP_SIZE] >= cells[_CAPACITY]:
            row = pending[index, _ROW]
            cells[_STOP_ROW] = row
            cells[_RECORDS_READ] += pending[index, _RECORD]
            _note_covered(table, row, start_offset, cells)
            return index
        low, high = pending[index, _HASH_LOW], pending[index, _HASH_HIGH]
        word = _find(slots, low, high)
        before = slots[word + 2]
        if before == 0:
            slots[word] = low
            slots[word + 1] = high
            cells[_MAP_SIZE] += 1
        elif before - 1 != offset:
            _set_bit(bits, 0, before - 1, cells)
        slots[word + 2] = offset + 1
        cells[_LATEST] = max(cells[_LATEST], offset)
    return count


@inlined
def _flush(
    keys: Bytes,
    table: Int64Table,
    start_offset: int,
    pending: Int64Table,
    count: int,
    slots: Int64s,
    bits: Bytes,
    scratch: Bytes,
    cells: Int64s,
) -> bool:
    """Hash and put the pending keys of `keys`; False: the map became full."""
    hash_keys(keys, pending, count, scratch, cells[_LEVEL])
    return bool(_put_pending(table, start_offset, pending, count, slots, bits, cells) == count)


@inlined
def _readiness(source: Bytes, table: Int64Table, plain: Int64Table, row: int, level: int) -> int:
    """DONE when the records of a batch may be read, else why not."""
    position, size = table[row, _POSITION], table[row, _SIZE]
    if table[row, _CRC_STATE] == 0 and not has_right_crc(source, position, position + size, level):
        return as_int(_BAD_CRC)
    count = table[row, _RECORD_COUNT]
    if count < 0 or count > (plain[row, _SIZE] - _HEADER) // MINIMUM_RECORD_BYTES:
        return as_int(-_BAD_COUNT)
    return as_int(_DONE)


@inlined
def _index_records(
    source: Bytes,
    table: Int64Table,
    row: int,
    start_offset: int,
    slots: Int64s,
    bits: Bytes,
    pending: Int64Table,
    scratch: Bytes,
    cells: Int64s,
    waiting: int,
    records: int,
) -> tuple[int, int, int]:
    """Read one batch: (DONE, FULL or a fault; keys that wait; records read)."""
    fields = cells[_FIELDS:]
    base_offset, span = (
        table[row, _BASE_OFFSET],
        table[row, _LAST_OFFSET] - table[row, _BASE_OFFSET],
    )
    position, end = table[row, _POSITION] + _HEADER, table[row, _POSITION] + table[row, _SIZE]
    previous_delta = as_int(-1)
    for index in range(table[row, _RECORD_COUNT]):
        fault = read_record(source, position, end, fields)
        if fault < 0:
            return -16 * index + fault, waiting, records
        position, delta = fields[_FIELD_END], fields[_FIELD_OFFSET_DELTA]
        if delta <= previous_delta or delta > span:
            return as_int(-16 * index - _MISNUMBERED), waiting, records
        previous_delta = delta
        offset = base_offset + delta
        if offset >= start_offset:
            has_key = fields[_FIELD_KEY_LENGTH] >= 0
            if not has_key or fields[_FIELD_VALUE_LENGTH] < 0:
                _set_bit(bits, 1, offset, cells)
            if has_key:
                _pend(pending, waiting, fields, offset, row, records)
                waiting += 1
        records += 1
        if waiting == PENDING_MAX:
            if not _flush(
                source, table, start_offset, pending, waiting, slots, bits, scratch, cells
            ):
                return as_int(_FULL), waiting, records
            waiting = as_int(0)
    if position != end:
        return -16 * table[row, _RECORD_COUNT] - _LEFTOVER_IN_BATCH, waiting, records
    return as_int(_DONE), waiting, records


@inlined
def _pend(
    pending: Int64Table, waiting: int, fields: Int64s, offset: int, row: int, record: int
) -> None:
    """Let the key of the current record wait."""
    pending[waiting, _KEY_POSITION] = fields[_FIELD_KEY_POSITION]
    pending[waiting, _KEY_LENGTH] = fields[_FIELD_KEY_LENGTH]
    pending[waiting, _OFFSET] = offset
    pending[waiting, _ROW] = row
    pending[waiting, _RECORD] = record


@kernel(
    I64(
        BYTES,
        I64_TABLE,
        BYTES,
        I64_TABLE,
        BYTES,
        I64,
        I64,
        I64,
        I64S_OUT,
        BYTES_OUT,
        I64_TABLE_OUT,
        BYTES_OUT,
        I64S_OUT,
    )
)
def index_batches(
    source: Bytes,
    table: Int64Table,
    inflated: Bytes,
    plain: Int64Table,
    skip: Bytes,
    first_row: int,
    end_row: int,
    start_offset: int,
    slots: Int64s,
    bits: Bytes,
    pending: Int64Table,
    scratch: Bytes,
    cells: Int64s,
) -> int:
    """Put every keyed record with an offset >= start_offset; a MapStatus or a fault.

    source, table    uint8[n], int64[r, 14]  batches and their rows (`BatchColumn`), read from
                     first_row on before end_row
    inflated, plain  uint8[i], int64[r, 14]  records of those that are compressed; the table, but
                     with position and size of these as they lie in `inflated`
    skip             uint8[r]     1: the batch is counted as read, its records are not put
    slots            int64[3 s]   SLOT_WORDS a slot
    bits             uint8[2 b]   superseded offsets, then those without key or value; or empty
    pending, scratch int64[256, 7], uint8[SCRATCH_BYTES]: working memory; cells: `MapCell`
    A fault is -(16 * record index + fault) as in `record_scan`, in the batch of cells[ROW]. What
    lies before it has been put.
    """
    row, keys, is_inflated = first_row, source, False
    waiting = read = status = as_int(0)
    while row < end_row:
        cells[_STOP_ROW] = row
        if skip[row] != 0 or table[row, _LAST_OFFSET] < start_offset:
            read += max(table[row, _RECORD_COUNT], 0)
            row += 1
            continue
        if (table[row, _ATTRIBUTES] & _CODEC_MASK != 0) != is_inflated:
            if not _flush(keys, table, start_offset, pending, waiting, slots, bits, scratch, cells):
                return _FULL
            waiting, is_inflated = as_int(0), not is_inflated
            keys = inflated if is_inflated else source
        status = _readiness(source, table, plain, row, cells[_LEVEL])
        if status == _DONE:
            status, waiting, read = _index_records(
                keys, plain, row, start_offset, slots, bits, pending, scratch, cells, waiting, read
            )
        if status == _FULL:
            return _FULL
        if status != _DONE:
            break
        row += 1
    if not _flush(keys, table, start_offset, pending, waiting, slots, bits, scratch, cells):
        return _FULL
    cells[_RECORDS_READ] += read
    cells[_STOP_ROW] = row
    _note_covered(table, row, start_offset, cells)
    return status


@inlined
def _flag_pending(
    pending: Int64Table, count: int, slots: Int64s, flags: Bytes, orders: Int64Table
) -> None:
    """Flag the keys whose mapped offset is above their own, and count them for their batch."""
    _prefetch_slots(pending, count, slots)
    for index in range(count):
        word = _find(slots, pending[index, _HASH_LOW], pending[index, _HASH_HIGH])
        is_superseded = word >= 0 and pending[index, _OFFSET] < slots[word + 2] - 1
        flags[pending[index, _RECORD]] = 1 if is_superseded else 0
        row = pending[index, _ROW]
        if is_superseded and orders[row, _SUPERSEDED_COUNT] >= 0:
            orders[row, _SUPERSEDED_COUNT] += 1


@kernel(
    I64(BYTES, I64_TABLE, I64_TABLE_OUT, I64S_OUT, BYTES_OUT, I64_TABLE_OUT, BYTES_OUT, I64S_OUT)
)
def look_up_batches(
    source: Bytes,
    table: Int64Table,
    orders: Int64Table,
    slots: Int64s,
    flags: Bytes,
    pending: Int64Table,
    scratch: Bytes,
    cells: Int64s,
) -> int:
    """Flag the records whose key has a higher offset in the map; 0 or a fault.

    source   uint8[n]      the batches
    table    int64[r, 14]  their rows; the records of those to look up lie uncompressed
    orders   int64[r, 7]   see `LookUpColumn`
    flags    uint8[m]      out: 1 superseded, 0 not (without a key always 0)
    slots, pending, scratch, cells   as `index_batches`; of the cells only ROW is written
    """
    fields, level = cells[_FIELDS:], cells[_LEVEL]
    waiting = 0
    for row in range(table.shape[0]):
        flag = orders[row, _FLAGS_START]
        if flag < 0:
            continue
        cells[_STOP_ROW] = row
        orders[row, _SUPERSEDED_COUNT] = 0
        base_offset = table[row, _BASE_OFFSET]
        end = table[row, _POSITION] + table[row, _SIZE]
        position = table[row, _POSITION] + _HEADER
        count = table[row, _RECORD_COUNT]
        if count < 0 or count > (end - position) // MINIMUM_RECORD_BYTES:
            return -_BAD_COUNT
        if count > len(flags) - flag:
            return -_BAD_COUNT
        for index in range(count):
            fault = read_record(source, position, end, fields)
            if fault < 0:
                return -16 * index + fault
            position = fields[_FIELD_END]
            if fields[_FIELD_KEY_LENGTH] < 0 or fields[_FIELD_VALUE_LENGTH] < 0:
                orders[row, _SUPERSEDED_COUNT] = -1
            if fields[_FIELD_KEY_LENGTH] < 0:
                flags[flag + index] = 0
                continue
            offset = base_offset + fields[_FIELD_OFFSET_DELTA]
            _pend(pending, waiting, fields, offset, row, flag + index)
            waiting += 1
            if waiting == PENDING_MAX:
                hash_keys(source, pending, waiting, scratch, level)
                _flag_pending(pending, waiting, slots, flags, orders)
                waiting = 0
        if position != end:
            return int(-16 * count - _LEFTOVER_IN_BATCH)
    hash_keys(source, pending, waiting, scratch, level)
    _flag_pending(pending, waiting, slots, flags, orders)
    return _DONE


@kernel(I64(I64_TABLE, I64S))
def find_offset(pending: Int64Table, slots: Int64s) -> int:
    """The mapped offset of the hash in the first row of `pending`; -1 when there is none."""
    word = _find(slots, pending[0, _HASH_LOW], pending[0, _HASH_HIGH])
    return as_int(-1) if word < 0 else as_int(slots[word + 2] - 1)
