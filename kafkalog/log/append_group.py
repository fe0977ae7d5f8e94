"""Neighbouring appends of one log as one write: what they become, worked out before a byte moves.

Theory. A plain set (``is_plain``) changes nothing but segment, log end and watermark, so sets that
follow each other can share one gather write and one move of the log end. Every set is measured
against the same room in the active segment (``segment_roll``) that a lone append asks for, and the
first one that would roll ends the group: files and answers are those of appending one by one. What
is not decided here ends the group too and takes ``UnifiedLog.append``: an empty segment, an epoch
to note, a set that is too large. Pure, no I/O; writer thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.format.record_batch import PREFIX_BYTES, pack_prefix
from kafkalog.log.append_plan import answer
from kafkalog.log.appended_batch import AppendedBatch
from kafkalog.log.values import NO_PRODUCER_ID, AppendOrigin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.env.filesystem import Buffer
    from kafkalog.log.segment_roll import SegmentRoom
    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.log.values import LogAppendInfo, ValidatedRecords

BATCHES_MAX = 512  # two buffers each: one system call takes 1024
BYTES_MAX = 1 << 20  # larger writes gain nothing, and all of a group fail together


class AppendGroup:
    """Sets in a row with their offsets; ``answers`` and ``is_synced`` have one entry a set."""

    __slots__ = (
        "answers",
        "batches",
        "buffers",
        "first_offset",
        "first_synced",
        "is_synced",
        "size_bytes",
    )

    def __init__(self, first_offset: int) -> None:
        """Nothing yet; ``first_offset`` is the log end it was planned for."""
        self.first_offset = first_offset
        self.first_synced: int | None = None  # base offset of the first set that needs a flush
        self.size_bytes = 0
        self.buffers: list[Buffer] = []
        self.batches: list[AppendedBatch] = []
        self.answers: list[LogAppendInfo] = []
        self.is_synced: list[bool] = []


def is_plain(records: ValidatedRecords) -> bool:
    """Whether a set is a client's, of nobody's producer id, and not empty."""
    if records.origin is not AppendOrigin.CLIENT or not records.batches:
        return False
    for batch in records.batches:  # noqa: SIM110 - a generator costs more than one look
        if batch.producer_id != NO_PRODUCER_ID:
            return False
    return True


def plan(
    log: UnifiedLog, sets: Sequence[ValidatedRecords], synced: Sequence[bool], start: int = 0
) -> AppendGroup:
    """The longest group from ``sets[start]`` on; no answers when that one is to be appended alone.

    All sets are plain. ``synced``: readable only after the flush that covers it; so is any set that
    brings the records in danger up to ``flush.messages``.
    """
    next_offset = log.log_end_offset
    group = AppendGroup(next_offset)
    room, latest = _room(log), log.epochs.latest
    if room is None or latest is None or latest.start_offset > next_offset:
        return group
    buffers, batches, answers = group.buffers, group.batches, group.answers
    size_left = room.size_bytes
    batches_max = min(room.index_entries, BATCHES_MAX)  # each may fill a slot of an index
    start_offset = log.log_start_offset
    synced_from = log.recovery_point + log.config.flush_messages
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
            buffers.append(pack_prefix(len(data), base_offset, latest.epoch))
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
        answers.append(answer(records, first_offset, next_offset - 1, start_offset))
    return group


def _room(log: UnifiedLog) -> SegmentRoom | None:
    """Of the active segment; None when an append alone has to look."""
    if log.is_broken:  # first: a deleted log has no segment
        return None
    segment = log.local.active_segment
    if not segment.size_bytes or not segment.is_first_timestamp_known:
        return None
    return log.room()
