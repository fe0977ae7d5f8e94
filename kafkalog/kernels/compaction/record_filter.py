"""Write the batches that a cleaning retains: whole ones unchanged, others rebuilt.

Owns which records of a batch are retained once the superseded keys are known. Does not hash,
inflate or compress: `plan_batches` decides which compressed batches must be read; the caller
inflates their records and compresses the rebuilt ones (`batch_output.py`, which also owns the
layout of a rebuilt batch).

A batch whose offsets are in the range of the bit rows (see `offset_map.py`) is not parsed when the
bits say that all or none of its records are retained and none lacks a key or a value.

Source: Kafka 4.1 `MemoryRecords.filterTo`, `MemoryRecords.RecordFilter`, `MemoryRecordsBuilder`,
`Cleaner.shouldRetainRecord`.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from kafkalog.kernels.compaction.batch_output import (
    RECORD_GROWTH_MAX,
    OutCell,
    copy_batch,
    empty_batch,
    rebuild_batch,
)
from kafkalog.kernels.compile import (
    BYTES,
    BYTES_OUT,
    I64,
    I64_TABLE,
    I64_TABLE_OUT,
    I64S_OUT,
    Bytes,
    Int64s,
    Int64Table,
    inlined,
    kernel,
)
from kafkalog.kernels.crc32c import has_right_crc
from kafkalog.kernels.loads import load_u64le
from kafkalog.kernels.processor import count_ones
from kafkalog.kernels.records.batch_scan import BatchColumn
from kafkalog.kernels.records.record_scan import (
    MINIMUM_RECORD_BYTES,
    RecordColumn,
    RecordFault,
    as_int,
    read_record,
    read_varint,
    read_varlong,
)


class OrderColumn(IntEnum):
    """The order for each batch."""

    RETENTION = 0
    """`BatchRetention`."""
    DISCARDS = 1
    """1: all of its records are removed (aborted data, an expired marker)."""
    MARKS_EMPTY_TRANSACTION = 2
    """1: a marker whose transaction has no data left: it needs a delete horizon."""
    FLAGS_START = 3
    """`LookUpColumn.FLAGS_START`."""
    SUPERSEDED_COUNT = 4
    """`LookUpColumn.SUPERSEDED_COUNT`; -1 also when its keys were not looked up."""
    NEEDS_LOOK_UP = 5
    """1: its records are matched with the map, and the bit rows do not know them all."""
    INFLATES = 6
    """1: it is compressed, and its records decide what is retained."""


ORDER_COLUMN_COUNT = len(OrderColumn)


class BatchRetention(IntEnum):
    """Kafka's class of this name: what is done with a batch as a whole."""

    DELETE = 0
    """The batch is removed without reading it."""
    DELETE_EMPTY = 1
    """It is removed when no record is retained."""
    RETAIN_EMPTY = 2
    """Without records its header is retained."""


class TombstoneRule(IntEnum):
    """When records without value are removed."""

    PER_BATCH = 0
    """After the delete horizon of their batch, which the first cleaning sets."""
    KEEP = 1
    """Not by this clean; horizons are neither set nor read. `log.cleaner.tombstone.horizon=segment`
    chooses this or DROP for each segment (`cleaner.Cleaner._tombstone_rule`)."""
    DROP = 2
    """By this clean; horizons are neither set nor read."""


class FilterCell(IntEnum):
    """Arguments and results of `filter_batches`, after the cells of `OutCell`; counts add up."""

    LATEST_OFFSET = 3
    """In: records above it are retained."""
    BITS_FIRST = 4
    """In: first offset of the bit rows."""
    BITS_END = 5
    """In: after the last offset that the bit rows know; BITS_FIRST when there are none."""
    NOW_MS = 6
    NEW_HORIZON_MS = 7
    TOMBSTONE_RULE = 8
    ROW = 9
    """Out: the row at which the call stopped."""
    RECORDS_READ = 10
    NULL_KEYS = 11
    """Dropped because they have no key."""
    SUPERSEDED = 12
    EXPIRED_TOMBSTONES = 13
    """Dropped though no later record has their key."""
    ABORTED = 14
    """Dropped with a discarded batch of data."""
    CONTROL = 15
    """Dropped with a discarded control batch."""
    PROCESSOR_LEVEL = 16
    """In: `processor.LEVEL`, or a lower one."""
    FLAGS = 17
    """Of `plan_batches`: records of uncompressed batches to look up."""
    RECORDS_MAX = 18
    """Of `plan_batches`: the most records that an uncompressed batch may hold."""
    ROOM = 19
    """Of `plan_batches`: bytes that all batches may take but for what inflated ones grow by."""


FILTER_CELL_COUNT = len(OutCell) + len(FilterCell)


class FilterStatus(IntEnum):
    """Results that are no fault."""

    DONE = 0
    OUT_FULL = 1
    """`out` is too short."""
    BAD_CRC = 2
    """The row's batch would be changed or removed, and is damaged."""


class BatchOutcome(IntEnum):
    """The outcome of a batch."""

    REMOVED_UNREAD = 0
    """Removed without reading it: bits or look-ups say that all its records are superseded."""
    REMOVED = 1
    """Removed: discarded by its order, or none of its records is retained."""
    COPIED = 2
    """Retained as it is."""
    REBUILT = 3
    """Written with the records that are retained, or with a new delete horizon."""
    EMPTIED = 4
    """Only its header is retained."""


_POSITION, _SIZE = int(BatchColumn.POSITION), int(BatchColumn.SIZE)
_BASE_OFFSET, _LAST_OFFSET = int(BatchColumn.BASE_OFFSET), int(BatchColumn.LAST_OFFSET)
_ATTRIBUTES, _RECORD_COUNT = int(BatchColumn.ATTRIBUTES), int(BatchColumn.RECORD_COUNT)
_CRC_STATE = int(BatchColumn.CRC_STATE)
_BASE_TIMESTAMP = int(BatchColumn.BASE_TIMESTAMP)
_MAX_TIMESTAMP = int(BatchColumn.MAX_TIMESTAMP)
_TIMESTAMP = int(RecordColumn.TIMESTAMP_DELTA)
_TAIL = int(RecordColumn.TAIL_POSITION)
_OFFSET_DELTA, _END = int(RecordColumn.OFFSET_DELTA), int(RecordColumn.RECORD_END)
_KEY_LENGTH, _VALUE_LENGTH = int(RecordColumn.KEY_LENGTH), int(RecordColumn.VALUE_LENGTH)
_BAD_SIZE, _BAD_VARINT = int(RecordFault.BAD_SIZE), int(RecordFault.BAD_VARINT)
_LEFTOVER_IN_BATCH = int(RecordFault.LEFTOVER_IN_BATCH)
_BAD_COUNT, _MISNUMBERED = int(RecordFault.BAD_COUNT), int(RecordFault.MISNUMBERED)
_RETENTION, _DISCARDS = int(OrderColumn.RETENTION), int(OrderColumn.DISCARDS)
_MARKS_EMPTY = int(OrderColumn.MARKS_EMPTY_TRANSACTION)
_FLAGS_START = int(OrderColumn.FLAGS_START)
_SUPERSEDED_COUNT = int(OrderColumn.SUPERSEDED_COUNT)
_NEEDS_LOOK_UP, _INFLATES = int(OrderColumn.NEEDS_LOOK_UP), int(OrderColumn.INFLATES)
_DELETE, _DELETE_EMPTY = int(BatchRetention.DELETE), int(BatchRetention.DELETE_EMPTY)
_RETAIN_EMPTY = int(BatchRetention.RETAIN_EMPTY)
_PER_BATCH, _DROP = int(TombstoneRule.PER_BATCH), int(TombstoneRule.DROP)
_LATEST, _NOW = int(FilterCell.LATEST_OFFSET), int(FilterCell.NOW_MS)
_BITS_FIRST, _BITS_END = int(FilterCell.BITS_FIRST), int(FilterCell.BITS_END)
_NEW_HORIZON, _RULE = int(FilterCell.NEW_HORIZON_MS), int(FilterCell.TOMBSTONE_RULE)
_ROW, _READ = int(FilterCell.ROW), int(FilterCell.RECORDS_READ)
_NULL_KEYS, _SUPERSEDED = int(FilterCell.NULL_KEYS), int(FilterCell.SUPERSEDED)
_EXPIRED, _ABORTED = int(FilterCell.EXPIRED_TOMBSTONES), int(FilterCell.ABORTED)
_CONTROL, _LEVEL = int(FilterCell.CONTROL), int(FilterCell.PROCESSOR_LEVEL)
_FLAGS, _RECORDS_MAX = int(FilterCell.FLAGS), int(FilterCell.RECORDS_MAX)
_ROOM = int(FilterCell.ROOM)
_DONE, _OUT_FULL = int(FilterStatus.DONE), int(FilterStatus.OUT_FULL)
_BAD_CRC = int(FilterStatus.BAD_CRC)
_REMOVED_UNREAD, _REMOVED = int(BatchOutcome.REMOVED_UNREAD), int(BatchOutcome.REMOVED)
_COPIED, _REBUILT = int(BatchOutcome.COPIED), int(BatchOutcome.REBUILT)
_EMPTIED = int(BatchOutcome.EMPTIED)
_UNDECIDED = -1  # no outcome yet: its records must be read, or all of them are discarded
_HEADER = 61
_CODEC_MASK, _LOG_APPEND_TIME_BIT, _CONTROL_BIT, _HORIZON_BIT = 0x07, 0x08, 0x20, 0x40
_NO_HORIZON = -1


@inlined
def _is_set(bits: Bytes, bit_row: int, bit: int) -> bool:
    return bool(bits[(bit >> 3) + bit_row * (len(bits) >> 1)] >> (bit & 7) & 1)


@inlined
def _count_bits(bits: Bytes, bit_row: int, first: int, end: int) -> int:
    """How many of the bits from first on, before end, are set; a row is whole words of 64 bits."""
    start = bit_row * (len(bits) >> 1)
    count = as_int(0)
    for word in range(first >> 6, (end + 63) >> 6):
        number = np.uint64(load_u64le(bits, start + 8 * word))
        low, high = first - 64 * word, end - 64 * word
        if low > 0:
            number = number >> np.uint64(low) << np.uint64(low)
        if high < 64:
            number = number << np.uint64(64 - high)
        count += count_ones(number)
    return count


@inlined
def _drops_tombstones(table: Int64Table, row: int, cells: Int64s) -> bool:
    """Whether records without value are no longer protected.

    `cleaner._may_remove_markers` is the same rule for markers.
    """
    if cells[_RULE] != _PER_BATCH:
        return bool(cells[_RULE] == _DROP)
    has_horizon = table[row, _ATTRIBUTES] & _HORIZON_BIT != 0
    return bool(has_horizon and cells[_NOW] >= table[row, _BASE_TIMESTAMP])


@inlined
def _select_records(
    source: Bytes,
    table: Int64Table,
    row: int,
    flags_start: int,
    flags: Bytes,
    bits: Bytes,
    kept: Int64Table,
    cells: Int64s,
) -> tuple[int, bool]:
    """Rows of `kept` for the retained records: (their number, or the fault; any without value).

    What a row holds as TIMESTAMP_DELTA is then the timestamp itself.
    """
    attributes, base_offset = table[row, _ATTRIBUTES], table[row, _BASE_OFFSET]
    is_control = attributes & _CONTROL_BIT != 0
    base_timestamp = table[row, _BASE_TIMESTAMP]
    drops_tombstones = _drops_tombstones(table, row, cells)
    is_covered = _is_covered(table, row, cells)
    position, end = table[row, _POSITION] + _HEADER, table[row, _POSITION] + table[row, _SIZE]
    count = table[row, _RECORD_COUNT]
    if count < 0 or count > (end - position) // MINIMUM_RECORD_BYTES or count > len(kept):
        return as_int(-_BAD_COUNT), False
    used = as_int(0)
    has_tombstone = False
    previous_delta = as_int(-1)
    for index in range(count):
        fields = kept[used]
        fault = read_record(source, position, end, fields)
        if fault < 0:
            return -16 * index + fault, False
        position, delta = fields[_END], fields[_OFFSET_DELTA]
        has_value = fields[_VALUE_LENGTH] >= 0
        if delta <= previous_delta or delta > table[row, _LAST_OFFSET] - base_offset:
            return as_int(-16 * index - _MISNUMBERED), False
        previous_delta = delta
        offset = base_offset + delta
        if not is_control and offset <= cells[_LATEST]:
            is_superseded = False
            if is_covered:
                is_superseded = _is_set(bits, 0, offset - cells[_BITS_FIRST])
            elif flags_start >= 0:
                is_superseded = flags[flags_start + index] != 0
            if fields[_KEY_LENGTH] < 0 or is_superseded or (not has_value and drops_tombstones):
                has_key = fields[_KEY_LENGTH] >= 0
                cells[(_SUPERSEDED if is_superseded else _EXPIRED) if has_key else _NULL_KEYS] += 1
                continue
        if attributes & _LOG_APPEND_TIME_BIT:
            fields[_TIMESTAMP] = table[row, _MAX_TIMESTAMP]
        else:
            fields[_TIMESTAMP] += base_timestamp
        has_tombstone = has_tombstone or not has_value
        used += 1
    if position != end:
        return -16 * count - _LEFTOVER_IN_BATCH, False
    return used, has_tombstone


@inlined
def _is_covered(table: Int64Table, row: int, cells: Int64s) -> bool:
    """Whether the bit rows know every record of the batch."""
    return bool(
        table[row, _BASE_OFFSET] >= cells[_BITS_FIRST]
        and table[row, _LAST_OFFSET] < cells[_BITS_END]
    )


@inlined
def _known_outcome(
    table: Int64Table, row: int, orders: Int64Table, bits: Bytes, cells: Int64s
) -> int:
    """COPIED or REMOVED_UNREAD when bits or look-ups decide; else its records must be read."""
    count = table[row, _RECORD_COUNT]
    if table[row, _ATTRIBUTES] & _CONTROL_BIT or count == 0:
        return as_int(_UNDECIDED)
    superseded = orders[row, _SUPERSEDED_COUNT]
    if _is_covered(table, row, cells):
        first = table[row, _BASE_OFFSET] - cells[_BITS_FIRST]
        end = table[row, _LAST_OFFSET] - cells[_BITS_FIRST] + 1
        if _count_bits(bits, 1, first, end) > 0:
            return as_int(_UNDECIDED)
        superseded = _count_bits(bits, 0, first, end)
    if superseded == 0:
        return as_int(_COPIED)
    is_removed = superseded == count and orders[row, _RETENTION] == _DELETE_EMPTY
    return as_int(_REMOVED_UNREAD if is_removed else _UNDECIDED)


@inlined
def _select_known(
    source: Bytes, table: Int64Table, row: int, bits: Bytes, kept: Int64Table, cells: Int64s
) -> int:
    """As `_select_records` for a batch whose every offset has a record with key and value.

    The bits know that, as pass 1 has read these records: those that go are stepped over by their
    size, and of the retained ones only the timestamp is read.
    """
    stamp, base_timestamp = table[row, _MAX_TIMESTAMP], table[row, _BASE_TIMESTAMP]
    has_own_stamp = table[row, _ATTRIBUTES] & _LOG_APPEND_TIME_BIT == 0
    first = table[row, _BASE_OFFSET] - cells[_BITS_FIRST]
    position, end = table[row, _POSITION] + _HEADER, table[row, _POSITION] + table[row, _SIZE]
    count, used = table[row, _RECORD_COUNT], as_int(0)
    for index in range(count):
        size, body = read_varint(source, position, end)
        if body < 0 or size < 1 or size > end - body:
            return -16 * index - _BAD_SIZE
        position = body + size
        if _is_set(bits, 0, first + index):
            continue
        delta, tail = read_varlong(source, body + 1, position)
        if tail < 0:
            return -16 * index - _BAD_VARINT
        kept[used, _TIMESTAMP] = base_timestamp + delta if has_own_stamp else stamp
        kept[used, _TAIL] = tail
        kept[used, _END] = position
        used += 1
    if position != end:
        return int(-16 * count - _LEFTOVER_IN_BATCH)
    cells[_SUPERSEDED] += count - used
    return used


@inlined
def _is_known(table: Int64Table, row: int, bits: Bytes, cells: Int64s, room: int) -> bool:
    """Whether `_select_known` may take the batch."""
    base_offset, end_offset = table[row, _BASE_OFFSET], table[row, _LAST_OFFSET] + 1
    count = table[row, _RECORD_COUNT]
    if table[row, _ATTRIBUTES] & _CONTROL_BIT or not _is_covered(table, row, cells):
        return False
    if count != end_offset - base_offset or count > room:
        return False
    first = cells[_BITS_FIRST]
    return _count_bits(bits, 1, base_offset - first, end_offset - first) == 0


@inlined
def _decide(
    table: Int64Table,
    row: int,
    orders: Int64Table,
    outcome: int,
    used: int,
    has_tombstone: bool,
    cells: Int64s,
) -> tuple[int, int]:
    """Delete horizon (below 0: none) and outcome, when `used` records are retained."""
    if used == 0:
        if outcome == _UNDECIDED:
            is_emptied = orders[row, _RETENTION] == _RETAIN_EMPTY
            outcome = as_int(_EMPTIED if is_emptied else _REMOVED)
        return as_int(_NO_HORIZON), outcome
    has_horizon = table[row, _ATTRIBUTES] & _HORIZON_BIT != 0
    if not has_horizon and cells[_RULE] == _PER_BATCH:
        if has_tombstone or orders[row, _MARKS_EMPTY] != 0:
            return cells[_NEW_HORIZON], as_int(_REBUILT)
    horizon = table[row, _BASE_TIMESTAMP] if has_horizon else as_int(_NO_HORIZON)
    return horizon, as_int(_COPIED if used == table[row, _RECORD_COUNT] else _REBUILT)


@inlined
def _is_damaged(
    source: Bytes, table: Int64Table, row: int, orders: Int64Table, outcome: int, level: int
) -> bool:
    """Whether a batch that is changed or removed has a wrong CRC.

    Pass 1 has checked the batches that the bits remove.
    """
    is_removed_by_bits = outcome == _REMOVED_UNREAD and orders[row, _SUPERSEDED_COUNT] < 0
    if outcome == _COPIED or is_removed_by_bits or table[row, _CRC_STATE] != 0:
        return False
    start = table[row, _POSITION]
    return not has_right_crc(source, start, start + table[row, _SIZE], level)


@inlined
def _judge(
    body: Bytes,
    table: Int64Table,
    plain: Int64Table,
    row: int,
    orders: Int64Table,
    flags: Bytes,
    bits: Bytes,
    kept: Int64Table,
    cells: Int64s,
) -> tuple[int, int, int]:
    """What becomes of a batch: (rows of `kept` or the fault, delete horizon, outcome).

    body  holds its records as plain says
    """
    used, has_tombstone, outcome = as_int(0), False, as_int(_UNDECIDED)
    if orders[row, _RETENTION] != _DELETE and orders[row, _DISCARDS] == 0:
        outcome = _known_outcome(table, row, orders, bits, cells)
        if outcome == _UNDECIDED:
            if _is_known(table, row, bits, cells, len(kept)):
                used = _select_known(body, plain, row, bits, kept, cells)
            else:
                start = orders[row, _FLAGS_START]
                used, has_tombstone = _select_records(
                    body, plain, row, start, flags, bits, kept, cells
                )
    horizon, outcome = _decide(table, row, orders, outcome, used, has_tombstone, cells)
    return used, horizon, outcome


@inlined
def _write_batch(
    source: Bytes,
    table: Int64Table,
    body: Bytes,
    plain: Int64Table,
    row: int,
    outcome: int,
    kept: Int64Table,
    used: int,
    horizon: int,
    out: Bytes,
    out_table: Int64Table,
    cells: Int64s,
) -> bool:
    """Write what the outcome leaves; `kept` are records in `body`. False: no room."""
    level = cells[_LEVEL]
    if outcome == _COPIED:
        return copy_batch(source, table, row, out, out_table, cells)
    if outcome == _REBUILT:
        return rebuild_batch(body, plain, row, kept, used, horizon, out, out_table, cells, level)
    if outcome == _EMPTIED:
        return empty_batch(plain, row, out, out_table, cells, level)
    return True


@inlined
def _count_removed(
    table: Int64Table, row: int, orders: Int64Table, outcome: int, cells: Int64s
) -> None:
    """Count the removed records that were not read."""
    count = table[row, _RECORD_COUNT]
    if orders[row, _RETENTION] != _DELETE:
        cells[_READ] += count
    if orders[row, _RETENTION] == _DELETE or orders[row, _DISCARDS] != 0:
        cells[_CONTROL if table[row, _ATTRIBUTES] & _CONTROL_BIT else _ABORTED] += count
    elif outcome == _REMOVED_UNREAD:
        cells[_SUPERSEDED] += count


@kernel(I64(I64_TABLE, I64_TABLE_OUT, BYTES, I64S_OUT), keeps_gil=True)
def plan_batches(table: Int64Table, orders: Int64Table, bits: Bytes, cells: Int64s) -> int:
    """Fill the last four columns of the orders, and FLAGS, RECORDS_MAX and ROOM; returns 0.

    Arguments as of `filter_batches`. Flags are given out to uncompressed batches only.
    """
    flags = records_max = room = as_int(0)
    for row in range(table.shape[0]):
        orders[row, _FLAGS_START] = orders[row, _SUPERSEDED_COUNT] = -1
        orders[row, _INFLATES] = 0
        attributes = table[row, _ATTRIBUTES]
        is_read = orders[row, _RETENTION] != _DELETE and orders[row, _DISCARDS] == 0
        needs_look_up = (
            is_read
            and attributes & _CONTROL_BIT == 0
            and table[row, _BASE_OFFSET] <= cells[_LATEST]
            and not _is_covered(table, row, cells)
        )
        orders[row, _NEEDS_LOOK_UP] = 1 if needs_look_up else 0
        room += table[row, _SIZE]
        if attributes & _CODEC_MASK:
            if is_read and _known_outcome(table, row, orders, bits, cells) == _UNDECIDED:
                orders[row, _INFLATES] = 1
            continue
        count = min(
            table[row, _RECORD_COUNT], (table[row, _SIZE] - _HEADER) // MINIMUM_RECORD_BYTES
        )
        count = max(count, 0)
        records_max = max(records_max, count)
        room += count * RECORD_GROWTH_MAX
        if needs_look_up:
            orders[row, _FLAGS_START] = flags
            flags += count
    cells[_FLAGS], cells[_RECORDS_MAX], cells[_ROOM] = flags, records_max, room
    return 0


@kernel(
    I64(
        BYTES,
        I64_TABLE,
        BYTES,
        I64_TABLE,
        I64_TABLE,
        I64,
        I64,
        BYTES,
        BYTES,
        I64_TABLE_OUT,
        BYTES_OUT,
        I64_TABLE_OUT,
        I64S_OUT,
        I64S_OUT,
    )
)
def filter_batches(
    source: Bytes,
    table: Int64Table,
    inflated: Bytes,
    plain: Int64Table,
    orders: Int64Table,
    first_row: int,
    end_row: int,
    flags: Bytes,
    bits: Bytes,
    kept: Int64Table,
    out: Bytes,
    out_table: Int64Table,
    outcomes: Int64s,
    cells: Int64s,
) -> int:
    """Filter the batches from first_row on before end_row into `out`; a FilterStatus or a fault.

    source       uint8[n]      the batches
    table        int64[r, 14]  their rows; see `BatchColumn`
    inflated     uint8[i]      the records of batches with the order INFLATES
    plain        int64[r, 14]  `table`, with positions of `inflated` for those; CRC_STATE VALID
    orders       int64[r, 7]   `OrderColumn`
    flags        uint8[f]      records that `look_up_batches` found superseded
    bits         uint8[2 b]    the bit rows of the map; b may be 0
    kept         int64[k, 11]  working memory; k: the largest record count
    out          uint8[m]      retained batches, from OUT_POSITION on
    out_table    int64[q, 14]  their rows; q >= OUT_ROWS + r
    outcomes     int64[r]      `BatchOutcome`
    cells        int64[20]     `FilterCell`
    An inflated batch is rebuilt uncompressed and without a CRC, its codec in its attributes.
    A fault is -(16 * record index + fault) as in `record_scan` and `offset_map`, in the batch of
    cells[ROW]; it and what follows is not written.
    """
    for row in range(first_row, end_row):
        cells[_ROW] = row
        body = inflated if orders[row, _INFLATES] != 0 else source
        used, horizon, outcome = _judge(body, table, plain, row, orders, flags, bits, kept, cells)
        if used < 0:
            return used
        if _is_damaged(source, table, row, orders, outcome, cells[_LEVEL]):
            return _BAD_CRC
        if not _write_batch(
            source, table, body, plain, row, outcome, kept, used, horizon, out, out_table, cells
        ):
            return _OUT_FULL
        outcomes[row] = outcome
        _count_removed(table, row, orders, outcome, cells)
    cells[_ROW] = end_row
    return _DONE
