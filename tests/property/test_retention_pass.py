"""Goal: a pass over a log deletes exactly what the simulation of this moment says, and once.
Method: random appends, rolls, log starts and limits on a log; the forecast beside what
the pass returns, the files that are left, and what a restart makes of them.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog.log.inspect.invariants import check_invariants
from kafkalog.log.log_config import LogConfig
from kafkalog.log.retention import execute
from kafkalog.log.retention.forecast import Schedule, simulate
from tests.partition_world import NOW_MS, PartitionWorld, batch

CONFIG = LogConfig(internal_segment_bytes=400, segment_index_bytes=96, index_interval_bytes=100)
APPENDS = st.lists(
    st.tuples(st.integers(1, 300), st.integers(-60, 10), st.booleans()), min_size=1, max_size=12
)
LIMITS = st.just(-1) | st.integers(0, 2000)


@settings(max_examples=150, deadline=None)
@given(
    appends=APPENDS,
    start=st.integers(0, 12),
    max_bytes=LIMITS,
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
