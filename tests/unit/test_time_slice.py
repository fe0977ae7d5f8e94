"""Goal: a background loop leaves two thirds of the time to others, and costs nothing when short.
Method: a simulated clock that moves only as the test says.
"""

from __future__ import annotations

from kafkalog.env.clock import TimeSlice
from tests.sim.sim_clock import SimClock

_US = 1000


def test_a_short_loop_never_sleeps() -> None:
    """Less than a millisecond is one slice."""
    clock = SimClock()
    time_slice, begun = TimeSlice(clock), clock.monotonic_ns()
    for _ in range(99):
        clock.advance_ns(10 * _US)
        time_slice.maybe_yield()
    assert clock.monotonic_ns() - begun == 990 * _US


def test_a_long_loop_works_a_third_of_the_time() -> None:
    """1 ms of work, 2 ms of sleep, and a slice begins after the sleep."""
    clock = SimClock()
    time_slice, begun = TimeSlice(clock), clock.monotonic_ns()
    for _ in range(1000):
        clock.advance_ns(10 * _US)
        time_slice.maybe_yield()
    assert clock.monotonic_ns() - begun == 30_000 * _US


def test_a_late_item_earns_one_sleep() -> None:
    """Time that was spent waiting is not paid back by a longer sleep."""
    clock = SimClock()
    time_slice, begun = TimeSlice(clock), clock.monotonic_ns()
    clock.advance_ns(50_000 * _US)
    time_slice.maybe_yield()
    time_slice.maybe_yield()
    assert clock.monotonic_ns() - begun == 52_000 * _US
