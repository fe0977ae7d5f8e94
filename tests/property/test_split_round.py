"""Goal: a round in pieces writes what one round writes, byte for byte.
Method: logs of every kind of batch by chance on two simulated disks, from any first offset; one is
cleaned by the daemon's cleaner with a map for all keys, the other group by group. A seed makes its
log again.
"""

from __future__ import annotations

import pickle
import random
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from kafkalog.cleaner.skimpy_offset_map import SkimpyOffsetMap, slots_of
from kafkalog.cleaner.split_round import (
    filter_group,
    first_pass_states,
    guessed_states,
    map_group,
    merge_entries,
    plan_split,
    second_pass_states,
)
from kafkalog.cleaner.swapping import swap_in
from kafkalog.kernels.key_hash import PENDING_COLUMN_COUNT, PENDING_MAX, PendingColumn
from kafkalog.kernels.offset_map import find_offset
from kafkalog.log.invariants import check_invariants
from kafkalog.spark.jobs.key_rows import parts_by_hash
from tests.cleaner_world import DIRECTORY, NOW_MS, CleanerWorld, at_once, with_config
from tests.naive.cleaning_logs import make_log

if TYPE_CHECKING:
    from kafkalog.cleaner.log_to_clean import LogToClean
    from kafkalog.cleaner.split_round import SplitRound
    from kafkalog.cleaner.transaction_events import SourceEvents
    from kafkalog.spark.jobs.key_rows import Rows

SEEDS = st.integers(0, 2**32)
WORK = "/work"


def world_of(seed: int, log_start: float = 0) -> CleanerWorld:
    """A log by chance, rolled, in small groups; twice the same with the same seed."""
    chance = random.Random(seed)
    made = make_log(chance)
    last = made.segments[-1].base
    world = CleanerWorld(
        made.segments,
        with_config(
            internal_segment_bytes=chance.choice((300, 1_000, 3_000, 10**6)),
            delete_retention_ms=chance.choice((0, 2_000, 30_000)),
            index_interval_bytes=chance.choice((0, 200, 4_096)),
        ),
        log_start=made.segments[0].base + int((last - made.segments[0].base) * log_start),
    )
    if world.log.segments.active.size_bytes:
        world.log.roll()
    return world


def files(world: CleanerWorld) -> dict[str, bytes]:
    """Of the partition."""
    return {
        name: world.disk.read_file(f"{DIRECTORY}/{name}") for name in world.disk.list_dir(DIRECTORY)
    }


class Pieces:
    """A round in pieces over one world; every piece is pickled on its way."""

    def __init__(self, world: CleanerWorld, to_clean: LogToClean, now_ms: int) -> None:
        self.world = world
        self.round: SplitRound = pickle.loads(pickle.dumps(plan_split(to_clean, now_ms)))
        self.corrected: list[int] = []

    def run(self, chance: random.Random) -> tuple[int, int]:
        """All phases, groups in any order; records read and written."""
        count = len(self.round.groups)
        parts, map_bytes = chance.randrange(1, 5), chance.choice((48, 100, 10**5))
        keys, events = self._mapped(parts, map_bytes, chance)
        merged = [
            merge_entries([keys[group][part] for group in range(count)]) for part in range(parts)
        ]
        states = second_pass_states(self.round, events)
        read = written = 0
        made = {}
        for number in chance.sample(range(count), count):
            place = f"{WORK}/{number}"
            self.world.disk.make_dir(place)
            pieces, stats = filter_group(
                self.round.facts,
                self.round.groups[number],
                pickle.loads(pickle.dumps(states[number])),
                np.concatenate([part[number] for part in merged]),
                self.world.log.environment,
                place,
            )
            made[number] = pieces
            read, written = read + stats.messages_read, written + stats.messages_written
        for number, group in enumerate(self.round.groups):
            for name in self.world.disk.list_dir(f"{WORK}/{number}"):
                self.world.disk.rename(f"{WORK}/{number}/{name}", f"{DIRECTORY}/{name}")
            log = self.world.log
            bases = {each.base_offset for each in group.sources}
            swap_in(
                log,
                [
                    each.segment(log.environment, log.local.directory, log.config)
                    for each in made[number]
                ],
                [each for each in log.segments if each.base_offset in bases],
                at_once,
                operations_max=64,
            )
        return read, written

    def _mapped(
        self, parts: int, map_bytes: int, chance: random.Random
    ) -> tuple[list[list[Rows]], list[tuple[SourceEvents, ...]]]:
        """Keys by group and part, events by group."""
        count = len(self.round.groups)
        found: dict[int, list[Rows]] = {}
        events: dict[int, tuple[SourceEvents, ...]] = {}
        states, wanted = guessed_states(self.round), list(range(count))
        while wanted:
            for number in chance.sample(wanted, len(wanted)):
                rows: list[Rows] = [np.empty((0, 3), np.int64)]
                events[number] = map_group(
                    self.round.facts,
                    self.round.groups[number],
                    sorted(states[number], key=lambda each: each.first_offset),
                    self.world.log.environment,
                    map_bytes=map_bytes,
                    on_entries=rows.append,
                )
                found[number] = parts_by_hash(np.concatenate(rows), parts)
            guessed = states
            states = first_pass_states(self.round, [events[each] for each in range(count)])
            wanted = [each for each in range(count) if states[each] != guessed[each]]
            self.corrected += wanted
            assert len(self.corrected) <= count, "what was corrected once is right"
        return [found[each] for each in range(count)], [events[each] for each in range(count)]


def split_beside_a_round(
    seed: int, first: float, now_ms: int, log_start: float = 0
) -> Pieces | None:
    """Clean the log both ways; None: there is nothing to clean."""
    whole, split = world_of(seed, log_start), world_of(seed, log_start)
    start, end = whole.log.log_start_offset, whole.log.log_end_offset
    checkpoint = start + int((end - start) * first)
    to_clean = split.look(checkpoint, now_ms)
    pieces = Pieces(split, to_clean, now_ms)
    if not to_clean.cleanable_bytes:
        assert pieces.round.groups == ()
        return None
    result = whole.round(checkpoint, now_ms)
    assert result.end_offset == pieces.round.facts.end_offset
    read, written = pieces.run(random.Random(seed))
    assert files(split) == files(whole)
    assert (read, written) == (result.stats.messages_read, result.stats.messages_written)
    check_invariants(split.log)
    return pieces


@given(
    seed=SEEDS,
    first=st.just(0.0) | st.floats(0, 1),
    log_start=st.just(0.0) | st.floats(0, 1),
    now_ms=st.sampled_from([NOW_MS + 10_000, NOW_MS + 100_000]),
)
@settings(max_examples=100, deadline=None)
def test_pieces_write_what_a_round_writes(
    seed: int, first: float, log_start: float, now_ms: int
) -> None:
    """Goal: every file, the figures, and a sound log.
    Method: groups, parts of the hashes, and maps that are emptied after a few keys, by chance.
    """
    pieces = split_beside_a_round(seed, first, now_ms, log_start)
    if pieces is not None:
        event(f"groups: {min(len(pieces.round.groups), 5)}")
        event(f"wrong guesses: {bool(pieces.corrected)}")


def test_a_wrong_guess_is_corrected() -> None:
    """Goal: a marker that the first pass does not read changes what later groups leave out.
    Method: logs with aborted transactions, from the middle on, until a guess was wrong.
    """
    for seed in range(2_000):
        pieces = split_beside_a_round(seed, 0.4, NOW_MS + 10_000)
        if pieces is not None and pieces.corrected:
            return
    pytest.fail("no guess was wrong: the logs are too tame")


@given(
    hashes=st.sets(st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(0, 3)), max_size=60),
    crowd=st.sampled_from([(-1, 0), (-1, 0xF0000000), (3, 0)]),
    free=st.integers(0, 40),
)
@settings(max_examples=200, deadline=None)
def test_a_map_that_is_filled_at_once_is_one_that_kernels_look_into(
    hashes: set[tuple[int, int]], crowd: tuple[int, int], free: int
) -> None:
    """Goal: every key is found with its offset, and no other.
    Method: hashes all over the slots, at their end or at their beginning; the look-up's own kernel.
    """
    crowded = {(low & crowd[0] | crowd[1], high) for low, high in hashes}
    rows = [(low, high, number + 1) for number, (low, high) in enumerate(sorted(crowded))]
    entries = np.array(rows, np.int64).reshape(-1, 3)
    slots = slots_of(entries, len(rows) + free)
    pending = np.zeros((PENDING_MAX, PENDING_COLUMN_COUNT), np.int64)

    def found(low: int, high: int) -> int:
        pending[0, [PendingColumn.HASH_LOW, PendingColumn.HASH_HIGH]] = low, high
        return find_offset(pending, slots)

    assert [found(low, high) for low, high, _ in rows] == [number - 1 for *_, number in rows]
    if free:
        assert found(1, 9) == found(-1, 9) == -1
    assert sorted(map(tuple, SkimpyOffsetMap.of(entries, 7).entries().tolist())) == sorted(rows)


def test_merged_entries_are_the_last_offsets_of_each_groups_own_keys() -> None:
    """Goal: a key that was asked for twice comes once, and one without any offset not at all.
    Method: three groups by hand, one of them empty.
    """

    def table(*rows: tuple[int, int, int]) -> Rows:
        return np.array(rows, np.int64).reshape(-1, 3)

    merged = merge_entries(
        [
            table((1, 1, 5), (1, 2, 6), (7, 7, 0), (1, 1, 0)),
            table(),
            table((1, 1, 9), (1, 2, 3), (8, 8, 2)),
        ]
    )
    assert [each.tolist() for each in merged] == [
        [[1, 1, 9], [1, 2, 6]],
        [],
        [[1, 1, 9], [1, 2, 6], [8, 8, 2]],
    ]
    assert [len(each) for each in merge_entries([table(), table()])] == [0, 0]


# Few keys, whose halves begin their search at few slots, or at the last one.
HALVES = st.sampled_from((0, 1, 2, -1, 2**32 - 1, 2**40 + 1, -(2**63)))
ROWS = st.lists(st.tuples(HALVES, HALVES, st.integers(0, 5)), max_size=12)


@given(st.lists(ROWS, min_size=1, max_size=5))
def test_merged_entries_are_those_of_a_dictionary(tables: list[list[tuple[int, int, int]]]) -> None:
    """Goal: each group's own keys, once, with the last offset of all groups.
    Method: tables by chance with keys that meet in their slots; a dictionary.
    """
    latest: dict[tuple[int, int], int] = {}
    for low, high, offset in (row for rows in tables for row in rows):
        latest[low, high] = max(latest.get((low, high), 0), offset)
    merged = merge_entries([np.array(rows, np.int64).reshape(-1, 3) for rows in tables])
    for rows, found in zip(tables, merged, strict=True):
        keys = dict.fromkeys((low, high) for low, high, _ in rows)
        assert list(map(tuple, found.tolist())) == [
            (*key, latest[key]) for key in keys if latest[key]
        ]
