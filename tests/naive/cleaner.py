"""Plain twin of one whole clean: records as Python objects, Kafka's rules as they are written down.

Batches are parsed one by one, every record is looked at, the map is a dictionary, and what is kept
is written anew with the builder of tests (``struct``). Log-lifecycle 12.3 to 12.6, log-format 1.4.
"""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafkalog.format.records.compression import compress
from kafkalog.format.records.record import iterate_records
from kafkalog.format.records.record_batch import BatchHeader, Codec, read_header
from tests.naive.cleaning import plain_groups
from tests.naive.stored_batches import (
    APPEND_TIME,
    CONTROL,
    HORIZON,
    TRANSACTIONAL,
    encode_records,
    seal,
)

if TYPE_CHECKING:
    from kafkalog.format.records.record import Record

INFLATED_MAX = 1 << 30


@dataclass(frozen=True)
class PlainAborted:
    """An entry of a transaction index."""

    producer_id: int
    first: int
    last: int
    stable: int


@dataclass(frozen=True)
class PlainBatch:
    data: bytes
    header: BatchHeader

    @classmethod
    def of(cls, data: bytes) -> PlainBatch:
        return cls(data, read_header(data))

    @property
    def records(self) -> list[Record]:
        return list(iterate_records(self.data, INFLATED_MAX))

    @property
    def is_control(self) -> bool:
        return bool(self.header.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        """Data of a transaction, or a marker."""
        return bool(self.header.attributes & TRANSACTIONAL)

    @property
    def horizon(self) -> int | None:
        has_horizon = self.header.attributes & HORIZON
        return self.header.base_timestamp if has_horizon else None


@dataclass
class PlainSegment:
    """A source: its batches and the transaction index."""

    base: int
    batches: list[PlainBatch]
    modified_ms: int
    aborted: list[PlainAborted] = field(default_factory=list)
    offset_index_bytes: int = 0
    time_index_bytes: int = 0

    @property
    def size(self) -> int:
        return sum(len(each.data) for each in self.batches)

    @property
    def next_offset(self) -> int:
        return self.batches[-1].header.next_offset if self.batches else self.base


def split_batches(data: bytes) -> list[PlainBatch]:
    found = []
    while data:
        batch = PlainBatch.of(data[: read_header(data).size_bytes])
        found.append(batch)
        data = data[len(batch.data) :]
    return found


@dataclass
class PlainClean:
    """What came out: the cleaned segments by base, with their transaction indexes, and figures."""

    end_offset: int
    map_messages_read: int = 0
    messages_read: int = 0
    messages_written: int = 0
    invalid: int = 0
    dropped: Counter[str] = field(default_factory=Counter)  # records by reason
    bytes_read: int = 0
    bytes_written: int = 0
    map_size: int = 0
    groups: list[list[int]] = field(default_factory=list)
    cleaned: dict[int, list[PlainBatch]] = field(default_factory=dict)
    aborted: dict[int, list[PlainAborted]] = field(default_factory=dict)
    events: set[str] = field(default_factory=set)  # what happened, for counting

    def note(self, event: str, happened: bool) -> None:
        if happened:
            self.events.add(event)


class PlainTransactions:
    def __init__(self) -> None:
        self.coming: list[PlainAborted] = []
        self.aborting: dict[int, PlainAborted] = {}
        self.with_data: set[int] = set()
        self.committing: set[int] = set()
        self.kept: list[PlainAborted] = []

    def begin(self, offset: int) -> None:
        """Aborted transactions whose first offset was reached."""
        for each in sorted(self.coming, key=lambda one: one.first):
            if each.first <= offset:
                self.coming.remove(each)
                self.aborting.setdefault(each.producer_id, each)

    def is_aborted(self, batch: PlainBatch) -> bool:
        """A data batch."""
        header = batch.header
        self.begin(header.last_offset)
        if not batch.is_transactional:
            return False
        if header.producer_id in self.aborting:
            self.with_data.add(header.producer_id)
            return True
        self.committing.add(header.producer_id)
        return False

    def is_needless(self, batch: PlainBatch) -> bool:
        """A control batch."""
        header = batch.header
        self.begin(header.last_offset)
        records = batch.records
        if not records:
            return True
        key = records[0].key
        assert key is not None
        kind = struct.unpack_from(">hh", key)[1]
        if kind == 0:
            transaction = self.aborting.pop(header.producer_id, None)
            had_data = header.producer_id in self.with_data
            self.with_data.discard(header.producer_id)
            if transaction is not None and had_data:
                self.kept.append(transaction)
                return False
            return True
        if kind == 1:
            was_there = header.producer_id in self.committing
            self.committing.discard(header.producer_id)
            return not was_there
        return False


@dataclass(frozen=True)
class PlainCleaner:
    """The rules of a round. ``last_records``: producer -> (last data offset or None, epoch)."""

    segments: list[PlainSegment]  # all but the active one
    first_dirty: int
    first_uncleanable: int
    now_ms: int
    capacity: int
    delete_retention_ms: int
    segment_bytes: int
    index_bytes: int
    last_records: dict[int, tuple[int | None, int]] = field(default_factory=dict)
    log_start: int = 0
    map_from: int = 0  # the index leads to a batch in front of the first dirty one: its last offset
    later_aborted: list[PlainAborted] = field(default_factory=list)  # of the active segment
    by_segment: bool = False  # log.cleaner.tombstone.horizon=segment

    def run(self) -> PlainClean:
        latest, offsets, read = self.map()
        result = PlainClean(latest + 1, map_messages_read=read, map_size=len(offsets))
        sources = [each for each in self.segments if each.base < result.end_offset]
        sizes = [
            (each.base, each.size, each.offset_index_bytes, each.time_index_bytes)
            for each in sources
        ]
        result.groups = plain_groups(
            sizes, self.segment_bytes, self.index_bytes, self.first_uncleanable
        )
        transactions = PlainTransactions()
        clean = [each for each in self.segments if each.base < self.first_dirty]
        horizon = clean[-1].modified_ms - self.delete_retention_ms if clean else 0
        for group in result.groups:
            output = result.cleaned[group[0]] = []
            for segment in (each for each in sources if each.base in group):
                following = [base for base in group if base > segment.base]
                end = following[0] if following else segment.next_offset
                transactions.coming += self.aborted_between(segment.base, end)
                keeps_tombstones = segment.modified_ms > horizon
                for batch in segment.batches:
                    kept = self.filter(
                        batch, offsets, latest, transactions, result, keeps_tombstones
                    )
                    if kept is not None:
                        output.append(kept)
            result.aborted[group[0]] = transactions.kept
            transactions.kept = []
            had_data = any(each.size for each in sources if each.base in group)
            result.note("a group with nothing left", had_data and not output)
            result.note("several sources in one group", len(group) > 1)
        result.note("the map ends the range", result.end_offset < self.first_uncleanable)
        return result

    def aborted_between(self, start: int, end: int) -> list[PlainAborted]:
        """Those that begin below end, of the segment that holds start and all behind it.

        As Kafka, which holds the ends against the log start, not against ``start``.
        """
        holder = max((each.base for each in self.segments if each.base <= start), default=0)
        entries = [each for one in self.segments if one.base >= holder for each in one.aborted]
        entries += self.later_aborted
        return [each for each in entries if each.last >= self.log_start and each.first < end]

    def map(self) -> tuple[int, dict[bytes, int], int]:
        """Latest offset, offset by key, records read."""
        transactions = PlainTransactions()
        transactions.coming = self.aborted_between(self.first_dirty, self.first_uncleanable)
        offsets: dict[bytes, int] = {}
        latest, read = -1, 0
        for place, segment in enumerate(self.segments):
            ends = [each.base for each in self.segments[place + 1 :]]
            end = min([*ends, self.first_uncleanable])
            if segment.base >= self.first_uncleanable or end <= self.first_dirty:
                continue
            for batch in segment.batches:
                if batch.header.last_offset < self.map_from:
                    continue
                if batch.is_control:
                    transactions.is_needless(batch)
                    read += 1
                elif transactions.is_aborted(batch):
                    read += batch.header.record_count
                else:
                    for record in batch.records:
                        if record.key is not None and record.offset >= self.first_dirty:
                            if len(offsets) >= self.capacity:
                                return latest, offsets, read
                            offsets[record.key] = latest = record.offset
                        read += 1
                if batch.header.last_offset >= self.first_dirty:
                    latest = max(latest, batch.header.last_offset)
            latest = max(latest, end - 1)
        return latest, offsets, read

    def filter(
        self,
        batch: PlainBatch,
        offsets: dict[bytes, int],
        latest: int,
        transactions: PlainTransactions,
        result: PlainClean,
        keeps_tombstones: bool,
    ) -> PlainBatch | None:
        """The batch as it is kept; None: it goes."""
        header = batch.header
        result.bytes_read += len(batch.data)
        is_needless = (
            transactions.is_needless(batch) if batch.is_control else transactions.is_aborted(batch)
        )
        discards = is_needless and (not batch.is_control or self.may_go(batch, keeps_tombstones))
        keeps_empty = self.is_last_of_producer(batch)
        keeps_empty = keeps_empty or header.next_offset == self.first_uncleanable
        result.note("markers that go", discards and batch.is_control)
        if discards:
            result.dropped["markers" if batch.is_control else "aborted"] += header.record_count
        if discards and not keeps_empty:
            return None
        records, kept = batch.records, []
        result.messages_read += len(records)
        for record in records:
            if discards:
                continue
            if batch.is_control or record.offset > latest:
                kept.append(record)
            elif record.key is None:
                result.invalid += 1
            elif record.offset < offsets.get(record.key, -1):
                result.dropped["superseded"] += 1
            else:
                is_protected = batch.horizon is None or self.now_ms < batch.horizon
                if self.by_segment:
                    is_protected = keeps_tombstones
                if record.value is not None or is_protected:
                    kept.append(record)
                else:
                    result.dropped["expired_tombstones"] += 1
                has_met_horizon = record.value is None and batch.horizon is not None
                result.note("tombstones before their horizon", has_met_horizon and is_protected)
                result.note("tombstones after their horizon", has_met_horizon and not is_protected)
        written = self.written(batch, kept, batch.is_control and is_needless, records)
        if written is None and keeps_empty:
            written = empty(batch)
        if written is not None:
            result.messages_written += len(kept)
            result.bytes_written += len(written.data)
            is_rebuilt = written is not batch and bool(written.header.attributes & 7)
            result.note("a compressed batch rebuilt", is_rebuilt)
        return written

    def may_go(self, marker: PlainBatch, keeps_tombstones: bool) -> bool:
        """Whether the time of a needless marker has come."""
        if self.by_segment:
            return not keeps_tombstones
        return marker.horizon is not None and marker.horizon <= self.now_ms

    def is_last_of_producer(self, batch: PlainBatch) -> bool:
        """Whether a producer's state is read from this batch."""
        header = batch.header
        if header.producer_id < 0 or header.producer_id not in self.last_records:
            return False
        offset, epoch = self.last_records[header.producer_id]
        if offset is None:
            return batch.is_control and header.producer_epoch == epoch
        return header.last_offset == offset

    def written(
        self,
        batch: PlainBatch,
        kept: list[Record],
        has_needless_marker: bool,
        records: list[Record],
    ) -> PlainBatch | None:
        if not kept:
            return None
        has_tombstone = any(record.value is None for record in kept)
        needs_horizon = (has_tombstone or has_needless_marker) and batch.horizon is None
        needs_horizon = needs_horizon and not self.by_segment
        if len(kept) == len(records) and not needs_horizon:
            return batch
        horizon = self.now_ms + self.delete_retention_ms if needs_horizon else batch.horizon
        return rebuilt(batch, kept, horizon)


def rebuilt(batch: PlainBatch, kept: list[Record], horizon: int | None) -> PlainBatch:
    header = batch.header
    base_timestamp = kept[0].timestamp if horizon is None else horizon
    stream = encode_records(kept, header.base_offset, base_timestamp)
    stream = compress(Codec(header.attributes & 7), stream)
    maximum = header.max_timestamp
    if not header.attributes & APPEND_TIME:
        maximum = max(record.timestamp for record in kept)
    rest = header._replace(
        attributes=header.attributes & ~HORIZON | (0 if horizon is None else HORIZON),
        base_timestamp=base_timestamp,
        max_timestamp=maximum,
        record_count=len(kept),
    )
    return PlainBatch.of(seal(rest, stream))


def empty(batch: PlainBatch) -> PlainBatch:
    """The header alone."""
    header = batch.header
    kept_bits = header.attributes & (APPEND_TIME | TRANSACTIONAL | CONTROL)
    rest = header._replace(attributes=kept_bits, base_timestamp=-1, record_count=0)
    return PlainBatch.of(seal(rest, b""))
