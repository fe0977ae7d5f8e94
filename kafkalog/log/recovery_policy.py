"""Rot or torn tail: what recovery does with the first bad batch of a segment (design 4.27).

``kafka`` cuts the segment there, as Kafka does. ``keep`` first asks what follows: when the batch's
declared size leads to a valid batch with the expected offset, single bytes rotted and everything
behind is good, so nothing is cut (readers of that one batch get CorruptBatch, its neighbours are
served); anything else is a torn tail, which is copied to ``<base>.log.<position>.torn`` (a name
that Kafka's loader ignores) and then cut. A batch whose size field itself rotted cannot be stepped
over by any reader of the format and counts as torn.
Runs in the loader: recovery asks here where it meets a bad batch, before it cuts anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import structlog

from kafkalog.errors import CorruptBatch
from kafkalog.format.batch_scan import ScanStop, scan
from kafkalog.format.integers import INT64_MAX
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
from kafkalog.log.segment_read import read_chunk, scan_chunks
from kafkalog.log.segment_recovery import BadBatch, BadSpot

if TYPE_CHECKING:
    from kafkalog.env.filesystem import Filesystem
    from kafkalog.log.log_segment import LogSegment

_log = structlog.get_logger(__name__)

Corruption = Literal["kafka", "keep"]

TORN_SUFFIX = ".torn"


def judge(
    filesystem: Filesystem, segment: LogSegment, bad: BadSpot, corruption: Corruption
) -> int | None:
    """Size of a batch that only rotted and is to stay; None: cut here, the bytes are kept first.

    CorruptBatch for message sets of magic 0 and 1.
    """
    refuse_legacy(segment, bad)
    if corruption == "kafka":
        return None
    if not is_rot(segment, bad):
        keep_torn_bytes(filesystem, segment, bad)
        return None
    path = segment.log_file.path
    _log.error("rotten_batch_kept", path=path, position=bad.position)
    return read_header(segment.log_file.acquire().pread(HEADER_BYTES, bad.position)).size_bytes


def judge_before_split(filesystem: Filesystem, segment: LogSegment, corruption: Corruption) -> None:
    """A segment whose offsets overflow is cut by its split: judge its first bad batch before.

    CorruptBatch also when the batch only rotted: a split cannot keep it.
    """
    for chunk in scan_chunks(segment, 0, segment.size_bytes, check_crc=True):
        position, stop = chunk.position + chunk.rows.consumed_bytes, chunk.rows.stop
    if position == segment.size_bytes:
        return
    why = BadBatch.PARTIAL if stop is ScanStop.END else BadBatch[stop.name]
    bad = BadSpot(position, why, segment.base_offset)
    if judge(filesystem, segment, bad, corruption) is not None:
        raise CorruptBatch(
            "an offset is more than 2^31 - 1 above the segment's base, and batches rotted",
            file=segment.log_file.path,
            position=position,
        )


def has_whole_tail(segment: LogSegment) -> bool:
    """Whether a segment ends with a whole batch; reads headers behind the last index entry only."""
    position = segment.floor_position(INT64_MAX)
    for chunk in scan_chunks(segment, position, segment.size_bytes, check_crc=False):
        position = chunk.position + chunk.rows.consumed_bytes
    return position == segment.size_bytes


def refuse_legacy(segment: LogSegment, bad: BadSpot) -> None:
    """Message sets of magic 0 and 1 are not served: the partition is, not the batch (4.17)."""
    if bad.why is BadBatch.LEGACY:
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
    return BadSpot(0, BadBatch.LEGACY, segment.base_offset) if is_legacy else None


def is_rot(segment: LogSegment, bad: BadSpot) -> bool:
    """Whether a valid batch with the expected offset follows the bad one."""
    if bad.why is not BadBatch.BAD_CRC:
        return False
    file = segment.log_file.acquire()
    try:
        header = read_header(file.pread(HEADER_BYTES, bad.position))
        after = bad.position + header.size_bytes
        follower = read_header(file.pread(HEADER_BYTES, after))
    except MalformedBatch:
        return False
    if (
        header.base_offset < bad.expected_offset
        or follower.base_offset != header.next_offset
        or header.last_offset_delta < 0
    ):
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
