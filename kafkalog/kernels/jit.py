"""numba, and all that is set in it. Imported only where a kernel is compiled or its image made.

Owns numba's global settings: code for a generic CPU of the architecture (measured no slower, and
the cache fits every machine of an image), our cache locator before numba's own.
A kernel releases the GIL (unless it is a brief one), has one explicit signature and is compiled
when its module is imported; a call with other types is a TypeError, never a silent compilation in
the middle of a request. Division by zero follows numpy (no exception inside a kernel). A kernel
cannot allocate: reference counts are off, and its caller brings the working memory.
"""

from __future__ import annotations

import inspect
import os
import pickle
from typing import TYPE_CHECKING, Any

from numba import njit, types
from numba.core import caching, config as numba_config

from kafkalog.kernels import cache
from kafkalog.kernels.signature import Array

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.kernels.signature import BuiltKernel, Scalar, Signature

_config: Any = numba_config  # its attributes are made at run time
_NUMBA_LOCATORS = (
    "UserProvidedCacheLocator,InTreeCacheLocator,UserWideCacheLocator,"
    "IPythonCacheLocator,ZipCacheLocator"
)
_OPTIONS: Any = {"error_model": "numpy", "_nrt": False}
"""Reference counts off: helpers that count every array they are given up and down, with locked
instructions, took four fifths of the time of a JSON scan."""


class KernelCacheLocator(caching._CacheLocator):
    """Tells numba the directory of a kernel; declines every function outside this package."""

    def __init__(self, directory: str, line: int) -> None:
        self._directory = directory
        self._line = line

    def get_cache_path(self) -> str:
        """See numba."""
        return self._directory

    def get_source_stamp(self) -> str:
        """The directory's name holds the digest, so that index and data can never be mixed."""
        return os.path.basename(self._directory)

    def get_disambiguator(self) -> str:
        """See numba."""
        return str(self._line)

    @classmethod
    def from_function(cls, py_func: object, py_file: str) -> KernelCacheLocator | None:
        """A locator for functions of this package, else None: numba asks the next one."""
        module = cache.module_of(py_file)
        directory = None if module is None else cache.cache_directory(module)
        code = getattr(py_func, "__code__", None)
        if directory is None or code is None:
            return None
        return cls(directory, code.co_firstlineno)


_LOCATOR = f"{__name__}.{KernelCacheLocator.__name__}"


def _configure() -> None:
    """Set numba's globals; must run before the first decorator of the process."""
    _config.CPU_NAME = cache.CPU_NAME
    _config.CPU_FEATURES = cache.CPU_FEATURES
    if not _config.CACHE_LOCATOR_CLASSES:
        _config.CACHE_LOCATOR_CLASSES = f"{_LOCATOR},{_NUMBA_LOCATORS}"
    elif _LOCATOR not in _config.CACHE_LOCATOR_CLASSES:
        _config.CACHE_LOCATOR_CLASSES = f"{_LOCATOR},{_config.CACHE_LOCATOR_CLASSES}"


_configure()


def compiled(function: Callable[..., Any], signature: Signature, *, keeps_gil: bool) -> Any:
    """numba's dispatcher for this signature alone.

    A cache that cannot be written (full or read-only disk) or whose files are damaged costs the
    compilation of this start, never the start.
    """
    locator = KernelCacheLocator.from_function(function, inspect.getfile(function))
    try:
        return _compile(function, signature, not keeps_gil, use_cache=locator is not None)
    except (EOFError, pickle.UnpicklingError):
        is_usable = _discard(locator, function)
        return _compile(function, signature, not keeps_gil, use_cache=is_usable)
    except OSError:
        return _compile(function, signature, not keeps_gil, use_cache=False)


def inlined(function: Callable[..., Any]) -> Any:
    """A helper for the kernels that call it."""
    return njit(**_OPTIONS, nogil=True, forceinline=True)(function)


def machine_code(kernel: BuiltKernel) -> tuple[str, bytes]:
    """The kernel's symbol and the object that numba keeps of it; two empty ones when it keeps none.

    A kernel from the cache has handed its object to LLVM: it is read from there once more.
    """
    (made,) = kernel.compiled.overloads.values()
    numba_cache = kernel.compiled._cache
    if not hasattr(numba_cache, "_cache_file"):
        return "", b""
    key = numba_cache._index_key(_numba_signature(kernel.signature), made.target_context.codegen())
    stored = numba_cache._cache_file.load(key)
    if stored is None:
        return "", b""
    _, kind, (code, _) = stored[0]
    return (made.fndesc.llvm_func_name, code) if kind == "object" else ("", b"")


def argument_kinds(kernel: BuiltKernel) -> list[str]:
    """What the compiled function takes, by LLVM's names; every pointer is a `ptr`."""
    (made,) = kernel.compiled.overloads.values()
    convention = made.target_context.call_conv
    kind = convention.get_function_type(made.signature.return_type, made.signature.args)
    return ["ptr" if each.is_pointer else str(each) for each in kind.args]


def _compile(
    function: Callable[..., Any], signature: Signature, nogil: bool, *, use_cache: bool
) -> Any:
    """numba's decorator with our options."""
    decorate = njit(_numba_signature(signature), nogil=nogil, cache=use_cache, **_OPTIONS)
    return decorate(function)


def _numba_signature(signature: Signature) -> Any:
    result = getattr(types, signature.result.name)
    return result(*(_numba_type(kind) for kind in signature.arguments))


def _numba_type(kind: Scalar | Array) -> Any:
    named = getattr(types, kind.name)
    if isinstance(kind, Array):
        return types.Array(named, kind.dimensions, "C", readonly=not kind.is_written)
    return named


def _discard(locator: KernelCacheLocator | None, function: Callable[..., Any]) -> bool:
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
