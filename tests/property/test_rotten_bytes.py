"""Goal: whatever bytes rot, no batch is served or cleaned that was not written so, the others are,
or the error is CorruptBatch.
Method: logs and batches with bytes changed by chance, beside plain twins.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from kafkalog.cleaner.record_filter import BatchRetention, RecordFilter
from kafkalog.cleaner.skimpy_offset_map import SkimpyOffsetMap
from kafkalog.errors import CorruptBatch
from kafkalog.format.records.batch_scan import BatchColumn
from kafkalog.format.records.record import read_records
from kafkalog.format.records.record_batch import (
    ATTRIBUTES_AT,
    CRC_AT,
    HEADER_BYTES,
    compute_crc,
    is_control,
    read_header,
)
from kafkalog.log.log_config import LogConfig
from kafkalog.log.values import Isolation
from tests.cleaner_world import batches_in
from tests.naive.cleaning_logs import make_log
from tests.partition_world import DIRECTORY, NOW_MS, PartitionWorld, batch, records_of

CONFIG = LogConfig(internal_segment_bytes=500, index_interval_bytes=150)
COUNT = 18
BATCH_BYTES = len(batch([b"value-00"]))
ENTRY_BATCHES = CONFIG.index_interval_bytes // BATCH_BYTES + 1


@cache
def written() -> dict[str, bytes]:
    """The files of a log of COUNT one-record batches."""
    world = PartitionWorld(CONFIG)
    for number in range(COUNT):
        world.append(batch([b"value-%02d" % number]))
    return {name: world.filesystem.read_file(f"{DIRECTORY}/{name}") for name in world.names()}


def recovered(damage: dict[str, bytes], recovery_point: int) -> PartitionWorld:
    """A log of these files, loaded after a crash as the daemon does."""
    world = PartitionWorld(CONFIG, corruption="keep")
    world.log.close_handles()
    for name in world.names():
        world.filesystem.unlink(f"{DIRECTORY}/{name}")
    for name, data in {**written(), **damage}.items():
        world.filesystem.open_write(f"{DIRECTORY}/{name}").pwrite(data, 0)
    world.open(clean=False, recovery_point=recovery_point)
    return world


@settings(max_examples=150)
@given(
    st.integers(0, (COUNT - 1) * BATCH_BYTES - 1),
    st.binary(min_size=1, max_size=12) | st.integers(1, 200).map(bytes),
    st.integers(0, COUNT),
    st.booleans(),
)
def test_rot_costs_at_most_what_it_hit(
    start: int, data: bytes, recovery_point: int, again: bool
) -> None:
    """M08: nothing is deleted, and what was durable and not hit is served."""
    position, damage = start, {}
    changed: list[int] = []
    for name in sorted(name for name in written() if name.endswith(".log")):
        whole = written()[name]
        if position < len(whole):
            data = data[: len(whole) - position]
            damage[name] = whole[:position] + data + whole[position + len(data) :]
            pairs = zip(whole[position:], data, strict=False)
            changed = [start + at for at, (old, new) in enumerate(pairs) if old != new]
            break
        position -= len(whole)
    assume(bool(changed))
    first, last = changed[0] // BATCH_BYTES, changed[-1] // BATCH_BYTES
    world = recovered(damage, recovery_point)
    for _ in range(1 + again):
        served, _ = world.consumed()
        assert all(value == b"value-%02d" % offset for offset, value in served.items())
        lost = set(range(COUNT)) - set(served)
        assert not [name for name in world.names() if name.endswith(".deleted")]
        bases = world.bases()
        assert lost <= set(range(first, COUNT)), "in front of it"
        if recovery_point > first:
            is_scanned = bisect_right(bases, recovery_point) <= bisect_right(bases, first)
            # Below the recovery point nothing is looked at: a reader goes on at an index entry.
            reach = last if is_scanned else last + 2 * ENTRY_BATCHES
            assert lost <= set(range(first, reach + 1)), "behind it"
        world.log.close_handles()
        world.open(clean=False, recovery_point=recovery_point)


FIELDS = st.sampled_from([ATTRIBUTES_AT + 1, 23, 26, 27, 35, 57, 59, 60])
"""Codec, flags, last offset delta, timestamps, record count."""


@st.composite
def bent(draw: st.DrawFn, batch: bytes) -> bytes:
    """The batch with some bytes changed, most often in its records, and a right CRC."""
    data = bytearray(batch)
    for _ in range(draw(st.integers(0, 3))):
        inside = st.integers(min(HEADER_BYTES, len(data) - 1), len(data) - 1)
        position = draw(st.one_of(inside, inside, FIELDS))
        data[position] = draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
    data[CRC_AT:ATTRIBUTES_AT] = compute_crc(data).to_bytes(4, "big")
    return bytes(data)


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32), data=st.data())
def test_rotten_batches_are_refused_or_cleaned(seed: int, data: st.DataObject) -> None:
    """M11: no crash, no hang, no batch that a reader refuses and no source has."""
    chance = random.Random(seed)
    made = [each for segment in make_log(chance).segments for each in segment.batches][:12]
    parts = [data.draw(bent(each)) for each in made]
    kinds = (BatchRetention.DELETE, BatchRetention.DELETE_EMPTY, BatchRetention.RETAIN_EMPTY)
    orders = [
        (int(chance.choice(kinds)), chance.random() < 0.3, is_control(read_header(each).attributes))
        for each in made
    ]
    offset_map = SkimpyOffsetMap(24 * chance.choice((2, 100)), 1.0)
    first = read_header(made[0]).base_offset
    offset_map.clear(first, first + chance.choice((0, 100)))
    try:
        run(offset_map, parts, orders)
    except CorruptBatch as error:
        refused_at = error.position
    else:
        return
    assert refused_at in np.cumsum([0, *map(len, parts)])


def run(
    offset_map: SkimpyOffsetMap, parts: list[bytes], orders: list[tuple[int, bool, bool]]
) -> None:
    """Both passes, and a reading of what they leave; the bound is small, as a bent stream may
    inflate to anything.
    """
    batches = batches_in(b"".join(parts), 1 << 16)
    retention, discards, marks = (np.array(column) for column in zip(*orders, strict=True))
    offset_map.index(batches, discards, 0)
    filtered = RecordFilter(offset_map).filter(
        batches, retention, discards, marks, now_ms=NOW_MS, delete_retention_ms=1000
    )
    for row in filtered.table.tolist():
        position, size = row[BatchColumn.POSITION], row[BatchColumn.SIZE]
        batch = bytes(filtered.data[position : position + size])
        assert batch[CRC_AT:ATTRIBUTES_AT] == compute_crc(batch).to_bytes(4, "big")
        if batch in parts:
            continue
        table = read_records(batch)
        assert len(table) == row[BatchColumn.RECORD_COUNT]
        assert (np.diff(table.offsets) > 0).all()
        assert (table.offsets >= row[BatchColumn.BASE_OFFSET]).all()
        assert (table.offsets <= row[BatchColumn.LAST_OFFSET]).all()


# Bytes a value: below and above what a kernel's CRC takes, and what one read takes.
SHAPES = [10, 10, 10, 3000, 10, 40_000, 10, 10, 70_000, 70_000, 10, 500, 500, 500, 60_000, 5, 5, 5]
RECORDS = 2
GAPS = {1, 4, 7, 12, 14}  # at the end of a segment, at its beginning and inside


@dataclass(frozen=True)
class Place:
    path: str
    position: int
    size: int


@dataclass(frozen=True)
class Case:
    world: PartitionWorld
    places: list[Place]
    offsets: list[int]


def value_of(offset: int) -> bytes:
    return b"value-%04d" % offset


@cache
def case_of(interval_bytes: int, has_gaps: bool) -> Case:
    """A loaded log; its files are restored after each use."""
    config = LogConfig(
        internal_segment_bytes=150_000,
        index_interval_bytes=interval_bytes,
        cleanup_policy=frozenset({"compact" if has_gaps else "delete"}),
    )
    world = PartitionWorld(config)
    world.filesystem.is_kept = True
    sizes: list[int] = []
    for number, padding in enumerate(SHAPES):
        first = number * RECORDS
        data = batch(
            [value_of(first + each) + b"v" * padding for each in range(RECORDS)],
            keys=[b"key"] * RECORDS,
            timestamps=[NOW_MS + first + each for each in range(RECORDS)],
        )
        world.append(data)
        sizes.append(len(data))
    bases = world.bases()
    assert len(bases) >= 4
    world.flush()
    world.log.close()
    gone = GAPS if has_gaps else set()
    places: list[Place] = []
    for base, end in zip(bases, [*bases[1:], len(SHAPES) * RECORDS], strict=True):
        path, position, kept = f"{DIRECTORY}/{base:020d}.log", 0, b""
        whole = world.filesystem.read_file(path)
        for number in range(base // RECORDS, end // RECORDS):
            if number not in gone:
                places.append(Place(path, len(kept), sizes[number]))
                kept += whole[position : position + sizes[number]]
            position += sizes[number]
        file = world.filesystem.open_write(path)
        file.truncate(0)
        file.pwrite(kept, 0)
        for suffix in ("index", "timeindex"):
            world.filesystem.unlink(f"{DIRECTORY}/{base:020d}.{suffix}")
    world.open(clean=True)
    kept_batches = [number for number in range(len(SHAPES)) if number not in gone]
    offsets = [number * RECORDS + each for number in kept_batches for each in range(RECORDS)]
    return Case(world, places, offsets)


def check_fetch(case: Case, offset: int, max_bytes: int) -> None:
    """One fetch: what was written from there on, or an error that leads behind the offset."""
    try:
        answer = case.world.log.read(offset, max_bytes, Isolation.LOG_END)
    except CorruptBatch as error:
        last_offset = error.details["last_offset"]
        assert isinstance(last_offset, int)
        assert last_offset >= offset
        return
    given_offsets = []
    for record in records_of(answer.data):
        assert record.value is not None
        assert record.value[:10] == value_of(record.offset)
        given_offsets.append(record.offset)
    expected = [each for each in case.offsets if each >= offset - offset % RECORDS]
    assert given_offsets, f"empty at {offset}"
    assert given_offsets == expected[: len(given_offsets)], f"asked for {offset}"


@pytest.mark.parametrize("interval_bytes", [0, 1000, 200_000])
@pytest.mark.parametrize("has_gaps", [False, True])
def test_a_sound_log_answers_everything(interval_bytes: int, has_gaps: bool) -> None:
    """M01: a gap that compaction left is no damage."""
    case = case_of(interval_bytes, has_gaps)
    for offset in range(case.world.log.log_end_offset):
        for max_bytes in (1, 200, 5000, 50_000, 1 << 20):
            answer = case.world.log.read(offset, max_bytes, Isolation.LOG_END)
            first = min(each for each in case.offsets if each >= offset)
            assert answer.base_offset <= first < answer.next_offset
        found = case.world.log.offset_for_timestamp(NOW_MS + offset, Isolation.LOG_END)
        assert found is not None
        assert found.offset == first


def check_look_up(case: Case, offset: int) -> None:
    """The first record at or after a time: the one that was written, or an error."""
    try:
        found = case.world.log.offset_for_timestamp(NOW_MS + offset, Isolation.LOG_END)
    except CorruptBatch:
        return
    assert found is not None
    assert found.offset == min(each for each in case.offsets if each >= offset)


def check_all(case: Case, place: Place, changed: bytes, at: int, max_bytes: int) -> None:
    """Every offset, over a batch of which bytes are changed."""
    file = case.world.filesystem.open_write(place.path)
    was = file.pread(len(changed), place.position + at)
    file.pwrite(changed, place.position + at)
    try:
        for offset in range(case.world.log.log_end_offset):
            check_fetch(case, offset, max_bytes)
            if at >= 8:  # the CRC does not cover the base offset
                check_look_up(case, offset)
    finally:
        file.pwrite(was, place.position + at)


@settings(max_examples=300)
@given(
    st.sampled_from([0, 1000, 200_000]),
    st.booleans(),
    st.integers(0, len(SHAPES) - len(GAPS) - 1),
    st.integers(0, 30) | st.integers(0, 200_000),
    st.binary(min_size=1, max_size=12)
    | st.integers(1, 200).map(bytes)
    | st.integers(0, 7).map(lambda bit: bytes((1 << bit,))),
    st.booleans(),
    st.sampled_from([1, 200, 5000, 50_000, 1 << 20]),
)
def test_a_fetch_over_damage_is_right_or_refused(
    interval_bytes: int,
    has_gaps: bool,
    number: int,
    at: int,
    data: bytes,
    is_mask: bool,
    max_bytes: int,
) -> None:
    """M01: no offset that is there is passed by, whatever bytes of a batch became."""
    case = case_of(interval_bytes, has_gaps)
    place = case.places[number]
    at %= place.size
    if has_gaps and at < 8:
        at += 8  # a batch beside a gap may lie there: nothing tells its true offset
    data = data[: place.size - at]
    whole = case.world.filesystem.read_file(place.path)
    if is_mask:
        was = whole[place.position + at :]
        data = bytes(old ^ new for old, new in zip(was, data, strict=False))
    check_all(case, place, data, at, max_bytes)


@pytest.mark.parametrize("max_bytes", [1, 50_000, 1 << 20])
@pytest.mark.parametrize("has_gaps", [False, True])
def test_a_length_that_leads_to_another_batch_hides_none(max_bytes: int, has_gaps: bool) -> None:
    """M01: the size covers the batches behind it up to a boundary, or to the segment's end."""
    case = case_of(200_000, has_gaps)
    for place in case.places:
        ends = [
            other.position + other.size
            for other in case.places
            if other.path == place.path and other.position > place.position
        ]
        for end in ends:
            length = (end - place.position - 12).to_bytes(4, "big")
            check_all(case, place, length, 8, max_bytes)


@settings(max_examples=150)
@given(st.sampled_from([0, 1000]), st.booleans(), st.integers(0, 1 << 20), st.data())
def test_a_flipped_bit_of_an_index_changes_no_answer(
    interval_bytes: int, has_gaps: bool, number: int, data: st.DataObject
) -> None:
    """M01: all is served while the log is sound.

    Between gaps alone a batch and an entry may say different offsets of the same place, and nothing
    tells which of them rotted: that is refused.
    """
    case = case_of(interval_bytes, has_gaps)
    closed = [each for each in case.world.log.segments if not each.is_active]
    indexed = [each for each in closed if each.offset_index.entry_count()]
    segment = indexed[number % len(indexed)]
    path = segment.offset_index.file.path
    whole = case.world.filesystem.read_file(path)
    bit = data.draw(st.integers(0, len(whole) * 8 - 1))
    at, is_position = bit // 8, bit // 8 % 8 >= 4
    file = case.world.filesystem.open_write(path)
    file.pwrite(bytes((whole[at] ^ 1 << bit % 8,)), at)
    segment.offset_index.release()  # the entries in memory
    try:
        for offset in range(case.world.log.log_end_offset):
            for max_bytes in (1, 5000, 1 << 20):
                check_fetch(case, offset, max_bytes)
                if is_position or not has_gaps:
                    case.world.log.read(offset, max_bytes, Isolation.LOG_END)
            check_look_up(case, offset)
    finally:
        file.pwrite(whole, 0)
        segment.offset_index.release()
