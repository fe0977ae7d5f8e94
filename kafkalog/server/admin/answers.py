"""Answers about the daemon, topics, directories, moves, operations and tasks.

Times are in ms since 1970; null is never.
"""

from __future__ import annotations

from typing import Literal

from kafkalog.broker.background import OperationKind, OperationState
from kafkalog.broker.values import Loading, MoveState
from kafkalog.env.scheduler import TaskState
from kafkalog.server.protocol.errors import EntryError, FailedPartition
from kafkalog.server.protocol.json_schema import AnswerBody, NamedType
from kafkalog.settings.settings import Source


class Status(AnswerBody):
    """The event loop turns."""

    status: Literal["ok"]


class LogDirFault(AnswerBody):
    """The fault of a log directory. Null: hidden without the right to see paths."""

    log_dir: str | None
    state: Literal["offline", "full"]
    reason: str | None


class Readiness(AnswerBody, kw_only=True):
    """What a probe may look at."""

    status: Literal["ready", "not ready"]
    checks: dict[str, bool]
    online_log_dirs: int
    offline_log_dirs: int
    partitions: int
    offline_partitions: int
    full_log_dirs: int
    log_dir_faults: list[LogDirFault]
    loading: Loading | None = None
    start_refused: str | None = None


class About(AnswerBody):
    """Who answers; ``bridge_version`` is what the Bridge's clients read."""

    bridge_version: str
    name: str
    version: str


class EmptyObject(AnswerBody):
    """An empty object."""


class BrokerIds(AnswerBody):
    """Node ids: one."""

    brokers: list[int]


TopicNames = NamedType("TopicNames", list[str], "Sorted, internal topics too.")


class Replica(AnswerBody):
    """The one replica of a partition."""

    broker: int
    leader: bool
    in_sync: bool


class TopicPartitionAnswer(AnswerBody, kw_only=True):
    """A partition; one that is not served has leader -1 and its error."""

    partition: int
    leader: int
    replicas: list[Replica]
    error_code: int | None = None
    kafka_error: str | None = None
    error: str | None = None


TopicPartitions = NamedType("TopicPartitions", list[TopicPartitionAnswer], "By number.")


class TopicAnswer(AnswerBody):
    """A topic with its effective configs as text."""

    name: str
    configs: dict[str, str]
    partitions: list[TopicPartitionAnswer]


class OffsetRange(AnswerBody):
    """Log start offset and high watermark."""

    beginning_offset: int
    end_offset: int


class DeletedRecords(AnswerBody):
    """The new log start of a partition."""

    topic: str
    partition: int
    low_watermark: int


class DeleteRecordsAnswer(AnswerBody):
    """In the order of the request."""

    partitions: list[DeletedRecords | FailedPartition]


class LogDirPartition(AnswerBody):
    """As kafka-log-dirs prints it."""

    partition: str
    size: int
    offsetLag: int  # noqa: N815 - the tool's spelling
    isFuture: bool  # noqa: N815


class LogDirAnswer(AnswerBody):
    """One log directory; an offline one has a reason and no partitions."""

    error: str | None
    reason: str | None
    logDir: str  # noqa: N815
    isCordoned: bool  # noqa: N815
    totalBytes: int  # noqa: N815
    usableBytes: int  # noqa: N815
    partitions: list[LogDirPartition]


class BrokerLogDirs(AnswerBody):
    """The directories of the one broker."""

    broker: int
    logDirs: list[LogDirAnswer]  # noqa: N815


class LogDirsAnswer(AnswerBody):
    """What ``kafka-log-dirs --describe`` prints."""

    version: int
    brokers: list[BrokerLogDirs]


class PartitionMoveAnswer(AnswerBody):
    """A move to another log directory; bytes are those of ``.log`` files, moments ms since 1970.

    ``reason`` of a failed or cancelled one; ``ended_ms`` is null while it is copying.
    """

    topic: str
    partition: int
    source: str
    target: str
    state: MoveState
    reason: str | None
    size_bytes: int
    copied_bytes: int
    offset_lag: int
    started_ms: int
    ended_ms: int | None


class FailedMove(AnswerBody, kw_only=True):
    """A move that was refused."""

    topic: str
    partition: int
    error_code: int
    message: str
    kafka_error: str
    retriable: bool
    details: dict[str, object] | None = None


class PartitionMoveList(AnswerBody):
    """The moves of the request in its order, or all known ones by partition."""

    moves: list[PartitionMoveAnswer | FailedMove]


class OperationAnswer(AnswerBody):
    """Work that outlasts its request. Moments are ms since 1970."""

    id: str
    kind: OperationKind
    details: dict[str, str]
    state: OperationState
    started_ms: int
    ended_ms: int | None
    progress: dict[str, int]
    result: dict[str, object] | None
    error: EntryError | None


class OperationsAnswer(AnswerBody):
    """In the order in which they were begun."""

    operations: list[OperationAnswer]


class TaskAnswer(AnswerBody):
    """The tasks of one name."""

    name: str
    state: TaskState
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


class TasksAnswer(AnswerBody):
    """By name."""

    now_ms: int
    tasks: list[TaskAnswer]


class InfoAnswer(AnswerBody):
    """What runs here. ``limits`` by setting, in its unit."""

    name: str
    version: str
    cluster_id: str
    node_id: int
    phase: Literal["starting", "serving", "stopping"]
    listeners: dict[str, str]
    limits: dict[str, int]
    features: list[str]


class ConfigSource(AnswerBody):
    """One link of a chain of sources."""

    name: str
    value: str | None
    source: str


class ExplainedConfig(ConfigSource):
    """An effective config; ``synonyms`` strongest first."""

    is_default: bool
    is_read_only: bool
    synonyms: list[ConfigSource]


class ConfigsAnswer(AnswerBody):
    """By name."""

    configs: list[ExplainedConfig]


class LoopTask(AnswerBody):
    """One coroutine that the event loop runs: where it waits, outermost call first."""

    name: str
    coroutine: str
    waits_at: list[str]


class ThreadAnswer(AnswerBody):
    """One thread; ``native_id`` is what the system's tools call it."""

    name: str
    native_id: int | None
    is_daemon: bool


class InsideTasks(AnswerBody):
    """What runs in the process now; ``/v1/tasks`` has what the scheduler runs in its threads."""

    loop: list[LoopTask]
    threads: list[ThreadAnswer]


class GivenConfig(AnswerBody):
    """One key as it was resolved at the start; ``origin`` is the variable or file."""

    name: str
    value: str | None
    source: Source
    origin: str


class InsideConfig(AnswerBody):
    """Every key, and what the start had to say about the others."""

    configs: list[GivenConfig]
    notices: list[str]


class LogLevels(AnswerBody):
    """``level`` applies to every logger without its own."""

    level: str
    loggers: dict[str, str]


class FamilySize(AnswerBody):
    """One metric family: its samples, and how many values each label has."""

    name: str
    samples: int
    labels: dict[str, int]


class MetricsCardinality(AnswerBody):
    """The largest family first."""

    samples: int
    families: list[FamilySize]
