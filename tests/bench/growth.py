"""How figures grow with partitions, connections, segments: ``python -m tests.bench.growth``.

``--quick`` uses small counts and one round, and prints. A full run writes results/growth/ and the
tables of docs/explanation/growth.md. kafkalog alone: what counts is the way from column to column.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import os
import statistics
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from kafkalog.observe.logging import configure_logging
from tests.bench import datasets, report, results
from tests.bench.bench import Bench
from tests.bench.daemon_side import raise_open_files
from tests.bench.load_client import Load, build_request, run_paced
from tests.bench.machine_use import resident_mb
from tests.bench.planting import plant_clean
from tests.bench.retention_rows import FAR_LIMITS
from tests.bench.start_rows import partitions_of, topics_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.bench.daemon_side import BenchDaemon

FILE = report.RESULTS / "growth" / "growth.json"
PAGE = report.ROOT / "docs" / "explanation" / "growth.md"
PARTITIONS, CONNECTIONS = (1, 10, 100, 1000, 5000, 10_000), (10, 100, 1000, 5000)
# What a partition that is appended to keeps open: its active segment and both indexes.
_FILES_OF_PARTITION = 3
# Logs, and segments of each.
SEGMENTS = ((100, 10), (1000, 10), (10_000, 10), (50_000, 1))
ROUNDS = 3
_MANY_AT_ONCE = {"http_max_inflight_requests": "20000"}
_BUSY_CONNECTIONS, _TAIL_SECONDS = 32, 10.0
_RAW = "application/vnd.kafkalog.record-batches"

Table = tuple[list[str], list[list[str]]]
"""Headings, and rows of cells."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.growth", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small counts, one round, print only")
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # as installed
    configure_logging(sys.stderr, log_format="console", level="error")
    bench = Bench(
        work=results.ROOT / "build" / "bench",
        rounds=1 if options.quick else ROUNDS,
        quick=options.quick,
        jars=None,
        open_files=raise_open_files(),
        name="growth",
    )
    tables: dict[str, Table] = {}
    for measure in MEASURES:
        bench.clear()
        try:
            tables[measure.__name__] = measure(bench)
        finally:
            bench.clear()
        print(as_markdown(tables[measure.__name__]), flush=True)
    if not options.quick:
        FILE.parent.mkdir(exist_ok=True)
        FILE.write_text(json.dumps({**results.origin(), **tables}, indent=1) + "\n")
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(report.replace_block(text, as_page(written())), encoding="utf-8")


def written() -> dict[str, Any]:
    """What the last full run wrote."""
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def as_page(found: dict[str, Any]) -> str:
    """The tables, and where they come from."""
    tables = "\n".join(as_markdown(found[measure.__name__]) for measure in MEASURES)
    return f"{tables}\n{report.origin_of(found)}, {ROUNDS} rounds.\n"


def by_partitions(bench: Bench) -> Table:
    """Requests a second, one small record each, over so many partitions in turn."""
    counts = bench.size(PARTITIONS, PARTITIONS[:3])
    counts = tuple(count for count in counts if count * _FILES_OF_PARTITION < bench.open_files)
    raw, fetched = ["produce, requests/s"], ["fetch, requests/s"]
    for count in counts:
        with bench.running_daemon() as daemon:
            for topic, partitions in topics_of(count):
                daemon.create_topic(topic, partitions)
            paths = [
                f"/v1/topics/{each.topic}/partitions/{each.partition}/batches"
                for each in partitions_of(count)
            ] * max(64 // count, 1)
            batch = datasets.batch_of(1, datasets.SMALL_BYTES)
            produce = [build_request("POST", f"{path}?acks=1", batch, _RAW) for path in paths]
            fetch = [build_request("GET", f"{path}?max_bytes=1&offset=0") for path in paths]
            raw.append(_rate(bench, daemon, produce, _BUSY_CONNECTIONS))
            fetched.append(_rate(bench, daemon, fetch, _BUSY_CONNECTIONS))
        bench.clear()
    return ["partitions", *(f"{count:,}" for count in counts)], [raw, fetched]


def by_connections(bench: Bench) -> Table:
    """The same of one partition, over so many connections, one request in work on each."""
    counts = bench.size(CONNECTIONS, CONNECTIONS[:2])
    raw, fetched = ["produce, requests/s"], ["fetch, requests/s"]
    batch = datasets.batch_of(1, datasets.SMALL_BYTES)
    path = "/v1/topics/growth/partitions/0/batches"
    with bench.running_daemon(**_MANY_AT_ONCE) as daemon:
        daemon.create_topic("growth")
        for count in counts:
            produce = [build_request("POST", f"{path}?acks=1", batch, _RAW)]
            fetch = [build_request("GET", f"{path}?max_bytes=1&offset=0")]
            raw.append(_rate(bench, daemon, produce, count))
            fetched.append(_rate(bench, daemon, fetch, count))
    return ["connections", *(f"{count:,}" for count in counts)], [raw, fetched]


def _rate(bench: Bench, daemon: BenchDaemon, requests: Sequence[bytes], connections: int) -> str:
    """Median of the rounds, after one that sends every request once."""
    daemon.load(requests, Load(max(len(requests), 2 * connections), connections))
    load = Load(max(bench.size(60_000, 2_000), 4 * connections), connections)
    rates = [daemon.load(requests, load).requests_per_second for _ in range(bench.rounds)]
    return f"{statistics.median(rates):,.0f}"


def by_segments(bench: Bench) -> Table:
    """Start, memory and a retention check that finds nothing, over stopped logs."""
    shapes = bench.size(SEGMENTS, SEGMENTS[:1])
    rows = [["start, s"], ["memory after it, MB"], ["retention check, first, ms"], ["later, ms"]]
    heads = ["segments (logs)"]
    for logs, segments in shapes:
        heads.append(f"{logs * segments:,} ({logs:,})")
        files, end = datasets.segment_files(segments), datasets.end_offset(segments)
        with bench.running_daemon() as daemon:
            for topic, partitions in topics_of(logs):
                daemon.create_topic(topic, partitions, **FAR_LIMITS)
            daemon.stop(300)
            plant_clean(daemon.log_dirs[0], files, partitions_of(logs), end)
            seconds, memory = [], []
            for _ in range(bench.rounds):
                seconds.append(daemon.start_timed())
                memory.append(resident_mb(daemon.pid))
                daemon.stop(300)
            found = results.answer_of("retention_once", daemon.log_dirs[0])
        assert found["segments"] == logs * segments, found
        later = found["later_ms"]
        figures = (
            *(f"{statistics.median(seconds):.2f}", f"{statistics.median(memory):,.0f}"),
            *(f"{found['first_ms']:,.1f}", f"{later[len(later) // 2]:,.1f}"),
        )
        for row, figure in zip(rows, figures, strict=True):
            row.append(figure)
        bench.clear()
    return heads, rows


def at_the_tail(bench: Bench) -> Table:
    """Fetches of a consumer that follows the end, beside a producer at half of its best rate."""
    batch = datasets.batch_of(1, datasets.SMALL_BYTES)
    path = "/v1/topics/growth/partitions/0/batches"
    requests = [build_request("POST", f"{path}?acks=1", batch, _RAW)]
    p50s, p99s, rates = [], [], []
    with bench.running_daemon() as daemon:
        daemon.create_topic("growth")
        for _ in range(bench.rounds):
            load = Load(bench.size(60_000, 2_000), _BUSY_CONNECTIONS)
            rate = daemon.load(requests, load).requests_per_second / 2
            over = threading.Event()
            spawn = multiprocessing.get_context("spawn")
            with ThreadPoolExecutor(1) as threads, ProcessPoolExecutor(1, spawn) as processes:
                ends = daemon.request("GET", "/topics/growth/partitions/0/offsets").json
                seconds = bench.size(_TAIL_SECONDS, 1.0)
                tail = processes.submit(_follow, daemon.port, path, ends["end_offset"], seconds)
                threads.submit(
                    run_paced,
                    daemon.port,
                    requests,
                    rate=rate,
                    connections=_BUSY_CONNECTIONS,
                    is_over=over.is_set,
                )
                milliseconds = sorted(tail.result())
                over.set()
            rates.append(rate)
            p50s.append(milliseconds[len(milliseconds) // 2])
            p99s.append(milliseconds[len(milliseconds) * 99 // 100])
    cells = [f"{statistics.median(rates):,.0f}"]
    cells += [f"{statistics.median(p50s):.2f}", f"{statistics.median(p99s):.2f}"]
    return ["appends/s beside it", "fetch p50, ms", "fetch p99, ms"], [cells]


def _follow(port: int, path: str, offset: int, seconds: float) -> list[float]:
    """Milliseconds of each fetch that brought something."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    found, until = [], time.perf_counter() + seconds
    while time.perf_counter() < until:
        begun = time.perf_counter()
        connection.request("GET", f"{path}?max_bytes=1048576&max_wait_ms=1000&offset={offset}")
        answer = connection.getresponse()
        body = answer.read()
        if body:
            found.append((time.perf_counter() - begun) * 1000)
        offset = int(answer.headers["Kafka-Next-Offset"])
    return found


def as_markdown(table: Table) -> str:
    """A table of a page."""
    heads, rows = table
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


MEASURES = (by_partitions, by_connections, by_segments, at_the_tail)

if __name__ == "__main__":
    main()
