"""LogCleaner: the cleaner threads, from start to shutdown, and what is asked of them.

Owns the threads, the throttle that they share and the queue of requests; which log is whose is the
LogCleanerManager's. Any thread; ``startup``, ``reconfigure`` and ``shutdown`` one at a time, by
their caller. A change of the threads or their memory stops all of them, which aborts the cleans in
work, and starts new ones, as in Kafka; the rate and the pause change under way.
Source: Kafka 4.1 LogCleaner, log-lifecycle 12.9.
"""

from __future__ import annotations

import functools
from collections import deque
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from kafkalog.cleaner.cleaner import Cleaner
from kafkalog.cleaner.cleaner_thread import CleanerThread
from kafkalog.cleaner.cleaning_run import CleaningRun
from kafkalog.cleaner.skimpy_offset_map import SkimpyOffsetMap
from kafkalog.cleaner.throttler import Throttler
from kafkalog.errors import CleaningConflict, NotReady

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.cleaner.cleaner_thread import (
        CleanerHost,
        CleanerLike,
        ThreadObserver,
        ThreadStatus,
    )
    from kafkalog.cleaner.cleaning_run import CleanRequest
    from kafkalog.cleaner.log_cleaner_config import LogCleanerConfig
    from kafkalog.cleaner.log_cleaner_manager import LogCleanerManager
    from kafkalog.env.clock import Clock
    from kafkalog.env.threads import Threads

    CleanerMaker = Callable[[LogCleanerConfig, Callable[[int], None]], CleanerLike]

NO_CLEANER = "No cleaner runs: log.cleaner.enable or log.cleaner.threads"
"""Why an order to clean is refused."""

_log = structlog.get_logger("kafka.log.LogCleaner")


class LogCleaner:
    """See the module."""

    def __init__(
        self,
        config: LogCleanerConfig,
        host: CleanerHost,
        states: LogCleanerManager,
        make_cleaner: CleanerMaker,
        clock: Clock,
        threads: Threads,
        observer: ThreadObserver,
    ) -> None:
        """``make_cleaner`` is called once a thread, on its first clean. Nothing runs yet."""
        # constant after construction
        self.states = states
        self._host = host
        self._make_cleaner = make_cleaner
        self._clock = clock
        self._threads = threads
        self._observer = observer
        self._throttler = Throttler(
            threads.mutex(), config.io_max_bytes_per_second, clock.monotonic_ns()
        )
        states.on_abort = self.wake
        # changed by startup, reconfigure and shutdown; published
        self.config = config
        self.backoff_ms = config.backoff_ms
        self._running: tuple[CleanerThread, ...] = ()
        self._is_stopped = True
        # appended by any thread, popped by cleaner threads
        self._requests: deque[CleanRequest] = deque()

    # ---- life

    def startup(self) -> None:
        """Start the threads, all anew."""
        _log.info("Starting the log cleaner")
        self._is_stopped = False
        self._start_threads()

    def shutdown(self) -> None:
        """Abort what is in work and end all threads; who still waits gets NotReady."""
        if self._is_stopped:
            return
        _log.info("Shutting down the log cleaner.")
        self._is_stopped = True
        self._stop_threads()
        self._refuse_rest_when_stopped()

    def reconfigure(self, config: LogCleanerConfig) -> None:
        """Let the configuration count; returns when the threads it asks for run."""
        before, self.config = self.config, config
        if config == before:
            return
        if config.io_max_bytes_per_second != before.io_max_bytes_per_second:
            now_ns = self._clock.monotonic_ns()
            self._throttler.change_rate(config.io_max_bytes_per_second, now_ns)
        self.backoff_ms = self.states.backoff_ms = config.backoff_ms
        self.wake()  # who waits, waits by the new rate and pause
        same = replace(
            before,
            io_max_bytes_per_second=config.io_max_bytes_per_second,
            backoff_ms=config.backoff_ms,
        )
        if self._is_stopped or same == config:
            return
        _log.info("Reconfiguring the log cleaner", threads=config.threads)
        self._stop_threads()
        self._start_threads()

    def _start_threads(self) -> None:
        self._running = tuple(
            CleanerThread(
                thread_id,
                self._host,
                self.states,
                self,
                functools.partial(self._make_cleaner, self.config),
                self._throttler,
                self._clock,
                self._threads,
                self._observer,
            )
            for thread_id in range(self.config.threads)
        )
        for thread in self._running:
            thread.start()

    def _stop_threads(self) -> None:
        for thread in self._running:
            thread.stop()
        for thread in self._running:
            thread.join()
        self._running = ()

    # ---- any thread

    @property
    def is_enabled(self) -> bool:
        """Whether anything is ever cleaned."""
        return not self._is_stopped and self.config.threads > 0

    def threads(self) -> list[ThreadStatus]:
        """What each does."""
        return [thread.status() for thread in self._running]

    def wake(self) -> None:
        """Let threads that pause look up: somebody waits for a log, or for a heartbeat."""
        for thread in self._running:
            thread.wake()

    def submit(self, request: CleanRequest) -> None:
        """Queue a clean for the next thread that is free.

        CleaningConflict when no thread runs, or one has the log.
        """
        if not self.is_enabled:
            raise CleaningConflict(NO_CLEANER)
        self.states.check_not_in_work(request.log.topic_partition)
        self._requests.append(request)
        self.wake()
        self._refuse_rest_when_stopped()

    # ---- for the threads

    def take_request(self) -> CleanRequest | None:
        """See Work."""
        try:
            return self._requests.popleft()
        except IndexError:
            return None

    @property
    def has_requests(self) -> bool:
        """See Work."""
        return bool(self._requests)

    def _refuse_rest_when_stopped(self) -> None:
        """No thread is left to serve them. Any thread, also several."""
        if not self._is_stopped:
            return
        now_ms = self._clock.wall_ms()
        with suppress(IndexError):
            while True:
                request = self._requests.popleft()
                run = CleaningRun(request.log.topic_partition, -1, request.is_dry, now_ms, now_ms)
                request.on_done(run._replace(error=NotReady("The daemon is stopping")))


def make_cleaner(config: LogCleanerConfig, throttle: Callable[[int], None]) -> Cleaner:
    """The cleaner of one thread with its map; InvalidConfig when no key would fit."""
    offset_map = SkimpyOffsetMap(config.map_bytes, config.io_buffer_load_factor)
    return Cleaner(offset_map, config.of_one_thread, throttle)
