"""Goal: a partition that no log directory holds is never made anew, empty, without being told so.
Method: a whole manager on a simulated disk whose log.dirs lose entries, disks and directories.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.broker.directory.log_dir import REGISTRY_FILE
from kafkalog.broker.topics.registry import RegisteredTopic, decode_registry
from kafkalog.errors import DiskFull, LogDirOffline
from kafkalog.format.disk.properties import decode_meta_properties
from kafkalog.format.topic_names import encode_id
from tests.sim.sim_crash import CrashMode
from tests.sim.sim_faults import Fault
from tests.sim.sim_manager import DIRS, SimManager, batch_of

if TYPE_CHECKING:
    from tests.sim.sim_filesystem import SimFilesystem

A, B = DIRS
_CREATE = frozenset({"create"})


def manager_on(
    disk: SimFilesystem | None = None, log_dirs: tuple[str, ...] = DIRS, *, give_up: bool = False
) -> SimManager:
    seed = 0 if disk is None else disk.generation
    config = BrokerConfig(log_dirs=log_dirs, create_missing_partitions=give_up)
    return SimManager(disk, seed=seed, config=config)


def stopped_with_a_record_in_each() -> SimFilesystem:
    """Topic t: partition 0 in one directory, 1 in the other."""
    sim = manager_on().start()
    sim.operations.topics.create("t", 2)
    for partition in range(2):
        assert sim.produce("t", batch_of("v"), partition=partition).error is None
    return sim.stop()


def partition_in(disk: SimFilesystem, log_dir: str) -> int:
    return next(number for number in range(2) if disk.exists(f"{log_dir}/t-{number}"))


def directory_id(disk: SimFilesystem, log_dir: str) -> str:
    found = decode_meta_properties(disk.read_file(f"{log_dir}/meta.properties")).directory_id
    assert found is not None
    return encode_id(found)


def lines_of(lines: list[Any], event: str) -> list[Any]:
    return [line for line in lines if line["event"] == event]


def assert_all_served(sim: SimManager) -> None:
    for partition in range(2):
        assert sim.operations.partition_log("t", partition).log_end_offset == 1


def test_an_entry_left_out_keeps_its_partitions_offline() -> None:
    """The missing directory is named, the rest serves, nothing is made in its place."""
    disk = stopped_with_a_record_in_each()
    lost, kept = partition_in(disk, A), partition_in(disk, B)
    identity = directory_id(disk, A)
    sim = manager_on(disk, (B,))
    with capture_logs() as lines:
        sim.start()
    with pytest.raises(LogDirOffline, match=identity):
        sim.operations.partition_log("t", lost)
    assert sim.operations.partition_log("t", kept).log_end_offset == 1
    (line,) = lines_of(lines, "partition_offline")
    assert line["partition"] == f"t-{lost}"
    assert f"{identity} (last at {A})" in line["reason"]
    assert "create.missing.partitions=true" in line["remedy"]
    (missing,) = lines_of(lines, "log_dir_missing")
    assert (missing["directory_id"], missing["last_path"]) == (identity, A)
    assert sim.operations.readiness().offline_partitions == 1
    again = sim.stop()
    assert not again.exists(f"{B}/t-{lost}")
    assert_all_served(manager_on(again).start())


@pytest.mark.parametrize("is_made", [False, True])
def test_a_replaced_disk_keeps_its_partitions_offline(*, is_made: bool) -> None:
    """An empty directory at the same path is another directory: it joins, and that is all."""
    disk = stopped_with_a_record_in_each()
    lost, identity = partition_in(disk, A), directory_id(disk, A)
    disk.remove_tree(A)
    if is_made:
        disk.make_dir(A)
    for _ in range(2):
        sim = manager_on(disk).start()
        with pytest.raises(LogDirOffline, match=identity):
            sim.operations.partition_log("t", lost)
        assert directory_id(disk, A) != identity
        sim.operations.topics.create(f"new{disk.generation}", 2)
        disk = sim.stop()
    assert not disk.exists(f"{A}/t-{lost}")


def test_a_partition_directory_that_vanished_is_not_made_anew() -> None:
    """Also where every log directory is there."""
    disk = stopped_with_a_record_in_each()
    lost = partition_in(disk, A)
    disk.remove_tree(f"{A}/t-{lost}")
    sim = manager_on(disk).start()
    with pytest.raises(LogDirOffline, match="its directory was removed"):
        sim.operations.partition_log("t", lost)


def test_the_operator_gives_the_records_up() -> None:
    """Told so once, the daemon makes them, empty, and forgets the missing directory."""
    disk = stopped_with_a_record_in_each()
    lost = partition_in(disk, A)
    sim = manager_on(disk, (B,), give_up=True)
    with capture_logs() as lines:
        sim.start()
    assert [line["partition"] for line in lines_of(lines, "partition_missing_created_empty")] == [
        f"t-{lost}"
    ]
    assert [line["last_path"] for line in lines_of(lines, "log_dir_forgotten")] == [A]
    assert sim.produce("t", batch_of("v"), partition=lost).error is None
    with capture_logs() as lines:
        again = manager_on(sim.stop(), (B,)).start()
    assert not lines_of(lines, "log_dir_missing")
    assert_all_served(again)


@pytest.mark.parametrize("file", ["meta.properties", "recovery-point-offset-checkpoint"])
def test_a_missing_directory_is_named_also_beside_an_offline_one(file: str) -> None:
    """Who looks for partitions learns of every directory that may hold them."""
    third = "/data/c"
    disk = manager_on(stopped_with_a_record_in_each(), (A, B, third)).start().stop()
    identity = directory_id(disk, third)
    disk.faults.add(Fault(kinds=frozenset({"read"}), path_contains=f"{B}/{file}", times=10**6))
    with capture_logs() as lines:
        manager_on(disk, (A, B)).start()
    missing = [
        (line["directory_id"], line["last_path"]) for line in lines_of(lines, "log_dir_missing")
    ]
    assert missing == [(identity, third)]
    assert [line["count"] for line in lines_of(lines, "partitions_offline")] == [1]


def test_a_directory_without_partitions_is_forgotten() -> None:
    """Whoever emptied a directory and took it out of log.dirs has nothing more to do."""
    disk = stopped_with_a_record_in_each()
    disk = manager_on(disk, (*DIRS, "/data/c")).start().stop()
    assert len(decode_registry(disk.read_file(f"{A}/kafkalog.registry")).log_dirs) == 3
    sim = manager_on(disk).start()
    assert_all_served(sim)
    assert len(decode_registry(sim.stop().read_file(f"{A}/kafkalog.registry")).log_dirs) == 2


@pytest.mark.parametrize("mode", list(CrashMode))
def test_a_creation_that_a_crash_cut_off_is_completed(mode: CrashMode) -> None:
    """Nobody is asked for partitions that never were; afterwards they count as made."""
    sim = manager_on().start()
    registry = sim.manager.registry
    topic = RegisteredTopic(UUID(int=7), "u", 3)
    log_dirs = [unit.log_dir for unit in sim.manager.units]
    registry.change(registry.state.with_new_topics([topic]), log_dirs)
    again = manager_on(sim.disk.crash(mode)).start()
    for partition in range(3):
        assert again.operations.partition_log("u", partition).log_end_offset == 0
    assert not again.manager.registry.state.in_making


def test_a_creation_that_was_not_taken_back_outlives_the_next_one() -> None:
    """A topic that a full disk left half made is completed, also when others were made since."""
    sim = manager_on().start()
    faults = sim.disk.faults
    faults.add(Fault(error=errno.ENOSPC, kinds=frozenset({"make_dir"}), path_contains="/t-1"))
    unregistered = 1 + len(DIRS)  # the registration is one file a directory
    faults.add(
        Fault(error=errno.ENOSPC, kinds=_CREATE, path_contains=REGISTRY_FILE, nth=unregistered)
    )
    with pytest.raises(DiskFull):
        sim.operations.topics.create("t", 2)
    sim.operations.topics.create("u", 1)
    again = manager_on(sim.kill()).start()
    for partition in range(2):
        assert again.operations.partition_log("t", partition).log_end_offset == 0
    assert not again.manager.registry.state.in_making


def test_a_growth_that_a_disk_kept_is_completed() -> None:
    """What was registered in one directory and taken back in the others never was lost."""
    sim = manager_on().start()
    sim.operations.topics.create("t", 1)
    sim.disk.faults.add(
        Fault(error=errno.ENOSPC, kinds=_CREATE, path_contains=REGISTRY_FILE, nth=2, times=3)
    )
    with pytest.raises(DiskFull):
        sim.operations.topics.create_partitions("t", 3)
    sim.clock.advance_ms(10 * 60_000)
    disk = sim.kill()
    assert not any(name.startswith(("t-1", "t-2")) for each in DIRS for name in disk.list_dir(each))
    again = manager_on(disk).start()
    for partition in range(3):
        assert again.operations.partition_log("t", partition).log_end_offset == 0
    assert not again.manager.registry.state.in_making


def test_a_topic_that_was_made_is_no_longer_in_making() -> None:
    """The answer to a creation says that all partitions are there, and so does the registry."""
    sim = manager_on().start()
    sim.operations.topics.create("t", 2)
    assert not decode_registry(sim.disk.read_file(f"{A}/kafkalog.registry")).in_making
