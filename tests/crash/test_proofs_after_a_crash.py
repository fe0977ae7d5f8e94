"""Goal: what proves where a log ended is there until that end is durable.
Method: rot of the last batch's base offset and a recovery point of long ago; a load that is stopped
    at every call, and the next one, which finds the same records and gives no offset twice.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from tests.partition_world import DIRECTORY, batch
from tests.sim.crash_enumeration import enumerate_crashes
from tests.sim.sim_crash import CrashMode
from tests.unit.test_proofs import INDEXED, LOG, SIZE, replica, served

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.log.log_config import LogConfig
    from tests.partition_world import PartitionWorld
    from tests.sim.crash_enumeration import CrashPoint
    from tests.sim.sim_filesystem import SimFilesystem

# offsets of the log, its configuration, snapshots; what is served and refused whatever happens
CASES = {
    "a snapshot proves the offset": ([*range(8)], None, [8], [*range(8)], []),
    "a snapshot contradicts the gap": ([0, 3, 6, 11], None, [9], [0, 3, 6], [7, 8]),
    "an entry proves the offset": ([*range(8)], INDEXED, [], [*range(8)], []),
    "an entry contradicts the gap": ([0, 3, 6, 11], INDEXED, [], [0, 3, 6], [7, 8, 9, 10, 11]),
}


@pytest.mark.parametrize("case", CASES)
def test_a_load_that_is_stopped_leaves_the_next_one_its_proofs(case: str) -> None:
    """The base offset of the last batch rose by 2^17: without a proof that is a legal gap."""
    offsets, config, snapshots, found, refused = CASES[case]
    before = damaged(offsets, config, snapshots).filesystem

    def load(disk: SimFilesystem, _: None) -> None:
        world.filesystem = disk
        world.open(clean=False)
        world.append(batch([b"next"], producer=(7, 0, 0)))
        world.flush()

    def check(disk: SimFilesystem, _: None, _point: CrashPoint) -> None:
        world.filesystem = disk
        for _life in range(2):
            world.open(clean=False)
            again, refused_again = served(world)
            end = max(found + refused) + 1
            assert again[: len(found)] == found
            assert refused_again == refused
            assert [*range(end, world.log.log_end_offset)] == again[len(found) :]
            world.log.close_handles()

    world = damaged(offsets, config, snapshots)
    before.sync_all()
    checked = enumerate_crashes(
        lambda: None,
        load,
        check,
        new_disk=lambda: before.crash(CrashMode.DROP_ALL),
        modes=(CrashMode.DROP_ALL, CrashMode.SUBSET),
        seeds=1,
    )
    assert checked > 50


def damaged(
    offsets: Sequence[int], config: LogConfig | None, snapshots: Sequence[int]
) -> PartitionWorld:
    world = replica(offsets, config)
    for offset in snapshots:
        world.filesystem.open_write(f"{DIRECTORY}/{offset:020d}.snapshot")
    if config is INDEXED:  # of the last batch of the replica
        entry = struct.pack(">i", offsets[-1])
        world.filesystem.open_write(f"{DIRECTORY}/{0:020d}.index").pwrite(
            entry, (len(offsets) - 2) * 8
        )
    last = (len(offsets) - 1) * SIZE
    world.filesystem.open_write(LOG).pwrite(struct.pack(">q", offsets[-1] + 2**17), last)
    return world
