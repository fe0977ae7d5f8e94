"""Logs by hand: state, roll, flush, losses, segment dumps, log directories and moves (N10 to N12).

A dump has a line of text for each record. It runs in its own process, ``kafkalog segments dump``;
its output is sent as fast as the client reads. ``GET /v1/log-dirs`` has the fields of
``kafka-log-dirs --describe``. ``/v1/partition-moves`` is Kafka's alterReplicaLogDirs. Calls that
wait for a lock or the disk run on the control pool.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE
from typing import TYPE_CHECKING

from aiohttp import hdrs, web

from kafkalog.errors import KafkalogError
from kafkalog.format.offset_ranges import LostRange
from kafkalog.format.topic_names import TopicPartition
from kafkalog.server.admin.answers import (
    BrokerLogDirs,
    FailedMove,
    LogDirAnswer,
    LogDirPartition,
    LogDirsAnswer,
    PartitionMoveAnswer,
    PartitionMoveList,
)
from kafkalog.server.admin.answers_logs import (
    FlushAnswer,
    LogAnswer,
    LossesAnswer,
    LostRangeAnswer,
    RollAnswer,
)
from kafkalog.server.admin.cleaner import standing_answer
from kafkalog.server.admin.operations import BEGUN, now_or_later
from kafkalog.server.api import api_of
from kafkalog.server.protocol.endpoint import Access, Action, Answer, Resource, endpoint
from kafkalog.server.protocol.errors import ApiError, error_fields
from kafkalog.server.protocol.media_types import JSON
from kafkalog.server.protocol.parameters import (
    FlagParameter,
    ListParameter,
    base_offset_of,
    partition_of,
    topic_of,
)
from kafkalog.server.protocol.replies import REQUEST_ID, add_standard_headers, json_reply
from kafkalog.server.protocol.schemas import LossToAccept, PartitionMovesRequest, read_body
from kafkalog.server.security.audit import note_entries, note_subject

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Collection

    from kafkalog.broker.operations import Operations
    from kafkalog.broker.retention.maintenance import Losses
    from kafkalog.broker.values import LogDirDescription, MoveStatus


ROUTES = web.RouteTableDef()
_PARTITION = "/v1/topics/{topic}/partitions/{partition}"
_DESCRIBE = Access(Action.DESCRIBE, Resource.TOPIC)
_ALTER = Access(Action.ALTER, Resource.TOPIC)
_TEXT = "text/plain; charset=utf-8"
_CHUNK_BYTES = 64 << 10
DUMPS_MAX = 2  # each is a process at full speed
DUMPS: web.AppKey[asyncio.Semaphore] = web.AppKey("dumps", asyncio.Semaphore)
_PRINT_DATA = FlagParameter("print_data_log", "Print keys and values too.")
_DEEP = FlagParameter("deep_iteration", "A line for every record.")


@ROUTES.get(f"{_PARTITION}/log")
@endpoint("describeLog", "logs", _DESCRIBE, {200: Answer("As it is now.", {JSON: LogAnswer})})
async def log(request: web.Request) -> web.Response:
    """Offsets, durability and size of one log; of a compacted one how clean it is."""
    api = api_of(request)
    return await api.blocking(_log, api.operations, _key_of(request))


def _log(operations: Operations, key: TopicPartition) -> web.Response:
    described = operations.describe_log(key.topic, key.partition)
    standing = operations.cleaning.inspect(key.topic, key.partition)
    return json_reply(
        LogAnswer(
            topic=key.topic,
            partition=key.partition,
            **described._asdict(),
            cleaning=None if standing is None else standing_answer(standing),
        )
    )


@ROUTES.post(f"{_PARTITION}/log:roll")
@endpoint(
    "rollLog",
    "logs",
    _ALTER,
    {200: Answer("Durable.", {JSON: RollAnswer}), 202: BEGUN},
)
async def roll(request: web.Request) -> web.Response:
    """Close the active segment and begin another, now; an empty one stays."""
    operations, key = api_of(request).operations, _key_of(request)

    def work() -> RollAnswer:
        return RollAnswer(key.topic, key.partition, *operations.roll(key.topic, key.partition))

    return await now_or_later(request, "log-roll", key, work)


@ROUTES.post(f"{_PARTITION}/log:flush")
@endpoint(
    "flushLog",
    "logs",
    _ALTER,
    {200: Answer("Durable.", {JSON: FlushAnswer}), 202: BEGUN},
)
async def flush(request: web.Request) -> web.Response:
    """Make everything that was appended durable."""
    operations, key = api_of(request).operations, _key_of(request)

    def work() -> FlushAnswer:
        return FlushAnswer(key.topic, key.partition, operations.flush(key.topic, key.partition))

    return await now_or_later(request, "log-flush", key, work)


@ROUTES.get(f"{_PARTITION}/losses")
@endpoint("listLosses", "logs", _DESCRIBE, {200: Answer("Rising.", {JSON: LossesAnswer})})
async def losses(request: web.Request) -> web.Response:
    """Offsets that were acknowledged and are gone: not accepted yet, and accepted."""
    api, key = api_of(request), _key_of(request)
    return await api.blocking(_losses, api.operations, key)


def _losses(operations: Operations, key: TopicPartition) -> web.Response:
    return _losses_reply(key, operations.losses(key.topic, key.partition))


@ROUTES.post(f"{_PARTITION}/losses:accept")
@endpoint(
    "acceptLoss",
    "logs",
    _ALTER,
    {200: Answer("What is left.", {JSON: LossesAnswer})},
    body={JSON: LossToAccept},
    errors=(40002, 50003, 50304),
)
async def accept_loss(request: web.Request) -> web.Response:
    """Give up one lost range by its name, durably: fetches pass it by from then on.

    Restoring the file that held it, while the daemon is stopped, is the other way.
    """
    api, key = api_of(request), _key_of(request)
    wanted = await read_body(LossToAccept, request, api)
    lost = LostRange(wanted.first_offset, wanted.last_offset)
    note_subject(request, **lost._asdict())
    return await api.blocking(_accept, api.operations, key, lost)


def _accept(operations: Operations, key: TopicPartition, lost: LostRange) -> web.Response:
    return _losses_reply(key, operations.accept_loss(key.topic, key.partition, lost))


def _losses_reply(key: TopicPartition, found: Losses) -> web.Response:
    lost, accepted = ([LostRangeAnswer(*each) for each in ranges] for ranges in found)
    return json_reply(LossesAnswer(key.topic, key.partition, lost, accepted))


def _key_of(request: web.Request) -> TopicPartition:
    return TopicPartition(topic_of(request), partition_of(request))


@ROUTES.get(f"{_PARTITION}/segments/{{base_offset}}:dump")
@endpoint(
    "dumpSegment",
    "logs",
    Access(Action.READ, Resource.TOPIC),
    {200: Answer("The tool's lines.", {_TEXT: {"type": "string"}})},
    parameters=(_PRINT_DATA, _DEEP),
    errors=(404, 42902),
)
async def dump(request: web.Request) -> web.StreamResponse:
    """What kafka-dump-log.sh prints of a segment; a damaged one ends with what was found."""
    path = api_of(request).operations.segment_path(
        topic_of(request), partition_of(request), base_offset_of(request)
    )
    flags = [
        f"--{each.name.replace('_', '-')}" for each in (_PRINT_DATA, _DEEP) if each.read(request)
    ]
    if request.method == hdrs.METH_HEAD:
        return web.Response(headers={hdrs.CONTENT_TYPE: _TEXT})
    dumps = request.app[DUMPS]
    if dumps.locked():
        raise ApiError(42902, f"{DUMPS_MAX} dumps are running. Try again.")
    async with dumps:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "kafkalog", "segments", "dump", "--files", path, *flags),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=asyncio.subprocess.STDOUT,
            limit=_CHUNK_BYTES,
        )
        try:
            return await _pass_on(request, process)
        finally:
            if process.returncode is None:  # the client went away
                process.kill()
            await process.wait()


async def _pass_on(request: web.Request, process: Process) -> web.StreamResponse:
    """The process's output as the answer; the client's pace is the process's."""
    assert process.stdout is not None
    response = web.StreamResponse(headers={hdrs.CONTENT_TYPE: _TEXT})
    add_standard_headers(response, request[REQUEST_ID])
    await response.prepare(request)
    while chunk := await process.stdout.read(_CHUNK_BYTES):
        await response.write(chunk)
    await response.write_eof()
    return response


_TOPICS = ListParameter(
    "topics", "Only the partitions of these, a,b; none for unknown ones. Without it, all."
)
# The tool prints the class of the error that the broker answers for an offline directory.
_OFFLINE = "org.apache.kafka.common.errors.KafkaStorageException"


def _log_dir(log_dir: LogDirDescription) -> LogDirAnswer:
    """The tool's fields; isCordoned and the bytes as in Kafka's protocol; ``reason`` is ours."""
    return LogDirAnswer(
        error=None if log_dir.offline_reason is None else _OFFLINE,
        reason=log_dir.offline_reason,
        logDir=log_dir.path,
        isCordoned=log_dir.is_cordoned,
        totalBytes=log_dir.total_bytes,
        usableBytes=log_dir.usable_bytes,
        partitions=[
            LogDirPartition(
                partition=str(each.topic_partition),
                size=each.size_bytes,
                offsetLag=each.offset_lag,  # of a copy: how far it lags behind its log
                isFuture=each.is_future,
            )
            for each in log_dir.partitions
        ],
    )


def _log_dirs(operations: Operations, topics: Collection[str]) -> web.Response:
    described = [_log_dir(each) for each in operations.log_dirs.describe(topics)]
    return json_reply(LogDirsAnswer(1, [BrokerLogDirs(operations.node_id, described)]))


@ROUTES.get("/v1/log-dirs")
@endpoint(
    "describeLogDirs",
    "operation",
    Access(Action.DESCRIBE, Resource.CLUSTER),
    {200: Answer("By directory.", {JSON: LogDirsAnswer})},
    parameters=(_TOPICS,),
)
async def log_dirs(request: web.Request) -> web.Response:
    """The log directories with their partitions, space and health; touches no disk."""
    api = api_of(request)
    # On the control pool, because it visits every partition.
    return await api.blocking(_log_dirs, api.operations, set(_TOPICS.read(request)))


_MAX_MOVES = 1_000  # each makes a directory before the answer


@ROUTES.post("/v1/partition-moves")
@endpoint(
    "beginPartitionMoves",
    "operation",
    Access(Action.ALTER, Resource.CLUSTER),
    {200: Answer("An entry a partition, in the order asked.", {JSON: PartitionMoveList})},
    body={JSON: PartitionMovesRequest},
    errors=(40002,),
)
async def begin(request: web.Request) -> web.Response:
    """Begin to move partitions to other log directories, while they serve.

    They are copied in the background, also after a restart. A refusal is its own entry. Another
    directory than before gives the former move up, the partition's own directory ends it.
    """
    api = api_of(request)
    wanted = await read_body(PartitionMovesRequest, request, api)
    if not 1 <= len(wanted.moves) <= _MAX_MOVES:
        raise ApiError(40002, f"Name 1 to {_MAX_MOVES} moves.")
    if len({(each.topic, each.partition) for each in wanted.moves}) < len(wanted.moves):
        raise ApiError(40002, "Name each partition once.")
    return await api.blocking(_begin, request, api.operations, wanted)


def _begin(
    request: web.Request, operations: Operations, wanted: PartitionMovesRequest
) -> web.Response:
    entries: list[PartitionMoveAnswer | FailedMove] = []
    for each in wanted.moves:
        try:
            status = operations.log_dirs.move(each.topic, each.partition, each.log_dir)
        except KafkalogError as error:
            entries.append(
                FailedMove(topic=each.topic, partition=each.partition, **error_fields(error))
            )
        else:
            entries.append(_move(status))
    note_entries(request, entries)
    return json_reply(PartitionMoveList(entries))


@ROUTES.get("/v1/partition-moves")
@endpoint(
    "listPartitionMoves",
    "operation",
    Access(Action.DESCRIBE, Resource.CLUSTER),
    {200: Answer("By topic and partition.", {JSON: PartitionMoveList})},
)
async def moves(request: web.Request) -> web.Response:
    """Moves under way, and the last one of each partition that ended since the start."""
    api = api_of(request)
    return await api.blocking(_moves, api.operations)


def _moves(operations: Operations) -> web.Response:
    return json_reply(PartitionMoveList([_move(each) for each in operations.log_dirs.moves()]))


@ROUTES.delete("/v1/partition-moves/{topic}/{partition}")
@endpoint(
    "cancelPartitionMove",
    "operation",
    Access(Action.ALTER, Resource.CLUSTER),
    {200: Answer("The move that was given up.", {JSON: PartitionMoveAnswer})},
    errors=(40410, 50304),
)
async def cancel(request: web.Request) -> web.Response:
    """Cancel a move: the copy is deleted, the partition stays in its directory."""
    api = api_of(request)
    topic, partition = topic_of(request), partition_of(request)
    return await api.blocking(_cancel, api.operations, topic, partition)


def _cancel(operations: Operations, topic: str, partition: int) -> web.Response:
    return json_reply(_move(operations.log_dirs.cancel_move(topic, partition)))


def _move(status: MoveStatus) -> PartitionMoveAnswer:
    return PartitionMoveAnswer(
        topic=status.topic_partition.topic,
        partition=status.topic_partition.partition,
        source=status.source,
        target=status.target,
        state=status.state,
        reason=status.reason,
        size_bytes=status.size_bytes,
        copied_bytes=status.copied_bytes,
        offset_lag=status.offset_lag,
        started_ms=status.started_ms,
        ended_ms=status.ended_ms,
    )
