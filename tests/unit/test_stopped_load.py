"""Goal: a start that is stopped half way loses nothing, and keeps what it has recovered.
Method: the whole manager on the twins; the stop comes at each call of the disk in turn.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from kafkalog.log.log_config import LogConfig
from kafkalog.manager.log_dir import CLEAN_SHUTDOWN_MARKER, LOG_START_OFFSETS, RECOVERY_POINTS
from kafkalog.manager.values import Acks
from tests.sim.sim_crash import CrashMode
from tests.sim.sim_manager import DIRS, SimManager, batch_of
from tests.simulation.daemon_run import DaemonRun, new_disk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.sim.sim_filesystem import SimFilesystem

TOPIC_DEFAULTS = LogConfig(internal_segment_bytes=600, segment_index_bytes=240)


def killed_daemon() -> DaemonRun:
    """Two directories, eight partitions with records, a moved start; then SIGKILL."""
    run = DaemonRun(new_disk(DIRS), dirs=DIRS, racy=False)
    run.config = replace(run.config, num_recovery_threads_per_data_dir=1)
    run.start()
    run.create_topic("t", 8)
    for partition in range(8):
        for _ in range(8):
            run.produce("t", partition, Acks.ALL, client=1)
        run.run_until_idle()
        run.delete_records("t", partition, 3)
    run.run_until_idle()
    run.kill()
    return run


def stopped_daemon() -> DaemonRun:
    """The same, and then a start that recovered it and an orderly stop."""
    run = killed_daemon()
    run.start()
    run.stop()
    return run


def stopped_start(run: DaemonRun, calls: int) -> SimManager:
    """A life that is told to stop after so many calls of the disk, and does."""
    life = SimManager(run.disk, config=run.config, topic_defaults=TOPIC_DEFAULTS)
    left = calls

    def count() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            life.manager.stop_loading()

    run.disk.on_call = count
    life.start()
    run.disk.on_call = None
    assert not life.manager.is_loaded or left > 0
    return life


def next_lives(make: Callable[[], DaemonRun], mode: CrashMode | None) -> Iterator[DaemonRun]:
    """The life behind an orderly stop at each moment of a load, then a kill or a power cut."""
    partial, calls, is_loaded = 0, 0, False
    while not is_loaded:
        calls += 7
        run = make()
        life = stopped_start(run, calls)
        is_loaded = life.manager.is_loaded
        loading = life.manager.progress.loading
        partial += 0 < loading.partitions_loaded < loading.partitions
        life.stop()
        if mode is not None:
            run.disk = run.disk.crash(mode, 0)
        run.start()
        yield run
    assert partial > 3, "stops between two partitions"


@pytest.mark.parametrize("mode", [None, CrashMode.DROP_ALL, CrashMode.ZEROED_DATA])
def test_a_stop_at_any_moment_of_the_load_loses_nothing(mode: CrashMode | None) -> None:
    """M14: an orderly stop, then a kill or a power cut: the next life keeps every promise."""
    for run in next_lives(killed_daemon, mode):
        run.check_restart(is_kill=mode is None)


@pytest.mark.parametrize("mode", [None, CrashMode.DROP_ALL])
def test_a_clean_directory_stays_clean(mode: CrashMode | None) -> None:
    """M14: what was not loaded lies as the last stop left it, what was is closed again."""
    for run in next_lives(stopped_daemon, mode):
        assert all(unit.log_dir.was_clean for unit in run.life.manager.units)
        run.check_restart(is_kill=mode is None)


def test_what_was_recovered_is_not_recovered_again() -> None:
    """M16: a probe that ends a long recovery does not send it back to its beginning."""
    run = killed_daemon()
    starts = {path: run.disk.read_file(f"{path}/{LOG_START_OFFSETS}") for path in DIRS}
    life = SimManager(run.disk, config=run.config, topic_defaults=TOPIC_DEFAULTS)
    table = life.manager.table

    def stop_in_the_last_two() -> None:
        # Of both directories: one is in its last segment and ends, one in the segment before.
        if len(table) == 6 and life.manager.progress.loading.segments_to_recover == 3:
            life.manager.stop_loading()

    run.disk.on_call = stop_in_the_last_two
    life.start()
    run.disk.on_call = None
    assert life.manager.progress.loading.partitions_loaded == 7
    loaded = {(log.topic_partition.topic, log.topic_partition.partition) for log in table.logs()}
    life.stop()
    assert {path: run.disk.read_file(f"{path}/{LOG_START_OFFSETS}") for path in DIRS} == starts
    clean = [run.disk.exists(f"{path}/{CLEAN_SHUTDOWN_MARKER}") for path in DIRS]
    assert sorted(clean) == [False, True], "the directory that was loaded whole is clean"
    points = {
        tuple(line.split()[:2]): line.split()[2]
        for path in DIRS
        for line in run.disk.read_file(f"{path}/{RECOVERY_POINTS}").decode().splitlines()[2:]
    }
    assert {(topic, int(number)) for topic, number in points} == loaded
    assert set(points.values()) == {"8"}


def test_a_long_recovery_ends_at_the_next_segment() -> None:
    """M01 M16: a probe's patience is shorter than the recovery of one large log."""
    sim = SimManager(topic_defaults=TOPIC_DEFAULTS).start()
    sim.operations.topics.create("t", 1)
    while len(sim.operations.partition_log("t", 0).segments) < 20:
        assert sim.produce("t", batch_of("v" * 60)).error is None
    end = sim.operations.partition_log("t", 0).log_end_offset
    life = SimManager(sim.kill(), topic_defaults=TOPIC_DEFAULTS)
    left: list[int] = []

    def stop_in_the_fifth() -> None:
        left.append(life.manager.progress.loading.segments_to_recover)
        if left[-1] == 16:
            life.manager.stop_loading()

    life.disk.on_call = stop_in_the_fifth
    with capture_logs() as lines:
        life.start()
    life.disk.on_call = None
    assert min(count for count in left if count) == 16
    assert life.manager.progress.loading.partitions_loaded == 0
    assert not [line for line in lines if line["log_level"] == "error"], "nothing is at fault"
    disk = life.stop()
    assert not any(disk.exists(f"{path}/{CLEAN_SHUTDOWN_MARKER}") for path in holders(disk, "t-0"))
    again = SimManager(disk, topic_defaults=TOPIC_DEFAULTS).start()
    assert again.operations.partition_log("t", 0).log_end_offset == end


def holders(disk: SimFilesystem, name: str) -> list[str]:
    """Log directories with an entry of that name."""
    return [path for path in DIRS if name in disk.list_dir(path)]
