"""Goal: the planner finds Kafka's range of a round and groups of sources, and a round keeps what
Kafka's rules keep, batch by batch; no reader is misled.
Method: logs by chance beside the plain twin.
"""

from __future__ import annotations

import random
from unittest import mock

import pytest
from hypothesis import given, settings, strategies as st

from kafkalog.cleaner import record_batches
from kafkalog.cleaner.config import CleanerConfig, TombstoneHorizon
from kafkalog.cleaner.plan import (
    CheckpointFault,
    CleaningFacts,
    NotCleanable,
    SegmentFacts,
    SegmentSizes,
    first_dirty,
    group_segments,
    plan_cleaning,
)
from kafkalog.log.inspect.invariants import check_invariants
from kafkalog.log.log_config import LogConfig
from tests.cleaner_world import NOW_MS, CleanerWorld, with_config
from tests.naive.cleaning import PlainFacts, plain_groups, plain_range
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
        keys_max=keys_max or chance.choice((1, 4, 1_000, 1_000)),
        cleaner_config=CleanerConfig(
            io_buffer_bytes=chance.choice((100, 1_500, 65_536)), tombstone_horizon=horizon
        ),
    )
    if world.log.segments.active.size_bytes:
        world.log.roll()
    return world


@pytest.mark.parametrize("by_segment", [False, True], ids=["batch", "segment"])
@given(
    seed=SEEDS,
    first=st.floats(0, 1),
    now_ms=st.sampled_from([NOW_MS + 10_000, LATER_MS]),
    before_ms=st.integers(0, 1),
    group_bytes=st.sampled_from([1, 300, record_batches.GROUP_BYTES]),
)
@settings(max_examples=80, deadline=None)
def test_a_round_is_the_twins(
    by_segment: bool, seed: int, first: float, now_ms: int, before_ms: int, group_bytes: int
) -> None:
    """M11 M20 M21 M22. Also a second and a third one, at or just before the horizons that the one
    before has set; compressed batches are inflated one by one, in groups, or all of a chunk.
    """
    world = world_of(seed, by_segment=by_segment)
    start, end = world.log.segments.first.base_offset, world.log.log_end_offset
    keep_ms = world.config.delete_retention_ms
    with mock.patch.object(record_batches, "GROUP_BYTES", group_bytes):
        check_round(world, start + int((end - start) * first), now_ms, by_segment)
        check_round(world, start, now_ms + keep_ms - before_ms, by_segment)
        check_round(world, start, now_ms + 2 * keep_ms - before_ms, by_segment)


def check_round(world: CleanerWorld, first_dirty: int, now_ms: int, by_segment: bool) -> None:
    """Segments, batches, abort entries, figures."""
    to_clean = world.look(first_dirty, now_ms)
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
    for reason in ("superseded", "expired_tombstones", "aborted", "markers"):
        assert getattr(stats, reason) == twin.dropped[reason], reason
    written = [each for batches in twin.cleaned.values() for each in batches]
    horizons = [each.horizon for each in written if each.horizon is not None]
    assert stats.batches_written == len(written)
    assert (stats.waiting_batches, stats.next_horizon_ms) == (
        len(horizons),
        min(horizons, default=None),
    )
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


NOW = 1_000_000
TIMES = st.integers(NOW - 60, NOW + 20) | st.sampled_from([-1, 0])
LAGS = st.just(0) | st.integers(1, 80)


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[PlainFacts], int, int]:
    """Segments, first dirty offset and last stable offset."""
    steps = draw(st.lists(st.integers(1, 9), min_size=1, max_size=8))
    bases = [sum(steps[:number]) - steps[0] for number in range(1, len(steps) + 1)]
    segments = [
        PlainFacts(base, draw(st.integers(0, 5)), draw(TIMES), draw(TIMES)) for base in bases
    ]
    end = bases[-1] + draw(st.integers(0, 9))
    return segments, draw(st.integers(0, end)), draw(st.integers(0, end))


@given(log=logs(), min_lag=LAGS, max_lag=LAGS, ratio=st.sampled_from([0.0, 0.3, 0.5, 1.0]))
def test_the_range_is_the_twins(
    log: tuple[list[PlainFacts], int, int], min_lag: int, max_lag: int, ratio: float
) -> None:
    """M17 M20. Bounds, bytes and delay."""
    segments, dirty, stable = log
    config = LogConfig(
        min_compaction_lag_ms=min_lag,
        max_compaction_lag_ms=max_lag,
        min_cleanable_dirty_ratio=ratio,
    )
    facts = CleaningFacts(
        tuple(SegmentFacts(each.base, each.size, each.largest, each.first) for each in segments),
        dirty,
        stable,
    )
    plan = plan_cleaning(facts, config, NOW)
    twin = plain_range(segments, dirty, stable, NOW, min_lag, max_lag)
    assert plan.first_dirty_offset == dirty
    assert plan.first_uncleanable_offset == twin.uncleanable
    assert (plan.clean_bytes, plan.cleanable_bytes) == (twin.clean_bytes, twin.cleanable_bytes)
    assert plan.overdue_ms == twin.overdue
    total = twin.clean_bytes + twin.cleanable_bytes
    is_picked = twin.cleanable_bytes > 0 and (
        twin.overdue > 0 or twin.cleanable_bytes / total > ratio
    )
    assert plan.is_eligible == is_picked
    if not twin.cleanable_bytes:
        assert plan.obstacle is NotCleanable.NOTHING_CLEANABLE
    assert plan.first_uncleanable_offset <= segments[-1].base


@given(
    log=logs(),
    checkpoint=st.none() | st.integers(-5, 60),
    start=st.integers(0, 20),
    length=st.integers(0, 20),
)
def test_a_checkpoint_outside_the_log_is_not_believed(
    log: tuple[list[PlainFacts], int, int], checkpoint: int | None, start: int, length: int
) -> None:
    """M17 M20. Both resets."""
    dirty = first_dirty(checkpoint, start, start + length)
    assert start <= dirty.offset <= start + length
    if checkpoint is not None and start <= checkpoint <= start + length:
        assert dirty == (checkpoint, None)
    else:
        assert dirty.offset == start
    assert (dirty.fault is CheckpointFault.BELOW_LOG_START) == (
        checkpoint is not None and checkpoint < start
    )


FAR = 2**31


@given(
    sizes=st.lists(
        st.tuples(
            st.integers(1, 9) | st.sampled_from([FAR - 2, FAR - 1, FAR, FAR // 2]),
            st.integers(0, 6),
            st.integers(0, 4),
            st.integers(0, 4),
        ),
        min_size=0,
        max_size=9,
    ),
    last=st.integers(1, 9) | st.just(FAR),
    segment_bytes=st.integers(0, 20),
    index_bytes=st.integers(0, 12),
)
def test_groups_are_the_twins(
    sizes: list[tuple[int, int, int, int]], last: int, segment_bytes: int, index_bytes: int
) -> None:
    """M17 M20. Who joins whom."""
    rows, base = [], 0
    for step, log, offsets, times in sizes:
        rows.append((base, log, offsets, times))
        base += step
    end = (rows[-1][0] if rows else 0) + last
    groups = group_segments([SegmentSizes(*row) for row in rows], segment_bytes, index_bytes, end)
    found = [[rows[place][0] for place in group] for group in groups]
    assert found == plain_groups(rows, segment_bytes, index_bytes, end)
    assert [base for group in found for base in group] == [row[0] for row in rows]
