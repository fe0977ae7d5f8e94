"""Read a topic as fast as the daemon gives it, and what kafka-consumer-perf-test tells of that.

Source: `org.apache.kafka.tools.ConsumerPerformance` 4.1, whose lines these are to the byte. The
time of a rebalance is the time in which the partitions and their begins were found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafkalog.cli.perf.java_format import date_text, fixed, quotient

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.client import Client
    from kafkalog.env.clock import Clock

_MIB = 1024.0 * 1024.0
_NS_PER_MS = 1_000_000
_WAIT_MS = 100
_FETCH_FIELDS = "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
HEADER = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
    + _FETCH_FIELDS
)
DETAILED_HEADER = (
    "time, threadId, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, " + _FETCH_FIELDS
)


@dataclass(frozen=True, slots=True)
class Progress:
    """Between two moments: sums until the second, and what came since the first. Wall times."""

    since_ms: int
    now_ms: int
    size_bytes: int
    record_count: int
    new_bytes: int
    new_records: int
    join_ms: int

    def line(self, pattern: str) -> str:
        """The tool's of an interval."""
        elapsed_ms = self.now_ms - self.since_ms
        fetch_ms = elapsed_ms - self.join_ms
        new_mib = self.new_bytes / _MIB
        rates = (
            (1000.0 * new_mib / fetch_ms, 1000.0 * self.new_records / fetch_ms)
            if fetch_ms > 0
            else (0.0, 0.0)
        )
        numbers = (
            fixed(self.size_bytes / _MIB, 4),
            fixed(quotient(1000.0 * new_mib, elapsed_ms), 4),
            str(self.record_count),
            fixed(quotient(self.new_records, elapsed_ms) * 1000.0, 4),
            str(self.join_ms),
            str(fetch_ms),
            *(fixed(rate, 4) for rate in rates),
        )
        return ", ".join((date_text(pattern, self.now_ms), "0", *numbers))


@dataclass(frozen=True, slots=True)
class ReadResult:
    """A whole run. Wall times; ``is_complete``: as many records as were asked for."""

    start_ms: int
    end_ms: int
    join_ms: int
    record_count: int
    size_bytes: int
    is_complete: bool

    def document(self) -> dict[str, Any]:
        """MB are 2^20 bytes; rates of the whole run."""
        elapsed = (self.end_ms - self.start_ms) / 1000.0
        return {
            "records": self.record_count,
            "bytes": self.size_bytes,
            "elapsed_ms": self.end_ms - self.start_ms,
            "records_per_second": quotient(self.record_count, elapsed),
            "mb_per_second": quotient(self.size_bytes / _MIB, elapsed),
            "is_complete": self.is_complete,
        }

    def line(self, pattern: str) -> str:
        """The tool's last one."""
        mib = self.size_bytes / _MIB
        elapsed_ms = self.end_ms - self.start_ms
        fetch_ms = elapsed_ms - self.join_ms
        numbers = (
            fixed(mib, 4),
            fixed(quotient(mib, elapsed_ms / 1000.0), 4),
            str(self.record_count),
            fixed(quotient(self.record_count, elapsed_ms / 1000.0), 4),
            str(self.join_ms),
            str(fetch_ms),
            fixed(quotient(mib, fetch_ms / 1000.0), 4),
            fixed(quotient(self.record_count, fetch_ms / 1000.0), 4),
        )
        times = (date_text(pattern, self.start_ms), date_text(pattern, self.end_ms))
        return ", ".join((*times, *numbers))


@dataclass(frozen=True, slots=True)
class ReadLoad:
    """What to read. ``timeout_ms``: no record for so long ends it. ``max_bytes`` of an answer."""

    topic: str
    record_count: int
    timeout_ms: int
    from_latest: bool = False
    max_bytes: int = 1 << 20
    interval_ms: int = 5000

    def run(self, client: Client, clock: Clock, tell: Callable[[Progress], None]) -> ReadResult:
        """``tell`` gets the progress of each interval. ClientError."""
        start_ms, start_ns = clock.wall_ms(), clock.monotonic_ns()

        def now_ms() -> int:
            return start_ms + (clock.monotonic_ns() - start_ns) // _NS_PER_MS

        positions = self._positions(client)
        join_ms = now_ms() - start_ms
        told = Progress(start_ms, start_ms, 0, 0, 0, 0, join_ms)
        count = size = 0
        last_ms = now_ms()
        is_idle = False
        while count < self.record_count and now_ms() - last_ms <= self.timeout_ms:
            before = count
            for partition, offset in positions.items():
                wait_ms = max(_WAIT_MS // len(positions), 1) if is_idle else 0
                page = client.fetch(
                    self.topic, partition, offset, max_bytes=self.max_bytes, max_wait_ms=wait_ms
                )
                positions[partition] = page.position.next_offset
                count += len(page.records)
                size += sum(len(one.key or b"") + len(one.value or b"") for one in page.records)
            is_idle = count == before
            moment_ms = now_ms()
            if not is_idle:
                last_ms = moment_ms
                if moment_ms - told.now_ms >= self.interval_ms:
                    told = _since(told, moment_ms, size, count)
                    tell(told)
        return ReadResult(start_ms, now_ms(), join_ms, count, size, count >= self.record_count)

    def _positions(self, client: Client) -> dict[int, int]:
        """Where each partition is read from."""
        place = 1 if self.from_latest else 0
        numbers = [int(entry["partition"]) for entry in client.partitions(self.topic)]
        return {number: client.offset_range(self.topic, number)[place] for number in numbers}


def _since(told: Progress, now_ms: int, size_bytes: int, record_count: int) -> Progress:
    """The next interval; the time of the rebalance counts in the first one alone."""
    is_first = told.since_ms == told.now_ms
    return Progress(
        told.now_ms,
        now_ms,
        size_bytes,
        record_count,
        size_bytes - told.size_bytes,
        record_count - told.record_count,
        told.join_ms if is_first else 0,
    )
