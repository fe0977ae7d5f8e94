"""Every load and store against struct, in a kernel of its own: `python -m tests.unit.kernel_loads`.

A process of its own, because one that has the image of the kernels compiles nothing.
"""

from __future__ import annotations

import itertools
import struct

import numpy as np

from kafkalog.kernels import loads
from kafkalog.kernels.compile import BYTES, BYTES_OUT, I64, U64, Bytes, kernel
from kafkalog.kernels.signature import Scalar


@kernel(I64(BYTES, I64))
def _signed(data: Bytes, at: int) -> int:
    """Every signed and narrow load, folded."""
    return (
        loads.load_i16be(data, at)
        + 3 * loads.load_u16be(data, at)
        + 5 * loads.load_i32be(data, at)
        + 7 * loads.load_u32be(data, at)
        + 11 * loads.load_u16le(data, at)
        + 13 * loads.load_i32le(data, at)
        + 17 * loads.load_u32le(data, at)
    )


@kernel(U64(BYTES, I64))
def _wide_big(data: Bytes, at: int) -> int:
    return loads.load_u64be(data, at)


@kernel(U64(BYTES, I64))
def _wide_little(data: Bytes, at: int) -> int:
    return loads.load_u64le(data, at)


@kernel(I64(BYTES, I64))
def _wide_signed(data: Bytes, at: int) -> int:
    return loads.load_i64be(data, at)


@kernel(Scalar("none")(BYTES_OUT, I64, I64))
def _store_all(data: Bytes, at: int, value: int) -> None:
    """Every store, back to back."""
    loads.store_i16be(data, at, value)
    loads.store_i32be(data, at + 2, value)
    loads.store_i64be(data, at + 6, value)
    loads.store_u16le(data, at + 14, value)
    loads.store_u32le(data, at + 16, value)
    loads.store_u64le(data, at + 20, value)


def _check_loads(fill: int, at: int) -> None:
    raw = bytes((fill + 37 * i * (fill & 1)) & 255 for i in range(17))
    data = np.frombuffer(raw, dtype=np.uint8)
    i2, u2, i4, u4 = (struct.unpack_from(f, raw, at)[0] for f in (">h", ">H", ">i", ">I"))
    l2, s4, l4 = (struct.unpack_from(f, raw, at)[0] for f in ("<H", "<i", "<I"))
    assert _signed(data, at) == i2 + 3 * u2 + 5 * i4 + 7 * u4 + 11 * l2 + 13 * s4 + 17 * l4
    assert _wide_big(data, at) == struct.unpack_from(">Q", raw, at)[0]
    assert _wide_little(data, at) == struct.unpack_from("<Q", raw, at)[0]
    assert _wide_signed(data, at) == struct.unpack_from(">q", raw, at)[0]


def _check_stores(value: int, at: int) -> None:
    data = np.full(32, 0xAA, dtype=np.uint8)
    _store_all(data, at, value)
    unsigned = value % 2**64
    big, small = unsigned.to_bytes(8, "big"), unsigned.to_bytes(8, "little")
    written = big[6:] + big[4:] + big + small[:2] + small[:4] + small
    assert bytes(data) == b"\xaa" * at + written + b"\xaa" * (4 - at)


if __name__ == "__main__":
    for fill, at in itertools.product((0x00, 0xFF, 0x80, 0x7F), range(9)):
        _check_loads(fill, at)
    for value in (0, -1, 1, 2**63 - 1, -(2**63), 0x0123456789ABCDEF):
        for at in (0, 1, 3):
            _check_stores(value, at)
