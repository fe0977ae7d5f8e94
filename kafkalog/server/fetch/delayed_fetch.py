"""Fetches that wait for records, woken by the append that moves the high watermark.

Open streams count against the same limit; ``ReadSlots`` bounds the reads that they hold. Owned by
the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from kafkalog.server.protocol.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Iterator

    from kafkalog.broker.directory.commands import Command
    from kafkalog.format.topic_names import TopicPartition
    from kafkalog.log.unified_log import UnifiedLog

# Streams of one log directory that hold a read at once: its readers are busy, and so is the loop.
_READS_HELD = 8


class DelayedFetches:
    """Waiters by partition. ``deliver`` is the manager's CompletionSink."""

    def __init__(self, loop: asyncio.AbstractEventLoop, max_waiting: int) -> None:
        self._loop = loop
        self._max_waiting = max_waiting
        self._waiting: dict[Hashable, set[asyncio.Future[bool]]] = {}
        self._count = 0
        self._streams: set[Callable[[], None]] = set()  # what ends each when the daemon stops

    @property
    def waiting_count(self) -> int:
        """Fetches that wait now, and open streams."""
        return self._count

    def deliver(self, finished: list[Command], advanced: frozenset[TopicPartition]) -> None:
        """Called by a writer thread once a drain: one wake-up of the loop for all of it."""
        self._loop.call_soon_threadsafe(self._finish, finished, advanced)

    def _finish(self, finished: list[Command], advanced: frozenset[TopicPartition]) -> None:
        for command in finished:
            command.complete()
        if self._waiting:
            self.wake(advanced)

    def wake(self, keys: Iterable[Hashable]) -> None:
        """Wake the fetches that wait for these keys: partitions, or what else they named."""
        for key in keys:
            for waiter in self._waiting.pop(key, ()):
                if not waiter.done():
                    waiter.set_result(True)

    def wake_all(self) -> None:
        """At shutdown: fetches answer with what there is, streams end."""
        self.wake(list(self._waiting))
        for stop in self._streams:
            stop()

    async def wait_any(self, keys: Collection[Hashable], timeout_seconds: float) -> bool:
        """Wait until one of them is woken; False when the time is over. ApiError 42903."""
        with self.slot():
            return await self.wait_in_slot(keys, timeout_seconds)

    @contextlib.contextmanager
    def slot(self) -> Iterator[None]:
        """One of the slots for waiting fetches; a stream keeps its own to its end.

        ApiError 42903 when there is none.
        """
        if self._count >= self._max_waiting:
            raise ApiError(42903, "Too many streams are open or fetches waiting. Try again.")
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1

    async def wait_in_slot(self, keys: Collection[Hashable], timeout_seconds: float) -> bool:
        """As ``wait_any``, for a caller that has a slot."""
        waiter: asyncio.Future[bool] = self._loop.create_future()
        for key in keys:
            self._waiting.setdefault(key, set()).add(waiter)
        timer = self._loop.call_later(timeout_seconds, _expire, waiter)
        try:
            return await waiter
        finally:
            timer.cancel()
            for key in keys:
                waiters = self._waiting.get(key)
                if waiters is not None:
                    waiters.discard(waiter)
                    if not waiters:
                        del self._waiting[key]

    @contextlib.contextmanager
    def stream(self, stop: Callable[[], None]) -> Iterator[None]:
        """A slot for a stream of any length; ``stop`` is called at shutdown. ApiError 42903."""
        with self.slot():
            self._streams.add(stop)
            try:
                yield
            finally:
                self._streams.discard(stop)


class ReadSlots:
    """Bounds the reads that streams hold and have not sent, of up to a MiB each.

    By log directory, because a disk that hangs must not hold up the streams of others.
    """

    def __init__(self) -> None:
        self._semaphores: dict[str, asyncio.Semaphore] = {}

    def of(self, log: UnifiedLog) -> asyncio.Semaphore:
        """The slots of the directory that the log is in."""
        log_dir = log.directory.rpartition("/")[0]
        slots = self._semaphores.get(log_dir)
        if slots is None:
            slots = self._semaphores[log_dir] = asyncio.Semaphore(_READS_HELD)
        return slots


def _expire(waiter: asyncio.Future[bool]) -> None:
    if not waiter.done():
        waiter.set_result(False)
