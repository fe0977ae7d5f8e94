"""The header of a record batch, magic 2: layout, reading, writing, and changes to a stored header.

Owns the 61 bytes before the records and the CRC over both. Does not read records or codecs. Pure
functions; any thread. Source: Kafka 4.1 DefaultRecordBatch.

    Byte  Len  Field                    Byte  Len  Field
       0    8  base offset                27    8  base timestamp, or delete horizon (bit 6)
       8    4  bytes after this field     35    8  max timestamp
      12    4  partition leader epoch     43    8  producer id
      16    1  magic                      51    2  producer epoch
      17    4  CRC-32C from byte 21 on    53    4  base sequence
      21    2  attributes                 57    4  record count
      23    4  last offset delta          61       records, or one compressed stream

The CRC does not cover base offset, length, leader epoch and magic: they can be changed without
touching the payload, and nothing protects them.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from kafkalog.format.integers import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator

Buffer = bytes | bytearray | memoryview

LENGTH_AT = 8
LEADER_EPOCH_AT = 12
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
LAST_OFFSET_DELTA_AT = 23
BASE_TIMESTAMP_AT = 27
MAX_TIMESTAMP_AT = 35
RECORD_COUNT_AT = 57
HEADER_BYTES = 61

LOG_OVERHEAD = 12
"""Base offset and length: what the length field does not count."""
PREFIX_BYTES = 16
"""Base offset, length, leader epoch: the bytes that the broker replaces in a client's batch."""
HEADER_UP_TO_MAGIC = 17
LEGACY_LENGTH_MIN = 14
"""The smallest length that Kafka takes for an entry of any magic."""
MAGIC_V2 = 2

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1

CODEC_MASK = 0x07
"""In the attributes: the number of the codec, 0 for none."""
_LOG_APPEND_TIME_BIT = 0x08
_TRANSACTIONAL_BIT = 0x10
_CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
"""In the attributes: the base timestamp is when tombstones or a marker may be removed."""

_HEADER = struct.Struct(">qiibIhiqqqhii")
_PREFIX = struct.Struct(">qii")
_CRC = struct.Struct(">I")


class Codec(IntEnum):
    """Attribute bits 0 to 2. 5 to 7 are illegal."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TimestampType(IntEnum):
    """Attribute bit 3."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class MalformedBatch(FormatError):
    """The bytes are no v2 batch: too few, wrong magic, or an impossible length."""


class BatchHeader(NamedTuple):
    """All fields of one batch header. Timestamps in ms, -1 where the format says none."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Whole batch including the header."""
        return self.length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        """Offset of the last record, present or compacted away."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """First offset after the batch."""
        return self.last_offset + 1

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, wrapping from 2^31-1 to 0; -1 without a sequence."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return add_to_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When tombstones and markers of this batch may be removed; None when not set."""
        if has_delete_horizon(self.attributes) and self.base_timestamp >= 0:
            return self.base_timestamp
        return None

    @property
    def has_producer_id(self) -> bool:
        """Idempotent, transactional or a marker."""
        return self.producer_id > NO_PRODUCER_ID


def add_to_sequence(sequence: int, increment: int) -> int:
    """Sequences wrap from 2^31-1 to 0 and are never negative. Kafka: incrementSequence."""
    return (sequence + increment) & 0x7FFFFFFF


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header at position; the buffer need not hold its records.

    Raises MalformedBatch for fewer than 61 bytes, magic other than 2, or a length below 49. Does
    not check the CRC.
    """
    if position < 0 or len(buffer) - position < HEADER_BYTES:
        raise MalformedBatch("fewer bytes than a batch header", position)
    header = BatchHeader(*_HEADER.unpack_from(buffer, position))
    if header.magic != MAGIC_V2:
        raise MalformedBatch(f"magic {header.magic} instead of 2", position + MAGIC_AT)
    if header.size_bytes < HEADER_BYTES:
        raise MalformedBatch(f"length {header.length} is below a header's", position + LENGTH_AT)
    return header


def unpack_header(batch: Buffer) -> tuple[int, ...]:
    """The fields of BatchHeader, unchecked; at least HEADER_BYTES are needed."""
    return _HEADER.unpack_from(batch)


def iterate_batches(batches: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Header and bytes of each batch, of whole ones as they lie in a log."""
    data, position = memoryview(batches), 0
    while position < len(data):
        header = read_header(data, position)
        yield header, data[position : position + header.size_bytes]
        position += header.size_bytes


def base_offset_at(buffer: Buffer, position: int = 0) -> int:
    """What the header there says; -1: there is none, or not all of it."""
    if len(buffer) - position < HEADER_BYTES:  # as at the end of nearly every chunk
        return -1
    try:
        return read_header(buffer, position).base_offset
    except MalformedBatch:
        return -1


def encode_header(header: BatchHeader) -> bytes:
    """The 61 bytes of a header, its CRC and length as given."""
    return _HEADER.pack(*header)


def seal_batch(  # noqa: PLR0913 - the fields of a header
    batch: bytearray | memoryview,
    *,
    attributes: int,
    record_count: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> None:
    """Write header and CRC into `batch`, whose records begin at byte 61."""
    _HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - LOG_OVERHEAD,
        leader_epoch,
        MAGIC_V2,
        0,
        attributes,
        record_count - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    _CRC.pack_into(batch, CRC_AT, compute_crc(batch))


def compute_crc(batch: Buffer) -> int:
    """CRC-32C of byte 21 to the end of `batch`, which must be exactly one batch."""
    return crc32c(memoryview(batch)[ATTRIBUTES_AT:])


def is_crc_valid(batch: Buffer) -> bool:
    """Whether exactly this one batch has a whole header and the CRC it declares."""
    if len(batch) < HEADER_BYTES:
        return False
    return compute_crc(batch) == int.from_bytes(batch[CRC_AT:ATTRIBUTES_AT], "big")


def patch_prefix(batch: Buffer, base_offset: int, leader_epoch: int) -> bytes:
    """The new first 16 bytes of a batch; its CRC stays valid and the payload is not copied."""
    length = int.from_bytes(batch[LENGTH_AT:LEADER_EPOCH_AT], "big", signed=True)
    return _PREFIX.pack(base_offset, length, leader_epoch)


def pack_prefix(size_bytes: int, base_offset: int, leader_epoch: int) -> bytes:
    """As ``patch_prefix``, for a batch of which only the size is known."""
    return _PREFIX.pack(base_offset, size_bytes - LOG_OVERHEAD, leader_epoch)


def with_log_append_time(batch: Buffer, now_ms: int) -> bytes:
    """The batch with timestamp type LogAppendTime, max timestamp now_ms and a new CRC.

    Record deltas stay as the producer wrote them; readers take the batch's max timestamp.
    """
    changed = bytearray(batch)
    changed[ATTRIBUTES_AT + 1] |= _LOG_APPEND_TIME_BIT
    return _with_max_timestamp(changed, now_ms)


def with_max_timestamp(batch: Buffer, max_timestamp: int) -> bytes:
    """The CreateTime batch with another max timestamp and a new CRC."""
    changed = bytearray(batch)
    changed[ATTRIBUTES_AT + 1] &= ~_LOG_APPEND_TIME_BIT & 0xFF
    return _with_max_timestamp(changed, max_timestamp)


def _with_max_timestamp(batch: bytearray, max_timestamp: int) -> bytes:
    """Write the field, then the CRC over all of it."""
    struct.pack_into(">q", batch, MAX_TIMESTAMP_AT, max_timestamp)
    struct.pack_into(">I", batch, CRC_AT, compute_crc(batch))
    return bytes(batch)


def codec_of(attributes: int) -> Codec:
    """Codec of the records; MalformedBatch for 5 to 7."""
    number = attributes & CODEC_MASK
    if number > Codec.ZSTD:
        raise MalformedBatch(f"unknown compression type {number}", ATTRIBUTES_AT)
    return Codec(number)


def timestamp_type_of(attributes: int) -> TimestampType:
    """Whether record timestamps are the producer's or the broker's."""
    return TimestampType((attributes & _LOG_APPEND_TIME_BIT) >> 3)


def is_transactional(attributes: int) -> bool:
    """Part of a transaction, or its marker."""
    return bool(attributes & _TRANSACTIONAL_BIT)


def is_control(attributes: int) -> bool:
    """Holds control records, which consumers never see."""
    return bool(attributes & _CONTROL_BIT)


def has_delete_horizon(attributes: int) -> bool:
    """The base timestamp field holds the delete horizon."""
    return bool(attributes & DELETE_HORIZON_BIT)


def pack_attributes(
    codec: Codec,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    *,
    transactional: bool = False,
    control: bool = False,
    delete_horizon: bool = False,
) -> int:
    """The attributes of a batch; unused bits are 0."""
    return (
        codec
        | timestamp_type << 3
        | transactional * _TRANSACTIONAL_BIT
        | control * _CONTROL_BIT
        | delete_horizon * DELETE_HORIZON_BIT
    )
