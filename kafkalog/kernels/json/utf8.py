"""The ends of the characters of a UTF-8 text, for the kernels that write or replace them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.kernels.compile import inlined
from kafkalog.kernels.records.record_scan import as_int

if TYPE_CHECKING:
    from kafkalog.kernels.compile import Bytes


@inlined
def utf8_length(text: Bytes, position: int, end: int) -> int:
    """Bytes of the character of two or more at position; minus the bytes to replace if ill-formed.

    What is replaced is the longest start of a character, at least one byte (Unicode 3.9, U+FFFD).
    """
    lead = as_int(text[position])
    if lead < 0xC2 or lead > 0xF4:
        return -1
    size = 2 if lead < 0xE0 else (3 if lead < 0xF0 else 4)
    if position + 1 >= end:
        return -1
    second = as_int(text[position + 1])
    low = 0xA0 if lead == 0xE0 else (0x90 if lead == 0xF0 else 0x80)
    high = 0x9F if lead == 0xED else (0x8F if lead == 0xF4 else 0xBF)
    if second < low or second > high:
        return -1
    for index in range(2, size):
        if position + index >= end or text[position + index] & 0xC0 != 0x80:
            return -index
    return size
