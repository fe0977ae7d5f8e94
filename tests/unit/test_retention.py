"""Goal: the retention task deletes what the plan says, when it says so, and what people are told
about it is what the next checks do, to the millisecond.
Method: logs on a simulated disk and clock; reports beside later passes.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from kafkalog.broker import tasks
from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.broker.retention.report import RetentionOutcome
from kafkalog.broker.retention.retention import RETENTION_TASK, FinishCommand
from kafkalog.broker.values import Acks
from kafkalog.env.scheduler import TaskState
from kafkalog.errors import (
    InvalidTopicConfig,
    InvalidTopicName,
    KafkalogError,
    NotReady,
    UnknownPartition,
)
from kafkalog.format.records.batch_builder import RecordColumns, build_batch
from kafkalog.format.topic_names import TopicPartition
from kafkalog.log.inspect.invariants import check_invariants
from kafkalog.log.log_config import LogConfig
from kafkalog.log.retention import execute
from kafkalog.log.retention.forecast import Schedule, explain
from kafkalog.log.retention.plan import Hold, Keeper, Rule
from kafkalog.log.validator import validate
from kafkalog.log.values import AppendOrigin
from tests.sim.sim_faults import Fault
from tests.sim.sim_manager import DIRS, SimManager

if TYPE_CHECKING:
    from kafkalog.broker.retention.report import RetentionSimulation, SegmentReport
    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.log.values import ValidatedRecords
    from tests.sim.sim_filesystem import SimFilesystem


MINUTE = 60_000
HOUR = 60 * MINUTE
TEN_YEARS = 3_650 * 86_400_000
TP = TopicPartition("t", 0)


def started(*, check_ms: int = 5 * MINUTE, guard: bool = True) -> SimManager:
    config = BrokerConfig(
        log_dirs=DIRS,
        log_initial_task_delay_ms=0,
        log_retention_check_interval_ms=check_ms,
        log_retention_clock_guard=guard,
        # the other tasks would run a million times in 30 days
        log_flush_scheduler_interval_ms=3_600_000,
        replica_high_watermark_checkpoint_interval_ms=3_600_000,
        log_flush_offset_checkpoint_interval_ms=3_600_000,
        log_flush_start_offset_checkpoint_interval_ms=3_600_000,
    )
    return SimManager(config=config).start()


def one_record(sim: SimManager, log: UnifiedLog, size: int = 10) -> ValidatedRecords:
    now_ms = sim.clock.wall_ms()
    data = build_batch(RecordColumns.of([None], [b"x" * size], now_ms))
    return validate(data, log.config, now_ms, AppendOrigin.CLIENT, max_decompressed_bytes=1 << 20)


def put(sim: SimManager, *, size: int = 10, topic: str = "t") -> None:
    log = sim.operations.partition_log(topic, 0)
    done: list[object] = []
    records = one_record(sim, log, size)
    sim.operations.submit_produce(log, records, Acks.LEADER, on_done=done.append)
    sim.threads.run_until(lambda: bool(done))


def bases(sim: SimManager, topic: str = "t") -> list[int]:
    return [segment.base_offset for segment in sim.operations.partition_log(topic, 0).segments]


def names(sim: SimManager, suffix: str) -> list[str]:
    path = sim.operations.partition_log("t", 0).directory
    return [name for name in sim.disk.list_dir(path) if name.endswith(suffix)]


def fill(sim: SimManager, segments: int, *, age_ms: int = MINUTE, topic: str = "t") -> None:
    """Closed segments of one record each, one every age_ms, and an empty active one."""
    log = sim.operations.partition_log(topic, 0)
    for _ in range(segments):
        put(sim, topic=topic)
        sim.manager.logs.unit_of(log).writer.call(log.roll)
        sim.clock.advance_ms(age_ms)


def test_how_long_a_record_stays() -> None:
    """M09: golden section 3: a record every 5 s, checks that miss 19:00; files gone at 25:00."""
    sim = started(check_ms=10**12)
    sim.operations.topics.create(
        "t",
        1,
        {"retention.ms": "600000", "segment.bytes": "1048576", "file.delete.delay.ms": "60000"},
    )
    start = sim.clock.wall_ms()

    def at(moment_ms: int) -> None:
        sim.clock.advance_ms(start + moment_ms - sim.clock.wall_ms())

    for number in range(110):
        at(number * 5_000)
        put(sim, size=9_540)
    log = sim.operations.partition_log("t", 0)
    assert bases(sim) == [0, 109]
    at(19 * MINUTE)
    assert sim.manager.retention.run_once() == 0
    at(24 * MINUTE)
    put(sim)
    assert sim.manager.retention.run_once() == 1
    assert (bases(sim), log.log_start_offset) == ([109], 109)
    assert names(sim, ".log.deleted") == ["00000000000000000000.log.deleted"]
    at(25 * MINUTE - 1)
    assert names(sim, ".deleted") != []
    at(25 * MINUTE)
    assert names(sim, ".deleted") == []
    check_invariants(log)


def test_the_task_runs_by_its_name_and_period() -> None:
    """M09 M13: kafka-log-retention, first after the initial delay, then every interval."""
    sim = started().with_topic("t", 1, {"retention.ms": "60000"})
    fill(sim, 4)
    assert len(bases(sim)) == 5
    sim.clock.advance_ms(5 * MINUTE)
    assert bases(sim) == [4]
    assert sim.operations.partition_log("t", 0).log_start_offset == 4


def test_deletions_that_wait_are_told_by_name() -> None:
    """M12 M13: delete-file, delete-producer-snapshot: how many wait, when the next is due."""
    sim = started(check_ms=10**12)
    sim.operations.topics.create("t", 1, {"retention.ms": "1", "file.delete.delay.ms": "60000"})
    fill(sim, 3)
    assert sim.manager.retention.run_once() == 3
    due_ms = sim.clock.wall_ms() + MINUTE

    def told() -> dict[str, tuple[TaskState, int, int, int]]:
        return {
            task.name: (task.state, task.waiting, task.runs, task.next_run_ms)
            for task in sim.operations.tasks()
            if task.name in ("delete-file", "delete-producer-snapshot")
        }

    before = told()
    assert sorted(before) == ["delete-file", "delete-producer-snapshot"]
    for state, waiting, runs, next_run_ms in before.values():
        assert (state, runs, next_run_ms) == (TaskState.WAITING, 0, due_ms)
        assert 1 <= waiting <= 3
    sim.clock.advance_ms(MINUTE)
    assert names(sim, ".deleted") == []
    for name, (_, waiting, _, _) in before.items():
        assert told()[name] == (TaskState.IDLE, 0, waiting, -1)


def test_all_go_after_a_roll() -> None:
    """M09: log-lifecycle 16: retention.bytes 0 takes the active segment; a second pass nothing."""
    sim = started(check_ms=10**12).with_topic("t", 1, {"retention.bytes": "0"})
    put(sim)
    assert sim.manager.retention.run_once() == 1
    log = sim.operations.partition_log("t", 0)
    assert (bases(sim), log.log_start_offset, log.log_end_offset, log.size_bytes) == ([1], 1, 1, 0)
    assert sim.manager.retention.run_once() == 0
    put(sim)
    check_invariants(log)


def test_a_plan_of_an_earlier_moment_takes_no_later_record() -> None:
    """M09: the segment that was active when it was planned got a fresh record and was rolled."""
    configs = {"retention.ms": str(MINUTE), "file.delete.delay.ms": "0"}
    sim = started(check_ms=10**12).with_topic("t", 1, configs)
    fill(sim, 2)
    put(sim)
    sim.clock.advance_ms(2 * MINUTE)
    log = sim.operations.partition_log("t", 0)
    planned = sim.manager.retention.plan_of(log)
    assert planned.is_rolled
    put(sim)
    sim.manager.logs.unit_of(log).writer.call(log.roll)
    deleted = sim.manager.retention.retain(log, planned)
    assert [each.base_offset for each in deleted] == [0, 1]
    assert (bases(sim), log.log_start_offset, log.log_end_offset) == ([2, 4], 2, 4)
    check_invariants(log)


def test_compacted_logs_are_left_to_the_cleaner() -> None:
    """M09: with compact in its policy the task does not touch a log; ``retain`` does."""
    sim = started(check_ms=10**12)
    sim.operations.topics.create("t", 1, {"cleanup.policy": "delete", "retention.ms": "1"})
    fill(sim, 2)
    log = sim.operations.partition_log("t", 0)
    log.update_config(LogConfig(cleanup_policy=frozenset({"compact", "delete"}), retention_ms=1))
    assert sim.manager.retention.run_once() == 0
    assert len(sim.manager.retention.retain(log)) == 2


def test_kafka_5634_nothing_above_the_high_watermark() -> None:
    """M09: what waits for its sync is no reader's yet and does not go (KAFKA-5634)."""
    sim = started(check_ms=10**12).with_topic("t", 1, {"retention.ms": "1"})
    fill(sim, 2)
    log = sim.operations.partition_log("t", 0)
    records = one_record(sim, log)
    sim.manager.logs.unit_of(log).writer.call(lambda: log.append(records, synced=True))
    sim.clock.advance_ms(MINUTE)
    assert (log.high_watermark, log.log_end_offset) == (2, 3)
    assert sim.manager.retention.run_once() == 2
    assert bases(sim) == [2]


def jumped(*, segments: int = 4, old: int = 0) -> SimManager:
    """Closed segments; the ``old`` oldest of them are too old, the others only since a jump."""
    sim = started(check_ms=5 * MINUTE).with_topic("t", 1, {"retention.ms": str(HOUR)})
    fill(sim, old)
    sim.clock.advance_ms(HOUR if old else 0)
    fill(sim, segments - old)
    sim.clock.step_wall_ms(TEN_YEARS)
    return sim


def held_bytes(sim: SimManager) -> float | None:
    return sim.metrics.registry.get_sample_value("kafkalog_retention_clock_held_bytes")


def test_a_clock_that_jumps_ahead_deletes_nothing_until_an_operator_accepts_it() -> None:
    """M09: reliability 2.2: more than half of the log would go: held, however often it is checked.

    Kafka deletes at once.
    """
    sim = started(check_ms=10**12).with_topic("t", 1, {"retention.ms": "600000"})
    fill(sim, 2)
    assert sim.manager.retention.run_once() == 0
    sim.clock.step_wall_ms(TEN_YEARS)
    assert sim.manager.retention.run_once() == 0
    assert sim.metrics.retention_clock_jumps._value.get() == 1
    for _ in range(3):
        assert sim.manager.retention.run_once() == 0
    assert held_bytes(sim) == sim.operations.partition_log("t", 0).size_bytes
    accepted = sim.operations.retention.accept_clock()
    assert accepted.jump_ms == TEN_YEARS
    assert accepted.logs[TP].segments == 2
    assert held_bytes(sim) == 0
    assert sim.manager.retention.run_once() == 2
    unguarded = started(check_ms=10**12, guard=False).with_topic("t", 1, {"retention.ms": "600000"})
    fill(unguarded, 2)
    unguarded.manager.retention.run_once()
    unguarded.clock.step_wall_ms(TEN_YEARS)
    assert unguarded.manager.retention.run_once() == 2


def test_less_than_half_of_a_log_waits_for_one_check_only() -> None:
    """M09: a jump by which two of five segments go: guarded once, then the clock is believed."""
    sim = started(check_ms=10**12).with_topic("t", 1, {"retention.ms": "1000"})
    fill(sim, 2, age_ms=400)
    for _ in range(3):  # their producer is ahead: the jump reaches none of these
        sim.clock.step_wall_ms(HOUR)
        put(sim)
        sim.clock.step_wall_ms(-HOUR)
        sim.manager.logs.unit_of(log := sim.operations.partition_log("t", 0)).writer.call(log.roll)
    assert sim.manager.retention.run_once() == 0
    sim.clock.step_wall_ms(10 * MINUTE)
    assert [sim.manager.retention.run_once() for _ in range(2)] == [0, 2]
    assert held_bytes(sim) == 0


def test_what_is_due_without_the_jump_is_deleted_while_the_rest_is_held() -> None:
    """M09: passes go by the clock without the jump; a log that grows stays held."""
    sim = jumped(segments=4, old=1)
    assert sum(sim.manager.retention.run_once() for _ in range(2)) == 1
    fill(sim, 20)
    assert sim.manager.retention.run_once() == 0
    assert bases(sim)[0] == 1
    sim.clock.advance_ms(HOUR)  # the time passes for the trusted clock, too
    assert bases(sim)[0] == 4


def test_a_clock_that_comes_back_ends_the_hold() -> None:
    """M09 M12: nothing is held, nothing waits for the operator any more; the log says so."""
    sim = jumped()
    sim.clock.advance_ms(5 * MINUTE)
    assert sim.operations.retention.clock_hold().logs.keys() == {TP}
    sim.clock.step_wall_ms(-TEN_YEARS)
    with capture_logs() as lines:
        sim.clock.advance_ms(5 * MINUTE)
    assert sim.operations.retention.clock_hold() == (0, {})
    assert "retention_hold_ended" in [line["event"] for line in lines]
    assert len(bases(sim)) == 5


def test_a_hold_is_told_once_a_minute_at_most_and_what_to_do() -> None:
    """M12: one warning for all logs, with the command that ends it."""
    sim = jumped()
    with capture_logs() as lines:
        for _ in range(30):
            sim.manager.retention.run_once()
            sim.clock.advance_ms(3_000)
    told = [line for line in lines if line["event"] == "retention_held_after_clock_jump"]
    assert len(told) == 2
    assert "kafkalog retention run --accept-clock" in told[0]["what_to_do"]
    assert (told[0]["partitions"], told[0]["jump_seconds"]) == (1, TEN_YEARS // 1000)


def test_held_segments_are_told_with_their_reason() -> None:
    """M09 M12: explain, a dry run, an ordered pass; metrics of what is overdue have none of it."""
    sim = jumped(segments=4, old=1)
    reports = [described(sim)]
    preview = sim.operations.retention.retain("t", 0, dry_run=True)
    assert [each.base_offset for each in preview.deleted] == [0]
    assert preview.clock_held.segments == 3
    ordered = sim.operations.retention.retain("t", 0, dry_run=False)
    assert (ordered.deleted, ordered.clock_held) == (preview.deleted, preview.clock_held)
    reports.append(described(sim))
    for report in reports:
        keepers = [fate.keeper for fate in report.fates][-4:]
        assert keepers == [*[Keeper.CLOCK_JUMP] * 3, Keeper.EMPTY_ACTIVE]
        assert {fate.due for fate in report.fates[-4:]} == {None}
    sim.manager.log_stats.run()
    label = {"topic": "t", "reason": "time"}
    deletable = sim.metrics.registry.get_sample_value("kafkalog_log_deletable_bytes", label)
    assert deletable in (None, 0)


def test_a_cleaner_thread_holds_a_compacted_log_as_well() -> None:
    """M09: what the host plans for compact,delete is by the clock without the jump."""
    sim = jumped()
    log = sim.operations.partition_log("t", 0)
    log.update_config(LogConfig(cleanup_policy=frozenset({"compact", "delete"}), retention_ms=HOUR))
    cleaning = sim.manager.cleaning
    assert cleaning.plan_retention(log, cleaning.begin_retention()) is None
    sim.operations.retention.accept_clock()
    planned = cleaning.plan_retention(log, 0)
    assert planned is not None
    assert len(planned.deletions) == 4


@pytest.mark.parametrize("is_killed", [True, False])
@pytest.mark.parametrize("is_rebooted", [True, False])
def test_a_hold_outlives_a_restart(*, is_killed: bool, is_rebooted: bool) -> None:
    """M09 M14: also of the machine, while its clock is the wrong one; and an acceptance does."""
    sim = jumped()
    sim.clock.advance_ms(5 * MINUTE)
    disk = sim.kill() if is_killed else sim.stop()
    again = restarted(sim, disk, is_rebooted=is_rebooted)
    assert again.operations.retention.clock_hold().logs.keys() == {TP}
    fill(again, 10)  # after which less than half would go
    assert sum(again.manager.retention.run_once() for _ in range(3)) == 0
    again.operations.retention.accept_clock()
    last = restarted(again, again.kill(), is_rebooted=is_rebooted)
    assert sum(last.manager.retention.run_once() for _ in range(2)) == 4


def test_a_hold_ends_when_nothing_is_too_old_any_more() -> None:
    """M09: also one that was found at the start: its topic keeps everything now."""
    sim = jumped()
    sim.clock.advance_ms(5 * MINUTE)
    again = restarted(sim, sim.kill(), is_rebooted=False)
    again.operations.partition_log("t", 0).update_config(LogConfig(retention_ms=-1))
    again.manager.retention.run_once()
    assert again.operations.retention.clock_hold().logs == {}


def test_a_clock_that_was_put_right_before_a_boot_holds_nothing() -> None:
    """M09: it is before the one that was noted: it came back."""
    sim = jumped()
    sim.clock.advance_ms(5 * MINUTE)
    again = restarted(sim, sim.stop(), is_rebooted=True, step_ms=-TEN_YEARS)
    assert again.operations.retention.clock_hold() == (0, {})


@pytest.mark.parametrize("is_rebooted", [True, False])
def test_a_jump_while_the_daemon_is_down(*, is_rebooted: bool) -> None:
    """M09: after the same boot it is known; after another one nothing says how long it took."""
    sim = started().with_topic("t", 1, {"retention.ms": str(HOUR)})
    fill(sim, 4)
    sim.clock.advance_ms(5 * MINUTE)  # a check notes which clock is trusted
    again = restarted(sim, sim.stop(), is_rebooted=is_rebooted, step_ms=TEN_YEARS)
    deleted = sum(again.manager.retention.run_once() for _ in range(2))
    assert deleted == (4 if is_rebooted else 0)


def test_an_acceptance_that_cannot_be_written_is_none() -> None:
    """M14: the fault is the answer, the hold stays."""
    sim = jumped()
    sim.clock.advance_ms(5 * MINUTE)
    sim.disk.faults.add(Fault(error=errno.EMFILE, path_contains="kafkalog.registry"))
    with pytest.raises(KafkalogError):
        sim.operations.retention.accept_clock()
    assert sim.operations.retention.clock_hold().logs.keys() == {TP}


def restarted(
    sim: SimManager, disk: SimFilesystem, *, is_rebooted: bool, step_ms: int = 0
) -> SimManager:
    """The next run on the disk, by the clock of the one before."""
    again = SimManager(disk, config=sim.config)
    again.clock.advance_ms((sim.clock.monotonic_ns() - again.clock.monotonic_ns()) // 10**6)
    again.clock.step_wall_ms(sim.clock.wall_ms() - again.clock.wall_ms() + step_ms)
    again.clock.boot_id = sim.clock.boot_id
    if is_rebooted:
        again.clock.boot_id += "2"
        again.clock.advance_ms(MINUTE)
    return again.start()


def test_mass_deletion_lets_appends_through() -> None:
    """M09 M13: some segments a turn: an append queued behind does not wait for all of them."""
    sim = started(check_ms=10**12).with_topic("t", 1, {"retention.ms": "1"})
    fill(sim, 40)
    log = sim.operations.partition_log("t", 0)
    writer = sim.manager.logs.unit_of(log).writer
    left: list[int] = []
    records = one_record(sim, log)
    writer.call(lambda: log.increment_log_start_offset(40, "test"))
    writer.submit(FinishCommand(log))
    sim.operations.submit_produce(
        log, records, Acks.LEADER, on_done=lambda _: left.append(len(log.segments))
    )
    sim.threads.run_until(lambda: len(log.segments) == 1)
    assert left == [41 - 12]
    assert bases(sim) == [40]


def test_a_directory_that_fails_does_not_stop_the_others() -> None:
    """M09 M14: the pass goes on in the other directory; the failed one is offline, and told."""
    sim = started()
    for topic in ("t", "u"):
        sim.operations.topics.create(topic, 1, {"retention.ms": "1"})
        fill(sim, 2, topic=topic)
    homes = [sim.operations.partition_log(topic, 0).directory for topic in ("t", "u")]
    assert homes[0].rpartition("/")[0] != homes[1].rpartition("/")[0]
    sim.disk.faults.add(Fault(error=errno.EIO, kinds=frozenset({"rename"}), path_contains="/t-0/"))
    sim.clock.advance_ms(5 * MINUTE)
    assert bases(sim, "u") == [2]
    (task,) = [task for task in sim.operations.tasks() if task.name == RETENTION_TASK]
    assert task.failures == 1
    assert task.last_error is not None
    assert task.last_error.startswith("LogDirOffline: ")
    runs = sim.metrics.registry.get_sample_value("kafkalog_retention_runs_total")
    assert runs == task.runs
    assert [unit.log_dir.is_online for unit in sim.manager.logs.units].count(False) == 1


def test_a_check_ends_with_the_daemon() -> None:
    """M09: no line "retention_failed" for each log that is left."""
    sim = started(check_ms=10**12)
    for topic in ("t", "u"):
        sim.operations.topics.create(topic, 1, {"retention.ms": "1"})
        fill(sim, 2, topic=topic)
    ordered = sim.operations.retention.retain_all(dry_run=False)
    assert isinstance(next(ordered)[1], RetentionOutcome)
    sim.manager.shutdown()
    with capture_logs() as lines:
        assert sim.manager.retention.run_once() == 0
    assert lines == []
    with pytest.raises(NotReady, match="stopping"):
        next(ordered)


def test_a_topic_deleted_during_the_check_is_no_failure() -> None:
    """M09 M13: its writer refuses the pass, which has nothing to do any more."""
    sim = started(check_ms=10**12).with_topic("t", 1, {"retention.ms": "1"})
    fill(sim, 2)
    log = sim.operations.partition_log("t", 0)
    writer = sim.manager.logs.unit_of(log).writer
    writer.call(lambda: writer.retire([log]))  # deleted after the task took its list of logs
    assert sim.manager.retention.run_once() == 0
    assert bases(sim) == [0, 1, 2]


def test_a_clock_that_is_slewed_does_not_jump() -> None:
    """M09: half a second between two checks is no jump, however short the retention."""
    sim = started(check_ms=10**12).with_topic("t", 1, {"retention.ms": "0"})
    fill(sim, 1)
    sim.manager.retention.run_once()
    fill(sim, 1)
    sim.clock.step_wall_ms(500)
    assert sim.manager.retention.run_once() == 1
    assert sim.metrics.retention_clock_jumps._value.get() == 0


@pytest.mark.parametrize("days", [5, pytest.param(30, marks=pytest.mark.slow)])
def test_days_of_traffic(days: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """M09: no older than retention, roll and check, and nothing younger than the retention goes."""
    monkeypatch.setattr(tasks, "_METRICS_PERIOD_MS", 3_600_000)  # 260,000 runs else
    sim = started().with_topic("t", 1, {"retention.ms": "86400000", "segment.ms": "3600000"})
    log = sim.operations.partition_log("t", 0)
    oldest_allowed_ms = 86_400_000 + 3_600_000 + 5 * MINUTE + 10 * MINUTE
    started_ms = sim.clock.wall_ms()
    for step in range(days * 24 * 6):
        put(sim)
        sim.clock.advance_ms(10 * MINUTE)
        youngest_gone_ms = started_ms + (log.log_start_offset - 1) * 10 * MINUTE
        assert not log.log_start_offset or sim.clock.wall_ms() - youngest_gone_ms > 86_400_000
        if step % 50 == 0:
            first = log.segments.first
            age_ms = sim.clock.wall_ms() - first.largest_timestamp_ms()
            assert age_ms <= oldest_allowed_ms
    assert len(log.segments) <= 30
    assert log.log_start_offset > (days - 3) * 24 * 6
    check_invariants(log)


NEVER = 10**12
DAY = 86_400_000


def described(sim: SimManager, topic: str = "t") -> SegmentReport:
    return sim.operations.retention.describe(topic, 0)


def test_explain_is_the_planner_on_the_same_facts() -> None:
    """M28: the fates are those of the pure function; the next check is the real task's."""
    sim = started()
    configs = {"retention.ms": "600000", "retention.bytes": "200", "file.delete.delay.ms": "7000"}
    sim.operations.topics.create("t", 1, {**configs, "archive.hold": "true"})
    fill(sim, 4)
    sim.operations.retention.raise_archived_offsets("t", {0: 3})
    sim.clock.advance_ms(1234)
    report, log = described(sim), sim.operations.partition_log("t", 0)
    (task,) = [each for each in sim.scheduler.tasks() if each.name == RETENTION_TASK]
    now_ms = sim.clock.wall_ms()
    schedule = Schedule(task.next_run_ms, 5 * MINUTE, 7000)
    assert (report.now_ms, report.schedule) == (now_ms, schedule)
    facts = execute.facts_of(log, Hold(3))
    facts = facts._replace(segments=tuple(facts.segments))
    assert report.facts == facts
    policy = execute.policy_of(log.config)
    assert report.fates == explain(facts, policy, now_ms, schedule)
    assert report.fates[0].rule is Rule.SIZE
    assert [each.next_offset for each in report.segments] == [1, 2, 3, 4, 4]
    assert [each.is_active for each in report.segments] == [False] * 4 + [True]
    assert [each.has_record_timestamp for each in report.segments] == [True] * 4 + [False]
    entries = sim.operations.retention.count_index_entries("t", 0, report.segments)
    assert [each.time_index_entries for each in entries] == [1] * 4 + [0]
    assert [each.time_index_bytes for each in entries] == [12] * 4 + [0]
    assert [each.facts for each in report.segments] == list(facts.segments)


def test_a_segment_goes_when_it_was_said_to_go() -> None:
    """M28 M12: not a millisecond before the expected check; its files when they were said to go."""
    sim = started()
    sim.operations.topics.create(
        "t", 1, {"retention.ms": "3600000", "file.delete.delay.ms": "7000"}
    )
    fill(sim, 3, age_ms=10 * MINUTE)
    sim.clock.advance_ms(777)
    for _ in range(3):
        report = described(sim)
        assert report.fates[0].keeper is Keeper.LIMITS
        due, base = report.fates[0].due, report.segments[0].facts.base_offset
        assert due is not None
        assert due.expected_ms is not None
        assert due.moment_ms <= due.expected_ms <= due.latest_ms < due.moment_ms + 5 * MINUTE
        sim.clock.advance_ms(due.expected_ms - 1 - sim.clock.wall_ms())
        assert bases(sim)[0] == base
        sim.clock.advance_ms(1)
        assert bases(sim)[0] == base + 1
        (gone,) = described(sim).deleting
        assert (gone.base_offset, gone.files_gone_ms) == (base, due.expected_ms + 7000)
        assert gone.files_gone_ms <= due.files_gone_ms == due.latest_ms + 7000
        assert gone.size_bytes == report.segments[0].facts.size_bytes
        sim.clock.advance_ms(gone.files_gone_ms - 1 - sim.clock.wall_ms())
        assert names(sim, ".log.deleted") != []
        sim.clock.advance_ms(1)
        assert (names(sim, ".deleted"), described(sim).deleting) == ([], [])
    assert described(sim).fates[0].keeper is Keeper.EMPTY_ACTIVE


def test_checks_that_last_come_later_than_expected_and_not_too_late() -> None:
    """M28: the period begins at a check's end: ``latest`` allows for that, but for one check."""
    lasts_ms = 40_000
    sim = started().with_topic("t", 1, {"retention.ms": "7200000"})
    fill(sim, 12, age_ms=7 * MINUTE)
    said = {each.facts.base_offset: each.due for each in described(sim).fates}
    went: dict[int, int] = {}
    retention = sim.manager.retention
    note_run = retention._note_run

    def slow(count: int, run_ns: int) -> None:
        now_ms, left = sim.clock.wall_ms(), bases(sim)
        went.update((base, now_ms) for base in range(12) if base not in {*left, *went})
        note_run(count, run_ns)
        sim.clock.advance_ms(lasts_ms)

    retention._note_run = slow  # type: ignore[method-assign] # as long as a big one
    sim.clock.advance_ms(6 * 3_600_000)
    assert sorted(went) == list(range(12))
    late = 0
    for base, moment_ms in went.items():
        due = said[base]
        assert due is not None
        assert due.expected_ms is not None
        assert due.moment_ms <= moment_ms <= due.latest_ms + lasts_ms
        late += moment_ms > due.expected_ms
    assert late > 0


@pytest.mark.parametrize(
    "configs",
    [
        {"retention.ms": "600000"},
        {"retention.bytes": "200"},
        {"retention.bytes": "200", "retention.ms": "150000"},
        {"retention.bytes": "0", "retention.ms": "-1"},
    ],
    ids=str,
)
def test_the_dry_run_is_what_the_run_deletes(configs: dict[str, str]) -> None:
    """M28 M08 M09: segments, bytes, rules and the log start, also with a delete-records before."""
    sim = started(check_ms=NEVER).with_topic("t", 1, configs)
    fill(sim, 5)
    put(sim)
    assert sim.delete_records("t", 2).error is None
    told = sim.operations.retention.retain("t", 0, dry_run=True)
    before = {
        each.base_offset: each.size_bytes for each in sim.manager.logs.table.logs()[0].segments
    }
    assert sorted(before) == bases(sim)
    assert sim.operations.retention.retain("t", 0, dry_run=False) == told
    assert told.deleted
    for each in told.deleted:
        assert before.pop(each.base_offset) == each.size_bytes
    left = bases(sim)
    assert left == (sorted(before) or [6])
    assert left[0] <= told.log_start_offset
    assert sim.operations.retention.retain("t", 0, dry_run=False).deleted == ()


def outcomes(sim: SimManager, *, dry_run: bool) -> dict[str, RetentionOutcome | KafkalogError]:
    return {str(key): what for key, what in sim.operations.retention.retain_all(dry_run=dry_run)}


def test_a_run_over_all_is_the_task_s_pass() -> None:
    """M28 M13: the dry run over all is what the run deletes; compacted logs are left alone."""
    sim = started(check_ms=NEVER).with_topic("t", 2, {"retention.ms": "1"})
    sim.operations.topics.create("c", 1, {"cleanup.policy": "compact,delete", "retention.ms": "1"})
    fill(sim, 2)
    log = sim.operations.partition_log("c", 0)
    sim.manager.logs.unit_of(log).writer.call(log.roll)
    told = outcomes(sim, dry_run=True)
    assert sorted(told) == ["t-0", "t-1"]
    assert outcomes(sim, dry_run=False) == told
    assert bases(sim) == [2]
    assert sim.manager.retention.run_once() == 0


def test_a_directory_that_fails_is_its_partitions_entry() -> None:
    """M28 M15: the others are done."""
    sim = started(check_ms=NEVER)
    for topic in ("t", "u"):
        sim.operations.topics.create(topic, 1, {"retention.ms": "1"})
        fill(sim, 2, topic=topic)
    sim.disk.faults.add(Fault(error=errno.EIO, kinds=frozenset({"rename"}), path_contains="/t-0/"))
    got = outcomes(sim, dry_run=False)
    assert isinstance(got["t-0"], KafkalogError)
    assert bases(sim, "u") == [2]


def test_what_if() -> None:
    """M28: other configs, another start, a short horizon, compaction; nothing is changed."""
    sim = started().with_topic("t", 1, {"retention.ms": "-1"})
    fill(sim, 4)
    now_ms = sim.clock.wall_ms()

    def what_if(start_ms: int | None = None, horizon_ms: int = DAY, **configs: str) -> list[int]:
        named = {key.replace("_", "."): value for key, value in configs.items()}
        simulation = sim.operations.retention.simulate(
            "t", 0, named, start_ms=start_ms, horizon_ms=horizon_ms
        )
        assert simulation.start_ms == (now_ms if start_ms is None else start_ms)
        return [each.facts.base_offset for each in simulation.departures]

    assert what_if() == []
    assert what_if(retention_bytes="0") == [0, 1, 2, 3]
    assert what_if(retention_ms="86400000") == []
    assert what_if(now_ms + DAY, retention_ms="86400000") == [0, 1, 2, 3]
    assert what_if(now_ms, 0, retention_bytes="0") == []  # no check before the next one
    assert what_if(retention_ms="1", cleanup_policy="compact,delete") == [0, 1, 2, 3]  # cleaner's
    assert what_if(retention_ms="1", cleanup_policy="compact") == []
    with pytest.raises(InvalidTopicConfig):
        what_if(retention_ms="soon")
    with pytest.raises(UnknownPartition):
        sim.operations.retention.simulate("t", 1, {}, start_ms=None, horizon_ms=1)

    def with_checks(check_interval_ms: int, **configs: str) -> RetentionSimulation:
        named = {key.replace("_", "."): value for key, value in configs.items()}
        return sim.operations.retention.simulate(
            "t", 0, named, start_ms=None, horizon_ms=DAY, check_interval_ms=check_interval_ms
        )

    every_second = with_checks(1_000, retention_ms="3600000")
    assert every_second.schedule is not None
    assert every_second.schedule.check_interval_ms == 1_000
    for each in every_second.departures:
        assert each.due.latest_ms == each.due.moment_ms + 999
    once_a_year = with_checks(365 * DAY, retention_ms="3600000")
    assert every_second.departures
    assert once_a_year.departures == []
    cleaners = with_checks(1_000, retention_ms="1", cleanup_policy="compact,delete").schedule
    assert cleaners == sim.manager.cleaning.retention_schedule(60_000)
    assert bases(sim) == [0, 1, 2, 3, 4]


def test_nobody_looks_at_a_compacted_log_while_the_cleaner_is_off() -> None:
    """M28 M16: it has no schedule and no moment, but the rule that a pass would go by."""
    sim = started(check_ms=NEVER).with_topic("t", 1, {"retention.ms": "1"})
    fill(sim, 2)
    log = sim.operations.partition_log("t", 0)
    log.update_config(LogConfig(cleanup_policy=frozenset({"compact", "delete"}), retention_ms=1))
    schedule = described(sim).schedule
    assert schedule is not None
    assert schedule.is_cleaners
    sim.manager.cleaning.cleaner.shutdown()
    report = described(sim)
    assert report.schedule is None
    assert [each.due for each in report.fates] == [None] * 3
    assert [each.rule for each in report.fates] == [Rule.TIME, Rule.TIME, None]
    told = sim.operations.retention.retain("t", 0, dry_run=True)
    assert len(told.deleted) == 2
    assert sim.operations.retention.retain("t", 0, dry_run=False) == told


def test_while_a_check_runs_the_next_one_is_not_known() -> None:
    """M28: the period begins at its end."""
    sim = started()
    seen: list[Schedule | None] = []
    retention, report = sim.manager.retention, sim.operations.retention
    run_unit = retention._run_unit

    def look(*arguments: Any) -> int:
        seen.append(report.schedule_of(LogConfig()))
        return run_unit(*arguments)

    retention._run_unit = look  # type: ignore[assignment] # a look from inside the task
    sim.clock.advance_ms(5 * MINUTE)
    assert seen
    assert {each and each.next_check_ms for each in seen} == {None}
    after = report.schedule_of(LogConfig())
    assert after is not None
    assert after.next_check_ms == sim.clock.wall_ms() + 5 * MINUTE


def test_internal_topics_are_shown_and_not_run() -> None:
    """M28: as delete-records: InvalidTopicName; a dry run changes nothing and is answered."""
    sim = started(check_ms=NEVER)
    with pytest.raises(InvalidTopicName):
        sim.operations.retention.retain("__consumer_offsets", 0, dry_run=False)


@pytest.mark.parametrize("damage", [b"torn", bytes(24), b""], ids=["torn", "zeros", "none"])
@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_a_damaged_index_is_counted_from_the_log(kind: str, damage: bytes) -> None:
    """M28 M04: zeros are what a crash leaves of the room that was made for more entries."""
    sim = started(check_ms=NEVER)
    sim.operations.topics.create("t", 1, {"index.interval.bytes": "0", "retention.ms": "-1"})
    log = sim.operations.partition_log("t", 0)
    for _ in range(2):
        for _ in range(4):
            put(sim)
            sim.clock.advance_ms(1000)
        sim.manager.logs.unit_of(log).writer.call(log.roll)
    before = described(sim)
    entries = sim.operations.retention.count_index_entries("t", 0, before.segments)
    assert entries == [(3, 3), (3, 3), (0, 0)]
    path = f"{log.directory}/{0:020}{kind}"
    disk = sim.stop()
    disk.write_file_atomically(path, disk.read_file(path) + damage)
    again = SimManager(disk, config=sim.config).start()
    after = described(again)
    assert again.operations.retention.count_index_entries("t", 0, after.segments) == entries
    assert [each.facts for each in after.segments[:2]] == [
        each.facts for each in before.segments[:2]
    ]
