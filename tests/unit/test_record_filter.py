"""Goal: pass 2 never puts a right CRC over damage and keeps what it does not change; keys are
hashed as MD5 says, and the offset map keeps its limits.
Method: batches changed byte by byte, maps filled to the last slot, beside plain dictionaries.
"""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from kafkalog.cleaner.record_filter import BatchRetention, FilteredChunk, RecordFilter
from kafkalog.cleaner.skimpy_offset_map import SkimpyOffsetMap
from kafkalog.errors import CorruptBatch, InvalidConfig
from kafkalog.format.records.record import Record
from kafkalog.format.records.record_batch import Codec
from kafkalog.kernels.compaction.key_hash import (
    PENDING_COLUMN_COUNT,
    PENDING_MAX,
    SCRATCH_BYTES,
    PendingColumn,
    hash_keys,
)
from kafkalog.kernels.processor import LEVEL, ProcessorLevel
from tests.cleaner_world import batches_in
from tests.naive.cleaner import split_batches
from tests.naive.stored_batches import stored_batch

NOW_MS = 1_700_000_000_000
STAMP = NOW_MS - 5000
CODECS = pytest.mark.parametrize("codec", Codec)


def records_of(base_offset: int, *pairs: tuple[bytes | None, bytes | None]) -> list[Record]:
    return [
        Record(base_offset + index, STAMP + index, key, value)
        for index, (key, value) in enumerate(pairs)
    ]


def batch_of(
    base_offset: int, *pairs: tuple[bytes | None, bytes | None], codec: Codec = Codec.NONE
) -> bytes:
    return stored_batch(records_of(base_offset, *pairs), codec=codec)


def mapped(*batches: bytes, has_bits: bool = True) -> SkimpyOffsetMap:
    data = b"".join(batches)
    headers = [each.header for each in split_batches(data)]
    first, end = headers[0].base_offset, headers[-1].next_offset
    offset_map = SkimpyOffsetMap(24 * 1000, 0.9)
    offset_map.clear(first, end if has_bits else first)
    assert not index(offset_map, data, first)
    return offset_map


def index(offset_map: SkimpyOffsetMap, data: bytes, start_offset: int = 0) -> bool:
    batches = batches_in(data, position=100)
    return offset_map.index(batches, np.zeros(batches.rows.count, np.bool_), start_offset)


def filtered(
    offset_map: SkimpyOffsetMap | RecordFilter,
    data: bytes,
    retention: BatchRetention = BatchRetention.DELETE_EMPTY,
    *,
    discards: bool = False,
    delete_retention_ms: int = 1000,
) -> FilteredChunk:
    """Pass 2 with the same orders for every batch."""
    record_filter = offset_map if isinstance(offset_map, RecordFilter) else RecordFilter(offset_map)
    batches = batches_in(data)
    count = batches.rows.count
    return record_filter.filter(
        batches,
        np.full(count, retention, np.int64),
        np.full(count, discards, np.bool_),
        np.zeros(count, np.bool_),
        now_ms=NOW_MS,
        delete_retention_ms=delete_retention_ms,
    )


def bent(batch: bytes, position: int) -> bytes:
    data = bytearray(batch)
    data[position] ^= 1
    return bytes(data)


@pytest.mark.parametrize("has_bits", [True, False])
@CODECS
def test_a_batch_that_stays_keeps_its_bytes(codec: Codec, has_bits: bool) -> None:
    batch = batch_of(0, (b"a", b"1"), (b"b", b"2"), codec=codec)
    chunk = filtered(mapped(batch, has_bits=has_bits), batch)
    assert bytes(chunk.data) == batch
    assert chunk.table.tolist() == batches_in(batch).rows.table.tolist()
    assert chunk.statistics.messages_written == chunk.statistics.messages_read == 2


def test_damage_outside_the_records_stays_as_it_is() -> None:
    damaged, other = bent(batch_of(0, (b"a", b"1")), 42), batch_of(5, (b"z", b"1"))
    assert bytes(filtered(mapped(other), damaged + other).data) == damaged + other


@CODECS
@pytest.mark.parametrize(
    "keys", [(b"a", b"b"), (b"b", b"b"), (b"b", b"a")], ids=["rebuilt", "gone", "first goes"]
)
def test_damage_is_never_laundered(codec: Codec, keys: tuple[bytes, bytes]) -> None:
    """No new CRC over a batch whose own is wrong, nor a loss because of what it says."""
    batch = batch_of(0, *((key, b"old") for key in keys), codec=codec)
    later = batch_of(5, (b"b", b"new"))
    offset_map = mapped(later)
    assert filtered(offset_map, batch + later).statistics.superseded > 0
    with pytest.raises(CorruptBatch, match="CRC does not match") as caught:
        filtered(offset_map, bent(batch, 42) + later)
    assert (caught.value.details["base_offset"], caught.value.details["last_offset"]) == (0, 1)


@pytest.mark.parametrize("retention", [BatchRetention.DELETE, BatchRetention.RETAIN_EMPTY])
def test_damaged_batches_are_not_discarded(retention: BatchRetention) -> None:
    """What calls a batch aborted is in its header."""
    batch = batch_of(0, (b"a", b"1"))
    with pytest.raises(CorruptBatch, match="CRC does not match"):
        filtered(mapped(batch), bent(batch, 50), retention, discards=True)


def test_a_tombstone_gets_a_horizon_once() -> None:
    records = records_of(0, (b"a", None), (b"b", b"1"))
    batch = stored_batch(records)
    first = bytes(filtered(mapped(batch), batch).data)
    assert first == stored_batch(records, horizon=NOW_MS + 1000)
    offset_map = mapped(batch_of(5, (b"b", b"2")))
    second = bytes(filtered(offset_map, first).data)
    assert second == stored_batch(records[:1], last_offset=1, horizon=NOW_MS + 1000)
    expired = stored_batch(records[:1], last_offset=1, horizon=NOW_MS)
    chunk = filtered(offset_map, expired)
    assert not len(chunk.data)
    assert chunk.statistics.expired_tombstones == 1


@CODECS
def test_a_tombstone_may_be_kept_for_ever(codec: Codec) -> None:
    """delete.retention.ms takes any number; a horizon beyond 64 bits is none, as Kafka's."""
    records = records_of(0, (b"a", None), (b"b", b"1"))
    batch, largest = stored_batch(records, codec=codec), 2**63 - 1
    written = stored_batch(records, codec=codec, horizon=largest)
    for keep_ms, kept in ((largest, batch), (largest - NOW_MS, written)):
        data = batch
        for _ in range(2):
            chunk = filtered(mapped(batch), data, delete_retention_ms=keep_ms)
            data = bytes(chunk.data)
            assert data == kept
            assert chunk.statistics.expired_tombstones == 0


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
    chance = np.random.default_rng(5)
    keys = [chance.bytes(length) for length in [*range(200), 1000, 5, 70000, 0]]
    for count in (1, 31, 32, 33, len(keys)):
        for start in range(0, len(keys) - count + 1, count):
            some = keys[start : start + count]
            assert hashes_of(some, level) == [hashlib.md5(key).digest() for key in some]


def test_slots_and_capacity_are_kafkas() -> None:
    offset_map = SkimpyOffsetMap(134217728, 0.9)
    assert (offset_map.slots, offset_map.capacity) == (5592405, 5033164)
    assert SkimpyOffsetMap(48, 0.5).capacity == 1
    with pytest.raises(InvalidConfig, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        SkimpyOffsetMap(47, 0.9)


@CODECS
def test_a_full_map_stops_in_the_middle_of_a_batch(codec: Codec) -> None:
    """The next keyed record stops the build even if it is mapped."""
    offset_map = SkimpyOffsetMap(48, 1.0)
    assert index(offset_map, keyed(5, b"a", None, b"b", None, b"a", codec=codec))
    assert (offset_map.size, offset_map.latest_offset, offset_map.utilization) == (2, 7, 1.0)
    assert (offset_map.get(b"a"), offset_map.get(b"b"), offset_map.get(b"c")) == (5, 7, -1)
    assert offset_map.records_read == 4
    offset_map.clear()
    assert (offset_map.size, offset_map.latest_offset, offset_map.get(b"a")) == (0, -1, -1)
    assert not index(offset_map, keyed(9, b"a", b"a", codec=codec))
    assert offset_map.get(b"a") == 10
    offset_map.note_latest(20)
    offset_map.note_latest(15)
    assert offset_map.latest_offset == 20


def keyed(base_offset: int, *keys: bytes | None, codec: Codec = Codec.NONE) -> bytes:
    return batch_of(base_offset, *((key, b"value") for key in keys), codec=codec)


@CODECS
def test_a_wrong_crc_is_not_indexed(codec: Codec) -> None:
    """No key of a damaged batch supersedes another."""
    sound, damaged = keyed(0, b"a"), keyed(1, *[b"a"] * 9, codec=codec)
    for position in range(17, len(damaged)):
        with pytest.raises(CorruptBatch) as caught:
            index(SkimpyOffsetMap(4800, 0.9), sound + bent(damaged, position))
        assert (caught.value.file, caught.value.position) == ("a.log", 100 + len(sound))


def test_offsets_that_do_not_rise_in_a_batch_are_refused() -> None:
    twice = [Record(0, STAMP, b"a", b""), Record(0, STAMP, b"b", b"")]
    with pytest.raises(CorruptBatch, match=r"offset does not rise"):
        index(SkimpyOffsetMap(4800, 0.9), stored_batch(twice, last_offset=1))


def test_a_bomb_is_refused() -> None:
    bomb = batches_in(batch_of(0, (b"a", b"\0" * 100_000), codec=Codec.ZSTD), 50_000)
    with pytest.raises(CorruptBatch, match="inflates to more than 50000 bytes"):
        SkimpyOffsetMap(4800, 0.9).index(bomb, np.zeros(1, np.bool_), 0)
