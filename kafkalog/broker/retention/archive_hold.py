"""ArchivedOffsets: how far each partition has been copied to an archive, and the hold made of it.

Owns the rule that an archived offset only rises, never above the high watermark, and that what lies
below it is durable before it counts: a power cut then cannot take from the log what the archive has
and give its offsets to other records. The number is in the topic registry, beside the
topic's configs: it is in every log directory, moves and is backed up with the topic, and a topic
that is recreated begins at 0.

A load that lost the end of a log all the same (damage, an unflushed directory that was copied)
leaves the archive ahead of it: the offset is then lowered to the log end, because the records that
come there next are in no archive. Threads: look-ups are for any; the rest may block.
Has no counterpart in Kafka; its remote log manager keeps the highest copied offset in a topic.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import structlog

from kafkalog.broker.directory.commands import FlushCommand
from kafkalog.broker.retention.archive_lag import unarchived_bytes
from kafkalog.errors import KafkalogError, OffsetAboveHighWatermark, StorageFault, UnknownTopic
from kafkalog.log.retention.plan import Hold

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkalog.broker.catalog import Logs
    from kafkalog.broker.retention.archive_lag import ReadableTimes
    from kafkalog.broker.runtime import Runtime
    from kafkalog.broker.topics.registry import RegisteredTopic
    from kafkalog.format.topic_names import TopicPartition
    from kafkalog.log.log_config import LogConfig
    from kafkalog.log.retention.plan import RetainedByHold
    from kafkalog.log.unified_log import UnifiedLog

_log = structlog.get_logger(__name__)


class ArchivedPartition(NamedTuple):
    """How far one partition is archived.

    recovery_point  below it everything is durable, and may be archived
    held            what its last retention check left to it
    lag_bytes       about
    lag_seconds     for how long the first unarchived record is readable; None: not known yet
    """

    partition: int
    archived_offset: int
    log_start_offset: int
    high_watermark: int
    recovery_point: int
    held: RetainedByHold
    lag_bytes: int
    lag_seconds: float | None

    @property
    def lag(self) -> int:
        """Offsets that readers see and no archive has; those that were deleted do not count."""
        return max(0, self.high_watermark - max(self.archived_offset, self.log_start_offset))


class ArchivedOffsets:
    """See the module."""

    def __init__(self, logs: Logs, runtime: Runtime) -> None:
        # constant after construction
        self._logs = logs
        self._registry = logs.registry
        self._config = runtime.config
        self._clock = runtime.clock
        # log ends that the registry could not take; replaced as a whole under its lock
        self._lowered: Mapping[TopicPartition, int] = {}

    # ---- look-ups, any thread

    def offset_of(self, topic_partition: TopicPartition) -> int:
        """Below it everything is archived; 0 of a partition that was never archived."""
        topic = self._registry.state.topics.get(topic_partition.topic)
        offset = 0 if topic is None else topic.archived_offsets.get(topic_partition.partition, 0)
        return min(offset, self._lowered.get(topic_partition, offset))

    def hold_of(self, log: UnifiedLog, config: LogConfig) -> Hold | None:
        """What retention has to leave to the archive, under the log's configuration or another.

        None: nothing. While the directory refuses appends a hold keeps no byte, if the broker's
        ``archive.hold.gives.way.when.full`` says so.
        """
        if not config.archive_hold:
            return None
        gives_way = self._config.archive_hold_gives_way_when_full
        if gives_way and self._logs.unit_of(log).log_dir.is_full:
            return Hold(self.offset_of(log.topic_partition), max_bytes=0)
        return Hold(self.offset_of(log.topic_partition), config.archive_hold_max_bytes)

    def describe(
        self, log: UnifiedLog, held: RetainedByHold, times: ReadableTimes
    ) -> ArchivedPartition:
        """How far the log is archived, as it is published now; no disk."""
        archived_offset, high_watermark = self.offset_of(log.topic_partition), log.high_watermark
        begin = max(archived_offset, log.log_start_offset)
        return ArchivedPartition(
            partition=log.topic_partition.partition,
            archived_offset=archived_offset,
            log_start_offset=log.log_start_offset,
            high_watermark=high_watermark,
            recovery_point=log.recovery_point,
            held=held,
            lag_bytes=unarchived_bytes(log, archived_offset),
            lag_seconds=times.seconds(self._clock.monotonic_ns(), begin, high_watermark),
        )

    def note(self, log: UnifiedLog, times: ReadableTimes) -> None:
        """Note what the log and its archive have now."""
        begin = max(self.offset_of(log.topic_partition), log.log_start_offset)
        times.note(self._clock.monotonic_ns(), begin, log.high_watermark)

    # ---- changes, blocking

    def raise_to(
        self, name: str, offsets: Mapping[int, int], archived_id: str | None = None
    ) -> dict[int, int]:
        """Raise the archived offsets of partitions of a topic, all or none; what holds then.

        archived_id   of the topic that the archive holds; None: whichever has the name now

        A lower offset than the one in force changes nothing. Durable on return, and what lies below
        as well. UnknownTopic, also when the name is another topic's, UnknownPartition,
        OffsetAboveHighWatermark, the reason of a partition that is not served, StorageFault,
        NotReady. Crash: the old offsets or the new ones, whole.
        """
        registered = self._logs.registered(name, archived_id)
        logs = {number: self._logs.log_of(name, number) for number in offsets}
        for number, offset in offsets.items():
            log = logs[number]
            if offset > log.high_watermark:  # no archive can have what readers do not see yet
                raise OffsetAboveHighWatermark(
                    f"The archived offset {offset} of {log.topic_partition} is above the high "
                    f"watermark {log.high_watermark}",
                    partition=number,
                    high_watermark=log.high_watermark,
                )
        for number, offset in offsets.items():
            if offset > logs[number].recovery_point:
                self._logs.unit_of(logs[number]).writer.run(FlushCommand(logs[number]))
        with self._registry.edit():
            topic = self._logs.registered(name)
            if topic.topic_id != registered.topic_id:
                raise UnknownTopic(f"Topic {name} was deleted and made again", topic=name)
            known = {number: self.offset_of(log.topic_partition) for number, log in logs.items()}
            risen = {number: max(at, offsets[number]) for number, at in known.items()}
            if risen != known:
                self._change(topic, risen)
                raised = {log.topic_partition for log in logs.values()}
                self._lowered = {at: end for at, end in self._lowered.items() if at not in raised}
        return risen

    def lower_to_ends(self, topics: Iterable[RegisteredTopic]) -> None:
        """After a load, under the lock of the registry: no archived offset is above its log's end.

        A registry that cannot be written is logged; the lower offset counts all the same
        until the next load.
        """
        for topic in topics:
            lower = self._beyond_their_ends(topic)
            if not lower:
                continue
            try:
                self._change(topic, {at.partition: end for at, end in lower.items()})
            except StorageFault as fault:
                self._lowered = {**self._lowered, **lower}
                _log.error("archived_offset_not_noted", topic=topic.name, reason=fault.message)

    def _beyond_their_ends(self, topic: RegisteredTopic) -> dict[TopicPartition, int]:
        """Partitions whose archive is ahead of their served log, with its end."""
        lower: dict[TopicPartition, int] = {}
        for number, offset in topic.archived_offsets.items():
            try:
                log = self._logs.log_of(topic.name, number)
            except KafkalogError:
                continue  # not served: its load is still to come
            if log.log_end_offset < offset:
                lower[log.topic_partition] = log.log_end_offset
                _log.error(
                    "archive_ahead_of_log",
                    partition=str(log.topic_partition),
                    archived_offset=offset,
                    log_end_offset=log.log_end_offset,
                    what_to_do="the archive holds records that the log lost; new records get "
                    "their offsets again: archive the topic into another table from here on",
                )
        return lower

    def _change(self, topic: RegisteredTopic, offsets: Mapping[int, int]) -> None:
        """Durable on return; under the lock of the registry. StorageFault."""
        merged = {**topic.archived_offsets, **offsets}
        told = {number: at for number, at in merged.items() if at > 0}
        archived = replace(topic, archived_offsets=told)
        self._registry.change(self._registry.state.with_topics([archived]))
