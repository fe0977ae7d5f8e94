"""Goal: all cleaner threads together keep to log.cleaner.io.max.bytes.per.second, as Kafka's do.
Method: bytes on a clock that the test moves; no thread, no sleep.
"""

from __future__ import annotations

import threading

import pytest

from kafkalog.cleaner.log_cleaner import Throttler

MS = 1_000_000
SECOND = 1_000 * MS


def make(bytes_per_second: float, now_ns: int = 5 * SECOND) -> Throttler:
    """One that begins at now_ns."""
    return Throttler(threading.Lock(), bytes_per_second, now_ns)


def test_nothing_waits_within_the_first_period() -> None:
    """Kafka looks every 300 ms only."""
    throttler = make(1_000)
    assert throttler.observe(1_000_000, 5 * SECOND + 300 * MS) <= 5 * SECOND + 300 * MS


def test_a_period_is_stretched_to_the_rate() -> None:
    """The average of the period is the rate."""
    throttler = make(1_000)
    throttler.observe(500, 5 * SECOND + 200 * MS)
    assert throttler.observe(500, 5 * SECOND + 400 * MS) == 6 * SECOND


def test_other_threads_wait_as_well() -> None:
    """One rate for all."""
    throttler = make(1_000)
    until = throttler.observe(1_000, 5 * SECOND + 400 * MS)
    assert throttler.observe(1, 5 * SECOND + 500 * MS) == until


def test_a_slower_period_waits_for_nothing() -> None:
    """What is below the rate goes on at once."""
    throttler = make(1_000)
    now = 5 * SECOND + 400 * MS
    assert throttler.observe(200, now) == now


@pytest.mark.parametrize(("rate", "size"), [(1_000, 16), (50_000, 1_024), (1e9, 65_536)])
def test_the_average_over_long_is_the_rate(rate: float, size: int) -> None:
    """A minute of chunks takes the time that the rate asks for."""
    throttler, now = make(rate), 5 * SECOND
    sent = 0
    while now < 65 * SECOND and sent < rate * 60:
        now = max(now + MS, throttler.observe(size, now))
        sent += size
    assert sent <= rate * (now - 5 * SECOND) / SECOND + 302 * size


def test_the_rate_may_change_under_way() -> None:
    """A new rate counts at once, and the wait for the old one is over."""
    throttler = make(1e-300)
    assert throttler.observe(1_000, 5 * SECOND + 400 * MS) > 1_000_000 * SECOND
    throttler.change_rate(10_000, 6 * SECOND)
    assert throttler.go_on_ns == 6 * SECOND
    assert throttler.observe(10_000, 6 * SECOND + 400 * MS) == 7 * SECOND
