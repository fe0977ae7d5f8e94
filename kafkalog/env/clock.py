"""The only source of time: schedules use the monotonic clock, records and retention the wall clock.

``TimeSlice`` bounds how long a background loop in pure Python holds the interpreter.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time, monotonic time and sleeping."""

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch; may jump either way."""

    def monotonic_ns(self) -> int:
        """Nanoseconds that never go back; only differences mean anything."""

    def sleep(self, seconds: float) -> None:
        """Block the calling thread. Never called on the event loop."""


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
_SLEEP_NS = 2_000_000


class TimeSlice:
    """Lets a loop work for 1 ms, then sleep for 2. One for each run of a loop; owned by its thread.

    Only one thread runs Python at a time. A thread that never waits gives the interpreter away at
    each switch interval, and a thread that answers requests then has to wait for that interval
    each time it needs it back. An append changes threads four times, so that only a few thousand
    appends a second would be possible beside such a loop.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begun_ns = clock.monotonic_ns()

    def maybe_yield(self) -> None:
        """Between two items: sleep if the slice is used up. The caller must hold no lock."""
        if self._clock.monotonic_ns() - self._begun_ns >= _WORK_NS:
            self._clock.sleep(_SLEEP_NS / 1e9)
            self._begun_ns = self._clock.monotonic_ns()
