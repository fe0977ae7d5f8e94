"""Files in the root of a log directory: read whole, and replaced so that no damaged byte is lost.

Shared by the daemon's start and ``kafkalog doctor --repair``; decides nothing. One thread: the one
that holds the lock of the directory.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from kafkalog.format.integers import FormatError

if TYPE_CHECKING:
    from kafkalog.env.filesystem import Filesystem, ReadFilesystem

ASIDE_SUFFIX = ".damaged"


def read_root_file(filesystem: ReadFilesystem, path: str) -> bytes | None:
    """Its content, None when there is none; FormatError for a directory in its place; OSError."""
    try:
        return filesystem.read_file(path)
    except FileNotFoundError:
        return None
    except IsADirectoryError as error:
        raise FormatError("is a directory") from error


def names_aside(path: str) -> itertools.chain[str]:
    """Where what lies at ``path`` may be kept: not with ``-n``, which would be a partition."""
    first = f"{path}{ASIDE_SUFFIX}"
    return itertools.chain((first,), (f"{first}.{number}" for number in itertools.count(2)))


def free_name_aside(filesystem: Filesystem, path: str) -> str:
    """The first of those names that nothing has."""
    return next(name for name in names_aside(path) if not filesystem.exists(name))


def replace_damaged(filesystem: Filesystem, path: str, data: bytes) -> str | None:
    """Put ``data`` in the place of a damaged file; where its bytes are kept, None: it was missing.

    Durable on return. Crash: the damaged file is there or the new one, the kept bytes before it.
    """
    kept = _keep_aside(filesystem, path)
    filesystem.write_file_atomically(path, data)
    return kept


def _keep_aside(filesystem: Filesystem, path: str) -> str | None:
    try:
        data = read_root_file(filesystem, path)
    except FormatError:
        target = free_name_aside(filesystem, path)
        filesystem.rename(path, target)
        filesystem.sync_dir(path.rpartition("/")[0])
        return target
    if data is None:
        return None
    for target in names_aside(path):
        if not filesystem.exists(target):
            filesystem.write_file_atomically(target, data)
            return target
        if _has(filesystem, target, data):
            return target  # kept by a start that a crash ended
    raise AssertionError("the names do not end")


def _has(filesystem: Filesystem, path: str, data: bytes) -> bool:
    try:
        return read_root_file(filesystem, path) == data
    except FormatError:
        return False
