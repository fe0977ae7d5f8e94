"""Log directories on an object store, for reading: backups and volumes that were copied there.

A path with a scheme (``s3://bucket/logs``, ``gs://``, ``abfs://``, ``hdfs://``) is read through
fsspec and the library of that store, which has to be installed where tasks run; credentials and
endpoints are those of that library's own configuration (environment, ``~/.config/fsspec``).

What differs from a disk: nobody serves a directory there, so a log ends with its last valid batch.
Objects are read in ranges, and a name is asked for anew at each read: an object that is replaced or
removed under a reader is an error, never other bytes. Nothing is written.
"""

from __future__ import annotations

import errno
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.errors import KafkalogError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kafkalog.env.filesystem import FileStat, ReadableFile, ReadFilesystem

_IDENTITIES = ("ETag", "etag", "generation", "version_id", "mtime", "LastModified", "created")
"""What stores say of an object that another one of the same name and size would not have."""


class Store(Protocol):
    """What is used of an fsspec file system. Names in what it tells are without the scheme."""

    def info(self, path: str) -> dict[str, Any]:
        """Of an object or a directory: name, size, type and whatever the store has."""
        ...

    def ls(self, path: str, *, detail: bool) -> list[dict[str, Any]]:
        """The same of everything in a directory."""
        ...

    def cat_file(self, path: str, start: int | None = None, end: int | None = None) -> bytes:
        """A range of an object."""
        ...

    def invalidate_cache(self) -> None:
        """Forget listings."""
        ...


class StoreMissing(KafkalogError):
    """The library for a store is not installed, or the store cannot be reached."""


def scheme_of(path: str) -> str | None:
    """Of a path on a store; None: it lies on a disk. Lower case."""
    scheme, found, _ = path.partition("://")
    return scheme.lower() if found and scheme.lower() != "file" else None


def filesystem_for(paths: Iterable[str]) -> ReadFilesystem:
    """Where these directories are: on this machine's disk, or on one store. Raises StoreMissing."""
    schemes = {scheme_of(path) for path in paths}
    if schemes <= {None}:
        return SystemFilesystem()
    if len(schemes) > 1:
        names = ", ".join(sorted("a disk" if each is None else f"{each}://" for each in schemes))
        raise StoreMissing(f"One run reads from one kind of place, not from {names}: run once each")
    return ObjectStore(str(schemes.pop()))


@dataclass(frozen=True, slots=True)
class ObjectStat:
    """See FileStat. ``mtime_ms`` is 0 where the store does not tell."""

    name: str
    size: int
    mtime_ms: int
    is_dir: bool
    is_file: bool


class StoredObject:
    """See ReadableFile: an object as it was when it was opened."""

    def __init__(self, store: Store, path: str, info: dict[str, Any]) -> None:
        self._store = store
        self._info = info
        self._path = path

    @property
    def path(self) -> str:
        """See ReadableFile."""
        return self._path

    @property
    def identity(self) -> tuple[object, ...]:
        """Another one: it was replaced."""
        return _identity(self._info)

    def size(self) -> int:
        """As it was opened."""
        return int(self._info["size"] or 0)

    def pread(self, size: int, position: int) -> bytes:
        """See ReadableFile. FileNotFoundError when it was removed, OSError when it was replaced."""
        end = min(position + size, self.size())
        if end <= position:
            return b""
        with _reaching(self._path):
            data = self._store.cat_file(self._path, start=position, end=end)
        if len(data) != end - position:
            raise OSError(errno.ESTALE, "The object was replaced while it was read", self._path)
        return data

    def close(self) -> None:
        """Nothing is open."""


class ObjectStore:
    """See ReadFilesystem."""

    def __init__(self, scheme: str) -> None:
        """Raises StoreMissing."""
        try:
            import fsspec
            from fsspec.core import strip_protocol

            # A listing that was kept would hide what a copy has added meanwhile.
            self._store: Store = fsspec.filesystem(scheme, use_listings_cache=False)
        except ImportError as error:
            raise StoreMissing(
                f"Paths with {scheme}:// need fsspec and its library for that store (for example "
                f"pip install 'kafkalog[spark]' s3fs), on every machine that runs tasks: {error}"
            ) from error
        except ValueError as error:  # a scheme that nobody knows
            raise StoreMissing(f"There is no store {scheme}://: {error}") from error
        self._strip: Callable[[str], str] = strip_protocol

    def open_read(self, path: str) -> ReadableFile:
        """See ReadFilesystem."""
        return StoredObject(self._store, path, self._info(path))

    def exists(self, path: str) -> bool:
        """See ReadFilesystem."""
        try:
            self._info(path)
        except FileNotFoundError:
            return False
        return True

    def is_at(self, file: ReadableFile, path: str) -> bool:
        """See ReadFilesystem."""
        try:
            info = self._info(path)
        except FileNotFoundError:
            return False
        return isinstance(file, StoredObject) and file.identity == _identity(info)

    def list_dir(self, path: str) -> list[str]:
        """See ReadFilesystem."""
        return [each.name for each in self.list_dir_stats(path)]

    def list_dir_stats(self, path: str) -> list[FileStat]:
        """See ReadFilesystem. NotADirectoryError for an object; FileNotFoundError for no prefix."""
        with _reaching(path):
            self._store.invalidate_cache()
            entries = self._store.ls(path, detail=True)
        own = self._strip(path).rstrip("/")
        itself = [each for each in entries if each["name"].rstrip("/") == own]
        if any(each["type"] != "directory" and each["name"] == own for each in itself):
            raise NotADirectoryError(errno.ENOTDIR, "It is an object, no directory", path)
        # Some stores show a directory in itself, as an empty object or as a directory.
        found = [each for each in entries if each not in itself]
        return sorted(map(_stat_of, found), key=lambda each: each.name)

    def stat(self, path: str) -> FileStat:
        """See ReadFilesystem."""
        return _stat_of(self._info(path))

    def read_file(self, path: str) -> bytes:
        """See ReadFilesystem."""
        with _reaching(path):
            return self._store.cat_file(path)

    def is_locked(self, path: str) -> bool:
        """See ReadFilesystem: nobody can hold a lock there."""
        del path
        return False

    def real_path(self, path: str) -> str:
        """See ReadFilesystem: there are no links."""
        return path.rstrip("/")

    def _info(self, path: str) -> dict[str, Any]:
        with _reaching(path):
            self._store.invalidate_cache()
            return self._store.info(path)


@contextmanager
def _reaching(path: str) -> Iterator[None]:
    """What the library of a store raises, as the OSError of a disk."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:  # each library has its own, with no base in common
        what = f"The store failed: {type(error).__name__}: {error}"
        raise OSError(errno.EIO, what, path) from error


def _identity(info: dict[str, Any]) -> tuple[object, ...]:
    return info.get("size"), *(info.get(name) for name in _IDENTITIES)


def _stat_of(info: dict[str, Any]) -> ObjectStat:
    is_dir = info["type"] == "directory"
    name = str(info["name"]).rstrip("/").rpartition("/")[2]
    return ObjectStat(name, int(info.get("size") or 0), _mtime_ms(info), is_dir, not is_dir)


def _mtime_ms(info: dict[str, Any]) -> int:
    for name in ("mtime", "LastModified", "last_modified", "created"):
        moment = info.get(name)
        if isinstance(moment, int | float):
            return int(moment * 1000)
        if moment is not None and hasattr(moment, "timestamp"):
            return int(moment.timestamp() * 1000)
    return 0
