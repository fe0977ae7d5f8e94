"""Goal: keys are hashed as MD5 says, the map keeps its limits, and damage is never believed.
Method: hashlib as the twin; small maps; batches made by the plain twin, then bent.
"""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from kafkalog.cleaner.record_batches import RecordBatches
from kafkalog.cleaner.skimpy_offset_map import SkimpyOffsetMap
from kafkalog.errors import CorruptBatch, InvalidConfig
from kafkalog.kernels.compaction.key_hash import (
    PENDING_COLUMN_COUNT,
    PENDING_MAX,
    SCRATCH_BYTES,
    PendingColumn,
    hash_keys,
)
from kafkalog.kernels.processor import LEVEL, ProcessorLevel
from tests.naive.record_filter import KeyedBatch, KeyedRecord

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


def batch_of(base_offset: int, keys: list[bytes | None], *, codec: int = 0) -> KeyedBatch:
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
    data = batch_of(5, [b"a", None, b"b", None, b"a"], codec=codec).encode()
    assert index(offset_map, data)
    assert (offset_map.size, offset_map.latest_offset, offset_map.utilization) == (2, 7, 1.0)
    assert (offset_map.get(b"a"), offset_map.get(b"b"), offset_map.get(b"c")) == (5, 7, -1)
    assert offset_map.records_read == 4
    offset_map.clear()
    assert (offset_map.size, offset_map.latest_offset, offset_map.get(b"a")) == (0, -1, -1)
    assert not index(offset_map, batch_of(9, [b"a", b"a"], codec=codec).encode())
    assert offset_map.get(b"a") == 10
    offset_map.note_latest(20)
    offset_map.note_latest(15)
    assert offset_map.latest_offset == 20


@pytest.mark.parametrize("codec", range(5))
def test_a_wrong_crc_is_not_indexed(codec: int) -> None:
    """No key of a damaged batch supersedes another."""
    sound, damaged = batch_of(0, [b"a"]).encode(), batch_of(1, [b"a"] * 9, codec=codec).encode()
    for position in range(17, len(damaged)):
        bent = bytearray(damaged)
        bent[position] ^= 1
        offset_map = SkimpyOffsetMap(4800, 0.9)
        with pytest.raises(CorruptBatch) as caught:
            index(offset_map, sound + bytes(bent))
        assert (caught.value.file, caught.value.position) == ("a.log", 100 + len(sound))


def test_offsets_that_do_not_rise_in_a_batch_are_refused() -> None:
    """Two records never share an offset."""
    batch = batch_of(0, [b"a", b"b"])
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
