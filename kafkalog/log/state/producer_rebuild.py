"""Producer state from the batches of a log: after a load, a truncation, and during recovery.

Batches come as rows of a chunk. Of producers without transactions only the last five rows of each
matter, so a chunk costs a few numpy calls and at most five Python steps a producer; rows of
transactional producers are applied one by one. Writer thread or loader.
Source: Kafka's UnifiedLog.rebuildProducerState and loadProducersFromRecords.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kafkalog.format.records.batch_scan import BatchColumn
from kafkalog.format.records.control_record import read_batch_marker
from kafkalog.format.records.record_batch import (
    NO_SEQUENCE,
    add_to_sequence,
    is_control,
    is_transactional,
)
from kafkalog.log.segment.index_repair import verified_floor
from kafkalog.log.segment.segment_file import scan_chunks
from kafkalog.log.state.producer_state import BATCHES_TO_RETAIN, ProducerBatch
from kafkalog.log.values import AppendOrigin

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from kafkalog.log.local_log import LogSegments
    from kafkalog.log.state.producer_state_manager import ProducerStateManager
    from kafkalog.log.values import CompletedTransaction

    Rows = npt.NDArray[np.int64]
    OnCompleted = Callable[[CompletedTransaction], None]

_TRANSACTION_BITS = 0x30  # transactional, control
SNAPSHOTS_AT_LAST_SEGMENTS = 2


def apply_rows(
    manager: ProducerStateManager,
    table: Rows,
    data: memoryview,
    on_completed: OnCompleted | None = None,
) -> None:
    """Apply these rows to the manager; ``data`` is the chunk that they point into.

    ``on_completed`` hears of each transaction before the manager closes it.
    """
    chosen = np.flatnonzero(table[:, BatchColumn.PRODUCER_ID] >= 0)
    if not len(chosen):
        return
    if not (table[chosen, BatchColumn.ATTRIBUTES] & _TRANSACTION_BITS).any():
        chosen = _last_rows_of_each(table, chosen)
    for row in chosen.tolist():
        batch = _producer_batch(table[row].tolist(), data)
        if batch is None:
            continue
        info = manager.prepare(batch.producer_id, AppendOrigin.REPLICATION)
        completed = info.append(batch)
        manager.update(info)
        if completed is not None:
            if on_completed is not None:
                on_completed(completed)
            manager.complete(completed)


def _last_rows_of_each(table: Rows, chosen: Rows) -> Rows:
    """At most the last five rows of each producer, in the order of the log."""
    ids = table[chosen, BatchColumn.PRODUCER_ID]
    order = np.argsort(ids, kind="stable")
    grouped = ids[order]
    ends = np.searchsorted(grouped, grouped, side="right")
    is_late = ends - np.arange(len(order)) <= BATCHES_TO_RETAIN
    return np.sort(chosen[order[is_late]])


def _producer_batch(row: list[int], data: memoryview) -> ProducerBatch | None:
    """One row as a producer's batch; None for a control batch without a marker of one."""
    attributes = row[BatchColumn.ATTRIBUTES]
    base_offset, last_offset = row[BatchColumn.BASE_OFFSET], row[BatchColumn.LAST_OFFSET]
    first_sequence = last_sequence = row[BatchColumn.BASE_SEQUENCE]
    if first_sequence != NO_SEQUENCE:
        last_sequence = add_to_sequence(first_sequence, last_offset - base_offset)
    control_type: int | None = None
    coordinator_epoch = -1
    if is_control(attributes):
        position = row[BatchColumn.POSITION]
        marker = read_batch_marker(data[position : position + row[BatchColumn.SIZE]])
        if marker is None:
            return None
        control_type, coordinator_epoch = int(marker.control_type), marker.coordinator_epoch
    return ProducerBatch(
        producer_id=row[BatchColumn.PRODUCER_ID],
        producer_epoch=row[BatchColumn.PRODUCER_EPOCH],
        first_sequence=first_sequence,
        last_sequence=last_sequence,
        first_offset=base_offset,
        last_offset=last_offset,
        max_timestamp_ms=row[BatchColumn.MAX_TIMESTAMP],
        is_transactional=is_transactional(attributes),
        control_type=control_type,
        coordinator_epoch=coordinator_epoch,
    )


def rebuild(
    manager: ProducerStateManager,
    segments: LogSegments,
    log_start_offset: int,
    last_offset: int,
    now_ms: int,
    *,
    is_clean: bool,
    before_chunk: Callable[[], None] | None = None,
) -> None:
    """Make the manager's state that of ``last_offset``, scanning as little as possible.

    From the newest usable snapshot on; after a clean stop without any snapshot nothing is scanned
    (such a log has no producers). Snapshots are written (unsynced) at the last two segment bases
    and at ``last_offset``. What ``before_chunk`` raises ends the scan.
    """
    newest = segments.values[-SNAPSHOTS_AT_LAST_SEGMENTS:]  # also one that is empty, or past it
    snapshot_at = {*(segment.base_offset for segment in newest), last_offset}
    if is_clean and not manager.snapshot_offsets:
        for offset in sorted(snapshot_at):
            manager.end_offset = offset
            manager.take_snapshot(sync=False)
        return
    manager.truncate_and_reload(log_start_offset, last_offset, now_ms)
    if last_offset > manager.end_offset:
        for segment in segments.values_between(manager.end_offset, last_offset):
            start = max(segment.base_offset, manager.end_offset, log_start_offset)
            manager.end_offset = start
            if segment.base_offset in snapshot_at and start == segment.base_offset:
                manager.take_snapshot(sync=False)
            position = verified_floor(segment, start).position
            for chunk in scan_chunks(
                segment.log_file, position, segment.size_bytes, check_crc=False
            ):
                if before_chunk is not None:
                    before_chunk()
                table = chunk.rows.table
                is_wanted = table[:, BatchColumn.LAST_OFFSET] >= start
                is_wanted &= table[:, BatchColumn.BASE_OFFSET] < last_offset
                apply_rows(manager, table[is_wanted], chunk.data)
    manager.end_offset = last_offset
    manager.take_snapshot(sync=False)
