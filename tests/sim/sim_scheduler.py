"""SimScheduler: tasks run on the test's own thread as its SimClock advances."""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING

from kafkalog.env.scheduler import QueueEntry, TaskRecord, due_after

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.env.scheduler import TaskStatus
    from tests.sim.sim_clock import SimClock


class SimScheduler:
    """See Scheduler. Without ``on_error`` what a task raises leaves ``advance_ms``."""

    def __init__(
        self, clock: SimClock, on_error: Callable[[str, BaseException], None] | None = None
    ) -> None:
        self._clock = clock
        self._on_error = on_error
        self._queue: list[QueueEntry] = []
        self._numbers = itertools.count()
        self._running: list[TaskRecord] = []
        self._is_started = False
        self._is_stopped = False
        clock.add_waker(self)

    def startup(self) -> None:
        """See Scheduler."""
        self._is_started = True

    def shutdown(self) -> None:
        """See Scheduler."""
        self._is_stopped = True
        self._queue.clear()

    def schedule_once(self, name: str, task: Callable[[], None], delay_ms: int = 0) -> TaskRecord:
        """See Scheduler."""
        return self._schedule(name, task, delay_ms, -1)

    def schedule_periodic(
        self, name: str, task: Callable[[], None], initial_delay_ms: int, period_ms: int
    ) -> TaskRecord:
        """See Scheduler."""
        assert period_ms > 0
        return self._schedule(name, task, initial_delay_ms, period_ms)

    def tasks(self) -> list[TaskStatus]:
        """See Scheduler."""
        now = self._clock.monotonic_ns()
        waiting = [entry.task for entry in sorted(self._queue)]
        return [task.status(now) for task in waiting + self._running if not task.is_cancelled]

    def next_due_ns(self) -> int | None:
        """See Waker."""
        while self._queue and self._queue[0].task.is_cancelled:
            heapq.heappop(self._queue)
        return self._queue[0].due_ns if self._queue and self._is_started else None

    def run_due(self) -> None:
        """See Waker. Runs one task, so that others due earlier than its successors come first."""
        due_ns = self.next_due_ns()
        if due_ns is None or due_ns > self._clock.monotonic_ns():
            return
        task = heapq.heappop(self._queue).task
        task.is_running = True
        self._running.append(task)
        try:
            task.run(self._clock, self._on_error)
        finally:
            self._finished(task)

    def _schedule(
        self, name: str, body: Callable[[], None], delay_ms: int, period_ms: int
    ) -> TaskRecord:
        task = TaskRecord(name, body, period_ms, due_after(self._clock, delay_ms))
        if not self._is_stopped:
            self._push(task)
        return task

    def _push(self, task: TaskRecord) -> None:
        heapq.heappush(self._queue, QueueEntry(task.due_ns, next(self._numbers), task))

    def _finished(self, task: TaskRecord) -> None:
        self._running.remove(task)
        task.is_running = False
        task.runs += 1
        if task.period_ms >= 0 and not task.is_cancelled and not self._is_stopped:
            task.due_ns = due_after(self._clock, task.period_ms)
            self._push(task)
