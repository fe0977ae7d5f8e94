"""Goal: what once broke Kafka's append, roll, load, deletion and cleaner does not break ours.
Method: one test for each report of Kafka's issue tracker; simulated disks and clocks.

Elsewhere: KAFKA-4099, 6388, 15391, 16310 and 19571 test_unified_log; 5413 crash/test_segment_split;
5634 test_retention; 6266 test_log_cleaner_manager; 6492 test_log_segment; 7866 and 15046
test_log_failures; 8522 test_record_filter; 10101 test_log_loader; 19895 test_log_cleaner; 6264,
8724, 9133, 9826 and 13194, the range of a round and its groups, property/test_cleaner.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from crc32c import crc32c

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.cleaner.plan import NotCleanable
from kafkalog.errors import LogCleaningAborted
from kafkalog.format.disk.checkpoints import decode_leader_epochs
from kafkalog.format.records.control_record import (
    ControlRecordType,
    encode_control_key,
    encode_marker_value,
)
from kafkalog.format.records.record import Record
from kafkalog.format.records.record_batch import ATTRIBUTES_AT, CRC_AT, HEADER_BYTES, Codec
from kafkalog.log.future_log import fill, read_slice
from kafkalog.log.inspect.invariants import check_invariants
from kafkalog.log.log_config import LogConfig
from kafkalog.log.retention import execute
from kafkalog.log.segment import segment_swap
from kafkalog.log.values import Isolation
from tests.cleaner_world import CleanerWorld, one, record, segments_of, with_config
from tests.naive.batches import PlainBatch
from tests.naive.cleaning_logs import MadeSegment
from tests.naive.stored_batches import CONTROL, TRANSACTIONAL, Producer, stored_batch
from tests.partition_world import DIRECTORY, NOW_MS, PartitionWorld, batch, checked
from tests.sim.crash_enumeration import enumerate_crashes
from tests.sim.sim_crash import CrashMode
from tests.sim.sim_faults import SimulatedCrash
from tests.sim.sim_filesystem import SimFilesystem
from tests.sim.sim_manager import DIRS, SimManager, batch_of
from tests.swap_world import CASES, LOG_END, SwapWorld

if TYPE_CHECKING:
    from tests.sim.crash_enumeration import CrashPoint


LOG_0 = f"{DIRECTORY}/{0:020d}.log"
SMALL = LogConfig(segment_index_bytes=960)
MARKER = ".kafka_cleanshutdown"


@pytest.mark.parametrize("clean", [False, True])
def test_kafka_8335_an_empty_batch_keeps_its_producer(*, clean: bool) -> None:
    """M08: what compaction left of a producer's last batch still tells its sequence."""
    world = PartitionWorld()
    world.log.close_handles()
    world.filesystem.open_write(LOG_0).pwrite(emptied(batch([b"a"], producer=(7, 0, 4))), 0)
    world.open(clean=False)
    if clean:
        world.reopen(clean=True)
    assert world.log.log_end_offset == 1
    assert world.append(batch([b"a"], producer=(7, 0, 4))).duplicate
    assert world.append(batch([b"b"], producer=(7, 0, 5))).first_offset == 1


def emptied(data: bytes) -> bytes:
    """The header of a batch alone, with a record count of 0."""
    header = bytearray(data[:HEADER_BYTES])
    struct.pack_into(">i", header, 8, HEADER_BYTES - 12)
    struct.pack_into(">i", header, HEADER_BYTES - 4, 0)
    struct.pack_into(">I", header, CRC_AT, crc32c(bytes(header[ATTRIBUTES_AT:])))
    return bytes(header)


def test_kafka_12889_no_empty_segment_at_the_end_of_the_offset_range() -> None:
    """M07: the roll that 2^31 offsets force leaves no segment without records."""
    world = PartitionWorld()
    world.log.close_handles()
    wide = PlainBatch(0, (1000,), (b"v",), last_offset_delta=2**31 - 1)
    world.filesystem.open_write(LOG_0).pwrite(wide.encode(), 0)
    world.open(clean=False)
    world.append(batch([b"a"]))
    world.append(batch([b"b"]))
    assert world.bases() == [0, 2**31]
    assert all(segment.size_bytes for segment in world.log.segments)


def test_kafka_10471_a_crash_in_the_load_is_no_clean_stop() -> None:
    """M14: wherever the start after a clean stop is cut off, the next one counts as unclean."""
    sim = SimManager(topic_defaults=SMALL).start().with_topic("t", 1)
    sim.produce("t", batch_of("a"))
    stopped = sim.stop()
    # Without the note of the boot, which only the first of the starts would write.
    config = BrokerConfig(log_dirs=DIRS, log_retention_clock_guard=False)
    counter = SimManager(stopped.kill(), topic_defaults=SMALL, config=config)
    before = len(counter.disk.operations)
    counter.start()
    calls = len(counter.disk.operations) - before
    assert calls > 4
    for call in range(calls):
        disk = stopped.kill()
        disk.stop_at(len(disk.operations) + call, is_partial=False)
        with pytest.raises(SimulatedCrash):
            SimManager(disk, topic_defaults=SMALL, config=config).start()
        again = SimManager(disk.crash(CrashMode.DROP_ALL), topic_defaults=SMALL).start()
        for path in DIRS:
            assert not again.disk.exists(f"{path}/{MARKER}")
        assert again.operations.partition_log("t", 0).log_end_offset == 1


def test_kafka_10101_the_recovery_point_moves_with_a_flush_alone() -> None:
    """M08: neither appends, nor rolls, nor a recovery move it."""
    world = PartitionWorld()
    world.append(batch([b"a"]))
    world.log.roll()
    world.append(batch([b"b"]))
    assert world.log.recovery_point == 0
    world.reopen(clean=False)
    assert world.log.recovery_point == 0
    world.flush()
    assert world.log.recovery_point == 2


def test_kafka_4893_the_longest_topic_name_can_be_deleted() -> None:
    """M13: 249 characters, an id and a suffix fit no file name; what is renamed is shorter."""
    sim = SimManager().start()
    name = "x" * 249
    sim.operations.topics.create(name, 1)
    assert sim.produce(name, batch_of("a")).error is None
    sim.operations.topics.delete(name)
    left = [entry for path in DIRS for entry in sim.disk.list_dir(path) if entry.startswith("x")]
    assert left
    assert all(len(entry) <= 255 for entry in left)
    again = SimManager(sim.stop()).start()
    assert again.operations.topic_names() == []


def test_kafka_20979_trimmed_indexes_are_durable_before_the_marker() -> None:
    """M14: a power cut right behind a clean stop leaves whole files: Kafka believes them, too."""
    sim = SimManager(topic_defaults=SMALL).start().with_topic("t", 2)
    for number in (0, 1):
        sim.produce("t", batch_of("a"), partition=number)
    sim.manager.shutdown()
    disk = sim.disk.crash(CrashMode.DROP_ALL)
    for path in DIRS:
        assert disk.exists(f"{path}/{MARKER}")
        for name in (entry for entry in disk.list_dir(path) if entry.startswith("t-")):
            size = {
                suffix: disk.stat(f"{path}/{name}/{0:020d}.{suffix}").size
                for suffix in ("log", "index", "timeindex")
            }
            assert 0 < size["log"] < 1000
            assert (size["index"], size["timeindex"]) == (0, 12)


def test_kafka_10207_a_padded_time_index_deletes_nothing() -> None:
    """M09: a crash kept it preallocated, the directory counts as clean: 0 is no timestamp."""
    sim = SimManager(topic_defaults=SMALL).start().with_topic("t", 1, {"retention.ms": "3600000"})
    log = sim.operations.partition_log("t", 0)
    for number in range(3):
        sim.clock.advance_ms(NOW_MS - sim.clock.wall_ms() + number)
        sim.produce("t", batch_of("a"))
        sim.manager.logs.unit_of(log).writer.call(log.roll)
    directory = log.directory
    disk = sim.stop()
    for base in range(3):
        disk.open_write(f"{directory}/{base:020d}.timeindex").truncate(SMALL.segment_index_bytes)
    again = SimManager(disk, topic_defaults=SMALL)
    again.clock.advance_ms(NOW_MS - again.clock.wall_ms() + 60_000)
    again.start()
    assert all(unit.log_dir.was_clean for unit in again.manager.logs.units)
    assert again.manager.retention.run_once() == 0
    loaded = again.operations.partition_log("t", 0)
    assert [each.largest_timestamp_ms() for each in loaded.segments.values[:-1]] == [NOW_MS] * 3
    again.clock.advance_ms(3_600_000)
    assert again.manager.retention.run_once() == 3, "the time rule is in force"


def swap_planted() -> SimFilesystem:
    """The log before a swap of the segments 0, 4 and 8, durable."""
    disk = SimFilesystem()
    disk.make_dir(DIRECTORY)
    SwapWorld(disk).fill()
    disk.sync_all()
    return disk


@pytest.mark.parametrize("start", [4, 6, 9, 11])
def test_kafka_12520_a_log_start_inside_a_swapped_range(start: int) -> None:
    """M08: a crash between any two renames; no load deletes what lies at or above the start."""

    def swap(disk: SimFilesystem, _: None) -> None:
        SwapWorld(disk).swap(CASES["several"])

    def check(disk: SimFilesystem, _: None, point: CrashPoint) -> None:
        world = SwapWorld(disk, log_start_offset=start)
        assert (world.log.log_start_offset, world.log.log_end_offset) == (start, LOG_END), point
        assert world.staged_names() == []
        kept = {5, 6, 9, 10, 12, 15}
        missing = {offset for offset in range(start, 16) if not has_offset(world, offset)}
        assert missing.isdisjoint(kept), point

    modes = (CrashMode.DROP_ALL, CrashMode.KEEP_ALL)
    checked = enumerate_crashes(lambda: None, swap, check, new_disk=swap_planted, modes=modes)
    assert checked > 60


def has_offset(world: SwapWorld, offset: int) -> bool:
    """Whether a read from there begins with it."""
    world.log.update_high_watermark(world.log.log_end_offset)
    return world.log.read(offset, 1, Isolation.HIGH_WATERMARK).base_offset == offset


def test_kafka_7401_the_log_start_above_a_swap_that_a_crash_left() -> None:
    """M08: the swapped segment lies below the log start; the load finishes it and goes on."""
    disk = swap_planted()
    path = f"{DIRECTORY}/{0:020d}"
    for suffix in ("log", "index", "timeindex"):
        disk.open_write(f"{path}.{suffix}.swap").pwrite(disk.read_file(f"{path}.{suffix}"), 0)
    disk.sync_all()
    world = SwapWorld(disk, log_start_offset=13)
    assert (world.log.log_start_offset, world.log.log_end_offset) == (13, LOG_END)
    assert world.staged_names() == []
    assert has_offset(world, 13)


def test_kafka_13403_a_topic_goes_while_its_segments_go() -> None:
    """M13: delete-file tasks that wait meet files that are gone; no directory goes offline."""
    sim = SimManager(topic_defaults=SMALL).start().with_topic("t", 2, {"retention.bytes": "0"})
    directories = []
    for number in (0, 1):
        log = sim.operations.partition_log("t", number)
        directories.append(log.directory)
        for _ in range(3):
            sim.produce("t", batch_of("a"), partition=number)
            sim.manager.logs.unit_of(log).writer.call(log.roll)
    assert sim.manager.retention.run_once() == 6
    deleted = [name for name in sim.disk.list_dir(directories[0]) if name.endswith(".deleted")]
    assert deleted
    sim.operations.topics.delete("t")
    for name in deleted[:2]:  # somebody cleared them away
        [gone] = [
            f"{path}/{entry}"
            for path in DIRS
            for entry in sim.disk.list_dir(path)
            if directories[0].rpartition("/")[2] in entry and entry.endswith("-delete")
        ]
        sim.disk.unlink(f"{gone}/{name}")
    sim.clock.advance_ms(300_000)
    sim.threads.run_until_idle()
    assert sim.task_faults == []
    assert len(sim.manager.logs.online_units) == len(DIRS)
    assert not [name for path in DIRS for name in sim.disk.list_dir(path) if name[:2] == "t-"]


def test_kafka_16541_a_crash_leaves_the_epochs_whole() -> None:
    """M08: whatever call of two flushes with new epochs is the last one, none is torn or empty."""
    path = f"{DIRECTORY}/leader-epoch-checkpoint"
    states = [[], [(0, 0)], [(0, 0), (4, 1)], [(0, 0), (4, 1), (9, 2)]]

    def flushes(disk: SimFilesystem, done: list[int]) -> None:
        world = PartitionWorld(SMALL)
        world.filesystem = disk
        world.open(clean=False)
        world.append(batch([b"a"]))
        world.flush()
        done.append(1)
        plans = []
        for epoch in (4, 9):  # the second is planned while the first waits for the disk
            world.log.append(checked(batch([b"b"])), leader_epoch=epoch, synced=False)
            plans.append(world.log.plan_flush())
        for plan in plans:
            assert plan is not None
            plan.run()
            world.log.mark_flushed(plan)
            done.append(done[-1] + 1)

    def check(disk: SimFilesystem, done: list[int], point: CrashPoint) -> None:
        data = disk.read_file(path) if disk.exists(path) else b""
        entries = decode_leader_epochs(data)
        assert entries in states[max(done, default=0) :], point

    def empty() -> SimFilesystem:
        disk = SimFilesystem()
        disk.make_dir(DIRECTORY)
        disk.sync_all()
        return disk

    assert enumerate_crashes(list[int], flushes, check, new_disk=empty) > 100


def test_kafka_12177_one_pass_takes_what_every_rule_takes() -> None:
    """M09: Kafka's older order, size and time before the log start, needed a second pass."""
    config = LogConfig(internal_segment_bytes=100, retention_bytes=250, retention_ms=10_000)
    world = PartitionWorld(config)
    for number in range(8):
        world.append(batch([b"a" * 20], timestamps=[NOW_MS - (20_000 if number == 3 else 0)]))
    world.log.update_high_watermark(8)
    world.log.delete_records(3)
    planned = execute.plan_of(world.log, NOW_MS)
    rules = [(each.base_offset, each.rule.value) for each in planned.deletions]
    assert [rule for _, rule in rules[:3]] == ["start_offset"] * 3
    assert len(rules) > 3, "and more by size or time"
    base = execute.begin(world.log, planned)
    world.flush()
    execute.raise_start(world.log, NOW_MS, base)
    assert len(execute.finish(world.log)) == len(rules)
    assert execute.plan_of(world.log, NOW_MS).deletions == ()


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


def test_kafka_8764_a_hole_at_the_end_of_a_segment_is_covered() -> None:
    """M17 M20 M22. The log is not picked for ever."""
    world = CleanerWorld(segments_of([one(0, b"a"), one(1, b"a")], [one(10, b"b")], bases=[0, 10]))
    result = world.round()
    assert result.end_offset == 11
    assert world.look(result.end_offset).obstacle is NotCleanable.NOTHING_CLEANABLE
    active = MadeSegment(10, NOW_MS, [one(10, b"b")])
    holed = CleanerWorld([MadeSegment(0, NOW_MS, [one(0, b"a"), one(1, b"a")]), active])
    assert holed.round().end_offset == 10
    assert not holed.look(10).is_eligible


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
    assert [each.horizon for each in world.batches() if each.header.base_offset == 3] == [None]
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
    monkeypatch.setattr(segment_swap, "MAX_SEGMENT_BYTES", 300)
    world.round()
    assert world.bases() == [0, 4, 7]
    assert [each.data for each in world.batches()] == before
    check_invariants(world.reopened().log)


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
