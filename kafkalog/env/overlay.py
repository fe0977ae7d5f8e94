"""A directory as it would be if somebody worked on it: its files are read, nothing in it changes.

For dry runs of what needs a log of its own. New and changed files come into a temporary directory;
``.log`` files, which are large, stay where they are and are read from there, the small others are
copied. What would change a ``.log`` of the source fails as on a disk that is mounted for reading.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kafkalog.env.system_filesystem import SystemFilesystem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.env.filesystem import FileStat
    from kafkalog.env.system_filesystem import SystemFile, SystemFileStat


@contextmanager
def overlay(source: str, kept_suffix: str) -> Iterator[tuple[OverlayFilesystem, str]]:
    """A disk and the path of a directory on it that shows ``source``, whose name it has.

    Files that end in kept_suffix stay in the source. Everything is gone afterwards. OSError.
    """
    with tempfile.TemporaryDirectory(prefix="kafkalog-") as root:
        directory = f"{root}/{os.path.basename(source)}"
        os.mkdir(directory)
        kept = set()
        with os.scandir(source) as entries:
            for entry in entries:
                if not entry.is_file(follow_symlinks=False):
                    continue
                if entry.name.endswith(kept_suffix):
                    kept.add(entry.name)
                else:
                    shutil.copy2(entry.path, f"{directory}/{entry.name}")
        yield OverlayFilesystem(directory, source, frozenset(kept)), directory


class OverlayFilesystem(SystemFilesystem):
    """See the module. Files that were kept below show in ``upper`` unless it has its own."""

    def __init__(self, upper: str, lower: str, kept: frozenset[str]) -> None:
        self._upper = upper
        self._lower = lower
        self._kept = kept

    def _below(self, path: str) -> str | None:
        """Where the file of this path lies in the source; None: it does not."""
        directory, _, name = path.rpartition("/")
        if directory != self._upper or name not in self._kept or os.path.lexists(path):
            return None
        return f"{self._lower}/{name}"

    def open_read(self, path: str) -> SystemFile:
        """See Filesystem."""
        return super().open_read(self._below(path) or path)

    def open_scan(self, path: str) -> SystemFile:
        """See Filesystem."""
        return super().open_scan(self._below(path) or path)

    def open_write(self, path: str, *, create: bool = True, exclusive: bool = False) -> SystemFile:
        """See Filesystem; a file of the source opens, and refuses every write (EBADF)."""
        below = self._below(path)
        if below is None:
            return super().open_write(path, create=create, exclusive=exclusive)
        if exclusive:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        return super().open_read(below)

    def exists(self, path: str) -> bool:
        """See Filesystem."""
        return super().exists(self._below(path) or path)

    def stat(self, path: str) -> SystemFileStat:
        """See Filesystem."""
        return super().stat(self._below(path) or path)

    def list_dir(self, path: str) -> list[str]:
        """See Filesystem."""
        return [each.name for each in self.list_dir_stats(path)]

    def list_dir_stats(self, path: str) -> list[FileStat]:
        """See Filesystem."""
        found = {each.name: each for each in super().list_dir_stats(path)}
        if path == self._upper:
            for name in self._kept - found.keys():
                found[name] = self.stat(f"{path}/{name}")
        return [found[name] for name in sorted(found)]

    def set_mtime_ms(self, path: str, mtime_ms: int) -> None:
        """See Filesystem; refused for a file of the source."""
        self._refuse_below(path)
        super().set_mtime_ms(path, mtime_ms)

    def rename(self, source: str, target: str) -> None:
        """See Filesystem; refused for a file of the source."""
        self._refuse_below(source)
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        """See Filesystem; refused for a file of the source."""
        self._refuse_below(path)
        super().unlink(path)

    def _refuse_below(self, path: str) -> None:
        if self._below(path) is not None:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
