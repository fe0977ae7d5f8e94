"""Goal: bytes that are no batch end a fetch with an error, wherever they lie and however little of
    a batch is left of them.
Method: the first batch of a segment is changed under a closed and opened log; fetches of several
sizes, a consumer that steps over what is refused, look-ups by time.
"""

from __future__ import annotations

import pytest

from kafkalog.cli.offline.scan import batches_of
from kafkalog.errors import CorruptBatch
from kafkalog.log.log_config import LogConfig
from kafkalog.log.values import Isolation
from tests.partition_world import DIRECTORY, NOW_MS, PartitionWorld, batch, records_of

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
    """In front of another segment and in a log of one."""
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
    """Nothing in front of them and nothing that an index leads to behind them is lost."""
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
