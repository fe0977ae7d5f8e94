"""MD5 of the keys for the offset map, LANES at a time.

Owns the padding of keys into blocks, the choice of the processor's widest code, the table of
pending keys and the 64 steps of RFC 1321. Keys may have any length: a group takes as many rounds as
its longest key has blocks. One key alone cannot use a whole processor, because each step waits for
the one before, nor can one vector: a call advances two vectors of the processor's width.

One vector lane a key. A scratch array holds, for each lane, one 64-byte block and the state of four
words, word by word:

    word w of lane l is the 32-bit little-endian number at position + 4 * (LANES * w + l)

With NUMBA_DISABLE_JIT=1 the steps run lane by lane in plain Python with the same results.
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import TYPE_CHECKING, Any, cast

from kafkalog.kernels.compile import (
    BYTES,
    BYTES_OUT,
    I64,
    I64_TABLE_OUT,
    IS_COMPILING,
    Bytes,
    Int64Table,
    inlined,
    kernel,
)
from kafkalog.kernels.loads import load_i32le, load_u32le, store_u32le
from kafkalog.kernels.processor import needs_avx2, needs_avx512vl
from kafkalog.kernels.records.record_scan import as_int

if IS_COMPILING:
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

if TYPE_CHECKING:
    from collections.abc import Callable


Untyped = Any
"""Values of numba's and llvmlite's builders, which have no types of their own."""

LANES = 32
ROW_BYTES = 4 * LANES
"""One word of every lane."""
BLOCK_BYTES = 16 * ROW_BYTES
STATE_BYTES = 4 * ROW_BYTES

INITIAL_STATE = (0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476)

_MASK = 0xFFFFFFFF
_ROTATIONS = ((7, 12, 17, 22), (5, 9, 14, 20), (4, 11, 16, 23), (6, 10, 15, 21))
_WORD_OF_STEP = ((1, 0), (5, 1), (3, 5), (7, 0))  # factor and start of each round
_STEPS = tuple(
    (
        step // 16,
        (_WORD_OF_STEP[step // 16][0] * step + _WORD_OF_STEP[step // 16][1]) % 16,
        _ROTATIONS[step // 16][step % 4],
        int(abs(math.sin(step + 1)) * 2**32) & _MASK,
    )
    for step in range(64)
)
"""Round, word of the block, rotation, and constant of each step."""


def _plain_lanes(width: int) -> Callable[[Bytes, int, int], None]:
    """The steps in Python integers."""

    def advance(scratch: Bytes, block: int, state: int) -> None:
        for lane in range(width):
            _plain_lane(scratch, block + 4 * lane, state + 4 * lane)

    return advance


def _plain_lane(scratch: Bytes, block: int, state: int) -> None:
    """All steps of one lane."""
    words = [_plain_word(scratch, block, word) for word in range(16)]
    before = [_plain_word(scratch, state, word) for word in range(4)]
    a, b, c, d = before
    for kind, word, rotation, constant in _STEPS:
        mixed = (d ^ (b & (c ^ d)), c ^ (d & (b ^ c)), b ^ c ^ d, c ^ (b | ~d & _MASK))[kind]
        total = (a + mixed + words[word] + constant) & _MASK
        turned = (total << rotation | total >> (32 - rotation)) & _MASK
        a, b, c, d = d, (b + turned) & _MASK, b, c
    for word, (old, new) in enumerate(zip(before, (a, b, c, d), strict=True)):
        position = state + ROW_BYTES * word
        total = (old + new) & _MASK
        for index in range(4):
            scratch[position + index] = total >> 8 * index & 0xFF


def _plain_word(scratch: Bytes, start: int, word: int) -> int:
    position = start + ROW_BYTES * word
    return int.from_bytes(bytes(scratch[position : position + 4]), "little")


def _vector_lanes(width: int) -> Callable[[Bytes, int, int], None]:
    """Build the intrinsic."""
    vector = ir.VectorType(ir.IntType(32), width)

    def splat(value: int) -> Untyped:
        return ir.Constant(vector, [value] * width)

    def mix(builder: Untyped, kind: int, b: Untyped, c: Untyped, d: Untyped) -> Untyped:
        """The function of a round."""
        if kind == 0:
            return builder.xor(d, builder.and_(b, builder.xor(c, d)))
        if kind == 1:
            return builder.xor(c, builder.and_(d, builder.xor(b, c)))
        if kind == 2:
            return builder.xor(builder.xor(b, c), d)
        return builder.xor(c, builder.or_(b, builder.xor(d, splat(_MASK))))

    def md5_lanes(typingctx: object, scratch: Untyped, block: Untyped, state: Untyped) -> Untyped:
        if not isinstance(scratch, types.Array) or scratch.dtype != types.uint8:
            return None

        def generate(
            context: Untyped, builder: Untyped, signature: Untyped, arguments: Untyped
        ) -> Untyped:
            array, block, state = arguments
            data = context.make_array(signature.args[0])(context, builder, array).data

            def address(start: Untyped, word: int) -> Untyped:
                offset = builder.add(start, ir.Constant(ir.IntType(64), ROW_BYTES * word))
                byte = builder.gep(data, [offset], inbounds=True)
                return builder.bitcast(byte, vector.as_pointer())

            words = [builder.load(address(block, word), align=1) for word in range(16)]
            before = [builder.load(address(state, word), align=1) for word in range(4)]
            a, b, c, d = before
            for kind, word, rotation, constant in _STEPS:
                total = builder.add(builder.add(a, splat(constant)), words[word])
                total = builder.add(total, mix(builder, kind, b, c, d))
                turned = builder.or_(
                    builder.shl(total, splat(rotation)), builder.lshr(total, splat(32 - rotation))
                )
                a, b, c, d = d, builder.add(b, turned), b, c
            for word, (old, new) in enumerate(zip(before, (a, b, c, d), strict=True)):
                builder.store(builder.add(old, new), address(state, word), align=1)
            return context.get_dummy_value()

        return types.none(scratch, types.int64, types.int64), generate

    return cast("Callable[[Bytes, int, int], None]", intrinsic(md5_lanes))


_lanes = _vector_lanes if IS_COMPILING else _plain_lanes
md5_8_lanes, md5_16_lanes, md5_32_lanes = _lanes(8), _lanes(16), _lanes(32)
"""`md5_n_lanes(scratch, block, state)` advances the n states from `state` on by the n blocks from
`block` on: twice the vectors of 128, 256 or 512 bits."""


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
    if 0 <= rest < 64:  # the byte after the key lies in this block
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
