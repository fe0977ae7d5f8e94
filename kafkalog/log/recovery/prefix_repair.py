"""What the first 17 bytes of a rotten batch must have been: base offset, length, magic.

They lie outside the batch's CRC, so their rot leaves a batch whose CRC is right over exactly the
bytes between its neighbours. That is the proof asked for here: the CRC for the size, and for the
offset two that agree: the end of the batch before and the beginning of what follows. The last batch
of a log has nothing after it: ``KnownEnds`` says what else proves where it ended. Nothing is
guessed, and a batch that can stay as it is gets no other prefix. The leader epoch between length
and magic is another module's question (``RecoveredEpochs``) and stays as it is found.
Where a stretch of batches is lost for good, ``bridge`` makes a header that leads over it.
Pure: bytes and offsets in, a prefix out. Runs in the loader; no counterpart in Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from kafkalog.format.integers import INT32_MAX, INT64_MAX
from kafkalog.format.records.batch_scan import scan
from kafkalog.format.records.record_batch import (
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

# A batch may hold the bytes of others; each try costs a CRC over all before it.
FOLLOWERS_TRIED = 4

assert ATTRIBUTES_AT < LAST_OFFSET_DELTA_AT, "the delta lies inside the CRC's range"


@dataclass(frozen=True, slots=True)
class KnownEnds:
    """Where a log ended, as others than its batches have it: what proves or contradicts the last.

    ends        offsets at which it ended once: recovery point, clean stop, producer snapshots,
                names of segments
    entry_end   after the batch in question, as an index entry has it; None: there is no entry
    is_gapless  nothing took offsets away since its birth: each batch begins where one ended
    """

    ends: frozenset[int] = frozenset()
    entry_end: int | None = None
    is_gapless: bool = False

    def prove(self, next_offset: int) -> bool:
        """Whether a batch that nothing follows and that begins after its predecessor ended here.

        Its predecessor is the first proof, this the second.
        """
        return self.is_gapless or next_offset == self.entry_end or next_offset in self.ends

    def contradict(self, expected_offset: int, base_offset: int, next_offset: int) -> bool:
        """Whether the batch that nothing follows cannot have left the gap before it.

        It begins at base_offset instead of at expected_offset. A gap alone is legal: compaction,
        and a replica of a compacted log, leave them. The log may have ended inside it only where
        the batch begins, and not where it would have ended without the gap.
        """
        if self.is_gapless:
            return True
        if next_offset == self.entry_end or next_offset in self.ends:
            return False
        if self.entry_end is not None:
            return True
        true_end = expected_offset + next_offset - base_offset
        return any(
            expected_offset < end < next_offset and (end != base_offset or end == true_end)
            for end in self.ends
        )


NO_ENDS = KnownEnds()


def true_prefix(
    window: memoryview, expected_offset: int, end_offset: int, known: KnownEnds, *, is_whole: bool
) -> bytes | None:
    """The prefix that the batch at the start of ``window`` was written with; None: not provable.

    None as well when that is the one it has. ``expected_offset`` is the one after the batch
    before, ``end_offset`` that of the next segment (INT64_MAX without one); ``is_whole``: the
    window reaches the end of the segment. ``known`` counts where no sound batch follows. A base
    offset without proof stays, whatever is wrong with it.
    """
    if len(window) < HEADER_BYTES:
        return None
    delta = signed_at(window, LAST_OFFSET_DELTA_AT, BASE_TIMESTAMP_AT)
    if delta < 0:
        return None
    for size, follower in _ends(window, expected_offset, end_offset, is_whole=is_whole):
        if not is_crc_valid(window[:size]):
            continue
        base = _true_base(window, size, expected_offset, follower, known)
        epoch = bytes(window[LEADER_EPOCH_AT:MAGIC_AT])
        length = (size - LOG_OVERHEAD).to_bytes(4, "big")
        prefix = base.to_bytes(8, "big", signed=True) + length + epoch + bytes((MAGIC_V2,))
        return None if prefix == window[:HEADER_UP_TO_MAGIC] else prefix
    return None


def _true_base(
    window: memoryview, size: int, expected_offset: int, follower: int | None, known: KnownEnds
) -> int:
    """What the base offset of the sound batch of this size is proven to have been; else its own."""
    base = signed_at(window, 0, LENGTH_AT)
    delta = signed_at(window, LAST_OFFSET_DELTA_AT, BASE_TIMESTAMP_AT)
    true_end = expected_offset + delta + 1
    if follower is not None and follower < INT64_MAX:
        is_sound = expected_offset <= base and base + delta < follower
        is_proven = follower == true_end
    else:
        if len(window) > size + MAGIC_AT and window[size + MAGIC_AT] == MAGIC_V2:
            torn = signed_at(window, size, size + LENGTH_AT)  # a follower that a crash cut off
            known = replace(known, ends=known.ends | {torn})
        is_sound = base == expected_offset or (
            base > expected_offset and not known.contradict(expected_offset, base, base + delta + 1)
        )
        is_proven = known.prove(true_end)
    return expected_offset if is_proven and not is_sound else base


def _ends(
    window: memoryview, expected_offset: int, end_offset: int, *, is_whole: bool
) -> Iterator[tuple[int, int | None]]:
    """Sizes that the batch may have, with the offset of what follows then, if that is known.

    The declared size first; it is the only one when a sound batch lies there or the CRC is right.
    Else the first places that hold a sound batch of a later offset, and the end of the segment.
    """

    def follower_at(size: int) -> int | None:
        at_end = is_whole and size == len(window)
        return end_offset if at_end else verified_base(window, size, end_offset)

    declared = signed_at(window, LENGTH_AT, LEADER_EPOCH_AT) + LOG_OVERHEAD
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
    """Position and base offset of what looks sound after a first header, of a later offset."""
    magic_at = HEADER_BYTES + MAGIC_AT
    found = np.flatnonzero(np.frombuffer(window, dtype=np.uint8)[magic_at:] == MAGIC_V2)
    for position in (found + HEADER_BYTES).tolist():
        base = signed_at(window, position, position + LENGTH_AT)
        is_near = 0 < base - expected_offset <= INT32_MAX
        if is_near and verified_base(window, position, end_offset) is not None:
            yield position, base


def bridge(window: memoryview, base_offset: int, next_offset: int) -> bytes:
    """A header that makes the whole window one batch of these offsets, with a wrong CRC.

    Readers then find what lies after it, and learn which offsets are lost.
    """
    delta = next_offset - base_offset - 1
    length = len(window) - LOG_OVERHEAD
    fields = BatchHeader(base_offset, length, -1, MAGIC_V2, 0, 0, delta, -1, -1, -1, -1, -1, 0)
    crc = compute_crc(encode_header(fields) + bytes(window[HEADER_BYTES:]))
    return encode_header(fields._replace(crc=crc ^ 0xFFFFFFFF))


def verified_base(window: memoryview, position: int, end_offset: int) -> int | None:
    """Base offset of the whole batch at a position whose CRC is right and that ends in time."""
    try:
        header = read_header(window[position : position + HEADER_BYTES])
    except MalformedBatch:
        return None
    batch = window[position : position + header.size_bytes]
    if header.next_offset > end_offset or scan(batch, check_crc=True).count != 1:
        return None
    return header.base_offset


def signed_at(window: bytes | memoryview, start: int, end: int) -> int:
    """A signed field."""
    return int.from_bytes(window[start:end], "big", signed=True)
