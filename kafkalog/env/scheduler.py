"""Named background tasks: once after a delay, or periodic. Kafka's KafkaScheduler.

A task that raises is logged, counted and keeps its schedule. Delays use the monotonic clock.
``TaskRecord`` and ``QueueEntry`` are what every scheduler keeps of a task; threads, queue and guard
are its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.env.clock import Clock

NS_PER_MS = 1_000_000


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


@dataclass(slots=True)
class TaskRecord:
    """One scheduled task; guarded by its scheduler."""

    name: str
    body: Callable[[], None]
    period_ms: int  # -1: one-shot
    due_ns: int  # monotonic
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

    def run(self, clock: Clock, on_error: Callable[[str, BaseException], None] | None) -> None:
        """One run of the body, timed; on_error hears of what it raises, None lets it through."""
        started = clock.monotonic_ns()
        self.last_start_wall_ms = clock.wall_ms()
        try:
            self.body()
        except Exception as error:
            self.errors += 1
            self.last_error = f"{type(error).__name__}: {error}"
            if on_error is None:
                raise
            on_error(self.name, error)
        finally:
            self.last_duration_ms = (clock.monotonic_ns() - started) // NS_PER_MS

    def status(self, now_ns: int) -> TaskStatus:
        """What an operator sees at this moment of the monotonic clock."""
        return TaskStatus(
            name=self.name,
            period_ms=self.period_ms,
            runs=self.runs,
            errors=self.errors,
            last_start_wall_ms=self.last_start_wall_ms,
            last_duration_ms=self.last_duration_ms,
            next_run_in_ms=-1 if self.is_running else max(0, self.due_ns - now_ns) // NS_PER_MS,
            last_error=self.last_error,
        )


@dataclass(order=True, slots=True)
class QueueEntry:
    """A task in a scheduler's heap: earliest first, then in the order of scheduling."""

    due_ns: int
    number: int
    task: TaskRecord = field(compare=False)


def due_after(clock: Clock, delay_ms: int) -> int:
    """The monotonic time delay_ms from now; a negative delay is none."""
    return clock.monotonic_ns() + max(0, delay_ms) * NS_PER_MS
