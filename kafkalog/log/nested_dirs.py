"""Directories that are one another, or lie in one another: no log directory may.

A start would look at the inner one as at a partition of the outer one, a backup or a restore would
fill a directory that is served. Paths are compared after links are resolved; a directory that is
mounted at two places is known by its lock alone. Changes nothing. Source: none; Kafka refuses one
path twice, and its broker ends at an inner directory that is named like no partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.errors import InvalidConfig
from kafkalog.format.backup_manifest import RESTORE_MARKER
from kafkalog.format.file_names import META_PROPERTIES, PARTITION_METADATA

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalog.env.filesystem import Filesystem, ReadFilesystem

_MARKS = (META_PROPERTIES, RESTORE_MARKER)


def lies_in(path: str, directory: str) -> bool:
    """Whether one real path is the other, or below it."""
    return f"{path}/".startswith(f"{directory.rstrip('/')}/")


def log_dir_path(filesystem: ReadFilesystem, entry: str) -> str:
    """An entry of ``log.dirs`` as the path it is known by: absolute, without a slash behind."""
    whole = entry if entry.startswith("/") else filesystem.real_path(entry)
    return whole.rstrip("/") or "/"


def check_apart(filesystem: ReadFilesystem, entries: Iterable[str]) -> None:
    """InvalidConfig unless the entries of ``log.dirs`` are apart; one path twice is one entry.

    One that is a partition would become a log directory in another one: refused, too.
    """
    paths = dict.fromkeys(log_dir_path(filesystem, entry) for entry in entries)
    real_paths = {path: filesystem.real_path(path) for path in paths}
    seen: dict[str, str] = {}
    for path, real in real_paths.items():
        if _is_partition(filesystem, real):
            raise InvalidConfig(
                f"log.dirs names {path}, which is the directory of a partition: name the log "
                "directory around it",
                value=path,
            )
        for other, other_real in seen.items():
            if real == other_real:
                raise InvalidConfig(f"log.dirs names {other} twice: as {path}", value=path)
            for inner, outer in ((path, other), (other, path)):
                if lies_in(real_paths[inner], real_paths[outer]):
                    raise InvalidConfig(
                        f"log.dirs names {inner}, which lies in {outer}: no log directory may lie "
                        "in another one. Move it out of there.",
                        value=inner,
                    )
        seen[path] = real


def _is_partition(filesystem: ReadFilesystem, directory: str) -> bool:
    """As far as can be seen: what is wrong with a disk is told by whoever opens the directory."""
    try:
        return filesystem.exists(f"{directory}/{PARTITION_METADATA}")
    except OSError:
        return False


def enclosing_log_dir(filesystem: Filesystem, real_path: str) -> str | None:
    """The log directory that a real path lies in, as far as its files tell; unguarded.

    Known by ``meta.properties``, which every directory has that served, or by the mark of a restore
    that has not ended.
    """
    directory = real_path
    while directory:
        directory = directory.rpartition("/")[0]
        if any(filesystem.exists(f"{directory}/{name}") for name in _MARKS):
            return directory or "/"
    return None
