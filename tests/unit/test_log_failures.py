"""Goal: a failing disk never makes a log give an offset twice or retry a failed flush.
Method: faults of the simulated disk at the writes of an append and at a flush.
"""

from __future__ import annotations

import errno

import pytest

from kafkalog.errors import LogDirOffline
from kafkalog.format.records.control_record import ControlRecordType, build_end_transaction_marker
from kafkalog.log.values import AppendOrigin
from tests.partition_world import NOW_MS, PartitionWorld, batch
from tests.sim.sim_faults import Effect, Fault


def fail(world: PartitionWorld, operation: str, path_part: str) -> None:
    fault = Fault(
        Effect.SHORT_WRITE,
        errno.EIO,
        frozenset({operation}),
        path_contains=path_part,
        times=10**9,
    )
    world.filesystem.faults.add(fault)


def test_kafka_7866_a_failed_transaction_index_uses_up_its_offsets() -> None:
    """M07, KAFKA-7866: the marker is in the log, so no later append may take its offset."""
    world = PartitionWorld()
    world.append(batch([b"a"], producer=(7, 0, 0), is_transactional=True))
    fail(world, "write", ".txnindex")
    marker = build_end_transaction_marker(7, 0, 0, ControlRecordType.ABORT, timestamp_ms=NOW_MS)
    with pytest.raises(OSError, match=r"."):
        world.append(marker, origin=AppendOrigin.COORDINATOR)
    assert world.log.log_end_offset == 2
    with pytest.raises(LogDirOffline):
        world.append(batch([b"b"]))
    world.filesystem.faults.clear()
    world.reopen(clean=False)
    assert world.log.log_end_offset == 2
    assert world.append(batch([b"b"])).first_offset == 2


def test_failed_write_leaves_the_log_as_it_was() -> None:
    """M07: cut back to the last whole batch; the same offset is free again."""
    world = PartitionWorld()
    world.append(batch([b"a"], producer=(7, 0, 0)))
    size = world.log.size_bytes
    fail(world, "write", ".log")
    with pytest.raises(OSError, match=r"."):
        world.append(batch([b"b"], producer=(7, 0, 1)))
    world.filesystem.faults.clear()
    assert (world.log.log_end_offset, world.log.size_bytes) == (1, size)
    info = world.append(batch([b"b"], producer=(7, 0, 1)))
    assert (info.first_offset, info.duplicate) == (1, False)


def test_a_plan_runs_once() -> None:
    """M07: a second run would call lost pages durable."""
    world = PartitionWorld()
    world.append(batch([b"a"]), synced=True)
    plan = world.log.plan_flush()
    assert plan is not None
    with pytest.raises(AssertionError):
        world.log.mark_flushed(plan)
    plan.run()
    with pytest.raises(AssertionError):
        plan.run()
    world.log.mark_flushed(plan)
    assert world.log.high_watermark == 1
