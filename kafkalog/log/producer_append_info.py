"""ProducerAppendInfo: the changes that one append would make to one producer.

Works on a copy, so a refused or failed append leaves no trace; the manager takes the result over
only after the bytes are written. Writer thread (recovery: the loader).
Source: Kafka's ProducerAppendInfo, log-lifecycle 2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kafkalog.errors import (
    ConcurrentTransactions,
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from kafkalog.log.producer_state import SEQUENCE_MAX, BatchMetadata, ProducerStateEntry
from kafkalog.log.values import (
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    AppendOrigin,
    CompletedTransaction,
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
