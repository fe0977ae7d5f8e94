"""LogStats: numbers about logs that have to be read from disk, and what a scrape sees of the logs.

Owns the task ``kafkalog-log-metrics`` and what it found, by partition: records that can be read,
the oldest and the newest timestamp, what retention would delete now; and by directory the bytes
that wait for deletion and those that indexes reserve. A scrape reads what is here.

Every ten seconds the task inspects what is published, without the disk, and notes which logs have
changed. What has to be read of these it reads in slices, ``log.initial.task.delay.ms`` after the
start and later: a slice takes what a tenth of a second allows, and the next one waits until that
time is over, so that in no second more is read than ``metrics.records.max.bytes.per.second`` and a
few small pieces elsewhere. The first walk over all records reads every segment once. A read that
fails costs the number, never the directory: no client has asked for these bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from kafkalog.broker.retention.archive_lag import ReadableTimes
from kafkalog.env.clock import TimeSlice
from kafkalog.errors import KafkalogError
from kafkalog.format.integers import FormatError
from kafkalog.log.inspect.record_count import RecordCount, oldest_timestamp_ms
from kafkalog.log.retention import execute
from kafkalog.log.retention.plan import plan
from kafkalog.log.values import WouldBlock
from kafkalog.observe.partition_metrics import (
    DeletableSample,
    LogDirSample,
    PartitionSample,
    Snapshot,
)
from kafkalog.observe.prometheus import values_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kafkalog.broker.catalog import Logs
    from kafkalog.broker.compaction.cleaning import Cleaning
    from kafkalog.broker.directory.log_dir import LogDir
    from kafkalog.broker.retention.archive_hold import ArchivedOffsets
    from kafkalog.broker.retention.retention import Retention
    from kafkalog.broker.runtime import Runtime
    from kafkalog.broker.startup.load import LoadProgress
    from kafkalog.broker.topics.deletion import LogDeletion
    from kafkalog.broker.values import Readiness
    from kafkalog.cleaner.log_cleaner_manager import CleaningStatus
    from kafkalog.env.scheduler import ScheduledTask
    from kafkalog.format.topic_names import TopicPartition
    from kafkalog.log.segment.log_segment import LogSegment
    from kafkalog.log.unified_log import UnifiedLog


LOG_METRICS_TASK = "kafkalog-log-metrics"
_INSPECTION_PERIOD_NS = 10_000_000_000
_SLICE_NS = 100_000_000  # of the reads of a slice; the next one waits as long, at least
_INSPECTIONS_A_SHARE = 10  # until the log that has waited longest comes first once
# What a small read elsewhere counts: 50 a second are no burden to a slow disk.
_SEEK_NS = 20_000_000

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class MeasuredLog:
    """One log as the task saw it last; None: there is none, or it is not known yet."""

    log: UnifiedLog
    counted: int | None = None  # records, when a look last came to the end of the log
    oldest_ms: int | None = None
    newest_ms: int | None = None
    readable_times: ReadableTimes = field(default_factory=ReadableTimes)
    # owned by the task
    count: RecordCount = field(default_factory=RecordCount)
    timed_of: tuple[LogSegment, ...] = ()  # whose largest timestamps were asked,
    timed: int = 0  # so many from the first on, which are closed
    timed_ms: int = -1  # the largest of those
    oldest_of: tuple[LogSegment, int] | None = None  # first segment and log start with a record
    seen: tuple[tuple[LogSegment, ...], int, int] | None = None  # when it was looked at to the end
    waits_since_ns: int | None = None  # or had the last share; None: it does not wait
    is_failed: bool = False  # logged, and not read to the end since

    @property
    def records(self) -> int | None:
        """Those counted, as far as the offsets of this moment allow. Any thread."""
        counted, start = self.counted, self.log.log_start_offset  # which never passes a later end
        return None if counted is None else min(counted, self.log.log_end_offset - start)


class LogStats:
    """See the module."""

    def __init__(
        self,
        logs: Logs,
        runtime: Runtime,
        progress: LoadProgress,
        cleaning: Cleaning,
        retention: Retention,
        archived_offsets: ArchivedOffsets,
        deletion: LogDeletion,
    ) -> None:
        # constant after construction
        self._logs = logs
        self._progress = progress
        self._cleaning = cleaning
        self._retention = retention
        self._archived_offsets = archived_offsets
        self._deletion = deletion
        self._scheduler = runtime.scheduler
        self._metrics = runtime.metrics
        self._bytes_per_second = runtime.config.metrics_records_max_bytes_per_second
        self._clock = runtime.clock
        self._read_delay_ns = runtime.config.log_initial_task_delay_ms * 1_000_000
        # published
        self._is_stopped = False  # a run ends soon
        # owned by the task
        self._task: ScheduledTask | None = None
        self._inspection_ns = 0  # when the next one is due
        self._read_ns = -1  # when the next slice may read; -1: the task did not run yet
        self._slice_ns = 0  # what the reads of this slice count so far
        self._time_slice = TimeSlice(self._clock)  # of the interpreter, in this slice
        self._inspections = 0
        self._waiting: list[MeasuredLog] = []  # to be looked at; the last one comes first
        # published, replaced as a whole
        self._measured: dict[TopicPartition, MeasuredLog] = {}
        self._deletable: tuple[Sequence[DeletableSample], Mapping[tuple[str, ...], float]] = (
            (),
            {},
        )

    def find(self, log: UnifiedLog) -> MeasuredLog | None:
        """What is known of this very log. Any thread."""
        found = self._measured.get(log.topic_partition)
        return found if found is not None and found.log is log else None

    def readable_times(self, log: UnifiedLog) -> ReadableTimes:
        """When its unarchived records became readable, as far as noted. Any thread."""
        known = self.find(log)
        return ReadableTimes() if known is None else known.readable_times

    def stop(self) -> None:
        """No further runs; one that is under way ends soon."""
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()

    # ---- the task

    def run_once(self) -> None:
        """The inspection if it is due, and a slice of reads. Loop body."""
        now_ns = self._clock.monotonic_ns()
        if self._read_ns < 0:
            self._read_ns = now_ns + self._read_delay_ns
        if now_ns >= self._inspection_ns:
            self._inspection_ns = now_ns + _INSPECTION_PERIOD_NS
            self._inspect()
        if now_ns >= self._read_ns and self._waiting:
            self._slice_ns, self._time_slice = 0, TimeSlice(self._clock)
            while self._waiting and self._slice_ns < _SLICE_NS and not self._is_stopped:
                self._time_slice.maybe_yield()
                known = self._waiting.pop()
                if not self._is_ended(known):
                    self._waiting.append(known)
            self._read_ns = self._clock.monotonic_ns() + self._slice_ns

    def run(self) -> None:
        """The task, which schedules itself again for when something is due."""
        if self._is_stopped:
            return
        try:
            self.run_once()
        finally:
            due_ns = (
                min(self._inspection_ns, self._read_ns) if self._waiting else self._inspection_ns
            )
            delay_ms = max(-((self._clock.monotonic_ns() - due_ns) // 1_000_000), 0)
            if not self._is_stopped:
                self._task = self._scheduler.schedule_once(LOG_METRICS_TASK, self.run, delay_ms)

    # ---- what is published

    def _inspect(self) -> None:
        """All logs, their sums, and which of them have changed; no disk."""
        logs = self._logs.table.logs()
        measured = [self.find(log) or MeasuredLog(log) for log in logs]
        self._measured = {each.log.topic_partition: each for each in measured}
        self._waiting = self._in_order(measured)
        self._note_archives(measured)
        deleted = self._deleted_bytes()  # before: what goes meanwhile is not there afterwards
        self._deletable = (self._find_deletable(logs), deleted)
        for unit in self._logs.online_units:
            self._measure(unit.log_dir)

    def _note_archives(self, measured: Iterable[MeasuredLog]) -> None:
        """How old what is not archived becomes, of all logs that wait for an archive."""
        time_slice = TimeSlice(self._clock)
        for each in measured:
            time_slice.maybe_yield()
            if each.log.config.archive_hold or self._archived_offsets.offset_of(
                each.log.topic_partition
            ):
                self._archived_offsets.note(each.log, each.readable_times)

    def _in_order(self, measured: Iterable[MeasuredLog]) -> list[MeasuredLog]:
        """Those that have changed; the last one comes first.

        First is what has the least left: a log that is walked for hours holds up no small one. But
        where more is appended than may be read there is always one with less left, so that after
        every tenth inspection the one that has waited longest is read before it. Then its wait
        begins again: one that never ends leaves the next share to the others. Logs of offline
        directories do not wait, nor does one that failed until the next inspection.
        """
        now_ns, waiting = self._clock.monotonic_ns(), []
        for each in measured:
            is_online = self._logs.is_online(each.log)
            if not is_online or each.seen == _state_of(each.log):
                each.waits_since_ns = None
                continue
            each.waits_since_ns = now_ns if each.waits_since_ns is None else each.waits_since_ns
            waiting.append(each)
        waiting.sort(key=lambda each: each.log.size_bytes - each.count.walked_bytes, reverse=True)
        self._inspections += 1
        if waiting and self._inspections % _INSPECTIONS_A_SHARE == 0:
            since_ns = [each.waits_since_ns or 0 for each in waiting]
            longest = waiting.pop(since_ns.index(min(since_ns)))
            longest.waits_since_ns = now_ns
            waiting.append(longest)
        return waiting

    @property
    def deletable(self) -> list[DeletableSample]:
        """What the latest inspection found, without what was deleted since. Any thread."""
        found, before = self._deletable
        now = self._deleted_bytes()
        left = []
        for each in found:
            key = (each.topic, each.reason)
            gone = int(now.get(key, 0.0) - before.get(key, 0.0))  # < 0: the topic was recreated
            size_bytes = max(each.size_bytes - max(gone, 0), 0)
            left.append(each._replace(size_bytes=size_bytes))
        return left

    def _deleted_bytes(self) -> Mapping[tuple[str, ...], float]:
        """Since the start, by topic and rule."""
        return dict(values_of(self._metrics.retention_deleted_bytes))

    def _find_deletable(self, logs: Iterable[UnifiedLog]) -> list[DeletableSample]:
        """What a retention pass would take, by topic and rule; 0 for each rule that the log has.

        None of a topic with a segment whose largest timestamp was not read yet. Logs of offline
        directories count for nothing: no pass can delete what they hold, and the loss is reported.
        """
        sums: dict[tuple[str, str], int] = {}
        unknown: set[str] = set()
        time_slice = TimeSlice(self._clock)
        for log in logs:
            time_slice.maybe_yield()
            if self._is_stopped:
                break
            if not self._logs.is_online(log):
                continue
            try:
                self._add_deletable(log, sums)
            except (WouldBlock, KafkalogError, FormatError, OSError):
                unknown.add(log.topic_partition.topic)
        return [
            DeletableSample(topic, reason, size_bytes)
            for (topic, reason), size_bytes in sums.items()
            if topic not in unknown
        ]

    def _add_deletable(self, log: UnifiedLog, sums: dict[tuple[str, str], int]) -> None:
        topic, config = log.topic_partition.topic, log.config
        reasons = ["start_offset"]
        if config.has_delete_policy:
            reasons += ["size"] * (config.retention_bytes >= 0)
            reasons += ["time"] * (config.retention_ms >= 0)
        for reason in reasons:
            sums.setdefault((topic, reason), 0)
        # Without the guard of the directory, as every read here.
        hold = self._archived_offsets.hold_of(log, config)
        facts, now = execute.facts_of(log, hold, may_block=False), self._clock.reading()
        planned = plan(facts, execute.policy_of(config), now.wall_ms)
        planned, _ = self._retention.clock_hold.limited(planned, log, facts, now)
        self._retention.note_held(log, planned)  # a check may be minutes away
        for deletion in planned.deletions:
            segment = log.segments.get(deletion.base_offset)
            if segment is not None:  # else it went meanwhile
                key = (topic, deletion.rule.value)
                sums[key] = sums.get(key, 0) + segment.size_bytes

    def _measure(self, log_dir: LogDir) -> None:
        """Sums of one directory."""
        metrics = self._metrics
        logs = self._logs.table.held_in(log_dir.path)
        waiting = sum(each.size_bytes for log in logs for each in log.local.deleting)
        waiting += self._deletion.bytes_in(log_dir)
        metrics.log_awaiting_delete_bytes.labels(log_dir.path).set(waiting)
        active = [log.local.active_segment for log in logs]
        reserved = sum(
            each.offset_index.reserved_bytes + each.time_index.reserved_bytes for each in active
        )
        metrics.log_reserved_index_bytes.labels(log_dir.path).set(reserved)

    # ---- what is read

    def _is_ended(self, known: MeasuredLog) -> bool:
        """Look at a log for the rest of the slice; whether the next one can leave it out."""
        table, log = self._logs.table, known.log
        if not (table.serves(log) and self._logs.is_online(log)):
            return True
        state = _state_of(log)
        try:
            if not self._read(known):
                return False
        except (KafkalogError, FormatError, OSError) as error:
            known.counted = known.oldest_ms = known.newest_ms = known.seen = None
            known.oldest_of = known.waits_since_ns = None
            self._slice_ns += _SEEK_NS
            # Else a segment was deleted during the read: the next inspection sees the log as it is.
            is_same = table.serves(log) and log.segments.values is state[0]
            # A directory that went offline is logged elsewhere.
            if is_same and not known.is_failed and self._logs.is_online(log):
                known.is_failed = True
                partition = str(log.topic_partition)
                _log.warning("log_not_measured", partition=partition, reason=str(error))
            return True
        known.seen, known.waits_since_ns, known.is_failed = state, None, False
        return True

    def _read(self, known: MeasuredLog) -> bool:
        """Timestamps, then records; False: the slice is over before all was read."""
        log = known.log
        if not self._is_timed(known):
            return False
        place = (log.segments.first, log.log_start_offset)
        if known.oldest_of != place:
            if log.size_bytes and not self._may_seek():
                return False
            oldest_ms = oldest_timestamp_ms(log)
            known.oldest_ms = oldest_ms if oldest_ms is not None and oldest_ms >= 0 else None
            known.oldest_of = None if oldest_ms is None else place
        return self._bytes_per_second == 0 or self._is_walked(known)

    def _is_timed(self, known: MeasuredLog) -> bool:
        """Largest timestamps of all segments; each closed one is asked once."""
        segments = known.log.segments.values
        if segments is not known.timed_of:
            known.timed_of, known.timed, known.timed_ms = segments, 0, -1
        newest_ms = known.timed_ms
        for segment in segments[known.timed :]:
            self._time_slice.maybe_yield()
            try:
                largest = segment.max_timestamp_so_far(may_block=False)
            except WouldBlock:
                if not self._may_seek():
                    return False
                largest = segment.max_timestamp_so_far()
            newest_ms = max(newest_ms, largest.timestamp_ms)
            if segment is not segments[-1]:
                known.timed, known.timed_ms = known.timed + 1, newest_ms
        known.newest_ms = newest_ms if newest_ms >= 0 else None
        return True

    def _may_seek(self) -> bool:
        """Take a small read out of the slice; False: nothing is left of it."""
        is_left = self._slice_ns < _SLICE_NS
        self._slice_ns += _SEEK_NS if is_left else 0
        return is_left

    def _is_walked(self, known: MeasuredLog) -> bool:
        """As far as the slice goes; True as well where damage lets it go no further."""
        left_ns = max(_SLICE_NS - self._slice_ns, 0)
        most_bytes = -(-left_ns * self._bytes_per_second // 1_000_000_000)
        read_bytes = known.count.look(known.log, most_bytes, self._time_slice.maybe_yield)
        self._slice_ns += read_bytes * 1_000_000_000 // self._bytes_per_second
        is_stuck = most_bytes > 0 and read_bytes == 0
        if known.count.records is not None or is_stuck:
            known.counted = known.count.records
        return known.count.records is not None or is_stuck

    # ---- for the scrape: of what is published; no disk, no lock

    def snapshot(self, readiness: Readiness) -> Snapshot:
        """As of now. Each sample is made when the page asks for it, between turns of the loop."""
        registered = self._logs.registry.state.topics.values()
        topics = {each.name: each.partition_count for each in registered}
        return Snapshot(
            topics=topics,
            partitions=readiness.partitions,
            offline_partitions=readiness.offline_partitions,
            log_dirs=[
                LogDirSample(
                    unit.log_dir.path,
                    unit.log_dir.is_online,
                    *self._progress.remaining_in(unit.log_dir.path),
                )
                for unit in self._logs.units
            ],
            deletable=[each for each in self.deletable if each.topic in topics],
            samples=self._samples,
        )

    def _samples(self) -> Iterator[PartitionSample]:
        statuses = {each.log.topic_partition: each for each in self._cleaning.states.statuses}
        for log in self._logs.table.logs():
            measured = self.find(log) or MeasuredLog(log)
            sample = PartitionSample(  # at once: replacing fields costs as much again
                log.topic_partition.topic,
                log.topic_partition.partition,
                log.size_bytes,
                len(log.segments),
                log.log_start_offset,
                log.log_end_offset,
                log.high_watermark,
                measured.records,
                _seconds(measured.oldest_ms),
                _seconds(measured.newest_ms),
            )
            if log.losses.ranges:
                lost = sum(last - first + 1 for first, last in log.losses.ranges)
                sample = sample._replace(lost_offsets=lost)
            if log.config.is_compacted:
                sample = self._of_compacted(sample, log, statuses.get(log.topic_partition))
            if log.config.archive_hold:
                held = self._retention.held_of(log.topic_partition)
                archived = self._archived_offsets.describe(log, held, measured.readable_times)
                sample = sample._replace(
                    archive_lag=archived.lag,
                    archive_lag_bytes=archived.lag_bytes,
                    archive_lag_s=archived.lag_seconds,
                    archive_held_segments=held.segments,
                    archive_held_bytes=held.size_bytes,
                )
            yield sample

    def _of_compacted(
        self, sample: PartitionSample, log: UnifiedLog, status: CleaningStatus | None
    ) -> PartitionSample:
        """With what a cleaner thread saw last, and what the last clean left for later."""
        if status is not None and status.log is log:
            dirty_bytes = 0 if status.to_clean is None else status.to_clean.cleanable_bytes
            failure = self._cleaning.states.failure_of(log.topic_partition)
            sample = sample._replace(
                dirty_ratio=status.ratio,
                dirty_bytes=dirty_bytes,
                uncleanable_bytes=0 if failure is None else dirty_bytes,
            )
        last = self._cleaning.observer.last_cleans.get(log.topic_partition)
        if last is not None:
            sample = sample._replace(
                last_success_s=last.ended_ms / 1000,
                tombstone_batches=last.waiting_batches,
                next_horizon_s=_seconds(last.next_horizon_ms),
            )
        return sample


def _state_of(log: UnifiedLog) -> tuple[tuple[LogSegment, ...], int, int]:
    """As long as this is the same, all that is known of the log holds."""
    return log.segments.values, log.log_start_offset, log.log_end_offset


def _seconds(timestamp_ms: int | None) -> float | None:
    return None if timestamp_ms is None else timestamp_ms / 1000
