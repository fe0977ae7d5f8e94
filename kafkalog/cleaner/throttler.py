"""Throttler: one rate of bytes for all cleaner threads together.

Owns the count and the rate; never waits itself: it says until when its caller does, so that a stop
can end the wait. As Kafka's it looks every 300 ms and then lets everybody pause for as long as
brings the average of the period down to the rate. A new rate begins a new period: who waits for
the former rate need not wait any longer.
Source: Kafka 4.1 Throttler (``cleaner-io``), log-lifecycle 12.7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalog.env.threads import Mutex

_CHECK_INTERVAL_NS = 300_000_000
_NEVER_NS = 1 << 62  # the smallest rates ask for more than any number


class Throttler:
    """Any thread; see the module."""

    def __init__(self, mutex: Mutex, bytes_per_second: float, now_ns: int) -> None:
        """``now_ns`` is of the monotonic clock."""
        # constant after construction
        self._mutex = mutex
        # under the mutex
        self._bytes_per_second = bytes_per_second
        self._period_start_ns = now_ns
        self._observed_bytes = 0
        # changed under the mutex, published
        self.go_on_ns = now_ns

    def change_rate(self, bytes_per_second: float, now_ns: int) -> None:
        """Let another rate count from now on; who waits looks at ``go_on_ns`` again."""
        with self._mutex:
            self._bytes_per_second = bytes_per_second
            self._period_start_ns = self.go_on_ns = now_ns
            self._observed_bytes = 0

    def observe(self, size_bytes: int, now_ns: int) -> int:
        """Bytes were read or written; the monotonic time before which the caller does no more."""
        with self._mutex:
            self._observed_bytes += size_bytes
            elapsed_ns = now_ns - self._period_start_ns
            if elapsed_ns > _CHECK_INTERVAL_NS and self._observed_bytes:
                due_ns = min(self._observed_bytes * 1e9 / self._bytes_per_second, _NEVER_NS)
                self.go_on_ns = self._period_start_ns + int(max(due_ns, elapsed_ns))
                self._period_start_ns = self.go_on_ns
                self._observed_bytes = 0
            return self.go_on_ns
