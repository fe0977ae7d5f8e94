"""Logs for the cleaner by chance: every kind of batch that a compacted topic may hold.

``make_log(chance)`` is a function of its seed alone; what a log holds is noted in ``features``, as
each batch is made. Nothing here touches a disk: tests write the segments where they want them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafkalog.format.records.control_record import (
    ControlRecordType,
    encode_control_key,
    encode_marker_value,
)
from kafkalog.format.records.record import Record
from kafkalog.format.records.record_batch import Codec
from tests.naive.stored_batches import CONTROL, NOBODY, TRANSACTIONAL, Producer, stored_batch

if TYPE_CHECKING:
    import random

TIME = 1_700_000_000_000
FAR = 2**30
CODECS = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
MARKER_KEYS = (b"\0\0\0\0", b"\0\0\0\1")  # what the keys of markers look like


@dataclass
class MadeSegment:
    """One segment as it lies on disk; the last one of a log is active."""

    base: int
    modified_ms: int
    batches: list[bytes] = field(default_factory=list)


@dataclass(frozen=True)
class Shape:
    """What a log is like; each figure is a probability unless it says otherwise."""

    key_count: int
    segment_batches: int  # about how many a segment
    tombstones: float
    null_keys: float
    headers: float
    append_time: float
    compressed: float
    gaps: float
    empty_batches: float
    horizons: float
    transactions: float
    idempotent: float
    large_keys: float
    large_values: float
    far_gaps: float
    batches: int  # how many at all

    @classmethod
    def of(cls, chance: random.Random) -> Shape:
        """Half of the features are missing in each log, so that the others are seen alone too."""

        def some(most: float) -> float:
            return chance.choice((0, most * chance.random()))

        return cls(
            key_count=chance.choice((1, 3, 8, 30)),
            segment_batches=chance.choice((1, 2, 4, 9, 20)),
            tombstones=some(0.5),
            null_keys=some(0.2),
            headers=some(0.5),
            append_time=chance.choice((0, 0, chance.random(), 1)),
            compressed=chance.choice((0, 0, chance.random(), 1)),
            gaps=some(0.3),
            empty_batches=some(0.3),
            horizons=some(0.5),
            transactions=some(0.8),
            idempotent=some(0.6),
            large_keys=some(0.3),
            large_values=some(0.1),
            far_gaps=chance.choice((0, 0, 0, 0.1)),
            batches=chance.choice((6, 15, 30, 60)),
        )


@dataclass
class LogMaker:
    chance: random.Random
    shape: Shape
    segments: list[MadeSegment] = field(default_factory=list)
    features: set[str] = field(default_factory=set)
    offset: int = 0
    clock: int = TIME
    sequences: dict[int, int] = field(default_factory=dict)
    open: set[int] = field(default_factory=set)  # producers in a transaction

    def make(self) -> None:
        """All batches, then perhaps an empty active segment."""
        self.offset = self.chance.choice((0, 0, 5, 1000))
        self.start_segment()
        while sum(len(each.batches) for each in self.segments) < self.shape.batches:
            self.next_batch()
            if self.chance.random() < 1 / self.shape.segment_batches:
                self.start_segment()
        if self.chance.random() < 0.6:
            for producer in sorted(self.open):
                self.marker(producer)
        if self.open:
            self.features.add("open transactions")
        if self.segments[-1].batches and self.chance.random() < 0.5:
            self.start_segment()
        if len(self.segments) >= 8:
            self.features.add("many segments")

    def start_segment(self) -> None:
        """A new last segment, sometimes with a gap in front of it or an empty one."""
        if self.segments and not self.segments[-1].batches:
            return
        if self.segments and self.chance.random() < self.shape.gaps:
            self.offset += self.chance.randrange(1, 20)
        if self.segments and self.chance.random() < self.shape.far_gaps:
            self.offset += self.chance.choice((FAR - 1, FAR, 2 * FAR - 1, 2 * FAR, 2 * FAR + 1))
            self.features.add("gaps near 2^31")
        modified_ms = self.clock + self.chance.randrange(-5_000, 5_000)
        self.segments.append(MadeSegment(self.offset, modified_ms))
        if self.chance.random() < 0.05:
            self.offset += self.chance.randrange(1, 4)
            self.segments.append(MadeSegment(self.offset, modified_ms))
            self.features.add("empty segments")

    def next_batch(self) -> None:
        chance, shape = self.chance, self.shape
        if self.segments[-1].batches and chance.random() < shape.gaps:
            self.offset += chance.randrange(1, 9)
            self.features.add("gaps")
        if chance.random() < shape.transactions:
            producer = chance.randrange(1, 4)
            if producer in self.open and chance.random() < 0.4:
                self.marker(producer)
                return
            if producer not in self.open and chance.random() < shape.horizons * 0.5:
                self.marker(producer)  # the data was compacted away before
                return
            self.open.add(producer)
            self.data(producer, TRANSACTIONAL)
        elif chance.random() < shape.idempotent:
            self.data(chance.randrange(10, 13), 0)
            self.features.add("idempotent producers")
        else:
            self.data(-1, 0)

    def put(self, data: bytes, next_offset: int) -> None:
        self.segments[-1].batches.append(data)
        self.offset = next_offset

    def stamp(self) -> int:
        """Time goes on, now and then back."""
        self.clock += self.chance.choice((0, 1, 7, 300, -40))
        return self.clock

    def marker(self, producer_id: int) -> None:
        kind = self.chance.choice((ControlRecordType.COMMIT, ControlRecordType.ABORT))
        self.open.discard(producer_id)
        self.features.add(f"transactions: {kind.name.lower()}")
        key, value = encode_control_key(kind), encode_marker_value(0)
        record = Record(self.offset, self.stamp(), key, value)
        attributes = TRANSACTIONAL | CONTROL
        horizon = self.horizon()
        producer = Producer(producer_id, 0)
        data = stored_batch([record], attributes=attributes, producer=producer, horizon=horizon)
        self.put(data, self.offset + 1)

    def horizon(self) -> int | None:
        """Now and then one that an earlier round has set."""
        if self.chance.random() >= self.shape.horizons:
            return None
        self.features.add("delete horizon set before")
        return TIME + self.chance.choice((5_000, 20_000, 40_000, 60_000))

    def data(self, producer_id: int, attributes: int) -> None:
        """A batch with records, or one that has lost all of them."""
        chance, shape = self.chance, self.shape
        count = chance.choice((1, 1, 2, 3, 8))
        codec = chance.choice(CODECS) if chance.random() < shape.compressed else Codec.NONE
        producer = NOBODY
        if producer_id >= 0:
            sequence = self.sequences.get(producer_id, 0)
            self.sequences[producer_id] = sequence + count
            producer = Producer(producer_id, 0, sequence)
        first, last = self.offset, self.offset + count - 1
        horizon, append_time = self.horizon(), None
        records = [self.record(offset) for offset in range(first, last + 1)]
        if horizon is not None:  # compacted before: some records may be missing
            records = [each for each in records if chance.random() < 0.7] or records[-1:]
        if chance.random() < shape.append_time:
            append_time = self.stamp()
            self.features.add("log append time")
        if chance.random() < shape.empty_batches:
            records, horizon, codec = [], None, Codec.NONE
            self.features.add("empty batches")
        if codec is not Codec.NONE:
            self.features.add(f"codec {codec.name.lower()}")
        data = stored_batch(
            records,
            base_offset=first,
            last_offset=last,
            codec=codec,
            attributes=attributes,
            producer=producer,
            horizon=horizon,
            append_time=append_time,
            max_timestamp=None if records else self.clock,
        )
        self.put(data, last + 1)

    def record(self, offset: int) -> Record:
        """Key from a small set, value or not."""
        chance, shape = self.chance, self.shape
        value: bytes | None = chance.randbytes(chance.choice((0, 1, 20, 130, 300)))
        if chance.random() < shape.large_values:
            value = chance.randbytes(9_000)
            self.features.add("large records")
        if chance.random() < shape.tombstones:
            value = None
            self.features.add("tombstones")
        headers: tuple[tuple[bytes, bytes | None], ...] = ()
        if chance.random() < shape.headers:
            headers = ((b"h", b"x"), (b"", None), ("ü".encode(), b""))[: chance.randrange(1, 4)]
            self.features.add("headers")
        return Record(offset, self.stamp(), self.key(), value, headers)

    def key(self) -> bytes | None:
        """One of the set; large ones differ at their end only."""
        chance, shape = self.chance, self.shape
        if chance.random() < shape.null_keys:
            self.features.add("null keys")
            return None
        number = chance.randrange(shape.key_count)
        if number == 2:
            self.features.add("keys like a marker's")
            return chance.choice((*MARKER_KEYS, b""))
        if chance.random() < shape.large_keys:
            self.features.add("large keys")
            return b"k" * chance.choice((53, 54, 60, 120, 2_000)) + b"%02d" % number
        return b"key-%d" % number


def make_log(chance: random.Random) -> LogMaker:
    maker = LogMaker(chance, Shape.of(chance))
    maker.make()
    codecs = sum(name.startswith("codec") for name in maker.features)
    if codecs >= 2:
        maker.features.add("mixed codecs")
    return maker
