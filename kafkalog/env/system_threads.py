"""The machine's threads, and the pools of threads for the event loop.

Background threads run at nice 15, so that they do not slow down the event loop.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from kafkalog.env.threads import Mutex


_BACKGROUND_NICE = 15


class SystemThread:
    """A running thread of the machine."""

    def __init__(self, thread: threading.Thread) -> None:
        self._thread = thread

    @property
    def name(self) -> str:
        """As given."""
        return self._thread.name

    def join(self, timeout_seconds: float | None = None) -> bool:
        """Whether it has ended."""
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def is_alive(self) -> bool:
        """Whether it is running."""
        return self._thread.is_alive()


class SystemSignal:
    """A lock that ``set`` releases and ``wait`` acquires; cheaper than a condition."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Wake the waiter, now or at its next wait."""
        try:
            self._lock.release()
        except RuntimeError:  # already set
            return

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait until set, then clear; False on time-out."""
        return self._lock.acquire(timeout=-1 if timeout_seconds is None else timeout_seconds)


class SystemThreads:
    """Starts daemon threads. An error ends its thread and is passed to ``on_failure``."""

    def __init__(self, on_failure: Callable[[str, BaseException], None]) -> None:
        self._on_failure = on_failure

    def start(
        self, name: str, body: Callable[[], None], *, background: bool = False
    ) -> SystemThread:
        """See Threads."""

        def run() -> None:
            try:
                # Never raised: a process with a lower priority may not.
                if background and os.getpriority(os.PRIO_PROCESS, 0) < _BACKGROUND_NICE:
                    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _BACKGROUND_NICE)
                body()
            except BaseException as error:
                self._on_failure(name, error)
                raise

        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        return SystemThread(thread)

    def signal(self) -> SystemSignal:
        """A new, unset signal."""
        return SystemSignal()

    def mutex(self) -> Mutex:
        """A new lock."""
        return threading.Lock()


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
