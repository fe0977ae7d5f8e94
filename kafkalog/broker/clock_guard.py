"""ClockGuard: by how much the wall clock jumped ahead, for checks that delete by age.

One instance a kind of check, any thread. Holds what it saw for ``hold_ms`` of the monotonic clock
(0: for the check that sees it): a clock that was set wrong is put right by people sooner than data
comes back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalog.env.threads import Mutex

_JUMP_MS = 1_000  # less is the slewing of a clock, or rounding


class ClockGuard:
    """See the module."""

    def __init__(self, mutex: Mutex, hold_ms: int = 0) -> None:
        # constant after construction
        self._mutex = mutex
        self._hold_ns = hold_ms * 1_000_000
        # under the mutex
        self._last_wall_ms: int | None = None
        self._last_monotonic_ns = 0
        self._jump_ms = 0
        self._held_until_ns = 0

    def check(self, wall_ms: int, monotonic_ns: int) -> int:
        """A check begins now: milliseconds that the wall clock ran ahead; 0 for none worth a word.

        Both clocks are read one right after the other.
        """
        with self._mutex:
            before, self._last_wall_ms = self._last_wall_ms, wall_ms
            passed_ms = (monotonic_ns - self._last_monotonic_ns) // 1_000_000
            self._last_monotonic_ns = monotonic_ns
            if monotonic_ns >= self._held_until_ns:
                self._jump_ms = 0
            jump_ms = 0 if before is None else wall_ms - before - passed_ms
            if jump_ms >= _JUMP_MS:
                self._jump_ms += jump_ms
                self._held_until_ns = monotonic_ns + self._hold_ns
            return self._jump_ms
