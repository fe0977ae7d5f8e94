"""What the metrics are told of requests of the fast path, once an iteration of the event loop.

Each figure has a lock, and more than one of them for each request would cost more than the request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.server.protocol.endpoint import PARTITION

if TYPE_CHECKING:
    import asyncio

    from kafkalog.observe.metrics import Metrics

_ROUTE = f"{PARTITION}/batches"


class Counts:
    """See the module. Owned by the event loop."""

    def __init__(self, metrics: Metrics, loop: asyncio.AbstractEventLoop) -> None:
        # constant after construction
        self._metrics = metrics
        self._loop = loop
        # owned by the event loop
        self._is_to_be_told = False
        self._appends: dict[str, tuple[int, int, int]] = {}  # records, bytes, requests by topic
        self._fetched: dict[str, int] = {}  # bytes by topic
        self._ended: dict[tuple[str, int], list[float]] = {}  # seconds by method and status

    def note_append(self, topic: str, record_count: int, size_bytes: int) -> None:
        """One was queued for a writer."""
        records, total_bytes, requests = self._appends.get(topic, (0, 0, 0))
        self._appends[topic] = (records + record_count, total_bytes + size_bytes, requests + 1)
        self._tell_soon()

    def note_fetch(self, topic: str, size_bytes: int) -> None:
        """So much is sent."""
        self._fetched[topic] = self._fetched.get(topic, 0) + size_bytes
        self._tell_soon()

    def note_ended(self, method: str, status: int, seconds: float) -> None:
        """One was answered."""
        self._ended.setdefault((method, status), []).append(seconds)
        self._tell_soon()

    def _tell_soon(self) -> None:
        if not self._is_to_be_told:
            self._is_to_be_told = True
            self._loop.call_soon(self._tell)

    def _tell(self) -> None:
        self._is_to_be_told = False
        for topic, (record_count, size_bytes, requests) in self._appends.items():
            self._metrics.traffic.observe_append(topic, record_count, size_bytes, requests)
        for topic, size_bytes in self._fetched.items():
            self._metrics.traffic.observe_fetch(topic, size_bytes)
        for (method, status), seconds in self._ended.items():
            self._metrics.observe_http_many(_ROUTE, method, status, seconds)
        self._appends.clear()
        self._fetched.clear()
        self._ended.clear()
