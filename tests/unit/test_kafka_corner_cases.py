"""Goal: what once broke Kafka's append, roll, load and deletion does not break here.
Method: one test for each case of log-lifecycle 15, named by its issue, on the simulated disk.

Covered elsewhere: KAFKA-10207 test_log_loader (padded time index of a clean log); KAFKA-6388
test_roll_failures (full index); KAFKA-5413 crash/test_segment_split; KAFKA-7866 test_log_failures
(transaction index); KAFKA-15391 test_epoch_checkpoint (flush of a renamed directory), KAFKA-16541
and KAFKA-15046 likewise.
"""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c

from kafkalog.format.record_batch import ATTRIBUTES_AT, CRC_AT, HEADER_BYTES
from kafkalog.log.log_config import LogConfig
from kafkalog.log.values import Isolation
from tests.naive.batches import PlainBatch
from tests.partition_world import DIRECTORY, PartitionWorld, batch
from tests.sim.sim_crash import CrashMode
from tests.sim.sim_faults import SimulatedCrash
from tests.sim.sim_manager import DIRS, SimManager, batch_of

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
