"""Goal: a move that a stop, a kill or a failing disk interrupts goes on, or leaves all as it was.
Method: a whole manager on the simulated disk; each interruption, then the next start.
"""

from __future__ import annotations

import errno

import pytest

from kafkalog.broker.directory.commands import FlushCommand
from kafkalog.broker.values import Acks, MoveState
from kafkalog.cleaner.stats import CleaningRun, CleanRequest
from kafkalog.errors import (
    StorageFault,
)
from kafkalog.format.topic_names import DirectoryState
from tests.cleaning_daemon import keyed_batch
from tests.moving_world import SLOW, T0, A, B, begun, contents, ended, move, place, states, world
from tests.sim.sim_crash import CrashMode
from tests.sim.sim_faults import Fault
from tests.sim.sim_manager import SimManager, batch_of


def test_a_move_goes_on_after_a_stop_and_after_a_kill() -> None:
    """The copy is not begun anew by a restart, and ends as if there had been none."""
    for how in ("stop", "kill"):
        sim = begun()
        (before,) = sim.operations.log_dirs.moves()
        expected = contents(sim)
        disk = sim.stop() if how == "stop" else sim.kill()
        again = SimManager(disk, config=SLOW).start()
        again.threads.run_until_idle()
        (status,) = again.operations.log_dirs.moves()
        assert status.copied_bytes >= before.copied_bytes
        assert ended(again).state is MoveState.DONE
        assert (place(again), contents(again)) == (B, expected)


def test_a_stop_ends_the_load_of_a_copy() -> None:
    """A stop does not wait for the recovery of a copy, and the copy is not given up."""
    sim = begun()
    expected = contents(sim)
    again = SimManager(sim.kill(), config=SLOW).start()
    again.manager.stop_loading()
    again.threads.run_until_idle()
    assert again.manager.table.future_of(T0) is None
    assert states(again) == {A: [DirectoryState.LIVE], B: [DirectoryState.FUTURE]}
    third = SimManager(again.stop()).start()
    assert ended(third).state is MoveState.DONE
    assert (place(third), contents(third)) == (B, expected)


def test_a_copy_that_parted_from_its_log_is_begun_anew() -> None:
    """Records that a power cut took from the current log do not come back by its copy."""
    sim = world(2, SLOW, segment_bytes=100_000)
    for number in range(4):
        sim.produce("t", batch_of(f"lost {number}", "x" * 20), Acks.LEADER)
    sim.operations.log_dirs.move("t", 0, B)
    future = sim.manager.table.future_of
    sim.threads.run_until(lambda: (log := future(T0)) is not None and log.log_end_offset > 6)
    copy = future(T0)
    assert copy is not None
    sim.manager.unit_at(B).writer.run(FlushCommand(copy))
    disk = sim.disk.crash(CrashMode.DROP_ALL, 0)
    sim.threads.kill_all()
    again = SimManager(disk, config=SLOW).start()
    assert again.manager.log_of("t", 0).log_end_offset == 4
    for number in range(4):
        again.produce("t", batch_of(f"new {number}", "x" * 20))
    expected = contents(again)
    assert ended(again).state is MoveState.DONE
    assert (place(again), contents(again)) == (B, expected)


def test_a_copy_of_a_log_that_was_cleaned_is_begun_anew() -> None:
    """Goal: what a clean took away does not come back by an older copy, nor a deleted key with it.
    Method: clean between the start that found the copy and the one that goes on with it; the
    tombstone behind the end of the copy goes, the record of its key is in the copy.
    """
    sim = SimManager(config=SLOW).start()
    compacted = {"cleanup.policy": "compact", "internal.segment.bytes": "400"}
    sim.operations.topics.create("t", 1, {**compacted, "delete.retention.ms": "0"})
    for key in ("gone", "kept 1", "kept 2", "kept 3", *("k1", "k2") * 8):
        sim.produce("t", keyed_batch((key, "x" * 40)))
    sim.produce("t", keyed_batch(("gone", None)))
    for key in ("k1", "k2") * 5:
        sim.produce("t", keyed_batch((key, "x" * 40)))
    sim.operations.log_dirs.move("t", 0, B)
    sim.threads.run_until_idle()
    copy = sim.manager.table.future_of(T0)
    assert copy is not None
    assert 2 <= copy.log_end_offset <= 4, "its last record is one that no clean takes"
    again = SimManager(sim.kill(), config=SLOW).start()
    again.manager.stop_loading()
    clean(again)  # the tombstone has its horizon now
    for key in ("k1", "k2") * 5:
        again.produce("t", keyed_batch((key, "x" * 40)))
    clean(again)
    expected = contents(again)
    assert b"gone" not in expected
    third = SimManager(again.stop()).start()
    assert ended(third).state is MoveState.DONE
    assert (place(third), contents(third)) == (B, expected)


def clean(sim: SimManager) -> None:
    """A clean that somebody asks for."""
    done: list[CleaningRun] = []
    request = CleanRequest(sim.manager.log_of("t", 0), False, done.append)
    sim.manager.cleaning.cleaner.submit(request)
    sim.threads.run_until(lambda: bool(done))
    assert done[0].error is None
    sim.clock.advance_ms(1)


@pytest.mark.slow
def test_a_target_that_fails_leaves_the_partition_where_it_is() -> None:
    """Goal: at every disk call of a move that fails in the target, the current log serves on.
    Method: EIO and ENOSPC at the nth call in the target directory, until none is left.
    """
    for error in (errno.EIO, errno.ENOSPC):
        nth = 0
        is_struck = True
        while is_struck:
            nth += 1
            sim = world(3)
            fault = sim.disk.faults.add(Fault(error=error, path_contains=B, nth=nth))
            try:
                state = move(sim).state
            except StorageFault:  # the copy could not be made
                assert sim.operations.log_dirs.moves() == []
                state = MoveState.FAILED
            is_struck = fault.seen >= nth
            log = sim.manager.log_of("t", 0)
            if state is MoveState.FAILED:
                assert place(sim) == A
                assert not sim.manager.table.futures()
                assert sim.manager.unit_at(A).log_dir.is_online
                assert states(sim)[A] == [DirectoryState.LIVE]
                assert sim.produce("t", batch_of("goes on")).error is None
                assert log.log_end_offset == 7
        assert nth > 20


def test_a_source_that_fails_keeps_the_copy() -> None:
    """A directory that fails takes its partition along; when it is back, the move goes on."""
    for nth in range(1, 8):
        sim = world(3, SLOW)
        sim.operations.log_dirs.move("t", 0, B)
        sim.threads.run_until_idle()
        expected = contents(sim)
        sim.disk.faults.add(Fault(path_contains=A, nth=nth))
        ended(sim)
        again = SimManager(sim.kill()).start()
        if again.operations.log_dirs.moves():
            assert ended(again).state is MoveState.DONE
        assert contents(again) == expected
        assert place(again) == B
