"""Goal: a directory that fails while a topic is made costs that directory, never records.
Method: a whole manager on the simulated disk; calls of a creation fail in turn, then a restart.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.broker.directory.log_dir import REGISTRY_FILE
from kafkalog.broker.topics.registry import decode_registry
from kafkalog.broker.values import ConfigChange
from kafkalog.errors import DiskFull, KafkalogError, NotReady, StorageFault, UnknownTopic
from tests.sim.sim_faults import MUTATING, Fault
from tests.sim.sim_manager import DIRS, SimManager, batch_of

if TYPE_CHECKING:
    from tests.sim.sim_filesystem import SimFilesystem

CALLS = MUTATING | {"open"}


def calls_of_a_creation() -> int:
    sim = SimManager().start()
    counter = sim.disk.faults.add(Fault(kinds=CALLS, path_contains="/t-", nth=10**9))
    sim.operations.topics.create("t", 2)
    return counter.seen


def served(sim: SimManager) -> list[int]:
    return [sim.operations.partition_log("t", number).log_end_offset for number in (0, 1)]


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_the_next_directory_takes_the_partitions(error: int) -> None:
    """M15: the topic is made all the same; no left-over is in the way of the next start."""
    count = calls_of_a_creation()
    assert count > 10
    for nth in range(1, count + 1, 2):
        sim = SimManager().start()
        sim.disk.faults.add(Fault(error=error, kinds=CALLS, path_contains="/t-", nth=nth))
        sim.operations.topics.create("t", 2)
        for number in (0, 1):
            assert sim.produce("t", batch_of("a"), partition=number).error is None, f"call {nth}"
        assert sim.operations.readiness().offline_dirs == (1 if error == errno.EIO else 0)
        sim.disk.faults.clear()
        again = SimManager(sim.stop()).start()
        assert served(again) == [1, 1], f"call {nth}"
        homes = [
            path for path in DIRS for name in ("t-0", "t-1") if sim.disk.exists(f"{path}/{name}")
        ]
        assert len(homes) == 2


def test_a_second_try_does_not_inherit_the_first_ones_id() -> None:
    """M15: else the next start would take the new records for those of a dead topic."""
    count = calls_of_a_creation()
    for nth in range(1, count + 1, 2):
        sim = SimManager(config=BrokerConfig(log_dirs=DIRS[:1])).start()
        fault = Fault(error=errno.ENOSPC, kinds=CALLS, path_contains="/t-", nth=nth, times=3)
        sim.disk.faults.add(fault)
        with pytest.raises(StorageFault):
            sim.operations.topics.create("t", 2)
        sim.disk.faults.clear()
        sim.clock.advance_ms(1_000)
        sim.operations.topics.create("t", 2)
        for number in (0, 1):
            assert sim.produce("t", batch_of("a"), partition=number).error is None, f"call {nth}"
        again = SimManager(sim.stop(), config=BrokerConfig(log_dirs=DIRS[:1])).start()
        assert served(again) == [1, 1], f"call {nth}"


def test_a_topic_in_creation_is_not_called_offline() -> None:
    """M15: requests between its registration and its logs are told to come back."""
    sim = SimManager().start()
    seen: list[type[KafkalogError]] = []

    def look() -> None:
        try:
            sim.operations.partition_log("t", 1)
        except KafkalogError as error:
            seen.append(type(error))

    for _ in range(2):
        sim.disk.on_call = look
        sim.operations.topics.create("t", 2)
        sim.disk.on_call = None
        assert set(seen) == {UnknownTopic, NotReady}
        seen.clear()
        assert served(sim) == [0, 0]
        sim.operations.topics.delete("t")


def test_what_a_full_disk_kept_of_a_deleted_topic_goes_when_it_is_made_again() -> None:
    """M14 M15: its directory was not renamed; it takes no space for ever as somebody's stray."""
    sim = SimManager(config=BrokerConfig(log_dirs=DIRS[:1])).start()
    sim.operations.topics.create("t", 2)
    for number in (0, 1):
        assert sim.produce("t", batch_of("old"), partition=number).error is None
    kinds = frozenset({"rename"})
    sim.disk.faults.add(Fault(error=errno.ENOSPC, kinds=kinds, path_contains="/t-", times=9))
    sim.operations.topics.delete("t")
    sim.disk.faults.clear()
    assert {"t-0", "t-1"} <= set(sim.disk.list_dir(DIRS[0]))
    sim.clock.advance_ms(300)
    sim.operations.topics.create("t", 1)
    assert sim.produce("t", batch_of("new")).error is None
    sim.clock.advance_ms(120_000)
    left = [name for name in sim.disk.list_dir(DIRS[0]) if name.startswith("t")]
    assert left == ["t-0", "t-1"]
    again = SimManager(sim.stop(), seed=1, config=sim.config).start()
    assert again.operations.partition_log("t", 0).log_end_offset == 1
    again.clock.advance_ms(120_000)
    left = [name for name in again.disk.list_dir(DIRS[0]) if name.startswith("t")]
    assert left == ["t-0"]


def test_what_somebody_put_into_the_place_of_a_new_partition_is_kept() -> None:
    """M14: an id that was never deleted may be wanted: it is put aside."""
    sim = SimManager(config=BrokerConfig(log_dirs=DIRS[:1])).start()
    sim.operations.topics.create("other", 1)
    metadata = sim.disk.read_file(f"{DIRS[0]}/other-0/partition.metadata")
    sim.disk.make_dir(f"{DIRS[0]}/t-0")
    sim.disk.write_file_atomically(f"{DIRS[0]}/t-0/partition.metadata", metadata)
    sim.operations.topics.create("t", 1)
    sim.clock.advance_ms(120_000)
    names = [name for name in sim.disk.list_dir(DIRS[0]) if name.startswith("t-0")]
    assert [name.rpartition("-")[2] for name in names] == ["0", "stray"]


THREE = (*DIRS, "/data/c")


def full(path: str) -> Fault:
    """Nothing is made or written there any more."""
    kinds = frozenset({"create", "write"})
    return Fault(error=errno.ENOSPC, kinds=kinds, path_contains=f"{path}/", times=10**6)


def managed(disk: SimFilesystem | None = None, log_dirs: tuple[str, ...] = THREE) -> SimManager:
    config = BrokerConfig(log_dirs=log_dirs, log_dir_min_free_bytes=0)
    return SimManager(disk, config=config).start()


def retention_in(sim: SimManager, path: str) -> str | None:
    """Of topic t, as the registry of one directory has it."""
    state = decode_registry(sim.disk.read_file(f"{path}/{REGISTRY_FILE}"))
    return state.topics["t"].overrides.get("retention.ms") if "t" in state.topics else None


@pytest.mark.parametrize("lost", THREE)
def test_a_full_disk_holds_up_no_change_that_two_others_took(lost: str) -> None:
    """M13 M15: topics are made and altered; the loss of any directory loses no change. One full
    disk of three does not stop administration, nor make the registry less durable.
    """
    sim = managed()
    sim.operations.topics.create("t", 1)
    fault = sim.disk.faults.add(full(THREE[2]))
    sim.operations.topics.alter_configs("t", [ConfigChange("retention.ms", "7")])
    sim.operations.topics.create("u", 4)
    sim.operations.topics.create_partitions("t", 2)
    assert [retention_in(sim, path) for path in THREE] == ["7", "7", None]
    assert all(sim.produce("u", batch_of("v"), partition=n).error is None for n in range(4))
    disk = sim.kill()
    disk.faults.add(fault)
    left = managed(disk, tuple(path for path in THREE if path != lost))
    assert left.manager.registry.topics["t"].overrides["retention.ms"] == "7"
    assert left.operations.partition_count("t") == 2
    disk = left.kill()
    disk.faults.clear()
    again = managed(disk)
    assert len({again.disk.read_file(f"{path}/{REGISTRY_FILE}") for path in THREE}) == 1
    assert all(again.manager.log_of("u", number).log_end_offset == 1 for number in range(4))


def test_one_directory_with_room_is_too_few() -> None:
    """M13 M15: what only one of three holds may be lost with it. A change is refused rather than
    kept in one place.
    """
    sim = managed()
    sim.operations.topics.create("t", 1)
    for path in THREE[1:]:
        sim.disk.faults.add(full(path))
    with pytest.raises(DiskFull):
        sim.operations.topics.alter_configs("t", [ConfigChange("retention.ms", "7")])
    assert "retention.ms" not in sim.operations.topics.describe("t").overrides
    sim.disk.faults.clear()
    sim.disk.faults.add(full(THREE[2]))
    sim.operations.topics.alter_configs("t", [ConfigChange("retention.ms", "8")])
    assert [retention_in(sim, path) for path in THREE[:2]] == ["8", "8"]
