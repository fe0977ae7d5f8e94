"""Job ``stats``: count what is in the logs, by partition, key, size and time.

A task reads one piece of a partition, up to about TARGET_BYTES; the merge adds the counts. Records,
bytes, sizes and times are exact. Bytes are those of keys and values, decompressed, without headers.
Aborted records are counted and control records are not, as for read_uncommitted. The directories
may be served meanwhile: they are read up to the high watermark, and offsets that are deleted before
they are read count as missing. A damaged batch ends the job.

Keys are counted in bounded memory (`KeySketch`), in two ways. The heaviest keys are counted exactly
while there are at most KEYS_MAX keys; then the lightest are dropped, and ``missed_bytes`` is the
most that any key may have lost by that. The sample has the SAMPLE_MAX keys with the smallest 31-bit
hashes, each with its last offset and its size there. With fewer keys the sample has all of them,
except for equal hashes. With more, the number of keys and the bytes of the last record of each key
are estimates within about two percent. Sketches of parts of a log can be added.

Needs pyarrow. One thread.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog.format.topic_names import TopicPartition
from kafkalog.jobs.fleet import sums
from kafkalog.jobs.tasks import progress, result_of
from kafkalog.kernels.records.record_build import partition_keys
from kafkalog.spark.logs.object_store import shown
from kafkalog.spark.logs.open import open_logs, read_piece
from kafkalog.spark.logs.values import TARGET_BYTES, Access, DataLost, OffsetRange, Piece
from kafkalog.spark.reading import record_batches

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from kafkalog.jobs.fleet import FleetPartition
    from kafkalog.jobs.tasks import Runner

    Numbers = npt.NDArray[np.int64]


KEYS_MAX = 20_000
SAMPLE_MAX = 4_096
_HASHES = 1 << 31
_PENDING_MAX = 4 * KEYS_MAX
_HASH, _OFFSET, _SIZE = range(3)


class HeavyKey(NamedTuple):
    """A key with at least so many records and bytes."""

    key: bytes
    records: int
    bytes: int


class KeySketch:
    """See the module. Picklable."""

    def __init__(self) -> None:
        self._heavy = _table(pa.array([], pa.binary()), np.empty((0, 2), np.int64))
        self._sample: Numbers = np.empty((0, 3), np.int64)  # rising hashes
        self.missed_bytes = 0

    def add(self, keys: pa.Array, sizes: pa.Array, offsets: pa.Array) -> None:
        """Records in the order of their offsets: keys without null, bytes of key and value."""
        if not len(keys):
            return
        ones = np.ones(len(keys), np.int64)
        records = pa.table(
            {"key": keys, "records": ones, "bytes": sizes, "offset": offsets, "size": sizes}
        )
        found = records.group_by("key", use_threads=False).aggregate(
            [("records", "sum"), ("bytes", "sum"), ("offset", "max"), ("size", "last")]
        )
        distinct = found["key"].combine_chunks()
        self._add_sample(
            np.column_stack(
                [hashes_of(distinct), found["offset_max"].to_numpy(), found["size_last"].to_numpy()]
            )
        )
        numbers = [found["records_sum"].to_numpy(), found["bytes_sum"].to_numpy()]
        self._add_heavy(_table(distinct, np.column_stack(numbers)))

    def merge(self, other: KeySketch) -> None:
        """Add the counts of another part of the log."""
        self.missed_bytes += other.missed_bytes
        self._add_sample(other._sample)
        self._add_heavy(other._heavy)
        self.prune()

    def prune(self) -> None:
        """Drop all but the KEYS_MAX heaviest keys: before pickling, and before reading results."""
        grouped = self._heavy.group_by("key", use_threads=False).aggregate(
            [("records", "sum"), ("bytes", "sum")]
        )
        order = pc.sort_indices(grouped, [("bytes_sum", "descending"), ("key", "ascending")])
        grouped = grouped.take(order)
        if len(grouped) > KEYS_MAX:
            self.missed_bytes += grouped["bytes_sum"][KEYS_MAX].as_py()
            grouped = grouped.slice(0, KEYS_MAX)
        numbers = [grouped["records_sum"].to_numpy(), grouped["bytes_sum"].to_numpy()]
        self._heavy = _table(grouped["key"].combine_chunks(), np.column_stack(numbers))

    def _add_heavy(self, more: pa.Table) -> None:
        self._heavy = pa.concat_tables([self._heavy, more])
        if len(self._heavy) > _PENDING_MAX:
            self.prune()

    def _add_sample(self, more: Numbers) -> None:
        """The newest record of each hash, of the smallest hashes."""
        if len(self._sample) == SAMPLE_MAX:
            more = more[more[:, _HASH] <= self._sample[-1, _HASH]]
        both = np.concatenate([self._sample, more])
        both = both[np.lexsort((both[:, _OFFSET], both[:, _HASH]))]
        is_newest = np.ones(len(both), np.bool_)
        is_newest[:-1] = both[1:, _HASH] != both[:-1, _HASH]
        self._sample = both[is_newest][:SAMPLE_MAX]

    def heaviest(self, count: int) -> list[HeavyKey]:
        """The keys with the most bytes; call `prune` before."""
        rows = self._heavy.slice(0, count).to_pylist()
        return [HeavyKey(row["key"], row["records"], row["bytes"]) for row in rows]

    @property
    def is_exact(self) -> bool:
        """Whether the sample holds every key."""
        return len(self._sample) < SAMPLE_MAX

    @property
    def distinct_keys(self) -> int:
        """The number of keys, exact or estimated."""
        if self.is_exact:
            return len(self._sample)
        return round((SAMPLE_MAX - 1) * _HASHES / int(self._sample[-1, _HASH]))

    @property
    def last_bytes(self) -> int:
        """Bytes of the last records of all keys, exact or estimated: what compaction keeps."""
        sizes = self._sample[:, _SIZE]
        if self.is_exact:
            return int(sizes.sum())
        return round(float(sizes.mean()) * self.distinct_keys)


def hashes_of(keys: pa.Array) -> Numbers:
    """A 31-bit hash of each key; the array is binary and has no null."""
    out = np.empty(len(keys), np.int64)
    if len(keys):
        _, places, data = keys.buffers()
        ends = np.frombuffer(places, np.int32)[keys.offset : keys.offset + len(keys) + 1]
        memory = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
        lengths = np.diff(ends).astype(np.int64)
        partition_keys(memory[ends[0] : ends[-1]], lengths, _HASHES, out)
    return out


def _table(keys: pa.Array, numbers: Numbers) -> pa.Table:
    return pa.table({"key": keys, "records": numbers[:, 0], "bytes": numbers[:, 1]})


SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
    ]
)
TIMES_MAX = 100_000
"""Most spans of time to count; with more, each span becomes twice as long."""
_SIZES = 33  # 0, 1, 2 to 3, 4 to 7, ... up to 2^31 - 1 bytes
_COUNTERS = (
    *("records", "key_bytes", "value_bytes", "null_keys"),
    *("null_values", "tombstones", "offsets_missing"),
)


@dataclass(slots=True)
class Counts:
    """The counts of a partition or a part of it; parts can be added. Picklable.

    sizes   records and bytes of values by the number of bits of their length
    times   records and bytes by span of time, which begins at key * width_ms
    """

    width_ms: int
    records: int = 0
    key_bytes: int = 0
    value_bytes: int = 0
    null_keys: int = 0
    null_values: int = 0
    tombstones: int = 0
    offsets_missing: int = 0
    sizes: Numbers = field(default_factory=lambda: np.zeros((_SIZES, 2), np.int64))
    times: dict[int, tuple[int, int]] = field(default_factory=dict)
    keys: KeySketch = field(default_factory=KeySketch)

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the records of a batch with the columns of SCHEMA."""
        key, value = batch.column("key"), batch.column("value")
        key_bytes = pc.fill_null(pc.binary_length(key), 0).cast(pa.int64())
        value_bytes = pc.fill_null(pc.binary_length(value), 0).cast(pa.int64())
        sizes = pc.add(key_bytes, value_bytes)
        has_key = pc.is_valid(key)
        self.records += len(batch)
        self.key_bytes += int(np.sum(key_bytes.to_numpy()))
        self.value_bytes += int(np.sum(value_bytes.to_numpy()))
        self.null_keys += key.null_count
        self.null_values += value.null_count
        self.tombstones += int(pc.sum(pc.and_(has_key, pc.is_null(value))).as_py() or 0)
        lengths = value_bytes.filter(pc.is_valid(value)).to_numpy()
        bits = np.frexp(lengths.astype(np.float64))[1]  # of 0: 0, of 1: 1, of 2 and 3: 2
        self.sizes[:, 0] += np.bincount(bits, minlength=_SIZES)
        self.sizes[:, 1] += np.bincount(bits, lengths, minlength=_SIZES).astype(np.int64)
        self._add_times(batch.column("timestamp").cast(pa.int64()).to_numpy(), sizes.to_numpy())
        self.keys.add(
            key.filter(has_key), sizes.filter(has_key), batch.column("offset").filter(has_key)
        )

    def _add_times(self, stamps_us: Numbers, sizes: Numbers) -> None:
        """Records without a timestamp are in no span."""
        is_known = stamps_us >= 0
        spans = stamps_us[is_known] // (self.width_ms * 1_000)
        found, places = np.unique(spans, return_inverse=True)
        records = np.bincount(places, minlength=len(found)).tolist()
        weights = np.bincount(places, sizes[is_known], minlength=len(found)).tolist()
        for span, count, weight in zip(found.tolist(), records, weights, strict=True):
            self._add_span(span, count, int(weight))
        while len(self.times) > TIMES_MAX:
            self._widen()

    def _add_span(self, span: int, records: int, size_bytes: int) -> None:
        known = self.times.get(span, (0, 0))
        self.times[span] = (known[0] + records, known[1] + size_bytes)

    def _widen(self) -> None:
        """Double the width of the spans."""
        before, self.times = self.times, {}
        self.width_ms *= 2
        for span, (records, size_bytes) in before.items():
            self._add_span(span // 2, records, size_bytes)

    def merge(self, other: Counts) -> None:
        """Add another part; the narrower spans are widened."""
        while self.width_ms < other.width_ms:
            self._widen()
        factor = self.width_ms // other.width_ms
        for span, (records, size_bytes) in other.times.items():
            self._add_span(span // factor, records, size_bytes)
        while len(self.times) > TIMES_MAX:
            self._widen()
        for name in _COUNTERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.sizes += other.sizes
        self.keys.merge(other.keys)


@dataclass(slots=True)
class Stats:
    """The counts by topic, partition and directory, in the order of the partitions."""

    partitions: dict[tuple[str, int, str], Counts]

    def topics(self) -> dict[str, Counts]:
        """The counts of each topic."""
        found: dict[str, Counts] = {}
        for (topic, _, _), counts in self.partitions.items():
            found.setdefault(topic, Counts(counts.width_ms)).merge(counts)
        return found


def count_records(
    partitions: Sequence[FleetPartition],
    runner: Runner,
    *,
    width_ms: int,
    target_bytes: int = TARGET_BYTES,
) -> Stats:
    """Read everything once. Raises TaskFailed, and OSError for a directory that is deleted.

    A result is added as soon as those before it are: the sums do not depend on the order in which
    tasks end, and memory has few results beside them.
    """
    owners = {(e.log_dir, e.topic, e.partition): e.directory for e in partitions}
    stats = Stats({(e.topic, e.partition, e.directory): Counts(width_ms) for e in partitions})
    pieces = _pieces(partitions, target_bytes)

    def counts_of(piece: Piece) -> Counts:
        topic, partition = piece.range[:2]
        log_dir = piece.place.rpartition("/")[0]
        return stats.partitions[topic, partition, owners[log_dir, topic, partition]]

    early: dict[int, Counts] = {}
    added = 0
    with (
        progress("stats", pieces) as on_done,
        closing(runner.stream(pieces, partial(count_piece, width_ms=width_ms))) as all_ended,
    ):
        for ended in all_ended:
            early[ended.number] = result_of(ended)
            on_done(ended.task)
            while added in early:
                counts_of(pieces[added]).merge(early.pop(added))
                added += 1
    return stats


def _pieces(partitions: Sequence[FleetPartition], target_bytes: int) -> list[Piece]:
    """The pieces of the partitions; those of a log directory are planned together."""
    pieces: list[Piece] = []
    for log_dir in dict.fromkeys(each.log_dir for each in partitions):
        names = [TopicPartition(e.topic, e.partition) for e in partitions if e.log_dir == log_dir]
        with closing(open_logs(Access(paths=(log_dir,)))) as logs:
            known = logs.all_bounds(names)
            bounds = {at: known.get(at) or logs.bounds(at.topic, at.partition) for at in names}
            ranges = [OffsetRange(at.topic, at.partition, *each) for at, each in bounds.items()]
            found = logs.all_pieces(ranges, target_bytes)
            planned = {piece.range[:2] for piece in found}
            for wanted in ranges:
                if wanted[:2] not in planned:  # nothing is in it, or it was deleted: that raises
                    found += logs.pieces(wanted, target_bytes)
            pieces += found
    return pieces


def count_piece(piece: Piece, width_ms: int) -> Counts:
    """The work of one task; offsets that are deleted before they are read are missing.

    width_ms   width of the spans of time
    """
    counts, access = Counts(width_ms), Access(paths=(piece.place.rpartition("/")[0],))
    while piece.range.from_offset < piece.range.to_offset:
        try:
            for batch in record_batches(read_piece(piece, access), piece.range, SCHEMA):
                counts.add(batch)
            break
        except DataLost as lost:
            counts.offsets_missing += lost.missing.to_offset - lost.missing.from_offset
            rest = piece.range._replace(from_offset=lost.missing.to_offset)
            piece = replace(piece, range=rest, start_position=None)
    counts.keys.prune()
    return counts


# ---- rows


class PartitionRow(NamedTuple):
    """One partition. Bytes are of keys and values.

    distinct_keys      of keyed records; an estimate unless keys_are_exact
    latest_bytes       of the last record of each key, estimated in the same way
    compaction_ratio   latest_bytes divided by the bytes of all records; None without records
    """

    topic: str
    partition: int
    directory: str
    records: int
    key_bytes: int
    value_bytes: int
    null_keys: int
    null_values: int
    tombstones: int
    distinct_keys: int
    keys_are_exact: bool
    latest_bytes: int
    compaction_ratio: float | None
    offsets_missing: int


class KeyRow(NamedTuple):
    """One of the heaviest keys of a topic; it has up to ``missed_bytes`` more bytes."""

    topic: str
    key: str
    records: int
    bytes: int
    missed_bytes: int


class SizeRow(NamedTuple):
    """Values of a topic with a length from ``from_bytes`` to ``to_bytes``, both included."""

    topic: str
    from_bytes: int
    to_bytes: int
    records: int
    bytes: int


class TimeRow(NamedTuple):
    """Records of a topic with timestamps from ``start_ms`` on, for ``width_ms``."""

    topic: str
    start_ms: int
    width_ms: int
    records: int
    bytes: int


def partition_rows(stats: Stats) -> list[PartitionRow]:
    """A row for each partition."""
    return [
        PartitionRow(
            topic=topic,
            partition=partition,
            directory=shown(directory),
            **{name: getattr(counts, name) for name in _COUNTERS},
            distinct_keys=counts.keys.distinct_keys,
            keys_are_exact=counts.keys.is_exact,
            latest_bytes=counts.keys.last_bytes,
            compaction_ratio=counts.keys.last_bytes / all_bytes if all_bytes else None,
        )
        for (topic, partition, directory), counts in stats.partitions.items()
        for all_bytes in [counts.key_bytes + counts.value_bytes]
    ]


def key_rows(stats: Stats, count: int) -> list[KeyRow]:
    """The heaviest keys of each topic; bytes that are not UTF-8 become escapes."""
    return [
        KeyRow(
            topic,
            each.key.decode("utf-8", "backslashreplace"),
            each.records,
            each.bytes,
            counts.keys.missed_bytes,
        )
        for topic, counts in stats.topics().items()
        for each in counts.keys.heaviest(count)
    ]


def size_rows(stats: Stats) -> list[SizeRow]:
    """A row for each length of values that occurs."""
    return [
        SizeRow(topic, (1 << bits) >> 1, max((1 << bits) - 1, 0), records, size_bytes)
        for topic, counts in stats.topics().items()
        for bits, (records, size_bytes) in enumerate(counts.sizes.tolist())
        if records
    ]


def time_rows(stats: Stats) -> list[TimeRow]:
    """A row for each span with records."""
    return [
        TimeRow(topic, span * counts.width_ms, counts.width_ms, records, size_bytes)
        for topic, counts in stats.topics().items()
        for span, (records, size_bytes) in sorted(counts.times.items())
    ]


def totals_of(stats: Stats) -> dict[str, int]:
    """The sums of a run."""
    counts = list(stats.partitions.values())
    found = sums(counts, "records")
    found["bytes"] = sum(each.key_bytes + each.value_bytes for each in counts)
    return found | sums(counts, "null_keys", "null_values", "tombstones")
