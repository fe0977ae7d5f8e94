"""JSON text: numbers, base64, escaped strings; and the state of a page of records as text.

For several kernel files: `cache.py` covers this file by the digest of each module that imports it.
Writers write into space that their caller has measured, and read within the span that they get.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, cast

import numpy as np

from kafkalog.kernels.compile import inlined
from kafkalog.kernels.json.utf8 import utf8_length

if TYPE_CHECKING:
    from kafkalog.kernels.compile import Bytes


as_int = cast("type[int]", np.int64)  # an uint8 would stay unsigned under int()

_BASE64 = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8
)
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


@inlined
def put(out: Bytes, position: int, text: Bytes) -> int:
    """Copy a fixed text; position after it."""
    for index in range(len(text)):
        out[position + index] = text[index]
    return position + len(text)


@inlined
def put_number(out: Bytes, position: int, number: int) -> int:
    """Write a decimal number; position after it."""
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
def put_base64(source: Bytes, start: int, length: int, out: Bytes, position: int) -> int:
    """Write a quoted base64 string with padding; position after it."""
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
def _put_escape(byte: int, out: Bytes, position: int) -> int:
    """Write the escape of a quote, a backslash or a control character; position after it."""
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
def put_string(
    source: Bytes, start: int, length: int, out: Bytes, position: int, replace: bool
) -> int:
    """Write UTF-8 as a JSON string; position after it, -1 when ill-formed and not replaced."""
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
        size = utf8_length(source, start, end)
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


class EmbeddedKind(enum.IntEnum):
    """How key and value appear."""

    BINARY = 0  # base64
    JSON = 1  # as stored
    TEXT = 2  # a JSON string


class PageStatus(enum.IntEnum):
    """Why `write_records` came back."""

    BATCH_DONE = 0
    GROW = 1  # enlarge out and spans and call again
    PAGE_FULL = 2  # max_bytes or max_records reached
    BAD_TEXT = 3  # FAILED_OFFSET, FAILED_IS_VALUE; text format only
    BAD_RECORD = 4  # the batch's records break their format
    OTHER_BATCH = 5  # `write_batches` met a batch that the caller must look at
    AT_END = 6  # end_offset reached
    PAST_TIME = 7  # a record of until_timestamp or later
    CHUNK_FULL = 8  # the output reached CHUNK_END; call again to go on


class PageText(enum.IntEnum):
    """The fixed texts of a record in their order; any may be empty."""

    BETWEEN = 0  # before each record but the first
    OPENING = 1  # the key after it
    BEFORE_VALUE = 2
    BEFORE_OFFSET = 3
    BEFORE_TIMESTAMP = 4
    BEFORE_HEADERS = 5  # only where there are some, which a bracket closes
    CLOSING = 6  # with Shown.ID the offset after it
    LAST = 7


class Shown(enum.IntFlag):
    """What of a record is written."""

    KEY = 1
    VALUE = 2
    OFFSET = 4
    TIMESTAMP = 8
    HEADERS = 16
    ID = 32  # the offset once more, after CLOSING


class PageCell(enum.IntEnum):
    """The state of a page; the first group is set by the caller for each page or batch."""

    KEY_FORMAT = 0
    VALUE_FORMAT = 1
    SHOWN = 2
    IS_LINES = 3  # stored JSON is copied without line ends
    FROM_OFFSET = 4  # records below are skipped
    END_OFFSET = 5  # records from here on are not written
    UNTIL_TIMESTAMP = 6  # the first record with this or a later one ends the page; largest: none
    MAX_BYTES = 7  # of keys and values; the first record is always written
    MAX_RECORDS = 8
    CHUNK_END = 9  # the output position from which on no record is begun
    BASE_OFFSET = 10  # of the batch
    BASE_TIMESTAMP = 11
    APPEND_TIMESTAMP = 12  # replaces every record's when IS_APPEND_TIME
    IS_APPEND_TIME = 13
    RECORDS_LEFT = 14  # of the batch; -1: its header was not read yet
    POSITION = 15  # of the next record in the batch
    OUT_POSITION = 16
    PAYLOAD_BYTES = 17
    COUNT = 18
    NEXT_OFFSET = 19  # after the last record written or skipped
    SPANS = 20  # json format: rows of spans in use
    FAILED_OFFSET = 21
    FAILED_IS_VALUE = 22
    BATCH_POSITION = 23  # of the batch at hand
    TEXT_STARTS = 24  # of each PageText in the fixed texts, and where the last one ends


_ROW_CELLS = 9
FIRST_ROW_CELL = PageCell.TEXT_STARTS + len(PageText) + 1
PAGE_CELL_COUNT = FIRST_ROW_CELL + _ROW_CELLS
"""The cells of PageCell and after them the fields of the current record."""

SPAN_BYTES = 32
"""Output bytes for each row of spans: most records have two in more than 64 bytes of text."""

SPAN_COLUMN_COUNT = 4

TEXT_PADDING = 8
"""Bytes after the fixed texts, which are copied eight at a time."""
