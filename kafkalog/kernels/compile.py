"""The two decorators of kernel modules: `kernel(signature)` and `inlined`.

A kernel comes from the image (`image.py`), else from numba (`jit.py`), which loads it from its
cache or compiles it when its module is imported. In a process that has the image, helpers and
intrinsics are the plain Python functions: nothing is left to compile them for.

Types for signatures: arrays that are only read accept read-only and writable buffers alike (bytes,
bytearray, memoryview through `numpy.frombuffer`); arrays that are written must be writable. A call
with other types is a TypeError.

    @kernel(I64(BYTES, I64, I64_TABLE_OUT))
    def scan(chunk: Bytes, start: int, columns: Int64Table) -> int: ...
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

import numpy as np
import numpy.typing as npt

from kafkalog.kernels import image
from kafkalog.kernels.signature import Array, BuiltKernel, Scalar

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.kernels.signature import Signature

P = ParamSpec("P")
R = TypeVar("R")

Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]
Int64Table = npt.NDArray[np.int64]


I64 = Scalar("int64")
U64 = Scalar("uint64")
BOOL = Scalar("boolean")
BYTES = Array("uint8", 1)
BYTES_OUT = Array("uint8", 1, is_written=True)
I64S = Array("int64", 1)
I64S_OUT = Array("int64", 1, is_written=True)
I64_TABLE = Array("int64", 2)
I64_TABLE_OUT = Array("int64", 2, is_written=True)

JIT_DISABLED = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")
"""NUMBA_DISABLE_JIT=1: kernels are the plain Python functions (coverage, index checks)."""

_IMAGE = None if JIT_DISABLED else image.load()

IS_COMPILING = not JIT_DISABLED and _IMAGE is None
"""Whether numba is used in this process."""


BUILT_KERNELS: list[BuiltKernel] = []
"""Every kernel declared so far, in order of import."""


def kernel(
    signature: Signature, *, keeps_gil: bool = False
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Load the function for exactly this signature, or compile it, now.

    keeps_gil is for kernels of some nanoseconds a record: to release the GIL for a microsecond
    invites another thread to take it, and the caller then waits for that thread's turn to end.
    """

    def declare(function: Callable[P, R]) -> Callable[P, R]:
        if JIT_DISABLED:
            return function
        module, name = function.__module__, function.__name__
        if _IMAGE is not None:
            compiled, from_cache = _IMAGE[f"{module}:{name}"], True
        else:
            from kafkalog.kernels import jit  # late: it imports numba

            compiled = jit.compiled(function, signature, keeps_gil=keeps_gil)
            from_cache = sum(compiled.stats.cache_hits.values()) > 0
        BUILT_KERNELS.append(BuiltKernel(module, name, signature, keeps_gil, compiled, from_cache))
        return cast("Callable[P, R]", compiled)

    return declare


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """Declare a small function that kernels call; inlined into each of them.

    numba freezes what it called when it compiled: the file must be the kernel's own or one that
    its file imports, which the digest of the cache then covers. Not callable from Python on a hot
    path: it is slow there.
    """
    if not IS_COMPILING:
        return function
    from kafkalog.kernels import jit  # late: it imports numba

    return cast("Callable[P, R]", jit.inlined(function))
