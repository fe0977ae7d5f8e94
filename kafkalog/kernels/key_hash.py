"""MD5 of the keys that wait for the offset map, LANES at a time.

Owns the padding of keys into blocks, the choice of the processor's widest code, and the table in
which keys wait. Keys of any length: a group takes as many rounds as its longest key has blocks.
"""

from __future__ import annotations

from enum import IntEnum

from kafkalog.kernels.compile import (
    BYTES,
    BYTES_OUT,
    I64,
    I64_TABLE_OUT,
    Bytes,
    Int64Table,
    inlined,
    kernel,
)
from kafkalog.kernels.loads import load_i32le, load_u32le, store_u32le
from kafkalog.kernels.md5 import (
    BLOCK_BYTES,
    INITIAL_STATE,
    LANES,
    ROW_BYTES,
    STATE_BYTES,
    md5_8_lanes,
    md5_16_lanes,
    md5_32_lanes,
)
from kafkalog.kernels.processor import needs_avx2, needs_avx512vl
from kafkalog.kernels.record_fields import as_int

PENDING_MAX = 256
SCRATCH_BYTES = BLOCK_BYTES + STATE_BYTES


class PendingColumn(IntEnum):
    """Keys that wait to be hashed and looked for."""

    KEY_POSITION = 0
    KEY_LENGTH = 1
    OFFSET = 2
    ROW = 3
    RECORD = 4
    """Records read by the call before this one; for `look_up_batches` the flag's place."""
    HASH_LOW = 5
    HASH_HIGH = 6


PENDING_COLUMN_COUNT = len(PendingColumn)

_KEY_POSITION, _KEY_LENGTH = int(PendingColumn.KEY_POSITION), int(PendingColumn.KEY_LENGTH)
_HASH_LOW, _HASH_HIGH = int(PendingColumn.HASH_LOW), int(PendingColumn.HASH_HIGH)
_A, _B, _C, _D = INITIAL_STATE


@inlined
def _fill_block(
    source: Bytes, key: int, length: int, block: int, lane: int, scratch: Bytes
) -> None:
    """Words of one padded block of a key into its lane, which holds zeros."""
    start = 64 * block
    rest = length - start
    position, target = key + start, 4 * lane
    for _ in range(min(rest // 4, 16)):
        store_u32le(scratch, target, load_u32le(source, position))
        position += 4
        target += ROW_BYTES
    if 0 <= rest < 64:  # the byte behind the key lies in this block
        last = as_int(0x80) << (8 * (rest & 3))
        for index in range(rest & 3):
            last |= as_int(source[position + index]) << (8 * index)
        store_u32le(scratch, target, last)
    if rest < 56:
        store_u32le(scratch, 4 * lane + 14 * ROW_BYTES, length << 3)
        store_u32le(scratch, 4 * lane + 15 * ROW_BYTES, length >> 29)


@inlined
def _start_states(scratch: Bytes) -> None:
    """The state before the first block, in every lane."""
    for lane in range(0, ROW_BYTES, 4):
        store_u32le(scratch, BLOCK_BYTES + lane, _A)
        store_u32le(scratch, BLOCK_BYTES + ROW_BYTES + lane, _B)
        store_u32le(scratch, BLOCK_BYTES + 2 * ROW_BYTES + lane, _C)
        store_u32le(scratch, BLOCK_BYTES + 3 * ROW_BYTES + lane, _D)


@inlined
def _take_hash(scratch: Bytes, lane: int, pending: Int64Table, row: int) -> None:
    """A lane's state as the two halves of a hash."""
    state = BLOCK_BYTES + 4 * lane
    low, high = load_u32le(scratch, state), load_i32le(scratch, state + ROW_BYTES)
    pending[row, _HASH_LOW] = high << 32 | low
    state += 2 * ROW_BYTES
    low, high = load_u32le(scratch, state), load_i32le(scratch, state + ROW_BYTES)
    pending[row, _HASH_HIGH] = high << 32 | low


@kernel(I64(BYTES_OUT))
def _advance_generic(scratch: Bytes) -> int:
    """Advance all lanes of the scratch by its block."""
    for lane in range(0, 4 * LANES, 32):
        md5_8_lanes(scratch, lane, BLOCK_BYTES + lane)
    return 0


@kernel(I64(BYTES_OUT))
def _advance_avx2(scratch: Bytes) -> int:
    """The same for processors of this level."""
    needs_avx2()
    for lane in range(0, 4 * LANES, 64):
        md5_16_lanes(scratch, lane, BLOCK_BYTES + lane)
    return 0


@kernel(I64(BYTES_OUT))
def _advance_avx512(scratch: Bytes) -> int:
    """The same for processors of this level."""
    needs_avx512vl()
    md5_32_lanes(scratch, 0, BLOCK_BYTES)
    return 0


@kernel(I64(BYTES, I64_TABLE_OUT, I64, BYTES_OUT, I64))
def hash_keys(source: Bytes, pending: Int64Table, count: int, scratch: Bytes, level: int) -> int:
    """Fill HASH_LOW and HASH_HIGH of pending[:count] from the spans of their keys; return count.

    source   uint8[n]              holds every span
    pending  int64[m, 7]           `PendingColumn`
    scratch  uint8[SCRATCH_BYTES]  working memory
    level                          `processor.LEVEL`, or a lower one
    """
    for first in range(0, count, LANES):
        end = min(first + LANES, count)
        _start_states(scratch)
        longest = as_int(0)
        for row in range(first, end):
            longest = max(longest, pending[row, _KEY_LENGTH])
        for block in range((longest + 8) // 64 + 1):
            scratch[:BLOCK_BYTES] = 0
            for row in range(first, end):
                length, key = pending[row, _KEY_LENGTH], pending[row, _KEY_POSITION]
                _fill_block(source, key, length, block, row - first, scratch)
            if level >= 2:
                _advance_avx512(scratch)
            elif level == 1:
                _advance_avx2(scratch)
            else:
                _advance_generic(scratch)
            for row in range(first, end):
                if (pending[row, _KEY_LENGTH] + 8) // 64 == block:  # its last one
                    _take_hash(scratch, row - first, pending, row)
    return count
