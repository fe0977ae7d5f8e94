"""Retention: the task ``kafka-log-retention`` and one pass over one log.

Owns when a pass runs and what holds it back; what is deleted is decided by ``log/retention/plan``.
The task plans on its own thread from published facts, so that a pass with nothing to do costs the
writers nothing. Where something is to be deleted, the log's writer takes the three steps of
``log/retention/execute``, each as a command, and deletes a slice of segments at a time. A deletion
is planned twice: before, and by the second step on what the log holds then. Logs with ``compact``
in their policy are left to the cleaner's threads, as in Kafka; the others are paused for those
threads during their pass, because a change of the policy could let them in.

Clock guard: when the wall clock has run ahead of the monotonic one by more than a log's
``retention.ms`` since the check before, nothing of that log is deleted in this check. The cleaner's
threads check every few seconds, so a jump that they see counts for the period of the task. A log
that would lose more than half of its bytes waits for an operator: ``clock_hold``. Source: Kafka's
LogManager.cleanupLogs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

import structlog

from kafkalog.broker.clock_guard import ClockGuard
from kafkalog.broker.directory.commands import (
    COMMAND_OVERHEAD_BYTES,
    DIRECTORY_OPERATIONS_MAX,
    Command,
    Step,
    Until,
)
from kafkalog.broker.retention.clock_hold import ClockHold
from kafkalog.env.clock import TimeSlice
from kafkalog.errors import DiskFull, KafkalogError, PartitionMoving, UnknownTopic
from kafkalog.log import kafka_messages
from kafkalog.log.retention import execute
from kafkalog.log.retention.plan import NOTHING_HELD, RetainedByHold, Rule, plan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalog.broker.background import BackgroundOperations
    from kafkalog.broker.catalog import Logs
    from kafkalog.broker.directory.commands import WriterContext
    from kafkalog.broker.directory.unit import LogDirUnit
    from kafkalog.broker.runtime import Runtime
    from kafkalog.cleaner.log_cleaner_manager import LogCleanerManager
    from kafkalog.format.topic_names import TopicPartition
    from kafkalog.log.log_config import LogConfig
    from kafkalog.log.retention.execute import Deleted
    from kafkalog.log.retention.plan import Deletion, Hold, RetentionPlan
    from kafkalog.log.unified_log import UnifiedLog

    HoldOf = Callable[[UnifiedLog, LogConfig], Hold | None]

RETENTION_TASK = "kafka-log-retention"
_SLICE = DIRECTORY_OPERATIONS_MAX // execute.DIRECTORY_OPERATIONS_PER_SEGMENT

_log = structlog.get_logger(__name__)


class DeletedSegment(NamedTuple):
    """A segment that a pass deleted, and by which rule."""

    base_offset: int
    rule: Rule
    size_bytes: int


class FinishCommand(Command):
    """The last step: delete what is below the log start; result: what was deleted."""

    __slots__ = ("_deleted", "_log")

    def __init__(self, log: UnifiedLog) -> None:
        super().__init__(None, COMMAND_OVERHEAD_BYTES)
        self._log = log
        self._deleted: list[Deleted] = []

    def run(self, writer: WriterContext) -> Step:
        """A slice; the rest in the next turn."""
        writer.refuse_retired(self._log)
        deleted = execute.finish(self._log, _SLICE)
        self._deleted += deleted
        self.result = self._deleted
        return Step.AGAIN if len(deleted) == _SLICE else Step.DONE


class Retention:
    """See the module."""

    def __init__(
        self,
        logs: Logs,
        runtime: Runtime,
        states: LogCleanerManager,
        hold_of: HoldOf,
        end_swap: Callable[[UnifiedLog], None],
        background: BackgroundOperations,
    ) -> None:
        """``end_swap`` completes a swap that a fault interrupted."""
        # constant after construction
        self._logs = logs
        self._config = runtime.config
        self._states = states
        self._hold_of = hold_of
        self._end_swap = end_swap
        self._background = background
        self._clock = runtime.clock
        self._metrics = runtime.metrics
        self.clock_hold = ClockHold(logs, runtime)
        # single dictionary operations by any thread
        self._held: dict[TopicPartition, RetainedByHold] = {}
        # owned by the task
        self._clock_guard = ClockGuard(runtime.threads.mutex())

    # ---- any thread

    def held_of(self, topic_partition: TopicPartition) -> RetainedByHold:
        """What a hold kept from the limits at the last look at the log."""
        return self._held.get(topic_partition, NOTHING_HELD)

    def plan_of(self, log: UnifiedLog) -> RetentionPlan:
        """What a pass would delete now, and what a hold keeps from it; StorageFault."""
        hold = self._hold_of(log, log.config)
        with self._logs.unit_of(log).log_dir.guard():
            facts, now = execute.facts_of(log, hold), self._clock.reading()
            planned = plan(facts, execute.policy_of(log.config), now.wall_ms)
            planned, _ = self.clock_hold.limited(planned, log, facts, now, is_pass=True)
        self.note_held(log, planned)
        return planned

    def note_held(self, log: UnifiedLog, planned: RetentionPlan) -> None:
        """A pass was planned: note what a hold keeps from it, see ``held_of``."""
        found = [log.segments.get(each.base_offset) for each in planned.held]
        sizes = [each.size_bytes for each in found if each is not None]  # else it went meanwhile
        if sizes:
            self._held[log.topic_partition] = RetainedByHold(len(sizes), sum(sizes))
        else:
            self._held.pop(log.topic_partition, None)

    def retain_by_order(self, log: UnifiedLog) -> tuple[DeletedSegment, ...]:
        """A pass on request: a clean of the log is aborted first. As ``retain``."""
        self._states.abort_and_pause_cleaning(log.topic_partition)
        try:
            return self.retain(log)
        finally:
            self._states.resume_cleaning([log.topic_partition])

    def retain(
        self, log: UnifiedLog, planned: RetentionPlan | None = None
    ) -> tuple[DeletedSegment, ...]:
        """One pass over one log, whatever its policy; what was deleted, oldest first.

        ``planned``: what ``plan_of`` said right before. No cleaner works on the log meanwhile: the
        caller paused or acquired it. Waits for the log's writer: not for the event loop.
        KafkalogError: the rest is for the next pass.
        """
        unit = self._logs.unit_of(log)
        planned = self.plan_of(log) if planned is None else planned
        if not planned.deletions:
            return ()
        now_ms = planned.now_ms
        if log.local.pending_swap is not None:
            self._end_swap(log)  # old names would outlive their segments
        writer, hold_of = unit.writer, self._hold_of
        try:
            # The plan may be of an earlier moment: the second step plans on what the log holds.
            base = writer.change(log, lambda: execute.begin(log, planned), Until.FLUSHED)
            # A hold that was set meanwhile is in force when that is answered.
            deletions = writer.change(
                log,
                lambda: execute.raise_start(log, now_ms, base, hold_of(log, log.config)),
                Until.CHECKPOINTED,
            )
            deleted = cast("Sequence[Deleted]", writer.run(FinishCommand(log)))
        except DiskFull:  # others filled it: what frees space may not wait for space
            deletions, deleted = writer.change(
                log, lambda: execute.take_oldest(log, now_ms, hold_of(log, log.config))
            )
            if not deleted:
                raise
        # A log start that moved meanwhile may have let more go than was planned.
        rules = {each.base_offset: each.rule for each in deletions}
        taken = tuple(
            DeletedSegment(
                each.base_offset, rules.get(each.base_offset, Rule.START_OFFSET), each.size_bytes
            )
            for each in deleted
        )
        topic = log.topic_partition.topic
        self._metrics.observe_retention(
            topic, [(each.rule.value, each.size_bytes) for each in taken]
        )
        self._log_yielded(log, deletions, taken)
        return taken

    def _log_yielded(
        self, log: UnifiedLog, deletions: Sequence[Deletion], taken: Sequence[DeletedSegment]
    ) -> None:
        """Records went that no archive has: count them, and say so once a pass."""
        yielded = {each.base_offset for each in deletions if each.is_yielded}
        sizes = [each.size_bytes for each in taken if each.base_offset in yielded]
        if not sizes:
            return
        hold = self._hold_of(log, log.config)
        self._metrics.observe_yielded(log.topic_partition.topic, sizes)
        _log.warning(
            "archive_hold_gave_way",
            partition=str(log.topic_partition),
            archived_offset=None if hold is None else hold.offset,
            log_start_offset=log.log_start_offset,
            segments=len(sizes),
            bytes=sum(sizes),
            what_to_do="let the archive catch up, or raise archive.hold.max.bytes",
        )

    # ---- the task

    def run_once(self) -> int:
        """A pass over all logs without compaction; how many segments went. Loop body.

        Ends between two logs when the daemon stops: then it is no run. A log that fails does not
        hold up the others; the first fault is raised after the last one.
        """
        started_ns = self._clock.monotonic_ns()
        jump_ms = self._clock_guard.check(self._clock.wall_ms(), started_ns)
        self.clock_hold.begin_check(self._clock.reading())
        if not self._background.is_stopping:
            _log.debug(kafka_messages.cleanup_begins())
        count, faults, time_slice = 0, list[KafkalogError](), TimeSlice(self._clock)
        for unit in self._logs.online_units:
            count += self._run_unit(unit, jump_ms, faults, time_slice)
        if not self._background.is_stopping:
            self._note_run(count, self._clock.monotonic_ns() - started_ns)
            now = self._clock.reading()
            self.clock_hold.end_check(now)
            self.clock_hold.save(now)
        if faults:
            raise faults[0]
        return count

    def _note_run(self, count: int, run_ns: int) -> None:
        seconds = run_ns / 1e9
        self._metrics.observe_retention_run(seconds, self._clock.wall_ms())
        for topic_partition in list(self._held):
            if self._logs.table.find(topic_partition) is None:  # its topic was deleted
                self._held.pop(topic_partition, None)
        _log.debug(kafka_messages.cleanup_ends(count, seconds))

    def _run_unit(
        self, unit: LogDirUnit, jump_ms: int, faults: list[KafkalogError], time_slice: TimeSlice
    ) -> int:
        count = 0
        for log in self._logs.table.logs_in(unit.log_dir.path):
            time_slice.maybe_yield()
            if self._background.is_stopping:
                return count
            if log.config.is_compacted:
                continue
            try:
                planned = self.plan_of(log)  # so that a guarded log is known to be held, too
                if self.is_guarded(log, jump_ms):
                    continue
                _log.debug(kafka_messages.collecting(str(log.topic_partition)))
                count += self._retain_paused(log, planned)
            except (UnknownTopic, PartitionMoving):
                continue  # deleted since the list was taken, or elsewhere by now
            except KafkalogError as error:
                error.already_logged = True
                faults.append(error)
                if not unit.log_dir.is_online:
                    return count  # said once, by the directory
                _log.error(
                    "retention_failed", partition=str(log.topic_partition), reason=error.message
                )
        return count

    def _retain_paused(self, log: UnifiedLog, planned: RetentionPlan) -> int:
        """How many segments were deleted; none while another thread owns the log."""
        if not planned.deletions or not self._states.try_pause(log.topic_partition):
            return 0
        try:
            return len(self.retain(log, planned))
        finally:
            self._states.resume_cleaning([log.topic_partition])

    def is_guarded(self, log: UnifiedLog, jump_ms: int) -> bool:
        """Whether the clock guard keeps the log out of a check that saw the clock jump."""
        is_off = not self._config.log_retention_clock_guard
        if is_off or not 0 <= log.config.retention_ms < jump_ms:
            return False
        self._metrics.retention_clock_jumps.inc()
        _log.warning(
            "retention_skipped_after_clock_jump",
            partition=str(log.topic_partition),
            jump_ms=jump_ms,
            retention_ms=log.config.retention_ms,
            what_to_do="put the clock right before the next check, or let it run",
        )
        return True
