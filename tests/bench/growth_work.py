"""What `spark_growth` measures in a process of its own: jobs, and plans over a simulated store.

Works of `spark_work`. Numbers of tasks are those of the job; Spark packs small ones.
"""

from __future__ import annotations

import gc
import os
import pickle
import shutil
import threading
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkalog.env.clock import SystemClock
from kafkalog.format.disk.file_names import SNAPSHOT_SUFFIX, segment_file_name
from kafkalog.format.disk.producer_snapshot import encode_snapshot
from kafkalog.jobs.audit import audit_directories
from kafkalog.jobs.compact import compact_directories
from kafkalog.jobs.fleet import find_partitions
from kafkalog.jobs.tasks import InProcess
from kafkalog.jobs.whatif import forecast
from kafkalog.spark.logs.object_store import filesystem_for
from tests.bench.growth_logs import PARTITIONS, TOPIC
from tests.bench.machine_use import resident_mb
from tests.spark.latency_store import SEGMENT_OFFSETS, World, plant, registered

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from pyspark.sql import SparkSession

    from kafkalog.jobs.tasks import Ended, ResultT, Runner, TaskT
    from tests.bench.spark_side import Answer

_HOUR_MS, _MONTH_MS = 3_600_000, 30 * 86_400_000
STORE_SECONDS = 0.02
"""Of a request; a page of a listing is one."""
_NEW_SEGMENTS = 4
"""Of a micro-batch, in each partition."""


class Planned(Exception):
    """A job has its tasks, which are not done."""

    def __init__(self, tasks: Sequence[object]) -> None:
        super().__init__(len(tasks))
        self.tasks = tasks


class PlanOnly:
    """A runner that ends a job with its tasks."""

    def stream(
        self,
        tasks: Iterable[TaskT],
        work: Callable[[TaskT], ResultT],
        *,
        wave_bytes: int | None = None,
    ) -> Generator[Ended[TaskT, ResultT], None, None]:
        """See Runner. Raises Planned."""
        yield from ()
        raise Planned(list(tasks))


@dataclass
class Counted:
    """A runner that counts tasks, their pickled bytes, and when the first one was asked for."""

    runner: Runner
    tasks: int = 0
    task_bytes: int = 0
    begun: float = 0.0

    def stream(
        self,
        tasks: Iterable[TaskT],
        work: Callable[[TaskT], ResultT],
        *,
        wave_bytes: int | None = None,
    ) -> Generator[Ended[TaskT, ResultT], None, None]:
        """See Runner."""
        self.begun = self.begun or time.perf_counter()
        with closing(self.runner.stream(tasks, work, wave_bytes=wave_bytes)) as all_ended:
            for ended in all_ended:
                self.tasks += 1
                self.task_bytes += len(pickle.dumps(ended.task))
                yield ended


def grown_job(spark: SparkSession | None, *, name: str, log_dir: str, target: str) -> Answer:
    """One job over a log directory."""
    shutil.rmtree(target, ignore_errors=True)
    before = _spark_tasks(spark)
    counted = Counted(_runner_of(spark))
    begun = time.perf_counter()
    JOBS[name](counted, log_dir, target)
    seconds = time.perf_counter() - begun
    shutil.rmtree(target, ignore_errors=True)
    return {
        "seconds": seconds,
        "plan_seconds": counted.begun - begun,
        "tasks": counted.tasks,
        "task_bytes": counted.task_bytes,
        "spark_tasks": _spark_tasks(spark) - before,
    }


def grown_scan(spark: SparkSession, *, log_dir: str) -> Answer:
    """A query that reads all columns of all records; its plan apart."""
    from pyspark.sql import functions

    plan = grown_plan(spark, log_dir=log_dir)
    before = _spark_tasks(spark)
    begun = time.perf_counter()
    frame = spark.read.format("kafkalog").options(path=log_dir, subscribe=TOPIC).load()
    frame.agg(functions.count("offset"), functions.sum(functions.length("value"))).collect()
    seconds = time.perf_counter() - begun
    return {**plan, "seconds": seconds, "spark_tasks": _spark_tasks(spark) - before}


def grown_plan(_: object, *, log_dir: str) -> Answer:
    """What Spark asks of a batch query before its tasks."""
    begun = time.perf_counter()
    pieces = _batch_plan(log_dir)
    seconds = time.perf_counter() - begun
    return {"plan_seconds": seconds, "tasks": len(pieces), "task_bytes": _bytes_of(pieces)}


def grown_stream(_: object, *, log_dir: str) -> Answer:
    """What Spark asks of a stream before the tasks of its first micro-batch, and of the next."""
    first, later, tasks, task_bytes = _stream_plans(log_dir, lambda: None)
    return {"plan_seconds": first, "later_seconds": later, "tasks": tasks, "task_bytes": task_bytes}


def _stream_plans(log_dir: str, grow: Callable[[], None]) -> tuple[float, float, int, int]:
    """Seconds of the first micro-batch's plan and of the next one's; of the first, its tasks."""
    from kafkalog.spark.options import stream_options
    from kafkalog.spark.source import KafkalogDataSource
    from kafkalog.spark.stream_reader import limits, stream_reader

    given = {"path": log_dir, "subscribe": TOPIC, "startingoffsets": "earliest"}
    reader = stream_reader(KafkalogDataSource(given).schema(), stream_options(given))
    limit = limits.ReadAllAvailable()
    try:
        begun = time.perf_counter()
        start = reader.initialOffset()
        end = reader.latestOffset(start, limit)
        parts = reader.partitions(start, end)
        first = time.perf_counter() - begun
        grow()
        begun = time.perf_counter()
        reader.partitions(end, reader.latestOffset(end, limit))
        return first, time.perf_counter() - begun, len(parts), _bytes_of(parts)
    finally:
        reader.stop()


def _batch_plan(log_dir: str) -> list[Any]:
    from kafkalog.spark.source import KafkalogDataSource

    source = KafkalogDataSource({"path": log_dir, "subscribe": TOPIC})
    return list(source.reader(source.schema()).partitions())


# ---- jobs


def _archive(runner: Runner, log_dir: str, target: str) -> None:
    from kafkalog.jobs.archive.archive import ArchiveOptions, archive
    from kafkalog.jobs.archive.iceberg_table import IcebergTable, catalog_in
    from kafkalog.spark.logs.open import open_logs
    from kafkalog.spark.logs.values import Access

    os.makedirs(target)
    with (
        closing(IcebergTable("default", "lake.grown", catalog_in(target))) as table,
        closing(open_logs(Access(paths=(log_dir,), read_committed=True))) as logs,
    ):
        rows = archive(logs, table, ArchiveOptions(), runner)
    assert sum(each.rows for each in rows) > 0, rows


def _stats(runner: Runner, log_dir: str, _: str) -> None:
    from kafkalog.jobs.stats import count_records, partition_rows

    found = count_records(_partitions(log_dir), runner, width_ms=_HOUR_MS)
    assert sum(row.records for row in partition_rows(found)) > 0


def _audit(runner: Runner, log_dir: str, _: str) -> None:
    found = audit_directories(_partitions(log_dir), runner)
    assert not found.rows, found.rows[0]


def _whatif(runner: Runner, log_dir: str, _: str) -> None:
    now_ms = SystemClock().wall_ms()
    is_on_disk = log_dir.startswith("/")
    rows = forecast(
        _partitions(log_dir),
        runner,
        now_ms=now_ms,
        horizon_ms=_MONTH_MS,
        with_compaction=is_on_disk,
    )
    assert not any(row.problem for row in rows), rows[0].problem


def _compact(runner: Runner, log_dir: str, target: str) -> None:
    now_ms = SystemClock().wall_ms()
    compact_directories(_partitions(log_dir), target, runner, now_ms=now_ms)


def _partitions(log_dir: str) -> list[Any]:
    return find_partitions([log_dir], filesystem_for([log_dir]))


JOBS: dict[str, Callable[[Runner, str, str], None]] = {
    "archive": _archive,
    "stats": _stats,
    "audit": _audit,
    "whatif": _whatif,
    "compact": _compact,
}


# ---- plans over a store


@dataclass
class SleepingWorld(World):
    """A store whose requests take their time; many threads may ask."""

    lock: Any = field(default_factory=threading.Lock)

    def request(self, kind: str, path: str, count: int = 1) -> None:
        with self.lock:
            self.requests[kind] += count
        time.sleep(count * self.latency_seconds)

    def begin(self) -> None:
        """Count from here on."""
        self.requests.clear()

    def count(self) -> int:
        return sum(self.requests.values())


def grown_store(_: object, *, name: str, segments: int, target: str) -> Answer:
    """The plan of a job over so many segments of 100 MiB, and the same plan again."""
    world = SleepingWorld(latency_seconds=STORE_SECONDS)
    fixture = registered(world)
    next(fixture)
    _plant(world, max(segments // PARTITIONS, 1))
    gc.collect()
    gc.freeze()  # the store is not the driver
    before = resident_mb(os.getpid())
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
    plan = PLANS[name]
    world.begin()
    begun = time.perf_counter()
    tasks = plan("latency://store/logs", f"{target}-1")
    seconds, requests = time.perf_counter() - begun, world.count()
    memory_mb = resident_mb(os.getpid(), peak=True) - before
    count, task_bytes = len(tasks), _bytes_of(tasks)
    del tasks
    world.begin()
    begun = time.perf_counter()
    plan("latency://store/logs", f"{target}-2")
    later_seconds, later_requests = time.perf_counter() - begun, world.count()
    next(fixture, None)
    return {
        "plan_seconds": seconds,
        "requests": requests,
        "memory_mb": memory_mb,
        "tasks": count,
        "task_bytes": task_bytes,
        "later_seconds": later_seconds,
        "later_requests": later_requests,
    }


def grown_trigger(_: object, *, segments: int) -> Answer:
    """The plans of a stream: its first micro-batch, and one after each log got new segments."""
    world = SleepingWorld(latency_seconds=STORE_SECONDS)
    fixture = registered(world)
    next(fixture)
    count = max(segments // PARTITIONS, _NEW_SEGMENTS + 1)
    _plant(world, count)
    whole = World(directories={name: dict(each) for name, each in world.directories.items()})
    world.directories.clear()
    _plant(world, count - _NEW_SEGMENTS)
    seen: list[int] = []

    def grow() -> None:
        seen.append(world.count())
        world.directories.clear()
        world.directories.update(whole.directories)
        for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
            data = whole.directories["/logs"][name].data
            assert data is not None
            world.put(f"/logs/{name}", data, "2")
        base = (count - _NEW_SEGMENTS) * SEGMENT_OFFSETS
        for number in range(PARTITIONS):
            files = world.directories[f"/logs/{TOPIC}-{number}"]
            files[f"{base:020d}.log"].etag = "2"  # it was the active segment
        world.begin()

    world.begin()
    first, later, tasks, task_bytes = _stream_plans("latency://store/logs", grow)
    later_requests = world.count()
    next(fixture, None)
    return {
        "plan_seconds": first,
        "requests": seen[0],
        "tasks": tasks,
        "task_bytes": task_bytes,
        "later_seconds": later,
        "later_requests": later_requests,
    }


def _plant(world: World, segments: int) -> None:
    """Each partition with so many full segments, and a snapshot where the active one begins."""
    plant(world, "/logs", TOPIC, PARTITIONS, segments)
    for number in range(PARTITIONS):
        name = segment_file_name(segments * SEGMENT_OFFSETS, SNAPSHOT_SUFFIX)
        world.put(f"/logs/{TOPIC}-{number}/{name}", encode_snapshot([]))


def _planned(name: str) -> Callable[[str, str], Sequence[object]]:
    def plan(log_dir: str, target: str) -> Sequence[object]:
        try:
            JOBS[name](PlanOnly(), log_dir, target)
        except Planned as planned:
            return planned.tasks
        finally:
            shutil.rmtree(target, ignore_errors=True)
        raise AssertionError(f"{name} had no tasks")

    return plan


PLANS: dict[str, Callable[[str, str], Sequence[object]]] = {
    "query": lambda log_dir, _: _batch_plan(log_dir),
    **{name: _planned(name) for name in ("archive", "stats", "audit", "whatif")},
}


def _bytes_of(tasks: Iterable[object]) -> int:
    return sum(len(pickle.dumps(each)) for each in tasks)


def _runner_of(spark: SparkSession | None) -> Runner:
    if spark is None:
        return InProcess()
    from kafkalog.jobs.on_spark import SparkRunner

    return SparkRunner(spark)


def _spark_tasks(spark: SparkSession | None) -> int:
    """Tasks that Spark has done in this session."""
    if spark is None:
        return 0
    store = spark.sparkContext._jsc.sc().statusStore()
    return int(store.executorSummary("driver").totalTasks())


WORKS: dict[str, Callable[..., Answer]] = {
    work.__name__: work
    for work in (grown_job, grown_scan, grown_plan, grown_stream, grown_store, grown_trigger)
}
