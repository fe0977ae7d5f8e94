"""Operations that outlast a request, backups, and the background tasks of the daemon.

With ``Prefer: respond-async`` a request begins an operation and gets 202; ``/v1/operations`` has
its progress and result. ``GET /v1/tasks`` has the state of the background tasks.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from kafkalog.broker.background import OperationKind, OperationState
from kafkalog.env.scheduler import TaskState
from kafkalog.server.api import Api, api_of
from kafkalog.server.protocol.endpoint import Access, Answer, Link, Routes
from kafkalog.server.protocol.errors import ApiError, EntryError, error_of
from kafkalog.server.protocol.json_schema import AnswerBody, answer_of
from kafkalog.server.protocol.parameters import partition_of, topic_of
from kafkalog.server.protocol.replies import json_reply
from kafkalog.server.protocol.schemas import BackupRequest
from kafkalog.server.security.audit import note_subject

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.broker.background import BackgroundOperation
    from kafkalog.broker.operations import Operations
    from kafkalog.env.scheduler import TaskStatus


ROUTES = Routes("operation")


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


BEGUN = Answer(
    "It has begun: with Prefer: respond-async; see Location.",
    OperationAnswer,
    ("Location",),
    (Link("describeOperation", {"operation_id": "$response.body#/id"}),),
)


@ROUTES.endpoint("GET /v1/operations", "listOperations", Access.DESCRIBE_CLUSTER, "All known.")
async def operations(request: web.Request) -> OperationsAnswer:
    """What runs in the background, and the latest that ended. Forgotten at a restart."""
    known = api_of(request).operations.background_operations()
    return OperationsAnswer([_operation(each) for each in known])


@ROUTES.endpoint(
    "GET /v1/operations/{operation_id}",
    "describeOperation",
    Access.DESCRIBE_CLUSTER,
    "As far as it has come.",
    errors=(404,),
)
async def describe(request: web.Request) -> OperationAnswer:
    """State, progress and result. Forgotten when the daemon restarts."""
    operation_id = request.match_info["operation_id"]
    operation = api_of(request).operations.background_operation(operation_id)
    if operation is None:
        raise ApiError(404, "No such operation: it is forgotten, or the daemon was restarted.")
    return _operation(operation)


def begun(operation: BackgroundOperation, *, is_preferred: bool = True) -> web.Response:
    """202 with the operation and its address; ``is_preferred``: a request with ``Prefer``."""
    headers = {"Location": f"/v1/operations/{operation.operation_id}"}
    if is_preferred:
        headers["Preference-Applied"] = "respond-async"
    return json_reply(_operation(operation), status=202, headers=headers)


async def now_or_later(
    request: web.Request, kind: OperationKind, work: Callable[[], AnswerBody]
) -> web.Response:
    """The answer that ``work`` makes off the loop; with ``Prefer: respond-async`` 202 at once.

    Then the same answer is the operation's result. A partition in the path that is unknown or not
    served is refused before anything is begun.
    """
    api: Api = api_of(request)
    if not prefers_async(request):
        return await api.blocking(lambda: json_reply(work()))
    details = {}
    if "partition" in request.match_info:
        topic, partition = topic_of(request), partition_of(request)
        api.operations.partition_log(topic, partition)
        details["partition"] = f"{topic}-{partition}"
    return begun(api.operations.in_background(kind, details, lambda: as_result(work())))


def as_result(answer: AnswerBody) -> dict[str, object]:
    """An answer as the result of an operation."""
    result: dict[str, object] = msgspec.to_builtins(answer)
    return result


def prefers_async(request: web.Request) -> bool:
    """Whether a Prefer header (RFC 7240; there may be several) asks for it."""
    preferences = ",".join(request.headers.getall("Prefer", [])).split(",")
    return any(each.partition(";")[0].strip().lower() == "respond-async" for each in preferences)


def _operation(operation: BackgroundOperation) -> OperationAnswer:
    state, error = operation.state, operation.error  # the state is written last
    return answer_of(
        OperationAnswer,
        operation,
        id=operation.operation_id,
        state=state,
        ended_ms=None if operation.ended_ms < 0 else operation.ended_ms,
        result=operation.result or None,
        error=error and error_of(error),
    )


@ROUTES.endpoint(
    "POST /v1/backups",
    "beginBackup",
    Access.OPERATE_CLUSTER,
    {202: BEGUN},
    errors=(40002, 40401, 40909, 50010, 50011, 50302, 50303, 50701),
)
async def begin(request: web.Request, wanted: BackupRequest) -> web.Response:
    """Begin a backup into a directory of the daemon's machine: 202 with the operation.

    Refused before anything is written: a directory that is not empty, relative, or in a log
    directory (400), a backup that runs already (409), too little room (507).
    """
    api = api_of(request)
    for topic in wanted.topics or (None,):
        note_subject(request, directory=wanted.directory, topic=topic)
    if wanted.topics is not None and not wanted.topics:
        raise ApiError(40002, "Name topics, or leave them out for all.")
    operation = await api.blocking(
        api.operations.begin_backup, wanted.directory, wanted.topics or (), may_link=wanted.link
    )
    return begun(operation, is_preferred=False)


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


@ROUTES.endpoint("GET /v1/tasks", "listTasks", Access.DESCRIBE_CLUSTER, "By name.")
async def tasks(request: web.Request) -> TasksAnswer:
    """What the background tasks do and did; one-shots of a name are counted together."""
    return tasks_answer(api_of(request).operations)


def tasks_answer(operations: Operations) -> TasksAnswer:
    """The answer, for the bundle too."""
    return TasksAnswer(operations.now_ms(), [_task(each) for each in operations.tasks()])


def _task(task: TaskStatus) -> TaskAnswer:
    known = {name: None if value == -1 else value for name, value in asdict(task).items()}
    return answer_of(TaskAnswer, **known)
