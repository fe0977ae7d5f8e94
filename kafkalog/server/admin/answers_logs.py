"""Answers about single logs: offsets, segments, retention and compaction.

Times are in ms since 1970; null is never.
"""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from kafkalog.cleaner.log_cleaner_manager import CleaningPhase
from kafkalog.cleaner.stats import CleaningOutcome
from kafkalog.server.protocol.errors import FailedPartition
from kafkalog.server.protocol.json_schema import AnswerBody


class CleaningStateAnswer(AnswerBody):
    """What the cleaner does with a partition, after an order."""

    topic: str
    partition: int
    state: CleaningPhase
    pauses: int


class CleaningRetryAnswer(AnswerBody):
    """``had_failed``: whether the partition had a failure, which is cleared."""

    topic: str
    partition: int
    had_failed: bool


class CleaningRunAnswer(AnswerBody, kw_only=True):
    """A clean or a dry run of one; the figures are present when it was cleaned."""

    topic: str
    partition: int
    dry_run: bool | None = None
    outcome: CleaningOutcome
    started_ms: int | None = None
    ended_ms: int | None = None
    first_dirty_offset: int | UnsetType | None = UNSET
    end_offset: int | UnsetType | None = UNSET
    bytes_before: int | None = None
    bytes_after: int | None = None
    records_before: int | None = None
    records_after: int | None = None
    removed: dict[str, int] | None = None
    keys: int | None = None
    map_utilization: float | None = None
    map_seconds: float | None = None
    seconds: float | None = None
    error_code: int | None = None
    kafka_error: str | None = None
    error: str | None = None


class CleaningRunsAnswer(AnswerBody):
    """One run a partition."""

    dry_run: bool
    partitions: list[CleaningRunAnswer]


class CleanerThreadAnswer(AnswerBody):
    """A thread of the cleaner."""

    thread: str
    alive: bool
    restarts: int
    topic: str | None
    partition: int | None
    busy_since_ms: int | None
    next_turn_ms: int | None
    last_run: CleaningRunAnswer | None


class CleaningFailureAnswer(AnswerBody):
    """Why a log is not cleaned."""

    reason: str
    error: str
    attempts: int
    uncleanable: bool


class StandingAnswer(AnswerBody):
    """How far a compacted log is cleaned, and what a clean would find; ``fault``: why it is null.

    ``cleanable_ratio`` is Kafka's dirty ratio: a thread takes a log above ``min_cleanable_ratio``.
    """

    state: CleaningPhase
    pauses: int
    checkpoint: int | None
    first_dirty_offset: int | None
    first_uncleanable_offset: int | None
    clean_bytes: int | None
    cleanable_bytes: int | None
    cleanable_ratio: float | None
    min_cleanable_ratio: float
    fault: str | None


class CompactedLogAnswer(AnswerBody):
    """A compacted log with the fields of StandingAnswer."""

    topic: str
    partition: int
    log_dir: str
    state: CleaningPhase
    pauses: int
    checkpoint: int | None
    first_dirty_offset: int | None
    first_uncleanable_offset: int | None
    clean_bytes: int | None
    cleanable_bytes: int | None
    cleanable_ratio: float | None
    min_cleanable_ratio: float
    fault: str | None
    operator_pauses: int
    rank: int | None
    why_not: str | None
    overdue_ms: int | None
    last_success_ms: int | None
    failure: CleaningFailureAnswer | None


class CleanerAnswer(AnswerBody):
    """The cleaner at one moment; the dirtiest log first."""

    now_ms: int
    enabled: bool
    backoff_ms: int
    dedupe_buffer_bytes: int
    io_buffer_bytes: int
    load_factor: float
    throttle_bytes_per_second: float | None
    threads: list[CleanerThreadAnswer]
    logs: list[CompactedLogAnswer]


class Policy(AnswerBody):
    """What limits the log."""

    is_deleted: bool
    retention_ms: int
    retention_bytes: int


class Checks(AnswerBody):
    """When the log is checked, and by which task."""

    runs_in: Literal["kafka-log-retention", "log_cleaner"]
    next_check_ms: int | None
    check_interval_ms: int
    delete_delay_ms: int


class Due(AnswerBody):
    """When a segment is deleted."""

    earliest_ms: int
    expected_ms: int | None
    latest_ms: int | None
    files_gone_ms: int | None


class ServedSegment(AnswerBody):
    """A segment, with the rule that deletes it or what retains it."""

    base_offset: int
    next_offset: int
    size_bytes: int
    offset_index_entries: int
    offset_index_bytes: int
    time_index_entries: int
    time_index_bytes: int
    largest_timestamp_ms: int
    largest_timestamp_source: Literal["record", "file_mtime"]
    state: Literal["active", "inactive"]
    rule: str | None
    keeper: str | None
    bytes_until: int | None
    due: Due | None


class SegmentAnswer(AnswerBody):
    """One segment of a partition with the fields of ServedSegment."""

    topic: str
    partition: int
    now_ms: int
    base_offset: int
    next_offset: int
    size_bytes: int
    offset_index_entries: int
    offset_index_bytes: int
    time_index_entries: int
    time_index_bytes: int
    largest_timestamp_ms: int
    largest_timestamp_source: Literal["record", "file_mtime"]
    state: Literal["active", "inactive"]
    rule: str | None
    keeper: str | None
    bytes_until: int | None
    due: Due | None


class DeletingSegmentAnswer(AnswerBody):
    """Deleted for readers; its files are removed later."""

    base_offset: int
    size_bytes: int
    state: Literal["deleting"]
    files_gone_ms: int | None


class SegmentsAnswer(AnswerBody):
    """Every segment of a partition, oldest first."""

    topic: str
    partition: int
    now_ms: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    size_bytes: int
    hold_offset: int | None
    hold_max_bytes: int | None
    held_segments: int
    held_bytes: int
    policy: Policy
    schedule: Checks | None
    segments: list[DeletingSegmentAnswer | ServedSegment]


class TakenSegment(AnswerBody):
    """A deleted segment, with the rule."""

    base_offset: int
    size_bytes: int
    reason: str


class RetainedPartition(AnswerBody):
    """What a pass deleted, or would delete."""

    topic: str
    partition: int
    log_start_offset: int
    bytes: int
    segments: list[TakenSegment]


class RetainAnswer(AnswerBody):
    """A pass over one partition with the fields of RetainedPartition."""

    dry_run: bool
    topic: str
    partition: int
    log_start_offset: int
    bytes: int
    segments: list[TakenSegment]


class RetentionRunAnswer(AnswerBody):
    """A pass over several; a partition's failure is its own entry."""

    dry_run: bool
    segments: int
    bytes: int
    partitions: list[RetainedPartition | FailedPartition]


class Departure(AnswerBody):
    """A segment that would be deleted."""

    base_offset: int
    size_bytes: int
    reason: str
    due: Due | None


class SimulatedPartition(AnswerBody):
    """What would be deleted and what would be left."""

    partition: int
    start_ms: int
    end_ms: int | None
    policy: Policy
    schedule: Checks | None
    segments: list[Departure]
    segments_left: int
    bytes_left: int


class UnservedPartition(AnswerBody):
    """A partition that is not served."""

    partition: int
    error_code: int
    kafka_error: str
    error: str


class RetentionSimulateAnswer(AnswerBody):
    """By partition."""

    topic: str
    partitions: list[SimulatedPartition | UnservedPartition]


class ArchivedPartition(AnswerBody):
    """How far one partition is archived; ``held``: at the last retention check."""

    partition: int
    archived_offset: int
    log_start_offset: int
    high_watermark: int
    lag: int
    held_segments: int
    held_bytes: int


class ArchivedOffsetsAnswer(AnswerBody):
    """The served partitions of a topic."""

    topic: str
    partitions: list[ArchivedPartition]


class RaisedOffset(AnswerBody):
    """The archived offset in force."""

    partition: int
    archived_offset: int


class RaisedOffsetsAnswer(AnswerBody):
    """The partitions of the request."""

    topic: str
    partitions: list[RaisedOffset]


class LogAnswer(AnswerBody):
    """One log as it is published now; ``leader_epoch`` is -1 before the first record.

    ``cleaning`` is null unless the topic is compacted. ``records`` and the timestamps (ms since
    1970) are those of the metrics: some seconds old, null before the first look at them.
    """

    topic: str
    partition: int
    topic_id: str | None
    directory: str
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    log_end_offset: int
    recovery_point: int
    unflushed_records: int
    leader_epoch: int
    size_bytes: int
    segments: int
    active_base_offset: int
    records: int | None
    oldest_timestamp_ms: int | None
    newest_timestamp_ms: int | None
    cleaning: StandingAnswer | None


class LostRangeAnswer(AnswerBody):
    """Both ends are inclusive."""

    first_offset: int
    last_offset: int


class LossesAnswer(AnswerBody):
    """``lost``: fetches are refused there; ``accepted``: gaps like any other."""

    topic: str
    partition: int
    lost: list[LostRangeAnswer]
    accepted: list[LostRangeAnswer]


class RollAnswer(AnswerBody):
    """Whether there was anything to close, and where the active segment begins."""

    topic: str
    partition: int
    is_rolled: bool
    active_base_offset: int


class FlushAnswer(AnswerBody):
    """Below the recovery point everything is durable."""

    topic: str
    partition: int
    recovery_point: int
