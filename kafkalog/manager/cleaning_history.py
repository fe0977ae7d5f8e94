"""CleaningHistory: the cleans of the last day, for who asks what the cleaner did.

In memory alone: a directory of logs holds Kafka's files and nothing else, and what is older is in
metrics. Holds no log, so that one that is deleted is not kept. Any thread.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.cleaner.log_cleaner import thread_name

if TYPE_CHECKING:
    from kafkalog.cleaner.stats import CleaningRun
    from kafkalog.env.threads import Mutex

KEPT_MS = 86_400_000
KEPT_CLEANS = 2_000
"""About 500 bytes each."""


class PastClean(NamedTuple):
    """A clean that ended. Moments are of the wall clock; the phases follow each other by groups.

    outcome     cleaned, nothing_cleanable, aborted or failed
    *_seconds   of the phases; all 0 unless it is cleaned
    reason      why it is aborted or failed
    """

    thread: str
    topic: str
    partition: int
    started_ms: int
    ended_ms: int
    outcome: str
    map_seconds: float = 0.0
    copy_seconds: float = 0.0
    swap_seconds: float = 0.0
    bytes_before: int = 0
    bytes_after: int = 0
    reason: str | None = None


class CleaningHistory:
    """See the module."""

    def __init__(self, mutex: Mutex) -> None:
        self._mutex = mutex
        # under the mutex
        self._cleans: deque[PastClean] = deque(maxlen=KEPT_CLEANS)

    def note(self, run: CleaningRun) -> None:
        """A clean ended; no dry run."""
        clean = past_clean(run)
        with self._mutex:
            self._cleans.append(clean)

    def cleans(self, now_ms: int) -> list[PastClean]:
        """Those that ended within ``KEPT_MS`` before, the latest ``KEPT_CLEANS``, oldest first."""
        with self._mutex:
            while self._cleans and self._cleans[0].ended_ms < now_ms - KEPT_MS:
                self._cleans.popleft()
            return list(self._cleans)


def past_clean(run: CleaningRun) -> PastClean:
    """What is kept of a run."""
    key, stats = run.topic_partition, run.stats
    clean = PastClean(
        thread_name(run.thread_id),
        key.topic,
        key.partition,
        run.started_ms,
        run.ended_ms,
        run.outcome,
        reason=None if run.error is None else run.error.pathless_message,
    )
    if stats is None:
        return clean
    return clean._replace(
        map_seconds=stats.map_seconds,
        copy_seconds=max(stats.seconds - stats.map_seconds - stats.swap_seconds, 0.0),
        swap_seconds=stats.swap_seconds,
        bytes_before=stats.bytes_read,
        bytes_after=stats.bytes_written,
    )
