"""LogMeter: what of a log has to be looked up for the metrics page, looked up by a periodic task.

Owns the task ``kafkalog-log-metrics`` and what it found, by partition: records that can be read,
the oldest and the newest timestamp, what retention would delete now; and by directory what is about
to be deleted and what indexes reserve. A scrape reads what is here. The first walk over all records
reads every segment once, at most ``metrics.records.max.bytes.per.second`` of them; a read that
fails costs the number, never the directory: nobody has asked for these bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from kafkalog.errors import KafkalogError
from kafkalog.format.format_error import FormatError
from kafkalog.log.record_count import RecordCount, oldest_timestamp_ms
from kafkalog.log.would_block import WouldBlock
from kafkalog.observe.snapshot import DeletableSample

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.format.topic_partition import TopicPartition
    from kafkalog.log.log_segment import LogSegment
    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.manager.log_dir import LogDir
    from kafkalog.manager.log_manager import LogManager

LOG_METRICS_TASK = "kafkalog-log-metrics"
_BURST_NS = 10_000_000_000  # a run may read what this time allows, however late it is
_SLICE_BYTES = 16 << 20  # walked between two looks at whether the daemon stops
_TIME_INDEXES = 500  # read in a run, of segments whose largest timestamp nobody has asked for

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class MeteredLog:
    """One log as the task saw it last; None: there is none, or it is not known yet."""

    log: UnifiedLog
    records: int | None = None
    oldest_ms: int | None = None
    newest_ms: int | None = None
    # owned by the task
    count: RecordCount = field(default_factory=RecordCount)
    oldest_of: tuple[LogSegment, int] | None = None  # first segment and log start then
    seen: tuple[tuple[LogSegment, ...], int, int] | None = None  # when all was known
    is_failed: bool = False


class LogMeter:
    """See the module."""

    def __init__(self, manager: LogManager) -> None:
        # constant after construction
        self._manager = manager
        self._bytes_per_second = manager.config.metrics_records_max_bytes_per_second
        self._clock = manager.seams.clock
        # published
        self.is_stopped = False  # a run ends soon
        # owned by the task
        self._last_run_ns: int | None = None
        self._bytes_left = 0
        self._indexes_left = 0
        # published, replaced as a whole
        self._logs: dict[TopicPartition, MeteredLog] = {}
        self.deletable: Sequence[DeletableSample] = ()

    def find(self, log: UnifiedLog) -> MeteredLog | None:
        """What is known of this very log. Any thread."""
        found = self._logs.get(log.topic_partition)
        return found if found is not None and found.log is log else None

    # ---- the task

    def run_once(self) -> None:
        """Look at every log; those that have the least left to be walked come first. Loop body."""
        self._bytes_left, self._indexes_left = self._take_budget(), _TIME_INDEXES
        manager = self._manager
        deletable: dict[tuple[str, str], int] = {}
        metered = [self.find(log) or MeteredLog(log) for log in manager.table.logs()]
        for known in sorted(metered, key=_left_bytes):
            try:
                if manager.unit_of(known.log).log_dir.is_online and not self.is_stopped:
                    self._look(known)
                    self._add_deletable(known.log, deletable)
            except (KafkalogError, FormatError, OSError) as error:
                self._tell_failed(known, error)
        for unit in manager.online_units:
            self._measure(unit.log_dir)
        self._logs = {each.log.topic_partition: each for each in metered}
        self.deletable = [
            DeletableSample(topic, reason, size_bytes)
            for (topic, reason), size_bytes in deletable.items()
        ]

    def _take_budget(self) -> int:
        """Bytes that this run may read."""
        now_ns, last_ns = self._clock.monotonic_ns(), self._last_run_ns
        self._last_run_ns = now_ns
        spent_ns = _BURST_NS if last_ns is None else min(now_ns - last_ns, _BURST_NS)
        return self._bytes_per_second * spent_ns // 1_000_000_000

    def _tell_failed(self, known: MeteredLog, error: Exception) -> None:
        """Once a log; a directory that went offline is told of elsewhere."""
        known.records = known.oldest_ms = known.newest_ms = known.seen = None
        if not known.is_failed and self._manager.unit_of(known.log).log_dir.is_online:
            known.is_failed = True
            _log.warning(
                "log_not_measured", partition=str(known.log.topic_partition), reason=str(error)
            )

    def _look(self, known: MeteredLog) -> None:
        """Timestamps, then records as far as the budget goes."""
        log = known.log
        seen = (log.segments.values, log.log_start_offset, log.log_end_offset)
        if known.seen == seen:
            return
        known.newest_ms = self._newest_ms(log)
        place = (log.segments.first, log.log_start_offset)
        if known.oldest_ms is None or known.oldest_of != place:
            known.oldest_ms = oldest_timestamp_ms(log)
            known.oldest_of = place
        if self._bytes_per_second > 0:
            self._walk(known)
        is_whole = known.newest_ms is not None and known.records is not None
        known.seen = seen if is_whole else None

    def _walk(self, known: MeteredLog) -> None:
        """As far as the budget goes."""
        while not self.is_stopped:
            read_bytes = known.count.look(known.log, max(0, min(self._bytes_left, _SLICE_BYTES)))
            self._bytes_left -= read_bytes
            known.records = known.count.records
            if known.records is not None or not read_bytes or self._bytes_left <= 0:
                return

    def _newest_ms(self, log: UnifiedLog) -> int | None:
        """None as well while segments are left whose index nobody has read."""
        newest = -1
        for segment in log.segments:
            try:
                largest = segment.max_timestamp_so_far(may_block=False)
            except WouldBlock:
                if self._indexes_left <= 0:
                    return None
                self._indexes_left -= 1
                largest = segment.max_timestamp_so_far()
            newest = max(newest, largest.timestamp_ms)
        return newest if newest >= 0 else None

    def _add_deletable(self, log: UnifiedLog, sums: dict[tuple[str, str], int]) -> None:
        """What a retention pass would take; 0 for each rule that the log has."""
        topic, config = log.topic_partition.topic, log.config
        reasons = ["start_offset"]
        if config.is_deleted:
            reasons += ["size"] * (config.retention_bytes >= 0)
            reasons += ["time"] * (config.retention_ms >= 0)
        for reason in reasons:
            sums.setdefault((topic, reason), 0)
        for deletion in self._manager.retention.plan_of(log).deletions:
            segment = log.segments.get(deletion.base_offset)
            if segment is not None:  # else it went meanwhile
                key = (topic, deletion.rule.value)
                sums[key] = sums.get(key, 0) + segment.size_bytes

    def _measure(self, log_dir: LogDir) -> None:
        """Sums of one directory."""
        manager, metrics = self._manager, self._manager.seams.metrics
        logs = manager.table.held_in(log_dir.path)
        waiting = sum(each.size_bytes for log in logs for each in log.local.deleting)
        waiting += manager.deletion.bytes_in(log_dir)
        metrics.awaiting_delete.labels(log_dir.path).set(waiting)
        reserved = sum(_reserved_bytes(log.local.active_segment) for log in logs)
        metrics.reserved_index.labels(log_dir.path).set(reserved)


def _left_bytes(known: MeteredLog) -> int:
    """What the walk has left: a large log that is walked for hours holds up no small one."""
    return known.log.size_bytes - known.count.walked_bytes


def _reserved_bytes(active: LogSegment) -> int:
    """By which the index files of an active segment are longer than their entries."""
    return active.offset_index.reserved_bytes + active.time_index.reserved_bytes
