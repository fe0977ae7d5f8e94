"""A manager's work is stopped at each call after its start; starts are stopped by other tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from tests.sim.crash_enumeration import CrashPoint, enumerate_crashes
from tests.sim.sim_manager import SimManager

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sim.sim_filesystem import SimFilesystem

State = TypeVar("State")


def plain_start(disk: SimFilesystem) -> SimManager:
    """With the settings that most workloads have."""
    return SimManager(disk, seed=1).start()


def crashes_after_a_start(
    new_state: Callable[[], State],
    work: Callable[[SimFilesystem, State], None],
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
    return enumerate_crashes(
        new_state, work, check, new_disk=new_disk, seeds=seeds, stride=stride, first=first
    )
