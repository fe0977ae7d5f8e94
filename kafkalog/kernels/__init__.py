"""Compiled kernels: arrays and integers in, a status code out; no Python object per record.

Importing this package alone is cheap. A kernel is loaded or compiled when its module is imported:
from the image of all kernels (`image.py`), which needs no numba, else by numba (`jit.py`), from the
cache directory that `cache.py` chooses. The first start that compiles writes the image (`link.py`).
Nothing here touches a log directory, a clock or a thread.

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
    from types import ModuleType

_WITHOUT_KERNELS = {
    "__main__",
    "cache",
    "compaction.batch_output",
    "compile",
    "image",
    "jit",
    "json.output",
    "json.utf8",
    "link",
    "loads",
    "processor",
    "signature",
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


@dataclass(frozen=True, slots=True)
class WarmUp:
    """How many kernels had to be compiled and how many came from the cache or the image."""

    compiled: int
    cached: int
    image: str
    """`loaded`, `written` for the next start, or `none`: each start then takes what numba takes."""


def warm_up(progress: Callable[[str, int, int], None] | None = None) -> WarmUp:
    """Load or compile all kernels; blocks for seconds when the cache is cold.

    `progress(module, done, total)` is called before each module and once at the end with
    done == total. Later calls find all modules imported and return the same counts. With
    NUMBA_DISABLE_JIT=1 nothing is compiled and both counts are 0.
    """
    total = len(KERNEL_MODULES)
    for done, module in enumerate(KERNEL_MODULES):
        if progress is not None:
            progress(module, done, total)
        importlib.import_module(module)
    if progress is not None:
        progress("", total, total)
    compile_module = importlib.import_module("kafkalog.kernels.compile")
    built: list[bool] = [kernel.from_cache for kernel in compile_module.BUILT_KERNELS]
    return WarmUp(built.count(False), built.count(True), _ensure_image(compile_module))


def _ensure_image(compile_module: ModuleType) -> str:
    """See `WarmUp.image`."""
    if not compile_module.IS_COMPILING:
        return "none" if compile_module.JIT_DISABLED else "loaded"
    link = importlib.import_module("kafkalog.kernels.link")
    return "written" if link.write_image() else "none"
