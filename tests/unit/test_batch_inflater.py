"""Goal: compressed batches are worked on many at a time, and nobody sees a difference.
Method: chunks of more than one group; the same batches one at a time as the twin.
"""

from __future__ import annotations

import numpy as np
import pytest

from kafkalog.cleaner.record_batches import GROUP_BYTES, BatchInflater, InflatedGroup, RecordBatches
from kafkalog.cleaner.record_filter import RecordFilter, Retention
from kafkalog.cleaner.skimpy_offset_map import SkimpyOffsetMap
from kafkalog.errors import CorruptBatch
from kafkalog.format.records.batch_scan import BatchColumn
from kafkalog.format.records.compression import decompress
from kafkalog.format.records.record_batch import (
    ATTRIBUTES_AT,
    CRC_AT,
    HEADER_BYTES,
    Codec,
    compute_crc,
)
from tests.naive.record_filter import KeyedBatch, KeyedRecord

CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
KIB = 1 << 10
VALUE_BYTES = [100, 30 * KIB, 300 * KIB, 90 * KIB, 3 << 20, 200, 700 * KIB, 500 * KIB, 60 * KIB]


def batches_of(codecs: list[Codec], value_bytes: list[int]) -> list[bytes]:
    """A batch each, of records with the keys "old", "gone" and one of its own."""
    batches = []
    for place, (codec, size) in enumerate(zip(codecs, value_bytes, strict=True)):
        keys = (b"old", b"gone", b"%d" % place)
        records = tuple(
            KeyedRecord(3 * place + index, 1000, key, b"v" * (size // 3))
            for index, key in enumerate(keys)
        )
        batch = KeyedBatch(
            3 * place, 3 * place + 2, records, codec, base_timestamp=1000, max_timestamp=1000
        )
        batches.append(batch.encode())
    return batches


def of(*parts: bytes, max_decompressed_bytes: int = 1 << 26) -> RecordBatches:
    """As read from a file."""
    return RecordBatches.of(
        b"".join(parts), file="a.log", position=0, max_decompressed_bytes=max_decompressed_bytes
    )


def records_in(group: InflatedGroup, row: int) -> bytes:
    """The inflated records of a row."""
    position, size = group.plain_table[row, [BatchColumn.POSITION, BatchColumn.SIZE]].tolist()
    return group.data[position + HEADER_BYTES : position + size].tobytes()


@pytest.mark.parametrize("codec", CODECS)
def test_groups_hold_every_batch_once_and_no_more_than_allowed(codec: Codec) -> None:
    """All rows in order, the wanted ones inflated, a group bounded."""
    parts = batches_of([codec] * len(VALUE_BYTES), VALUE_BYTES)
    batches, wanted = of(*parts), np.array([0, 1, 2, 4, 5, 6, 7, 8])
    inflater = BatchInflater()
    for _ in range(2):  # its memory is used again
        row, seen = 0, list[int]()
        for group in inflater.groups(batches, wanted):
            assert group.first_row == row < group.end_row
            row = group.end_row
            for each in group.rows.tolist():
                assert group.first_row <= each < group.end_row
                content = parts[each][HEADER_BYTES:]
                assert records_in(group, each) == decompress(codec, content, max_bytes=1 << 26)
            sizes = group.plain_table[group.rows, BatchColumn.SIZE]
            assert sizes[:-1].sum() < GROUP_BYTES + HEADER_BYTES * len(sizes)
            seen += group.rows.tolist()
            untouched = np.setdiff1d(np.arange(row), seen)
            assert (group.plain_table[untouched] == batches.rows.table[untouched]).all()
        assert (row, seen) == (len(parts), wanted.tolist())


def test_nothing_to_inflate_is_one_group() -> None:
    """A chunk without compressed batches costs one call."""
    for parts in (batches_of([Codec.NONE] * 3, [10, 20, 30]), []):
        (group,) = BatchInflater().groups(of(*parts), np.array([], np.int64))
        assert (group.first_row, group.end_row, len(group.rows)) == (0, len(parts), 0)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("has_right_crc", [True, False])
def test_what_lies_before_a_damaged_batch_goes_first(codec: Codec, *, has_right_crc: bool) -> None:
    """The error of a batch comes when its turn has come."""
    parts = batches_of([codec, Codec.NONE, codec, codec], [30, 30, 30, 30])
    bent = bytearray(parts[2])
    bent[HEADER_BYTES:] = bytes(len(bent) - HEADER_BYTES)
    if has_right_crc:
        bent[CRC_AT:ATTRIBUTES_AT] = compute_crc(bent).to_bytes(4, "big")
    parts[2] = bytes(bent)
    groups = BatchInflater().groups(of(*parts), np.array([0, 2, 3]))
    group = next(groups)
    assert (group.first_row, group.end_row, group.rows.tolist()) == (0, 2, [0])
    reason = codec.name.lower() if has_right_crc else "CRC does not match"
    with pytest.raises(CorruptBatch, match=rf"offsets 6 to 8 .*{reason}") as caught:
        next(groups)
    assert caught.value.position == len(parts[0]) + len(parts[1])


def test_a_bomb_among_small_batches_is_refused() -> None:
    """The bound is that of each batch."""
    parts = batches_of([Codec.LZ4] * 3, [100, 40 * KIB, 100])
    size = len(decompress(Codec.LZ4, parts[1][HEADER_BYTES:], max_bytes=1 << 20))
    rows = np.arange(3)
    assert list(BatchInflater().groups(of(*parts, max_decompressed_bytes=size), rows))
    groups = BatchInflater().groups(of(*parts, max_decompressed_bytes=size - 1), rows)
    assert next(groups).end_row == 1
    with pytest.raises(CorruptBatch, match=f"inflates to more than {size - 1} bytes"):
        next(groups)


@pytest.mark.parametrize("has_bits", [True, False])
@pytest.mark.parametrize("is_old", [True, False], ids=["rebuilt", "whole"])
def test_a_chunk_is_cleaned_as_its_batches_are(*, has_bits: bool, is_old: bool) -> None:
    """Goal: groups leave no trace in what is mapped and kept. Method: all codecs and plain batches
    beside one another, as one chunk and as a chunk each; all keys mapped, or none.
    """
    codecs = [
        *CODECS,
        Codec.NONE,
        *CODECS,
        Codec.NONE,
        Codec.NONE,
        *CODECS,
        Codec.LZ4,
        Codec.LZ4,
        Codec.NONE,
    ]
    parts = batches_of(codecs, [*VALUE_BYTES, *VALUE_BYTES])
    kept = []
    for chunks in ([parts], [[each] for each in parts]):
        offset_map = SkimpyOffsetMap(24 * 1000, 0.9)
        offset_map.clear(0, 3 * len(parts) if has_bits else 0)
        for chunk in chunks:
            if is_old:
                assert not offset_map.index(of(*chunk), np.zeros(len(chunk), np.bool_), 0)
        record_filter, data, table = RecordFilter(offset_map), b"", list[list[int]]()
        for chunk in chunks:
            none = np.zeros(len(chunk), np.bool_)
            retention = np.full(len(chunk), int(Retention.RETAIN_EMPTY), np.int64)
            filtered = record_filter.filter(
                of(*chunk), retention, none, none, now_ms=0, delete_retention_ms=0
            )
            filtered.table[:, BatchColumn.POSITION] += len(data)
            data, table = data + bytes(filtered.data), table + filtered.table.tolist()
        kept.append((data, table, offset_map.size, offset_map.latest_offset))
    assert kept[0] == kept[1]
    assert (kept[0][0] == b"".join(parts)) != is_old


def test_the_output_has_no_room_for_what_is_compressed_again() -> None:
    """A cleaner thread does not keep the inflated size of a batch twice."""
    parts = batches_of([Codec.ZSTD, Codec.NONE], [12 << 20, 100])
    offset_map = SkimpyOffsetMap(24 * 1000, 0.9)
    none = np.zeros(2, np.bool_)
    assert not offset_map.index(of(*parts), none, 0)
    retention = np.full(2, int(Retention.DELETE_EMPTY), np.int64)
    filtered = RecordFilter(offset_map).filter(
        of(*parts), retention, none, none, now_ms=0, delete_retention_ms=0
    )
    assert filtered.statistics.superseded == 2
    assert memoryview(filtered.data.obj).nbytes < 64 * KIB
