"""Goal: log, indexes and recovery agree with a plain list of batches, whatever the order of steps.
Method: random appends, rolls, truncations and reopenings, every offset read back after each.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
from hypothesis import given, strategies as st

from kafkalog.format.disk.file_names import segment_file_name
from kafkalog.log.log_config import LogConfig
from kafkalog.log.segment import segment_reader
from kafkalog.log.segment.indexes import OffsetIndex
from kafkalog.log.segment.segment_file import SegmentFile
from kafkalog.log.values import OffsetPosition
from tests.log_world import LogWorld, append, joined
from tests.naive.batches import PlainBatch
from tests.naive.index_entries_due import entries_due

SHAPES = st.lists(
    st.tuples(
        st.integers(0, 3),  # gap in front
        st.integers(1, 3),  # records
        st.integers(-1, 50),  # timestamp
        st.integers(0, 300),  # bytes of a value
    ),
    min_size=1,
    max_size=25,
)


def batches_of(shapes: list[tuple[int, int, int, int]], next_offset: int = 0) -> list[PlainBatch]:
    batches = []
    for gap, count, timestamp, size in shapes:
        times = tuple(min(timestamp + step, 60) for step in range(count))
        batch = PlainBatch(next_offset + gap, times, (b"v" * size,) * count)
        batches.append(batch)
        next_offset = batch.last_offset + 1
    return batches


@given(shapes=SHAPES, interval=st.integers(0, 600), set_size=st.integers(1, 4))
def test_indexes_have_exactly_the_entries_due(
    shapes: list[tuple[int, int, int, int]], interval: int, set_size: int
) -> None:
    """M04 M05: appended one by one or in sets, and again after recovery."""
    world = LogWorld(LogConfig(segment_index_bytes=4096, index_interval_bytes=interval))
    segment = world.new_segment()
    batches = batches_of(shapes)
    for start in range(0, len(batches), set_size):
        append(segment, *batches[start : start + set_size])
    offsets, times = entries_due([batch.facts() for batch in batches], interval)
    assert [(e.offset, e.position) for e in segment.offset_index.entries()] == offsets
    assert [(e.timestamp_ms, e.offset) for e in segment.time_index.entries()] == times
    largest = segment.max_timestamp_so_far()
    segment.on_become_inactive()
    closed_times = segment.time_index.entries()
    found = world.reopened(segment)
    found.recover()
    assert [(e.offset, e.position) for e in found.offset_index.entries()] == offsets
    assert found.time_index.entries() == closed_times
    assert found.max_timestamp_so_far() == largest


@given(
    shapes=SHAPES,
    interval=st.integers(0, 600),
    max_bytes=st.integers(0, 2000),
    limit=st.integers(0, 80),
)
def test_reads_are_those_of_a_list(
    shapes: list[tuple[int, int, int, int]], interval: int, max_bytes: int, limit: int
) -> None:
    """M04: every offset, any size, any watermark."""
    world = LogWorld(LogConfig(segment_index_bytes=4096, index_interval_bytes=interval))
    segment = world.new_segment()
    batches = batches_of(shapes)
    append(segment, *batches)
    segment.close()
    closed = world.reopened(segment)
    for offset in range(batches[-1].last_offset + 2):
        expected: list[PlainBatch] = []
        room = max_bytes
        for batch in batches:
            if batch.last_offset < offset:
                continue
            size = len(batch.encode())
            if batch.base_offset >= limit or (expected and size > room):
                break
            expected.append(batch)
            room -= size
        found = segment_reader.read(closed, offset, max_bytes, max_offset=limit)
        assert (b"" if found is None else bytes(found.data)) == joined(expected)
        if expected:
            assert found is not None
            assert found.next_offset == expected[-1].last_offset + 1


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), SHAPES.map(lambda shapes: shapes[:4])),
        st.tuples(st.just("roll"), st.integers(0, 5)),
        st.tuples(st.just("truncate"), st.integers(0, 100)),
        st.tuples(st.just("reopen"), st.booleans()),
    ),
    max_size=12,
)


@given(steps=STEPS, interval=st.integers(0, 600))
def test_log_is_the_list_of_its_batches(steps: list[tuple[str, object]], interval: int) -> None:
    """M03 M04 M06 M14: appends, rolls, truncations (KAFKA-6492); clean and with recovery."""
    world = LogWorld(LogConfig(segment_index_bytes=4096, index_interval_bytes=interval))
    log = world.new_log()
    model: list[PlainBatch] = []
    for name, argument in steps:
        if name == "append":
            assert isinstance(argument, list)
            batches = batches_of(argument, log.log_end_offset)
            append(log, *batches)
            model += batches
        elif name == "roll":
            assert isinstance(argument, int)
            log.roll(log.log_end_offset + argument)
        elif name == "truncate":
            assert isinstance(argument, int)
            log.recovery_point = log.log_end_offset
            log.truncate_to(min(argument, log.log_end_offset))
            assert log.recovery_point == log.log_end_offset
            assert log.active_segment.is_active
            model = [batch for batch in model if batch.last_offset < log.log_end_offset]
        else:
            world.reopen(log, clean=bool(argument))
        offset, found_bytes = 0, b""
        while (found := log.read(offset, 500)) is not None:
            found_bytes += bytes(found.data)
            offset = found.next_offset
        assert found_bytes == joined(model)


@given(
    entries=st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 5000)), max_size=40),
    target=st.integers(0, 50_000),
    cut=st.integers(0, 50_000),
)
def test_offset_index_is_a_sorted_list(
    entries: list[tuple[int, int]], target: int, cut: int
) -> None:
    """M04: look-up and truncation, active, closed and opened again."""
    world = LogWorld()
    cache = world.environment.index_cache
    file = SegmentFile(world.environment, world.directory, segment_file_name(7, ".index"))
    index = OffsetIndex(file, 7, 4096, cache)
    index.create()
    steps = np.cumsum(np.array(entries, dtype=np.int64).reshape(-1, 2), axis=0).tolist()
    model = [OffsetPosition(7 + offset, position) for offset, position in steps]
    for entry in model:
        index.append(entry.offset, entry.position)
    for _ in range(2):
        slot = bisect_right([entry.offset for entry in model], target)
        assert index.lookup(target) == (model[slot - 1] if slot else OffsetPosition(7, 0))
        assert index.entries() == model
        index.truncate_to(cut)
        model = [entry for entry in model if entry.offset < cut]
        index.trim()
        index = OffsetIndex(file, 7, 4096, cache)
        assert index.entries() == model
        index.resize_to_max()
