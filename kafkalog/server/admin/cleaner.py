"""The log cleaner over HTTP: its state, and cleans, pauses and retries by hand.

A request that waits for a clean occupies no thread: the cleaner thread completes a future of the
event loop. Times are in ms since 1970.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from aiohttp import web
from msgspec import UNSET, UnsetType

from kafkalog.broker.operations import Operations
from kafkalog.cleaner.log_cleaner import NO_CLEANER
from kafkalog.cleaner.log_cleaner_manager import CleaningPhase
from kafkalog.cleaner.stats import CleaningOutcome
from kafkalog.errors import CleaningConflict, KafkalogError
from kafkalog.server.admin.operations import BEGUN, as_result, begun, prefers_async
from kafkalog.server.api import api_of
from kafkalog.server.protocol.endpoint import PARTITION, Access, Answer, Routes
from kafkalog.server.protocol.errors import error_of
from kafkalog.server.protocol.json_schema import AnswerBody, PartitionAnswer, answer_of
from kafkalog.server.protocol.parameters import (
    TOPIC_NAME_SCHEMA,
    TextParameter,
    partition_of,
    topic_of,
)
from kafkalog.server.protocol.replies import json_reply
from kafkalog.server.protocol.schemas import CleanerRunRequest, CleanRequest, OnePartition, keys_of
from kafkalog.server.security.audit import note_entries, note_subject

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalog.broker.compaction.cleaning import CleanEnd, CompactedLog
    from kafkalog.cleaner.log_cleaner import ThreadStatus
    from kafkalog.cleaner.log_cleaner_manager import CleaningStatus
    from kafkalog.cleaner.stats import CleaningRun
    from kafkalog.format.topic_names import TopicPartition

T = TypeVar("T")

ROUTES = Routes("cleaner")
_MAX_PARTITIONS = 1_000
_TOPIC = TextParameter("topic", "Only the logs of this topic.", schema=TOPIC_NAME_SCHEMA)
_OF_PLAN = (  # None where the log could not be inspected
    *("first_dirty_offset", "first_uncleanable_offset"),
    *("clean_bytes", "cleanable_bytes", "cleanable_ratio"),
)


# ---- what it does


class CleaningRunAnswer(PartitionAnswer, kw_only=True):
    """A clean or a dry run of one; the figures are present when it was cleaned."""

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


class CompactedLogAnswer(StandingAnswer):
    """A compacted log."""

    topic: str
    partition: int
    log_dir: str
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


@ROUTES.endpoint(
    "GET /v1/cleaner",
    "describeCleaner",
    Access.DESCRIBE_CLUSTER,
    "The current state.",
    parameters=(_TOPIC,),
    errors=(40401,),
)
def cleaner(request: web.Request, operations: Operations) -> CleanerAnswer:
    """Threads, and every compacted log: state, dirtiness, rank, or why it is not picked."""
    report = operations.cleaning.describe(_TOPIC.read(request))
    config = report.config
    return CleanerAnswer(
        now_ms=report.now_ms,
        enabled=report.is_enabled,
        backoff_ms=config.backoff_ms,
        dedupe_buffer_bytes=config.dedupe_buffer_size_bytes,
        io_buffer_bytes=config.io_buffer_size_bytes,
        load_factor=config.io_buffer_load_factor,
        throttle_bytes_per_second=config.io_limit_bytes_per_second,
        threads=[_thread(each) for each in report.threads],
        logs=[_log(each) for each in report.logs],
    )


def _thread(status: ThreadStatus) -> CleanerThreadAnswer:
    at_work = status.topic_partition
    return answer_of(
        CleanerThreadAnswer,
        status,
        thread=status.name,
        alive=status.is_alive,
        topic=at_work and at_work.topic,
        partition=None if at_work is None else at_work.partition,
        last_run=status.last_run and run_answer(status.last_run),
    )


def _log(each: CompactedLog) -> CompactedLogAnswer:
    status = each.status
    plan, failure = status.to_clean, status.failure
    return answer_of(
        CompactedLogAnswer,
        status.log.topic_partition,
        standing_answer(status),
        each,
        log_dir=status.log.parent_dir,
        why_not=each.why_not and each.why_not.value,
        overdue_ms=None if plan is None else plan.overdue_ms,
        failure=failure
        and CleaningFailureAnswer(
            failure.reason, failure.error_name, failure.attempts, failure.is_uncleanable
        ),
    )


def standing_answer(status: CleaningStatus) -> StandingAnswer:
    """How far a log is cleaned, and what a clean would find."""
    return answer_of(
        StandingAnswer,
        status,
        state=status.state.phase,
        pauses=status.state.pauses,
        **{name: getattr(status.to_clean, name, None) for name in _OF_PLAN},
        min_cleanable_ratio=status.log.config.min_cleanable_dirty_ratio,
        fault=None if status.fault is None else status.fault.public_message,
    )


def run_answer(run: CleaningRun) -> CleaningRunAnswer:
    """A run that ended; of a dry run the figures are those that a clean would have."""
    stats, figures = run.stats, dict[str, object]()
    if stats is not None:
        figures = {
            "bytes_before": stats.bytes_read,
            "bytes_after": stats.bytes_written,
            "records_before": stats.messages_read,
            "records_after": stats.messages_written,
            "removed": {
                "superseded": stats.superseded,
                "tombstone": stats.expired_tombstones,
                "aborted": stats.aborted,
                "control": stats.markers,
                "invalid": stats.invalid_messages_read,
            },
            "keys": stats.map_size,
            "map_utilization": stats.buffer_utilization,
        }
    return answer_of(
        CleaningRunAnswer,
        run.topic_partition,
        run.error and error_of(run.error),
        stats,
        run,
        dry_run=run.is_dry,
        first_dirty_offset=run.to_clean and run.to_clean.first_dirty_offset,
        end_offset=None if stats is None else run.end_offset,
        **figures,
    )


# ---- cleans by order


@ROUTES.endpoint(
    f"POST {PARTITION}/log:clean",
    "cleanPartition",
    Access.OPERATE_CLUSTER,
    {200: Answer("The run.", CleaningRunAnswer), 202: BEGUN},
    is_body_required=False,
    errors=(40907, 40910, 50010, 50101, 50302, 50303, 50701),
)
async def clean(request: web.Request, wanted: CleanRequest) -> web.Response:
    """Clean one partition now at any ratio, or with ``dry_run`` report what would be removed.

    A ``dry_run`` reads as a clean does, its map included, and writes nothing.
    """
    api = api_of(request)
    topic, partition = topic_of(request), partition_of(request)
    note_subject(request, dry_run=wanted.dry_run)
    is_dry, cleaning = wanted.dry_run, api.operations.cleaning
    if prefers_async(request):
        return begun(cleaning.begin(topic, partition, is_dry=is_dry, result=run_result))
    run: CleaningRun = await _waited_for(
        lambda done: cleaning.submit(topic, partition, is_dry=is_dry, on_done=done)
    )
    if run.error is not None:
        raise run.error
    return json_reply(run_answer(run))


@ROUTES.endpoint(
    "POST /v1/cleaner:run",
    "runCleaner",
    Access.OPERATE_CLUSTER,
    {200: Answer("A run each.", CleaningRunsAnswer), 202: BEGUN},
    errors=(40002, 40910),
)
async def run(request: web.Request, wanted: CleanerRunRequest) -> web.Response:
    """The same for the named partitions, or for all that have something to clean.

    A partition's failure is its own entry.
    """
    api = api_of(request)
    if wanted.partitions is None:
        keys = await api.blocking(_cleanable, api.operations)
    else:
        keys = keys_of(wanted.partitions, _MAX_PARTITIONS)
    is_dry, cleaning = wanted.dry_run, api.operations.cleaning
    note_entries(request, keys, dry_run=is_dry)

    def answer(ends: Sequence[CleanEnd]) -> CleaningRunsAnswer:
        return CleaningRunsAnswer(is_dry, list(map(_end, keys, ends)))

    if prefers_async(request):
        return begun(
            cleaning.begin_all(keys, is_dry=is_dry, result=lambda ends: as_result(answer(ends)))
        )
    ends: Sequence[CleanEnd] = await _waited_for(
        lambda done: cleaning.submit_all(keys, is_dry=is_dry, on_done=done)
    )
    runs = answer(ends)
    note_entries(request, runs.partitions, dry_run=is_dry)
    return json_reply(runs)


def run_result(run: CleaningRun) -> dict[str, object]:
    """The same as the result of an operation."""
    return as_result(run_answer(run))


def _end(key: TopicPartition, end: CleanEnd) -> CleaningRunAnswer:
    if not isinstance(end, KafkalogError):
        return run_answer(end)
    return answer_of(CleaningRunAnswer, key, error_of(end), outcome="failed")


def _cleanable(operations: Operations) -> list[TopicPartition]:
    """Partitions with cleanable bytes that are not cleaned only because of their ratio.

    CleaningConflict where nothing ever is.
    """
    found, report = [], operations.cleaning.describe()
    if not report.is_enabled:
        raise CleaningConflict(NO_CLEANER)
    for each in report.logs:
        to_clean = each.status.to_clean
        is_free = each.why_not is None or each.why_not.value == "below_ratio"
        if is_free and to_clean is not None and to_clean.cleanable_bytes:
            found.append(each.status.log.topic_partition)
    return found


async def _waited_for(submit: Callable[[Callable[[T], None]], object]) -> T:
    """Wait for what ends on a cleaner thread; it continues when the client leaves."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def done(end: T) -> None:
        loop.call_soon_threadsafe(_set, future, end)

    submit(done)
    return await future


def _set(future: asyncio.Future[T], end: T) -> None:
    if not future.done():
        future.set_result(end)


# ---- pauses and new tries


class CleaningStateAnswer(PartitionAnswer):
    """What the cleaner does with a partition, after an order."""

    state: CleaningPhase
    pauses: int


class CleaningRetryAnswer(PartitionAnswer):
    """``had_failed``: whether the partition had a failure, which is cleared."""

    had_failed: bool


_ORDERS = {
    "pause": "Let no clean of the partition begin until it is resumed or the daemon restarts.",
    "resume": "Take back one pause.",
    "abort": "End the clean of the partition that runs now, if any.",
}


def _offer(order: str, description: str) -> None:
    """The route of an order to the cleaner about a partition."""

    def obey(
        request: web.Request, operations: Operations, wanted: OnePartition
    ) -> CleaningStateAnswer:
        topic, partition = wanted.topic, wanted.partition
        note_subject(request, topic=topic, partition=partition)
        state = getattr(operations.cleaning, order)(topic, partition)
        return CleaningStateAnswer(topic, partition, *state)

    obey.__doc__ = description
    ROUTES.endpoint(
        f"POST /v1/cleaner:{order}",
        f"{order}Cleaning",
        Access.OPERATE_CLUSTER,
        "The state after it.",
        errors=(40401, 40402, 40910 if order == "resume" else 40907),
    )(obey)


for _order, _description in _ORDERS.items():
    _offer(_order, _description)


@ROUTES.endpoint(
    "POST /v1/cleaner:retry",
    "retryCleaning",
    Access.OPERATE_CLUSTER,
    "Whether it had failed.",
    errors=(40401, 40402, 40907),
)
def retry(
    request: web.Request, operations: Operations, wanted: OnePartition
) -> CleaningRetryAnswer:
    """Try a partition again that failed or is uncleanable."""
    topic, partition = wanted.topic, wanted.partition
    note_subject(request, topic=topic, partition=partition)
    return CleaningRetryAnswer(topic, partition, operations.cleaning.retry(topic, partition))
