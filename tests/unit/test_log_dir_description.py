"""Goal: the description of the log directories is true, costs no disk, and names what is offline.
Method: a whole manager on the twins; the disk counts its calls and fails on demand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.broker.values import Acks
from tests.sim.sim_faults import Fault
from tests.sim.sim_manager import DIRS, SimManager, batch_of

if TYPE_CHECKING:
    from kafkalog.broker.values import LogDirDescription


def sizes(description: LogDirDescription) -> dict[str, int]:
    """Bytes by partition, in the order of the description."""
    return {str(each.topic_partition): each.size_bytes for each in description.partitions}


def filled() -> SimManager:
    """Two topics over two directories, with records in some of their partitions."""
    sim = SimManager().start()
    sim.operations.topics.create("b", 11)
    sim.operations.topics.create("a", 2)
    for topic, partition in (("a", 0), ("a", 1), ("b", 10)):
        for _ in range(partition + 1):
            assert sim.produce(topic, batch_of("v"), partition=partition).error is None
    return sim


def test_every_partition_with_its_bytes() -> None:
    """M14: in the order of log.dirs, sorted by topic and number; what the .log files hold."""
    sim = filled()
    described = sim.operations.log_dirs.describe()
    assert [each.path for each in described] == list(DIRS)
    assert sum(len(each.partitions) for each in described) == 13
    for each in described:
        keys = [partition.topic_partition for partition in each.partitions]
        assert keys == sorted(keys)
        for name, size in sizes(each).items():
            assert sim.disk.exists(f"{each.path}/{name}")
            data = sim.disk.read_file(f"{each.path}/{name}/00000000000000000000.log")
            assert size == len(data)
    batch = len(batch_of("v"))
    every = {name: size for each in described for name, size in sizes(each).items()}
    assert {name: size for name, size in every.items() if size} == {
        "a-0": batch, "a-1": 2 * batch, "b-10": 11 * batch
    }  # fmt: skip


def test_only_the_topics_asked_for() -> None:
    """M14: unknown ones have no partitions, as in Kafka's tool; the directories stay."""
    operations = filled().operations

    def names(*topics: str) -> list[str]:
        described = operations.log_dirs.describe(set(topics))
        assert [each.path for each in described] == list(DIRS)
        return sorted(name for each in described for name in sizes(each))

    assert names("a") == ["a-0", "a-1"]
    assert names("a", "nope") == ["a-0", "a-1"]
    assert names("nope", "../b") == []
    assert len(names("a", "b")) == len(names()) == 13


def test_a_cordoned_directory_says_so() -> None:
    """M14: cordoned.log.dirs; it is described like any other."""
    config = BrokerConfig(log_dirs=DIRS, cordoned_log_dirs=(DIRS[1],))
    sim = SimManager(config=config).start()
    assert [each.is_cordoned for each in sim.operations.log_dirs.describe()] == [False, True]
    assert [each.is_cordoned for each in SimManager().start().operations.log_dirs.describe()] == [
        False
    ] * 2


def test_space_is_known_from_the_start_and_measured_again() -> None:
    """M14: what a task measured; asking touches no disk."""
    sim = SimManager().start()

    def space() -> set[tuple[int, int]]:
        calls: list[str] = []
        sim.disk.on_call = lambda: calls.append("disk")
        found = {
            (each.total_bytes, each.usable_bytes) for each in sim.operations.log_dirs.describe()
        }
        sim.disk.on_call = None
        assert calls == []
        return found

    ((total, usable),) = space()
    assert (total, usable) == sim.disk.space(DIRS[0])
    sim.operations.topics.create("t", 1)
    for _ in range(3):
        assert sim.produce("t", batch_of("v" * 100_000), Acks.ALL).error is None
    assert space() == {(total, usable)}
    sim.clock.advance_ms(10_000)
    ((same_total, less),) = space()
    assert same_total == total
    assert less <= usable - 300_000
    assert (same_total, less) == sim.disk.space(DIRS[0])


def test_an_offline_directory_names_its_reason() -> None:
    """M15: no partitions, no space, the reason of the first failure; the other one is as it was."""
    sim = filled()
    before = sim.operations.log_dirs.describe()
    sim.disk.faults.add(Fault(kinds=frozenset({"space"}), path_contains=DIRS[1]))
    sim.clock.advance_ms(10_000)
    good, bad = sim.operations.log_dirs.describe()
    assert good.offline_reason is None
    assert good.partitions == before[0].partitions
    assert bad.path == DIRS[1]
    assert bad.offline_reason == f"Log directory {DIRS[1]} failed: simulated fault"
    assert (bad.total_bytes, bad.usable_bytes, bad.partitions) == (-1, -1, [])
    (fault,) = sim.task_faults
    assert fault[1].message == bad.offline_reason


def test_a_directory_that_was_never_opened_is_described() -> None:
    """M14 M15: offline since the start: the others load, and it is told with its reason."""
    sim = SimManager()
    sim.disk.faults.add(Fault(kinds=frozenset({"list"}), path_contains=DIRS[0]))
    sim.start()
    bad, good = sim.operations.log_dirs.describe()
    assert bad.path == DIRS[0]
    assert bad.offline_reason
    assert (bad.total_bytes, bad.usable_bytes, bad.partitions) == (-1, -1, [])
    assert good.offline_reason is None
    assert good.total_bytes > 0
