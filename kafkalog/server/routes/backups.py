"""Backups over HTTP, and the operations that outlast a request: begin one, look how far it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from kafkalog.server.answers import OperationAnswer
from kafkalog.server.api import api_of
from kafkalog.server.endpoint import Access, Action, Answer, Link, Resource, endpoint
from kafkalog.server.error_map import ApiError, error_body
from kafkalog.server.in_flight import Body
from kafkalog.server.media_types import JSON
from kafkalog.server.replies import json_reply
from kafkalog.server.schemas import BackupRequest, parse_body

if TYPE_CHECKING:
    from kafkalog.manager.background_operations import BackgroundOperation

ROUTES = web.RouteTableDef()
_LOOK = (Link("describeOperation", {"operation_id": "$response.body#/id"}),)
_ACCESS = Access(Action.CLUSTER, Resource.CLUSTER)


@ROUTES.post("/v1/backups")
@endpoint(
    "beginBackup",
    "operation",
    _ACCESS,
    {202: Answer("It has begun; see Location.", {JSON: OperationAnswer}, ("Location",), _LOOK)},
    body={JSON: BackupRequest},
    errors=(40002, 40401, 40909, 50010, 50011, 50302, 50303, 50701),
)
async def begin(request: web.Request) -> web.Response:
    """Begin a backup into a directory of the daemon's machine: 202 with the operation.

    Refused before anything is written: a directory that is not empty, relative, or in a log
    directory (400), a backup that runs already (409), too little room (507).
    """
    api = api_of(request)
    async with Body(request, api) as data:
        wanted = parse_body(BackupRequest, data)
    if wanted.topics is not None and not wanted.topics:
        raise ApiError(40002, "Name topics, or leave them out for all.")
    operation = await api.blocking(
        api.operations.begin_backup, wanted.directory, wanted.topics or (), may_link=wanted.link
    )
    location = f"/v1/operations/{operation.operation_id}"
    return json_reply(_operation_json(operation), status=202, headers={"Location": location})


@ROUTES.get("/v1/operations/{operation_id}")
@endpoint(
    "describeOperation",
    "operation",
    _ACCESS,
    {200: Answer("As far as it has come.", {JSON: OperationAnswer})},
    errors=(404,),
)
async def describe(request: web.Request) -> web.Response:
    """State, progress, and what came of it. Forgotten when the daemon restarts."""
    operation_id = request.match_info["operation_id"]
    operation = api_of(request).operations.background_operation(operation_id)
    if operation is None:
        raise ApiError(404, "No such operation: it is forgotten, or the daemon was restarted.")
    return json_reply(_operation_json(operation))


def _operation_json(operation: BackgroundOperation) -> dict[str, object]:
    state, error = operation.state, operation.error  # the state is written last
    return {
        "id": operation.operation_id,
        "kind": operation.kind,
        "details": operation.details,
        "state": state.value,
        "started_ms": operation.started_ms,
        "ended_ms": None if operation.ended_ms < 0 else operation.ended_ms,
        "progress": operation.progress,
        "result": operation.result or None,
        "error": None if error is None else error_body(error)[1],
    }
