"""A pool of threads that runs named tasks, as Kafka's KafkaScheduler does."""

from __future__ import annotations

import heapq
import itertools
import threading
from typing import TYPE_CHECKING

from kafkalog.env.scheduler import QueueEntry, TaskRecord, due_after

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.env.clock import Clock
    from kafkalog.env.scheduler import TaskStatus
    from kafkalog.env.threads import Thread, Threads


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
        self._queue: list[QueueEntry] = []
        self._numbers = itertools.count()
        self._known: dict[int, TaskRecord] = {}
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

    def schedule_once(self, name: str, task: Callable[[], None], delay_ms: int = 0) -> TaskRecord:
        """See Scheduler."""
        return self._schedule(name, task, delay_ms, -1)

    def schedule_periodic(
        self, name: str, task: Callable[[], None], initial_delay_ms: int, period_ms: int
    ) -> TaskRecord:
        """See Scheduler."""
        assert period_ms > 0
        return self._schedule(name, task, initial_delay_ms, period_ms)

    def _schedule(
        self, name: str, body: Callable[[], None], delay_ms: int, period_ms: int
    ) -> TaskRecord:
        task = TaskRecord(name, body, period_ms, due_after(self._clock, delay_ms))
        with self._changed:
            if not self._is_stopping:
                self._known[id(task)] = task
                self._push(task)
        return task

    def _push(self, task: TaskRecord) -> None:
        heapq.heappush(self._queue, QueueEntry(task.due_ns, next(self._numbers), task))
        self._changed.notify()

    def tasks(self) -> list[TaskStatus]:
        """See Scheduler."""
        now = self._clock.monotonic_ns()
        with self._changed:
            known = [task for task in self._known.values() if not task.is_cancelled]
            return [task.status(now) for task in known]

    def _work(self) -> None:
        while (task := self._next()) is not None:
            task.run(self._clock, self._on_error)
            self._finished(task)

    def _next(self) -> TaskRecord | None:
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

    def _finished(self, task: TaskRecord) -> None:
        with self._changed:
            task.runs += 1
            task.is_running = False
            if task.period_ms < 0 or task.is_cancelled or self._is_stopping:
                self._known.pop(id(task), None)
                return
            task.due_ns = due_after(self._clock, task.period_ms)
            self._push(task)
