"""Where the batches of a segment go on behind bytes that are no batch.

Asked when a read met such bytes, never on the way of a sound fetch. What lies there was one batch
when its CRC holds up to a sound batch of later offsets, or to the end of the segment, or when that
one begins where the header in front says that it ended; else the next index entry that leads to its
batch is believed. A sound batch alone proves nothing: a record may hold the bytes of one.
Any thread that may block; changes no file. Cost: the bytes up to the next index entry once, and a
CRC over them for at most ``FOLLOWERS_TRIED`` sound batches among them.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.format.records.record_batch import (
    BASE_TIMESTAMP_AT,
    LAST_OFFSET_DELTA_AT,
    LENGTH_AT,
    is_crc_valid,
)
from kafkalog.log.recovery.prefix_repair import FOLLOWERS_TRIED, later_batches
from kafkalog.log.segment.index_repair import vouched_last
from kafkalog.log.segment.segment_files import LARGEST_UNDOUBTED_BYTES, read_chunk
from kafkalog.log.values import OffsetPosition

if TYPE_CHECKING:
    from kafkalog.env.filesystem import File
    from kafkalog.log.segment.segment_files import SegmentFiles


class SoundPlace(NamedTuple):
    """Where a batch begins, and its base offset; or the segment ends, and the next one's base."""

    position: int
    base_offset: int


def sound_behind(
    segment: SegmentFiles, position: int, first_offset: int, *, end: int, end_offset: int
) -> SoundPlace | None:
    """The first place behind ``position`` that is proven to begin a batch; None: there is none.

    ``first_offset``: the least that the bytes at position can hold. ``end`` and ``end_offset``: of
    the segment as the caller sees it.
    """
    file = segment.log_file.acquire()
    known = _next_known(segment, file, position, first_offset, end)
    reach = end if known is None else known.position
    window = read_chunk(
        file, position, min(reach - position, LARGEST_UNDOUBTED_BYTES), may_block=True
    )
    told_end = first_offset + 1 + _int(window, LAST_OFFSET_DELTA_AT, BASE_TIMESTAMP_AT)
    later = later_batches(window, first_offset, end_offset)
    for size, base_offset in islice(later, FOLLOWERS_TRIED):
        if base_offset == told_end or is_crc_valid(window[:size]):
            return SoundPlace(position + size, base_offset)
    if known is not None:
        return known
    if position + len(window) == end and is_crc_valid(window):
        return SoundPlace(end, end_offset)
    return None


def _next_known(
    segment: SegmentFiles, file: File, position: int, first_offset: int, end: int
) -> SoundPlace | None:
    """The batch of the next index entry that leads to its batch."""
    while True:
        entry = segment.offset_index.lookup_upper_bound(OffsetPosition(0, position), 1)
        if entry is None:
            return None
        position = entry.position
        if vouched_last(file, entry, end) is not None:
            base_offset = _int(file.pread(LENGTH_AT, position), 0, LENGTH_AT)
            if first_offset < base_offset <= entry.offset:
                return SoundPlace(position, base_offset)


def _int(window: bytes | memoryview, start: int, end: int) -> int:
    return int.from_bytes(window[start:end], "big", signed=True)
