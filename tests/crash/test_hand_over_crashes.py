"""Goal: an adoption, or a hand-back, that is cut off at any call leaves directories that kafkalog
takes, that a hand-back gives to Kafka as it left them, and another run finishes it.
Method: a power cut in every mode and a kill at each call; on each state a start of the daemon, the
other command, and the same once more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkalog.broker.startup.adoption import plan_adoption
from kafkalog.broker.startup.hand_back import plan_hand_back
from tests.crash.after_a_start import anywhere
from tests.hand_over_world import (
    KINDS,
    check_adopted,
    check_as_left,
    check_serves,
    copy_of,
    hand_over,
    left_by,
    log_bytes,
    started,
)
from tests.sim.crash_enumeration import CrashPoint, enumerate_crashes

if TYPE_CHECKING:
    from tests.sim.sim_filesystem import SimFilesystem


def adopt(disk: SimFilesystem, _state: None) -> None:
    hand_over(disk, plan_adoption, is_executed=True)


def give_back(disk: SimFilesystem, _state: None) -> None:
    hand_over(disk, plan_hand_back, is_executed=True)


def check_start(disk: SimFilesystem) -> None:
    """On a copy, so that the start is not what finishes the work."""
    disk.sync_all()
    sim = started(copy_of(disk))
    check_serves(sim)
    sim.threads.kill_all()


@pytest.mark.parametrize(
    ("kind", "stride", "least"), [("2.8", 7, 25), *(anywhere(kind, 1, 100) for kind in KINDS)]
)
def test_an_adoption_that_is_cut_off(kind: str, stride: int, least: int) -> None:
    """M02 M14: the daemon takes the directories, and a hand-back gives them to Kafka again."""

    def check(disk: SimFilesystem, _state: None, _point: CrashPoint) -> None:
        check_adopted(disk, kind)
        check_start(disk)
        other = copy_of(disk)
        hand_over(other, plan_hand_back, is_executed=True)
        check_as_left(other, kind)
        plan = hand_over(disk, plan_adoption, is_executed=True, seed=8)
        assert not plan.is_refused
        check_adopted(disk, kind)
        assert hand_over(disk, plan_adoption, is_executed=False, seed=9).changes == []
        check_start(disk)

    base = left_by(kind)
    checked = enumerate_crashes(
        lambda: None, adopt, check, new_disk=lambda: copy_of(base), seeds=1, stride=stride
    )
    assert checked > least


@pytest.mark.parametrize(("stride", "least"), [(5, 30), anywhere(1, 100)])
def test_a_hand_back_that_is_cut_off(stride: int, least: int) -> None:
    """M02 M14: of 1.1, so that there are topic ids to take out."""
    base = left_by("1.1")
    adopt(base, None)
    base = started(base).stop()
    base.sync_all()
    logs = log_bytes(base)

    def check(disk: SimFilesystem, _state: None, _point: CrashPoint) -> None:
        assert log_bytes(disk) == logs
        check_start(disk)
        plan = hand_over(disk, plan_hand_back, is_executed=True)
        assert not plan.is_refused
        check_as_left(disk, "1.1")
        assert hand_over(disk, plan_hand_back, is_executed=False).changes == []
        check_start(disk)

    checked = enumerate_crashes(
        lambda: None, give_back, check, new_disk=lambda: copy_of(base), seeds=1, stride=stride
    )
    assert checked > least
