"""An object store as its listings show it, for planning: few requests, many at once.

A plan needs the names and sizes of thousands of files. A listing has both, a page of a thousand
with one request. `ListedStore` lists each directory once and answers from that listing until
`forget`; it reads a small file once as long as the listings show the same object. What it opens is
asked for as ever. An object that is gone makes it forget the listing of its directory.

`Requests` are what may be asked at once: one after the other for a disk, in threads for a store.
"""

from __future__ import annotations

import errno
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kafkalog.env.system_threads import thread_pool
from kafkalog.spark.logs.object_store import shown
from kafkalog.spark.logs.plan_cache import FILE_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import ThreadPoolExecutor

    from kafkalog.env.filesystem import FileStat, ReadableFile
    from kafkalog.spark.logs.object_store import Identity, ObjectStore
    from kafkalog.spark.logs.plan_cache import PlanCache

T = TypeVar("T")
R = TypeVar("R")


class Requests(Protocol):
    """Runs work that waits for a store."""

    def map(self, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """The results in order. Raises the first error. Work must not call it."""

    def close(self) -> None:
        """End the threads."""


class OneByOne:
    """See Requests: in the caller's thread."""

    def map(self, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """See Requests."""
        return [work(each) for each in items]

    def close(self) -> None:
        """Do nothing."""


class Concurrent:
    """See Requests: in up to so many threads, which start with the first request."""

    def __init__(self, max_concurrent_requests: int) -> None:
        self._max_concurrent_requests = max_concurrent_requests
        self._pool: ThreadPoolExecutor | None = None

    def map(self, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """See Requests."""
        some = list(items)
        if len(some) == 1:  # nothing to wait for together
            return [work(some[0])]
        if self._pool is None:
            self._pool = thread_pool("object-store", self._max_concurrent_requests)
        coming = [self._pool.submit(work, each) for each in some]
        try:
            return [each.result() for each in coming]
        finally:
            for each in coming:
                each.cancel()

    def close(self) -> None:
        """See Requests; the next call starts new ones."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None


class Listing:
    """The entries of a directory, sorted by name."""

    def __init__(self, entries: list[tuple[FileStat, Identity]]) -> None:
        self.stats = [stat for stat, _ in entries]
        self.names = [stat.name for stat in self.stats]
        self._identities = [identity for _, identity in entries]
        self._derived: Any = None

    @cached_property
    def slots(self) -> dict[str, int]:
        """The slot of each name."""
        return {name: slot for slot, name in enumerate(self.names)}

    def derived(self, make: Callable[[list[str]], R]) -> R:
        """What the only caller makes of the names; it is made once."""
        if self._derived is None:
            self._derived = make(self.names)
        found: R = self._derived
        return found

    def identity(self, name: str) -> Identity:
        """Of an entry that is there."""
        return self._identities[self.slots[name]]


class ListedStore:
    """See ReadFilesystem, and the module. Threads may share it."""

    def __init__(self, store: ObjectStore, cache: PlanCache) -> None:
        self._store = store
        self._cache = cache
        self._listings: dict[str, Listing | None] = {}

    def forget(self) -> None:
        """Look at every directory again."""
        self._listings.clear()

    def listing(self, directory: str) -> Listing:
        """The listing of a directory. Raises FileNotFoundError, NotADirectoryError."""
        if directory not in self._listings:
            try:
                found = Listing(self._store.list_dir_identities(directory))
            except FileNotFoundError:
                self._listings[directory] = None
                self._forget_directory(directory)  # its own listing may still show it
                raise
            self._listings[directory] = found
            return found
        known = self._listings[directory]
        if known is None:
            raise _missing(directory)
        return known

    def identity(self, path: str) -> Identity:
        """Of an object that is listed; None for another one."""
        directory, _, name = path.rpartition("/")
        return self.listing(directory).identity(name) if self.exists(path) else None

    def open_read(self, path: str) -> ReadableFile:
        """See ReadFilesystem; the store is asked."""
        try:
            return self._store.open_read(path)
        except FileNotFoundError:
            self._forget_directory(path)
            raise

    def exists(self, path: str) -> bool:
        """See ReadFilesystem."""
        directory, _, name = path.rpartition("/")
        try:
            return name in self.listing(directory).slots
        except FileNotFoundError:
            return False

    def is_at(self, file: ReadableFile, path: str) -> bool:
        """See ReadFilesystem; the store is asked."""
        return self._store.is_at(file, path)

    def list_dir(self, path: str) -> list[str]:
        """See ReadFilesystem."""
        return self.listing(path).names

    def list_dir_stats(self, path: str) -> list[FileStat]:
        """See ReadFilesystem."""
        return self.listing(path).stats

    def stat(self, path: str) -> FileStat:
        """See ReadFilesystem."""
        directory, _, name = path.rpartition("/")
        listing = self.listing(directory)
        if name not in listing.slots:
            raise _missing(path)
        return listing.stats[listing.slots[name]]

    def read_file(self, path: str) -> bytes:
        """See ReadFilesystem; a small file is read once."""
        size, identity = self.stat(path).size, self.identity(path)
        known = self._cache.files.get(path, identity) if identity is not None else None
        if known is not None:
            return known
        try:
            data = self._store.read_file(path)
        except FileNotFoundError:
            self._forget_directory(path)
            raise
        if identity is not None and len(data) == size <= FILE_BYTES_MAX:
            self._cache.files.put(path, identity, data)
        return data

    def read_part(self, path: str, position: int, size: int) -> bytes:
        """See `ObjectStore.read_part`."""
        return self._store.read_part(path, position, size)

    def is_locked(self, path: str) -> bool:
        """See ReadFilesystem: there are no locks."""
        return self._store.is_locked(path)

    def real_path(self, path: str) -> str:
        """See ReadFilesystem: there are no links."""
        return self._store.real_path(path)

    def _forget_directory(self, path: str) -> None:
        self._listings.pop(path.rpartition("/")[0], None)


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(
        errno.ENOENT, "It was not there when its directory was listed", shown(path)
    )
