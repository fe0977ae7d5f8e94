"""The threads that make console pages: two for each log directory, and two groups of their own.

A page may read from a disk that hangs, and holds its thread meanwhile. So no page uses the threads
of appends, administration or readers. Pages of one partition use the threads of its log directory;
pages of several partitions and pages of none have others: a disk that hangs blocks its own pages
only. More pages than ``PAGES_IN_WORK`` of one group are refused, because a tab that reloads itself
would add one every ten seconds. A page whose client has left counts until its thread is done. Owned
by the event loop.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import Counter
from typing import TYPE_CHECKING, TypeVar

from kafkalog.env.system_threads import thread_pool
from kafkalog.server.protocol.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

T = TypeVar("T")

PAGES_IN_WORK = 16
_THREADS = 2


class ConsoleThreads:
    """See the module; a place is any name, threads begin with its first page."""

    def __init__(self) -> None:
        self._pools: dict[str, Executor] = {}
        self._in_work = Counter[str]()

    async def run(self, place: str, make: Callable[[], T]) -> T:
        """What ``make`` returns; ApiError 42902 when the place has too many pages in work."""
        if self._in_work[place] >= PAGES_IN_WORK:
            raise ApiError(42902, "Too many pages of the console are waiting. Try again.")
        pool = self._pools.get(place)
        if pool is None:
            pool = self._pools[place] = thread_pool(f"console-{len(self._pools)}", _THREADS)
        self._in_work[place] += 1
        work = asyncio.get_running_loop().run_in_executor(
            pool, contextvars.copy_context().run, make
        )
        work.add_done_callback(lambda _: self._in_work.subtract((place,)))
        return await asyncio.shield(work)

    def shutdown(self) -> None:
        """Let pages in work finish; those that wait are given up. Blocking."""
        for pool in self._pools.values():
            pool.shutdown(cancel_futures=True)
