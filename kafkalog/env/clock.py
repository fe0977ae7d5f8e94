"""The only source of time: schedules use the monotonic clock, records and retention the wall.

Turns: a loop in pure Python on a background thread lets those who answer requests go first.

Only one thread has the interpreter at a time. A thread that never waits gives it away at each
switch interval, but whoever needs it back has to wait for that interval again: an append changes
threads four times, so that beside such a loop a few thousand of them a second is all there is.
The loop therefore works for a millisecond and then sleeps for two.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time, monotonic time and sleeping."""

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch; may jump either way."""
        ...

    def monotonic_ns(self) -> int:
        """Nanoseconds that never go back; only differences mean anything."""
        ...

    def sleep(self, seconds: float) -> None:
        """Block the calling thread. Never called on the event loop."""
        ...


class SystemClock:
    """The machine's clocks."""

    def wall_ms(self) -> int:
        """See Clock."""
        return time.time_ns() // 1_000_000

    def monotonic_ns(self) -> int:
        """See Clock."""
        return time.monotonic_ns()

    def sleep(self, seconds: float) -> None:
        """See Clock."""
        time.sleep(seconds)


class FixedWallClock(SystemClock):
    """Always the same wall time: expiry of producers then gives the same result every time."""

    def __init__(self, wall_ms: int) -> None:
        self._wall_ms = wall_ms

    def wall_ms(self) -> int:
        """As given."""
        return self._wall_ms


_WORK_NS = 1_000_000
_REST_NS = 2_000_000


class Turns:
    """Of one run of one loop; made when it begins. Owned by its thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begun_ns = clock.monotonic_ns()

    def rest(self) -> None:
        """Between two items of the loop: sleep if the turn is over. No lock is held meanwhile."""
        if self._clock.monotonic_ns() - self._begun_ns >= _WORK_NS:
            self._clock.sleep(_REST_NS / 1e9)
            self._begun_ns = self._clock.monotonic_ns()
