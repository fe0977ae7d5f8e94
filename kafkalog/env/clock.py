"""The only source of time: schedules use the monotonic clock, records and retention the wall."""

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
