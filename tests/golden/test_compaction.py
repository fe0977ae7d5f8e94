"""Goal: the published figures of compaction come out.
Method: the planner, the map and whole rounds on the cases that the figures were given for.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafkalog.cleaner.config import CleanerConfig, TombstoneHorizon
from kafkalog.cleaner.plan import (
    CleaningFacts,
    NotCleanable,
    SegmentFacts,
    SegmentSizes,
    group_segments,
    plan_cleaning,
)
from kafkalog.log.log_config import LogConfig
from tests.cleaner_world import COMPACT, NOW_MS, CleanerWorld, one, segments_of

GB = 1_073_741_824
DEFAULTS = LogConfig(cleanup_policy=frozenset({"compact"}))


def sizes_of(log_bytes: list[int]) -> list[SegmentSizes]:
    """Segments of ten offsets each."""
    return [SegmentSizes(place * 10, size, 0, 0) for place, size in enumerate(log_bytes)]


def test_the_published_grouping() -> None:
    """M17 M20 M21. 0.4 0.4 0.3 0.7 0.3 1.0 at 1 GB."""
    sizes = [429_496_730, 429_496_730, 322_122_547, 751_619_277, 322_122_547, GB]
    assert sizes[2] + sizes[3] == GB
    groups = group_segments(sizes_of(sizes), GB, 10 << 20, 60)
    assert [list(group) for group in groups] == [[0, 1], [2, 3], [4], [5]]


def test_one_byte_more_does_not_join() -> None:
    """M17 M20 M21. The limit itself is inside."""
    assert len(group_segments(sizes_of([400, 600]), 1000, 8, 20)) == 1
    assert len(group_segments(sizes_of([400, 601]), 1000, 8, 20)) == 2
    entries = [SegmentSizes(0, 1, 8, 12), SegmentSizes(10, 1, 8, 12)]
    assert len(group_segments(entries, 1000, 24, 20)) == 1
    assert len(group_segments(entries, 1000, 23, 20)) == 2
    assert len(group_segments(entries, 1000, 15, 20)) == 2


@pytest.mark.parametrize(("dirty_bytes", "is_picked"), [(499, False), (500, False), (501, True)])
def test_the_dirty_ratio_is_above_a_half(dirty_bytes: int, is_picked: bool) -> None:
    """M17 M20 M21. Dirty / (clean + dirty), strictly above 0.5."""
    facts = CleaningFacts(
        (
            SegmentFacts(0, 1000 - dirty_bytes, 0, 0),
            SegmentFacts(10, dirty_bytes, 0, 0),
            SegmentFacts(20, 10_000, 0, 0),  # holds the last stable offset
            SegmentFacts(30, 10_000),
        ),
        first_dirty_offset=10,
        last_stable_offset=25,
    )
    plan = plan_cleaning(facts, DEFAULTS, 1_000)
    assert (plan.clean_bytes, plan.cleanable_bytes) == (1000 - dirty_bytes, dirty_bytes)
    assert plan.cleanable_ratio == dirty_bytes / 1000
    assert plan.is_eligible == is_picked
    assert (plan.obstacle is NotCleanable.BELOW_RATIO) == (not is_picked)


def published_log() -> CleanerWorld:
    """k1=v1, k2=v1, k1=v2, k3=v1, k2=null, k1=v3: one record a batch, closed; new data behind."""
    values: list[tuple[bytes, bytes | None]] = [
        (b"k1", b"v1"),
        (b"k2", b"v1"),
        (b"k1", b"v2"),
        (b"k3", b"v1"),
        (b"k2", None),
        (b"k1", b"v3"),
    ]
    batches = [one(offset, key, value) for offset, (key, value) in enumerate(values)]
    world = CleanerWorld(segments_of(batches, [one(6, b"k4")], [one(7, b"k5")]))
    world.log.high_watermark = 6  # the rest is not there yet
    return world


def stored(world: CleanerWorld) -> list[tuple[int, bytes | None, bytes | None]]:
    """Offset, key, value of the published log's records."""
    return [(each.offset, each.key, each.value) for each in world.records() if each.offset < 6]


LEFT = [(3, b"k3", b"v1"), (4, b"k2", None), (5, b"k1", b"v3")]
RETENTION_MS = COMPACT.delete_retention_ms


@pytest.mark.parametrize(("late_ms", "is_gone"), [(RETENTION_MS - 1, False), (RETENTION_MS, True)])
def test_the_published_round(late_ms: int, is_gone: bool) -> None:
    """M17 M20 M21. What is left, where, and the tombstone's horizon."""
    world = published_log()
    result = world.round()
    assert stored(world) == LEFT
    assert result.end_offset == 6
    horizons = {each.header.base_offset: each.horizon for each in world.batches()}
    assert horizons[4] == NOW_MS + RETENTION_MS
    assert horizons[3] is horizons[5] is None
    assert not world.look(6, NOW_MS + late_ms).is_eligible
    world.log.high_watermark = 7
    assert world.look(6, NOW_MS + late_ms).cleanable_bytes > 0
    world.round(6, NOW_MS + late_ms)
    assert stored(world) == [each for each in LEFT if each[2] is not None or not is_gone]


@pytest.mark.parametrize(
    ("younger_ms", "is_gone"), [(RETENTION_MS - 1, False), (RETENTION_MS, True)]
)
def test_the_published_older_rule(younger_ms: int, is_gone: bool) -> None:
    """M17 M20. The first round keeps every tombstone, the second at the earliest drops it."""
    tombstone, clean, dirty = ([one(0, b"k", None)], [one(1, b"a")], [one(2, b"b")])
    segments = segments_of(tombstone, clean, dirty)
    segments[1].modified_ms += younger_ms
    world = CleanerWorld(
        segments,
        replace(COMPACT, internal_segment_bytes=1),
        cleaner_config=CleanerConfig(tombstone_horizon=TombstoneHorizon.SEGMENT),
    )
    world.log.high_watermark = 2
    assert world.round(now_ms=NOW_MS + 10 * RETENTION_MS).end_offset == 2
    assert [each.offset for each in world.records()] == [0, 1, 2]
    assert all(each.horizon is None for each in world.batches())
    world.log.high_watermark = 3
    world.round(2)
    assert [each.offset for each in world.records()] == ([1, 2] if is_gone else [0, 1, 2])
