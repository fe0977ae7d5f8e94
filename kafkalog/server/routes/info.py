"""``GET /v1/info``, ``/v1/configs``: what runs here, and why it is set so (http-api.md N14)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from kafkalog import __version__
from kafkalog.server.answers_operation import ConfigsAnswer, InfoAnswer
from kafkalog.server.api import api_of
from kafkalog.server.endpoint import Access, Action, Answer, Resource, endpoint
from kafkalog.server.error_map import ApiError
from kafkalog.server.media_types import JSON
from kafkalog.server.parameters import TextParameter
from kafkalog.server.replies import json_reply

if TYPE_CHECKING:
    from kafkalog.manager.values import ConfigEntry

ROUTES = web.RouteTableDef()
_DESCRIBE = Access(Action.DESCRIBE, Resource.CLUSTER)
_EXPLAIN = TextParameter("explain", "Only the config of this name.")
_LIMITS = (
    "socket_request_max_bytes",
    "queued_max_request_bytes",
    "max_decompressed_batch_bytes",
    "max_connections",
    "http_max_inflight_requests",
    "http_max_streams",
    "http_max_records",
    "http_max_batch_entries",
    "http_max_wait_ms",
    "http_max_fetch_bytes",
)
# What a client may ask for that not every version has.
_FEATURES = (
    "acks",
    "backup",
    "delete-records",
    "expected-offset",
    "idempotent-produce",
    "kafka-rest-v2",
    "kafka-rest-v3",
    "list-offsets",
    "pages",
    "produce-streams",
    "raw-batches",
    "respond-async",
)


@ROUTES.get("/v1/info")
@endpoint("info", "operation", _DESCRIBE, {200: Answer("Who runs here.", {JSON: InfoAnswer})})
async def info(request: web.Request) -> web.Response:
    """Version, cluster, listeners, limits and features."""
    api = api_of(request)
    config = api.config
    return json_reply(
        {
            "name": "kafkalog",
            "version": __version__,
            "cluster_id": api.cluster_id,
            "node_id": api.operations.node_id,
            "phase": api.phase.value,
            "listeners": {"http": f"http://{config.http_host}:{config.http_port}"},
            "limits": {name.replace("_", "."): getattr(config, name) for name in _LIMITS},
            "features": list(_FEATURES),
        }
    )


@ROUTES.get("/v1/configs")
@endpoint(
    "explainConfigs",
    "operation",
    _DESCRIBE,
    {200: Answer("By name.", {JSON: ConfigsAnswer})},
    parameters=(_EXPLAIN,),
    errors=(404,),
)
async def configs(request: web.Request) -> web.Response:
    """The effective configs of the daemon, each with its chain of sources."""
    name = _EXPLAIN.read(request)
    entries = api_of(request).operations.describe_broker_configs()
    chosen = [_config_json(entry) for entry in entries if name in (None, entry.name)]
    if not chosen:
        raise ApiError(404, "No config of that name; GET /v1/configs lists them.")
    return json_reply({"configs": chosen})


def _config_json(entry: ConfigEntry) -> dict[str, object]:
    return {
        "name": entry.name,
        "value": entry.value,
        "source": entry.source,
        "is_default": entry.is_default,
        "is_read_only": entry.is_read_only,
        "synonyms": [
            {"name": one.name, "value": one.value, "source": one.source} for one in entry.synonyms
        ],
    }
