"""Goal: the published figures of compaction come out.
Method: the planner, the map and whole rounds on the cases that the figures were given for.
"""

from __future__ import annotations

import pytest

from kafkalog.cleaner.cleaning_plan import (
    CleaningFacts,
    NotCleanable,
    SegmentFacts,
    SegmentSizes,
    group_segments,
    plan_cleaning,
)
from kafkalog.log.log_config import LogConfig

GB = 1_073_741_824
DEFAULTS = LogConfig(cleanup_policy=frozenset({"compact"}))


def sizes_of(log_bytes: list[int]) -> list[SegmentSizes]:
    """Segments of ten offsets each."""
    return [SegmentSizes(place * 10, size, 0, 0) for place, size in enumerate(log_bytes)]


def test_the_published_grouping() -> None:
    """Goal: 0.4 0.4 0.3 0.7 0.3 1.0 at 1 GB. Method: those sizes; 0.3 + 0.7 is exactly 1 GB."""
    sizes = [429_496_730, 429_496_730, 322_122_547, 751_619_277, 322_122_547, GB]
    assert sizes[2] + sizes[3] == GB
    groups = group_segments(sizes_of(sizes), GB, 10 << 20, 60)
    assert [list(group) for group in groups] == [[0, 1], [2, 3], [4], [5]]


def test_one_byte_more_does_not_join() -> None:
    """Goal: the limit itself is inside. Method: one byte above it, in each of the three sizes."""
    assert len(group_segments(sizes_of([400, 600]), 1000, 8, 20)) == 1
    assert len(group_segments(sizes_of([400, 601]), 1000, 8, 20)) == 2
    entries = [SegmentSizes(0, 1, 8, 12), SegmentSizes(10, 1, 8, 12)]
    assert len(group_segments(entries, 1000, 24, 20)) == 1
    assert len(group_segments(entries, 1000, 23, 20)) == 2
    assert len(group_segments(entries, 1000, 15, 20)) == 2


@pytest.mark.parametrize(("dirty_bytes", "is_picked"), [(499, False), (500, False), (501, True)])
def test_the_dirty_ratio_is_above_a_half(dirty_bytes: int, is_picked: bool) -> None:
    """Goal: dirty / (clean + dirty), strictly above 0.5. Method: around the limit.

    The active segment and the part that is too young do not count.
    """
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
