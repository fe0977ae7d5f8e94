"""What an operator asks of one log by hand: its state, a roll, a flush, a segment's file.

Owns nothing. ``describe`` looks at published facts; the rest waits for the log's writer or the disk
and is not for the event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import structlog

from kafkalog.broker.access_rules import Action, Resource
from kafkalog.broker.authorized import operation_class, requires
from kafkalog.broker.directory.commands import FlushCommand, Until
from kafkalog.broker.log_stats import MeasuredLog
from kafkalog.errors import InvalidRequest, StorageFault, UnknownSegment
from kafkalog.format.offset_ranges import LostRange
from kafkalog.log.inspect import segment_listing

if TYPE_CHECKING:
    from kafkalog.broker.catalog import Logs
    from kafkalog.broker.directory.checkpoints import Checkpoints
    from kafkalog.broker.log_stats import LogStats
    from kafkalog.cleaner.log_cleaner_manager import LogCleanerManager
    from kafkalog.log.inspect.segment_listing import OffsetPlace
    from kafkalog.log.unified_log import UnifiedLog

_log = structlog.get_logger(__name__)


class LogDescription(NamedTuple):
    """One log now. ``unflushed_records``: offsets between the recovery point and the end.

    ``records`` (compaction leaves holes between offsets) and the timestamps are of the latest look
    of the task ``kafkalog-log-metrics``; None: not known yet, or there is no record with one.
    """

    directory: str
    topic_id: str | None
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    log_end_offset: int
    recovery_point: int
    unflushed_records: int
    leader_epoch: int  # -1: no record was ever appended
    size_bytes: int
    segments: int
    active_base_offset: int
    records: int | None
    oldest_timestamp_ms: int | None
    newest_timestamp_ms: int | None


class Losses(NamedTuple):
    """Offsets that one log has lost, and those of them that an operator gave up; both rising."""

    lost: tuple[LostRange, ...]
    accepted: tuple[LostRange, ...]


class Rolled(NamedTuple):
    """What a roll did; nothing (``is_rolled`` false) when the active segment was empty."""

    is_rolled: bool
    active_base_offset: int


@operation_class()
class LogOperations:
    """See the module."""

    def __init__(
        self, logs: Logs, stats: LogStats, checkpoints: Checkpoints, states: LogCleanerManager
    ) -> None:
        # constant after construction
        self._logs = logs
        self._stats = stats
        self._checkpoints = checkpoints
        self._states = states

    @requires(Action.DESCRIBE, Resource.TOPIC, "topic")
    def describe(self, topic: str, partition: int) -> LogDescription:
        """The log as it is published now; no disk, any thread."""
        log = self._logs.served(topic, partition)
        recovery_point, end = log.recovery_point, log.log_end_offset
        measured = self._stats.find(log) or MeasuredLog(log)
        return LogDescription(
            directory=log.directory,
            topic_id=log.topic_id,
            log_start_offset=log.log_start_offset,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_end_offset=end,
            recovery_point=recovery_point,
            unflushed_records=max(0, end - recovery_point),
            leader_epoch=log.epochs.epoch_for(end),
            size_bytes=log.size_bytes,
            segments=len(log.segments),
            active_base_offset=log.segments.active.base_offset,
            records=measured.records,
            oldest_timestamp_ms=measured.oldest_ms,
            newest_timestamp_ms=measured.newest_ms,
        )

    @requires(Action.DESCRIBE, Resource.TOPIC, "topic")
    def locate(self, topic: str, partition: int, offset: int) -> OffsetPlace:
        """Segment, index entries and position of an offset; errors: ``segment_listing.locate``."""
        log = self._logs.served(topic, partition)
        with self._logs.unit_of(log).log_dir.guard():
            return segment_listing.locate(log, offset)

    @requires(Action.ALTER, Resource.TOPIC, "topic")
    def roll(self, topic: str, partition: int) -> Rolled:
        """Roll now, whatever the segment's size and age; durable on return. KafkalogError.

        A crash leaves the log with or without the new, empty segment.
        """
        log = self._logs.served(topic, partition)

        def roll() -> Rolled:
            has_records = log.segments.active.base_offset < log.log_end_offset
            if has_records:
                log.roll()
            return Rolled(has_records, log.segments.active.base_offset)

        return self._logs.unit_of(log).writer.change(log, roll, Until.FLUSHED)

    @requires(Action.ALTER, Resource.TOPIC, "topic")
    def flush(self, topic: str, partition: int) -> int:
        """Make everything appended so far durable; the recovery point after it. KafkalogError."""
        log = self._logs.served(topic, partition)
        self._logs.unit_of(log).writer.run(FlushCommand(log))
        return log.recovery_point

    @requires(Action.READ, Resource.TOPIC, "topic")
    def segment_path(self, topic: str, partition: int, base_offset: int) -> str:
        """The ``.log`` file of the segment with this base offset; UnknownSegment.

        Deletion may rename it at any time.
        """
        log = self._logs.served(topic, partition)
        segment = log.segments.get(base_offset)
        if segment is None:
            name = log.topic_partition
            raise UnknownSegment(f"{name} has no segment {base_offset}", base_offset=base_offset)
        return segment.log_file.path

    @requires(Action.DESCRIBE, Resource.TOPIC, "topic")
    def losses(self, topic: str, partition: int) -> Losses:
        """What is lost of the log: a small read a segment. KafkalogError."""
        return self._losses(self._logs.served(topic, partition))

    def _losses(self, log: UnifiedLog) -> Losses:
        with self._logs.unit_of(log).log_dir.guard():
            lost = log.losses.search()
        start = log.log_start_offset
        accepted = sorted(LostRange(*each) for each in log.losses.proof.accepted_losses)
        return Losses(lost, tuple(each for each in accepted if each.last_offset >= start))

    @requires(Action.ALTER, Resource.TOPIC, "topic")
    def accept_loss(self, topic: str, partition: int, lost: LostRange) -> Losses:
        """Make a lost range a gap like any other, durable on return; again changes nothing.

        InvalidRequest for what is not one of the lost ranges, or is in the active segment, which
        the next start has to end; StorageFault: nothing was accepted.
        Crash: it is accepted or not.
        """
        log = self._logs.served(topic, partition)
        known = self._losses(log)
        if lost in known.accepted:
            return known
        if lost not in known.lost:
            named = ", ".join(f"{first} to {last}" for first, last in known.lost)
            raise InvalidRequest(
                f"Offsets {lost.first_offset} to {lost.last_offset} are no lost range of partition "
                f"{log.topic_partition}; "
                + (f"lost and not accepted: {named}." if named else "nothing of it is lost.")
            )
        if lost.last_offset >= log.segments.active.base_offset:
            raise InvalidRequest(
                f"The file of the active segment of {log.topic_partition} is gone: restart the "
                "daemon, then accept what is lost."
            )
        unit = self._logs.unit_of(log)
        unit.writer.change(log, lambda: log.losses.accept(lost))
        try:
            self._checkpoints.write_proofs(unit.log_dir)
        except StorageFault:
            unit.writer.change(log, lambda: log.losses.withdraw(lost))
            raise
        unit.writer.change(log, lambda: log.pass_accepted(lost))
        self._states.retry(log.topic_partition)
        _log.warning(
            "loss_accepted",
            partition=str(log.topic_partition),
            first_offset=lost.first_offset,
            last_offset=lost.last_offset,
        )
        return self._losses(log)
