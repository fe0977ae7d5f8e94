"""Around every request: its id, its HTTP version, its metrics, and errors in the one shape.

One middleware, because each costs some microseconds of every request.
"""

from __future__ import annotations

import itertools
import re
import time
from typing import TYPE_CHECKING

import structlog
from aiohttp import web

from kafkalog.errors import KafkalogError, NotReady
from kafkalog.server.api import API_KEY, api_of
from kafkalog.server.error_map import ApiError
from kafkalog.server.replies import error_reply

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler, Middleware

_log = structlog.get_logger("kafkalog.server")
_CLIENT_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_NATIVE_PREFIXES = ("/v1/", "/v3/", "/kafka/v3/")
# Routes that answer while the daemon is starting or stopping.
_ALWAYS = ("/livez", "/readyz", "/startupz", "/healthz", "/healthy", "/ready", "/metrics")

REQUEST_ID = "request_id"


class RequestIds:
    """Unique within the machine's history: a prefix drawn at start, then a counter."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._numbers = itertools.count(1)

    def take(self, request: web.BaseRequest) -> str:
        """The client's own X-Request-Id when it is harmless, else a new one."""
        given = request.headers.get("X-Request-Id")
        if given is not None and _CLIENT_ID.fullmatch(given):
            return given
        return f"{self._prefix}-{next(self._numbers):x}"


def _framework_error(error: web.HTTPException) -> ApiError:
    """aiohttp's own refusals in our shape."""
    if isinstance(error, web.HTTPMethodNotAllowed):
        allow = ", ".join(sorted(error.allowed_methods))
        return ApiError(405, f"This path takes {allow}.", headers={"Allow": allow})
    if isinstance(error, web.HTTPRequestEntityTooLarge):
        return ApiError(41302, "The request body is too large.")
    if isinstance(error, web.HTTPExpectationFailed):
        return ApiError(417, "Only 'Expect: 100-continue' is understood.")
    if isinstance(error, web.HTTPNotFound):
        return ApiError(404, "No such path.")
    return ApiError(40000, "The request is not understood.")


def make_middleware(ids: RequestIds) -> Middleware:
    """The middleware of an application."""

    @web.middleware
    async def exchange(request: web.Request, handler: Handler) -> web.StreamResponse:
        started = time.perf_counter()
        request_id = ids.take(request)
        request[REQUEST_ID] = request_id
        metrics = request.app[API_KEY].metrics
        metrics.http_in_flight.inc()
        try:
            response = await _answer(request, handler, request_id)
        finally:
            metrics.http_in_flight.dec()
        if not response.prepared:
            response.headers["X-Request-Id"] = request_id
        resource = request.match_info.route.resource
        route = resource.canonical if resource is not None else "unmatched"
        metrics.observe_http(route, request.method, response.status, time.perf_counter() - started)
        return response

    return exchange


async def _answer(request: web.Request, handler: Handler, request_id: str) -> web.StreamResponse:
    """The handler's answer, or an error's."""
    path = request.path
    error: KafkalogError | ApiError
    try:
        if request.version not in ((1, 1), (1, 0)):
            raise ApiError(505, "Use HTTP/1.1.")
        if api_of(request).stopping and path not in _ALWAYS:
            raise NotReady("The daemon is stopping; nothing was appended.")
        return await handler(request)
    except (ApiError, KafkalogError) as raised:
        error = raised
    except web.HTTPException as raised:
        error = _framework_error(raised)
    except ConnectionError:
        raise
    except Exception:  # noqa: BLE001 - the outermost frame of a request: a defect is 500, never a dead loop
        _log.exception("Unhandled error in a request", request_id=request_id, path=path[:200])
        error = ApiError(50000, "Internal error; quote the request id.")
    response = error_reply(error, request_id, is_v2=not path.startswith(_NATIVE_PREFIXES))
    if response.status in (408, 413, 505):
        response.force_close()  # the rest of the body is not worth reading
    return response
