"""Goal: after a crash no archived offset is forgotten, and none is ahead of what its log holds.
Method: cut the power at every disk call of appends and raises, in all modes; look in two lives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from kafkalog.broker.values import Acks
from kafkalog.log.values import Isolation
from tests.crash.after_a_start import anywhere, crashes_after_a_start, durable
from tests.sim.sim_crash import CrashMode
from tests.sim.sim_manager import SimManager, batch_of

if TYPE_CHECKING:
    from tests.sim.crash_enumeration import CrashPoint
    from tests.sim.sim_filesystem import SimFilesystem


@dataclass
class Told:
    """The archived offset of the last answer, and of the last question."""

    answered: int = 0
    asked: int = 0


def disk_with_a_topic() -> SimFilesystem:
    sim = SimManager().start().with_topic("t", 1, {"archive.hold": "true"})
    return durable(sim)


def archives(sim: SimManager, told: Told) -> None:
    """Records that nobody waits for, then the archive has them."""
    for end in (2, 4):
        assert sim.produce("t", batch_of("a", "b"), Acks.LEADER).error is None
        told.asked = end
        told.answered = sim.operations.retention.raise_archived_offsets("t", {0: end})[0]


def check(disk: SimFilesystem, told: Told, point: CrashPoint) -> None:
    """Also when the offset was noted though nobody was told."""
    for _ in range(2):
        sim = SimManager(disk, seed=2).start()
        (archived,) = sim.operations.retention.archived_offsets("t")
        assert told.answered <= archived.archived_offset <= told.asked
        log = sim.operations.partition_log("t", 0)
        assert archived.archived_offset <= log.log_end_offset
        if archived.archived_offset:
            found = log.read(0, 1 << 20, Isolation.HIGH_WATERMARK)
            assert found.next_offset >= archived.archived_offset
        sim.threads.kill_all()
        disk = sim.disk.crash(CrashMode.DROP_ALL, 0)


@pytest.mark.parametrize(("stride", "least"), [(7, 5), anywhere(1, 30)])
def test_the_archive_is_never_ahead_after_a_crash(stride: int, least: int) -> None:
    """M09 M14 M25: at some calls or at every one."""
    checked = crashes_after_a_start(Told, archives, check, disk_with_a_topic, stride=stride)
    assert checked > least
