"""SimScheduler: tasks run on the test's own thread as its SimClock advances."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafkalog.env.scheduler import TaskStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sim.sim_clock import SimClock

_NS_PER_MS = 1_000_000


@dataclass(slots=True)
class SimTask:
    """One scheduled task."""

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
    task: SimTask = field(compare=False)


class SimScheduler:
    """See Scheduler. Without ``on_error`` what a task raises leaves ``advance_ms``."""

    def __init__(
        self, clock: SimClock, on_error: Callable[[str, BaseException], None] | None = None
    ) -> None:
        self._clock = clock
        self._on_error = on_error
        self._queue: list[_Entry] = []
        self._numbers = itertools.count()
        self._running: list[SimTask] = []
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

    def schedule_once(self, name: str, task: Callable[[], None], delay_ms: int = 0) -> SimTask:
        """See Scheduler."""
        return self._schedule(name, task, delay_ms, -1)

    def schedule_periodic(
        self, name: str, task: Callable[[], None], initial_delay_ms: int, period_ms: int
    ) -> SimTask:
        """See Scheduler."""
        assert period_ms > 0
        return self._schedule(name, task, initial_delay_ms, period_ms)

    def tasks(self) -> list[TaskStatus]:
        """See Scheduler."""
        now = self._clock.monotonic_ns()
        waiting = [entry.task for entry in sorted(self._queue)]
        return [
            TaskStatus(
                name=task.name,
                period_ms=task.period_ms,
                runs=task.runs,
                errors=task.errors,
                last_start_wall_ms=task.last_start_wall_ms,
                last_duration_ms=task.last_duration_ms,
                next_run_in_ms=-1 if task.is_running else max(0, task.due_ns - now) // _NS_PER_MS,
                last_error=task.last_error,
            )
            for task in waiting + self._running
            if not task.is_cancelled
        ]

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
        started = self._clock.monotonic_ns()
        task.last_start_wall_ms = self._clock.wall_ms()
        task.is_running = True
        self._running.append(task)
        try:
            task.body()
        except Exception as error:
            task.errors += 1
            task.last_error = f"{type(error).__name__}: {error}"
            if self._on_error is None:
                raise
            self._on_error(task.name, error)
        finally:
            task.last_duration_ms = (self._clock.monotonic_ns() - started) // _NS_PER_MS
            self._finished(task)

    def _schedule(
        self, name: str, body: Callable[[], None], delay_ms: int, period_ms: int
    ) -> SimTask:
        task = SimTask(name, body, period_ms, self._due(delay_ms))
        if not self._is_stopped:
            self._push(task)
        return task

    def _due(self, delay_ms: int) -> int:
        return self._clock.monotonic_ns() + max(0, delay_ms) * _NS_PER_MS

    def _push(self, task: SimTask) -> None:
        heapq.heappush(self._queue, _Entry(task.due_ns, next(self._numbers), task))

    def _finished(self, task: SimTask) -> None:
        self._running.remove(task)
        task.is_running = False
        task.runs += 1
        if task.period_ms >= 0 and not task.is_cancelled and not self._is_stopped:
            task.due_ns = self._due(task.period_ms)
            self._push(task)
