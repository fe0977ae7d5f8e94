"""The only source of time: schedules use the monotonic clock, records and retention the wall clock.

``TimeSlice`` bounds how long a background loop in pure Python holds the interpreter.
"""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import NamedTuple, Protocol


class ClockReading(NamedTuple):
    """The wall clock, and at the same moment the time since the machine's start.

    ``boot_id``: of that start; empty: not known. ``since_boot_ms`` never goes back, is the same for
    every process, and goes on while the machine sleeps.
    """

    wall_ms: int
    boot_id: str
    since_boot_ms: int


class Clock(Protocol):
    """Wall time, monotonic time and sleeping."""

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch; may jump either way."""

    def monotonic_ns(self) -> int:
        """Nanoseconds that never go back; only differences mean anything."""

    def reading(self) -> ClockReading:
        """Both clocks, one right after the other."""

    def sleep(self, seconds: float) -> None:
        """Block the calling thread. Never called on the event loop."""


_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")  # Linux only
_APART_NS = 100_000_000
_READINGS_MAX = 10
_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


@functools.cache
def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


class SystemClock:
    """The machine's clocks."""

    def wall_ms(self) -> int:
        """See Clock."""
        return time.time_ns() // 1_000_000

    def monotonic_ns(self) -> int:
        """See Clock."""
        return time.monotonic_ns()

    def reading(self) -> ClockReading:
        """See Clock. A pause of this thread between the two would look like a jump: read again."""
        for _ in range(_READINGS_MAX):
            since_boot_ns, wall_ms = time.clock_gettime_ns(_BOOT_CLOCK), self.wall_ms()
            if time.clock_gettime_ns(_BOOT_CLOCK) - since_boot_ns <= _APART_NS:
                break
        return ClockReading(wall_ms, _boot_id(), since_boot_ns // 1_000_000)

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
