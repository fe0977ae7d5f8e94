"""Stored batches of any shape with ``struct``: sparse offsets, horizons, empty ones, codecs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import crc32c

from kafkalog.format.records.compression import compress
from kafkalog.format.records.record_batch import BatchHeader, Codec, encode_header
from tests.naive.batches import record_bytes

if TYPE_CHECKING:
    from kafkalog.format.records.record import Record

APPEND_TIME, TRANSACTIONAL, CONTROL, HORIZON = 0x08, 0x10, 0x20, 0x40


@dataclass(frozen=True)
class Producer:
    """Id, epoch, first sequence of the batch."""

    id: int = -1
    epoch: int = -1
    sequence: int = -1


NOBODY = Producer()


def encode_records(records: list[Record], base_offset: int, base_timestamp: int) -> bytes:
    """Records as they lie in a batch, before a codec."""
    return b"".join(
        record_bytes(
            each.timestamp - base_timestamp,
            each.offset - base_offset,
            each.key,
            each.value,
            each.headers,
        )
        for each in records
    )


def seal(header: BatchHeader, stream: bytes) -> bytes:
    """Header and stored records as a batch with its length and CRC."""
    header = header._replace(length=49 + len(stream), crc=0)
    crc = crc32c.crc32c(encode_header(header)[21:] + stream)
    return encode_header(header._replace(crc=crc)) + stream


def stored_batch(
    records: list[Record],
    *,
    base_offset: int | None = None,
    last_offset: int | None = None,
    codec: Codec = Codec.NONE,
    attributes: int = 0,
    producer: Producer = NOBODY,
    leader_epoch: int = 0,
    horizon: int | None = None,
    append_time: int | None = None,
    max_timestamp: int | None = None,
) -> bytes:
    """A batch of these records; its offsets are theirs unless it covers more."""
    base = records[0].offset if base_offset is None else base_offset
    last = records[-1].offset if last_offset is None else last_offset
    stamps = [record.timestamp for record in records]
    base_timestamp = horizon if horizon is not None else (stamps or [-1])[0]
    attributes |= codec | (0 if horizon is None else HORIZON)
    attributes |= 0 if append_time is None else APPEND_TIME
    greatest = max(stamps, default=-1) if max_timestamp is None else max_timestamp
    header = BatchHeader(
        base_offset=base,
        length=0,
        leader_epoch=leader_epoch,
        magic=2,
        crc=0,
        attributes=attributes,
        last_offset_delta=last - base,
        base_timestamp=base_timestamp,
        max_timestamp=greatest if append_time is None else append_time,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=producer.sequence,
        record_count=len(records),
    )
    stream = encode_records(records, base, base_timestamp)
    return seal(header, compress(codec, stream) if records else stream)
