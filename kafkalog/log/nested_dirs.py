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
from kafkalog.format.file_names import META_PROPERTIES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.env.filesystem import Filesystem

_MARKS = (META_PROPERTIES, RESTORE_MARKER)


def lies_in(path: str, directory: str) -> bool:
    """Whether one real path is the other, or below it."""
    return f"{path}/".startswith(f"{directory.rstrip('/')}/")


def check_apart(real_paths: Mapping[str, str]) -> None:
    """InvalidConfig unless the entries of ``log.dirs`` are apart; values are their real paths."""
    seen: dict[str, str] = {}
    for path, real in real_paths.items():
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
