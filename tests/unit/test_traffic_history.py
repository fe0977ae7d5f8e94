"""Goal: the history of the last hour is what the counters say, bounded, and forgets what is gone.
Method: a metrics object whose counters and clock the test moves; a simulated daemon for an hour.
"""

from __future__ import annotations

import math
import sys

import pytest

from kafkalog.observe.history import HOUR_MS, MEASURE_EVERY, ROWS, SHARES
from kafkalog.observe.metrics import Metrics
from tests.unit.test_retention import started

PERIOD_MS = HOUR_MS // ROWS
NOW_MS = 1_700_000_000_000


class Sampled:
    """Metrics, and samples of them, PERIOD_MS apart."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.history = self.metrics.history
        self.elapsed_ms = 0
        self.sample()

    def sample(self, times: int = 1) -> None:
        for _ in range(times):
            self.elapsed_ms += PERIOD_MS
            self.history.sample(NOW_MS + self.elapsed_ms, self.elapsed_ms * 1_000_000)

    def append(self, topic: str, size_bytes: int, requests: int = 1) -> None:
        self.metrics.traffic.observe_append(topic, 10 * requests, size_bytes, requests)


def test_a_row_is_what_was_counted_between_two_samples() -> None:
    sampled = Sampled()
    sampled.append("t", 4000, 20)
    sampled.append("u", 1000, 10)
    sampled.metrics.traffic.observe_reads("t", 500, 5)
    for seconds in [0.001] * 99 + [4.0]:
        sampled.metrics.append_seconds.labels("ok").observe(seconds)
    sampled.metrics.append_seconds.labels("error").observe(8.0)
    sampled.sample(2)
    first, second = sampled.history.rows()
    assert (first.at_ms, second.at_ms) == (NOW_MS + 2 * PERIOD_MS, NOW_MS + 3 * PERIOD_MS)
    assert (first.records_in, first.append_requests, first.fetch_requests) == (30.0, 3.0, 0.5)
    assert (first.bytes_in, first.bytes_out) == (500.0, 50.0)
    assert first.append_p99_seconds == pytest.approx(0.001)  # the 99th of a hundred
    assert first.fetch_p99_seconds is None
    assert second[1:] == (0.0, 0.0, 0.0, 0.0, 0.0, None, None)


def test_a_latency_is_placed_within_its_bucket() -> None:
    sampled = Sampled()
    for _ in range(100):
        sampled.metrics.fetch_seconds.labels("ok").observe(0.003)  # between 2 and 4 ms
    sampled.sample()
    sampled.metrics.fetch_seconds.labels("ok").observe(100.0)
    sampled.sample()
    inside, beyond = sampled.history.rows()
    assert inside.fetch_p99_seconds == pytest.approx(0.00398)
    assert beyond.fetch_p99_seconds == pytest.approx(8.192)


def test_an_hour_is_kept() -> None:
    sampled = Sampled()
    for number in range(2 * ROWS):
        sampled.append("t", number)
        sampled.sample()
    rows = sampled.history.rows()
    assert len(rows) == ROWS
    assert rows[-1].at_ms - rows[0].at_ms == HOUR_MS - PERIOD_MS
    assert len(sampled.history.topic_bytes("t")) == SHARES
    assert sys.getsizeof(sampled.history._rows) < 40_000


def test_a_topic_has_figures_as_long_as_it_has_appends() -> None:
    sampled = Sampled()
    share = ROWS // SHARES
    sampled.append("t", 300)
    sampled.sample(share)
    sampled.append("t", 700)
    sampled.sample(share)
    assert list(sampled.history.topic_bytes("t")) == [0.0] * (SHARES - 2) + [300.0, 700.0]
    assert sampled.history.topic_bytes("none") == []
    sampled.sample(ROWS)
    assert sampled.history.topic_bytes("t") == []
    assert sampled.history._shares == {}


def test_a_topic_that_was_made_again_begins_anew() -> None:
    sampled = Sampled()
    share = ROWS // SHARES
    sampled.append("t", 300)
    sampled.sample(share)
    sampled.metrics.forget_topic("t")
    sampled.append("t", 100)
    sampled.sample(share)
    assert list(sampled.history.topic_bytes("t"))[-2:] == [0.0, 100.0]
    sampled.metrics.forget_topic("t")
    sampled.sample(share)
    assert sampled.history.topic_bytes("t") == []
    assert sum(each.bytes_in for each in sampled.history.rows()) * PERIOD_MS / 1000 == 400


@pytest.mark.parametrize("size_bytes", [0, 100, 700])
def test_a_topic_has_no_bytes_of_a_deleted_one_of_its_name(size_bytes: int) -> None:
    """Whether it got fewer or more than that one before the next share, and until then."""
    sampled = Sampled()
    share = ROWS // SHARES
    sampled.append("t", 300)
    sampled.sample(share)
    sampled.append("t", 50)
    sampled.metrics.forget_topic("t")
    if size_bytes:
        sampled.append("t", size_bytes)
    assert sum(sampled.history.topic_bytes("t")) == size_bytes
    sampled.sample(share)
    assert sum(sampled.history.topic_bytes("t")) == size_bytes


@pytest.mark.parametrize(
    ("free_bytes", "expected_ms"),
    [([1000] * 20, math.inf), ([1000, 2000] * 10, math.inf), ([1000, 900], None)],
)
def test_a_disk_that_does_not_fill(free_bytes: list[int], expected_ms: float | None) -> None:
    sampled = Sampled()
    for free in free_bytes:
        sampled.metrics.set_log_dir_space("/data/a", used_bytes=10_000 - free, free_bytes=free)
        sampled.sample(MEASURE_EVERY)
    assert sampled.history.full_in_ms("/data/a") == expected_ms


def test_a_disk_that_fills() -> None:
    """1000 bytes a minute; a deletion in between moves the time, but does not hide it."""
    sampled = Sampled()
    for minute in range(90):
        free = 1_000_000 - 1000 * minute
        sampled.metrics.set_log_dir_space("/data/a", used_bytes=9_000_000, free_bytes=free)
        sampled.sample(MEASURE_EVERY)
    assert sampled.history.full_in_ms("/data/a") == pytest.approx(911 * 60_000, rel=0.01)
    assert sampled.history.full_in_ms("/data/b") is None


def test_the_daemon_keeps_it() -> None:
    sim = started()
    sim.operations.topics.create("t", 1)
    sim.clock.advance_ms(60_000)
    for _ in range(6):
        sim.manager.runtime.metrics.traffic.observe_append("t", 1, 100)
        sim.clock.advance_ms(PERIOD_MS)
    rows = sim.operations.history().rows()
    assert sum(each.append_requests for each in rows) * PERIOD_MS / 1000 == pytest.approx(6)
    assert len(rows) >= 12
    assert rows[-1].at_ms == sim.operations.now_ms()
    assert sum(sim.operations.bytes_in("t")) == 600
