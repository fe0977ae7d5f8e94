"""Plain twin of the record level: records by Python integers, murmur2, JSON pages by `json`."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.naive.batches import record_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class PlainRecord:
    """One record before it is in a batch."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


def encode_records(records: Sequence[PlainRecord]) -> bytes:
    """All records of one batch, deltas relative to the first timestamp."""
    return b"".join(
        record_bytes(
            each.timestamp - records[0].timestamp, index, each.key, each.value, each.headers
        )
        for index, each in enumerate(records)
    )


def murmur2(data: bytes) -> int:
    """Java's 32-bit hash as an unsigned number."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(data)
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if rest := data[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


def partition_of(key: bytes, partition_count: int) -> int:
    """The partition of Kafka's producer."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def page_entry(topic: str, partition: int, offset: int, record: PlainRecord, kind: str) -> Any:
    """One record of a fetch answer as Python values."""

    def shown(data: bytes | None) -> Any:
        if data is None:
            return None
        if kind == "binary":
            return base64.b64encode(data).decode()
        return data.decode() if kind == "text" else json.loads(data)

    entry = {
        "topic": topic,
        "key": shown(record.key),
        "value": shown(record.value),
        "partition": partition,
        "offset": offset,
        "timestamp": record.timestamp,
    }
    if record.headers:
        entry["headers"] = [
            {
                "key": name.decode("utf-8", "replace"),
                "value": None if value is None else base64.b64encode(value).decode(),
            }
            for name, value in record.headers
        ]
    return entry
