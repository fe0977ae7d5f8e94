"""Goal: an offset index that is damaged costs no record while the ``.log`` is sound.
Method: entries of a closed segment's ``.index`` are changed on the simulated disk; fetches of every
offset and look-ups by time are held against what was written, and the lines of the log are read.
"""

from __future__ import annotations

import struct
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from kafkalog.errors import CorruptBatch
from kafkalog.format.integers import INT64_MAX
from kafkalog.log.log_config import LogConfig
from kafkalog.log.segment.index_repair import sound_floor
from kafkalog.log.segment.segment_reader import next_offset, position_of
from kafkalog.log.values import Isolation, WouldBlock
from tests.partition_world import DIRECTORY, NOW_MS, PartitionWorld, batch, records_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from structlog.typing import EventDict

RECORDS = 5
COUNT = 40
INDEX = f"{DIRECTORY}/{0:020d}.index"
TIME_INDEX = f"{DIRECTORY}/{0:020d}.timeindex"
LOG = f"{DIRECTORY}/{0:020d}.log"
ENTRY = struct.Struct(">ii")


def value_of(offset: int) -> bytes:
    return b"value-%04d-" % offset + b"v" * 100


class World:
    """One closed segment with an entry for every second batch, and an active one behind it."""

    def __init__(self, *, is_closed: bool = True) -> None:
        self.partition = PartitionWorld(LogConfig(index_interval_bytes=1000), corruption="keep")
        for number in range(COUNT):
            self.append(number)
        if is_closed:
            self.partition.log.roll()
            self.append(COUNT)
        self.partition.flush()
        self.partition.log.close()
        raw = self.partition.filesystem.read_file(INDEX)
        self.entries = [ENTRY.unpack_from(raw, at) for at in range(0, len(raw), ENTRY.size)]
        self.batch_bytes = len(self.partition.filesystem.read_file(LOG)) // COUNT
        assert len(self.entries) > 10

    def append(self, number: int) -> None:
        offsets = range(number * RECORDS, (number + 1) * RECORDS)
        self.partition.append(
            batch([value_of(each) for each in offsets], timestamps=[NOW_MS + n for n in offsets])
        )

    def change(self, slot: int, *, position: int | None = None, offset: int | None = None) -> None:
        was = self.entries[slot]
        entry = (was[0] if offset is None else offset, was[1] if position is None else position)
        self.write(ENTRY.pack(*entry), slot * ENTRY.size)

    def write(self, data: bytes, at: int, path: str = INDEX) -> None:
        self.partition.filesystem.open_write(path).pwrite(data, at)

    def open(self) -> None:
        self.partition.open(clean=True, recovery_point=self.partition.log.log_end_offset)

    def check(self, offset: int, max_bytes: int = 1) -> None:
        """The batch that holds the offset, and what follows it."""
        answer = self.partition.log.read(offset, max_bytes, Isolation.HIGH_WATERMARK)
        records = records_of(answer.data)
        first = offset - offset % RECORDS
        assert [each.offset for each in records] == list(range(first, answer.next_offset))
        assert answer.next_offset > offset
        assert all(each.value == value_of(each.offset) for each in records)

    def check_all(self, offsets: Sequence[int] = range(COUNT * RECORDS)) -> list[EventDict]:
        """Fetches of several sizes and look-ups by time; the lines that the log got."""
        with capture_logs() as lines:
            for offset in offsets:
                for max_bytes in (1, 1500, 1 << 20):
                    self.check(offset, max_bytes)
                found = self.partition.log.offset_for_timestamp(NOW_MS + offset, Isolation.LOG_END)
                assert found is not None
                assert found.offset == offset
        return [line for line in lines if line["event"] == "index_entry_wrong"]


WRONG: dict[str, Callable[[int, int], int]] = {
    "in the middle of a batch": lambda at, size: at ^ 64,
    "inside of the header": lambda at, _: at + 1,
    "an earlier batch": lambda at, size: at - size,
    "the next batch": lambda at, size: at + size,
}


@pytest.mark.parametrize("where", WRONG)
@pytest.mark.parametrize("is_closed", [True, False])
@pytest.mark.parametrize("slot", [0, 2, 9])
def test_an_entry_that_points_elsewhere_costs_no_record(
    where: str, is_closed: bool, slot: int
) -> None:
    """A fetch goes back to an entry before it; only one that leads astray is told of, and once."""
    world = World(is_closed=is_closed)
    offset, position = world.entries[slot]
    wrong = WRONG[where](position, world.batch_bytes)
    world.change(slot, position=wrong)
    world.open()
    lines = world.check_all() + world.check_all()
    if where == "an earlier batch":
        assert not lines
        return
    (line,) = lines
    assert line["log_level"] == "warning"
    assert line["path"] == INDEX
    assert (line["entry_offset"], line["entry_position"]) == (offset, wrong)
    assert "remove this file" in line["action"]


@pytest.mark.parametrize("position", [0, 1, 100, 1 << 20, (1 << 31) - 1])
@pytest.mark.parametrize("is_closed", [True, False])
def test_an_entry_behind_the_end_of_the_file(position: int, is_closed: bool) -> None:
    """Positions rise, so it is the last. An active segment is recovered by the start instead."""
    world = World(is_closed=is_closed)
    size = len(world.partition.filesystem.read_file(LOG))
    world.change(len(world.entries) - 1, position=min(size + position, (1 << 31) - 1))
    world.open()
    assert world.partition.log.log_end_offset == (COUNT + is_closed) * RECORDS
    assert len(world.check_all()) == (is_closed or position == 0)


def test_without_the_file_a_start_makes_it_anew() -> None:
    """What the warning and the runbook tell the operator to do."""
    world = World()
    whole = {each: world.partition.filesystem.read_file(each) for each in (INDEX, TIME_INDEX)}
    for path, data in whole.items():
        world.write(bytes((data[20] ^ 64,)), 20, path)
        world.partition.filesystem.unlink(path)
    world.open()
    assert not world.check_all()
    assert whole == {each: world.partition.filesystem.read_file(each) for each in whole}


def test_many_wrong_entries_lead_back_to_the_first_byte() -> None:
    """An index that is wrong from its first entry on; one line tells of it."""
    world = World()
    for slot, (_, position) in enumerate(world.entries):
        world.change(slot, position=position + 7)
    world.open()
    assert len(world.check_all()) == 1


@pytest.mark.parametrize("change", [-4, -1, 1, 3])
def test_an_entry_with_another_offset_costs_no_record(change: int) -> None:
    """It leads to a batch that lies behind the offset asked for, or to one in front of it."""
    world = World()
    world.change(3, offset=world.entries[3][0] + change)
    world.open()
    world.check_all()


def test_a_later_batch_is_not_walked_over() -> None:
    """The offsets of the entry's own batch and of those up to the later one are all served."""
    world = World()
    slot = 4
    offset, position = world.entries[slot]
    following = world.entries[slot + 1]
    world.change(slot, position=following[1] - world.batch_bytes)
    assert following[1] - world.batch_bytes > position
    world.open()
    world.check_all(range(offset - RECORDS, following[0] + RECORDS))


@pytest.mark.parametrize("at", [8, 16, 20, 23, 70])
@pytest.mark.parametrize("has_wrong_entry", [True, False])
def test_a_bad_batch_stays_one(at: int, has_wrong_entry: bool) -> None:
    """In front of the offset or there: CorruptBatch, and no word of the index."""
    world = World()
    offset, position = world.entries[4]
    rotten = position + at
    was = world.partition.filesystem.read_file(LOG)[rotten]
    world.write(bytes((was ^ 0x10,)), rotten, LOG)
    if has_wrong_entry:
        world.change(4, position=position ^ 64)
    world.open()
    with capture_logs() as lines, pytest.raises(CorruptBatch) as refused:
        world.partition.log.read(offset, 1, Isolation.HIGH_WATERMARK)
    last_offset = refused.value.details["last_offset"]
    assert isinstance(last_offset, int)
    assert last_offset >= offset
    assert not lines
    world.check(offset - RECORDS)


def test_threads_that_meet_it_at_once_tell_of_it_once() -> None:
    """Reads run on pool threads; each is answered."""
    world = World()
    world.change(2, position=world.entries[2][1] ^ 64)
    world.open()
    first = world.entries[2][0] + 1
    with capture_logs() as lines, ThreadPoolExecutor(8) as threads:
        list(threads.map(world.check, [first + n % RECORDS for n in range(200)]))
    assert [line["event"] for line in lines] == ["index_entry_wrong"]


def test_a_read_that_may_not_block_leaves_it_to_one_that_may() -> None:
    """The event loop walks over no interval of a segment."""
    world = World()
    world.change(2, position=world.entries[2][1] ^ 64)
    world.open()
    offset = world.entries[2][0] + 1
    log = world.partition.log
    world.check(offset)
    with pytest.raises(WouldBlock):
        log.read(offset, 1, Isolation.HIGH_WATERMARK, may_block=False)
    with pytest.raises(WouldBlock):
        log.offset_for_timestamp(NOW_MS + offset, Isolation.LOG_END, may_block=False)


@pytest.mark.parametrize("wrong", [64, 1, 1 << 20])
def test_who_looks_for_places_believes_no_wrong_entry(wrong: int) -> None:
    """Log end, places of offsets, and where the cleaner and the producers' rebuild begin."""
    world = World()
    world.change(len(world.entries) - 1, position=world.entries[-1][1] + wrong)
    world.open()
    segment = world.partition.log.segments.first
    assert next_offset(segment) == COUNT * RECORDS
    last = COUNT * RECORDS - 1
    assert position_of(segment, last) == (COUNT - 1) * world.batch_bytes
    assert sound_floor(segment, INT64_MAX).position == world.entries[-2][1]


def test_an_entry_of_a_rotten_batch_is_believed_as_a_place() -> None:
    """Records of the last indexed batch rot, and the header before it: the log end stays."""
    world = World(is_closed=False)
    world.partition.corruption = "kafka"
    _, position = world.entries[-1]
    data = world.partition.filesystem.read_file(LOG)
    for rotten in (position + 100, position - world.batch_bytes + 16):
        world.write(bytes((data[rotten] ^ 1,)), rotten, LOG)
    world.open()
    assert next_offset(world.partition.log.segments.first) == COUNT * RECORDS
    assert world.partition.log.log_end_offset == COUNT * RECORDS


def test_a_wrong_entry_proves_no_loss() -> None:
    """A left-over index behind a segment whose last entry leads astray: its records are there."""
    world = World()
    world.change(len(world.entries) - 1, position=world.entries[-1][1] + 7)
    world.partition.filesystem.open_write(f"{DIRECTORY}/{COUNT * RECORDS - 1:020d}.index")
    with capture_logs() as lines:
        world.open()
    assert [line["event"] for line in lines] == ["index_without_log_deleted"]


def test_entries_before_a_position() -> None:
    """Of a position between two, of an entry's own, and of more than there are."""
    world = World()
    world.open()
    index = world.partition.log.segments.first.offset_index
    offset, position = world.entries[4]
    for at, count, wanted in (
        (position, 1, world.entries[3]),
        (position + 1, 1, (offset, position)),
        (1 << 40, 1, world.entries[-1]),
        (position, 4, world.entries[0]),
        (position, 5, (0, 0)),
        (position, 8, (0, 0)),
        (0, 1, (0, 0)),
    ):
        found = index.entry_before(at, count)
        assert (found.offset, found.position) == wanted


def test_no_flipped_bit_of_an_index_changes_an_answer() -> None:
    """Each bit of the file alone: offsets about the entry and about its neighbours."""
    world = World()
    whole = world.partition.filesystem.read_file(INDEX)
    for at in range(len(whole)):
        slot = at // ENTRY.size
        first = world.entries[max(slot - 1, 0)][0] - RECORDS
        last = world.entries[min(slot + 1, len(world.entries) - 1)][0] + RECORDS
        for bit in range(8):
            world.write(bytes((whole[at] ^ 1 << bit,)), at)
            world.open()
            for offset in range(max(first, 0), min(last, COUNT * RECORDS), 2):
                world.check(offset)
            found = world.partition.log.offset_for_timestamp(
                NOW_MS + world.entries[slot][0], Isolation.LOG_END
            )
            assert found is not None
            assert found.offset == world.entries[slot][0]
            world.partition.log.close()
        world.write(whole, 0)
