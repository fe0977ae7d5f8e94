"""Goal: a roll that meets a full disk or no descriptor is undone and works once the cause is gone.
Method: fail every call of a roll in turn, on the simulated disk; then append, read and load again.
"""

from __future__ import annotations

import errno

import pytest

from kafkalog.errors import DiskFull
from kafkalog.log.log_config import LogConfig
from tests.partition_world import PartitionWorld, batch
from tests.sim.sim_faults import MUTATING, Effect, Fault
from tests.sim.sim_manager import SimManager, batch_of

CONFIG = LogConfig(internal_segment_bytes=600, segment_index_bytes=96, index_interval_bytes=100)
CALLS = MUTATING | {"open"}


def new_world(*, is_full_index: bool = False) -> PartitionWorld:
    """One segment that the next append of 200 bytes does not fit into."""
    world = PartitionWorld(LogConfig(segment_index_bytes=0) if is_full_index else CONFIG)
    if not is_full_index:
        for number in range(4):
            world.append(batch([b"%d" % number * 60], producer=(7, 0, number)))
    return world


def roll_by_append(world: PartitionWorld) -> None:
    world.append(batch([b"x" * 200]))


def calls_of_a_roll(*, is_full_index: bool) -> int:
    world = new_world(is_full_index=is_full_index)
    counter = world.filesystem.faults.add(Fault(kinds=CALLS, nth=10**9))
    roll_by_append(world)
    return counter.seen


@pytest.mark.parametrize("is_full_index", [False, True])
@pytest.mark.parametrize("effect", [Effect.RAISE, Effect.SHORT_WRITE])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE])
@pytest.mark.parametrize("times", [1, 3])
def test_a_failed_roll_can_be_tried_again(
    error: int, effect: Effect, times: int, *, is_full_index: bool
) -> None:
    """M07: whatever call fails, the log is whole, takes the next append and loads again.

    Three calls in a row fail too, so that some of the undoing fails; only then may it be broken.
    """
    count = calls_of_a_roll(is_full_index=is_full_index)
    assert count >= 4
    for nth in range(1, count + 1):
        world = new_world(is_full_index=is_full_index)
        end = world.log.log_end_offset
        fault = Fault(effect, error, CALLS, nth=nth, times=times)
        world.filesystem.faults.add(fault)
        with pytest.raises(OSError, match="simulated"):
            roll_by_append(world)
        world.filesystem.faults.clear()
        assert world.log.log_end_offset == end, f"call {nth}"
        if times == 1:
            assert not world.log.is_broken, f"call {nth}"
        if not world.log.is_broken:
            roll_by_append(world)
            assert world.log.log_end_offset == end + 1
        expected = world.read_all(0)
        world.reopen(clean=not world.log.is_broken and bool(nth % 2))
        assert world.read_all(0) == expected, f"call {nth}"
        roll_by_append(world)
        assert [each.offset for each in world.read_all(0)] == list(
            range(world.log.log_end_offset)
        ), f"call {nth}"


@pytest.mark.parametrize("part", [".log", ".index", ".timeindex", ".snapshot"])
def test_appends_resume_by_themselves(part: str) -> None:
    """M15: a full disk in the middle of a roll is 507 for a while, no offline directory."""
    small = LogConfig(internal_segment_bytes=200, segment_index_bytes=96)
    sim = SimManager(topic_defaults=small).start()
    sim.operations.topics.create("t", 1)
    assert sim.produce("t", batch_of("a" * 80)).error is None
    active = sim.operations.partition_log("t", 0).segments.active
    calls = frozenset({"create", "write", "truncate"})
    sim.disk.faults.add(Fault(error=errno.ENOSPC, kinds=calls, path_contains=f"1{part}"))
    assert isinstance(sim.produce("t", batch_of("b" * 80)).error, DiskFull)
    assert isinstance(sim.produce("t", batch_of("b" * 80)).error, DiskFull)
    sim.disk.faults.clear()
    sim.clock.advance_ms(1_000)
    assert sim.operations.readiness().offline_dirs == 0
    command = sim.produce("t", batch_of("c" * 80))
    assert command.error is None
    log = sim.operations.partition_log("t", 0)
    assert log.high_watermark == 2
    assert log.segments.active is not active
