"""Plain twin of both passes of a cleaning over batches: dictionaries and lists."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import crc32c

from kafkalog.format.records.compression import compress, decompress
from kafkalog.format.records.record_batch import Codec
from tests.naive.batches import AFTER_CRC, record_bytes, sealed

if TYPE_CHECKING:
    from collections.abc import Sequence

DELETE, DELETE_EMPTY, RETAIN_EMPTY = 0, 1, 2
PER_BATCH, KEEP, DROP = 0, 1, 2


@dataclass(frozen=True)
class KeyedRecord:
    """One record at an absolute offset, with the timestamp that a reader sees."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


@dataclass(frozen=True)
class KeyedBatch:
    """A batch as a reader sees it. `horizon`: its delete horizon, None without."""

    base_offset: int
    last_offset: int
    records: tuple[KeyedRecord, ...]
    codec: int = 0
    is_log_append_time: bool = False
    is_transactional: bool = False
    is_control: bool = False
    horizon: int | None = None
    base_timestamp: int = -1
    max_timestamp: int = -1
    producer: tuple[int, int, int] = (-1, -1, -1)
    leader_epoch: int = 0

    def encode(self) -> bytes:
        """The batch as on disk."""
        base = self.base_timestamp if self.horizon is None else self.horizon
        body = b"".join(
            record_bytes(
                each.timestamp - base,
                each.offset - self.base_offset,
                each.key,
                each.value,
                each.headers,
            )
            for each in self.records
        )
        if self.codec and self.records:
            body = compress(Codec(self.codec), body)
        attributes = (
            (self.codec if self.records else 0)
            | self.is_log_append_time << 3
            | self.is_transactional << 4
            | self.is_control << 5
            | (self.horizon is not None) << 6
        )
        span, stamps = self.last_offset - self.base_offset, (base, self.max_timestamp)
        fields = (attributes, span, *stamps, *self.producer, len(self.records))
        return sealed(self.base_offset, self.leader_epoch, fields, body)


def decode(data: bytes) -> list[KeyedBatch]:
    """The batches that lie back to back in data, CRCs checked."""
    batches = []
    while data:
        base_offset, length, leader_epoch, _, crc = struct.unpack_from(">qiibI", data)
        batch, data = data[: length + 12], data[length + 12 :]
        assert crc == crc32c.crc32c(batch[21:])
        attributes, delta, base, largest, *producer, count = AFTER_CRC.unpack_from(batch, 21)
        body = decompress(attributes & 7, batch[61:], max_bytes=1 << 26)
        is_log_append_time = bool(attributes & 8)
        records = []
        for _ in range(count):
            size, body = _number(body)
            record, body = body[:size], body[size:]
            records.append(
                _decode_record(record, base_offset, largest if is_log_append_time else None, base)
            )
        assert not body
        batches.append(
            KeyedBatch(
                base_offset=base_offset,
                last_offset=base_offset + delta,
                records=tuple(records),
                codec=attributes & 7,
                is_log_append_time=is_log_append_time,
                is_transactional=bool(attributes & 16),
                is_control=bool(attributes & 32),
                horizon=base if attributes & 64 else None,
                base_timestamp=base,
                max_timestamp=largest,
                producer=(producer[0], producer[1], producer[2]),
                leader_epoch=leader_epoch,
            )
        )
    return batches


def _decode_record(data: bytes, base_offset: int, stamp: int | None, base: int) -> KeyedRecord:
    timestamp, data = _number(data[1:])
    delta, data = _number(data)
    key, data = _field(data)
    value, data = _field(data)
    count, data = _number(data)
    headers = []
    for _ in range(count):
        name, data = _field(data)
        content, data = _field(data)
        assert name is not None
        headers.append((name, content))
    assert not data
    seen = base + timestamp if stamp is None else stamp
    return KeyedRecord(base_offset + delta, seen, key, value, tuple(headers))


def _number(data: bytes) -> tuple[int, bytes]:
    value = 0
    for index, byte in enumerate(data):
        value |= (byte & 127) << 7 * index
        if byte < 128:
            return value >> 1 ^ -(value & 1), data[index + 1 :]
    raise AssertionError("cut short")


def _field(data: bytes) -> tuple[bytes | None, bytes]:
    length, data = _number(data)
    return (None, data) if length < 0 else (data[:length], data[length:])


class PlainOffsetMap:
    """Keys to offsets, with a capacity."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.offsets: dict[bytes, int] = {}
        self.latest_offset = -1
        self.records_read = 0

    def index(self, batches: Sequence[KeyedBatch], skip: Sequence[bool], start_offset: int) -> bool:
        """True: full."""
        for batch, is_skipped in zip(batches, skip, strict=True):
            for record in batch.records:
                if not is_skipped and record.key is not None and record.offset >= start_offset:
                    if len(self.offsets) >= self.capacity:
                        return True
                    self.offsets[record.key] = record.offset
                    self.latest_offset = record.offset
                self.records_read += 1
            if batch.last_offset >= start_offset:
                self.latest_offset = batch.last_offset
        return False


@dataclass(frozen=True)
class Order:
    """What is to be done with a batch."""

    retention: int = DELETE_EMPTY
    discards: bool = False
    marks_empty_transaction: bool = False


@dataclass(frozen=True)
class Rules:
    """What is the same for all batches."""

    now_ms: int
    delete_retention_ms: int
    tombstones: int = PER_BATCH


def filter_batch(
    batch: KeyedBatch, order: Order, offsets: PlainOffsetMap, rules: Rules
) -> KeyedBatch | None:
    """The batch that stays, the same object when nothing changes; None: it goes."""
    if order.retention == DELETE:
        return None
    kept = tuple(
        record
        for record in batch.records
        if reason_to_go(batch, record, order, offsets, rules) is None
    )
    if not kept:
        if order.retention == DELETE_EMPTY:
            return None
        return replace(batch, records=(), codec=0, horizon=None, base_timestamp=-1)
    needs_horizon = (
        rules.tombstones == PER_BATCH
        and batch.horizon is None
        and (order.marks_empty_transaction or any(record.value is None for record in kept))
    )
    if len(kept) == len(batch.records) and not needs_horizon:
        return batch
    horizon = rules.now_ms + rules.delete_retention_ms if needs_horizon else batch.horizon
    return replace(
        batch,
        records=kept,
        horizon=horizon,
        base_timestamp=kept[0].timestamp if horizon is None else horizon,
        max_timestamp=batch.max_timestamp
        if batch.is_log_append_time
        else max(record.timestamp for record in kept),
    )


def reason_to_go(
    batch: KeyedBatch, record: KeyedRecord, order: Order, offsets: PlainOffsetMap, rules: Rules
) -> str | None:
    """The name of the statistic that counts the record; None: it stays."""
    if order.retention == DELETE or order.discards:
        return "control" if batch.is_control else "aborted"
    if batch.is_control or record.offset > offsets.latest_offset:
        return None
    if record.key is None:
        return "null_keys"
    if record.offset < offsets.offsets.get(record.key, -1):
        return "superseded"
    if record.value is not None or rules.tombstones == KEEP:
        return None
    is_protected = rules.tombstones == PER_BATCH and (
        batch.horizon is None or rules.now_ms < batch.horizon
    )
    return None if is_protected else "expired_tombstones"
