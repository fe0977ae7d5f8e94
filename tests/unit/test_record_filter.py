"""Goal: pass 2 never puts a right CRC over damage and keeps what it does not change.
Method: small logs made by the plain twin, one byte of a batch bent; both ways of matching keys.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kafkalog.cleaner.record_batches import RecordBatches
from kafkalog.cleaner.record_filter import FilteredChunk, RecordFilter, Retention, TombstoneRule
from kafkalog.cleaner.skimpy_offset_map import SkimpyOffsetMap
from kafkalog.errors import CorruptBatch
from kafkalog.format.records.batch_scan import BatchColumn
from tests.naive.record_filter import KeyedBatch, KeyedRecord, decode

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
    retention: Retention = Retention.DELETE_EMPTY,
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
    assert chunk.statistics.records_kept == chunk.statistics.records_read == 2


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


@pytest.mark.parametrize("retention", [Retention.DELETE, Retention.RETAIN_EMPTY])
def test_damaged_batches_are_not_discarded(retention: Retention) -> None:
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


def test_the_rule_of_segments_leaves_horizons_alone() -> None:
    """KEEP and DROP neither set nor read horizons."""
    batch = replace(batch_of(0, (b"a", None), (b"b", b"1")), horizon=NOW_MS, base_timestamp=NOW_MS)
    offset_map = mapped(batch)
    kept = filtered(offset_map, batch.encode(), rule=TombstoneRule.KEEP)
    assert bytes(kept.data) == batch.encode()
    plain = batch_of(0, (b"a", None), (b"b", b"1"))
    kept = filtered(offset_map, plain.encode(), rule=TombstoneRule.KEEP)
    assert bytes(kept.data) == plain.encode()
    (dropped,) = decode(bytes(filtered(offset_map, plain.encode(), rule=TombstoneRule.DROP).data))
    assert (dropped.records, dropped.horizon) == (plain.records[1:], None)


def test_a_header_may_stay_alone() -> None:
    """RETAIN_EMPTY leaves the 61 bytes."""
    batch = replace(batch_of(0, (b"a", b"1"), codec=3), producer=(7, 1, 5))
    later = batch_of(1, (b"a", b"2"))
    offset_map = mapped(batch, later)
    chunk = filtered(offset_map, batch.encode(), Retention.RETAIN_EMPTY)
    assert len(chunk.data) == 61
    assert decode(bytes(chunk.data)) == [replace(batch, records=(), codec=0, base_timestamp=-1)]
    again = filtered(offset_map, bytes(chunk.data), Retention.RETAIN_EMPTY)
    assert bytes(again.data) == bytes(chunk.data)
    assert not len(filtered(offset_map, bytes(chunk.data)).data)


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
