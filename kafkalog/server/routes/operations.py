"""Operations that outlast a request: ``Prefer: respond-async`` begins one; how far it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from kafkalog.server.answers import OperationAnswer, OperationsAnswer
from kafkalog.server.api import Api, api_of
from kafkalog.server.endpoint import Access, Action, Answer, Link, Resource, endpoint
from kafkalog.server.error_map import ApiError, error_body
from kafkalog.server.media_types import JSON
from kafkalog.server.replies import json_reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.format.topic_names import TopicPartition
    from kafkalog.manager.background_operations import BackgroundOperation

ROUTES = web.RouteTableDef()
BEGUN = Answer(
    "It has begun: with Prefer: respond-async; see Location.",
    {JSON: OperationAnswer},
    ("Location",),
    (Link("describeOperation", {"operation_id": "$response.body#/id"}),),
)
_LOOK = Access(Action.DESCRIBE, Resource.CLUSTER)


@ROUTES.get("/v1/operations")
@endpoint(
    "listOperations", "operation", _LOOK, {200: Answer("All known.", {JSON: OperationsAnswer})}
)
async def operations(request: web.Request) -> web.Response:
    """What runs in the background, and the latest that ended. Forgotten at a restart."""
    known = api_of(request).operations.background_operations()
    return json_reply({"operations": [_operation_json(each) for each in known]})


@ROUTES.get("/v1/operations/{operation_id}")
@endpoint(
    "describeOperation",
    "operation",
    _LOOK,
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


def begun(operation: BackgroundOperation) -> web.Response:
    """202 with the operation and where to look."""
    headers = {"Location": f"/v1/operations/{operation.operation_id}"}
    return json_reply(_operation_json(operation), status=202, headers=headers)


async def now_or_later(
    request: web.Request,
    kind: str,
    key: TopicPartition | None,
    work: Callable[[], dict[str, object]],
) -> web.Response:
    """The answer that ``work`` makes off the loop; with ``Prefer: respond-async`` 202 at once.

    Then the same answer is the operation's result. A partition that is unknown or not served is
    refused before anything is begun.
    """
    api: Api = api_of(request)
    if not prefers_async(request):
        return await api.blocking(lambda: json_reply(work()))
    details = {}
    if key is not None:
        api.operations.partition_log(key.topic, key.partition)
        details["partition"] = str(key)
    return begun_async(api.operations.in_background(kind, details, work))


def begun_async(operation: BackgroundOperation) -> web.Response:
    """The same to who asked for it with ``Prefer``."""
    response = begun(operation)
    response.headers["Preference-Applied"] = "respond-async"
    return response


def prefers_async(request: web.Request) -> bool:
    """Whether a Prefer header (RFC 7240; there may be several) asks for it."""
    preferences = ",".join(request.headers.getall("Prefer", [])).split(",")
    return any(each.partition(";")[0].strip().lower() == "respond-async" for each in preferences)


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
