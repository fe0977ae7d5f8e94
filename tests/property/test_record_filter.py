"""Goal: the two passes of a cleaning do to batches what Kafka's rules say, batch by batch.
Method: random logs of every kind of batch in random chunks; plain twins of the map and the filter.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog.cleaner import record_batches as batch_inflater
from kafkalog.cleaner.record_filter import RecordFilter, TombstoneRule
from kafkalog.cleaner.skimpy_offset_map import SkimpyOffsetMap
from kafkalog.format.integers import INT64_MAX
from kafkalog.format.records.batch_scan import BatchColumn
from tests.keyed_log_world import NOW_MS, logs, orders_for, record_batches
from tests.naive.record_filter import (
    DELETE,
    KeyedBatch,
    Order,
    PlainOffsetMap,
    Rules,
    decode,
    filter_batch,
    reason_to_go,
)

RULES = st.builds(
    Rules,
    now_ms=st.just(NOW_MS),
    delete_retention_ms=st.sampled_from([0, 1000]),
    tombstones=st.sampled_from([0, 0, 1, 2]),
)


GROUP_BYTES = st.sampled_from([1, 300, batch_inflater.GROUP_BYTES])
"""A compressed batch a group, several, all of a chunk."""


@settings(max_examples=150, deadline=None)
@given(log=logs(), rules=RULES, group_bytes=GROUP_BYTES, data=st.data())
def test_both_passes_against_the_plain_twin(
    log: list[list[KeyedBatch]], rules: Rules, group_bytes: int, data: st.DataObject
) -> None:
    """M11: what is mapped, how far, what stays, its bytes, its rows, and every count."""
    with mock.patch.object(batch_inflater, "GROUP_BYTES", group_bytes):
        check_both_passes(log, rules, data)


def check_both_passes(log: list[list[KeyedBatch]], rules: Rules, data: st.DataObject) -> None:
    """The map after pass 1, and then each chunk of pass 2."""
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
    horizons = [kept.horizon for _, kept in pairs if kept.horizon is not None]
    assert statistics.waiting_batches == len(horizons)
    assert statistics.next_horizon_ms == min(horizons, default=INT64_MAX)
    reasons = Counter(
        reason_to_go(batch, record, order, twin, rules)
        for batch, order in zip(chunk, orders, strict=True)
        for record in batch.records
    )
    for name in ("null_keys", "superseded", "expired_tombstones", "aborted", "control"):
        assert getattr(statistics, name) == reasons[name]
