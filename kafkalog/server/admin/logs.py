"""Logs by hand: state, roll, flush, losses, segment dumps, log directories and moves.

A dump has a line of text for each record. It runs in its own process, ``kafkalog segments dump``;
its output is sent as fast as the client reads. ``GET /v1/log-dirs`` has the fields of
``kafka-log-dirs --describe``. ``/v1/partition-moves`` is Kafka's alterReplicaLogDirs. Calls that
wait for a lock or the disk run on the control pool.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE
from typing import TYPE_CHECKING, Literal

from aiohttp import hdrs, web

from kafkalog.broker.operations import Operations
from kafkalog.broker.values import MoveState
from kafkalog.errors import KafkalogError
from kafkalog.format.offset_ranges import LostRange
from kafkalog.server.admin.cleaner import StandingAnswer, standing_answer
from kafkalog.server.admin.operations import BEGUN, now_or_later
from kafkalog.server.api import api_of
from kafkalog.server.protocol.endpoint import PARTITION, Access, Answer, Routes
from kafkalog.server.protocol.errors import ApiError, EntryError, error_of
from kafkalog.server.protocol.json_schema import AnswerBody, PartitionAnswer, answer_of
from kafkalog.server.protocol.parameters import (
    FlagParameter,
    TopicsParameter,
    base_offset_of,
    partition_of,
    topic_of,
)
from kafkalog.server.protocol.replies import REQUEST_ID, add_standard_headers
from kafkalog.server.protocol.schemas import LossToAccept, PartitionMovesRequest
from kafkalog.server.security.audit import note_entries, note_subject

if TYPE_CHECKING:
    from asyncio.subprocess import Process

    from kafkalog.broker.retention.maintenance import Losses
    from kafkalog.broker.values import LogDirDescription, MoveStatus


ROUTES = Routes("logs", PARTITION)
DIRECTORY_ROUTES = Routes("operation")
_TEXT = "text/plain; charset=utf-8"
_CHUNK_BYTES = 64 << 10
DUMPS_MAX = 2  # each is a process at full speed
DUMPS: web.AppKey[asyncio.Semaphore] = web.AppKey("dumps", asyncio.Semaphore)
_PRINT_DATA = FlagParameter("print_data_log", "Print keys and values too.")
_DEEP = FlagParameter("deep_iteration", "A line for every record.")


class LogAnswer(PartitionAnswer):
    """One log as it is published now; ``leader_epoch`` is -1 before the first record.

    ``cleaning`` is null unless the topic is compacted. ``records`` and the timestamps (ms since
    1970) are those of the metrics: some seconds old, null before the first look at them.
    """

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


class LossesAnswer(PartitionAnswer):
    """``lost``: fetches are refused there; ``accepted``: gaps like any other."""

    lost: list[LostRangeAnswer]
    accepted: list[LostRangeAnswer]


class RollAnswer(PartitionAnswer):
    """Whether there was anything to close, and where the active segment begins."""

    is_rolled: bool
    active_base_offset: int


class FlushAnswer(PartitionAnswer):
    """Below the recovery point everything is durable."""

    recovery_point: int


@ROUTES.endpoint("GET /log", "describeLog", Access.DESCRIBE_TOPIC, "As it is now.")
def log(request: web.Request, operations: Operations) -> LogAnswer:
    """Offsets, durability and size of one log; of a compacted one how clean it is."""
    topic, partition = topic_of(request), partition_of(request)
    described = operations.logs.describe(topic, partition)
    status = operations.cleaning.inspect(topic, partition)
    cleaning = None if status is None else standing_answer(status)
    return LogAnswer(topic, partition, **described._asdict(), cleaning=cleaning)


@ROUTES.endpoint(
    "POST /log:roll",
    "rollLog",
    Access.ALTER_TOPIC,
    {200: Answer("Durable.", RollAnswer), 202: BEGUN},
)
async def roll(request: web.Request) -> web.Response:
    """Close the active segment and begin another, now; an empty one stays."""
    at, roll = (topic_of(request), partition_of(request)), api_of(request).operations.logs.roll
    return await now_or_later(request, "log-roll", lambda: RollAnswer(*at, *roll(*at)))


@ROUTES.endpoint(
    "POST /log:flush",
    "flushLog",
    Access.ALTER_TOPIC,
    {200: Answer("Durable.", FlushAnswer), 202: BEGUN},
)
async def flush(request: web.Request) -> web.Response:
    """Make everything that was appended durable."""
    at, flush = (topic_of(request), partition_of(request)), api_of(request).operations.logs.flush
    return await now_or_later(request, "log-flush", lambda: FlushAnswer(*at, flush(*at)))


@ROUTES.endpoint("GET /losses", "listLosses", Access.DESCRIBE_TOPIC, "Rising.")
def losses(request: web.Request, operations: Operations) -> LossesAnswer:
    """Offsets that were acknowledged and are gone: not accepted yet, and accepted."""
    topic, partition = topic_of(request), partition_of(request)
    return _losses(topic, partition, operations.logs.losses(topic, partition))


@ROUTES.endpoint(
    "POST /losses:accept",
    "acceptLoss",
    Access.ALTER_TOPIC,
    "What is left.",
    errors=(40002, 50003, 50304),
)
def accept_loss(request: web.Request, operations: Operations, wanted: LossToAccept) -> LossesAnswer:
    """Give up one lost range by its name, durably: fetches pass it by from then on.

    Restoring the file that held it, while the daemon is stopped, is the other way.
    """
    topic, partition = topic_of(request), partition_of(request)
    lost = LostRange(wanted.first_offset, wanted.last_offset)
    note_subject(request, **lost._asdict())
    return _losses(topic, partition, operations.logs.accept_loss(topic, partition, lost))


def _losses(topic: str, partition: int, found: Losses) -> LossesAnswer:
    lost, accepted = ([LostRangeAnswer(*each) for each in ranges] for ranges in found)
    return LossesAnswer(topic, partition, lost, accepted)


@ROUTES.endpoint(
    "GET /segments/{base_offset}:dump",
    "dumpSegment",
    Access.READ_TOPIC,
    Answer("The tool's lines.", {_TEXT: {"type": "string"}}),
    parameters=(_PRINT_DATA, _DEEP),
    errors=(404, 42902),
)
async def dump(request: web.Request) -> web.StreamResponse:
    """What kafka-dump-log.sh prints of a segment; a damaged one ends with what was found."""
    path = api_of(request).operations.logs.segment_path(
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


_TOPICS = TopicsParameter(
    "topics", "Only the partitions of these, a,b; none for unknown ones. Without it, all."
)
# The tool prints the class of the error that the broker answers for an offline directory.
_OFFLINE = "org.apache.kafka.common.errors.KafkaStorageException"


class LogDirPartition(AnswerBody, rename="camel"):
    """As kafka-log-dirs prints it."""

    partition: str
    size: int
    offset_lag: int
    is_future: bool


class LogDirAnswer(AnswerBody, rename="camel"):
    """One log directory; an offline one has no partitions. ``reason``: of any state but online.

    ``state``: as ``/readyz`` shows it; ``error`` is Kafka's, and only of an offline one.
    """

    error: str | None
    state: Literal["online", "low", "full", "failing", "offline"]
    reason: str | None
    log_dir: str
    is_cordoned: bool
    total_bytes: int
    usable_bytes: int
    used_bytes: int
    partitions: list[LogDirPartition]


class BrokerLogDirs(AnswerBody, rename="camel"):
    """The directories of the one broker."""

    broker: int
    log_dirs: list[LogDirAnswer]


class LogDirsAnswer(AnswerBody):
    """What ``kafka-log-dirs --describe`` prints."""

    version: int
    brokers: list[BrokerLogDirs]


@DIRECTORY_ROUTES.endpoint(
    "GET /v1/log-dirs",
    "describeLogDirs",
    Access.DESCRIBE_CLUSTER,
    "By directory.",
    parameters=(_TOPICS,),
)
def log_dirs(request: web.Request, operations: Operations) -> LogDirsAnswer:
    """The log directories with their partitions, health, and space as it is now."""
    described = operations.log_dirs.describe(set(_TOPICS.read(request)), may_block=True)
    return LogDirsAnswer(1, [BrokerLogDirs(operations.node_id, list(map(_log_dir, described)))])


def _log_dir(log_dir: LogDirDescription) -> LogDirAnswer:
    """The tool's fields; isCordoned and bytes as in Kafka's protocol; state and reason are ours."""
    partitions = [
        LogDirPartition(str(each.topic_partition), each.size_bytes, each.offset_lag, each.is_future)
        for each in log_dir.partitions
    ]
    return answer_of(
        LogDirAnswer,
        log_dir,
        log_dir.space,
        error=None if log_dir.offline_reason is None else _OFFLINE,
        log_dir=log_dir.path,
        partitions=partitions,
    )


class PartitionMoveAnswer(PartitionAnswer):
    """A move to another log directory; bytes are those of ``.log`` files, moments ms since 1970.

    ``reason`` of a failed or cancelled one; ``ended_ms`` is null while it is copying.
    """

    source: str
    target: str
    state: MoveState
    reason: str | None
    size_bytes: int
    copied_bytes: int
    offset_lag: int
    started_ms: int
    ended_ms: int | None


class FailedMove(EntryError, kw_only=True):
    """A move that was refused."""

    topic: str
    partition: int


class PartitionMoveList(AnswerBody):
    """The moves of the request in its order, or all known ones by partition."""

    moves: list[PartitionMoveAnswer | FailedMove]


_MAX_MOVES = 1_000  # each makes a directory before the answer


@DIRECTORY_ROUTES.endpoint(
    "POST /v1/partition-moves",
    "beginPartitionMoves",
    Access.ALTER_CLUSTER,
    "An entry a partition, in the order asked.",
    errors=(40002,),
)
def begin(
    request: web.Request, operations: Operations, wanted: PartitionMovesRequest
) -> PartitionMoveList:
    """Begin to move partitions to other log directories, while they serve.

    They are copied in the background, also after a restart. A refusal is its own entry. Another
    directory than before gives the former move up, the partition's own directory ends it.
    """
    if not 1 <= len(wanted.moves) <= _MAX_MOVES:
        raise ApiError(40002, f"Name 1 to {_MAX_MOVES} moves.")
    if len({(each.topic, each.partition) for each in wanted.moves}) < len(wanted.moves):
        raise ApiError(40002, "Name each partition once.")
    entries: list[PartitionMoveAnswer | FailedMove] = []
    for each in wanted.moves:
        try:
            status = operations.log_dirs.move(each.topic, each.partition, each.log_dir)
        except KafkalogError as error:
            entries.append(answer_of(FailedMove, each, error_of(error)))
        else:
            entries.append(_move(status))
    note_entries(request, entries)
    return PartitionMoveList(entries)


@DIRECTORY_ROUTES.endpoint(
    "GET /v1/partition-moves",
    "listPartitionMoves",
    Access.DESCRIBE_CLUSTER,
    "By topic and partition.",
)
def moves(_: web.Request, operations: Operations) -> PartitionMoveList:
    """Moves under way, and the last one of each partition that ended since the start."""
    return PartitionMoveList([_move(each) for each in operations.log_dirs.moves()])


@DIRECTORY_ROUTES.endpoint(
    "DELETE /v1/partition-moves/{topic}/{partition}",
    "cancelPartitionMove",
    Access.ALTER_CLUSTER,
    "The move that was given up.",
    errors=(40410, 50304),
)
def cancel(request: web.Request, operations: Operations) -> PartitionMoveAnswer:
    """Cancel a move: the copy is deleted, the partition stays in its directory."""
    return _move(operations.log_dirs.cancel_move(topic_of(request), partition_of(request)))


def _move(status: MoveStatus) -> PartitionMoveAnswer:
    return answer_of(PartitionMoveAnswer, status.topic_partition, status)
