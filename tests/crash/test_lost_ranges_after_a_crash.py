"""Goal: a loss that a load finds is refused after a crash anywhere in that load.
Method: take the end of a log that nothing but the checkpoint knows, stop the load at every call.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.partition_world import DIRECTORY
from tests.sim.crash_enumeration import enumerate_crashes
from tests.sim.sim_crash import CrashMode
from tests.unit.test_lost_ranges import COUNT, SEGMENTED, outcome, world_of

if TYPE_CHECKING:
    from tests.sim.crash_enumeration import CrashPoint
    from tests.sim.sim_filesystem import SimFilesystem


@pytest.mark.parametrize("kept", [0, 1])
def test_a_lost_end_is_refused_after_a_crash_of_the_load(kept: int) -> None:
    """Cut to so many batches; a compacted log, where a gap proves nothing."""
    world = world_of(replace(SEGMENTED, cleanup_policy=frozenset({"compact"})))
    base = world.bases()[-1]
    size = world.log.segments.active.size_bytes // (COUNT - base)
    world.log.close_handles()
    world.filesystem.open_write(f"{DIRECTORY}/{base:020d}.log").truncate(kept * size)
    world.filesystem.sync_all()
    before = world.filesystem
    first = base + kept
    expected = {n: (first, COUNT - 1) if n >= first else n for n in range(COUNT)}

    def load(disk: SimFilesystem, _: None) -> None:
        world.filesystem = disk
        world.open(clean=False, recovery_point=COUNT)

    def check(disk: SimFilesystem, _: None, _point: CrashPoint) -> None:
        load(disk, None)
        assert outcome(world) == expected
        world.log.close_handles()

    checked = enumerate_crashes(
        lambda: None,
        load,
        check,
        new_disk=lambda: before.crash(CrashMode.DROP_ALL),
        modes=(CrashMode.DROP_ALL, CrashMode.SUBSET),
        seeds=2,
    )
    assert checked > 50
