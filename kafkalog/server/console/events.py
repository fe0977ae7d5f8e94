"""The stream that tells a page of the console that it is out of date.

An event names what changed; the page then asks for itself. It carries no facts, so that a page has
one way to get them. Bounded: ``STREAMS`` of them, each no longer than ``http.stream.max.ms``; they
end when the daemon stops. Browsers connect again by themselves. Owned by the event loop.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import hdrs, web

from kafkalog.server.api import api_of
from kafkalog.server.console.pages import PAGE_HEADERS
from kafkalog.server.protocol.endpoint import CONSOLE_PREFIX, Access, Answer, Routes, event_stream
from kafkalog.server.protocol.errors import ApiError
from kafkalog.server.protocol.media_types import EVENT_STREAM
from kafkalog.server.protocol.replies import REQUEST_ID, add_standard_headers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.broker.operations import Operations
    from kafkalog.server.api import Api

ROUTES = Routes("console", CONSOLE_PREFIX)
STREAMS = 32
LOOK_SECONDS = 2.0
_RETRY_MS = 5_000
_KEY = "console"  # what nobody but the end of the daemon wakes


@ROUTES.endpoint(
    "GET /events",
    "consoleEvents",
    Access.DESCRIBE_CLUSTER,
    {
        200: Answer(
            "Changes.",
            event_stream(
                "The names of what has changed.",
                ("news",),
                {"type": "string", "pattern": "^(traffic|health|traffic health)$"},
            ),
        )
    },
    errors=(42903,),
)
async def events(request: web.Request) -> web.StreamResponse:
    """Console: what has changed since the page was made, as server-sent events.

    `traffic`: there is a new sample of the last hour, every ten seconds; `health`: log directories
    or partitions went out of service or came back.
    """
    api = api_of(request)
    if api.state.console_streams >= STREAMS:
        raise ApiError(42903, "Too many pages of the console are live. Reload this one by hand.")
    with api.delayed_fetches.slot():
        api.state.console_streams += 1
        try:
            return await _follow(request, api)
        finally:
            api.state.console_streams -= 1


async def _follow(request: web.Request, api: Api) -> web.StreamResponse:
    response = web.StreamResponse(headers={**PAGE_HEADERS, hdrs.CONTENT_TYPE: EVENT_STREAM})
    add_standard_headers(response, request[REQUEST_ID])
    await response.prepare(request)
    if request.method == hdrs.METH_HEAD:
        return response
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + api.config.http_stream_max_ms / 1000
    seen = _state_of(api.operations)
    await response.write(b"retry: %d\n\n" % _RETRY_MS)
    while not api.stopping and loop.time() < ends_at:
        await api.delayed_fetches.wait_in_slot((_KEY,), LOOK_SECONDS)
        state = _state_of(api.operations)
        changed = [name for name, value in state.items() if seen[name] != value]
        seen = state
        if changed:
            await response.write(f"event: news\ndata: {' '.join(changed)}\n\n".encode())
    await response.write_eof()
    return response


def _state_of(operations: Operations) -> Mapping[str, object]:
    """By name; what differs is news."""
    return {"traffic": operations.history().samples, "health": operations.readiness()}
