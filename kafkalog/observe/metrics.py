"""Metrics: every metric of the process, its name, unit and help; and the renderer of partitions.

Owns one ``CollectorRegistry`` per instance (one per process, one per test); never the default one,
never the disk, never a lock held over I/O. Any thread may call the ``observe_*`` and ``set_*``
methods; ``render`` runs on the event loop. Labels never come from a client except topic names that
exist. Names: prefix ``kafkalog_``, base units, counters ``_total``.

Theory of the partition families: stock rendering of 50,000 samples held the loop for 210 ms. Here
the text before the value is made once per partition and kept; a scrape formats numbers only, in
slices of ``SLICE`` partitions between which the loop runs. The text equals the library's (a test).
Measured on a shared two-core machine, 10,000 partitions: 100 ms in 100 slices of about 1 ms, and a
last join of 10 ms.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.gc_collector import GCCollector
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from kafkalog.observe.archive_metrics import ArchiveMetrics
from kafkalog.observe.cleaner_metrics import CleanerMetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from prometheus_client.metrics_core import Metric

T = TypeVar("T", Counter, Histogram)

SLICE = 100  # partitions formatted between two turns of the loop: about a millisecond

SECONDS_BUCKETS = tuple(0.0005 * 2**power for power in range(15))  # 0.5 ms to 8 s
LAG_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)

_KNOWN_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class PartitionSample:
    """The published facts of one partition at one moment."""

    topic: str
    partition: int
    size_bytes: int
    segments: int
    start_offset: int
    end_offset: int
    high_watermark: int


class TaskFacts(Protocol):
    """What the scheduler tells of the tasks of one name."""

    @property
    def name(self) -> str:
        """A constant of the program."""
        ...

    @property
    def runs(self) -> int:
        """That ended, failures among them."""
        ...

    @property
    def failures(self) -> int:
        """Runs that raised."""
        ...

    @property
    def last_success_ms(self) -> int:
        """Wall clock; -1: never."""
        ...


PARTITION_FAMILIES: tuple[tuple[str, str, str], ...] = (
    ("kafkalog_log_size_bytes", "size_bytes", "Bytes in the partition's segments."),
    ("kafkalog_log_segments", "segments", "Segments of the partition."),
    ("kafkalog_log_start_offset", "start_offset", "First offset that can be read."),
    ("kafkalog_log_end_offset", "end_offset", "Offset of the next record appended."),
    ("kafkalog_log_high_watermark", "high_watermark", "Offset up to which readers see."),
)


class PartitionRenderer:
    """Prometheus text of the partition families. Owned by the event loop.

    Cost: one dictionary look-up and one number per sample; prefixes of vanished partitions are
    dropped by the scrape that no longer sees them, so a deleted topic loses its series at once.
    """

    def __init__(self) -> None:
        self._prefixes: dict[tuple[str, int], tuple[str, ...]] = {}

    def render_slices(self, samples: Sequence[PartitionSample]) -> Iterator[list[list[str]]]:
        """Lines per family, slice by slice, in the order of samples."""
        kept: dict[tuple[str, int], tuple[str, ...]] = {}
        number: Callable[[float], str] = floatToGoString
        for start in range(0, len(samples), SLICE):
            lines: list[list[str]] = [[] for _ in PARTITION_FAMILIES]
            for sample in samples[start : start + SLICE]:
                key = (sample.topic, sample.partition)
                prefixes = self._prefixes.get(key) or _prefixes_of(sample.topic, sample.partition)
                kept[key] = prefixes
                for family, (_, name, _) in enumerate(PARTITION_FAMILIES):
                    value = number(getattr(sample, name))
                    lines[family].append(f"{prefixes[family]}{value}\n")
            yield lines
        self._prefixes = kept

    @staticmethod
    def join(slices: Iterable[list[list[str]]]) -> str:
        """Whole text: each family's header, then its lines of all slices."""
        families: list[list[str]] = [
            [f"# HELP {name} {text}\n# TYPE {name} gauge\n"] for name, _, text in PARTITION_FAMILIES
        ]
        for lines in slices:
            for family, part in zip(families, lines, strict=True):
                family.extend(part)
        return "".join("".join(family) for family in families)


def _prefixes_of(topic: str, partition: int) -> tuple[str, ...]:
    escaped = topic.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    labels = f'{{partition="{partition}",topic="{escaped}"}} '
    return tuple(name + labels for name, _, _ in PARTITION_FAMILIES)


def _child(family: T, *labels: str) -> T:
    """``family.labels(*labels)``, whose checks cost more than the observation.

    Looked up where the library keeps them, so that no second table can hold a forgotten one.
    """
    found = cast("T | None", family._metrics.get(labels))
    return family.labels(*labels) if found is None else found


def _observe(histogram: Histogram, seconds: float) -> None:
    """``histogram.observe`` for a child with SECONDS_BUCKETS."""
    histogram._sum.inc(seconds)
    histogram._buckets[bisect_left(SECONDS_BUCKETS, seconds)].inc(1)


def observe_many(histogram: Histogram, seconds: Sequence[float]) -> None:
    """Observe all at once: one lock a bucket, where the library takes two and walks the bounds.

    ``histogram`` is a child with SECONDS_BUCKETS. Measured: 4.4 us an observation by the library.
    """
    counts: dict[int, int] = {}
    for each in seconds:
        bucket = bisect_left(SECONDS_BUCKETS, each)
        counts[bucket] = counts.get(bucket, 0) + 1
    histogram._sum.inc(sum(seconds))
    for bucket, count in counts.items():
        histogram._buckets[bucket].inc(count)


class TaskCollector(Collector):
    """The families of the background tasks, from the scheduler's own facts at each scrape."""

    def __init__(self) -> None:
        self.tasks: Callable[[], Iterable[TaskFacts]] = tuple

    def collect(self) -> Iterator[Metric]:
        """See Collector. Without tasks: the families alone."""
        prefix, labels = "kafkalog_scheduler_task", ["task"]
        runs = CounterMetricFamily(
            f"{prefix}_runs", "Runs that ended, failures among them.", labels=labels
        )
        errors = CounterMetricFamily(f"{prefix}_errors", "Runs that failed.", labels=labels)
        success = GaugeMetricFamily(
            f"{prefix}_last_success_timestamp_seconds",
            "End of the last run that did not fail; absent before.",
            labels=labels,
        )
        for task in self.tasks():
            runs.add_metric([task.name], task.runs)
            errors.add_metric([task.name], task.failures)
            if task.last_success_ms >= 0:
                success.add_metric([task.name], task.last_success_ms / 1000)
        yield from (runs, errors, success)


class Metrics:
    """All metrics. Attributes are the metric names without ``kafkalog_`` and the type suffix."""

    def __init__(self, *, with_process: bool = False) -> None:
        # else a series more per counter and histogram; the library has this switch untyped
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._partitions = PartitionRenderer()
        self._tasks = TaskCollector()
        self.registry.register(self._tasks)
        if with_process:  # the stock collectors read /proc: not for simulations
            ProcessCollector(registry=self.registry)
            PlatformCollector(registry=self.registry)
            GCCollector(registry=self.registry)
        self._declare_data_metrics()
        self._declare_http_metrics()
        self._declare_storage_metrics()
        self._declare_retention_metrics()
        self._declare_sink_metrics()
        self.cleaner = CleanerMetrics(self.registry, self.beat)
        self.archive = ArchiveMetrics(self.registry)

    def _declare_data_metrics(self) -> None:
        self.append_records = self._counter(
            "append_records", "Records appended and acknowledged.", "topic"
        )
        self.append_bytes = self._counter("append_bytes", "Batch bytes appended.", "topic")
        self.fetch_records = self._counter("fetch_records", "Records fetched as JSON.", "topic")
        self.fetch_bytes = self._counter("fetch_bytes", "Batch bytes read for fetches.", "topic")
        self.quota_refusals = self._counter(
            "quota_refusals", "Appends refused because of the topic's quota.bytes.", "topic"
        )
        outcome = "Outcome is ok or error."
        self.append_seconds = self._histogram(
            "append_seconds",
            f"From submission of a produce to its completion. {outcome}",
            "outcome",
        )
        self.fetch_seconds = self._histogram(
            "fetch_seconds", f"One read of a partition, waiting excluded. {outcome}", "outcome"
        )
        self.flush_seconds = self._histogram(
            "flush_seconds", f"The fsyncs of one group commit. {outcome}", "outcome"
        )

    def _declare_http_metrics(self) -> None:
        self.http_requests = self._counter(
            "http_requests",
            "Requests by route template, method and status code.",
            "route", "method", "code",
        )  # fmt: skip
        self.http_request_seconds = self._histogram(
            "http_request_seconds", "From request header to end of the answer.", "route", "method"
        )
        self.file_reloads = self._counter(
            "file_reloads", "Changed files of a setting. Outcome is taken or refused.",
            "setting", "outcome",
        )  # fmt: skip
        self.http_in_flight = Gauge(
            "kafkalog_http_in_flight", "Requests in work.", registry=self.registry
        )
        self.event_loop_lag_seconds = Histogram(
            "kafkalog_event_loop_lag_seconds",
            "How late a timer of the event loop fired.",
            registry=self.registry,
            buckets=LAG_BUCKETS,
        )

    def _declare_storage_metrics(self) -> None:
        self.build_info = self._gauge("build_info", "Always 1.", "version", "python", "format")
        self.thread_heartbeat = self._gauge(
            "thread_heartbeat_timestamp_seconds", "When the thread last turned.", "thread"
        )
        self.log_dir_online = self._gauge("log_dir_online", "1 online, 0 offline.", "log_dir")
        self.log_dir_offline_reason = self._gauge(
            "log_dir_offline_reason", "Always 1: why an offline directory is.", "log_dir", "reason"
        )
        self.log_dir_full = self._gauge(
            "log_dir_full", "1 while appends are refused for want of free space.", "log_dir"
        )
        self.log_dir_capacity = self._gauge(
            "log_dir_capacity_bytes", "Size of the directory's file system.", "log_dir"
        )
        self.log_dir_free = self._gauge(
            "log_dir_free_bytes", "Bytes the daemon may still write there.", "log_dir"
        )
        self.log_dir_partitions = self._gauge(
            "log_dir_partitions", "Partitions in the directory.", "log_dir"
        )
        self.log_dir_segments = self._gauge(
            "log_dir_segments", "Segments in the directory.", "log_dir"
        )
        self.recovery_remaining_logs = self._gauge(
            "recovery_remaining_logs", "Logs not loaded yet.", "log_dir"
        )
        self.recovery_remaining_segments = self._gauge(
            "recovery_remaining_segments", "Segments not recovered yet.", "log_dir"
        )
        self.unclean_starts = self._counter(
            "unclean_starts", "Directories found without their clean-shutdown mark.", "log_dir"
        )
        self.log_dir_cordoned = self._gauge(
            "log_dir_cordoned", "1 while the directory takes no new partitions.", "log_dir"
        )
        target = "Log_dir is the one that they move into."
        self.partition_moves_running = self._gauge(
            "partition_moves_running", f"Partitions that move. {target}", "log_dir"
        )
        self.partition_move_bytes = self._counter(
            "partition_move_bytes", f"Bytes that moves copied. {target}", "log_dir"
        )
        self.partition_moves = self._counter(
            "partition_moves",
            f"Moves that ended. State is done, cancelled or failed. {target}",
            "log_dir", "state",
        )  # fmt: skip
        self.group_offsets_clamped = self._counter(
            "group_offsets_clamped",
            "Offsets of groups that were ahead of their log after an unclean start.",
        )

    def _declare_sink_metrics(self) -> None:
        self.sink_transactions_open = Gauge(
            "kafkalog_sink_transactions_open",
            "Producers of exactly-once sinks whose batch is open.",
            registry=self.registry,
        )
        self.sinks_committing = Gauge(
            "kafkalog_sinks_committing",
            "Sinks whose batch is committed and not shown in every partition yet: markers wait.",
            registry=self.registry,
        )
        self.sink_committing_age = Gauge(
            "kafkalog_sink_committing_age_seconds",
            "Since the oldest of these commits was decided; 0 without one.",
            registry=self.registry,
        )
        self.sink_commits = self._counter(
            "sink_commits", "Batches of sinks whose commit is complete."
        )
        self.sink_aborts = self._counter(
            "sink_aborts",
            "Batches of sinks that were aborted. Reason is requested, superseded or timed_out.",
            "reason",
        )

    def _declare_retention_metrics(self) -> None:
        self.retention_runs = self._counter("retention_runs", "Retention checks that ended.")
        self.retention_last_run = self._gauge(
            "retention_last_run_timestamp_seconds", "When the last retention check ended."
        )
        self.retention_duration_seconds = self._histogram(
            "retention_duration_seconds", "Length of a retention check over all logs."
        )
        reason = "Reason is start_offset, size or time."
        self.retention_deleted_segments = self._counter(
            "retention_deleted_segments", f"Segments that retention deleted. {reason}",
            "topic", "reason",
        )  # fmt: skip
        self.retention_deleted_bytes = self._counter(
            "retention_deleted_bytes", f"Bytes of those segments. {reason}", "topic", "reason"
        )
        self.retention_clock_jumps = self._counter(
            "retention_clock_jumps",
            "Logs left out of a retention check because the wall clock jumped ahead.",
        )

    def observe_retention(self, topic: str, deleted: Sequence[tuple[str, int]]) -> None:
        """Segments that went: (reason, bytes) of each."""
        for reason, size_bytes in deleted:
            self.retention_deleted_segments.labels(topic, reason).inc()
            self.retention_deleted_bytes.labels(topic, reason).inc(size_bytes)

    def observe_retention_run(self, seconds: float, wall_ms: int) -> None:
        """A check over all logs ended."""
        self.retention_runs.inc()
        self.retention_last_run.set(wall_ms / 1000)
        self.retention_duration_seconds.observe(seconds)

    def observe_append(self, topic: str, records: int, size_bytes: int) -> None:
        """One acknowledged produce to one partition."""
        _child(self.append_records, topic)._value.inc(records)
        _child(self.append_bytes, topic)._value.inc(size_bytes)

    def observe_fetch(self, topic: str, size_bytes: int, records: int = 0) -> None:
        """One read of one partition; records when they were decoded."""
        if size_bytes:
            _child(self.fetch_bytes, topic).inc(size_bytes)
        if records:
            _child(self.fetch_records, topic).inc(records)

    def observe_http(self, route: str, method: str, code: int, seconds: float) -> None:
        """One finished request. route is the template, never the path; odd methods are OTHER."""
        known = method if method in _KNOWN_METHODS else "OTHER"
        _child(self.http_requests, route, known, str(code))._value.inc(1)
        _observe(_child(self.http_request_seconds, route, known), seconds)

    def observe_reload(self, setting: str, is_taken: bool) -> None:
        """A watched file changed; what is wrong is not taken."""
        self.file_reloads.labels(setting, "taken" if is_taken else "refused").inc()

    def observe_loop_lag(self, seconds: float) -> None:
        """How late the loop's timer was; negative counts as none."""
        self.event_loop_lag_seconds.observe(max(0.0, seconds))

    def beat(self, thread: str, wall_ms: int) -> None:
        """The thread turned at wall_ms."""
        self.thread_heartbeat.labels(thread).set(wall_ms / 1000)

    def set_log_dir_space(self, log_dir: str, capacity_bytes: int, free_bytes: int) -> None:
        """As the file system says; taken by a periodic task, never by the scrape."""
        self.log_dir_capacity.labels(log_dir).set(capacity_bytes)
        self.log_dir_free.labels(log_dir).set(free_bytes)

    def watch_tasks(self, tasks: Callable[[], Iterable[TaskFacts]]) -> None:
        """Where a scrape finds the background tasks; quick, and no disk."""
        self._tasks.tasks = tasks

    def forget_topic(self, topic: str) -> None:
        """A deleted topic loses its counters; unknown topics are ignored."""
        for counter in (
            self.append_records, self.append_bytes, self.fetch_records, self.fetch_bytes,
            self.retention_deleted_segments, self.retention_deleted_bytes, self.quota_refusals,
        ):  # fmt: skip
            counter.remove_by_labels({"topic": topic})
        self.cleaner.forget_topic(topic)
        self.archive.forget_topic(topic)

    async def render(self, samples: Sequence[PartitionSample]) -> bytes:
        """The whole page, text format 0.0.4; yields to the loop between slices."""
        slices: list[list[list[str]]] = []
        for lines in self._partitions.render_slices(samples):
            slices.append(lines)
            await asyncio.sleep(0)
        return generate_latest(self.registry) + self._partitions.join(slices).encode()

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"kafkalog_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"kafkalog_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, *labels: str) -> Histogram:
        return Histogram(
            f"kafkalog_{name}", text, labels, registry=self.registry, buckets=SECONDS_BUCKETS
        )
