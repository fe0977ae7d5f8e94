"""A pool of threads that runs named tasks, as Kafka's KafkaScheduler does.

``TaskTable`` owns the order and the history of the tasks of a scheduler, the simulated one too. It
has no thread and no lock: its scheduler guards every call. Task names are a handful of constants,
so that history is kept by name indefinitely and the next task is the earliest of the queues' heads.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kafkalog.env.scheduler import TaskState, TaskStatus
from kafkalog.format.integers import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.env.clock import Clock
    from kafkalog.env.threads import Thread, Threads


_NS_PER_MS = 1_000_000


@dataclass(slots=True)
class ScheduledBody:
    """One scheduled task; a handle, see ScheduledTask."""

    name: str
    body: Callable[[], object]
    is_cancelled: bool = False
    started_ns: int = -1  # monotonic

    def cancel(self) -> None:
        """See ScheduledTask. Any thread."""
        self.is_cancelled = True

    def run(self) -> Exception | None:
        """Run the body once on the caller's thread, outside the guard; its error, or None."""
        try:
            self.body()
        except Exception as error:  # noqa: BLE001 - its scheduler reports and counts it
            return error
        return None


@dataclass(slots=True)
class _Named:
    """The tasks of one name: a heap of (monotonic due time, number, task), and their history."""

    status: TaskStatus
    waiting: list[tuple[int, int, ScheduledBody]] = field(default_factory=list)

    def head(self) -> tuple[int, int, ScheduledBody] | None:
        """The entry that is due first. Removes cancelled entries before it."""
        while self.waiting and self.waiting[0][2].is_cancelled:
            heapq.heappop(self.waiting)
        return self.waiting[0] if self.waiting else None


class TaskTable:
    """See the module."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._names: dict[str, _Named] = {}
        self._numbers = (
            itertools.count()
        )  # tasks with equal due times run in the order of scheduling
        self._is_closed = False

    def add(
        self, name: str, body: Callable[[], object], delay_ms: int, period_ms: int = -1
    ) -> ScheduledBody:
        """Schedule; a negative delay counts as 0. After ``close`` the task is not kept."""
        task = ScheduledBody(name, body)
        if not self._is_closed:
            named = self._names.get(name)
            if named is None:
                named = self._names[name] = _Named(TaskStatus(name, period_ms, delay_ms))
            assert named.status.period_ms == period_ms, f"{name} has two periods"
            self._push(task, delay_ms)
        return task

    def close(self) -> None:
        """Drop all waiting tasks. Running ones may finish."""
        self._is_closed = True
        for named in self._names.values():
            named.waiting.clear()

    def next_due_ns(self) -> int | None:
        """Monotonic time of the task that is due first; None when nothing waits."""
        head = self._head()
        return None if head is None else head[0]

    def take(self) -> ScheduledBody | None:
        """The task that is due first, now running; None when nothing is due yet."""
        now_ns, head = self._clock.monotonic_ns(), self._head()
        if head is None or head[0] > now_ns:
            return None
        task = head[2]
        named = self._names[task.name]
        heapq.heappop(named.waiting)
        task.started_ns = now_ns
        named.status.running += 1
        named.status.last_run_ms = self._clock.wall_ms()
        return task

    def finish(self, task: ScheduledBody, error: Exception | None) -> None:
        """A run has ended; a periodic task is scheduled again, also after an error."""
        status, now_ms = self._names[task.name].status, self._clock.wall_ms()
        status.running -= 1
        status.runs += 1
        status.last_duration_ms = (self._clock.monotonic_ns() - task.started_ns) // _NS_PER_MS
        if error is None:
            status.last_success_ms = now_ms
        else:
            status.failures += 1
            status.last_failure_ms = now_ms
            status.last_error = f"{type(error).__name__}: {error}"
        if status.period_ms >= 0 and not task.is_cancelled and not self._is_closed:
            self._push(task, status.period_ms)

    def statuses(self) -> list[TaskStatus]:
        """See Scheduler.tasks. Cancelled one-shots count as waiting until they would be due."""
        now_ns, now_ms = self._clock.monotonic_ns(), self._clock.wall_ms()
        statuses = []
        for _, named in sorted(self._names.items()):
            head, status = named.head(), named.status
            if head is None and not status.running and not status.runs:
                continue  # cancelled before it ever ran
            next_run_ms, state = -1, TaskState.IDLE
            if head is not None:
                # Long.MAX ms means never; it would leave the range of a timestamp.
                next_run_ms = min(now_ms + (head[0] - now_ns) // _NS_PER_MS, INT64_MAX)
                state = TaskState.WAITING
            if status.running:  # has precedence
                state = TaskState.RUNNING
            waiting = len(named.waiting)
            statuses.append(replace(status, state=state, waiting=waiting, next_run_ms=next_run_ms))
        return statuses

    def _push(self, task: ScheduledBody, delay_ms: int) -> None:
        due_ns = self._clock.monotonic_ns() + max(0, delay_ms) * _NS_PER_MS
        heapq.heappush(self._names[task.name].waiting, (due_ns, next(self._numbers), task))

    def _head(self) -> tuple[int, int, ScheduledBody] | None:
        heads = (named.head() for named in self._names.values())
        return min((head for head in heads if head is not None), default=None)


_WAIT_SECONDS_MAX = 3600.0  # a wait cannot take a period of Long.MAX ms


@dataclass(eq=False)
class SystemScheduler:
    """See Scheduler. ``on_error`` gets the error of a task, which keeps its schedule."""

    _clock: Clock
    _threads: Threads
    _pool_size: int
    _on_error: Callable[[str, Exception], None]

    def __post_init__(self) -> None:
        # guarded by the condition
        self._changed = threading.Condition()
        self._table = TaskTable(self._clock)
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
        self, name: str, task: Callable[[], object], delay_ms: int = 0
    ) -> ScheduledBody:
        """See Scheduler."""
        with self._changed:
            self._changed.notify()
            return self._table.add(name, task, delay_ms)

    def schedule_periodic(
        self, name: str, task: Callable[[], object], initial_delay_ms: int, period_ms: int
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
                        # This worker may have taken the next task's wake-up: notify another one.
                        self._changed.notify()
                    return task
                if due_ns is None:
                    self._changed.wait()
                else:
                    wait_seconds = (due_ns - self._clock.monotonic_ns()) / 1e9
                    self._changed.wait(min(max(wait_seconds, 0.0), _WAIT_SECONDS_MAX))
            return None
