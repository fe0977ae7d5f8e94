"""Write the records of a v2 batch from columns, one call per batch; and the partition of each key.

Owns the encoding of records and record headers, murmur2 with Java's seed, and the step from a hash
to a partition. Writes no batch header. Offset deltas are 0, 1, 2... in the order of the selection.
The input is trusted: columns of kafkalog itself, in an output that the caller sizes by
`measure_records`. A null key has the partition -1: the caller chooses one. Any thread. Source:
Kafka 4.1 `DefaultRecord.writeTo`, `Utils.murmur2`, `BuiltInPartitioner.partitionForKey`.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from kafkalog.kernels.compile import (
    BYTES,
    BYTES_OUT,
    I64,
    I64_TABLE,
    I64_TABLE_OUT,
    I64S,
    I64S_OUT,
    inlined,
    kernel,
)
from kafkalog.kernels.records.record_scan import as_int, copy_bytes, size_of_zigzag, write_zigzag

if TYPE_CHECKING:
    from kafkalog.kernels.compile import Bytes, Int64s, Int64Table


class BuildColumn(enum.IntEnum):
    """Columns of the table of records to build; positions are in the key, value, header blobs."""

    KEY_POSITION = 0
    KEY_LENGTH = 1  # -1: null
    VALUE_POSITION = 2
    VALUE_LENGTH = 3  # -1: null
    HEADERS_POSITION = 4
    HEADERS_LENGTH = 5  # bytes of the encoded headers
    HEADERS_COUNT = 6
    TIMESTAMP = 7  # milliseconds


class BuildFact(enum.IntEnum):
    """What `measure_records` reports of the selected records; timestamps in ms."""

    BASE_TIMESTAMP = 0  # of the first record
    MAX_TIMESTAMP = 1
    MIN_TIMESTAMP = 2
    NULL_KEYS = 3


BUILD_COLUMN_COUNT = len(BuildColumn)
BUILD_FACT_COUNT = len(BuildFact)

_KEY_POSITION = int(BuildColumn.KEY_POSITION)
_KEY_LENGTH = int(BuildColumn.KEY_LENGTH)
_VALUE_POSITION = int(BuildColumn.VALUE_POSITION)
_VALUE_LENGTH = int(BuildColumn.VALUE_LENGTH)
_HEADERS_POSITION = int(BuildColumn.HEADERS_POSITION)
_HEADERS_LENGTH = int(BuildColumn.HEADERS_LENGTH)
_HEADERS_COUNT = int(BuildColumn.HEADERS_COUNT)
_TIMESTAMP = int(BuildColumn.TIMESTAMP)
_BASE_TIMESTAMP = int(BuildFact.BASE_TIMESTAMP)
_MAX_TIMESTAMP = int(BuildFact.MAX_TIMESTAMP)
_MIN_TIMESTAMP = int(BuildFact.MIN_TIMESTAMP)
_NULL_KEYS = int(BuildFact.NULL_KEYS)


@inlined
def _body_size(row: Int64s, timestamp_delta: int, offset_delta: int) -> int:
    """Bytes of one record after its size varint."""
    size: int = 1 + size_of_zigzag(timestamp_delta) + size_of_zigzag(offset_delta)
    size += size_of_zigzag(row[_KEY_LENGTH]) + max(row[_KEY_LENGTH], 0)
    size += size_of_zigzag(row[_VALUE_LENGTH]) + max(row[_VALUE_LENGTH], 0)
    size += size_of_zigzag(row[_HEADERS_COUNT]) + row[_HEADERS_LENGTH]
    return size


@kernel(I64(I64_TABLE_OUT), keeps_gil=True)
def place_records(table: Int64Table) -> int:
    """Fill the position columns from the length columns: fields are adjacent in their blobs.

    table  int64[n, 8]   `BuildColumn`; returns n
    """
    key = value = headers = as_int(0)
    for index in range(len(table)):
        table[index, _KEY_POSITION] = key
        table[index, _VALUE_POSITION] = value
        table[index, _HEADERS_POSITION] = headers
        key += max(table[index, _KEY_LENGTH], 0)
        value += max(table[index, _VALUE_LENGTH], 0)
        headers += table[index, _HEADERS_LENGTH]
    return len(table)


@kernel(I64(I64_TABLE, I64S, I64S_OUT), keeps_gil=True)
def measure_records(table: Int64Table, selection: Int64s, facts: Int64s) -> int:
    """Exact bytes that `build_records` will write; fills `facts`.

    table      int64[n, 8]   `BuildColumn`
    selection  int64[m]      rows of the table, m >= 1, each within the table
    facts      int64[4]      `BuildFact`
    """
    base = table[selection[0], _TIMESTAMP]
    largest = least = base
    null_keys = as_int(0)
    total = as_int(0)
    for index in range(len(selection)):
        row = table[selection[index]]
        largest = max(largest, row[_TIMESTAMP])
        least = min(least, row[_TIMESTAMP])
        null_keys += 1 if row[_KEY_LENGTH] < 0 else 0
        size = _body_size(row, row[_TIMESTAMP] - base, as_int(index))
        total += size + size_of_zigzag(size)
    facts[_BASE_TIMESTAMP] = base
    facts[_MAX_TIMESTAMP] = largest
    facts[_MIN_TIMESTAMP] = least
    facts[_NULL_KEYS] = null_keys
    return total


@kernel(I64(BYTES, BYTES, BYTES, I64_TABLE, I64S, BYTES_OUT, I64))
def build_records(
    keys: Bytes,
    values: Bytes,
    headers: Bytes,
    table: Int64Table,
    selection: Int64s,
    out: Bytes,
    position: int,
) -> int:
    """Write the selected records into `out[position:]`; return the position after them.

    keys, values, headers  uint8[]       blobs that the table points into
    table                  int64[n, 8]   `BuildColumn`
    selection              int64[m]      rows of the table, in the order of their offsets
    out                    uint8[]       holds at least `measure_records` bytes after position
    """
    if len(selection) == 0:
        return position
    base = table[selection[0], _TIMESTAMP]
    for index in range(len(selection)):
        row = table[selection[index]]
        delta = row[_TIMESTAMP] - base
        offset_delta = as_int(index)
        position = write_zigzag(out, position, _body_size(row, delta, offset_delta))
        out[position] = 0
        position = write_zigzag(out, position + 1, delta)
        position = write_zigzag(out, position, offset_delta)
        length = row[_KEY_LENGTH]
        position = write_zigzag(out, position, length)
        position = (
            copy_bytes(keys, row[_KEY_POSITION], length, out, position) if length > 0 else position
        )
        length = row[_VALUE_LENGTH]
        position = write_zigzag(out, position, length)
        if length > 0:
            position = copy_bytes(values, row[_VALUE_POSITION], length, out, position)
        position = write_zigzag(out, position, row[_HEADERS_COUNT])
        position = copy_bytes(headers, row[_HEADERS_POSITION], row[_HEADERS_LENGTH], out, position)
    return position


@kernel(I64(BYTES, I64S, BYTES, I64S, I64S, BYTES_OUT, I64S_OUT))
def encode_headers(
    names: Bytes,
    name_lengths: Int64s,
    values: Bytes,
    value_lengths: Int64s,
    counts: Int64s,
    out: Bytes,
    lengths: Int64s,
) -> int:
    """Encode the headers of all records back to back; return the bytes written.

    names, values                uint8[]    blobs in the order of the headers
    name_lengths, value_lengths  int64[h]   one per header; value length -1 is null
    counts                       int64[n]   headers of each record, summing up to h
    out                          uint8[]    at least len(names) + len(values) + 10 * h bytes
    lengths                      int64[n]   encoded bytes of each record's headers
    """
    position = as_int(0)
    name_position = 0
    value_position = 0
    header = 0
    for index in range(len(counts)):
        start = position
        for _ in range(counts[index]):
            length = name_lengths[header]
            position = write_zigzag(out, position, length)
            position = copy_bytes(names, name_position, length, out, position)
            name_position += length
            length = value_lengths[header]
            position = write_zigzag(out, position, length)
            if length > 0:
                position = copy_bytes(values, value_position, length, out, position)
                value_position += length
            header += 1
        lengths[index] = position - start
    return position


_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_SHIFT = 24
_MASK = 0xFFFFFFFF


@inlined
def _murmur2(data: Bytes, position: int, length: int) -> int:
    """32-bit hash as an unsigned number; products of two 32-bit numbers stay below 2^63."""
    hashed = as_int((_SEED ^ length) & _MASK)
    end = position + length
    while end - position >= 4:
        word = (
            as_int(data[position])
            | as_int(data[position + 1]) << 8
            | as_int(data[position + 2]) << 16
            | as_int(data[position + 3]) << 24
        )
        word = (word * _MULTIPLIER) & _MASK
        word ^= word >> _SHIFT
        word = (word * _MULTIPLIER) & _MASK
        hashed = ((hashed * _MULTIPLIER) & _MASK) ^ word
        position += 4
    rest = end - position
    if rest >= 3:
        hashed ^= as_int(data[position + 2]) << 16
    if rest >= 2:
        hashed ^= as_int(data[position + 1]) << 8
    if rest >= 1:
        hashed ^= as_int(data[position])
        hashed = (hashed * _MULTIPLIER) & _MASK
    hashed ^= hashed >> 13
    hashed = (hashed * _MULTIPLIER) & _MASK
    return hashed ^ (hashed >> 15)


@kernel(I64(BYTES, I64S, I64, I64S_OUT))
def partition_keys(keys: Bytes, lengths: Int64s, partition_count: int, out: Int64s) -> int:
    """Fill `out` with the partition of each key; return how many keys are null.

    keys             uint8[]    keys back to back
    lengths          int64[n]   bytes of each key, -1 for null; their sum is within keys
    partition_count             at least 1
    out              int64[n]   0 <= partition < partition_count, -1 for a null key
    """
    position = 0
    nulls = 0
    for index in range(len(lengths)):
        length = lengths[index]
        if length < 0:
            out[index] = -1
            nulls += 1
        else:
            positive = _murmur2(keys, position, length) & 0x7FFFFFFF
            out[index] = positive % partition_count
            position += length
    return nulls
