"""Goal: a roll and a flush by hand do what their answer says, once it is said.
Method: a whole manager on the simulated disk; a kill, a power cut or a full disk, then a look.
"""

from __future__ import annotations

import errno

import pytest

from kafkalog.broker.operations import Acks
from kafkalog.errors import DiskFull, UnknownPartition, UnknownSegment, UnknownTopic
from kafkalog.log.inspect.invariants import check_invariants
from tests.sim.sim_crash import CrashMode
from tests.sim.sim_faults import MUTATING, Fault
from tests.sim.sim_manager import SimManager, batch_of


def with_records(count: int = 3, acks: Acks = Acks.LEADER) -> SimManager:
    sim = SimManager().start()
    sim.operations.topics.create("t", 1)
    for number in range(count):
        assert sim.produce("t", batch_of(str(number)), acks).error is None
    return sim


def test_a_log_is_described_with_what_the_metrics_found() -> None:
    """Records and their times are told once they were looked at, and nothing is made up."""
    sim = with_records()
    before = sim.operations.describe_log("t", 0)
    assert (before.records, before.oldest_timestamp_ms, before.newest_timestamp_ms) == (None,) * 3
    sim.clock.advance_ms(60_000)
    after = sim.operations.describe_log("t", 0)
    assert after.records == 3
    assert after.oldest_timestamp_ms is not None
    assert after.oldest_timestamp_ms <= (after.newest_timestamp_ms or 0)


@pytest.mark.parametrize("mode", CrashMode)
def test_a_roll_that_was_answered_is_durable(mode: CrashMode) -> None:
    """M14: records that nobody synced are kept with it.

    A power cut right after the answer, in every mode.
    """
    sim = with_records()
    rolled = sim.operations.roll("t", 0)
    assert (rolled.is_rolled, rolled.active_base_offset) == (True, 3)
    sim.threads.kill_all()
    again = SimManager(sim.disk.crash(mode)).start()
    log = again.operations.partition_log("t", 0)
    check_invariants(log)
    assert [segment.base_offset for segment in log.segments] == [0, 3]
    assert log.log_end_offset == 3


@pytest.mark.parametrize("mode", CrashMode)
def test_a_flush_that_was_answered_is_durable(mode: CrashMode) -> None:
    """M14: the recovery point is the end, and everything below it is kept."""
    sim = with_records()
    assert sim.operations.describe_log("t", 0).unflushed_records == 3
    assert sim.operations.flush("t", 0) == 3
    assert sim.operations.describe_log("t", 0).unflushed_records == 0
    sim.threads.kill_all()
    again = SimManager(sim.disk.crash(mode)).start()
    assert again.operations.describe_log("t", 0).log_end_offset == 3


def test_an_empty_segment_stays() -> None:
    """Neither a fresh log nor one that was just rolled gets another empty segment."""
    sim = with_records(count=0)
    assert not sim.operations.roll("t", 0).is_rolled
    assert sim.produce("t", batch_of("x")).error is None
    assert sim.operations.roll("t", 0).is_rolled
    assert not sim.operations.roll("t", 0).is_rolled
    assert sim.operations.describe_log("t", 0).segments == 2


def test_a_roll_on_a_full_disk_changes_nothing() -> None:
    """M07: the refusal is the disk's, appends go on where they were, a later roll works."""
    sim = with_records()
    sim.disk.faults.add(Fault(error=errno.ENOSPC, kinds=MUTATING | {"open"}, nth=1))
    with pytest.raises(DiskFull):
        sim.operations.roll("t", 0)
    assert sim.operations.describe_log("t", 0).segments == 1
    check_invariants(sim.operations.partition_log("t", 0))
    assert sim.operations.roll("t", 0).is_rolled


def test_what_is_not_there() -> None:
    """Each has its own name."""
    sim = with_records()
    assert sim.operations.segment_path("t", 0, 0).endswith("/t-0/00000000000000000000.log")
    with pytest.raises(UnknownSegment):
        sim.operations.segment_path("t", 0, 1)
    with pytest.raises(UnknownPartition):
        sim.operations.roll("t", 1)
    with pytest.raises(UnknownTopic):
        sim.operations.flush("u", 0)
