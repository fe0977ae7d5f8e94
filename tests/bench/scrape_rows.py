"""Scrapes: how long one takes with many partitions, and how long others wait meanwhile.

A fifth of the partitions changes between two scrapes, as most logs of most daemons are quiet.
"""

from __future__ import annotations

import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tests.bench.results import Goal, Result, Sample
from tests.bench.start_rows import topics_of

if TYPE_CHECKING:
    from tests.bench.bench import Bench
    from tests.bench.daemon_side import BenchDaemon

_BUSY_SHARE = 5
_PAUSE_SECONDS = 0.002


def scrape(bench: Bench) -> Result:
    """``GET /metrics`` of a daemon with every partition's series, and ``/livez`` beside it."""
    partitions, scrapes = bench.size(5000, 200), bench.size(20, 3)
    topics = topics_of(partitions)
    with bench.running_daemon(metrics_partition_limit="0") as daemon:
        for topic, count in topics:
            daemon.create_topic(topic, count)

        def ours() -> Sample:
            times_ms: list[float] = []
            waits_ms: list[float] = []
            size_bytes = 0
            for _ in range(scrapes):
                for topic, count in topics:
                    _touch(daemon, topic, count // _BUSY_SHARE)
                took_ms, size_bytes, waits = _timed(daemon)
                times_ms.append(took_ms)
                waits_ms += waits
            waits_ms.sort()
            return Sample(
                statistics.median(times_ms),
                extra={
                    "longest_ms": max(times_ms),
                    "other_request_p99_ms": waits_ms[len(waits_ms) * 99 // 100],
                    "page_mb": size_bytes / 1e6,
                },
            )

        rounds = bench.alternate(ours, None)
    return Result(
        name=bench.name,
        what=f"One scrape of /metrics, {partitions:,} partitions",
        unit="ms",
        durability="",
        goal=Goal(
            "<= 50 ms, other requests meanwhile p99 <= 10 ms",
            at_most=50,
            extra_at_most={"other_request_p99_ms": 10},
        ),
        rounds=rounds,
        client="http.client",
        lower_is_better=True,
        notes=(
            f"median of {scrapes}; a record in every {_BUSY_SHARE}th partition between two of them",
            "both clients are Python's, on the machine of the daemon",
        ),
    )


def _touch(daemon: BenchDaemon, topic: str, count: int) -> None:
    records = [{"value": "dG91Y2hlZA==", "partition": number} for number in range(count)]
    headers = {"Content-Type": "application/vnd.kafka.binary.v2+json"}
    answer = daemon.request("POST", f"/topics/{topic}?acks=1", {"records": records}, headers)
    assert answer.status == 200, answer.body[:500]


def _timed(daemon: BenchDaemon) -> tuple[float, int, list[float]]:
    """(milliseconds, bytes) of a scrape, and the milliseconds of every small request beside it."""
    over = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        beside = pool.submit(_probe, daemon, over)
        time.sleep(10 * _PAUSE_SECONDS)  # the prober is connected
        started = time.perf_counter()
        page = daemon.request("GET", "/metrics").body
        took_ms = (time.perf_counter() - started) * 1000
        over.set()
        return took_ms, len(page), beside.result()


def _probe(daemon: BenchDaemon, over: threading.Event) -> list[float]:
    """One small request after the other on one connection."""
    connection = daemon.connect(30)
    times_ms: list[float] = []
    try:
        while not over.is_set() or not times_ms:
            started = time.perf_counter()
            connection.request("GET", "/livez")
            connection.getresponse().read()
            times_ms.append((time.perf_counter() - started) * 1000)
            time.sleep(_PAUSE_SECONDS)
    finally:
        connection.close()
    return times_ms
