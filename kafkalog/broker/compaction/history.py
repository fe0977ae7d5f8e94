"""CleaningObserver: what the cleaner threads report, kept for the metrics page and for operators.

Owns when each log was last cleaned, what that clean left for later, and the cleans of the last day;
everything else is the cleaner's and is read at a scrape. In memory: a log directory holds Kafka's
files and nothing else, and what is older is in metrics. Holds no log, so that a deleted one is
freed. The threads call it, the event loop reads it: single dictionary operations, but for the
history, which has a mutex.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.cleaner.log_cleaner import thread_name
from kafkalog.errors import LogDirOffline
from kafkalog.observe.cleaner_metrics import CleanerThreadFacts, CompactedLogFacts

if TYPE_CHECKING:
    from kafkalog.broker.runtime import Runtime
    from kafkalog.cleaner.log_cleaner import ThreadStatus
    from kafkalog.cleaner.log_cleaner_manager import CleaningFailure, CleaningStatus
    from kafkalog.cleaner.stats import CleaningRun
    from kafkalog.env.threads import Mutex
    from kafkalog.format.topic_names import TopicPartition


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

    def __init__(self, mutex: Mutex, since_ms: int) -> None:
        """``since_ms``: wall clock of the start, before which nothing is known."""
        # constant after construction
        self.since_ms = since_ms
        self._mutex = mutex
        # under the mutex
        self._cleans: deque[PastClean] = deque(maxlen=KEPT_CLEANS)

    def note(self, run: CleaningRun) -> None:
        """A clean ended; no dry run."""
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
        if stats is not None:
            clean = clean._replace(
                map_seconds=stats.map_seconds,
                copy_seconds=max(stats.seconds - stats.map_seconds - stats.swap_seconds, 0.0),
                swap_seconds=stats.swap_seconds,
                bytes_before=stats.bytes_read,
                bytes_after=stats.bytes_written,
            )
        with self._mutex:
            self._cleans.append(clean)

    def cleans(self, now_ms: int) -> list[PastClean]:
        """Those that ended within ``KEPT_MS`` before, the latest ``KEPT_CLEANS``, oldest first."""
        with self._mutex:
            while self._cleans and self._cleans[0].ended_ms < now_ms - KEPT_MS:
                self._cleans.popleft()
            return list(self._cleans)


class LastClean(NamedTuple):
    """When a log was last cleaned well, and which batches that clean kept until later."""

    ended_ms: int  # wall clock
    waiting_batches: int
    next_horizon_ms: int | None  # when the first of them is deleted; None: none waits


class CleaningObserver:
    """See the module; a ThreadObserver."""

    def __init__(self, runtime: Runtime) -> None:
        # constant after construction
        self._metrics = runtime.metrics.cleaner
        self.beat = self._metrics.beat
        self.history = CleaningHistory(runtime.threads.mutex(), runtime.clock.wall_ms())
        # written by cleaner threads, published: of logs that were cleaned since the start
        self.last_cleans: dict[TopicPartition, LastClean] = {}

    # ---- ThreadObserver

    def spent(self, thread: str, phase: str, seconds: float) -> None:
        """See ThreadObserver."""
        self._metrics.phase_seconds.labels(thread, phase).inc(seconds)

    def restarted(self, thread: str) -> None:
        """See ThreadObserver."""
        self._metrics.thread_restarts.labels(thread).inc()

    def ended(self, run: CleaningRun) -> None:
        """See ThreadObserver. An abort is no failure."""
        self.history.note(run)
        topic, stats, error = run.topic_partition.topic, run.stats, run.error
        if stats is not None:
            removed = {
                "superseded": stats.superseded,
                "tombstone": stats.expired_tombstones,
                "aborted": stats.aborted,
                "control": stats.markers,
                "invalid": stats.invalid_messages_read,
            }
            self._metrics.observe_clean(topic, stats.bytes_read, stats.bytes_written, removed)
            last = LastClean(run.ended_ms, stats.waiting_batches, stats.next_horizon_ms)
            self.last_cleans[run.topic_partition] = last
            name = thread_name(run.thread_id)
            self.spent(name, "map", stats.map_seconds)
            self.spent(name, "copy", stats.seconds - stats.map_seconds - stats.swap_seconds)
            self.spent(name, "swap", stats.swap_seconds)
        elif error is not None and not run.is_aborted and not isinstance(error, LogDirOffline):
            self._metrics.failures.labels(topic, type(error).__name__).inc()

    def forget(self, topic_partition: TopicPartition) -> None:
        """The partition is gone."""
        self.last_cleans.pop(topic_partition, None)


def log_facts(status: CleaningStatus, failure: CleaningFailure | None) -> CompactedLogFacts:
    """One log as a thread saw it last, for the scrape."""
    log, to_clean = status.log, status.to_clean
    return CompactedLogFacts(
        topic=log.topic_partition.topic,
        log_dir=log.parent_dir,
        dirty_ratio=status.ratio,
        dirty_bytes=0 if to_clean is None else to_clean.cleanable_bytes,
        min_cleanable_ratio=log.config.min_cleanable_dirty_ratio,
        failure=None if failure is None else failure.error_name,
    )


def thread_facts(status: ThreadStatus) -> CleanerThreadFacts:
    """One thread with its last clean, for the scrape."""
    run, is_busy = status.last_run, status.topic_partition is not None
    facts = CleanerThreadFacts(status.name, status.is_alive, is_busy)
    if run is None or run.stats is None or run.to_clean is None:
        return facts
    stats = run.stats
    return replace(
        facts,
        clean_seconds=stats.seconds,
        map_utilization=stats.buffer_utilization,
        recopy_ratio=stats.bytes_written / max(stats.bytes_read, 1),
        compaction_delay_seconds=run.to_clean.overdue_ms / 1000,
    )
