"""Goal: a change of a topic or of the broker is whole after a crash: the old state or the new one.
Method: cut the power at every disk call of each change, restart twice, compare all directories.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from kafkalog.broker.directory.log_dir import REGISTRY_FILE
from kafkalog.broker.topics.registry import decode_registry
from kafkalog.broker.values import ConfigChange
from kafkalog.format.topic_names import parse_directory_name
from tests.sim.crash_enumeration import CrashPoint, enumerate_crashes
from tests.sim.sim_crash import CrashMode
from tests.sim.sim_manager import DIRS, SimManager, batch_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sim.sim_filesystem import SimFilesystem

    Change = Callable[[SimManager], object]
    Seen = tuple[dict[str, str], dict[str, str], int]


def alter(sim: SimManager) -> None:
    changes = [ConfigChange("flush.messages", "7"), ConfigChange("retention.ms", None)]
    sim.operations.topics.alter_configs("t", changes)


def alter_broker(sim: SimManager) -> None:
    changes = [
        ConfigChange("log.flush.interval.ms", "70"),
        ConfigChange("log.retention.bytes", "9"),
    ]
    sim.operations.alter_broker_configs(changes)


def grow(sim: SimManager) -> None:
    sim.operations.topics.create_partitions("t", 4)


def several(sim: SimManager) -> None:
    alter_broker(sim)
    grow(sim)
    alter(sim)


@dataclass
class States:
    """What clients were told: the states that were in force, the last one perhaps."""

    steps: list[Seen] = field(default_factory=list)
    is_done: bool = False


def seen(sim: SimManager) -> Seen:
    """Overrides, broker configs and partition count in force."""
    topic = sim.operations.topics.describe("t")
    return (
        dict(topic.overrides),
        dict(sim.manager.registry.state.broker_configs),
        topic.partition_count,
    )


def disk_with_a_topic() -> SimFilesystem:
    sim = SimManager().start()
    sim.operations.topics.create("t", 2, {"retention.ms": "5"})
    sim.produce("t", batch_of("a"), partition=1)
    disk = sim.stop()
    disk.sync_all()
    return disk


def workload(change: Change) -> Callable[[SimFilesystem, States], None]:
    def work(disk: SimFilesystem, states: States) -> None:
        sim = SimManager(disk, seed=1)
        try:
            sim.start()
            states.steps.append(seen(sim))
            change(sim)
            states.steps.append(seen(sim))
            states.is_done = True
        finally:
            sim.threads.kill_all()

    return work


def check(allowed: list[Seen]) -> Callable[[SimFilesystem, States, CrashPoint], None]:
    def look(disk: SimFilesystem, states: States, point: CrashPoint) -> None:
        first = SimManager(disk, seed=2).start()
        found = seen(first)
        assert found in allowed
        if states.is_done:
            assert found == allowed[-1]
        check_whole(first)
        produced = first.produce("t", batch_of("b"), partition=found[2] - 1)
        assert produced.error is None
        first.threads.kill_all()
        again = SimManager(first.disk.crash(CrashMode.DROP_ALL, 0), seed=3).start()
        assert seen(again) == found
        check_whole(again)
        assert again.manager.logs.log_of("t", 1).log_end_offset >= 1
        assert again.manager.logs.log_of("t", found[2] - 1).log_end_offset >= 1
        again.threads.kill_all()

    return look


def check_whole(sim: SimManager) -> None:
    """All directories agree, every partition is there once and has the config in force."""
    overrides, broker, count = seen(sim)
    files = {sim.disk.read_file(f"{path}/{REGISTRY_FILE}") for path in DIRS}
    assert len(files) == 1
    state = decode_registry(files.pop())
    assert (dict(state.topics["t"].overrides), dict(state.broker_configs)) == (overrides, broker)
    config = sim.manager.logs.rules.topic_config(overrides, broker)
    assert [sim.manager.logs.log_of("t", number).config for number in range(count)] == [
        config
    ] * count
    assert len(sim.manager.logs.table) == count
    names = [
        parsed
        for path in DIRS
        for entry in sim.disk.list_dir_stats(path)
        if entry.is_dir and (parsed := parse_directory_name(entry.name))
    ]
    live = sorted(each.topic_partition.partition for each in names if each.state.name == "LIVE")
    assert live == list(range(count))
    assert not [each for each in names if each.state.name == "STRAY"]


def crash_everywhere(change: Change, stride: int) -> int:
    return enumerate_crashes(
        States,
        workload(change),
        check(allowed_states(change)),
        new_disk=disk_with_a_topic,
        seeds=1,
        stride=stride,
        first=calls_of_a_start(),
    )


@pytest.mark.parametrize(("change", "stride"), [(alter, 3), (alter_broker, 3), (grow, 17)])
def test_a_change_is_whole_after_a_crash(change: Change, stride: int) -> None:
    """M13 M14: at some calls, in every mode; what was answered is in force."""
    assert crash_everywhere(change, stride) > 10


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("change", [alter, alter_broker, grow, several])
def test_a_change_is_whole_after_a_crash_anywhere(change: Change) -> None:
    """M13 M14: as above, at every call."""
    assert crash_everywhere(change, 1) > 40


def calls_of_a_start() -> int:
    disk = disk_with_a_topic()
    before = len(disk.operations)
    SimManager(disk, seed=1).start().threads.kill_all()
    return len(disk.operations) - before


def allowed_states(change: Change) -> list[Seen]:
    """Before, between the steps, after."""
    steps = [alter_broker, grow, alter] if change is several else [change]
    sim = SimManager(disk_with_a_topic(), seed=1).start()
    states = [seen(sim)]
    for step in steps:
        step(sim)
        states.append(seen(sim))
    return states
