"""SimClock: time that moves only when a test says so.

Whoever has work that falls due (scheduler, threads) registers as a waker; advancing stops at each
due time, in order, so that a task sees the clock it was promised. One operating system thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kafkalog.env.clock import ClockReading

if TYPE_CHECKING:
    from collections.abc import Callable

WALL_MS = 1_700_000_000_000
_NS_PER_MS = 1_000_000


class Waker(Protocol):
    """Something with work that falls due."""

    def next_due_ns(self) -> int | None:
        """Monotonic time of its next work; None when there is none."""

    def run_due(self) -> None:
        """Do what is due now."""


class SimClock:
    """See Clock. Wall and monotonic time move together, except for ``step_wall_ms``."""

    def __init__(self, wall_ms: int = WALL_MS) -> None:
        self._monotonic_ns = 1_000_000_000
        self._wall_offset_ns = wall_ms * _NS_PER_MS - self._monotonic_ns
        self._wakers: list[Waker] = []
        self._is_running_due = False
        self._sleeper: Callable[[float], bool] | None = None
        self.boot_id = "boot"

    def wall_ms(self) -> int:
        return (self._monotonic_ns + self._wall_offset_ns) // _NS_PER_MS

    def monotonic_ns(self) -> int:
        return self._monotonic_ns

    def reading(self) -> ClockReading:
        return ClockReading(self.wall_ms(), self.boot_id, self._monotonic_ns // _NS_PER_MS)

    def sleep(self, seconds: float) -> None:
        """See Clock. Parks a simulated thread; on the test's own thread it advances the clock."""
        if self._sleeper is None or not self._sleeper(seconds):
            self.advance_ns(int(seconds * 1e9))

    def advance_ms(self, milliseconds: int) -> None:
        """Move time forward, running what falls due on the way."""
        self.advance_ns(milliseconds * _NS_PER_MS)

    def advance_ns(self, nanoseconds: int) -> None:
        """As advance_ms. Inside a task that is itself running it only moves the time."""
        assert nanoseconds >= 0
        target = self._monotonic_ns + nanoseconds
        if not self._is_running_due:
            while (due := self._earliest()) is not None and due[0] <= target:
                self._run(*due)
        self._monotonic_ns = max(self._monotonic_ns, target)

    def advance_to_next(self, not_after_ns: int | None = None) -> bool:
        """Move to the next due work, or to not_after_ns when that is earlier; False: neither."""
        due = self._earliest()
        if due is not None and (not_after_ns is None or due[0] <= not_after_ns):
            self._run(*due)
            return True
        if not_after_ns is None:
            return False
        self._monotonic_ns = max(self._monotonic_ns, not_after_ns)
        return True

    def step_wall_ms(self, milliseconds: int) -> None:
        """Set the wall clock forward or back, as an administrator or NTP does."""
        self._wall_offset_ns += milliseconds * _NS_PER_MS

    def add_waker(self, waker: Waker) -> None:
        self._wakers.append(waker)

    def set_sleeper(self, sleeper: Callable[[float], bool]) -> None:
        """Who parks sleeping threads; it answers False on the test's own thread."""
        self._sleeper = sleeper

    def _earliest(self) -> tuple[int, Waker] | None:
        best: tuple[int, Waker] | None = None
        for waker in self._wakers:
            due_ns = waker.next_due_ns()
            if due_ns is not None and (best is None or due_ns < best[0]):
                best = (due_ns, waker)
        return best

    def _run(self, due_ns: int, waker: Waker) -> None:
        self._monotonic_ns = max(self._monotonic_ns, due_ns)
        was_running, self._is_running_due = self._is_running_due, True
        try:
            waker.run_due()
        finally:
            self._is_running_due = was_running
