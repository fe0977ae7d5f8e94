"""Cleaning: the log cleaner in the broker, and what operators see of it and may ask of it.

``Cleaning`` joins the cleaner's threads to directories, writers, checkpoints and retention, and
owns the pauses that operators asked for. Who works on which log is the LogCleanerManager's.
``CleaningOperations`` is the part of the operation layer about compaction. Never the event loop
unless said: an inspection may read indexes, stopping a clean waits for its thread, which may wait
for a writer. Source: Kafka's LogManager, where it calls the LogCleaner.
"""

from __future__ import annotations

import enum
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from kafkalog.broker.access_rules import Action, Resource
from kafkalog.broker.authorized import operation_class, requires
from kafkalog.broker.clock_guard import ClockGuard
from kafkalog.broker.compaction.history import CleaningObserver, log_facts, thread_facts
from kafkalog.broker.directory.commands import DIRECTORY_OPERATIONS_MAX, FlushCommand
from kafkalog.cleaner.cleaner import end_pending_swap
from kafkalog.cleaner.log_cleaner import LogCleaner
from kafkalog.cleaner.log_cleaner_manager import NONE
from kafkalog.cleaner.plan import NotCleanable
from kafkalog.cleaner.stats import CleanRequest
from kafkalog.errors import (
    CleaningConflict,
    InvalidRequest,
    KafkalogError,
    LogCleaningAborted,
    PolicyViolation,
)
from kafkalog.log.retention.forecast import Schedule
from kafkalog.observe.cleaner_metrics import CleanerFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from kafkalog.broker.background import BackgroundOperation, BackgroundOperations
    from kafkalog.broker.catalog import Logs
    from kafkalog.broker.compaction.history import PastClean
    from kafkalog.broker.directory.checkpoints import Checkpoints
    from kafkalog.broker.retention.retention import Retention
    from kafkalog.broker.runtime import Runtime
    from kafkalog.cleaner.config import LogCleanerConfig
    from kafkalog.cleaner.log_cleaner import CleanerMaker, ThreadStatus
    from kafkalog.cleaner.log_cleaner_manager import (
        CleaningState,
        CleaningStatus,
        LogCleanerManager,
    )
    from kafkalog.cleaner.stats import CleaningRun
    from kafkalog.env.threads import Mutex
    from kafkalog.format.topic_names import TopicPartition
    from kafkalog.log.retention.plan import RetentionPlan
    from kafkalog.log.unified_log import UnifiedLog

    CleanEnd = CleaningRun | KafkalogError  # the error of one that was never begun
    Submit = Callable[[TopicPartition, Callable[[CleaningRun], None]], None]


T = TypeVar("T")


class CleanerLogs:
    """The served logs as the LogCleanerManager sees them; a ServedLogs. Owns nothing."""

    def __init__(self, logs: Logs, checkpoints: Checkpoints) -> None:
        # constant after construction
        self._logs = logs
        self._checkpoints = checkpoints

    def logs(self) -> list[UnifiedLog]:
        """See ServedLogs."""
        return [log for log in self._logs.table.logs() if self._logs.unit_of(log).log_dir.is_online]

    def is_served(self, log: UnifiedLog) -> bool:
        """See ServedLogs. A log with a copy on its way to another directory is not: as in Kafka."""
        table = self._logs.table
        is_moving = table.future_of(log.topic_partition) is not None
        return table.serves(log) and self._logs.unit_of(log).log_dir.is_online and not is_moving

    def guard(self, log: UnifiedLog) -> AbstractContextManager[object]:
        """See ServedLogs."""
        return self._logs.unit_of(log).log_dir.guard()

    def write_checkpoint(self, log: UnifiedLog) -> None:
        """See ServedLogs."""
        self._checkpoints.write_cleaner_offsets(self._logs.unit_of(log).log_dir)


def on_writer(logs: Logs, states: LogCleanerManager, log: UnifiedLog, call: Callable[[], T]) -> T:
    """Run a call of a clean on the log's writer, as CleanerHost has it.

    A swap that was published is completed in any case: half of one is no log.
    """

    def unless_aborted() -> T | LogCleaningAborted:
        if log.local.pending_swap is None:
            try:
                states.check_cleaning_aborted(log.topic_partition)
            except LogCleaningAborted as stop:
                return stop  # no fault of the writer's
        return call()

    outcome = logs.unit_of(log).writer.call(unless_aborted)
    if isinstance(outcome, LogCleaningAborted):
        raise outcome
    return outcome


def end_swap(logs: Logs, states: LogCleanerManager, log: UnifiedLog) -> None:
    """Complete a swap that a fault interrupted, durable on return; nothing when there is none.

    For a caller that paused or acquired the log and deletes of it. StorageFault: the rest is still
    to do.
    """
    with logs.unit_of(log).log_dir.guard():
        run = partial(on_writer, logs, states, log)
        end_pending_swap(log, run, operations_max=DIRECTORY_OPERATIONS_MAX)


class Cleaning(CleanerLogs):
    """See the module; a CleanerHost."""

    def __init__(
        self,
        logs: Logs,
        runtime: Runtime,
        checkpoints: Checkpoints,
        states: LogCleanerManager,
        retention: Retention,
        make_cleaner: CleanerMaker,
    ) -> None:
        """Nothing of the logs is touched before ``startup``."""
        # constant after construction
        super().__init__(logs, checkpoints)
        self._config = runtime.config
        self._clock = runtime.clock
        self._metrics = runtime.metrics.cleaner
        self._retention = retention
        self.states = states
        self.observer = CleaningObserver(runtime)
        self.cleaner = LogCleaner(
            runtime.config.cleaner,
            self,
            states,
            make_cleaner,
            runtime.clock,
            runtime.threads,
            self.observer,
        )
        self._clock_guard = ClockGuard(
            runtime.threads.mutex(), runtime.config.log_retention_check_interval_ms
        )
        self._mutex = runtime.threads.mutex()
        # under the mutex
        self._operator_pauses: dict[TopicPartition, int] = {}

    # ---- life

    def startup(self, dynamic: Mapping[str, str]) -> None:
        """Start the threads with what is configured now, unless there shall be none."""
        self._metrics.facts = self._facts
        self.reconfigure(dynamic)
        if self._config.log_cleaner_enable:
            self.cleaner.startup()

    def validate(self, dynamic: Mapping[str, str]) -> None:
        """InvalidRequest when the number of threads would change by more than Kafka allows."""
        current, wanted = (
            self.cleaner.config.threads,
            self._logs.rules.cleaner_config(dynamic).threads,
        )
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
        self.cleaner.reconfigure(self._logs.rules.cleaner_config(dynamic))

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
        """The partition is no longer served: return when no thread works on it, and forget it.

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
        now_ms = self._clock.wall_ms()
        return Schedule(
            next_check_ms=max(min(known), now_ms) if known else None,
            check_interval_ms=max(self.cleaner.backoff_ms, 1),
            delete_delay_ms=delete_delay_ms,
            is_cleaners=True,
        )

    # ---- CleanerHost

    def make_durable(self, log: UnifiedLog, end_offset: int) -> None:
        """See CleanerHost. A roll asks for a flush, so that this one is mostly there already."""
        if log.recovery_point < end_offset:
            self._logs.unit_of(log).writer.run(FlushCommand(log))

    def on_writer(self, log: UnifiedLog, call: Callable[[], T]) -> T:
        """See CleanerHost."""
        return on_writer(self._logs, self.states, log, call)

    def begin_retention(self) -> int:
        """See CleanerHost."""
        self._retention.clock_hold.end_check(self._clock.reading())  # of the pass before
        return self._clock_guard.check(self._clock.wall_ms(), self._clock.monotonic_ns())

    def plan_retention(self, log: UnifiedLog, jump_ms: int) -> RetentionPlan | None:
        """See CleanerHost."""
        planned = self._retention.plan_of(log)
        is_due = bool(planned.deletions) and not self._retention.is_guarded(log, jump_ms)
        return planned if is_due else None

    def retain(self, log: UnifiedLog, planned: RetentionPlan) -> None:
        """See CleanerHost."""
        self._retention.retain(log, planned)

    # ---- for the scrape

    def _facts(self) -> CleanerFacts:
        """As the threads saw the logs last; no log is inspected."""
        looked_ms, now_ms = self.states.last_inspected_ms, self._clock.wall_ms()
        return CleanerFacts(
            threads=[thread_facts(status) for status in self.cleaner.threads()],
            logs=[
                log_facts(status, self.states.failure_of(status.log.topic_partition))
                for status in self.states.statuses
                if self._logs.table.serves(status.log)
            ],
            log_dirs=[unit.log_dir.path for unit in self._logs.online_units],
            since_look_ms=0 if looked_ms is None else max(now_ms - looked_ms, 0),
        )


def submit_each(
    keys: Sequence[TopicPartition],
    mutex: Mutex,
    submit: Submit,
    on_done: Callable[[Sequence[CleanEnd]], None],
) -> dict[str, int]:
    """Submit a clean of each; a KafkalogError of one is its end. Does not block.

    ``on_done`` gets the ends in the order of the keys, on the thread of the last one. Any thread
    may read the progress that is returned.
    """
    ends: list[CleanEnd | None] = [None] * len(keys)  # under the mutex
    progress = {"partitions": len(keys), "partitions_done": 0}

    def ended(index: int, end: CleanEnd) -> None:
        with mutex:
            ends[index] = end
            progress["partitions_done"] += 1
            known = [each for each in ends if each is not None]
        if len(known) == len(keys):
            on_done(known)

    if not keys:
        on_done(())
    for index, key in enumerate(keys):
        try:
            submit(key, partial(ended, index))
        except KafkalogError as error:
            ended(index, error)
    return progress


LOG_CLEAN: Final = "log-clean"
"""The kind of the operations that ``begin`` begins."""


class WhyNot(enum.Enum):
    """Why no thread takes a log now; the value is what the API shows."""

    CLEANER_OFF = "cleaner_off"  # log.cleaner.enable or log.cleaner.threads
    MOVING = "moving"  # to another log directory
    IN_PROGRESS = "in_progress"  # one has it
    PAUSED = "paused"  # by an operator, or for a moment by the daemon
    UNCLEANABLE = "uncleanable"  # it failed too often
    WAITS_FOR_RETRY = "waits_for_retry"  # it failed
    UNREADABLE = "unreadable"  # the disk failed at the look
    NOTHING_CLEANABLE = "nothing_cleanable"  # active segment, lag, open transaction, or clean
    BELOW_RATIO = "below_ratio"  # min.cleanable.dirty.ratio


class CompactedLog(NamedTuple):
    """One compacted log at one moment.

    why_not     None: it is cleaned when its turn comes, which ``rank`` says, from 1
    """

    status: CleaningStatus
    rank: int | None
    why_not: WhyNot | None
    operator_pauses: int
    last_success_ms: int | None


class CleanerReport(NamedTuple):
    """The cleaner at one moment of the wall clock; ``since_ms``: of the start."""

    now_ms: int
    since_ms: int
    is_enabled: bool
    config: LogCleanerConfig
    threads: Sequence[ThreadStatus]
    logs: Sequence[CompactedLog]


class CleanerHealth(NamedTuple):
    """What of the cleaner needs an operator: dead threads, logs that failed."""

    dead_threads: Sequence[str]
    failed_logs: int


@operation_class()
class CleaningOperations:
    """See the module."""

    def __init__(
        self, logs: Logs, runtime: Runtime, cleaning: Cleaning, background: BackgroundOperations
    ) -> None:
        # constant after construction
        self._logs = logs
        self._clock = runtime.clock
        self._threads = runtime.threads
        self._cleaning = cleaning
        self._background = background

    @requires(Action.DESCRIBE, Resource.CLUSTER)
    def describe(self, topic: str | None = None) -> CleanerReport:
        """Threads and every compacted log, or those of a topic: UnknownTopic; dirtiest first."""
        self._logs.registry.check_ready()
        if topic is not None:
            self._logs.registered(topic)
        cleaning, now_ms = self._cleaning, self._clock.wall_ms()
        statuses = cleaning.states.inspect_all(now_ms)
        statuses = sorted(statuses, key=attrgetter("ratio"), reverse=True)
        logs, rank = list[CompactedLog](), 0
        for status in statuses:
            key, why_not = status.log.topic_partition, self._why_not(status)
            rank += why_not is None
            if topic not in (None, key.topic):
                continue
            last = cleaning.observer.last_cleans.get(key)
            logs.append(
                CompactedLog(
                    status,
                    rank if why_not is None else None,
                    why_not,
                    cleaning.operator_pauses(key),
                    None if last is None else last.ended_ms,
                )
            )
        return CleanerReport(
            now_ms,
            cleaning.observer.history.since_ms,
            cleaning.cleaner.is_enabled,
            cleaning.cleaner.config,
            cleaning.cleaner.threads(),
            logs,
        )

    @requires(Action.DESCRIBE, Resource.CLUSTER)
    def health(self) -> CleanerHealth:
        """As the threads left it; no disk, no log is looked at."""
        threads = self._cleaning.cleaner.threads()
        dead = [each.name for each in threads if not each.is_alive]
        return CleanerHealth(dead, len(self._cleaning.states.failures()))

    @requires(Action.DESCRIBE, Resource.CLUSTER)
    def history(self) -> list[PastClean]:
        """The cleans that ended within a day and since the start, oldest first; no disk."""
        return self._cleaning.observer.history.cleans(self._clock.wall_ms())

    @requires(Action.DESCRIBE, Resource.TOPIC, "topic")
    def inspect(self, topic: str, partition: int) -> CleaningStatus | None:
        """The cleaning status of one log; None: it is not compacted. May read indexes."""
        log = self._logs.log_of(topic, partition)
        if not log.config.is_compacted:
            return None
        return self._cleaning.states.inspect(log, self._clock.wall_ms())

    @requires(Action.CLUSTER, Resource.CLUSTER)
    def pause(self, topic: str, partition: int) -> CleaningState:
        """Abort a clean of the partition, begin none until ``resume``; the state after it."""
        log = self._compacted(topic, partition)
        self._cleaning.pause(log.topic_partition)
        return self._cleaning.states.state_of(log.topic_partition)

    @requires(Action.CLUSTER, Resource.CLUSTER)
    def resume(self, topic: str, partition: int) -> CleaningState:
        """Take back one pause: CleaningConflict when there is none; the state after it."""
        log = self._logs.log_of(topic, partition)
        self._cleaning.resume(log.topic_partition)
        return self._cleaning.states.state_of(log.topic_partition)

    @requires(Action.CLUSTER, Resource.CLUSTER)
    def abort(self, topic: str, partition: int) -> CleaningState:
        """End a clean of the partition; the next turn may begin another one."""
        log = self._compacted(topic, partition)
        self._cleaning.states.abort_cleaning(log.topic_partition)
        return self._cleaning.states.state_of(log.topic_partition)

    @requires(Action.CLUSTER, Resource.CLUSTER)
    def retry(self, topic: str, partition: int) -> bool:
        """Forget that cleaning failed; whether it had. The next turn tries again."""
        log = self._compacted(topic, partition)
        return self._cleaning.states.retry(log.topic_partition)

    @requires(Action.CLUSTER, Resource.CLUSTER)
    def submit(
        self, topic: str, partition: int, *, is_dry: bool, on_done: Callable[[CleaningRun], None]
    ) -> None:
        """Order a clean whatever the ratio; ``on_done`` is called on a cleaner thread.

        Does not block. PolicyViolation, CleaningConflict when no cleaner runs or one has the log.
        """
        log = self._compacted(topic, partition)
        self._cleaning.cleaner.submit(CleanRequest(log, is_dry, on_done))

    @requires(Action.CLUSTER, Resource.CLUSTER)
    def begin(
        self,
        topic: str,
        partition: int,
        *,
        is_dry: bool,
        result: Callable[[CleaningRun], dict[str, object]],
    ) -> BackgroundOperation:
        """``submit`` as an operation that outlasts its request; ``result`` describes the run."""
        log = self._compacted(topic, partition)
        background = self._background
        details = {"partition": str(log.topic_partition), "dry_run": str(is_dry).lower()}
        operation = background.begin_elsewhere(LOG_CLEAN, details)

        def done(run: CleaningRun) -> None:
            operation.result = result(run)
            background.end(operation, run.error)

        try:
            self._cleaning.cleaner.submit(CleanRequest(log, is_dry, done))
        except KafkalogError as error:
            background.end(operation, error)
            raise
        return operation

    @requires(Action.CLUSTER, Resource.CLUSTER)
    def submit_all(
        self,
        keys: Sequence[TopicPartition],
        *,
        is_dry: bool,
        on_done: Callable[[Sequence[CleanEnd]], None],
    ) -> dict[str, int]:
        """``submit`` for each of them, as ``submit_each``; the progress."""

        def submit(key: TopicPartition, done: Callable[[CleaningRun], None]) -> None:
            self.submit(key.topic, key.partition, is_dry=is_dry, on_done=done)

        return submit_each(keys, self._threads.mutex(), submit, on_done)

    @requires(Action.CLUSTER, Resource.CLUSTER)
    def begin_all(
        self,
        keys: Sequence[TopicPartition],
        *,
        is_dry: bool,
        result: Callable[[Sequence[CleanEnd]], dict[str, object]],
    ) -> BackgroundOperation:
        """``submit_all`` as an operation that outlasts its request."""
        self._logs.registry.check_ready()
        background = self._background
        operation = background.begin_elsewhere("cleaner-run", {})

        def done(ends: Sequence[CleanEnd]) -> None:
            operation.result = result(ends)
            background.end(operation, None)

        operation.progress = self.submit_all(keys, is_dry=is_dry, on_done=done)
        return operation

    def _compacted(self, topic: str, partition: int) -> UnifiedLog:
        """UnknownTopic, UnknownPartition, NotReady, LogDirOffline, PolicyViolation."""
        log = self._logs.served(topic, partition)
        if not log.config.is_compacted:
            raise PolicyViolation(
                f"Topic {topic} is not compacted: cleanup.policy has no compact", topic=topic
            )
        return log

    def _why_not(self, status: CleaningStatus) -> WhyNot | None:
        """The first obstacle in the order of an operator's remedies."""
        cleaning, state = self._cleaning, status.state
        if not cleaning.cleaner.is_enabled:
            return WhyNot.CLEANER_OFF
        if not cleaning.is_served(status.log):
            return WhyNot.MOVING
        if state != NONE:
            return WhyNot.PAUSED if state.pauses else WhyNot.IN_PROGRESS
        failure = status.failure
        if failure is not None and failure.is_uncleanable:
            return WhyNot.UNCLEANABLE
        if failure is not None and not failure.is_over(self._clock.monotonic_ns()):
            return WhyNot.WAITS_FOR_RETRY
        if status.to_clean is None:
            return WhyNot.UNREADABLE
        obstacle = status.to_clean.obstacle
        return None if obstacle is None else _OBSTACLES[obstacle]


_OBSTACLES = {
    NotCleanable.NOTHING_CLEANABLE: WhyNot.NOTHING_CLEANABLE,
    NotCleanable.BELOW_RATIO: WhyNot.BELOW_RATIO,
}
