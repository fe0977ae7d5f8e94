"""Goal: a start that is stopped half way loses nothing, and keeps what it has recovered.
Method: the whole manager on the twins; the stop comes at each call of the disk in turn.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from kafkalog.broker.directory.log_dir import (
    CLEAN_SHUTDOWN_MARKER,
    LOG_START_OFFSETS,
    PROOFS,
    RECOVERY_POINTS,
)
from kafkalog.broker.values import Acks
from kafkalog.log.log_config import LogConfig
from kafkalog.log.segment.segment_recovery import RECOVERY_CHUNK_BYTES
from tests.sim.sim_crash import CrashMode
from tests.sim.sim_manager import DIRS, SimManager, batch_of
from tests.simulation.daemon_run import DaemonRun, new_disk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.sim.sim_filesystem import SimFilesystem

TOPIC_DEFAULTS = LogConfig(internal_segment_bytes=600, segment_index_bytes=240)


def killed_daemon(partition_count: int = 8) -> DaemonRun:
    """Two directories, partitions with records, a moved start; then SIGKILL."""
    run = DaemonRun(new_disk(DIRS), dirs=DIRS, racy=False)
    run.config = replace(run.config, num_recovery_threads_per_data_dir=1)
    run.start()
    run.create_topic("t", partition_count)
    for partition in range(partition_count):
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
    left, is_late = calls, False

    def count() -> None:
        nonlocal left, is_late
        left -= 1
        if left == 0:
            loading = life.manager.progress.loading
            is_late = 0 < loading.partitions == loading.partitions_loaded
            life.manager.stop_loading()

    run.disk.on_call = count
    life.start()
    run.disk.on_call = None
    assert not life.manager.is_loaded or left > 0 or is_late
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


@pytest.mark.parametrize(
    "mode",
    [
        None,
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in (CrashMode.DROP_ALL, CrashMode.ZEROED_DATA)
        ),
    ],
)
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
    """M16: a probe that ends a long recovery sends one partition back to its beginning, not all."""
    run = killed_daemon(partition_count=9)
    for path in DIRS:
        run.disk.unlink(f"{path}/{PROOFS}")  # it has every recovery point, since the last deletion
    starts = {path: run.disk.read_file(f"{path}/{LOG_START_OFFSETS}") for path in DIRS}
    life = SimManager(run.disk, config=run.config, topic_defaults=TOPIC_DEFAULTS)
    table = life.manager.table

    def stop_in_the_ninth() -> None:
        if len(table) == 8:
            life.manager.stop_loading()

    run.disk.on_call = stop_in_the_ninth
    life.start()
    run.disk.on_call = None
    assert life.manager.progress.loading.partitions_loaded == 8
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


def test_a_long_recovery_ends_in_its_segment() -> None:
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


# ---- one partition that takes longer than anybody waits

LARGE = LogConfig(segment_index_bytes=240)
BATCHES = 24


def large_log() -> SimFilesystem:
    """Two segments of twelve chunks each, of which the checkpoint knows nothing; SIGKILL."""
    sim = SimManager(topic_defaults=LARGE).start()
    sim.operations.topics.create("t", 1)
    for number in range(BATCHES):
        if number == BATCHES // 2:
            sim.operations.partition_log("t", 0).roll()
        sim.produce("t", batch_of("v" * RECOVERY_CHUNK_BYTES))
    return sim.kill()


def partition_path(disk: SimFilesystem) -> str:
    return next(f"{path}/t-0" for path in DIRS if disk.exists(f"{path}/t-0"))


def scanned_for_records() -> SimFilesystem:
    """Everything lies above the recovery point."""
    return large_log()


def scanned_for_producers() -> SimFilesystem:
    """The last segment alone lies above it, but no snapshot says who wrote the first."""
    disk = large_log()
    directory = partition_path(disk)
    log_dir = directory.rpartition("/")[0]
    checkpoint = f"0\n1\nt 0 {BATCHES // 2}\n".encode()
    disk.write_file_atomically(f"{log_dir}/{RECOVERY_POINTS}", checkpoint)
    disk.unlink(f"{directory}/{BATCHES // 2:020d}.snapshot")
    return disk


def scanned_for_epochs() -> SimFilesystem:
    """All is durable, but for a damaged epoch checkpoint."""
    disk = large_log()
    directory = partition_path(disk)
    log_dir = directory.rpartition("/")[0]
    checkpoint = f"0\n1\nt 0 {BATCHES}\n".encode()
    disk.write_file_atomically(f"{log_dir}/{RECOVERY_POINTS}", checkpoint)
    disk.write_file_atomically(f"{directory}/leader-epoch-checkpoint", b"x\n")
    return disk


@pytest.mark.parametrize(
    "make",
    [scanned_for_records, scanned_for_producers, scanned_for_epochs],
    ids=lambda make: make.__name__,
)
def test_a_stop_does_not_wait_for_a_large_partition(make: Callable[[], SimFilesystem]) -> None:
    """M16: at any moment of its load; nothing is lost, and the next start recovers it."""
    whole = CountedStart(make(), stop_at=None)
    assert whole.life.manager.is_loaded
    assert whole.calls > 80
    interrupted = 0
    for stop_at in range(1, whole.calls, 5):
        start = CountedStart(make(), stop_at=stop_at)
        assert start.calls - stop_at <= 40, "the last calls of a start included"
        loading = start.life.manager.progress.loading
        assert loading.partitions_loaded == len(start.life.manager.table)
        interrupted += not loading.partitions_loaded
        disk = start.life.stop()
        marker = f"{partition_path(disk).rpartition('/')[0]}/{CLEAN_SHUTDOWN_MARKER}"
        assert disk.exists(marker) == bool(loading.partitions_loaded)
        again = SimManager(disk.crash(CrashMode.DROP_ALL), topic_defaults=LARGE).start()
        assert again.operations.partition_log("t", 0).log_end_offset == BATCHES
    assert interrupted > 5


class CountedStart:
    """A start that is told to stop at a call of its disk, counted from the begin of the load."""

    def __init__(self, disk: SimFilesystem, *, stop_at: int | None) -> None:
        self.life = SimManager(disk, topic_defaults=LARGE)
        self.calls = 0
        self.stop_at = stop_at
        disk.on_call = self.count
        self.life.start()
        disk.on_call = None

    def count(self) -> None:
        """Each call of the disk."""
        self.calls += bool(self.life.manager.progress.loading.partitions)
        if self.calls == self.stop_at:
            self.life.manager.stop_loading()
