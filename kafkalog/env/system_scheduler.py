"""A pool of threads that runs named tasks, as Kafka's KafkaScheduler does."""

from __future__ import annotations

import heapq
import itertools
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafkalog.env.scheduler import TaskStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.env.clock import Clock
    from kafkalog.env.threads import Thread, Threads


@dataclass(slots=True)
class _Task:
    """One scheduled task; guarded by the scheduler's condition."""

    name: str
    body: Callable[[], None]
    period_ms: int  # -1: one-shot
    due_ns: int
    is_cancelled: bool = False
    is_running: bool = False
    runs: int = 0
    errors: int = 0
    last_start_wall_ms: int = -1
    last_duration_ms: int = -1
    last_error: str | None = None

    def cancel(self) -> None:
        """See ScheduledTask."""
        self.is_cancelled = True


@dataclass(order=True, slots=True)
class _Entry:
    due_ns: int
    number: int
    task: _Task = field(compare=False)


class SystemScheduler:
    """See Scheduler. ``on_error`` hears of a task that raised; the task keeps its schedule."""

    def __init__(
        self,
        clock: Clock,
        threads: Threads,
        pool_size: int,
        on_error: Callable[[str, BaseException], None],
    ) -> None:
        self._clock = clock
        self._threads = threads
        self._pool_size = pool_size
        self._on_error = on_error
        self._changed = threading.Condition()
        self._queue: list[_Entry] = []
        self._numbers = itertools.count()
        self._known: dict[int, _Task] = {}
        self._workers: list[Thread] = []
        self._is_stopping = False

    def startup(self) -> None:
        """See Scheduler."""
        assert not self._workers
        for number in range(self._pool_size):
            worker = self._threads.start(f"scheduler-{number}", self._work, background=True)
            self._workers.append(worker)

    def shutdown(self) -> None:
        """See Scheduler."""
        with self._changed:
            self._is_stopping = True
            self._queue.clear()
            self._changed.notify_all()
        for worker in self._workers:
            worker.join()

    def schedule_once(self, name: str, task: Callable[[], None], delay_ms: int = 0) -> _Task:
        """See Scheduler."""
        return self._schedule(name, task, delay_ms, -1)

    def schedule_periodic(
        self, name: str, task: Callable[[], None], initial_delay_ms: int, period_ms: int
    ) -> _Task:
        """See Scheduler."""
        assert period_ms > 0
        return self._schedule(name, task, initial_delay_ms, period_ms)

    def _schedule(
        self, name: str, body: Callable[[], None], delay_ms: int, period_ms: int
    ) -> _Task:
        task = _Task(name, body, period_ms, self._due(delay_ms))
        with self._changed:
            if not self._is_stopping:
                self._known[id(task)] = task
                self._push(task)
        return task

    def _due(self, delay_ms: int) -> int:
        return self._clock.monotonic_ns() + max(0, delay_ms) * 1_000_000

    def _push(self, task: _Task) -> None:
        heapq.heappush(self._queue, _Entry(task.due_ns, next(self._numbers), task))
        self._changed.notify()

    def tasks(self) -> list[TaskStatus]:
        """See Scheduler."""
        now = self._clock.monotonic_ns()
        with self._changed:
            known = [task for task in self._known.values() if not task.is_cancelled]
            return [
                TaskStatus(
                    name=task.name,
                    period_ms=task.period_ms,
                    runs=task.runs,
                    errors=task.errors,
                    last_start_wall_ms=task.last_start_wall_ms,
                    last_duration_ms=task.last_duration_ms,
                    next_run_in_ms=-1
                    if task.is_running
                    else max(0, task.due_ns - now) // 1_000_000,
                    last_error=task.last_error,
                )
                for task in known
            ]

    def _work(self) -> None:
        while (task := self._next()) is not None:
            started = self._clock.monotonic_ns()
            task.last_start_wall_ms = self._clock.wall_ms()
            try:
                task.body()
            except Exception as error:  # noqa: BLE001 - a thread body: reported, the schedule goes on
                task.errors += 1
                task.last_error = f"{type(error).__name__}: {error}"
                self._on_error(task.name, error)
            task.last_duration_ms = (self._clock.monotonic_ns() - started) // 1_000_000
            self._finished(task)

    def _next(self) -> _Task | None:
        """The next due task, marked as running; None when stopping."""
        with self._changed:
            while not self._is_stopping:
                if not self._queue:
                    self._changed.wait()
                    continue
                entry = self._queue[0]
                if entry.task.is_cancelled:
                    heapq.heappop(self._queue)
                    self._known.pop(id(entry.task), None)
                    continue
                wait_ns = entry.due_ns - self._clock.monotonic_ns()
                if wait_ns > 0:
                    # Far-off periods (Long.MAX ms means never) are beyond what a wait can take.
                    self._changed.wait(min(wait_ns / 1e9, 3600.0))
                    continue
                heapq.heappop(self._queue)
                entry.task.is_running = True
                if self._queue:
                    # The wake-up for the next entry may have been this worker's: pass it on.
                    self._changed.notify()
                return entry.task
            return None

    def _finished(self, task: _Task) -> None:
        with self._changed:
            task.runs += 1
            task.is_running = False
            if task.period_ms < 0 or task.is_cancelled or self._is_stopping:
                self._known.pop(id(task), None)
                return
            task.due_ns = self._due(task.period_ms)
            self._push(task)
