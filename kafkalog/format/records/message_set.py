"""Messages of format v0 and v1 (magic 0 and 1), as Kafka before 0.11 stored them.

Reads them and makes v2 batches of them; ``batch_scan`` finds them among v2 batches. Formats v0 and
v1 have no batches: a log is message after message, and a compressed message is a wrapper that holds
others.

    Byte  Len  Field                          Byte  Len  Field
       0    8  offset                           17    1  attributes: codec, timestamp type (v1)
       8    4  bytes after this field           18    8  timestamp (v1 alone)
      12    4  CRC-32 from byte 16 on                 4  length of the key, -1 for none; key
      16    1  magic                                  4  length of the value, -1 for none; value

The offset of a wrapper is that of its last message. The messages in it have their own offsets (v0)
or count from the first one that was in it once (v1), so that those that compaction took leave gaps.
A wrapper of v1 with LogAppendTime says when all of them were appended. v0 has no timestamps. LZ4
frames of v0 have a wrong header checksum.

A message counts as one only when its CRC is right: a v2 batch whose magic rotted is none.
Pure; one Python statement a message. Any thread. Source: Kafka 4.1 AbstractLegacyRecordBatch,
LegacyRecord and MemoryRecords.filterTo. Differs from Kafka: messages that are not
compressed share batches of up to GROUP_BYTES, where Kafka makes one of each.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.errors import InvalidRequest
from kafkalog.format.field_reader import encode_varint
from kafkalog.format.integers import FormatError
from kafkalog.format.records.batch_scan import (
    MESSAGE_ATTRIBUTES,
    MESSAGE_HEAD,
    MESSAGE_TIMESTAMP,
    BatchColumn,
    message_size,
)
from kafkalog.format.records.compression import compress, decompress, with_header_checksum
from kafkalog.format.records.record_batch import (
    CODEC_MASK,
    CRC_AT,
    HEADER_BYTES,
    LOG_OVERHEAD,
    MAGIC_V2,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    Codec,
    TimestampType,
    compute_crc,
    encode_header,
    pack_attributes,
    timestamp_type_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kafkalog.format.records.batch_scan import Buffer, Table

GROUP_BYTES = 16 * 1024  # batch.size of Kafka's producers

_LENGTH = struct.Struct(">i")
_ROW_COLUMNS = [
    int(column)
    for column in (
        BatchColumn.POSITION,
        BatchColumn.SIZE,
        BatchColumn.MAGIC,
        BatchColumn.ATTRIBUTES,
        BatchColumn.MAX_TIMESTAMP,
    )
]
_NULL = encode_varint(-1)


class MalformedMessage(FormatError):
    """The bytes are no message of format v0 or v1, or one that Kafka would not read."""


class Message(NamedTuple):
    """One message with its absolute offset; timestamp in ms, -1 for none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


# ---- reading


class _Stored(NamedTuple):
    """One message as it lies in the bytes."""

    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: memoryview | None
    value: memoryview | None
    end: int  # position after it


def read_messages(data: Buffer, *, max_bytes: int) -> list[Message]:
    """The messages of exactly one entry of a log: itself, or those in the wrapper.

    Raises MalformedMessage, DecompressedTooLarge (to more than max_bytes) and
    UnsupportedCompression. The CRC of ``data`` is not checked, those in a wrapper are.
    """
    view = memoryview(data)
    outer = _read(view, 0)
    if outer.end != len(view):
        raise MalformedMessage("the bytes hold more than one message", outer.end)
    if not outer.attributes & CODEC_MASK:
        return [Message(outer.offset, outer.timestamp, _bytes(outer.key), _bytes(outer.value))]
    inner = list(_inner_messages(outer, max_bytes))
    if not inner:
        raise MalformedMessage("a compressed message holds no others")
    base, append_time = 0, None
    if outer.magic == 1:
        if timestamp_type_of(outer.attributes) is TimestampType.LOG_APPEND_TIME:
            append_time = outer.timestamp
        # Old librdkafka left the offset of a wrapper 0.
        base = outer.offset - inner[-1].offset if outer.offset else 0
        if base < 0:
            raise MalformedMessage("a compressed message has a lower offset than those in it")
    return [
        Message(
            base + each.offset,
            each.timestamp if append_time is None else append_time,
            _bytes(each.key),
            _bytes(each.value),
        )
        for each in inner
    ]


def _inner_messages(outer: _Stored, max_bytes: int) -> Iterator[_Stored]:
    """What a wrapper holds."""
    if outer.value is None:
        raise MalformedMessage("a compressed message has no value")
    codec = outer.attributes & CODEC_MASK
    if codec >= Codec.ZSTD:
        raise MalformedMessage(f"format v{outer.magic} has no compression type {codec}")
    content: Buffer = outer.value
    if codec == Codec.LZ4 and outer.magic == 0:
        content = with_header_checksum(content)
    view = memoryview(decompress(codec, content, max_bytes=max_bytes))
    position = 0
    while position < len(view):
        if not message_size(view, position):
            raise MalformedMessage("a message in a compressed one is cut short or fails its CRC")
        inner = _read(view, position)
        if inner.attributes & CODEC_MASK:
            raise MalformedMessage("a compressed message holds a compressed one")
        yield inner
        position = inner.end


def _read(view: memoryview, position: int) -> _Stored:
    """The message at position, whose end lies within the bytes."""
    try:
        offset, length, _, magic, attributes = MESSAGE_HEAD.unpack_from(view, position)
        end = position + LOG_OVERHEAD + length
        at, timestamp = position + MESSAGE_HEAD.size, NO_TIMESTAMP
        if magic:
            (timestamp,) = MESSAGE_TIMESTAMP.unpack_from(view, at)
            at += MESSAGE_TIMESTAMP.size
        key, at = _field(view, at, end)
        value, at = _field(view, at, end)
    except struct.error as error:
        raise MalformedMessage("a message is cut short", position) from error
    if at != end:
        raise MalformedMessage("the fields of a message do not fill it", position)
    return _Stored(
        offset, magic, attributes & MESSAGE_ATTRIBUTES[magic], timestamp, key, value, end
    )


def _field(view: memoryview, at: int, end: int) -> tuple[memoryview | None, int]:
    """A key or value, and the position after it."""
    (length,) = _LENGTH.unpack_from(view, at)
    start = at + _LENGTH.size
    if length < 0:
        return None, start
    if length > end - start:
        raise MalformedMessage("a key or value reaches beyond its message", at)
    return view[start : start + length], start + length


def _bytes(field: memoryview | None) -> bytes | None:
    return None if field is None else bytes(field)


# ---- conversion


class ConvertedChunk(NamedTuple):
    """v2 batches back to back, and how many messages of format v0 and v1 are in them."""

    data: bytes
    message_count: int


def convert(chunk: Buffer, table: Table, *, max_bytes: int) -> ConvertedChunk:
    """The rows of ``scan_any`` as v2 batches; those that are v2 stay as they are.

    A wrapper becomes one batch of the same codec. Offsets, timestamps and the timestamp type are
    kept; there is no leader epoch, as in Kafka. Raises MalformedMessage, with the position in the
    chunk, also for a wrapper that cannot be inflated.
    """
    view, out, count = memoryview(chunk), list[bytes | memoryview](), 0
    group = list[Message]()
    group_kind: tuple[int, ...] = ()
    group_bytes = 0

    def end_group() -> None:
        nonlocal group_bytes
        if group:
            out.append(_batch_of(group, Codec.NONE, TimestampType(group_kind[1])))
            group.clear()
            group_bytes = 0

    for position, size, magic, attributes, stamp in table[:, _ROW_COLUMNS].tolist():
        entry = view[position : position + size]
        if magic == MAGIC_V2:
            end_group()
            out.append(entry)
            continue
        try:
            messages = read_messages(entry, max_bytes=max_bytes)
        except (FormatError, InvalidRequest) as error:
            raise MalformedMessage(str(error), position) from error
        count += len(messages)
        timestamp_type = timestamp_type_of(attributes)
        if attributes & CODEC_MASK:
            end_group()
            out.append(_batch_of(messages, Codec(attributes & CODEC_MASK), timestamp_type))
            continue
        # A batch has one time of appending, and format v0 none at all.
        is_append_time = timestamp_type is TimestampType.LOG_APPEND_TIME
        kind = (magic, timestamp_type, stamp if is_append_time else NO_TIMESTAMP)
        if kind != group_kind or group_bytes + size > GROUP_BYTES:
            end_group()
            group_kind = kind
        group += messages
        group_bytes += size
    end_group()
    return ConvertedChunk(b"".join(out), count)


def _batch_of(messages: list[Message], codec: Codec, timestamp_type: TimestampType) -> bytes:
    """One v2 batch; the last message has the highest offset."""
    first = messages[0]
    _check_order(messages)
    records = b"".join(_record(each, first.offset, first.timestamp) for each in messages)
    batch = bytearray(HEADER_BYTES) + compress(codec, records)
    header = BatchHeader(
        base_offset=first.offset,
        length=len(batch) - LOG_OVERHEAD,
        leader_epoch=NO_LEADER_EPOCH,
        magic=MAGIC_V2,
        crc=0,
        attributes=pack_attributes(codec, timestamp_type),
        last_offset_delta=messages[-1].offset - first.offset,
        base_timestamp=first.timestamp,
        max_timestamp=max(each.timestamp for each in messages),
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        record_count=len(messages),
    )
    batch[:HEADER_BYTES] = encode_header(header)
    batch[CRC_AT : CRC_AT + 4] = compute_crc(batch).to_bytes(4, "big")
    return bytes(batch)


def _check_order(messages: Iterable[Message]) -> None:
    previous = -1
    for each in messages:
        if each.offset <= previous:
            raise MalformedMessage(f"offset {each.offset} does not follow {previous}")
        previous = each.offset


def _record(message: Message, base_offset: int, base_timestamp: int) -> bytes:
    """A record without headers."""
    offset, timestamp, key, value = message
    body = b"".join(
        (
            b"\0",
            encode_varint(timestamp - base_timestamp),
            encode_varint(offset - base_offset),
            _NULL if key is None else encode_varint(len(key)) + key,
            _NULL if value is None else encode_varint(len(value)) + value,
            b"\0",
        )
    )
    return encode_varint(len(body)) + body
