"""OpenFiles: the bounded set of descriptors that closed segments hold open.

Owns references to read handles, oldest use first. Eviction only drops the reference: a reader that
still uses the handle keeps it alive, and the descriptor closes when that last reader lets go (see
``env.filesystem.File``). Never opens, closes or reads a file itself, so its lock is held for a few
dictionary operations only. Any thread.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalog.env.filesystem import File
    from kafkalog.env.threads import Mutex

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
