"""Traffic of the last hour, for pages that have no Prometheus to ask.

A periodic task takes a sample of the counters; a row holds rates since the sample before. Bounded:
``ROWS`` rows of all traffic (20 KiB), ``SHARES`` figures for each topic with appends in the last
hour, ``ROWS`` / ``MEASURE_EVERY`` measurements of each log directory. Nothing is kept on disk: it
begins anew with the process. One thread takes samples; any thread reads.
"""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING, NamedTuple, cast

from kafkalog.observe.prometheus import SECONDS_BUCKETS, child_of, children_of, values_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prometheus_client import Counter, Gauge, Histogram

    from kafkalog.observe.topic_metrics import TopicTraffic

HOUR_MS = 3_600_000
ROWS = 360
"""Of 10 s each, as often as the task runs: an hour."""
SHARES = 30
"""Figures of one topic; each is of ``ROWS`` / ``SHARES`` samples, so that all are of an hour."""
MEASURE_EVERY = 6
_SAMPLES_A_SHARE = ROWS // SHARES
_LEAST_SPAN_MS = 600_000  # what less than ten minutes say of a day is a guess
_QUANTILE = 0.99


class TrafficRow(NamedTuple):
    """Between two samples; the second was taken ``at_ms``, wall clock.

    Rates are per second. p99 is of those that ended well; None: there were none.
    """

    at_ms: int
    records_in: float
    append_requests: float
    fetch_requests: float
    bytes_in: float
    bytes_out: float
    append_p99_seconds: float | None
    fetch_p99_seconds: float | None


_FIELDS = len(TrafficRow._fields)
_NONE = -1.0


class TrafficHistory:
    """See the module."""

    def __init__(
        self,
        traffic: TopicTraffic,
        append_seconds: Histogram,
        fetch_seconds: Histogram,
        free_bytes: Gauge,
    ) -> None:
        # constant after construction
        self._traffic = traffic
        self._latencies = (append_seconds, fetch_seconds)
        self._free_bytes = free_bytes
        # changed by the sampling thread alone
        self._samples = 0
        self._began_ms: int | None = None  # wall clock of the first sample
        self._at_ns = 0
        self._totals: tuple[float, ...] = ()
        self._counts: list[list[float]] = []
        self._rows = array("d")
        # With the child that had the total: a topic that was made anew has another.
        self._topic_totals: dict[str, tuple[Counter, float]] = {}
        self._shares: dict[str, array[float]] = {}
        self._free: dict[str, array[float]] = {}  # pairs of wall clock and free bytes

    # ---- the sampling thread

    def sample(self, wall_ms: int, monotonic_ns: int) -> None:
        """Take one. Touches no disk."""
        totals, counts = self._traffic.volume(), [_counts_of(each) for each in self._latencies]
        seconds = (monotonic_ns - self._at_ns) / 1e9
        if self._samples and seconds > 0:
            rates = [(now - then) / seconds for now, then in zip(totals, self._totals, strict=True)]
            p99s = [_quantile(now, then) for now, then in zip(counts, self._counts, strict=True)]
            self._rows.extend(array("d", [wall_ms, *rates, *p99s]))
            del self._rows[: -ROWS * _FIELDS]
        if self._began_ms is None:
            self._began_ms = wall_ms
        self._totals, self._counts, self._at_ns = totals, counts, monotonic_ns
        if self._samples % MEASURE_EVERY == 0:
            self._measure(wall_ms)
        if self._samples % _SAMPLES_A_SHARE == 0:
            self._share(self._traffic.append_bytes, is_first=self._samples == 0)
        self._samples += 1

    def _measure(self, wall_ms: int) -> None:
        free = {labels[0]: value for labels, value in values_of(self._free_bytes)}
        for gone in self._free.keys() - free.keys():
            del self._free[gone]
        for path, free_bytes in free.items():
            pairs = self._free.setdefault(path, array("d"))
            pairs.extend(array("d", [wall_ms, free_bytes]))
            del pairs[: -2 * ROWS // MEASURE_EVERY]

    def _share(self, counter: Counter, *, is_first: bool) -> None:
        """Bytes of each topic since the last time; topics without any for an hour have none."""
        then = self._topic_totals
        now = {labels[0]: (child, child._value.get()) for labels, child in children_of(counter)}
        self._topic_totals = now
        if is_first:
            return
        for topic in self._shares.keys() - now.keys():
            del self._shares[topic]
        for topic, (child, total) in now.items():
            known, before = then.get(topic, (child, 0.0))
            if known is not child:
                before = 0.0
                self._shares.pop(topic, None)
            gain = total - before
            shares = self._shares.get(topic)
            if shares is None:
                if gain:
                    self._shares[topic] = array("d", [gain])
                continue
            shares.append(gain)
            del shares[:-SHARES]
            if not any(shares):
                del self._shares[topic]

    # ---- any thread

    @property
    def samples(self) -> int:
        """How many were taken."""
        return self._samples

    def since_ms(self, now_ms: int) -> int:
        """Since when it tells anything, wall clock: an hour ago, or its first sample."""
        began_ms = now_ms if self._began_ms is None else self._began_ms
        return min(max(began_ms, now_ms - HOUR_MS), now_ms)

    @property
    def _spans(self) -> int:
        """Of how many of the last SHARES the figures of topics say something, with the latest."""
        return min(self._samples // _SAMPLES_A_SHARE + 1, SHARES)

    def topic_bytes_known(self, topic: str) -> Sequence[float]:
        """``topic_bytes``, of a process that is younger than an hour since its start."""
        return self.topic_bytes(topic)[-self._spans :]

    def rows(self) -> list[TrafficRow]:
        """Oldest first."""
        flat = self._rows[:]  # one step: the sampling thread may add
        rows = (flat[at : at + _FIELDS] for at in range(0, len(flat), _FIELDS))
        return [
            TrafficRow(int(row[0]), *row[1:6], *(None if p99 < 0 else p99 for p99 in row[6:]))
            for row in rows
        ]

    def topic_bytes(self, topic: str) -> Sequence[float]:
        """Bytes appended in each of the last SHARES spans, oldest first; empty: none for long.

        The span that is not over yet is the last one as soon as it has bytes.
        """
        child = cast("Counter | None", self._traffic.append_bytes._metrics.get((topic,)))
        if child is None:
            return []
        known, before = self._topic_totals.get(topic, (child, 0.0))
        shares = self._shares.get(topic) if known is child else None
        flat = list(shares[:]) if shares else []  # one step: the sampling thread may add
        gain = child._value.get() - (before if known is child else 0.0)
        flat = [*flat, gain][-SHARES:] if gain else flat
        return [0.0] * (SHARES - len(flat)) + flat if flat else []

    def full_in_ms(self, log_dir: str) -> float | None:
        """When its free bytes are used up at the pace of the last hour, by least squares.

        Infinite: they do not become fewer. None: less than ten minutes are known.
        """
        pairs = self._free.get(log_dir)
        flat = list(pairs[:]) if pairs else []
        times, free = flat[::2], flat[1::2]
        if len(times) < 2 or times[-1] - times[0] < _LEAST_SPAN_MS:
            return None
        middle, mean = sum(times) / len(times), sum(free) / len(free)
        spread = sum((at - middle) ** 2 for at in times)
        slope = (
            sum((at - middle) * (left - mean) for at, left in zip(times, free, strict=True))
            / spread
        )
        return free[-1] / -slope if slope < 0 else math.inf


def _counts_of(histogram: Histogram) -> list[float]:
    """Of what ended well, by bucket."""
    return [bucket.get() for bucket in child_of(histogram, "ok")._buckets]


def _quantile(now: Sequence[float], then: Sequence[float]) -> float:
    """The 99th percentile of what came between, linear within its bucket; _NONE: nothing came."""
    counts = [new - old for new, old in zip(now, then, strict=True)]
    rank = _QUANTILE * sum(counts)
    if not rank:
        return _NONE
    low = 0.0
    for high, count in zip(SECONDS_BUCKETS, counts, strict=False):
        if count >= rank:
            return low + (high - low) * rank / count
        rank, low = rank - count, high
    return low  # beyond the last bound
