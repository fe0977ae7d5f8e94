"""The HTTP/1.1 connection: timeouts and refusals that aiohttp leaves open (reliability.md 4).

The whole header must come within a bound (slowloris), a connection count is kept, a keep-alive
connection idles for a bounded time, and what the parser refuses gets our error shape and a close
without echoing the client's bytes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from aiohttp import web
from aiohttp.http_exceptions import BadStatusLine, LineTooLong
from aiohttp.web_protocol import RequestHandler

from kafkalog.server.error_map import REGISTER

if TYPE_CHECKING:
    import asyncio

    from aiohttp.web_request import BaseRequest

    from kafkalog.settings import ServerConfig


class Connection(RequestHandler):
    """One client connection."""

    __slots__ = ("_header_timeout_seconds", "_header_timer", "_server")

    def __init__(
        self, server: ConnectionServer, *, loop: asyncio.AbstractEventLoop, config: ServerConfig
    ) -> None:
        super().__init__(
            server,
            loop=loop,
            keepalive_timeout=config.keep_alive_seconds,
            lingering_time=0,
            access_log=None,  # type: ignore[arg-type] # None turns it off, as AppRunner documents
            max_line_size=8190,
            max_headers=100,
            max_field_size=8190,
        )
        self._server = server
        self._header_timer: asyncio.TimerHandle | None = None
        self._header_timeout_seconds = config.header_timeout_seconds

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Refuse beyond the connection bound by closing at once; arm the header timer."""
        super().connection_made(transport)
        if len(self._server.connections) > self._server.max_connections:
            self.force_close()
            return
        self._arm()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Drop the timer with the connection."""
        self._disarm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """A whole header stops the timer; the first bytes of the next one start it again."""
        before = self._request_count
        super().data_received(data)
        if self._request_count != before:
            self._disarm()
        elif self._header_timer is None and self._current_request is None and self._waiter:
            self._arm()

    def _arm(self) -> None:
        self._header_timer = self._loop.call_later(self._header_timeout_seconds, self._too_slow)

    def _disarm(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _too_slow(self) -> None:
        """408 and close: the header did not come in time."""
        self._header_timer = None
        if self.transport is not None:
            self.transport.write(_raw_error(408, "The request header came too slowly."))
        self.force_close()

    def handle_error(
        self,
        request: BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """What the parser refused, in our shape, closing; client bytes are never echoed."""
        if request.writer.output_size > 0:
            raise ConnectionError("an answer is under way; it cannot become an error")
        code, text = _classify(status, exc)
        entry = REGISTER[code]
        body = {
            "error_code": code,
            "message": text,
            "kafka_error": entry.kafka_error,
            "retriable": False,
        }
        response = web.Response(
            body=json.dumps(body).encode(),
            status=entry.status,
            headers={"Content-Type": "application/json", "X-Content-Type-Options": "nosniff"},
        )
        response.force_close()
        return response


class ConnectionServer(web.Server):
    """Makes connections for one listener."""

    def __init__(
        self,
        app: web.Application,
        *,
        loop: asyncio.AbstractEventLoop,
        config: ServerConfig,
    ) -> None:
        # The same two hooks that aiohttp's own AppRunner takes from an application.
        super().__init__(
            app._handle,  # type: ignore[arg-type] # gets what _make_request makes
            request_factory=app._make_request,
            loop=loop,
        )
        self._config = config
        self.max_connections = config.max_connections

    def __call__(self) -> RequestHandler:
        """A handler for a new connection."""
        return Connection(self, loop=self._loop, config=self._config)


def _classify(status: int, exc: BaseException | None) -> tuple[int, str]:
    """The register's number for what aiohttp's parser found."""
    if isinstance(exc, LineTooLong):
        if "header" in str(exc).lower():
            return 431, "A header line is longer than 8190 bytes."
        return 414, "The request line is longer than 8190 bytes."
    if exc is not None and "Too many headers" in str(exc):
        return 431, "More than 100 headers."
    if isinstance(exc, BadStatusLine) and "HTTP/" in str(exc):
        return 505, "Use HTTP/1.1."
    if status >= 500 and exc is not None:
        return 50000, "Internal error."
    return 40000, "The request is not valid HTTP/1.1."


def _raw_error(status: int, text: str) -> bytes:
    """A complete answer written straight to the transport, where no request exists yet."""
    entry = REGISTER[status]
    body = json.dumps(
        {"error_code": status, "message": text, "kafka_error": entry.kafka_error}
    ).encode()
    head = (
        f"HTTP/1.1 {entry.status} Request Timeout\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
