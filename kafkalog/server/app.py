"""The aiohttp application: routes and the one middleware around them."""

from __future__ import annotations

import asyncio
import enum
import functools
import itertools
from typing import TYPE_CHECKING

import msgspec
from aiohttp import hdrs, web

from kafkalog import __version__
from kafkalog.server.api import API_KEY
from kafkalog.server.endpoint import ADMINISTRATIVE, AUTHENTICATED, METRICS_PATH, endpoint_of
from kafkalog.server.error_map import ApiError
from kafkalog.server.exchange import make_middleware
from kafkalog.server.media_types import JSON, is_json
from kafkalog.server.openapi import describe
from kafkalog.server.routes import (
    archived_offsets,
    backups,
    batches,
    cleaner,
    console,
    console_compaction,
    console_configs,
    console_delete_records,
    console_offsets,
    console_records,
    consumer_offsets,
    consumer_records,
    consumers,
    debug,
    delete_records,
    groups,
    info,
    log_dirs,
    log_operations,
    native_produce,
    native_records,
    offsets,
    openapi,
    operations,
    partition_moves,
    probes,
    produce,
    producers,
    records,
    retention,
    sinks,
    tasks,
    topics,
    v3_clusters,
    v3_configs,
    v3_groups,
    v3_partitions,
    v3_produce,
    v3_topics,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kafkalog.server.api import Api
    from kafkalog.server.replies import RequestIds
    from kafkalog.server.security.guards import Guards
    from kafkalog.settings import ServerConfig

    _Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

ROUTE_TABLES = (
    probes.ROUTES,
    openapi.ROUTES,
    produce.ROUTES,
    native_produce.ROUTES,
    records.ROUTES,
    native_records.ROUTES,
    batches.ROUTES,
    producers.ROUTES,
    sinks.ROUTES,
    offsets.ROUTES,
    delete_records.ROUTES,
    log_dirs.ROUTES,
    partition_moves.ROUTES,
    tasks.ROUTES,
    log_operations.ROUTES,  # before retention's, whose segment would match a segment:dump
    retention.ROUTES,
    archived_offsets.ROUTES,
    backups.ROUTES,
    cleaner.ROUTES,
    operations.ROUTES,
    info.ROUTES,
    console.ROUTES,
    console_compaction.ROUTES,
    console_records.ROUTES,
    console_offsets.ROUTES,
    console_delete_records.ROUTES,
    console_configs.ROUTES,
    debug.ROUTES,
    topics.ROUTES,
    consumers.ROUTES,
    consumer_records.ROUTES,
    consumer_offsets.ROUTES,
    groups.ROUTES,
    v3_groups.ROUTES,
    v3_clusters.ROUTES,
    v3_topics.ROUTES,
    v3_configs.ROUTES,
    v3_partitions.ROUTES,
    v3_produce.ROUTES,
)


class Door(enum.Enum):
    """A port, by the routes that are behind it."""

    HTTP = "http"
    ADMIN = "admin"
    METRICS = "metrics"


def doors_of(route: web.RouteDef) -> frozenset[Door]:
    """Where a route goes when each door has a port.

    Administrative is what creates, deletes, alters or operates, by the endpoint's promise. The ids
    of the cluster stand in the paths of both kinds, so who orders has to learn them there, too.
    """
    promise = endpoint_of(route.handler)
    if promise is None:
        return frozenset((Door.HTTP,))
    if promise.access is None:
        return frozenset(Door)
    if promise.access is AUTHENTICATED:
        return frozenset((Door.HTTP, Door.ADMIN))
    if route.path == METRICS_PATH:
        return frozenset((Door.METRICS,))
    right = promise.right
    is_administrative = right is not None and right.action in ADMINISTRATIVE
    return frozenset((Door.ADMIN if is_administrative else Door.HTTP,))


def _routes_at(door: Door, config: ServerConfig) -> list[web.RouteDef]:
    """The routes behind a door; ``http.port`` has those of the doors that have no port."""
    ports = {Door.ADMIN: config.admin_port, Door.METRICS: config.metrics_port}
    found = []
    for table in ROUTE_TABLES:
        for route in table:
            assert isinstance(route, web.RouteDef)
            doors = doors_of(route)
            homes = {each if ports.get(each) is not None else Door.HTTP for each in doors}
            if door in homes:
                found.append(route)
    return found


def make_app(
    api: Api, request_ids: RequestIds, guards: Guards, door: Door = Door.HTTP
) -> web.Application:
    """An application over one object graph; with a gate, requests see what it gives them."""
    app = web.Application(
        middlewares=[make_middleware(api, request_ids, guards)],
        client_max_size=0,  # bodies are bounded by in_flight.Body, which counts inflated bytes
    )
    app[log_operations.DUMPS] = asyncio.Semaphore(log_operations.DUMPS_MAX)
    app[debug.LOOK] = asyncio.Lock()
    if guards.cors is not None:
        app.on_response_prepare.append(guards.cors.on_prepare)
    app[API_KEY] = api if guards.gate is None else guards.gate.closed_api
    describe_api: Callable[[], bytes] = _description
    app[openapi.DESCRIPTION] = describe_api
    for route in _routes_at(door, api.config):
        methods = (
            (hdrs.METH_GET, hdrs.METH_HEAD) if route.method == hdrs.METH_GET else (route.method,)
        )
        handler = route.handler if route.method == hdrs.METH_GET else _typed(route.handler)
        for path, method in itertools.product(_addresses(route.path), methods):
            app.router.add_route(method, path, handler, expect_handler=_on_expect)
    app.freeze()
    return app


def _typed(handler: _Handler) -> _Handler:
    """A changing route of the control plane, which takes JSON alone.

    A page of another site can send a text, a form or a body without a type, and no JSON unless it
    is asked first (the CORS protocol's preflight).
    """
    promise = endpoint_of(handler)
    if promise is None or not promise.takes_json_alone:
        return handler

    @functools.wraps(handler)
    async def typed(request: web.Request) -> web.StreamResponse:
        content_type = request.headers.get(hdrs.CONTENT_TYPE)
        if content_type is None and request.body_exists:
            raise ApiError(415, f"Content-Type is missing. Send {JSON}.")
        if content_type is not None and not is_json(content_type):
            raise ApiError(415, f"This Content-Type is not accepted. Send {JSON}.")
        return await handler(request)

    return typed


def _addresses(path: str) -> tuple[str, ...]:
    """v3 is also where Confluent Server has it."""
    return (path, f"/kafka{path}") if path.startswith("/v3/") else (path,)


@functools.cache
def _description() -> bytes:
    """What ``/openapi.json`` answers."""
    return msgspec.json.encode(describe(ROUTE_TABLES, version=__version__))


async def _on_expect(request: web.Request) -> None:
    """Refuse what is not understood; the exchange says 100 Continue when it has let it in."""
    if request.headers.get(hdrs.EXPECT, "").lower() != "100-continue":
        raise web.HTTPExpectationFailed
