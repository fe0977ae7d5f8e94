"""Control records: the key with their type, and the markers that end transactions.

A marker is a batch with the control and transactional bits and one record. Its key says COMMIT or
ABORT, its value holds the coordinator's epoch. Pure functions; any thread. Source: Kafka 4.1
ControlRecordType, EndTransactionMarker.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from kafkalog.errors import DecompressedTooLarge, UnsupportedCompression
from kafkalog.format.field_reader import encode_varint
from kafkalog.format.integers import FormatError
from kafkalog.format.records.record import iterate_records
from kafkalog.format.records.record_batch import (
    HEADER_BYTES,
    NO_LEADER_EPOCH,
    Codec,
    pack_attributes,
    seal_batch,
)

Buffer = bytes | bytearray | memoryview

_KEY = struct.Struct(">hh")  # version, type
_VALUE = struct.Struct(">hi")  # version, coordinator epoch
_VERSION = 0


class MalformedControlRecord(FormatError):
    """The key or value of a control record is too short or has a negative version."""


class ControlRecordType(IntEnum):
    """What a control record means; a topic log holds only ABORT and COMMIT."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@dataclass(frozen=True, slots=True)
class EndTransactionMarker:
    """The end of a transaction: COMMIT or ABORT, and who said so."""

    control_type: ControlRecordType
    coordinator_epoch: int


def read_control_type(key: Buffer | None) -> ControlRecordType:
    """Type named by a control record's key; UNKNOWN for numbers we do not know, at any version."""
    if key is None or len(key) < _KEY.size:
        raise MalformedControlRecord("control record key shorter than 4 bytes")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise MalformedControlRecord(f"control record key version {version}")
    known = ControlRecordType.ABORT <= number <= ControlRecordType.KRAFT_VOTERS
    return ControlRecordType(number) if known else ControlRecordType.UNKNOWN


def read_end_transaction_marker(key: Buffer | None, value: Buffer | None) -> EndTransactionMarker:
    """Read a COMMIT or ABORT record; later versions read as version 0, extra bytes are ignored."""
    control_type = read_control_type(key)
    if control_type not in {ControlRecordType.ABORT, ControlRecordType.COMMIT}:
        raise MalformedControlRecord(f"control record {control_type.name} ends no transaction")
    if value is None or len(value) < _VALUE.size:
        raise MalformedControlRecord("end of transaction value shorter than 6 bytes")
    version, coordinator_epoch = _VALUE.unpack_from(value)
    if version < 0:
        raise MalformedControlRecord(f"end of transaction value version {version}")
    return EndTransactionMarker(control_type, coordinator_epoch)


def read_batch_control_type(batch: Buffer) -> ControlRecordType | None:
    """Type of the first record of exactly one control batch; None: its records were removed.

    Errors as of ``iterate_records`` and ``read_control_type``.
    """
    records = iterate_records(batch)
    first = next(records, None)
    return None if first is None else read_control_type(first.key)


def read_batch_marker(batch: Buffer) -> EndTransactionMarker | None:
    """Of exactly one control batch; None: it ends no transaction, or its record was removed."""
    try:
        record = next(iterate_records(batch), None)
        return None if record is None else read_end_transaction_marker(record.key, record.value)
    except (FormatError, UnsupportedCompression, DecompressedTooLarge):
        return None  # Kafka compresses no control batch


def encode_control_key(control_type: ControlRecordType) -> bytes:
    """Key of a control record, version 0."""
    return _KEY.pack(_VERSION, control_type)


def encode_marker_value(coordinator_epoch: int) -> bytes:
    """Value of a COMMIT or ABORT record, version 0."""
    return _VALUE.pack(_VERSION, coordinator_epoch)


def build_end_transaction_marker(
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    control_type: ControlRecordType,
    *,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """One whole marker batch. control_type is COMMIT or ABORT."""
    assert control_type in {ControlRecordType.ABORT, ControlRecordType.COMMIT}
    key, value = encode_control_key(control_type), encode_marker_value(coordinator_epoch)
    # attributes, timestamp delta, offset delta; key; value; no headers
    body = bytes(3) + encode_varint(len(key)) + key + encode_varint(len(value)) + value + bytes(1)
    batch = bytearray(HEADER_BYTES) + encode_varint(len(body)) + body
    seal_batch(
        batch,
        attributes=pack_attributes(Codec.NONE, transactional=True, control=True),
        record_count=1,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )
    return bytes(batch)
