"""Goal: what once broke Kafka's append, roll, load and deletion does not break here.
Method: one test for each case of log-lifecycle 15, named by its issue, on the simulated disk.

Under the same names elsewhere: 5413 crash/test_segment_split, 5634 test_retention, 6388
test_local_log, 7866 test_log_failures, 10101 test_log_loader, 15046 and 15391 in
test_epoch_checkpoint; 19895 of case 28 test_log_cleaner; the other cases of the cleaner (4-14, 16,
18, 19) test_kafka_corner_cases_cleaner.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from crc32c import crc32c

from kafkalog.format.disk.checkpoints import decode_leader_epochs
from kafkalog.format.records.record_batch import ATTRIBUTES_AT, CRC_AT, HEADER_BYTES
from kafkalog.log.log_config import LogConfig
from kafkalog.log.retention import execute
from kafkalog.log.values import Isolation
from tests.naive.batches import PlainBatch
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


def test_kafka_6492_no_roll_after_truncation_to_empty() -> None:
    """M07: the index of an emptied segment is at its full size again."""
    world = PartitionWorld(LogConfig(segment_index_bytes=96, index_interval_bytes=0))
    for _ in range(3):
        world.append(batch([b"a"]))
    world.log.roll()
    world.log.truncate_to(0)
    for _ in range(3):
        world.append(batch([b"b"]))
    assert world.bases() == [0]


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
    sim = SimManager(topic_defaults=SMALL).start()
    sim.operations.topics.create("t", 1)
    sim.produce("t", batch_of("a"))
    stopped = sim.stop()
    counter = SimManager(stopped.kill(), topic_defaults=SMALL)
    before = len(counter.disk.operations)
    counter.start()
    calls = len(counter.disk.operations) - before
    assert calls > 4
    for call in range(calls):
        disk = stopped.kill()
        disk.stop_at(len(disk.operations) + call, is_partial=False)
        with pytest.raises(SimulatedCrash):
            SimManager(disk, topic_defaults=SMALL).start()
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


def test_kafka_19571_delete_file_after_the_directory_went() -> None:
    """M13: a delayed deletion that finds nothing is no error of the disk."""
    world = PartitionWorld()
    world.append(batch([b"a"]))
    world.log.roll()
    world.log.delete_segments(world.log.segments.values[:1], "test")
    plan = world.log.plan_flush()
    world.log.rename_dir("orders-0.c0ffee-delete")
    if plan is not None:
        plan.run()
    world.log.delete()
    world.clock.advance_ms(world.config.file_delete_delay_ms)
    assert not world.filesystem.exists(f"{DIRECTORY}.c0ffee-delete")


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


def test_kafka_16310_the_largest_timestamp_is_a_record_s() -> None:
    """M11: its offset, not the last one of its batch."""
    world = PartitionWorld()
    world.append(batch([b"a", b"b", b"c"], timestamps=[1, 9, 5]))
    found = world.log.offset_for_timestamp(-3, Isolation.HIGH_WATERMARK)
    assert found is not None
    assert (found.timestamp_ms, found.offset) == (9, 1)


def test_kafka_20979_trimmed_indexes_are_durable_before_the_marker() -> None:
    """M14: a power cut right behind a clean stop leaves whole files: Kafka believes them, too."""
    sim = SimManager(topic_defaults=SMALL).start()
    sim.operations.topics.create("t", 2)
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


def test_kafka_4099_old_event_times_do_not_roll() -> None:
    """M07: a segment's age is the distance of its records' times, while they have any."""
    world = PartitionWorld(LogConfig(segment_ms=1000))
    for number in range(5):
        world.append(batch([b"a"], timestamps=[1000 + number]))
        world.clock.advance_ms(5000)
    assert world.bases() == [0]
    world.append(batch([b"late"], timestamps=[2001]))
    assert world.bases() == [0, 5]


def test_kafka_10207_a_padded_time_index_deletes_nothing() -> None:
    """M09: a crash kept it preallocated, the directory counts as clean: 0 is no timestamp."""
    sim = SimManager(topic_defaults=SMALL).start()
    sim.operations.topics.create("t", 1, {"retention.ms": "3600000"})
    log = sim.operations.partition_log("t", 0)
    for number in range(3):
        sim.clock.advance_ms(NOW_MS - sim.clock.wall_ms() + number)
        sim.produce("t", batch_of("a"))
        sim.manager.unit_of(log).writer.call(log.roll)
    directory = log.directory
    disk = sim.stop()
    for base in range(3):
        disk.open_write(f"{directory}/{base:020d}.timeindex").truncate(SMALL.segment_index_bytes)
    again = SimManager(disk, topic_defaults=SMALL)
    again.clock.advance_ms(NOW_MS - again.clock.wall_ms() + 60_000)
    again.start()
    assert all(unit.log_dir.was_clean for unit in again.manager.units)
    assert again.manager.retention.run_once() == 0
    loaded = again.operations.partition_log("t", 0)
    assert [each.largest_timestamp_ms() for each in loaded.segments.non_active] == [NOW_MS] * 3
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
    sim = SimManager(topic_defaults=SMALL).start()
    sim.operations.topics.create("t", 2, {"retention.bytes": "0"})
    directories = []
    for number in (0, 1):
        log = sim.operations.partition_log("t", number)
        directories.append(log.directory)
        for _ in range(3):
            sim.produce("t", batch_of("a"), partition=number)
            sim.manager.unit_of(log).writer.call(log.roll)
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
    assert len(sim.manager.online_units) == len(DIRS)
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
