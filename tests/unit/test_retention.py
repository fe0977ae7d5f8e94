"""Goal: the retention task deletes what the plan says, when it says so, and nothing else.
Method: a whole manager on the simulated disk, clock and threads; days pass in milliseconds.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from kafkalog.broker import tasks
from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.broker.retention.report import RetentionOutcome
from kafkalog.broker.retention.retention import RETENTION_TASK, FinishCommand
from kafkalog.broker.values import Acks
from kafkalog.env.scheduler import TaskState
from kafkalog.errors import NotReady
from kafkalog.format.records.batch_builder import RecordColumns, build_batch
from kafkalog.format.topic_names import TopicPartition
from kafkalog.log.inspect.invariants import check_invariants
from kafkalog.log.log_config import LogConfig
from kafkalog.log.validator import validate
from kafkalog.log.values import AppendOrigin, Isolation
from tests.sim.sim_faults import Fault
from tests.sim.sim_manager import DIRS, SimManager

if TYPE_CHECKING:
    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.log.values import ValidatedRecords

MINUTE = 60_000
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
    """One record of now."""
    now_ms = sim.clock.wall_ms()
    data = build_batch(RecordColumns.of([None], [b"x" * size], now_ms))
    return validate(data, log.config, now_ms, AppendOrigin.CLIENT, max_decompressed_bytes=1 << 20)


def put(sim: SimManager, *, size: int = 10, topic: str = "t") -> None:
    """Append it and wait."""
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
        sim.manager.unit_of(log).writer.call(log.roll)
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
    sim = started()
    sim.operations.topics.create("t", 1, {"retention.ms": "60000"})
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
    sim = started(check_ms=10**12)
    sim.operations.topics.create("t", 1, {"retention.bytes": "0"})
    put(sim)
    assert sim.manager.retention.run_once() == 1
    log = sim.operations.partition_log("t", 0)
    assert (bases(sim), log.log_start_offset, log.log_end_offset, log.size_bytes) == ([1], 1, 1, 0)
    assert sim.manager.retention.run_once() == 0
    put(sim)
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
    sim = started(check_ms=10**12)
    sim.operations.topics.create("t", 1, {"retention.ms": "1"})
    fill(sim, 2)
    log = sim.operations.partition_log("t", 0)
    records = one_record(sim, log)
    sim.manager.unit_of(log).writer.call(lambda: log.append(records, synced=True))
    sim.clock.advance_ms(MINUTE)
    assert (log.high_watermark, log.log_end_offset) == (2, 3)
    assert sim.manager.retention.run_once() == 2
    assert bases(sim) == [2]


def test_a_clock_that_jumps_ahead_deletes_nothing_at_first() -> None:
    """M09: reliability 2.2: guarded for one check, then the clock is believed."""
    sim = started(check_ms=10**12)
    sim.operations.topics.create("t", 1, {"retention.ms": "600000"})
    fill(sim, 2)
    assert sim.manager.retention.run_once() == 0
    sim.clock.step_wall_ms(3_650 * 86_400_000)
    assert sim.manager.retention.run_once() == 0
    assert sim.metrics.retention_clock_jumps._value.get() == 1
    assert sim.manager.retention.run_once() == 2
    unguarded = started(check_ms=10**12, guard=False)
    unguarded.operations.topics.create("t", 1, {"retention.ms": "600000"})
    fill(unguarded, 2)
    unguarded.manager.retention.run_once()
    unguarded.clock.step_wall_ms(3_650 * 86_400_000)
    assert unguarded.manager.retention.run_once() == 2


def test_mass_deletion_lets_appends_through() -> None:
    """M09 M13: some segments a turn: an append queued behind does not wait for all of them."""
    sim = started(check_ms=10**12)
    sim.operations.topics.create("t", 1, {"retention.ms": "1"})
    fill(sim, 40)
    log = sim.operations.partition_log("t", 0)
    writer = sim.manager.unit_of(log).writer
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
    assert [unit.log_dir.is_online for unit in sim.manager.units].count(False) == 1


def test_a_check_ends_with_the_daemon() -> None:
    """M09: a stop in the middle of a check is no failure of the logs that are left. No line
    "retention_failed" for each log that is due, and no waiting for a check of many logs.
    """
    sim = started(check_ms=10**12)
    for topic in ("t", "u"):
        sim.operations.topics.create(topic, 1, {"retention.ms": "1"})
        fill(sim, 2, topic=topic)
    ordered = sim.operations.retain_all(dry_run=False)
    assert isinstance(next(ordered)[1], RetentionOutcome)
    sim.manager.shutdown()
    with capture_logs() as lines:
        assert sim.manager.retention.run_once() == 0
    assert lines == []
    with pytest.raises(NotReady, match="stopping"):
        next(ordered)


def test_a_topic_deleted_during_the_check_is_no_failure() -> None:
    """M09 M13: its writer refuses the pass, which has nothing to do any more."""
    sim = started(check_ms=10**12)
    sim.operations.topics.create("t", 1, {"retention.ms": "1"})
    fill(sim, 2)
    log = sim.operations.partition_log("t", 0)
    writer = sim.manager.unit_of(log).writer
    writer.call(lambda: writer.retire([log]))  # deleted after the task took its list of logs
    assert sim.manager.retention.run_once() == 0
    assert bases(sim) == [0, 1, 2]


def test_a_reader_of_a_segment_that_goes_gets_whole_batches() -> None:
    """M09: what was read before the deletion is whole; the next read says where the log starts."""
    sim = started(check_ms=10**12)
    sim.operations.topics.create("t", 1, {"retention.ms": "1"})
    fill(sim, 2)
    log = sim.operations.partition_log("t", 0)
    segment = log.segments.first
    assert sim.manager.retention.run_once() == 2
    found = segment.read(0, 1 << 20)
    assert found is not None
    assert len(found.data) == segment.size_bytes
    assert log.read(2, 1 << 20, Isolation.HIGH_WATERMARK).next_offset == 2


def test_a_clock_that_is_slewed_does_not_jump() -> None:
    """M09: half a second between two checks is no jump, however short the retention."""
    sim = started(check_ms=10**12)
    sim.operations.topics.create("t", 1, {"retention.ms": "0"})
    fill(sim, 1)
    sim.manager.retention.run_once()
    fill(sim, 1)
    sim.clock.step_wall_ms(500)
    assert sim.manager.retention.run_once() == 1
    assert sim.metrics.retention_clock_jumps._value.get() == 0


@pytest.mark.parametrize("days", [5, pytest.param(30, marks=pytest.mark.slow)])
def test_days_of_traffic(days: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """M09: days, six records and a segment an hour: no older than retention, roll and check;
    and nothing goes that is younger than the retention.
    """
    monkeypatch.setattr(tasks, "_METRICS_PERIOD_MS", 3_600_000)  # 260,000 runs else
    sim = started()
    sim.operations.topics.create("t", 1, {"retention.ms": "86400000", "segment.ms": "3600000"})
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
