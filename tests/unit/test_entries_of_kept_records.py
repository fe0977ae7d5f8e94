"""Goal: an index that Kafka's cleaner wrote with one entry a set is a sound one.
Method: batches whose last records are gone, as a round leaves them, with entries that have the
offset of the last record kept (Kafka's ``MemoryRecords.filterTo`` counts so), of one batch or of
several; every offset and time is asked for, and the log must say nothing of the index.
"""

from __future__ import annotations

import struct

import pytest
from structlog.testing import capture_logs

from kafkalog.format.integers import INT64_MAX
from kafkalog.log.log_config import LogConfig
from kafkalog.log.segment.index_repair import sound_floor
from kafkalog.log.segment.segment_reader import next_offset, position_of
from kafkalog.log.values import Isolation, WouldBlock
from tests.naive.batches import PlainBatch
from tests.partition_world import DIRECTORY, NOW_MS, PartitionWorld, records_of

SPAN, KEPT, COUNT = 5, 3, 40
INDEX = f"{DIRECTORY}/{0:020d}.index"
ENTRY = struct.Struct(">ii")
GAPS = {
    "no gaps": [],
    "a gap behind many": [number for number in range(COUNT) if number % 4 == 1],
    "gaps on both sides": [number for number in range(COUNT) if number % 2],
    "wide gaps": [number for number in range(COUNT) if number % 7],
}


class World:
    """One closed segment of batches that have 5 offsets and 3 records each, and one behind it."""

    def __init__(self, gone: list[int], *, batches_a_set: int) -> None:
        self.batches = [
            PlainBatch(
                number * SPAN,
                tuple(NOW_MS + number * SPAN + each for each in range(KEPT)),
                (b"v" * 300,) * KEPT,
                last_offset_delta=SPAN - 1,
            )
            for number in range(COUNT)
            if number not in gone
        ]
        self.partition = PartitionWorld(LogConfig(cleanup_policy=frozenset({"compact"})))
        self.partition.log.close()
        disk = self.partition.filesystem
        data = b"".join(each.encode() for each in self.batches)
        disk.open_write(f"{DIRECTORY}/{0:020d}.log").pwrite(data, 0)
        following = PlainBatch(COUNT * SPAN, (NOW_MS + COUNT * SPAN,), (b"v",))
        disk.open_write(f"{DIRECTORY}/{COUNT * SPAN:020d}.log").pwrite(following.encode(), 0)
        disk.unlink(INDEX)
        self.open()  # makes the time index
        self.partition.log.close()
        self.entries, position = [], 0
        for number in range(0, len(self.batches), batches_a_set):
            some = self.batches[number : number + batches_a_set]
            self.entries.append((some[-1].base_offset + KEPT - 1, position))
            position += sum(len(each.encode()) for each in some)
        del self.entries[0]  # an entry comes behind the first interval
        file = disk.open_write(INDEX)
        file.truncate(0)
        file.pwrite(b"".join(ENTRY.pack(*each) for each in self.entries), 0)
        self.open()

    def open(self) -> None:
        self.partition.open(clean=True, recovery_point=COUNT * SPAN)


@pytest.fixture(params=GAPS)
def gone(request: pytest.FixtureRequest) -> list[int]:
    return GAPS[request.param]


@pytest.mark.parametrize("batches_a_set", [1, 2, 3])
def test_every_offset_and_time_is_served(gone: list[int], batches_a_set: int) -> None:
    world = World(gone, batches_a_set=batches_a_set)
    log = world.partition.log
    with capture_logs() as lines:
        for offset in range(COUNT * SPAN):
            wanted = next((each for each in world.batches if each.last_offset >= offset), None)
            for max_bytes in (1, 2500, 1 << 20):
                answer = log.read(offset, max_bytes, Isolation.LOG_END)
                first = COUNT * SPAN if wanted is None else wanted.base_offset
                assert records_of(answer.data)[0].offset == first
            later = (
                each.base_offset + number
                for each in world.batches
                for number in range(KEPT)
                if each.base_offset + number >= offset
            )
            found = log.offset_for_timestamp(NOW_MS + offset, Isolation.LOG_END)
            assert found is not None
            assert found.offset == next(later, COUNT * SPAN)
    assert not lines


def test_who_looks_for_places_believes_them(gone: list[int]) -> None:
    """Log end, the place of an offset, and where the cleaner begins."""
    world = World(gone, batches_a_set=1)
    segment = world.partition.log.segments.first
    assert next_offset(segment) == world.batches[-1].last_offset + 1
    position = 0
    for each in world.batches:
        assert position_of(segment, each.last_offset) == position
        position += len(each.encode())
    floor = sound_floor(segment, INT64_MAX)
    assert (floor.offset, floor.position) == world.entries[-1]


def test_a_read_that_may_not_block_leaves_what_is_doubtful_to_one_that_may() -> None:
    world = World([], batches_a_set=1)
    offset = world.entries[3][0] + 1
    world.partition.log.read(offset, 1, Isolation.LOG_END)
    with pytest.raises(WouldBlock):
        world.partition.log.read(offset, 1, Isolation.LOG_END, may_block=False)
