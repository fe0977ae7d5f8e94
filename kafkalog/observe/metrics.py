"""Metrics: every counter, gauge and histogram of the process, its name, unit and help.

Owns one ``CollectorRegistry`` per instance (one per process, one per test), not the default one.
Touches no disk and holds no lock over I/O. Any thread may call the ``observe_*`` and ``set_*``
methods. A label comes from a client only when it is the name of an existing topic. Names have the
prefix ``kafkalog_``, base units, and ``_total`` for counters. ``metrics_page`` writes the page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from prometheus_client import CollectorRegistry, disable_created_metrics
from prometheus_client.gc_collector import GCCollector
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from kafkalog.observe.cleaner_metrics import CleanerMetrics
from kafkalog.observe.history import TrafficHistory
from kafkalog.observe.prometheus import (
    Declarations,
    child_of,
    counter,
    gauge,
    histogram,
    observe,
    observe_many,
)
from kafkalog.observe.topic_metrics import TopicTraffic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from prometheus_client.metrics_core import Metric


LAG_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)

_KNOWN_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class TaskSample(NamedTuple):
    """The tasks of one name; ``last_success_ms`` is wall clock, -1: never."""

    name: str
    runs: int  # that ended, including failed ones
    failures: int
    last_success_ms: int


class TaskCollector(Collector):
    """The families of the background tasks, from the scheduler's own facts at each scrape."""

    def __init__(self) -> None:
        self.tasks: Callable[[], Iterable[TaskSample]] = tuple

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


_OUTCOME = "Outcome is ok or error."
_TARGET = "Log_dir is the target directory."
_REASON = "Reason is start_offset, size or time."


class Metrics(Declarations):
    """All metrics. Attributes are the metric names without ``kafkalog_`` and the type suffix."""

    quota_refusals = counter("Appends refused because of the topic's quota.bytes.", "topic")
    append_seconds = histogram(
        f"Time from submission of a produce to its completion. {_OUTCOME}", "outcome"
    )
    fetch_seconds = histogram(
        f"Time of one read of a partition, without waiting. {_OUTCOME}", "outcome"
    )
    flush_seconds = histogram(f"Time of the fsyncs of one group commit. {_OUTCOME}", "outcome")
    http_requests = counter(
        "Requests by route template, method and status code.", "route", "method", "code"
    )
    http_request_seconds = histogram(
        "Time from the request header to the end of the answer.", "route", "method"
    )
    file_reloads = counter(
        "Reloads of files that settings name. Outcome is taken or refused.", "setting", "outcome"
    )
    http_in_flight = gauge("Requests in progress.")
    http_stalled_readers = counter(
        "Connections closed because their client acknowledged nothing for http.write.stall.ms."
    )
    event_loop_lag_seconds = histogram(
        "How late a timer of the event loop fired.", buckets=LAG_BUCKETS
    )
    build_info = gauge("Always 1.", "version", "python", "format")
    config_info = gauge(
        "Always 1; the label is the SHA-256 of the configuration at the start.", "config_sha256"
    )
    thread_heartbeat_timestamp_seconds = gauge(
        "Time of the last heartbeat of the thread.", "thread"
    )
    log_dir_online = gauge("1 online, 0 offline.", "log_dir")
    log_dir_offline_reason = gauge(
        "Always 1; the label says why it is offline.", "log_dir", "reason"
    )
    log_dir_full = gauge("1 while appends are refused: too little free space.", "log_dir")
    log_dir_capacity_bytes = gauge(
        "Used and free bytes of the file system, without those reserved for root.", "log_dir"
    )
    log_dir_free_bytes = gauge("Bytes that the daemon may still write to the disk.", "log_dir")
    log_dir_used_bytes = gauge("Bytes used on the file system, by anybody.", "log_dir")
    log_awaiting_delete_bytes = gauge(
        "Bytes of deleted .log files whose file.delete.delay.ms is not over.", "log_dir"
    )
    log_reserved_index_bytes = gauge(
        "Preallocated bytes of active segments' indexes that hold no entries yet.", "log_dir"
    )
    log_dir_partitions = gauge("Partitions in the directory.", "log_dir")
    log_dir_segments = gauge("Segments in the directory.", "log_dir")
    recovery_remaining_logs = gauge("Logs not loaded yet.", "log_dir")
    recovery_remaining_segments = gauge("Segments not recovered yet.", "log_dir")
    recovery_recovered_bytes = counter("Bytes of segments that recovery read.", "log_dir")
    recovery_cut_bytes = counter(
        "Bytes of logs that recovery no longer serves: cut off the end, or set aside.", "log_dir"
    )
    unclean_starts = counter("Starts that found no clean-shutdown marker.", "log_dir")
    log_dir_files_repaired = counter(
        "Damaged files in a log directory's root that a start repaired from other copies.",
        "log_dir",
        "file",
    )
    log_dir_cordoned = gauge("1 while the directory takes no new partitions.", "log_dir")
    partition_moves_running = gauge(f"Partitions that are being moved. {_TARGET}", "log_dir")
    partition_move_bytes = counter(f"Bytes that moves copied. {_TARGET}", "log_dir")
    partition_moves = counter(
        f"Moves that ended. State is done, cancelled or failed. {_TARGET}", "log_dir", "state"
    )
    group_offsets_clamped = counter(
        "Offsets of groups that were ahead of their log after an unclean start."
    )
    log_start_contradictions = counter(
        "Logs for which a start found two contradicting log starts.", "log_dir"
    )
    log_starts_disputed = gauge(
        "Logs from which nothing is deleted until their disputed log start is settled.", "log_dir"
    )
    retention_runs = counter("Retention checks that ended.")
    retention_last_run_timestamp_seconds = gauge("Time at which the last retention check ended.")
    retention_duration_seconds = histogram("Duration of a retention check over all logs.")
    retention_deleted_segments = counter(
        f"Segments that retention deleted. {_REASON}", "topic", "reason"
    )
    retention_deleted_bytes = counter(
        f"Bytes of segments that retention deleted. {_REASON}", "topic", "reason"
    )
    archive_yielded_segments = counter(
        "Segments that retention deleted before they were archived, because a hold was suspended.",
        "topic",
    )
    archive_yielded_bytes = counter(
        "Bytes of segments that were deleted before they were archived.", "topic"
    )
    retention_clock_jumps = counter(
        "Logs that a retention check skipped because the wall clock jumped ahead."
    )
    retention_clock_held_bytes = gauge(
        "Bytes that retention retains until an operator accepts the wall clock, which jumped."
    )
    sink_transactions_open = gauge("Producers of exactly-once sinks with an open batch.")
    sinks_committing = gauge(
        "Sinks with a decided commit whose markers are not written in every partition yet."
    )
    sink_committing_age_seconds = gauge(
        "Age of the oldest sink commit whose markers are not all written; 0 without one."
    )
    sink_commits = counter("Batches of sinks whose commit is complete.")
    sink_aborts = counter(
        "Batches of sinks that were aborted. Reason is requested, superseded or timed_out.",
        "reason",
    )

    def __init__(self, *, with_process: bool = False) -> None:
        # else a series more per counter and histogram; the library has this switch untyped
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self.process_io: Callable[[], tuple[int, int] | None] = lambda: None
        # owned by the event loop: what is counted elsewhere and told before a page is rendered
        self.before_page: list[Callable[[], None]] = []
        self._tasks = TaskCollector()
        self.registry.register(self._tasks)
        if with_process:  # the stock collectors read /proc: not for simulations
            ProcessCollector(registry=self.registry)
            PlatformCollector(registry=self.registry)
            GCCollector(registry=self.registry)
        self.declare("kafkalog_", self.registry)
        self.cleaner = CleanerMetrics(self.registry, self.beat)
        self.traffic = TopicTraffic(self.registry)
        self.history = TrafficHistory(
            self.traffic, self.append_seconds, self.fetch_seconds, self.log_dir_free_bytes
        )

    def collectors(self) -> list[Collector]:
        """All registered collectors, in the order of the page."""
        return list(self.registry._collector_to_names)

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
        self.retention_last_run_timestamp_seconds.set(wall_ms / 1000)
        self.retention_duration_seconds.observe(seconds)

    def observe_http(self, route: str, method: str, code: int, seconds: float) -> None:
        """One finished request. route is the template, never the path; odd methods are OTHER."""
        known = method if method in _KNOWN_METHODS else "OTHER"
        child_of(self.http_requests, route, known, str(code))._value.inc(1)
        observe(child_of(self.http_request_seconds, route, known), seconds)

    def observe_http_many(
        self, route: str, method: str, code: int, seconds: Sequence[float]
    ) -> None:
        """As ``observe_http`` for each; the method is a known one."""
        child_of(self.http_requests, route, method, str(code))._value.inc(len(seconds))
        observe_many(child_of(self.http_request_seconds, route, method), seconds)

    def observe_reload(self, setting: str, is_taken: bool) -> None:
        """A watched file changed; a faulty one is refused and the old content stays in use."""
        self.file_reloads.labels(setting, "taken" if is_taken else "refused").inc()

    def beat(self, thread: str, wall_ms: int) -> None:
        """The thread was alive at wall_ms."""
        self.thread_heartbeat_timestamp_seconds.labels(thread).set(wall_ms / 1000)

    def set_log_dir_space(self, log_dir: str, *, used_bytes: int, free_bytes: int) -> None:
        """Space of the file system. A periodic task calls it, because a scrape touches no disk."""
        self.log_dir_capacity_bytes.labels(log_dir).set(used_bytes + free_bytes)
        self.log_dir_free_bytes.labels(log_dir).set(free_bytes)
        self.log_dir_used_bytes.labels(log_dir).set(used_bytes)

    def watch_tasks(self, tasks: Callable[[], Iterable[TaskSample]]) -> None:
        """Set where a scrape reads the background tasks from; must be quick and touch no disk."""
        self._tasks.tasks = tasks

    def forget_topic(self, topic: str) -> None:
        """A deleted topic loses its counters; unknown topics are ignored."""
        super().forget_topic(topic)
        self.traffic.forget_topic(topic)
        self.cleaner.forget_topic(topic)
