"""Goal: kafkalog_log_records and the oldest timestamp are those of the records that one can read.
Method: random logs with markers, holes and codecs; random log starts, cleans and budgets; every
look beside a plain count over all records.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.log.record_count import RecordCount, oldest_timestamp_ms
from tests.cleaner_world import NOW_MS, CleanerWorld, record, segments_of
from tests.naive.cleaning_logs import make_log
from tests.naive.stored_batches import stored_batch

ALL = 1 << 40


def plain_count(world: CleanerWorld) -> int:
    """Every record at and above the log start, one by one."""
    start = world.log.log_start_offset
    return sum(each.offset >= start for each in world.records())


def plain_oldest(world: CleanerWorld) -> int | None:
    """First timestamp in the header of the first data batch that reaches the log start."""
    start = world.log.log_start_offset
    for batch in world.batches():
        if not batch.is_control and batch.header.last_offset >= start:
            is_stamped = bool(batch.header.attributes & 8)
            stamp = batch.header.max_timestamp if is_stamped else batch.header.base_timestamp
            return stamp if stamp >= 0 else None
    return None


@given(seed=st.integers(0, 2**32), data=st.data())
def test_every_look_counts_what_can_be_read(seed: int, data: st.DataObject) -> None:
    """M26: whatever moved in between; a look without a change reads nothing."""
    world = CleanerWorld(make_log(random.Random(seed)).segments)
    count = RecordCount()
    for _ in range(data.draw(st.integers(1, 4), "looks")):
        log = world.log
        start = data.draw(st.integers(log.log_start_offset, log.high_watermark), "start")
        log.increment_log_start_offset(start, "test")
        if data.draw(st.booleans(), "clean"):
            world.flush()
            world.rounds(NOW_MS + data.draw(st.integers(0, 5_000), "later"))
        size = log.size_bytes
        while (read := count.look(log, data.draw(st.integers(1, 2 * size + 1), "budget"))) > 0:
            assert read <= 2 * size
        assert count.records == plain_count(world)
        assert oldest_timestamp_ms(log) == plain_oldest(world)


def test_a_small_budget_takes_several_looks() -> None:
    """M26: until all is walked nothing is said."""
    batches = [stored_batch([record(each, b"k", b"v" * 900)]) for each in range(3_000)]
    world = CleanerWorld(segments_of(batches[:1_500], batches[1_500:]))
    count = RecordCount()
    assert count.look(world.log, 0) == 0
    known = [count.records]
    while known[-1] is None:
        assert 0 < count.look(world.log, 1 << 20) <= 2 << 20
        known.append(count.records)
    assert len(known) > 2
    assert count.records == 3_000
    assert count.look(world.log, ALL) == 0


def test_what_lies_behind_damage_is_not_known() -> None:
    """M26: no number is better than a wrong one."""
    batches = [stored_batch([record(each, b"k", b"v" * 50)]) for each in range(10)]
    world = CleanerWorld(segments_of(batches[:5], batches[5:]))
    segment = world.log.segments.first
    file = segment.log_file.pin_for_write()
    file.pwritev([b"\xff" * 8], len(batches[0]) + 8)  # the length of the second batch
    count = RecordCount()
    count.look(world.log, ALL)
    assert count.records is None
    world.log.increment_log_start_offset(5, "test")  # the damaged segment is nobody's any more
    count.look(world.log, ALL)
    assert count.records == 5


@pytest.mark.parametrize(("start", "left"), [(0, 3), (1, 2), (2, 2), (5, 2), (6, 1), (9, 0)])
def test_a_batch_with_holes_is_divided_by_its_records(start: int, left: int) -> None:
    """M26: offsets do not tell how many of a compacted batch lie below the log start."""
    holes = stored_batch([record(each, b"k%d" % each, b"v") for each in (0, 5, 8)])
    world = CleanerWorld(segments_of([holes]))
    world.log.increment_log_start_offset(start, "test")
    count = RecordCount()
    count.look(world.log, ALL)
    assert count.records == left
