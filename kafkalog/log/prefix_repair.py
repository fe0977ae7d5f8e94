"""What the first 17 bytes of a rotten batch must have been: base offset, length, magic.

They lie outside the batch's CRC, so their rot leaves a batch whose CRC is right over exactly the
bytes between its neighbours. That is the proof asked for here: the CRC for the size, what follows
for the offset. Nothing is guessed, and a batch that can stay as it is gets no other prefix. The
leader epoch between length and magic has no proof and stays as it is found.
Where a stretch of batches is lost for good, ``bridge`` makes a header that leads over it.
Pure: bytes and offsets in, a prefix out. Runs in the loader; no counterpart in Kafka.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from kafkalog.format.batch_scan import scan
from kafkalog.format.integers import INT32_MAX, INT64_MAX
from kafkalog.format.record_batch import (
    ATTRIBUTES_AT,
    BASE_TIMESTAMP_AT,
    HEADER_BYTES,
    HEADER_UP_TO_MAGIC,
    LAST_OFFSET_DELTA_AT,
    LEADER_EPOCH_AT,
    LENGTH_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAGIC_V2,
    BatchHeader,
    MalformedBatch,
    compute_crc,
    encode_header,
    is_crc_valid,
    read_header,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

# A batch may hold the bytes of others; each try costs a CRC over all in front of it.
FOLLOWERS_TRIED = 4

assert ATTRIBUTES_AT < LAST_OFFSET_DELTA_AT, "the delta lies inside the CRC's range"


def true_prefix(
    window: memoryview, expected_offset: int, end_offset: int, *, is_whole: bool
) -> bytes | None:
    """The prefix that the batch at the start of ``window`` was written with; None: not provable.

    None as well when that is the one it has. ``expected_offset`` is the one behind the batch
    before, ``end_offset`` that of the next segment (INT64_MAX without one); ``is_whole``: the
    window reaches the end of the segment.
    """
    if len(window) < HEADER_BYTES:
        return None
    delta = _int(window, LAST_OFFSET_DELTA_AT, BASE_TIMESTAMP_AT)
    if delta < 0:
        return None
    for size, follower in _ends(window, expected_offset, end_offset, is_whole=is_whole):
        if not is_crc_valid(window[:size]):
            continue
        base = _int(window, 0, LENGTH_AT)
        if not _may_stay(base, delta, expected_offset, follower):
            if follower != expected_offset + delta + 1:
                return None
            base = expected_offset
        epoch = bytes(window[LEADER_EPOCH_AT:MAGIC_AT])
        length = (size - LOG_OVERHEAD).to_bytes(4, "big")
        prefix = base.to_bytes(8, "big") + length + epoch + bytes((MAGIC_V2,))
        return None if prefix == window[:HEADER_UP_TO_MAGIC] else prefix
    return None


def _ends(
    window: memoryview, expected_offset: int, end_offset: int, *, is_whole: bool
) -> Iterator[tuple[int, int | None]]:
    """Sizes that the batch may have, with the offset of what follows then, if that is known.

    The declared size first; it is the only one when a sound batch lies there or the CRC is right.
    Else the first places that hold a sound batch of a later offset, and the end of the segment.
    """

    def follower_at(size: int) -> int | None:
        at_end = is_whole and size == len(window)
        return end_offset if at_end else sound_base(window, size, end_offset)

    declared = _int(window, LENGTH_AT, LEADER_EPOCH_AT) + LOG_OVERHEAD
    if HEADER_BYTES <= declared <= len(window):
        follower = follower_at(declared)
        is_right = is_crc_valid(window[:declared])
        if is_right or (follower is not None and declared < len(window)):
            yield declared, follower
            return
    followers = later_batches(window, expected_offset, end_offset)
    yield from islice(followers, FOLLOWERS_TRIED)
    if is_whole:
        yield len(window), end_offset


def later_batches(
    window: memoryview, expected_offset: int, end_offset: int
) -> Iterator[tuple[int, int]]:
    """Position and base offset of what looks sound behind a first header, of a later offset."""
    magic_at = HEADER_BYTES + MAGIC_AT
    found = np.flatnonzero(np.frombuffer(window, dtype=np.uint8)[magic_at:] == MAGIC_V2)
    for position in (found + HEADER_BYTES).tolist():
        base = _int(window, position, position + LENGTH_AT)
        is_near = 0 < base - expected_offset <= INT32_MAX
        if is_near and sound_base(window, position, end_offset) is not None:
            yield position, base


def bridge(window: memoryview, base_offset: int, next_offset: int) -> bytes:
    """A header that makes the whole window one batch of these offsets, with a wrong CRC.

    Readers then find what lies behind it, and are told which offsets are lost.
    """
    delta = next_offset - base_offset - 1
    length = len(window) - LOG_OVERHEAD
    fields = BatchHeader(base_offset, length, -1, MAGIC_V2, 0, 0, delta, -1, -1, -1, -1, -1, 0)
    crc = compute_crc(encode_header(fields) + bytes(window[HEADER_BYTES:]))
    return encode_header(replace(fields, crc=crc ^ 0xFFFFFFFF))


def sound_base(window: memoryview, position: int, end_offset: int) -> int | None:
    """Base offset of the whole batch at a position whose CRC is right and that ends in time."""
    try:
        header = read_header(window[position : position + HEADER_BYTES])
    except MalformedBatch:
        return None
    batch = window[position : position + header.size_bytes]
    if header.next_offset > end_offset or scan(batch, check_crc=True).count != 1:
        return None
    return header.base_offset


def _may_stay(base: int, delta: int, expected_offset: int, follower: int | None) -> bool:
    """Whether nothing speaks against the base offset that the batch has."""
    if follower is None or follower == INT64_MAX:
        return base == expected_offset  # nothing behind it to be held against
    return expected_offset <= base and base + delta < follower


def _int(window: memoryview, start: int, end: int) -> int:
    return int.from_bytes(window[start:end], "big", signed=True)
