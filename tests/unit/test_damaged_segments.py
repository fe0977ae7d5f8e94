"""Goal: bytes that are no batch end a fetch with an error, and a damaged offset index costs no
record while the ``.log`` is sound.
Method: segments on a simulated disk, damaged at each place.
"""

from __future__ import annotations

import struct
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from kafkalog.cli.offline.scan import batches_of
from kafkalog.errors import CorruptBatch
from kafkalog.format.integers import INT64_MAX
from kafkalog.log.log_config import LogConfig
from kafkalog.log.segment.index_repair import next_offset, verified_floor
from kafkalog.log.segment.segment_reader import position_of
from kafkalog.log.values import Isolation, WouldBlock
from tests.partition_world import DIRECTORY, NOW_MS, PartitionWorld, batch, records_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from structlog.typing import EventDict


BATCH_RECORDS = 100
PAYLOAD = b"v" * 1000
COUNT = 8
SLOW = pytest.mark.slow


def world_of(segment_bytes: int) -> PartitionWorld:
    """Batches of 100 records of 1 kB, closed and opened cleanly."""
    world = PartitionWorld(LogConfig(internal_segment_bytes=segment_bytes), corruption="keep")
    for number in range(COUNT):
        times = [NOW_MS + number * BATCH_RECORDS + each for each in range(BATCH_RECORDS)]
        world.append(batch([PAYLOAD] * BATCH_RECORDS, timestamps=times))
    return world


def damage(world: PartitionWorld, base: int, position: int, masks: dict[int, int]) -> None:
    """Change bytes of a closed log, then open it as after a clean stop."""
    world.flush()
    world.log.close()
    file = world.filesystem.open_write(f"{DIRECTORY}/{base:020d}.log")
    for at, mask in masks.items():
        file.pwrite(bytes((file.pread(1, position + at)[0] ^ mask,)), position + at)
    world.open(clean=True, recovery_point=COUNT * BATCH_RECORDS)


MAGIC = {16: 1}
MAGIC_AND_LENGTH = {8: 1, 16: 1}
PREFIX = dict.fromkeys(range(27), 0x55)


@pytest.mark.parametrize("masks", [MAGIC, MAGIC_AND_LENGTH, PREFIX])
@pytest.mark.parametrize("segment_bytes", [420_000, 1 << 30])
@pytest.mark.parametrize("max_bytes", [1, 200, 50_000, 500_000, 1 << 20])
def test_the_first_batch_of_a_segment_is_never_passed_by(
    masks: dict[int, int], segment_bytes: int, max_bytes: int
) -> None:
    world = world_of(segment_bytes)
    damage(world, 0, 0, masks)
    for offset in (0, 50, 99):
        with pytest.raises(CorruptBatch) as refused:
            world.log.read(offset, max_bytes, Isolation.HIGH_WATERMARK)
        last_offset = refused.value.details["last_offset"]
        assert isinstance(last_offset, int)
        assert BATCH_RECORDS - 1 <= last_offset < COUNT * BATCH_RECORDS
    with pytest.raises(CorruptBatch):
        world.log.offset_for_timestamp(NOW_MS + 50, Isolation.HIGH_WATERMARK)


@pytest.mark.parametrize(
    "max_bytes",
    [1, pytest.param(200, marks=SLOW), pytest.param(50_000, marks=SLOW), 500_000, 1 << 20],
)
@pytest.mark.parametrize("at", [0, *(pytest.param(at, marks=SLOW) for at in (5, 30, 100)), 60_000])
def test_other_bytes_over_several_batches_are_refused_and_stepped_over(
    max_bytes: int, at: int
) -> None:
    world = world_of(1 << 30)
    size = len(world.filesystem.read_file(f"{DIRECTORY}/{0:020d}.log")) // COUNT
    masks = {each: 1 + each * 7919 % 255 for each in range(at, at + size)}
    damage(world, 0, 3 * size, masks)
    position, served = 0, set[int]()
    while position < COUNT * BATCH_RECORDS:
        try:
            answer = world.log.read(position, max_bytes, Isolation.HIGH_WATERMARK)
        except CorruptBatch as error:
            last_offset = error.details["last_offset"]
            assert isinstance(last_offset, int)
            assert last_offset >= position
            position = last_offset + 1
            continue
        served |= {record.offset for record in records_of(answer.data)}
        assert position in served
        position = answer.next_offset
    assert set(range(300)) <= served
    assert set(range(600, 800)) <= served


def test_a_file_that_somebody_cut_is_refused() -> None:
    """The rest of it was acknowledged; a reader would go on in the next segment, or wait."""
    world = world_of(420_000)
    path = f"{DIRECTORY}/{0:020d}.log"
    for kept_bytes in (250_000, 110_000, 10, 0):
        world.filesystem.open_write(path).truncate(kept_bytes)
        for max_bytes in (1, 1 << 20):
            with pytest.raises(CorruptBatch):
                world.log.read(299, max_bytes, Isolation.HIGH_WATERMARK)
        with pytest.raises(CorruptBatch):
            world.log.offset_for_timestamp(NOW_MS + 299, Isolation.HIGH_WATERMARK)


@pytest.mark.parametrize("masks", [{8: 1}, {9: 0x0F}, {10: 0x01}, {11: 0x10}, {20: 1}, {90: 1}])
def test_a_reader_that_takes_no_larger_batch_meets_the_same_error(masks: dict[int, int]) -> None:
    """An empty answer says "ask for more bytes", for ever where the length or the CRC rotted."""
    world = world_of(1 << 30)
    damage(world, 0, 0, masks)
    for max_bytes in (1, 200, 50_000):
        for min_one_batch in (True, False):
            with pytest.raises(CorruptBatch):
                world.log.read(0, max_bytes, Isolation.HIGH_WATERMARK, min_one_batch=min_one_batch)
    sound = world.log.read(2 * BATCH_RECORDS, 200, Isolation.HIGH_WATERMARK, min_one_batch=False)
    assert not sound.data
    assert sound.next_offset == 2 * BATCH_RECORDS


def test_a_huge_length_is_not_read_when_the_index_knows_better() -> None:
    """One bit of a length asks for 1 GiB of memory."""
    world = world_of(1 << 30)
    path = f"{DIRECTORY}/{0:020d}.log"
    file = world.filesystem.open_write(path)
    file.pwrite(bytes((0x04,)), 8)
    segment = world.log.segments.active
    segment.size_bytes = 1 << 28  # as a segment of that size has it
    with pytest.raises(CorruptBatch) as refused:
        world.log.read(0, 1000, Isolation.HIGH_WATERMARK)
    assert refused.value.details["last_offset"] == BATCH_RECORDS - 1


def test_an_offline_scan_passes_by_no_rest_of_a_segment() -> None:
    """A length that reaches beyond the file ends the last segment quietly, no other."""
    world = world_of(420_000)
    bases = world.bases()
    damage(world, bases[-1], 0, {8: 0x10})
    assert sum(1 for _ in batches_of(world.filesystem, DIRECTORY)) == bases[-1] // BATCH_RECORDS
    world.filesystem.open_write(f"{DIRECTORY}/{bases[0]:020d}.log").pwrite(b"\x10", 8)
    with pytest.raises(CorruptBatch, match="No whole record batch"):
        list(batches_of(world.filesystem, DIRECTORY))


RECORDS = 5
BATCHES = 40
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
        for number in range(BATCHES):
            self.append(number)
        if is_closed:
            self.partition.log.roll()
            self.append(BATCHES)
        self.partition.flush()
        self.partition.log.close()
        raw = self.partition.filesystem.read_file(INDEX)
        self.entries = [ENTRY.unpack_from(raw, at) for at in range(0, len(raw), ENTRY.size)]
        self.batch_bytes = len(self.partition.filesystem.read_file(LOG)) // BATCHES
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

    def check_all(self, offsets: Sequence[int] = range(BATCHES * RECORDS)) -> list[EventDict]:
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
    assert world.partition.log.log_end_offset == (BATCHES + is_closed) * RECORDS
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
    world = World()
    for slot, (_, position) in enumerate(world.entries):
        world.change(slot, position=position + 7)
    world.open()
    assert len(world.check_all()) == 1


@pytest.mark.parametrize("at", [8, 16, 20, 23, 70])
@pytest.mark.parametrize("has_wrong_entry", [True, False])
def test_a_bad_batch_stays_one(at: int, has_wrong_entry: bool) -> None:
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
    world = World()
    world.change(2, position=world.entries[2][1] ^ 64)
    world.open()
    first = world.entries[2][0] + 1
    with capture_logs() as lines, ThreadPoolExecutor(8) as threads:
        list(threads.map(world.check, [first + n % RECORDS for n in range(200)]))
    assert [line["event"] for line in lines] == ["index_entry_wrong"]


def test_a_read_that_may_not_block_leaves_it_to_one_that_may() -> None:
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
    world = World()
    world.change(len(world.entries) - 1, position=world.entries[-1][1] + wrong)
    world.open()
    segment = world.partition.log.segments.first
    assert next_offset(segment) == BATCHES * RECORDS
    last = BATCHES * RECORDS - 1
    assert position_of(segment, last) == (BATCHES - 1) * world.batch_bytes
    assert verified_floor(segment, INT64_MAX).position == world.entries[-2][1]


def test_an_entry_of_a_rotten_batch_is_believed_as_a_place() -> None:
    """Records of the last indexed batch rot, and the header before it: the log end stays."""
    world = World(is_closed=False)
    world.partition.corruption = "kafka"
    _, position = world.entries[-1]
    data = world.partition.filesystem.read_file(LOG)
    for rotten in (position + 100, position - world.batch_bytes + 16):
        world.write(bytes((data[rotten] ^ 1,)), rotten, LOG)
    world.open()
    assert next_offset(world.partition.log.segments.first) == BATCHES * RECORDS
    assert world.partition.log.log_end_offset == BATCHES * RECORDS


def test_a_wrong_entry_proves_no_loss() -> None:
    """A left-over index behind a segment whose last entry leads astray: its records are there."""
    world = World()
    world.change(len(world.entries) - 1, position=world.entries[-1][1] + 7)
    world.partition.filesystem.open_write(f"{DIRECTORY}/{BATCHES * RECORDS - 1:020d}.index")
    with capture_logs() as lines:
        world.open()
    assert [line["event"] for line in lines] == ["index_without_log_deleted"]
