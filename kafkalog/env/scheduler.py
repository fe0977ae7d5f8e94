"""Named background tasks: once after a delay, or periodic. Kafka's KafkaScheduler.

A task that raises is logged, counted and keeps its schedule. Delays use the monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """What an operator sees of one task."""

    name: str
    period_ms: int  # -1: one-shot
    runs: int
    errors: int
    last_start_wall_ms: int  # -1: never
    last_duration_ms: int  # -1: never
    next_run_in_ms: int  # -1: not scheduled
    last_error: str | None


class ScheduledTask(Protocol):
    """Handle of a scheduled task."""

    def cancel(self) -> None:
        """Not run again; a run under way finishes."""
        ...


class Scheduler(Protocol):
    """Runs tasks on its own threads."""

    def startup(self) -> None:
        """Start the threads; scheduling before is fine."""
        ...

    def shutdown(self) -> None:
        """Stop: pending one-shots are dropped, running tasks finish."""
        ...

    def schedule_once(
        self, name: str, task: Callable[[], None], delay_ms: int = 0
    ) -> ScheduledTask:
        """Run once after delay_ms."""
        ...

    def schedule_periodic(
        self, name: str, task: Callable[[], None], initial_delay_ms: int, period_ms: int
    ) -> ScheduledTask:
        """Run after initial_delay_ms, then period_ms after each end (period_ms > 0)."""
        ...

    def tasks(self) -> list[TaskStatus]:
        """Status of every task that is scheduled or ran as periodic."""
        ...
