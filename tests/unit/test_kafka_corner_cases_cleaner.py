"""Goal: what once broke Kafka's cleaner does not break ours; one test for each report.

Method: the log of the report on a simulated disk, rounds over it, and what is left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkalog.cleaner.plan import CheckpointFault, NotCleanable
from kafkalog.errors import LogCleaningAborted
from kafkalog.format.records.control_record import (
    ControlRecordType,
    encode_control_key,
    encode_marker_value,
)
from kafkalog.format.records.record import Record
from kafkalog.format.records.record_batch import Codec
from kafkalog.log.future_log import fill, read_slice
from kafkalog.log.inspect.invariants import check_invariants
from kafkalog.log.segment import cleaned_segment
from tests.cleaner_world import (
    NOW_MS,
    CleanerWorld,
    OnWriterLike,
    one,
    record,
    segments_of,
    with_config,
)
from tests.naive.cleaning_logs import MadeSegment
from tests.naive.stored_batches import CONTROL, TRANSACTIONAL, Producer, stored_batch

if TYPE_CHECKING:
    from tests.naive.cleaner import PlainBatch

HALF = 2**30
TINY = with_config(internal_segment_bytes=1)  # every segment is a group of its own


def marker(offset: int, kind: ControlRecordType, producer_id: int = 7) -> bytes:
    """The end of a transaction."""
    ended = Record(offset, NOW_MS, encode_control_key(kind), encode_marker_value(0))
    attributes = TRANSACTIONAL | CONTROL
    return stored_batch([ended], attributes=attributes, producer=Producer(producer_id, 0))


def sent(
    offset: int, key: bytes, sequence: int = 0, producer_id: int = 7, *, transactional: bool = True
) -> bytes:
    """One record of a producer."""
    attributes = TRANSACTIONAL if transactional else 0
    producer = Producer(producer_id, 0, sequence)
    return stored_batch([record(offset, key, b"v")], attributes=attributes, producer=producer)


def offsets(world: CleanerWorld) -> list[int]:
    """Of all data records."""
    return [each.offset for each in world.records()]


def batch_at(world: CleanerWorld, base_offset: int) -> PlainBatch:
    """The batch of this base."""
    return next(each for each in world.batches() if each.header.base_offset == base_offset)


def test_kafka_8764_a_hole_at_the_end_of_a_segment_is_covered() -> None:
    """M17 M20 M22. The log is not picked for ever."""
    world = CleanerWorld(segments_of([one(0, b"a"), one(1, b"a")], [one(10, b"b")], bases=[0, 10]))
    result = world.round()
    assert result.end_offset == 11
    assert world.look(result.end_offset).plan.obstacle is NotCleanable.NOTHING_CLEANABLE
    active = MadeSegment(10, NOW_MS, [one(10, b"b")])
    holed = CleanerWorld([MadeSegment(0, NOW_MS, [one(0, b"a"), one(1, b"a")]), active])
    assert holed.round().end_offset == 10
    assert not holed.look(10).is_eligible


def test_kafka_9826_a_first_dirty_offset_in_the_active_segment_is_no_work() -> None:
    """M17 M20 M22. Nothing is picked, nothing loops."""
    active = MadeSegment(2, NOW_MS, [one(2, b"c"), one(3, b"c")])
    world = CleanerWorld([MadeSegment(0, NOW_MS, [one(0, b"a"), one(1, b"b")]), active])
    to_clean = world.look(3)
    assert (to_clean.first_dirty_offset, to_clean.cleanable_bytes) == (3, 0)
    assert not to_clean.is_eligible
    before = world.batches()
    assert world.round(3).end_offset == 3
    assert world.batches() == before


def test_kafka_9133_a_log_start_above_the_active_base_is_no_bad_range() -> None:
    """M17 M20 M22. The plan holds."""
    active = MadeSegment(2, NOW_MS, [one(2, b"c"), one(3, b"c"), one(4, b"c")])
    world = CleanerWorld(
        [MadeSegment(0, NOW_MS, [one(0, b"a"), one(1, b"b")]), active], log_start=4
    )
    for checkpoint in (None, 0, 1, 4):
        to_clean = world.look(checkpoint)
        assert (to_clean.first_dirty_offset, to_clean.cleanable_bytes) == (4, 0)
    assert world.round().end_offset == 4


def test_kafka_8724_a_checkpoint_beyond_the_end_begins_anew() -> None:
    """M17 M20 M22. No crash, all is dirty again."""
    world = CleanerWorld(segments_of([one(0, b"a"), one(1, b"a")]))
    to_clean = world.look(50)
    assert to_clean.checkpoint_fault is CheckpointFault.ABOVE_LOG_END
    assert to_clean.first_dirty_offset == 0
    assert world.round(50).end_offset == 2
    assert offsets(world) == [1]


def test_kafka_6266_a_checkpoint_below_the_log_start_is_told_once() -> None:
    """M17 M20 M22. Whoever writes the answer back is not told again."""
    world = CleanerWorld(segments_of([one(0, b"a"), one(1, b"a"), one(2, b"b")]), log_start=2)
    to_clean = world.look(0)
    assert to_clean.checkpoint_fault is CheckpointFault.BELOW_LOG_START
    assert world.look(to_clean.first_dirty_offset).checkpoint_fault is None


def test_kafka_13194_nothing_above_the_high_watermark_is_cleaned() -> None:
    """M17 M20 M22. The watermark bounds the round."""
    world = CleanerWorld(segments_of([one(0, b"a"), one(1, b"a")], [one(2, b"a"), one(3, b"a")]))
    world.log.high_watermark = 3
    assert world.look().first_uncleanable_offset == 2
    assert world.round().end_offset == 2
    assert offsets(world) == [1, 2, 3]


def test_kafka_17076_the_last_batch_of_the_range_keeps_the_log_end() -> None:
    """M17 M20 M22. No restart takes the log end back."""
    world = CleanerWorld(
        [
            MadeSegment(0, NOW_MS, [one(0, b"a"), sent(1, b"x")]),
            MadeSegment(
                2,
                NOW_MS,
                [marker(2, ControlRecordType.ABORT), stored_batch([record(3, None, b"no key")])],
            ),
            MadeSegment(4, NOW_MS),
        ]
    )
    world.round()
    assert [each.header.record_count for each in world.batches()][-1] == 0
    assert world.batches()[-1].header.last_offset == 3
    assert world.log.log_end_offset == 4
    world.log.local.delete_segments((world.log.segments.active,))  # as if it had been lost
    assert world.reopened().log.log_end_offset == 4


def test_kafka_20452_an_emptied_batch_goes_when_it_ends_no_range() -> None:
    """M17 M20 M22. Needless headers do not pile up."""
    world = CleanerWorld(segments_of([stored_batch([record(0, None, b"no key")])], [one(1, b"a")]))
    world.log.high_watermark = 1
    assert world.round().end_offset == 1
    assert [each.header.record_count for each in world.batches()] == [0, 1]
    world.log.high_watermark = 2
    world.round(1)
    assert [each.header.base_offset for each in world.batches()] == [1]


def test_kafka_8522_a_tombstone_of_a_quiet_topic_goes() -> None:
    """M17 M20 M22. The horizon is the batch's, set by the first round."""
    retention_ms = 1_000
    world = CleanerWorld(segments_of([one(0, b"a"), one(1, b"a", None), one(2, b"b")]))
    world.round(now_ms=NOW_MS)
    assert batch_at(world, 1).horizon == NOW_MS + retention_ms
    world.round(0, NOW_MS + retention_ms - 1)
    assert offsets(world) == [1, 2]
    assert batch_at(world, 1).horizon == NOW_MS + retention_ms
    world.round(0, NOW_MS + retention_ms)
    assert offsets(world) == [2]


def test_kafka_14055_a_key_like_a_markers_removes_no_marker() -> None:
    """M17 M20 M22. Control records are never matched."""
    kinds = (ControlRecordType.COMMIT, ControlRecordType.ABORT)
    keys = [encode_control_key(kind) for kind in kinds]
    world = CleanerWorld(
        segments_of(
            [sent(0, b"a"), marker(1, kinds[0]), sent(2, b"b", 1), marker(3, kinds[1])],
            [one(4, keys[0]), one(5, keys[1])],
        )
    )
    world.round()
    assert [each.header.base_offset for each in world.batches() if each.is_control] == [1, 3]
    assert offsets(world) == [0, 4, 5]


def test_kafka_13727_a_full_map_shows_no_aborted_data() -> None:
    """M17 M20 M22. The abort's entry stays as long as its data."""
    data = [
        one(0, b"a"),
        one(1, b"b"),
        one(2, b"c"),
        sent(3, b"x"),
        sent(4, b"y", 1),
        marker(5, ControlRecordType.ABORT),
    ]
    world = CleanerWorld(segments_of(data), keys_max=2)
    result = world.round()
    assert result.end_offset == 2
    assert [each[0] for each in world.visible()] == [0, 1, 2]
    assert [(each.first, each.last) for each in world.aborted()] == [(3, 5)]
    world.rounds()
    assert [each[0] for each in world.visible()] == [0, 1, 2]


def test_kafka_8351_a_transaction_over_groups_keeps_its_marker() -> None:
    """M17 M20 M22. Data in one group, marker in another."""
    world = CleanerWorld(
        segments_of(
            [sent(0, b"a"), one(1, b"z")],
            [sent(2, b"b", 1), marker(3, ControlRecordType.COMMIT)],
            [sent(4, b"c", 2), one(5, b"z")],
            [marker(6, ControlRecordType.ABORT), one(7, b"y")],
        ),
        TINY,
    )
    world.round()
    assert world.bases() == [0, 2, 4, 6, 8]
    assert [each.header.base_offset for each in world.batches() if each.is_control] == [3, 6]
    assert batch_at(world, 3).horizon is None
    assert [each[0] for each in world.visible()] == [0, 2, 5, 7]


def test_kafka_8335_a_producers_last_batch_stays_if_only_empty() -> None:
    """M17 M20 M22. Sequence and epoch survive (KAFKA-5490, KAFKA-7385)."""
    world = CleanerWorld(
        segments_of(
            [
                sent(0, b"a", 0, transactional=False),
                sent(1, b"a", 1, transactional=False),
                sent(2, b"b", 0, producer_id=8, transactional=False),
            ],
            [one(3, b"a"), one(4, b"b")],
        ),
        TINY,
    )
    before = world.log.producers.last_records()
    world.round()
    first = world.log.segments.first
    headers = [each.header for each in world.batches_of(first)]
    assert [(each.base_offset, each.record_count) for each in headers] == [(1, 0), (2, 0)]
    assert [each.base_sequence for each in headers] == [1, 0]
    assert world.reopened().log.producers.last_records() == before


def test_kafka_6264_offsets_of_a_group_stay_within_an_index() -> None:
    """M17 M20 M22. No group spans more than 2^31 - 1."""
    world = CleanerWorld(
        segments_of(*[[one(number * HALF, b"k%d" % number)] for number in range(5)])
    )
    world.round()
    assert world.bases() == [0, 2 * HALF, 4 * HALF, 4 * HALF + 1]
    check_invariants(world.log)


@pytest.mark.parametrize("first", [2 * HALF, HALF + HALF // 2])
def test_kafka_4451_a_copy_of_offsets_far_apart_rolls(first: int) -> None:
    """M14 M20 M22. What a replica fetches of a compacted log fits its segments."""
    far = [first, first + HALF + HALF // 2]
    source = CleanerWorld(
        segments_of([one(0, b"a")], [one(far[0], b"b"), one(far[1], b"c")], [one(4 * HALF, b"d")])
    )
    copy = CleanerWorld([MadeSegment(0, NOW_MS)])
    while copy.log.log_end_offset < source.log.log_end_offset:
        fill(copy.log, read_slice(source.log, copy.log.log_end_offset, 1 << 20))
    assert offsets(copy) == [0, *far, 4 * HALF]
    assert copy.bases()[:2] == [0, first]
    check_invariants(copy.log)
    copy.log.update_high_watermark(copy.log.log_end_offset)
    assert offsets(copy.reopened()) == [0, *far, 4 * HALF]


def test_kafka_5413_a_segment_whose_offsets_do_not_fit_is_split_first() -> None:
    """M17 M20 M22. The round gives up, the next one goes on."""
    far = [0, 1, 2 * HALF + 1, 2 * HALF + 2]
    world = CleanerWorld([MadeSegment(0, NOW_MS, [one(0, b"a")]), MadeSegment(far[-1] + 1, NOW_MS)])
    segment = world.log.segments.first
    data = b"".join(one(offset, b"k") for offset in far)
    segment.log_file.pin_for_write().pwrite(data, 0)
    segment.size_bytes = len(data)
    with pytest.raises(LogCleaningAborted, match="2\\^31"):
        world.round()
    assert world.bases() == [0, far[2], far[-1] + 1]
    assert offsets(world) == far
    assert world.staged_names() == []
    world.round()
    assert offsets(world) == [far[-1]]
    check_invariants(world.log)


def test_kafka_12889_emptied_segments_join_whatever_their_offsets() -> None:
    """M17 M20 M22. None stays behind every 2^31 offsets."""
    world = CleanerWorld(
        [
            MadeSegment(0, NOW_MS, [one(0, b"a")]),
            MadeSegment(2 * HALF, NOW_MS),
            MadeSegment(4 * HALF, NOW_MS),
            MadeSegment(6 * HALF, NOW_MS, [one(6 * HALF, b"b")]),
            MadeSegment(6 * HALF + 1, NOW_MS),
        ]
    )
    world.round()
    assert world.bases() == [0, 6 * HALF, 6 * HALF + 1]


def test_kafka_20036_output_that_outgrows_a_segment_becomes_several(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """M17 M20 M22. Larger output is no reason to give up."""
    sources = [[one(2 * number, b"k%d" % number, b"x" * 60)] for number in range(4)]
    world = CleanerWorld(segments_of(*sources))
    before = [each.data for each in world.batches()]
    monkeypatch.setattr(cleaned_segment, "MAX_SEGMENT_BYTES", 300)
    world.round()
    assert world.bases() == [0, 4, 7]
    assert [each.data for each in world.batches()] == before
    check_invariants(world.reopened().log)


@pytest.mark.parametrize("calls", range(2, 6))
def test_kafka_12520_a_kill_amid_a_swap_above_the_log_start(calls: int) -> None:
    """M17 M20 M22. The load ends the swap (KAFKA-7401)."""
    sources = [[one(0, b"a"), one(1, b"b")], [one(2, b"a"), one(3, b"c")]]
    world = CleanerWorld(segments_of(*sources), log_start=1)

    def end(number: int) -> None:
        if number > calls:
            raise LogCleaningAborted("killed")

    with pytest.raises(LogCleaningAborted):
        world.round(on_writer=OnWriterLike(end))
    reopened = world.reopened()
    assert offsets(reopened) == [1, 2, 3]
    assert (reopened.log.log_start_offset, reopened.log.log_end_offset) == (1, 4)
    assert reopened.staged_names() == []
    check_invariants(reopened.log)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_kafka_3894_a_segment_with_more_keys_than_the_map_is_cleaned_in_rounds(
    codec: Codec,
) -> None:
    """M17 M20 M22. Every round gets on (KAFKA-3587)."""
    batches = [
        stored_batch(
            [record(start + place, b"k%d" % ((start + place) % 40), b"v") for place in range(5)],
            codec=codec,
        )
        for start in range(0, 80, 5)
    ]
    world = CleanerWorld(segments_of(batches), keys_max=3)
    rounds = world.rounds()
    assert 20 < rounds < 40
    assert offsets(world) == list(range(40, 80))
