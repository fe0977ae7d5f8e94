"""Listeners: the ports that are served, each with the routes that belong there.

``http.port`` has everything, unless ``admin.port`` or ``metrics.port`` take their routes away from
it; probes are everywhere. All share the guards, one TLS and one object graph. Owned by the event
loop.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog.env.process_facts import connection_descriptors, soft_descriptor_limit
from kafkalog.server.app import Door, make_app
from kafkalog.server.protocol import ConnectionServer
from kafkalog.server.security.guards import Guards
from kafkalog.server.security.tls import listening_context

if TYPE_CHECKING:
    from kafkalog.server.api import Api
    from kafkalog.server.replies import RequestIds
    from kafkalog.server.security.gate import AccessFiles

_BACKLOG = 1024


@dataclass(frozen=True, slots=True)
class Listener:
    """One open port."""

    door: Door
    server: ConnectionServer
    sockets: asyncio.Server

    @property
    def port(self) -> int:
        """The number, also when the system chose it."""
        return int(self.sockets.sockets[0].getsockname()[1])


async def open_listeners(api: Api, files: AccessFiles, ids: RequestIds) -> list[Listener]:
    """Open every port, ``http.port`` first; OSError when one cannot be had, and none is open."""
    config = api.config
    guards = Guards.of(api, files)
    context = listening_context(files.tls) if files.tls is not None else None
    timeout = config.tls_handshake_timeout_seconds if context is not None else None
    places = [
        (Door.HTTP, config.http_host, config.http_port),
        (Door.ADMIN, config.admin_host, config.admin_port),
        (Door.METRICS, config.metrics_host, config.metrics_port),
    ]
    limit = soft_descriptor_limit()
    loop = asyncio.get_running_loop()
    listeners: list[Listener] = []
    try:
        for door, host, port in places:
            if port is None:
                continue
            app = make_app(api, ids, guards, door)
            server = ConnectionServer(
                app,
                loop=loop,
                config=config,
                request_ids=ids,
                descriptors=connection_descriptors(limit, is_for_operators=door is not Door.HTTP),
                stalled_readers=api.metrics.http_stalled_readers,
            )
            sockets = await loop.create_server(
                server,
                host,
                port,
                backlog=_BACKLOG,
                reuse_address=True,
                ssl=context,
                ssl_handshake_timeout=timeout,
            )
            listeners.append(Listener(door, server, sockets))
    except BaseException:
        await close_listeners(listeners, 0)
        raise
    return listeners


async def close_listeners(listeners: list[Listener], finish_seconds: float) -> None:
    """Accept no more, let requests in work be answered for so long, then close everything."""
    for each in listeners:
        each.sockets.close()
    await asyncio.gather(*(each.server.finish(finish_seconds) for each in listeners))
