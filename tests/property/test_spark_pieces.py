"""Goal: the pieces of a plan that reads parts of few indexes are those of one table of all entries.
Method: files of any sizes with indexes by chance: sound, overlapping, damaged, padded or missing;
windows and reads ahead of a few entries.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import event, given, strategies as st

from kafkalog.format.disk.index_entries import pack_offset_entries
from kafkalog.spark.logs import piece_plan
from kafkalog.spark.logs.directory import DirectoryLogs
from kafkalog.spark.logs.values import Access, OffsetRange
from tests.naive.spark_pieces import plain_pieces
from tests.sim.sim_filesystem import SimFilesystem

if TYPE_CHECKING:
    from kafkalog.spark.logs.values import Piece

PLACE = "/logs/t-0"
ACCESS = Access(paths=("/logs",))
SEEDS = st.integers(0, 1 << 48)


@dataclass
class Planted:
    """A partition: what was written, and the end of its offsets."""

    disk: SimFilesystem
    bases: list[int]
    end: int


def entries_by(chance: random.Random, offsets: int, size: int) -> np.ndarray:
    """Entries that rise, below the size and up to the last offset; often the last one is there."""
    most = min(chance.choice((0, 1, 3, 12, 60)), offsets - 1, max(size - 1, 0))
    if most <= 0:
        return np.empty((0, 2), np.int64)
    last = sorted(chance.sample(range(1, offsets), most))
    if chance.random() < 0.5:
        last[-1] = offsets - 1
    if chance.random() < 0.3:  # small batches, then large ones
        positions = list(range(1, most + 1))
        positions[most // 2 :] = sorted(
            chance.sample(range(most // 2 + 1, size + 1), (most + 1) // 2)
        )
        positions = [min(each, size - 1) for each in positions]
        positions = sorted(set(positions))
        last = last[: len(positions)]
    else:
        positions = sorted(chance.sample(range(1, size), most))
    return np.stack([np.array(last), np.array(positions)], axis=1).astype(np.int64)


def planted(chance: random.Random, *, overlap: bool = False, damage: bool = False) -> Planted:
    disk = SimFilesystem()
    disk.make_dir(PLACE)
    base, bases = chance.choice((0, 0, 5, 1 << 40)), []
    for _ in range(chance.choice((0, 1, 2, 3, 5, 8))):
        bases.append(base)
        size = chance.choice((0, 1, 500, 20_000, chance.randint(2, 3_000)))
        offsets = chance.randint(1, 2_000)
        stage, reach = "", offsets
        if overlap and chance.random() < 0.3:
            stage, reach = ".swap", offsets * chance.randint(1, 4)
        raw = pack_offset_entries(entries_by(chance, reach, size))
        if damage and chance.random() < 0.5:
            raw = damaged(chance, raw)
        elif chance.random() < 0.2:
            raw += bytes(8 * chance.randint(1, 50))  # as preallocated
        disk.open_write(f"{PLACE}/{base:020d}.log{stage}").truncate(size)
        if chance.random() < 0.9:
            disk.open_write(f"{PLACE}/{base:020d}.index{stage}").pwrite(raw, 0)
        base += offsets if chance.random() < 0.8 else offsets + chance.randint(1, 500)
    return Planted(disk, bases, base)


def damaged(chance: random.Random, raw: bytes) -> bytes:
    data = bytearray(raw + chance.randbytes(chance.choice((0, 3, 8, 80))))
    for _ in range(chance.randint(1, 3)):
        if data:
            data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data[: chance.randint(0, len(data))])


def range_in(chance: random.Random, log: Planted) -> OffsetRange:
    """All of it, or any part, often from one segment's first offset to another's."""
    if chance.random() < 0.5:
        return OffsetRange("t", 0, min(log.bases, default=0), log.end + 1)
    some = [*log.bases, log.end, 0, log.end + 7]
    choices = [chance.choice(some), chance.randint(0, log.end + 10)]
    start, end = sorted(chance.choice(choices) for _ in range(2))
    return OffsetRange("t", 0, start, max(end, start + 1))


def plan(
    chance: random.Random, log: Planted, wanted: OffsetRange, target_bytes: int
) -> list[Piece]:
    with (
        patch.object(piece_plan, "WINDOW_ENTRIES", chance.choice((2, 3, 10, 1024))),
        patch.object(piece_plan, "READS_AHEAD", chance.choice((1, 3, 1024))),
        patch.object(piece_plan, "WHOLE_BYTES", chance.choice((1, 1000, 1 << 20))),
    ):
        return DirectoryLogs(ACCESS, log.disk).pieces(wanted, target_bytes)


TARGETS = st.sampled_from([1, 30, 700, 9_000, 1 << 30])


@pytest.mark.parametrize("overlap", [False, True])
@given(SEEDS, TARGETS)
def test_pieces_are_those_of_one_table(overlap: bool, seed: int, target_bytes: int) -> None:
    """Also while segments replace others, which overlap them."""
    chance = random.Random(seed)
    log = planted(chance, overlap=overlap)
    wanted = range_in(chance, log)
    expected = plain_pieces(log.disk, PLACE, wanted, target_bytes)
    event(f"{min(len(expected), 20)} pieces")
    assert plan(chance, log, wanted, target_bytes) == expected


@given(SEEDS, TARGETS)
def test_damaged_indexes_never_leave_an_offset_out(seed: int, target_bytes: int) -> None:
    """Pieces follow each other and cover the range; sizes add up to what lies in it."""
    chance = random.Random(seed)
    log = planted(chance, overlap=chance.random() < 0.2, damage=True)
    wanted = range_in(chance, log)
    pieces = plan(chance, log, wanted, target_bytes)
    ends = [each.range.to_offset for each in pieces]
    assert [wanted.from_offset, *ends] == [*(p.range.from_offset for p in pieces), wanted.to_offset]
    assert all(each.range.from_offset < each.range.to_offset for each in pieces)
    assert all(each.size_bytes >= 0 for each in pieces)


@given(SEEDS, TARGETS)
def test_many_ranges_are_planned_as_each_alone(seed: int, target_bytes: int) -> None:
    chance = random.Random(seed)
    log = planted(chance)
    ranges = [range_in(chance, log) for _ in range(chance.randint(0, 6))]
    logs = DirectoryLogs(ACCESS, log.disk)
    expected = [piece for each in ranges for piece in logs.pieces(each, target_bytes)]
    assert logs.all_pieces(ranges, target_bytes) == expected
