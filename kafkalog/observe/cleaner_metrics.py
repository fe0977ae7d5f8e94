"""Metrics of the log cleaner: counters that its threads feed, and gauges that a scrape computes.

Owns names, units and help of all of them, including those of Kafka's JMX exporter
(``kafka_log_logcleaner_*``): both sets are computed from the same facts at each scrape, so that
they agree. The facts are those of the cleaner's last check; a scrape does not read a log. The
metrics of each compacted log are in ``partition_metrics``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kafkalog.observe.prometheus import Declarations, counter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric


_QUARANTINED = "Partitions that are not cleaned because of an error."


@dataclass(frozen=True, slots=True)
class CleanerThreadFacts:
    """One thread; of its last clean: seconds, share of the map, bytes written / read, lateness."""

    name: str
    is_alive: bool
    is_busy: bool
    clean_seconds: float = 0.0
    map_utilization: float = 0.0
    recopy_ratio: float = 0.0
    compaction_delay_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class CompactedLogFacts:
    """One compacted log. ``failure`` names the error that prevents its cleans."""

    topic: str
    log_dir: str
    dirty_ratio: float
    dirty_bytes: int
    min_cleanable_ratio: float
    failure: str | None


@dataclass(frozen=True, slots=True)
class CleanerFacts:
    """The cleaner at its last check; ``since_look_ms`` is 0 before the first."""

    threads: Sequence[CleanerThreadFacts] = ()
    logs: Sequence[CompactedLogFacts] = ()
    log_dirs: Sequence[str] = ()
    since_look_ms: int = 0


class CleanerMetrics(Declarations, Collector):
    """See the module. The methods are for cleaner threads, ``collect`` for the scrape."""

    read_bytes = counter("Bytes that cleans read in order to copy them.", "topic")
    written_bytes = counter("Bytes that cleans wrote.", "topic")
    removed_bytes = counter("Bytes by which cleans made logs smaller.", "topic")
    records_removed = counter(
        "Records that cleans removed. Reason is superseded, tombstone, aborted, control or "
        "invalid.",
        "topic",
        "reason",
    )
    failures = counter("Cleans that failed.", "topic", "error")
    phase_seconds = counter(
        "Time that a thread spent per phase. Phase is idle, map, copy, swap or throttled; map and "
        "copy include throttled time.",
        "thread",
        "phase",
    )
    thread_restarts = counter("Restarts of the thread after a defect.", "thread")

    def __init__(self, registry: CollectorRegistry, beat: Callable[[str, int], None]) -> None:
        """``beat`` gets the heartbeats too."""
        self._beat = beat
        self.facts: Callable[[], CleanerFacts] = CleanerFacts
        self.declare("kafkalog_cleaner_", registry)
        self._beats_ms: dict[str, int] = {}  # single operations by the threads
        registry.register(self)

    # ---- from the threads

    def beat(self, thread: str, wall_ms: int) -> None:
        """The thread was alive at wall_ms."""
        self._beats_ms[thread] = wall_ms
        self._beat(thread, wall_ms)

    def observe_clean(
        self, topic: str, bytes_read: int, bytes_written: int, removed: Mapping[str, int]
    ) -> None:
        """A clean that succeeded; ``removed`` are records by reason."""
        self.read_bytes.labels(topic).inc(bytes_read)
        self.written_bytes.labels(topic).inc(bytes_written)
        self.removed_bytes.labels(topic).inc(max(bytes_read - bytes_written, 0))
        for reason, records in removed.items():
            self.records_removed.labels(topic, reason).inc(records)

    # ---- for the scrape

    def collect(self) -> Iterator[Metric]:
        """See Collector. Without facts the families have the values of no thread and no log."""
        facts = self.facts()
        yield from _of_threads(facts.threads)
        yield self._heartbeats(facts.threads)
        yield from _of_logs(facts)
        yield from _as_kafka_names_them(facts)

    def _heartbeats(self, threads: Sequence[CleanerThreadFacts]) -> Metric:
        """Of the current threads only: a thread that was replaced has not stalled."""
        beats = self._beats_ms.copy()
        return _gauge(
            "kafkalog_cleaner_thread_heartbeat_timestamp_seconds",
            "Time of the last heartbeat of the thread, also within a long clean.",
            ["thread"],
            [([each.name], beats[each.name] / 1000) for each in threads if each.name in beats],
        )


def _gauge(
    name: str, text: str, labels: Sequence[str], samples: Iterable[tuple[Sequence[str], float]]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, number in samples:
        family.add_metric(values, number)
    return family


def _of_threads(threads: Sequence[CleanerThreadFacts]) -> Iterator[Metric]:
    for name, text, attribute in (
        ("thread_up", "1 while the thread runs.", "is_alive"),
        ("thread_busy", "1 while the thread cleans a log.", "is_busy"),
        (
            "map_utilization_ratio",
            "Share of the offset map that its last clean used.",
            "map_utilization",
        ),
    ):
        samples = [([each.name], float(getattr(each, attribute))) for each in threads]
        yield _gauge(f"kafkalog_cleaner_{name}", text, ["thread"], samples)


def _of_logs(facts: CleanerFacts) -> Iterator[Metric]:
    thresholds = {each.topic: each.min_cleanable_ratio for each in facts.logs}
    yield _gauge(
        "kafkalog_cleaner_min_cleanable_ratio",
        "The topic's min.cleanable.dirty.ratio.",
        ["topic"],
        [([topic], ratio) for topic, ratio in thresholds.items()],
    )
    failed = Counter((each.topic, each.failure) for each in facts.logs if each.failure is not None)
    yield _gauge(
        "kafkalog_cleaner_quarantined", _QUARANTINED, ["topic", "error"], list(failed.items())
    )


def _as_kafka_names_them(facts: CleanerFacts) -> Iterator[Metric]:
    threads, logs = facts.threads, facts.logs
    cleaner, manager = "kafka_log_logcleaner_", "kafka_log_logcleanermanager_"

    def most(attribute: str, scale: int = 1) -> int:
        """The largest of the threads' last cleans, cut to an integer."""
        return int(scale * max((float(getattr(each, attribute)) for each in threads), default=0))

    dirtiest = max((each.dirty_ratio for each in logs if each.failure is None), default=0.0)
    for name, text, number in (
        (cleaner + "deadthreadcount", "Cleaner threads that do not run.",
         sum(not each.is_alive for each in threads)),
        (cleaner + "max_buffer_utilization_percent", "Fullest offset map of the last cleans.",
         most("map_utilization", 100)),
        (cleaner + "cleaner_recopy_percent", "Bytes written per bytes read in the last cleans.",
         most("recopy_ratio", 100)),
        (cleaner + "max_clean_time_secs", "Duration of the longest of the last cleans.",
         most("clean_seconds")),
        (cleaner + "max_compaction_delay_secs", "Largest delay beyond max.compaction.lag.ms in "
         "the last cleans.",
         most("compaction_delay_seconds")),
        (manager + "max_dirty_percent", "Dirty ratio of the dirtiest log at the last check.",
         int(100 * dirtiest)),
        (manager + "time_since_last_run_ms", "Time since a cleaner thread last looked for work.",
         facts.since_look_ms),
    ):  # fmt: skip
        yield _gauge(name, text, [], [([], number)])
    counts, sizes = dict.fromkeys(facts.log_dirs, 0), dict.fromkeys(facts.log_dirs, 0)
    for each in logs:
        if each.failure is not None:
            counts[each.log_dir] = counts.get(each.log_dir, 0) + 1
            sizes[each.log_dir] = sizes.get(each.log_dir, 0) + each.dirty_bytes
    for name, text, amounts in (
        ("uncleanable_partitions_count", _QUARANTINED, counts),
        ("uncleanable_bytes", f"Cleanable bytes of {_QUARANTINED.lower()}", sizes),
    ):
        samples = [([path], float(amount)) for path, amount in amounts.items()]
        yield _gauge(manager + name, text, ["logDirectory"], samples)
