"""Goal: a backup of a running manager is whole and true, or says that it is not; all serves on.
Method: whole managers on the simulated disk; faults at calls, other threads at every switch point.
"""

from __future__ import annotations

import errno

import pytest

from kafkalog.broker.background import OperationState
from kafkalog.broker.directory.log_dir import CLEAN_SHUTDOWN_MARKER
from kafkalog.errors import (
    BackupFailed,
    BackupRunning,
    DiskFull,
    InvalidBackupTarget,
    KafkalogError,
    LogDirOffline,
    NotReady,
    UnknownTopic,
)
from kafkalog.format.disk.backup_manifest import MANIFEST_FILE
from kafkalog.format.disk.file_names import segment_file_name
from kafkalog.format.topic_names import TopicPartition
from kafkalog.log.values import LogAppendInfo
from tests.backup_world import (
    BACKUP,
    NEW_DIRS,
    ROOT,
    back_up,
    batch,
    check_restored,
    check_sound,
    fill,
    log_of,
    manifest_of,
    new_disk,
    restore,
    snapshot,
    started,
    with_data,
)
from tests.sim.sim_faults import Fault
from tests.sim.sim_manager import DIRS, SimManager

EVER = 10**9
SUCCEEDED, FAILED = OperationState.SUCCEEDED, OperationState.FAILED


def is_serving(sim: SimManager) -> bool:
    """Both directories live, and an append is answered."""
    answer = sim.produce("orders", batch("after"), partition=2)
    return len(sim.manager.online_units) == 2 and isinstance(answer.result, LogAppendInfo)


def is_complete(sim: SimManager, directory: str) -> bool:
    """What its manifest says, if there is one."""
    path = f"{directory}/{MANIFEST_FILE}"
    return sim.disk.exists(path) and manifest_of(sim.disk, directory).is_complete


def test_what_is_restored_is_what_was_there() -> None:
    """Records, log starts, producers, epochs, ids and configs; later appends are not in it."""
    sim = with_data(new_disk())
    before = snapshot(sim)
    topics = sim.manager.registry.topics
    epochs = log_of(sim, "orders").epochs.entries
    operation = back_up(sim)
    assert operation.state is SUCCEEDED, operation.error
    assert operation.progress["partitions_done"] == operation.progress["partitions"] == 4
    fill(sim, "orders", 0, 3, first=10)
    assert not sim.disk.exists(f"{BACKUP}/log-dir-0/{CLEAN_SHUTDOWN_MARKER}")
    disk = sim.kill()
    report = restore(disk)
    assert report.left_out == ()
    check_restored(disk)
    assert sum(each.partitions for each in report.log_dirs) == 4
    copy = started(disk, NEW_DIRS)
    assert snapshot(copy) == before
    assert copy.manager.registry.topics == topics
    assert log_of(copy, "orders").epochs.entries == epochs
    check_sound(copy)
    repeated = copy.produce("orders", batch("orders-0-9", producer_id=0, sequence=9)).result
    assert isinstance(repeated, LogAppendInfo)
    assert repeated.first_offset == 9
    assert log_of(copy, "orders").log_end_offset == 10, "a retry of what is stored"
    fill(copy, "orders", 0, 1, first=10)


def test_closed_segments_are_links_and_the_rest_are_copies() -> None:
    """The manifest has a CRC for every copy; with links no byte of a closed segment is read."""
    sim = with_data(new_disk())
    linked, copied = back_up(sim), back_up(sim, directory=f"{ROOT}/two", may_link=False)
    assert linked.progress["linked_files"] > 0
    assert copied.progress["linked_files"] == 0
    for partition in (p for d in manifest_of(sim.disk).log_dirs for p in d.partitions):
        log = log_of(sim, *_key(partition.topic_partition))
        tail = segment_file_name(log.local.active_segment.base_offset, "")
        for file in partition.files:
            is_link = file.crc32c is None
            is_closed = file.name.endswith(
                (".log", ".index", ".timeindex")
            ) and not file.name.startswith(tail)
            assert is_link == (is_closed or file.name.endswith(".snapshot")), file
    assert all(
        file.crc32c is not None
        for log_dir in manifest_of(sim.disk, f"{ROOT}/two").log_dirs
        for partition in log_dir.partitions
        for file in partition.files
    )


def _key(topic_partition: TopicPartition) -> tuple[str, int]:
    return topic_partition.topic, topic_partition.partition


@pytest.mark.parametrize("error", [errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP])
def test_where_nothing_can_be_linked_all_is_copied(error: int) -> None:
    sim = with_data(new_disk())
    before = snapshot(sim)
    sim.disk.faults.add(Fault(error=error, kinds=frozenset({"link"}), times=EVER))
    operation = back_up(sim)
    assert operation.state is SUCCEEDED, operation.error
    assert operation.progress["linked_files"] == 0
    log_dirs = operation.result["log_dirs"]
    assert isinstance(log_dirs, list)
    assert [each["is_linked"] for each in log_dirs] == [False, False]
    disk = sim.kill()
    restore(disk)
    assert snapshot(started(disk, NEW_DIRS)) == before


def test_some_topics_alone() -> None:
    """The registry of the backup knows no others; an unknown one is refused."""
    sim = with_data(new_disk())
    with pytest.raises(UnknownTopic):
        back_up(sim, "orders", "nope")
    assert not sim.disk.exists(BACKUP)
    before = snapshot(sim)
    assert back_up(sim, "users").state is SUCCEEDED
    disk = sim.kill()
    restore(disk)
    copy = started(disk, NEW_DIRS)
    assert snapshot(copy) == {"users-0": before["users-0"]}
    assert copy.operations.topic_names() == ["users"]


@pytest.mark.parametrize(
    ("directory", "why"),
    [
        ("backup/one", "absolute"),
        ("", "absolute"),
        (DIRS[0], "lies in"),
        (f"{DIRS[1]}/backup", "lies in"),
        ("/", "not empty"),
        ("/data", "not empty"),
        (f"{ROOT}/no/such", "does not exist"),
        (f"{ROOT}/file", "cannot be used"),
        (f"{ROOT}/file/below", "cannot be used"),
    ],
)
def test_a_target_that_will_not_do(directory: str, why: str) -> None:
    """Refused before anything is written."""
    sim = with_data(new_disk())
    sim.disk.open_write(f"{ROOT}/file").close()
    count = len(sim.disk.operations)
    with pytest.raises(InvalidBackupTarget, match=why):
        sim.operations.begin_backup(directory)
    assert len(sim.disk.operations) == count


def test_a_target_that_cannot_be_made() -> None:
    sim = with_data(new_disk())
    sim.disk.faults.add(Fault(error=errno.EACCES, kinds=frozenset({"make_dir"})))
    with pytest.raises(InvalidBackupTarget, match="cannot be used"):
        sim.operations.begin_backup(BACKUP)
    assert is_serving(sim)


def test_a_fresh_file_system_is_empty() -> None:
    sim = with_data(new_disk())
    sim.disk.make_dir(f"{BACKUP}/lost+found")
    assert back_up(sim).state is SUCCEEDED


def test_a_partition_that_is_not_served_is_named() -> None:
    """No backup that would leave it out without a word; the other topics can be had."""
    sim = with_data(new_disk())
    fault = LogDirOffline("its disk is gone")
    key = TopicPartition("users", 0)
    directory = log_of(sim, "users").directory
    sim.manager.table.remove(key)
    sim.manager.table.add_fault(key, fault, directory)
    with pytest.raises(LogDirOffline, match="gone"):
        sim.operations.begin_backup(BACKUP)
    assert not sim.disk.exists(BACKUP)
    assert back_up(sim, "orders").state is SUCCEEDED


def test_one_at_a_time() -> None:
    sim = with_data(new_disk())
    first = sim.operations.begin_backup(BACKUP)
    with pytest.raises(BackupRunning):
        sim.operations.begin_backup(f"{ROOT}/two")
    sim.threads.run_until(lambda: first.state is not OperationState.RUNNING)
    assert back_up(sim, directory=f"{ROOT}/two").state is SUCCEEDED
    assert sim.operations.background_operation(first.operation_id) is first
    assert sim.operations.background_operation("x") is None


def test_too_little_room_is_known_before() -> None:
    """Nothing is left, so that the same command works later; what was there stays, empty."""
    sim = with_data(new_disk())
    sim.disk.faults.add(Fault(error=errno.EXDEV, kinds=frozenset({"link"}), times=EVER))
    capacity, sim.disk.capacity_bytes = sim.disk.capacity_bytes, 100_000
    with pytest.raises(DiskFull, match="needs about"):
        sim.operations.begin_backup(BACKUP)
    assert not sim.disk.exists(BACKUP)
    sim.disk.make_dir(BACKUP)
    with pytest.raises(DiskFull, match="needs about"):
        sim.operations.begin_backup(BACKUP)
    assert sim.disk.list_dir(BACKUP) == []
    sim.disk.capacity_bytes = capacity
    assert back_up(sim).state is SUCCEEDED
    assert is_serving(sim)


FAULTS = [
    (kind, error)
    for kind in ("create", "write", "datasync", "sync", "sync_dir", "rename", "make_dir", "link")
    for error in (errno.EIO, errno.ENOSPC)
]


@pytest.mark.parametrize(("kind", "error"), FAULTS)
def test_a_target_that_fails_fails_the_backup_alone(kind: str, error: int) -> None:
    """At each call of that kind in turn: the outcome says why, the logs serve on."""
    sim = with_data(new_disk())
    before = snapshot(sim)
    for number in range(1, 200):
        directory = f"{ROOT}/{number}"
        fault = Fault(error=error, kinds=frozenset({kind}), path_contains=directory, nth=number)
        sim.disk.faults.add(fault)
        outcome: object
        try:
            operation = back_up(sim, directory=directory)
            outcome = operation.error
        except (DiskFull, BackupFailed, InvalidBackupTarget) as refused:
            outcome = refused
        if fault.seen < number:
            assert outcome is None
            break
        expected = DiskFull if error == errno.ENOSPC else BackupFailed | InvalidBackupTarget
        assert isinstance(outcome, expected)
        assert directory in outcome.message
        sim.disk.faults.disarm()
        if kind == "sync_dir" and outcome is not None and is_complete(sim, directory):
            restore(sim.disk, directory=directory)  # the very last sync: nothing is missing
            break
        with pytest.raises(KafkalogError):
            restore(sim.disk, directory=directory)
    assert number > 1
    assert snapshot(sim) == before
    assert is_serving(sim)


def test_a_full_target_file_system() -> None:
    """In the middle of the copies: the backup says incomplete, and why."""
    sim = with_data(new_disk())
    operation = sim.operations.begin_backup(BACKUP, may_link=False)
    sim.disk.capacity_bytes = sim.disk.capacity_bytes - sim.disk.space("/")[1] + 8192
    sim.threads.run_until(lambda: operation.state is not OperationState.RUNNING)
    assert isinstance(operation.error, DiskFull)
    assert "not complete" in operation.error.message
    assert not manifest_of(sim.disk).is_complete
    with pytest.raises(BackupFailed, match="not complete"):
        restore(sim.disk)
    assert [name for name, _ in sim.task_faults] == ["kafkalog-backup"]
    assert len(sim.manager.online_units) == 2


def test_a_source_that_cannot_be_read_goes_offline() -> None:
    """As with any other reader; the backup says so."""
    sim = with_data(new_disk())
    directory = log_of(sim, "orders").directory
    sim.disk.faults.add(
        Fault(kinds=frozenset({"read"}), path_contains=f"{directory}/0000", times=EVER)
    )
    operation = back_up(sim, may_link=False)
    assert isinstance(operation.error, LogDirOffline)
    assert len(sim.manager.online_units) == 1
    assert not manifest_of(sim.disk).is_complete


@pytest.mark.parametrize(("times", "state"), [(1, SUCCEEDED), (15, SUCCEEDED), (EVER, FAILED)])
def test_a_segment_that_vanishes_is_looked_for_again(times: int, state: OperationState) -> None:
    """Its partition is captured anew, and what was taken of it is thrown away; not for ever."""
    sim = with_data(new_disk())
    before = snapshot(sim)
    first = f"orders-0/{log_of(sim, 'orders').segments.first.log_file.name}"
    fault = Fault(error=errno.ENOENT, kinds=frozenset({"link"}), path_contains=first, times=times)
    sim.disk.faults.add(fault)
    operation = back_up(sim)
    assert operation.state is state
    if state is FAILED:
        assert isinstance(operation.error, BackupFailed)
        assert operation.error.message.startswith(f"{first.replace('/', ': ')} is missing, or was")
        assert fault.seen == 16
        return
    disk = sim.kill()
    restore(disk)
    assert snapshot(started(disk, NEW_DIRS)) == before


def test_a_stop_ends_a_backup() -> None:
    """It says incomplete; the next start serves all."""
    sim = with_data(new_disk())
    before = snapshot(sim)
    operation = sim.operations.begin_backup(BACKUP)
    sim.manager.background.stop()
    sim.threads.run_until(lambda: operation.state is not OperationState.RUNNING)
    assert isinstance(operation.error, NotReady)
    assert not manifest_of(sim.disk).is_complete
    assert snapshot(started(sim.stop())) == before
