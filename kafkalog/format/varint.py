"""Zigzag variable-length integers of records: varint (32 bits) and varlong (64 bits).

Seven bits a byte, low group first, high bit set when more follow; at most 5 and 10 bytes. Plain
functions for tools, single records and markers; hot paths have their own in the kernels.
Source: Kafka 4.1 ByteUtils, log-format.md 1.2.
"""

from __future__ import annotations

from kafkalog.format.format_error import FormatError

Buffer = bytes | bytearray | memoryview

VARINT_BYTES_MAX = 5

_INT_MASK = (1 << 32) - 1
_LONG_MASK = (1 << 64) - 1


class MalformedVarint(FormatError):
    """The bytes end inside the integer, or it is longer than allowed."""


_ONE_BYTE = tuple(bytes((number,)) for number in range(0x80))


def encode_varint(value: int) -> bytes:
    """Encode a signed integer of at most 64 bits; the same bytes as varint and as varlong."""
    if -64 <= value < 64:
        return _ONE_BYTE[value << 1 if value >= 0 else -2 * value - 1]
    return encode_unsigned((value << 1 ^ value >> 63) & _LONG_MASK)


def encode_unsigned(value: int) -> bytes:
    """Groups of seven bits of a number >= 0, low group first."""
    if value < 1 << 14:
        low = value & 0x7F
        return _ONE_BYTE[low] if value == low else bytes((low | 0x80, value >> 7))
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def decode_varint(buffer: Buffer, position: int = 0) -> tuple[int, int]:
    """(value, position behind it); bits beyond 32 are dropped as Java does."""
    unsigned, end = decode_unsigned(buffer, position)
    return (unsigned >> 1) ^ -(unsigned & 1), end


def decode_unsigned(buffer: Buffer, position: int = 0) -> tuple[int, int]:
    """(value, position behind it): the reverse of encode_unsigned, as far as 32 bits go."""
    value = 0
    for index in range(VARINT_BYTES_MAX):
        if position + index >= len(buffer):
            raise MalformedVarint("the bytes end inside a varint", position)
        byte = buffer[position + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value & _INT_MASK, position + index + 1
    raise MalformedVarint(f"varint longer than {VARINT_BYTES_MAX} bytes", position)
