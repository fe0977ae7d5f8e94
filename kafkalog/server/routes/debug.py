"""``/debug/``: a look into the process, for whoever operates it (operations.md 6.2).

Behind ``admin.port``; without one for this machine alone, whatever the access rules say: what is
shown here is no client's. Answered also while the daemon starts and stops.
"""

from __future__ import annotations

import asyncio

import msgspec
from aiohttp import hdrs, web
from yarl import URL

from kafkalog.errors import ClusterAccessDenied
from kafkalog.observe.logging import log_levels, set_log_level
from kafkalog.observe.metrics_options import Question
from kafkalog.observe.stacks import thread_stacks
from kafkalog.server.answers_debug import InsideConfig, InsideTasks, LogLevels, MetricsCardinality
from kafkalog.server.api import Api, api_of
from kafkalog.server.endpoint import Access, Action, Answer, Resource, endpoint
from kafkalog.server.error_map import ApiError
from kafkalog.server.in_flight import Body
from kafkalog.server.inside import (
    bundle,
    inside_config,
    inside_tasks,
    metrics_cardinality,
    process_facts,
)
from kafkalog.server.media_types import JSON
from kafkalog.server.replies import bytes_reply, json_reply
from kafkalog.server.routes.probes import metrics_text, readiness
from kafkalog.server.routes.tasks import tasks_document
from kafkalog.server.schemas import LogLevelRequest, parse_body
from kafkalog.server.security.audit import note_subject
from kafkalog.settings.server_config import is_loopback

ROUTES = web.RouteTableDef()
LOOK = web.AppKey("look", asyncio.Lock)
_OPERATE = Access(Action.CLUSTER, Resource.CLUSTER)
_TEXT_TYPE = "text/plain; charset=utf-8"
_BUNDLE_TYPE = "application/gzip"
# Who sends a name that begins so speaks for somebody else, whose address is not the connection's.
_FORWARDED = ("forwarded", "via", "x-forwarded-", "x-real-", "x-envoy-", "x-client-", "x-cluster-")


def _inside(request: web.Request) -> Api:
    """The graph, for those who may look inside; ClusterAccessDenied."""
    api = api_of(request)
    if api.config.admin_port is None and not _is_from_here(request):
        raise ClusterAccessDenied(
            "Without admin.port, /debug/ answers this machine alone: connect to it from there, "
            "without a proxy."
        )
    api.operations.look_inside()
    return api


def _is_from_here(request: web.Request) -> bool:
    """Whether the connection's other end, and the name it was asked for by, are this machine's.

    The name, because a page in a browser on this machine may have any other one lead here. Where
    proxies are named, connections from this machine are theirs. One that forwards on layer 4, or
    with its own ``Host`` and no header, cannot be told from a user of this machine.
    """
    if api_of(request).config.http_trusted_proxies:
        return False
    peer = request.transport.get_extra_info("peername") if request.transport is not None else None
    if not isinstance(peer, tuple) or not is_loopback(str(peer[0])):
        return False
    # The header and the name in the request line, which may be whole and then goes before it.
    try:
        named = URL.build(authority=request.headers.get(hdrs.HOST, "")).host
    except ValueError:
        return False
    if not (is_loopback(named or "") and is_loopback(request.url.host or "")):
        return False
    return not any(name.lower().startswith(_FORWARDED) for name in request.headers)


def _alone(request: web.Request) -> asyncio.Lock:
    """For what takes a whole page of metrics into memory: one at a time. ApiError 42902."""
    look = request.app[LOOK]
    if look.locked():
        raise ApiError(42902, "Another bundle or count of samples is being made. Try again.")
    return look


@ROUTES.get("/debug/stacks")
@endpoint(
    "debugStacks", "debug", _OPERATE, {200: Answer("Stacks.", {_TEXT_TYPE: {"type": "string"}})}
)
async def stacks(request: web.Request) -> web.Response:
    """The stack of every thread, as text; SIGUSR1 writes them to stderr when this hangs."""
    _inside(request)
    return bytes_reply(thread_stacks().encode(), content_type=_TEXT_TYPE)


@ROUTES.get("/debug/tasks")
@endpoint("debugTasks", "debug", _OPERATE, {200: Answer("By name.", {JSON: InsideTasks})})
async def tasks(request: web.Request) -> web.Response:
    """Coroutines of the event loop with the lines they wait at, and threads."""
    _inside(request)
    return json_reply(inside_tasks())


@ROUTES.get("/debug/config")
@endpoint("debugConfig", "debug", _OPERATE, {200: Answer("By name.", {JSON: InsideConfig})})
async def config(request: web.Request) -> web.Response:
    """What the start resolved: every key with its value, source, and the variable or file.

    Values that came by a ``..._FILE`` variable are ``***``. ``/v1/configs`` has what changed since.
    """
    return json_reply(inside_config(_inside(request).settings))


@ROUTES.get("/debug/log-level")
@endpoint("debugLogLevels", "debug", _OPERATE, {200: Answer("Levels.", {JSON: LogLevels})})
async def levels(request: web.Request) -> web.Response:
    """The level of log lines, and of the loggers that have one of their own."""
    _inside(request)
    return _levels_reply()


@ROUTES.put("/debug/log-level")
@endpoint(
    "setDebugLogLevel",
    "debug",
    _OPERATE,
    {200: Answer("Levels.", {JSON: LogLevels})},
    body={JSON: LogLevelRequest},
    errors=(404,),
)
async def set_level(request: web.Request) -> web.Response:
    """Change the level of all lines, or of one logger, until the daemon ends.

    Level null: that of ``log.level``, or of a logger that of the one above it. Lines of the audit
    are printed at every level.
    """
    api = _inside(request)
    async with Body(request, api) as data:
        wanted = parse_body(LogLevelRequest, data)
    note_subject(request, logger=wanted.logger, level=wanted.level)
    level = wanted.level if wanted.level or wanted.logger else api.config.log_level
    if not set_log_level(wanted.logger, level):
        raise ApiError(404, "No logger of that name has written or been asked for yet.")
    return _levels_reply()


def _levels_reply() -> web.Response:
    found = log_levels()
    return json_reply({"level": found.pop(""), "loggers": found})


@ROUTES.get("/debug/metrics-cardinality")
@endpoint(
    "debugMetricsCardinality",
    "debug",
    _OPERATE,
    {200: Answer("Largest first.", {JSON: MetricsCardinality})},
)
async def cardinality(request: web.Request) -> web.Response:
    """How many samples a scrape has, by family and label."""
    api = _inside(request)
    async with _alone(request):
        page = await metrics_text(api, Question())
        return json_reply(await metrics_cardinality(page))


@ROUTES.get("/debug/bundle")
@endpoint(
    "debugBundle",
    "debug",
    _OPERATE,
    {
        200: Answer(
            "tar.gz",
            {_BUNDLE_TYPE: {"type": "string", "format": "binary"}},
            headers=("Content-Disposition",),
        )
    },
)
async def debug_bundle(request: web.Request) -> web.Response:
    """All of it as one file for a report: stacks, tasks, configuration, readiness, metrics.

    Names of topics, groups and directories are in it; records, credentials and values of secrets
    are not.
    """
    api = _inside(request)
    moment_s = api.operations.now_ms() // 1000
    name = f"kafkalog-{api.operations.node_id}-{moment_s}"
    async with _alone(request):
        page = await metrics_text(api, Question())
        sizes = msgspec.json.encode(await metrics_cardinality(page))
        parts = {**_parts(api), "metrics.txt": page, "cardinality.json": sizes}
        packed = await api.inside(_packed, name, parts, moment_s)
    disposition = f'attachment; filename="{name}.tar.gz"'
    return bytes_reply(
        packed, content_type=_BUNDLE_TYPE, headers={hdrs.CONTENT_DISPOSITION: disposition}
    )


def _parts(api: Api) -> dict[str, bytes]:
    """Of the bundle: what the event loop knows."""
    documents = {
        "tasks.json": inside_tasks(),
        "scheduler.json": tasks_document(api.operations),
        "config.json": inside_config(api.settings),
        "log-levels.json": log_levels(),
        "readiness.json": readiness(api)[1],
    }
    parts = {name: msgspec.json.encode(document) for name, document in documents.items()}
    return {**parts, "stacks.txt": thread_stacks().encode()}


def _packed(name: str, parts: dict[str, bytes], moment_s: int) -> bytes:
    """The bundle, with what the system says of the process. Blocks."""
    facts = {each: text.encode() for each, text in process_facts().items()}
    return bundle(name, {**parts, **facts}, moment_s)
