"""Probes, metrics and the API's description.

``/livez`` touches nothing; ``/readyz`` says which checks fail. ``/openapi.json`` and ``.yaml`` are
made at the first request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from aiohttp import web

from kafkalog.broker.values import Loading, UncleanStart
from kafkalog.errors import NAMES_PATHS, UnusableLogDirs
from kafkalog.observe.exposition import Exposition
from kafkalog.observe.metrics_options import Question
from kafkalog.observe.partition_metrics import BrokerState
from kafkalog.server.api import Api, Phase, api_of
from kafkalog.server.protocol.endpoint import Access, Answer, Routes
from kafkalog.server.protocol.json_schema import AnswerBody
from kafkalog.server.protocol.media_types import JSON, exposition_of
from kafkalog.server.protocol.parameters import ListParameter, TopicsParameter
from kafkalog.server.protocol.replies import bytes_reply, json_reply

if TYPE_CHECKING:
    from collections.abc import Callable


ROUTES = Routes("probes")
_FAMILY = ListParameter(
    "family", "Only families whose names begin so, with commas between them, or one each."
)
_TOPIC = TopicsParameter("topic", "Only series of these topics; those without a topic stay out.")


class Status(AnswerBody):
    """The event loop turns."""

    status: Literal["ok"]


class LogDirFault(AnswerBody):
    """The fault of a log directory. Null: hidden without the right to see paths."""

    log_dir: str | None
    state: Literal["offline", "full", "failing", "low"]
    reason: str | None


class Readiness(AnswerBody, kw_only=True):
    """What a probe may look at. ``unclean_start``: what one of the last day had to recover."""

    status: Literal["ready", "not ready"]
    checks: dict[str, bool]
    online_log_dirs: int
    offline_log_dirs: int
    partitions: int
    offline_partitions: int
    full_log_dirs: int
    log_dir_faults: list[LogDirFault]
    loading: Loading | None = None
    unclean_start: UncleanStart | None = None
    start_refused: str | None = None


@ROUTES.endpoint("GET /livez", "live", Access.OPEN, "It runs.")
async def live(_: web.Request) -> Status:
    """200 while the event loop runs."""
    return Status("ok")


@ROUTES.endpoint(
    "GET /startupz",
    "ready",
    Access.OPEN,
    {200: Answer("Ready.", Readiness), 503: Answer("Not ready: the checks say why", Readiness)},
    aliases=("/status/ready", "/_health", "/healthz", "/readyz"),
)
async def ready(request: web.Request) -> web.Response:
    """200 when the logs are loaded, a directory is online and no stop is under way; else 503.

    A full disk takes no readiness: reads and deletions go on.
    """
    is_ready, body = readiness(api_of(request))
    headers = None if is_ready else {"Retry-After": "1"}
    return json_reply(body, status=200 if is_ready else 503, headers=headers)


@ROUTES.endpoint(
    "GET /ready",
    "readyAsBridge",
    Access.OPEN,
    {204: Answer("Ready."), 503: Answer("Not ready: the checks say why", Readiness)},
    aliases=("/healthy",),
)
async def ready_as_bridge(request: web.Request) -> web.Response:
    """As the Bridge's probes: 204 when ready, else as /readyz."""
    answer = await ready(request)
    return web.Response(status=204) if answer.status == 200 else answer


def readiness(api: Api) -> tuple[bool, Readiness]:
    """Whether the daemon is ready, and the answer to a probe."""
    status = api.operations.readiness()
    checks = {
        "logs_loaded": api.state.phase is not Phase.STARTING and status.is_loaded,
        "log_dir_online": status.online_dirs > 0,
        "not_stopping": not api.stopping,
    }
    is_ready = all(checks.values())
    start_refused, loading = api.state.start_refusal, None
    if start_refused is None and not status.is_loaded:
        loading = api.operations.loading()
    names_paths = NAMES_PATHS.get()
    if start_refused is not None and not names_paths:
        start_refused = UnusableLogDirs.without_paths
    return is_ready, Readiness(
        status="ready" if is_ready else "not ready",
        checks=checks,
        online_log_dirs=status.online_dirs,
        offline_log_dirs=status.offline_dirs,
        partitions=status.partitions,
        offline_partitions=status.offline_partitions,
        full_log_dirs=status.full_dirs,
        log_dir_faults=[
            LogDirFault(
                each.log_dir if names_paths else None,
                each.state,
                each.reason if names_paths else None,
            )
            for each in status.faults
        ],
        loading=loading,
        unclean_start=api.operations.unclean_start(),
        start_refused=start_refused,
    )


@ROUTES.endpoint(
    "GET /metrics",
    "metrics",
    Access.DESCRIBE_CLUSTER,
    Answer("The metrics.", {each.value: {"type": "string"} for each in Exposition}, ("Vary",)),
    parameters=(_FAMILY, _TOPIC),
)
async def metrics(request: web.Request) -> web.Response:
    """Prometheus text, or OpenMetrics where Accept prefers it; never touches the disk."""
    api = api_of(request)
    exposition = exposition_of(request.headers.get("Accept", ""))
    question = Question(exposition, _FAMILY.read(request), _TOPIC.read(request))
    body = await metrics_text(api, question)
    return bytes_reply(body, content_type=exposition.value, headers={"Vary": "Accept"})


async def metrics_text(api: Api, question: Question) -> bytes:
    """A page of metrics; the event loop runs other work meanwhile."""
    snapshot, state = api.operations.metrics_snapshot(), _state_of(api)
    return await api.metrics_page.render(snapshot, state, question)


def _state_of(api: Api) -> BrokerState:
    """The phase in Kafka's words; a start that has nothing to recover is none of recovery."""
    if api.state.phase is Phase.STOPPING:
        return BrokerState.SHUTTING_DOWN
    if api.state.phase is Phase.SERVING:
        return BrokerState.RUNNING
    is_recovering = api.operations.loading().bytes_to_recover > 0
    return BrokerState.RECOVERY if is_recovering else BrokerState.STARTING


# Makes the document at the first request: few clients need it.
DESCRIPTION: web.AppKey[Callable[[], bytes]] = web.AppKey("description")

_YAML = "application/yaml"


@ROUTES.endpoint(
    "GET /openapi/v3",
    "openapi",
    Access.OPEN,
    Answer("OpenAPI 3.1.", {JSON: {"type": "object"}}),
    tag="description",
    aliases=("/openapi", "/openapi.json"),
)
async def openapi(request: web.Request) -> web.Response:
    """The API's own description."""
    return bytes_reply(request.app[DESCRIPTION](), content_type=JSON)


@ROUTES.endpoint(
    "GET /openapi.yaml",
    "openapiYaml",
    Access.OPEN,
    Answer("OpenAPI 3.1.", {_YAML: {"type": "object"}}),
    tag="description",
)
async def openapi_yaml(request: web.Request) -> web.Response:
    """The same as YAML: every JSON text is YAML 1.2."""
    return bytes_reply(request.app[DESCRIPTION](), content_type=_YAML)
