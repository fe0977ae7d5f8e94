"""What appends will do, computed before a byte is written: offsets, producer changes, buffers.

``assign_offsets``, ``check_producers`` and ``gather`` are the steps of one append (Kafka's
UnifiedLog.append and analyzeAndValidateProducerState). ``plan_group`` combines neighbouring appends
of one log into one write. A plain set (``is_plain``) changes nothing but the segment, the log end
and the watermark, so sets in a row can share one gather write and one move of the log end. Each
set is measured against the same ``SegmentRoom`` as a lone append, and the first one that would roll
ends the group: files and answers are those of appending one by one. An empty segment, an epoch to
note and a set that is too large end it too and take ``UnifiedLog.append``.

Pure but for reading the producer state; writer thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kafkalog.errors import InvalidRequest, OutOfOrderSequence
from kafkalog.format.records.record_batch import (
    PREFIX_BYTES,
    add_to_sequence,
    is_transactional,
    pack_prefix,
    patch_prefix,
)
from kafkalog.kernels.records.usual_batch import number_batches
from kafkalog.log.state.producer_state import ProducerAppendInfo, ProducerBatch
from kafkalog.log.values import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    AppendedBatch,
    AppendOrigin,
    BatchFacts,
    LogAppendInfo,
    ValidatedRecords,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.env.filesystem import Buffer
    from kafkalog.log.segment.log_segment import SegmentRoom
    from kafkalog.log.state.producer_state import BatchMetadata
    from kafkalog.log.state.producer_state_manager import ProducerStateManager
    from kafkalog.log.values import CompletedTransaction


class BatchWithOffsets(NamedTuple):
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


def assign_offsets(
    records: ValidatedRecords, log_end_offset: int, leader_epoch: int
) -> list[BatchWithOffsets]:
    """Offsets for every batch; REPLICATION keeps its own, which must rise from the log end."""
    assigned: list[BatchWithOffsets] = []
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
        assigned.append(BatchWithOffsets(batch, base_offset, last_offset, epoch))
        next_offset = last_offset + 1
    return assigned


def check_producers(
    producers: ProducerStateManager, origin: AppendOrigin, batches: Sequence[BatchWithOffsets]
) -> ProducerChanges:
    """Sequence and epoch rules of each batch in turn.

    A set whose batches are all stored already is a retry. One that mixes stored and new batches is
    refused whole: to drop the new ones, as Kafka's log does with what follows a duplicate, would
    acknowledge what was never written (Kafka's produce API takes one batch a partition).
    """
    changes = ProducerChanges()
    for each in batches:
        if each.facts.producer_id == NO_PRODUCER_ID:
            continue
        batch = _producer_batch(each)
        info, entry = changes.infos.get(batch.producer_id), producers.entries.get(batch.producer_id)
        if origin is AppendOrigin.CLIENT:
            producers.check_producer(batch, entry if info is None else info.updated)
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
    if changes.duplicates and len(changes.duplicates) != len(batches):
        raise OutOfOrderSequence(
            f"{len(changes.duplicates)} of {len(batches)} batches are stored already; nothing was "
            "appended. Send the others alone."
        )
    return changes


def gather(batches: Sequence[BatchWithOffsets]) -> tuple[list[Buffer], list[AppendedBatch]]:
    """A new 16-byte prefix beside each untouched payload, and the facts for the segment."""
    buffers: list[Buffer] = []
    appended: list[AppendedBatch] = []
    for facts, base_offset, last_offset, epoch in batches:
        data = memoryview(facts.data)
        buffers.append(patch_prefix(data, base_offset, epoch))
        buffers.append(data[PREFIX_BYTES:])
        appended.append(AppendedBatch(base_offset, last_offset, len(data), facts.max_timestamp_ms))
    return buffers, appended


def answer(
    records: ValidatedRecords, first_offset: int, last_offset: int, log_start_offset: int
) -> LogAppendInfo:
    """The answer of an append whose bytes are written."""
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
    """The answer of a retry: that of the first attempt."""
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


def _producer_batch(batch: BatchWithOffsets) -> ProducerBatch:
    """A validated batch as the producer state sees it."""
    facts = batch.facts
    last_sequence = facts.base_sequence
    if last_sequence != NO_SEQUENCE:
        last_sequence = add_to_sequence(last_sequence, facts.last_offset_delta)
    return ProducerBatch(
        producer_id=facts.producer_id,
        producer_epoch=facts.producer_epoch,
        first_sequence=facts.base_sequence,
        last_sequence=last_sequence,
        first_offset=batch.base_offset,
        last_offset=batch.last_offset,
        max_timestamp_ms=facts.max_timestamp_ms,
        is_transactional=is_transactional(facts.attributes),
        control_type=facts.control_type,
        coordinator_epoch=facts.coordinator_epoch,
    )


@dataclass(slots=True)
class JoinedBatches:
    """Plain sets of one batch each, of several clients: their bytes back to back, and facts."""

    data: bytearray = field(default_factory=bytearray)
    sizes: list[int] = field(default_factory=list)  # bytes
    counts: list[int] = field(default_factory=list)  # records
    timestamps_ms: list[int] = field(default_factory=list)  # the greatest of each

    def add(self, batch: bytes | memoryview, record_count: int, max_timestamp_ms: int) -> None:
        """One more, as ``validate_usual`` takes it, without a producer id."""
        self.data += batch
        self.sizes.append(len(batch))
        self.counts.append(record_count)
        self.timestamps_ms.append(max_timestamp_ms)

    def split(self) -> list[ValidatedRecords]:
        """Each set by itself."""
        sets: list[ValidatedRecords] = []
        data, position = memoryview(bytes(self.data)), 0
        for size, count, max_ms in zip(self.sizes, self.counts, self.timestamps_ms, strict=True):
            facts = BatchFacts(
                data[position : position + size],
                count,
                count - 1,
                max_ms,
                0,
                NO_PRODUCER_ID,
                NO_PRODUCER_EPOCH,
                NO_SEQUENCE,
            )
            sets.append(
                ValidatedRecords((facts,), size, count, max_ms, NO_TIMESTAMP, AppendOrigin.CLIENT)
            )
            position += size
        return sets


BATCHES_MAX = 512  # two buffers each: one system call takes 1024
BYTES_MAX = 1 << 20  # larger writes gain nothing, and all of a group fail together


@dataclass(eq=False, slots=True)
class AppendGroup:
    """Sets in a row with their offsets; ``answers`` and ``is_synced`` have one entry a set."""

    first_offset: int  # the log end it was planned for
    first_synced: int | None = None  # base offset of the first set that needs a flush
    size_bytes: int = 0
    buffers: list[Buffer] = field(default_factory=list)
    batches: list[AppendedBatch] = field(default_factory=list)
    answers: list[LogAppendInfo] = field(default_factory=list)
    is_synced: list[bool] = field(default_factory=list)


def is_plain(records: ValidatedRecords) -> bool:
    """Whether a set is a client's, without a producer id, and not empty."""
    if records.origin is not AppendOrigin.CLIENT or not records.batches:
        return False
    for batch in records.batches:  # noqa: SIM110 - a generator costs more than one look
        if batch.producer_id != NO_PRODUCER_ID:
            return False
    return True


def plan_group(
    sets: Sequence[ValidatedRecords],
    synced: Sequence[bool],
    start: int,
    room: SegmentRoom,
    *,
    log_start_offset: int,
    log_end_offset: int,
    leader_epoch: int,
    synced_from: int,
) -> AppendGroup:
    """The longest group from ``sets[start]`` on; no answers when that one is to be appended alone.

    All sets are plain. ``room`` is compared as by SegmentRoom.holds, with the sums of the group.
    ``synced``: readable only after the flush that covers it; so is any set that reaches
    ``synced_from`` (``flush.messages``).
    """
    next_offset = log_end_offset
    group = AppendGroup(next_offset)
    buffers, batches, answers = group.buffers, group.batches, group.answers
    size_left = room.size_bytes
    batches_max = min(room.index_entries, BATCHES_MAX)  # each may fill a slot of an index
    bytes_left = BYTES_MAX
    for index in range(start, len(sets)):
        records = sets[index]
        size = records.size_bytes
        first_offset = next_offset
        for facts in records.batches:
            next_offset += facts.last_offset_delta + 1
        fits = size <= size_left and size <= bytes_left
        if not fits or len(batches) + len(records.batches) > batches_max:
            break
        if records.max_timestamp_ms > room.timestamp_ms or next_offset - 1 > room.last_offset:
            break
        base_offset = first_offset
        for facts in records.batches:
            data = memoryview(facts.data)
            last_offset = base_offset + facts.last_offset_delta
            buffers.append(pack_prefix(len(data), base_offset, leader_epoch))
            buffers.append(data[PREFIX_BYTES:])
            batches.append(
                AppendedBatch(base_offset, last_offset, len(data), facts.max_timestamp_ms)
            )
            base_offset = last_offset + 1
        size_left -= size
        bytes_left -= size
        group.size_bytes += size
        is_synced = synced[index] or first_offset + records.record_count >= synced_from
        if is_synced and group.first_synced is None:
            group.first_synced = first_offset
        group.is_synced.append(is_synced)
        answers.append(answer(records, first_offset, next_offset - 1, log_start_offset))
    return group


def plan_joined(
    joined: JoinedBatches,
    room: SegmentRoom,
    *,
    log_start_offset: int,
    log_end_offset: int,
    leader_epoch: int,
    synced: bool,
    synced_from: int,
) -> AppendGroup | None:
    """One group of them all; None when ``plan_group`` may end before the last.

    ``synced`` and ``synced_from`` as of ``plan_group``.
    """
    data = joined.data
    end = log_end_offset + sum(joined.counts)
    if (
        len(data) > room.size_bytes
        or len(joined.sizes) > room.index_entries
        or max(joined.timestamps_ms) > room.timestamp_ms
        or end - 1 > room.last_offset
        or (not synced and end >= synced_from)
    ):
        return None
    number_batches(np.frombuffer(data, np.uint8), log_end_offset, leader_epoch)
    first_synced = log_end_offset if synced else None
    group = AppendGroup(log_end_offset, first_synced, len(data), [data])
    group.is_synced = [synced] * len(joined.sizes)
    offset = log_end_offset
    for size, count, max_ms in zip(joined.sizes, joined.counts, joined.timestamps_ms, strict=True):
        last = offset + count - 1
        group.batches.append(AppendedBatch(offset, last, size, max_ms))
        group.answers.append(
            LogAppendInfo(offset, last, NO_TIMESTAMP, max_ms, log_start_offset, count, size)
        )
        offset += count
    return group
