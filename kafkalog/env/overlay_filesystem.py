"""An overlay: a directory that can be changed while its source directory stays unchanged.

For dry runs that need a log of their own, and for work whose result is written elsewhere. New and
changed files go to an upper directory. Large files (``.log``) stay in the source and are read from
there; small ones are copied. A file that stays in the source can be renamed or removed in the
overlay; a change of its bytes or its time copies it first. A dry run refuses such a change, because
it must not repair what it judges, and ignores links, as a daemon does; other work follows links and
copies their targets. One thread.
"""

from __future__ import annotations

import errno
import os
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kafkalog.env.system_filesystem import SystemFile, SystemFilesystem, copy_file, files_to_copy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalog.env.filesystem import Buffer, FileStat, ReadableFile


@contextmanager
def overlay(source: str, kept_suffix: str) -> Iterator[tuple[OverlayFilesystem, str]]:
    """A disk and the path of a directory on it that shows ``source``, whose name it has.

    Files that end in kept_suffix stay in the source; a change of them fails (EROFS).
    The directory is removed afterwards. OSError.
    """
    with tempfile.TemporaryDirectory(prefix="kafkalog-") as root:
        directory = f"{root}/{os.path.basename(source)}"
        yield _shown_in(directory, source, kept_suffix, copies_up=False), directory


def overlay_in(directory: str, source: str, kept_suffix: str) -> OverlayFilesystem:
    """A disk on which a new ``directory`` shows ``source``.

    Files that end in kept_suffix stay there until their first change. The directory's parent has to
    be there. OSError; the directory then holds a part.
    """
    return _shown_in(directory, source, kept_suffix, copies_up=True)


def _shown_in(
    directory: str, source: str, kept_suffix: str, *, copies_up: bool
) -> OverlayFilesystem:
    upper = OverlayFilesystem(directory, copies_up=copies_up)
    upper.make_dir(directory, parents=False)
    for name, _ in files_to_copy(source):
        path = f"{source}/{name}"
        if not os.path.islink(path) and name.endswith(kept_suffix):
            upper.show(name, path)
        elif copies_up or not os.path.islink(path):
            copy_file(path, f"{directory}/{name}")
    return upper


class OverlayFilesystem(SystemFilesystem):
    """See the module. Files that were kept below show in ``upper`` unless it has its own."""

    def __init__(self, upper: str, *, copies_up: bool) -> None:
        self._upper = upper
        self._copies_up = copies_up
        self._kept: dict[str, str] = {}  # paths below, by the name that they show under
        self._seen: dict[str, tuple[int, int]] = {}  # size and mtime of them then

    def show(self, name: str, below: str) -> None:
        """Have the file ``below`` under this name in ``upper``. OSError."""
        self._kept[name] = below
        self._seen[below] = _version_of(below)

    def fill(self, but_suffix: str) -> None:
        """Copy what is still below, so that the directory is whole without the source. OSError.

        Files that end in ``but_suffix`` are not shown any more instead.
        """
        for name, below in self._kept.items():
            if not name.endswith(but_suffix):
                self._copy(below, name)
        self._kept.clear()

    def _copy(self, below: str, name: str) -> None:
        """ESTALE when it was changed since ``show``: the copy would mix two states."""
        copy_file(below, f"{self._upper}/{name}")
        if _version_of(below) != self._seen[below]:
            raise OSError(errno.ESTALE, "It was changed meanwhile", below)

    def place_of(self, path: str) -> str:
        """The path of the bytes of a file: its own, or that of the file in the source."""
        return self._below(path) or path

    def copy_up(self, below: str) -> str:
        """Copy a file before its first change; its new path. OSError, EROFS."""
        for name, path in self._kept.items():
            if path == below and self._copies_up:
                self._copy(below, name)
                del self._kept[name]
                return f"{self._upper}/{name}"
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), below)

    def _below(self, path: str) -> str | None:
        """The path in the source of the file with this path; None: it is not in the source."""
        directory, _, name = path.rpartition("/")
        return self._kept.get(name) if directory == self._upper else None

    def open_read(self, path: str) -> SystemFile:
        """See Filesystem."""
        return super().open_read(self.place_of(path))

    def open_scan(self, path: str) -> SystemFile:
        """See Filesystem."""
        return super().open_scan(self.place_of(path))

    def open_write(self, path: str, *, create: bool = True, exclusive: bool = False) -> SystemFile:
        """See Filesystem; a file of the source is copied by its first change."""
        below = self._below(path)
        if below is None:
            return super().open_write(path, create=create, exclusive=exclusive)
        if exclusive:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        return _LowerFile(self, below)

    def exists(self, path: str) -> bool:
        """See Filesystem."""
        return super().exists(self.place_of(path))

    def stat(self, path: str) -> FileStat:
        """See Filesystem."""
        return super().stat(self.place_of(path))._replace(name=path.rpartition("/")[2])

    def is_at(self, file: ReadableFile, path: str) -> bool:
        """See Filesystem."""
        return super().is_at(file, self.place_of(path))

    def list_dir(self, path: str) -> list[str]:
        """See Filesystem."""
        return [each.name for each in self.list_dir_stats(path)]

    def list_dir_stats(self, path: str) -> list[FileStat]:
        """See Filesystem."""
        found = list(super().list_dir_stats(path))
        if path == self._upper:
            found += [self.stat(f"{path}/{name}") for name in self._kept]
        return sorted(found, key=lambda each: each.name)

    def set_mtime_ms(self, path: str, mtime_ms: int) -> None:
        """See Filesystem."""
        below = self._below(path)
        if below is not None:
            self.copy_up(below)
        super().set_mtime_ms(path, mtime_ms)

    def rename(self, source: str, target: str) -> None:
        """See Filesystem; a file of the source only in its directory (EXDEV)."""
        below = self._below(source)
        directory, _, name = target.rpartition("/")
        self._refuse(source, target)
        if source == target:
            return
        if below is None:
            super().rename(source, target)
        elif directory != self._upper:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), source, None, target)
        elif super().exists(target):
            super().unlink(target)
        if directory == self._upper:
            self._kept.pop(name, None)
        if below is not None:
            del self._kept[source.rpartition("/")[2]]
            self._kept[name] = below

    def unlink(self, path: str) -> None:
        """See Filesystem; a file of the source stays there and is hidden."""
        self._refuse(path)
        if self._below(path) is None:
            super().unlink(path)
        else:
            del self._kept[path.rpartition("/")[2]]

    def _refuse(self, *paths: str) -> None:
        """EROFS for files of the source, in a dry run."""
        for path in paths:
            if not self._copies_up and self._below(path) is not None:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)


def _version_of(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


class _LowerFile(SystemFile):
    """A file of the source that is open for writing: its first change is one of a copy."""

    __slots__ = ("_below", "_overlay")

    def __init__(self, overlay: OverlayFilesystem, below: str) -> None:
        fd = os.open(below, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        super().__init__(fd, below, is_writable=True)
        self._overlay = overlay
        self._below: str | None = below

    def pwrite(self, data: Buffer, position: int) -> None:
        """See File."""
        self._change()
        super().pwrite(data, position)

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        """See File."""
        self._change()
        super().pwritev(buffers, position)

    def truncate(self, size: int) -> None:
        """See File."""
        self._change()
        super().truncate(size)

    def _change(self) -> None:
        """Switch to the copy before the first change."""
        if self._below is None:
            return
        self.path, self._below = self._overlay.copy_up(self._below), None
        fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        os.dup2(fd, self._fd, inheritable=False)
        os.close(fd)
