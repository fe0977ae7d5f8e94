"""The log cleaner over HTTP: its state, and cleans, pauses and retries by hand (N12, N13).

A request that waits for a clean occupies no thread: the cleaner thread completes a future of the
event loop. Times are in ms since 1970.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from aiohttp import web
from msgspec import structs

from kafkalog.cleaner.log_cleaner import NO_CLEANER
from kafkalog.errors import CleaningConflict, KafkalogError
from kafkalog.format.topic_names import TopicPartition
from kafkalog.server.admin.answers_logs import (
    CleanerAnswer,
    CleanerThreadAnswer,
    CleaningFailureAnswer,
    CleaningRetryAnswer,
    CleaningRunAnswer,
    CleaningRunsAnswer,
    CleaningStateAnswer,
    CompactedLogAnswer,
    StandingAnswer,
)
from kafkalog.server.admin.operations import BEGUN, as_result, begun_async, prefers_async
from kafkalog.server.api import api_of
from kafkalog.server.protocol.endpoint import Access, Action, Answer, Resource, endpoint
from kafkalog.server.protocol.errors import ApiError, entry_error
from kafkalog.server.protocol.media_types import JSON
from kafkalog.server.protocol.parameters import TextParameter, partition_of, topic_of
from kafkalog.server.protocol.replies import json_reply
from kafkalog.server.protocol.schemas import (
    CleanerRunRequest,
    CleanRequest,
    PartitionName,
    read_body,
)
from kafkalog.server.security.audit import note_entries, note_subject

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalog.broker.compaction.cleaning import CleanEnd, CleanerReport, CompactedLog
    from kafkalog.broker.operations import Operations
    from kafkalog.cleaner.log_cleaner import ThreadStatus
    from kafkalog.cleaner.log_cleaner_manager import CleaningState, CleaningStatus
    from kafkalog.cleaner.stats import CleaningRun
    from kafkalog.server.api import Api

T = TypeVar("T")

ROUTES = web.RouteTableDef()
_MAX_PARTITIONS = 1_000
_DESCRIBE = Access(Action.DESCRIBE, Resource.CLUSTER)
_OPERATE = Access(Action.CLUSTER, Resource.CLUSTER)
_STATE = {200: Answer("The state after it.", {JSON: CleaningStateAnswer})}
_TOPIC = TextParameter("topic", "Only the logs of this topic.")


# ---- what it does


@ROUTES.get("/v1/cleaner")
@endpoint(
    "describeCleaner",
    "cleaner",
    _DESCRIBE,
    {200: Answer("The current state.", {JSON: CleanerAnswer})},
    parameters=(_TOPIC,),
    errors=(40401,),
)
async def cleaner(request: web.Request) -> web.Response:
    """Threads, and every compacted log: state, dirtiness, rank, or why it is not picked."""
    api = api_of(request)
    return await api.blocking(_describe, api.operations, _TOPIC.read(request))


def _describe(operations: Operations, topic: str | None) -> web.Response:
    return json_reply(_report(operations.cleaning.describe(topic)))


def _report(report: CleanerReport) -> CleanerAnswer:
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
    return CleanerThreadAnswer(
        thread=status.name,
        alive=status.is_alive,
        restarts=status.restarts,
        topic=None if at_work is None else at_work.topic,
        partition=None if at_work is None else at_work.partition,
        busy_since_ms=status.busy_since_ms,
        next_turn_ms=status.next_turn_ms,
        last_run=None if status.last_run is None else run_answer(status.last_run),
    )


def _log(each: CompactedLog) -> CompactedLogAnswer:
    status = each.status
    log, plan, failure = status.log, status.to_clean, status.failure
    return CompactedLogAnswer(
        topic=log.topic_partition.topic,
        partition=log.topic_partition.partition,
        log_dir=log.directory.rpartition("/")[0],
        **structs.asdict(standing_answer(status)),
        operator_pauses=each.operator_pauses,
        rank=each.rank,
        why_not=each.why_not and each.why_not.value,
        overdue_ms=None if plan is None else plan.plan.overdue_ms,
        last_success_ms=each.last_success_ms,
        failure=failure
        and CleaningFailureAnswer(
            reason=failure.reason,
            error=failure.error_name,
            attempts=failure.attempts,
            uncleanable=failure.is_uncleanable,
        ),
    )


def standing_answer(status: CleaningStatus) -> StandingAnswer:
    """How far a log is cleaned, and what a clean would find."""
    plan = status.to_clean
    return StandingAnswer(
        state=status.state.phase,
        pauses=status.state.pauses,
        checkpoint=status.checkpoint,
        first_dirty_offset=None if plan is None else plan.first_dirty_offset,
        first_uncleanable_offset=None if plan is None else plan.first_uncleanable_offset,
        clean_bytes=None if plan is None else plan.clean_bytes,
        cleanable_bytes=None if plan is None else plan.cleanable_bytes,
        cleanable_ratio=None if plan is None else plan.cleanable_ratio,
        min_cleanable_ratio=status.log.config.min_cleanable_dirty_ratio,
        fault=None if status.fault is None else status.fault.public_message,
    )


def run_answer(run: CleaningRun) -> CleaningRunAnswer:
    """A run that ended; of a dry run the figures are those that a clean would have."""
    answer = CleaningRunAnswer(
        topic=run.topic_partition.topic,
        partition=run.topic_partition.partition,
        dry_run=run.is_dry,
        outcome=run.outcome,
        started_ms=run.started_ms,
        ended_ms=run.ended_ms,
        first_dirty_offset=None if run.to_clean is None else run.to_clean.first_dirty_offset,
        end_offset=None if run.stats is None else run.end_offset,
    )
    if run.stats is not None:
        stats = run.stats
        answer = structs.replace(
            answer,
            bytes_before=stats.bytes_read,
            bytes_after=stats.bytes_written,
            records_before=stats.messages_read,
            records_after=stats.messages_written,
            removed={
                "superseded": stats.superseded,
                "tombstone": stats.expired_tombstones,
                "aborted": stats.aborted,
                "control": stats.markers,
                "invalid": stats.invalid_messages_read,
            },
            keys=stats.map_size,
            map_utilization=stats.buffer_utilization,
            map_seconds=stats.map_seconds,
            seconds=stats.seconds,
        )
    return answer if run.error is None else structs.replace(answer, **entry_error(run.error))


# ---- cleans by order


@ROUTES.post("/v1/topics/{topic}/partitions/{partition}/log:clean")
@endpoint(
    "cleanPartition",
    "cleaner",
    _OPERATE,
    {200: Answer("The run.", {JSON: CleaningRunAnswer}), 202: BEGUN},
    body={JSON: CleanRequest},
    is_body_required=False,
    errors=(40907, 40910, 50010, 50302, 50303, 50701),
)
async def clean(request: web.Request) -> web.Response:
    """Clean one partition now at any ratio, or with ``dry_run`` report what would be removed.

    A ``dry_run`` reads as a clean does, its map included, and writes nothing.
    """
    api = api_of(request)
    topic, partition = topic_of(request), partition_of(request)
    wanted = await read_body(CleanRequest, request, api, is_required=False)
    note_subject(request, dry_run=wanted.dry_run)
    is_dry, cleaning = wanted.dry_run, api.operations.cleaning
    if prefers_async(request):
        return begun_async(cleaning.begin(topic, partition, is_dry=is_dry, result=run_result))
    run: CleaningRun = await _waited_for(
        lambda done: cleaning.submit(topic, partition, is_dry=is_dry, on_done=done)
    )
    if run.error is not None:
        raise run.error
    return json_reply(run_answer(run))


@ROUTES.post("/v1/cleaner:run")
@endpoint(
    "runCleaner",
    "cleaner",
    _OPERATE,
    {200: Answer("A run each.", {JSON: CleaningRunsAnswer}), 202: BEGUN},
    body={JSON: CleanerRunRequest},
    errors=(40002, 40910),
)
async def run(request: web.Request) -> web.Response:
    """The same for the named partitions, or for all that have something to clean.

    A partition's failure is its own entry.
    """
    api = api_of(request)
    wanted = await read_body(CleanerRunRequest, request, api)
    if wanted.partitions is None:
        keys = await api.blocking(_cleanable, api.operations)
    else:
        keys = _keys_of(wanted.partitions)
    is_dry, cleaning = wanted.dry_run, api.operations.cleaning
    note_entries(
        request, [{"topic": key.topic, "partition": key.partition} for key in keys], dry_run=is_dry
    )

    def answer(ends: Sequence[CleanEnd]) -> CleaningRunsAnswer:
        return CleaningRunsAnswer(is_dry, list(map(_end, keys, ends)))

    if prefers_async(request):
        return begun_async(
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
    return CleaningRunAnswer(
        topic=key.topic, partition=key.partition, outcome="failed", **entry_error(end)
    )


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


def _keys_of(names: Sequence[PartitionName]) -> list[TopicPartition]:
    keys = [TopicPartition(name.topic, name.partition) for name in names]
    if not 1 <= len(keys) <= _MAX_PARTITIONS:
        raise ApiError(40002, f"Name 1 to {_MAX_PARTITIONS} partitions, or leave them out for all.")
    if len(set(keys)) < len(keys):
        raise ApiError(40002, "Name each partition once.")
    return keys


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


@ROUTES.post("/v1/cleaner:pause")
@endpoint(
    "pauseCleaning",
    "cleaner",
    _OPERATE,
    _STATE,
    body={JSON: PartitionName},
    errors=(40401, 40402, 40907),
)
async def pause(request: web.Request) -> web.Response:
    """Let no clean of the partition begin until it is resumed or the daemon restarts."""
    return await _state_after(request, api_of(request).operations.cleaning.pause)


@ROUTES.post("/v1/cleaner:resume")
@endpoint(
    "resumeCleaning",
    "cleaner",
    _OPERATE,
    _STATE,
    body={JSON: PartitionName},
    errors=(40401, 40402, 40910),
)
async def resume(request: web.Request) -> web.Response:
    """Take back one pause."""
    return await _state_after(request, api_of(request).operations.cleaning.resume)


@ROUTES.post("/v1/cleaner:abort")
@endpoint(
    "abortCleaning",
    "cleaner",
    _OPERATE,
    _STATE,
    body={JSON: PartitionName},
    errors=(40401, 40402, 40907),
)
async def abort(request: web.Request) -> web.Response:
    """End the clean of the partition that runs now, if any."""
    return await _state_after(request, api_of(request).operations.cleaning.abort)


@ROUTES.post("/v1/cleaner:retry")
@endpoint(
    "retryCleaning",
    "cleaner",
    _OPERATE,
    {200: Answer("Whether it had failed.", {JSON: CleaningRetryAnswer})},
    body={JSON: PartitionName},
    errors=(40401, 40402, 40907),
)
async def retry(request: web.Request) -> web.Response:
    """Try a partition again that failed or is uncleanable."""
    api = api_of(request)
    name = await _named(request, api)
    had_failed = await api.blocking(api.operations.cleaning.retry, name.topic, name.partition)
    return json_reply(CleaningRetryAnswer(name.topic, name.partition, had_failed))


async def _state_after(
    request: web.Request, order: Callable[[str, int], CleaningState]
) -> web.Response:
    api = api_of(request)
    name = await _named(request, api)
    state = await api.blocking(order, name.topic, name.partition)
    return json_reply(CleaningStateAnswer(name.topic, name.partition, state.phase, state.pauses))


async def _named(request: web.Request, api: Api) -> PartitionName:
    name = await read_body(PartitionName, request, api)
    note_subject(request, topic=name.topic, partition=name.partition)
    return name
