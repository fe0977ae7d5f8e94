"""Write fetched records and produce receipts as JSON text.

Owns the walk over the records of batches, the choice of the records of a page and the order of a
record's members. The text between members is the caller's, so that an array, lines and the events
of a stream share one kernel. Does not check stored JSON: `scan.check_values` does, by the spans of
what was copied. Batches were checked when they were stored, yet every read is bounded. Any thread.

A page is written in steps: `write_batches` and `write_records` stop when the output must grow or a
chunk is full; the caller calls again with the same state. `JsonFault` says why a JSON text is
refused.
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
from kafkalog.kernels.json.output import (
    FIRST_ROW_CELL,
    EmbeddedKind,
    PageCell,
    PageStatus,
    PageText,
    Shown,
    put,
    put_base64,
    put_number,
    put_string,
)
from kafkalog.kernels.loads import load_i16be, load_i32be, load_i64be, load_u64le, store_u64le

if TYPE_CHECKING:
    from kafkalog.kernels.compile import Bytes, Int64s, Int64Table


as_int = cast("type[int]", np.int64)  # an uint8 would stay unsigned under int()

# Plain integers, in the order of the enums: numba freezes them best.
_BINARY, _JSON, _TEXT = map(int, EmbeddedKind)
_BATCH_DONE, _GROW, _PAGE_FULL, _BAD_TEXT, _BAD_RECORD, _OTHER_BATCH = map(
    int, list(PageStatus)[:6]
)
_AT_END, _PAST_TIME, _CHUNK_FULL = map(int, list(PageStatus)[6:])
_BETWEEN, _OPENING, _BEFORE_VALUE, _BEFORE_OFFSET = map(int, list(PageText)[:4])
_BEFORE_TIMESTAMP, _BEFORE_HEADERS, _CLOSING, _LAST = map(int, list(PageText)[4:])
_SHOWS_KEY, _SHOWS_VALUE, _SHOWS_OFFSET, _SHOWS_TIMESTAMP, _SHOWS_HEADERS, _SHOWS_ID = map(
    int, Shown
)
_KEY_FORMAT, _VALUE_FORMAT, _SHOWN, _IS_LINES, _FROM_OFFSET = map(int, list(PageCell)[:5])
_END_OFFSET, _UNTIL_TIMESTAMP, _MAX_BYTES, _MAX_RECORDS = map(int, list(PageCell)[5:9])
_CHUNK_END, _BASE_OFFSET, _BASE_TIMESTAMP, _APPEND_TIMESTAMP = map(int, list(PageCell)[9:13])
_IS_APPEND_TIME, _RECORDS_LEFT, _POSITION, _OUT_POSITION = map(int, list(PageCell)[13:17])
_PAYLOAD_BYTES, _COUNT, _NEXT_OFFSET, _SPANS = map(int, list(PageCell)[17:21])
_FAILED_OFFSET, _FAILED_IS_VALUE, _BATCH_POSITION, _TEXT_STARTS = map(int, list(PageCell)[21:])
_NO_TIME = 0x7FFFFFFFFFFFFFFF
_HEADER, _LOG_APPEND_TIME = 61, 0x08
_NOT_PLAIN = 0x37  # codec, transactional, control

# Fields of one record, relative to the row that _read_record fills.
_TIMESTAMP_DELTA, _OFFSET_DELTA, _KEY_AT, _KEY_SIZE, _VALUE_AT, _VALUE_SIZE = 0, 1, 2, 3, 4, 5
_HEADERS_AT, _HEADER_COUNT, _RECORD_END = 6, 7, 8

_NULL = np.frombuffer(b"null", np.uint8)
_HEADER_OPENING = np.frombuffer(b'{"key":', np.uint8)
_HEADER_VALUE = np.frombuffer(b',"value":', np.uint8)
_RECEIPT_OPENING = np.frombuffer(b'{"partition":', np.uint8)
_RECEIPT_OFFSET = np.frombuffer(b',"offset":', np.uint8)
_RECEIPT_END = np.frombuffer(b',"error_code":null,"error":null}', np.uint8)

RECEIPT_BYTES_MAX = len(_RECEIPT_OPENING) + len(_RECEIPT_OFFSET) + len(_RECEIPT_END) + 42
_RECORD_TEXT_MAX = 128  # numbers, nulls, quotes and brackets of a record
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
def _put_text(out: Bytes, position: int, texts: Bytes, part: int, state: Int64s) -> int:
    """Copy one of the fixed texts; position after it."""
    start = state[_TEXT_STARTS + part]
    length: int = state[_TEXT_STARTS + part + 1] - start
    for index in range(0, length, 8):  # up to seven bytes too many: both have room after
        store_u64le(out, position + index, load_u64le(texts, start + index))
    return position + length


@inlined
def _put_headers(source: Bytes, row: Int64s, out: Bytes, position: int) -> int:
    """Write the headers and a bracket; position after it, -1 when they break their format."""
    at, end = row[_HEADERS_AT], row[_RECORD_END]
    for index in range(row[_HEADER_COUNT]):
        if index > 0:
            out[position] = 44
            position += 1
        length, at = _read_span(source, at, end)
        if at < 0 or length < 0:
            return -1
        position = put(out, position, _HEADER_OPENING)
        position = put_string(source, at, length, out, position, True)
        length, at = _read_span(source, at + length, end)
        if at < 0:
            return -1
        position = put(out, position, _HEADER_VALUE)
        if length < 0:
            position = put(out, position, _NULL)
        else:
            position = put_base64(source, at, length, out, position)
            at += length
        out[position] = 125
        position += 1
    out[position] = 93
    return position + 1


@inlined
def _put_json(
    source: Bytes,
    start: int,
    length: int,
    is_value: int,
    out: Bytes,
    position: int,
    spans: Int64Table,
    state: Int64s,
) -> int:
    """Copy stored JSON and note its span; position after it.

    In lines a line end becomes a tab: white space between tokens too, and inside a string as
    forbidden as the line end was, so that the check judges what was stored.
    """
    if state[_IS_LINES] == 1:
        for index in range(length):
            byte = source[start + index]
            out[position + index] = 9 if byte == 10 or byte == 13 else byte
    else:
        for index in range(length):
            out[position + index] = source[start + index]
    slot = state[_SPANS]
    spans[slot, 0] = position
    spans[slot, 1] = position + length
    spans[slot, 2] = state[_BASE_OFFSET] + state[FIRST_ROW_CELL + _OFFSET_DELTA]
    spans[slot, 3] = is_value
    state[_SPANS] = slot + 1
    return position + length


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
    """Write a key or a value in its format; position after it, -1 when not text."""
    start = row[_VALUE_AT] if is_value else row[_KEY_AT]
    length: int = row[_VALUE_SIZE] if is_value else row[_KEY_SIZE]
    embedded = state[_VALUE_FORMAT] if is_value else state[_KEY_FORMAT]
    if length < 0:
        return put(out, position, _NULL)
    if embedded == _TEXT:
        return put_string(source, start, length, out, position, False)
    if embedded != _JSON:
        return put_base64(source, start, length, out, position)
    return _put_json(source, start, length, is_value, out, position, spans, state)


@inlined
def _size_bound(row: Int64s, fixed: int, state: Int64s) -> int:
    """Bytes that a record cannot exceed in its formats; base64 less than doubles."""
    is_text = state[_KEY_FORMAT] == _TEXT or state[_VALUE_FORMAT] == _TEXT
    growth = _ESCAPE_GROWTH if is_text else 2
    payload: int = max(row[_KEY_SIZE], 0) + max(row[_VALUE_SIZE], 0)
    headers: int = (row[_RECORD_END] - row[_HEADERS_AT]) * _ESCAPE_GROWTH
    headers += row[_HEADER_COUNT] * _HEADER_TEXT_MAX
    bound: int = payload * growth + headers + fixed + _RECORD_TEXT_MAX
    return bound


@inlined
def _put_record(
    records: Bytes,
    row: Int64s,
    timestamp: int,
    texts: Bytes,
    out: Bytes,
    spans: Int64Table,
    state: Int64s,
) -> int:
    """Write one record; 0 or the status that stops the page, which then ends before the record."""
    offset = state[_BASE_OFFSET] + row[_OFFSET_DELTA]
    shown = state[_SHOWN]
    position = state[_OUT_POSITION]
    if state[_COUNT] > 0:
        position = _put_text(out, position, texts, _BETWEEN, state)
    position = _put_text(out, position, texts, _OPENING, state)
    if shown & _SHOWS_KEY:
        position = _put_payload(records, row, 0, out, position, spans, state)
        if position < 0:
            state[_FAILED_IS_VALUE] = 0
            return _BAD_TEXT
    position = _put_text(out, position, texts, _BEFORE_VALUE, state)
    if shown & _SHOWS_VALUE:
        position = _put_payload(records, row, 1, out, position, spans, state)
        if position < 0:
            state[_FAILED_IS_VALUE] = 1
            return _BAD_TEXT
    position = _put_text(out, position, texts, _BEFORE_OFFSET, state)
    if shown & _SHOWS_OFFSET:
        position = put_number(out, position, offset)
    position = _put_text(out, position, texts, _BEFORE_TIMESTAMP, state)
    if shown & _SHOWS_TIMESTAMP:
        position = put_number(out, position, timestamp)
    if shown & _SHOWS_HEADERS and row[_HEADER_COUNT] > 0:
        position = _put_text(out, position, texts, _BEFORE_HEADERS, state)
        position = _put_headers(records, row, out, position)
        if position < 0:
            return _BAD_RECORD
    position = _put_text(out, position, texts, _CLOSING, state)
    if shown & _SHOWS_ID:
        position = put_number(out, position, offset)
    state[_OUT_POSITION] = _put_text(out, position, texts, _LAST, state)
    return 0


@inlined
def _write_batch(
    records: Bytes, end: int, texts: Bytes, out: Bytes, spans: Int64Table, state: Int64s
) -> int:
    """Write the records of one batch, which end at `end`, from `state` on; a `PageStatus`."""
    row = state[FIRST_ROW_CELL:]
    fixed = len(texts)
    while state[_RECORDS_LEFT] > 0:
        if state[_OUT_POSITION] >= state[_CHUNK_END]:
            return _CHUNK_FULL
        if not _read_record(records, state[_POSITION], end, row):
            return _BAD_RECORD
        offset = state[_BASE_OFFSET] + row[_OFFSET_DELTA]
        if offset >= state[_END_OFFSET]:
            return _AT_END
        if offset >= state[_FROM_OFFSET]:
            timestamp = state[_BASE_TIMESTAMP] + row[_TIMESTAMP_DELTA]
            if state[_IS_APPEND_TIME] == 1:
                timestamp = state[_APPEND_TIMESTAMP]
            if timestamp >= state[_UNTIL_TIMESTAMP] and state[_UNTIL_TIMESTAMP] != _NO_TIME:
                return _PAST_TIME
            payload = max(row[_KEY_SIZE], 0) + max(row[_VALUE_SIZE], 0)
            if state[_COUNT] > 0 and payload > state[_MAX_BYTES] - state[_PAYLOAD_BYTES]:
                return _PAGE_FULL
            if state[_COUNT] >= state[_MAX_RECORDS]:
                return _PAGE_FULL
            span_count = state[_SPANS]
            if span_count + 2 > len(spans):
                return _GROW
            if _size_bound(row, fixed, state) > len(out) - state[_OUT_POSITION]:
                return _GROW
            status = _put_record(records, row, timestamp, texts, out, spans, state)
            if status != 0:
                state[_SPANS] = span_count  # the record is not on the page
                state[_FAILED_OFFSET] = offset
                return status
            state[_PAYLOAD_BYTES] += payload
            state[_COUNT] += 1
        state[_NEXT_OFFSET] = offset + 1
        state[_POSITION] = row[_RECORD_END]
        state[_RECORDS_LEFT] -= 1
    return _BATCH_DONE


@kernel(I64(BYTES, BYTES, BYTES_OUT, I64_TABLE_OUT, I64S_OUT))
def write_records(
    records: Bytes, texts: Bytes, out: Bytes, spans: Int64Table, state: Int64s
) -> int:
    """Write the records of one batch from `state` on; return a `PageStatus`.

    records  uint8[n]      the inflated bytes after the batch header
    texts    uint8[]       every `PageText` as TEXT_STARTS says, and TEXT_PADDING bytes
    out      uint8[m]      output, written from OUT_POSITION on
    spans    int64[k, 4]   json format: start and end in out, offset, is value
    state    int64[PAGE_CELL_COUNT]   `PageCell` and working memory
    """
    return _write_batch(records, len(records), texts, out, spans, state)


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


@kernel(I64(BYTES, BYTES, BYTES_OUT, I64_TABLE_OUT, I64S_OUT))
def write_batches(
    batches: Bytes, texts: Bytes, out: Bytes, spans: Int64Table, state: Int64s
) -> int:
    """Write the plain batches from BATCH_POSITION on; return a `PageStatus`.

    batches  uint8[n]   whole batches, maybe a part of one after them; the rest as `write_records`
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
            status = _write_batch(batches, position + size, texts, out, spans, state)
            if status != _BATCH_DONE:
                return status
        state[_NEXT_OFFSET] = max(state[_NEXT_OFFSET], last_offset + 1)
        state[_RECORDS_LEFT] = -1
        state[_BATCH_POSITION] = position + size


@kernel(I64(I64S, I64S, BYTES_OUT, I64), keeps_gil=True)
def write_receipts(partitions: Int64s, offsets: Int64s, out: Bytes, position: int) -> int:
    """Write one receipt per record, parted by commas, from position on; return where they end.

    partitions, offsets  int64[n]
    out                  uint8[]    at least n * RECEIPT_BYTES_MAX bytes after position
    """
    for index in range(len(offsets)):
        if index > 0:
            out[position] = 44
            position += 1
        position = put(out, position, _RECEIPT_OPENING)
        position = put_number(out, position, partitions[index])
        position = put(out, position, _RECEIPT_OFFSET)
        position = put_number(out, position, offsets[index])
        position = put(out, position, _RECEIPT_END)
    return position


class JsonFault(enum.IntEnum):
    """Why a text is refused; the kernels return `-fault` and leave the byte in `state[0]`."""

    SYNTAX = 1
    BAD_UTF8 = 2
    TOO_DEEP = 3
    DUPLICATE_KEY = 4
    LONG_NUMBER = 5
    LONE_SURROGATE = 6
    BYTE_ORDER_MARK = 7
    TOO_MANY_KEYS = 8
    CONTROL_CHARACTER = 9
