"""Goal: a partition moves to another log directory while it serves; whatever interrupts the move,
it goes on or leaves all as it was, and nothing is lost.
Method: managers over two simulated disks; stops, kills and failing calls.
"""

from __future__ import annotations

import errno
from functools import partial
from typing import TYPE_CHECKING

import pytest

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.broker.directory.commands import AppendCommand, FlushCommand, Until
from kafkalog.broker.moves.partition_move import (
    SLICE_BYTES,
    UNFLUSHED_BYTES_MAX,
    MoveStep,
    hold_appends,
    next_step,
)
from kafkalog.broker.values import Acks, ConfigChange, MoveState
from kafkalog.cleaner.stats import CleaningRun, CleanRequest
from kafkalog.errors import (
    InvalidReplicaAssignment,
    InvalidTopicName,
    LogDirNotFound,
    LogDirOffline,
    PartitionMoving,
    StorageFault,
    UnknownMove,
    UnknownPartition,
    UnknownTopic,
)
from kafkalog.format.topic_names import DirectoryState
from kafkalog.log import future_log
from kafkalog.log.inspect.invariants import check_invariants
from kafkalog.log.values import Isolation, LogAppendInfo
from tests.cleaning_daemon import keyed_batch
from tests.moving_world import SLOW, T0, A, B, begun, contents, ended, move, place, states, world
from tests.partition_world import batch
from tests.sim.sim_crash import CrashMode
from tests.sim.sim_faults import Fault
from tests.sim.sim_manager import DIRS, SimManager, batch_of, records_of

if TYPE_CHECKING:
    from kafkalog.log.future_log import Slice
    from kafkalog.log.unified_log import UnifiedLog


def test_a_partition_moves_with_all_it_holds() -> None:
    sim = world()
    log = sim.manager.logs.log_of("t", 0)
    before, end, epochs = contents(sim), log.log_end_offset, log.epochs.entries
    assert place(sim) == A
    status = move(sim)
    assert (status.state, status.source, status.target) == (MoveState.DONE, A, B)
    assert (status.offset_lag, status.copied_bytes) == (0, status.size_bytes)
    moved = sim.manager.logs.log_of("t", 0)
    assert place(sim) == B
    assert contents(sim) == before
    assert moved.log_end_offset == moved.high_watermark == moved.recovery_point == end
    assert moved.epochs.entries == epochs
    check_invariants(moved)
    assert sim.produce("t", batch_of("behind")).error is None
    assert states(sim) == {A: [DirectoryState.DELETE], B: [DirectoryState.LIVE]}
    assert not sim.manager.logs.table.futures()
    after = contents(sim)
    again = SimManager(sim.stop()).start()
    assert place(again) == B
    assert contents(again) == after
    again.clock.advance_ms(120_000)
    assert states(again) == {A: [], B: [DirectoryState.LIVE]}


def test_the_partition_serves_while_it_is_copied() -> None:
    sim = begun()
    assert sim.produce("t", batch_of("meanwhile")).error is None
    before = contents(sim)
    assert place(sim) == A
    assert ended(sim).state is MoveState.DONE
    assert (place(sim), contents(sim)) == (B, before)


def test_log_dirs_shows_the_copy() -> None:
    """The copy is in its directory with isFuture and its lag, as kafka-log-dirs has it."""
    sim = begun()
    here, there = sim.operations.log_dirs.describe()
    assert [(each.is_future, each.offset_lag) for each in here.partitions] == [(False, 0)]
    (future,) = there.partitions
    (status,) = sim.operations.log_dirs.moves()
    assert (future.topic_partition, future.is_future) == (T0, True)
    assert (future.offset_lag, future.size_bytes) == (status.offset_lag, status.copied_bytes)
    ended(sim)
    here, there = sim.operations.log_dirs.describe()
    assert here.partitions == []
    assert [(each.is_future, each.offset_lag) for each in there.partitions] == [(False, 0)]


def test_deleted_records_stay_deleted() -> None:
    """The log start moves with the partition, inside a segment and beyond what was copied."""
    sim = begun()
    assert sim.delete_records("t", 7).error is None
    before = contents(sim)
    assert ended(sim).state is MoveState.DONE
    moved = sim.manager.logs.log_of("t", 0)
    assert moved.log_start_offset == 7
    assert contents(sim) == before
    check_invariants(moved)
    again = SimManager(sim.kill()).start()
    assert place(again) == B
    assert again.manager.logs.log_of("t", 0).log_start_offset == 7
    assert contents(again) == before


def test_records_that_are_deleted_faster_than_copied_leave_no_gap() -> None:
    """A copy that ends below the log start begins anew behind it, as Kafka's does."""
    sim = world(1, SLOW, segment_bytes=100_000)
    sim.operations.log_dirs.move("t", 0, B)
    sim.threads.run_until_idle()
    for number in range(3):
        sim.produce("t", batch_of(f"later {number}", "x"))
    assert sim.delete_records("t", 5).error is None
    before = contents(sim)
    assert ended(sim).state is MoveState.DONE
    assert contents(sim) == before
    check_invariants(sim.manager.logs.log_of("t", 0))


def test_records_that_are_deleted_right_before_they_are_read_leave_no_gap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sim = world(1, segment_bytes=100_000)
    for number in range(3):
        sim.produce("t", batch_of(f"later {number}", "x"))
    assert sim.delete_records("t", 2).error is None
    read_slice, deletions = future_log.read_slice, [4]

    def read_behind_a_deletion(current: UnifiedLog, offset: int, max_bytes: int) -> Slice:
        while deletions:
            current.increment_log_start_offset(deletions.pop(), "this moment")
        return read_slice(current, offset, max_bytes)

    monkeypatch.setattr(future_log, "read_slice", read_behind_a_deletion)
    assert move(sim).state is MoveState.DONE
    check_invariants(sim.manager.logs.log_of("t", 0))
    assert sim.manager.logs.log_of("t", 0).log_start_offset == 4


def test_a_partition_without_records_moves() -> None:
    sim = world()
    assert sim.delete_records("t", -1).error is None
    end = sim.manager.logs.log_of("t", 0).log_end_offset
    epochs = sim.manager.logs.log_of("t", 0).epochs.entries
    assert move(sim).state is MoveState.DONE
    log = sim.manager.logs.log_of("t", 0)
    assert (log.log_start_offset, log.log_end_offset) == (end, end)
    assert log.epochs.entries == epochs
    assert sim.produce("t", batch_of("next")).error is None
    assert log.log_end_offset == end + 1
    again = SimManager(sim.stop()).start()
    assert again.manager.logs.log_of("t", 0).log_end_offset == end + 1
    assert again.manager.logs.log_of("t", 0).log_start_offset == end


def test_a_new_partition_moves() -> None:
    sim = world(0)
    assert move(sim).state is MoveState.DONE
    assert [tuple(each) for each in sim.manager.logs.log_of("t", 0).epochs.entries] == [(0, 0)]
    assert sim.produce("t", batch_of("first")).error is None


def test_a_gap_at_the_end_is_no_new_offset() -> None:
    sim = world()
    writer = sim.manager.logs.unit_at(A).writer
    log = sim.manager.logs.log_of("t", 0)
    writer.call(lambda: log.roll(40))
    assert move(sim).state is MoveState.DONE
    assert sim.manager.logs.log_of("t", 0).log_end_offset == 40


def test_producers_whose_records_are_gone_are_known() -> None:
    sim = world(1)
    once = batch(["once"], producer=(7, 0, 0))
    first = sim.produce("t", once).result
    assert sim.delete_records("t", -1).error is None
    sim.produce("t", batch_of("later"))
    assert move(sim).state is MoveState.DONE
    assert isinstance(first, LogAppendInfo)
    for _ in range(2):
        assert place(sim) == B
        second = sim.produce("t", once).result
        assert isinstance(second, LogAppendInfo)
        assert (second.duplicate, second.first_offset) == (True, first.first_offset)
        sim.produce("t", batch_of("behind"))
        sim.manager.checkpoints.write_recovery_points(sim.manager.logs.unit_at(B).log_dir)
        sim = SimManager(sim.kill()).start()


def test_configs_reach_the_copy() -> None:
    sim = begun()
    sim.operations.topics.alter_configs("t", [ConfigChange("retention.ms", "5")])
    ended(sim)
    assert sim.manager.logs.log_of("t", 0).config.retention_ms == 5


def test_a_deleted_topic_takes_its_copy_along() -> None:
    """KAFKA-13403: nothing of a topic is left when it is deleted in the middle of a move."""
    sim = begun()
    sim.operations.topics.delete("t")
    assert sim.operations.log_dirs.moves() == []
    assert states(sim) == {A: [DirectoryState.DELETE], B: [DirectoryState.DELETE]}
    sim.threads.run_until_idle()
    sim.clock.advance_ms(120_000)
    assert states(sim) == {A: [], B: []}
    assert all(unit.log_dir.is_online for unit in sim.manager.logs.units)
    sim.operations.topics.create("t", 1)
    assert sim.manager.logs.log_of("t", 0).log_end_offset == 0


def test_a_cancelled_move_leaves_the_partition() -> None:
    for how in ("cancel", "same"):
        sim = begun()
        before = contents(sim)
        if how == "cancel":
            assert sim.operations.log_dirs.cancel_move("t", 0).state is MoveState.CANCELLED
        else:
            assert sim.operations.log_dirs.move("t", 0, A).state is MoveState.DONE
        assert states(sim) == {A: [DirectoryState.LIVE], B: [DirectoryState.DELETE]}
        with pytest.raises(UnknownMove):
            sim.operations.log_dirs.cancel_move("t", 0)
        assert contents(sim) == before
        assert move(sim).state is MoveState.DONE
        assert contents(sim) == before


def test_refusals() -> None:
    config = BrokerConfig(log_dirs=DIRS, cordoned_log_dirs=(B,))
    sim = world(config=config)
    for topic, partition, path, kind in (
        ("none", 0, B, UnknownTopic),
        ("t", 1, B, UnknownPartition),
        ("t", 0, "/data/c", LogDirNotFound),
        ("t", 0, "data/b", LogDirNotFound),
        ("t", 0, B, InvalidReplicaAssignment),
    ):
        with pytest.raises(kind):
            sim.operations.log_dirs.move(topic, partition, path)
    assert sim.operations.log_dirs.move("t", 0, A + "/").state is MoveState.DONE
    assert sim.operations.log_dirs.moves() == []
    sim.manager.logs.unit_at(B).log_dir.is_cordoned = False
    long_name = "n" * 249
    sim.operations.topics.create(long_name, 1)
    with pytest.raises(InvalidTopicName, match="too long"):
        sim.operations.log_dirs.move(long_name, 0, A)
    sim.manager.logs.unit_at(B).log_dir.take_offline("pulled out")
    with pytest.raises(LogDirOffline, match="pulled out"):
        sim.operations.log_dirs.move("t", 0, B)


def test_appends_at_the_very_moment_are_refused_and_nothing_is_appended() -> None:
    """An append that meets the change of names is told to come again (503)."""
    sim = world(1)
    log = sim.manager.logs.log_of("t", 0)
    writer = sim.manager.logs.unit_at(A).writer
    writer.change(log, partial(hold_appends, log), Until.FLUSHED)
    end = log.log_end_offset
    refused = sim.produce("t", batch_of("too early"))
    assert isinstance(refused.error, PartitionMoving)
    assert isinstance(sim.delete_records("t", 1).error, PartitionMoving)
    assert log.log_end_offset == end


def test_who_holds_the_old_log_is_not_given_a_fault_of_the_disk() -> None:
    """KAFKA-19571: a reader of the old log whose files are gone takes no directory offline."""
    sim = world()
    old = sim.manager.logs.log_of("t", 0)
    assert move(sim).state is MoveState.DONE
    sim.clock.advance_ms(120_000)
    assert states(sim)[A] == []
    assert old.read(0, 1000, Isolation.HIGH_WATERMARK).data == b""
    append = AppendCommand(old, records_of(batch_of("x"), old), Acks.ALL, None, None)
    with pytest.raises(PartitionMoving):
        sim.manager.logs.unit_at(A).writer.run(append)
    assert all(unit.log_dir.is_online for unit in sim.manager.logs.units)


def test_there_and_back_again() -> None:
    sim = world()
    expected = contents(sim)
    assert move(sim, B).state is MoveState.DONE
    assert move(sim, A).state is MoveState.DONE
    assert (place(sim), contents(sim)) == (A, expected)
    sim.clock.advance_ms(120_000)
    assert states(sim) == {A: [DirectoryState.LIVE], B: []}
    again = SimManager(sim.stop()).start()
    assert (place(again), contents(again)) == (A, expected)


def test_what_only_a_move_has_named_is_not_replaced_by_an_empty_partition() -> None:
    sim = begun()
    disk = sim.kill()
    disk.remove_tree(f"{A}/t-0")
    again = SimManager(disk).start()
    with pytest.raises(LogDirOffline, match="left by a move"):
        again.manager.logs.log_of("t", 0)
    assert states(again) == {A: [], B: [DirectoryState.FUTURE]}


def test_a_move_goes_on_after_a_stop_and_after_a_kill() -> None:
    for how in ("stop", "kill"):
        sim = begun()
        (before,) = sim.operations.log_dirs.moves()
        expected = contents(sim)
        disk = sim.stop() if how == "stop" else sim.kill()
        again = SimManager(disk, config=SLOW).start()
        again.threads.run_until_idle()
        (status,) = again.operations.log_dirs.moves()
        assert status.copied_bytes >= before.copied_bytes
        assert ended(again).state is MoveState.DONE
        assert (place(again), contents(again)) == (B, expected)


def test_a_stop_ends_the_load_of_a_copy() -> None:
    sim = begun()
    expected = contents(sim)
    again = SimManager(sim.kill(), config=SLOW).start()
    again.manager.stop_loading()
    again.threads.run_until_idle()
    assert again.manager.logs.table.future_of(T0) is None
    assert states(again) == {A: [DirectoryState.LIVE], B: [DirectoryState.FUTURE]}
    third = SimManager(again.stop()).start()
    assert ended(third).state is MoveState.DONE
    assert (place(third), contents(third)) == (B, expected)


def test_a_copy_that_parted_from_its_log_is_begun_anew() -> None:
    sim = world(2, SLOW, segment_bytes=100_000)
    for number in range(4):
        sim.produce("t", batch_of(f"lost {number}", "x" * 20), Acks.LEADER)
    sim.operations.log_dirs.move("t", 0, B)
    future = sim.manager.logs.table.future_of
    sim.threads.run_until(lambda: (log := future(T0)) is not None and log.log_end_offset > 6)
    copy = future(T0)
    assert copy is not None
    sim.manager.logs.unit_at(B).writer.run(FlushCommand(copy))
    disk = sim.disk.crash(CrashMode.DROP_ALL, 0)
    sim.threads.kill_all()
    again = SimManager(disk, config=SLOW).start()
    assert again.manager.logs.log_of("t", 0).log_end_offset == 4
    for number in range(4):
        again.produce("t", batch_of(f"new {number}", "x" * 20))
    expected = contents(again)
    assert ended(again).state is MoveState.DONE
    assert (place(again), contents(again)) == (B, expected)


def test_a_copy_of_a_log_that_was_cleaned_is_begun_anew() -> None:
    """What a clean took away does not come back by an older copy, nor a deleted key with it."""
    sim = SimManager(config=SLOW).start()
    compacted = {"cleanup.policy": "compact", "internal.segment.bytes": "400"}
    sim.operations.topics.create("t", 1, {**compacted, "delete.retention.ms": "0"})
    for key in ("gone", "kept 1", "kept 2", "kept 3", *("k1", "k2") * 8):
        sim.produce("t", keyed_batch((key, "x" * 40)))
    sim.produce("t", keyed_batch(("gone", None)))
    for key in ("k1", "k2") * 5:
        sim.produce("t", keyed_batch((key, "x" * 40)))
    sim.operations.log_dirs.move("t", 0, B)
    sim.threads.run_until_idle()
    copy = sim.manager.logs.table.future_of(T0)
    assert copy is not None
    assert 2 <= copy.log_end_offset <= 4, "its last record is one that no clean takes"
    again = SimManager(sim.kill(), config=SLOW).start()
    again.manager.stop_loading()
    clean(again)  # the tombstone has its horizon now
    for key in ("k1", "k2") * 5:
        again.produce("t", keyed_batch((key, "x" * 40)))
    clean(again)
    expected = contents(again)
    assert b"gone" not in expected
    third = SimManager(again.stop()).start()
    assert ended(third).state is MoveState.DONE
    assert (place(third), contents(third)) == (B, expected)


def clean(sim: SimManager) -> None:
    done: list[CleaningRun] = []
    request = CleanRequest(sim.manager.logs.log_of("t", 0), False, done.append)
    sim.manager.cleaning.cleaner.submit(request)
    sim.threads.run_until(lambda: bool(done))
    assert done[0].error is None
    sim.clock.advance_ms(1)


@pytest.mark.slow
def test_a_target_that_fails_leaves_the_partition_where_it_is() -> None:
    for error in (errno.EIO, errno.ENOSPC):
        nth = 0
        is_struck = True
        while is_struck:
            nth += 1
            sim = world(3)
            fault = sim.disk.faults.add(Fault(error=error, path_contains=B, nth=nth))
            try:
                state = move(sim).state
            except StorageFault:  # the copy could not be made
                assert sim.operations.log_dirs.moves() == []
                state = MoveState.FAILED
            is_struck = fault.seen >= nth
            log = sim.manager.logs.log_of("t", 0)
            if state is MoveState.FAILED:
                assert place(sim) == A
                assert not sim.manager.logs.table.futures()
                assert sim.manager.logs.unit_at(A).log_dir.is_online
                assert states(sim)[A] == [DirectoryState.LIVE]
                assert sim.produce("t", batch_of("goes on")).error is None
                assert log.log_end_offset == 7
        assert nth > 20


def test_a_source_that_fails_keeps_the_copy() -> None:
    for nth in range(1, 8):
        sim = world(3, SLOW)
        sim.operations.log_dirs.move("t", 0, B)
        sim.threads.run_until_idle()
        expected = contents(sim)
        sim.disk.faults.add(Fault(path_contains=A, nth=nth))
        ended(sim)
        again = SimManager(sim.kill()).start()
        if again.operations.log_dirs.moves():
            assert ended(again).state is MoveState.DONE
        assert contents(again) == expected
        assert place(again) == B


@pytest.mark.parametrize(
    ("facts", "step"),
    [
        ((10, 0, False, 0), MoveStep.COPY),
        ((10, 9, False, UNFLUSHED_BYTES_MAX + 1), MoveStep.COPY),
        ((10, 9, True, UNFLUSHED_BYTES_MAX + 1), MoveStep.FLUSH),
        ((10, 9, True, UNFLUSHED_BYTES_MAX), MoveStep.SWAP),
        ((10, 10, False, UNFLUSHED_BYTES_MAX + 1), MoveStep.FLUSH),
        ((10, 10, False, 0), MoveStep.SWAP),
        ((0, 0, False, 0), MoveStep.SWAP),
    ],
)
def test_each_step(facts: tuple[int, int, bool, int], step: MoveStep) -> None:
    assert next_step(*facts) is step


def test_it_ends_while_the_log_grows() -> None:
    log_end, future_end, unflushed = 100 * SLICE_BYTES, 0, 0
    is_near = False
    steps: list[MoveStep] = []
    while not steps or steps[-1] is not MoveStep.SWAP:
        step = next_step(log_end, future_end, is_near, unflushed)
        steps.append(step)
        if step is MoveStep.COPY:
            copied = min(SLICE_BYTES, log_end - future_end)
            future_end += copied
            unflushed += copied
            is_near = future_end == log_end
        else:
            is_near, unflushed = False, 0
        log_end += SLICE_BYTES // 2
        assert len(steps) < 1000
    assert steps[-3:] == [MoveStep.FLUSH, MoveStep.COPY, MoveStep.SWAP]
    assert steps.count(MoveStep.FLUSH) == 1
