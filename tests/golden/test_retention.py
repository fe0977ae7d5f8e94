"""Goal: the published figures of time, size and start-offset retention come out.
Method: the planner and its forecast on the segment facts that the figures were given for.
"""

from __future__ import annotations

import pytest

from kafkalog.log.retention.forecast import Schedule, explain, simulate
from kafkalog.log.retention.plan import Keeper, LogFacts, RetentionPolicy, Rule, SegmentFacts, plan

MB = 1_000_000
NO_TIME = RetentionPolicy(True, -1, -1)
SIZE_LIMITS = pytest.mark.parametrize(
    ("limit", "count"),
    [
        (2_000 * MB, 0),
        (1_401 * MB, 0),
        (1_400 * MB + 1_235, 0),
        (1_400 * MB + 1_234, 1),
        (1_400 * MB, 1),
        (700 * MB, 2),
        (0, 4),
    ],
)


def log_of(
    bases: list[int], end: int, *, sizes: list[int] | None = None, start: int = 0
) -> LogFacts:
    """All visible; one byte a segment unless sizes are given; timestamps 0."""
    sizes = sizes or [1] * len(bases)
    segments = tuple(SegmentFacts(base, size, 0) for base, size in zip(bases, sizes, strict=True))
    return LogFacts(segments, sum(sizes), start, end, end)


@SIZE_LIMITS
def test_size_limits(limit: int, count: int) -> None:
    """M09: section 4: never below the limit, equality counts, zero takes all after a roll."""
    facts = log_of([0, 10, 20, 30], 40, sizes=[700 * MB] * 3 + [1_234])
    planned = plan(facts, NO_TIME._replace(retention_bytes=limit), 0)
    assert len(planned.deletions) == count
    assert planned.is_rolled == (count == 4)
    assert {each.rule for each in planned.deletions} <= {Rule.SIZE}


@pytest.mark.parametrize(
    ("start", "count"), [(29_999, 2), (30_000, 3), (39_999, 3), (40_000, 4), (43_211, 4)]
)
def test_start_offsets(start: int, count: int) -> None:
    """M10: section 5: whole segments below the log start; the active one stays."""
    facts = log_of([0, 10_000, 20_000, 30_000, 40_000], 43_211, start=start)
    planned = plan(facts, NO_TIME, 0)
    assert len(planned.deletions) == count
    assert planned.log_start_offset == start
    assert not planned.is_rolled


@pytest.mark.parametrize(("start", "gone"), [(25, [0, 11]), (23, [0, 11]), (22, [0])])
def test_start_offset_inside_a_segment(start: int, gone: list[int]) -> None:
    """M10: section 5: the segment that holds the log start stays."""
    planned = plan(log_of([0, 11, 23, 37], 40, start=start), NO_TIME, 0)
    assert [each.base_offset for each in planned.deletions] == gone
    assert planned.log_start_offset == start


def test_how_long_a_record_stays() -> None:
    """M09: section 3: strictly after 19 min, with a check there at 24 min, the files at 25.

    The published 24:00 is the unluckiest phase of the checks: one at exactly 19:00 misses it.
    """
    minute = 60_000
    segments = (SegmentFacts(0, 10_000, 540_000), SegmentFacts(109, 100, 1_800_000))
    facts = LogFacts(segments, 10_100, 0, 110, 110)
    policy = RetentionPolicy(True, 600_000, -1)
    assert plan(facts, policy, 1_140_000).deletions == ()
    assert [each.base_offset for each in plan(facts, policy, 1_140_001).deletions] == [0]
    schedule = Schedule(19 * minute - 10 * minute, 5 * minute, minute)
    first = next(iter(simulate(facts, policy, 545_000, 30 * minute, schedule)))
    assert (first.check_ms, first.files_gone_ms) == (24 * minute, 25 * minute)
    due = explain(facts, policy, 545_000, schedule)[0].due
    assert due is not None
    assert (due.moment_ms, due.expected_ms, due.files_gone_ms) == (
        19 * minute + 1,
        24 * minute,
        25 * minute,
    )
    unknown = explain(facts, policy, 545_000, schedule._replace(next_check_ms=None))[0].due
    assert unknown is not None
    assert (unknown.latest_ms, unknown.files_gone_ms) == (24 * minute, 25 * minute)


def test_nothing_without_limits() -> None:
    """M09: section 3: no limits, nothing ever goes."""
    facts = log_of([0, 10], 20, sizes=[500 * MB, 1])
    assert plan(facts, NO_TIME, 10**15).deletions == ()
    fates = explain(facts, NO_TIME, 10**15, Schedule(None, 1, 1))
    assert [each.keeper for each in fates] == [Keeper.NO_LIMITS, Keeper.OLDER_SEGMENT]


def test_no_segment_of_a_compacted_log_waits_for_an_older_one() -> None:
    """M09: no delete in cleanup.policy keeps each, an empty active one and unseen records too."""
    policy = RetentionPolicy(False, 1, 1)
    for facts in (log_of([0, 10], 20), log_of([0, 10], 20, sizes=[500, 0])):
        for seen in (facts, facts._replace(high_watermark=15)):
            fates = explain(seen, policy, 10**15, Schedule(None, 1, 1))
            assert [each.keeper for each in fates] == [Keeper.POLICY] * 2
    disputed = log_of([0, 10], 20)._replace(is_start_disputed=True)
    fates = explain(disputed, policy, 10**15, Schedule(None, 1, 1))
    assert [each.keeper for each in fates] == [Keeper.DISPUTED_START, Keeper.OLDER_SEGMENT]


def test_one_small_expired_segment() -> None:
    """M09: section 3: the active segment goes too, after a roll; log start = log end."""
    planned = plan(log_of([0], 7), RetentionPolicy(True, 1000, -1), 1_001)
    assert planned.is_rolled
    assert planned.log_start_offset == 7


def test_half_of_the_limit() -> None:
    """M09: section 3: a limit of 1 GB and 500 MB of data: offset 0 stays readable."""
    facts = log_of([0, 10], 20, sizes=[400 * MB, 100 * MB])
    assert plan(facts, NO_TIME._replace(retention_bytes=1_000 * MB), 10**15).deletions == ()
