"""Producer snapshots: the state of every producer as of one offset.

Owns the bytes of `<offset>.snapshot`. Pure functions. Source: Kafka's
`ProducerStateManager.writeSnapshot` and `ProducerSnapshot.json`.

    byte  field
    0     int16   version, always 1
    2     uint32  CRC-32C of everything from byte 6
    6     int32   number of entries
    10    46 bytes an entry, in the order of ProducerSnapshotEntry's fields
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

import crc32c

from kafkalog.format.integers import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterable

VERSION = 1
HEADER = struct.Struct(">hIi")
ENTRY = struct.Struct(">qhiqiqiq")
_CHECKED_FROM = 6
_INVALID = "Snapshot failed schema validation"  # Kafka's words, as are those for a wrong CRC

assert HEADER.size == 10
assert ENTRY.size == 46


@dataclass(frozen=True, slots=True)
class ProducerSnapshotEntry:
    """One producer. Only its last batch is kept, so older duplicates are unknown after a restart.

    -1 means "none": last_sequence and last_offset without a data batch, coordinator_epoch
    without a marker, current_txn_first_offset without an open transaction.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int  # of the last data batch, never a marker's
    offset_delta: int  # last minus first offset of that batch
    last_timestamp_ms: int  # also moved by markers
    coordinator_epoch: int
    current_txn_first_offset: int


def encode_snapshot(entries: Iterable[ProducerSnapshotEntry]) -> bytes:
    """The whole file; no entries give ten bytes."""
    packed = [ENTRY.pack(*astuple(entry)) for entry in entries]
    checked = b"".join((len(packed).to_bytes(4, "big"), *packed))
    return struct.pack(">hI", VERSION, crc32c.crc32c(checked)) + checked


def decode_snapshot(data: bytes) -> list[ProducerSnapshotEntry]:
    """Entries in the file's order. FormatError: the file is deleted and an older one tried."""
    if len(data) < HEADER.size:
        raise FormatError(f"{_INVALID}: {len(data)} bytes are shorter than its header")
    version, stored_crc, count = HEADER.unpack_from(data)
    if version != VERSION:
        raise FormatError(f"{_INVALID}: Snapshot contained an unknown file version {version}")
    computed_crc = crc32c.crc32c(memoryview(data)[_CHECKED_FROM:])
    if stored_crc != computed_crc:
        raise FormatError(
            f"Snapshot is corrupt (CRC is no longer valid). Stored crc: {stored_crc}. "
            f"Computed crc: {computed_crc}"
        )
    if len(data) != HEADER.size + count * ENTRY.size:
        raise FormatError(f"{_INVALID}: {len(data)} bytes do not hold {count} entries")
    return [
        ProducerSnapshotEntry(*fields)
        for fields in ENTRY.iter_unpack(memoryview(data)[HEADER.size :])
    ]
