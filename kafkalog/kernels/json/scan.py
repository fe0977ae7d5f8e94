"""Strict JSON (RFC 8259) over bytes: one value of a record, or the text of a request body.

Owns the grammar, UTF-8, the limits on depth and on digits, and the check for duplicate keys.
Creates no Python objects. Input is hostile: every read is bounded, depth is a table, and the time
is linear in the text because an object may have at most KEYS_MAX keys. Any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from kafkalog.kernels.compile import BYTES, I64, I64_TABLE, I64_TABLE_OUT, I64S_OUT, inlined, kernel
from kafkalog.kernels.json.records import JsonFault
from kafkalog.kernels.loads import load_u64le

if TYPE_CHECKING:
    from kafkalog.kernels.compile import Bytes, Int64s, Int64Table

as_int = cast("type[int]", np.int64)  # an uint8 would stay unsigned under int()

DEPTH_MAX = 64
DIGITS_MAX = 40
KEYS_MAX = 512
WORK_COLUMN_COUNT = 3
STATE_CELL_COUNT = 5
_STACK_ROWS = DEPTH_MAX + 1


_SYNTAX = int(JsonFault.SYNTAX)
_BAD_UTF8 = int(JsonFault.BAD_UTF8)
_TOO_DEEP = int(JsonFault.TOO_DEEP)
_DUPLICATE_KEY = int(JsonFault.DUPLICATE_KEY)
_LONG_NUMBER = int(JsonFault.LONG_NUMBER)
_LONE_SURROGATE = int(JsonFault.LONE_SURROGATE)
_BYTE_ORDER_MARK = int(JsonFault.BYTE_ORDER_MARK)
_TOO_MANY_KEYS = int(JsonFault.TOO_MANY_KEYS)
_CONTROL_CHARACTER = int(JsonFault.CONTROL_CHARACTER)

# Rows of the working table: one per open container by depth, after them the seen keys (those of
# one object are adjacent, inner objects follow). Columns of a seen key, then of a container.
_KEY_HASH, _KEY_START, _KEY_END = 0, 1, 2
_IS_OBJECT, _FIRST_KEY, _IS_RECORDS = 0, 1, 2
# Cells of the state. Containers from PAYLOAD_DEPTH on belong to a record's key or value.
_AT, _DEPTH, _KEYS_END, _PAYLOAD_DEPTH, _NEXT_IS_PAYLOAD = 0, 1, 2, 3, 4

_LOW_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)
_TOP_BITS = np.uint64(0x8080808080808080)
_QUOTES = np.uint64(0x2222222222222222)
_BACKSLASHES = np.uint64(0x5C5C5C5C5C5C5C5C)
_ABOVE_CONTROLS = np.uint64(0x6060606060606060)

_RECORDS = np.frombuffer(b"records", np.uint8)
_KEY = np.frombuffer(b"key", np.uint8)
_VALUE = np.frombuffer(b"value", np.uint8)
_TRUE = np.frombuffer(b"true", np.uint8)
_FALSE = np.frombuffer(b"false", np.uint8)
_NULL = np.frombuffer(b"null", np.uint8)


@inlined
def _skip_space(text: Bytes, position: int, end: int) -> int:
    """Position of the next byte that is no white space."""
    while position < end:
        byte = text[position]
        if byte > 32 or (byte != 32 and byte != 10 and byte != 13 and byte != 9):
            break
        position += 1
    return position


@inlined
def _is_at(text: Bytes, position: int, end: int, word: Bytes) -> bool:
    """Whether the word is at position."""
    if len(word) > end - position:
        return False
    for index in range(len(word)):
        if text[position + index] != word[index]:
            return False
    return True


@inlined
def _utf8_length(text: Bytes, position: int, end: int) -> int:
    """Bytes of the well-formed character of two or more bytes at position, else 0."""
    lead = as_int(text[position])
    if lead < 0xC2 or lead > 0xF4:
        return 0
    size = 2 if lead < 0xE0 else (3 if lead < 0xF0 else 4)
    if size > end - position:
        return 0
    second = as_int(text[position + 1])
    low = 0xA0 if lead == 0xE0 else (0x90 if lead == 0xF0 else 0x80)
    high = 0x9F if lead == 0xED else (0x8F if lead == 0xF4 else 0xBF)
    if second < low or second > high:
        return 0
    for index in range(2, size):
        if text[position + index] & 0xC0 != 0x80:
            return 0
    return size


@inlined
def _hex4(text: Bytes, position: int, end: int) -> int:
    """Value of four hexadecimal digits, or -1."""
    if end - position < 4:
        return -1
    value = as_int(0)
    for index in range(4):
        byte = as_int(text[position + index])
        if 48 <= byte <= 57:
            digit = byte - 48
        elif 97 <= (byte | 32) <= 102:
            digit = (byte | 32) - 87
        else:
            return -1
        value = value << 4 | digit
    return value


@inlined
def _skip_escape(text: Bytes, position: int, end: int, strict: bool) -> int:
    """Position after the escape whose backslash is at position, or minus the fault."""
    if position + 1 >= end:
        return -_SYNTAX
    byte = text[position + 1]
    if byte != 117:  # u
        return position + 2 if byte in (34, 92, 47, 98, 102, 110, 114, 116) else -_SYNTAX
    unit = _hex4(text, position + 2, end)
    if unit < 0:
        return -_SYNTAX
    if not strict or unit < 0xD800 or unit > 0xDFFF:
        return position + 6
    if unit > 0xDBFF or end - position < 12:
        return -_LONE_SURROGATE
    if text[position + 6] != 92 or text[position + 7] != 117:
        return -_LONE_SURROGATE
    low = _hex4(text, position + 8, end)
    return position + 12 if 0xDC00 <= low <= 0xDFFF else -_LONE_SURROGATE


@inlined
def _skip_plain(text: Bytes, position: int, end: int) -> int:
    """Position of the first byte that is a quote, a backslash, below space or above ASCII.

    Eight bytes at a time: a byte below 128 plus 127 has its top bit set unless it was 0, plus 96
    unless it was below space; no sum carries into the next byte.
    """
    while end - position >= 8:
        word = load_u64le(text, position)
        plain = ((word ^ _QUOTES) & _LOW_BITS) + _LOW_BITS
        plain &= ((word ^ _BACKSLASHES) & _LOW_BITS) + _LOW_BITS
        plain &= (word & _LOW_BITS) + _ABOVE_CONTROLS
        if plain & ((word & _TOP_BITS) ^ _TOP_BITS) != _TOP_BITS:
            break
        position += 8
    while position < end:
        byte = text[position]
        if byte == 34 or byte == 92 or byte < 32 or byte > 127:
            break
        position += 1
    return position


@inlined
def _skip_string(text: Bytes, position: int, end: int, strict: bool, state: Int64s) -> int:
    """Position after the string whose opening quote is at position, or minus the fault."""
    position += 1
    while True:
        position = _skip_plain(text, position, end)
        state[_AT] = position
        if position >= end:
            return -_SYNTAX
        byte = text[position]
        if byte == 34:
            return position + 1
        if byte == 92:
            following = _skip_escape(text, position, end, strict)
            if following < 0:
                return following
            position = following
        elif byte < 32:
            return -_CONTROL_CHARACTER
        else:
            size = _utf8_length(text, position, end)
            if size == 0:
                return -_BAD_UTF8
            position += size


@inlined
def _skip_digits(text: Bytes, position: int, end: int) -> int:
    """Position of the next byte that is no digit."""
    while position < end and 48 <= text[position] <= 57:
        position += 1
    return position


@inlined
def _skip_number(text: Bytes, start: int, end: int, strict: bool, state: Int64s) -> int:
    """Position after the number at start, or minus the fault."""
    position = start
    state[_AT] = start
    if text[position] == 45:
        position += 1
    digits = _skip_digits(text, position, end)
    if digits == position or (digits - position > 1 and text[position] == 48):
        return -_SYNTAX
    position = digits
    if position < end and text[position] == 46:
        digits = _skip_digits(text, position + 1, end)
        if digits == position + 1:
            return -_SYNTAX
        position = digits
    if position < end and (text[position] | 32) == 101:
        position += 1
        if position < end and (text[position] == 43 or text[position] == 45):
            position += 1
        digits = _skip_digits(text, position, end)
        if digits == position:
            return -_SYNTAX
        position = digits
    if strict and position - start > DIGITS_MAX:
        return -_LONG_NUMBER
    return position


@inlined
def _skip_scalar(text: Bytes, position: int, end: int, strict: bool, state: Int64s) -> int:
    """Position after the string, number or word at position (< end), or minus the fault."""
    byte = text[position]
    if byte == 34:
        return _skip_string(text, position, end, strict, state)
    if byte == 45 or 48 <= byte <= 57:
        return _skip_number(text, position, end, strict, state)
    if _is_at(text, position, end, _TRUE) or _is_at(text, position, end, _NULL):
        return position + 4
    if _is_at(text, position, end, _FALSE):
        return position + 5
    state[_AT] = position
    return -_SYNTAX


@inlined
def _character(text: Bytes, position: int) -> tuple[int, int]:
    """(code point, next position) of the checked string character at position."""
    byte = as_int(text[position])
    if byte == 92:
        return _escaped_character(text, position)
    if byte < 0x80:
        return byte, position + 1
    size = 2 if byte < 0xE0 else (3 if byte < 0xF0 else 4)
    value = byte & (0x7F >> size)
    for index in range(1, size):
        value = value << 6 | (as_int(text[position + index]) & 0x3F)
    return value, position + size


@inlined
def _escaped_character(text: Bytes, position: int) -> tuple[int, int]:
    """As `_character`, for a checked escape without lone surrogates."""
    byte = as_int(text[position + 1])
    if byte == 117:
        unit = _hex4(text, position + 2, len(text))
        if 0xD800 <= unit <= 0xDBFF:
            low = _hex4(text, position + 8, len(text))
            return 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00), position + 12
        return unit, position + 6
    if byte == 98:
        byte = as_int(8)
    elif byte == 102:
        byte = as_int(12)
    elif byte == 110:
        byte = as_int(10)
    elif byte == 114:
        byte = as_int(13)
    elif byte == 116:
        byte = as_int(9)
    return byte, position + 2


@inlined
def _hash_key(text: Bytes, start: int, end: int) -> int:
    """FNV-1a over the code points; only a filter, keys with equal hashes are compared."""
    hashed = as_int(0x811C9DC5)
    while start < end:
        value, start = _character(text, start)
        hashed = ((hashed ^ value) * 16777619) & 0xFFFFFFFF
    return hashed


@inlined
def _is_same_key(text: Bytes, left: int, left_end: int, right: int, right_end: int) -> bool:
    """Whether two checked strings mean the same characters."""
    while left < left_end and right < right_end:
        left_value, left = _character(text, left)
        right_value, right = _character(text, right)
        if left_value != right_value:
            return False
    return left == left_end and right == right_end


@inlined
def _note_key(text: Bytes, start: int, end: int, work: Int64Table, first: int, count: int) -> int:
    """Add a key to the work[first:count] of its object; 0 or minus the fault."""
    if count - first >= KEYS_MAX:
        return -_TOO_MANY_KEYS
    hashed = _hash_key(text, start, end)
    for index in range(first, count):
        if work[index, _KEY_HASH] == hashed and _is_same_key(
            text, work[index, _KEY_START], work[index, _KEY_END], start, end
        ):
            return -_DUPLICATE_KEY
    work[count, _KEY_HASH] = hashed
    work[count, _KEY_START] = start
    work[count, _KEY_END] = end
    return 0


@inlined
def _is_payload(text: Bytes, start: int, end: int) -> bool:
    """Whether a record's member is its key or its value."""
    size = end - start
    if size == 3:
        return _is_at(text, start, end, _KEY)
    return size == 5 and _is_at(text, start, end, _VALUE)


@inlined
def _read_key(
    text: Bytes, position: int, end: int, strict: bool, work: Int64Table, state: Int64s
) -> int:
    """Position of the member's value after the key at position, or minus the fault."""
    state[_AT] = position
    if position >= end or text[position] != 34:
        return -_SYNTAX
    start = position + 1
    position = _skip_string(text, position, end, strict, state)
    if position < 0:
        return position
    key_end = position - 1
    depth = state[_DEPTH]
    if strict and depth < state[_PAYLOAD_DEPTH]:
        state[_AT] = start - 1
        first, count = work[depth, _FIRST_KEY], state[_KEYS_END]
        fault = _note_key(text, start, key_end, work, first, count)
        if fault < 0:
            return fault
        state[_KEYS_END] = count + 1
        if depth == 1:
            is_records = key_end - start == 7 and _is_at(text, start, end, _RECORDS)
            work[1, _IS_RECORDS] = 1 if is_records else 0
        if depth == 3 and work[1, _IS_RECORDS] == 1 and work[2, _IS_OBJECT] == 0:
            state[_NEXT_IS_PAYLOAD] = 1 if _is_payload(text, start, key_end) else 0
    position = _skip_space(text, position, end)
    state[_AT] = position
    if position >= end or text[position] != 58:
        return -_SYNTAX
    return _skip_space(text, position + 1, end)


@inlined
def _open_container(
    text: Bytes, position: int, depth_max: int, work: Int64Table, state: Int64s
) -> int:
    """Push the bracket at position; the position after it, or minus the fault."""
    if state[_DEPTH] >= depth_max:
        return -_TOO_DEEP
    depth = state[_DEPTH] + 1
    state[_DEPTH] = depth
    if state[_NEXT_IS_PAYLOAD] == 1:
        state[_PAYLOAD_DEPTH] = depth
        state[_NEXT_IS_PAYLOAD] = 0
    work[depth, _IS_OBJECT] = 1 if text[position] == 123 else 0
    work[depth, _FIRST_KEY] = state[_KEYS_END]
    work[depth, _IS_RECORDS] = 0
    return position + 1


@inlined
def _close_containers(text: Bytes, position: int, end: int, work: Int64Table, state: Int64s) -> int:
    """Pop for every closing bracket from position on; position of what follows."""
    depth = state[_DEPTH]
    while depth > 0 and position < end:
        if text[position] != (125 if work[depth, _IS_OBJECT] == 1 else 93):
            break
        state[_KEYS_END] = work[depth, _FIRST_KEY]
        depth -= 1
        if depth < state[_PAYLOAD_DEPTH]:
            state[_PAYLOAD_DEPTH] = DEPTH_MAX + 1
        position = _skip_space(text, position + 1, end)
    state[_DEPTH] = depth
    return position


@inlined
def _walk(
    text: Bytes, start: int, end: int, depth_max: int, strict: bool, work: Int64Table, state: Int64s
) -> int:
    """Check one value with white space around it in text[start:end]; 0 or minus the fault.

    strict: also refuse duplicate keys (except inside `records[*].key` and `.value`), long numbers
    and lone surrogates.
    """
    state[_DEPTH] = 0
    state[_KEYS_END] = _STACK_ROWS
    state[_NEXT_IS_PAYLOAD] = 0
    state[_PAYLOAD_DEPTH] = DEPTH_MAX + 1
    position = _skip_space(text, start, end)
    while True:
        state[_AT] = position
        if position >= end:
            return -_SYNTAX
        opened = text[position] == 123 or text[position] == 91
        if opened:
            position = _open_container(text, position, depth_max, work, state)
        else:
            state[_NEXT_IS_PAYLOAD] = 0
            position = _skip_scalar(text, position, end, strict, state)
        if position < 0:
            return position
        position = _skip_space(text, position, end)
        depth = state[_DEPTH]
        position = _close_containers(text, position, end, work, state)
        state[_AT] = position
        if state[_DEPTH] == 0:
            return 0 if position == end else -_SYNTAX
        if not opened or state[_DEPTH] < depth:  # a whole value has ended
            if position >= end or text[position] != 44:
                return -_SYNTAX
            position = _skip_space(text, position + 1, end)
        if work[state[_DEPTH], _IS_OBJECT] == 1:
            position = _read_key(text, position, end, strict, work, state)
            if position < 0:
                return position


def work_rows(text_bytes: int) -> int:
    """Rows of the working memory for a text: open containers, then the keys seen in them."""
    return _STACK_ROWS + min(text_bytes // 4 + 1, DEPTH_MAX * KEYS_MAX)  # a member: four bytes


@kernel(I64(BYTES, I64, I64_TABLE_OUT, I64S_OUT))
def check_envelope(text: Bytes, depth_max: int, work: Int64Table, state: Int64s) -> int:
    """Check the text of a request body; 0 or minus a `JsonFault`.

    text        uint8[n]   the body
    depth_max              containers inside one another, at most DEPTH_MAX
    work        int64[work_rows(n), 3]   memory for open containers and seen keys
    state       int64[5]   out: in its first cell the byte at which the fault was seen
    """
    state[_AT] = 0
    if len(text) >= 3 and text[0] == 0xEF and text[1] == 0xBB and text[2] == 0xBF:
        return -_BYTE_ORDER_MARK
    return _walk(text, 0, len(text), min(depth_max, DEPTH_MAX), True, work, state)


@kernel(I64(BYTES, I64_TABLE, I64, I64, I64_TABLE_OUT, I64S_OUT))
def check_values(
    text: Bytes, spans: Int64Table, count: int, depth_max: int, work: Int64Table, state: Int64s
) -> int:
    """Index of the first span that is not one JSON value, or -1 when all are.

    text     uint8[n]
    spans    int64[m, k]   start and end within text in the first two columns
    count                  spans to check
    work     int64[work_rows(0), 3]
    state    int64[5]      out: first cell, byte of the fault counted from the start of text
    """
    limit = min(depth_max, DEPTH_MAX)
    for index in range(count):
        start, end = spans[index, 0], spans[index, 1]
        if _walk(text, start, end, limit, False, work, state) < 0:
            return index
    return -1


def walk_memory(text_bytes: int) -> tuple[Int64Table, Int64s]:
    """(work, state) of a check of a text of this size; rows that are not used cost nothing."""
    work = np.empty((work_rows(text_bytes), WORK_COLUMN_COUNT), np.int64)
    return work, np.empty(STATE_CELL_COUNT, np.int64)
