"""Goal: the planner finds the range of a round, and groups sources, as Kafka's rules say.
Method: random facts; the plain twin that asks every segment; what may never happen.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

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
from kafkalog.log.log_config import LogConfig
from tests.naive.cleaning import PlainFacts, plain_groups, plain_range

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
    """M17 M20. Goal: bounds, bytes and delay. Method: the twin; the verdict from its figures."""
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
