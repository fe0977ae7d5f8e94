"""QueueBudget: how many bytes may wait in the queues of all writers together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.errors import Overloaded

if TYPE_CHECKING:
    from kafkalog.env.threads import Mutex


class QueueBudget:
    """Bytes that may wait in the queues of all directories (``queued.max.request.bytes``)."""

    def __init__(self, mutex: Mutex, limit_bytes: int) -> None:
        self._mutex = mutex
        self._limit_bytes = limit_bytes
        self._used_bytes = 0

    @property
    def used_bytes(self) -> int:
        """Bytes taken now."""
        return self._used_bytes

    def take(self, size_bytes: int) -> None:
        """Overloaded when there is no room; nothing always fits, and one command an empty queue."""
        with self._mutex:
            used = self._used_bytes + size_bytes
            if size_bytes and self._used_bytes and used > self._limit_bytes:
                raise Overloaded("Too many bytes wait to be appended", queued_bytes=used)
            self._used_bytes = used

    def give_back(self, size_bytes: int) -> None:
        """The commands ended."""
        with self._mutex:
            self._used_bytes -= size_bytes
