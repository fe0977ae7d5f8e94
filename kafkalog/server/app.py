"""The aiohttp application: routes and the one middleware around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from kafkalog.server.api import API_KEY
from kafkalog.server.exchange import RequestIds, make_middleware
from kafkalog.server.routes import (
    batches,
    delete_records,
    offsets,
    probes,
    produce,
    records,
    topics,
    v3_topics,
)

if TYPE_CHECKING:
    from kafkalog.server.api import Api

ROUTE_TABLES = (
    probes.ROUTES,
    produce.ROUTES,
    records.ROUTES,
    batches.ROUTES,
    offsets.ROUTES,
    delete_records.ROUTES,
    topics.ROUTES,
    v3_topics.ROUTES,
)


def make_app(api: Api, request_id_prefix: str) -> web.Application:
    """An application over one object graph."""
    app = web.Application(
        middlewares=[make_middleware(RequestIds(request_id_prefix))],
        client_max_size=0,  # bodies are bounded by in_flight.Body, which counts inflated bytes
    )
    app[API_KEY] = api
    for table in ROUTE_TABLES:
        app.add_routes(table)
    app.freeze()
    return app
