"""Compiled kernels: arrays and integers in, a status code out; no Python object per record.

Importing this package alone is cheap: `compile.py` imports numba with the first kernel module. A
kernel is compiled when its module is imported, or loaded from the cache directory that `cache.py`
chooses. Nothing here touches a log directory, a clock or a thread.

Rules for kernel modules
- Every kernel is declared with `compile.kernel(signature)`, helpers with `compile.inlined`. A
  function that kernels of several files call is in a module that they import, because the cache's
  digest of a module covers its imports.
- Input is hostile: every read is checked against the buffer, no exception is raised inside.
- Every module of this directory that declares kernels is compiled by `warm_up`.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_WITHOUT_KERNELS = {
    "__main__",
    "cache",
    "compaction.batch_output",
    "compile",
    "json.output",
    "json.utf8",
    "loads",
    "processor",
}


def source_modules() -> list[str]:
    """Names of all modules below this package, sorted: `cache`, `records.batch_scan`."""
    root = os.path.dirname(os.path.abspath(__file__))
    found = []
    for folder, _, files in os.walk(root):
        prefix = os.path.relpath(folder, root).replace(os.sep, ".")
        names = [name[:-3] for name in files if name.endswith(".py")]
        found += names if prefix == "." else [f"{prefix}.{name}" for name in names]
    return sorted(found)


KERNEL_MODULES = tuple(
    f"{__name__}.{module}"
    for module in source_modules()
    if module not in _WITHOUT_KERNELS and not module.endswith("__init__")
)
"""Every module below this directory that declares kernels, found by its file."""

_OPTIONAL = {f"{__name__}.records.arrow_columns": "pyarrow"}
"""Modules that are useless without an optional package. Set-up compiles them nevertheless, because
the package may be installed later; a start without the package does not load them."""


@dataclass(frozen=True, slots=True)
class WarmUp:
    """How many kernels had to be compiled and how many came from the cache."""

    compiled: int
    cached: int


def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def modules_of_use(is_installed: Callable[[str], bool] = _is_installed) -> tuple[str, ...]:
    """The modules without those whose package is not installed."""
    return tuple(
        module
        for module in KERNEL_MODULES
        if module not in _OPTIONAL or is_installed(_OPTIONAL[module])
    )


def warm_up(
    progress: Callable[[str, int, int], None] | None = None,
    modules: tuple[str, ...] = KERNEL_MODULES,
) -> WarmUp:
    """Load or compile the kernels of these modules; blocks for seconds when the cache is cold.

    `progress(module, done, total)` is called before each module and once at the end with
    done == total. Later calls find all modules imported and return the same counts. With
    NUMBA_DISABLE_JIT=1 nothing is compiled and both counts are 0.
    """
    total = len(modules)
    for done, module in enumerate(modules):
        if progress is not None:
            progress(module, done, total)
        importlib.import_module(module)
    if progress is not None:
        progress("", total, total)
    compile_module = importlib.import_module("kafkalog.kernels.compile")
    built: list[bool] = [kernel.from_cache for kernel in compile_module.BUILT_KERNELS]
    return WarmUp(compiled=built.count(False), cached=built.count(True))
