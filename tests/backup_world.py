"""What the backup tests share: a manager with data, its backup, a manager on what is restored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.broker.background import BackgroundOperation, OperationState
from kafkalog.broker.backup.backup import BackupRequest
from kafkalog.broker.backup.restore import Restore, RestoreReport
from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.format.disk.backup_manifest import MANIFEST_FILE, BackupManifest, decode_manifest
from kafkalog.format.records.batch_builder import RecordColumns, build_batch
from kafkalog.log.inspect.directory_check import verify_directory
from kafkalog.log.inspect.invariants import check_invariants
from kafkalog.log.log_config import LogConfig
from tests.crash.partition_run import check_producers, contents
from tests.sim.sim_clock import SimClock
from tests.sim.sim_filesystem import SimFilesystem
from tests.sim.sim_manager import DIRS, SimManager
from tests.sim.sim_random import SimRandom

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.broker.background import BackgroundOperations
    from kafkalog.broker.catalog import Logs
    from kafkalog.broker.runtime import Runtime
    from kafkalog.log.unified_log import UnifiedLog

ROOT = "/backup"
BACKUP = f"{ROOT}/one"
NEW_DIRS = ("/new/a", "/new/b")
NOW_MS = 1_700_000_000_000
SMALL_SEGMENTS = LogConfig(
    internal_segment_bytes=600, segment_index_bytes=240, index_interval_bytes=200
)

Batches = list[tuple[int, int, bytes]]


def new_disk() -> SimFilesystem:
    """Mounted, empty: the log directories, and places for a backup and a restore."""
    disk = SimFilesystem()
    make_places(disk)
    return disk


def make_places(disk: SimFilesystem) -> None:
    """What ``new_disk`` has, on any disk."""
    for path in (*DIRS, ROOT, "/new"):
        disk.make_dir(path)
    disk.sync_all()


def started(disk: SimFilesystem, dirs: Sequence[str] = DIRS, seed: int = 0) -> SimManager:
    """A daemon without HTTP on these log directories."""
    config = BrokerConfig(log_dirs=tuple(dirs), log_dir_min_free_bytes=0)
    return SimManager(disk, seed=seed, config=config, topic_defaults=SMALL_SEGMENTS).start()


def batch(value: str, *, producer_id: int = -1, sequence: int = -1) -> bytes:
    """One record of about 100 bytes."""
    return build_batch(
        RecordColumns.of([None], [value.ljust(100, ".")], NOW_MS),
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence,
    )


def fill(sim: SimManager, topic: str, partition: int, count: int, *, first: int = 0) -> None:
    """Batches of an idempotent producer; a segment takes three of them."""
    for number in range(first, first + count):
        data = batch(f"{topic}-{partition}-{number}", producer_id=partition, sequence=number)
        assert sim.produce(topic, data, partition=partition).error is None


def with_data(disk: SimFilesystem, seed: int = 0) -> SimManager:
    """Two topics over both directories: closed segments, a moved log start, an empty partition."""
    sim = started(disk, seed=seed).with_topic("orders", 3, {"retention.ms": "-1"})
    sim.operations.topics.create("users", 1)
    fill(sim, "orders", 0, 10)
    fill(sim, "orders", 1, 2)
    fill(sim, "users", 0, 7)
    assert sim.delete_records("users", 4).result == 4
    return sim


def back_up(
    sim: SimManager, *topics: str, directory: str = BACKUP, may_link: bool = True
) -> BackgroundOperation:
    """A backup, run to its end."""
    operation = sim.operations.begin_backup(directory, topics, may_link=may_link)
    sim.threads.run_until(lambda: operation.state is not OperationState.RUNNING)
    return operation


def backup_arguments(
    sim: SimManager, *, may_link: bool
) -> tuple[Logs, Runtime, BackgroundOperations, BackupRequest]:
    """Of a Backup of everything."""
    manager = sim.manager
    wanted = BackupRequest(BACKUP, (), may_link, manager.cluster_id)
    return manager.logs, manager.runtime, manager.background, wanted


def manifest_of(disk: SimFilesystem, directory: str = BACKUP) -> BackupManifest:
    return decode_manifest(disk.read_file(f"{directory}/{MANIFEST_FILE}"))


def restore(
    disk: SimFilesystem, targets: Sequence[str] = NEW_DIRS, directory: str = BACKUP
) -> RestoreReport:
    return Restore(disk, SimClock(), SimRandom(1), directory, targets).run()


def backed_up() -> tuple[SimFilesystem, dict[str, tuple[int, int, Batches]]]:
    """A disk with a backup, its daemon gone, and what is in it."""
    sim = with_data(new_disk())
    before = snapshot(sim)
    assert back_up(sim).error is None
    return sim.stop(), before


def restored(sim: SimManager) -> SimManager:
    """A daemon on what a restore makes of the backup, which is whole; the other one was killed."""
    disk = sim.kill()
    restore(disk)
    check_restored(disk)
    return started(disk, NEW_DIRS)


def check_restored(disk: SimFilesystem, targets: Sequence[str] = NEW_DIRS) -> None:
    """Every file agrees with its segment, before a start could have made it anew."""
    for target in targets:
        for stat in disk.list_dir_stats(target):
            if stat.is_dir:
                path = f"{target}/{stat.name}"
                findings = verify_directory(path, disk)
                assert not findings, (path, findings)


def snapshot(sim: SimManager) -> dict[str, tuple[int, int, Batches]]:
    """Log start, end and all batches of every served partition."""
    return {
        str(log.topic_partition): (log.log_start_offset, log.log_end_offset, contents(log))
        for log in sim.manager.logs.table.logs()
    }


def check_sound(sim: SimManager) -> None:
    """All that can be said of logs without knowing what was written to them."""
    assert not sim.manager.logs.table.faults()
    for log in sim.manager.logs.table.logs():
        check_invariants(log)
        check_producers(log)


def log_of(sim: SimManager, topic: str, partition: int = 0) -> UnifiedLog:
    return sim.operations.partition_log(topic, partition)
