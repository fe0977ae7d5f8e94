"""Goal: a load decides as Kafka's does where directories written by brokers showed a difference.
Method: each such directory made small on the simulated disk; the answers were Kafka 4.1.0's.
"""

from __future__ import annotations

import pytest

from kafkalog.format.disk.file_names import segment_file_name
from kafkalog.format.disk.producer_snapshot import decode_snapshot
from kafkalog.format.records.control_record import ControlRecordType, build_end_transaction_marker
from kafkalog.log.inspect.invariants import check_invariants
from kafkalog.log.log_config import LogConfig
from kafkalog.log.recovery.log_loader import load_log
from kafkalog.log.values import AppendOrigin
from tests.partition_world import DIRECTORY, NOW_MS, PartitionWorld, batch

SMALL = LogConfig(internal_segment_bytes=300, index_interval_bytes=0)
DAY_MS = 86_400_000


def path(offset: int, suffix: str) -> str:
    return f"{DIRECTORY}/{segment_file_name(offset, suffix)}"


def filled(config: LogConfig = SMALL, count: int = 10) -> PartitionWorld:
    """Segments of a few batches, each batch of a producer of its own."""
    world = PartitionWorld(config)
    for number in range(count):
        world.append(batch([b"value-%d" % number], producer=(number, 0, 0)))
    world.flush()
    world.log.close()
    return world


def test_expired_producers_are_dropped_at_every_segment() -> None:
    """M25: each recovered segment starts from the snapshot before it, without the expired."""
    world = filled()
    world.clock.advance_ms(2 * DAY_MS)
    world.open(clean=False)
    last = world.bases()[-1]
    ids = sorted(world.log.producers.entries)
    assert ids == []
    snapshot = decode_snapshot(world.filesystem.read_file(path(last, ".snapshot")))
    before_last = world.bases()[-2]
    assert [entry.producer_id for entry in snapshot] == list(range(before_last, last))


def test_a_clean_load_without_snapshots_counts_an_empty_segment() -> None:
    """M25. Snapshots at the last two segments, one of which may be empty, and no other."""
    world = PartitionWorld(SMALL)
    for number in range(10):
        world.append(batch([b"value-%d" % number]))
    world.log.roll()
    world.flush()
    world.log.close()
    for name in world.names():
        if name.endswith(".snapshot"):
            world.filesystem.unlink(f"{DIRECTORY}/{name}")
    world.open(clean=True)
    assert world.bases()[-1] == world.log.log_end_offset
    left = [name for name in world.names() if name.endswith(".snapshot")]
    assert left == [segment_file_name(base, ".snapshot") for base in world.bases()[-2:]]


def test_recovery_leaves_no_transaction_unstable() -> None:
    """M25: transactions that ended before a crash do not hold the last stable offset back."""
    world = PartitionWorld()
    world.append(batch([b"a"], producer=(1, 0, 0), is_transactional=True))
    world.append(batch([b"b"]))
    marker = build_end_transaction_marker(1, 0, 0, ControlRecordType.COMMIT, timestamp_ms=NOW_MS)
    world.append(marker, origin=AppendOrigin.COORDINATOR)
    world.append(batch([b"c"] * 5))
    world.log.close_handles()
    log = load_log(DIRECTORY, world.config, world.environment(), clean=False)
    log.update_high_watermark(2)
    assert log.last_stable_offset == 2


def test_a_dropped_log_has_no_snapshot_at_its_new_start() -> None:
    """M02: Kafka writes none either."""
    world = filled()
    world.open(clean=False, log_start_offset=50)
    world.flush()
    world.log.close()
    assert not [name for name in world.names() if name.endswith(".snapshot")]


@pytest.mark.parametrize("tail", [b"\0", b"\0" * 100, b"\xaa" * 200, b"\xaa"])
def test_a_clean_log_that_does_not_end_with_a_batch_is_recovered(tail: bytes) -> None:
    """M14: Kafka refuses to start, or appends behind the torn bytes; here they are cut."""
    world = filled()
    log = path(world.bases()[-1], ".log")
    size = world.filesystem.stat(log).size
    world.filesystem.open_write(log).pwrite(tail, size)
    world.open(clean=True, recovery_point=10)
    assert world.filesystem.stat(log).size == size
    assert world.append(batch([b"next"])).first_offset == 10
    check_invariants(world.log)
    assert len(world.read_all(0)) == 11


def test_a_clean_log_with_a_zeroed_tail_is_recovered() -> None:
    """M14: no offset is given a second time behind bytes that nobody can read."""
    world = filled()
    log = path(world.bases()[-1], ".log")
    size = world.filesystem.stat(log).size
    last = len(batch([b"value-9"], producer=(9, 0, 0)))
    world.filesystem.open_write(log).pwrite(bytes(last), size - last)
    world.open(clean=True, recovery_point=10)
    assert world.log.log_end_offset == 9
    assert world.append(batch([b"next"])).first_offset == 9
    check_invariants(world.log)


def test_files_that_a_clean_directory_lacks_are_made() -> None:
    """M02: an empty time index and an empty epoch checkpoint, as Kafka makes them."""
    world = filled()
    first = path(0, ".timeindex")
    world.filesystem.unlink(first)
    world.filesystem.unlink(f"{DIRECTORY}/leader-epoch-checkpoint")
    world.open(clean=True, recovery_point=10)
    world.log.close()
    assert world.filesystem.stat(first).size == 0
    assert world.filesystem.stat(f"{DIRECTORY}/leader-epoch-checkpoint").size == 0


def test_what_lies_behind_a_hole_is_kept_when_there_may_be_holes() -> None:
    """M22: compaction may have made them before the topic's configs were lost."""
    world = filled()
    second = world.bases()[1]
    for suffix in (".log", ".index", ".timeindex"):
        world.filesystem.unlink(path(second, suffix))
    log = load_log(DIRECTORY, world.config, world.environment(), clean=False, may_have_gaps=True)
    assert log.log_end_offset == 10
