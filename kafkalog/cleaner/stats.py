"""What a cleaning was asked for, what it read, kept and dropped, and how it ended.

For the log, the API and metrics. The counts are those of Kafka's CleanerStats, record by record.
Records of batches that are dropped as a whole without being read (aborted data, old markers) count
as dropped but not as read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.cleaner.plan import LogToClean
    from kafkalog.errors import KafkalogError
    from kafkalog.format.topic_names import TopicPartition
    from kafkalog.log.unified_log import UnifiedLog


@dataclass(slots=True)
class CleanerStats:
    """Of one round. Times are monotonic nanoseconds; bytes are those of the ``.log`` files."""

    started_ns: int = 0
    mapped_ns: int = 0
    ended_ns: int = 0
    swap_ns: int = 0  # of the time between the two: syncs and renames, and waiting for the writer
    map_bytes_read: int = 0
    map_messages_read: int = 0
    map_size: int = 0  # keys
    buffer_utilization: float = 0.0  # keys / slots
    bytes_read: int = 0
    bytes_written: int = 0
    messages_read: int = 0
    messages_written: int = 0
    invalid_messages_read: int = 0  # records without a key
    batches_read: int = 0
    batches_written: int = 0
    superseded: int = 0
    expired_tombstones: int = 0
    aborted: int = 0
    markers: int = 0
    waiting_batches: int = 0  # that stay with tombstones or markers until their horizon is over
    next_horizon_ms: int | None = None  # the first of theirs, wall clock; None: none waits

    def add(self, chunk: CleanerStats) -> None:
        """One chunk of the second pass."""
        for name in _OF_CHUNKS:
            setattr(self, name, getattr(self, name) + getattr(chunk, name))
        if chunk.next_horizon_ms is not None:
            known = self.next_horizon_ms
            first = chunk.next_horizon_ms
            self.next_horizon_ms = first if known is None else min(known, first)

    @property
    def map_seconds(self) -> float:
        """Of the first pass."""
        return (self.mapped_ns - self.started_ns) / 1e9

    @property
    def swap_seconds(self) -> float:
        """Of putting segments in the place of others."""
        return self.swap_ns / 1e9

    @property
    def seconds(self) -> float:
        """Of both."""
        return (self.ended_ns - self.started_ns) / 1e9


_OF_CHUNKS = (
    "bytes_read",
    "bytes_written",
    "messages_read",
    "messages_written",
    "invalid_messages_read",
    "batches_read",
    "batches_written",
    "superseded",
    "expired_tombstones",
    "aborted",
    "markers",
    "waiting_batches",
)


CleaningOutcome = Literal["cleaned", "nothing_cleanable", "aborted", "failed"]


class CleaningRun(NamedTuple):
    """One clean of one log that ended. Moments are of the wall clock.

    stats   None: it failed, was aborted, or found nothing to clean
    error   why there are no stats; None with neither: nothing was cleanable
    """

    topic_partition: TopicPartition
    thread_id: int
    is_dry: bool
    started_ms: int
    ended_ms: int
    to_clean: LogToClean | None = None  # None: it was not acquired
    end_offset: int = -1
    stats: CleanerStats | None = None
    error: KafkalogError | None = None
    is_aborted: bool = False  # a caller wanted the log, or the thread was to stop

    @property
    def outcome(self) -> CleaningOutcome:
        """In a word: cleaned, nothing_cleanable, aborted or failed."""
        if self.is_aborted:
            return "aborted"
        if self.error is not None:
            return "failed"
        return "nothing_cleanable" if self.stats is None else "cleaned"

    @property
    def is_fruitful(self) -> bool:
        """Whether the next look finds another picture: the log is cleaner, or held back."""
        if self.error is not None:
            return True
        return self.to_clean is not None and self.end_offset > self.to_clean.first_dirty_offset


class CleanRequest(NamedTuple):
    """A clean that was asked for; ``on_done`` is called on the cleaner thread, once."""

    log: UnifiedLog
    is_dry: bool
    on_done: Callable[[CleaningRun], None]
