"""Goal: an answered commit of a group survives a crash, and so does an answered deletion.
Method: cut the power at every disk call of commits, a deletion and the topic's creation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.format.disk.group_offsets import CommittedOffset
from kafkalog.format.topic_names import TopicPartition
from tests.crash.after_a_start import anywhere, durable
from tests.sim.crash_enumeration import CrashPoint, enumerate_crashes
from tests.sim.sim_manager import DIRS, SimManager, batch_of

if TYPE_CHECKING:
    from tests.sim.sim_filesystem import SimFilesystem

CONFIG = BrokerConfig(log_dirs=DIRS, offsets_topic_num_partitions=1)
T0 = TopicPartition("t", 0)


@dataclass
class Promises:
    """What was asked for and what was answered, in order: the group's offset, None when deleted."""

    asked: list[int | None] = field(default_factory=lambda: [None])
    answered: int = 0  # of ``asked``, by index


def started(disk: SimFilesystem, seed: int) -> SimManager:
    sim = SimManager(disk, seed=seed, config=CONFIG).start()
    sim.clock.advance_ms(1)  # groups are loaded
    return sim


def disk_with_records() -> SimFilesystem:
    sim = SimManager(config=CONFIG).start().with_topic("t", 1)
    sim.produce("t", batch_of(*"abcdefghi"))
    return durable(sim)


def committed(sim: SimManager) -> int | None:
    found = sim.manager.group_offsets.committed("g").get(T0)
    return None if found is None else found.offset


def work(disk: SimFilesystem, promises: Promises) -> None:
    """Commit, commit, delete, commit: the first one makes the topic."""
    sim = SimManager(disk, seed=1, config=CONFIG)
    try:
        sim.start()
        sim.clock.advance_ms(1)
        groups = sim.manager.group_offsets
        groups.create_topic()
        for offset in (3, 5, None, 7):
            promises.asked.append(offset)
            if offset is None:
                groups.delete("g")
            else:
                answers: list[object] = []
                value = CommittedOffset(offset, "", sim.clock.wall_ms())
                groups.submit("g", {T0: value}, answers.append)
                sim.threads.run_until(lambda answers=answers: bool(answers))  # type: ignore[misc] # bound now
                assert answers == [None]
            promises.answered = len(promises.asked) - 1
    finally:
        sim.threads.kill_all()


def check(disk: SimFilesystem, promises: Promises, point: CrashPoint) -> None:
    """What was answered, or what was asked for after it; the same at the next start."""
    first = started(disk, seed=2)
    found = committed(first)
    assert found in promises.asked[promises.answered :]
    first.manager.group_offsets.create_topic()
    first.threads.kill_all()
    again = started(first.disk.kill(), seed=3)
    assert committed(again) == found
    again.threads.kill_all()


@pytest.mark.parametrize(("stride", "least"), [(9, 30), anywhere(1, 300)])
def test_answered_commits_survive(stride: int, least: int) -> None:
    """M24. As above, at every ninth call or at every one."""
    checked = enumerate_crashes(
        Promises, work, check, new_disk=disk_with_records, seeds=1, stride=stride
    )
    assert checked > least
