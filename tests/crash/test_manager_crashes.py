"""Goal: a daemon that dies at any call comes back with all it promised; one disk dies alone.
Method: stop create, produce, delete-records, delete and shut down at every disk call, in all modes;
let each kind of call fail in one of two log directories.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from kafkalog.broker.directory.log_dir import CLEAN_SHUTDOWN_MARKER
from kafkalog.broker.values import Acks
from kafkalog.errors import LogDirOffline
from tests.crash.after_a_start import anywhere
from tests.sim.crash_enumeration import CrashPoint, enumerate_crashes
from tests.sim.sim_crash import CrashMode
from tests.sim.sim_faults import Effect, Fault
from tests.simulation.daemon_run import DELETION_MS, DIRS, DaemonRun, new_disk

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sim.sim_filesystem import SimFilesystem

    Story = Callable[[DaemonRun], None]

TWO_DIRS = DIRS[:2]


def topics(run: DaemonRun) -> None:
    run.create_topic("orders", 3)
    run.produce("orders", 0, Acks.ALL, client=1)
    run.produced("orders", 1, Acks.LEADER)
    run.create_topic("users", 1)
    run.produced("users", 0, Acks.ALL)
    run.delete_topic("orders")
    run.life.clock.advance_ms(DELETION_MS)
    run.create_topic("orders", 1)
    run.produced("orders", 0, Acks.ALL, client=1)
    run.delete_topic("users")


def records(run: DaemonRun) -> None:
    run.create_topic("orders", 2)
    for number in range(12):
        run.produce("orders", 0, (Acks.ALL, Acks.LEADER, Acks.NONE)[number % 3], client=number % 2)
        run.produce("orders", 1, Acks.LEADER)
        if number % 2:
            run.run_until_idle()
    run.fetch_all("orders", 0)
    run.delete_records("orders", 0, 3)
    run.produce("orders", 0, Acks.ALL)
    run.delete_records("orders", 1, 12)
    run.run_until_idle()
    run.life.clock.advance_ms(60_000)
    run.produced("orders", 1, Acks.ALL, count=3)
    run.life.clock.advance_ms(60_000)
    run.produced("orders", 1, Acks.LEADER)


def shutdowns(run: DaemonRun) -> None:
    run.create_topic("orders", 2)
    run.produce("orders", 0, Acks.LEADER, client=1)
    run.produced("orders", 1, Acks.LEADER, count=4)
    run.stop()
    run.start()
    for _ in range(6):
        run.produce("orders", 0, Acks.LEADER, client=1, size=150)
    run.run_until_idle()
    run.stop()
    run.start()
    run.delete_records("orders", 1, 2)
    run.run_until_idle()
    run.stop()


def changes(run: DaemonRun) -> None:
    run.create_topic("orders", 1)
    run.produced("orders", 0, Acks.ALL, client=1)
    run.grow_topic("orders", 3)
    run.produce("orders", 2, Acks.ALL, client=1)
    run.alter_topic("orders", 2)
    run.produced("orders", 1, Acks.LEADER)
    run.stop()
    run.start()
    run.grow_topic("orders", 5)
    run.alter_topic("orders", 4)
    run.delete_topic("orders")


STORIES: list[Story] = [topics, records, shutdowns, changes]


@dataclass
class Holder:
    run: DaemonRun | None = None


def workload(story: Story) -> Callable[[SimFilesystem, Holder], None]:
    def work(disk: SimFilesystem, holder: Holder) -> None:
        run = holder.run = DaemonRun(disk, seed=1, dirs=TWO_DIRS)
        try:
            run.start()
            story(run)
        finally:
            if run.daemon is not None:
                run.daemon.threads.kill_all()
            disk.on_call = None

    return work


def check(disk: SimFilesystem, holder: Holder, point: CrashPoint) -> None:
    """Every promise, and those of the life behind the crash after one more power cut."""
    assert holder.run is not None
    run = holder.run.copy_on(disk)
    run.start()
    run.check_restart(is_kill=point.mode is None)
    for name, topic in run.topics.items():
        if topic.exists:
            run.produce(name, topic.partition_count - 1, Acks.ALL, client=7)
    run.run_until_idle()
    run.crash(CrashMode.DROP_ALL)
    run.start()
    run.check_restart(is_kill=False)
    run.life.threads.kill_all()


def new_two_dirs() -> SimFilesystem:
    return new_disk(TWO_DIRS)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
@pytest.mark.parametrize(("stride", "least"), [(41, 40), anywhere(3, 700)])
def test_the_daemon_comes_back_with_all_it_promised(story: Story, stride: int, least: int) -> None:
    """M01 M14 M25: topics whole or absent, registries equal, answers kept, log starts durable."""
    checked = enumerate_crashes(
        Holder, workload(story), check, new_disk=new_two_dirs, seeds=1, stride=stride
    )
    assert checked > least


def two_disks() -> DaemonRun:
    """Two directories with one partition of one topic each, both flushed."""
    run = DaemonRun(new_two_dirs(), seed=3, dirs=TWO_DIRS, racy=False)
    run.start()
    run.create_topic("orders", 2)
    for partition in (0, 1):
        run.produced("orders", partition, Acks.ALL)
    return run


def directory_of(run: DaemonRun, partition: int) -> str:
    return run.life.operations.partition_log("orders", partition).directory.rpartition("/")[0]


def exercise(run: DaemonRun, partition: int) -> None:
    """Everything that clients do with one partition; StorageFault is an answer, too."""
    run.produced("orders", partition, Acks.ALL)
    run.fetch_all("orders", partition)
    run.delete_records("orders", partition, 1)
    run.run_until_idle()
    run.life.clock.advance_ms(120_000)


@pytest.mark.parametrize(
    "kinds", [{"write"}, {"datasync"}, {"read"}, {"create", "rename"}, {"sync_dir"}, {"open"}]
)
@pytest.mark.parametrize("victim", [0, 1])
def test_one_dying_disk_takes_only_its_own_partitions(kinds: set[str], victim: int) -> None:
    """M15: I24; the other directory answers all, and everything is back after a repair."""
    run = two_disks()
    paths = [directory_of(run, 0), directory_of(run, 1)]
    assert paths[0] != paths[1]
    fault = run.disk.faults.add(
        Fault(kinds=frozenset(kinds), path_contains=paths[victim], times=10**9)
    )
    exercise(run, victim)
    assert fault.seen
    online = [unit.log_dir.path for unit in run.life.manager.logs.online_units]
    assert online == [paths[1 - victim]]
    with pytest.raises(LogDirOffline):
        run.life.operations.partition_log("orders", victim)
    assert not run.life.all_dirs_died
    other = run.topics["orders"].partition(1 - victim)
    before = other.durable_end
    exercise(run, 1 - victim)
    run.check_life()
    assert (other.durable_end, other.start) == (before + 1, 1)
    run.stop()
    assert not run.disk.exists(f"{paths[victim]}/{CLEAN_SHUTDOWN_MARKER}")
    assert run.disk.exists(f"{paths[1 - victim]}/{CLEAN_SHUTDOWN_MARKER}")
    run.disk.kill()
    run.start()
    run.check_restart(is_kill=True)


@pytest.mark.parametrize("kinds", [{"list"}, {"open"}, {"sync_dir"}, {"read"}, {"write", "create"}])
def test_a_disk_that_fails_at_the_start_is_left_out(kinds: set[str]) -> None:
    """M15: the other one is served; its topics and the missing partitions come back later."""
    run = two_disks()
    paths = [directory_of(run, 0), directory_of(run, 1)]
    run.kill()
    run.disk.faults.add(Fault(kinds=frozenset(kinds), path_contains=paths[0], times=10**9))
    run.start()
    assert [unit.log_dir.path for unit in run.life.manager.logs.online_units] == [paths[1]]
    exercise(run, 1)
    with pytest.raises(LogDirOffline):
        run.life.operations.partition_log("orders", 0)
    run.create_topic("users", 3)
    run.produced("users", 2, Acks.ALL)
    run.stop()
    run.disk.kill()
    run.start()
    run.check_restart(is_kill=True)


def test_a_topic_deleted_while_a_disk_was_away_stays_deleted() -> None:
    """M15: the directory that comes back finishes the deletion by the topic's id."""
    run = two_disks()
    path = directory_of(run, 0)
    run.kill()
    run.disk.faults.add(Fault(kinds=frozenset({"list"}), path_contains=path, times=10**9))
    run.start()
    run.delete_topic("orders")
    run.create_topic("orders", 1)
    run.produced("orders", 0, Acks.ALL)
    run.kill()
    run.topics["orders"].is_certain = True
    run.start()
    run.check_restart(is_kill=True)
    run.life.clock.advance_ms(10 * DELETION_MS)
    left = [name for each in TWO_DIRS for name in run.disk.list_dir(each) if "orders" in name]
    assert left == ["orders-0"]


def test_the_last_disk_that_dies_ends_the_daemon() -> None:
    """M15: nobody is left to serve."""
    run = two_disks()
    run.disk.faults.add(Fault(kinds=frozenset({"datasync"}), times=10**9))
    run.produced("orders", 0, Acks.ALL)
    assert not run.life.all_dirs_died
    run.produced("orders", 1, Acks.ALL)
    assert run.life.all_dirs_died


@pytest.mark.parametrize("lost", ["datasync", "sync_dir"])
def test_a_failed_fsync_is_never_tried_again(lost: str) -> None:
    """M15: fsyncgate: the second call would succeed without the pages."""
    run = two_disks()
    path = directory_of(run, 0)
    fault = run.disk.faults.add(
        Fault(Effect.LOSE_SYNC, kinds=frozenset({lost}), path_contains=path)
    )
    run.produced("orders", 0, Acks.ALL, size=150, times=8)
    assert fault.seen == 1
    assert not [unit for unit in run.life.manager.logs.online_units if unit.log_dir.path == path]
    run.crash(CrashMode.DROP_ALL)
    run.start()
    run.check_restart(is_kill=False)


def test_a_full_disk_heals_at_the_same_offset() -> None:
    """M15: ENOSPC is answered, nothing is lost, and appends go on when there is room again."""
    run = two_disks()
    full = Fault(Effect.SHORT_WRITE, errno.ENOSPC, frozenset({"write"}), "orders-0", times=3)
    run.disk.faults.add(full)
    for _ in range(3):
        run.produced("orders", 0, Acks.ALL)
        run.life.clock.advance_ms(1000)
    assert run.topics["orders"].partition(0).durable_end == 1
    run.produced("orders", 0, Acks.ALL)
    assert run.topics["orders"].partition(0).durable_end == 2
    run.crash(CrashMode.DROP_ALL)
    run.start()
    run.check_restart(is_kill=False)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("mode", [CrashMode.DROP_ALL, CrashMode.ZEROED_DATA])
def test_what_a_failed_fsync_lost_is_not_served_after_a_restart(mode: CrashMode, seed: int) -> None:
    """M15 M25: fsyncgate, then a restart without a power cut: what is acknowledged on top of what
    the kernel forgot to write survives the next power cut.
    """
    run = two_disks()
    path = directory_of(run, 0)
    run.produced("orders", 0, Acks.ALL, size=150)
    run.disk.faults.add(
        Fault(Effect.LOSE_SYNC, kinds=frozenset({"datasync"}), path_contains=path, nth=1 + seed)
    )
    run.produced("orders", 0, Acks.ALL, size=150, times=12)
    assert not [unit for unit in run.life.manager.logs.online_units if unit.log_dir.path == path]
    run.kill()
    run.start()
    run.check_restart(is_kill=False)
    for _ in range(2):
        run.produced("orders", 0, Acks.ALL, size=150)
        run.fetch_all("orders", 0)
    run.crash(mode)
    run.start()
    run.check_restart(is_kill=False)
