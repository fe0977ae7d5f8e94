"""Where compiled kernels are stored, and when a stored kernel is valid.

numba's own rule checks only the file of the kernel, so that a change in `loads.py` would go
unnoticed, and its locator requires a writable directory, so that a filled cache on a read-only root
would be ignored. Here the directory of a module is named by a digest of its source, of every kernel
module that it imports, and of the tool versions. A changed source has another directory, so that no
stale kernel is ever loaded; an existing directory is used whether it is writable or not.

Root, in this order: `$KAFKALOG_KERNEL_CACHE` (then no other), `lib/kafkalog/kernels` below the
installation prefix, `kafkalog/kernels` in the user's cache directory. Without any the kernels are
compiled at each start. Several processes may fill one directory at once: files appear by rename.
A wheel brings the image of all kernels in `kernels/prebuilt`. It is used when no root is named and
sources and tools are those that made it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import sys
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy

from kafkalog.kernels import source_modules

if TYPE_CHECKING:
    from collections.abc import Iterable

CPU_NAME = "generic"
CPU_FEATURES = ""

_SOURCE_DIRECTORY = os.path.dirname(os.path.abspath(__file__))
_PREBUILT = os.path.join(_SOURCE_DIRECTORY, "prebuilt")
_IMPORTED = re.compile(r"^\s*(?:from|import) kafkalog\.kernels\.([\w.]+)", re.MULTILINE)
_SHARED = ("cache", "compile", "jit", "loads", "signature")


def _read_source(module: str) -> bytes:
    """Source text of one kernel module."""
    path = os.path.join(_SOURCE_DIRECTORY, *module.split("."))
    with open(path + ".py", "rb") as source:
        return source.read()


def _tool_version(package: str) -> bytes:
    """What the package says of its version, unimported: numba takes a quarter of a second."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        return b""
    with open(found.origin.replace("__init__", "_version"), "rb") as source:
        return source.read()


@lru_cache(maxsize=64)
def source_digest(module: str) -> str:
    """16 hex digits over the module, the kernel modules it imports, and the tool versions."""
    return digest_of((module, *_SHARED))


def digest_of(modules: Iterable[str]) -> str:
    """16 hex digits over these modules, the kernel modules they import, and the tool versions."""
    wanted, sources = list(modules), dict[str, bytes]()
    while wanted:
        name = wanted.pop()
        if name not in sources:
            sources[name] = _read_source(name)
            wanted += _IMPORTED.findall(sources[name].decode("utf-8"))
    versions = (sys.implementation.cache_tag, os.uname().machine, CPU_NAME, CPU_FEATURES)
    tools = (_tool_version("numba"), _tool_version("llvmlite"), numpy.__version__)
    digest = hashlib.sha256(repr(versions + tools).encode())
    for name in sorted(sources):
        digest.update(f"{name} {len(sources[name])} ".encode())
        digest.update(sources[name])
    return digest.hexdigest()[:16]


def image_name() -> str:
    """Name of the image of all kernels, a file in a root."""
    return f"image-{digest_of(source_modules())}"


def candidate_roots() -> list[str]:
    """Cache roots to try, first choice first."""
    chosen = os.environ.get("KAFKALOG_KERNEL_CACHE")
    if chosen:
        return [os.path.abspath(chosen)]
    user = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return [
        os.path.join(sys.prefix, "lib", "kafkalog", "kernels"),
        os.path.join(os.path.abspath(user), "kafkalog", "kernels"),
    ]


def image_roots() -> list[str]:
    """Where an image may lie: what the wheel brought, then the cache roots."""
    prebuilt = [] if os.environ.get("KAFKALOG_KERNEL_CACHE") else [_PREBUILT]
    return prebuilt + candidate_roots()


def _is_writable(root: str) -> bool:
    """Whether entries can be made in root; makes root itself when it is missing."""
    try:
        os.makedirs(root, exist_ok=True)
    except OSError:
        return False
    return os.access(root, os.W_OK | os.X_OK)


def cache_directory(module: str) -> str | None:
    """Directory of one kernel module: it exists already or can be made; None when neither."""
    name = f"{module}-{source_digest(module)}"
    for root in candidate_roots():
        directory = os.path.join(root, name)
        if os.path.isdir(directory) or _is_writable(root):
            return directory
    return None


def cache_root() -> str | None:
    """The first root that can be written; None when there is none."""
    return next((root for root in candidate_roots() if _is_writable(root)), None)


def remove_stale(root: str) -> int:
    """Remove what belongs to other sources from a root of this installation alone.

    A user's cache may serve several installations and is left as it is. Returns how many entries.
    """
    if os.environ.get("KAFKALOG_KERNEL_CACHE") or not root.startswith(sys.prefix + os.sep):
        return 0
    current = {f"{module}-{source_digest(module)}" for module in source_modules()} | {image_name()}
    stale = [os.path.join(root, name) for name in os.listdir(root) if name not in current]
    for path in stale:
        if os.path.isdir(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(FileNotFoundError):  # another process was faster
                os.unlink(path)
    return len(stale)


def module_of(path: str) -> str | None:
    """The name of a module of this package by its file; None for every other file."""
    path = os.path.abspath(path)
    if not path.startswith(_SOURCE_DIRECTORY + os.sep):
        return None
    inside = os.path.relpath(path, _SOURCE_DIRECTORY)
    return inside[: -len(".py")].replace(os.sep, ".")
