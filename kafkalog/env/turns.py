"""Turns: a loop in pure Python on a background thread lets those who answer requests go first.

Only one thread has the interpreter at a time. A thread that never waits gives it away at each
switch interval, but whoever needs it back has to wait for that interval again: an append changes
threads four times, so that beside such a loop a few thousand of them a second is all there is.
The loop therefore works for a millisecond and then sleeps for two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalog.env.clock import Clock

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
