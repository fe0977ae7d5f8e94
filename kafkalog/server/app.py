"""The aiohttp applications: the route tables, and one application for each listener.

``http.port`` has all routes except those that ``admin.port`` or ``metrics.port`` take over; probes
are on every port. All applications share the filters, the TLS context and one ``Api``. Owned by the
event loop.
"""

from __future__ import annotations

import asyncio
import enum
import errno
import functools
import itertools
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
from aiohttp import hdrs, web

from kafkalog import __version__
from kafkalog.env.process_facts import connection_descriptors, soft_descriptor_limit
from kafkalog.errors import InvalidConfig
from kafkalog.server.api import API_KEY, api_of
from kafkalog.server.fast_path.front import FastPath
from kafkalog.server.protocol.connection import ConnectionServer
from kafkalog.server.protocol.endpoint import (
    ADMINISTRATIVE,
    CONSOLE_PREFIX,
    METRICS_PATH,
    Access,
    endpoint_of,
)
from kafkalog.server.protocol.errors import ApiError
from kafkalog.server.protocol.media_types import JSON, check_charset, is_json
from kafkalog.server.protocol.middleware import make_middleware
from kafkalog.server.protocol.openapi import describe
from kafkalog.server.protocol.origin import is_marked
from kafkalog.server.protocol.schemas import NoBody, read_body
from kafkalog.server.security.gate import Filters
from kafkalog.server.security.tls import listening_context

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from kafkalog.server.api import Api
    from kafkalog.server.protocol.replies import RequestIds
    from kafkalog.server.security.gate import AccessFiles
    from kafkalog.settings import ServerConfig

    _Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


from kafkalog.server.admin import (
    cleaner,
    debug,
    delete_records,
    logs,
    operations,
    probes,
    retention,
    topics,
    v3,
    v3_configs,
    v3_topics,
)
from kafkalog.server.console import (
    compaction as console_compaction,
    events as console_events,
    groups as console_groups,
    produce as console_produce,
    records as console_records,
    topics as console_topics,
)
from kafkalog.server.fetch import (
    fetch as raw_fetch,
    native as native_fetch,
    offsets,
    v2 as v2_fetch,
)
from kafkalog.server.groups import consumers, groups, sinks, v3_groups
from kafkalog.server.produce import (
    batches,
    native as native_produce,
    producers,
    v2 as v2_produce,
    v3 as v3_produce,
)

ROUTE_TABLES = (
    probes.ROUTES,
    v2_produce.ROUTES,
    native_produce.ROUTES,
    v2_fetch.ROUTES,
    native_fetch.ROUTES,
    batches.ROUTES,
    raw_fetch.ROUTES,
    producers.ROUTES,
    sinks.ROUTES,
    offsets.ROUTES,
    delete_records.ROUTES,
    logs.DIRECTORY_ROUTES,
    logs.ROUTES,  # before retention's, whose segment would match a segment:dump
    retention.ROUTES,
    cleaner.ROUTES,
    operations.ROUTES,
    console_topics.ROUTES,
    console_events.ROUTES,
    console_topics.ASSET_ROUTES,
    console_compaction.ROUTES,
    console_records.TOPIC_ROUTES,
    console_records.ROUTES,
    console_groups.ROUTES,
    console_produce.ROUTES,
    debug.ROUTES,
    topics.ROUTES,
    topics.INFO_ROUTES,
    consumers.ROUTES,
    consumers.INSTANCE_ROUTES,
    groups.ROUTES,
    v3_groups.ROUTES,
    v3.ROUTES,
    v3_topics.TOPIC_ROUTES,
    v3_topics.ROUTES,
    v3_configs.ROUTES,
    v3_produce.ROUTES,
)


# Routes of the proxies, whose clients may put a slash at the end of a path.
_WITH_SLASH_TOO = ("/topics", "/brokers", "/consumers/", "/admin/topics", "/v3/")


class ListenerRole(enum.Enum):
    """What a listener is for: it decides which routes the listener has."""

    HTTP = "http"
    ADMIN = "admin"
    METRICS = "metrics"


def roles_of(route: web.RouteDef) -> frozenset[ListenerRole]:
    """The roles whose listener has the route when each role has a port.

    Administrative routes create, delete, alter or operate, by the endpoint spec, or are forms of
    the console. Their paths have the ids of the cluster, so the routes that give them are on the
    admin port too.
    """
    spec = endpoint_of(route.handler)
    if spec is None:
        return frozenset((ListenerRole.HTTP,))
    if spec.access is Access.OPEN:
        return frozenset(ListenerRole)
    if spec.access is Access.AUTHENTICATED:
        return frozenset((ListenerRole.HTTP, ListenerRole.ADMIN))
    if route.path == METRICS_PATH:
        return frozenset((ListenerRole.METRICS,))
    right = spec.right
    is_administrative = right is not None and right.action in ADMINISTRATIVE
    # Whatever right it needs: with an admin port the other console only reads.
    is_administrative |= route.path.startswith(CONSOLE_PREFIX) and route.method == hdrs.METH_POST
    return frozenset((ListenerRole.ADMIN if is_administrative else ListenerRole.HTTP,))


def _routes_at(role: ListenerRole, config: ServerConfig) -> list[web.RouteDef]:
    """The routes of a role's listener; ``http.port`` has those of roles without a port."""
    ports = {ListenerRole.ADMIN: config.admin_port, ListenerRole.METRICS: config.metrics_port}
    found = []
    for table in ROUTE_TABLES:
        for route in table:
            roles = roles_of(route)
            homes = {each if ports.get(each) is not None else ListenerRole.HTTP for each in roles}
            if role in homes:
                found.append(route)
    return found


def make_app(
    api: Api, request_ids: RequestIds, filters: Filters, role: ListenerRole = ListenerRole.HTTP
) -> web.Application:
    """An application over one object graph; with a gate, requests see what it gives them."""
    app = web.Application(
        middlewares=[make_middleware(api, request_ids, filters)],
        client_max_size=0,  # bodies are bounded by in_flight.Body, which counts inflated bytes
    )
    app[logs.DUMPS] = asyncio.Semaphore(logs.DUMPS_MAX)
    app[debug.METRICS_PAGE_LOCK] = asyncio.Lock()
    if filters.cors is not None:
        app.on_response_prepare.append(filters.cors.on_prepare)
    app[API_KEY] = api if filters.gate is None else filters.gate.closed_api
    describe_api: Callable[[], bytes] = _description
    app[probes.DESCRIPTION] = describe_api
    app[topics.HAS_CONSOLE] = role is ListenerRole.HTTP
    routes = _routes_at(role, api.config)
    _add_routes(app, routes)
    declared = {(route.method, route.path) for route in routes}
    # After all others: a request without the slash does not pass by them.
    _add_routes(
        app,
        (
            web.RouteDef(route.method, f"{route.path}/", route.handler, {})
            for route in routes
            if route.path.startswith(_WITH_SLASH_TOO)
            and not route.path.endswith("/")
            and (route.method, f"{route.path}/") not in declared
        ),
    )
    app.freeze()
    return app


def _add_routes(app: web.Application, routes: Iterable[web.RouteDef]) -> None:
    """As the application serves them: GET for HEAD too, v3 also where Confluent Server has it."""
    for route in routes:
        methods = (
            (hdrs.METH_GET, hdrs.METH_HEAD) if route.method == hdrs.METH_GET else (route.method,)
        )
        handler = route.handler if route.method == hdrs.METH_GET else _typed(route.handler)
        prefixes = ("", "/kafka") if route.path.startswith("/v3/") else ("",)
        for prefix, method in itertools.product(prefixes, methods):
            app.router.add_route(method, prefix + route.path, handler, expect_handler=_on_expect)


def _typed(handler: _Handler) -> _Handler:
    """A changing route of the control plane, which takes JSON alone.

    A page of another site can send a text, a form or a body without a type, and no JSON unless it
    is asked first (the CORS protocol's preflight). A browser marks what a page sends.
    """
    spec = endpoint_of(handler)
    if spec is None or not spec.takes_json_alone:
        return handler

    @functools.wraps(handler)
    async def typed(request: web.Request) -> web.StreamResponse:
        content_type = request.headers.get(hdrs.CONTENT_TYPE)
        is_missing = content_type is None and request.body_exists
        if is_missing and not (spec.takes_any_type and not is_marked(request)):
            raise ApiError(415, f"Content-Type is missing. Send {JSON}.")
        if content_type is not None and not is_json(content_type):
            raise ApiError(415, f"This Content-Type is not accepted. Send {JSON}.")
        check_charset(content_type or JSON)
        if spec.refuses_body and request.body_exists:
            await read_body(NoBody, request, api_of(request), is_required=False)
        return await handler(request)

    return typed


@functools.cache
def _description() -> bytes:
    """What ``/openapi.json`` answers."""
    return msgspec.json.encode(describe(ROUTE_TABLES, version=__version__))


async def _on_expect(request: web.Request) -> None:
    """Refuse what is not understood; the middleware sends 100 Continue after its checks."""
    if request.headers.get(hdrs.EXPECT, "").lower() != "100-continue":
        raise web.HTTPExpectationFailed


_BACKLOG = 1024


@dataclass(frozen=True, slots=True)
class Listener:
    """One open port."""

    role: ListenerRole
    server: ConnectionServer
    sockets: asyncio.Server

    @property
    def port(self) -> int:
        """The number, also when the system chose it."""
        return int(self.sockets.sockets[0].getsockname()[1])


async def open_listeners(api: Api, files: AccessFiles, ids: RequestIds) -> list[Listener]:
    """Open every port, ``http.port`` first; InvalidConfig when one cannot be, and none is open."""
    config = api.config
    filters = Filters.of(api, files)
    context = listening_context(files.tls) if files.tls is not None else None
    timeout = config.http_tls_handshake_timeout_ms / 1000 if context is not None else None
    places = [
        (ListenerRole.HTTP, config.http_host, config.http_port),
        (ListenerRole.ADMIN, config.admin_host, config.admin_port),
        (ListenerRole.METRICS, config.metrics_host, config.metrics_port),
    ]
    limit = soft_descriptor_limit()
    loop = asyncio.get_running_loop()
    listeners: list[Listener] = []
    try:
        for role, host, port in places:
            if port is None:
                continue
            app = make_app(api, ids, filters, role)
            is_fast = role is ListenerRole.HTTP and filters.are_few
            server = ConnectionServer(
                app,
                loop=loop,
                config=config,
                request_ids=ids,
                descriptors=connection_descriptors(
                    limit, is_for_operators=role is not ListenerRole.HTTP
                ),
                stalled_readers=api.metrics.http_stalled_readers,
                front_of=FastPath(api, ids, filters).front_of if is_fast else None,
            )
            try:
                sockets = await loop.create_server(
                    server.new_protocol,
                    host,
                    port,
                    backlog=_BACKLOG,
                    reuse_address=True,
                    ssl=context,
                    ssl_handshake_timeout=timeout,
                )
            except OSError as error:
                raise _port_fault(error, role, host, port) from error
            listeners.append(Listener(role, server, sockets))
    except BaseException:
        await close_listeners(listeners, 0)
        raise
    return listeners


def _port_fault(error: OSError, role: ListenerRole, host: str, port: int) -> InvalidConfig:
    """Why a port could not be opened, with the settings that choose it."""
    number = error.errno or 0
    # The event loop's own text names the address a second time; that of a name has no number.
    reason = os.strerror(number) if number > 0 else error.strerror or str(error)
    key, host_key = f"{role.value}.port", f"{role.value}.host"
    remedy = f"Set {host_key} to an address of this machine."
    if number == errno.EADDRINUSE:
        remedy = (
            f"Stop the program that has it (ss -ltnp 'sport = :{port}' names it), or set {key} to "
            "another port."
        )
    elif number == errno.EACCES:
        remedy = f"Set {key} to a port from 1024 on."
    return InvalidConfig(
        f"Cannot open port {port} on {host or 'all addresses'}: {reason}. {remedy}"
    )


async def close_listeners(listeners: list[Listener], finish_seconds: float) -> None:
    """Accept no more, let requests in work be answered for so long, then close everything."""
    for each in listeners:
        each.sockets.close()
    await asyncio.gather(*(each.server.finish(finish_seconds) for each in listeners))
