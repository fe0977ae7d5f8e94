"""Goal: a crash at any call of an operation that changes what is durable loses nothing promised.
Method: a daemon over two directories does one operation and is stopped at each of its calls, in
every crash mode and by a kill; the next life is checked, works, and is cut off and checked again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from kafkalog.broker.values import Acks
from tests.crash.after_a_start import anywhere
from tests.crash.test_manager_crashes import TWO_DIRS, Holder, check, new_two_dirs, workload
from tests.sim.crash_enumeration import enumerate_crashes
from tests.simulation.daemon_run import DELETION_MS, DaemonRun

if TYPE_CHECKING:
    from collections.abc import Callable

CHECKPOINTS_MS = 61_000  # every checkpoint task has run


def two_partitions(run: DaemonRun) -> None:
    """Three segments each, all durable, with a producer and a log start inside the first."""
    run.create_topic("orders", 2)
    for partition in (0, 1):
        run.produced("orders", partition, Acks.ALL, client=1, size=150, times=6)
        run.delete_records("orders", partition, 1)
    run.run_until_idle()


def checkpointed(run: DaemonRun) -> None:
    """And the checkpoints know of it."""
    two_partitions(run)
    run.life.clock.advance_ms(CHECKPOINTS_MS)
    run.produced("orders", 0, Acks.LEADER, client=1)


def limited(run: DaemonRun) -> None:
    """And a limit of which the next pass makes use: one partition keeps something, one nothing."""
    checkpointed(run)
    run.set_retention_bytes("orders", 700)
    run.produced("orders", 1, Acks.ALL, size=150, times=4)


def roll(run: DaemonRun) -> None:
    for number in range(6):
        run.produced("orders", 0, (Acks.LEADER, Acks.ALL)[number % 2], client=1, size=150)


def roll_by_hand(run: DaemonRun) -> None:
    """With records that nobody synced yet, an empty active segment, and a flush of the other."""
    run.produce("orders", 0, Acks.LEADER, client=1)
    run.produced("orders", 1, Acks.LEADER, client=1)
    assert run.life.operations.logs.roll("orders", 0).is_rolled
    assert not run.life.operations.logs.roll("orders", 0).is_rolled
    run.life.operations.logs.flush("orders", 1)
    run.produced("orders", 0, Acks.ALL, client=1)


def retention_delete(run: DaemonRun) -> None:
    assert run.retain() > 2
    run.life.clock.advance_ms(DELETION_MS)
    run.produced("orders", 1, Acks.ALL)


def retention_of_everything(run: DaemonRun) -> None:
    run.set_retention_bytes("orders", 0)
    assert run.retain() > 5
    run.produced("orders", 1, Acks.ALL)
    run.life.clock.advance_ms(DELETION_MS)


def delete_records(run: DaemonRun) -> None:
    run.delete_records("orders", 0, 3)
    run.delete_records("orders", 1, 6)
    run.run_until_idle()
    run.produced("orders", 1, Acks.ALL)


def topic_delete(run: DaemonRun) -> None:
    run.delete_topic("orders")
    run.life.clock.advance_ms(DELETION_MS)
    run.run_until_idle()


def checkpoint_write(run: DaemonRun) -> None:
    run.delete_records("orders", 1, 4)
    run.produced("orders", 0, Acks.LEADER, client=1)
    run.life.clock.advance_ms(CHECKPOINTS_MS)


def clean_shutdown(run: DaemonRun) -> None:
    run.stop()


@dataclass(frozen=True)
class Operation:
    """``work`` is stopped at each of its calls, ``prepare`` never."""

    prepare: Callable[[DaemonRun], None]
    work: Callable[[DaemonRun], None]

    def story(self, run: DaemonRun) -> None:
        self.prepare(run)
        self.work(run)

    def calls(self) -> tuple[int, int]:
        """The number of mutating calls before the work begins, and when it has ended."""
        return calls_of(self.prepare), calls_of(self.story)


def calls_of(story: Callable[[DaemonRun], None]) -> int:
    """Mutating calls of a life that does it."""
    disk = new_two_dirs()
    before = len(disk.operations)
    workload(story)(disk, Holder())
    return len(disk.operations) - before


OPERATIONS = {
    "roll": Operation(two_partitions, roll),
    "roll by hand": Operation(two_partitions, roll_by_hand),
    "retention delete": Operation(limited, retention_delete),
    "retention of everything": Operation(limited, retention_of_everything),
    "delete-records": Operation(checkpointed, delete_records),
    "topic delete": Operation(checkpointed, topic_delete),
    "checkpoint write": Operation(checkpointed, checkpoint_write),
    "clean shutdown": Operation(checkpointed, clean_shutdown),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize(("points", "least"), [(12, 72), anywhere(10**6, 200)])
def test_a_crash_in_an_operation(name: str, points: int, least: int) -> None:
    """M14 M25: at about twelve of its calls or at every one."""
    operation = OPERATIONS[name]
    first, end = operation.calls()
    checked = enumerate_crashes(
        Holder,
        workload(operation.story),
        check,
        new_disk=new_two_dirs,
        seeds=1,
        stride=1 + (end - first) // points,
        first=first,
    )
    assert checked > least


def test_the_directories_of_an_operation_differ() -> None:
    """Each has a partition, so one directory's calls lie between the other's."""
    run = DaemonRun(new_two_dirs(), seed=1, dirs=TWO_DIRS)
    run.start()
    limited(run)
    homes = {log.directory.rpartition("/")[0] for log in run.logs()}
    assert homes == {*TWO_DIRS}
    assert all(len(log.segments) >= 3 for log in run.logs())
    run.life.threads.kill_all()
