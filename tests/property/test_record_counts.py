"""Goal: kafkalog_log_records and the oldest timestamp are those of the records that one can read.
Method: random logs with markers, holes and codecs; random log starts, cleans and budgets; every
look beside a plain count over all records.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, strategies as st

from kafkalog.format.integers import FormatError
from kafkalog.format.records.record_batch import HEADER_BYTES, Codec
from kafkalog.log.inspect.directory_facts import summarize_segments
from kafkalog.log.inspect.record_count import RecordCount, oldest_timestamp_ms
from tests.cleaner_world import DIRECTORY, NOW_MS, CleanerWorld, record, segments_of
from tests.naive.cleaning_logs import make_log
from tests.naive.stored_batches import Producer, stored_batch

ALL = 1 << 40


def plain_count(world: CleanerWorld) -> int:
    """Every record at and above the log start, one by one."""
    start = world.log.log_start_offset
    return sum(each.offset >= start for each in world.records())


def plain_oldest(world: CleanerWorld) -> int | None:
    """Timestamp of the first record of the first data batch that reaches the log start.

    The header's, where it has one; records have their distance to that alone otherwise.
    """
    start = world.log.log_start_offset
    for batch in world.batches():
        if not batch.is_control and batch.records and batch.header.last_offset >= start:
            attributes = batch.header.attributes
            stamp = batch.header.max_timestamp if attributes & 8 else batch.header.base_timestamp
            if attributes & 0x48 == 0x40:  # a delete horizon in its place
                stamp = batch.records[0].timestamp
            return stamp
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


def test_a_look_at_a_quiet_log_goes_over_no_segment() -> None:
    """M26: what was walked to its end is walked again when segments or log start change."""
    batches = [[stored_batch([record(each, b"k", b"v")])] for each in range(40)]
    world = CleanerWorld(segments_of(*batches))
    count, rests = RecordCount(), list[None]()
    looked = []
    for start in (0, 0, 0, 20, 20):
        world.log.increment_log_start_offset(start, "test")
        rests.clear()
        count.look(world.log, ALL, lambda: rests.append(None))
        looked.append(len(rests) > 0)
        assert count.records == 40 - start
    assert looked == [True, False, False, True, False]


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


def test_what_was_walked_counts_when_the_walk_fails() -> None:
    """M26: the order of the logs goes by what each walk has left."""
    sound = stored_batch([record(0, b"a", b"v")])
    holes = stored_batch([record(each, b"k%d" % each, b"v") for each in (1, 5, 8)])
    world = CleanerWorld(segments_of([sound, holes]))
    file = world.log.segments.first.log_file.pin_for_write()
    file.pwritev([b"\xff" * (len(holes) - HEADER_BYTES)], len(sound) + HEADER_BYTES)
    world.log.increment_log_start_offset(5, "test")
    count = RecordCount()
    for _ in range(2):
        with pytest.raises(FormatError):
            count.look(world.log, ALL)
        assert count.walked_bytes == len(sound)


def test_a_batch_that_cannot_be_opened_hides_one_moment() -> None:
    """M26: a rotten first batch, whose horizon hides the timestamp; records count from headers."""
    first = stored_batch([record(0, b"a", None)], horizon=NOW_MS + 1)
    world = CleanerWorld(segments_of([first, stored_batch([record(1, b"b", b"v")])]))
    file = world.log.segments.first.log_file.pin_for_write()
    file.pwritev([b"\xff" * (len(first) - HEADER_BYTES)], HEADER_BYTES)
    count = RecordCount()
    count.look(world.log, ALL)
    assert count.records == 2
    assert oldest_timestamp_ms(world.log) == -1
    summary, *_ = summarize_segments(DIRECTORY, world.disk)
    assert (summary.records, summary.oldest_ms) == (2, None)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_cleaned_log_is_as_old_as_its_first_record(codec: Codec) -> None:
    """M26: neither a delete horizon nor an empty batch is a moment of a record."""
    producer = Producer(7, 0, 0)
    gone = record(0, b"a", b"1", NOW_MS - 3)
    kept = record(1, b"b", None, NOW_MS - 2)
    newer = record(2, b"a", b"2", NOW_MS - 1)
    world = CleanerWorld(
        segments_of(
            [
                stored_batch([gone], codec=codec, producer=producer),
                stored_batch([kept], codec=codec),
            ],
            [stored_batch([newer], codec=codec)],
        )
    )
    world.rounds(NOW_MS)
    first, second, *_ = world.batches()
    assert first.records == []
    assert second.header.attributes & 0x40
    assert oldest_timestamp_ms(world.log) == NOW_MS - 2
    summary, *_ = summarize_segments(DIRECTORY, world.disk)
    assert summary.oldest_ms == NOW_MS - 2
