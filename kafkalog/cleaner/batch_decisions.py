"""What a round decides of batches as a whole, before it looks at their records.

``needless_batches`` follows the transactions; ``batch_orders`` says of each batch of the second
pass whether its records go and whether its header stays. Columns in, columns out; one Python
statement a batch only for those that belong to a transaction, control batches and batches of
producers whose newest batch is a marker. Source: Kafka's Cleaner.cleanInto (4.1), log-lifecycle
12.6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kafkalog.cleaner.record_filter import Retention, TombstoneRule
from kafkalog.errors import DecompressedTooLarge, UnsupportedCompression
from kafkalog.format.batch_scan import BatchColumn
from kafkalog.format.control_record import read_batch_control_type
from kafkalog.format.format_error import FormatError
from kafkalog.format.record_batch import Codec, pack_attributes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.cleaner.cleaned_transactions import CleanedTransactionMetadata
    from kafkalog.cleaner.record_batches import Flags, RecordBatches
    from kafkalog.format.control_record import ControlRecordType
    from kafkalog.kernels.compile import Int64s
    from kafkalog.log.producer_state import LastRecord

_TRANSACTIONAL = pack_attributes(Codec.NONE, transactional=True)
_CONTROL = pack_attributes(Codec.NONE, control=True)
_DELETE_HORIZON = pack_attributes(Codec.NONE, delete_horizon=True)


def control_flags(batches: RecordBatches) -> Flags:
    """Which of the batches are control batches."""
    flags: Flags = batches.rows.column(BatchColumn.ATTRIBUTES) & _CONTROL != 0
    return flags


def needless_batches(batches: RecordBatches, transactions: CleanedTransactionMetadata) -> Flags:
    """Batches that nothing needs for the sake of transactions: aborted data, dataless markers.

    What is said of a batch here lets it go unread, so its CRC has to hold: CorruptBatch for a
    control batch or aborted data that is damaged.
    """
    rows = batches.rows
    needless: Flags = np.zeros(rows.count, np.bool_)
    attributes = rows.column(BatchColumn.ATTRIBUTES)
    concerned = np.flatnonzero(attributes & (_TRANSACTIONAL | _CONTROL))
    if not len(concerned):
        return needless
    table = rows.table[concerned][:, _TRANSACTION_COLUMNS].tolist()
    for row, (bits, producer_id, last_offset) in zip(concerned.tolist(), table, strict=True):
        if bits & _CONTROL:
            control_type = _control_type(batches, row)
            needless[row] = transactions.on_control_batch(producer_id, last_offset, control_type)
        else:
            needless[row] = transactions.on_batch(producer_id, last_offset)
            if needless[row]:
                batches.verify(row)
    return needless


_TRANSACTION_COLUMNS = [
    int(BatchColumn.ATTRIBUTES),
    int(BatchColumn.PRODUCER_ID),
    int(BatchColumn.LAST_OFFSET),
]


def _control_type(batches: RecordBatches, row: int) -> ControlRecordType | None:
    batches.verify(row)
    try:
        return read_batch_control_type(batches.batch(row))
    except (FormatError, DecompressedTooLarge, UnsupportedCompression) as error:
        raise batches.corrupt(row, str(error)) from error


class LastBatches:
    """Batches that hold the newest state of an active producer, and are to stay, if only empty.

    The one of its last data; of a producer without data the markers of its epoch.
    """

    def __init__(self, last_records: Mapping[int, LastRecord]) -> None:
        data = sorted(
            (each.data_offset, producer_id)
            for producer_id, each in last_records.items()
            if each.data_offset is not None
        )
        table = np.array(data, np.int64).reshape(-1, 2)
        self._offsets, self._producers = table[:, 0], table[:, 1]
        self._epochs = {
            producer_id: each.producer_epoch
            for producer_id, each in last_records.items()
            if each.data_offset is None
        }

    def flags(self, batches: RecordBatches) -> Flags:
        """Which of the batches they are."""
        rows = batches.rows
        producers = rows.column(BatchColumn.PRODUCER_ID)
        last_offsets = rows.column(BatchColumn.LAST_OFFSET)
        found: Flags = np.zeros(rows.count, np.bool_)
        if len(self._offsets):
            places = np.searchsorted(self._offsets, last_offsets)
            places[places == len(self._offsets)] = 0
            is_last = self._offsets[places] == last_offsets
            found = is_last & (self._producers[places] == producers)
        if self._epochs:
            epochs = rows.column(BatchColumn.PRODUCER_EPOCH)
            for row in np.flatnonzero(control_flags(batches) & (producers >= 0)).tolist():
                found[row] |= self._epochs.get(int(producers[row])) == epochs[row]
        return found


class BatchOrders(NamedTuple):
    """What the filter is told of each batch of a chunk; see RecordFilter.filter."""

    retention: Int64s
    discard_records: Flags
    marks_empty_transaction: Flags


def batch_orders(
    batches: RecordBatches,
    needless: Flags,
    last_batches: LastBatches,
    *,
    end_offset: int,
    now_ms: int,
    tombstone_rule: TombstoneRule,
) -> BatchOrders:
    """The orders at now_ms. The batch that ends at end_offset, the round's end, stays, if empty.

    A needless marker goes when its delete horizon has passed, or with ``TombstoneRule.DROP``.
    """
    rows = batches.rows
    discards = marks_empty_transaction = needless
    if needless.any():
        is_control = control_flags(batches)
        may_go = _may_go(batches, now_ms, tombstone_rule)
        discards = needless & (~is_control | may_go)
        marks_empty_transaction = needless & is_control
    stays = last_batches.flags(batches) | (rows.column(BatchColumn.LAST_OFFSET) + 1 == end_offset)
    emptied = np.where(discards, int(Retention.DELETE), int(Retention.DELETE_EMPTY))
    retention = np.where(stays, int(Retention.RETAIN_EMPTY), emptied)
    return BatchOrders(retention, discards, marks_empty_transaction)


def _may_go(batches: RecordBatches, now_ms: int, tombstone_rule: TombstoneRule) -> Flags:
    """Which of the batches could go if they are needless markers."""
    rows = batches.rows
    if tombstone_rule is not TombstoneRule.PER_BATCH:
        return np.full(rows.count, tombstone_rule is TombstoneRule.DROP)
    has_horizon = rows.column(BatchColumn.ATTRIBUTES) & _DELETE_HORIZON != 0
    may_go: Flags = has_horizon & (rows.column(BatchColumn.BASE_TIMESTAMP) <= now_ms)
    return may_go
