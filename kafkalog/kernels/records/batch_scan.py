"""Walk the batches of a chunk: one table row per whole batch, with the CRC of small batches.

Layout: `format/records/record_batch.py`; rules: Kafka 4.1 FileLogInputStream. Batches of at least
INLINE_CRC_MAX bytes keep the CRC_STATE UNCHECKED: from that size on the C package `crc32c`, which
uses the processor's CRC instruction, is faster.
"""

from __future__ import annotations

from enum import IntEnum

from kafkalog.kernels.compile import (
    BOOL,
    BYTES,
    I64,
    I64_TABLE,
    I64_TABLE_OUT,
    I64S_OUT,
    Bytes,
    Int64s,
    Int64Table,
    inlined,
    kernel,
)
from kafkalog.kernels.crc32c import crc32c_generic
from kafkalog.kernels.loads import load_i16be, load_i32be, load_i64be, load_u32be

INLINE_CRC_MAX = 2048
"""Batches below this size are checked by the table here, larger ones by the caller."""


class BatchColumn(IntEnum):
    """Columns of the table. POSITION is the byte in the chunk, SIZE the whole batch."""

    POSITION = 0
    SIZE = 1
    BASE_OFFSET = 2
    LAST_OFFSET = 3
    LEADER_EPOCH = 4
    MAGIC = 5
    CRC_STATE = 6
    ATTRIBUTES = 7
    BASE_TIMESTAMP = 8
    MAX_TIMESTAMP = 9
    PRODUCER_ID = 10
    PRODUCER_EPOCH = 11
    BASE_SEQUENCE = 12
    RECORD_COUNT = 13


class CrcState(IntEnum):
    """What is known of a batch's CRC."""

    UNCHECKED = 0
    VALID = 1


class ScanStop(IntEnum):
    """Why a walk ended."""

    END = 0
    """At most 17 bytes were left: nothing, or a tail that Kafka ignores."""
    PARTIAL = 1
    """The next batch reaches beyond the chunk."""
    BAD_SIZE = 2
    """The declared length is below 14: zeros, or no batch at all."""
    LEGACY = 3
    """A message set of magic 0 or 1, which is not supported."""
    BAD_MAGIC = 4
    """Kafka has never written this magic."""
    SHORT_BATCH = 5
    """A v2 batch of fewer than 61 bytes."""
    BAD_CRC = 6
    """The CRC is wrong."""
    BAD_OFFSET = 7
    """The offsets are not between those of the neighbours; `scan_batches` does not check this."""


class ChoiceCell(IntEnum):
    """Arguments and results of `choose_batches`. Positions are bytes in the chunk."""

    STOP = 0
    """ScanStop; END also when the answer is full."""
    START = 1
    """Of the first batch that reaches the offset; -1: there is none before END_POSITION."""
    END_POSITION = 2
    """After the last batch chosen; without any, where the walk ended, also after the chunk."""
    FIRST_BASE_OFFSET = 3
    FIRST_LAST_OFFSET = 4
    FIRST_SIZE = 5
    """That first batch: the offsets that its neighbours leave it if its own cannot be true."""
    LAST_OFFSET = 6
    """Of the last batch chosen."""
    LARGE_COUNT = 7
    PREVIOUS_LAST_OFFSET = 8
    """In: the last offset before the chunk. Out: the last offset before START."""
    FLOOR_OFFSET = 9
    """In: the last offset of the chunk's first batch as an index has it; -1: not known."""
    PREVIOUS_POSITION = 10
    """Of the batch walked over last; -1: none was."""
    IS_SEGMENT_END = 11
    """In: 1 when the segment holds nothing after the chunk."""


class LargeColumn(IntEnum):
    """Batches among those chosen whose CRC the caller has to check."""

    POSITION = 0
    SIZE = 1
    INDEX = 2
    """How many batches were chosen before it, and the last offset of those."""
    PREVIOUS_LAST_OFFSET = 3


COLUMN_COUNT = len(BatchColumn)
CHOICE_CELL_COUNT = len(ChoiceCell)
LARGE_COLUMN_COUNT = len(LargeColumn)

# Kernels use plain integers, which numba freezes best; all other code uses the enums above.
_POSITION, _SIZE, _BASE_OFFSET, _LAST_OFFSET, _LEADER_EPOCH = 0, 1, 2, 3, 4
_MAGIC, _CRC_STATE, _ATTRIBUTES, _BASE_TIMESTAMP, _MAX_TIMESTAMP = 5, 6, 7, 8, 9
_PRODUCER_ID, _PRODUCER_EPOCH, _BASE_SEQUENCE, _RECORD_COUNT = 10, 11, 12, 13
_END, _PARTIAL, _BAD_SIZE, _LEGACY, _BAD_MAGIC, _SHORT_BATCH, _BAD_CRC = 0, 1, 2, 3, 4, 5, 6
_BAD_OFFSET = 7
_STOP, _START, _END_POSITION, _FIRST_BASE, _FIRST_LAST, _FIRST_SIZE = 0, 1, 2, 3, 4, 5
_CHOSEN_LAST, _LARGE_COUNT, _PREVIOUS_LAST, _FLOOR = 6, 7, 8, 9
_PREVIOUS_POSITION, _IS_SEGMENT_END = 10, 11
_CRC_FROM = 21
_HEADER = 61


@inlined
def _judge(chunk: Bytes, position: int, end: int) -> int:
    """Size of the whole batch at position, or minus 1 minus the ScanStop."""
    if end - position <= 17:
        return -1 - _END
    length = load_i32be(chunk, position + 8)
    if length < 14:
        return -1 - _BAD_SIZE
    size = length + 12
    if size > end - position:
        return -1 - _PARTIAL
    magic = chunk[position + 16]
    if magic != 2:
        return -1 - (_LEGACY if magic < 2 else _BAD_MAGIC)
    if size < _HEADER:
        return -1 - _SHORT_BATCH
    return size


@kernel(I64(BYTES, I64, I64))
def count_batches(chunk: Bytes, start: int, end: int) -> int:
    """Whole batches in chunk[start:end] by their lengths alone: the rows a table must have."""
    position, count = start, 0
    size = _judge(chunk, position, end)
    while size > 0:
        count += 1
        position += size
        size = _judge(chunk, position, end)
    return count


@kernel(I64(BYTES, I64, I64, BOOL, I64_TABLE_OUT, I64S_OUT))
def scan_batches(
    chunk: Bytes, start: int, end: int, check_crc: bool, table: Int64Table, stop: Int64s
) -> int:
    """Fill one row of `table` per whole batch in chunk[start:end]; return the row count.

    chunk  uint8[n]              segment bytes as on disk; 0 <= start <= end <= n
    table  int64[m, 14]          see BatchColumn; when it is too short the walk ends as PARTIAL
    stop   int64[3]              out: ScanStop, position where the walk ended, rows left UNCHECKED
    With check_crc a small batch with a wrong CRC ends the walk; large ones are left UNCHECKED.
    """
    position, row, unchecked = start, 0, 0
    reason = _END
    while True:
        size = _judge(chunk, position, end)
        if size < 0:
            reason = -1 - size
            break
        if row == table.shape[0]:
            reason = _PARTIAL
            break
        crc_state = 0
        if check_crc and size < INLINE_CRC_MAX:
            declared = load_u32be(chunk, position + 17)
            if crc32c_generic(chunk, position + _CRC_FROM, position + size) != declared:
                reason = _BAD_CRC
                break
            crc_state = 1
        unchecked += 1 - crc_state
        base_offset = load_i64be(chunk, position)
        table[row, _POSITION] = position
        table[row, _SIZE] = size
        table[row, _BASE_OFFSET] = base_offset
        table[row, _LAST_OFFSET] = base_offset + load_i32be(chunk, position + 23)
        table[row, _LEADER_EPOCH] = load_i32be(chunk, position + 12)
        table[row, _MAGIC] = 2
        table[row, _CRC_STATE] = crc_state
        table[row, _ATTRIBUTES] = load_i16be(chunk, position + 21)
        table[row, _BASE_TIMESTAMP] = load_i64be(chunk, position + 27)
        table[row, _MAX_TIMESTAMP] = load_i64be(chunk, position + 35)
        table[row, _PRODUCER_ID] = load_i64be(chunk, position + 43)
        table[row, _PRODUCER_EPOCH] = load_i16be(chunk, position + 51)
        table[row, _BASE_SEQUENCE] = load_i32be(chunk, position + 53)
        table[row, _RECORD_COUNT] = load_i32be(chunk, position + 57)
        row += 1
        position += size
    stop[0] = reason
    stop[1] = position
    stop[2] = unchecked
    return row


@inlined
def _is_in_order(
    base_offset: int, last_offset: int, previous_last: int, end_offset: int, follower_base: int
) -> bool:
    """Whether a batch is in order.

    It begins after the last offset before it, ends before end_offset (what comes after the
    segment) and, if follower_base >= 0, before the batch that follows. When it is only these two
    that contradict each other, the one that leaves no gap after its predecessor is believed.
    """
    if base_offset <= previous_last or last_offset < base_offset or last_offset >= end_offset:
        return False
    return base_offset == previous_last + 1 or not previous_last < follower_base <= last_offset


@kernel(I64(I64_TABLE, I64, I64, I64, BOOL))
def first_disorder(
    table: Int64Table, previous_last: int, end_offset: int, follower_base: int, looks_ahead: bool
) -> int:
    """The first row of `table` that is out of order, -1 without one.

    table          int64[n, 14]  see BatchColumn
    follower_base  base offset of the batch after the last row; -1: not known
    Without looks_ahead a row is not held against the one after it.
    """
    rows = table.shape[0]
    for row in range(rows):
        base_offset, last_offset = table[row, _BASE_OFFSET], table[row, _LAST_OFFSET]
        follower = -1
        if looks_ahead:
            follower = table[row + 1, _BASE_OFFSET] if row + 1 < rows else follower_base
        if not _is_in_order(base_offset, last_offset, previous_last, end_offset, follower):
            return row
        previous_last = last_offset
    return -1


@inlined
def _has_header(chunk: Bytes, position: int, end: int) -> bool:
    """Whether the fixed part of a v2 batch can be read at position, be its records there or not."""
    return end - position >= _HEADER and chunk[position + 16] == 2


@inlined
def _has_right_crc(chunk: Bytes, position: int, size: int) -> bool:
    return crc32c_generic(chunk, position + _CRC_FROM, position + size) == load_u32be(
        chunk, position + 17
    )


@inlined
def _floor_last(chunk: Bytes, position: int, floor_offset: int) -> int:
    """Last offset of a batch that an index entry of this offset points to."""
    return min(load_i64be(chunk, position) + load_i32be(chunk, position + 23), floor_offset)


@inlined
def _note_large(
    large: Int64Table, row: int, position: int, size: int, index: int, choice: Int64s
) -> int:
    """One row of `LargeColumn`; returns the number of rows."""
    large[row, 0] = position
    large[row, 1] = size
    large[row, 2] = index
    large[row, 3] = choice[_CHOSEN_LAST]
    return row + 1


@inlined
def _span(
    chunk: Bytes, position: int, size: int, is_whole: bool, previous_last: int, end_offset: int
) -> tuple[bool, int, int]:
    """Whether the batch there is in order; its base and last offset or what is left to it."""
    base_offset = load_i64be(chunk, position)
    last_offset = base_offset + load_i32be(chunk, position + 23)
    follower = -1
    if is_whole and _has_header(chunk, position + size, chunk.shape[0]):
        follower = load_i64be(chunk, position + size)
    is_sound = _is_in_order(base_offset, last_offset, previous_last, end_offset, follower)
    if is_sound and base_offset < follower <= last_offset:
        is_sound = _has_right_crc(chunk, position, size)  # rot of the last offset's delta
    if is_sound:
        return True, base_offset, last_offset
    delta = max(last_offset - base_offset, 0)
    last_offset = follower - 1 if follower > previous_last else previous_last + 1 + delta
    return False, previous_last + 1, min(last_offset, end_offset - 1)


@inlined
def _size_at(chunk: Bytes, position: int, end: int) -> tuple[int, bool, int]:
    """Size of the batch there, 0 when none is to be believed; whether it is whole; the ScanStop.

    A size that reaches beyond the chunk is believed of what has the header of a batch.
    """
    size = _judge(chunk, position, end)
    if size > 0:
        return size, True, _END
    reason = -1 - size
    if reason != _PARTIAL or end - position < _HEADER:
        return 0, False, reason
    if chunk[position + 16] != 2:
        return 0, False, _LEGACY if chunk[position + 16] < 2 else _BAD_MAGIC
    return load_i32be(chunk, position + 8) + 12, False, _PARTIAL


@kernel(I64(BYTES, I64, I64, I64, I64, I64_TABLE_OUT, I64S_OUT))
def choose_batches(
    chunk: Bytes,
    start_offset: int,
    max_offset: int,
    end_offset: int,
    max_bytes: int,
    large: Int64Table,
    choice: Int64s,
) -> int:
    """Choose what a fetch returns: batches from the first whose last offset reaches start_offset.

    chunk   uint8[n]                           segment bytes from a batch's beginning on
    large   int64[n // INLINE_CRC_MAX + 1, 4]  out: `LargeColumn`, chosen batches left unchecked
    choice  int64[12]                          in and out: `ChoiceCell`
    Returns how many are chosen: whole ones with base offsets below max_offset, max_bytes together
    unless the first alone is larger. A wrong CRC of a small one, or one out of order, ends
    the choice before it. Those below start_offset are walked over by their headers alone. The first
    one, and one after a gap, counts as partial until the header after it can be read.
    """
    end, position, count, large_count = chunk.shape[0], 0, 0, 0
    previous_last = choice[_PREVIOUS_LAST]
    floor_offset, is_segment_end = choice[_FLOOR], choice[_IS_SEGMENT_END] == 1
    choice[:_PREVIOUS_LAST] = choice[_PREVIOUS_POSITION] = -1
    while True:
        size, is_whole, reason = _size_at(chunk, position, end)
        if size == 0 or (count > 0 and not is_whole):
            break
        is_sound, base, last = _span(chunk, position, size, is_whole, previous_last, end_offset)
        if choice[_START] < 0:
            if floor_offset >= 0:  # a set of batches may have one entry, of its last offset
                last, floor_offset = _floor_last(chunk, position, floor_offset), -1
            if last < start_offset:
                previous_last = choice[_PREVIOUS_LAST] = max(previous_last, last)
                choice[_PREVIOUS_POSITION] = position
                position += size
                continue
            choice[_START], choice[_FIRST_SIZE] = position, size
            choice[_FIRST_BASE], choice[_FIRST_LAST] = base, last
        needs_follower = not is_segment_end and (count == 0 or base != previous_last + 1)
        if not is_whole or (needs_follower and end - position - size < _HEADER):
            reason = _PARTIAL
            break
        if base >= max_offset:
            break
        if not is_sound:
            reason = _BAD_OFFSET
            break
        if size > max_bytes - (position - choice[_START]) and count > 0:
            break
        if size >= INLINE_CRC_MAX:
            large_count = _note_large(large, large_count, position, size, count, choice)
        elif not _has_right_crc(chunk, position, size):
            reason = _BAD_CRC
            break
        previous_last = choice[_CHOSEN_LAST] = last
        count += 1
        position += size
    choice[_STOP], choice[_END_POSITION], choice[_LARGE_COUNT] = reason, position, large_count
    return count
