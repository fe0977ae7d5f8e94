"""Unaligned integer loads and stores on byte arrays, as one machine instruction each.

`load_i64be(buffer, position)` reads `buffer[position : position + 8]`. Nothing is bounds-checked:
the kernel has compared the position with its buffer before. Loads up to 32 bits give an int64,
`load_u64*` a uint64. Stores keep the low bits of the value. Where nothing is compiled they are
plain byte loops with the same results (Python ints).

These are LLVM intrinsics without state, expanded into the calling kernel. Every kernel file may use
them, because `cache.py` covers this file by each digest; ordinary compiled functions must not be
shared between files in this way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from kafkalog.kernels.compile import IS_COMPILING

if IS_COMPILING:
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.kernels.compile import Bytes

    Load = Callable[[Bytes, int], int]
    Store = Callable[[Bytes, int, int], None]

Untyped = Any
"""Values of numba's and llvmlite's builders, which have no types of their own."""


def _plain_loader(width: int, *, signed: bool, big_endian: bool) -> Load:
    """The byte loop of a load where nothing is compiled."""
    order = range(width) if big_endian else range(width - 1, -1, -1)

    def load(buffer: Bytes, position: int) -> int:
        value = 0
        for index in order:
            value = value << 8 | int(buffer[position + index])
        if signed and value >> (8 * width - 1):
            value -= 1 << (8 * width)
        return value

    return load


def _plain_storer(width: int, *, big_endian: bool) -> Store:
    """The byte loop of a store where nothing is compiled."""
    shifts = [8 * index for index in range(width)]
    if big_endian:
        shifts.reverse()

    def store(buffer: Bytes, position: int, value: int) -> None:
        number = int(value)
        for index, shift in enumerate(shifts):
            buffer[position + index] = number >> shift & 0xFF

    return store


def _pointer(
    context: Untyped, builder: Untyped, array_type: Untyped, array: Untyped, position: Untyped
) -> Untyped:
    """Address of one byte of the array."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [position], inbounds=True)


def _loader(width: int, *, signed: bool, big_endian: bool) -> Load:
    """Build one load."""
    if not IS_COMPILING:
        return _plain_loader(width, signed=signed, big_endian=big_endian)
    result = types.uint64 if width == 8 and not signed else types.int64

    def load(typingctx: object, buffer: Untyped, position: Untyped) -> Untyped:
        if not isinstance(buffer, types.Array) or buffer.dtype != types.uint8:
            return None

        def generate(
            context: Untyped, builder: Untyped, signature: Untyped, arguments: Untyped
        ) -> Untyped:
            array, position = arguments
            integer = ir.IntType(8 * width)
            address = _pointer(context, builder, signature.args[0], array, position)
            value = builder.load(builder.bitcast(address, integer.as_pointer()), align=1)
            if big_endian:
                value = builder.bswap(value)
            if width == 8:
                return value
            widen = builder.sext if signed else builder.zext
            return widen(value, ir.IntType(64))

        return result(buffer, types.int64), generate

    return cast("Load", intrinsic(load))


def _storer(width: int, *, big_endian: bool) -> Store:
    """Build one store."""
    if not IS_COMPILING:
        return _plain_storer(width, big_endian=big_endian)

    def store(typingctx: object, buffer: Untyped, position: Untyped, value: Untyped) -> Untyped:
        if not isinstance(buffer, types.Array) or buffer.dtype != types.uint8 or not buffer.mutable:
            return None

        def generate(
            context: Untyped, builder: Untyped, signature: Untyped, arguments: Untyped
        ) -> Untyped:
            array, position, value = arguments
            integer = ir.IntType(8 * width)
            address = _pointer(context, builder, signature.args[0], array, position)
            narrow = value if width == 8 else builder.trunc(value, integer)
            if big_endian:
                narrow = builder.bswap(narrow)
            builder.store(narrow, builder.bitcast(address, integer.as_pointer()), align=1)
            return context.get_dummy_value()

        value_type = types.uint64 if value == types.uint64 else types.int64
        return types.none(buffer, types.int64, value_type), generate

    return cast("Store", intrinsic(store))


load_i16be = _loader(2, signed=True, big_endian=True)
load_u16be = _loader(2, signed=False, big_endian=True)
load_i32be = _loader(4, signed=True, big_endian=True)
load_u32be = _loader(4, signed=False, big_endian=True)
load_i64be = _loader(8, signed=True, big_endian=True)
load_u64be = _loader(8, signed=False, big_endian=True)
load_u16le = _loader(2, signed=False, big_endian=False)
load_i32le = _loader(4, signed=True, big_endian=False)
load_u32le = _loader(4, signed=False, big_endian=False)
load_u64le = _loader(8, signed=False, big_endian=False)

store_i16be = _storer(2, big_endian=True)
store_i32be = _storer(4, big_endian=True)
store_i64be = _storer(8, big_endian=True)
store_u16le = _storer(2, big_endian=False)
store_u32le = _storer(4, big_endian=False)
store_u64le = _storer(8, big_endian=False)
