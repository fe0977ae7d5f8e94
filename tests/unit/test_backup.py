"""Goal: a backup of a running manager is whole and true of one moment, whatever changes meanwhile,
or says that it is not; all serves on.
Method: managers on a simulated disk, changes between any two calls, plans of known directories.
"""

from __future__ import annotations

import errno
import json
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog import errors
from kafkalog.broker.background import OperationState
from kafkalog.broker.backup.backup import Backup
from kafkalog.broker.backup.files import PartitionState, plan_partition
from kafkalog.broker.directory.log_dir import CLEAN_SHUTDOWN_MARKER, REGISTRY_FILE
from kafkalog.broker.topics.registry import decode_registry
from kafkalog.broker.values import Acks
from kafkalog.format.disk.backup_manifest import (
    FORMAT,
    MANIFEST_FILE,
    BackupFile,
    BackupLogDir,
    BackupManifest,
    BackupPartition,
    decode_manifest,
    encode_manifest,
)
from kafkalog.format.disk.file_names import CLEANED_SUFFIX, segment_file_name
from kafkalog.format.integers import FormatError
from kafkalog.format.topic_names import TopicPartition
from kafkalog.log.segment.log_segment import LogSegment
from kafkalog.log.segment.segment_swap import SegmentSwap
from kafkalog.log.values import AppendedBatch, LogAppendInfo
from tests.backup_world import (
    BACKUP,
    NEW_DIRS,
    NOW_MS,
    ROOT,
    back_up,
    backup_arguments,
    batch,
    check_restored,
    check_sound,
    fill,
    log_of,
    make_places,
    manifest_of,
    new_disk,
    restore,
    restored,
    snapshot,
    started,
    with_data,
)
from tests.crash.partition_run import contents
from tests.sim.sim_faults import Fault
from tests.sim.sim_filesystem import SimFilesystem
from tests.sim.sim_manager import DIRS, SimManager, records_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.log.unified_log import UnifiedLog


EVER = 10**9
SUCCEEDED, FAILED = OperationState.SUCCEEDED, OperationState.FAILED


def is_serving(sim: SimManager) -> bool:
    """Both directories live, and an append is answered."""
    answer = sim.produce("orders", batch("after"), partition=2)
    return len(sim.manager.logs.online_units) == 2 and isinstance(answer.result, LogAppendInfo)


def is_complete(sim: SimManager, directory: str) -> bool:
    """What its manifest says, if there is one."""
    path = f"{directory}/{MANIFEST_FILE}"
    return sim.disk.exists(path) and manifest_of(sim.disk, directory).is_complete


def test_what_is_restored_is_what_was_there() -> None:
    sim = with_data(new_disk())
    before = snapshot(sim)
    topics = sim.manager.registry.state.topics
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
    assert copy.manager.registry.state.topics == topics
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
    for may_link in (True, False):
        directory = f"{ROOT}/{may_link}"
        linked_files = back_up(sim, directory=directory, may_link=may_link).progress["linked_files"]
        log_dirs = manifest_of(sim.disk, directory).log_dirs
        partitions = [partition for each in log_dirs for partition in each.partitions]
        files = [(name, file) for each in partitions for name, file in each.files.items()]
        links = [name for name, file in files if file.crc32c is None]
        assert linked_files == len(links)
        assert bool(links) is may_link
        assert "partition.metadata" not in links


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
    assert snapshot(restored(sim)) == before


def test_some_topics_alone() -> None:
    sim = with_data(new_disk())
    with pytest.raises(errors.UnknownTopic):
        back_up(sim, "orders", "nope")
    assert not sim.disk.exists(BACKUP)
    before = snapshot(sim)
    assert back_up(sim, "users").state is SUCCEEDED
    copy = restored(sim)
    assert snapshot(copy) == {"users-0": before["users-0"]}
    assert copy.operations.topic_names() == ["users"]


@pytest.mark.parametrize(
    ("directory", "why"),
    [
        ("backup/one", "absolute path on the daemon's machine: name one there"),
        ("", "absolute"),
        (DIRS[0], "lies in .*: name a place outside it"),
        (f"{DIRS[1]}/backup", "lies in .*: name a place outside it"),
        ("/", "not empty"),
        ("/data", "not empty"),
        (f"{ROOT}/no/such", "does not exist"),
        (f"{ROOT}/file", "cannot be used"),
        (f"{ROOT}/file/below", "cannot be used"),
    ],
)
def test_a_target_that_will_not_do(directory: str, why: str) -> None:
    sim = with_data(new_disk())
    sim.disk.open_write(f"{ROOT}/file").close()
    count = len(sim.disk.operations)
    with pytest.raises(errors.InvalidBackupTarget, match=why):
        sim.operations.begin_backup(directory)
    assert len(sim.disk.operations) == count


def test_a_fresh_file_system_is_empty() -> None:
    sim = with_data(new_disk())
    sim.disk.make_dir(f"{BACKUP}/lost+found")
    assert back_up(sim).state is SUCCEEDED


def test_a_partition_that_is_not_served_is_named() -> None:
    sim = with_data(new_disk())
    fault = errors.LogDirOffline("its disk is gone")
    key = TopicPartition("users", 0)
    directory = log_of(sim, "users").directory
    sim.manager.logs.table.remove(key)
    sim.manager.logs.table.add_fault(key, fault, directory)
    with pytest.raises(errors.LogDirOffline, match="gone"):
        sim.operations.begin_backup(BACKUP)
    assert not sim.disk.exists(BACKUP)
    assert back_up(sim, "orders").state is SUCCEEDED


def test_one_at_a_time() -> None:
    sim = with_data(new_disk())
    first = sim.operations.begin_backup(BACKUP)
    with pytest.raises(errors.BackupRunning):
        sim.operations.begin_backup(f"{ROOT}/two")
    sim.threads.run_until(lambda: first.state is not OperationState.RUNNING)
    assert back_up(sim, directory=f"{ROOT}/two").state is SUCCEEDED
    assert sim.operations.background_operation(first.operation_id) is first
    assert sim.operations.background_operation("x") is None


def test_too_little_room_is_known_before() -> None:
    sim = with_data(new_disk())
    sim.disk.faults.add(Fault(error=errno.EXDEV, kinds=frozenset({"link"}), times=EVER))
    capacity, sim.disk.capacity_bytes = sim.disk.capacity_bytes, 100_000
    with pytest.raises(errors.DiskFull, match="needs about"):
        sim.operations.begin_backup(BACKUP)
    assert not sim.disk.exists(BACKUP)
    sim.disk.make_dir(BACKUP)
    with pytest.raises(errors.DiskFull, match="needs about"):
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
        except (errors.DiskFull, errors.BackupFailed, errors.InvalidBackupTarget) as refused:
            outcome = refused
        if fault.seen < number:
            assert outcome is None
            break
        expected = (
            errors.DiskFull
            if error == errno.ENOSPC
            else errors.BackupFailed | errors.InvalidBackupTarget
        )
        assert isinstance(outcome, expected)
        assert directory in outcome.message
        sim.disk.faults.disarm()
        if kind == "sync_dir" and outcome is not None and is_complete(sim, directory):
            restore(sim.disk, directory=directory)  # the very last sync: nothing is missing
            break
        with pytest.raises(errors.KafkalogError):
            restore(sim.disk, directory=directory)
    assert number > 1
    assert snapshot(sim) == before
    assert is_serving(sim)


def test_a_source_that_cannot_be_read_goes_offline() -> None:
    sim = with_data(new_disk())
    directory = log_of(sim, "orders").directory
    sim.disk.faults.add(
        Fault(kinds=frozenset({"read"}), path_contains=f"{directory}/0000", times=EVER)
    )
    operation = back_up(sim, may_link=False)
    assert isinstance(operation.error, errors.LogDirOffline)
    assert len(sim.manager.logs.online_units) == 1
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
        assert isinstance(operation.error, errors.BackupFailed)
        assert operation.error.message.startswith(f"{first.replace('/', ': ')} is missing, or was")
        assert fault.seen == 16
        return
    assert snapshot(restored(sim)) == before


def test_a_stop_ends_a_backup() -> None:
    sim = with_data(new_disk())
    before = snapshot(sim)
    operation = sim.operations.begin_backup(BACKUP)
    sim.manager.background.stop()
    sim.threads.run_until(lambda: operation.state is not OperationState.RUNNING)
    assert isinstance(operation.error, errors.NotReady)
    assert not manifest_of(sim.disk).is_complete
    assert snapshot(started(sim.stop())) == before


def _client(sim: SimManager, seed: int) -> Callable[[], None]:
    """Appends to all partitions, some of them rolling."""

    def run() -> None:
        for number in range(6):
            for partition in range(3):
                data = batch(f"orders-{partition}-x{seed}-{number}")
                log = log_of(sim, "orders", partition)
                if number % 2:
                    sim.manager.logs.unit_of(log).writer.call(log.roll)
                _produce(sim, log, data)

    return run


def _produce(sim: SimManager, log: UnifiedLog, data: bytes) -> None:
    """Append and wait, on a simulated thread."""
    done = sim.threads.signal()
    records = records_of(data, log)
    sim.operations.submit_produce(log, records, Acks.ALL, on_done=lambda _: done.set())
    done.wait()


class Backing:
    """A backup on a simulated thread of its own."""

    def __init__(self, sim: SimManager, *, may_link: bool) -> None:
        self.outcome: list[errors.KafkalogError | None] = []
        self._operation = sim.manager.background.begin("backup", {}, lambda _: None)
        self._backup = Backup(*backup_arguments(sim, may_link=may_link))
        self._backup.prepare()

    def run(self) -> None:
        try:
            self._backup.run(self._operation)
        except errors.KafkalogError as error:
            self.outcome.append(error)
        else:
            self.outcome.append(None)


def run_together(sim: SimManager, *bodies: Callable[[], None]) -> None:
    """As threads that change places at every call of the disk."""
    sim.disk.on_call = sim.threads.switch_point
    threads = [sim.threads.start(f"test-{number}", body) for number, body in enumerate(bodies)]
    sim.threads.run_until(lambda: not any(thread.is_alive() for thread in threads))
    sim.disk.on_call = None


@pytest.mark.parametrize("seed", range(12))
def test_everything_moves_meanwhile(seed: int) -> None:
    sim = with_data(new_disk(), seed)
    before = snapshot(sim)
    backup = Backing(sim, may_link=seed % 2 == 0)

    def trim() -> None:
        for offset in (2, 5, 8):
            log = log_of(sim, "orders")
            sim.operations.submit_delete_records("orders", 0, offset, None)
            sim.manager.retention.retain(log)
            sim.scheduler.run_due()

    def administer() -> None:
        sim.operations.topics.create("later", 1)
        if seed % 3 == 0:
            sim.operations.topics.delete("users")
        if seed % 3 == 1:
            sim.operations.topics.delete("users")
            sim.operations.topics.create("users", 2)

    run_together(sim, backup.run, _client(sim, seed), trim, administer)
    assert backup.outcome == [None]
    after = snapshot(sim)
    copy = restored(sim)
    check_sound(copy)
    found = snapshot(copy)
    assert "later-0" not in found
    has_users = decode_registry(copy.disk.read_file(f"{NEW_DIRS[0]}/{REGISTRY_FILE}")).topics.keys()
    assert ("users" in has_users) == ("users-0" in found)
    if "users-0" in found:
        assert found["users-0"] == before["users-0"]
    for name in ("orders-0", "orders-1", "orders-2"):
        start, end, batches = found[name]
        assert before[name][1] <= end <= after[name][1]
        assert before[name][0] <= start <= after[name][0]
        known = {each[0]: each for each in (*before[name][2], *after[name][2])}
        assert batches == [known[each[0]] for each in batches]
        assert sum(each[1] - each[0] + 1 for each in batches) >= end - start


class CallingDisk(SimFilesystem):
    """Calls back before the first link of a file."""

    def __init__(self) -> None:
        super().__init__()
        self.file = ""
        self.call: Callable[[], object] = lambda: None

    def link(self, source: str, target: str) -> None:
        if self.file and source.endswith(self.file):
            self.file = ""
            self.call()
        super().link(source, target)


def calling_disk() -> CallingDisk:
    disk = CallingDisk()
    make_places(disk)
    return disk


def cleaned_segment(sim: SimManager) -> tuple[SegmentSwap, list[tuple[int, int, bytes]]]:
    """A swap of all closed segments of orders-0 for one, and all batches afterwards."""
    log = log_of(sim, "orders")
    log.losses.end_gapless()  # as a clean does before it swaps
    unit, old, before = sim.manager.logs.unit_of(log), log.segments.values[:-1], contents(log)
    end_offset = log.segments.active.base_offset
    kept = [each for each in before if each[0] % 2 and each[0] < end_offset]
    new = LogSegment.create(
        unit.environment, log.local.directory, 0, log.config, suffix=CLEANED_SUFFIX
    )
    for base, last, data in kept:
        new.append([data], [AppendedBatch(base, last, len(data), NOW_MS)])
    new.on_become_inactive()
    swap = SegmentSwap(unit.environment, log.local, [new], old, renames_max=1)
    return swap, [*kept, *(each for each in before if each[0] >= end_offset)]


FIRST = f"orders-0/{segment_file_name(0, '')}"


@pytest.mark.parametrize("file", [f"{FIRST}.log", f"{FIRST}.timeindex"])
def test_a_segment_of_the_same_name_is_not_taken_for_the_captured_one(file: str) -> None:
    disk = calling_disk()
    sim = with_data(disk)
    log = log_of(sim, "orders")
    unit = sim.manager.logs.unit_of(log)
    swap, cleaned = cleaned_segment(sim)
    disk.file, disk.call = file, lambda: swap.run(unit.writer.call)
    assert back_up(sim).state is SUCCEEDED
    assert disk.file == ""
    assert contents(log) == cleaned
    assert snapshot(restored(sim))["orders-0"] == (0, 10, cleaned)


@pytest.mark.parametrize("suffix", [".log", ".index"])
def test_what_retention_takes_at_the_last_moment_is_not_there(suffix: str) -> None:
    disk = calling_disk()
    sim = with_data(disk)
    log = log_of(sim, "orders")
    before = snapshot(sim)["orders-0"]

    def retain() -> None:
        assert sim.delete_records("orders", 5).result == 5
        sim.manager.retention.retain(log)

    disk.file, disk.call = f"{FIRST}{suffix}", retain
    assert back_up(sim).state is SUCCEEDED
    start, end, batches = snapshot(restored(sim))["orders-0"]
    assert (start, end) == (3, 10)
    assert batches == [each for each in before[2] if each[0] >= 3]


def test_the_active_segment_of_a_first_try_is_whole_in_the_second() -> None:
    """It was copied as far as it was; when it has been rolled since, that is not all of it."""
    disk = calling_disk()
    sim = with_data(disk)

    def roll_and_vanish() -> None:
        fill(sim, "orders", 0, 4, first=10)
        raise FileNotFoundError(errno.ENOENT, "no such file")

    disk.file, disk.call = f"{FIRST}.log", roll_and_vanish
    assert back_up(sim).state is SUCCEEDED
    after = snapshot(sim)["orders-0"]
    assert snapshot(restored(sim))["orders-0"] == after


def test_a_topic_that_is_deleted_at_the_last_moment_leaves() -> None:
    disk = calling_disk()
    sim = with_data(disk)

    def delete() -> None:
        sim.operations.topics.delete("orders")
        sim.operations.topics.create("orders", 3)

    disk.file, disk.call = f"{FIRST}.log", delete
    operation = back_up(sim)
    assert operation.state is SUCCEEDED
    assert operation.result["deleted_topics"] == ["orders"]
    copy = restored(sim)
    assert copy.operations.topic_names() == ["users"]
    assert not any("orders" in name for path in NEW_DIRS for name in copy.disk.list_dir(path))


@pytest.mark.parametrize("seed", range(24))
def test_segments_are_cleaned_meanwhile(seed: int) -> None:
    sim = with_data(new_disk(), seed)
    unit = sim.manager.logs.unit_of(log_of(sim, "orders"))
    before = snapshot(sim)["orders-0"]
    backup = Backing(sim, may_link=seed % 2 == 0)
    swap, cleaned = cleaned_segment(sim)

    def clean() -> None:
        swap.run(unit.writer.call)

    run_together(sim, backup.run, clean)
    assert backup.outcome == [None]
    found = snapshot(restored(sim))["orders-0"]
    assert found in (before, (before[0], before[1], cleaned))


STATE = PartitionState(
    segments=((0, 100), (10, 200), (20, 50)),
    active_index_bytes=(16, 12),
    log_start_offset=3,
    end_offset=25,
    snapshot_offsets=(2, 10, 20, 25),
)
FILES = {
    ".log": {0: 100, 10: 200, 20: 4096},
    ".index": {0: 8, 10: 16, 20: 4096},
    ".timeindex": {0: 12, 10: 24, 20: 4096},
    ".txnindex": {10: 34, 20: 34},
    ".snapshot": {2: 5, 10: 6, 20: 7, 25: 8},
}
LISTING = {
    **{
        segment_file_name(offset, suffix): size
        for suffix, sizes in FILES.items()
        for offset, size in sizes.items()
    },
    "partition.metadata": 43,
    "leader-epoch-checkpoint": 8,
    "something.else": 1,
}


def planned(state: PartitionState, listing: dict[str, int], *, is_linked: bool) -> dict[str, Any]:
    """How and how much, by name."""
    plan = plan_partition(state, listing, is_linked=is_linked)
    files = [file for files in plan.segments.values() for file in files]
    return {each.name: (each.is_link, each.size_bytes) for each in (*files, *plan.others)}


def test_links_and_copies() -> None:
    plan = plan_partition(STATE, LISTING, is_linked=True)
    assert list(plan.segments) == [20, 10, 0]
    link, copy = True, False
    assert planned(STATE, LISTING, is_linked=True) == {
        segment_file_name(20, ".log"): (copy, 50),
        segment_file_name(20, ".index"): (copy, 16),
        segment_file_name(20, ".timeindex"): (copy, 12),
        segment_file_name(10, ".log"): (link, 200),
        segment_file_name(10, ".index"): (link, 16),
        segment_file_name(10, ".timeindex"): (link, 24),
        segment_file_name(10, ".txnindex"): (copy, 34),
        segment_file_name(0, ".log"): (link, 100),
        segment_file_name(0, ".index"): (link, 8),
        segment_file_name(0, ".timeindex"): (link, 12),
        segment_file_name(10, ".snapshot"): (link, 6),
        segment_file_name(20, ".snapshot"): (link, 7),
        "partition.metadata": (copy, 43),
    }
    copies = planned(STATE, LISTING, is_linked=False)
    assert {how for how, _ in copies.values()} == {copy}
    assert copies.keys() == planned(STATE, LISTING, is_linked=True).keys()


def test_a_preallocated_segment_is_copied_as_far_as_it_is_written() -> None:
    longer = {**LISTING, segment_file_name(0, ".log"): 1 << 20}
    names = planned(STATE, longer, is_linked=True)
    assert names[segment_file_name(0, ".log")] == (False, 100)


MANIFEST = BackupManifest(
    format=FORMAT,
    is_complete=True,
    created_ms=1_700_000_000_000,
    cluster_id="abc",
    log_dirs=(
        BackupLogDir(
            name="log-dir-0",
            source="/data/ä",
            files={"meta.properties": BackupFile(10, 5)},
            partitions=(BackupPartition("a.b-c", 3, 5, 9, {"0.log": BackupFile(1 << 40, None)}),),
        ),
    ),
)


def test_the_manifest_comes_back() -> None:
    assert decode_manifest(encode_manifest(MANIFEST)) == MANIFEST
    assert MANIFEST.log_dirs[0].partitions[0].size_bytes == 1 << 40


def _changed(path: list[str | int], value: object) -> bytes:
    body = json.loads(encode_manifest(MANIFEST))
    place = body
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return json.dumps(body).encode()


_PARTITION: list[str | int] = ["log_dirs", 0, "partitions", 0]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["format"], 2),
        (["format"], True),
        (["complete"], 1),
        (["log_dirs"], {}),
        (["log_dirs", 0], "x"),
        (["log_dirs", 0, "name"], "../etc"),
        (["log_dirs", 0, "name"], "log-dir-0/.."),
        (["log_dirs", 0, "files"], {"../x": [1, 2]}),
        (["log_dirs", 0, "files"], {"..": [1, 2]}),
        (["log_dirs", 0, "files"], {"a/b": [1, 2]}),
        (["log_dirs", 0, "files"], {"a": [1]}),
        (["log_dirs", 0, "files"], {"a": [-1, 2]}),
        (["log_dirs", 0, "files"], {"a": ["1", 2]}),
        (["log_dirs", 0, "files"], {"a": None}),
        ([*_PARTITION, "topic"], ".."),
        ([*_PARTITION, "topic"], "a/b"),
        ([*_PARTITION, "partition"], -1),
        ([*_PARTITION, "partition"], "0"),
        ([*_PARTITION, "end_offset"], None),
    ],
)
def test_another_manifest_is_refused(path: list[str | int], value: object) -> None:
    with pytest.raises(FormatError):
        decode_manifest(_changed(path, value))


@pytest.mark.parametrize("data", [b"", b"[]", b"1", b"\xff", b"{}", b"[" * 100_000])
def test_what_is_no_manifest_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        decode_manifest(data)
