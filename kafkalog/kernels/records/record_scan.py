"""Walk the records of one inflated v2 batch: spans per record, or the facts that validation needs.

Owns the count (exactly the declared number of records and no bytes after the last) and the rules of
a single record: lengths inside the body, the body inside the batch. As in Kafka a key, value or
header value length below -1 reads as null (-1), and the surplus bits of a longest varint are
dropped. Knows nothing of the batch header: the caller passes the bytes after it and its record
count. Readers check every byte against the end that they get; writers write into space that their
caller has measured. Any thread.

For several kernel files: `cache.py` covers this file by the digest of each module that imports it.
Source: Kafka 4.1 `DefaultRecordBatch`, `DefaultRecord.readFrom`, `ByteUtils`.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, cast

import numpy as np

from kafkalog.kernels.compile import BYTES, I64, I64_TABLE_OUT, I64S_OUT, inlined, kernel
from kafkalog.kernels.loads import load_u64le, store_u64le

if TYPE_CHECKING:
    from kafkalog.kernels.compile import Bytes, Int64s, Int64Table


as_int = cast("type[int]", np.int64)  # an uint8 would stay unsigned under int()


class RecordColumn(enum.IntEnum):
    """Columns of a span table. Positions count from the start of the records' bytes."""

    OFFSET_DELTA = 0
    TIMESTAMP_DELTA = 1
    KEY_POSITION = 2
    KEY_LENGTH = 3  # -1: null
    VALUE_POSITION = 4
    VALUE_LENGTH = 5  # -1: null, a tombstone
    HEADERS_POSITION = 6  # after the count
    HEADERS_COUNT = 7
    RECORD_END = 8  # after the last header; the next record begins here
    RECORD_START = 9  # of the size varint
    TAIL_POSITION = 10  # of the offset delta: from here on nothing depends on timestamps


RECORD_COLUMN_COUNT = len(RecordColumn)


class RecordFault(enum.IntEnum):
    """Why a walk stopped. A negative result is `-(16 * index + fault)`: see `fault_of`."""

    BAD_SIZE = 1  # body size negative or beyond the buffer, or no varint
    BAD_VARINT = 2  # runs past the body, or is longer than five or ten bytes
    BAD_KEY = 3  # key reaches beyond the body
    BAD_VALUE = 4
    BAD_HEADER_COUNT = 5  # negative, or more headers than bytes left
    BAD_HEADER = 6  # negative name length, or name or value beyond the body
    LEFTOVER_IN_RECORD = 7  # fields end before the body does
    LEFTOVER_IN_BATCH = 8  # bytes after the last counted record
    BAD_COUNT = 9  # the record count is negative or larger than the bytes could hold
    MISNUMBERED = 10  # offsets do not rise, or lie beyond the batch: looked at where it matters


def fault_of(status: int) -> tuple[RecordFault, int]:
    """(fault, record index) of a negative status."""
    return RecordFault(-status & 15), -status >> 4


MINIMUM_RECORD_BYTES = 7
"""Size, attributes, two deltas, two null lengths, header count."""

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
_TAIL_POSITION = int(RecordColumn.TAIL_POSITION)

_BAD_SIZE = int(RecordFault.BAD_SIZE)
_BAD_VARINT = int(RecordFault.BAD_VARINT)
_BAD_KEY = int(RecordFault.BAD_KEY)
_BAD_VALUE = int(RecordFault.BAD_VALUE)
_BAD_HEADER_COUNT = int(RecordFault.BAD_HEADER_COUNT)
_BAD_HEADER = int(RecordFault.BAD_HEADER)
_LEFTOVER_IN_RECORD = int(RecordFault.LEFTOVER_IN_RECORD)


@inlined
def read_varint(buffer: Bytes, position: int, end: int) -> tuple[int, int]:
    """(value, next position) of a zigzag varint; next position -1 when it is none."""
    if position < end and buffer[position] < 128:  # one byte: nearly always
        raw = as_int(buffer[position])
        return (raw >> 1) ^ -(raw & 1), position + 1
    raw = as_int(0)
    shift = 0
    while position < end and shift < 35:
        byte = as_int(buffer[position])
        position += 1
        raw |= (byte & 127) << shift
        if byte < 128:
            raw &= 0xFFFFFFFF
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7
    return as_int(0), -1


@inlined
def read_varlong(buffer: Bytes, position: int, end: int) -> tuple[int, int]:
    """As `read_varint` with up to ten bytes and 64 bits."""
    if position < end and buffer[position] < 128:
        raw = as_int(buffer[position])
        return (raw >> 1) ^ -(raw & 1), position + 1
    raw = as_int(0)
    shift = 0
    while position < end and shift < 70:
        byte = as_int(buffer[position])
        position += 1
        raw |= (byte & 127) << as_int(shift)
        if byte < 128:
            # an int64 shifts its sign in: the mask makes the shift unsigned
            return ((raw >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(raw & 1), position
        shift += 7
    return as_int(0), -1


@inlined
def skip_headers(buffer: Bytes, position: int, end: int, count: int) -> int:
    """Position after the headers; -1: a negative name length, or a field beyond the end."""
    for _ in range(count):
        length, position = read_varint(buffer, position, end)
        if position < 0 or length < 0 or length > end - position:
            return -1
        length, position = read_varint(buffer, position + length, end)
        if position < 0 or length > end - position:
            return -1
        if length > 0:
            position += length
    return position


@inlined
def read_record(buffer: Bytes, start: int, limit: int, row: Int64s) -> int:
    """Fill one row of the span table from the record at start; 0, or minus the fault."""
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
    row[_TAIL_POSITION] = position
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


@inlined
def size_of_zigzag(value: int) -> int:
    """Bytes of a varint or varlong."""
    raw = (value << 1) ^ (value >> 63)
    if raw < 0:  # an uint64 of 2^63 and above
        return 10
    size = 1
    while raw > 127:
        raw >>= 7
        size += 1
    return size


@inlined
def write_zigzag(out: Bytes, position: int, value: int) -> int:
    """Write a varint or varlong; position after it."""
    raw = (value << 1) ^ (value >> 63)
    while raw > 127 or raw < 0:
        out[position] = (raw & 127) | 128
        raw = (raw >> 7) & 0x1FFFFFFFFFFFFFF
        position += 1
    out[position] = raw
    return position + 1


@inlined
def copy_bytes(source: Bytes, start: int, length: int, out: Bytes, position: int) -> int:
    """Copy bytes, eight at a time; position after them."""
    end = position + length
    while end - position >= 8:
        store_u64le(out, position, load_u64le(source, start))
        position += 8
        start += 8
    while position < end:
        out[position] = source[start]
        position += 1
        start += 1
    return end


__all__ = [
    "RECORD_COLUMN_COUNT",
    "RECORD_FACT_COUNT",
    "RecordColumn",
    "RecordFact",
    "RecordFault",
    "fault_of",
    "scan_records",
    "validate_records",
]


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
"""The cells of RecordFact and after them the fields of the current record."""

_LEFTOVER_IN_BATCH = int(RecordFault.LEFTOVER_IN_BATCH)
_BAD_COUNT = int(RecordFault.BAD_COUNT)

_MAX_TIMESTAMP_DELTA = int(RecordFact.MAX_TIMESTAMP_DELTA)
_MAX_TIMESTAMP_INDEX = int(RecordFact.MAX_TIMESTAMP_INDEX)
_MIN_TIMESTAMP_DELTA = int(RecordFact.MIN_TIMESTAMP_DELTA)
_MIN_TIMESTAMP_INDEX = int(RecordFact.MIN_TIMESTAMP_INDEX)
_NULL_KEYS = int(RecordFact.NULL_KEYS)
_FIRST_NULL_KEY_INDEX = int(RecordFact.FIRST_NULL_KEY_INDEX)
_LAST_NULL_KEY_INDEX = int(RecordFact.LAST_NULL_KEY_INDEX)
_FIRST_MISNUMBERED_INDEX = int(RecordFact.FIRST_MISNUMBERED_INDEX)
_LAST_OFFSET_DELTA = int(RecordFact.LAST_OFFSET_DELTA)


@kernel(I64(BYTES, I64, I64_TABLE_OUT))
def scan_records(records: Bytes, count: int, table: Int64Table) -> int:
    """Fill one row of `table` per record; return 0 or a negative status (`fault_of`).

    records  uint8[n]       the inflated bytes after a batch header, all of them
    count                   the header's record count, at most the rows of `table`
    table    int64[m, 11]   `RecordColumn`; rows before a bad record are filled
    """
    if count < 0 or count > len(table) or count > len(records) // MINIMUM_RECORD_BYTES:
        return -_BAD_COUNT
    position = 0
    for index in range(count):
        row = table[index]
        fault = read_record(records, position, len(records), row)
        if fault < 0:
            return -16 * index + fault
        position = row[_RECORD_END]
    if position != len(records):
        return -16 * count - _LEFTOVER_IN_BATCH
    return 0


@kernel(I64(BYTES, I64, I64S_OUT))
def validate_records(records: Bytes, count: int, facts: Int64s) -> int:
    """Check every record without a table; return 0 or a negative status (`fault_of`).

    records  uint8[n]   the inflated bytes after a batch header, all of them
    count               the header's record count
    facts    int64[RECORD_FACT_COUNT]   `RecordFact`; complete only when the result is 0
    """
    facts[:_FIRST_ROW_CELL] = -1
    facts[_NULL_KEYS] = 0
    if count < 0 or count > len(records) // MINIMUM_RECORD_BYTES:
        return -_BAD_COUNT
    row = facts[_FIRST_ROW_CELL:]
    position = 0
    for index in range(count):
        fault = read_record(records, position, len(records), row)
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
