"""Goal: a segment whose offsets do not fit it is split at load, whole after a crash anywhere.
Method: plant such a segment, load it, stop the load at every call in every crash mode; load again.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from kafkalog.errors import CorruptBatch
from kafkalog.log.inspect.invariants import check_invariants
from kafkalog.log.log_config import LogConfig
from kafkalog.log.values import Isolation
from tests.naive.batches import PlainBatch, one_record
from tests.partition_world import DIRECTORY, NOW_MS, PartitionWorld, batch
from tests.sim.crash_enumeration import enumerate_crashes
from tests.sim.sim_clock import SimClock
from tests.sim.sim_filesystem import SimFilesystem

if TYPE_CHECKING:
    from tests.sim.crash_enumeration import CrashPoint

RANGE = 2**31
CONFIG = LogConfig(cleanup_policy=frozenset({"compact"}), segment_index_bytes=96)
FAR = [0, RANGE - 1, RANGE, RANGE + 5, 3 * RANGE]
FAR_BASES = [0, RANGE, 3 * RANGE]
BEHIND = [5 * RANGE, 5 * RANGE + 1]


def planted(first: list[int], then: list[int], *, tail: bytes = b"") -> SimFilesystem:
    """A segment of base 0 with batches at ``first`` and a segment with those of ``then``."""
    disk = SimFilesystem()
    disk.make_dir(DIRECTORY)
    write(disk, 0, joined(first) + tail)
    if then:
        write(disk, then[0], joined(then))
    # Indexes that the first piece must not inherit.
    disk.open_write(f"{DIRECTORY}/{0:020d}.index").pwrite(struct.pack(">ii", 7, 170), 0)
    disk.open_write(f"{DIRECTORY}/{0:020d}.timeindex").pwrite(struct.pack(">qi", 10**15, 7), 0)
    disk.sync_all()
    return disk


def write(disk: SimFilesystem, base: int, data: bytes) -> None:
    disk.open_write(f"{DIRECTORY}/{base:020d}.log").pwrite(data, 0)


def joined(offsets: list[int]) -> bytes:
    return b"".join(one_record(offset, 1000 + offset).encode() for offset in offsets)


@dataclass
class World(PartitionWorld):
    """A partition on a disk that was planted; opened by the test."""

    disk: SimFilesystem | None = None

    def __post_init__(self) -> None:
        assert self.disk is not None
        self.clock = SimClock(NOW_MS)
        self.filesystem = self.disk
        self.filesystem.clock = self.clock


def opened(disk: SimFilesystem, *, clean: bool = False) -> World:
    world = World(CONFIG, disk=disk)
    world.open(clean=clean)
    return world


def offsets(world: PartitionWorld) -> list[int]:
    return [record.offset for record in world.read_all(world.log.log_start_offset)]


def test_kafka_5413_an_unclean_load_splits() -> None:
    """M08, KAFKA-5413: every batch is kept as it was, pieces begin where the range ends."""
    world = opened(planted(FAR, BEHIND))
    assert world.bases() == [*FAR_BASES, BEHIND[0]]
    assert offsets(world) == FAR + BEHIND
    found = world.log.read(RANGE, 1 << 20, Isolation.LOG_END)
    assert bytes(found.data) == joined(FAR[2:4])
    check_invariants(world.log)
    assert world.append(batch([b"next"], keys=[b"k"])).first_offset == BEHIND[-1] + 1
    world.reopen(clean=True)
    assert offsets(world) == [*FAR, *BEHIND, BEHIND[-1] + 1]
    assert not [name for name in world.names() if "swap" in name or "cleaned" in name]


def test_a_clean_load_without_an_index_splits() -> None:
    """M08: found when the missing index is made."""
    disk = planted(FAR, BEHIND)
    disk.unlink(f"{DIRECTORY}/{0:020d}.index")
    world = opened(disk, clean=True)
    assert world.bases() == [*FAR_BASES, BEHIND[0]]
    assert offsets(world) == FAR + BEHIND


def test_a_first_batch_beyond_the_range_starts_its_own_segment() -> None:
    """M08: nothing of the old name is left."""
    world = opened(planted([RANGE + 1, 3 * RANGE], []))
    assert world.bases() == [RANGE + 1, 3 * RANGE]
    assert not [name for name in world.names() if name.startswith(f"{0:020d}")]


def test_a_torn_tail_is_cut_before() -> None:
    """M08: and what lies behind it goes, as in any recovery."""
    world = opened(planted(FAR, BEHIND, tail=joined([3 * RANGE + 1])[:-3]))
    assert offsets(world) == FAR
    assert world.bases() == FAR_BASES


def test_rot_among_far_offsets_is_refused() -> None:
    """M08, D2: with corruption=keep nothing behind the rotten batch may be cut."""
    disk = planted([*FAR, FAR[-1] + 1, FAR[-1] + 2], [])
    position = len(joined(FAR)) + 80
    file = disk.open_write(f"{DIRECTORY}/{0:020d}.log")
    file.pwrite(bytes([file.pread(1, position)[0] ^ 1]), position)
    before = file.pread(file.size(), 0)
    world = World(CONFIG, disk=disk, corruption="keep")
    with pytest.raises(CorruptBatch, match="2\\^31"):
        world.open(clean=False)
    assert disk.read_file(f"{DIRECTORY}/{0:020d}.log") == before


def test_one_batch_over_the_whole_range_fits() -> None:
    """The widest batch there can be is no reason to split."""
    disk = SimFilesystem()
    disk.make_dir(DIRECTORY)
    wide = PlainBatch(0, (1000,), (b"v",), last_offset_delta=RANGE - 1)
    write(disk, 0, wide.encode() + joined([RANGE]))
    world = opened(disk)
    assert world.bases() == [0, RANGE]


CASES = [(FAR, FAR_BASES, 2), ([RANGE + 1, 3 * RANGE], [RANGE + 1, 3 * RANGE], 1)]


@pytest.mark.parametrize(("first", "bases", "seeds"), CASES)
def test_a_crash_anywhere_keeps_every_batch(first: list[int], bases: list[int], seeds: int) -> None:
    """M08: the next load finishes or repeats what the first one began."""

    def load(disk: SimFilesystem, _: None) -> None:
        opened(disk)

    def check(disk: SimFilesystem, _: None, point: CrashPoint) -> None:
        world = opened(disk)
        assert offsets(world) == first + BEHIND, point
        assert world.bases() == [*bases, BEHIND[0]]
        check_invariants(world.log)

    checked = enumerate_crashes(
        lambda: None, load, check, new_disk=lambda: planted(first, BEHIND), seeds=seeds
    )
    assert checked > 100
