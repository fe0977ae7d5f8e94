"""Goal: a bucket lets through its rate over any time, and no more than a second's worth at once.
Method: requests at simulated times.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkalog.server.security.rate_limits import TokenBuckets


def test_a_second_s_worth_at_once_then_the_rate() -> None:
    """Bursts are bounded, the average is the rate."""
    buckets = TokenBuckets(5)

    def take(now_seconds: float) -> int:
        wait = buckets.wait_seconds("a", now_seconds)
        if not wait:
            buckets.spend("a", 1, now_seconds)
        return wait

    assert [take(100.0) for _ in range(7)] == [0] * 5 + [1] * 2
    assert [take(100.375) for _ in range(4)] == [0, 0, 1, 1]
    assert [take(500.0) for _ in range(7)] == [0] * 5 + [1] * 2
    assert buckets.wait_seconds("b", 500.0) == 0


def test_debt_is_waited_for() -> None:
    """Who took ten seconds' worth waits ten seconds."""
    buckets = TokenBuckets(1000)
    buckets.spend("a", 10_000, 0.0)
    assert buckets.wait_seconds("a", 0.0) == 9
    assert buckets.wait_seconds("a", 8.5) == 1
    assert buckets.wait_seconds("a", 9.1) == 0


def test_no_limit() -> None:
    """0 limits nothing and remembers nobody."""
    buckets = TokenBuckets(0)
    buckets.spend("a", 1e12, 0.0)
    assert buckets.wait_seconds("a", 0.0) == 0


@given(
    st.integers(1, 100),
    st.lists(st.tuples(st.floats(0, 2), st.sampled_from("ab")), max_size=200),
)
def test_the_rate_holds_over_any_time(rate: int, steps: list[tuple[float, str]]) -> None:
    """Never more than the rate times the time, and a second's worth."""
    buckets, now, taken = TokenBuckets(rate), 0.0, {"a": 0, "b": 0}
    for pause, name in steps:
        now += pause
        if not buckets.wait_seconds(name, now):
            buckets.spend(name, 1, now)
            taken[name] += 1
        assert taken[name] <= rate * (now + 1) + 1


def test_remembered_names_are_bounded() -> None:
    """Many addresses cost bounded memory; the one in use is kept."""
    buckets = TokenBuckets(1)
    buckets.spend("used", 5000, 0.0)
    for number in range(10_000):
        buckets.spend(f"\0{number}", 2, 0.0)
        buckets.spend("used", 1, 0.0)
    assert buckets.wait_seconds("used", 0.0) > 1000
    assert buckets.wait_seconds("\0" + "0", 0.0) == 0
    assert buckets.wait_seconds("\0" + "9999", 0.0) == 1
