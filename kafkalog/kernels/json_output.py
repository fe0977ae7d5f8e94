"""JSON text on its way out: numbers, base64, strings with their escapes. For several kernel files.

Writers write into room that their caller has measured; what they read is bounded by the span that
they are given. `cache.py` counts this file into the digest of each module that imports it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from kafkalog.kernels.compile import inlined
from kafkalog.kernels.utf8 import utf8_length

if TYPE_CHECKING:
    from kafkalog.kernels.compile import Bytes

as_int = cast("type[int]", np.int64)  # an uint8 would stay unsigned under int()

_BASE64 = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8
)
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


@inlined
def put(out: Bytes, position: int, text: Bytes) -> int:
    """Copy a fixed text; position behind it."""
    for index in range(len(text)):
        out[position + index] = text[index]
    return position + len(text)


@inlined
def put_number(out: Bytes, position: int, number: int) -> int:
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
def put_base64(source: Bytes, start: int, length: int, out: Bytes, position: int) -> int:
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
def put_string(
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
