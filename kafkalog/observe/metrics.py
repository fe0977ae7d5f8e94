"""Metrics: every counter, gauge and histogram of the process, its name, unit and help.

Owns one ``CollectorRegistry`` per instance (one per process, one per test), not the default one.
Touches no disk and holds no lock over I/O. Any thread may call the ``observe_*`` and ``set_*``
methods. A label comes from a client only when it is the name of an existing topic. Names have the
prefix ``kafkalog_``, base units, and ``_total`` for counters. ``metrics_page`` writes the page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.gc_collector import GCCollector
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from kafkalog.observe.cleaner_metrics import CleanerMetrics
from kafkalog.observe.prometheus import SECONDS_BUCKETS, child_of, observe
from kafkalog.observe.topic_metrics import TopicTraffic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from prometheus_client.metrics_core import Metric


LAG_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)

_KNOWN_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class TaskFacts(Protocol):
    """The facts of the tasks of one name, by the scheduler."""

    @property
    def name(self) -> str:
        """A constant of the program."""
        ...

    @property
    def runs(self) -> int:
        """Runs that ended, including failed ones."""
        ...

    @property
    def failures(self) -> int:
        """Runs that raised."""
        ...

    @property
    def last_success_ms(self) -> int:
        """Wall clock; -1: never."""
        ...


class TaskCollector(Collector):
    """The families of the background tasks, from the scheduler's own facts at each scrape."""

    def __init__(self) -> None:
        self.tasks: Callable[[], Iterable[TaskFacts]] = tuple

    def collect(self) -> Iterator[Metric]:
        """See Collector. Without tasks the families are empty."""
        prefix, labels = "kafkalog_scheduler_task", ["task"]
        runs = CounterMetricFamily(
            f"{prefix}_runs", "Runs that ended, including failed ones.", labels=labels
        )
        errors = CounterMetricFamily(f"{prefix}_errors", "Runs that failed.", labels=labels)
        success = GaugeMetricFamily(
            f"{prefix}_last_success_timestamp_seconds",
            "End of the last successful run; absent before the first.",
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
        self.process_io: Callable[[], tuple[int, int] | None] = lambda: None
        self._tasks = TaskCollector()
        self.registry.register(self._tasks)
        if with_process:  # the stock collectors read /proc: not for simulations
            ProcessCollector(registry=self.registry)
            PlatformCollector(registry=self.registry)
            GCCollector(registry=self.registry)
        self._declare_data_metrics()
        self._declare_http_metrics()
        self._declare_storage_metrics()
        self._declare_log_start_metrics()
        self._declare_retention_metrics()
        self._declare_sink_metrics()
        self.cleaner = CleanerMetrics(self.registry, self.beat)
        self.traffic = TopicTraffic(self.registry)

    def collectors(self) -> list[Collector]:
        """All registered collectors, in the order of the page."""
        return list(self.registry._collector_to_names)

    def _declare_data_metrics(self) -> None:
        self.quota_refusals = self._counter(
            "quota_refusals", "Appends refused because of the topic's quota.bytes.", "topic"
        )
        outcome = "Outcome is ok or error."
        self.append_seconds = self._histogram(
            "append_seconds",
            f"Time from submission of a produce to its completion. {outcome}",
            "outcome",
        )
        self.fetch_seconds = self._histogram(
            "fetch_seconds",
            f"Time of one read of a partition, without waiting. {outcome}",
            "outcome",
        )
        self.flush_seconds = self._histogram(
            "flush_seconds", f"Time of the fsyncs of one group commit. {outcome}", "outcome"
        )

    def _declare_http_metrics(self) -> None:
        self.http_requests = self._counter(
            "http_requests",
            "Requests by route template, method and status code.",
            "route", "method", "code",
        )  # fmt: skip
        self.http_request_seconds = self._histogram(
            "http_request_seconds",
            "Time from the request header to the end of the answer.",
            "route",
            "method",
        )
        self.file_reloads = self._counter(
            "file_reloads", "Reloads of files that settings name. Outcome is taken or refused.",
            "setting", "outcome",
        )  # fmt: skip
        self.http_in_flight = self._gauge("http_in_flight", "Requests in progress.")
        self.http_stalled_readers = self._counter(
            "http_stalled_readers",
            "Connections closed because their client acknowledged nothing for http.write.stall.ms.",
        )
        self.event_loop_lag_seconds = Histogram(
            "kafkalog_event_loop_lag_seconds",
            "How late a timer of the event loop fired.",
            registry=self.registry,
            buckets=LAG_BUCKETS,
        )

    def _declare_storage_metrics(self) -> None:
        self.build_info = self._gauge("build_info", "Always 1.", "version", "python", "format")
        self.config_info = self._gauge(
            "config_info",
            "Always 1; the label is the SHA-256 of the configuration at the start.",
            "config_sha256",
        )
        self.thread_heartbeat = self._gauge(
            "thread_heartbeat_timestamp_seconds",
            "Time of the last heartbeat of the thread.",
            "thread",
        )
        self._declare_log_dir_metrics()
        target = "Log_dir is the target directory."
        self.partition_moves_running = self._gauge(
            "partition_moves_running", f"Partitions that are being moved. {target}", "log_dir"
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

    def _declare_log_dir_metrics(self) -> None:
        self.log_dir_online = self._gauge("log_dir_online", "1 online, 0 offline.", "log_dir")
        self.log_dir_offline_reason = self._gauge(
            "log_dir_offline_reason",
            "Always 1; the label says why it is offline.",
            "log_dir",
            "reason",
        )
        self.log_dir_full = self._gauge(
            "log_dir_full", "1 while appends are refused: too little free space.", "log_dir"
        )
        self.log_dir_capacity = self._gauge(
            "log_dir_capacity_bytes", "Size of the directory's file system.", "log_dir"
        )
        self.log_dir_free = self._gauge(
            "log_dir_free_bytes", "Bytes that the daemon may still write to the disk.", "log_dir"
        )
        self.log_dir_used = self._gauge(
            "log_dir_used_bytes",
            "Bytes of the file system that are not free to the daemon.",
            "log_dir",
        )
        self.awaiting_delete = self._gauge(
            "log_awaiting_delete_bytes",
            "Bytes of deleted .log files whose file.delete.delay.ms is not over.",
            "log_dir",
        )
        self.reserved_index = self._gauge(
            "log_reserved_index_bytes",
            "Preallocated bytes of active segments' indexes that hold no entries yet.",
            "log_dir",
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
        self.recovered_bytes = self._counter(
            "recovery_recovered_bytes", "Bytes of segments that recovery read.", "log_dir"
        )
        self.unclean_starts = self._counter(
            "unclean_starts", "Starts that found no clean-shutdown marker.", "log_dir"
        )
        self.log_dir_files_repaired = self._counter(
            "log_dir_files_repaired",
            "Damaged files in a log directory's root that a start repaired from other copies.",
            "log_dir",
            "file",
        )
        self.log_dir_cordoned = self._gauge(
            "log_dir_cordoned", "1 while the directory takes no new partitions.", "log_dir"
        )

    def _declare_sink_metrics(self) -> None:
        self.sink_transactions_open = self._gauge(
            "sink_transactions_open", "Producers of exactly-once sinks with an open batch."
        )
        self.sinks_committing = self._gauge(
            "sinks_committing",
            "Sinks with a decided commit whose markers are not written in every partition yet.",
        )
        self.sink_committing_age = self._gauge(
            "sink_committing_age_seconds",
            "Age of the oldest sink commit whose markers are not all written; 0 without one.",
        )
        self.sink_commits = self._counter(
            "sink_commits", "Batches of sinks whose commit is complete."
        )
        self.sink_aborts = self._counter(
            "sink_aborts",
            "Batches of sinks that were aborted. Reason is requested, superseded or timed_out.",
            "reason",
        )

    def _declare_log_start_metrics(self) -> None:
        self.log_start_contradictions = self._counter(
            "log_start_contradictions",
            "Logs for which a start found two contradicting log starts.",
            "log_dir",
        )
        self.log_starts_disputed = self._gauge(
            "log_starts_disputed",
            "Logs from which nothing is deleted until their disputed log start is settled.",
            "log_dir",
        )

    def _declare_retention_metrics(self) -> None:
        self.retention_runs = self._counter("retention_runs", "Retention checks that ended.")
        self.retention_last_run = self._gauge(
            "retention_last_run_timestamp_seconds", "Time at which the last retention check ended."
        )
        self.retention_duration_seconds = self._histogram(
            "retention_duration_seconds", "Duration of a retention check over all logs."
        )
        reason = "Reason is start_offset, size or time."
        self.retention_deleted_segments = self._counter(
            "retention_deleted_segments", f"Segments that retention deleted. {reason}",
            "topic", "reason",
        )  # fmt: skip
        self.retention_deleted_bytes = self._counter(
            "retention_deleted_bytes",
            f"Bytes of segments that retention deleted. {reason}",
            "topic",
            "reason",
        )
        self.archive_yielded_segments = self._counter(
            "archive_yielded_segments",
            "Segments that retention deleted before they were archived, because a hold was "
            "suspended.",
            "topic",
        )
        self.archive_yielded_bytes = self._counter(
            "archive_yielded_bytes",
            "Bytes of segments that were deleted before they were archived.",
            "topic",
        )
        self.retention_clock_jumps = self._counter(
            "retention_clock_jumps",
            "Logs that a retention check skipped because the wall clock jumped ahead.",
        )

    def observe_retention(self, topic: str, deleted: Sequence[tuple[str, int]]) -> None:
        """Deleted segments: (reason, bytes) of each."""
        for reason, size_bytes in deleted:
            self.retention_deleted_segments.labels(topic, reason).inc()
            self.retention_deleted_bytes.labels(topic, reason).inc(size_bytes)

    def observe_yielded(self, topic: str, sizes_bytes: Sequence[int]) -> None:
        """Segments that a retention check deleted although a hold was to keep them, by bytes."""
        self.archive_yielded_segments.labels(topic).inc(len(sizes_bytes))
        self.archive_yielded_bytes.labels(topic).inc(sum(sizes_bytes))

    def observe_retention_run(self, seconds: float, wall_ms: int) -> None:
        """A check over all logs ended."""
        self.retention_runs.inc()
        self.retention_last_run.set(wall_ms / 1000)
        self.retention_duration_seconds.observe(seconds)

    def observe_http(self, route: str, method: str, code: int, seconds: float) -> None:
        """One finished request. route is the template, never the path; odd methods are OTHER."""
        known = method if method in _KNOWN_METHODS else "OTHER"
        child_of(self.http_requests, route, known, str(code))._value.inc(1)
        observe(child_of(self.http_request_seconds, route, known), seconds)

    def observe_reload(self, setting: str, is_taken: bool) -> None:
        """A watched file changed; a faulty one is refused and the old content stays in use."""
        self.file_reloads.labels(setting, "taken" if is_taken else "refused").inc()

    def observe_loop_lag(self, seconds: float) -> None:
        """How late the loop's timer fired; a negative lag counts as 0."""
        self.event_loop_lag_seconds.observe(max(0.0, seconds))

    def beat(self, thread: str, wall_ms: int) -> None:
        """The thread was alive at wall_ms."""
        self.thread_heartbeat.labels(thread).set(wall_ms / 1000)

    def set_log_dir_space(self, log_dir: str, capacity_bytes: int, free_bytes: int) -> None:
        """Space of the file system. A periodic task calls it, because a scrape touches no disk."""
        self.log_dir_capacity.labels(log_dir).set(capacity_bytes)
        self.log_dir_free.labels(log_dir).set(free_bytes)
        self.log_dir_used.labels(log_dir).set(capacity_bytes - free_bytes)

    def watch_tasks(self, tasks: Callable[[], Iterable[TaskFacts]]) -> None:
        """Set where a scrape reads the background tasks from; must be quick and touch no disk."""
        self._tasks.tasks = tasks

    def forget_topic(self, topic: str) -> None:
        """A deleted topic loses its counters; unknown topics are ignored."""
        for counter in (
            self.retention_deleted_segments,
            self.retention_deleted_bytes,
            self.archive_yielded_segments,
            self.archive_yielded_bytes,
            self.quota_refusals,
        ):
            counter.remove_by_labels({"topic": topic})
        self.traffic.forget_topic(topic)
        self.cleaner.forget_topic(topic)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"kafkalog_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"kafkalog_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, *labels: str) -> Histogram:
        return Histogram(
            f"kafkalog_{name}", text, labels, registry=self.registry, buckets=SECONDS_BUCKETS
        )
