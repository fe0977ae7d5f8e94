"""Goal: what is remembered as checked is what a read of the segment would answer.
Method: any appends, reads and truncations of a segment; after each, every look-up is compared with
a read, and with the whole batches that the file holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings, strategies as st

from kafkalog.errors import CorruptBatch
from kafkalog.format.integers import INT64_MAX
from kafkalog.format.records.batch_scan import scan
from kafkalog.log.log_config import LogConfig
from kafkalog.log.segment import segment_reader
from kafkalog.log.values import FetchSpan
from tests.log_world import LogWorld, append
from tests.naive.batches import PlainBatch

if TYPE_CHECKING:
    from kafkalog.log.segment.log_segment import LogSegment

# A record's bytes: some batches are too small to be remembered.
SIZES = st.sampled_from((100, 3000, 5000, 9000, 20_000))
STEPS = st.one_of(
    st.tuples(st.just("append"), st.lists(SIZES, min_size=1, max_size=4), st.integers(0, 2)),
    st.tuples(st.just("read"), st.integers(0, 60), st.integers(0, 60_000)),
    st.tuples(st.just("cold read"), st.integers(0, 60), st.integers(0, 60_000)),
    st.tuples(st.just("truncate"), st.integers(0, 60), st.just(0)),
)


def check(world: LogWorld, segment: LogSegment, max_bytes: int, max_offset: int) -> int:
    """Every look-up tells the truth; how many there were an answer to."""
    checked, file = world.environment.checked_batches, segment.log_file.acquire()
    log, found_count = world.content("00000000000000000000.log")[: segment.size_bytes], 0
    for offset in range(60):
        found = checked.find(file, offset, max_bytes, max_offset, segment.size_bytes)
        if found is None:
            continue
        found_count += 1
        position, size, base_offset, next_offset = found
        rows = scan(log[position : position + size])
        assert rows.consumed_bytes == size
        assert position + size <= segment.size_bytes
        assert rows.table[0, 2] == base_offset <= offset
        assert rows.table[-1, 3] + 1 == next_offset
        assert rows.table[-1, 2] < max_offset
        assert size <= max_bytes or rows.count == 1
        read = segment_reader.read(segment, offset, max_bytes, max_offset=max_offset)
        assert read is not None
        assert read.position == position
        # A read looks at a bounded number of bytes: it may end before the last batch that fits.
        assert len(read.data) <= size
        following = scan(log[position + size :][:100_000])
        if following.count and following.table[0, 2] < max_offset:
            assert size + following.table[0, 1] > max_bytes
    return found_count


@settings(deadline=None)
@given(st.lists(STEPS, max_size=12), st.integers(0, 70_000), st.integers(1, 60))
def test_what_is_remembered_is_what_a_read_answers(
    steps: list[tuple[str, object, int]], max_bytes: int, max_offset: int
) -> None:
    world = LogWorld(LogConfig(segment_index_bytes=65_536))
    segment = world.new_segment()
    checked, next_offset = world.environment.checked_batches, 0
    for kind, what, number in steps:
        if kind == "append":
            assert isinstance(what, list)
            batches = []
            for size in what:
                next_offset += number  # a gap, as compaction leaves them
                batches.append(PlainBatch(next_offset, (1000,) * 2, (b"v" * size, b"w")))
                next_offset += 2
            append(segment, *batches)
        elif kind == "truncate":
            assert isinstance(what, int)
            segment.truncate_to(what)
            next_offset = min(next_offset, what)
        else:
            assert isinstance(what, int)
            is_cold = kind == "cold read"
            segment_reader.read(
                segment, what, number, may_block=is_cold, checked=checked, remembers=True
            )
        check(world, segment, max_bytes, max_offset)


def test_what_was_appended_or_read_is_remembered() -> None:
    """And forgotten with the handle, with a read of the disk, and where another part is read."""
    world = LogWorld(LogConfig(segment_index_bytes=65_536))
    segment = world.new_segment()
    for offset in range(4):
        append(segment, PlainBatch(offset, (1000,), (b"v" * 5000,)))
    assert check(world, segment, 60_000, INT64_MAX) == 4
    segment.mark_flushed(segment.version)
    segment.seal()
    closed, checked = world.reopened(segment), world.environment.checked_batches
    closed.log_file.release()
    del segment
    assert check(world, closed, 60_000, INT64_MAX) == 0
    segment_reader.read(closed, 2, 60_000, may_block=True, checked=checked, remembers=True)
    assert check(world, closed, 60_000, INT64_MAX) == 2
    segment_reader.read(closed, 0, 11_000, may_block=False, checked=checked, remembers=True)
    assert check(world, closed, 6000, INT64_MAX) == 4  # two reads are one run
    segment_reader.read(closed, 3, 60_000, may_block=True, checked=checked, remembers=True)
    assert check(world, closed, 60_000, INT64_MAX) == 1  # of the one alone, read from the disk


@pytest.mark.parametrize("place", [7, 10, 40, 5_200, "end", "none"])
def test_what_is_read_again_is_as_it_was_checked(place: int | str) -> None:
    """Also its offsets and leader epochs that no CRC covers, and its length."""
    world = LogWorld()
    segment = world.new_segment()
    append(segment, *(PlainBatch(offset, (1000,), (b"v" * 5000,)) for offset in range(4)))
    file = segment.log_file.acquire()
    size = segment.size_bytes
    span = FetchSpan(file, 0, 0, size, 0, 4, high_watermark=4, log_start_offset=0)
    assert len(segment_reader.read_again(span)) == size
    if place == "end":
        file.truncate(size - 1)
    elif isinstance(place, int):
        (byte,) = file.pread(1, place)
        file.pwrite(bytes([byte ^ 1]), place)
    if place == "none":
        segment_reader.read_again(span)
        return
    with pytest.raises(CorruptBatch):
        segment_reader.read_again(span)
