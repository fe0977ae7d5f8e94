"""Unaligned big- and little-endian loads and stores as single instructions.

numba would read a 64-bit field byte by byte; an LLVM load with alignment 1 and a byte swap is one or
two instructions. With NUMBA_DISABLE_JIT=1 (coverage, index checks) the same names are plain loops.
The caller has checked the bounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    U8 = npt.NDArray[np.uint8]


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any, bits: int) -> Any:  # noqa: ANN401, PLR0913 - LLVM builder objects
    """Address of array[index] as a pointer to an integer of so many bits."""
    data = context.make_array(array_type)(context, builder, array).data
    address = cgutils.pointer_add(builder, data, index)
    return builder.bitcast(address, ir.IntType(bits).as_pointer())


def _make_load(bits: int, *, big_endian: bool) -> Any:  # noqa: ANN401 - a numba intrinsic
    @intrinsic
    def load(typing_context: Any, array: Any, index: Any) -> Any:  # noqa: ANN401, ARG001
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ANN401
            pointer = _pointer(context, builder, signature.args[0], args[0], args[1], bits)
            value = builder.load(pointer, align=1)
            if big_endian and bits > 8:
                value = builder.bswap(value)
            return builder.sext(value, ir.IntType(64)) if bits < 64 else value

        return types.int64(array, types.int64), generate

    return load


def _make_store(bits: int, *, big_endian: bool) -> Any:  # noqa: ANN401 - a numba intrinsic
    @intrinsic
    def store(typing_context: Any, array: Any, index: Any, value: Any) -> Any:  # noqa: ANN401, ARG001
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ANN401
            pointer = _pointer(context, builder, signature.args[0], args[0], args[1], bits)
            narrow = builder.trunc(args[2], ir.IntType(bits)) if bits < 64 else args[2]
            if big_endian and bits > 8:
                narrow = builder.bswap(narrow)
            builder.store(narrow, pointer, align=1)
            return context.get_dummy_value()

        return types.void(array, types.int64, types.int64), generate

    return store


def _plain_load(bits: int, order: str) -> Any:  # noqa: ANN401 - same shape as an intrinsic
    def load(array: U8, index: int) -> int:
        raw = bytes(array[index : index + bits // 8])
        return int.from_bytes(raw, order, signed=True)  # type: ignore[arg-type] # "big"|"little"

    return load


def _plain_store(bits: int, order: str) -> Any:  # noqa: ANN401 - same shape as an intrinsic
    def store(array: U8, index: int, value: int) -> None:
        raw = (int(value) & ((1 << bits) - 1)).to_bytes(bits // 8, order)  # type: ignore[arg-type] # likewise
        array[index : index + bits // 8] = list(raw)

    return store


if numba.config.DISABLE_JIT:
    load_i16be, load_i32be, load_i64be = (_plain_load(bits, "big") for bits in (16, 32, 64))
    load_i32le, load_i64le = (_plain_load(bits, "little") for bits in (32, 64))
    store_i16be, store_i32be, store_i64be = (_plain_store(bits, "big") for bits in (16, 32, 64))
    store_i32le, store_i64le = (_plain_store(bits, "little") for bits in (32, 64))
else:
    load_i16be, load_i32be, load_i64be = (
        _make_load(bits, big_endian=True) for bits in (16, 32, 64)
    )
    load_i32le, load_i64le = (_make_load(bits, big_endian=False) for bits in (32, 64))
    store_i16be, store_i32be, store_i64be = (
        _make_store(bits, big_endian=True) for bits in (16, 32, 64)
    )
    store_i32le, store_i64le = (_make_store(bits, big_endian=False) for bits in (32, 64))
