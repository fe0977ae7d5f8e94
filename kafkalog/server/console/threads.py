"""Where pages of the web console are made: on threads of their own, two for each place.

A page may read, and a disk that hangs holds its thread for as long as that lasts. So no page runs
where appends, administration or readers would stand behind it. Those about one partition have the
threads of its log directory; those that ask several partitions, and those that ask none, have
others: what hangs takes its own pages along. More pages than ``PAGES_IN_WORK`` of a place are
refused, because a tab that renews itself would add one every ten seconds; those whose reader has
left are in work until a thread has made them, or they would wait behind what hangs without end.

Owned by the event loop.
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
