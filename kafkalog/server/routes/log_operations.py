"""One log by hand: how it stands, roll, flush, dump of a segment (http-api.md N11, N12).

A dump is text a record: it runs as a process of its own, ``kafkalog segments dump``, and its output
passes through as fast as the client takes it.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE
from typing import TYPE_CHECKING

from aiohttp import hdrs, web

from kafkalog.format.offset_ranges import LostRange
from kafkalog.format.topic_names import TopicPartition
from kafkalog.server.answers_operation import (
    FlushAnswer,
    LogAnswer,
    LossesAnswer,
    RollAnswer,
)
from kafkalog.server.api import api_of
from kafkalog.server.endpoint import Access, Action, Answer, Resource, endpoint
from kafkalog.server.error_map import ApiError
from kafkalog.server.in_flight import Body
from kafkalog.server.media_types import JSON
from kafkalog.server.parameters import FlagParameter, base_offset_of, partition_of, topic_of
from kafkalog.server.replies import REQUEST_ID, json_reply, seal
from kafkalog.server.routes.cleaner import standing_json
from kafkalog.server.routes.operations import BEGUN, now_or_later
from kafkalog.server.schemas import LossToAccept, parse_body
from kafkalog.server.security.audit import note_subject

if TYPE_CHECKING:
    from asyncio.subprocess import Process

    from kafkalog.manager.log_maintenance import Losses
    from kafkalog.manager.operations import Operations

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
    standing = operations.cleaning.look(key.topic, key.partition)
    cleaning = None if standing is None else standing_json(standing)
    return json_reply({**_head(key), **described._asdict(), "cleaning": cleaning})


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

    def work() -> dict[str, object]:
        return {**_head(key), **operations.roll(key.topic, key.partition)._asdict()}

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

    def work() -> dict[str, object]:
        recovery_point = operations.flush(key.topic, key.partition)
        return {**_head(key), "recovery_point": recovery_point}

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
    async with Body(request, api) as data:
        wanted = parse_body(LossToAccept, data)
    lost = LostRange(wanted.first_offset, wanted.last_offset)
    note_subject(request, **lost._asdict())
    return await api.blocking(_accept, api.operations, key, lost)


def _accept(operations: Operations, key: TopicPartition, lost: LostRange) -> web.Response:
    return _losses_reply(key, operations.accept_loss(key.topic, key.partition, lost))


def _losses_reply(key: TopicPartition, found: Losses) -> web.Response:
    ranges = {name: [each._asdict() for each in of] for name, of in found._asdict().items()}
    return json_reply({**_head(key), **ranges})


def _head(key: TopicPartition) -> dict[str, object]:
    return {"topic": key.topic, "partition": key.partition}


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
    seal(response, request[REQUEST_ID])
    await response.prepare(request)
    while chunk := await process.stdout.read(_CHUNK_BYTES):
        await response.write(chunk)
    await response.write_eof()
    return response
