"""The one decorator of kernels: eager, cached, without the GIL, and honest types for mypy.

``@kernel("i8(u1[::1], i8)")`` compiles at import (from the cache when it can), so nothing is compiled
later than start-up. ``@inlined`` is for helpers used by the kernels of the same file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

import numba

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")

_hits = 0
_misses = 0


def kernel(signature: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Compile for exactly this signature. Arrays are C-contiguous: ``u1[::1]``, ``i8[:, ::1]``."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        global _hits, _misses  # noqa: PLW0603 - start-up statistics of this module alone
        compiled = numba.njit(
            signature, nogil=True, cache=True, error_model="numpy", boundscheck=False
        )(function)
        stats = getattr(compiled, "stats", None)  # absent with NUMBA_DISABLE_JIT=1
        if stats is not None:
            _hits += sum(stats.cache_hits.values())
            _misses += sum(stats.cache_misses.values())
        return cast("Callable[P, R]", compiled)

    return decorate


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """A helper that LLVM sees together with the kernels of its file."""
    compiled = numba.njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)(function)
    return cast("Callable[P, R]", compiled)


def counts() -> tuple[int, int]:
    """(compiled now, found in the cache) since the process started."""
    return _misses, _hits
