"""CleaningOperations: what operators see of the cleaner and may tell it.

The part of the operation layer that is about compaction; ``Operations`` holds it. Blocks (a survey
may read indexes, an abort waits for a thread) unless said; errors are those of ``errors.py``.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.cleaner.log_cleaner_manager import NONE
from kafkalog.cleaner.plan import NotCleanable
from kafkalog.cleaner.stats import CleanRequest
from kafkalog.errors import KafkalogError, PolicyViolation
from kafkalog.manager.access_rules import Action, Resource
from kafkalog.manager.authorized import operation_class, requires
from kafkalog.manager.ordered_cleans import OrderedCleans

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalog.cleaner.config import LogCleanerConfig
    from kafkalog.cleaner.log_cleaner import ThreadStatus
    from kafkalog.cleaner.log_cleaner_manager import CleaningState, Standing
    from kafkalog.cleaner.stats import CleaningRun
    from kafkalog.format.topic_names import TopicPartition
    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.manager.background_operations import BackgroundOperation
    from kafkalog.manager.cleaning_history import PastClean
    from kafkalog.manager.log_manager import LogManager
    from kafkalog.manager.ordered_cleans import CleanEnd

LOG_CLEAN = "log-clean"
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

    standing: Standing
    rank: int | None
    why_not: WhyNot | None
    operator_pauses: int
    last_success_ms: int | None


class CleanerReport(NamedTuple):
    """The cleaner at one moment of the wall clock."""

    now_ms: int
    is_enabled: bool
    config: LogCleanerConfig
    threads: Sequence[ThreadStatus]
    logs: Sequence[CompactedLog]


class CleanerHealth(NamedTuple):
    """What of the cleaner needs somebody: threads that ended, logs left out for an error."""

    dead_threads: Sequence[str]
    failed_logs: int


@operation_class()
class CleaningOperations:
    """See the module."""

    def __init__(self, manager: LogManager) -> None:
        # constant after construction
        self._manager = manager
        self._cleaning = manager.cleaning

    @requires(Action.DESCRIBE, Resource.CLUSTER)
    def describe(self, topic: str | None = None) -> CleanerReport:
        """Threads and every compacted log, or those of a topic: UnknownTopic; dirtiest first."""
        self._manager.check_ready()
        if topic is not None:
            self._manager.registered(topic)
        cleaning, now_ms = self._cleaning, self._manager.seams.clock.wall_ms()
        standings = sorted(cleaning.states.survey(now_ms), key=_ratio, reverse=True)
        logs, rank = list[CompactedLog](), 0
        for standing in standings:
            key, why_not = standing.log.topic_partition, self._why_not(standing)
            rank += why_not is None
            logs.append(
                CompactedLog(
                    standing,
                    rank if why_not is None else None,
                    why_not,
                    cleaning.operator_pauses(key),
                    cleaning.observer.last_success_ms(key),
                )
            )
        return CleanerReport(
            now_ms,
            cleaning.cleaner.is_enabled,
            cleaning.cleaner.config,
            cleaning.cleaner.threads(),
            [
                each
                for each in logs
                if topic is None or each.standing.log.topic_partition.topic == topic
            ],
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
        return self._cleaning.observer.history.cleans(self._manager.seams.clock.wall_ms())

    @requires(Action.DESCRIBE, Resource.TOPIC, "topic")
    def look(self, topic: str, partition: int) -> Standing | None:
        """How one log stands with the cleaner; None: it is not compacted. May read indexes."""
        log = self._manager.log_of(topic, partition)
        if not log.config.is_compacted:
            return None
        return self._cleaning.states.look(log, self._manager.seams.clock.wall_ms())

    @requires(Action.CLUSTER, Resource.CLUSTER)
    def pause(self, topic: str, partition: int) -> CleaningState:
        """Abort a clean of the partition, begin none until ``resume``; the state after it."""
        log = self._compacted(topic, partition)
        self._cleaning.pause(log.topic_partition)
        return self._cleaning.states.state_of(log.topic_partition)

    @requires(Action.CLUSTER, Resource.CLUSTER)
    def resume(self, topic: str, partition: int) -> CleaningState:
        """Take back one pause: CleaningConflict when there is none; the state after it."""
        log = self._manager.log_of(topic, partition)
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
        background = self._manager.background
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
    ) -> OrderedCleans:
        """``submit`` for each of them; ``on_done`` gets all ends, on a cleaner thread mostly.

        Does not block. What ``submit`` raises for one of them is its end.
        """
        cleans = OrderedCleans(keys, self._manager.seams.threads.mutex(), on_done)

        def submit(key: TopicPartition, done: Callable[[CleaningRun], None]) -> None:
            self.submit(key.topic, key.partition, is_dry=is_dry, on_done=done)

        cleans.begin(submit)
        return cleans

    @requires(Action.CLUSTER, Resource.CLUSTER)
    def begin_all(
        self,
        keys: Sequence[TopicPartition],
        *,
        is_dry: bool,
        result: Callable[[Sequence[CleanEnd]], dict[str, object]],
    ) -> BackgroundOperation:
        """``submit_all`` as an operation that outlasts its request."""
        self._manager.check_ready()
        background = self._manager.background
        operation = background.begin_elsewhere("cleaner-run", {})

        def done(ends: Sequence[CleanEnd]) -> None:
            operation.result = result(ends)
            background.end(operation, None)

        operation.progress = self.submit_all(keys, is_dry=is_dry, on_done=done).progress
        return operation

    def _compacted(self, topic: str, partition: int) -> UnifiedLog:
        """UnknownTopic, UnknownPartition, NotReady, LogDirOffline, PolicyViolation."""
        self._manager.registered(topic)
        log = self._manager.log_of(topic, partition)
        if not log.config.is_compacted:
            raise PolicyViolation(
                f"Topic {topic} is not compacted: cleanup.policy has no compact", topic=topic
            )
        return log

    def _why_not(self, standing: Standing) -> WhyNot | None:
        """The first obstacle in the order of an operator's remedies."""
        cleaning, state = self._cleaning, standing.state
        if not cleaning.cleaner.is_enabled:
            return WhyNot.CLEANER_OFF
        if not cleaning.is_served(standing.log):
            return WhyNot.MOVING
        if state != NONE:
            return WhyNot.PAUSED if state.pauses else WhyNot.IN_PROGRESS
        failure = standing.failure
        if failure is not None and failure.is_uncleanable:
            return WhyNot.UNCLEANABLE
        if failure is not None and not failure.is_over(self._manager.seams.clock.monotonic_ns()):
            return WhyNot.WAITS_FOR_RETRY
        if standing.to_clean is None:
            return WhyNot.UNREADABLE
        obstacle = standing.to_clean.plan.obstacle
        return None if obstacle is None else _OBSTACLES[obstacle]


_OBSTACLES = {
    NotCleanable.NOTHING_CLEANABLE: WhyNot.NOTHING_CLEANABLE,
    NotCleanable.BELOW_RATIO: WhyNot.BELOW_RATIO,
}


def _ratio(standing: Standing) -> float:
    return standing.ratio
