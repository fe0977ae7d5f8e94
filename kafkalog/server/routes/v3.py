"""What the v3 routes share: the one cluster, its addresses, lists, a missing topic's number."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from kafkalog.errors import UnknownTopic
from kafkalog.server.api import Api, api_of
from kafkalog.server.error_map import ApiError
from kafkalog.server.origin import origin_of
from kafkalog.server.replies import json_reply

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiohttp import web


def cluster_of(request: web.Request) -> Api:
    """The graph; only this node's own cluster id exists."""
    api = api_of(request)
    if request.match_info["cluster_id"] != api.cluster_id:
        raise ApiError(40403, "Cluster not found; GET /v3/clusters names it.")
    return api


def broker_of(request: web.Request) -> int:
    """The id in the path, which is this node's: there is no other."""
    node_id = api_of(request).operations.node_id
    if request.match_info["broker"] != str(node_id):
        raise ApiError(404, "Broker not found; GET /brokers names it.")
    return node_id


def clusters_url(request: web.Request) -> str:
    """Absolute, where the client found us."""
    return f"{origin_of(request)}/v3/clusters"


def list_reply(request: web.Request, kind: str, data: list[dict[str, object]]) -> web.Response:
    """All of them on one page."""
    url = f"{origin_of(request)}{request.path}"
    return json_reply({"kind": kind, "metadata": {"self": url, "next": None}, "data": data})


@contextmanager
def v3_numbers() -> Iterator[None]:
    """A missing topic has another number in v3 than in v2."""
    try:
        yield
    except UnknownTopic as error:
        raise ApiError(40403, error.message, details=error.details) from error
