"""LogEnvironment: everything a log needs from outside itself, bundled once per log directory.

Two caches are part of it. Both own references by owner, oldest use first, never read or open a file
themselves, and hold their lock for dictionary operations only. Any thread.

``IndexCache`` holds the decoded entries of closed index files, bounded in bytes, where Kafka maps
the files and leaves eviction to the operating system. Eviction drops the reference; a look-up in
progress keeps its own. It also knows which indexes have a wrong entry.

``open_files`` holds the descriptors of files that are not pinned, bounded in number. A reader that
still uses an evicted handle keeps it alive; the descriptor closes with the last reference (see
``env.filesystem.File``).
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import structlog

from kafkalog.errors import StorageFault
from kafkalog.log.segment.checked_batches import CheckedBatches

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.env.clock import Clock
    from kafkalog.env.filesystem import File, Filesystem
    from kafkalog.env.random import Random
    from kafkalog.env.scheduler import Scheduler
    from kafkalog.env.threads import Mutex, Threads
    from kafkalog.log.state.producer_state import ProducerBatch, ProducerCheck, ProducerStateEntry


T = TypeVar("T")

DEFAULT_CAPACITY_BYTES = 64 * 1024 * 1024
DEFAULT_OPEN_FILES = 4096
ENTRY_OVERHEAD_BYTES = 400  # the store object, its two arrays and the map slot


class OwnedCache(Generic[T]):
    """Least recently used values by owner (any hashable object, compared by identity).

    A value goes when its last reference does; it is never dropped under the lock, because that may
    close a descriptor.
    """

    __slots__ = ("_capacity", "_mutex", "_values", "_weight")

    def __init__(self, mutex: Mutex, capacity: int) -> None:
        """``capacity``: the sum of weights that are kept."""
        assert capacity >= 1
        # constant after construction
        self._capacity = capacity
        self._mutex = mutex
        # guarded by the mutex
        self._values: OrderedDict[object, tuple[T, int]] = OrderedDict()
        self._weight = 0

    def get(self, owner: object) -> T | None:
        """The value kept for owner, now the most recently used; None when there is none."""
        with self._mutex:
            found = self._values.get(owner)
            if found is None:
                return None
            self._values.move_to_end(owner)
            return found[0]

    def put(self, owner: object, value: T, weight: int = 1) -> T:
        """Keep value for owner. When another thread was faster its value wins and is returned.

        A value that is larger than the whole cache is not kept.
        """
        with self._mutex:
            found = self._values.get(owner)
            if found is not None:
                self._values.move_to_end(owner)
                return found[0]
            evicted = self._insert(owner, value, weight)
        del evicted
        return value

    def replace(self, owner: object, value: T, weight: int = 1) -> None:
        """Like put, but instead of what is kept for owner."""
        with self._mutex:
            dropped = self._drop(owner)
            evicted = self._insert(owner, value, weight)
        del dropped, evicted

    def forget(self, owner: object) -> None:
        """Drop what is kept for owner, if anything."""
        with self._mutex:
            dropped = self._drop(owner)
        del dropped

    def _insert(self, owner: object, value: T, weight: int) -> list[object]:
        """Add; what was evicted. The caller holds the lock and has seen no value of owner's."""
        evicted: list[object] = []
        if weight <= self._capacity:
            self._values[owner] = (value, weight)
            self._weight += weight
            while self._weight > self._capacity:
                evicted.append(self._drop(next(iter(self._values))))
        return evicted

    def _drop(self, owner: object) -> object:
        """Remove owner's value; the caller holds the lock."""
        value, weight = self._values.pop(owner, (None, 0))
        self._weight -= weight
        return value

    def __len__(self) -> int:
        with self._mutex:
            return len(self._values)


class IndexCache(OwnedCache[object]):
    """Entry stores of indexes, by their bytes; and which indexes have a wrong entry."""

    __slots__ = ("_doubted",)

    def __init__(self, mutex: Mutex, capacity_bytes: int = DEFAULT_CAPACITY_BYTES) -> None:
        super().__init__(mutex, capacity_bytes)
        self._doubted: set[object] = set()  # guarded by the mutex

    @property
    def size_bytes(self) -> int:
        """Bytes accounted at this moment, at most the capacity."""
        return self._weight

    def forget(self, owner: object) -> None:
        """Also that it was doubted."""
        super().forget(owner)
        with self._mutex:
            self._doubted.discard(owner)

    def doubt(self, owner: object) -> bool:
        """Note that an entry of owner's is wrong; whether it was not noted before."""
        with self._mutex:
            is_first = owner not in self._doubted
            self._doubted.add(owner)
            return is_first


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
    open_files: OwnedCache[File]
    checked_batches: CheckedBatches
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
        open_file_count: int = DEFAULT_OPEN_FILES,
    ) -> LogEnvironment:
        """An environment with caches of its own, for tools and tests."""
        return cls(
            filesystem=filesystem,
            clock=clock,
            scheduler=scheduler,
            random=random,
            index_cache=IndexCache(threads.mutex(), index_cache_bytes),
            open_files=OwnedCache(threads.mutex(), open_file_count),
            checked_batches=CheckedBatches(threads.mutex()),
        )
