"""What a log remembers of one producer, and the changes that one append makes to it.

``ProducerStateEntry`` keeps the last five batches, so that a retry of any of the five requests that
a producer may have in flight is recognised. ``ProducerAppendInfo`` works on a copy: a refused or
failed append leaves no trace, and the manager takes the result over after the bytes are written.
Plain values of the writer thread (in recovery: the loader's). Source: Kafka's ProducerStateEntry,
BatchMetadata and ProducerAppendInfo.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from kafkalog.errors import (
    ConcurrentTransactions,
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from kafkalog.format.disk.producer_snapshot import ProducerSnapshotEntry
from kafkalog.format.integers import INT32_MAX
from kafkalog.format.records.record_batch import add_to_sequence
from kafkalog.log.values import (
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    AppendOrigin,
    CompletedTransaction,
)

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


class ProducerBatch(NamedTuple):
    """One batch of a producer with its final offsets."""

    producer_id: int
    producer_epoch: int
    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    max_timestamp_ms: int
    is_transactional: bool
    control_type: int | None = None  # 0 abort, 1 commit; None: data
    coordinator_epoch: int = -1


ProducerCheck = Callable[[ProducerBatch, ProducerStateEntry | None], None]
"""Raises why a client's batch may not be appended; the entry is its producer's, None: unknown."""


class ProducerAppendInfo:
    """See the module."""

    __slots__ = ("_known", "_origin", "started_transactions", "updated")

    def __init__(
        self, producer_id: int, known: ProducerStateEntry | None, origin: AppendOrigin
    ) -> None:
        """``known`` is the entry before this append, never changed here."""
        self._known = known if known is not None else ProducerStateEntry(producer_id)
        self._origin = origin
        self.updated = self._known.copy()
        self.started_transactions: list[int] = []  # first offsets

    def append(self, batch: ProducerBatch) -> CompletedTransaction | None:
        """Check and note one batch; the transaction that it ends, if it is such a marker.

        Raises InvalidProducerEpoch, OutOfOrderSequence, InvalidTxnState, ConcurrentTransactions,
        TransactionCoordinatorFenced; then the whole append is refused.
        """
        if batch.control_type is not None:
            return self._append_marker(batch, is_aborted=batch.control_type == 0)
        self._append_data(batch)
        return None

    def _append_data(self, batch: ProducerBatch) -> None:
        """A data batch, in Kafka's order of checks."""
        self._check_epoch(batch)
        if self._origin is AppendOrigin.CLIENT:
            self._check_sequence(batch)
        entry = self.updated
        open_first = entry.current_txn_first_offset
        is_mixed = open_first is not None and not batch.is_transactional
        if is_mixed and self._origin is not AppendOrigin.REPLICATION:
            raise InvalidTxnState(
                f"Expected transactional write from producer {batch.producer_id} at offset "
                f"{batch.first_offset}"
            )
        is_newer = open_first is not None and batch.producer_epoch != entry.producer_epoch
        if is_newer and self._origin is AppendOrigin.CLIENT:
            # It would become a part of what the older epoch left open, and share its fate.
            raise ConcurrentTransactions(
                f"The transaction that producer {batch.producer_id} began at offset {open_first} "
                f"with epoch {entry.producer_epoch} has not ended yet"
            )
        metadata = BatchMetadata(
            batch.last_sequence,
            batch.last_offset,
            batch.last_offset - batch.first_offset,
            batch.max_timestamp_ms,
        )
        entry.add_batch(batch.producer_epoch, metadata)
        if open_first is None and batch.is_transactional:
            entry.current_txn_first_offset = batch.first_offset
            self.started_transactions.append(batch.first_offset)

    def _append_marker(
        self, batch: ProducerBatch, *, is_aborted: bool
    ) -> CompletedTransaction | None:
        """An end marker; None when no data of the transaction is in this log."""
        self._check_epoch(batch)
        entry = self.updated
        is_fenced = batch.coordinator_epoch < entry.coordinator_epoch
        if is_fenced and self._origin is not AppendOrigin.REPLICATION:
            raise TransactionCoordinatorFenced(
                f"Invalid coordinator epoch for producer {batch.producer_id}: "
                f"{batch.coordinator_epoch} (zombie), {entry.coordinator_epoch} (current)"
            )
        first_offset = entry.current_txn_first_offset
        entry.adopt_epoch(batch.producer_epoch)
        entry.current_txn_first_offset = None
        entry.coordinator_epoch = batch.coordinator_epoch
        entry.last_timestamp_ms = batch.max_timestamp_ms
        if first_offset is None:
            return None
        return CompletedTransaction(
            batch.producer_id, first_offset, batch.last_offset, is_aborted=is_aborted
        )

    def _check_epoch(self, batch: ProducerBatch) -> None:
        """A batch of an older epoch is a zombie's; what a log already holds is taken."""
        current = self.updated.producer_epoch
        if batch.producer_epoch < current and self._origin is not AppendOrigin.REPLICATION:
            raise InvalidProducerEpoch(
                f"Epoch of producer {batch.producer_id} at offset {batch.first_offset} is "
                f"{batch.producer_epoch}, which is smaller than the last seen epoch {current}",
                current_epoch=current,
            )

    def _check_sequence(self, batch: ProducerBatch) -> None:
        """The next sequence of the epoch, or any of an unknown producer."""
        entry, first = self.updated, batch.first_sequence
        if batch.producer_epoch != entry.producer_epoch:
            if first != 0 and entry.producer_epoch != NO_PRODUCER_EPOCH:
                raise OutOfOrderSequence(
                    f"Invalid sequence number for new epoch of producer {batch.producer_id}: "
                    f"{batch.producer_epoch} (request epoch), {first} (seq. number)",
                    expected_sequence=0,
                )
            return
        if entry.producer_epoch == NO_PRODUCER_EPOCH:
            return
        last = entry.last_sequence
        expected = 0 if last in (NO_SEQUENCE, SEQUENCE_MAX) else last + 1
        if first != expected:
            raise OutOfOrderSequence(
                f"Out of order sequence number for producer {batch.producer_id} at offset "
                f"{batch.last_offset}: {first} (incoming seq. number), {last} (current end "
                "sequence number)",
                expected_sequence=expected,
            )
