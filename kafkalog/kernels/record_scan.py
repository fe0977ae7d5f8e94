"""Walk the records of one inflated v2 batch: spans per record, or the facts validation needs.

Owns the structural rules of a record (log-format.md 1.2): lengths inside the body, the body inside
the buffer, exactly the counted number of records and nothing behind the last. Knows nothing of the
batch header; the caller passes the bytes behind it and the header's record count. Any thread.

As in Kafka a key, value or header value length below -1 reads as null (-1), and the surplus bits
of a longest varint are dropped. Source: Kafka 4.1 `DefaultRecord.readFrom`, `ByteUtils`.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from kafkalog.kernels.compile import BYTES, I64, I64_TABLE_OUT, I64S_OUT, inlined, kernel
from kafkalog.kernels.record_fields import read_varint, read_varlong, skip_headers

if TYPE_CHECKING:
    from kafkalog.kernels.compile import Bytes, Int64s, Int64Table


class RecordColumn(enum.IntEnum):
    """Columns of a span table. Positions count from the start of the records' bytes."""

    OFFSET_DELTA = 0
    TIMESTAMP_DELTA = 1
    KEY_POSITION = 2
    KEY_LENGTH = 3  # -1: null
    VALUE_POSITION = 4
    VALUE_LENGTH = 5  # -1: null, a tombstone
    HEADERS_POSITION = 6  # behind the count
    HEADERS_COUNT = 7
    RECORD_END = 8  # behind the last header; the next record begins here
    RECORD_START = 9  # of the size varint


RECORD_COLUMN_COUNT = len(RecordColumn)


class RecordFact(enum.IntEnum):
    """What `validate_records` reports; an index of -1 means that there is none."""

    MAX_TIMESTAMP_DELTA = 0
    MAX_TIMESTAMP_INDEX = 1  # the first record that has it
    MIN_TIMESTAMP_DELTA = 2
    MIN_TIMESTAMP_INDEX = 3
    NULL_KEYS = 4
    FIRST_NULL_KEY_INDEX = 5
    LAST_NULL_KEY_INDEX = 6
    FIRST_MISNUMBERED_INDEX = 7  # offset delta is not the record's index
    LAST_OFFSET_DELTA = 8  # of the last record


_FIRST_ROW_CELL = len(RecordFact)
RECORD_FACT_COUNT = _FIRST_ROW_CELL + RECORD_COLUMN_COUNT
"""The cells of RecordFact and behind them the fields of the record at hand."""


class RecordFault(enum.IntEnum):
    """Why a walk stopped. A negative result is `-(16 * index + fault)`: see `fault_of`."""

    BAD_SIZE = 1  # body size negative or beyond the buffer, or no varint
    BAD_VARINT = 2  # runs past the body, or is longer than five or ten bytes
    BAD_KEY = 3  # key reaches beyond the body
    BAD_VALUE = 4
    BAD_HEADER_COUNT = 5  # negative, or more headers than bytes left
    BAD_HEADER = 6  # negative name length, or name or value beyond the body
    LEFTOVER_IN_RECORD = 7  # fields end before the body does
    LEFTOVER_IN_BATCH = 8  # bytes behind the last counted record
    BAD_COUNT = 9  # the record count is negative or larger than the bytes could hold


def fault_of(status: int) -> tuple[RecordFault, int]:
    """(fault, record index) of a negative status."""
    return RecordFault(-status & 15), -status >> 4


_MINIMUM_RECORD_SIZE = 7  # size, attributes, two deltas, two null lengths, header count

_OFFSET_DELTA = int(RecordColumn.OFFSET_DELTA)
_TIMESTAMP_DELTA = int(RecordColumn.TIMESTAMP_DELTA)
_KEY_POSITION = int(RecordColumn.KEY_POSITION)
_KEY_LENGTH = int(RecordColumn.KEY_LENGTH)
_VALUE_POSITION = int(RecordColumn.VALUE_POSITION)
_VALUE_LENGTH = int(RecordColumn.VALUE_LENGTH)
_HEADERS_POSITION = int(RecordColumn.HEADERS_POSITION)
_HEADERS_COUNT = int(RecordColumn.HEADERS_COUNT)
_RECORD_END = int(RecordColumn.RECORD_END)
_RECORD_START = int(RecordColumn.RECORD_START)

_MAX_TIMESTAMP_DELTA = int(RecordFact.MAX_TIMESTAMP_DELTA)
_MAX_TIMESTAMP_INDEX = int(RecordFact.MAX_TIMESTAMP_INDEX)
_MIN_TIMESTAMP_DELTA = int(RecordFact.MIN_TIMESTAMP_DELTA)
_MIN_TIMESTAMP_INDEX = int(RecordFact.MIN_TIMESTAMP_INDEX)
_NULL_KEYS = int(RecordFact.NULL_KEYS)
_FIRST_NULL_KEY_INDEX = int(RecordFact.FIRST_NULL_KEY_INDEX)
_LAST_NULL_KEY_INDEX = int(RecordFact.LAST_NULL_KEY_INDEX)
_FIRST_MISNUMBERED_INDEX = int(RecordFact.FIRST_MISNUMBERED_INDEX)
_LAST_OFFSET_DELTA = int(RecordFact.LAST_OFFSET_DELTA)

_BAD_SIZE = int(RecordFault.BAD_SIZE)
_BAD_VARINT = int(RecordFault.BAD_VARINT)
_BAD_KEY = int(RecordFault.BAD_KEY)
_BAD_VALUE = int(RecordFault.BAD_VALUE)
_BAD_HEADER_COUNT = int(RecordFault.BAD_HEADER_COUNT)
_BAD_HEADER = int(RecordFault.BAD_HEADER)
_LEFTOVER_IN_RECORD = int(RecordFault.LEFTOVER_IN_RECORD)
_LEFTOVER_IN_BATCH = int(RecordFault.LEFTOVER_IN_BATCH)
_BAD_COUNT = int(RecordFault.BAD_COUNT)


@inlined
def _read_record(buffer: Bytes, start: int, row: Int64s) -> int:
    """Fill one row of the span table; 0, or minus the fault."""
    limit = len(buffer)
    size, position = read_varint(buffer, start, limit)
    if position < 0 or size < 0 or size > limit - position:
        return -_BAD_SIZE
    end = position + size
    if size < 1:
        return -_BAD_VARINT
    position += 1  # attributes: never used, never checked (Kafka)
    timestamp_delta, position = read_varlong(buffer, position, end)
    if position < 0:
        return -_BAD_VARINT
    offset_delta, position = read_varint(buffer, position, end)
    if position < 0:
        return -_BAD_VARINT
    key_length, position = read_varint(buffer, position, end)
    if position < 0 or key_length > end - position:
        return -_BAD_KEY
    row[_KEY_POSITION] = position
    row[_KEY_LENGTH] = max(key_length, -1)
    if key_length > 0:
        position += key_length
    value_length, position = read_varint(buffer, position, end)
    if position < 0 or value_length > end - position:
        return -_BAD_VALUE
    row[_VALUE_POSITION] = position
    row[_VALUE_LENGTH] = max(value_length, -1)
    if value_length > 0:
        position += value_length
    header_count, position = read_varint(buffer, position, end)
    if position < 0 or header_count < 0 or header_count > end - position:
        return -_BAD_HEADER_COUNT
    row[_HEADERS_POSITION] = position
    row[_HEADERS_COUNT] = header_count
    position = skip_headers(buffer, position, end, header_count)
    if position < 0:
        return -_BAD_HEADER
    if position != end:
        return -_LEFTOVER_IN_RECORD
    row[_OFFSET_DELTA] = offset_delta
    row[_TIMESTAMP_DELTA] = timestamp_delta
    row[_RECORD_END] = end
    row[_RECORD_START] = start
    return 0


@kernel(I64(BYTES, I64, I64_TABLE_OUT))
def scan_records(records: Bytes, count: int, table: Int64Table) -> int:
    """Fill one row of `table` per record; return 0 or a negative status (`fault_of`).

    records  uint8[n]       the inflated bytes behind a batch header, all of them
    count                   the header's record count, at most the rows of `table`
    table    int64[m, 10]   `RecordColumn`; rows before a bad record are filled
    """
    if count < 0 or count > len(table) or count > len(records) // _MINIMUM_RECORD_SIZE:
        return -_BAD_COUNT
    position = 0
    for index in range(count):
        row = table[index]
        fault = _read_record(records, position, row)
        if fault < 0:
            return -16 * index + fault
        position = row[_RECORD_END]
    if position != len(records):
        return -16 * count - _LEFTOVER_IN_BATCH
    return 0


@kernel(I64(BYTES, I64, I64S_OUT))
def validate_records(records: Bytes, count: int, facts: Int64s) -> int:
    """Check every record without a table; return 0 or a negative status (`fault_of`).

    records  uint8[n]   the inflated bytes behind a batch header, all of them
    count               the header's record count
    facts    int64[RECORD_FACT_COUNT]   `RecordFact`; complete only when the result is 0
    """
    facts[:_FIRST_ROW_CELL] = -1
    facts[_NULL_KEYS] = 0
    if count < 0 or count > len(records) // _MINIMUM_RECORD_SIZE:
        return -_BAD_COUNT
    row = facts[_FIRST_ROW_CELL:]
    position = 0
    for index in range(count):
        fault = _read_record(records, position, row)
        if fault < 0:
            return -16 * index + fault
        position = row[_RECORD_END]
        delta = row[_TIMESTAMP_DELTA]
        if index == 0 or delta > facts[_MAX_TIMESTAMP_DELTA]:
            facts[_MAX_TIMESTAMP_DELTA] = delta
            facts[_MAX_TIMESTAMP_INDEX] = index
        if index == 0 or delta < facts[_MIN_TIMESTAMP_DELTA]:
            facts[_MIN_TIMESTAMP_DELTA] = delta
            facts[_MIN_TIMESTAMP_INDEX] = index
        if row[_KEY_LENGTH] < 0:
            facts[_NULL_KEYS] += 1
            facts[_LAST_NULL_KEY_INDEX] = index
            if facts[_FIRST_NULL_KEY_INDEX] < 0:
                facts[_FIRST_NULL_KEY_INDEX] = index
        if row[_OFFSET_DELTA] != index and facts[_FIRST_MISNUMBERED_INDEX] < 0:
            facts[_FIRST_MISNUMBERED_INDEX] = index
        facts[_LAST_OFFSET_DELTA] = row[_OFFSET_DELTA]
    if position != len(records):
        return -16 * count - _LEFTOVER_IN_BATCH
    return 0
