"""What the metrics are told of requests of the fast path: some times a second, and before a scrape.

Each figure has a lock, and more than one of them for each request would cost more than the request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.observe.prometheus import child_of, observe_many
from kafkalog.server.protocol.endpoint import PARTITION

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from kafkalog.observe.metrics import Metrics

_ROUTE = f"{PARTITION}/batches"
_SECONDS = 0.02


class Counts:
    """See the module. Owned by the event loop."""

    def __init__(
        self, metrics: Metrics, loop: asyncio.AbstractEventLoop, is_topic: Callable[[str], bool]
    ) -> None:
        """``is_topic``: whether there is a topic of that name; others count in the sum alone."""
        # constant after construction
        self._metrics = metrics
        self._loop = loop
        self._is_topic = is_topic
        metrics.before_page.append(self.tell)
        # owned by the event loop
        self._is_to_be_told = False
        self._appends: dict[str, tuple[int, int, int]] = {}  # records, bytes, requests by topic
        self._fetches: dict[str, tuple[int, int]] = {}  # bytes, requests by topic
        self._read_seconds: list[float] = []
        self._ended: dict[int, list[float]] = {}  # seconds of appends by status

    def note_append(self, topic: str, record_count: int, size_bytes: int) -> None:
        """One has ended; so much of it was appended."""
        records, total_bytes, requests = self._appends.get(topic, (0, 0, 0))
        self._appends[topic] = (records + record_count, total_bytes + size_bytes, requests + 1)
        self._tell_soon()

    def note_fetch(self, topic: str, size_bytes: int, seconds: float) -> None:
        """So much was found in the log in this time, and answered."""
        total_bytes, requests = self._fetches.get(topic, (0, 0))
        self._fetches[topic] = total_bytes + size_bytes, requests + 1
        self._read_seconds.append(seconds)
        self._tell_soon()

    def note_append_ended(self, status: int, seconds: float) -> None:
        """One was answered."""
        self._ended.setdefault(status, []).append(seconds)
        self._tell_soon()

    def _tell_soon(self) -> None:
        if not self._is_to_be_told:
            self._is_to_be_told = True
            self._loop.call_later(_SECONDS, self.tell)

    def tell(self) -> None:
        """The metrics know all that was noted."""
        self._is_to_be_told = False
        traffic = self._metrics.traffic
        for topic, (record_count, size_bytes, requests) in self._appends.items():
            if self._is_topic(topic):
                traffic.observe_append(topic, record_count, size_bytes, requests)
            else:  # a deleted topic's counters are forgotten, for good
                traffic.observe_departed_append(record_count, size_bytes, requests)
        for topic, (size_bytes, requests) in self._fetches.items():
            if self._is_topic(topic):
                traffic.observe_reads(topic, size_bytes, requests)
            else:
                traffic.observe_departed_reads(size_bytes, requests)
        if self._read_seconds:
            observe_many(child_of(self._metrics.fetch_seconds, "ok"), self._read_seconds)
            self._metrics.observe_http_many(_ROUTE, "GET", 200, self._read_seconds)
        for status, seconds in self._ended.items():
            self._metrics.observe_http_many(_ROUTE, "POST", status, seconds)
        self._appends.clear()
        self._fetches.clear()
        self._read_seconds.clear()
        self._ended.clear()
