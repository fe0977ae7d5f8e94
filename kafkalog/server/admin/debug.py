"""``/debug/``: diagnostics of the process for operators.

The routes are on ``admin.port``; without one they answer this machine only, whatever the access
rules say. They answer also while the daemon starts and stops. They show stacks, coroutines,
threads, configuration and metrics, and all of it in one file. They read memory and ``/proc``, never
a log directory; secrets are hidden where the settings are shown (``ResolvedValue``).
"""

from __future__ import annotations

import asyncio
import io
import platform
import re
import tarfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import hdrs, web
from yarl import URL

from kafkalog import __version__
from kafkalog.errors import ClusterAccessDenied
from kafkalog.observe.logging import log_levels, set_log_level
from kafkalog.observe.metrics_options import Question
from kafkalog.observe.stacks import thread_stacks
from kafkalog.server.admin.operations import tasks_answer
from kafkalog.server.admin.probes import metrics_text, readiness
from kafkalog.server.api import Api, api_of
from kafkalog.server.protocol.endpoint import Access, Answer, Routes
from kafkalog.server.protocol.errors import ApiError
from kafkalog.server.protocol.json_schema import AnswerBody
from kafkalog.server.protocol.replies import bytes_reply
from kafkalog.server.protocol.schemas import LogLevelRequest, read_body
from kafkalog.server.security.audit import note_subject
from kafkalog.settings.server_config import is_loopback
from kafkalog.settings.settings import Source

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.settings import Settings


_SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>.*)\})? ")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
# Of this process; what a report of a fault is judged by.
_PROC_FILES = ("status", "limits", "mountinfo")
_GZIP_LEVEL = 6
_SLICE = 100  # lines of the metrics page between two yields to the loop: less than a millisecond


class LoopTask(AnswerBody):
    """One coroutine that the event loop runs: where it waits, outermost call first."""

    name: str
    coroutine: str
    waits_at: list[str]


class ThreadAnswer(AnswerBody):
    """One thread; ``native_id`` is what the system's tools call it."""

    name: str
    native_id: int | None
    is_daemon: bool


class InsideTasks(AnswerBody):
    """What runs in the process now; ``/v1/tasks`` has what the scheduler runs in its threads."""

    loop: list[LoopTask]
    threads: list[ThreadAnswer]


class GivenConfig(AnswerBody):
    """One key as it was resolved at the start; ``origin`` is the variable or file."""

    name: str
    value: str | None
    source: Source
    origin: str


class InsideConfig(AnswerBody):
    """Every key, and what the start had to say about the others."""

    configs: list[GivenConfig]
    notices: list[str]


class LogLevels(AnswerBody):
    """``level`` applies to every logger without its own."""

    level: str
    loggers: dict[str, str]


class FamilySize(AnswerBody):
    """One metric family: its samples, and how many values each label has."""

    name: str
    samples: int
    labels: dict[str, int]


class MetricsCardinality(AnswerBody):
    """The largest family first."""

    samples: int
    families: list[FamilySize]


def running_tasks() -> InsideTasks:
    """Coroutines and threads. On the event loop."""
    tasks = sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
    return InsideTasks(
        [_loop_task(task.get_name(), task.get_coro()) for task in tasks],
        [ThreadAnswer(one.name, one.native_id, one.daemon) for one in threading.enumerate()],
    )


def _loop_task(name: str, outermost: Any) -> LoopTask:  # noqa: ANN401 - coroutine, generator or other awaitable
    """Its coroutine, and the lines at which that and those it awaits wait."""
    lines: list[str] = []
    inner = outermost
    while inner is not None:
        frame = getattr(inner, "cr_frame", None) or getattr(inner, "gi_frame", None)
        if frame is None:
            break
        place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        lines.append(f"{place} {frame.f_code.co_qualname}")
        inner = getattr(inner, "cr_await", None) or getattr(inner, "gi_yieldfrom", None)
    return LoopTask(name, getattr(outermost, "__qualname__", repr(outermost)), lines)


def resolved_config(settings: Settings) -> InsideConfig:
    """Every listed key with its value, or ``***``, and who gave it."""
    configs = [
        GivenConfig(key, one.shown_text, one.source, one.origin)
        for key, one in sorted(settings.values.items())
        if not one.setting.internal
    ]
    return InsideConfig(configs, [notice.message for notice in settings.notices])


async def metrics_cardinality(page: bytes) -> MetricsCardinality:
    """Samples and label values of every family of a page in the Prometheus text format.

    On the event loop, which runs other work after each ``_SLICE`` lines: a Python thread would
    take the interpreter from it as well, and for longer.
    """
    family = ""
    samples: dict[str, int] = {}
    labels: dict[str, dict[str, set[str]]] = {}
    for number, text in enumerate(io.BytesIO(page)):
        if number % _SLICE == 0:
            await asyncio.sleep(0)
        line = text.decode()
        if line.startswith("# TYPE "):
            family = line.split(" ")[2]
            samples.setdefault(family, 0)
        found = None if line.startswith("#") else _SAMPLE.match(line)
        if found is None:
            continue
        samples[family] = samples.get(family, 0) + 1
        for label, value in _LABEL.findall(found["labels"] or ""):
            labels.setdefault(family, {}).setdefault(label, set()).add(value)
    families = [
        FamilySize(
            name, count, {label: len(values) for label, values in labels.get(name, {}).items()}
        )
        for name, count in sorted(samples.items(), key=lambda item: (-item[1], item[0]))
    ]
    return MetricsCardinality(sum(samples.values()), families)


def _packed(name: str, parts: Mapping[str, bytes], moment_s: int) -> bytes:
    """A tar.gz with the parts as files of one directory, and facts about this process. Blocks."""
    version = f"kafkalog {__version__}\nPython {platform.python_version()}\n{platform.platform()}\n"
    facts = {f"proc-{name}.txt": Path("/proc/self", name).read_bytes() for name in _PROC_FILES}
    parts, packed = {**parts, **facts, "version.txt": version.encode()}, io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=_GZIP_LEVEL) as archive:
        for part, data in sorted(parts.items()):
            entry = tarfile.TarInfo(f"{name}/{part}")
            entry.size, entry.mtime, entry.mode = len(data), moment_s, 0o640
            archive.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


ROUTES = Routes("debug", "/debug")
METRICS_PAGE_LOCK = web.AppKey("metrics_page_lock", asyncio.Lock)
_TEXT_TYPE = "text/plain; charset=utf-8"
_BUNDLE_TYPE = "application/gzip"
# A header whose name begins so is of a proxy: the address of the connection is not the client's.
_FORWARDED = ("forwarded", "via", "x-forwarded-", "x-real-", "x-envoy-", "x-client-", "x-cluster-")


def _diagnostics_of(request: web.Request) -> Api:
    """The Api, for a principal that may see diagnostics; ClusterAccessDenied."""
    api = api_of(request)
    if api.config.admin_port is None and not _is_from_here(request):
        raise ClusterAccessDenied(
            "Without admin.port, /debug/ answers this machine alone: connect to it from there, "
            "without a proxy."
        )
    api.operations.look_inside()
    return api


def _is_from_here(request: web.Request) -> bool:
    """Whether the peer and the requested host are this machine's.

    The name, because a page in a browser on this machine may have any other one lead here. Where
    proxies are named, connections from this machine are theirs. One that forwards on layer 4, or
    with its own ``Host`` and no header, cannot be told from a user of this machine.
    """
    if api_of(request).config.http_trusted_proxies:
        return False
    peer = request.transport.get_extra_info("peername") if request.transport is not None else None
    if not isinstance(peer, tuple) or not is_loopback(str(peer[0])):
        return False
    # The Host header, and the host in the request line, which overrides it when there is one.
    try:
        named = URL.build(authority=request.headers.get(hdrs.HOST, "")).host
    except ValueError:
        return False
    if not (is_loopback(named or "") and is_loopback(request.url.host or "")):
        return False
    return not any(name.lower().startswith(_FORWARDED) for name in request.headers)


def _alone(request: web.Request) -> asyncio.Lock:
    """For what takes a whole page of metrics into memory: one at a time. ApiError 42902."""
    lock = request.app[METRICS_PAGE_LOCK]
    if lock.locked():
        raise ApiError(42902, "Another bundle or count of samples is being made. Try again.")
    return lock


@ROUTES.endpoint(
    "GET /stacks",
    "debugStacks",
    Access.OPERATE_CLUSTER,
    Answer("Stacks.", {_TEXT_TYPE: {"type": "string"}}),
)
async def stacks(request: web.Request) -> web.Response:
    """The stack of every thread, as text; SIGUSR1 writes them to stderr when this hangs."""
    _diagnostics_of(request)
    return bytes_reply(thread_stacks().encode(), content_type=_TEXT_TYPE)


@ROUTES.endpoint("GET /tasks", "debugTasks", Access.OPERATE_CLUSTER, "By name.")
async def tasks(request: web.Request) -> InsideTasks:
    """Coroutines of the event loop with the lines they wait at, and threads."""
    _diagnostics_of(request)
    return running_tasks()


@ROUTES.endpoint("GET /config", "debugConfig", Access.OPERATE_CLUSTER, "By name.")
async def config(request: web.Request) -> InsideConfig:
    """What the start resolved: every key with its value, source, and the variable or file.

    Values that came by a ``..._FILE`` variable are ``***``. ``/v1/configs`` has what changed since.
    """
    return resolved_config(_diagnostics_of(request).settings)


@ROUTES.endpoint("GET /log-level", "debugLogLevels", Access.OPERATE_CLUSTER, "Levels.")
async def levels(request: web.Request) -> LogLevels:
    """The level of log lines, and of the loggers that have one of their own."""
    _diagnostics_of(request)
    return _levels()


@ROUTES.endpoint(
    "PUT /log-level",
    "setDebugLogLevel",
    Access.OPERATE_CLUSTER,
    "Levels.",
    body=LogLevelRequest,
    errors=(404,),
)
async def set_level(request: web.Request) -> LogLevels:
    """Change the level of all lines, or of one logger, until the daemon ends.

    Level null: that of ``log.level``, or of a logger that of the one above it. Lines of the audit
    are printed at every level.
    """
    api = _diagnostics_of(request)
    wanted = await read_body(LogLevelRequest, request, api)
    note_subject(request, logger=wanted.logger, level=wanted.level)
    level = wanted.level if wanted.level or wanted.logger else api.config.log_level
    if not set_log_level(wanted.logger, level):
        raise ApiError(404, "No logger of that name has written or been asked for yet.")
    return _levels()


def _levels() -> LogLevels:
    found = log_levels()
    return LogLevels(found.pop(""), found)


@ROUTES.endpoint(
    "GET /metrics-cardinality", "debugMetricsCardinality", Access.OPERATE_CLUSTER, "Largest first."
)
async def cardinality(request: web.Request) -> MetricsCardinality:
    """How many samples a scrape has, by family and label."""
    api = _diagnostics_of(request)
    async with _alone(request):
        page = await metrics_text(api, Question())
        return await metrics_cardinality(page)


@ROUTES.endpoint(
    "GET /bundle",
    "debugBundle",
    Access.OPERATE_CLUSTER,
    Answer(
        "tar.gz",
        {_BUNDLE_TYPE: {"type": "string", "format": "binary"}},
        headers=("Content-Disposition",),
    ),
)
async def debug_bundle(request: web.Request) -> web.Response:
    """All of it as one file for a report: stacks, tasks, configuration, readiness, metrics.

    Names of topics, groups and directories are in it; records, credentials and values of secrets
    are not.
    """
    api = _diagnostics_of(request)
    moment_s = api.operations.now_ms() // 1000
    name = f"kafkalog-{api.operations.node_id}-{moment_s}"
    async with _alone(request):
        page = await metrics_text(api, Question())
        sizes = msgspec.json.encode(await metrics_cardinality(page))
        parts = {**_parts(api), "metrics.txt": page, "cardinality.json": sizes}
        packed = await api.run_on_debug_pool(_packed, name, parts, moment_s)
    disposition = f'attachment; filename="{name}.tar.gz"'
    return bytes_reply(
        packed, content_type=_BUNDLE_TYPE, headers={hdrs.CONTENT_DISPOSITION: disposition}
    )


def _parts(api: Api) -> dict[str, bytes]:
    """The parts of the bundle that are made on the event loop."""
    documents = {
        "tasks.json": running_tasks(),
        "scheduler.json": tasks_answer(api.operations),
        "config.json": resolved_config(api.settings),
        "log-levels.json": log_levels(),
        "readiness.json": readiness(api)[1],
    }
    parts = {name: msgspec.json.encode(document) for name, document in documents.items()}
    return {**parts, "stacks.txt": thread_stacks().encode()}
