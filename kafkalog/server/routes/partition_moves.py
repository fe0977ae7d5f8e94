"""Moves of partitions between log directories: Kafka's alterReplicaLogDirs over HTTP.

``POST /v1/partition-moves`` begins, ``GET`` shows, ``DELETE /v1/partition-moves/{topic}/{p}`` gives
one up. All block on the topics lock or the disk: on the control pool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from kafkalog.errors import KafkalogError
from kafkalog.server.answers import PartitionMoveAnswer, PartitionMoveList
from kafkalog.server.api import api_of
from kafkalog.server.endpoint import Access, Action, Answer, Resource, endpoint
from kafkalog.server.error_map import ApiError, error_body
from kafkalog.server.in_flight import Body
from kafkalog.server.media_types import JSON
from kafkalog.server.parameters import partition_of, topic_of
from kafkalog.server.replies import json_reply
from kafkalog.server.schemas import PartitionMovesRequest, parse_body
from kafkalog.server.security.audit import note_entries

if TYPE_CHECKING:
    from kafkalog.manager.operations import Operations
    from kafkalog.manager.values import MoveStatus

ROUTES = web.RouteTableDef()
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
    async with Body(request, api) as data:
        wanted = parse_body(PartitionMovesRequest, data)
    if not 1 <= len(wanted.moves) <= _MAX_MOVES:
        raise ApiError(40002, f"Name 1 to {_MAX_MOVES} moves.")
    if len({(each.topic, each.partition) for each in wanted.moves}) < len(wanted.moves):
        raise ApiError(40002, "Name each partition once.")
    return await api.blocking(_begin, request, api.operations, wanted)


def _begin(
    request: web.Request, operations: Operations, wanted: PartitionMovesRequest
) -> web.Response:
    entries: list[dict[str, object]] = []
    for each in wanted.moves:
        try:
            status = operations.log_dirs.move(each.topic, each.partition, each.log_dir)
        except KafkalogError as error:
            _, body = error_body(error)
            entries.append({"topic": each.topic, "partition": each.partition, **body})
        else:
            entries.append(_move_json(status))
    note_entries(request, entries)
    return json_reply({"moves": entries})


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
    return json_reply({"moves": [_move_json(status) for status in operations.log_dirs.moves()]})


@ROUTES.delete("/v1/partition-moves/{topic}/{partition}")
@endpoint(
    "cancelPartitionMove",
    "operation",
    Access(Action.ALTER, Resource.CLUSTER),
    {200: Answer("The move that was given up.", {JSON: PartitionMoveAnswer})},
    errors=(40410, 50304),
)
async def cancel(request: web.Request) -> web.Response:
    """Give a move up: the copy goes, the partition stays where it is."""
    api = api_of(request)
    topic, partition = topic_of(request), partition_of(request)
    return await api.blocking(_cancel, api.operations, topic, partition)


def _cancel(operations: Operations, topic: str, partition: int) -> web.Response:
    return json_reply(_move_json(operations.log_dirs.cancel_move(topic, partition)))


def _move_json(status: MoveStatus) -> dict[str, object]:
    return {
        "topic": status.topic_partition.topic,
        "partition": status.topic_partition.partition,
        "source": status.source,
        "target": status.target,
        "state": status.state.value,
        "reason": status.reason,
        "size_bytes": status.size_bytes,
        "copied_bytes": status.copied_bytes,
        "offset_lag": status.offset_lag,
        "started_ms": status.started_ms,
        "ended_ms": status.ended_ms,
    }
