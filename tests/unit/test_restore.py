"""Goal: a restore gives back what the backup holds, or says what is wrong before it is half done.
Method: backups of a simulated manager, whole and damaged, restored to one, two and three places.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from kafkalog.broker.backup.restore import place_partitions
from kafkalog.broker.directory.log_dir import LOG_START_OFFSETS, META_PROPERTIES, REGISTRY_FILE
from kafkalog.errors import BackupFailed, DiskFull, InvalidBackupTarget, InvalidConfig
from kafkalog.format.disk.backup_manifest import (
    MANIFEST_FILE,
    RESTORE_MARKER,
    BackupFile,
    BackupLogDir,
    BackupPartition,
)
from kafkalog.format.topic_names import TopicPartition
from tests.backup_world import (
    BACKUP,
    NEW_DIRS,
    backed_up,
    check_restored,
    check_sound,
    manifest_of,
    restore,
    snapshot,
    started,
)
from tests.sim.sim_faults import Effect, Fault

if TYPE_CHECKING:
    from tests.sim.sim_filesystem import SimFilesystem


def path_of(disk: SimFilesystem, name: str, *, topic: str = "orders") -> str:
    (log_dir,) = [
        log_dir.name
        for log_dir in manifest_of(disk).log_dirs
        if any(p.topic_partition == TopicPartition(topic, 0) for p in log_dir.partitions)
    ]
    return f"{BACKUP}/{log_dir}/{topic}-0/{name}"


def change(disk: SimFilesystem, path: str) -> None:
    file = disk.open_write(path, create=False)
    file.pwrite(bytes([file.pread(1, 0)[0] ^ 1]), 0)
    file.close()


def resize(disk: SimFilesystem, path: str, size: int | None) -> None:
    """None: the file goes."""
    if size is None:
        disk.unlink(path)
    else:
        file = disk.open_write(path)
        file.truncate(size)
        file.close()


@pytest.mark.parametrize("count", [1, 2, 3])
def test_any_number_of_log_directories(count: int) -> None:
    disk, before = backed_up()
    targets = [f"/new/{number}" for number in range(count)]
    report = restore(disk, targets)
    check_restored(disk, targets)
    assert [each.path for each in report.log_dirs] == targets
    assert sum(each.partitions for each in report.log_dirs) == len(before)
    copy = started(disk, targets)
    assert len(copy.manager.logs.online_units) == count
    assert snapshot(copy) == before
    check_sound(copy)
    assert {each.size_bytes > 0 for each in report.log_dirs} == {True}
    second = copy.stop()
    restore(second, NEW_DIRS)  # the backup is as it was


def test_largest_partitions_first_each_to_the_emptiest_place() -> None:
    """As many places as directories: as it was. Another number: spread by size, equals by count."""

    def log_dir(name: str, sizes: dict[str, int]) -> BackupLogDir:
        partitions = [
            BackupPartition(topic, 0, 0, 1, {"f": BackupFile(size, None)})
            for topic, size in sizes.items()
        ]
        return BackupLogDir(name, "/", {}, tuple(partitions))

    log_dirs = [log_dir("a", {"x": 5, "y": 0, "z": 0, "w": 3}), log_dir("b", {"v": 4})]

    def placed(count: int) -> list[list[str]]:
        found = place_partitions(log_dirs, count)
        return [[each.partition.topic_partition.topic for each in place] for place in found]

    assert placed(2) == [["x", "y", "z", "w"], ["v"]]
    assert placed(1) == [["x", "v", "w", "y", "z"]]
    assert placed(3) == [["x"], ["v"], ["w", "y", "z"]]
    assert placed(4) == [["x"], ["v"], ["w"], ["y", "z"]]


@pytest.mark.parametrize("name", ["00000000000000000000.index", "00000000000000000003.timeindex"])
@pytest.mark.parametrize("is_missing", [True, False])
def test_a_derived_file_that_has_changed_is_left_out(name: str, is_missing: bool) -> None:
    """A recovery of the source writes linked indexes anew; the start makes them from the log."""
    disk, before = backed_up()
    path = path_of(disk, name)
    resize(disk, path, None if is_missing else disk.stat(path).size + 8)
    report = restore(disk)
    assert [f"{BACKUP}/{each}" for each in report.left_out] == [path]
    copy = started(disk, NEW_DIRS)
    assert snapshot(copy) == before
    assert all(
        copy.disk.exists(f"{log.directory}/{name}")
        for log in copy.manager.logs.table.logs()
        if str(log.topic_partition) == "orders-0"
    )


def test_producer_ids_of_after_the_backup_are_not_given_again() -> None:
    """Clients may still have ids that the restored registry does not know."""
    disk, _ = backed_up()
    original = started(disk)
    after = original.operations.producers.allocate().producer_id
    disk = original.stop()
    restore(disk)
    copy = started(disk, NEW_DIRS)
    assert copy.operations.producers.allocate().producer_id > after + 10**9
    copy.stop()


ROOT_FILES = (REGISTRY_FILE, LOG_START_OFFSETS, META_PROPERTIES)


@pytest.mark.parametrize(
    "name",
    ["00000000000000000009.log", "partition.metadata", "leader-epoch-checkpoint", *ROOT_FILES],
)
def test_a_copy_that_has_changed_is_noticed(name: str) -> None:
    disk, _ = backed_up()
    roots = [f"{BACKUP}/log-dir-{number}/{name}" for number in (0, 1)]
    for path in roots if name in ROOT_FILES else [path_of(disk, name)]:
        change(disk, path)
    with pytest.raises(BackupFailed, match=f"{name} does not match its CRC-32C"):
        restore(disk)
    if name not in ROOT_FILES:
        assert disk.exists(f"{NEW_DIRS[0]}/{RESTORE_MARKER}")
        with pytest.raises(InvalidConfig, match="has not ended"):
            started(disk.kill(), NEW_DIRS)


@pytest.mark.parametrize("is_missing", [True, False])
def test_a_segment_that_is_gone_or_cut_is_known_before_anything_is_made(is_missing: bool) -> None:
    """A linked one has no CRC, but a length."""
    disk, _ = backed_up()
    resize(disk, path_of(disk, "00000000000000000000.log"), None if is_missing else 10)
    with pytest.raises(BackupFailed, match="is missing" if is_missing else "has 10 bytes"):
        restore(disk)
    assert disk.list_dir("/new") == []


def test_what_is_no_backup() -> None:
    disk, _ = backed_up()
    path = f"{BACKUP}/{MANIFEST_FILE}"
    whole = disk.read_file(path)
    disk.write_file_atomically(path, whole.replace(b'"format":1', b'"format":2'))
    with pytest.raises(BackupFailed, match="format 2"):
        restore(disk)
    disk.write_file_atomically(path, whole[:100])
    with pytest.raises(BackupFailed, match="no JSON"):
        restore(disk)
    disk.unlink(path)
    with pytest.raises(BackupFailed, match="is no backup"):
        restore(disk)
    with pytest.raises(BackupFailed, match="is no backup"):
        restore(disk, directory="/nowhere")


@pytest.mark.parametrize(
    ("targets", "why"),
    [
        (("/data/a", "/new/b"), "not empty"),
        (("/new/a", "/new/a"), "named twice"),
        (("/new/a", "/new/a/b"), "not exist|lies in"),
        ((f"{BACKUP}/new",), "lies in"),
        (("new",), "absolute"),
        (("/no/such",), "does not exist"),
    ],
)
def test_a_target_that_will_not_do(targets: tuple[str, ...], why: str) -> None:
    disk, _ = backed_up()
    with pytest.raises(InvalidBackupTarget, match=why):
        restore(disk, targets)
    assert disk.list_dir("/new") == []


def test_a_target_that_somebody_uses() -> None:
    disk, _ = backed_up()
    disk.make_dir(NEW_DIRS[1])
    disk._locked.add(f"{NEW_DIRS[1]}/.lock")
    with pytest.raises(InvalidBackupTarget, match="in use"):
        restore(disk)
    disk._locked.clear()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_target_that_fails(error: int) -> None:
    disk, _ = backed_up()
    disk.faults.add(
        Fault(
            error=error,
            kinds=frozenset({"write"}),
            path_contains=NEW_DIRS[1],
            nth=4,
            effect=Effect.SHORT_WRITE,
        )
    )
    every = f"{NEW_DIRS[1]}.*Before another try empty: {', '.join(NEW_DIRS)}$"
    with pytest.raises(DiskFull if error == errno.ENOSPC else BackupFailed, match=every):
        restore(disk)
    with pytest.raises(InvalidConfig, match="empty the directory"):
        started(disk.kill(), NEW_DIRS)


def test_too_little_room_is_known_before() -> None:
    disk, _ = backed_up()
    needed = sum(
        partition.size_bytes
        for log_dir in manifest_of(disk).log_dirs
        for partition in log_dir.partitions
    )
    disk.capacity_bytes = disk.space("/new").used_bytes + needed - 1
    with pytest.raises(DiskFull, match=r"needs at least .* nothing was written"):
        restore(disk)
    assert disk.list_dir("/new") == []


def test_a_backup_that_cannot_be_read() -> None:
    disk, _ = backed_up()
    disk.faults.add(Fault(kinds=frozenset({"read"}), path_contains=f"{BACKUP}/log-dir-1/"))
    with pytest.raises(BackupFailed, match=f"Reading {BACKUP}"):
        restore(disk)
