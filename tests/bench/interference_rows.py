"""Interference: what background work costs those who produce meanwhile.

A steady load of single-record requests goes on while one kind of work after the other is done:
compaction on two threads, retention passes, the deletion of a topic of many files, scrapes. A
recovery is not among them: logs are recovered before the daemon serves them, and none of a running
daemon can be made unclean from outside.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.format.records.record_batch import Codec
from kafkalog.format.topic_names import TopicPartition
from tests.bench import datasets
from tests.bench.cleaner_rows import link_stopped_log, write_keyed_log
from tests.bench.load_client import build_request, run_paced
from tests.bench.planting import empty_partition, note_clean_ends, plant_clean
from tests.bench.produce_rows import BINARY
from tests.bench.results import LOAD_CLIENT, Goal, Result, Sample
from tests.bench.retention_rows import FAR_LIMITS
from tests.bench.round_topics import SOON
from tests.bench.start_rows import partitions_of, topics_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.bench.bench import Bench
    from tests.bench.daemon_side import BenchDaemon

_RATE, _CONNECTIONS = 2000, 8
_SEGMENTS = 10
_STOP_SECONDS = 120.0
_SCRAPE_PAUSE_SECONDS = 1.0  # more often than any collector asks
_LAG_BUCKET = 'kafkalog_event_loop_lag_seconds_bucket{le="'
_LOADED = "steady"
# Cleaned when the row says so: nothing is dirtier than wholly dirty.
_NOT_BY_ITSELF = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0"}


@dataclass(frozen=True)
class _Sizes:
    """What is planted, and for how long work that repeats goes on."""

    quiet_partitions: int  # of 10 segments, for retention
    doomed_partitions: int  # of 10 segments, 32 files, deleted in one round
    compacted_partitions: int  # cleaned in one round
    records: int  # of each of them
    seconds: float


_FULL = _Sizes(2000, 312, 8, 4_000_000, 5.0)
_QUICK = _Sizes(40, 8, 2, 400_000, 0.5)


def interference(bench: Bench) -> Result:
    """Produce latency and loop lag beside every kind of background work; the worst counts."""
    sizes = bench.size(_FULL, _QUICK)
    daemon = bench.daemon(log_cleaner_threads="2", metrics_partition_limit="0", **SOON)
    with daemon:
        source = bench.directory("source-0")
        write_keyed_log(source, sizes.records, sizes.records // 8, Codec.NONE)
        _plant(daemon, source, sizes, bench.rounds + 1)
        daemon.start_timed()
        rounds_begun = 0

        def ours() -> Sample:
            nonlocal rounds_begun
            rounds_begun += 1
            return _round(daemon, sizes, rounds_begun - 1)

        rounds = bench.alternate(ours, None)
    return Result(
        name=bench.name,
        what=f"Produce p99 at {_RATE:,} single-record requests/s beside background work, the worst",
        unit="ms",
        durability="acks=1: page cache",
        goal=Goal(
            "<= 25 ms, loop lag p99 <= 10 ms each",
            at_most=25,
            extra_at_most={_lag_of(name): 10 for name in _works_of(daemon, sizes, 0)},
        ),
        rounds=rounds,
        client=LOAD_CLIENT,
        lower_is_better=True,
        notes=(
            f"in turn: a clean of {sizes.compacted_partitions} logs of {sizes.records:,} records on"
            f" 2 threads, retention over {sizes.quiet_partitions * _SEGMENTS:,} segments again"
            f" and again, a topic delete of {sizes.doomed_partitions * 32:,} files,"
            " a scrape a second",
            f"{_CONNECTIONS} connections, open loop: latency runs from when a request was due",
            "loop lag by the daemon's own histogram: the bound of the bucket that holds the p99;"
            " some fifty looks a work and round, so that one late look is the p99 of its round:"
            " each work's median over the rounds counts",
            "no recovery: a log is recovered before it is served, never beside requests for it",
        ),
    )


def _plant(daemon: BenchDaemon, source: Path, sizes: _Sizes, rounds: int) -> None:
    """Create the topics of all rounds, stop, and give them their files."""
    daemon.create_topic(_LOADED)
    quiet = partitions_of(sizes.quiet_partitions)
    for topic, count in topics_of(sizes.quiet_partitions):
        daemon.create_topic(topic, count, **FAR_LIMITS)
    doomed, compacted = [], []
    for number in range(rounds):
        daemon.create_topic(f"doomed{number}", sizes.doomed_partitions)
        daemon.create_topic(f"compacted{number}", sizes.compacted_partitions, **_NOT_BY_ITSELF)
        doomed += _partitions(f"doomed{number}", sizes.doomed_partitions)
        compacted += _partitions(f"compacted{number}", sizes.compacted_partitions)
    daemon.stop(_STOP_SECONDS)
    log_dir, end = daemon.log_dirs[0], datasets.end_offset(_SEGMENTS)
    plant_clean(log_dir, datasets.segment_files(_SEGMENTS), quiet + doomed, end)
    for partition in compacted:
        link_stopped_log(source, empty_partition(log_dir, partition))
    ends = dict.fromkeys(quiet + doomed, end) | dict.fromkeys(compacted, sizes.records)
    note_clean_ends(log_dir, ends)


def _partitions(topic: str, count: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(count)]


def _works_of(daemon: BenchDaemon, sizes: _Sizes, number: int) -> dict[str, Callable[[], None]]:
    return {
        "clean": lambda: _clean(daemon, f"compacted{number}", sizes),
        "retention": lambda: _again(sizes.seconds, lambda: _retain(daemon)),
        "delete": lambda: daemon.delete_topic(f"doomed{number}"),
        "scrape": lambda: _again(sizes.seconds, lambda: _scrape(daemon), _SCRAPE_PAUSE_SECONDS),
    }


def _lag_of(work: str) -> str:
    return f"{work}_loop_lag_p99_ms"


def _round(daemon: BenchDaemon, sizes: _Sizes, number: int) -> Sample:
    """Every kind of work once, each under a load of its own; idle comes first."""
    idle = _beside(daemon, lambda: time.sleep(sizes.seconds))
    works = _works_of(daemon, sizes, number)
    found = {name: _beside(daemon, work) for name, work in works.items()}
    with_idle = {"idle": idle, **found}
    produce = {f"{name}_p99_ms": each.produce_p99_ms for name, each in with_idle.items()}
    lag = {_lag_of(name): each.loop_lag_p99_ms for name, each in with_idle.items()}
    return Sample(max(each.produce_p99_ms for each in found.values()), extra={**produce, **lag})


class _Seen(NamedTuple):
    """Of the load beside one kind of work."""

    produce_p99_ms: float
    loop_lag_p99_ms: float


def _beside(daemon: BenchDaemon, work: Callable[[], None]) -> _Seen:
    """Do the work under load, which begins and ends with it."""
    body = [datasets.json_body([value]) for value in datasets.values(64, datasets.SMALL_BYTES)]
    path = f"/topics/{_LOADED}/partitions/0?acks=1"
    requests = [build_request("POST", path, each, BINARY) for each in body]
    over, before = threading.Event(), _lag_counts(daemon)
    with ThreadPoolExecutor(1) as pool:
        load = pool.submit(
            run_paced,
            daemon.port,
            requests,
            rate=_RATE,
            connections=_CONNECTIONS,
            is_over=over.is_set,
        )
        try:
            work()
        finally:
            over.set()
        result = load.result()
    return _Seen(result.percentile_ms(99), _lag_p99_ms(before, _lag_counts(daemon)))


def _clean(daemon: BenchDaemon, topic: str, sizes: _Sizes) -> None:
    names = [{"topic": topic, "partition": number} for number in range(sizes.compacted_partitions)]
    answer = daemon.request("POST", "/v1/cleaner:run", {"partitions": names}, timeout=300)
    assert answer.status == 200, answer.body
    outcomes = {each["outcome"] for each in answer.json["partitions"]}
    assert outcomes == {"cleaned"}, answer.body


def _retain(daemon: BenchDaemon) -> None:
    answer = daemon.request("POST", "/v1/retention:run", {})
    assert answer.status == 200, answer.body
    assert answer.json["segments"] == 0, answer.body


def _scrape(daemon: BenchDaemon) -> None:
    assert daemon.request("GET", "/metrics").status == 200


def _again(seconds: float, work: Callable[[], None], pause_seconds: float = 0.0) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        work()
        time.sleep(pause_seconds)


def _lag_counts(daemon: BenchDaemon) -> dict[float, float]:
    """The daemon's histogram of the loop's lag so far: how many up to each bound, in seconds."""
    lines = daemon.request("GET", "/metrics").body.decode().splitlines()
    buckets = [line.removeprefix(_LAG_BUCKET) for line in lines if line.startswith(_LAG_BUCKET)]
    pairs = [bucket.split('"} ') for bucket in buckets]
    return {float(bound): float(count) for bound, count in pairs}


def _lag_p99_ms(before: dict[float, float], after: dict[float, float]) -> float:
    """The least bound that 99 % of the looks between the two stayed below.

    The daemon looks ten times a second: 0 for work that was over before it did.
    """
    counts = {bound: after[bound] - before[bound] for bound in after}
    total = max(counts.values())
    if not total:
        return 0.0
    return min(bound for bound, count in counts.items() if count >= 0.99 * total) * 1000
