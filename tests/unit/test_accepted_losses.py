"""Goal: a loss is given up by its name alone, durably, and no clean takes it away before.
Method: a simulated daemon whose disk loses a closed ``.log`` between two lives, or while it serves.
"""

from __future__ import annotations

import errno

import pytest

from kafkalog.errors import CorruptBatch, InvalidRequest, StorageFault
from kafkalog.format.offset_ranges import LostRange, not_accepted
from kafkalog.log.values import Isolation
from tests.cleaning_daemon import CleaningDaemon
from tests.sim.sim_faults import Fault


def damaged(world: CleaningDaemon, *suffixes: str) -> tuple[CleaningDaemon, LostRange]:
    """The next life of a daemon, whose log lost files of its second segment."""
    log = world.log()
    bases = [segment.base_offset for segment in log.segments]
    directory, disk = log.directory, world.sim.stop()
    for suffix in suffixes:
        disk.unlink(f"{directory}/{bases[1]:020d}.{suffix}")
    return CleaningDaemon(disk), LostRange(bases[1], bases[2] - 1)


def first_offset(world: CleaningDaemon, offset: int) -> int:
    """Where a fetch begins."""
    found = world.sim.operations.fetch(
        "t", 0, offset, 1 << 20, Isolation.HIGH_WATERMARK, may_block=True
    )
    return found.base_offset


@pytest.mark.parametrize("suffixes", [("log",), ("log", "index", "timeindex", "snapshot")])
def test_a_log_with_a_loss_is_not_cleaned_before_it_is_accepted(suffixes: tuple[str, ...]) -> None:
    """After a clean and a start the hole would be one of compaction."""
    world = CleaningDaemon()
    world.topic()
    world, lost = damaged(world, *suffixes)
    for _ in range(2):
        world.turn()
        run = world.order()
        world.sim.threads.run_until_idle()
        assert isinstance(run[0].error, CorruptBatch)
        assert (world.cleaners.cleaned, world.checkpoint()) == ([], None)
        assert world.sim.operations.losses("t", 0) == ((lost,), ())
        with pytest.raises(CorruptBatch):
            first_offset(world, lost.first_offset)
        world = CleaningDaemon(world.sim.stop())
    assert world.sim.operations.accept_loss("t", 0, lost) == ((), (lost,))
    world.turn()
    assert world.checkpoint()
    assert not world.log().losses.proof.is_gapless
    for _ in range(2):
        assert first_offset(world, lost.first_offset) == lost.last_offset + 1
        world = CleaningDaemon(world.sim.kill())


def test_only_a_lost_range_can_be_accepted() -> None:
    """Nobody gives up what is there."""
    world = CleaningDaemon()
    world.topic(cleanup_policy="delete")
    accept = world.sim.operations.accept_loss
    with pytest.raises(InvalidRequest, match="nothing of it is lost"):
        accept("t", 0, LostRange(0, 1))
    world, lost = damaged(world, "log")
    accept = world.sim.operations.accept_loss
    first, last = lost
    for wrong in ((0, 0), (first, last + 1), (first + 1, last), (first - 1, last), (last, first)):
        with pytest.raises(InvalidRequest, match=f"lost and not accepted: {first} to {last}"):
            accept("t", 0, LostRange(*wrong))
    assert accept("t", 0, lost) == accept("t", 0, lost) == ((), (lost,))


def test_an_acceptance_that_is_not_durable_is_none() -> None:
    """200 means for ever."""
    world = CleaningDaemon()
    world.topic(cleanup_policy="delete")
    world, lost = damaged(world, "log")
    world.sim.disk.faults.add(
        Fault(path_contains="kafkalog.checkpoint", error=errno.ENOSPC, times=10**9)
    )
    with pytest.raises(StorageFault):
        world.sim.operations.accept_loss("t", 0, lost)
    with pytest.raises(CorruptBatch):
        first_offset(world, lost.first_offset)
    assert world.sim.operations.losses("t", 0) == ((lost,), ())
    world.sim.disk.faults.clear()
    assert world.sim.operations.accept_loss("t", 0, lost) == ((), (lost,))
    world = CleaningDaemon(world.sim.kill())
    assert first_offset(world, lost.first_offset) == lost.last_offset + 1


def test_a_log_that_goes_while_it_is_served_costs_its_offsets_alone() -> None:
    """Goal: no failed directory, no skip; accepted, the segment leaves the log."""
    world = CleaningDaemon()
    log = world.topic(cleanup_policy="delete")
    bases = [segment.base_offset for segment in log.segments]
    lost = LostRange(bases[1], bases[2] - 1)
    world.sim.disk.unlink(f"{log.directory}/{bases[1]:020d}.log")
    assert world.sim.operations.losses("t", 0) == ((lost,), ())
    log.segments.values[1].close_handles()
    for _ in range(2):
        with pytest.raises(CorruptBatch):
            first_offset(world, lost.first_offset)
    assert world.sim.manager.unit_of(log).log_dir.is_online
    sample = next(each for each in world.sim.operations.metrics_snapshot().samples())
    assert sample.lost_offsets == bases[2] - bases[1]
    world.sim.operations.accept_loss("t", 0, lost)
    assert first_offset(world, lost.first_offset) == bases[2]
    assert bases[1] not in [segment.base_offset for segment in log.segments]
    world = CleaningDaemon(world.sim.stop())
    assert first_offset(world, lost.first_offset) == bases[2]


def test_what_is_left_of_holes_without_the_accepted_ranges() -> None:
    for holes, accepted, left in (
        ([(5, 9)], [], [(5, 9)]),
        ([(5, 9), (0, 4), (20, 20)], [], [(0, 9), (20, 20)]),
        ([(5, 9)], [(5, 9)], []),
        ([(5, 9)], [(0, 100)], []),
        ([(5, 9)], [(6, 7)], [(5, 5), (8, 9)]),
        ([(5, 9)], [(8, 30), (0, 5)], [(6, 7)]),
        ([(5, 9), (20, 29)], [(9, 20)], [(5, 8), (21, 29)]),
        ([], [(1, 2)], []),
    ):
        assert list(not_accepted(holes, accepted)) == left, (holes, accepted)
