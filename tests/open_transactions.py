"""Transactions of another system's in our logs: batches and markers of a coordinator not here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.broker.directory.commands import AppendCommand
from kafkalog.broker.values import Acks
from kafkalog.format.records.control_record import ControlRecordType, build_end_transaction_marker
from kafkalog.format.records.record_batch import patch_prefix
from kafkalog.log.validator import validate
from kafkalog.log.values import AppendOrigin
from tests.partition_world import NOW_MS, batch

if TYPE_CHECKING:
    from tests.sim.sim_manager import SimManager


def replicate(sim: SimManager, data: bytes, topic: str = "t", partition: int = 0) -> None:
    """Append a batch at the end of a log as it is, as a directory that was adopted has it."""
    log = sim.manager.logs.log_of(topic, partition)
    placed = patch_prefix(data, log.log_end_offset, 0) + data[16:]
    records = validate(
        placed, log.config, 0, AppendOrigin.REPLICATION, max_decompressed_bytes=len(placed)
    )
    sim.manager.logs.unit_of(log).writer.run(AppendCommand(log, records, Acks.ALL, None, None))


def left_open(producer_id: int, *values: str, epoch: int = 0, sequence: int = 0) -> bytes:
    """A batch of a transaction that no marker has ended."""
    return batch(values, producer=(producer_id, epoch, sequence), is_transactional=True)


def marker_of(producer_id: int, kind: ControlRecordType, *, epoch: int, coordinator: int) -> bytes:
    """A marker of a coordinator in that epoch of its own."""
    return build_end_transaction_marker(producer_id, epoch, coordinator, kind, timestamp_ms=NOW_MS)
