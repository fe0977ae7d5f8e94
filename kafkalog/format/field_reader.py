"""FieldReader: the fields of a record's key or value, one after the other, as Kafka lays them out.

A string is its length as an int16 and UTF-8; a compact one an unsigned varint of the length + 1.
Pure; one thread.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from kafkalog.format.varint import decode_unsigned

if TYPE_CHECKING:
    from kafkalog.format.format_error import FormatError

Buffer = bytes | bytearray | memoryview

INT8 = struct.Struct(">b")
INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")
INT64 = struct.Struct(">q")


class FieldReader:
    """A position in bytes; beyond their end, or where no UTF-8 is, ``fault`` is raised."""

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
