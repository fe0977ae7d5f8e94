"""Records in and out, receipts, positions: what calls take and give. Times are ms since 1970."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

Acks = Literal["all", "1", "0"]
Isolation = Literal["read_uncommitted", "read_committed"]
CodecName = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Place = Literal["earliest", "latest", "max_timestamp"]
Headers = tuple[tuple[str, bytes | None], ...]

NO_OFFSET = -1


class ProducerRecord(NamedTuple):
    """A record to append. Text is stored as UTF-8, None is a real null.

    timestamp_ms  None: the moment of the call, by the clock of this machine
    """

    value: bytes | str | None
    key: bytes | str | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None


class ConsumerRecord(NamedTuple):
    """A record of a partition. Header names that are no UTF-8 keep their bytes as surrogates."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class AppendReceipt:
    """Where an append went. With acks=0 nobody knows: the offsets are -1.

    log_append_time_ms  -1 unless the topic stamps with LogAppendTime
    is_duplicate        it was there already, from an earlier try of the same producer
    durability          synced, os (page cache) or none
    """

    topic: str
    partition: int
    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    is_duplicate: bool
    durability: str


@dataclass(frozen=True, slots=True)
class Position:
    """Where a fetch left off. ``next_offset`` is where the next one begins.

    is_up_to_date  nothing was readable behind it at that moment
    """

    next_offset: int
    high_watermark: int
    log_start_offset: int
    is_up_to_date: bool


@dataclass(frozen=True, slots=True)
class FetchedBatches:
    """Whole v2 batches back to back; the first may begin below the offset that was asked for."""

    data: bytes
    position: Position


@dataclass(frozen=True, slots=True)
class FetchedRecords:
    """Records from the offset on that was asked for; control records are left out.

    May be empty although the position moved: the batches held nothing but those.
    """

    records: tuple[ConsumerRecord, ...]
    position: Position
