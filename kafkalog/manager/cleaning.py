"""Cleaning: the log cleaner as a part of the manager of all logs.

Owns the pauses that operators asked for, and joins the cleaner's threads to directories, writers,
checkpoints and retention. Which log is whose is the LogCleanerManager's. Any thread, never the
event loop: stopping a clean waits for its thread, which may wait for a writer.
Source: Kafka's LogManager, where it calls the LogCleaner; log-lifecycle 12.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kafkalog.cleaner.log_cleaner import LogCleaner
from kafkalog.cleaner.log_cleaner_manager import LogCleanerManager
from kafkalog.cleaner.swap import end_pending_swap
from kafkalog.errors import CleaningConflict, InvalidRequest, LogCleaningAborted
from kafkalog.log.retention.forecast import Schedule
from kafkalog.manager.cleaning_observer import CleaningObserver
from kafkalog.manager.clock_guard import ClockGuard
from kafkalog.manager.commands import DIRECTORY_OPERATIONS_MAX, FlushCommand

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from kafkalog.cleaner.config import LogCleanerConfig
    from kafkalog.cleaner.log_cleaner import CleanerMaker
    from kafkalog.format.topic_names import TopicPartition
    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.manager.log_manager import LogManager

T = TypeVar("T")


class Cleaning:
    """See the module; a CleanerHost."""

    def __init__(self, manager: LogManager, make_cleaner: CleanerMaker) -> None:
        """Nothing of the manager is touched before ``startup``."""
        # constant after construction
        seams, config = manager.seams, manager.config
        self._manager = manager
        self.observer = CleaningObserver(manager)
        self.states = LogCleanerManager(
            self, seams.clock, seams.threads, config.log_cleaner_backoff_ms
        )
        self.cleaner = LogCleaner(
            config.cleaner,
            self,
            self.states,
            make_cleaner,
            seams.clock,
            seams.threads,
            self.observer,
        )
        self._clock_guard = ClockGuard(
            seams.clock, seams.threads.mutex(), config.log_retention_check_interval_ms
        )
        self._mutex = seams.threads.mutex()
        # under the mutex
        self._operator_pauses: dict[TopicPartition, int] = {}

    # ---- life

    def startup(self) -> None:
        """Start the threads with what is configured now, unless there shall be none."""
        self._manager.seams.metrics.cleaner.facts = self.observer.facts
        self.cleaner.reconfigure(self._configured(self._manager.registry.state.broker_configs))
        if self._manager.config.log_cleaner_enable:
            self.cleaner.startup()

    def shutdown(self) -> None:
        """Abort what is in work and end the threads; writers must still run."""
        self.cleaner.shutdown()

    def validate(self, dynamic: Mapping[str, str]) -> None:
        """InvalidRequest when the number of threads would change by more than Kafka allows."""
        current, wanted = self.cleaner.config.threads, self._configured(dynamic).threads
        if wanted == current:
            return
        if wanted < 1:
            raise InvalidRequest("Log cleaner threads should be at least 1")
        if wanted < current // 2:
            raise InvalidRequest(
                "Log cleaner threads cannot be reduced to less than half the current value "
                f"{current}"
            )
        if wanted > current * 2:
            raise InvalidRequest(
                "Log cleaner threads cannot be increased to more than double the current value "
                f"{current}"
            )

    def reconfigure(self, dynamic: Mapping[str, str]) -> None:
        """The dynamic broker configs have changed."""
        self.cleaner.reconfigure(self._configured(dynamic))

    def _configured(self, dynamic: Mapping[str, str]) -> LogCleanerConfig:
        return self._manager.rules.cleaner_config(dynamic)

    # ---- changes of logs

    def config_changed(self, log: UnifiedLog, *, was_compacted: bool) -> None:
        """The log has another configuration: a clean that it no longer wants ends.

        What kept it from being cleaned may be over.
        """
        key = log.topic_partition
        self.states.retry(key)
        if was_compacted and not log.config.is_compacted:
            self.states.abort_cleaning(key)

    def forget(self, topic_partition: TopicPartition) -> None:
        """The partition is served no more: return when nobody works on it, without a trace of it.

        Its log must be out of the table before, so that no thread takes it again.
        """
        with self._mutex:
            pauses = self._operator_pauses.pop(topic_partition, 0)
        self.states.abort_and_pause_cleaning(topic_partition)
        self.states.forget(topic_partition)
        self.observer.forget(topic_partition)
        self.states.resume_cleaning([topic_partition] * (pauses + 1))

    # ---- orders of operators

    def pause(self, topic_partition: TopicPartition) -> None:
        """Abort a clean of the log and let none begin until ``resume``, or a restart."""
        self.states.abort_and_pause_cleaning(topic_partition)
        with self._mutex:
            before = self._operator_pauses.get(topic_partition, 0)
            self._operator_pauses[topic_partition] = before + 1

    def resume(self, topic_partition: TopicPartition) -> None:
        """Take back one ``pause``; CleaningConflict when there is none."""
        with self._mutex:
            left = self._operator_pauses.pop(topic_partition, 0) - 1
            if left < 0:
                raise CleaningConflict(
                    f"The cleaning of {topic_partition} was not paused by anybody who could resume "
                    "it",
                    topic=topic_partition.topic,
                    partition=topic_partition.partition,
                )
            if left:
                self._operator_pauses[topic_partition] = left
        self.states.resume_cleaning([topic_partition])

    def operator_pauses(self, topic_partition: TopicPartition) -> int:
        """How many of its pauses ``resume`` takes back."""
        return self._operator_pauses.get(topic_partition, 0)

    # ---- for the retention of compacted logs

    def retention_schedule(self, delete_delay_ms: int) -> Schedule | None:
        """When a cleaner thread next looks for old segments; None: no thread ever does.

        Unknown while all are busy: a clean ends when it ends.
        """
        if not self.cleaner.is_enabled:
            return None
        turns = [status.next_turn_ms for status in self.cleaner.threads()]
        known = [turn_ms for turn_ms in turns if turn_ms is not None]
        now_ms = self._manager.seams.clock.wall_ms()
        return Schedule(
            next_check_ms=max(min(known), now_ms) if known else None,
            check_interval_ms=max(self.cleaner.backoff_ms, 1),
            delete_delay_ms=delete_delay_ms,
            is_cleaners=True,
        )

    def end_pending_swap(self, log: UnifiedLog) -> None:
        """What a fault left of a swap is done; nothing when there is none. Durable on return.

        For who paused or grabbed the log and deletes of it. StorageFault: the rest is still to do.
        """
        with self.guard(log):
            end_pending_swap(
                log, partial(self.on_writer, log), operations_max=DIRECTORY_OPERATIONS_MAX
            )

    # ---- CleanerHost

    def logs(self) -> list[UnifiedLog]:
        """See ServedLogs."""
        manager = self._manager
        return [log for log in manager.table.logs() if manager.unit_of(log).log_dir.is_online]

    def is_served(self, log: UnifiedLog) -> bool:
        """See ServedLogs. A log with a copy on its way is left as it is, as in Kafka."""
        table = self._manager.table
        is_moving = table.future_of(log.topic_partition) is not None
        is_online = self._manager.unit_of(log).log_dir.is_online
        return table.serves(log) and is_online and not is_moving

    def guard(self, log: UnifiedLog) -> AbstractContextManager[object]:
        """See ServedLogs."""
        return self._manager.unit_of(log).log_dir.guard()

    def write_checkpoint(self, log: UnifiedLog) -> None:
        """See ServedLogs."""
        self._manager.checkpoints.write_cleaner_offsets(self._manager.unit_of(log).log_dir)

    def make_durable(self, log: UnifiedLog, end_offset: int) -> None:
        """See CleanerHost. A roll asks for a flush, so that this one is mostly there already."""
        if log.recovery_point < end_offset:
            self._manager.unit_of(log).writer.run(FlushCommand(log))

    def on_writer(self, log: UnifiedLog, call: Callable[[], T]) -> T:
        """See CleanerHost. A swap that has begun is ended, whoever waits: half of one is no log."""

        def unless_wanted() -> T | LogCleaningAborted:
            swap = log.local.pending_swap
            if swap is None or not swap.is_published:
                try:
                    self.states.check_cleaning_aborted(log.topic_partition)
                except LogCleaningAborted as stop:
                    return stop  # no fault of the writer's
            return call()

        outcome = self._manager.unit_of(log).writer.call(unless_wanted)
        if isinstance(outcome, LogCleaningAborted):
            raise outcome
        return outcome

    def begin_retention(self) -> int:
        """See CleanerHost."""
        return self._clock_guard.look()

    def is_retention_due(self, log: UnifiedLog, jump_ms: int) -> bool:
        """See CleanerHost."""
        retention = self._manager.retention
        return retention.is_due(log) and not retention.is_guarded(log, jump_ms)

    def retain(self, log: UnifiedLog) -> None:
        """See CleanerHost."""
        self._manager.retention.retain(log)
