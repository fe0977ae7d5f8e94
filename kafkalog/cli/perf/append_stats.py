"""What kafka-producer-perf-test tells of its records: windows, and the sum with percentiles.

Source: `org.apache.kafka.tools.ProducerPerformance.Stats` 4.1, whose lines these are to the byte;
at most 500,000 latencies are kept, evenly chosen. Pure.
"""

from __future__ import annotations

from typing import Any

from kafkalog.cli.perf.java_format import fixed, quotient

REPORTING_INTERVAL_MS = 5000
_SAMPLES_MAX = 500_000
_MIB = 1024.0 * 1024.0
_PERCENTILES = (("50th", 0.5), ("95th", 0.95), ("99th", 0.99), ("99.9th", 0.999))


class AppendStats:
    """Of a run that began at ``start_ms``; all times by one clock."""

    def __init__(self, record_count: int, start_ms: int) -> None:
        self._start_ms = start_ms
        self._sampling = record_count // min(record_count, _SAMPLES_MAX)
        self._latencies: list[int] = []
        self.count = 0
        self._bytes = 0
        self._latency_ms = 0
        self._max_latency_ms = 0
        self._begin_window(start_ms)

    def _begin_window(self, now_ms: int) -> None:
        self._window_start_ms = now_ms
        self._window_count = self._window_bytes = 0
        self._window_latency_ms = self._window_max_ms = 0

    def add(self, count: int, size_bytes: int, latency_ms: int, now_ms: int) -> str | None:
        """Records that were answered together; the line of a window that is over."""
        before = self.count
        self.count += count
        self._bytes += size_bytes
        self._latency_ms += latency_ms * count
        self._max_latency_ms = max(self._max_latency_ms, latency_ms)
        self._window_count += count
        self._window_bytes += size_bytes
        self._window_latency_ms += latency_ms * count
        self._window_max_ms = max(self._window_max_ms, latency_ms)
        first = -before % self._sampling
        self._latencies += [latency_ms] * len(range(first, count, self._sampling))
        if now_ms - self._window_start_ms < REPORTING_INTERVAL_MS:
            return None
        line = self._window_line(now_ms)
        self._begin_window(now_ms)
        return line

    def _window_line(self, now_ms: int) -> str:
        elapsed_ms = now_ms - self._window_start_ms
        rate = quotient(1000.0 * self._window_count, elapsed_ms)
        mib_rate = quotient(1000.0 * self._window_bytes, elapsed_ms) / _MIB
        average_ms = quotient(self._window_latency_ms, self._window_count)
        return (
            f"{self._window_count} records sent, {fixed(rate, 1)} records/sec"
            f" ({fixed(mib_rate, 2)} MB/sec), {fixed(average_ms, 1)} ms avg latency,"
            f" {fixed(float(self._window_max_ms), 1)} ms max latency."
        )

    def total(self, now_ms: int) -> dict[str, Any]:
        """The whole run: MB are 2^20 bytes, latencies ms."""
        elapsed_ms = now_ms - self._start_ms
        latencies = sorted(self._latencies) or [0]
        return {
            "records": self.count,
            "bytes": self._bytes,
            "elapsed_ms": elapsed_ms,
            "records_per_second": quotient(1000.0 * self.count, elapsed_ms),
            "mb_per_second": quotient(1000.0 * self._bytes, elapsed_ms) / _MIB,
            "latency_ms": {
                "avg": quotient(self._latency_ms, self.count),
                "max": self._max_latency_ms,
                **{name: latencies[int(share * len(latencies))] for name, share in _PERCENTILES},
            },
        }


def total_line(total: dict[str, Any]) -> str:
    """The tool's last line."""
    latency = total["latency_ms"]
    percentiles = ", ".join(f"{latency[name]} ms {name}" for name, _ in _PERCENTILES)
    return (
        f"{total['records']} records sent, {fixed(total['records_per_second'], 1)} records/sec"
        f" ({fixed(total['mb_per_second'], 2)} MB/sec), {fixed(latency['avg'], 2)} ms avg latency,"
        f" {fixed(float(latency['max']), 2)} ms max latency, {percentiles}."
    )
