"""CleanerStats: what a round read, kept and dropped, and how long it took. Plain figures.

Source: Kafka's CleanerStats; the counts are its own, record by record. Records of batches that go
as a whole without being looked into (aborted data, old markers) are dropped but not read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalog.cleaner.record_filter import FilterStatistics


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

    def add(self, chunk: FilterStatistics) -> None:
        """One chunk of the second pass."""
        self.bytes_read += chunk.bytes_read
        self.bytes_written += chunk.bytes_kept
        self.messages_read += chunk.records_read
        self.messages_written += chunk.records_kept
        self.invalid_messages_read += chunk.null_keys
        self.batches_read += chunk.batches_read
        self.batches_written += chunk.batches_kept
        self.superseded += chunk.superseded
        self.expired_tombstones += chunk.expired_tombstones
        self.aborted += chunk.aborted
        self.markers += chunk.control
        self.waiting_batches += chunk.waiting_batches
        if chunk.waiting_batches:
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
