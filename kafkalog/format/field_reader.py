"""Fields of Kafka's schemas and records: strings, fixed and variable-length integers.

A string is its length as an int16 and UTF-8; a compact string an unsigned varint of length + 1. A
varint has seven bits a byte, low group first, the high bit set when more follow; signed ones are
zigzag encoded. Hot paths use the kernels' own functions. Pure; a FieldReader is for one thread.
Source: Kafka 4.1 ByteUtils.
"""

from __future__ import annotations

import struct

from kafkalog.format.integers import FormatError

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
    """(value, position after it); bits beyond 32 are dropped as Java does."""
    unsigned, end = decode_unsigned(buffer, position)
    return (unsigned >> 1) ^ -(unsigned & 1), end


def decode_unsigned(buffer: Buffer, position: int = 0) -> tuple[int, int]:
    """(value, position after it): the reverse of encode_unsigned, as far as 32 bits go."""
    value = 0
    for index in range(VARINT_BYTES_MAX):
        if position + index >= len(buffer):
            raise MalformedVarint("the bytes end inside a varint", position)
        byte = buffer[position + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value & _INT_MASK, position + index + 1
    raise MalformedVarint(f"varint longer than {VARINT_BYTES_MAX} bytes", position)


INT8 = struct.Struct(">b")
INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")
INT64 = struct.Struct(">q")


class FieldReader:
    """Reads field after field; raises ``fault`` at the end of the bytes and for invalid UTF-8."""

    def __init__(self, data: Buffer, fault: type[FormatError]) -> None:
        self._data = bytes(data)
        self._fault = fault
        self._position = 0

    def number(self, layout: struct.Struct) -> int:
        """One number of that layout."""
        end = self._position + layout.size
        if end > len(self._data):
            raise self._fault("a number is cut off", self._position)
        (value,) = layout.unpack_from(self._data, self._position)
        self._position = end
        return int(value)

    def count(self) -> int:
        """The length of an array, an int32; never more than bytes are left."""
        start, count = self._position, self.number(INT32)
        if not 0 <= count <= len(self._data) - self._position:
            raise self._fault("an array is null or cut off", start)
        return count

    def text(self) -> str:
        """A string."""
        return self._text_of(self.number(INT16))

    def compact_text(self) -> str:
        """A compact string."""
        return self._text_of(self._unsigned() - 1)

    def skip_tagged_fields(self) -> None:
        """All of them."""
        for _ in range(self._unsigned()):
            self._unsigned()  # the tag
            self._bytes_of(self._unsigned())

    def _unsigned(self) -> int:
        value, self._position = decode_unsigned(self._data, self._position)
        return value

    def _text_of(self, length: int) -> str:
        start = self._position
        try:
            return self._bytes_of(length).decode()
        except UnicodeDecodeError as error:
            raise self._fault("a string is not UTF-8", start) from error

    def _bytes_of(self, length: int) -> bytes:
        start, end = self._position, self._position + length
        if length < 0 or end > len(self._data):
            raise self._fault("a string is null or cut off", start)
        self._position = end
        return self._data[start:end]


def encode_text(text: str) -> bytes:
    """A string of at most 32,767 bytes."""
    encoded = text.encode()
    return INT16.pack(len(encoded)) + encoded
