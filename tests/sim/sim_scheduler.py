"""SimScheduler: tasks run on the test's own thread as its SimClock advances."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.env.system_scheduler import TaskTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.env.scheduler import TaskStatus
    from kafkalog.env.system_scheduler import ScheduledBody
    from tests.sim.sim_clock import SimClock


class SimScheduler:
    """See Scheduler. Without ``on_error`` what a task raises leaves ``advance_ms``."""

    def __init__(
        self, clock: SimClock, on_error: Callable[[str, Exception], None] | None = None
    ) -> None:
        self._on_error = on_error
        self._table = TaskTable(clock)
        self._is_started = False
        clock.add_waker(self)

    def startup(self) -> None:
        self._is_started = True

    def shutdown(self) -> None:
        self._table.close()

    def schedule_once(
        self, name: str, task: Callable[[], object], delay_ms: int = 0
    ) -> ScheduledBody:
        return self._table.add(name, task, delay_ms)

    def schedule_periodic(
        self, name: str, task: Callable[[], object], initial_delay_ms: int, period_ms: int
    ) -> ScheduledBody:
        assert period_ms > 0
        return self._table.add(name, task, initial_delay_ms, period_ms)

    def tasks(self) -> list[TaskStatus]:
        return self._table.statuses()

    def next_due_ns(self) -> int | None:
        return self._table.next_due_ns() if self._is_started else None

    def run_due(self) -> None:
        """See Waker. Runs one task, so that others due earlier than its successors come first."""
        task = self._table.take() if self._is_started else None
        if task is None:
            return
        error = task.run()
        self._table.finish(task, error)
        if error is not None:
            if self._on_error is None:
                raise error
            self._on_error(task.name, error)
