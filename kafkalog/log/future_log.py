"""The copy of a log on its way to another log directory: what it takes from the current log.

Owns no state: reads the current log, which goes on serving, and changes the copy (``future``) on
the writer thread of its own directory. Batches are copied as bytes with their offsets, so the copy
may have other segments than the original, as in Kafka. Source: Kafka's ReplicaAlterLogDirsThread,
UnifiedLog.appendAsFollower.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafkalog.log.validator import validate
from kafkalog.log.values import AppendOrigin, Isolation

if TYPE_CHECKING:
    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.log.values import ValidatedRecords


class Slice(NamedTuple):
    """Whole batches in the order of the log; ``end_offset``: no other batch lies below it."""

    records: ValidatedRecords | None  # None: there is no batch before end_offset
    end_offset: int


def read_slice(current: UnifiedLog, offset: int, max_bytes: int) -> Slice:
    """What follows at ``offset`` and is live, each CRC checked; one batch at least, however large.

    Also what is not durable yet. Errors as of ``UnifiedLog.read``: corrupt bytes are not copied.
    OffsetBelowLogStart: records were deleted this moment, try again.
    """
    end_offset = current.log_end_offset  # before the read: what it does not see lies past this
    limit = min(max_bytes, current.config.max_segment_bytes)
    found = current.read(max(offset, current.log_start_offset), limit, Isolation.LOG_END)
    if not found.data:
        return Slice(None, end_offset)
    records = validate(
        found.data, current.config, 0, AppendOrigin.REPLICATION, max_decompressed_bytes=0
    )
    return Slice(records, found.next_offset)


def fill(future: UnifiedLog, piece: Slice) -> None:
    """Append the slice; without batches the log end moves over the gap. As ``UnifiedLog.append``.

    A gap at the end is what compaction or a roll left; the next offset must stay what it is.
    """
    if piece.records is not None:
        future.append(piece.records, synced=False)
    elif piece.end_offset > future.log_end_offset:
        future.roll(piece.end_offset)


def start_of_copy(current: UnifiedLog) -> int:
    """Where an empty copy begins: at the batch that holds the log start, which may lie inside."""
    start = current.log_start_offset
    found = current.read(start, 1, Isolation.LOG_END)
    return min(found.base_offset, start) if found.data else start


def inherit(future: UnifiedLog, current: UnifiedLog) -> None:
    """Take what the batches do not hold: log start, leader epochs, producers of deleted records.

    Both logs end at the same offset and nothing is appended meanwhile. In memory but for the
    producer snapshot; the next flush makes all of it durable.
    """
    assert future.log_end_offset == current.log_end_offset, "the copy has not caught up"
    future.increment_log_start_offset(current.log_start_offset, "leader offset increment")
    take_epochs(future, current)
    is_told_by_batches = current.producers.entries.keys() <= future.producers.entries.keys()
    future.take_over_producers(current.producers)
    if is_told_by_batches or not future.local.active_segment.size_bytes:
        future.take_producer_snapshot()
    else:  # recovery reads the last segment again and begins with the snapshot at its base
        future.roll()


def take_epochs(future: UnifiedLog, current: UnifiedLog) -> None:
    """The current log's leader epochs, also those in which nothing was written."""
    if future.epochs.entries != current.epochs.entries:
        future.epochs.clear()
        for entry in current.epochs.entries:
            future.epochs.assign(entry.epoch, entry.start_offset)


def is_beginning_of(future: UnifiedLog, current: UnifiedLog, end_offset: int) -> bool:
    """Whether all that a copy found at the start holds is the current log's, up to end_offset.

    It is when its last batch is: the logs part where a crash took an end from the current log and
    other records followed, and from there on no batch is the same.
    """
    last_offset = future.log_end_offset - 1
    start = max(future.log_start_offset, current.log_start_offset)
    if not start <= last_offset < end_offset:
        return False
    last = future.read(last_offset, 1, Isolation.LOG_END)
    original = current.read(last_offset, 1, Isolation.LOG_END)
    return len(last.data) > 0 and bytes(last.data) == bytes(original.data)
