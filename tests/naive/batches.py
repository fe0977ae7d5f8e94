"""Plain twin of the batch builder: v2 batches with ``struct``, one field after the other."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import crc32c

from kafkalog.log.values import AppendedBatch

if TYPE_CHECKING:
    from collections.abc import Iterable

AFTER_CRC = struct.Struct(">hiqqqhii")  # attributes ... record count


def varint(value: int) -> bytes:
    """Zigzag, seven bits a byte, least significant first."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def field(data: bytes | None) -> bytes:
    """Length and bytes, -1 for null."""
    return varint(-1) if data is None else varint(len(data)) + data


def record_bytes(
    timestamp_delta: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[bytes, bytes | None]] = (),
) -> bytes:
    pairs = list(headers)
    body = b"\0" + varint(timestamp_delta) + varint(offset_delta)
    body += field(key) + field(value) + varint(len(pairs))
    body += b"".join(field(name) + field(content) for name, content in pairs)
    return varint(len(body)) + body


def sealed(base_offset: int, leader_epoch: int, fields: tuple[int, ...], records: bytes) -> bytes:
    """A batch of these header fields behind the CRC and these records."""
    checked = AFTER_CRC.pack(*fields) + records
    head = struct.pack(">qiib", base_offset, 4 + 1 + 4 + len(checked), leader_epoch, 2)
    return head + struct.pack(">I", crc32c.crc32c(checked)) + checked


@dataclass(frozen=True)
class PlainBatch:
    """A batch of records without key and headers, at absolute offsets."""

    base_offset: int
    timestamps_ms: tuple[int, ...]
    values: tuple[bytes, ...]
    base_sequence: int = -1
    last_offset_delta: int | None = None  # above the record count - 1 after compaction

    @property
    def last_offset(self) -> int:
        """Last offset, which after compaction no record may have."""
        delta = self.last_offset_delta
        return self.base_offset + (len(self.values) - 1 if delta is None else delta)

    @property
    def max_timestamp_ms(self) -> int:
        return max(self.timestamps_ms)

    def encode(self) -> bytes:
        base_timestamp = self.timestamps_ms[0]
        records = b"".join(
            record_bytes(timestamp - base_timestamp, delta, None, value)
            for delta, (timestamp, value) in enumerate(
                zip(self.timestamps_ms, self.values, strict=True)
            )
        )
        span, count = self.last_offset - self.base_offset, len(self.values)
        stamps = base_timestamp, self.max_timestamp_ms
        return sealed(
            self.base_offset, 0, (0, span, *stamps, -1, -1, self.base_sequence, count), records
        )

    def facts(self) -> AppendedBatch:
        return AppendedBatch(
            base_offset=self.base_offset,
            last_offset=self.last_offset,
            size_bytes=len(self.encode()),
            max_timestamp_ms=self.max_timestamp_ms,
        )


def one_record(offset: int, timestamp_ms: int = 1000, value: bytes = b"v" * 100) -> PlainBatch:
    """A batch of a single record: 61 + 9 + len(value) bytes for values of 64 to 8,000 bytes."""
    return PlainBatch(offset, (timestamp_ms,), (value,))
