"""Goal: the manager's tasks have Kafka's names, first runs and periods, and their faults are seen;
a roll and a flush by hand do what their answer says.
Method: a simulated scheduler and disk.
"""

from __future__ import annotations

import errno
import threading
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from kafkalog.__main__ import _build
from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.broker.operations import Acks
from kafkalog.env.scheduler import TaskState
from kafkalog.errors import StorageFault, UnknownPartition, UnknownSegment, UnknownTopic
from kafkalog.format.integers import INT64_MAX
from kafkalog.log.inspect.invariants import check_invariants
from kafkalog.log.log_config import LogConfig
from kafkalog.settings import load_settings
from tests.sim.sim_crash import CrashMode
from tests.sim.sim_faults import Fault
from tests.sim.sim_manager import DIRS, SimManager, batch_of

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.env.scheduler import TaskStatus


# Kafka's table (log-lifecycle 11.1): name -> first run and period in ms; None: one-shots. The
# flusher differs as manager_tasks.py says: Kafka's default period is Long.MAX, "never".
TABLE = {
    "delete-expired-group-metadata": (600_000, 600_000),
    "highwatermark-checkpoint": (0, 5_000),
    "kafka-delete-logs": (30_000, None),
    "kafka-log-flusher": (1_000, 1_000),
    "kafka-log-retention": (30_000, 300_000),
    "kafka-log-start-offset-checkpoint": (30_000, 60_000),
    "kafka-recovery-point-checkpoint": (30_000, 60_000),
    "PeriodicProducerExpirationCheck": (600_000, 600_000),
    "transaction-abort": (10_000, 10_000),
    "transactionalId-expiration": (3_600_000, 3_600_000),
}
OWN = {
    "kafkalog-group-lags": (0, 10_000),
    "kafkalog-log-dir-metrics": (0, 10_000),
    "kafkalog-log-metrics": (0, None),
    "kafkalog-partition-reload": (10_000, 10_000),
}


def schedule(sim: SimManager) -> dict[str, tuple[int, int | None]]:
    """First run and period by name."""
    return {
        task.name: (task.initial_delay_ms, None if task.period_ms < 0 else task.period_ms)
        for task in sim.operations.tasks()
    }


def task_of(sim: SimManager, name: str) -> TaskStatus:
    (found,) = [task for task in sim.operations.tasks() if task.name == name]
    return found


def test_the_whole_table() -> None:
    """M13: every task with its name, its first run and its period, and none beside."""
    assert schedule(SimManager().start()) == TABLE | OWN


def test_the_first_runs_happen_when_they_are_promised() -> None:
    """M13: each task waits for its first run, then for its period after that run's end."""
    sim = SimManager().start()
    start_ms = sim.clock.wall_ms()
    for task in sim.operations.tasks():
        assert task.state is TaskState.WAITING
        assert (task.waiting, task.runs, task.last_run_ms) == (1, 0, -1)
        assert task.next_run_ms == start_ms + task.initial_delay_ms
    sim.clock.advance_ms(3_600_000)
    for name, (first_ms, period_ms) in (TABLE | OWN).items():
        task = task_of(sim, name)
        if period_ms is not None:
            rounds = (3_600_000 - first_ms) // period_ms
            assert task.runs == rounds + 1, name
            assert task.last_run_ms == start_ms + first_ms + rounds * period_ms
            assert task.next_run_ms == task.last_run_ms + period_ms
        assert task.last_success_ms == task.last_run_ms
        assert (task.failures, task.last_error, task.last_duration_ms) == (0, None, 0)


def test_each_setting_moves_its_task() -> None:
    """M13: broker keys decide; the flusher's own interval counts once it is set."""
    config = BrokerConfig(
        log_dirs=DIRS,
        log_initial_task_delay_ms=11,
        log_flush_scheduler_interval_ms=22,
        log_flush_offset_checkpoint_interval_ms=33,
        log_flush_start_offset_checkpoint_interval_ms=44,
        replica_high_watermark_checkpoint_interval_ms=55,
        producer_id_expiration_check_interval_ms=66,
        log_retention_check_interval_ms=77,
        offsets_retention_check_interval_ms=88,
        transaction_abort_timed_out_transaction_cleanup_interval_ms=99,
        transaction_remove_expired_transaction_cleanup_interval_ms=111,
    )
    assert schedule(SimManager(config=config).start()) == OWN | {
        "delete-expired-group-metadata": (88, 88),
        "highwatermark-checkpoint": (0, 55),
        "kafka-delete-logs": (11, None),
        "kafka-log-flusher": (11, 22),
        "kafka-log-retention": (11, 77),
        "kafka-log-start-offset-checkpoint": (11, 44),
        "kafka-recovery-point-checkpoint": (11, 33),
        "PeriodicProducerExpirationCheck": (66, 66),
        "transaction-abort": (99, 99),
        "transactionalId-expiration": (111, 111),
    }


def test_never_is_a_time_that_a_client_can_read() -> None:
    """M13: a period of Long.MAX runs once and then never."""
    config = BrokerConfig(log_dirs=DIRS, log_flush_offset_checkpoint_interval_ms=INT64_MAX)
    sim = SimManager(config=config).start()
    sim.clock.advance_ms(120_000)
    task = task_of(sim, "kafka-recovery-point-checkpoint")
    assert (task.runs, task.next_run_ms) == (1, INT64_MAX)


def test_delete_logs_is_due_when_the_head_of_its_queue_is() -> None:
    """M12 M13: one-shot, schedules itself: the head's time, or the broker's delay when empty."""
    defaults = LogConfig(file_delete_delay_ms=50_000)
    config = BrokerConfig(log_dirs=DIRS, topic_defaults=defaults)
    sim = SimManager(config=config).start()
    start_ms = sim.clock.wall_ms()
    sim.clock.advance_ms(30_000)
    task = task_of(sim, "kafka-delete-logs")
    assert (task.runs, task.waiting, task.next_run_ms) == (1, 1, start_ms + 80_000)
    sim.operations.topics.create("t", 1)
    sim.clock.advance_ms(12_000)
    sim.operations.topics.delete("t")
    sim.clock.advance_ms(38_000)
    task = task_of(sim, "kafka-delete-logs")
    assert (task.runs, task.next_run_ms) == (2, start_ms + 92_000)
    sim.clock.advance_ms(12_000)
    assert not sim.manager.deletion._queue
    task = task_of(sim, "kafka-delete-logs")
    assert (task.runs, task.failures, task.next_run_ms) == (3, 0, start_ms + 142_000)


def test_a_fault_of_one_directory_fails_the_run_and_spares_the_others() -> None:
    """M13 M15: counted with its reason; every directory had its turn; the schedule stays."""
    name = "kafka-recovery-point-checkpoint"
    for bad, good in (DIRS, DIRS[::-1]):
        sim = SimManager().start()
        file = f"{bad}/recovery-point-offset-checkpoint"
        sim.disk.faults.add(Fault(error=errno.ENOSPC, path_contains=file))
        start_ms = sim.clock.wall_ms()
        with capture_logs() as lines:
            sim.clock.advance_ms(30_000)
        (line,) = [line for line in lines if line["event"] == "task_failed"]
        assert (line["task"], line["log_dir"]) == (name, bad)
        assert line["remedy"].startswith("Free space")
        task = task_of(sim, name)
        assert (task.runs, task.failures, task.last_success_ms) == (1, 1, -1)
        assert task.last_failure_ms == start_ms + 30_000
        assert task.last_error is not None
        assert task.last_error.startswith("DiskFull: ")
        assert [
            (each, type(fault).__name__, fault.already_logged) for each, fault in sim.task_faults
        ] == [(name, "DiskFull", True)]
        assert sim.disk.exists(f"{good}/recovery-point-offset-checkpoint")
        sim.clock.advance_ms(60_000)
        task = task_of(sim, name)
        assert (task.runs, task.failures, task.last_success_ms) == (2, 1, start_ms + 90_000)
        assert sim.disk.exists(file)


def test_a_fault_that_stays_is_told_once_a_minute() -> None:
    """M13 M15: a disk that is full for long; not twelve times a minute."""
    sim = SimManager().start()
    fault = Fault(
        error=errno.ENOSPC, path_contains=f"{DIRS[0]}/replication-offset-checkpoint", times=10**6
    )
    sim.disk.faults.add(fault)
    with capture_logs() as lines:
        sim.clock.advance_ms(600_000)
    told = [line for line in lines if line["event"] == "task_failed"]
    assert {line["log_dir"] for line in told} == {DIRS[0]}
    assert {line["task"] for line in told} == {"highwatermark-checkpoint"}
    assert 9 <= len(told) <= 11
    task = task_of(sim, "highwatermark-checkpoint")
    assert task.failures > 100


def test_a_directory_that_cannot_be_removed_fails_the_run() -> None:
    """M13 M15: the other deletions of that run are done."""
    sim = SimManager().start()
    for topic in ("a", "b"):
        sim.operations.topics.create(topic, 2)
        sim.operations.topics.delete(topic)
    bad, good = DIRS
    sim.disk.faults.add(Fault(kinds=frozenset({"unlink"}), path_contains=f"{bad}/"))
    sim.clock.advance_ms(60_000)
    task = task_of(sim, "kafka-delete-logs")
    assert (task.failures, task.waiting) == (1, 1)
    assert isinstance(sim.task_faults[0][1], StorageFault)
    assert sim.task_faults[0][1].already_logged
    left = {path: [n for n in sim.disk.list_dir(path) if "-delete" in n] for path in DIRS}
    assert left[good] == []
    assert len(left[bad]) == 2


def test_metrics_tell_runs_errors_and_the_last_success() -> None:
    """M13 M26: from the scheduler's own facts, also of tasks that never ran."""
    sim = SimManager().start()
    file = "recovery-point-offset-checkpoint"
    sim.disk.faults.add(Fault(error=errno.ENOSPC, path_contains=file))
    sim.clock.advance_ms(95_000)
    prefix = "kafkalog_scheduler_task"
    for task in sim.operations.tasks():
        facts = {
            f"{prefix}_runs_total": float(task.runs),
            f"{prefix}_errors_total": float(task.failures),
            f"{prefix}_last_success_timestamp_seconds": task.last_success_ms / 1000
            if task.last_success_ms >= 0
            else None,
        }
        for name, value in facts.items():
            got = sim.metrics.registry.get_sample_value(name, {"task": task.name})
            assert got == value, (name, task.name)
    assert task_of(sim, "kafka-recovery-point-checkpoint").failures == 1
    assert task_of(sim, "PeriodicProducerExpirationCheck").last_success_ms == -1


def test_the_daemon_logs_a_task_that_throws_and_keeps_it(tmp_path: Path) -> None:
    """M13: a traceback for what is no foreseen fault; what was told already is not told again."""
    settings = load_settings(None, {}, {"log.dirs": str(tmp_path / "dir")})
    ended = threading.Event()
    runs: list[int] = []

    def fail() -> None:
        runs.append(1)
        if len(runs) == 1:
            raise StorageFault("no such disk")
        if len(runs) == 2:
            raise ValueError("a defect")
        if len(runs) == 3:
            told = StorageFault("its directory failed")
            told.already_logged = True
            raise told
        ended.set()

    class Sink:
        def deliver(self, *_: object) -> None:
            raise AssertionError("nothing was submitted")

    with capture_logs() as lines:
        graph = _build(settings, Sink(), ended.set)
        graph.load()
        scheduler = graph.operations._manager.runtime.scheduler
        scheduler.schedule_periodic("throws", fail, 0, 1)
        assert ended.wait(20)
        statuses = {task.name: task for task in graph.operations.tasks()}
        graph.close()
    told = [line for line in lines if line["event"] == "A task failed and keeps its schedule"]
    assert [line["task"] for line in told] == ["throws", "throws"]
    assert [line["reason"] for line in told] == ["no such disk", "a defect"]
    assert [line["exc_info"] is None for line in told] == [True, False]
    assert statuses["throws"].failures == 3
    assert statuses["throws"].last_error == "StorageFault: its directory failed"


def test_a_period_of_zero_is_one_run() -> None:
    """M13: two keys allow it; Kafka's scheduler then runs the task once."""
    config = BrokerConfig(
        log_dirs=DIRS,
        log_flush_offset_checkpoint_interval_ms=0,
        log_flush_start_offset_checkpoint_interval_ms=0,
    )
    sim = SimManager(config=config).start()
    sim.clock.advance_ms(120_000)
    for name in ("kafka-recovery-point-checkpoint", "kafka-log-start-offset-checkpoint"):
        task = task_of(sim, name)
        assert (task.runs, task.state, task.next_run_ms) == (1, TaskState.IDLE, -1)


def with_records(count: int = 3, acks: Acks = Acks.LEADER) -> SimManager:
    sim = SimManager().start().with_topic("t", 1)
    for number in range(count):
        assert sim.produce("t", batch_of(str(number)), acks).error is None
    return sim


def test_a_log_is_described_with_what_the_metrics_found() -> None:
    sim = with_records()
    before = sim.operations.logs.describe("t", 0)
    assert (before.records, before.oldest_timestamp_ms, before.newest_timestamp_ms) == (None,) * 3
    sim.clock.advance_ms(60_000)
    after = sim.operations.logs.describe("t", 0)
    assert after.records == 3
    assert after.oldest_timestamp_ms is not None
    assert after.oldest_timestamp_ms <= (after.newest_timestamp_ms or 0)


@pytest.mark.parametrize("mode", CrashMode)
def test_a_roll_that_was_answered_is_durable(mode: CrashMode) -> None:
    """M14: records that nobody synced are kept with it, whatever a power cut takes."""
    sim = with_records()
    rolled = sim.operations.logs.roll("t", 0)
    assert (rolled.is_rolled, rolled.active_base_offset) == (True, 3)
    sim.threads.kill_all()
    again = SimManager(sim.disk.crash(mode)).start()
    log = again.operations.partition_log("t", 0)
    check_invariants(log)
    assert [segment.base_offset for segment in log.segments] == [0, 3]
    assert log.log_end_offset == 3


@pytest.mark.parametrize("mode", CrashMode)
def test_a_flush_that_was_answered_is_durable(mode: CrashMode) -> None:
    """M14: the recovery point is the end, and everything below it is kept."""
    sim = with_records()
    assert sim.operations.logs.describe("t", 0).unflushed_records == 3
    assert sim.operations.logs.flush("t", 0) == 3
    assert sim.operations.logs.describe("t", 0).unflushed_records == 0
    sim.threads.kill_all()
    again = SimManager(sim.disk.crash(mode)).start()
    assert again.operations.logs.describe("t", 0).log_end_offset == 3


def test_an_empty_segment_stays() -> None:
    sim = with_records(count=0)
    assert not sim.operations.logs.roll("t", 0).is_rolled
    assert sim.produce("t", batch_of("x")).error is None
    assert sim.operations.logs.roll("t", 0).is_rolled
    assert not sim.operations.logs.roll("t", 0).is_rolled
    assert sim.operations.logs.describe("t", 0).segments == 2


def test_what_is_not_there() -> None:
    sim = with_records()
    assert sim.operations.logs.segment_path("t", 0, 0).endswith("/t-0/00000000000000000000.log")
    with pytest.raises(UnknownSegment):
        sim.operations.logs.segment_path("t", 0, 1)
    with pytest.raises(UnknownPartition):
        sim.operations.logs.roll("t", 1)
    with pytest.raises(UnknownTopic):
        sim.operations.logs.flush("u", 0)
