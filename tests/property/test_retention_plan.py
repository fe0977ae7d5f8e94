"""Goal: the planner deletes what Kafka's three passes do, its forecast is its own plan later, and a
pass deletes exactly what the simulation says.
Method: segments and limits by chance beside the plain twin.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, given, settings, strategies as st

from kafkalog.log.inspect.invariants import check_invariants
from kafkalog.log.log_config import LogConfig
from kafkalog.log.retention import execute
from kafkalog.log.retention.forecast import (
    Schedule,
    after,
    departures,
    explain,
    left_ratio,
    simulate,
)
from kafkalog.log.retention.plan import Hold, Keeper, LogFacts, RetentionPolicy, SegmentFacts, plan
from tests.naive.retention import PlainLog
from tests.partition_world import NOW_MS, PartitionWorld, batch

NOW = 1_000_000
SIZES = st.integers(0, 5) | st.integers(0, 1000)
TIMES = st.integers(NOW - 50, NOW + 20)
LIMITS = st.just(-1) | st.integers(0, 60) | st.integers(0, 4000)
POLICIES = st.builds(RetentionPolicy, st.booleans(), LIMITS, LIMITS)


@st.composite
def logs(draw: st.DrawFn) -> LogFacts:
    """One to eight segments, watermark, log start and hold anywhere."""
    steps = draw(st.lists(st.integers(1, 20), min_size=1, max_size=8))
    bases = [sum(steps[:number]) for number in range(len(steps))]
    segments = tuple(SegmentFacts(base, draw(SIZES), draw(TIMES)) for base in bases)
    end = bases[-1] + (draw(st.integers(1, 9)) if segments[-1].size_bytes else 0)
    start = draw(st.integers(bases[0], end))
    return LogFacts(
        segments=segments,
        size_bytes=sum(segment.size_bytes for segment in segments),
        log_start_offset=start,
        high_watermark=draw(st.integers(start, end)),
        log_end_offset=end,
        hold=draw(st.none() | st.builds(Hold, st.integers(0, end), st.integers(-1, 40) | SIZES)),
    )


@given(facts=logs(), policy=POLICIES)
def test_the_plan_is_what_three_passes_do(facts: LogFacts, policy: RetentionPolicy) -> None:
    """M09: segments, rules, the roll, the new log start, and whether a hold gave way."""
    twin = PlainLog(
        list(facts.segments),
        facts.log_start_offset,
        facts.high_watermark,
        facts.log_end_offset,
        facts.hold,
    )
    twin.run_held(
        has_delete=policy.is_deleted,
        max_ms=policy.retention_ms,
        max_bytes=policy.retention_bytes,
        now=NOW,
    )
    planned = plan(facts, policy, NOW)
    assert [(each.base_offset, each.rule.value) for each in planned.deletions] == twin.deleted
    assert planned.is_rolled == twin.rolled
    assert planned.log_start_offset == twin.start
    if planned.deletions and facts.hold is not None and not planned.deletions[-1].is_yielded:
        bases = [segment.base_offset for segment in facts.segments]
        upper = [*bases, facts.log_end_offset][len(planned.deletions)]
        assert upper <= max(facts.hold.offset, facts.log_start_offset)


@given(facts=logs(), policy=POLICIES)
def test_a_pass_takes_what_was_planned(facts: LogFacts, policy: RetentionPolicy) -> None:
    """M09: over what is flushed, without the active segment, the plan is the same."""
    planned = plan(facts, policy, NOW)
    if not planned.is_rolled:
        flushed = facts._replace(flushed_base=facts.segments[-1].base_offset)
        assert plan(flushed, policy, NOW).deletions == planned.deletions


@given(facts=logs(), policy=POLICIES, interval=st.integers(1, 30), first=st.integers(0, 30))
def test_the_forecast_is_the_plan_of_its_moment(
    facts: LogFacts, policy: RetentionPolicy, interval: int, first: int
) -> None:
    """M09: simulate(now) deletes what a pass deletes; a moment is the first at which one would."""
    now_first = Schedule(NOW, interval, 7)
    passes = list(simulate(facts, policy, NOW, 0, now_first))
    planned = plan(facts, policy, NOW)
    assert [each.planned for each in passes] == ([planned] if planned.deletions else [])

    schedule = Schedule(NOW + first, interval, 7)
    left, check = facts, NOW + first
    walked = []
    while check <= NOW + 200:
        found = plan(left, policy, check)
        if found.deletions:
            walked.append((check, found))
            left = after(left, found, check)
        check += interval
    passes = list(simulate(facts, policy, NOW, 200, schedule))
    assert [(each.check_ms, each.planned) for each in passes] == walked

    going = list(departures(facts, policy, NOW, 200, schedule))
    assert [(each.due.expected_ms, each.facts.base_offset, each.rule) for each in going] == [
        (check, deletion.base_offset, deletion.rule)
        for check, found in walked
        for deletion in found.deletions
    ]

    for index, fate in enumerate(explain(facts, policy, NOW, schedule)):
        assert (fate.rule is None) == (index >= len(planned.deletions))
        assert (fate.keeper is None) == (fate.rule is not None)
        if fate.due is not None:
            goes = [plan(facts, policy, fate.due.moment_ms + more) for more in (-1, 0)]
            assert len(goes[1].deletions) > index
            assert len(goes[0].deletions) <= index or fate.due.moment_ms == NOW
        elif fate.keeper is Keeper.LIMITS:
            assert policy.retention_ms < 0


@given(facts=logs(), policy=POLICIES)
def test_bytes_until_is_exact(facts: LogFacts, policy: RetentionPolicy) -> None:
    """M09: so many bytes more behind it, and the size rule takes it; one less does not."""
    schedule = Schedule(None, 10, 7)
    facts = facts._replace(hold=None, log_start_offset=0)
    for index, fate in enumerate(explain(facts, policy, NOW, schedule)):
        if fate.bytes_until is None or fate.rule is not None:
            continue
        for more, goes in ((fate.bytes_until, True), (fate.bytes_until - 1, False)):
            if more < 0:
                continue
            end = facts.log_end_offset + 1
            grown = facts._replace(
                segments=(*facts.segments, SegmentFacts(facts.log_end_offset, more, NOW)),
                size_bytes=facts.size_bytes + more,
                high_watermark=end,
                log_end_offset=end,
            )
            size_only = policy._replace(retention_ms=-1)
            taken = len(plan(grown, size_only, NOW).deletions) > index
            assert taken == goes or (not goes and facts.segments[index].size_bytes == 0)


@given(facts=logs(), policy=POLICIES, data=st.data())
def test_what_is_left_of_the_limits_is_when_the_record_goes(
    facts: LogFacts, policy: RetentionPolicy, data: st.DataObject
) -> None:
    """At 0 the next pass takes its segment, a moment before it does not; None: no pass ever does.

    By each limit alone: an older segment that one limit keeps may go by the other.
    """
    assume(facts.log_start_offset < facts.log_end_offset)
    facts = facts._replace(high_watermark=facts.log_end_offset, hold=None)
    offset = data.draw(st.integers(facts.log_start_offset, facts.log_end_offset - 1))

    def goes_at(moment_ms: int, by: RetentionPolicy) -> bool:
        return plan(facts, by, moment_ms).log_start_offset > offset

    by_time, by_size = policy._replace(retention_bytes=-1), policy._replace(retention_ms=-1)
    shares = [left_ratio(facts, each, NOW, offset) for each in (by_time, by_size)]
    left = left_ratio(facts, policy, NOW, offset)
    assert left == min((each for each in shares if each is not None), default=None)
    if shares[0] is None:
        assert not goes_at(NOW * 10, by_time)
    elif shares[0] < 1:
        moment_ms = NOW + round(shares[0] * policy.retention_ms)
        assert goes_at(moment_ms + 1, by_time)
        assert shares[0] == 0 or not goes_at(moment_ms, by_time)
    if shares[1] is not None:
        assert goes_at(NOW, by_size) == (shares[1] == 0)


@given(facts=logs(), policy=POLICIES)
def test_what_a_hold_keeps_has_no_share(facts: LogFacts, policy: RetentionPolicy) -> None:
    assume(facts.log_start_offset < facts.log_end_offset)
    held = facts._replace(hold=Hold(facts.log_start_offset))
    assert left_ratio(held, policy, NOW, facts.log_start_offset) is None
    disputed = facts._replace(is_start_disputed=True)
    assert left_ratio(disputed, policy, NOW, facts.log_start_offset) is None


CONFIG = LogConfig(internal_segment_bytes=400, segment_index_bytes=96, index_interval_bytes=100)
APPENDS = st.lists(
    st.tuples(st.integers(1, 300), st.integers(-60, 10), st.booleans()), min_size=1, max_size=12
)
PASS_LIMITS = st.just(-1) | st.integers(0, 2000)


@settings(max_examples=150, deadline=None)
@given(
    appends=APPENDS,
    start=st.integers(0, 12),
    max_bytes=PASS_LIMITS,
    max_ms=st.just(-1) | st.integers(0, 70),
)
def test_the_pass_is_its_simulation(
    appends: list[tuple[int, int, bool]], start: int, max_bytes: int, max_ms: int
) -> None:
    """M09: the segments, the roll, the log start; nothing the second time; a restart finds it."""
    world = PartitionWorld(CONFIG)
    for size, age_ms, is_rolled in appends:
        world.append(batch([b"v" * size], timestamps=NOW_MS + age_ms))
        if is_rolled:
            world.log.roll()
    log = world.log
    log.update_high_watermark(log.log_end_offset)
    log.delete_records(min(start, log.log_end_offset))
    log.update_config(replace(CONFIG, retention_bytes=max_bytes, retention_ms=max_ms))
    bases = world.bases()

    facts = execute.facts_of(log)
    policy = execute.policy_of(log.config)
    passes = list(simulate(facts, policy, NOW_MS, 0, Schedule(NOW_MS, 1, 0)))
    expected = [each.base_offset for forecast in passes for each in forecast.planned.deletions]
    planned = execute.plan_of(log, NOW_MS)
    assert [each.base_offset for each in planned.deletions] == expected == bases[: len(expected)]
    if not expected:
        return
    base = execute.begin(log, planned)
    world.flush()
    execute.raise_start(log, NOW_MS, base)
    taken = [each.base_offset for each in execute.finish(log)]
    assert taken == expected
    has_rolled = len(expected) == len(bases)
    assert world.bases() == ([log.log_end_offset] if has_rolled else bases[len(expected) :])
    assert log.log_start_offset == planned.log_start_offset
    assert execute.plan_of(log, NOW_MS).deletions == ()
    check_invariants(log)
    left = (world.bases(), log.log_start_offset, log.log_end_offset)
    world.reopen(clean=False)
    assert (world.bases(), world.log.log_start_offset, world.log.log_end_offset) == left
