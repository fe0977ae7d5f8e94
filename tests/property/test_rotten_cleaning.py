"""Goal: whatever bytes a batch holds, a cleaning writes sound batches or says CorruptBatch.
Method: random logs with bytes bent behind the CRC, which is then made right again, so that the
kernels see what no checksum keeps from them; what was written is read by the reader of records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog.cleaner.record_batches import RecordBatches
from kafkalog.cleaner.record_filter import RecordFilter
from kafkalog.cleaner.skimpy_offset_map import SkimpyOffsetMap
from kafkalog.errors import CorruptBatch
from kafkalog.format.records.batch_scan import BatchColumn
from kafkalog.format.records.record import read_records
from kafkalog.format.records.record_batch import ATTRIBUTES_AT, CRC_AT, HEADER_BYTES, compute_crc
from tests.keyed_log_world import NOW_MS, logs, orders_for

if TYPE_CHECKING:
    from tests.naive.record_filter import KeyedBatch, Order

FIELDS = st.sampled_from([ATTRIBUTES_AT + 1, 23, 26, 27, 35, 57, 59, 60])
"""Codec, flags, last offset delta, timestamps, record count."""


@st.composite
def bent(draw: st.DrawFn, batch: KeyedBatch) -> bytes:
    """The batch with some bytes changed, most often in its records, and a right CRC."""
    data = bytearray(batch.encode())
    for _ in range(draw(st.integers(0, 3))):
        inside = st.integers(min(HEADER_BYTES, len(data) - 1), len(data) - 1)
        position = draw(st.one_of(inside, inside, FIELDS))
        data[position] = draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
    data[CRC_AT:ATTRIBUTES_AT] = compute_crc(data).to_bytes(4, "big")
    return bytes(data)


def of(data: bytes) -> RecordBatches:
    """As read from a file; the bound is small, as a bent stream may inflate to anything."""
    return RecordBatches.of(data, file="a.log", position=0, max_decompressed_bytes=1 << 16)


@settings(max_examples=200, deadline=None)
@given(log=logs(), data=st.data())
def test_rotten_batches_are_refused_or_cleaned(
    log: list[list[KeyedBatch]], data: st.DataObject
) -> None:
    """M11: no crash, no hang, no batch that a reader refuses and no source has."""
    batches = [batch for chunk in log for batch in chunk]
    orders = [data.draw(orders_for(batch)) for batch in batches]
    parts = [data.draw(bent(batch)) for batch in batches]
    offset_map = SkimpyOffsetMap(24 * data.draw(st.sampled_from([2, 100])), 1.0)
    has_bits = data.draw(st.booleans())
    offset_map.clear(0, 100 if has_bits else 0)
    try:
        run(offset_map, b"".join(parts), orders, set(parts))
    except CorruptBatch as error:
        refused_at = error.position
    else:
        return
    assert refused_at in np.cumsum([0, *map(len, parts)])


def run(offset_map: SkimpyOffsetMap, data: bytes, orders: list[Order], sources: set[bytes]) -> None:
    """Both passes, and a reading of what they leave."""
    batches = of(data)
    discards = np.array([order.discards for order in orders], np.bool_)
    offset_map.index(batches, discards, 0)
    filtered = RecordFilter(offset_map).filter(
        batches,
        np.array([order.retention for order in orders], np.int64),
        discards,
        np.array([order.marks_empty_transaction for order in orders], np.bool_),
        now_ms=NOW_MS,
        delete_retention_ms=1000,
    )
    for row in filtered.table.tolist():
        position, size = row[BatchColumn.POSITION], row[BatchColumn.SIZE]
        batch = bytes(filtered.data[position : position + size])
        assert batch[CRC_AT:ATTRIBUTES_AT] == compute_crc(batch).to_bytes(4, "big")
        if batch in sources:
            continue
        table = read_records(batch)
        assert len(table) == row[BatchColumn.RECORD_COUNT]
        assert (np.diff(table.offsets) > 0).all()
        assert (table.offsets >= row[BatchColumn.BASE_OFFSET]).all()
        assert (table.offsets <= row[BatchColumn.LAST_OFFSET]).all()
