"""A pool of threads that runs named tasks, as Kafka's KafkaScheduler does."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from kafkalog.env.task_table import TaskTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.env.clock import Clock
    from kafkalog.env.scheduler import TaskStatus
    from kafkalog.env.task_table import ScheduledBody
    from kafkalog.env.threads import Thread, Threads

_WAIT_SECONDS_MAX = 3600.0  # far-off periods (Long.MAX ms) are beyond what a wait can take


class SystemScheduler:
    """See Scheduler. ``on_error`` hears of a task that raised; the task keeps its schedule."""

    def __init__(
        self,
        clock: Clock,
        threads: Threads,
        pool_size: int,
        on_error: Callable[[str, Exception], None],
    ) -> None:
        self._clock = clock
        self._threads = threads
        self._pool_size = pool_size
        self._on_error = on_error
        # guarded by the condition
        self._changed = threading.Condition()
        self._table = TaskTable(clock)
        self._is_stopping = False
        # owned by the thread that starts and stops
        self._workers: list[Thread] = []

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
            self._table.close()
            self._changed.notify_all()
        for worker in self._workers:
            worker.join()

    def schedule_once(
        self, name: str, task: Callable[[], None], delay_ms: int = 0
    ) -> ScheduledBody:
        """See Scheduler."""
        with self._changed:
            self._changed.notify()
            return self._table.add(name, task, delay_ms)

    def schedule_periodic(
        self, name: str, task: Callable[[], None], initial_delay_ms: int, period_ms: int
    ) -> ScheduledBody:
        """See Scheduler."""
        assert period_ms > 0
        with self._changed:
            self._changed.notify()
            return self._table.add(name, task, initial_delay_ms, period_ms)

    def tasks(self) -> list[TaskStatus]:
        """See Scheduler."""
        with self._changed:
            return self._table.statuses()

    def _work(self) -> None:
        while (task := self._next()) is not None:
            error = task.run()
            with self._changed:
                self._table.finish(task, error)
                self._changed.notify()
            if error is not None:
                self._on_error(task.name, error)

    def _next(self) -> ScheduledBody | None:
        """The next due task, marked as running; None when stopping."""
        with self._changed:
            while not self._is_stopping:
                task = self._table.take()
                due_ns = self._table.next_due_ns()
                if task is not None:
                    if due_ns is not None:
                        # The wake-up for the next one may have been this worker's: pass it on.
                        self._changed.notify()
                    return task
                if due_ns is None:
                    self._changed.wait()
                else:
                    wait_seconds = (due_ns - self._clock.monotonic_ns()) / 1e9
                    self._changed.wait(min(max(wait_seconds, 0.0), _WAIT_SECONDS_MAX))
            return None
