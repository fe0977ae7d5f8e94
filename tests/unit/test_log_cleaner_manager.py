"""Goal: the right log is taken, nobody else touches it, its states change as Kafka's do, and the
checkpoint says how far it is.
Method: logs on a simulated disk; the product of states and events.
"""

from __future__ import annotations

import errno
import itertools
from typing import TYPE_CHECKING

import pytest

from kafkalog.broker.values import ConfigChange
from kafkalog.cleaner.log_cleaner_manager import (
    NONE,
    CleaningEvent,
    CleaningPhase,
    CleaningState,
    IllegalTransition,
    next_state,
)
from kafkalog.cleaner.plan import LogToClean
from kafkalog.errors import CleaningConflict, CorruptBatch, DiskFull
from kafkalog.format.disk.checkpoints import decode_offsets, encode_offsets
from kafkalog.format.topic_names import TopicPartition
from tests.cleaning_daemon import NOW_MS, CleaningDaemon
from tests.sim.sim_faults import Effect, Fault
from tests.sim.sim_manager import DIRS
from tests.there import there

if TYPE_CHECKING:
    from kafkalog.log.unified_log import UnifiedLog

T0 = TopicPartition("t", 0)


def file_of(world: CleaningDaemon, log: UnifiedLog) -> str:
    """Path of the checkpoint of the log's directory."""
    return f"{log.directory.rpartition('/')[0]}/cleaner-offset-checkpoint"


def test_the_highest_ratio_is_grabbed_first() -> None:
    world = CleaningDaemon(threads=1)
    for name in ("a", "b", "c"):
        world.topic(name)
    world.turn()
    for name, more in (("a", 4), ("b", 40), ("c", 10)):
        world.fill(name, more)
    world.cleaners.cleaned.clear()
    world.turn()
    assert [key.topic for key, *_ in world.cleaners.cleaned] == ["b", "c", "a"]


def test_a_clean_ends_with_the_checkpoint_on_disk() -> None:
    """M18. The next round begins where this one ended, also after a restart."""
    world = CleaningDaemon()
    log = world.topic()
    world.turn()
    assert world.cleaners.cleaned == [(T0, 0, log.segments.active.base_offset, False)]
    assert world.checkpoint() == log.segments.active.base_offset > 0
    after = CleaningDaemon(world.sim.stop())
    after.fill("t", 12)
    after.turn()
    (_, start, _, _), *_ = after.cleaners.cleaned
    assert start == world.cleaners.cleaned[0][2]


def test_pauses_nest_and_resume_lets_the_cleaner_in() -> None:
    """M18. Paused(n) of Kafka."""
    world = CleaningDaemon()
    world.states.abort_and_pause_cleaning(T0)
    world.states.abort_and_pause_cleaning(T0)
    world.topic()
    world.turn()
    world.states.resume_cleaning([T0])
    world.turn()
    assert world.cleaners.cleaned == []
    assert world.states.state_of(T0).pauses == 1
    world.states.resume_cleaning([T0])
    world.turn()
    assert len(world.cleaners.cleaned) == 1
    with pytest.raises(IllegalTransition):
        world.states.resume_cleaning([T0])


def test_an_operator_takes_back_only_his_own_pauses() -> None:
    world = CleaningDaemon()
    cleaning = world.sim.manager.cleaning
    assert world.states.try_pause(T0)
    with pytest.raises(CleaningConflict):
        cleaning.resume(T0)
    cleaning.pause(T0)
    cleaning.resume(T0)
    assert world.states.state_of(T0).pauses == 1
    assert not world.states.try_pause(T0), "somebody has it"


@pytest.mark.parametrize("seed", range(20))
def test_abort_while_cleaning(seed: int) -> None:
    world = CleaningDaemon(seed=seed, threads=2)
    log = world.topic()
    world.sim.disk.on_call = world.sim.threads.switch_point
    runs = world.run_into_a_clean()
    assert world.states.state_of(T0).phase is CleaningPhase.IN_PROGRESS
    world.states.abort_and_pause_cleaning(T0)
    assert T0 not in world.cleaners.at_work
    assert world.states.state_of(T0).pauses == 1
    assert world.checkpoint() == 0, "the log is named, and nothing of it counts as clean"
    world.turn()
    assert [run.is_aborted for run in runs] == [True]
    assert world.cleaners.cleaned == []
    world.states.resume_cleaning([T0])
    world.turn()
    assert world.checkpoint() == log.segments.active.base_offset
    assert world.states.failure_of(T0) is None, "an abort is no failure"


@pytest.mark.parametrize("seed", range(20))
def test_several_abort_one_clean(seed: int) -> None:
    world = CleaningDaemon(seed=seed)
    world.topic()
    world.run_into_a_clean()
    threads = [
        world.sim.threads.start(f"pauser-{n}", lambda: world.states.abort_and_pause_cleaning(T0))
        for n in range(3)
    ]
    for thread in threads:
        thread.join()
    assert world.states.state_of(T0).pauses == 3
    world.states.resume_cleaning([T0, T0, T0])
    assert world.states.state_of(T0) == NONE


def test_kafka_6266_checkpoint_below_the_log_start_is_put_right_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    world = CleaningDaemon()
    world.topic(cleanup_policy="compact,delete")
    path, disk = file_of(world, world.log()), world.sim.stop()
    disk.write_file_atomically(path, encode_offsets({T0: 0}))
    world = CleaningDaemon(disk)
    world.sim.delete_records("t", world.log().log_end_offset)
    world.sim.operations.topics.alter_configs("t", [ConfigChange("cleanup.policy", "compact")])
    capsys.readouterr()
    for _ in range(5):
        world.turn()
    told = capsys.readouterr().out.count("Resetting first dirty offset of t-0")
    assert told == 1
    assert world.checkpoint() == world.log().log_start_offset


def test_entries_of_unknown_partitions_are_dropped() -> None:
    world = CleaningDaemon()
    log = world.topic(min_cleanable_dirty_ratio="1")
    path = file_of(world, log)
    world.states.note_begun(LogToClean.of(log, 3, 0))
    disk = world.sim.stop()
    disk.write_file_atomically(path, encode_offsets({T0: 3, TopicPartition("gone", 1): 5}))
    world = CleaningDaemon(disk)
    assert decode_offsets(world.sim.disk.read_file(path)) == {T0: 3}


def test_a_topic_made_again_starts_without_a_past() -> None:
    world = CleaningDaemon()
    path = file_of(world, world.topic())
    world.turn()
    world.sim.operations.topics.delete("t")
    assert decode_offsets(world.sim.disk.read_file(path)) == {}
    world.cleaners.cleaned.clear()
    world.topic()
    world.turn()
    assert world.cleaners.cleaned[0][1] == 0


def test_a_checkpoint_that_cannot_be_written_is_remembered() -> None:
    world = CleaningDaemon()
    log = world.topic()
    world.turn()
    clean_below = world.checkpoint()
    world.fill("t", 12)
    calls = frozenset({"create", "write"})
    full = Fault(Effect.RAISE, errno.ENOSPC, calls, path_contains="cleaner-offset", times=10**9)
    world.sim.disk.faults.add(full)
    world.turn()
    world.turn()
    assert len(world.cleaners.cleaned) == 2, "not cleaned again"
    assert world.states.first_dirty_offset(T0) == log.segments.active.base_offset
    assert world.checkpoint() == clean_below
    world.topic("u")
    world.turn()
    assert len(world.cleaners.cleaned) == 2
    assert world.checkpoint("u") is None
    world.sim.disk.faults.disarm()
    world.sim.clock.advance_ms(60_000)
    assert len(world.cleaners.cleaned) == 3


def test_three_failures_make_a_log_uncleanable_until_somebody_asks() -> None:
    world = CleaningDaemon()
    world.topic()
    world.cleaners.errors.extend(
        CorruptBatch("The CRC is wrong", file="x.log", position=9) for _ in range(4)
    )
    failures = []
    for _ in range(30):
        world.turn()
        failures.append(there(world.states.failure_of(T0)).attempts)
    assert failures[0] == 1
    assert failures[-1] == 3
    assert failures.index(3) - failures.index(2) > 1, "the second pause is the longer one"
    failure = there(world.states.failure_of(T0))
    assert failure.is_uncleanable
    assert "The CRC is wrong" in failure.reason
    assert len(world.cleaners.errors) == 1
    assert world.states.retry(T0)
    world.turn()
    assert not world.cleaners.errors
    world.sim.operations.topics.alter_configs("t", [ConfigChange("min.compaction.lag.ms", "1")])
    assert world.states.failure_of(T0) is None, "another config may be the cure"
    world.turn()
    assert len(world.cleaners.cleaned) == 1


def test_a_full_disk_never_makes_a_log_uncleanable_for_good() -> None:
    """M18. The clean comes back when there is room."""
    world = CleaningDaemon()
    world.topic()
    world.cleaners.errors.extend(DiskFull("No space is left") for _ in range(10))
    world.turn()
    assert not there(world.states.failure_of(T0)).is_uncleanable
    world.sim.clock.advance_ms(3_600_000 * 4)
    assert not world.cleaners.errors
    assert len(world.cleaners.cleaned) == 1
    assert world.states.failure_of(T0) is None


def test_a_defect_in_a_clean_is_the_logs_failure() -> None:
    world = CleaningDaemon()
    world.topic("a")
    world.topic("b")
    world.cleaners.errors.append(ValueError("a defect"))
    world.turn()
    assert len(world.states.failures()) == 1
    assert len(world.cleaners.cleaned) == 1
    assert world.sim.manager.cleaning.cleaner.threads()[0].restarts == 0


def test_the_plan_of_the_last_look_is_kept_for_the_metrics() -> None:
    """M18. Gauges ask no log."""
    world = CleaningDaemon()
    world.topic()
    world.turn()
    assert [each.log.topic_partition for each in world.states.statuses] == [T0]
    assert there(world.states.last_inspected_ms) >= NOW_MS


def test_a_move_ends_the_clean_and_takes_the_checkpoint_along() -> None:
    world = CleaningDaemon()
    log = world.topic()
    world.turn()
    clean_to = world.checkpoint()
    old = file_of(world, log)
    world.fill("t", 12)
    runs = world.run_into_a_clean()
    other = next(path for path in DIRS if not log.directory.startswith(path))
    world.sim.operations.log_dirs.move("t", 0, other)
    world.sim.threads.run_until(lambda: world.log().directory.startswith(other))
    world.sim.threads.run_until_idle()
    assert [run.is_aborted for run in runs] == [True]
    assert len(world.cleaners.cleaned) == 1
    assert world.checkpoint() == clean_to
    assert decode_offsets(world.sim.disk.read_file(old)) == {}
    world.turn()
    assert world.cleaners.cleaned[-1][1] == clean_to


def test_an_order_for_a_log_in_work_is_refused_at_once() -> None:
    """M18. Whoever asks for a clean that is under way is told so, not held until it ends."""
    world = CleaningDaemon()
    world.topic()
    world.topic("other")
    runs = world.run_into_a_clean()
    for is_dry in (False, True):
        with pytest.raises(CleaningConflict, match="The cleaning of t-0 is in_progress"):
            world.order(is_dry=is_dry)
    others = world.order("other")
    world.sim.threads.run_until_idle()
    assert [run.error for run in (*runs, *others)] == [None, None]
    assert world.order() == []
    world.sim.stop()


IN_PROGRESS = CleaningState(CleaningPhase.IN_PROGRESS)
ABORTED = CleaningState(CleaningPhase.ABORTED)


def paused(count: int) -> CleaningState:
    """Kafka's LogCleaningPaused(count)."""
    return CleaningState(CleaningPhase.PAUSED, count)


def looked_at(pauses: int, phase: CleaningPhase = CleaningPhase.IN_PROGRESS) -> CleaningState:
    """A dry run beside pauses, or one that somebody waits for."""
    return CleaningState(phase, pauses)


STATES = (
    *(NONE, IN_PROGRESS, ABORTED, paused(1), paused(2), paused(7)),
    *(looked_at(2), looked_at(2, CleaningPhase.ABORTED)),
)
LEGAL = {
    (NONE, CleaningEvent.ACQUIRE): IN_PROGRESS,
    (NONE, CleaningEvent.PAUSE): paused(1),
    (IN_PROGRESS, CleaningEvent.PAUSE): ABORTED,
    (IN_PROGRESS, CleaningEvent.DONE): NONE,
    (ABORTED, CleaningEvent.DONE): paused(1),
    (paused(1), CleaningEvent.PAUSE): paused(2),
    (paused(2), CleaningEvent.PAUSE): paused(3),
    (paused(7), CleaningEvent.PAUSE): paused(8),
    (paused(1), CleaningEvent.RESUME): NONE,
    (paused(2), CleaningEvent.RESUME): paused(1),
    (paused(7), CleaningEvent.RESUME): paused(6),
    (paused(1), CleaningEvent.INSPECT): looked_at(1),
    (paused(2), CleaningEvent.INSPECT): looked_at(2),
    (paused(7), CleaningEvent.INSPECT): looked_at(7),
    (looked_at(2), CleaningEvent.RESUME): looked_at(1),
    (looked_at(2), CleaningEvent.DONE): paused(2),
    (looked_at(2), CleaningEvent.PAUSE): looked_at(2, CleaningPhase.ABORTED),
    (looked_at(2, CleaningPhase.ABORTED), CleaningEvent.RESUME): looked_at(
        1, CleaningPhase.ABORTED
    ),
    (looked_at(2, CleaningPhase.ABORTED), CleaningEvent.DONE): paused(3),
}


@pytest.mark.parametrize(
    ("state", "event"),
    list(itertools.product(STATES, CleaningEvent)),
    ids=lambda each: str(each) if isinstance(each, CleaningState) else each.value,
)
def test_every_event_in_every_state(state: CleaningState, event: CleaningEvent) -> None:
    expected = LEGAL.get((state, event))
    if expected is None:
        with pytest.raises(IllegalTransition, match=event.value):
            next_state(state, event)
    else:
        assert next_state(state, event) == expected
