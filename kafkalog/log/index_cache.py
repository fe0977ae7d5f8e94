"""IndexCache: the decoded entries of closed index files, bounded in bytes, shared by all logs.

Owns references to immutable entry stores, oldest use first; eviction drops the reference, a look-up
under way keeps its own. Knows which indexes have a wrong entry, until they are forgotten. Never
reads a file. Any thread; the lock covers dictionary operations only. Takes the place of Kafka's
memory-mapped indexes, whose pages the operating system evicts.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalog.env.threads import Mutex

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
        """Note that an entry of owner's is wrong; whether nobody has noted it before."""
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
