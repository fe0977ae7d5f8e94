"""What an append will do, worked out before a byte is written: offsets, producer changes, buffers.

Pure but for reading the producer state; writer thread. Source: Kafka's UnifiedLog.append and
analyzeAndValidateProducerState.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.errors import InvalidRequest, OutOfOrderSequence
from kafkalog.format.record_batch import (
    PREFIX_BYTES,
    add_to_sequence,
    is_transactional,
    patch_prefix,
)
from kafkalog.log.appended_batch import AppendedBatch
from kafkalog.log.producer_append_info import ProducerAppendInfo, ProducerBatch
from kafkalog.log.values import (
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    AppendOrigin,
    BatchFacts,
    LogAppendInfo,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.env.filesystem import Buffer
    from kafkalog.log.producer_state import BatchMetadata
    from kafkalog.log.producer_state_manager import ProducerStateManager
    from kafkalog.log.values import CompletedTransaction, ValidatedRecords


class PlacedBatch(NamedTuple):
    """A batch with its final offsets and epoch (-1: none to note)."""

    facts: BatchFacts
    base_offset: int
    last_offset: int
    leader_epoch: int


@dataclass(slots=True)
class ProducerChanges:
    """What the append changes once its bytes are written; with ``duplicates`` nothing is."""

    duplicates: list[BatchMetadata] = field(default_factory=list)
    infos: dict[int, ProducerAppendInfo] = field(default_factory=dict)
    completed: list[CompletedTransaction] = field(default_factory=list)


def place(records: ValidatedRecords, log_end_offset: int, leader_epoch: int) -> list[PlacedBatch]:
    """Offsets for every batch; REPLICATION keeps its own, which must rise from the log end."""
    placed: list[PlacedBatch] = []
    next_offset = log_end_offset
    for batch in records.batches:
        base_offset, epoch = next_offset, leader_epoch
        if records.origin is AppendOrigin.REPLICATION:
            base_offset, epoch = batch.base_offset, batch.leader_epoch
            if base_offset < next_offset or batch.last_offset_delta < 0:
                raise InvalidRequest(
                    f"Unexpected offset {base_offset} in append: the next is {next_offset}",
                    log_end_offset=log_end_offset,
                )
        last_offset = base_offset + batch.last_offset_delta
        placed.append(PlacedBatch(batch, base_offset, last_offset, epoch))
        next_offset = last_offset + 1
    return placed


def check_producers(
    producers: ProducerStateManager, origin: AppendOrigin, placed: Sequence[PlacedBatch]
) -> ProducerChanges:
    """Sequence and epoch rules of each batch in turn.

    A set whose batches are all stored already is a retry. One that mixes stored and new batches is
    refused whole: to drop the new ones, as Kafka's log does with what follows a duplicate, would
    acknowledge what was never written (Kafka's produce API takes one batch a partition).
    """
    changes = ProducerChanges()
    for placed_batch in placed:
        if placed_batch.facts.producer_id == NO_PRODUCER_ID:
            continue
        batch = _producer_batch(placed_batch)
        info, entry = changes.infos.get(batch.producer_id), producers.entries.get(batch.producer_id)
        if origin is AppendOrigin.CLIENT:
            producers.check_client(batch, entry if info is None else info.updated)
        if origin is AppendOrigin.CLIENT and entry is not None:
            duplicate = entry.find_batch(
                batch.producer_epoch, batch.first_sequence, batch.last_sequence
            )
            if duplicate is not None:
                changes.duplicates.append(duplicate)
                continue
        if info is None:
            info = producers.prepare(batch.producer_id, origin)
            changes.infos[batch.producer_id] = info
        ended = info.append(batch)
        if ended is not None:
            changes.completed.append(ended)
    if changes.duplicates and len(changes.duplicates) != len(placed):
        raise OutOfOrderSequence(
            f"{len(changes.duplicates)} of {len(placed)} batches are stored already; nothing was "
            "appended. Send the others alone."
        )
    return changes


def gather(placed: Sequence[PlacedBatch]) -> tuple[list[Buffer], list[AppendedBatch]]:
    """A new 16-byte prefix beside each untouched payload, and the facts for the segment."""
    buffers: list[Buffer] = []
    batches: list[AppendedBatch] = []
    for facts, base_offset, last_offset, epoch in placed:
        data = memoryview(facts.data)
        buffers.append(patch_prefix(data, base_offset, epoch))
        buffers.append(data[PREFIX_BYTES:])
        batches.append(AppendedBatch(base_offset, last_offset, len(data), facts.max_timestamp_ms))
    return buffers, batches


def answer(
    records: ValidatedRecords, first_offset: int, last_offset: int, log_start_offset: int
) -> LogAppendInfo:
    """What an append is told when its bytes are written."""
    _, size_bytes, record_count, max_timestamp_ms, log_append_time_ms, _ = records
    return LogAppendInfo(
        first_offset,
        last_offset,
        log_append_time_ms,
        max_timestamp_ms,
        log_start_offset,
        record_count,
        size_bytes,
    )


def duplicate_answer(
    records: ValidatedRecords, stored: Sequence[BatchMetadata], log_start_offset: int
) -> LogAppendInfo:
    """What a retry is told: as the first attempt was."""
    first = stored[0]
    is_stamped = records.log_append_time_ms != NO_TIMESTAMP
    return LogAppendInfo(
        first_offset=first.first_offset,
        last_offset=stored[-1].last_offset,
        log_append_time_ms=first.timestamp_ms if is_stamped else NO_TIMESTAMP,
        max_timestamp_ms=first.timestamp_ms,
        log_start_offset=log_start_offset,
        record_count=sum(batch.offset_delta + 1 for batch in stored),
        size_bytes=0,
        duplicate=True,
    )


def _producer_batch(placed: PlacedBatch) -> ProducerBatch:
    """A validated batch as the producer state sees it."""
    facts = placed.facts
    last_sequence = facts.base_sequence
    if last_sequence != NO_SEQUENCE:
        last_sequence = add_to_sequence(last_sequence, facts.last_offset_delta)
    return ProducerBatch(
        producer_id=facts.producer_id,
        producer_epoch=facts.producer_epoch,
        first_sequence=facts.base_sequence,
        last_sequence=last_sequence,
        first_offset=placed.base_offset,
        last_offset=placed.last_offset,
        max_timestamp_ms=facts.max_timestamp_ms,
        is_transactional=is_transactional(facts.attributes),
        control_type=facts.control_type,
        coordinator_epoch=facts.coordinator_epoch,
    )
