"""Goal: pass 2 never puts a right CRC over damage and keeps what it does not change; keys are
hashed as MD5 says, and the offset map keeps its limits.
Method: batches changed byte by byte, maps filled to the last slot, beside plain dictionaries.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from kafkalog.cleaner.record_batches import RecordBatches
from kafkalog.cleaner.record_filter import (
    BatchRetention,
    FilteredChunk,
    RecordFilter,
    TombstoneRule,
)
from kafkalog.cleaner.skimpy_offset_map import SkimpyOffsetMap
from kafkalog.errors import CorruptBatch, InvalidConfig
from kafkalog.format.records.batch_scan import BatchColumn
from kafkalog.format.records.record import Record, iterate_records
from kafkalog.format.records.record_batch import Codec
from kafkalog.kernels.compaction.key_hash import (
    PENDING_COLUMN_COUNT,
    PENDING_MAX,
    SCRATCH_BYTES,
    PendingColumn,
    hash_keys,
)
from kafkalog.kernels.processor import LEVEL, ProcessorLevel
from tests.naive.cleaner import split_batches
from tests.naive.record_filter import KeyedBatch, KeyedRecord, decode
from tests.naive.stored_batches import stored_batch

NOW_MS = 1_700_000_000_000
STAMP = NOW_MS - 5000


def batch_of(base_offset: int, *pairs: tuple[bytes, bytes | None], codec: int = 0) -> KeyedBatch:
    """A batch of these keys and values at the following offsets, a millisecond apart."""
    records = tuple(
        KeyedRecord(base_offset + index, STAMP + index, key, value)
        for index, (key, value) in enumerate(pairs)
    )
    return KeyedBatch(
        base_offset=base_offset,
        last_offset=base_offset + len(pairs) - 1,
        records=records,
        codec=codec,
        base_timestamp=STAMP,
        max_timestamp=STAMP + len(pairs) - 1,
    )


def of(data: bytes, max_decompressed_bytes: int = 1 << 20) -> RecordBatches:
    """As read from a file."""
    return RecordBatches.of(
        data, file="a.log", position=0, max_decompressed_bytes=max_decompressed_bytes
    )


def mapped(*batches: KeyedBatch, first_offset: int = 0, has_bits: bool = True) -> SkimpyOffsetMap:
    """A map of these batches."""
    offset_map = SkimpyOffsetMap(24 * 1000, 0.9)
    offset_map.clear(first_offset, batches[-1].last_offset + 1 if has_bits else first_offset)
    skip = np.zeros(len(batches), np.bool_)
    data = b"".join(batch.encode() for batch in batches)
    assert not offset_map.index(of(data), skip, first_offset)
    return offset_map


def filtered(
    offset_map: SkimpyOffsetMap,
    data: bytes,
    retention: BatchRetention = BatchRetention.DELETE_EMPTY,
    rule: TombstoneRule = TombstoneRule.PER_BATCH,
    *,
    discards: bool = False,
    delete_retention_ms: int = 1000,
) -> FilteredChunk:
    """Pass 2 with the same orders for every batch."""
    batches = of(data)
    count = batches.rows.count
    return RecordFilter(offset_map).filter(
        batches,
        np.full(count, retention, np.int64),
        np.full(count, discards, np.bool_),
        np.zeros(count, np.bool_),
        now_ms=NOW_MS,
        delete_retention_ms=delete_retention_ms,
        tombstone_rule=rule,
    )


def bent(batch: KeyedBatch, position: int = -1) -> bytes:
    """One bit of a byte changed, by default the last one, in the last record's header count."""
    data = bytearray(batch.encode())
    data[position] ^= 1
    return bytes(data)


@pytest.mark.parametrize("has_bits", [True, False])
@pytest.mark.parametrize("codec", range(5))
def test_a_batch_that_stays_keeps_its_bytes(codec: int, has_bits: bool) -> None:
    """Compressed or not, nothing is written anew."""
    batch = batch_of(0, (b"a", b"1"), (b"b", b"2"), codec=codec)
    chunk = filtered(mapped(batch, has_bits=has_bits), batch.encode())
    assert bytes(chunk.data) == batch.encode()
    assert chunk.table.tolist() == of(batch.encode()).rows.table.tolist()
    assert chunk.statistics.messages_written == chunk.statistics.messages_read == 2


def test_damage_outside_the_records_stays_as_it_is() -> None:
    """A batch that stays whole keeps its damage."""
    batch, other = batch_of(0, (b"a", b"1")), batch_of(5, (b"z", b"1"))
    damaged = bent(batch, 42)
    chunk = filtered(mapped(other, first_offset=5), damaged + other.encode())
    assert bytes(chunk.data) == damaged + other.encode()


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize(
    "keys", [(b"a", b"b"), (b"b", b"b"), (b"b", b"a")], ids=["rebuilt", "gone", "first goes"]
)
def test_damage_is_never_laundered(codec: int, keys: tuple[bytes, bytes]) -> None:
    """No new CRC over a batch whose own is wrong, nor a loss because of what it says."""
    batch = batch_of(0, *((key, b"old") for key in keys), codec=codec)
    later = batch_of(5, (b"b", b"new"))
    offset_map = mapped(later, first_offset=5)
    sound = filtered(offset_map, batch.encode() + later.encode())
    assert sound.statistics.superseded > 0
    with pytest.raises(CorruptBatch, match="CRC does not match") as caught:
        filtered(offset_map, bent(batch, 42) + later.encode())
    assert (caught.value.details["base_offset"], caught.value.details["last_offset"]) == (0, 1)


@pytest.mark.parametrize("retention", [BatchRetention.DELETE, BatchRetention.RETAIN_EMPTY])
def test_damaged_batches_are_not_discarded(retention: BatchRetention) -> None:
    """What calls a batch aborted is in its header."""
    batch = batch_of(0, (b"a", b"1"))
    damaged = bent(batch, 50)
    with pytest.raises(CorruptBatch, match="CRC does not match"):
        filtered(mapped(batch), damaged, retention, discards=True)


def test_a_tombstone_gets_a_horizon_once() -> None:
    """Set at the first cleaning, kept by the next, obeyed when it has passed."""
    batch = batch_of(0, (b"a", None), (b"b", b"1"))
    first = decode(bytes(filtered(mapped(batch), batch.encode()).data))
    assert first == [replace(batch, horizon=NOW_MS + 1000, base_timestamp=NOW_MS + 1000)]
    later = batch_of(5, (b"b", b"2"))
    offset_map = mapped(later, first_offset=5)
    (second,) = decode(bytes(filtered(offset_map, first[0].encode()).data))
    assert second.horizon == NOW_MS + 1000
    assert second.records == batch.records[:1]
    expired = replace(second, horizon=NOW_MS, base_timestamp=NOW_MS)
    chunk = filtered(offset_map, expired.encode())
    assert not len(chunk.data)
    assert chunk.statistics.expired_tombstones == 1


@pytest.mark.parametrize("codec", range(5))
def test_a_tombstone_may_be_kept_for_ever(codec: int) -> None:
    """delete.retention.ms takes any number; a horizon beyond 64 bits is none, as Kafka's."""
    batch = batch_of(0, (b"a", None), (b"b", b"1"), codec=codec)
    largest = 2**63 - 1
    written = replace(batch, horizon=largest, base_timestamp=largest)
    for keep_ms, kept in ((largest, batch), (largest - NOW_MS, written)):
        data = batch.encode()
        for _ in range(2):
            chunk = filtered(mapped(batch), data, delete_retention_ms=keep_ms)
            data = bytes(chunk.data)
            assert decode(data) == [kept]
            assert chunk.statistics.expired_tombstones == 0


def test_one_filter_serves_chunks_of_all_sizes() -> None:
    """Buffers grow, and a chunk leaves nothing to the next."""
    sizes = [1, 500, 3, 40, 0, 900]
    pairs = [(b"%d" % spot, b"v" * spot) for spot in range(9)]
    offset, logs = 0, []
    for size in sizes:
        batches = [batch_of(offset + 9 * index, *pairs, codec=4) for index in range(size)]
        offset += 9 * size
        logs.append(b"".join(batch.encode() for batch in batches))
    last = batch_of(offset, *((b"%d" % spot, b"") for spot in range(8)))
    record_filter = RecordFilter(mapped(last, first_offset=offset))
    for log, size in zip(logs, sizes, strict=True):
        none = np.zeros(size, np.bool_)
        chunk = record_filter.filter(
            of(log), np.ones(size, np.int64), none, none, now_ms=NOW_MS, delete_retention_ms=0
        )
        kept = decode(bytes(chunk.data))
        assert [record.key for batch in kept for record in batch.records] == [b"8"] * size
        assert chunk.table[:, BatchColumn.SIZE].sum() == len(chunk.data)


def batches_of(data: bytes) -> RecordBatches:
    return RecordBatches.of(data, file="x.log", position=0, max_decompressed_bytes=1 << 20)


def kept_of(*old: bytes) -> FilteredChunk:
    """What stays of batches in front of a map that knows newer records of "old" and "gone"."""
    offset_map = SkimpyOffsetMap(24 * 100, 0.9)
    newer = [Record(offset, 0, key, b"new") for offset, key in ((100, b"old"), (101, b"gone"))]
    offset_map.clear(100, 102)
    offset_map.index(batches_of(stored_batch(newer)), np.zeros(1, np.bool_), 100)
    count = len(old)
    return RecordFilter(offset_map).filter(
        batches_of(b"".join(old)),
        np.full(count, int(BatchRetention.DELETE_EMPTY), np.int64),
        np.zeros(count, np.bool_),
        np.zeros(count, np.bool_),
        now_ms=0,
        delete_retention_ms=0,
    )


def keys_of(chunk: FilteredChunk) -> list[bytes | None]:
    """Of all records."""
    return [
        record.key
        for batch in split_batches(bytes(chunk.data))
        for record in iterate_records(batch.data)
    ]


def test_a_plain_batch_behind_a_compressed_one_keeps_its_look_ups() -> None:
    """M20. An inflated batch does not take the place of the others' look-ups."""
    kept = kept_of(
        stored_batch([Record(0, 0, b"old", b"1")]),
        stored_batch([Record(1, 0, b"a", b"1"), Record(2, 0, b"b", b"1")], codec=Codec.GZIP),
        stored_batch([Record(3, 0, b"gone", b"1"), Record(4, 0, b"stays", b"1")]),
    )
    assert keys_of(kept) == [b"a", b"b", b"stays"]


def test_a_compressed_batch_of_superseded_records_leaves_nothing() -> None:
    """M20. Not a byte of it is written."""
    superseded = stored_batch(
        [Record(0, 0, b"old", b"1"), Record(1, 0, b"gone", b"1")], codec=Codec.ZSTD
    )
    alone = kept_of(superseded)
    assert (len(alone.data), len(alone.table)) == (0, 0)
    kept = kept_of(superseded, stored_batch([Record(2, 0, b"stays", b"1")]))
    assert keys_of(kept) == [b"stays"]


MAX_BYTES = 1 << 20


def hashes_of(keys: list[bytes], level: int) -> list[bytes]:
    """What the kernel makes of keys that lie back to back, with no byte behind the last."""
    source = np.frombuffer(b"".join(keys), np.uint8)
    pending = np.zeros((PENDING_MAX, PENDING_COLUMN_COUNT), np.int64)
    position = 0
    for row, key in enumerate(keys):
        pending[row, PendingColumn.KEY_POSITION] = position
        pending[row, PendingColumn.KEY_LENGTH] = len(key)
        position += len(key)
    hash_keys(source, pending, len(keys), np.zeros(SCRATCH_BYTES, np.uint8), level)
    halves = pending[: len(keys), PendingColumn.HASH_LOW : PendingColumn.HASH_HIGH + 1]
    return [row.astype("<i8").tobytes() for row in halves]


@pytest.mark.parametrize("level", [level for level in ProcessorLevel if level <= LEVEL])
def test_hashes_are_md5(level: ProcessorLevel) -> None:
    """MD5 of every length around a block's limits."""
    chance = np.random.default_rng(5)
    keys = [chance.bytes(length) for length in [*range(200), 1000, 5, 70000, 0]]
    for count in (1, 31, 32, 33, len(keys)):
        for start in range(0, len(keys) - count + 1, count):
            some = keys[start : start + count]
            assert hashes_of(some, level) == [hashlib.md5(key).digest() for key in some]


def keyed_batch(base_offset: int, keys: list[bytes | None], *, codec: int = 0) -> KeyedBatch:
    """A record per key, at the following offsets."""
    records = tuple(
        KeyedRecord(base_offset + index, 1000, key, b"value") for index, key in enumerate(keys)
    )
    return KeyedBatch(
        base_offset=base_offset,
        last_offset=base_offset + len(keys) - 1,
        records=records,
        codec=codec,
        base_timestamp=1000,
        max_timestamp=1000,
    )


def index(offset_map: SkimpyOffsetMap, data: bytes, start_offset: int = 0) -> bool:
    """Pass 1 without skipped batches."""
    batches = RecordBatches.of(data, file="a.log", position=100, max_decompressed_bytes=MAX_BYTES)
    return offset_map.index(batches, np.zeros(batches.rows.count, np.bool_), start_offset)


def test_slots_and_capacity_are_kafkas() -> None:
    """24 bytes a slot, the load factor rounded down."""
    offset_map = SkimpyOffsetMap(134217728, 0.9)
    assert (offset_map.slots, offset_map.capacity) == (5592405, 5033164)
    assert SkimpyOffsetMap(48, 0.5).capacity == 1
    with pytest.raises(InvalidConfig, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        SkimpyOffsetMap(47, 0.9)


@pytest.mark.parametrize("codec", range(5))
def test_a_full_map_stops_in_the_middle_of_a_batch(codec: int) -> None:
    """The next keyed record stops the build even if it is mapped."""
    offset_map = SkimpyOffsetMap(48, 1.0)
    data = keyed_batch(5, [b"a", None, b"b", None, b"a"], codec=codec).encode()
    assert index(offset_map, data)
    assert (offset_map.size, offset_map.latest_offset, offset_map.utilization) == (2, 7, 1.0)
    assert (offset_map.get(b"a"), offset_map.get(b"b"), offset_map.get(b"c")) == (5, 7, -1)
    assert offset_map.records_read == 4
    offset_map.clear()
    assert (offset_map.size, offset_map.latest_offset, offset_map.get(b"a")) == (0, -1, -1)
    assert not index(offset_map, keyed_batch(9, [b"a", b"a"], codec=codec).encode())
    assert offset_map.get(b"a") == 10
    offset_map.note_latest(20)
    offset_map.note_latest(15)
    assert offset_map.latest_offset == 20


@pytest.mark.parametrize("codec", range(5))
def test_a_wrong_crc_is_not_indexed(codec: int) -> None:
    """No key of a damaged batch supersedes another."""
    sound, damaged = (
        keyed_batch(0, [b"a"]).encode(),
        keyed_batch(1, [b"a"] * 9, codec=codec).encode(),
    )
    for position in range(17, len(damaged)):
        bent = bytearray(damaged)
        bent[position] ^= 1
        offset_map = SkimpyOffsetMap(4800, 0.9)
        with pytest.raises(CorruptBatch) as caught:
            index(offset_map, sound + bytes(bent))
        assert (caught.value.file, caught.value.position) == ("a.log", 100 + len(sound))


def test_offsets_that_do_not_rise_in_a_batch_are_refused() -> None:
    """Two records never share an offset."""
    batch = keyed_batch(0, [b"a", b"b"])
    twice = KeyedBatch(
        base_offset=0,
        last_offset=1,
        records=(batch.records[0], KeyedRecord(0, 1000, b"b", b"value")),
        base_timestamp=1000,
        max_timestamp=1000,
    )
    with pytest.raises(CorruptBatch, match=r"offset does not rise"):
        index(SkimpyOffsetMap(4800, 0.9), twice.encode())


def test_a_bomb_is_refused() -> None:
    """An inflated batch stays below the bound."""
    record = KeyedRecord(0, 1000, b"a", b"\0" * 100_000)
    batch = KeyedBatch(0, 0, (record,), codec=4, base_timestamp=1000, max_timestamp=1000)
    batches = RecordBatches.of(
        batch.encode(), file="a.log", position=0, max_decompressed_bytes=50_000
    )
    with pytest.raises(CorruptBatch, match="inflates to more than 50000 bytes"):
        SkimpyOffsetMap(4800, 0.9).index(batches, np.zeros(1, np.bool_), 0)
