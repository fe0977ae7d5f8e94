"""Plain twin: messages of formats v0 and v1 with ``struct``, alone and in wrappers."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from zlib import crc32

from kafkalog.format.records.compression import compress
from kafkalog.format.records.record_batch import Codec

APPEND_TIME = 0x08


@dataclass(frozen=True)
class PlainMessage:
    """What a reader gets; the timestamp of format v0 is -1."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def _field(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def entry(
    magic: int,
    offset: int,
    timestamp: int,
    key: bytes | None,
    value: bytes | None,
    attributes: int = 0,
) -> bytes:
    """One message as it lies in a log."""
    body = struct.pack(">BB", magic, attributes)
    if magic == 1:
        body += struct.pack(">q", timestamp)
    body += _field(key) + _field(value)
    message = struct.pack(">I", crc32(body)) + body
    return struct.pack(">qi", offset, len(message)) + message


def bare(magic: int, message: PlainMessage, attributes: int = 0) -> bytes:
    """A message that is not compressed."""
    return entry(magic, message.offset, message.timestamp, message.key, message.value, attributes)


def wrapper(
    magic: int,
    codec: Codec,
    messages: list[PlainMessage],
    *,
    append_time: int | None = None,
    first_offset: int | None = None,
) -> bytes:
    """A compressed set. ``first_offset``: of its first message before compaction took some (v1).

    With an append time the messages in it keep the times of their producer, as brokers left them.
    """
    last = messages[-1].offset
    base = 0
    if magic == 1:
        base = messages[0].offset if first_offset is None else first_offset
    inner = b"".join(
        entry(magic, each.offset - base, each.timestamp, each.key, each.value) for each in messages
    )
    content = compress(codec, inner)
    if codec is Codec.LZ4 and magic == 0:
        # Their checksum of the frame's header is over its magic, too.
        content = content[:6] + bytes((content[6] ^ 0x5A,)) + content[7:]
    attributes = int(codec) | (0 if append_time is None else APPEND_TIME)
    timestamp = max(each.timestamp for each in messages) if append_time is None else append_time
    return entry(magic, last, timestamp, None, content, attributes)
