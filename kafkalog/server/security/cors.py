"""CORS: which pages of other origins may read answers; off unless origins are named.

A preflight is answered before authentication, because browsers send it without credentials. Every
other answer to an allowed origin has the headers, errors and streams too. The settings have the
names of Confluent's rest-utils. Owned by the event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import hdrs, web

if TYPE_CHECKING:
    from kafkalog.settings import ServerConfig

_ANY = "*"
_MAX_AGE_SECONDS = 600
_EXPOSED = ", ".join(
    (
        "ETag",
        "Kafka-Base-Offset",
        "Kafka-Durability",
        "Kafka-High-Watermark",
        "Kafka-Ignored-Configs",
        "Kafka-Log-Start-Offset",
        "Kafka-Next-Offset",
        "Kafka-Up-To-Date",
        "Location",
        "Retry-After",
        "X-Request-Id",
    )
)


class Cors:
    """See the module."""

    def __init__(self, config: ServerConfig) -> None:
        # constant after construction
        self._origins = frozenset(config.access_control_allow_origin)
        self._allow = {
            hdrs.ACCESS_CONTROL_ALLOW_METHODS: ", ".join(config.access_control_allow_methods),
            hdrs.ACCESS_CONTROL_ALLOW_HEADERS: ", ".join(config.access_control_allow_headers),
            hdrs.ACCESS_CONTROL_MAX_AGE: str(_MAX_AGE_SECONDS),
        }

    @staticmethod
    def of(config: ServerConfig) -> Cors | None:
        """None when no origin is allowed: then it costs nothing."""
        return Cors(config) if config.access_control_allow_origin else None

    def preflight(self, request: web.Request) -> web.Response | None:
        """The answer to a preflight of an allowed origin; None: the request is no preflight."""
        if (
            request.method != hdrs.METH_OPTIONS
            or hdrs.ACCESS_CONTROL_REQUEST_METHOD not in request.headers
            or self._allowed(request) is None
        ):
            return None
        return web.Response(status=204, headers=self._allow)

    def allows(self, request: web.Request) -> bool:
        """Whether the page that sent the request may read the answer, and so ask for changes."""
        return self._allowed(request) is not None

    def mark(self, request: web.Request, response: web.StreamResponse) -> None:
        """Say on an answer who may read it."""
        headers = response.headers
        vary = headers.get(hdrs.VARY, "")
        if hdrs.ORIGIN not in vary:
            headers[hdrs.VARY] = f"{vary}, {hdrs.ORIGIN}" if vary else hdrs.ORIGIN
        allowed = self._allowed(request)
        if allowed is not None:
            headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = allowed
            headers[hdrs.ACCESS_CONTROL_EXPOSE_HEADERS] = _EXPOSED

    async def on_prepare(self, request: web.Request, response: web.StreamResponse) -> None:
        """``mark`` for what a handler begins to send by itself."""
        self.mark(request, response)

    def _allowed(self, request: web.Request) -> str | None:
        """What Access-Control-Allow-Origin says to this request."""
        origin = request.headers.get(hdrs.ORIGIN)
        if origin is None:
            return None
        if _ANY in self._origins:
            return _ANY
        return origin if origin in self._origins else None
