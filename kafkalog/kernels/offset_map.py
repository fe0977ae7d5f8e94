"""The cleaner's hash map of keys: put the records of batches, look records up, hash keys.

Owns the slots of `cleaner/skimpy_offset_map.py` and the two bit rows beside them. Kafka's MD5 and
Kafka's size of a slot (24 bytes), but not its probing: an entry lies where the upper half of
`hash * slots` says, or in the next free slot behind it. Two keys with the same MD5 count as one.

Keys are taken from the batches, PENDING_MAX at a time, hashed side by side (`md5.py`) and only then
looked for, so that the processor works on many slots at once instead of waiting for each.

Source: Kafka 4.1 `SkimpyOffsetMap`, `Cleaner.buildOffsetMapForSegment`; log-lifecycle.md 12.3 and
12.4.
"""

from __future__ import annotations

from enum import IntEnum

from kafkalog.kernels.batch_scan import BatchColumn
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
from kafkalog.kernels.loads import load_i32le, load_u32le, store_u32le
from kafkalog.kernels.md5 import (
    BLOCK_BYTES,
    INITIAL_STATE,
    LANES,
    ROW_BYTES,
    STATE_BYTES,
    md5_8_lanes,
    md5_16_lanes,
    md5_32_lanes,
)
from kafkalog.kernels.processor import needs_avx2, needs_avx512vl, prefetch
from kafkalog.kernels.record_fields import (
    MINIMUM_RECORD_BYTES,
    RECORD_COLUMN_COUNT,
    RecordColumn,
    RecordFault,
    as_int,
    read_record,
)

PENDING_MAX = 256
SCRATCH_BYTES = BLOCK_BYTES + STATE_BYTES
SLOT_WORDS = 3
"""First half of the hash, second half, offset + 1 (0: free)."""


class PendingColumn(IntEnum):
    """Keys that wait to be hashed and looked for."""

    KEY_POSITION = 0
    KEY_LENGTH = 1
    OFFSET = 2
    ROW = 3
    RECORD = 4
    """Records read by the call before this one; for `look_up_batches` the flag's place."""
    HASH_LOW = 5
    HASH_HIGH = 6


PENDING_COLUMN_COUNT = len(PendingColumn)


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
    """What `look_up_batches` is told and reports of a batch."""

    FLAGS_START = 0
    """In: place in `flags` of its first record; -1: it is not looked up."""
    SUPERSEDED = 1
    """Out: how many of its records are; -1 when one has no key or no value."""


LOOK_UP_COLUMN_COUNT = len(LookUpColumn)
MAP_CELL_COUNT = len(MapCell) + RECORD_COLUMN_COUNT
"""The cells of MapCell and behind them the fields of the record at hand."""


class MapStatus(IntEnum):
    """Results of the kernels that are no fault."""

    DONE = 0
    FULL = 1
    COMPRESSED = 2
    """The row is a compressed batch with a right CRC: its records have to be inflated first."""
    BAD_CRC = 3
    """The batch of the row is damaged."""


_POSITION, _SIZE = int(BatchColumn.POSITION), int(BatchColumn.SIZE)
_BASE_OFFSET, _LAST_OFFSET = int(BatchColumn.BASE_OFFSET), int(BatchColumn.LAST_OFFSET)
_CRC_STATE = int(BatchColumn.CRC_STATE)
_ATTRIBUTES, _RECORD_COUNT = int(BatchColumn.ATTRIBUTES), int(BatchColumn.RECORD_COUNT)
_KEY_POSITION, _KEY_LENGTH, _OFFSET, _ROW, _RECORD, _HASH_LOW, _HASH_HIGH = 0, 1, 2, 3, 4, 5, 6
_MAP_SIZE, _CAPACITY, _LATEST, _BITS_FIRST, _BITS_COUNT = 0, 1, 2, 3, 4
_RECORDS_READ, _STOP_ROW, _LEVEL = 5, 6, 7
_FIELDS = len(MapCell)
_FLAGS_START, _SUPERSEDED = 0, 1
_DONE, _FULL, _COMPRESSED, _BAD_CRC = 0, 1, 2, 3
_FIELD_OFFSET_DELTA = int(RecordColumn.OFFSET_DELTA)
_FIELD_KEY_POSITION = int(RecordColumn.KEY_POSITION)
_FIELD_KEY_LENGTH = int(RecordColumn.KEY_LENGTH)
_FIELD_VALUE_LENGTH = int(RecordColumn.VALUE_LENGTH)
_FIELD_END = int(RecordColumn.RECORD_END)
_LEFTOVER_IN_BATCH = int(RecordFault.LEFTOVER_IN_BATCH)
_BAD_COUNT, _MISNUMBERED = int(RecordFault.BAD_COUNT), int(RecordFault.MISNUMBERED)
_HEADER = 61
_CODEC_MASK = 7
_A, _B, _C, _D = INITIAL_STATE


@inlined
def _fill_block(
    source: Bytes, key: int, length: int, block: int, lane: int, scratch: Bytes
) -> None:
    """Words of one padded block of a key into its lane, which holds zeros."""
    start = 64 * block
    rest = length - start
    position, target = key + start, 4 * lane
    for _ in range(min(rest // 4, 16)):
        store_u32le(scratch, target, load_u32le(source, position))
        position += 4
        target += ROW_BYTES
    if 0 <= rest < 64:  # the byte behind the key lies in this block
        last = as_int(0x80) << (8 * (rest & 3))
        for index in range(rest & 3):
            last |= as_int(source[position + index]) << (8 * index)
        store_u32le(scratch, target, last)
    if rest < 56:
        store_u32le(scratch, 4 * lane + 14 * ROW_BYTES, length << 3)
        store_u32le(scratch, 4 * lane + 15 * ROW_BYTES, length >> 29)


@inlined
def _start_states(scratch: Bytes) -> None:
    """The state before the first block, in every lane."""
    for lane in range(0, ROW_BYTES, 4):
        store_u32le(scratch, BLOCK_BYTES + lane, _A)
        store_u32le(scratch, BLOCK_BYTES + ROW_BYTES + lane, _B)
        store_u32le(scratch, BLOCK_BYTES + 2 * ROW_BYTES + lane, _C)
        store_u32le(scratch, BLOCK_BYTES + 3 * ROW_BYTES + lane, _D)


@inlined
def _take_hash(scratch: Bytes, lane: int, pending: Int64Table, row: int) -> None:
    """A lane's state as the two halves of a hash."""
    state = BLOCK_BYTES + 4 * lane
    low, high = load_u32le(scratch, state), load_i32le(scratch, state + ROW_BYTES)
    pending[row, _HASH_LOW] = high << 32 | low
    state += 2 * ROW_BYTES
    low, high = load_u32le(scratch, state), load_i32le(scratch, state + ROW_BYTES)
    pending[row, _HASH_HIGH] = high << 32 | low


@kernel(I64(BYTES_OUT))
def _advance_generic(scratch: Bytes) -> int:
    """Advance all lanes of the scratch by its block."""
    for lane in range(0, 4 * LANES, 32):
        md5_8_lanes(scratch, lane, BLOCK_BYTES + lane)
    return 0


@kernel(I64(BYTES_OUT))
def _advance_avx2(scratch: Bytes) -> int:
    """The same for processors of this level."""
    needs_avx2()
    for lane in range(0, 4 * LANES, 64):
        md5_16_lanes(scratch, lane, BLOCK_BYTES + lane)
    return 0


@kernel(I64(BYTES_OUT))
def _advance_avx512(scratch: Bytes) -> int:
    """The same for processors of this level."""
    needs_avx512vl()
    md5_32_lanes(scratch, 0, BLOCK_BYTES)
    return 0


@kernel(I64(BYTES, I64_TABLE_OUT, I64, BYTES_OUT, I64))
def hash_keys(source: Bytes, pending: Int64Table, count: int, scratch: Bytes, level: int) -> int:
    """Fill HASH_LOW and HASH_HIGH of pending[:count] from the spans of their keys; return count.

    source   uint8[n]              holds every span
    pending  int64[m, 7]           `PendingColumn`
    scratch  uint8[SCRATCH_BYTES]  working memory
    level                          `processor.LEVEL`, or a lower one
    """
    for first in range(0, count, LANES):
        end = min(first + LANES, count)
        _start_states(scratch)
        longest = as_int(0)
        for row in range(first, end):
            longest = max(longest, pending[row, _KEY_LENGTH])
        for block in range((longest + 8) // 64 + 1):
            scratch[:BLOCK_BYTES] = 0
            for row in range(first, end):
                length, key = pending[row, _KEY_LENGTH], pending[row, _KEY_POSITION]
                _fill_block(source, key, length, block, row - first, scratch)
            if level >= 2:
                _advance_avx512(scratch)
            elif level == 1:
                _advance_avx2(scratch)
            else:
                _advance_generic(scratch)
            for row in range(first, end):
                if (pending[row, _KEY_LENGTH] + 8) // 64 == block:  # its last one
                    _take_hash(scratch, row - first, pending, row)
    return count


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
    """Mark an offset in one of the two bit rows, if it lies in their range."""
    bit = offset - cells[_BITS_FIRST]
    if 0 <= bit < cells[_BITS_COUNT]:
        bits[(bit >> 3) + bit_row * (len(bits) >> 1)] |= as_int(1) << (bit & 7)


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
            if row > 0 and table[row - 1, _LAST_OFFSET] >= start_offset:
                cells[_LATEST] = max(cells[_LATEST], table[row - 1, _LAST_OFFSET])
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


@kernel(
    I64(BYTES, I64_TABLE, BYTES, I64, I64, I64S_OUT, BYTES_OUT, I64_TABLE_OUT, BYTES_OUT, I64S_OUT)
)
def index_batches(
    source: Bytes,
    table: Int64Table,
    skip: Bytes,
    first_row: int,
    start_offset: int,
    slots: Int64s,
    bits: Bytes,
    pending: Int64Table,
    scratch: Bytes,
    cells: Int64s,
) -> int:
    """Put every keyed record with an offset >= start_offset; a MapStatus or a fault.

    source   uint8[n]              the batches
    table    int64[r, 14]          their rows, from first_row on; see `BatchColumn`
    skip     uint8[r]              1: the batch is counted as read, its records are not put
    slots    int64[3 s]            SLOT_WORDS a slot
    bits     uint8[2 b]            superseded offsets, then offsets without key or value; b may be 0
    pending  int64[256, 7]         working memory
    scratch  uint8[SCRATCH_BYTES]  working memory
    cells    int64[MAP_CELL_COUNT] `MapCell`
    A fault is -(16 * record index + fault) as in `record_scan`, in the batch of cells[ROW]. What
    lies in front of it has been put. FULL: the next keyed record found the map at its capacity.
    """
    fields, level = cells[_FIELDS:], cells[_LEVEL]
    waiting = 0
    records = as_int(0)
    status = as_int(_DONE)
    row = first_row
    while row < table.shape[0]:
        cells[_STOP_ROW] = row
        count = table[row, _RECORD_COUNT]
        if skip[row] != 0:
            records += max(count, 0)
            row += 1
            continue
        if table[row, _LAST_OFFSET] < start_offset:
            records += max(count, 0)
            row += 1
            continue
        base_offset = table[row, _BASE_OFFSET]
        position = table[row, _POSITION]
        end = position + table[row, _SIZE]
        if table[row, _CRC_STATE] == 0 and not has_right_crc(source, position, end, level):
            status = as_int(_BAD_CRC)
            break
        if table[row, _ATTRIBUTES] & _CODEC_MASK:
            status = as_int(_COMPRESSED)
            break
        position += _HEADER
        if count < 0 or count > (end - position) // MINIMUM_RECORD_BYTES:
            status = as_int(-_BAD_COUNT)
            break
        previous_delta = as_int(-1)
        for index in range(count):
            fault = read_record(source, position, end, fields)
            if fault < 0:
                status = -16 * index + fault
                break
            position = fields[_FIELD_END]
            delta = fields[_FIELD_OFFSET_DELTA]
            if delta <= previous_delta or delta > table[row, _LAST_OFFSET] - base_offset:
                status = as_int(-16 * index - _MISNUMBERED)
                break
            previous_delta = delta
            offset = base_offset + delta
            if offset >= start_offset:
                has_key = fields[_FIELD_KEY_LENGTH] >= 0
                if not has_key or fields[_FIELD_VALUE_LENGTH] < 0:
                    _set_bit(bits, 1, offset, cells)
                if has_key:
                    pending[waiting, _KEY_POSITION] = fields[_FIELD_KEY_POSITION]
                    pending[waiting, _KEY_LENGTH] = fields[_FIELD_KEY_LENGTH]
                    pending[waiting, _OFFSET] = offset
                    pending[waiting, _ROW] = row
                    pending[waiting, _RECORD] = records
                    waiting += 1
            records += 1
            if waiting == PENDING_MAX:
                hash_keys(source, pending, waiting, scratch, level)
                done = _put_pending(table, start_offset, pending, waiting, slots, bits, cells)
                if done < waiting:
                    return _FULL
                waiting = 0
        if status < 0:
            break
        if position != end:
            status = -16 * count - _LEFTOVER_IN_BATCH
            break
        row += 1
    hash_keys(source, pending, waiting, scratch, level)
    if _put_pending(table, start_offset, pending, waiting, slots, bits, cells) < waiting:
        return _FULL
    cells[_RECORDS_READ] += records
    cells[_STOP_ROW] = row
    if row > first_row and table[row - 1, _LAST_OFFSET] >= start_offset:
        cells[_LATEST] = max(cells[_LATEST], table[row - 1, _LAST_OFFSET])
    return status


@inlined
def _flag_pending(
    pending: Int64Table, count: int, slots: Int64s, flags: Bytes, batches: Int64Table
) -> None:
    """Flag the keys whose mapped offset is above their own, and count them for their batch."""
    _prefetch_slots(pending, count, slots)
    for index in range(count):
        word = _find(slots, pending[index, _HASH_LOW], pending[index, _HASH_HIGH])
        is_superseded = word >= 0 and pending[index, _OFFSET] < slots[word + 2] - 1
        flags[pending[index, _RECORD]] = 1 if is_superseded else 0
        row = pending[index, _ROW]
        if is_superseded and batches[row, _SUPERSEDED] >= 0:
            batches[row, _SUPERSEDED] += 1


@kernel(
    I64(BYTES, I64_TABLE, I64_TABLE_OUT, I64S_OUT, BYTES_OUT, I64_TABLE_OUT, BYTES_OUT, I64S_OUT)
)
def look_up_batches(
    source: Bytes,
    table: Int64Table,
    batches: Int64Table,
    slots: Int64s,
    flags: Bytes,
    pending: Int64Table,
    scratch: Bytes,
    cells: Int64s,
) -> int:
    """Flag the records whose key has a higher offset in the map; 0 or a fault.

    source   uint8[n]      the batches
    table    int64[r, 14]  their rows; those to look up are not compressed
    batches  int64[r, 2]   `LookUpColumn`
    flags    uint8[m]      out: 1 superseded, 0 not (without a key always 0)
    slots, pending, scratch, cells   as `index_batches`; of the cells only ROW is written
    """
    fields, level = cells[_FIELDS:], cells[_LEVEL]
    waiting = 0
    for row in range(table.shape[0]):
        flag = batches[row, _FLAGS_START]
        if flag < 0:
            continue
        cells[_STOP_ROW] = row
        batches[row, _SUPERSEDED] = 0
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
                batches[row, _SUPERSEDED] = -1
            if fields[_FIELD_KEY_LENGTH] < 0:
                flags[flag + index] = 0
                continue
            pending[waiting, _KEY_POSITION] = fields[_FIELD_KEY_POSITION]
            pending[waiting, _KEY_LENGTH] = fields[_FIELD_KEY_LENGTH]
            pending[waiting, _OFFSET] = base_offset + fields[_FIELD_OFFSET_DELTA]
            pending[waiting, _ROW] = row
            pending[waiting, _RECORD] = flag + index
            waiting += 1
            if waiting == PENDING_MAX:
                hash_keys(source, pending, waiting, scratch, level)
                _flag_pending(pending, waiting, slots, flags, batches)
                waiting = 0
        if position != end:
            return int(-16 * count - _LEFTOVER_IN_BATCH)
    hash_keys(source, pending, waiting, scratch, level)
    _flag_pending(pending, waiting, slots, flags, batches)
    return _DONE


@kernel(I64(I64_TABLE, I64S))
def find_offset(pending: Int64Table, slots: Int64s) -> int:
    """The mapped offset of the hash in the first row of `pending`; -1 when there is none."""
    word = _find(slots, pending[0, _HASH_LOW], pending[0, _HASH_HIGH])
    return as_int(-1) if word < 0 else as_int(slots[word + 2] - 1)
