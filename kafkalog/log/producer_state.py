"""ProducerStateEntry: what a log remembers of one producer.

Plain values of the writer thread; touches nothing else. The last five batches are kept, so that a
retry of any of the five requests a producer may have in flight is recognised.
Source: Kafka's ProducerStateEntry, BatchMetadata.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from kafkalog.format.integers import INT32_MAX
from kafkalog.format.producer_snapshot import ProducerSnapshotEntry
from kafkalog.format.record_batch import add_to_sequence
from kafkalog.log.values import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP

BATCHES_TO_RETAIN = 5
SEQUENCE_MAX = INT32_MAX
NO_OFFSET = -1
NO_COORDINATOR_EPOCH = -1


class BatchMetadata(NamedTuple):
    """One remembered batch."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        """Sequence of its first record."""
        return add_to_sequence(self.last_sequence, -self.offset_delta)

    @property
    def first_offset(self) -> int:
        """Offset of its first record."""
        return self.last_offset - self.offset_delta


class LastRecord(NamedTuple):
    """Where an active producer's state can be read: Kafka's LastRecord."""

    data_offset: int | None  # last offset of its newest data batch; None: only markers are known
    producer_epoch: int


@dataclass(slots=True)
class ProducerStateEntry:
    """State of one producer; -1 stands for none."""

    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    last_timestamp_ms: int = NO_TIMESTAMP
    current_txn_first_offset: int | None = None
    batches: tuple[BatchMetadata, ...] = ()

    @property
    def last_sequence(self) -> int:
        """Of the newest batch."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        """Of the newest data batch."""
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def copy(self) -> ProducerStateEntry:
        """A copy to change while an append is being prepared."""
        return replace(self)

    def find_batch(
        self, producer_epoch: int, first_sequence: int, last_sequence: int
    ) -> BatchMetadata | None:
        """The remembered batch that a retry repeats."""
        if producer_epoch != self.producer_epoch:
            return None
        for batch in self.batches:
            if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                return batch
        return None

    def adopt_epoch(self, producer_epoch: int) -> None:
        """Another epoch makes the remembered batches void."""
        if producer_epoch != self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.batches = ()

    def add_batch(self, producer_epoch: int, batch: BatchMetadata) -> None:
        """Remember a data batch."""
        self.adopt_epoch(producer_epoch)
        self.batches = (*self.batches[1 - BATCHES_TO_RETAIN :], batch)
        self.last_timestamp_ms = batch.timestamp_ms

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """No open transaction and the last (event) timestamp is old."""
        is_idle = self.current_txn_first_offset is None
        return is_idle and now_ms - self.last_timestamp_ms >= expiration_ms

    def to_snapshot(self) -> ProducerSnapshotEntry:
        """The row of a snapshot: the newest batch alone."""
        newest = self.batches[-1] if self.batches else None
        first = self.current_txn_first_offset
        return ProducerSnapshotEntry(
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            last_sequence=self.last_sequence,
            last_offset=self.last_offset,
            offset_delta=0 if newest is None else newest.offset_delta,
            last_timestamp_ms=self.last_timestamp_ms,
            coordinator_epoch=self.coordinator_epoch,
            current_txn_first_offset=NO_OFFSET if first is None else first,
        )

    @classmethod
    def from_snapshot(cls, row: ProducerSnapshotEntry) -> ProducerStateEntry:
        """The entry of a snapshot row."""
        batches: tuple[BatchMetadata, ...] = ()
        if row.last_offset >= 0:
            newest = BatchMetadata(
                row.last_sequence, row.last_offset, row.offset_delta, row.last_timestamp_ms
            )
            batches = (newest,)
        first = row.current_txn_first_offset
        return cls(
            producer_id=row.producer_id,
            producer_epoch=row.producer_epoch,
            coordinator_epoch=row.coordinator_epoch,
            last_timestamp_ms=row.last_timestamp_ms,
            current_txn_first_offset=None if first < 0 else first,
            batches=batches,
        )
