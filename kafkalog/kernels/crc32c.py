"""CRC-32C of a span of bytes inside a kernel: by tables, or by the processor's instruction.

The instruction waits three cycles for its own result, so that three parts of the span are computed
in parallel and joined by tables that move a CRC over LANE_BYTES zeros. As fast as the C package
`crc32c`, without a call from Python for each batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kafkalog.kernels.compile import BYTES, I64, Bytes, inlined, kernel
from kafkalog.kernels.loads import load_u32be, load_u64le
from kafkalog.kernels.processor import crc32_u64, needs_sse42

if TYPE_CHECKING:
    from collections.abc import Sequence

_POLYNOMIAL = 0x82F63B78  # Castagnoli, reflected
LANE_BYTES = 512


def _crc_tables() -> np.ndarray[tuple[int, ...], np.dtype[np.uint64]]:
    """Eight tables of the reflected Castagnoli polynomial: table k advances a byte by k more."""
    values = np.arange(256, dtype=np.uint64)
    for _ in range(8):
        values = np.where(values & 1, values >> 1 ^ _POLYNOMIAL, values >> 1).astype(np.uint64)
    tables = [values]
    for _ in range(7):
        previous = tables[-1]
        tables.append(values[(previous & 0xFF).astype(np.int64)] ^ previous >> np.uint64(8))
    return np.concatenate(tables)


_CRC_TABLES = _crc_tables().astype(np.uint32)


@inlined
def crc32c_generic(buffer: Bytes, start: int, end: int) -> int:
    """CRC-32C of buffer[start:end], eight bytes a step, then byte by byte."""
    crc = np.uint64(0xFFFFFFFF)
    low = np.uint64(0xFF)
    position = start
    while position <= end - 8:
        word = np.uint64(load_u64le(buffer, position)) ^ crc
        crc = np.uint64(
            _CRC_TABLES[np.intp(1792 + np.intp(word & low))]
            ^ _CRC_TABLES[np.intp(1536 + np.intp(word >> np.uint64(8) & low))]
            ^ _CRC_TABLES[np.intp(1280 + np.intp(word >> np.uint64(16) & low))]
            ^ _CRC_TABLES[np.intp(1024 + np.intp(word >> np.uint64(24) & low))]
            ^ _CRC_TABLES[np.intp(768 + np.intp(word >> np.uint64(32) & low))]
            ^ _CRC_TABLES[np.intp(512 + np.intp(word >> np.uint64(40) & low))]
            ^ _CRC_TABLES[np.intp(256 + np.intp(word >> np.uint64(48) & low))]
            ^ _CRC_TABLES[np.intp(word >> np.uint64(56))]
        )
        position += 8
    while position < end:
        entry = np.intp((crc ^ np.uint64(buffer[position])) & low)
        crc = np.uint64(_CRC_TABLES[entry]) ^ crc >> np.uint64(8)
        position += 1
    return int(crc ^ np.uint64(0xFFFFFFFF))


def _move(operator: Sequence[int], crc: int) -> int:
    """Apply a linear operator, given by what it makes of each bit."""
    moved = 0
    for bit, image in enumerate(operator):
        if crc >> bit & 1:
            moved ^= image
    return moved


def _lane_tables() -> np.ndarray[tuple[int, ...], np.dtype[np.uint32]]:
    """Four tables (one a byte) that move a CRC over one lane of zeros, then four over two lanes."""
    operator = []
    for bit in range(32):
        crc = 1 << bit
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        operator.append(crc)
    for _ in range(LANE_BYTES.bit_length() - 1):  # one byte of zeros, two, four, ...
        operator = [_move(operator, image) for image in operator]
    twice = [_move(operator, image) for image in operator]
    values = [
        _move(images, byte << 8 * place)
        for images in (operator, twice)
        for place in range(4)
        for byte in range(256)
    ]
    return np.array(values, np.uint32)


_LANE_TABLES = _lane_tables()


@inlined
def _over_lanes(crc: np.uint64, first: int) -> np.uint64:
    """Move a CRC over one lane (first: 0) or two (1024) by the tables."""
    low = np.uint64(0xFF)
    return np.uint64(
        _LANE_TABLES[np.intp(first + np.intp(crc & low))]
        ^ _LANE_TABLES[np.intp(first + 256 + np.intp(crc >> np.uint64(8) & low))]
        ^ _LANE_TABLES[np.intp(first + 512 + np.intp(crc >> np.uint64(16) & low))]
        ^ _LANE_TABLES[np.intp(first + 768 + np.intp(crc >> np.uint64(24) & low))]
    )


@kernel(I64(BYTES, I64, I64))
def crc32c_sse42(buffer: Bytes, start: int, end: int) -> int:
    """CRC-32C of buffer[start:end] by the instruction; for processors of level AVX2 and above."""
    needs_sse42()
    crc = np.uint64(0xFFFFFFFF)
    position = start
    while end - position >= 3 * LANE_BYTES:
        second, third = np.uint64(0), np.uint64(0)
        for at in range(position, position + LANE_BYTES, 8):
            crc = crc32_u64(crc, np.uint64(load_u64le(buffer, at)))
            second = crc32_u64(second, np.uint64(load_u64le(buffer, at + LANE_BYTES)))
            third = crc32_u64(third, np.uint64(load_u64le(buffer, at + 2 * LANE_BYTES)))
        crc = _over_lanes(crc, 1024) ^ _over_lanes(second, 0) ^ third
        position += 3 * LANE_BYTES
    while end - position >= 8:
        crc = crc32_u64(crc, np.uint64(load_u64le(buffer, position)))
        position += 8
    while position < end:
        entry = np.intp((crc ^ np.uint64(buffer[position])) & np.uint64(0xFF))
        crc = np.uint64(_CRC_TABLES[entry]) ^ crc >> np.uint64(8)
        position += 1
    return int(crc ^ np.uint64(0xFFFFFFFF))


@kernel(I64(BYTES, I64, I64, I64))
def crc32c_of(buffer: Bytes, start: int, end: int, level: int) -> int:
    """CRC-32C of buffer[start:end], which must be inside the buffer.

    level  `processor.LEVEL`, or a lower one
    """
    if level > 0:
        return crc32c_sse42(buffer, start, end)
    return crc32c_generic(buffer, start, end)


@inlined
def has_right_crc(buffer: Bytes, start: int, end: int, level: int) -> bool:
    """Whether the batch in buffer[start:end] has the CRC that its header declares."""
    return bool(crc32c_of(buffer, start + 21, end, level) == load_u32be(buffer, start + 17))
