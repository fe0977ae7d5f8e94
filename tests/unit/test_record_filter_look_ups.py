"""Goal: the filter's own bookkeeping, in cases that chance meets too rarely.
Method: chunks made by hand, filtered with a map that was built of later batches.
"""

from __future__ import annotations

import numpy as np

from kafkalog.cleaner.record_batches import RecordBatches
from kafkalog.cleaner.record_filter import FilteredChunk, RecordFilter, Retention
from kafkalog.cleaner.skimpy_offset_map import SkimpyOffsetMap
from kafkalog.format.records.record import Record, iterate_records
from kafkalog.format.records.record_batch import Codec
from tests.naive.cleaner import split_batches
from tests.naive.stored_batches import stored_batch


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
        np.full(count, int(Retention.DELETE_EMPTY), np.int64),
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
