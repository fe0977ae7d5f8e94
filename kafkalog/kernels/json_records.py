"""Write fetched records and produce receipts as JSON text.

Owns the shape of one record of a v2 fetch answer (http-api.md 3.3), base64, the escaping of JSON
strings and the choice of the records that belong on the page. Never checks stored JSON: the spans
of what it copied go to `json_text.check_values`. Batches were checked when they were stored, yet
every read is bounded. Any thread.

A page is written in turns: `write_batches` and `write_records` stop when the output must grow; the
caller enlarges it and calls again with the same state.
"""

from __future__ import annotations

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
from kafkalog.kernels.json_page_cells import FIRST_ROW_CELL, EmbeddedKind, PageCell, PageStatus
from kafkalog.kernels.loads import load_i16be, load_i32be, load_i64be

if TYPE_CHECKING:
    from kafkalog.kernels.compile import Bytes, Int64s, Int64Table

as_int = cast("type[int]", np.int64)  # an uint8 would stay unsigned under int()

# Plain integers, in the order of the enums: numba freezes them best.
_BINARY, _JSON, _TEXT = map(int, EmbeddedKind)
_BATCH_DONE, _GROW, _PAGE_FULL, _BAD_TEXT, _BAD_RECORD, _OTHER_BATCH = map(int, PageStatus)
_FORMAT, _FROM_OFFSET, _END_OFFSET, _MAX_BYTES = map(int, list(PageCell)[:4])
_BASE_OFFSET, _BASE_TIMESTAMP, _APPEND_TIMESTAMP, _IS_APPEND_TIME = map(int, list(PageCell)[4:8])
_RECORDS_LEFT, _POSITION, _OUT_POSITION, _PAYLOAD_BYTES = map(int, list(PageCell)[8:12])
_COUNT, _NEXT_OFFSET, _SPANS, _FAILED_OFFSET = map(int, list(PageCell)[12:16])
_FAILED_IS_VALUE, _BATCH_POSITION = map(int, list(PageCell)[16:])
_HEADER, _LOG_APPEND_TIME = 61, 0x08
_NOT_PLAIN = 0x37  # codec, transactional, control

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
def _read_record(buffer: Bytes, start: int, limit: int, row: Int64s) -> bool:
    """Fill row with the fields of the record at start; False when it breaks its format."""
    size, position = _read_varint(buffer, start, limit)
    if position < 0 or size < 1 or size > limit - position:
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


@inlined
def _write_batch(
    records: Bytes,
    end: int,
    opening: Bytes,
    middle: Bytes,
    out: Bytes,
    spans: Int64Table,
    state: Int64s,
) -> int:
    """Write the records of one batch, which end at `end`, from `state` on; a `PageStatus`."""
    row = state[FIRST_ROW_CELL:]
    fixed = len(opening) + len(middle)
    while state[_RECORDS_LEFT] > 0:
        if not _read_record(records, state[_POSITION], end, row):
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
    return _write_batch(records, len(records), opening, middle, out, spans, state)


@inlined
def _plain_size(batches: Bytes, position: int) -> int:
    """Size of the plain batch at position, 0 without a whole one, -1 for any other batch.

    Plain: magic 2, no codec, no transaction, no control records.
    """
    left = len(batches) - position
    if left < _HEADER:
        return 0
    size = load_i32be(batches, position + 8) + 12
    if batches[position + 16] != 2 or size < _HEADER:
        return -1
    if size > left:
        return 0
    return -1 if load_i16be(batches, position + 21) & _NOT_PLAIN else size


@kernel(I64(BYTES, BYTES, BYTES, BYTES_OUT, I64_TABLE_OUT, I64S_OUT))
def write_batches(
    batches: Bytes, opening: Bytes, middle: Bytes, out: Bytes, spans: Int64Table, state: Int64s
) -> int:
    """Write the plain batches from BATCH_POSITION on; return a `PageStatus`.

    batches  uint8[n]   whole batches, maybe a part of one behind them; the rest as `write_records`
    OTHER_BATCH: the one at BATCH_POSITION is compressed, transactional, control or malformed; the
    caller deals with it and moves BATCH_POSITION. BATCH_DONE: no whole batch is left.
    """
    while True:
        position = state[_BATCH_POSITION]
        size = _plain_size(batches, position)
        if size <= 0:
            return _BATCH_DONE if size == 0 else _OTHER_BATCH
        base_offset = load_i64be(batches, position)
        last_offset = base_offset + load_i32be(batches, position + 23)
        if last_offset >= state[_FROM_OFFSET]:
            if state[_RECORDS_LEFT] < 0:
                state[_BASE_OFFSET] = base_offset
                state[_BASE_TIMESTAMP] = load_i64be(batches, position + 27)
                state[_APPEND_TIMESTAMP] = load_i64be(batches, position + 35)
                is_append_time = load_i16be(batches, position + 21) & _LOG_APPEND_TIME
                state[_IS_APPEND_TIME] = 1 if is_append_time else 0
                state[_RECORDS_LEFT] = load_i32be(batches, position + 57)
                state[_POSITION] = position + _HEADER
            status = _write_batch(batches, position + size, opening, middle, out, spans, state)
            if status != _BATCH_DONE:
                return status
        state[_NEXT_OFFSET] = max(state[_NEXT_OFFSET], last_offset + 1)
        state[_RECORDS_LEFT] = -1
        state[_BATCH_POSITION] = position + size


@kernel(I64(I64S, I64S, BYTES_OUT, I64), keeps_gil=True)
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
