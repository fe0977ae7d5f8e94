"""Write fetched records and produce receipts as JSON text.

Owns the shape of one record of a v2 fetch answer (http-api.md 3.3), base64, the escaping of JSON
strings and the choice of the records that belong on the page. Never checks stored JSON: the spans
of what it copied go to `json_text.check_values`. Batches were checked when they were stored, yet
every read is bounded. Any thread.

A page is written in turns: `write_records` stops when the output must grow, the caller enlarges
it and calls again with the same state.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, cast

import numpy as np

from kafkalog.kernels.compile import (
    BYTES,
    BYTES_OUT,
    I64,
    I64_TABLE_OUT,
    I64S,
    I64S_OUT,
    inlined,
    kernel,
)

if TYPE_CHECKING:
    from kafkalog.kernels.compile import Bytes, Int64s, Int64Table

as_int = cast("type[int]", np.int64)  # an uint8 would stay unsigned under int()


class EmbeddedKind(enum.IntEnum):
    """How key and value appear."""

    BINARY = 0  # base64
    JSON = 1  # as stored
    TEXT = 2  # a JSON string


class PageStatus(enum.IntEnum):
    """Why `write_records` came back."""

    BATCH_DONE = 0
    GROW = 1  # enlarge out and call again
    PAGE_FULL = 2  # max_bytes or end_offset reached
    BAD_TEXT = 3  # FAILED_OFFSET, FAILED_IS_VALUE; text format only
    BAD_RECORD = 4  # the batch's records break their format


class PageCell(enum.IntEnum):
    """The state of a page; the first group is set by the caller for each page or batch."""

    FORMAT = 0
    FROM_OFFSET = 1  # records below are skipped
    END_OFFSET = 2  # records from here on are not written
    MAX_BYTES = 3  # of keys and values; the first record is always written
    BASE_OFFSET = 4  # of the batch
    BASE_TIMESTAMP = 5
    APPEND_TIMESTAMP = 6  # replaces every record's when IS_APPEND_TIME
    IS_APPEND_TIME = 7
    RECORDS_LEFT = 8  # of the batch
    POSITION = 9  # of the next record in the batch
    OUT_POSITION = 10
    PAYLOAD_BYTES = 11
    COUNT = 12
    NEXT_OFFSET = 13  # behind the last record written or skipped
    SPANS = 14  # json format: rows of spans in use, two a record
    FAILED_OFFSET = 15
    FAILED_IS_VALUE = 16


_ROW_CELLS = 9
_FIRST_ROW_CELL = len(PageCell)
PAGE_CELL_COUNT = _FIRST_ROW_CELL + _ROW_CELLS
"""The cells of PageCell and behind them the fields of the record at hand."""

SPAN_BYTES = 32
"""A record has two spans and more than 64 bytes of text: `len(out) // SPAN_BYTES` rows suffice."""

SPAN_COLUMN_COUNT = 4

_JSON = int(EmbeddedKind.JSON)
_TEXT = int(EmbeddedKind.TEXT)
_BATCH_DONE = int(PageStatus.BATCH_DONE)
_GROW = int(PageStatus.GROW)
_PAGE_FULL = int(PageStatus.PAGE_FULL)
_BAD_TEXT = int(PageStatus.BAD_TEXT)
_BAD_RECORD = int(PageStatus.BAD_RECORD)
_FORMAT = int(PageCell.FORMAT)
_FROM_OFFSET = int(PageCell.FROM_OFFSET)
_END_OFFSET = int(PageCell.END_OFFSET)
_MAX_BYTES = int(PageCell.MAX_BYTES)
_BASE_OFFSET = int(PageCell.BASE_OFFSET)
_BASE_TIMESTAMP = int(PageCell.BASE_TIMESTAMP)
_APPEND_TIMESTAMP = int(PageCell.APPEND_TIMESTAMP)
_IS_APPEND_TIME = int(PageCell.IS_APPEND_TIME)
_RECORDS_LEFT = int(PageCell.RECORDS_LEFT)
_POSITION = int(PageCell.POSITION)
_OUT_POSITION = int(PageCell.OUT_POSITION)
_PAYLOAD_BYTES = int(PageCell.PAYLOAD_BYTES)
_COUNT = int(PageCell.COUNT)
_NEXT_OFFSET = int(PageCell.NEXT_OFFSET)
_SPANS = int(PageCell.SPANS)
_FAILED_OFFSET = int(PageCell.FAILED_OFFSET)
_FAILED_IS_VALUE = int(PageCell.FAILED_IS_VALUE)

# Fields of one record, relative to the row that _read_record fills.
_TIMESTAMP_DELTA, _OFFSET_DELTA, _KEY_AT, _KEY_SIZE, _VALUE_AT, _VALUE_SIZE = 0, 1, 2, 3, 4, 5
_HEADERS_AT, _HEADER_COUNT, _RECORD_END = 6, 7, 8

_BASE64 = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8
)
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_NULL = np.frombuffer(b"null", np.uint8)
_VALUE_NAME = np.frombuffer(b',"value":', np.uint8)
_TIMESTAMP_NAME = np.frombuffer(b',"timestamp":', np.uint8)
_HEADERS_NAME = np.frombuffer(b',"headers":[', np.uint8)
_HEADER_OPENING = np.frombuffer(b'{"key":', np.uint8)
_RECEIPT_OPENING = np.frombuffer(b'{"partition":', np.uint8)
_RECEIPT_OFFSET = np.frombuffer(b',"offset":', np.uint8)
_RECEIPT_END = np.frombuffer(b',"error_code":null,"error":null}', np.uint8)

RECEIPT_BYTES_MAX = len(_RECEIPT_OPENING) + len(_RECEIPT_OFFSET) + len(_RECEIPT_END) + 42
_RECORD_TEXT_MAX = 128  # names, brackets and two numbers of a record, without the fixed texts
_HEADER_TEXT_MAX = 32
_ESCAPE_GROWTH = 6  # \u00XX, or three bytes of a replacement character


@inlined
def _read_varint(buffer: Bytes, position: int, end: int) -> tuple[int, int]:
    """(value, next position) of a zigzag varint of up to ten bytes; next position -1 when none."""
    raw = as_int(0)
    shift = as_int(0)
    while position < end and shift < 70:
        byte = as_int(buffer[position])
        position += 1
        raw |= (byte & 127) << shift
        if byte < 128:
            return ((raw >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(raw & 1), position
        shift += 7
    return as_int(0), -1


@inlined
def _read_span(buffer: Bytes, position: int, end: int) -> tuple[int, int]:
    """(length or -1, position of the bytes) of a length-prefixed field; position -1 when bad."""
    length, position = _read_varint(buffer, position, end)
    if position < 0 or length > end - position:
        return as_int(-1), -1
    return max(length, -1), position


@inlined
def _read_record(buffer: Bytes, start: int, row: Int64s) -> bool:
    """Fill row with the fields of the record at start; False when it breaks its format."""
    size, position = _read_varint(buffer, start, len(buffer))
    if position < 0 or size < 1 or size > len(buffer) - position:
        return False
    end = position + size
    row[_RECORD_END] = end
    row[_TIMESTAMP_DELTA], position = _read_varint(buffer, position + 1, end)
    if position < 0:
        return False
    row[_OFFSET_DELTA], position = _read_varint(buffer, position, end)
    if position < 0:
        return False
    row[_KEY_SIZE], position = _read_span(buffer, position, end)
    if position < 0:
        return False
    row[_KEY_AT] = position
    row[_VALUE_SIZE], position = _read_span(buffer, position + max(row[_KEY_SIZE], 0), end)
    if position < 0:
        return False
    row[_VALUE_AT] = position
    count, position = _read_varint(buffer, position + max(row[_VALUE_SIZE], 0), end)
    row[_HEADER_COUNT] = count
    row[_HEADERS_AT] = position
    return position >= 0 and 0 <= count <= end - position


@inlined
def _put(out: Bytes, position: int, text: Bytes) -> int:
    """Copy a fixed text; position behind it."""
    for index in range(len(text)):
        out[position + index] = text[index]
    return position + len(text)


@inlined
def _put_number(out: Bytes, position: int, number: int) -> int:
    """Write a decimal number; position behind it."""
    if number < 0:
        out[position] = 45
        position += 1
        if number == -9223372036854775808:  # has no positive twin
            out[position] = 57
            position += 1
            number = as_int(-223372036854775808)
        number = -number
    size = 1
    rest = number
    while rest > 9:
        rest //= 10
        size += 1
    for index in range(size - 1, -1, -1):
        out[position + index] = 48 + number % 10
        number //= 10
    return position + size


@inlined
def _put_base64(source: Bytes, start: int, length: int, out: Bytes, position: int) -> int:
    """Write a quoted base64 string with padding; position behind it."""
    out[position] = 34
    position += 1
    end = start + length
    while end - start >= 3:
        word = (
            as_int(source[start]) << 16 | as_int(source[start + 1]) << 8 | as_int(source[start + 2])
        )
        out[position] = _BASE64[word >> 18]
        out[position + 1] = _BASE64[word >> 12 & 63]
        out[position + 2] = _BASE64[word >> 6 & 63]
        out[position + 3] = _BASE64[word & 63]
        start += 3
        position += 4
    if end > start:
        word = as_int(source[start]) << 16
        if end - start == 2:
            word |= as_int(source[start + 1]) << 8
        out[position] = _BASE64[word >> 18]
        out[position + 1] = _BASE64[word >> 12 & 63]
        out[position + 2] = _BASE64[word >> 6 & 63] if end - start == 2 else 61
        out[position + 3] = 61
        position += 4
    out[position] = 34
    return position + 1


@inlined
def _utf8_length(text: Bytes, position: int, end: int) -> int:
    """Bytes of the character of two or more at position; minus the bytes to replace if ill-formed.

    What is replaced is the longest start of a character, at least one byte (Unicode 3.9, U+FFFD).
    """
    lead = as_int(text[position])
    if lead < 0xC2 or lead > 0xF4:
        return -1
    size = 2 if lead < 0xE0 else (3 if lead < 0xF0 else 4)
    if position + 1 >= end:
        return -1
    second = as_int(text[position + 1])
    low = 0xA0 if lead == 0xE0 else (0x90 if lead == 0xF0 else 0x80)
    high = 0x9F if lead == 0xED else (0x8F if lead == 0xF4 else 0xBF)
    if second < low or second > high:
        return -1
    for index in range(2, size):
        if position + index >= end or text[position + index] & 0xC0 != 0x80:
            return -index
    return size


@inlined
def _put_escape(byte: int, out: Bytes, position: int) -> int:
    """Write the escape of a quote, a backslash or a control character; position behind it."""
    out[position] = 92
    letter = 0
    if byte == 34 or byte == 92:
        letter = byte
    elif byte == 10:
        letter = 110
    elif byte == 13:
        letter = 114
    elif byte == 9:
        letter = 116
    elif byte == 8:
        letter = 98
    elif byte == 12:
        letter = 102
    if letter:
        out[position + 1] = letter
        return position + 2
    out[position + 1] = 117
    out[position + 2] = 48
    out[position + 3] = 48
    out[position + 4] = _HEX[byte >> 4]
    out[position + 5] = _HEX[byte & 15]
    return position + 6


@inlined
def _put_string(
    source: Bytes, start: int, length: int, out: Bytes, position: int, replace: bool
) -> int:
    """Write UTF-8 as a JSON string; position behind it, -1 when ill-formed and not replaced."""
    out[position] = 34
    position += 1
    end = start + length
    while start < end:
        byte = as_int(source[start])
        if byte < 128:
            if byte < 32 or byte == 34 or byte == 92:
                position = _put_escape(byte, out, position)
            else:
                out[position] = byte
                position += 1
            start += 1
            continue
        size = _utf8_length(source, start, end)
        if size > 0:
            for index in range(size):
                out[position + index] = source[start + index]
            position += size
            start += size
        elif replace:
            out[position] = 0xEF
            out[position + 1] = 0xBF
            out[position + 2] = 0xBD
            position += 3
            start -= size
        else:
            return -1
    out[position] = 34
    return position + 1


@inlined
def _put_headers(source: Bytes, row: Int64s, out: Bytes, position: int) -> int:
    """Write the headers member; position behind it, -1 when they break their format."""
    position = _put(out, position, _HEADERS_NAME)
    at, end = row[_HEADERS_AT], row[_RECORD_END]
    for index in range(row[_HEADER_COUNT]):
        if index > 0:
            out[position] = 44
            position += 1
        length, at = _read_span(source, at, end)
        if at < 0 or length < 0:
            return -1
        position = _put(out, position, _HEADER_OPENING)
        position = _put_string(source, at, length, out, position, True)
        length, at = _read_span(source, at + length, end)
        if at < 0:
            return -1
        position = _put(out, position, _VALUE_NAME)
        if length < 0:
            position = _put(out, position, _NULL)
        else:
            position = _put_base64(source, at, length, out, position)
            at += length
        out[position] = 125
        position += 1
    out[position] = 93
    return position + 1


@inlined
def _put_payload(
    source: Bytes,
    row: Int64s,
    is_value: int,
    out: Bytes,
    position: int,
    spans: Int64Table,
    state: Int64s,
) -> int:
    """Write a key or a value in the page's format; position behind it, -1 when not text."""
    start = row[_VALUE_AT] if is_value else row[_KEY_AT]
    length: int = row[_VALUE_SIZE] if is_value else row[_KEY_SIZE]
    if length < 0:
        return _put(out, position, _NULL)
    if state[_FORMAT] == _TEXT:
        return _put_string(source, start, length, out, position, False)
    if state[_FORMAT] != _JSON:
        return _put_base64(source, start, length, out, position)
    for index in range(length):
        out[position + index] = source[start + index]
    slot = state[_SPANS]
    spans[slot, 0] = position
    spans[slot, 1] = position + length
    spans[slot, 2] = state[_BASE_OFFSET] + row[_OFFSET_DELTA]
    spans[slot, 3] = is_value
    state[_SPANS] = slot + 1
    return position + length


@inlined
def _size_bound(row: Int64s, fixed: int, embedded: int) -> int:
    """Bytes that a record cannot exceed in its format; base64 less than doubles."""
    growth = _ESCAPE_GROWTH if embedded == _TEXT else 2
    payload: int = max(row[_KEY_SIZE], 0) + max(row[_VALUE_SIZE], 0)
    headers: int = (row[_RECORD_END] - row[_HEADERS_AT]) * _ESCAPE_GROWTH
    headers += row[_HEADER_COUNT] * _HEADER_TEXT_MAX
    bound: int = payload * growth + headers + fixed + _RECORD_TEXT_MAX
    return bound


@inlined
def _put_record(
    records: Bytes,
    row: Int64s,
    opening: Bytes,
    middle: Bytes,
    out: Bytes,
    spans: Int64Table,
    state: Int64s,
) -> int:
    """Write one record; 0 or the status that stops the page, which then ends before the record."""
    offset = state[_BASE_OFFSET] + row[_OFFSET_DELTA]
    position = state[_OUT_POSITION]
    if state[_COUNT] > 0:
        out[position] = 44
        position += 1
    position = _put(out, position, opening)
    position = _put_payload(records, row, 0, out, position, spans, state)
    if position < 0:
        state[_FAILED_IS_VALUE] = 0
        return _BAD_TEXT
    position = _put(out, position, _VALUE_NAME)
    position = _put_payload(records, row, 1, out, position, spans, state)
    if position < 0:
        state[_FAILED_IS_VALUE] = 1
        return _BAD_TEXT
    position = _put(out, position, middle)
    position = _put_number(out, position, offset)
    position = _put(out, position, _TIMESTAMP_NAME)
    timestamp = state[_BASE_TIMESTAMP] + row[_TIMESTAMP_DELTA]
    if state[_IS_APPEND_TIME] == 1:
        timestamp = state[_APPEND_TIMESTAMP]
    position = _put_number(out, position, timestamp)
    if row[_HEADER_COUNT] > 0:
        position = _put_headers(records, row, out, position)
        if position < 0:
            return _BAD_RECORD
    out[position] = 125
    state[_OUT_POSITION] = position + 1
    return 0


@kernel(I64(BYTES, BYTES, BYTES, BYTES_OUT, I64_TABLE_OUT, I64S_OUT))
def write_records(
    records: Bytes, opening: Bytes, middle: Bytes, out: Bytes, spans: Int64Table, state: Int64s
) -> int:
    """Write the records of one batch from `state` on; return a `PageStatus`.

    records  uint8[n]      the inflated bytes behind the batch header
    opening  uint8[]       `{"topic":"...","key":`
    middle   uint8[]       `,"partition":N,"offset":`
    out      uint8[m]      output, written from OUT_POSITION on
    spans    int64[k, 4]   json format: start and end in out, offset, is value; k >= m // SPAN_BYTES
    state    int64[PAGE_CELL_COUNT]   `PageCell` and working memory
    """
    row = state[_FIRST_ROW_CELL:]
    fixed = len(opening) + len(middle)
    while state[_RECORDS_LEFT] > 0:
        if not _read_record(records, state[_POSITION], row):
            return _BAD_RECORD
        offset = state[_BASE_OFFSET] + row[_OFFSET_DELTA]
        if offset >= state[_END_OFFSET]:
            return _PAGE_FULL
        if offset >= state[_FROM_OFFSET]:
            payload = max(row[_KEY_SIZE], 0) + max(row[_VALUE_SIZE], 0)
            if state[_COUNT] > 0 and payload > state[_MAX_BYTES] - state[_PAYLOAD_BYTES]:
                return _PAGE_FULL
            if _size_bound(row, fixed, state[_FORMAT]) > len(out) - state[_OUT_POSITION]:
                return _GROW
            status = _put_record(records, row, opening, middle, out, spans, state)
            if status != 0:
                state[_FAILED_OFFSET] = offset
                return status
            state[_PAYLOAD_BYTES] += payload
            state[_COUNT] += 1
        state[_NEXT_OFFSET] = offset + 1
        state[_POSITION] = row[_RECORD_END]
        state[_RECORDS_LEFT] -= 1
    return _BATCH_DONE


@kernel(I64(I64S, I64S, BYTES_OUT, I64))
def write_receipts(partitions: Int64s, offsets: Int64s, out: Bytes, position: int) -> int:
    """Write one receipt per record, parted by commas, from position on; return where they end.

    partitions, offsets  int64[n]
    out                  uint8[]    at least n * RECEIPT_BYTES_MAX bytes behind position
    """
    for index in range(len(offsets)):
        if index > 0:
            out[position] = 44
            position += 1
        position = _put(out, position, _RECEIPT_OPENING)
        position = _put_number(out, position, partitions[index])
        position = _put(out, position, _RECEIPT_OFFSET)
        position = _put_number(out, position, offsets[index])
        position = _put(out, position, _RECEIPT_END)
    return position
