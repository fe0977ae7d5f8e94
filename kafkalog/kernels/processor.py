"""Code for newer processors, chosen at run time.

Kernels are compiled for a generic processor so that one cache serves every machine (`compile.py`).
A function that begins with `needs_sse42()` or the like is compiled with those instructions too. It
is in the cache of every machine and may be called only where `LEVEL` says that the processor has
them. It is never inlined.

On other architectures than x86-64, and with NUMBA_DISABLE_JIT=1, the level is GENERIC.
"""

from __future__ import annotations

import importlib
import os
from enum import IntEnum
from typing import TYPE_CHECKING, Any, cast

from kafkalog.kernels.compile import IS_COMPILING, JIT_DISABLED, inlined

if IS_COMPILING:
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from kafkalog.kernels.compile import Int64s

Untyped = Any
"""Values of numba's and llvmlite's builders, which have no types of their own."""

IS_X86 = os.uname().machine == "x86_64" and not JIT_DISABLED


@inlined
def _nothing() -> None:
    """Where nothing is compiled for more than a generic processor."""


@inlined
def _same_crc(crc: np.uint64, word: np.uint64) -> np.uint64:
    """Compiled where no level calls it."""
    return crc


class ProcessorLevel(IntEnum):
    """Each has what those below have. Kernels take it as a number."""

    GENERIC = 0
    AVX2 = 1
    """And SSE 4.2, which has an instruction for CRC-32C."""
    AVX512VL = 2


def _detect() -> ProcessorLevel:
    """What this machine's processor and operating system have."""
    if not IS_X86:
        return ProcessorLevel.GENERIC
    features = importlib.import_module("numpy._core._multiarray_umath").__cpu_features__
    if not (features.get("SSE42") and features.get("AVX2")):
        return ProcessorLevel.GENERIC
    return ProcessorLevel.AVX512VL if features.get("AVX512VL") else ProcessorLevel.AVX2


LEVEL = _detect()


def _needs(features: str) -> Callable[[], None]:
    """An intrinsic that gives the function around it these instructions."""
    if not (IS_X86 and IS_COMPILING):
        return _nothing

    def mark(typingctx: object) -> Untyped:
        def generate(
            context: Untyped, builder: Untyped, signature: Untyped, arguments: Untyped
        ) -> Untyped:
            # llvmlite takes only attributes without a value that it knows; LLVM takes any string.
            set.add(builder.function.attributes, f'"target-features"="{features}"')
            builder.function.attributes.add("noinline")
            return context.get_dummy_value()

        return types.none(), generate

    return cast("Callable[[], None]", intrinsic(mark))


needs_sse42 = _needs("+sse4.2,+crc32")
needs_avx2 = _needs("+avx2")
needs_avx512vl = _needs("+avx512f,+avx512vl")


def _crc32_step() -> Callable[[np.uint64, np.uint64], np.uint64]:
    """The processor's CRC-32C of eight bytes more."""

    def crc32_u64(typingctx: object, crc: Untyped, word: Untyped) -> Untyped:
        def generate(
            context: Untyped, builder: Untyped, signature: Untyped, arguments: Untyped
        ) -> Untyped:
            integer = ir.IntType(64)
            kind = ir.FunctionType(integer, [integer, integer])
            name = "llvm.x86.sse42.crc32.64.64"
            return builder.call(builder.module.declare_intrinsic(name, fnty=kind), arguments)

        return types.uint64(types.uint64, types.uint64), generate

    return cast("Callable[[np.uint64, np.uint64], np.uint64]", intrinsic(crc32_u64))


def _prefetcher() -> Callable[[Int64s, int], None]:
    """Ask for the cache line of one element, to be written soon."""

    def prefetch(typingctx: object, array: Untyped, index: Untyped) -> Untyped:
        def generate(
            context: Untyped, builder: Untyped, signature: Untyped, arguments: Untyped
        ) -> Untyped:
            array, index = arguments
            data = context.make_array(signature.args[0])(context, builder, array).data
            byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
            function = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
            address = builder.bitcast(builder.gep(data, [index], inbounds=True), byte)
            builder.call(function, [address, number(1), number(3), number(1)])
            return context.get_dummy_value()

        return types.none(array, types.int64), generate

    return cast("Callable[[Int64s, int], None]", intrinsic(prefetch))


def _ones_counter() -> Callable[[np.uint64], int]:
    """How many bits of a 64-bit number are set."""

    def count_ones(typingctx: object, number: Untyped) -> Untyped:
        def generate(
            context: Untyped, builder: Untyped, signature: Untyped, arguments: Untyped
        ) -> Untyped:
            integer = ir.IntType(64)
            function = builder.module.declare_intrinsic("llvm.ctpop", [integer])
            return builder.call(function, arguments)

        return types.int64(types.uint64), generate

    return cast("Callable[[np.uint64], int]", intrinsic(count_ones))


def _plain_count_ones(number: np.uint64) -> int:
    return int(number).bit_count()


def _plain_prefetch(array: Int64s, index: int) -> None:
    """Nothing to gain in plain Python."""


crc32_u64 = _crc32_step() if IS_X86 and IS_COMPILING else _same_crc
prefetch = _prefetcher() if IS_COMPILING else _plain_prefetch
count_ones = _ones_counter() if IS_COMPILING else _plain_count_ones
