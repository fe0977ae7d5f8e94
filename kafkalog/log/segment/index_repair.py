"""Where a read or a walk goes on when an index entry or bytes of the ``.log`` mislead.

``verified_floor`` and ``place_past`` compare entries of the offset index with the ``.log``. An
index has no checksum. An entry is believed when the batch it points to ends with its offset. It is
also believed when that batch is whole, its CRC is right and it ends earlier (a set of batches may
have one entry, of its last offset), or when its last record has the entry's offset: Kafka's cleaner
wrote one entry a set with the offset of the last record it kept, where the batch may go on.
Anything else shows that the entry or the log is damaged. An entry that points to an earlier batch
costs only a longer walk. Cost: one batch for each entry tried, which are the 1st, 2nd, 4th...
before; then each byte from there to the target once.

``next_offset`` and ``has_whole_tail`` walk over the last batches of a segment, from such an entry.

``next_verified_batch`` finds where batches go on after bytes that are no batch. Those bytes were
one batch when its CRC is right up to a sound batch of later offsets, or to the end of the segment,
or when that batch begins at the offset where the header says that it ended. Otherwise the next
index entry that leads to its batch is believed. A sound batch alone proves nothing: a record may
hold the bytes of one. Cost: the bytes up to the next index entry once, and a CRC over them for at
most ``FOLLOWERS_TRIED`` sound batches among them.

Asked when something did not fit, never on the way of a sound fetch. Any thread that may block;
changes no file.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import structlog

from kafkalog.errors import CorruptIndex, InvalidRequest
from kafkalog.format.integers import INT64_MAX, FormatError
from kafkalog.format.records.batch_scan import BatchColumn, BatchRows, ScanStop, scan
from kafkalog.format.records.record import read_records
from kafkalog.format.records.record_batch import (
    BASE_TIMESTAMP_AT,
    LAST_OFFSET_DELTA_AT,
    LENGTH_AT,
    MAGIC_AT,
    MAGIC_V2,
    is_crc_valid,
)
from kafkalog.log.recovery.prefix_repair import FOLLOWERS_TRIED, later_batches, signed_at
from kafkalog.log.segment.segment_file import (
    HEADER,
    LARGEST_UNDOUBTED_BYTES,
    LOG_OVERHEAD_BYTES,
    has_message_at,
    read_chunk,
    scan_chunks,
)
from kafkalog.log.segment.segment_recovery import remember_entries

if TYPE_CHECKING:
    from kafkalog.env.filesystem import File
    from kafkalog.log.segment.indexes import SegmentFiles
    from kafkalog.log.values import OffsetPosition, TimestampOffset

_log = structlog.get_logger(__name__)

WHAT_TO_DO = (
    "reads go round the entry, over the .log, which is sound there: stop the daemon, remove this "
    "file and start, and it is rebuilt"
)


class BatchPlace(NamedTuple):
    """Where a batch begins, or the segment ends, and the batch before it.

    ``previous_last`` is the last offset of that one; without one (its position is -1) it lies below
    the segment's base.
    """

    position: int
    previous_position: int
    previous_last: int


def floor_entry(segment: SegmentFiles, offset: int, *, may_block: bool = True) -> OffsetPosition:
    """Greatest offset index entry at or below offset, else (base offset, 0).

    A damaged index is not believed: its entries are found again from the ``.log``.
    """
    try:
        return segment.offset_index.lookup(offset, may_block=may_block)
    except CorruptIndex:
        remember_entries(segment)
        return segment.offset_index.lookup(offset, may_block=may_block)


def floor_timestamp(
    segment: SegmentFiles, timestamp_ms: int, *, may_block: bool = True
) -> TimestampOffset:
    """Greatest time index entry at or below timestamp_ms; a damaged index as above."""
    try:
        return segment.time_index.lookup(timestamp_ms, may_block=may_block)
    except CorruptIndex:
        remember_entries(segment)
        return segment.time_index.lookup(timestamp_ms, may_block=may_block)


def agrees(rows: BatchRows, data: memoryview, entry: OffsetPosition) -> bool:
    """Whether the first row, its CRC checked, can be the batch that the entry points to.

    ``data`` begins with that batch.
    """
    if rows.count == 0:
        return False
    if int(rows.column(BatchColumn.LAST_OFFSET)[0]) <= entry.offset:
        return True
    try:
        offsets = read_records(data[: int(rows.column(BatchColumn.SIZE)[0])]).offsets
    except (FormatError, InvalidRequest):  # not to be scanned, or not to be inflated
        return False
    return len(offsets) > 0 and int(offsets[-1]) == entry.offset


def verified_floor(segment: SegmentFiles, offset: int) -> OffsetPosition:
    """An entry at or below offset that leads to a sound batch, else the segment's beginning.

    The floor entry itself, but for damage. Reads that batch.
    """
    floor = floor_entry(segment, offset)
    file = segment.log_file.acquire()
    if floor.position == 0 or verified_last(file, floor, segment.size_bytes) is not None:
        return floor
    return _verified_before(segment, file, floor, segment.size_bytes)


def next_offset(segment: SegmentFiles) -> int:
    """Last offset + 1, the base offset when empty."""
    position = verified_floor(segment, INT64_MAX).position
    result = segment.base_offset
    for chunk in scan_chunks(
        segment.log_file, position, segment.size_bytes, check_crc=False, with_messages=True
    ):
        if chunk.rows.count:
            last_offsets = chunk.rows.column(BatchColumn.LAST_OFFSET)
            result = int(last_offsets[-2:].max()) + 1  # the last base offset may have rotted down
    return result


def has_whole_tail(
    segment: SegmentFiles, position: int | None = None, tail: list[BatchRows] | None = None
) -> bool:
    """Whether a segment ends with a whole batch; reads headers after the last index entry only.

    ``position``: of a batch to begin at instead. ``tail`` takes the batches that were read.
    """
    if position is None:
        position = floor_entry(segment, INT64_MAX).position
    for chunk in scan_chunks(
        segment.log_file, position, segment.size_bytes, check_crc=False, with_messages=True
    ):
        position = chunk.position + chunk.rows.consumed_bytes
        if tail is not None and chunk.rows.count:
            tail.append(chunk.rows)
    return position == segment.size_bytes


def place_past(
    segment: SegmentFiles, floor: OffsetPosition, offset: int, *, end: int, end_offset: int
) -> BatchPlace | None:
    """The first batch that reaches offset, in spite of a floor entry that points elsewhere.

    ``end`` and ``end_offset``: of the segment as the caller sees it; its end when none reaches the
    offset. None when the floor is right, or when anything before that batch, itself or what
    follows it is no sound batch: the log is damaged then, whatever the index is. The log says which
    index is damaged, once a file. The batch of the floor itself when it goes on after the entry's
    offset, which only the last record that a cleaner kept has.
    """
    file = segment.log_file.acquire()
    if floor.position == 0:
        return None
    last_offset = verified_last(file, floor, end)
    if last_offset is not None:
        if last_offset <= floor.offset:
            return None
        return BatchPlace(floor.position, -1, segment.base_offset - 1)
    start = _verified_before(segment, file, floor, end)
    place = _walk(segment, file, start.position, floor, offset, end, end_offset)
    # Of a segment that grows entries may be there a moment before their batches.
    grows = segment.offset_index.is_active or segment.size_bytes != end
    if place is None or (place.position == end and grows):
        return place
    if segment.offset_index.doubt():
        _log.warning(
            "index_entry_wrong",
            path=segment.offset_index.file.path,
            entry_offset=floor.offset,
            entry_position=floor.position,
            action=WHAT_TO_DO,
        )
    return place


def verified_last(file: File, entry: OffsetPosition, end: int) -> int | None:
    """The last offset of the batch that the entry points to; None: it can be of none there."""
    head = file.pread(HEADER.size, entry.position)
    if len(head) > MAGIC_AT and head[MAGIC_AT] < MAGIC_V2 and has_message_at(file, entry.position):
        return signed_at(head, 0, LENGTH_AT)  # Kafka's entries of these name any offset of a set
    if len(head) < HEADER.size:
        return None
    base_offset, length, delta, _ = HEADER.unpack_from(head)
    size = length + LOG_OVERHEAD_BYTES
    if not HEADER.size <= size <= min(end - entry.position, LARGEST_UNDOUBTED_BYTES):
        return None
    if head[MAGIC_AT] == MAGIC_V2 and base_offset + delta == entry.offset:
        return entry.offset  # whatever its records are: it is the entry's place
    data = read_chunk(file, entry.position, size, may_block=True)
    return base_offset + delta if agrees(scan(data), data, entry) else None


def _verified_before(
    segment: SegmentFiles, file: File, floor: OffsetPosition, end: int
) -> OffsetPosition:
    """A sound entry before the floor; the segment's beginning, which needs none."""
    count = 1
    while True:
        entry = segment.offset_index.entry_before(floor.position, count)
        if entry.position == 0 or verified_last(file, entry, end) is not None:
            return entry
        count *= 2


def _walk(
    segment: SegmentFiles,
    file: File,
    start: int,
    floor: OffsetPosition,
    offset: int,
    end: int,
    end_offset: int,
) -> BatchPlace | None:
    """See place_past. Goes one batch further: a base offset is believed with what follows it."""
    position, previous, walked = start, -1, segment.base_offset - 1
    place: BatchPlace | None = None
    for chunk in scan_chunks(segment.log_file, start, end, check_crc=True, file=file):
        rows = chunk.rows
        if rows.first_disorder(walked, end_offset=end_offset, looks_ahead=True) is not None:
            return None
        if place is not None and rows.count:
            return place
        positions = rows.column(BatchColumn.POSITION) + chunk.position
        last_offsets = rows.column(BatchColumn.LAST_OFFSET)
        hit = int(np.searchsorted(last_offsets, offset))
        at_floor = int(np.searchsorted(positions, floor.position))
        is_floor = at_floor < rows.count and int(positions[at_floor]) == floor.position
        if is_floor and at_floor <= hit and _is_isolated(rows, at_floor, walked):
            return None
        if hit < rows.count:
            before = (int(positions[hit - 1]), int(last_offsets[hit - 1])) if hit else None
            place = BatchPlace(int(positions[hit]), *(before or (previous, walked)))
            if hit + 1 < rows.count:
                return place
        if rows.count:
            previous, walked = int(positions[-1]), int(last_offsets[-1])
        position = chunk.position + rows.consumed_bytes
        if rows.stop not in (ScanStop.END, ScanStop.PARTIAL):
            return None
    if position != end or segment.size_bytes < end:
        return None
    return place or BatchPlace(end, previous, walked)


def _is_isolated(rows: BatchRows, row: int, walked: int) -> bool:
    """Whether no neighbour confirms the offsets of a row: gaps before and after it.

    The base offset lies outside the CRC: where an entry says otherwise of a batch that is where the
    entry says, either of them may be the damaged one.
    """
    bases, last_offsets = rows.column(BatchColumn.BASE_OFFSET), rows.column(BatchColumn.LAST_OFFSET)
    before = walked if row == 0 else last_offsets[row - 1]
    if bases[row] == before + 1:
        return False
    return bool(row + 1 >= rows.count or bases[row + 1] != last_offsets[row] + 1)


class BatchStart(NamedTuple):
    """Where a batch begins, and its base offset; or the segment ends, and the next one's base."""

    position: int
    base_offset: int


def next_verified_batch(
    segment: SegmentFiles, position: int, first_offset: int, *, end: int, end_offset: int
) -> BatchStart | None:
    """The first place after ``position`` that is proven to begin a batch; None: there is none.

    ``first_offset``: the least that the bytes at position can hold. ``end`` and ``end_offset``: of
    the segment as the caller sees it.
    """
    file = segment.log_file.acquire()
    known = _next_known(segment, file, position, first_offset, end)
    reach = end if known is None else known.position
    window = read_chunk(
        file, position, min(reach - position, LARGEST_UNDOUBTED_BYTES), may_block=True
    )
    told_end = first_offset + 1 + signed_at(window, LAST_OFFSET_DELTA_AT, BASE_TIMESTAMP_AT)
    later = later_batches(window, first_offset, end_offset)
    for size, base_offset in islice(later, FOLLOWERS_TRIED):
        if base_offset == told_end or is_crc_valid(window[:size]):
            return BatchStart(position + size, base_offset)
    if known is not None:
        return known
    if position + len(window) == end and is_crc_valid(window):
        return BatchStart(end, end_offset)
    return None


def _next_known(
    segment: SegmentFiles, file: File, position: int, first_offset: int, end: int
) -> BatchStart | None:
    """The batch of the next index entry that leads to its batch."""
    while True:
        entry = segment.offset_index.entry_after(position)
        if entry is None:
            return None
        position = entry.position
        if verified_last(file, entry, end) is not None:
            base_offset = signed_at(file.pread(LENGTH_AT, position), 0, LENGTH_AT)
            if first_offset < base_offset <= entry.offset:
                return BatchStart(position, base_offset)
