"""Metrics of the whole broker under the names of Kafka's exporters (JMX exporter, Strimzi's rules).

Owns names and help. They are computed at each scrape from the snapshot that kafkalog's own families
use, so that both agree. The names of partitions are in ``partition_metrics``, of topics in
``topic_metrics``, of the cleaner in ``cleaner_metrics``. Metrics of replication are left out,
because an invented value would be trusted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    UnknownMetricFamily,
)

from kafkalog.observe.prometheus import SECONDS_BUCKETS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from prometheus_client import Histogram
    from prometheus_client.metrics_core import Metric

    from kafkalog.observe.partition_metrics import BrokerState, LogDirSample, Snapshot

_QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
_FLUSH = "kafka_log_logflushstats_logflushrateandtimems"
_DIR = ["logDirectory"]


def of_broker(snapshot: Snapshot, state: BrokerState) -> Iterator[Metric]:
    """Counts of partitions and directories, state, and what a start has left to do."""
    served, offline = snapshot.partitions, snapshot.offline_partitions
    dead = sum(not each.is_online for each in snapshot.log_dirs)
    manager, replicas = "kafka_log_logmanager_", "kafka_server_replicamanager_"
    for name, text, number in (
        (manager + "offlinelogdirectorycount", "Log directories that are offline.", dead),
        (replicas + "leadercount", "Partitions that are served.", served),
        (replicas + "partitioncount", "Partitions of all topics.", served + offline),
        (replicas + "offlinereplicacount", "Partitions that are not served.", offline),
        ("kafka_server_kafkaserver_brokerstate", "0 not running, 1 starting, 2 recovery, "
         "3 running, 7 shutting down.", state.value),
    ):  # fmt: skip
        yield GaugeMetricFamily(name, text, value=number)
    yield from _of_log_dirs(snapshot.log_dirs)


def _of_log_dirs(log_dirs: Sequence[LogDirSample]) -> Iterator[Metric]:
    offline = GaugeMetricFamily(
        "kafka_log_logmanager_logdirectoryoffline", "1 while the directory is offline.", labels=_DIR
    )
    logs = GaugeMetricFamily(
        "kafka_log_logmanager_remaininglogstorecover",
        "Logs that are not loaded yet; absent after the load.",
        labels=["dir"],
    )
    segments = GaugeMetricFamily(
        "kafka_log_logmanager_remainingsegmentstorecover",
        "Segments that are not recovered yet; absent after the load. All threads are summed under "
        "threadNum 0.",
        labels=["dir", "threadNum"],
    )
    for each in log_dirs:
        offline.add_metric([each.path], float(not each.is_online))
        if each.remaining_logs:
            logs.add_metric([each.path], each.remaining_logs)
        if each.remaining_segments:
            segments.add_metric([each.path, "0"], each.remaining_segments)
    yield from (offline, logs, segments)


def of_topics(snapshot: Snapshot) -> Iterator[Metric]:
    """kafka_exporter's count of partitions."""
    family = GaugeMetricFamily(
        "kafka_topic_partitions", "Partitions of the topic.", labels=["topic"]
    )
    for topic, count in snapshot.topics.items():
        family.add_metric([topic], count)
    yield family


def of_flushes(flush_seconds: Histogram) -> Iterator[Metric]:
    """Quantiles since the start, read from the buckets: as fine as those are.

    Untyped: Kafka's exporter calls it a gauge, which may have no label ``quantile``.
    """
    counts = [int(bucket.get()) for bucket in flush_seconds._buckets]
    times = UnknownMetricFamily(_FLUSH, "Milliseconds of syncs per group commit.", labels=[
        "quantile"
    ])  # fmt: skip
    for quantile in _QUANTILES:
        times.add_metric([f"{quantile:g}"], quantile_ms(counts, quantile))
    yield times
    yield CounterMetricFamily(f"{_FLUSH}_count", "Group commits.", value=sum(counts))


def quantile_ms(counts: Sequence[int], quantile: float) -> float:
    """Of a histogram with SECONDS_BUCKETS and one bucket above them; 0 without observations.

    Linear within a bucket; values above the last bound count as that bound.
    """
    rank = quantile * sum(counts)
    below, lower = 0, 0.0
    for count, upper in zip(counts, SECONDS_BUCKETS, strict=False):
        if count and below + count >= rank:
            share = (rank - below) / count
            return 1000.0 * (lower + (upper - lower) * share)
        below, lower = below + count, upper
    return 1000 * lower if sum(counts) else 0.0


def of_process_io(read_bytes: int, written_bytes: int) -> Iterator[Metric]:
    """What the kernel counted for this process."""
    prefix, text = "kafka_server_kafkaserver_linux_disk", "by the process since its start."
    yield GaugeMetricFamily(f"{prefix}_read_bytes", f"Bytes read {text}", value=read_bytes)
    yield GaugeMetricFamily(f"{prefix}_write_bytes", f"Bytes written {text}", value=written_bytes)
