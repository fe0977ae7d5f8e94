"""Rot or torn tail: what recovery does with the first bad batch of a segment (design 4.27).

``kafka`` cuts the segment there, as Kafka does. ``keep`` first asks what follows: when the batch's
declared size leads to a valid batch with the expected offset, single bytes rotted and everything
behind is good, so nothing is cut (readers of that one batch get CorruptBatch, its neighbours are
served); anything else is a torn tail, which is copied to ``<base>.log.<position>.torn`` (a name
that Kafka's loader ignores) and then cut. A batch whose size field itself rotted cannot be stepped
over by any reader of the format and counts as torn.
Runs in the loader; reads the segment once more before recovery proper, so that nothing is cut
before it was judged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import structlog

from kafkalog.errors import CorruptBatch
from kafkalog.format.batch_scan import BatchColumn, ScanStop, scan
from kafkalog.format.record_batch import (
    HEADER_BYTES,
    LEADER_EPOCH_AT,
    LEGACY_LENGTH_MIN,
    LENGTH_AT,
    MAGIC_AT,
    MAGIC_V2,
    MalformedBatch,
    read_header,
)
from kafkalog.log.index_cadence import IndexCadence
from kafkalog.log.offset_index import offset_entries
from kafkalog.log.segment_read import read_chunk, scan_chunks
from kafkalog.log.time_index import time_entries
from kafkalog.log.values import MAX_RELATIVE_OFFSET, NO_TIMESTAMP, TimestampOffset

if TYPE_CHECKING:
    from kafkalog.env.filesystem import Filesystem
    from kafkalog.log.log_segment import LogSegment
    from kafkalog.log.segment_recovery import OnBatches

_log = structlog.get_logger(__name__)

TORN_SUFFIX = ".torn"
LONG_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class BadSpot:
    """The first byte of a segment that is no good batch."""

    position: int
    stop: ScanStop


def find_bad(segment: LogSegment, start: int = 0) -> BadSpot | None:
    """First bad batch from ``start`` on; None when the segment is sound to its end."""
    position, stop = start, ScanStop.END
    for chunk in scan_chunks(segment, start, segment.size_bytes, check_crc=True):
        position, stop = chunk.position + chunk.rows.consumed_bytes, chunk.rows.stop
        if stop not in (ScanStop.END, ScanStop.PARTIAL):
            break
    return None if position >= segment.size_bytes else BadSpot(position, stop)


def has_whole_tail(segment: LogSegment) -> bool:
    """Whether a segment ends with a whole batch; reads headers behind the last index entry only."""
    position = segment.floor_position(LONG_MAX)
    for chunk in scan_chunks(segment, position, segment.size_bytes, check_crc=False):
        position = chunk.position + chunk.rows.consumed_bytes
    return position == segment.size_bytes


def refuse_legacy(segment: LogSegment, bad: BadSpot) -> None:
    """Message sets of magic 0 and 1 are not served: the partition is, not the batch (4.17)."""
    if bad.stop is ScanStop.LEGACY:
        raise CorruptBatch(
            "message set of format v0 or v1: convert it with Apache Kafka before 4.0",
            file=segment.log_file.path,
            position=bad.position,
        )


def has_legacy_start(segment: LogSegment) -> BadSpot | None:
    """The first batch, if it is a legacy message set."""
    if segment.size_bytes <= MAGIC_AT:
        return None
    head = segment.log_file.acquire().pread(MAGIC_AT + 1, 0)
    length = int.from_bytes(head[LENGTH_AT:LEADER_EPOCH_AT], "big", signed=True)
    is_legacy = len(head) > MAGIC_AT and head[MAGIC_AT] < MAGIC_V2 and length >= LEGACY_LENGTH_MIN
    return BadSpot(0, ScanStop.LEGACY) if is_legacy else None


def is_rot(segment: LogSegment, bad: BadSpot) -> bool:
    """Whether a valid batch with the expected offset follows the bad one."""
    if bad.stop is not ScanStop.BAD_CRC:
        return False
    file = segment.log_file.acquire()
    try:
        header = read_header(file.pread(HEADER_BYTES, bad.position))
        after = bad.position + header.size_bytes
        follower = read_header(file.pread(HEADER_BYTES, after))
    except MalformedBatch:
        return False
    if follower.base_offset != header.next_offset or header.last_offset_delta < 0:
        return False
    return scan(file.pread(follower.size_bytes, after), check_crc=True).count == 1


def keep_torn_bytes(filesystem: Filesystem, segment: LogSegment, bad: BadSpot) -> str:
    """Copy what will be cut to a file beside the segment, synced; its path."""
    path = f"{segment.log_file.path}.{bad.position}{TORN_SUFFIX}"
    data = read_chunk(
        segment.log_file.acquire(), bad.position, segment.size_bytes - bad.position, may_block=True
    )
    file = filesystem.open_write(path)
    file.truncate(0)
    file.pwrite(data, 0)
    file.sync()
    file.close()
    _log.error("torn_tail_kept", path=path, bytes=len(data))
    return path


def recover_around_rot(segment: LogSegment, on_batches: OnBatches) -> BadSpot | None:
    """Recover a segment without cutting at batches that only rotted.

    Indexes are rebuilt over all batches, ``on_batches`` hears of the sound ones. Returns the spot
    at which even this walk ended (a torn tail, to be cut by plain recovery), None at the end.
    """
    rotten = _rotten_spots(segment)
    if isinstance(rotten, BadSpot):
        return rotten
    base = segment.base_offset
    segment.transaction_index.reset()
    cadence = IndexCadence(segment.index_interval_bytes)
    for chunk in scan_chunks(segment, 0, segment.size_bytes, check_crc=False):
        rows = chunk.rows
        if rows.column(BatchColumn.LAST_OFFSET).max(initial=0) - base > MAX_RELATIVE_OFFSET:
            raise CorruptBatch(
                "an offset is more than 2^31 - 1 above the segment's base, and batches rotted",
                file=segment.log_file.path,
                position=chunk.position,
            )
        cadence.add(rows, chunk.position)
        is_sound = ~np.isin(rows.column(BatchColumn.POSITION) + chunk.position, rotten)
        on_batches(type(rows)(rows.table[is_sound], rows.stop, rows.stop_position, 0), chunk.data)
    offsets = cadence.offset_entries()[: segment.offset_index.max_entries]
    times = cadence.time_entries()[: max(segment.time_index.max_entries - 1, 0)]
    segment.log_file.pin_for_write()
    segment.offset_index.replace_entries(offset_entries(offsets[:, 0] - base, offsets[:, 1]))
    segment.time_index.replace_entries(time_entries(times[:, 0], times[:, 1] - base))
    largest = cadence.largest or TimestampOffset(NO_TIMESTAMP, base)
    segment.restore(segment.size_bytes, largest)
    segment.seal()
    for position in rotten:
        _log.error("rotten_batch_kept", path=segment.log_file.path, position=position)
    return None


def _rotten_spots(segment: LogSegment) -> list[int] | BadSpot:
    """Positions of rotten batches when all other bytes are sound; else where the tail is torn."""
    rotten: list[int] = []
    bad = find_bad(segment)
    while bad is not None:
        if not is_rot(segment, bad):
            return bad
        rotten.append(bad.position)
        header = read_header(segment.log_file.acquire().pread(HEADER_BYTES, bad.position))
        bad = find_bad(segment, bad.position + header.size_bytes)
    return rotten
