"""Goal: a fetch chooses exactly the batches that its limits and the CRCs allow.
Method: rising batches, small and large, damaged or cut; a plain loop over the walk is the twin.
"""

from __future__ import annotations

import struct

from crc32c import crc32c
from hypothesis import given, strategies as st

from kafkalog.format.records.batch_builder import RecordColumns, build_batch
from kafkalog.format.records.batch_scan import BatchChoice, ScanStop, choose
from kafkalog.format.records.record_batch import HEADER_BYTES
from kafkalog.kernels.records.batch_scan import INLINE_CRC_MAX
from tests.naive.batch_walk import walk

SIZES = st.sampled_from([0, 40, 300, INLINE_CRC_MAX - 70, INLINE_CRC_MAX, 3000])


def chunk_of(shapes: list[tuple[int, int, int]]) -> bytes:
    """Batches of (gap before, records, bytes a value), offsets rising from 100."""
    batches, offset = [], 100
    for gap, count, size in shapes:
        columns = RecordColumns.of([None] * count, [b"v" * size] * count, 5)
        batches.append(build_batch(columns, base_offset=offset + gap))
        offset += gap + count
    return b"".join(batches)


def plain_choice(
    chunk: bytes, start_offset: int, max_offset: int, max_bytes: int
) -> tuple[int, bool, int | None, int, int]:
    """(batches, ended by a bad CRC, start, end, last offset) with a loop."""
    rows, reason, end = walk(chunk, check_crc=False)
    rows = [(row[0], row[1], row[2], row[2] + row[8]) for row in rows]
    reached = [row for row in rows if row[3] >= start_offset]
    if not reached and reason == "PARTIAL" and len(chunk) - end >= HEADER_BYTES:
        _, length, delta = struct.unpack_from(">qi11xi", chunk, end)
        last_offset = struct.unpack_from(">q", chunk, end)[0] + delta
        if last_offset >= start_offset:
            return 0, False, end, end, -1  # described, not chosen
        return 0, False, None, end + 12 + length, -1  # walked over, though it is not whole
    if not reached:
        return 0, False, None, end, -1
    start = end = reached[0][0]
    count, last_offset = 0, -1
    for position, size, base_offset, batch_last in reached:
        fits = position + size - start <= max_bytes or not count
        if base_offset >= max_offset or not fits:
            break
        batch = chunk[position : position + size]
        if crc32c(batch[21:]) != int.from_bytes(batch[17:21], "big"):
            return count, True, start, end, last_offset
        count, end, last_offset = count + 1, position + size, batch_last
    return count, False, start, end, last_offset


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3), SIZES), max_size=6),
    st.integers(98, 125),
    st.integers(100, 125) | st.just(2**63 - 1),
    st.integers(0, 9000),
    st.data(),
)
def test_choice_is_that_of_a_plain_loop(
    shapes: list[tuple[int, int, int]],
    start_offset: int,
    max_offset: int,
    max_bytes: int,
    data: st.DataObject,
) -> None:
    """M01: offsets, limits, first-batch rule, damage behind the size fields, and any cut."""
    chunk = bytearray(chunk_of(shapes))
    rows, _, _ = walk(bytes(chunk), check_crc=False)
    for row in data.draw(st.lists(st.sampled_from(rows), max_size=2)) if rows else []:
        chunk[row[0] + data.draw(st.integers(57, row[1] - 1))] ^= 0x40
    cut = bytes(chunk[: data.draw(st.integers(0, len(chunk)) | st.just(len(chunk)))])
    mine = choose(cut, start_offset, max_offset=max_offset, max_bytes=max_bytes)
    assert (
        mine.batch_count,
        mine.stop is ScanStop.BAD_CRC,
        mine.start,
        mine.end,
        mine.last_offset,
    ) == plain_choice(cut, start_offset, max_offset, max_bytes)


def test_the_first_batch_is_described_even_when_it_is_not_chosen() -> None:
    """M01: the caller tells a batch above the limit from one that is not whole."""
    chunk = chunk_of([(0, 3, 40)])
    size = len(chunk)
    above = choose(chunk, 101, max_offset=100, max_bytes=1000)
    assert above == BatchChoice(0, ScanStop.END, 0, 0, 100, 102, size, -1, -1, None)
    cut = choose(chunk[:-1], 101, max_offset=200, max_bytes=1000)
    assert cut == above._replace(stop=ScanStop.PARTIAL)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3), SIZES), min_size=1, max_size=6),
    st.data(),
)
def test_no_batch_is_chosen_under_a_rotten_base_offset(
    shapes: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    """M01: with neighbours on both sides and no gaps, whatever the eight bytes became."""
    whole = chunk_of([(0, count, size) for _, count, size in shapes])
    chunk = bytearray(whole)
    rows, _, _ = walk(whole, check_crc=False)
    spans = [(row[0], row[0] + row[1], row[2], row[2] + row[8]) for row in rows]
    end_offset = spans[-1][3] + 1
    position, _, base, last = data.draw(st.sampled_from(spans))
    rotten = data.draw(st.integers(90, 130) | st.integers(-(2**63), 2**63 - 1))
    chunk[position : position + 8] = rotten.to_bytes(8, "big", signed=True)
    for start_offset in range(100, end_offset):
        choice = choose(
            bytes(chunk),
            start_offset,
            max_offset=end_offset,
            end_offset=end_offset,
            max_bytes=1 << 20,
            previous_last_offset=99,
        )
        if rotten != base and base <= start_offset <= last:
            assert (choice.stop, choice.batch_count) == (ScanStop.BAD_OFFSET, 0)
            assert (choice.first_base_offset, choice.first_last_offset) == (base, last)
            continue
        first = next(span for span in spans if span[3] >= start_offset)
        behind = position if rotten != base and first[0] < position else len(chunk)
        assert (choice.start, choice.end) == (first[0], behind)
        assert choice.stop is (ScanStop.END if behind == len(chunk) else ScanStop.BAD_OFFSET)
