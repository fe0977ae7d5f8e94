"""LogEnvironment: everything a log needs from outside itself, bundled once per log directory.

Two caches are part of it. Both own references by owner, oldest use first, never read or open a file
themselves, and hold their lock for dictionary operations only. Any thread.

``IndexCache`` holds the decoded entries of closed index files, bounded in bytes, where Kafka maps
the files and leaves eviction to the operating system. Eviction drops the reference; a look-up in
progress keeps its own. It also knows which indexes have a wrong entry.

``OpenFiles`` holds the descriptors of files that are not pinned, bounded in number. A reader that
still uses an evicted handle keeps it alive; the descriptor closes with the last reference (see
``env.filesystem.File``).
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from kafkalog.errors import StorageFault

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.env.clock import Clock
    from kafkalog.env.filesystem import File, Filesystem
    from kafkalog.env.random import Random
    from kafkalog.env.scheduler import Scheduler
    from kafkalog.env.threads import Mutex, Threads
    from kafkalog.log.state.producer_state import ProducerBatch, ProducerCheck, ProducerStateEntry


DEFAULT_CAPACITY_BYTES = 64 * 1024 * 1024
ENTRY_OVERHEAD_BYTES = 400  # the store object, its two arrays and the map slot


class IndexCache:
    """Least recently used entry stores by owner (compared by identity)."""

    __slots__ = ("_capacity_bytes", "_doubted", "_mutex", "_size_bytes", "_stores")

    def __init__(self, mutex: Mutex, capacity_bytes: int = DEFAULT_CAPACITY_BYTES) -> None:
        # constant after construction
        self._capacity_bytes = capacity_bytes
        self._mutex = mutex
        # guarded by the mutex
        self._stores: OrderedDict[object, tuple[object, int]] = OrderedDict()
        self._size_bytes = 0
        self._doubted: set[object] = set()

    @property
    def size_bytes(self) -> int:
        """Bytes accounted at this moment, at most the capacity."""
        return self._size_bytes

    def get(self, owner: object) -> object | None:
        """The store kept for owner, now the most recently used; None when there is none."""
        with self._mutex:
            found = self._stores.get(owner)
            if found is None:
                return None
            self._stores.move_to_end(owner)
            return found[0]

    def put(self, owner: object, store: object, payload_bytes: int) -> None:
        """Keep store for owner; one that is larger than the whole cache is not kept."""
        with self._mutex:
            self._drop(owner)
            self._insert(owner, store, payload_bytes + ENTRY_OVERHEAD_BYTES)

    def put_if_absent(self, owner: object, store: object, payload_bytes: int) -> object:
        """Like put, but what another thread has put before wins and is returned: readers load."""
        with self._mutex:
            found = self._stores.get(owner)
            if found is not None:
                return found[0]
            self._insert(owner, store, payload_bytes + ENTRY_OVERHEAD_BYTES)
        return store

    def forget(self, owner: object) -> None:
        """Drop what is kept for owner, if anything, and that it was doubted."""
        with self._mutex:
            self._drop(owner)
            self._doubted.discard(owner)

    def doubt(self, owner: object) -> bool:
        """Note that an entry of owner's is wrong; whether it was not noted before."""
        with self._mutex:
            is_first = owner not in self._doubted
            self._doubted.add(owner)
            return is_first

    def _insert(self, owner: object, store: object, weight: int) -> None:
        """Add and evict; the caller holds the lock and has seen that owner is absent."""
        if weight > self._capacity_bytes:
            return
        self._stores[owner] = (store, weight)
        self._size_bytes += weight
        while self._size_bytes > self._capacity_bytes:
            _, (_, evicted_weight) = self._stores.popitem(last=False)
            self._size_bytes -= evicted_weight

    def _drop(self, owner: object) -> None:
        """Remove owner's store; the caller holds the lock."""
        found = self._stores.pop(owner, None)
        if found is not None:
            self._size_bytes -= found[1]

    def __len__(self) -> int:
        with self._mutex:
            return len(self._stores)


DEFAULT_CAPACITY = 4096


class OpenFiles:
    """Least recently used handles by owner (any hashable object, compared by identity)."""

    __slots__ = ("_capacity", "_files", "_mutex")

    def __init__(self, mutex: Mutex, capacity: int = DEFAULT_CAPACITY) -> None:
        """``capacity``: handles kept, at least 1; handles in use by readers come on top."""
        assert capacity >= 1
        # constant after construction
        self._capacity = capacity
        self._mutex = mutex
        # guarded by the mutex
        self._files: OrderedDict[object, File] = OrderedDict()

    def get(self, owner: object) -> File | None:
        """The handle kept for owner, now the most recently used; None when there is none."""
        with self._mutex:
            file = self._files.get(owner)
            if file is not None:
                self._files.move_to_end(owner)
            return file

    def put(self, owner: object, file: File) -> File:
        """Keep file for owner. When another thread was faster its handle wins and is returned."""
        evicted: list[File] = []  # dropped outside the lock: dropping may close a descriptor
        with self._mutex:
            winner = self._files.setdefault(owner, file)
            self._files.move_to_end(owner)
            while len(self._files) > self._capacity:
                evicted.append(self._files.popitem(last=False)[1])
        return winner

    def forget(self, owner: object) -> None:
        """Drop the reference kept for owner, if any."""
        with self._mutex:
            dropped = self._files.pop(owner, None)
        del dropped

    def __len__(self) -> int:
        with self._mutex:
            return len(self._files)


def _any_batch(_batch: ProducerBatch, _entry: ProducerStateEntry | None) -> None:
    """No producer is fenced, and no transactions are coordinated."""


_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LogEnvironment:
    """The seams and the shared caches.

    ``io_guard`` is entered around disk work that runs outside a command of the writer (the
    ``delete-file`` tasks); the manager passes the guard of the log directory, which decides what an
    OSError means. Commands and reads are guarded by their callers.
    ``check_producer`` raises why a client's batch of a producer may not be appended now, beyond the
    log's own rules; asked on the writer thread.
    """

    filesystem: Filesystem
    clock: Clock
    scheduler: Scheduler
    random: Random
    index_cache: IndexCache
    open_files: OpenFiles
    io_guard: Callable[[], AbstractContextManager[object]] = nullcontext
    check_producer: ProducerCheck = _any_batch

    def guarded(self, work: Callable[[], None]) -> Callable[[], None]:
        """Body of a delayed task: work under the guard; nothing on a directory that has failed.

        What is left is removed by the next load of the directory.
        """

        def body() -> None:
            try:
                with self.io_guard():
                    work()
            except StorageFault as fault:
                _log.warning("delayed_deletion_given_up", reason=fault.message)

        return body

    @classmethod
    def create(
        cls,
        filesystem: Filesystem,
        clock: Clock,
        scheduler: Scheduler,
        random: Random,
        threads: Threads,
        *,
        index_cache_bytes: int = DEFAULT_CAPACITY_BYTES,
        open_file_count: int = DEFAULT_CAPACITY,
    ) -> LogEnvironment:
        """An environment with caches of its own, for tools and tests."""
        return cls(
            filesystem=filesystem,
            clock=clock,
            scheduler=scheduler,
            random=random,
            index_cache=IndexCache(threads.mutex(), index_cache_bytes),
            open_files=OpenFiles(threads.mutex(), open_file_count),
        )
