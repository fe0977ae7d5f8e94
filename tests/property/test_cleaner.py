"""Goal: a round keeps what the rules keep, and no reader is ever misled by it.
Method: logs of every kind of batch by chance; the plain twin, and what readers can see before and
after. A seed makes its log again.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog.cleaner.config import CleanerConfig, TombstoneHorizon
from kafkalog.log.inspect.invariants import check_invariants
from tests.cleaner_world import NOW_MS, CleanerWorld, with_config
from tests.naive.cleaning_logs import make_log

SEEDS = st.integers(0, 2**32)
LATER_MS = NOW_MS + 100_000


def world_of(seed: int, *, by_segment: bool = False, keys_max: int | None = None) -> CleanerWorld:
    """A log by chance, its active segment included, with limits by chance."""
    chance = random.Random(seed)
    made = make_log(chance)
    horizon = TombstoneHorizon.SEGMENT if by_segment else TombstoneHorizon.BATCH
    world = CleanerWorld(
        made.segments,
        with_config(
            internal_segment_bytes=chance.choice((300, 3_000, 10**6)),
            delete_retention_ms=chance.choice((0, 2_000, 30_000)),
            index_interval_bytes=chance.choice((0, 200, 4_096)),
        ),
        keys_max=keys_max or chance.choice((1, 2, 5, 1_000)),
        cleaner_config=CleanerConfig(
            io_buffer_bytes=chance.choice((100, 1_500, 65_536)), tombstone_horizon=horizon
        ),
    )
    if world.log.segments.active.size_bytes:
        world.log.roll()
    return world


@pytest.mark.parametrize("by_segment", [False, True], ids=["batch", "segment"])
@given(seed=SEEDS, first=st.floats(0, 1), now_ms=st.sampled_from([NOW_MS + 10_000, LATER_MS]))
@settings(max_examples=60, deadline=None)
def test_a_round_is_the_twins(by_segment: bool, seed: int, first: float, now_ms: int) -> None:
    """M20 M21 M22. Goal: segments, batches, abort entries, figures.

    Method: the twin, from any first offset.
    """
    world = world_of(seed, by_segment=by_segment)
    end = world.log.log_end_offset
    start = world.log.segments.first.base_offset
    to_clean = world.look(start + int((end - start) * first), now_ms)
    if not to_clean.cleanable_bytes:
        return
    twin = world.twin(to_clean, now_ms, by_segment=by_segment)
    untouched = [each for each in world.bases() if each >= twin.end_offset]
    result = world.round(to_clean.first_dirty_offset, now_ms)
    stats = result.stats
    assert result.end_offset == twin.end_offset
    assert world.bases() == [*twin.cleaned, *untouched]
    for base, batches in twin.cleaned.items():
        segment = world.log.segments.get(base)
        assert segment is not None
        assert world.batches_of(segment) == batches
    kept = [each for base in twin.aborted for each in twin.aborted[base]]
    assert [each for each in world.aborted() if each.last < twin.end_offset] == [
        each for each in kept if each.last < twin.end_offset
    ]
    assert (stats.messages_read, stats.messages_written) == (
        twin.messages_read,
        twin.messages_written,
    )
    assert (stats.bytes_read, stats.bytes_written) == (twin.bytes_read, twin.bytes_written)
    assert (stats.map_messages_read, stats.map_size) == (twin.map_messages_read, twin.map_size)
    assert stats.invalid_messages_read == twin.invalid
    assert world.staged_names() == []
    check_invariants(world.log)


@given(seed=SEEDS)
@settings(max_examples=60, deadline=None)
def test_readers_see_every_final_value(seed: int) -> None:
    """M20 M21 M22. Offsets never change, and the last value of a key stays where it was."""
    world = world_of(seed)
    committed = world.visible()
    final = {each[1]: each for each in committed if each[1] is not None}
    world.rounds(LATER_MS)
    after = world.visible()
    assert set(after) <= set(committed)
    for key, (offset, _, value) in final.items():
        found = [each for each in after if each[1] == key]
        if value is not None:
            assert (offset, key, value) in found, key
        assert all(each[0] <= offset for each in found)
    reopened = world.reopened()
    assert reopened.visible() == after
    assert reopened.log.log_end_offset == world.log.log_end_offset


@given(seed=SEEDS)
@settings(max_examples=40, deadline=None)
def test_a_clean_log_is_not_changed_by_another_round(seed: int) -> None:
    """M20 M21 M22. Cleaning is idempotent."""
    world = world_of(seed, keys_max=1_000)
    start = world.log.segments.first.base_offset
    seen = []
    for _ in range(12):
        world.round(start, LATER_MS)
        seen.append([each.data for each in world.batches()])
    assert seen[-1] == seen[-2]


@given(seed=SEEDS)
@settings(max_examples=30, deadline=None)
def test_a_dry_run_counts_and_writes_nothing(seed: int) -> None:
    """M20 M21 M22. Its figures are those of the round that follows."""
    world = world_of(seed)
    before, operations = world.batches(), len(world.disk.operations)
    planned = world.round(now_ms=LATER_MS, dry_run=True)
    assert len(world.disk.operations) == operations
    assert world.batches() == before
    done = world.round(now_ms=LATER_MS)
    assert done.end_offset == planned.end_offset
    for name in ("messages_read", "messages_written", "bytes_written", "superseded", "aborted"):
        assert getattr(done.stats, name) == getattr(planned.stats, name)
