"""Goal: appends that share a write leave the files and give the answers of appending one by one.
Method: two partitions get the same sets, one in groups of any size, the other alone; compared.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings, strategies as st

from kafkalog.errors import LogDirOffline
from kafkalog.log import append
from kafkalog.log.inspect.invariants import check_invariants
from kafkalog.log.log_config import LogConfig
from tests.partition_world import DIRECTORY, NOW_MS, PartitionWorld, batch, checked
from tests.sim.sim_faults import Effect, Fault

if TYPE_CHECKING:
    from kafkalog.log.values import LogAppendInfo, ValidatedRecords

SETS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 80), min_size=1, max_size=3),  # bytes of a value in each batch
        st.integers(0, 1500),  # age of the set
        st.booleans(),  # acks=all
    ),
    min_size=1,
    max_size=30,
)


def config_of(index_bytes: int, flush_messages: int, interval: int) -> LogConfig:
    return LogConfig(
        internal_segment_bytes=1200,
        segment_ms=1000,
        segment_index_bytes=index_bytes,
        index_interval_bytes=interval,
        flush_messages=flush_messages,
    )


CONFIGS = st.builds(
    config_of,
    index_bytes=st.sampled_from([12, 24, 60, 1000]),
    flush_messages=st.sampled_from([1, 7, 2**63 - 1]),
    interval=st.sampled_from([0, 150, 400]),
)


def records_of(sizes: list[int], age_ms: int) -> ValidatedRecords:
    stamp = NOW_MS + 1500 - age_ms
    return checked(b"".join(batch([b"x" * size], timestamps=stamp) for size in sizes))


def append_alone(
    world: PartitionWorld, records: ValidatedRecords, *, is_all: bool
) -> LogAppendInfo:
    """As ``AppendCommand.run`` does."""
    log = world.log
    unflushed = log.log_end_offset - log.recovery_point + records.record_count
    return log.append(records, synced=is_all or unflushed >= log.config.flush_messages)


def append_grouped(
    world: PartitionWorld, sets: list[ValidatedRecords], synced: list[bool]
) -> tuple[list[LogAppendInfo], int]:
    """Answers, and how many sets shared a write."""
    answers: list[LogAppendInfo] = []
    grouped = 0
    while len(answers) < len(sets):
        start = len(answers)
        group = world.log.plan_group(sets, synced, start)
        if group.answers:
            world.log.append_group(group)
            answers += group.answers
            grouped += len(group.answers)
        else:
            answers.append(append_alone(world, sets[start], is_all=synced[start]))
    return answers, grouped


def state_of(world: PartitionWorld) -> tuple[object, ...]:
    """Every file, and what readers see."""
    disk, log = world.filesystem, world.log
    names = disk.list_dir(DIRECTORY)
    files = {name: disk.read_file(f"{DIRECTORY}/{name}") for name in names}
    largest = log.local.active_segment.max_timestamp_so_far()
    return files, log.log_end_offset, log.high_watermark, log.epochs.entries, largest


@settings(max_examples=30, deadline=None)
@given(rounds=st.lists(SETS, min_size=1, max_size=4), config=CONFIGS)
def test_groups_equal_one_by_one(
    rounds: list[list[tuple[list[int], int, bool]]], config: LogConfig
) -> None:
    """M01 M03 M04 M06: bytes, rolls, index entries, answers, watermark; flushes in between."""
    alone, grouped = PartitionWorld(config), PartitionWorld(config)
    for shapes in rounds:
        sets = [records_of(sizes, age) for sizes, age, _ in shapes]
        synced = [is_all for _, _, is_all in shapes]
        expected = [
            append_alone(alone, records, is_all=is_all)
            for records, is_all in zip(sets, synced, strict=True)
        ]
        answers, _ = append_grouped(grouped, sets, synced)
        assert answers == expected
        assert state_of(grouped) == state_of(alone)
        check_invariants(grouped.log)
        for world in (alone, grouped):
            world.flush()
        assert state_of(grouped) == state_of(alone)


def append_joined(
    world: PartitionWorld, sets: list[ValidatedRecords], *, is_all: bool
) -> tuple[list[LogAppendInfo], bool]:
    """Answers, and whether they shared one write."""
    joined = append.JoinedBatches()
    for records in sets:
        (facts,) = records.batches
        joined.add(facts.data, facts.record_count, facts.max_timestamp_ms)
    group = world.log.plan_joined(joined, synced=is_all)
    if group is None:
        assert joined.split() == sets
        return append_grouped(world, joined.split(), [is_all] * len(sets))[0], False
    world.log.append_group(group)
    assert group.is_synced == [is_all] * len(sets)
    return group.answers, True


@settings(max_examples=40, deadline=None)
@given(rounds=st.lists(st.tuples(SETS, st.booleans()), min_size=1, max_size=4), config=CONFIGS)
def test_joined_sets_equal_one_by_one(
    rounds: list[tuple[list[tuple[list[int], int, bool]], bool]], config: LogConfig
) -> None:
    """M01 M03 M04 M06: as above, of sets of one batch that come as one piece of memory."""
    alone, joined = PartitionWorld(config), PartitionWorld(config)
    for shapes, is_all in rounds:
        sets = [records_of(sizes[:1], age) for sizes, age, _ in shapes]
        expected = [append_alone(alone, records, is_all=is_all) for records in sets]
        assert append_joined(joined, sets, is_all=is_all)[0] == expected
        assert state_of(joined) == state_of(alone)
        check_invariants(joined.log)
        for world in (alone, joined):
            world.flush()


def test_small_sets_do_share_a_write() -> None:
    """The comparison above is no comparison of nothing; a group stops at its limits."""
    world = PartitionWorld(LogConfig())
    sets = [records_of([10], 0)] * 600
    _, grouped = append_grouped(world, sets, [False] * 600)
    assert grouped == 599  # the first one opens the segment and notes the epoch
    assert len(world.log.plan_group(sets, [False] * 600).answers) == append.BATCHES_MAX
    assert append_joined(world, sets, is_all=True)[1]
    large = [records_of([300_000], 0)] * 5
    assert len(world.log.plan_group(large, [False] * 5).answers) == 3


def test_a_deleted_log_takes_no_group() -> None:
    """Commands may stand in the queue behind the deletion: each is refused alone."""
    world = PartitionWorld(LogConfig())
    sets = [records_of([10], 0)] * 3
    append_grouped(world, sets, [False] * 3)
    world.log.delete()
    assert not world.log.plan_group(sets, [False] * 3).answers
    assert world.log.plan_joined(append.JoinedBatches(), synced=True) is None
    with pytest.raises(LogDirOffline):
        append_alone(world, sets[0], is_all=False)


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
def test_a_failed_group_leaves_nothing(suffix: str) -> None:
    """M15: half a write, of bytes or of an index entry; the next group is as if it never was."""
    config = config_of(1000, 2**63 - 1, 150)
    world, twin = PartitionWorld(config), PartitionWorld(config)
    sets, synced = [records_of([20], age) for age in (90, 60, 30, 0)], [False, True, False, True]
    for each in (world, twin):
        append_alone(each, records_of([20], 100), is_all=False)
    before = state_of(world)
    fault = Fault(
        Effect.SHORT_WRITE, errno.ENOSPC, frozenset({"write"}), path_contains=suffix, times=10**9
    )
    world.filesystem.faults.add(fault)
    with pytest.raises(OSError, match="simulated fault"):
        append_grouped(world, sets, synced)
    world.filesystem.faults.clear()
    assert not world.log.is_broken
    assert before[1:] == state_of(world)[1:]
    check_invariants(world.log)
    assert append_grouped(world, sets, synced)[0] == append_grouped(twin, sets, synced)[0]
    assert state_of(world) == state_of(twin)
