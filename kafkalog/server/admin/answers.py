"""Bodies of what operators ask as the API's description has them: directories, tasks, retention.

Moments are ms since 1970, null for never.

Bodies of /debug/ as the API's description has them.
"""

from __future__ import annotations

from typing import Literal

from kafkalog.server.admin.answers_logs import Body, StandingAnswer


class EntryFault(Body):
    """Why one entry of an answer about several failed."""

    error_code: int
    kafka_error: str
    error: str


class DeletedRecords(Body):
    """The new log start of a partition."""

    topic: str
    partition: int
    low_watermark: int


class FailedPartition(EntryFault):
    """A partition that failed; the others' entries stand."""

    topic: str
    partition: int


class DeleteRecordsAnswer(Body):
    """In the order of the request."""

    partitions: list[DeletedRecords | FailedPartition]


class LogDirPartition(Body):
    """As kafka-log-dirs prints it."""

    partition: str
    size: int
    offsetLag: int  # noqa: N815 - the tool's spelling
    isFuture: bool  # noqa: N815


class LogDirAnswer(Body):
    """One log directory; an offline one has a reason and no partitions."""

    error: str | None
    reason: str | None
    logDir: str  # noqa: N815
    isCordoned: bool  # noqa: N815
    totalBytes: int  # noqa: N815
    usableBytes: int  # noqa: N815
    partitions: list[LogDirPartition]


class BrokerLogDirs(Body):
    """The directories of the one broker."""

    broker: int
    logDirs: list[LogDirAnswer]  # noqa: N815


class LogDirsAnswer(Body):
    """What ``kafka-log-dirs --describe`` prints."""

    version: int
    brokers: list[BrokerLogDirs]


class TaskAnswer(Body):
    """The tasks of one name."""

    name: str
    state: Literal["waiting", "running", "idle"]
    initial_delay_ms: int
    period_ms: int | None
    next_run_ms: int | None
    last_run_ms: int | None
    last_duration_ms: int | None
    last_success_ms: int | None
    last_failure_ms: int | None
    last_error: str | None
    waiting: int
    running: int
    runs: int
    failures: int


class TasksAnswer(Body):
    """By name."""

    now_ms: int
    tasks: list[TaskAnswer]


# ---- retention


class Policy(Body):
    """What limits the log."""

    is_deleted: bool
    retention_ms: int
    retention_bytes: int


class Checks(Body):
    """When the log is looked at, and by whom."""

    runs_in: Literal["kafka-log-retention", "log_cleaner"]
    next_check_ms: int | None
    check_interval_ms: int
    delete_delay_ms: int


class Due(Body):
    """When a segment goes."""

    earliest_ms: int
    expected_ms: int | None
    latest_ms: int | None
    files_gone_ms: int | None


class ServedSegment(Body):
    """A segment and its fate: the rule that takes it, or what keeps it."""

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


class SegmentAnswer(ServedSegment):
    """One segment of a partition."""

    topic: str
    partition: int
    now_ms: int


class DeletingSegmentAnswer(Body):
    """Gone for readers; its files are not yet."""

    base_offset: int
    size_bytes: int
    state: Literal["deleting"]
    files_gone_ms: int | None


class SegmentsAnswer(Body):
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


class TakenSegment(Body):
    """A segment that went, and by which rule."""

    base_offset: int
    size_bytes: int
    reason: str


class RetainedPartition(Body):
    """What a pass took, or would take."""

    topic: str
    partition: int
    log_start_offset: int
    bytes: int
    segments: list[TakenSegment]


class RetainAnswer(RetainedPartition):
    """A pass over one partition."""

    dry_run: bool


class RetentionRunAnswer(Body):
    """A pass over several; a partition's failure is its own entry."""

    dry_run: bool
    segments: int
    bytes: int
    partitions: list[RetainedPartition | FailedPartition]


class Departure(Body):
    """A segment that would go."""

    base_offset: int
    size_bytes: int
    reason: str
    due: Due | None


class SimulatedPartition(Body):
    """What would go and what would be left."""

    partition: int
    start_ms: int
    end_ms: int | None
    policy: Policy
    schedule: Checks | None
    segments: list[Departure]
    segments_left: int
    bytes_left: int


class UnservedPartition(EntryFault):
    """A partition that is not served."""

    partition: int


class RetentionSimulateAnswer(Body):
    """By partition."""

    topic: str
    partitions: list[SimulatedPartition | UnservedPartition]


class ArchivedPartition(Body):
    """How far one partition is archived; ``held``: at the last retention check."""

    partition: int
    archived_offset: int
    log_start_offset: int
    high_watermark: int
    lag: int
    held_segments: int
    held_bytes: int


class ArchivedOffsetsAnswer(Body):
    """The served partitions of a topic."""

    topic: str
    partitions: list[ArchivedPartition]


class RaisedOffset(Body):
    """The archived offset in force."""

    partition: int
    archived_offset: int


class RaisedOffsetsAnswer(Body):
    """The partitions that were asked for."""

    topic: str
    partitions: list[RaisedOffset]


# ---- one log, the daemon


class LogAnswer(Body):
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


class LostRangeAnswer(Body):
    """Both ends are inclusive."""

    first_offset: int
    last_offset: int


class LossesAnswer(Body):
    """``lost``: fetches are refused there; ``accepted``: gaps like any other."""

    topic: str
    partition: int
    lost: list[LostRangeAnswer]
    accepted: list[LostRangeAnswer]


class RollAnswer(Body):
    """Whether there was anything to close, and where the active segment begins."""

    topic: str
    partition: int
    is_rolled: bool
    active_base_offset: int


class FlushAnswer(Body):
    """Below the recovery point everything is durable."""

    topic: str
    partition: int
    recovery_point: int


class InfoAnswer(Body):
    """What runs here. ``limits`` by setting, in its unit."""

    name: str
    version: str
    cluster_id: str
    node_id: int
    phase: Literal["starting", "serving", "stopping"]
    listeners: dict[str, str]
    limits: dict[str, int]
    features: list[str]


class ConfigSource(Body):
    """One link of a chain of sources."""

    name: str
    value: str | None
    source: str


class ExplainedConfig(ConfigSource):
    """An effective config; ``synonyms`` strongest first."""

    is_default: bool
    is_read_only: bool
    synonyms: list[ConfigSource]


class ConfigsAnswer(Body):
    """By name."""

    configs: list[ExplainedConfig]


class LoopTask(Body):
    """One coroutine that the event loop runs: where it waits, outermost call first."""

    name: str
    coroutine: str
    waits_at: list[str]


class ThreadAnswer(Body):
    """One thread; ``native_id`` is what the system's tools call it."""

    name: str
    native_id: int | None
    is_daemon: bool


class InsideTasks(Body):
    """What runs in the process now; ``/v1/tasks`` has what the scheduler runs in its threads."""

    loop: list[LoopTask]
    threads: list[ThreadAnswer]


class GivenConfig(Body):
    """One key as it was resolved at the start; ``origin`` is the variable or file."""

    name: str
    value: str | None
    source: Literal["override", "environment", "file", "default"]
    origin: str


class InsideConfig(Body):
    """Every key, and what the start had to say about the others."""

    configs: list[GivenConfig]
    notices: list[str]


class LogLevels(Body):
    """``level`` is that of every logger without one of its own."""

    level: str
    loggers: dict[str, str]


class FamilySize(Body):
    """One metric family: its samples, and how many values each label has."""

    name: str
    samples: int
    labels: dict[str, int]


class MetricsCardinality(Body):
    """The largest family first."""

    samples: int
    families: list[FamilySize]
