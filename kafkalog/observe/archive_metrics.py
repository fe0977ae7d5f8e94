"""Metrics of ``archive.hold``: what gave way. Lag and what is held are in ``partition_rows``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter

if TYPE_CHECKING:
    from collections.abc import Sequence


class ArchiveMetrics:
    """See the module."""

    def __init__(self, registry: CollectorRegistry) -> None:
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

    def observe_yielded(self, topic: str, sizes_bytes: Sequence[int]) -> None:
        """Segments of a pass, by their bytes. Any thread."""
        self.yielded_segments.labels(topic).inc(len(sizes_bytes))
        self.yielded_bytes.labels(topic).inc(sum(sizes_bytes))

    def forget_topic(self, topic: str) -> None:
        """A deleted topic loses its counters."""
        for counter in (self.yielded_segments, self.yielded_bytes):
            counter.remove_by_labels({"topic": topic})
