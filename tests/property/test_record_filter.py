"""Goal: the two passes of a cleaning do to batches what Kafka's rules say, batch by batch.
Method: random logs of every kind of batch in random chunks; plain twins of the map and the filter.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog.cleaner.record_batches import RecordBatches
from kafkalog.cleaner.record_filter import RecordFilter, TombstoneRule
from kafkalog.cleaner.skimpy_offset_map import SkimpyOffsetMap
from kafkalog.format.batch_scan import BatchColumn
from tests.naive.record_filter import (
    DELETE,
    DELETE_EMPTY,
    RETAIN_EMPTY,
    KeyedBatch,
    KeyedRecord,
    Order,
    PlainOffsetMap,
    Rules,
    decode,
    filter_batch,
)

NOW_MS = 1_700_000_000_000
RULES = st.builds(
    Rules,
    now_ms=st.just(NOW_MS),
    delete_retention_ms=st.sampled_from([0, 1000]),
    tombstones=st.sampled_from([0, 0, 1, 2]),
)
KEYS = st.none() | st.sampled_from([b"", b"a", b"b", b"c" * 55, b"d" * 56, b"e" * 119, b"f" * 120])
VALUES = st.none() | st.binary(max_size=3) | st.just(b"v" * 200)
HEADERS = st.lists(
    st.tuples(st.binary(max_size=2), st.none() | st.binary(max_size=2)), max_size=2
).map(tuple)
STAMPS = st.just(-1) | st.integers(NOW_MS - 100, NOW_MS + 100) | st.integers(0, 2**62)


@st.composite
def batches_at(draw: st.DrawFn, base_offset: int) -> KeyedBatch:
    """A batch from base_offset on, with gaps, and with LogAppendTime, horizon, producer or not."""
    span = draw(st.integers(1, 6))
    deltas = draw(st.lists(st.integers(0, span - 1), unique=True, max_size=span).map(sorted))
    is_control = draw(st.integers(0, 9)) == 0
    is_log_append_time = draw(st.booleans())
    largest = draw(STAMPS)
    records = tuple(
        KeyedRecord(
            offset=base_offset + delta,
            timestamp=largest if is_log_append_time else draw(STAMPS),
            key=draw(KEYS),
            value=draw(VALUES),
            headers=draw(HEADERS),
        )
        for delta in deltas
    )
    if records and not is_log_append_time:
        largest = max(record.timestamp for record in records)
    return KeyedBatch(
        base_offset=base_offset,
        last_offset=base_offset + span - 1,
        records=records,
        codec=0 if is_control or not records else draw(st.sampled_from([0, 0, 1, 2, 3, 4])),
        is_log_append_time=is_log_append_time,
        is_transactional=is_control or draw(st.booleans()),
        is_control=is_control,
        horizon=draw(st.sampled_from([None, None, NOW_MS - 1, NOW_MS, NOW_MS + 1]))
        if records
        else None,
        base_timestamp=records[0].timestamp if records else -1,
        max_timestamp=largest,
        producer=draw(st.sampled_from([(-1, -1, -1), (7, 2, 2**31 - 2)])),
        leader_epoch=draw(st.integers(0, 3)),
    )


@st.composite
def logs(draw: st.DrawFn) -> list[list[KeyedBatch]]:
    """Chunks of batches."""
    offset = draw(st.integers(0, 3))
    chunks = []
    for _ in range(draw(st.integers(1, 3))):
        chunk = []
        for _ in range(draw(st.integers(0, 4))):
            chunk.append(draw(batches_at(offset)))
            offset = chunk[-1].last_offset + 1 + draw(st.sampled_from([0, 0, 3]))
        chunks.append(chunk)
    return chunks


@st.composite
def orders_for(draw: st.DrawFn, batch: KeyedBatch) -> Order:
    """Aborted data is not mapped in pass 1 and goes in pass 2; a marker may go or stay."""
    discards = draw(st.integers(0, 3)) == 0
    return Order(
        retention=draw(st.sampled_from([DELETE, DELETE_EMPTY, DELETE_EMPTY, RETAIN_EMPTY])),
        discards=discards,
        marks_empty_transaction=batch.is_control and draw(st.booleans()),
    )


def record_batches(chunk: list[KeyedBatch]) -> RecordBatches:
    """As read from a file."""
    data = b"".join(batch.encode() for batch in chunk)
    return RecordBatches.of(data, file="a.log", position=0, max_decompressed_bytes=1 << 20)


@settings(max_examples=150, deadline=None)
@given(log=logs(), rules=RULES, data=st.data())
def test_both_passes_against_the_plain_twin(
    log: list[list[KeyedBatch]], rules: Rules, data: st.DataObject
) -> None:
    """M11: what is mapped, how far, what stays, its bytes, its rows, and every count."""
    capacity = data.draw(st.sampled_from([2, 4, 100]))
    every = [batch for chunk in log for batch in chunk]
    end = every[-1].last_offset + 1 if every else 0
    start = data.draw(st.integers(0, max(end - 1, 0)))
    offset_map = SkimpyOffsetMap(24 * capacity, 1.0)
    has_bits = data.draw(st.booleans())
    offset_map.clear(start, end if has_bits else start)
    twin = PlainOffsetMap(capacity)
    orders = [[data.draw(orders_for(batch)) for batch in chunk] for chunk in log]
    for chunk, ordered in zip(log, orders, strict=True):
        skip = [
            batch.is_control or order.discards for batch, order in zip(chunk, ordered, strict=True)
        ]
        is_full = offset_map.index(record_batches(chunk), np.array(skip, np.bool_), start)
        assert is_full == twin.index(chunk, skip, start)
        if is_full:
            break
    assert (offset_map.size, offset_map.latest_offset) == (len(twin.offsets), twin.latest_offset)
    assert offset_map.records_read == twin.records_read
    for key in (b"", b"a", b"b", b"c" * 55, b"d" * 56, b"e" * 119, b"f" * 120, b"absent"):
        assert offset_map.get(key) == twin.offsets.get(key, -1)
    record_filter = RecordFilter(offset_map)
    for chunk, ordered in zip(log, orders, strict=True):
        check_filter(record_filter, twin, chunk, ordered, rules)


def check_filter(
    record_filter: RecordFilter,
    twin: PlainOffsetMap,
    chunk: list[KeyedBatch],
    orders: list[Order],
    rules: Rules,
) -> None:
    """Pass 2 over one chunk."""
    filtered = record_filter.filter(
        record_batches(chunk),
        np.array([order.retention for order in orders], np.int64),
        np.array([order.discards for order in orders], np.bool_),
        np.array([order.marks_empty_transaction for order in orders], np.bool_),
        now_ms=rules.now_ms,
        delete_retention_ms=rules.delete_retention_ms,
        tombstone_rule=TombstoneRule(rules.tombstones),
    )
    pairs = [
        (batch, kept)
        for batch, order in zip(chunk, orders, strict=True)
        if (kept := filter_batch(batch, order, twin, rules)) is not None
    ]
    written = bytes(filtered.data)
    position = 0
    for (batch, kept), row in zip(pairs, filtered.table.tolist(), strict=True):
        size = row[BatchColumn.SIZE]
        assert row[BatchColumn.POSITION] == position
        one = written[position : position + size]
        if kept is batch or not kept.codec:
            assert one == kept.encode()
        base = kept.base_timestamp if kept.horizon is None else kept.horizon
        assert decode(one) == [replace(kept, base_timestamp=base)]
        scanned = record_batches([kept]).rows.table[0].tolist()
        scanned[BatchColumn.POSITION], scanned[BatchColumn.SIZE] = position, size
        assert row == scanned
        position += size
    assert position == len(written)
    statistics = filtered.statistics
    assert statistics.batches_read == len(chunk)
    assert statistics.bytes_read == sum(len(batch.encode()) for batch in chunk)
    read = [
        len(batch.records)
        for batch, order in zip(chunk, orders, strict=True)
        if order.retention != DELETE
    ]
    assert statistics.records_read == sum(read)
    assert statistics.batches_kept == len(pairs)
    assert statistics.bytes_kept == len(written)
    assert statistics.records_kept == sum(len(kept.records) for _, kept in pairs)
    dropped = (
        statistics.null_keys
        + statistics.superseded
        + statistics.expired_tombstones
        + statistics.aborted
        + statistics.control
    )
    assert dropped + statistics.records_kept == sum(len(batch.records) for batch in chunk)
