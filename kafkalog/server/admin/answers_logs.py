"""Bodies of answers as the API's description has them (pydantic, never run on a hot path).

Bodies of the v2 metadata answers as the API's description has them.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, RootModel


class Body(BaseModel):
    """Complete: a field that is not named here is a defect, which the API tests find."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class EntryError(Body):
    """What went wrong with one entry of an answer about several."""

    error_code: int
    message: str
    kafka_error: str
    retriable: bool
    details: dict[str, object] | None = None


class OffsetAnswer(Body):
    """A look-up's result; offset and timestamp (ms) are -1 when nothing was found."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    leader_epoch: int


class FailedOffset(EntryError):
    """A look-up that failed."""

    topic: str
    partition: int


class OffsetList(Body):
    """In the order asked."""

    partitions: list[OffsetAnswer | FailedOffset]


class PartitionMoveAnswer(Body):
    """A move to another log directory; bytes are those of ``.log`` files, moments ms since 1970.

    ``reason`` of a failed or cancelled one; ``ended_ms`` is null while it is copying.
    """

    topic: str
    partition: int
    source: str
    target: str
    state: Literal["copying", "done", "cancelled", "failed"]
    reason: str | None
    size_bytes: int
    copied_bytes: int
    offset_lag: int
    started_ms: int
    ended_ms: int | None


class FailedMove(EntryError):
    """A move that was refused."""

    topic: str
    partition: int


class PartitionMoveList(Body):
    """Of the moves asked for, in their order; or all that are known, by partition."""

    moves: list[PartitionMoveAnswer | FailedMove]


class AppendAnswer(Body):
    """Where raw batches were appended; log_append_time is -1 with CreateTime."""

    topic: str
    partition: int
    base_offset: int
    last_offset: int
    log_append_time: int
    log_start_offset: int
    duplicate: bool


class Receipt(Body):
    """One record of a produce; partition and offset are null when it failed."""

    partition: int | None
    offset: int | None
    error_code: int | None
    error: str | None
    message: str | None = None


class ProduceAnswer(Body):
    """Receipts in request order."""

    offsets: list[Receipt]
    key_schema_id: None
    value_schema_id: None
    durability: Literal["synced", "os"]


class Header(Body):
    """A record header; the value is base64."""

    key: str
    value: str | None


class FetchedRecord(Body):
    """A record; key and value in the format asked for."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: object
    value: object
    headers: list[Header] | None = None


class RecordPage(RootModel[list[FetchedRecord]]):
    """Records in offset order."""


class Status(Body):
    """The event loop turns."""

    status: Literal["ok"]


class Loading(Body):
    """How far the start has come."""

    partitions: int
    partitions_loaded: int
    segments_to_recover: int
    bytes_to_recover: int
    bytes_recovered: int
    elapsed_ms: int


class LogDirFault(Body):
    """What keeps a log directory from full service. Null: not told without the right to know."""

    log_dir: str | None
    state: Literal["offline", "full"]
    reason: str | None


class Readiness(Body):
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


class OperationAnswer(Body):
    """Work that outlasts its request. Moments are ms since 1970."""

    id: str
    kind: Literal[
        "backup",
        "cleaner-run",
        "log-clean",
        "log-flush",
        "log-retain",
        "log-roll",
        "retention-run",
    ]
    details: dict[str, str]
    state: Literal["running", "succeeded", "failed"]
    started_ms: int
    ended_ms: int | None
    progress: dict[str, int]
    result: dict[str, object] | None
    error: EntryError | None


class CleaningStateAnswer(Body):
    """What the cleaner does with a partition, after an order."""

    topic: str
    partition: int
    state: Literal["none", "in_progress", "aborted", "paused"]
    pauses: int


class CleaningRetryAnswer(Body):
    """``had_failed``: whether there was something to forget."""

    topic: str
    partition: int
    had_failed: bool


class CleaningRunAnswer(Body):
    """A clean, or what a dry run says of one; the figures are there when it was cleaned."""

    topic: str
    partition: int
    outcome: Literal["cleaned", "nothing_cleanable", "aborted", "failed"]
    dry_run: bool | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    first_dirty_offset: int | None = None
    end_offset: int | None = None
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


class CleaningRunsAnswer(Body):
    """One run a partition."""

    dry_run: bool
    partitions: list[CleaningRunAnswer]


class CleanerThreadAnswer(Body):
    """A thread of the cleaner."""

    thread: str
    alive: bool
    restarts: int
    topic: str | None
    partition: int | None
    busy_since_ms: int | None
    next_turn_ms: int | None
    last_run: CleaningRunAnswer | None


class CleaningFailureAnswer(Body):
    """Why a log is left alone."""

    reason: str
    error: str
    attempts: int
    uncleanable: bool


class StandingAnswer(Body):
    """How far a compacted log is cleaned, and what a clean would find; ``fault``: why it is null.

    ``cleanable_ratio`` is Kafka's dirty ratio: a thread takes a log above ``min_cleanable_ratio``.
    """

    state: Literal["none", "in_progress", "aborted", "paused"]
    pauses: int
    checkpoint: int | None
    first_dirty_offset: int | None
    first_uncleanable_offset: int | None
    clean_bytes: int | None
    cleanable_bytes: int | None
    cleanable_ratio: float | None
    min_cleanable_ratio: float
    fault: str | None


class CompactedLogAnswer(StandingAnswer):
    """A compacted log as it stands."""

    topic: str
    partition: int
    log_dir: str
    operator_pauses: int
    rank: int | None
    why_not: str | None
    overdue_ms: int | None
    last_success_ms: int | None
    failure: CleaningFailureAnswer | None


class CleanerAnswer(Body):
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


class OperationsAnswer(Body):
    """In the order in which they were begun."""

    operations: list[OperationAnswer]


class About(Body):
    """Who answers; ``bridge_version`` is what the Bridge's clients read."""

    bridge_version: str
    name: str
    version: str


class EmptyObject(Body):
    """An empty object."""


class BrokerIds(Body):
    """Node ids: one."""

    brokers: list[int]


class TopicNames(RootModel[list[str]]):
    """Sorted, internal topics too."""


class Replica(Body):
    """The one replica of a partition."""

    broker: int
    leader: bool
    in_sync: bool


class TopicPartitionAnswer(Body):
    """A partition; one that is not served has leader -1 and its error."""

    partition: int
    leader: int
    replicas: list[Replica]
    error_code: int | None = None
    kafka_error: str | None = None
    error: str | None = None


class TopicPartitions(RootModel[list[TopicPartitionAnswer]]):
    """By number."""


class TopicAnswer(Body):
    """A topic with its effective configs as text."""

    name: str
    configs: dict[str, str]
    partitions: list[TopicPartitionAnswer]


class OffsetRange(Body):
    """Log start offset and high watermark."""

    beginning_offset: int
    end_offset: int
