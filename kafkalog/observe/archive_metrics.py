"""Metrics of ``archive.hold``: how far archives lag, what they keep from retention, what gave way.

Owns names, units and help. Gauges are made at each scrape of what the manager publishes, for the
partitions of topics with a hold alone; a scrape never looks at a log's files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from prometheus_client.metrics_core import Metric

_LABELS = ("topic", "partition")
_FAMILIES = (
    (
        "kafkalog_archive_lag_offsets",
        "lag",
        "Offsets that readers see and the archive has not, with archive.hold.",
    ),
    (
        "kafkalog_archive_held_segments",
        "held_segments",
        "Segments over their limits that archive.hold keeps, at the last look.",
    ),
    ("kafkalog_archive_held_bytes", "held_bytes", "Bytes of those segments."),
)


class ArchiveFacts(NamedTuple):
    """One partition with a hold."""

    topic: str
    partition: int
    lag: int
    held_segments: int
    held_bytes: int


class ArchiveMetrics(Collector):
    """See the module."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.facts: Callable[[], Iterable[ArchiveFacts]] = tuple
        self.yielded_segments = Counter(
            "kafkalog_archive_yielded_segments",
            "Segments that retention deleted though they were not archived: a hold gave way.",
            ["topic"],
            registry=registry,
        )
        self.yielded_bytes = Counter(
            "kafkalog_archive_yielded_bytes",
            "Bytes of those segments.",
            ["topic"],
            registry=registry,
        )
        registry.register(self)

    def observe_yielded(self, topic: str, sizes_bytes: Sequence[int]) -> None:
        """Segments of a pass, by their bytes. Any thread."""
        self.yielded_segments.labels(topic).inc(len(sizes_bytes))
        self.yielded_bytes.labels(topic).inc(sum(sizes_bytes))

    def forget_topic(self, topic: str) -> None:
        """A deleted topic loses its counters."""
        for counter in (self.yielded_segments, self.yielded_bytes):
            counter.remove_by_labels({"topic": topic})

    def collect(self) -> Iterator[Metric]:
        """See Collector. Without facts: the families alone."""
        facts = list(self.facts())
        for name, attribute, text in _FAMILIES:
            family = GaugeMetricFamily(name, text, labels=_LABELS)
            for each in facts:
                family.add_metric([each.topic, str(each.partition)], getattr(each, attribute))
            yield family
