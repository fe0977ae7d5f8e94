"""Pools of threads for the asynchronous edge: asyncio wants concurrent.futures executors."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import Executor


def thread_pool(name: str, threads: int) -> ThreadPoolExecutor:
    """A pool whose threads are called name_0, name_1, ... and start on demand."""
    return ThreadPoolExecutor(max_workers=threads, thread_name_prefix=name)


class PoolPerLogDir:
    """One pool a log directory, so that a slow disk holds up only its own readers.

    Called on one thread (the event loop).
    """

    def __init__(self, name: str, threads_per_dir: int) -> None:
        self._name = name
        self._threads_per_dir = threads_per_dir
        self._pools: dict[str, ThreadPoolExecutor] = {}

    def __call__(self, partition_directory: str) -> Executor:
        """The pool of the directory that holds this partition directory."""
        log_dir = partition_directory.rpartition("/")[0]
        pool = self._pools.get(log_dir)
        if pool is None:
            pool = thread_pool(f"{self._name}-{len(self._pools)}", self._threads_per_dir)
            self._pools[log_dir] = pool
        return pool

    def shutdown(self) -> None:
        """Let running reads finish."""
        for pool in self._pools.values():
            pool.shutdown(wait=True, cancel_futures=True)
