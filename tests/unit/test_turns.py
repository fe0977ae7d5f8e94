"""Goal: a background loop leaves two thirds of the time to others, and costs nothing when short.
Method: a simulated clock that moves only as the test says.
"""

from __future__ import annotations

from kafkalog.env.clock import Turns
from tests.sim.sim_clock import SimClock

_US = 1000


def test_a_short_loop_never_sleeps() -> None:
    """Less than a millisecond is one turn."""
    clock = SimClock()
    turns, begun = Turns(clock), clock.monotonic_ns()
    for _ in range(99):
        clock.advance_ns(10 * _US)
        turns.rest()
    assert clock.monotonic_ns() - begun == 990 * _US


def test_a_long_loop_works_a_third_of_the_time() -> None:
    """1 ms of work, 2 ms of rest, and a turn begins after its rest."""
    clock = SimClock()
    turns, begun = Turns(clock), clock.monotonic_ns()
    for _ in range(1000):
        clock.advance_ns(10 * _US)
        turns.rest()
    assert clock.monotonic_ns() - begun == 30_000 * _US


def test_a_late_item_earns_one_rest() -> None:
    """Time that was spent waiting is not paid back by a longer sleep."""
    clock = SimClock()
    turns, begun = Turns(clock), clock.monotonic_ns()
    clock.advance_ns(50_000 * _US)
    turns.rest()
    turns.rest()
    assert clock.monotonic_ns() - begun == 52_000 * _US
