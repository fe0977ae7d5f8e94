"""Splits an Arrow IPC stream into messages, chunk by chunk.

Owns the framing and the limits that must hold before pyarrow reads a message: its size, and the
size that its buffers declare to inflate to, because pyarrow allocates that memory. For this it
reads a few fields of the metadata (a flatbuffer) and checks every position, because the bytes may
be hostile. Pure Python, a few statements a message. Needs no pyarrow. Source: Arrow columnar format
1.5 (IPC streaming format), Message.fbs, Schema.fbs.

    0xFFFFFFFF | int32 size of the metadata | metadata | body, as long as the metadata says

A metadata size of 0 ends the stream.
"""

from __future__ import annotations

import enum
import struct

from kafkalog.format.integers import FormatError

METADATA_BYTES_MAX = 1 << 20
"""Of one message: a schema of a thousand columns has a tenth of it."""

_BUFFERS_MAX = 1 << 12  # of one message: far more than the columns of records have
_NAME_SHOWN_MAX = 100
_PREFIX_BYTES = 8
_CONTINUATION = b"\xff\xff\xff\xff"
_BUFFER_BYTES = 16  # offset and length
_U8, _U16, _I32, _U32 = map(struct.Struct, ("<B", "<H", "<i", "<I"))
_I64 = struct.Struct("<q")
# Fields by their place in their table.
_HEADER_TYPE, _HEADER, _BODY_LENGTH = 1, 2, 3
_BUFFERS, _COMPRESSION = 2, 3


class MalformedArrow(FormatError):
    """The bytes are no Arrow stream, or one that is not supported."""


class MessageTooLarge(FormatError):
    """A message, or what it inflates to, is above ``max_bytes``."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(f"a message of the Arrow stream has more than {max_bytes} bytes")
        self.max_bytes = max_bytes


class UnusableColumn(FormatError):
    """A column is missing, unknown, of a wrong type, or holds what no record may have."""

    def __init__(self, column: str, reason: str) -> None:
        self.column = column[:_NAME_SHOWN_MAX]
        super().__init__(f"column '{self.column}': {reason}")


class MessageKind(enum.IntEnum):
    """What a message holds (Message.fbs)."""

    SCHEMA = 1
    DICTIONARY_BATCH = 2
    RECORD_BATCH = 3


class _Metadata:
    """Reads of a flatbuffer. MalformedArrow for what reaches beyond it."""

    def __init__(self, data: memoryview) -> None:
        self._data = data

    def number(self, layout: struct.Struct, position: int) -> int:
        """The number there."""
        if not 0 <= position <= len(self._data) - layout.size:
            raise MalformedArrow("the metadata of an Arrow message is damaged")
        (number,) = layout.unpack_from(self._data, position)
        return int(number)

    def field(self, table: int, index: int) -> int | None:
        """Position of a field of a table; None: it has its default."""
        layout = table - self.number(_I32, table)
        slot = 4 + 2 * index
        if slot >= self.number(_U16, layout):
            return None
        return (table + distance) if (distance := self.number(_U16, layout + slot)) else None

    def number_field(self, layout: struct.Struct, table: int, index: int) -> int:
        """A number of a table; 0 by default."""
        position = self.field(table, index)
        return 0 if position is None else self.number(layout, position)

    def target(self, position: int) -> int:
        """Position of the table or vector that the offset there points to."""
        return position + self.number(_U32, position)

    def table_field(self, table: int, index: int) -> int | None:
        """The table or vector of a field."""
        position = self.field(table, index)
        return None if position is None else self.target(position)


class MessageCutter:
    """A `Splitter` of one stream into messages, each with its prefix as pyarrow reads it.

    Any thread, one at a time. Messages before a fault are returned.

    max_bytes       of one message, and of all its buffers inflated
    pending_bytes   of the message that has begun and not ended
    fault           why nothing more comes; None as long as all is well
    """

    ends_at_broken = True

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []  # of the message that is not whole
        self._needed_bytes = _PREFIX_BYTES  # to go on with it
        self._count = 0
        self._is_over = False
        self.pending_bytes = 0
        self.fault: FormatError | None = None

    @property
    def is_lost(self) -> bool:
        """Whether the rest of the stream cannot be split."""
        return self.fault is not None

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that end in data."""
        if self.fault is not None:
            return []
        self._parts.append(data)
        self.pending_bytes += len(data)
        if self.pending_bytes < self._needed_bytes:
            return []
        stream = data if len(self._parts) == 1 else b"".join(self._parts)
        messages: list[bytes] = []
        try:
            end = self._cut(stream, messages)
        except FormatError as fault:
            self.fault, end = fault, len(stream)
        self._parts, self.pending_bytes = [stream[end:]], len(stream) - end
        return messages

    def finish(self) -> list[bytes]:
        """Nothing more comes. Gives no message; ``fault`` when one is not whole or there was none.

        A stream may lack the eight bytes that end it, but not some of them.
        """
        if self.fault is None and self.pending_bytes:
            self.fault = MalformedArrow("the Arrow stream breaks off within a message")
        elif self.fault is None and not self._count:
            self.fault = MalformedArrow("this is no Arrow stream: there is no schema")
        self._parts, self.pending_bytes = [], 0
        return []

    def _cut(self, stream: bytes, messages: list[bytes]) -> int:
        """Append the whole messages of stream; where they end."""
        position = 0
        while True:
            size_bytes = self._size(memoryview(stream)[position:])
            if size_bytes > len(stream) - position:
                self._needed_bytes = size_bytes
                return position
            position += size_bytes
            if not self._is_over:
                messages.append(self._checked(stream[position - size_bytes : position]))

    def _size(self, rest: memoryview) -> int:
        """Bytes of the first message, as far as its known bytes say."""
        if self._is_over and len(rest):
            raise MalformedArrow("bytes follow the end of the Arrow stream")
        if len(rest) < _PREFIX_BYTES:
            return _PREFIX_BYTES
        if rest[:4] != _CONTINUATION:
            raise MalformedArrow("this is no Arrow IPC stream (of version 0.15 or later)")
        (metadata_bytes,) = _I32.unpack_from(rest, 4)
        if metadata_bytes == 0:
            self._is_over = True
            return _PREFIX_BYTES
        if not 0 < metadata_bytes <= METADATA_BYTES_MAX:
            raise MalformedArrow(f"metadata of {metadata_bytes} bytes in the Arrow stream")
        body_start = _PREFIX_BYTES + int(metadata_bytes)
        if len(rest) < body_start:
            return body_start
        metadata = _Metadata(rest[_PREFIX_BYTES:body_start])
        body_bytes = metadata.number_field(_I64, metadata.target(0), _BODY_LENGTH)
        if body_bytes < 0:
            raise MalformedArrow("the body of an Arrow message has a negative size")
        if body_bytes > self._max_bytes - body_start:
            raise MessageTooLarge(self._max_bytes)
        return body_start + body_bytes

    def _checked(self, message: bytes) -> bytes:
        """A whole message, when its kind is in its place and its buffers keep the bound."""
        self._count += 1
        if (kind_of(message) is MessageKind.SCHEMA) != (self._count == 1):
            raise MalformedArrow("an Arrow stream has one schema, at its beginning")
        inflated_bytes(message, self._max_bytes)
        return message


def inflated_bytes(message: bytes, max_bytes: int) -> int:
    """The size that the buffers of a whole message declare; 0 unless it is compressed.

    MessageTooLarge above max_bytes, MalformedArrow.
    """
    if kind_of(message) is not MessageKind.RECORD_BATCH:
        return 0
    metadata, body_start = _metadata_of(message)
    header = metadata.table_field(metadata.target(0), _HEADER)
    buffers = None if header is None else metadata.table_field(header, _BUFFERS)
    if header is None or buffers is None or metadata.field(header, _COMPRESSION) is None:
        return 0
    total_bytes = 0
    count = metadata.number(_U32, buffers)
    if count > _BUFFERS_MAX:
        raise MalformedArrow(f"an Arrow message has {count} buffers")
    for index in range(count):
        position = buffers + 4 + _BUFFER_BYTES * index
        start, length = metadata.number(_I64, position), metadata.number(_I64, position + 8)
        if length == 0:
            continue
        if length < 8 or not 0 <= start <= len(message) - body_start - length:
            raise MalformedArrow("a buffer is outside of its Arrow message")
        (declared,) = _I64.unpack_from(message, body_start + start)
        total_bytes += length if declared < 0 else declared  # -1: stored as it is
        if total_bytes > max_bytes:
            raise MessageTooLarge(max_bytes)
    return total_bytes


def kind_of(message: bytes) -> MessageKind:
    """What a whole message holds; MalformedArrow for what no stream of records has."""
    metadata, _ = _metadata_of(message)
    try:
        return MessageKind(metadata.number_field(_U8, metadata.target(0), _HEADER_TYPE))
    except ValueError:
        raise MalformedArrow("the Arrow stream contains other messages than batches") from None


def _metadata_of(message: bytes) -> tuple[_Metadata, int]:
    """The metadata of a whole message, and where its body begins."""
    body_start = _PREFIX_BYTES + int(_I32.unpack_from(message, 4)[0])
    return _Metadata(memoryview(message)[_PREFIX_BYTES:body_start]), body_start
