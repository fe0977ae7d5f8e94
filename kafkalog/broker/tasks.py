"""PeriodicTasks: the periodic tasks of the broker, with Kafka's names, first runs and periods.

Owns the schedule; the work is a call into checkpoints or writers. What fails for one directory or
log is logged and the others are still served; the first fault is raised at the end, so that the
scheduler counts the run as failed.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import structlog

from kafkalog.broker.directory.commands import EachCommand, FlushCommand
from kafkalog.broker.directory.storage_fault import remedy_of
from kafkalog.broker.groups.lags import GROUP_LAGS_TASK, PERIOD_MS as GROUP_LAGS_PERIOD_MS
from kafkalog.broker.groups.offsets import EXPIRY_TASK
from kafkalog.broker.retention.retention import RETENTION_TASK
from kafkalog.broker.transactions import coordinator
from kafkalog.errors import KafkalogError, work_on_each
from kafkalog.format.integers import INT64_MAX
from kafkalog.observe.metrics import TaskSample

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.broker.catalog import Logs
    from kafkalog.broker.directory.checkpoints import Checkpoints
    from kafkalog.broker.directory.log_dir import LogDir
    from kafkalog.broker.groups.lags import GroupLags
    from kafkalog.broker.groups.offsets import GroupOffsets
    from kafkalog.broker.retention.retention import Retention
    from kafkalog.broker.runtime import Runtime
    from kafkalog.broker.startup.load import PartitionReload
    from kafkalog.broker.transactions.coordinator import Sinks
    from kafkalog.env.scheduler import ScheduledTask
    from kafkalog.log.unified_log import UnifiedLog

HIGH_WATERMARK_TASK = "highwatermark-checkpoint"
RECOVERY_POINT_TASK = "kafka-recovery-point-checkpoint"
START_OFFSET_TASK = "kafka-log-start-offset-checkpoint"
FLUSHER_TASK = "kafka-log-flusher"
PRODUCER_EXPIRATION_TASK = "PeriodicProducerExpirationCheck"
LOG_DIR_METRICS_TASK = "kafkalog-log-dir-metrics"
FLUSH_MS_PERIOD_MAX_MS = 1_000
RELOAD_TASK = "kafkalog-partition-reload"
_METRICS_PERIOD_MS = 10_000
_RELOAD_PERIOD_MS = 10_000
_TOLD_AGAIN_NS = 60_000_000_000

_log = structlog.get_logger(__name__)


class PeriodicTasks:
    """See the module."""

    def __init__(
        self,
        logs: Logs,
        runtime: Runtime,
        checkpoints: Checkpoints,
        retention: Retention,
        group_offsets: GroupOffsets,
        group_lags: GroupLags,
        sinks: Sinks,
        reload: PartitionReload,
        wake_cleaner: Callable[[], None],
    ) -> None:
        # constant after construction
        self._logs = logs
        self._runtime = runtime
        self._checkpoints = checkpoints
        self._retention = retention
        self._group_offsets = group_offsets
        self._group_lags = group_lags
        self._sinks = sinks
        self._reload = reload
        self._wake_cleaner = wake_cleaner
        # owned by the starting and stopping thread
        self._tasks: list[ScheduledTask] = []
        # (task, directory) -> (reason, when it was logged); each task's own entries
        self._told: dict[tuple[str, str], tuple[str, int]] = {}

    def start(self) -> None:
        """Measure the directories, then schedule all."""
        config, checkpoints = self._runtime.config, self._checkpoints
        self._runtime.metrics.watch_tasks(
            lambda: [
                TaskSample(each.name, each.runs, each.failures, each.last_success_ms)
                for each in self._runtime.scheduler.tasks()
            ]
        )
        for unit in self._logs.online_units:  # now: their space is known right after the start
            try:
                self._measure(unit.log_dir)
            except KafkalogError as fault:
                self._log_fault(LOG_DIR_METRICS_TASK, unit.log_dir, fault)
        delay_ms = config.log_initial_task_delay_ms
        self._every_dir(
            HIGH_WATERMARK_TASK,
            checkpoints.write_high_watermarks,
            0,
            config.replica_high_watermark_checkpoint_interval_ms,
        )
        period_ms = config.log_retention_check_interval_ms
        _log.info(f"Starting log cleanup with a period of {period_ms} ms.")
        self._every(RETENTION_TASK, self._retention.run_once, delay_ms, period_ms)
        self._every_dir(
            RECOVERY_POINT_TASK,
            checkpoints.write_recovery_points,
            delay_ms,
            config.log_flush_offset_checkpoint_interval_ms,
        )
        self._every_dir(
            START_OFFSET_TASK,
            checkpoints.write_start_offsets,
            delay_ms,
            config.log_flush_start_offset_checkpoint_interval_ms,
        )
        self._start_flusher()
        self._every_dir(
            PRODUCER_EXPIRATION_TASK,
            self._expire_producers,
            config.producer_id_expiration_check_interval_ms,
            config.producer_id_expiration_check_interval_ms,
        )
        self._group_offsets.start()
        self._every(
            EXPIRY_TASK,
            self._group_offsets.expire_once,
            config.offsets_retention_check_interval_ms,
            config.offsets_retention_check_interval_ms,
        )
        self._every(GROUP_LAGS_TASK, self._group_lags.run_once, 0, GROUP_LAGS_PERIOD_MS)
        self._start_sinks()
        self._every(LOG_DIR_METRICS_TASK, self.measure_once, 0, _METRICS_PERIOD_MS)
        self._every_dir(RELOAD_TASK, self._reload.run_once, _RELOAD_PERIOD_MS, _RELOAD_PERIOD_MS)

    def _start_flusher(self) -> None:
        """Kafka's scheduler interval is "never" by default, which makes flush.ms of a topic void.

        Here flush.ms holds by itself (fewer than T + 1 s of records are at risk).
        """
        config = self._runtime.config
        period_ms = config.log_flush_scheduler_interval_ms
        shown = "never by time" if period_ms == INT64_MAX else f"{period_ms} ms"
        _log.info(f"Starting log flusher with a default period of {shown}.")
        delay_ms = config.log_initial_task_delay_ms
        if period_ms == INT64_MAX:
            delay_ms = period_ms = FLUSH_MS_PERIOD_MAX_MS
        self._every(FLUSHER_TASK, self.flush_due_once, delay_ms, period_ms)

    def _start_sinks(self) -> None:
        """What the coordinator of exactly-once sinks has to do."""
        config, sinks = self._runtime.config, self._sinks
        sinks.start()
        period_ms = config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        self._every(coordinator.ABORT_TASK, sinks.reconcile_once, period_ms, period_ms)
        period_ms = config.transaction_remove_expired_transaction_cleanup_interval_ms
        self._every(coordinator.EXPIRY_TASK, sinks.expire_once, period_ms, period_ms)

    def stop(self) -> None:
        """No further runs."""
        for task in self._tasks:
            task.cancel()
        self._group_offsets.stop()
        self._sinks.stop()

    def for_each_dir(self, task: str, work: Callable[[LogDir], None]) -> None:
        """A task's work on every online directory; raises the first fault after the last."""
        log_dirs = [unit.log_dir for unit in self._logs.online_units]
        work_on_each(log_dirs, work, functools.partial(self._log_fault, task))

    def _log_fault(self, task: str, log_dir: LogDir, fault: KafkalogError) -> None:
        """The same one a minute later again: some tasks run every few seconds."""
        key, now_ns = (task, log_dir.path), self._runtime.clock.monotonic_ns()
        reason, told_ns = self._told.get(key, ("", 0))
        if reason == fault.message and now_ns - told_ns < _TOLD_AGAIN_NS:
            return
        self._told[key] = fault.message, now_ns
        _log.error(
            "task_failed",
            task=task,
            log_dir=log_dir.path,
            reason=fault.message,
            remedy=remedy_of(fault),
        )

    def flush_due_once(self) -> None:
        """Ask the writers to flush logs whose ``flush.ms`` is over; does not wait. Loop body."""
        now_ms = self._runtime.clock.wall_ms()
        work_on_each(
            [log for log in self._logs.table.logs() if _is_flush_due(log, now_ms)],
            lambda log: self._logs.unit_of(log).writer.submit(FlushCommand(log)),
            _log_unflushed,
        )

    def _expire_producers(self, log_dir: LogDir) -> None:
        """Ask the writer to forget idle producers; does not wait."""
        logs = self._logs.table.logs_in(log_dir.path)
        if logs:
            works = [log.remove_expired_producers for log in logs]
            self._logs.unit_of(logs[0]).writer.submit(EachCommand(works, 1))

    def measure_once(self) -> None:
        """Gauges of all directories, a sample of the traffic, a turn of every idle thread.

        Loop body.
        """
        clock, metrics = self._runtime.clock, self._runtime.metrics
        metrics.beat("scheduler", clock.wall_ms())
        metrics.history.sample(clock.wall_ms(), clock.monotonic_ns())
        for unit in self._logs.online_units:
            unit.wake()
        self._wake_cleaner()
        self.for_each_dir(LOG_DIR_METRICS_TASK, self._measure)

    def _measure(self, log_dir: LogDir) -> None:
        """Sizes of one directory for the metrics page, which never touches the disk itself."""
        metrics, path = self._runtime.metrics, log_dir.path
        space = log_dir.measure_space()
        metrics.set_log_dir_space(path, used_bytes=space.used_bytes, free_bytes=space.usable_bytes)
        logs = self._logs.table.logs_in(path)
        metrics.log_dir_partitions.labels(path).set(len(logs))
        metrics.log_dir_segments.labels(path).set(sum(len(log.segments) for log in logs))
        disputed = sum(log.disputed_start_offset is not None for log in logs)
        metrics.log_starts_disputed.labels(path).set(disputed)

    def _every_dir(
        self, name: str, work: Callable[[LogDir], None], first_ms: int, period_ms: int
    ) -> None:
        self._every(name, functools.partial(self.for_each_dir, name, work), first_ms, period_ms)

    def _every(self, name: str, task: Callable[[], object], first_ms: int, period_ms: int) -> None:
        """Two keys allow a period of 0, which is once, as in Kafka's scheduler."""
        scheduler = self._runtime.scheduler
        if period_ms > 0:
            handle = scheduler.schedule_periodic(name, task, first_ms, period_ms)
        else:
            handle = scheduler.schedule_once(name, task, first_ms)
        self._tasks.append(handle)


def _is_flush_due(log: UnifiedLog, now_ms: int) -> bool:
    limit_ms = log.config.flush_ms
    if limit_ms == INT64_MAX or log.recovery_point >= log.log_end_offset:
        return False
    return now_ms - log.local.last_flush_ms >= limit_ms


def _log_unflushed(log: UnifiedLog, fault: KafkalogError) -> None:
    _log.error("flush_failed", partition=str(log.topic_partition), reason=fault.message)
