"""Starts: many small partitions after a clean stop, a large log after a crash, and idle memory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kafkalog.format.topic_names import TopicPartition
from tests.bench import datasets
from tests.bench.machine_use import forget_cached, memory_mb, open_files, resident_mb
from tests.bench.planting import forget_recovery, forget_snapshots, make_unclean, plant_clean
from tests.bench.produce_rows import BINARY
from tests.bench.results import Goal, Result, Sample, answer_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.bench.bench import Bench
    from tests.bench.daemon_side import BenchDaemon
    from tests.bench.kafka_side import BenchBroker

_SEGMENTS = 10
_PER_TOPIC = 1000
_SPARE_FILES = 1200  # jars, sockets and whatever else a broker keeps open


def clean_start(bench: Bench) -> Result:
    """From the process's start to readiness; every partition has ten small segments."""
    count = bench.size(2000, 100)
    # Kafka keeps every .log of every segment open; where that many are not allowed it gets fewer
    # partitions, and its time is scaled up.
    kafka_count = min(count, (bench.open_files - _SPARE_FILES) // _SEGMENTS)
    files, end = datasets.segment_files(_SEGMENTS), datasets.end_offset(_SEGMENTS)
    with bench.daemon() as daemon, bench.running_broker() as broker:
        for topic, partitions in topics_of(count):
            daemon.create_topic(topic, partitions)
        daemon.stop()
        plant_clean(daemon.log_dirs[0], files, partitions_of(count), end)

        def ours() -> Sample:
            seconds = daemon.start_timed()
            answer = daemon.request("GET", "/topics/start0/partitions/7/offsets")
            assert answer.json["end_offset"] == end, answer.body
            extra = {
                "rss_mb": resident_mb(daemon.pid),
                "peak_rss_mb": resident_mb(daemon.pid, peak=True),
                "open_files": open_files(daemon.pid),
                **memory_mb(daemon.pid),
            }
            daemon.stop(120)
            return Sample(seconds, extra=extra)

        def theirs(broker: BenchBroker) -> Sample:
            seconds = broker.start()
            loaded, milliseconds = broker.load_all_ms()
            extra = {
                "rss_mb": resident_mb(broker.pid),
                "open_files": open_files(broker.pid),
                **memory_mb(broker.pid),
                "logs_loaded": loaded,
                "load_seconds": milliseconds / 1000,
            }
            broker.stop()
            return Sample(seconds * count / kafka_count, extra=extra)

        if broker is not None:
            for topic, partitions in topics_of(kafka_count):
                broker.create_topic(topic, partitions)
            broker.stop()
            plant_clean(broker.data, files, partitions_of(kafka_count), end)
        rounds = bench.alternate(ours, None if broker is None else partial(theirs, broker))
    scaled = f"Kafka with {kafka_count} partitions (limit of open files), time scaled to {count}"
    return Result(
        name=bench.name,
        what=f"Clean start, {count:,} partitions of 10 segments",
        unit="s",
        durability="files in the page cache",
        goal=Goal(
            "<= 10 s, <= 600 MB, not slower than Kafka",
            at_most=10,
            ratio=1,
            extra_at_most={"rss_mb": 600},
        ),
        rounds=rounds,
        lower_is_better=True,
        notes=("process start to ready, JVM and interpreter included",)
        + ((scaled,) if kafka_count < count else ()),
    )


def empty_start(bench: Bench) -> Result:
    """From the process's start to readiness on an empty directory, then the first requests."""

    def ours() -> Sample:
        with bench.daemon() as daemon:
            daemon.stop()
            shutil.rmtree(daemon.log_dirs[0])
            seconds = daemon.start_timed()
            daemon.create_topic("first")
            values = datasets.json_body(datasets.values(1, datasets.SMALL_BYTES))
            headers = {"Content-Type": BINARY}
            first = {
                "first_produce_ms": _milliseconds(
                    lambda: daemon.request("POST", "/topics/first", values, headers)
                ),
                "first_fetch_ms": _milliseconds(
                    lambda: daemon.request("GET", "/topics/first/partitions/0/records?offset=0")
                ),
            }
        command = [sys.executable, "-m", "kafkalog", "--help"]
        run = partial(subprocess.run, command, check=True, capture_output=True)
        return Sample(seconds, extra={**first, "help_ms": _milliseconds(run)})

    return Result(
        name=bench.name,
        what="Start on an empty directory",
        unit="s",
        durability="byte code and kernels in the page cache",
        goal=Goal(
            "<= 1 s, first produce and fetch <= 50 ms each, help <= 150 ms",
            at_most=1,
            extra_at_most={"first_produce_ms": 50, "first_fetch_ms": 50, "help_ms": 150},
        ),
        rounds=bench.alternate(ours, None),
        lower_is_better=True,
    )


def _milliseconds(call: Callable[[], object]) -> float:
    """Wall time of one call."""
    started = time.perf_counter()
    call()
    return (time.perf_counter() - started) * 1000


def topics_of(count: int) -> list[tuple[str, int]]:
    """Names and partition counts that make ``count`` partitions."""
    return [
        (f"start{at // _PER_TOPIC}", min(_PER_TOPIC, count - at))
        for at in range(0, count, _PER_TOPIC)
    ]


def partitions_of(count: int) -> list[TopicPartition]:
    return [
        TopicPartition(topic, number)
        for topic, partitions in topics_of(count)
        for number in range(partitions)
    ]


def _recovery(
    bench: Bench, what: str, batch_records: int, value_bytes: int, times: float
) -> Result:
    total = bench.size((1 << 30) - (1 << 20), 128 << 20)
    source = bench.directory("source")
    log, end = datasets.write_log(
        source, total_bytes=total, batch_records=batch_records, value_bytes=value_bytes
    )
    size = log.stat().st_size
    target = bench.directory("crash-0")
    target.mkdir()
    (target / log.name).hardlink_to(log)

    def ours() -> Sample:
        before = os.times()
        loaded, after = answer_of("load_once", target), os.times()
        assert loaded["end_offset"] == end, loaded
        forget_snapshots(target)
        cpu = after.children_user + after.children_system
        cpu -= before.children_user + before.children_system
        return Sample(size / loaded["milliseconds"] / 1e3, extra={"process_cpu_seconds": cpu})

    def theirs(broker: BenchBroker) -> Sample:
        seconds = broker.start()
        milliseconds = broker.load_ms("crash-0")
        assert milliseconds, broker.log_text()[-3000:]
        broker.kill()
        forget_recovery(broker.data, "crash")
        return Sample(size / milliseconds / 1e3, extra={"start_seconds": seconds})

    with bench.running_broker() as broker:
        if broker is not None:
            broker.create_topic("crash")
            broker.stop()
            make_unclean(broker.data, "crash", [source])
        rounds = bench.alternate(ours, None if broker is None else partial(theirs, broker))
    return Result(
        name=bench.name,
        what=f"Recovery of one unclean log of {size / 2**30:.2g} GiB, {what}",
        unit="MB/s",
        durability="from the page cache",
        goal=Goal.times(times),
        rounds=rounds,
        notes=("both: time to load this log; kafkalog in a fresh process, Kafka in its broker",),
    )


def idle_memory(bench: Bench) -> Result:
    """Resident memory some seconds after one produce, fetch, clean and retention check."""
    wait_seconds = bench.size(10.0, 1.0)
    with bench.daemon() as daemon, bench.running_broker() as broker:
        daemon.create_topic("idle", cleanup_policy="compact,delete")
        daemon.stop()
        if broker is not None:
            broker.stop()

        def ours() -> Sample:
            forget_cached(path for path in Path(sys.prefix).rglob("*.so*") if path.is_file())
            daemon.start_timed()
            _use(daemon)
            return _idle(daemon.pid, wait_seconds, daemon.stop)

        def theirs(broker: BenchBroker) -> Sample:
            broker.start()
            return _idle(broker.pid, wait_seconds, broker.stop)

        rounds = bench.alternate(ours, None if broker is None else partial(theirs, broker))
    return Result(
        name=bench.name,
        what="Idle memory",
        unit="MB",
        durability="",
        goal=Goal("<= 190 MB", at_most=190),
        rounds=rounds,
        lower_is_better=True,
        notes=(
            "resident set; kafkalog after a produce, a fetch, a clean and a retention check; "
            "Kafka unused, with its default heap of 1 GiB",
            "kafkalog's libraries come from the disk: of those in the page cache the kernel maps "
            "30 MB more, which nobody asked for and which it takes back when it likes",
        ),
    )


def _use(daemon: BenchDaemon) -> None:
    """Let it do once what it is for."""
    body = b'{"records":[{"key":"aw==","value":"dg=="}]}'
    path = "/v1/topics/idle/partitions/0"
    answers = [
        daemon.request("POST", "/topics/idle", body, {"Content-Type": BINARY}),
        daemon.request("GET", f"{path}/records?offset=0&value_format=base64"),
        daemon.request("POST", f"{path}/log:roll", {}),
        daemon.request("POST", f"{path}/log:retain", {}),
        daemon.request("POST", f"{path}/log:clean", {}),
    ]
    assert all(answer.status < 300 for answer in answers), [each.body for each in answers]
    assert answers[-1].json["outcome"] == "cleaned", answers[-1].body


def _idle(pid: int, wait_seconds: float, stop: Callable[[], object]) -> Sample:
    time.sleep(wait_seconds)
    sample = Sample(resident_mb(pid), extra={"open_files": open_files(pid), **memory_mb(pid)})
    stop()
    return sample


ROWS: dict[str, Callable[[Bench], Result]] = {
    "clean_start": clean_start,
    "recovery_large_batches": partial(
        _recovery, what="64 KiB batches", batch_records=64, value_bytes=1000, times=1
    ),
    "recovery_small_batches": partial(
        _recovery, what="150-byte batches", batch_records=1, value_bytes=80, times=5
    ),
    "idle_memory": idle_memory,
    "empty_start": empty_start,
}
