"""Goal: the perf commands count right and print it in the form of Kafka's tools.
Method: a simulated clock, and a daemon of a few lines that takes as long as it is told.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pytest

from kafkalog.cli.jobs.perf import (
    AppendLoad,
    AppendStats,
    ReadLoad,
    ReadResult,
    random_payloads,
    total_line,
)
from kafkalog.client import ClientError, ConsumerRecord, NoRoom, OutcomeUnknown
from kafkalog.client.batches import consumer_records
from kafkalog.client.records import FetchedRecords, Position
from tests.sim.sim_clock import SimClock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.client import Client
    from kafkalog.client.retry import Steps


class Taker:
    """Takes each request in ``took_ms``; those whose number is in ``refused`` fail."""

    is_quick = False  # whether an answer is there at once

    def __init__(
        self, clock: SimClock, took_ms: int, refused: Mapping[int, ClientError] | None = None
    ) -> None:
        self._clock, self._took_ms, self._refused = clock, took_ms, refused or {}
        self.requests: list[list[bytes | None]] = []  # values
        self.chosen: list[int] = []  # partitions
        self.in_flight: list[int] = []  # requests in flight as each began
        self._answered_count = 0

    def partitions(self, topic: str) -> list[dict[str, Any]]:
        assert topic == "t"
        return [{"partition": 0}, {"partition": 1, "error_code": 50302}, {"partition": 2}]

    def begin(self, steps: Steps[object]) -> Taken:
        request = next(steps)
        place = re.fullmatch(r"/v1/topics/t/partitions/(\d+)/batches", request.path)
        assert place is not None
        assert request.body is not None
        records = consumer_records("t", int(place[1]), request.body, 0)
        self.requests.append([record.value for record in records])
        self.chosen.append(int(place[1]))
        self.in_flight.append(len(self.requests) - self._answered_count)
        return Taken(self, len(self.requests))

    def answer(self, number: int) -> None:
        self._clock.advance_ms(self._took_ms)
        self._answered_count += 1
        if number in self._refused:
            raise self._refused[number]


class Taken(NamedTuple):
    """A request that ``Taker`` has."""

    taker: Taker
    number: int

    @property
    def is_answered(self) -> bool:
        return self.taker.is_quick

    def result(self) -> None:
        self.taker.answer(self.number)


class Giver:
    """Gives ``pages`` of so many records of partition 0, each in ``took_ms``; then silence."""

    def __init__(self, clock: SimClock, took_ms: int, pages: list[int]) -> None:
        self._clock, self._took_ms, self._pages = clock, took_ms, pages
        self.waits: list[int] = []

    def partitions(self, topic: str) -> list[dict[str, Any]]:
        assert topic == "t"
        self._clock.advance_ms(40)
        return [{"partition": 0}]

    def offset_range(self, topic: str, partition: int) -> tuple[int, int]:
        assert (topic, partition) == ("t", 0)
        return 7, 9

    def fetch(
        self, topic: str, partition: int, offset: int, *, max_bytes: int, max_wait_ms: int
    ) -> FetchedRecords:
        self.waits.append(max_wait_ms)
        self._clock.advance_ms(self._took_ms if self._pages else max_wait_ms)
        count = self._pages.pop(0) if self._pages else 0
        record = ConsumerRecord(topic, partition, offset, 0, b"k", b"v" * 9)
        return FetchedRecords((record,) * count, Position(offset + count, 99, 0, False))


def never(*what: object) -> None:
    raise AssertionError(what)


def client_of(fake: Taker | Giver) -> Client:
    return cast("Client", fake)


def test_the_sum_of_a_run() -> None:
    stats = AppendStats(100, 0)
    for latency_ms in range(100):
        assert stats.add(1, 1024, latency_ms, 40) is None
    assert total_line(stats.total(200)) == (
        "100 records sent, 500.0 records/sec (0.49 MB/sec), 49.50 ms avg latency, 99.00 ms max"
        " latency, 50 ms 50th, 95 ms 95th, 99 ms 99th, 99 ms 99.9th."
    )


def test_windows_of_five_seconds() -> None:
    stats = AppendStats(1000, 1000)
    assert stats.add(100, 1 << 20, 10, 5999) is None
    assert stats.add(100, 1 << 20, 30, 6000) == (
        "200 records sent, 40.0 records/sec (0.40 MB/sec), 20.0 ms avg latency, 30.0 ms max"
        " latency."
    )
    assert stats.add(50, 1 << 20, 5, 11_000) == (
        "50 records sent, 10.0 records/sec (0.20 MB/sec), 5.0 ms avg latency, 5.0 ms max latency."
    )


def test_records_go_in_batches_as_fast_as_they_are_taken() -> None:
    clock = SimClock()
    taker = Taker(clock, 10)
    load = AppendLoad("t", 25, random_payloads(10), batch_bytes=340, in_flight=1)
    stats = load.run(client_of(taker), clock, never)
    assert [len(request) for request in taker.requests] == [10, 10, 5]
    values = list(itertools.chain.from_iterable(taker.requests))
    assert all(isinstance(value, bytes) and value.isupper() for value in values)
    assert len(set(values)) == 25
    total = stats.total(clock.monotonic_ns() // 1_000_000)
    assert (total["records"], total["bytes"], total["elapsed_ms"]) == (25, 250, 30)
    assert (total["latency_ms"]["avg"], total["latency_ms"]["max"]) == (10, 10)


def test_several_requests_are_in_flight() -> None:
    """To the partitions that are served, in turn."""
    clock = SimClock()
    taker = Taker(clock, 0)
    load = AppendLoad("t", 60, random_payloads(10), batch_bytes=340, in_flight=3)
    stats = load.run(client_of(taker), clock, never)
    assert stats.total(1)["records"] == 60
    assert taker.chosen == [0, 2] * 3
    assert taker.in_flight == [1, 2, 3, 3, 3, 3]


def test_an_answer_is_seen_when_the_next_batch_is_ready() -> None:
    clock = SimClock()
    taker = Taker(clock, 0)
    taker.is_quick = True
    AppendLoad("t", 60, random_payloads(10), batch_bytes=340).run(client_of(taker), clock, never)
    assert taker.in_flight == [1] * 6


def test_a_rate_is_kept() -> None:
    clock = SimClock()
    taker = Taker(clock, 1)
    began_ns = clock.monotonic_ns()
    load = AppendLoad("t", 50, map(b"%d".__mod__, range(50)), 500.0, in_flight=1)
    load.run(client_of(taker), clock, never)
    assert [len(request) for request in taker.requests] == [5] * 10
    assert clock.monotonic_ns() - began_ns == 100_000_000
    assert taker.requests[1] == [b"5", b"6", b"7", b"8", b"9"]


@pytest.mark.parametrize(
    ("failure", "is_quick", "known"),
    [
        (NoRoom("full", status=507, nothing_was_done=True), False, "appended: 4, refused: 1"),
        (OutcomeUnknown("cut"), True, "appended: 3, refused: 0"),
        (OutcomeUnknown("cut"), False, "appended: 1, refused: 0"),
    ],
)
def test_a_failure_ends_a_run(failure: ClientError, is_quick: bool, known: str) -> None:
    """What is in flight is waited for while the daemon answers, and no record is left out."""
    clock = SimClock()
    taker = Taker(clock, 1, {2: failure})
    lines: list[str] = []
    load = AppendLoad("t", 9, random_payloads(1), batch_bytes=1, in_flight=4)

    def begin(steps: Steps[object]) -> Taken:
        taken = Taker.begin(taker, steps)
        taker.is_quick = is_quick and len(taker.requests) >= 4
        return taken

    taker.begin = begin  # type: ignore[method-assign]
    with pytest.raises(type(failure)):
        load.run(client_of(taker), clock, lines.append)
    begun = len(taker.requests)
    assert begun == 4 + (not is_quick)
    unknown = begun - sum(map(int, re.findall(r": (\d+)", known)))
    assert lines == [f"Records {known}, unknown: {unknown}"]


def test_a_run_that_began_nothing_counts_nothing() -> None:
    clock = SimClock()
    taker = Taker(clock, 1)

    def partitions(topic: str) -> list[dict[str, Any]]:
        raise ClientError(topic)

    taker.partitions = partitions  # type: ignore[method-assign]
    with pytest.raises(ClientError):
        AppendLoad("t", 9, random_payloads(1)).run(client_of(taker), clock, never)


def test_a_topic_is_read_until_there_is_enough() -> None:
    clock = SimClock()
    result = ReadLoad("t", 12, 1000).run(client_of(Giver(clock, 30, [10, 5, 5])), clock)
    assert (result.record_count, result.size_bytes, result.is_complete) == (15, 150, True)
    assert (result.join_ms, result.end_ms - result.start_ms) == (40, 100)
    start, end, *numbers = result.line().split(", ")
    for time in (start, end):
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}", time)
    assert numbers == [
        "0.0001", "0.0014", "15", "150.0000", "40", "60", "0.0024", "250.0000"
    ]  # fmt: skip


def test_silence_ends_a_read() -> None:
    clock = SimClock()
    giver = Giver(clock, 30, [1])
    result = ReadLoad("t", 5, 250).run(client_of(giver), clock)
    assert (result.record_count, result.is_complete) == (1, False)
    assert giver.waits == [0, 0, 100, 100, 100]


def test_an_interrupted_read_says_how_far_it_came() -> None:
    clock = SimClock()
    giver = Giver(clock, 30, [7])
    fetch = giver.fetch

    def interrupted(*words: Any, **options: Any) -> Any:
        if giver.waits:
            raise KeyboardInterrupt
        return fetch(*words, **options)

    giver.fetch = interrupted  # type: ignore[method-assign]
    result = ReadLoad("t", 20, 1000).run(client_of(giver), clock)
    assert (result.record_count, result.is_complete, result.is_interrupted) == (7, False, True)


def test_a_run_of_no_time() -> None:
    line = ReadResult(0, 0, 0, 0, 0, True).line()
    assert line.split(", ")[2:] == ["0.0000", "0.0000", "0", "0.0000", "0", "0", "0.0000", "0.0000"]
    total = AppendStats(1, 0).total(0)
    assert (total["records_per_second"], total["latency_ms"]["avg"]) == (0.0, 0.0)
