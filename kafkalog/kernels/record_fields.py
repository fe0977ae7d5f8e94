"""Numbers, headers and bytes of a record: what several kernel files read and write alike.

Inlined into the kernels of other files. `cache.py` counts this file into the digest of each module
that imports it, so a cached kernel never holds an older version of it. Readers check every byte
against the end that they are given; writers write into room that their caller has measured.
Source: log-format.md 1.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from kafkalog.kernels.compile import inlined
from kafkalog.kernels.loads import load_u64le, store_u64le

if TYPE_CHECKING:
    from kafkalog.kernels.compile import Bytes

as_int = cast("type[int]", np.int64)  # an uint8 would stay unsigned under int()


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
    """Position behind the headers; -1: a negative name length, or a field beyond the end."""
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
    """Write a varint or varlong; position behind it."""
    raw = (value << 1) ^ (value >> 63)
    while raw > 127 or raw < 0:
        out[position] = (raw & 127) | 128
        raw = (raw >> 7) & 0x1FFFFFFFFFFFFFF
        position += 1
    out[position] = raw
    return position + 1


@inlined
def copy_bytes(source: Bytes, start: int, length: int, out: Bytes, position: int) -> int:
    """Copy bytes, eight at a time; position behind them."""
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
