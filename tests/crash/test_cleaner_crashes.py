"""Goal: whatever stops a round, the log holds what it held before a group or what is left of it.

Method: a round over three groups with transactions and codecs; a power cut and a kill at every file
operation, in every mode of the simulated disk; a request to stop at every question; a full disk at
every call; rot in every batch. Then the next life, or the next round, goes on from there.
"""

from __future__ import annotations

import errno
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import pytest

from kafkalog.errors import CorruptBatch, LogCleaningAborted
from kafkalog.format.records.control_record import (
    ControlRecordType,
    encode_control_key,
    encode_marker_value,
)
from kafkalog.format.records.record import Record
from kafkalog.format.records.record_batch import Codec
from kafkalog.log.inspect.invariants import check_invariants
from tests.cleaner_world import (
    DIRECTORY,
    NOW_MS,
    SMALL_BUFFERS,
    CleanerWorld,
    OnWriterLike,
    one,
    plant,
    record,
    segments_of,
    with_config,
)
from tests.naive.stored_batches import CONTROL, TRANSACTIONAL, Producer, stored_batch
from tests.sim.crash_enumeration import enumerate_crashes
from tests.sim.sim_crash import CrashMode
from tests.sim.sim_faults import Fault
from tests.sim.sim_filesystem import SimFilesystem

if TYPE_CHECKING:
    from tests.sim.crash_enumeration import CrashPoint

CONFIG = with_config(internal_segment_bytes=450, segment_index_bytes=96)
LOG_START = 3  # inside the first group


class Content(NamedTuple):
    batches: tuple[bytes, ...]
    visible: tuple[int, ...]  # offsets that no aborted transaction holds


def marker(offset: int, kind: ControlRecordType) -> bytes:
    ended = Record(offset, NOW_MS, encode_control_key(kind), encode_marker_value(0))
    attributes = TRANSACTIONAL | CONTROL
    return stored_batch([ended], attributes=attributes, producer=Producer(7, 0))


def of_transaction(offset: int, sequence: int) -> bytes:
    records = [record(offset, b"t", b"aborted")]
    return stored_batch(records, attributes=TRANSACTIONAL, producer=Producer(7, 0, sequence))


@cache
def original() -> SimFilesystem:
    """Four segments in three groups, the last of which stays as it is, and the active one."""
    disk = SimFilesystem()
    disk.is_kept = True
    packed = [record(4, b"a", b"1" * 40), record(5, b"b", b"2" * 40)]
    plant(
        disk,
        segments_of(
            [one(0, b"a"), one(1, b"b"), of_transaction(2, 0)],
            [one(3, b"c", None), stored_batch(packed, codec=Codec.ZSTD)],
            [of_transaction(6, 1), marker(7, ControlRecordType.ABORT), one(8, b"a", b"x" * 150)],
            [one(9, b"a"), one(10, b"d")],
        ),
    )
    disk.sync_all()
    world_on(disk)  # its load makes the indexes
    disk.sync_all()
    return disk


def planted() -> SimFilesystem:
    return copy_of(original())


def copy_of(disk: SimFilesystem) -> SimFilesystem:
    """What a process that starts after a kill finds; the disk itself goes on."""
    return disk.crash(CrashMode.KEEP_ALL)


def world_on(disk: SimFilesystem) -> CleanerWorld:
    return CleanerWorld([], CONFIG, disk, cleaner_config=SMALL_BUFFERS, log_start=LOG_START)


def content_of(world: CleanerWorld) -> Content:
    start = world.log.log_start_offset
    visible = tuple(offset for offset, _, _ in world.visible() if offset >= start)
    return Content(tuple(each.data for each in world.batches()), visible)


@cache
def stages() -> list[Content]:
    """What the log holds before the round, after its first group, and after its second."""
    world = world_on(planted())
    seen = [content_of(world)]

    def look(_: int) -> None:
        if content_of(world) != seen[-1]:
            seen.append(content_of(world))

    world.round(on_writer=OnWriterLike(look))
    look(0)
    return seen


def test_the_round_has_three_stages() -> None:
    """M20. The tests below look at something."""
    before, _, after = stages()
    assert len(stages()) == 3
    assert set(after.visible) < set(before.visible)
    assert set(after.batches) - set(before.batches)
    assert set(after.batches) & set(before.batches)
    assert len(after.batches) < len(before.batches)


def checked(disk: SimFilesystem) -> CleanerWorld:
    """The next life: sound, with nothing half done."""
    world = world_on(disk)
    check_invariants(world.log)
    assert world.staged_names() == []
    assert content_of(world) in stages()
    return world


@pytest.mark.slow
def test_a_crash_anywhere_leaves_a_stage() -> None:
    """M20. Old or new, whole, and the next round ends it (KAFKA-12520, KAFKA-7401)."""

    def clean(disk: SimFilesystem, done: list[bool]) -> None:
        world = world_on(disk)
        world.round()
        done.append(True)
        world.clock.advance_ms(CONFIG.file_delete_delay_ms)

    def check(disk: SimFilesystem, done: list[bool], point: CrashPoint) -> None:
        world = checked(disk)
        if done:
            assert content_of(world) == stages()[-1], point
        elif point.seed == 0:
            world.round()
            assert content_of(world).visible == stages()[-1].visible, point

    count = enumerate_crashes(list, clean, check, new_disk=planted, seeds=2)
    assert count > 1_000


def test_a_request_to_stop_is_heard_at_every_question() -> None:
    """M20. No ``.cleaned`` file is left, and the log is at a stage."""
    questions = 0

    def count() -> None:
        nonlocal questions
        questions += 1

    world_on(planted()).round(check_done=count)
    assert questions > 10
    for stop_at in range(1, questions + 1):
        world, asked = world_on(planted()), 0

        def stop(stop_at: int = stop_at) -> None:
            nonlocal asked
            asked += 1
            if asked == stop_at:
                raise LogCleaningAborted("asked")

        with pytest.raises(LogCleaningAborted):
            world.round(check_done=stop)
        assert content_of(world) in stages()
        assert world.staged_names() == []
        world.round()
        assert content_of(world) == stages()[-1]


def test_a_writer_that_refuses_leaves_a_stage() -> None:
    """M20. An aborted clean swaps nothing; a published one ends with the next round."""
    writer = OnWriterLike()
    world_on(planted()).round(on_writer=writer)
    for refused in range(1, writer.calls + 1):
        world = world_on(planted())

        def refuse(number: int, refused: int = refused) -> None:
            if number == refused:
                raise LogCleaningAborted("refused")

        with pytest.raises(LogCleaningAborted):
            world.round(on_writer=OnWriterLike(refuse))
        assert content_of(world) in stages()
        checked(copy_of(world.disk))
        world.round()
        assert content_of(world) == stages()[-1]
        assert world.staged_names() == []


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EMFILE])
def test_a_full_disk_anywhere_leaves_a_stage(error: int) -> None:
    """M20. Sources untouched, or the swap ended by the next round."""
    disk = planted()
    world = world_on(disk)
    start = len(disk.operations)
    world.round()
    calls = len(disk.operations) - start
    assert calls > 60
    for number in range(1, calls + 1):
        world = world_on(planted())
        world.disk.faults.add(Fault(error=error, nth=number))
        with pytest.raises(OSError, match="simulated"):
            world.round()
        world.disk.faults.disarm()
        assert content_of(world) in stages(), number
        assert [name for name in world.staged_names() if name.endswith(".cleaned")] == []
        checked(copy_of(world.disk))
        world.round()
        assert content_of(world) == stages()[-1], number
        assert world.staged_names() == []
        check_invariants(world.log)


def files(world: CleanerWorld) -> dict[str, bytes]:
    names = world.disk.list_dir(DIRECTORY)
    return {name: world.disk.read_file(f"{DIRECTORY}/{name}") for name in names}


def rot(world: CleanerWorld, name: str, position: int) -> None:
    file = world.disk.open_write(f"{DIRECTORY}/{name}")
    file.pwrite(bytes([file.pread(1, position)[0] ^ 0x40]), position)


@pytest.mark.parametrize(
    "byte", [8, 16, 17, 30, 65], ids=["size", "magic", "crc", "header", "body"]
)
def test_rot_stops_the_round_and_changes_nothing(byte: int) -> None:
    """M20. No damage under a new CRC, no file touched."""
    world = world_on(planted())
    places = []
    for segment in world.log.segments.values[:-1]:
        position = 0
        for batch in world.batches_of(segment):
            if batch.header.base_offset != LOG_START - 1:
                places.append((segment.log_file.name, position + byte))
            position += len(batch.data)
    assert len(places) == 9
    for name, position in places:
        world = world_on(planted())
        rot(world, name, position)
        before = files(world)
        with pytest.raises(CorruptBatch) as caught:
            world.round()
        assert name in caught.value.file
        assert files(world) == before


def test_a_bomb_stops_the_round() -> None:
    """M20. Bounded memory."""
    world = world_on(planted())
    world.cleaner_config = replace(SMALL_BUFFERS, max_decompressed_bytes=50)
    before = files(world)
    with pytest.raises(CorruptBatch, match="50"):
        world.round()
    assert files(world) == before
