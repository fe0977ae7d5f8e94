"""The two decorators of kernel modules: `kernel(signature)` and `inlined`.

Owns numba's global settings: code for a generic CPU of the architecture (measured no slower, and
the cache fits every machine of an image), our cache locator before numba's own.
A kernel releases the GIL (unless it is a brief one), has one explicit signature and is compiled
when its module is imported; a call with other types is a TypeError, never a silent compilation in
the middle of a request. Division by zero follows numpy (no exception inside a kernel). A kernel
cannot allocate: reference counts are off, and its caller brings the working memory.

Types for signatures: arrays that are only read accept read-only and writable buffers alike (bytes,
bytearray, memoryview through `numpy.frombuffer`); arrays that are written must be writable.

    @kernel(I64(BYTES, I64, I64_TABLE_OUT))
    def scan(chunk: Bytes, start: int, columns: Int64Table) -> int: ...
"""

from __future__ import annotations

import inspect
import os
import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

import numpy as np
import numpy.typing as npt
from numba import njit, types
from numba.core import config as numba_config

from kafkalog.kernels import cache

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")

Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]
Int64Table = npt.NDArray[np.int64]

I64 = types.int64
U64 = types.uint64
BOOL = types.boolean
BYTES = types.Array(types.uint8, 1, "C", readonly=True)
BYTES_OUT = types.Array(types.uint8, 1, "C")
I64S = types.Array(types.int64, 1, "C", readonly=True)
I64S_OUT = types.Array(types.int64, 1, "C")
I64_TABLE = types.Array(types.int64, 2, "C", readonly=True)
I64_TABLE_OUT = types.Array(types.int64, 2, "C")

_config: Any = numba_config  # its attributes are made at run time
_LOCATOR = f"{cache.__name__}.{cache.KernelCacheLocator.__name__}"
_NUMBA_LOCATORS = (
    "UserProvidedCacheLocator,InTreeCacheLocator,UserWideCacheLocator,"
    "IPythonCacheLocator,ZipCacheLocator"
)


def _configure() -> None:
    """Set numba's globals; must run before the first decorator of the process."""
    _config.CPU_NAME = cache.CPU_NAME
    _config.CPU_FEATURES = cache.CPU_FEATURES
    if not _config.CACHE_LOCATOR_CLASSES:
        _config.CACHE_LOCATOR_CLASSES = f"{_LOCATOR},{_NUMBA_LOCATORS}"
    elif _LOCATOR not in _config.CACHE_LOCATOR_CLASSES:
        _config.CACHE_LOCATOR_CLASSES = f"{_LOCATOR},{_config.CACHE_LOCATOR_CLASSES}"


_configure()

_OPTIONS: Any = {"error_model": "numpy", "_nrt": False}
"""Reference counts off: helpers that count every array they are given up and down, with locked
instructions, took four fifths of the time of a JSON scan."""

JIT_DISABLED = bool(_config.DISABLE_JIT)
"""NUMBA_DISABLE_JIT=1: kernels are the plain Python functions (coverage, index checks)."""


@dataclass(frozen=True, slots=True)
class BuiltKernel:
    """One kernel of this process and where its machine code came from."""

    module: str
    name: str
    from_cache: bool


BUILT_KERNELS: list[BuiltKernel] = []
"""Every kernel declared so far, in order of import."""


def kernel(
    signature: object, *, keeps_gil: bool = False
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Compile the function for exactly this signature, or load it from the cache, now.

    keeps_gil is for kernels of some nanoseconds a record: to release the GIL for a microsecond
    invites another thread to take it, and the caller then waits for that thread's turn to end.

    A cache that cannot be written (full or read-only disk) or whose files are damaged costs the
    compilation of this start, never the start.
    """

    def declare(function: Callable[P, R]) -> Callable[P, R]:
        if JIT_DISABLED:
            return function
        locator = cache.KernelCacheLocator.from_function(function, inspect.getfile(function))
        try:
            compiled = _compile(function, signature, not keeps_gil, use_cache=locator is not None)
        except (EOFError, pickle.UnpicklingError):
            is_usable = _discard(locator, function)
            compiled = _compile(function, signature, not keeps_gil, use_cache=is_usable)
        except OSError:
            compiled = _compile(function, signature, not keeps_gil, use_cache=False)
        hits = sum(compiled.stats.cache_hits.values())
        BUILT_KERNELS.append(BuiltKernel(function.__module__, function.__name__, hits > 0))
        return cast("Callable[P, R]", compiled)

    return declare


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """Declare a small function that kernels call; inlined into each of them.

    numba freezes what it called when it compiled: the file must be the kernel's own or one that
    its file imports, which the digest of the cache then covers. Not callable from Python on a hot
    path: it would be compiled at the first call.
    """
    if JIT_DISABLED:
        return function
    return cast("Callable[P, R]", njit(**_OPTIONS, nogil=True, forceinline=True)(function))


def _compile(function: Callable[P, R], signature: object, nogil: bool, *, use_cache: bool) -> Any:
    """numba's decorator with our options."""
    decorate = njit(signature, nogil=nogil, cache=use_cache, **_OPTIONS)
    return decorate(function)


def _discard(locator: cache.KernelCacheLocator | None, function: Callable[P, R]) -> bool:
    """Remove damaged cache files of one kernel; True when the cache can be used again."""
    if locator is None:
        return False
    directory = locator.get_cache_path()
    prefix = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}-"
    try:
        for name in os.listdir(directory):
            if name.startswith(prefix):
                os.unlink(os.path.join(directory, name))
    except OSError:
        return False
    return True
