"""Goal: a scan tells whole, sound batches from every kind of end, and indexes at Kafka's cadence.
Method: hand-made bytes at each rule's edge; random damage against the plain walk with struct.
"""

from __future__ import annotations

import struct

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.format.records.batch_scan import BatchColumn, CrcState, ScanStop, scan
from kafkalog.format.records.record_batch import BatchHeader, compute_crc, encode_header
from kafkalog.kernels.crc32c import LANE_BYTES, crc32c_of
from kafkalog.kernels.processor import LEVEL, ProcessorLevel
from kafkalog.kernels.records.batch_scan import INLINE_CRC_MAX
from kafkalog.kernels.records.index_build import EMPTY_STATE, IndexState, index_entries
from tests.naive.batch_walk import walk

COLUMNS_AS_WALKED = (
    BatchColumn.POSITION,
    BatchColumn.SIZE,
    BatchColumn.BASE_OFFSET,
    BatchColumn.LEADER_EPOCH,
    BatchColumn.MAGIC,
    BatchColumn.ATTRIBUTES,
    BatchColumn.BASE_TIMESTAMP,
    BatchColumn.MAX_TIMESTAMP,
    BatchColumn.PRODUCER_ID,
    BatchColumn.PRODUCER_EPOCH,
    BatchColumn.BASE_SEQUENCE,
    BatchColumn.RECORD_COUNT,
)
WALKED_FIELDS = (0, 1, 2, 4, 5, 7, 9, 10, 11, 12, 13, 14)


def make_batch(base_offset: int, payload: int, count: int = 1, timestamp: int = 5) -> bytes:
    """A v2 batch of 61 + payload bytes with a right CRC; its records are noise."""
    header = BatchHeader(
        base_offset, 49 + payload, 3, 2, 0, 16, count - 1, 4, timestamp, 7, 2, 1, count
    )
    batch = bytearray(encode_header(header) + bytes(i * 7 & 255 for i in range(payload)))
    struct.pack_into(">I", batch, 17, compute_crc(batch))
    return bytes(batch)


SMALL = make_batch(10, 40, count=3)
LARGE = make_batch(13, INLINE_CRC_MAX)
TWO = SMALL + LARGE


def with_bytes(batch: bytes, position: int, data: bytes) -> bytes:
    """The batch with other bytes at position."""
    return batch[:position] + data + batch[position + len(data) :]


@pytest.mark.parametrize(
    ("tail", "stop"),
    [
        (b"", ScanStop.END),
        (bytes(17), ScanStop.END),
        (bytes(18), ScanStop.BAD_SIZE),
        (SMALL[:17], ScanStop.END),
        (SMALL[:18], ScanStop.PARTIAL),
        (SMALL[:-1], ScanStop.PARTIAL),
        (with_bytes(SMALL, 8, struct.pack(">i", 13)), ScanStop.BAD_SIZE),
        (with_bytes(SMALL, 8, struct.pack(">i", -1)), ScanStop.BAD_SIZE),
        (with_bytes(SMALL, 8, struct.pack(">i", 14)), ScanStop.SHORT_BATCH),
        (with_bytes(SMALL, 8, struct.pack(">i", 2**31 - 1)), ScanStop.PARTIAL),
        (with_bytes(SMALL, 16, b"\x00"), ScanStop.LEGACY),
        (with_bytes(SMALL, 16, b"\x01"), ScanStop.LEGACY),
        (with_bytes(SMALL, 16, b"\x03"), ScanStop.BAD_MAGIC),
        (with_bytes(SMALL, 60, b"\xee"), ScanStop.BAD_CRC),
        (with_bytes(LARGE, 900, b"\xee"), ScanStop.BAD_CRC),
    ],
)
def test_every_kind_of_end(tail: bytes, stop: ScanStop) -> None:
    """log-format.md 1.5: the rows before it stay, the position is that of the odd batch."""
    rows = scan(TWO + tail)
    assert rows.count == 2
    assert rows.stop is stop
    assert rows.stop_position == rows.consumed_bytes == len(TWO)
    assert set(rows.column(BatchColumn.CRC_STATE).tolist()) == {CrcState.VALID}


def test_a_bad_large_batch_ends_before_a_bad_small_one_behind_it() -> None:
    """The CRCs checked by the shell and by the kernel give one answer: the first bad batch."""
    bad_large, bad_small = with_bytes(LARGE, 900, b"\xee"), with_bytes(SMALL, 60, b"\xee")
    rows = scan(SMALL + bad_large + SMALL + bad_small)
    assert (rows.count, rows.stop, rows.stop_position) == (1, ScanStop.BAD_CRC, len(SMALL))
    unchecked = scan(SMALL + bad_large + bad_small, check_crc=False)
    assert (unchecked.count, unchecked.stop) == (3, ScanStop.END)
    assert not unchecked.column(BatchColumn.CRC_STATE).any()


def test_start_and_other_buffers() -> None:
    """Positions count from the chunk's first byte; bytearray and memoryview serve as well."""
    for chunk in (bytearray(TWO), memoryview(TWO)):
        rows = scan(chunk, len(SMALL))
        assert rows.column(BatchColumn.POSITION).tolist() == [len(SMALL)]
        assert rows.consumed_bytes == len(LARGE)
    assert scan(b"").stop is ScanStop.END


def test_disorder_is_reported() -> None:
    """Base not above the last offset before, or a last offset below its own base."""
    assert scan(TWO).first_disorder() is None
    assert scan(TWO).first_disorder(9) is None
    assert scan(TWO).first_disorder(10) == 0
    assert scan(LARGE + SMALL).first_disorder() == 1
    assert scan(SMALL + make_batch(12, 0)).first_disorder() == 1
    assert scan(make_batch(5, 0, count=0)).first_disorder() == 0
    assert scan(b"").first_disorder() is None


BATCH = st.builds(make_batch, st.integers(0, 2**62), st.integers(0, 200), st.integers(1, 2**31 - 1))


@given(st.lists(BATCH, max_size=5), st.data(), st.booleans())
def test_damaged_chunks_scan_as_the_plain_walk(
    batches: list[bytes], data: st.DataObject, check_crc: bool
) -> None:
    """Any cut and any overwritten bytes: same rows, same end as tests/naive."""
    chunk = bytearray(b"".join(batches))
    for _ in range(data.draw(st.integers(0, 2))):
        if chunk:
            at = data.draw(st.integers(0, len(chunk) - 1))
            chunk[at] = data.draw(st.integers(0, 255))
    cut = bytes(chunk[: data.draw(st.integers(0, len(chunk)))])
    rows = scan(cut, check_crc=check_crc)
    expected, reason, position = walk(cut, check_crc=check_crc)
    assert (rows.stop.name, rows.stop_position) == (reason, position)
    mine = rows.table[:, COLUMNS_AS_WALKED].tolist()
    assert mine == [[row[i] for i in WALKED_FIELDS] for row in expected]
    assert rows.column(BatchColumn.LAST_OFFSET).tolist() == [
        (row[2] + row[8] + 2**63) % 2**64 - 2**63 for row in expected
    ]


@given(st.binary(max_size=70), st.integers(0, 70), st.integers(0, 70))
def test_table_crc_is_crc32c(data: bytes, start: int, end: int) -> None:
    """Every alignment and tail length."""
    start, end = min(start, len(data)), min(end, len(data))
    array = np.frombuffer(data, dtype=np.uint8)
    for level in {ProcessorLevel.GENERIC, LEVEL}:
        assert crc32c_of(array, start, end, level) == crc32c(data[start:end])


@pytest.mark.parametrize("level", sorted({ProcessorLevel.GENERIC, LEVEL}))
def test_crc_of_long_spans(level: int) -> None:
    """Lanes joined by tables give the CRC of the whole."""
    data = np.random.default_rng(3).bytes(10 * LANE_BYTES)
    array = np.frombuffer(data, dtype=np.uint8)
    for lanes in (1, 2, 3, 4, 6, 9):
        for length in range(lanes * LANE_BYTES - 9, lanes * LANE_BYTES + 10):
            for start in (0, 3):
                end = start + length
                assert crc32c_of(array, start, end, level) == crc32c(data[start:end])


def plain_cadence(
    facts: list[tuple[int, int, int, int]], interval: int
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The cadence with a loop: facts are (position, size, last offset, timestamp)."""
    offsets: list[tuple[int, int]] = []
    times: list[tuple[int, int]] = []
    since, greatest, greatest_offset = 0, -1, -1
    for position, size, last_offset, timestamp in facts:
        if timestamp > greatest:
            greatest, greatest_offset = timestamp, last_offset
        if since > interval:
            offsets.append((last_offset, position))
            if greatest > (times[-1][0] if times else -1):
                times.append((greatest, greatest_offset))
            since = 0
        since += size
    return offsets, times


@given(
    st.lists(st.tuples(st.integers(61, 300), st.integers(-1, 20)), max_size=40),
    st.integers(0, 400),
    st.integers(1, 4),
)
def test_index_entries_are_those_of_appending_one_by_one(
    batches: list[tuple[int, int]], interval: int, room: int
) -> None:
    """Chunks and full outputs in between change nothing: the state carries over."""
    facts, position = [], 1000
    for number, (size, timestamp) in enumerate(batches):
        facts.append((position, size, 10 * number, timestamp))
        position += size
    table = np.zeros((len(facts), len(BatchColumn)), dtype=np.int64)
    for row, (at, size, last_offset, timestamp) in enumerate(facts):
        table[row, BatchColumn.POSITION] = at - 1000
        table[row, BatchColumn.SIZE] = size
        table[row, BatchColumn.LAST_OFFSET] = last_offset
        table[row, BatchColumn.MAX_TIMESTAMP] = timestamp
    state = np.array(EMPTY_STATE, dtype=np.int64)
    offset_out, time_out = np.empty((room, 2), np.int64), np.empty((room, 2), np.int64)
    offsets: list[tuple[int, int]] = []
    times: list[tuple[int, int]] = []
    row = 0
    while row < len(facts):
        row = index_entries(table, row, 1000, interval, state, offset_out, time_out)
        offsets += [(a, b) for a, b in offset_out[: state[IndexState.OFFSET_ENTRIES]].tolist()]
        times += [(a, b) for a, b in time_out[: state[IndexState.TIME_ENTRIES]].tolist()]
    assert (offsets, times) == plain_cadence(facts, interval)
