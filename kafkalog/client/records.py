"""Records, receipts and positions: arguments and results of calls. Times are ms since 1970."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

Acks = Literal["all", "1", "0"]
Isolation = Literal["read_uncommitted", "read_committed"]
CodecName = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Place = Literal["earliest", "latest", "max_timestamp"]
Headers = tuple[tuple[str, bytes | None], ...]

NO_OFFSET = -1
RECORD_OVERHEAD_BYTES = 24
"""Upper bound of what lengths and deltas add to the key, value and headers of a record."""


class ProducerRecord(NamedTuple):
    """A record to append. Text is stored as UTF-8, None is a real null.

    timestamp_ms  None: the time of the call, by the clock of this machine
    """

    value: bytes | str | None
    key: bytes | str | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None


class ConsumerRecord(NamedTuple):
    """A record of a partition. Header names that are not UTF-8 keep their bytes as surrogates."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class AppendReceipt:
    """The result of an append. With acks=0 it is not known: the offsets are -1.

    log_append_time_ms  -1 unless the topic uses LogAppendTime
    is_duplicate        it was already in the log, from an earlier try of the same producer
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
    """The end of a fetch. ``next_offset`` is where the next one starts.

    is_up_to_date  nothing after it was readable at that time
    """

    next_offset: int
    high_watermark: int
    log_start_offset: int
    is_up_to_date: bool


@dataclass(frozen=True, slots=True)
class FetchedBatches:
    """Whole v2 batches back to back; the first may begin below the requested offset."""

    data: bytes
    position: Position


@dataclass(frozen=True, slots=True)
class FetchedRecords:
    """Records from the requested offset on, without control records.

    May be empty although the position moved, when the batches had only control records.
    """

    records: tuple[ConsumerRecord, ...]
    position: Position
