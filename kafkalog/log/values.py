"""Facts that travel between the layers of the log: immutable, no behaviour beyond arithmetic.

Those made for every request are named tuples, which take half the time of a frozen dataclass.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, NewType

from kafkalog.format.integers import INT32_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.env.filesystem import File


Offset = NewType("Offset", int)  # number of a record in its partition
Position = NewType("Position", int)  # byte in a .log file

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
MAX_RELATIVE_OFFSET = INT32_MAX


class AppendOrigin(enum.Enum):
    """Who appends: decides which validation rules hold (Kafka's AppendOrigin)."""

    CLIENT = "client"
    COORDINATOR = "coordinator"  # transaction markers, group offsets
    REPLICATION = "replication"  # offsets are kept: offline tools and recovery


class Isolation(enum.Enum):
    """How far a reader may see."""

    LOG_END = "log_end"
    HIGH_WATERMARK = "high_watermark"  # read_uncommitted
    LAST_STABLE = "last_stable"  # read_committed


@dataclass(frozen=True, slots=True)
class OffsetPosition:
    """One offset index entry, absolute: the last offset of the batch that starts at position."""

    offset: int
    position: int


class TimestampOffset(NamedTuple):
    """One time index entry, absolute; also the answer of list-offsets. (-1, base) when empty."""

    timestamp_ms: int
    offset: int


class AbortedTransaction(NamedTuple):
    """One transaction index entry: last_offset is the abort marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True)
class CompletedTransaction:
    """A transaction that a marker closed: first_offset of its data, last_offset the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class BatchFacts(NamedTuple):
    """Header fields of one validated v2 batch, before offsets are assigned.

    ``data`` is the whole batch as it will be written except for base offset (bytes 0-8) and
    partition leader epoch (bytes 12-16), which lie outside the CRC and are set at append.
    """

    data: bytes | memoryview
    record_count: int
    last_offset_delta: int
    max_timestamp_ms: int
    attributes: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    base_offset: int = 0  # meaningful for AppendOrigin.REPLICATION only
    leader_epoch: int = -1  # likewise
    control_type: int | None = None  # 0 abort, 1 commit; control batches only
    coordinator_epoch: int = -1  # likewise


class AppendedBatch(NamedTuple):
    """What a segment must know of a batch about to be written.

    Absolute offsets, the size of the whole batch, its maximum timestamp (-1: none).
    """

    base_offset: int
    last_offset: int
    size_bytes: int
    max_timestamp_ms: int


class ValidatedRecords(NamedTuple):
    """What the validator hands to append: batches that keep every rule needing no log state."""

    batches: tuple[BatchFacts, ...]
    size_bytes: int
    record_count: int
    max_timestamp_ms: int
    log_append_time_ms: int  # -1 with CreateTime
    origin: AppendOrigin


class LogAppendInfo(NamedTuple):
    """The answer of an append. Both offsets are inclusive; duplicate: nothing was written."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int  # -1 with CreateTime
    max_timestamp_ms: int
    log_start_offset: int
    record_count: int
    size_bytes: int
    duplicate: bool = False


class FetchSpan(NamedTuple):
    """Whole batches where they lie in a ``.log`` file, to be sent from there.

    The handle is kept until they are sent: they stay the same when the segment is deleted, cut or
    replaced meanwhile.
    """

    file: File
    descriptor: int  # of the file
    position: int
    size_bytes: int
    base_offset: int
    next_offset: int
    high_watermark: int
    log_start_offset: int


class FetchDataInfo(NamedTuple):
    """Whole batches read from one segment: ``batches`` lie back to back in ``data``.

    The first batch holds the least live offset >= the one asked for. ``next_offset`` is where the
    next fetch should start. ``aborted`` lists the aborted transactions that overlap.
    """

    data: bytes | memoryview
    base_offset: int  # of the first batch, or the offset asked for when data is empty
    next_offset: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    last_stable_offset: int
    aborted: Sequence[AbortedTransaction] = ()


@dataclass(frozen=True, slots=True)
class LogProof:
    """What a file under a checksum says of one log; nothing of it can have rotted unseen."""

    log_start_offset: int | None = None  # None: not known
    end_offset: int | None = None  # at the clean stop right before this start
    is_gapless: bool = False  # nothing took offsets away since its birth here
    accepted_losses: tuple[tuple[int, int], ...] = ()  # first and last offset of each


NO_PROOF = LogProof()


class WouldBlock(Exception):
    """Control flow: the answer is not in memory, and ``may_block`` was False.

    Never an error of the user. The caller repeats the same call with ``may_block=True`` on a reader
    thread; nothing was changed by the first attempt.
    """
