"""Metrics of the log cleaner: counters that its threads feed, and gauges that a scrape asks for.

Owns names, units and help of all of them, also of those under the names that the JMX exporter gives
Kafka's (``kafka_log_logcleaner_*``): both sets are made of the same facts at each scrape, so they
cannot disagree. Facts are what the cleaner saw at its last look; a scrape never looks at a log.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from prometheus_client.metrics_core import Metric


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
    """One compacted log. ``failure`` names the error that keeps it from being cleaned."""

    topic: str
    partition: int
    log_dir: str
    dirty_ratio: float
    dirty_bytes: int
    min_cleanable_ratio: float
    failure: str | None


class Horizons(NamedTuple):
    """Batches that the last clean of a log kept until later, and the first moment that one goes."""

    batches: int
    next_ms: int | None  # wall clock; None: none waits


@dataclass(frozen=True, slots=True)
class CleanerFacts:
    """The cleaner at its last look; ``since_look_ms`` 0 before the first."""

    threads: Sequence[CleanerThreadFacts] = ()
    logs: Sequence[CompactedLogFacts] = ()
    log_dirs: Sequence[str] = ()
    since_look_ms: int = 0
    last_success_ms: Mapping[tuple[str, int], int] = field(default_factory=dict)
    horizons: Mapping[tuple[str, int], Horizons] = field(default_factory=dict)


class CleanerMetrics(Collector):
    """See the module. The methods are for cleaner threads, ``collect`` for the scrape."""

    def __init__(self, registry: CollectorRegistry, beat: Callable[[str, int], None]) -> None:
        """``beat`` tells that a thread turned."""
        self.beat = beat
        self.facts: Callable[[], CleanerFacts] = CleanerFacts
        self.read_bytes = Counter(
            "kafkalog_cleaner_read_bytes",
            "Bytes that cleans read to copy them.",
            ["topic"],
            registry=registry,
        )
        self.written_bytes = Counter(
            "kafkalog_cleaner_written_bytes",
            "Bytes that cleans wrote.",
            ["topic"],
            registry=registry,
        )
        self.removed_bytes = Counter(
            "kafkalog_cleaner_removed_bytes",
            "Bytes by which cleans made logs smaller.",
            ["topic"],
            registry=registry,
        )
        self.records_removed = Counter(
            "kafkalog_cleaner_records_removed",
            "Records that cleans removed. Reason is superseded, tombstone, aborted, control or "
            "invalid.",
            ["topic", "reason"],
            registry=registry,
        )
        self.failures = Counter(
            "kafkalog_cleaner_failures",
            "Cleans that failed.",
            ["topic", "error"],
            registry=registry,
        )
        self.phase_seconds = Counter(
            "kafkalog_cleaner_phase_seconds",
            "What a thread spent its time with. Phase is idle, map, copy, swap or throttled; map "
            "and copy hold what is throttled.",
            ["thread", "phase"],
            registry=registry,
        )
        self.thread_restarts = Counter(
            "kafkalog_cleaner_thread_restarts",
            "Defects after which a thread began afresh.",
            ["thread"],
            registry=registry,
        )
        registry.register(self)

    # ---- from the threads

    def observe_clean(
        self, topic: str, bytes_read: int, bytes_written: int, removed: Mapping[str, int]
    ) -> None:
        """A clean that ended well; records that went by reason."""
        self.read_bytes.labels(topic).inc(bytes_read)
        self.written_bytes.labels(topic).inc(bytes_written)
        self.removed_bytes.labels(topic).inc(max(bytes_read - bytes_written, 0))
        for reason, records in removed.items():
            self.records_removed.labels(topic, reason).inc(records)

    def forget_topic(self, topic: str) -> None:
        """A deleted topic loses its counters."""
        for counter in (
            self.read_bytes,
            self.written_bytes,
            self.removed_bytes,
            self.records_removed,
            self.failures,
        ):
            counter.remove_by_labels({"topic": topic})

    # ---- for the scrape

    def collect(self) -> Iterator[Metric]:
        """See Collector. Without facts: the families, with what no thread and no log make."""
        facts = self.facts()
        yield from _of_threads(facts.threads)
        yield from _of_logs(facts)
        yield from _as_kafka_names_them(facts)


def _gauge(
    name: str,
    text: str,
    labels: Sequence[str],
    samples: Iterable[tuple[Sequence[str], float]],
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, number in samples:
        family.add_metric(values, number)
    return family


def _of_threads(threads: Sequence[CleanerThreadFacts]) -> Iterator[Metric]:
    for name, text, attribute in (
        ("thread_up", "1 while the thread runs.", "is_alive"),
        ("thread_busy", "1 while it cleans a log.", "is_busy"),
        ("map_utilization_ratio", "How full the map of its last clean was.", "map_utilization"),
    ):
        samples = [([each.name], float(getattr(each, attribute))) for each in threads]
        yield _gauge(f"kafkalog_cleaner_{name}", text, ["thread"], samples)


def _of_logs(facts: CleanerFacts) -> Iterator[Metric]:
    where = ["topic", "partition"]
    for name, text, attribute in (
        ("dirty_ratio", "Share of cleanable bytes, at the last look.", "dirty_ratio"),
        ("dirty_bytes", "Cleanable bytes, at the last look.", "dirty_bytes"),
    ):
        samples = [
            ([each.topic, str(each.partition)], float(getattr(each, attribute)))
            for each in facts.logs
        ]
        yield _gauge(f"kafkalog_cleaner_{name}", text, where, samples)
    thresholds = {each.topic: each.min_cleanable_ratio for each in facts.logs}
    yield _gauge(
        "kafkalog_cleaner_min_cleanable_ratio",
        "The topic's min.cleanable.dirty.ratio.",
        ["topic"],
        [([topic], ratio) for topic, ratio in thresholds.items()],
    )
    yield _gauge(
        "kafkalog_cleaner_last_success_timestamp_seconds",
        "When a clean of the log last ended well, since the start.",
        where,
        [
            ([topic, str(number)], ms / 1000)
            for (topic, number), ms in facts.last_success_ms.items()
        ],
    )
    yield from _of_horizons(facts, where)
    failed: dict[tuple[str, str], int] = {}
    for each in facts.logs:
        if each.failure is not None:
            key = (each.topic, each.failure)
            failed[key] = failed.get(key, 0) + 1
    yield _gauge(
        "kafkalog_cleaner_quarantined",
        "Partitions that are not cleaned because of an error.",
        ["topic", "error"],
        list(failed.items()),
    )


def _of_horizons(facts: CleanerFacts, where: Sequence[str]) -> Iterator[Metric]:
    """Tombstones are not counted one by one: a clean does not look into batches that stay whole."""
    yield _gauge(
        "kafkalog_cleaner_tombstone_batches",
        "Batches with tombstones or markers that the last clean kept until their horizon.",
        where,
        [
            ([topic, str(number)], float(waiting.batches))
            for (topic, number), waiting in facts.horizons.items()
        ],
    )
    yield _gauge(
        "kafkalog_cleaner_next_horizon_timestamp_seconds",
        "From when on the first of them may go; absent when none waits.",
        where,
        [
            ([topic, str(number)], waiting.next_ms / 1000)
            for (topic, number), waiting in facts.horizons.items()
            if waiting.next_ms is not None
        ],
    )


def _as_kafka_names_them(facts: CleanerFacts) -> Iterator[Metric]:
    threads, logs = facts.threads, facts.logs
    cleaner, manager = "kafka_log_logcleaner_", "kafka_log_logcleanermanager_"

    def most(attribute: str, scale: int = 1) -> int:
        """The largest of the threads' last cleans, cut to an integer."""
        return int(scale * max((float(getattr(each, attribute)) for each in threads), default=0))

    dirtiest = max((each.dirty_ratio for each in logs if each.failure is None), default=0.0)
    for name, text, number in (
        (cleaner + "deadthreadcount", "Threads that do not run.",
         sum(not each.is_alive for each in threads)),
        (cleaner + "max_buffer_utilization_percent", "Fullest map of the last cleans.",
         most("map_utilization", 100)),
        (cleaner + "cleaner_recopy_percent", "Bytes written / read in the last cleans.",
         most("recopy_ratio", 100)),
        (cleaner + "max_clean_time_secs", "Longest of the last cleans.", most("clean_seconds")),
        (cleaner + "max_compaction_delay_secs", "Beyond max.compaction.lag.ms in the last cleans.",
         most("compaction_delay_seconds")),
        (manager + "max_dirty_percent", "Of the dirtiest log, at the last look.",
         int(100 * dirtiest)),
        (manager + "time_since_last_run_ms", "Since a thread last looked for work.",
         facts.since_look_ms),
    ):  # fmt: skip
        yield _gauge(name, text, [], [([], number)])
    for name, text, attribute in (
        ("uncleanable_partitions_count", "Partitions that are not cleaned: an error.", None),
        ("uncleanable_bytes", "Their cleanable bytes.", "dirty_bytes"),
    ):
        amounts = dict.fromkeys(facts.log_dirs, 0)
        for each in logs:
            if each.failure is not None:
                amount = 1 if attribute is None else int(getattr(each, attribute))
                amounts[each.log_dir] = amounts.get(each.log_dir, 0) + amount
        samples = [([path], float(amount)) for path, amount in amounts.items()]
        yield _gauge(manager + name, text, ["logDirectory"], samples)
