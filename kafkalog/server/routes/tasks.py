"""``GET /v1/tasks``: what the background tasks do and did, for operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from kafkalog.server.answers_operation import TasksAnswer
from kafkalog.server.api import api_of
from kafkalog.server.endpoint import Access, Action, Answer, Resource, endpoint
from kafkalog.server.media_types import JSON
from kafkalog.server.replies import json_reply

if TYPE_CHECKING:
    from kafkalog.env.scheduler import TaskStatus
    from kafkalog.manager.operations import Operations

ROUTES = web.RouteTableDef()


def _known(value: int) -> int | None:
    """-1 stands for none; JSON has null for it."""
    return None if value < 0 else value


def _task_json(task: TaskStatus) -> dict[str, object]:
    return {
        "name": task.name,
        "state": task.state.value,
        "initial_delay_ms": task.initial_delay_ms,
        "period_ms": _known(task.period_ms),
        "next_run_ms": _known(task.next_run_ms),
        "last_run_ms": _known(task.last_run_ms),
        "last_duration_ms": _known(task.last_duration_ms),
        "last_success_ms": _known(task.last_success_ms),
        "last_failure_ms": _known(task.last_failure_ms),
        "last_error": task.last_error,
        "waiting": task.waiting,
        "running": task.running,
        "runs": task.runs,
        "failures": task.failures,
    }


@ROUTES.get("/v1/tasks")
@endpoint(
    "listTasks",
    "operation",
    Access(Action.DESCRIBE, Resource.CLUSTER),
    {200: Answer("By name.", {JSON: TasksAnswer})},
)
async def tasks(request: web.Request) -> web.Response:
    """What the background tasks do and did; one-shots of a name are counted together."""
    return json_reply(tasks_document(api_of(request).operations))


def tasks_document(operations: Operations) -> dict[str, object]:
    """The answer, for the bundle too."""
    entries = [_task_json(task) for task in operations.tasks()]
    return {"now_ms": operations.now_ms(), "tasks": entries}
