"""A manager's work is stopped at each call after its start; starts are stopped by other tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import pytest

from tests.sim.crash_enumeration import CrashPoint, enumerate_crashes
from tests.sim.sim_manager import SimManager

if TYPE_CHECKING:
    from collections.abc import Callable

    from _pytest.mark import ParameterSet

    from tests.sim.sim_filesystem import SimFilesystem

State = TypeVar("State")


def plain_start(disk: SimFilesystem) -> SimManager:
    """With the settings that most stories have."""
    return SimManager(disk, seed=1).start()


def durable(sim: SimManager) -> SimFilesystem:
    """The disk of a manager that stopped, every byte of it synced."""
    disk = sim.stop()
    disk.sync_all()
    return disk


def anywhere(*values: object) -> ParameterSet:
    """Parameters of a test that stops at every call: slow."""
    return pytest.param(*values, marks=[pytest.mark.slow, pytest.mark.timeout(900)])


def workload(
    story: Callable[[SimManager, State], None],
    start: Callable[[SimFilesystem], SimManager] = plain_start,
) -> Callable[[SimFilesystem, State], None]:
    """A life that does the story and is killed."""

    def work(disk: SimFilesystem, state: State) -> None:
        sim = start(disk)
        try:
            story(sim, state)
        finally:
            sim.threads.kill_all()

    return work


def crashes_after_a_start(
    new_state: Callable[[], State],
    story: Callable[[SimManager, State], None],
    check: Callable[[SimFilesystem, State, CrashPoint], None],
    new_disk: Callable[[], SimFilesystem],
    *,
    stride: int,
    seeds: int = 1,
    start: Callable[[SimFilesystem], SimManager] = plain_start,
) -> int:
    """Every stride-th call after the start, in every mode; how many states were checked."""
    disk = new_disk()
    before = len(disk.operations)
    start(disk).threads.kill_all()
    first = len(disk.operations) - before
    work = workload(story, start)
    return enumerate_crashes(
        new_state, work, check, new_disk=new_disk, seeds=seeds, stride=stride, first=first
    )
