"""Named background tasks, one-shot or periodic. Kafka's KafkaScheduler.

A task that raises is reported, counted and keeps its schedule. Delays use the monotonic clock;
times that are shown to people are wall clock.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class TaskState(enum.Enum):
    """The state of the tasks of one name; the value is its spelling in answers."""

    WAITING = "waiting"  # until the next run is due
    RUNNING = "running"  # at least one of them
    IDLE = "idle"  # nothing is scheduled: all one-shots have run


@dataclass(slots=True)
class TaskStatus:
    """The tasks of one name, for operators. Times are wall clock; -1: none, never."""

    name: str
    period_ms: int  # -1: one-shots
    initial_delay_ms: int  # of the first one scheduled
    state: TaskState = TaskState.IDLE
    waiting: int = 0
    running: int = 0
    runs: int = 0  # that ended, including failed ones
    failures: int = 0
    next_run_ms: int = -1  # in the past when every thread is busy
    last_run_ms: int = -1  # start of the latest run, which may still be running
    last_duration_ms: int = -1  # of the run that ended last
    last_success_ms: int = -1  # end of the last run that raised nothing
    last_failure_ms: int = -1
    last_error: str | None = None


class ScheduledTask(Protocol):
    """Handle of a scheduled task."""

    def cancel(self) -> None:
        """Prevent further runs; a running one finishes."""


class Scheduler(Protocol):
    """Runs tasks on its own threads. All tasks of one name have one period."""

    def startup(self) -> None:
        """Start the threads. Tasks may be scheduled before."""

    def shutdown(self) -> None:
        """Stop: pending one-shots are dropped, running tasks finish."""

    def schedule_once(
        self, name: str, task: Callable[[], object], delay_ms: int = 0
    ) -> ScheduledTask:
        """Run once after delay_ms."""

    def schedule_periodic(
        self, name: str, task: Callable[[], object], initial_delay_ms: int, period_ms: int
    ) -> ScheduledTask:
        """Run after initial_delay_ms, then period_ms after each end (period_ms > 0)."""

    def tasks(self) -> list[TaskStatus]:
        """Status by name, sorted: every name with a waiting, running or finished task.

        The cost grows with the names, not with the tasks that wait.
        """
