"""Write the records of batches into Arrow's columns: ends and bytes, one call per chunk.

Owns the layout of variable-length columns (int32 ends, the bytes of all rows in sequence, one byte
a row for "not null"), the bounds of an answer and the end of a chunk. Knows neither pyarrow nor
batch headers: the caller gives the positions of records and the facts of their batch. Batches were
checked when they were stored, yet every read is bounded. Any thread.

Header names are text in Arrow: invalid UTF-8 becomes U+FFFD, as in the JSON formats.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from kafkalog.kernels.compile import BYTES, I64, I64_TABLE, I64_TABLE_OUT, I64S_OUT, inlined, kernel
from kafkalog.kernels.json.utf8 import utf8_length
from kafkalog.kernels.records.record_scan import (
    RECORD_COLUMN_COUNT,
    RecordColumn,
    as_int,
    copy_bytes,
    read_record,
    read_varint,
)
from kafkalog.kernels.signature import Array

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from kafkalog.kernels.compile import Bytes, Int64s, Int64Table

    Int32Table = npt.NDArray[np.int32]
    ByteTable = npt.NDArray[np.uint8]


class SourceColumn(enum.IntEnum):
    """One row per batch whose records are wanted, in offset order."""

    START = 0  # of the first record in the source
    END = 1  # of the last one
    RECORD_COUNT = 2
    BASE_OFFSET = 3
    NEXT_OFFSET = 4  # after the batch
    BASE_TIMESTAMP = 5
    APPEND_TIMESTAMP = 6  # every record's, when IS_APPEND_TIME
    IS_APPEND_TIME = 7


class FillStatus(enum.IntEnum):
    """Why `fill_columns` came back."""

    SOURCE_DONE = 0  # every record below END_OFFSET is in
    CHUNK_FULL = 1  # take the rows, empty the columns, call again; no rows: see DATA_BYTES_NEEDED
    UNTIL_TIMESTAMP = 2  # the current record ends its partition
    ANSWER_FULL = 3  # the current record would pass MAX_RECORDS or MAX_BYTES
    BAD_RECORD = 4  # the current record breaks its format


class FillCell(enum.IntEnum):
    """The state of an answer in the making."""

    # set by the caller
    FROM_OFFSET = 0  # records below are skipped
    END_OFFSET = 1  # records from here on are not written
    UNTIL_TIMESTAMP = 2
    MAX_RECORDS = 3  # of the answer
    MAX_BYTES = 4  # of its keys and values; its first record is always written
    CHUNK_BYTES = 5  # a chunk ends after the record that takes it there
    LEFT_OUT = 6  # sum of OmittedColumn
    # position of the next record
    BATCH = 7  # row of the sources
    RECORDS_LEFT = 8  # of that batch; -1: it was not begun
    POSITION = 9
    NEXT_OFFSET = 10  # after all that was written or skipped
    # of the answer
    COUNT = 11
    PAYLOAD_BYTES = 12
    # of the chunk; the caller clears them
    ROWS = 13
    KEY_BYTES = 14
    VALUE_BYTES = 15
    HEADERS = 16
    NAME_BYTES = 17
    HEADER_VALUE_BYTES = 18
    HEADER_SOURCE_BYTES = 19  # as the headers are encoded in the records
    DATA_BYTES_NEEDED = 20  # what a row of `data` must hold for the current record


class OmittedColumn(enum.IntEnum):
    """Columns that were not requested: every row of them is null."""

    KEY = 1
    VALUE = 2
    HEADERS = 4


class NumberRow(enum.IntEnum):
    """Rows of `numbers`, int64 a record."""

    OFFSET = 0
    TIMESTAMP = 1


class RecordRow(enum.IntEnum):
    """Rows of `records`, int32. Of an ends row the first cell is 0, a record's end one after."""

    KEY_END = 0
    VALUE_END = 1
    HEADERS_END = 2
    TIMESTAMP_TYPE = 3


class HeaderRow(enum.IntEnum):
    """Rows of `headers`, int32: ends as above, a cell a header."""

    NAME_END = 0
    VALUE_END = 1


class PresentRow(enum.IntEnum):
    """Rows of `present`: 1 where the record (the header, in the last row) is not null there."""

    KEY = 0
    VALUE = 1
    HEADERS = 2
    HEADER_VALUE = 3


class DataRow(enum.IntEnum):
    """Rows of `data`: the bytes of a column back to back."""

    KEY = 0
    VALUE = 1
    NAME = 2
    HEADER_VALUE = 3


SOURCE_COLUMN_COUNT = len(SourceColumn)
_FIRST_ROW_CELL = len(FillCell)
FILL_CELL_COUNT = _FIRST_ROW_CELL + RECORD_COLUMN_COUNT
"""The cells of FillCell and after them the fields of the current record."""

HEADER_BYTES_MIN = 2
"""A header takes at least this in a record: a bound of how many there are."""

NAME_GROWTH = 3
"""The bytes of U+FFFD, which may replace one byte of a name."""

I32_TABLE_OUT = Array("int32", 2, is_written=True)
BYTES_TABLE_OUT = Array("uint8", 2, is_written=True)

# Plain integers, in the order of the enums: numba freezes them best.
_START, _END, _RECORD_COUNT, _BASE_OFFSET, _BATCH_NEXT_OFFSET = map(int, list(SourceColumn)[:5])
_BASE_TIMESTAMP, _APPEND_TIMESTAMP, _IS_APPEND_TIME = map(int, list(SourceColumn)[5:])
_SOURCE_DONE, _CHUNK_FULL, _UNTIL, _ANSWER_FULL, _BAD_RECORD = map(int, FillStatus)
_FROM_OFFSET, _END_OFFSET, _UNTIL_TIMESTAMP, _MAX_RECORDS = map(int, list(FillCell)[:4])
_MAX_BYTES, _CHUNK_BYTES, _LEFT_OUT, _BATCH, _RECORDS_LEFT = map(int, list(FillCell)[4:9])
_POSITION, _NEXT_OFFSET, _COUNT, _PAYLOAD_BYTES, _ROWS = map(int, list(FillCell)[9:14])
_KEY_BYTES, _VALUE_BYTES, _HEADERS, _NAME_BYTES = map(int, list(FillCell)[14:18])
_HEADER_VALUE_BYTES, _HEADER_SOURCE_BYTES, _NEEDED = map(int, list(FillCell)[18:])
_NO_KEY, _NO_VALUE, _NO_HEADERS = map(int, OmittedColumn)
_OFFSETS, _TIMESTAMPS = map(int, NumberRow)
_KEY_END, _VALUE_END, _HEADERS_END, _TIMESTAMP_TYPE = map(int, RecordRow)
_NAME_END, _HEADER_VALUE_END = map(int, HeaderRow)
_KEY, _VALUE, _NAME, _HEADER_VALUE = map(int, DataRow)
_KEY_PRESENT, _VALUE_PRESENT, _HEADERS_PRESENT, _HEADER_VALUE_PRESENT = map(int, PresentRow)

_OFFSET_DELTA = int(RecordColumn.OFFSET_DELTA)
_TIMESTAMP_DELTA = int(RecordColumn.TIMESTAMP_DELTA)
_KEY_POSITION = int(RecordColumn.KEY_POSITION)
_KEY_LENGTH = int(RecordColumn.KEY_LENGTH)
_VALUE_POSITION = int(RecordColumn.VALUE_POSITION)
_VALUE_LENGTH = int(RecordColumn.VALUE_LENGTH)
_HEADERS_POSITION = int(RecordColumn.HEADERS_POSITION)
_HEADERS_COUNT = int(RecordColumn.HEADERS_COUNT)
_RECORD_END = int(RecordColumn.RECORD_END)


@inlined
def _put_name(source: Bytes, position: int, length: int, names: Bytes, at: int) -> int:
    """Copy a header's name as UTF-8, ill-formed bytes replaced; position after it."""
    end = position + length
    while position < end:
        byte = source[position]
        if byte < 128:
            names[at] = byte
            at += 1
            position += 1
            continue
        size = utf8_length(source, position, end)
        if size > 0:
            at = copy_bytes(source, position, size, names, at)
            position += size
        else:
            names[at] = 0xEF
            names[at + 1] = 0xBF
            names[at + 2] = 0xBD
            at += NAME_GROWTH
            position -= size
    return at


@inlined
def _put_headers(
    source: Bytes,
    row: Int64s,
    headers: Int32Table,
    present: ByteTable,
    data: ByteTable,
    state: Int64s,
) -> None:
    """Append the headers of the current record, whose spans `read_record` has checked."""
    at, end = row[_HEADERS_POSITION], row[_RECORD_END]
    names, values = data[_NAME], data[_HEADER_VALUE]
    header = state[_HEADERS]
    name_end, value_end = state[_NAME_BYTES], state[_HEADER_VALUE_BYTES]
    for _ in range(row[_HEADERS_COUNT]):
        length, at = read_varint(source, at, end)
        name_end = _put_name(source, at, length, names, name_end)
        length, at = read_varint(source, at + length, end)
        present[_HEADER_VALUE_PRESENT, header] = 1 if length >= 0 else 0
        if length > 0:
            value_end = copy_bytes(source, at, length, values, value_end)
            at += length
        header += 1
        headers[_NAME_END, header] = name_end
        headers[_HEADER_VALUE_END, header] = value_end
    state[_HEADERS] = header
    state[_NAME_BYTES] = name_end
    state[_HEADER_VALUE_BYTES] = value_end
    state[_HEADER_SOURCE_BYTES] += end - row[_HEADERS_POSITION]


@inlined
def _omit(row: Int64s, left_out: int) -> None:
    """Set the fields of the current record that were not requested to null."""
    if left_out & _NO_KEY:
        row[_KEY_LENGTH] = -1
    if left_out & _NO_VALUE:
        row[_VALUE_LENGTH] = -1
    if left_out & _NO_HEADERS:
        row[_HEADERS_COUNT] = 0
        row[_HEADERS_POSITION] = row[_RECORD_END]


@inlined
def _fits(row: Int64s, room: int, state: Int64s) -> bool:
    """Whether each row of data, of this length, has room for its part of the current record."""
    header_bytes: int = NAME_GROWTH * (row[_RECORD_END] - row[_HEADERS_POSITION])
    state[_NEEDED] = max(max(row[_KEY_LENGTH], row[_VALUE_LENGTH]), header_bytes)
    if row[_KEY_LENGTH] > room - state[_KEY_BYTES]:
        return False
    if row[_VALUE_LENGTH] > room - state[_VALUE_BYTES]:
        return False
    header_room: int = room - NAME_GROWTH * state[_HEADER_SOURCE_BYTES]
    return header_bytes <= header_room


@inlined
def _put_record(
    source: Bytes,
    row: Int64s,
    records: Int32Table,
    present: ByteTable,
    headers: Int32Table,
    data: ByteTable,
    state: Int64s,
) -> None:
    """Append key, value and headers of the current record, and count it."""
    at = state[_ROWS]
    length = row[_KEY_LENGTH]
    present[_KEY_PRESENT, at] = 1 if length >= 0 else 0
    if length > 0:
        copy_bytes(source, row[_KEY_POSITION], length, data[_KEY], state[_KEY_BYTES])
        state[_KEY_BYTES] += length
    length = row[_VALUE_LENGTH]
    present[_VALUE_PRESENT, at] = 1 if length >= 0 else 0
    if length > 0:
        copy_bytes(source, row[_VALUE_POSITION], length, data[_VALUE], state[_VALUE_BYTES])
        state[_VALUE_BYTES] += length
    present[_HEADERS_PRESENT, at] = 1 if row[_HEADERS_COUNT] > 0 else 0
    if row[_HEADERS_COUNT] > 0:
        _put_headers(source, row, headers, present, data, state)
    records[_KEY_END, at + 1] = state[_KEY_BYTES]
    records[_VALUE_END, at + 1] = state[_VALUE_BYTES]
    records[_HEADERS_END, at + 1] = state[_HEADERS]
    state[_ROWS] = at + 1
    state[_COUNT] += 1


@inlined
def _stop_before(payload: int, timestamp: int, state: Int64s) -> int:
    """The bound that keeps the current record out of the answer, 0 without one."""
    if timestamp >= state[_UNTIL_TIMESTAMP]:
        return _UNTIL
    if state[_COUNT] >= state[_MAX_RECORDS]:
        return _ANSWER_FULL
    if state[_COUNT] > 0 and payload > state[_MAX_BYTES] - state[_PAYLOAD_BYTES]:
        return _ANSWER_FULL
    return 0


@inlined
def _chunk_bytes(state: Int64s) -> int:
    """Keys, values and headers of the chunk."""
    total: int = state[_KEY_BYTES] + state[_VALUE_BYTES] + state[_HEADER_SOURCE_BYTES]
    return total


@kernel(
    I64(
        BYTES,
        I64_TABLE,
        I64_TABLE_OUT,
        I32_TABLE_OUT,
        BYTES_TABLE_OUT,
        I32_TABLE_OUT,
        BYTES_TABLE_OUT,
        I64S_OUT,
    )
)
def fill_columns(
    source: Bytes,
    batches: Int64Table,
    numbers: Int64Table,
    records: Int32Table,
    present: ByteTable,
    headers: Int32Table,
    data: ByteTable,
    state: Int64s,
) -> int:
    """Append the records of the batches from `state` on to the columns; return a `FillStatus`.

    source   uint8[s]          what the spans of the batches point into, not compressed
    batches  int64[b, 8]       `SourceColumn`; every span within the source
    numbers  int64[2, n]       `NumberRow`
    records  int32[4, n + 1]   `RecordRow`; n is the most rows of a chunk
    present  uint8[4, k]       `PresentRow`; k >= n and k >= h
    headers  int32[2, h + 1]   `HeaderRow`; h >= d // (NAME_GROWTH * HEADER_BYTES_MIN), or left out
    data     uint8[4, d]       `DataRow`; d < 2^31; headers that are left out need no rows
    state    int64[FILL_CELL_COUNT]   `FillCell` and working memory
    """
    row = state[_FIRST_ROW_CELL:]
    rows_max, room = numbers.shape[1], data.shape[1]
    while state[_BATCH] < len(batches):
        batch = batches[state[_BATCH]]
        if state[_RECORDS_LEFT] < 0:
            state[_RECORDS_LEFT] = batch[_RECORD_COUNT]
            state[_POSITION] = batch[_START]
            state[_NEXT_OFFSET] = max(state[_NEXT_OFFSET], batch[_BASE_OFFSET])
        while state[_RECORDS_LEFT] > 0:
            if read_record(source, state[_POSITION], batch[_END], row) < 0:
                return _BAD_RECORD
            offset = batch[_BASE_OFFSET] + row[_OFFSET_DELTA]
            if offset >= state[_END_OFFSET]:
                return _SOURCE_DONE
            if offset >= state[_FROM_OFFSET]:
                timestamp = batch[_BASE_TIMESTAMP] + row[_TIMESTAMP_DELTA]
                if batch[_IS_APPEND_TIME] == 1:
                    timestamp = batch[_APPEND_TIMESTAMP]
                payload = max(row[_KEY_LENGTH], as_int(0)) + max(row[_VALUE_LENGTH], as_int(0))
                status = _stop_before(payload, timestamp, state)
                if status != 0:
                    return status
                _omit(row, state[_LEFT_OUT])
                if state[_ROWS] == rows_max or not _fits(row, room, state):
                    return _CHUNK_FULL
                numbers[_OFFSETS, state[_ROWS]] = offset
                numbers[_TIMESTAMPS, state[_ROWS]] = timestamp
                records[_TIMESTAMP_TYPE, state[_ROWS]] = batch[_IS_APPEND_TIME]
                _put_record(source, row, records, present, headers, data, state)
                state[_PAYLOAD_BYTES] += payload
            state[_NEXT_OFFSET] = max(state[_NEXT_OFFSET], offset + 1)
            state[_POSITION] = row[_RECORD_END]
            state[_RECORDS_LEFT] -= 1
            if _chunk_bytes(state) >= state[_CHUNK_BYTES]:
                return _CHUNK_FULL
        state[_NEXT_OFFSET] = max(state[_NEXT_OFFSET], batch[_BATCH_NEXT_OFFSET])
        state[_BATCH] += 1
        state[_RECORDS_LEFT] = -1
    return _SOURCE_DONE
