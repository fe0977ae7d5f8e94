"""TopicQuotas and QueueBudget: the limits of what may be appended, and of what may wait for it.

A topic config ``quota.bytes`` is over all partitions of the topic in all directories. What counts
is the bytes of its ``.log`` files, of segments that readers can still reach. Summing them for each
append would cost a look at every segment: an append counts down what was left at the last sum, and
the topic is summed again when that is used up. Refused, it is summed at most four times a second,
so that appends resume soon after retention, a deletion or compaction made room. In memory; a start
sums again.

Any writer thread, under one mutex that only topics with a quota take. Writers of several log
directories append at once: what one of them is writing during another's sum is not in it, so that a
topic may pass its quota by one write for each further directory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from kafkalog.errors import LargerThanQuota, Overloaded, QuotaExceeded

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.env.clock import Clock
    from kafkalog.env.threads import Mutex
    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.observe.metrics import Metrics


_LOOK_INTERVAL_NS = 250_000_000

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Usage:
    """Of one topic, since its quota was last changed."""

    quota_bytes: int
    used_bytes: int = 0  # at the last sum
    left_bytes: int = -1  # counted down since then; below 0 before the first one
    is_reached: bool = False  # an append was refused, and nothing went since
    has_outsized: bool = False  # an append larger than the quota was refused
    next_look_ns: int = 0


class TopicQuotas:
    """See the module."""

    def __init__(
        self, size_bytes_of: Callable[[str], int], clock: Clock, mutex: Mutex, metrics: Metrics
    ) -> None:
        """``size_bytes_of`` sums the served logs of a topic."""
        # constant after construction
        self._size_bytes_of = size_bytes_of
        self._clock = clock
        self._mutex = mutex
        self._metrics = metrics
        # guarded by the mutex
        self._usages: dict[str, _Usage] = {}

    def take(self, log: UnifiedLog, size_bytes: int) -> None:
        """Before an append of so many bytes to a log with a quota: QuotaExceeded when it passes it.

        LargerThanQuota when no deletion could ever make room for it.
        A write that fails later is counted until the next sum.
        """
        topic, quota_bytes = log.topic_partition.topic, log.config.quota_bytes
        with self._mutex:
            usage = self._usages.get(topic)
            if usage is None or usage.quota_bytes != quota_bytes:
                usage = self._usages[topic] = _Usage(quota_bytes)
            if size_bytes > usage.left_bytes:
                self._look(topic, usage)
            if size_bytes <= usage.left_bytes:
                usage.left_bytes -= size_bytes
                return
            self._metrics.quota_refusals.labels(topic).inc()
            used_bytes = quota_bytes - usage.left_bytes
            if size_bytes > quota_bytes:
                if not usage.has_outsized:
                    usage.has_outsized = True
                    _log.warning(
                        "append_larger_than_quota",
                        topic=topic,
                        quota_bytes=quota_bytes,
                        size_bytes=size_bytes,
                        consequence="appends larger than the quota are refused with 413",
                        remedy="Raise quota.bytes, or send smaller batches.",
                    )
                raise LargerThanQuota(
                    f"The append of {size_bytes} bytes is larger than the quota.bytes of topic "
                    f"{topic} ({quota_bytes}): it never fits",
                    topic=topic,
                    quota_bytes=quota_bytes,
                    used_bytes=used_bytes,
                )
            if not usage.is_reached:
                usage.is_reached = True
                _log.warning(
                    "topic_quota_reached",
                    topic=topic,
                    quota_bytes=quota_bytes,
                    used_bytes=usage.used_bytes,
                    consequence="appends that do not fit are refused with 507 until something goes",
                    remedy="Raise quota.bytes, lower a retention limit, or delete records.",
                )
        raise QuotaExceeded(
            f"Topic {topic} holds {used_bytes} bytes; {size_bytes} more would pass its "
            f"quota.bytes ({quota_bytes})",
            topic=topic,
            quota_bytes=quota_bytes,
            used_bytes=used_bytes,
        )

    def forget(self, topic: str) -> None:
        """The topic was deleted."""
        with self._mutex:
            self._usages.pop(topic, None)

    def _look(self, topic: str, usage: _Usage) -> None:
        """Sum the topic, unless that was done a moment ago."""
        now_ns = self._clock.monotonic_ns()
        if usage.is_reached and now_ns < usage.next_look_ns:
            return
        usage.next_look_ns = now_ns + _LOOK_INTERVAL_NS
        before, usage.used_bytes = usage.used_bytes, self._size_bytes_of(topic)
        usage.left_bytes = usage.quota_bytes - usage.used_bytes
        if usage.is_reached and usage.used_bytes < before:
            usage.is_reached = False
            _log.info("topic_has_room_again", topic=topic, used_bytes=usage.used_bytes)


class QueueBudget:
    """Bytes that may wait in the queues of all directories (``queued.max.request.bytes``)."""

    def __init__(self, mutex: Mutex, limit_bytes: int) -> None:
        self._mutex = mutex
        self._limit_bytes = limit_bytes
        self._used_bytes = 0

    @property
    def used_bytes(self) -> int:
        """Bytes taken now."""
        return self._used_bytes

    def take(self, size_bytes: int) -> None:
        """Overloaded when there is no room; nothing always fits, and one command an empty queue."""
        with self._mutex:
            used = self._used_bytes + size_bytes
            if size_bytes and self._used_bytes and used > self._limit_bytes:
                raise Overloaded("Too many bytes wait to be appended", queued_bytes=used)
            self._used_bytes = used

    def give_back(self, size_bytes: int) -> None:
        """The commands ended."""
        with self._mutex:
            self._used_bytes -= size_bytes
