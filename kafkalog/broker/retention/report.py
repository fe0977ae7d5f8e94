"""Retention explained: why each segment is retained, until when, and what a pass would delete.

Owns no rule: the answers are the planner's and its forecast's over the facts of now. All calls may
read indexes, so none is for the event loop. KafkalogError as ``Retention.retain`` has it.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.broker.access_rules import Action, Resource
from kafkalog.broker.authorized import internal, operation_class, requires
from kafkalog.broker.retention.retention import RETENTION_TASK, DeletedSegment
from kafkalog.broker.topics.topics import refuse_internal
from kafkalog.env.clock import TimeSlice
from kafkalog.errors import KafkalogError, UnknownTopic
from kafkalog.log.inspect.segment_listing import count_index_entries, list_segments
from kafkalog.log.retention import execute
from kafkalog.log.retention.forecast import Schedule, departures, explain
from kafkalog.log.retention.plan import NOTHING_HELD, Keeper, RetainedByHold, plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kafkalog.broker.background import BackgroundOperations
    from kafkalog.broker.catalog import Logs
    from kafkalog.broker.compaction.cleaning import Cleaning
    from kafkalog.broker.log_stats import LogStats
    from kafkalog.broker.retention.archive_hold import ArchivedOffsets, ArchivedPartition
    from kafkalog.broker.retention.clock_hold import HeldLogs
    from kafkalog.broker.retention.retention import Retention
    from kafkalog.broker.runtime import Runtime
    from kafkalog.format.topic_names import TopicPartition
    from kafkalog.log.inspect.segment_listing import IndexEntries, ListedSegment
    from kafkalog.log.local_log import DeletingSegment
    from kafkalog.log.log_config import LogConfig
    from kafkalog.log.retention.forecast import Departure, SegmentFate
    from kafkalog.log.retention.plan import LogFacts, RetentionPolicy
    from kafkalog.log.unified_log import UnifiedLog

# A placeholder where no task runs: times that follow from it are removed again.
_NO_CHECKS = Schedule(None, 1, 0)


class SegmentReport(NamedTuple):
    """One log at one moment of the wall clock; ``fates`` are those of ``segments``.

    held        what the limits would let go now and the hold of the facts keeps
    schedule    None: no task looks at this log, so no fate has a ``due``
    deleting    segments that are gone for readers and whose files are not yet
    """

    now_ms: int
    facts: LogFacts
    policy: RetentionPolicy
    held: RetainedByHold
    schedule: Schedule | None
    segments: list[ListedSegment]
    fates: list[SegmentFate]
    deleting: list[DeletingSegment]


class RetentionOutcome(NamedTuple):
    """What a pass over one log deleted or, of a dry run, would delete; the log start after it.

    clock_held   what is too old only because the wall clock jumped, and waits for an operator
    """

    deleted: tuple[DeletedSegment, ...]
    log_start_offset: int
    clock_held: RetainedByHold = NOTHING_HELD


class RetentionSimulation(NamedTuple):
    """What is deleted between two times under a configuration, and what is left then.

    schedule    None: no task would check the log, nothing is deleted
    """

    start_ms: int
    end_ms: int
    policy: RetentionPolicy
    schedule: Schedule | None
    departures: list[Departure]
    segments_left: int
    bytes_left: int


def _held_by_clock(fates: list[SegmentFate], due: int) -> list[SegmentFate]:
    """What the clock made too old stays; when the rest is deleted, the operator decides."""
    return fates[:due] + [
        fate._replace(rule=None, keeper=Keeper.CLOCK_JUMP, due=None)
        if fate.rule is not None
        else fate._replace(due=None)
        for fate in fates[due:]
    ]


@operation_class()
class RetentionOperations:
    """See the module."""

    def __init__(
        self,
        logs: Logs,
        runtime: Runtime,
        retention: Retention,
        cleaning: Cleaning,
        archived_offsets: ArchivedOffsets,
        log_stats: LogStats,
        background: BackgroundOperations,
    ) -> None:
        # constant after construction
        self._logs = logs
        self._config = runtime.config
        self._retention = retention
        self._cleaning = cleaning
        self._archived_offsets = archived_offsets
        self._log_stats = log_stats
        self._hold_of = archived_offsets.hold_of
        self._background = background
        self._scheduler = runtime.scheduler
        self._clock = runtime.clock

    @requires(Action.DESCRIBE, Resource.TOPIC, "topic")
    def describe(self, topic: str, partition: int) -> SegmentReport:
        """Every segment of a partition, why it is retained and when it is deleted."""
        log = self._logs.served(topic, partition)
        hold = self._hold_of(log, log.config)
        policy = execute.policy_of(log.config)
        schedule = self.schedule_of(log.config)
        with self._logs.unit_of(log).log_dir.guard():
            facts, segments = list_segments(log, hold)
            now = self._clock.reading()
            planned = plan(facts, policy, now.wall_ms)
            planned, _ = self._retention.clock_hold.limited(planned, log, facts, now)
        now_ms = now.wall_ms
        fates = explain(facts, policy, now_ms, schedule or _NO_CHECKS)
        if planned.now_ms < now_ms:
            fates = _held_by_clock(fates, len(planned.deletions))
        held = facts.segments[len(planned.deletions) :][: len(planned.held)]
        if schedule is None:
            fates = [fate._replace(due=None) for fate in fates]
        return SegmentReport(
            now_ms=now_ms,
            facts=facts,
            policy=policy,
            held=RetainedByHold(len(held), sum(each.size_bytes for each in held)),
            schedule=schedule,
            segments=segments,
            fates=fates,
            deleting=log.local.deleting,
        )

    @internal
    def schedule_of(self, config: LogConfig) -> Schedule | None:
        """When the task, or a cleaner thread, checks logs of this configuration; None: never.

        The next check is unknown while one runs.
        """
        if config.is_compacted:
            return self._cleaning.retention_schedule(config.file_delete_delay_ms)
        tasks = self._scheduler.tasks()
        next_runs_ms = [each.next_run_ms for each in tasks if each.name == RETENTION_TASK]
        is_known = next_runs_ms and next_runs_ms[0] >= 0
        return Schedule(
            # A check that is late runs as soon as it has a thread.
            next_check_ms=max(next_runs_ms[0], self._clock.wall_ms()) if is_known else None,
            check_interval_ms=self._config.log_retention_check_interval_ms,
            delete_delay_ms=config.file_delete_delay_ms,
        )

    @requires(Action.DESCRIBE, Resource.TOPIC, "topic")
    def count_index_entries(
        self, topic: str, partition: int, listed: Sequence[ListedSegment]
    ) -> list[IndexEntries]:
        """Of segments that ``describe`` listed; costs two files a segment."""
        log = self._logs.served(topic, partition)
        with self._logs.unit_of(log).log_dir.guard():
            return count_index_entries(listed)

    @requires(Action.DELETE, Resource.TOPIC, "topic")
    def retain(
        self, topic: str, partition: int, *, dry_run: bool, topic_id: str | None = None
    ) -> RetentionOutcome:
        """A retention pass over one partition, whatever its policy; a dry run deletes nothing.

        InvalidTopicName for internal topics unless it is a dry run. ``topic_id``: of no other topic
        of that name; errors: ``Logs.served``. The clock guard does not hold it back, but what
        waits for an operator to accept the clock stays (``clock_held``).
        """
        if not dry_run:
            refuse_internal(topic, "deleted from")
        log = self._logs.served(topic, partition, topic_id)
        return self._preview(log) if dry_run else self._run(log)

    def _preview(self, log: UnifiedLog) -> RetentionOutcome:
        """What ``_run`` would do now."""
        hold = self._hold_of(log, log.config)
        with self._logs.unit_of(log).log_dir.guard():
            facts = execute.facts_of(log, hold)
            now = self._clock.reading()
            planned = plan(facts, execute.policy_of(log.config), now.wall_ms)
            planned, held = self._retention.clock_hold.limited(planned, log, facts, now)
        return RetentionOutcome(
            tuple(
                DeletedSegment(
                    deletion.base_offset, deletion.rule, facts.segments[index].size_bytes
                )
                for index, deletion in enumerate(planned.deletions)
            ),
            planned.log_start_offset,
            held,
        )

    def _run(self, log: UnifiedLog) -> RetentionOutcome:
        deleted = self._retention.retain_by_order(log)
        held = self._retention.clock_hold.held_of(log.topic_partition)
        return RetentionOutcome(deleted, log.log_start_offset, held)

    @requires(Action.DESCRIBE, Resource.CLUSTER)
    def clock_hold(self) -> HeldLogs:
        """The jump of the wall clock, and what the last passes left because of it; no disk."""
        return self._retention.clock_hold.held(self._clock.reading())

    @requires(Action.CLUSTER, Resource.CLUSTER)
    def accept_clock(self) -> HeldLogs:
        """Trust the wall clock as it is; what was held. Errors: ``ClockHold.accept``."""
        self._logs.registry.check_ready()
        return self._retention.clock_hold.accept(self._clock.reading())

    @requires(Action.CLUSTER, Resource.CLUSTER)
    def retain_all(
        self, *, dry_run: bool
    ) -> Iterator[tuple[TopicPartition, RetentionOutcome | KafkalogError]]:
        """The pass of the task ``kafka-log-retention`` as it is iterated; a failure is an entry.

        NotReady between two logs when the daemon stops.
        """
        self._logs.registry.check_ready()
        return self._over_all(dry_run=dry_run)

    def _over_all(
        self, *, dry_run: bool
    ) -> Iterator[tuple[TopicPartition, RetentionOutcome | KafkalogError]]:
        time_slice = TimeSlice(self._clock)
        for log in self._logs.table.logs():
            time_slice.maybe_yield()
            self._background.check_stop()
            if log.config.is_compacted:
                continue
            try:
                outcome = self._preview(log) if dry_run else self._run(log)
            except UnknownTopic:
                continue  # deleted since the list was taken
            except KafkalogError as error:
                yield log.topic_partition, error
            else:
                yield log.topic_partition, outcome

    @requires(Action.DESCRIBE, Resource.TOPIC, "topic")
    def archived_offsets(self, topic: str) -> list[ArchivedPartition]:
        """How far each served partition of a topic is archived, by number; no disk."""
        self._logs.registered(topic)
        logs = sorted(self._logs.table.logs_of(topic), key=lambda log: log.topic_partition)
        held_of = self._retention.held_of
        return [
            self._archived_offsets.describe(
                log, held_of(log.topic_partition), self._log_stats.readable_times(log)
            )
            for log in logs
        ]

    @requires(Action.DELETE, Resource.TOPIC, "topic")
    def raise_archived_offsets(
        self, topic: str, offsets: Mapping[int, int], topic_id: str | None = None
    ) -> dict[int, int]:
        """Let retention delete what is below; errors: ``ArchivedOffsets.raise_to``.

        InvalidTopicName for internal topics.
        """
        refuse_internal(topic, "archived")
        return self._archived_offsets.raise_to(topic, offsets, topic_id)

    @requires(Action.DESCRIBE, Resource.TOPIC, "topic")
    def simulate(
        self,
        topic: str,
        partition: int,
        configs: Mapping[str, str],
        *,
        start_ms: int | None,
        horizon_ms: int,
        check_interval_ms: int | None = None,
        most: int | None = None,
    ) -> RetentionSimulation:
        """What is deleted under ``configs`` over its own from start_ms (None: now) on; no append.

        InvalidTopicConfig.

        check_interval_ms   between two checks, were that log.retention.check.interval.ms; no matter
                            for compacted logs, which cleaner threads check; None: as it is
        most    the oldest that are deleted, at most: no pass after these is planned, and what is
                left is what they leave; None: all
        """
        registered = self._logs.registered(topic)
        config = self._logs.validate_overrides({**registered.overrides, **configs})
        log = self._logs.served(topic, partition)
        now_ms = self._clock.wall_ms()
        start = now_ms if start_ms is None else start_ms
        with self._logs.unit_of(log).log_dir.guard():
            facts = execute.facts_of(log, self._hold_of(log, config))
            facts = execute.read_all(facts)
        policy = execute.policy_of(config)
        schedule = self.schedule_of(config)
        if check_interval_ms is not None and schedule is not None and not schedule.is_cleaners:
            schedule = schedule.every(check_interval_ms, now_ms)
        if schedule is not None and start_ms is not None:
            schedule = schedule.seen_from(start_ms)
        going: list[Departure] = []
        if schedule is not None:
            every = departures(facts, policy, start, horizon_ms, schedule)
            going = list(islice(every, most))
        return RetentionSimulation(
            start_ms=start,
            end_ms=start + horizon_ms,
            policy=policy,
            schedule=schedule,
            departures=going,
            segments_left=max(1, len(facts.segments) - len(going)),
            bytes_left=facts.size_bytes - sum(each.facts.size_bytes for each in going),
        )
