"""Compiled kernels: arrays and ints in, a status code out; no Python object a record.

Importing this package configures numba before any kernel is decorated and imports nothing heavy. The
compiled code is cached in a directory whose name holds a digest of the kernels' sources and of the
versions that shaped it, so a changed source never meets a stale kernel, whichever file it is in.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
import sysconfig
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# Every module of this package that holds kernels, in the order of warming up.
KERNEL_MODULES = (
    "batch_scan",
    "index_build",
    "record_scan",
    "record_build",
    "partition_keys",
    "json_text",
    "json_records",
)


@dataclass(frozen=True, slots=True)
class WarmUp:
    """How many kernels were compiled now and how many came from the cache."""

    compiled: int
    cached: int


def _digest() -> str:
    """What the compiled code depends on, in sixteen hexadecimal digits."""
    digest = hashlib.sha256()
    for name in ("numba", "llvmlite", "numpy"):
        digest.update(f"{name} {metadata.version(name)}\n".encode())
    digest.update(f"{sys.version_info[:3]} {sysconfig.get_platform()}\n".encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:16]


def _usable(directory: Path) -> bool:
    """Filled already, or can be filled."""
    if directory.is_dir() and any(directory.rglob("*.nbi")):
        return True
    parent = directory
    while not parent.exists():
        parent = parent.parent
    return os.access(parent, os.W_OK)


def cache_directory() -> Path:
    """``$KAFKALOG_KERNEL_CACHE``, else below the installation prefix, else the user's cache."""
    given = os.environ.get("KAFKALOG_KERNEL_CACHE")
    if given:
        return Path(given) / _digest()
    installed = Path(sys.prefix) / "var" / "kafkalog-kernels" / _digest()
    if _usable(installed):
        return installed
    home = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(home) / "kafkalog-kernels" / _digest()


# numba reads these when it is first imported: the cached code must run on any machine of the
# architecture (an image is built on one and runs on another), and never lie beside the sources.
os.environ.setdefault("NUMBA_CPU_NAME", "generic")
os.environ.setdefault("NUMBA_CPU_FEATURES", "")
os.environ.setdefault("NUMBA_CACHE_DIR", str(cache_directory()))


def warm_up(progress: Callable[[str, int, int], None] | None = None) -> WarmUp:
    """Import every kernel: from the cache, or compiled now. progress(module, done, all)."""
    from kafkalog.kernels import compile as compiling

    for number, name in enumerate(KERNEL_MODULES, 1):
        importlib.import_module(f"{__name__}.{name}")
        if progress is not None:
            progress(name, number, len(KERNEL_MODULES))
    return WarmUp(*compiling.counts())
