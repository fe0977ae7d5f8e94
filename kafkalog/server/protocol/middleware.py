"""The middleware of every request: its id, HTTP version, filters, metrics, and errors as answers.

There is one, because each costs some microseconds per request.
"""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING

import structlog
from aiohttp import HttpVersion11, hdrs, web
from yarl import URL

from kafkalog.errors import KafkalogError, NotReady
from kafkalog.server.api import Phase
from kafkalog.server.console.pages import error_page, wants_page
from kafkalog.server.protocol.endpoint import (
    CONSOLE_PREFIX,
    DEBUG_PREFIX,
    NATIVE_PREFIX,
    endpoint_of,
)
from kafkalog.server.protocol.errors import ApiError, v3_fault
from kafkalog.server.protocol.media_types import EVENT_STREAM
from kafkalog.server.protocol.origin import is_of_other_page
from kafkalog.server.protocol.parameters import check_query
from kafkalog.server.protocol.replies import (
    CLOSING_STATUSES,
    HAS_OTHER_VERSION,
    REQUEST_ID,
    RequestIds,
    add_standard_headers,
    error_reply,
    framework_error,
    retry_stream,
)
from kafkalog.server.security.audit import audit
from kafkalog.server.security.hosts import FOREIGN, MALFORMED
from kafkalog.server.security.rate_limits import RATE_LIMITS

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler, Middleware

    from kafkalog.server.api import Api
    from kafkalog.server.protocol.endpoint import Endpoint
    from kafkalog.server.security.gate import Filters

_log = structlog.get_logger("kafkalog.server")
_V3_PREFIXES = ("/v3/", "/kafka/v3/")
_NATIVE_PREFIXES = (NATIVE_PREFIX, *_V3_PREFIXES, DEBUG_PREFIX, CONSOLE_PREFIX)
_STRICT_PREFIXES = (NATIVE_PREFIX, DEBUG_PREFIX, CONSOLE_PREFIX)  # no query parameter passes unseen
# Routes that answer while the daemon starts, stops or has too much to do.
_ALWAYS = frozenset(
    (
        "/livez",
        "/readyz",
        "/startupz",
        "/healthz",
        "/healthy",
        "/_health",
        "/ready",
        "/status/ready",
        "/metrics",
    )
)
_FOREIGN_PREFIXES = frozenset(("api", "kafka", "v1", "v2", "v3"))
_SAFE = frozenset({hdrs.METH_GET, hdrs.METH_HEAD, hdrs.METH_OPTIONS})


def make_middleware(api: Api, ids: RequestIds, filters: Filters) -> Middleware:
    """The middleware of an application."""
    metrics = api.metrics
    cors, rates = filters.cors, filters.rates
    metrics.http_in_flight.set_function(lambda: api.state.requests_in_work)

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        started = time.perf_counter()
        request_id = ids.take(request)
        request[REQUEST_ID] = request_id
        spec = endpoint_of(request.match_info.handler)
        api.state.requests_in_work += 1
        error: Exception | None = None
        try:
            _admit(api, filters, request)
            preflight = cors.preflight(request) if cors is not None else None
            if preflight is None:
                _refuse_other_pages(filters, request)
                if filters.gate is not None:
                    await filters.gate.admit(request)
                if rates is not None and request.path not in _ALWAYS:
                    rates.admit(request)
                    request[RATE_LIMITS] = rates
                # The proxies pass by what they do not know, and so do v2 and v3 here.
                if request.query_string and spec and request.path.startswith(_STRICT_PREFIXES):
                    check_query(request, spec.parameters)
                if hdrs.EXPECT in request.headers:
                    await _continue(request, spec, api.config.socket_request_max_bytes)
                response = await handler(request)
            else:
                response = preflight
        except ConnectionError:
            raise
        except Exception as raised:  # noqa: BLE001 - the outermost frame of a request: a defect is 500, never a dead loop
            error = raised
            response = await _answer_error(api, request, spec, error)
        finally:
            api.state.requests_in_work -= 1
        add_standard_headers(response, request_id)
        if cors is not None:
            cors.mark(request, response)
        if rates is not None:
            rates.answered(request, response)
        audit(request, spec, response.status, error)
        seconds = time.perf_counter() - started
        metrics.observe_http(_label_of(request), request.method, response.status, seconds)
        return response

    return middleware


def _label_of(request: web.Request) -> str:
    """The route of a request as metrics name it: one name, also with a slash at the end."""
    resource = request.match_info.route.resource
    if resource is None:
        return "unmatched"
    return resource.canonical.rstrip("/") or "/"


def _admit(api: Api, filters: Filters, request: web.Request) -> None:
    """Refuse before anything is read: wrong version or host, not serving, too much at once."""
    if HAS_OTHER_VERSION in request:
        raise ApiError(505, "Use HTTP/1.1.")
    if not request.raw_path.isascii():  # the pure parser lets it pass, and no answer could name it
        raise ApiError(40000, "The request line holds a byte that must be percent-encoded.")
    fault = filters.hosts.fault_of(request)
    if fault == MALFORMED:  # some answers carry links made of it
        raise ApiError(40000, "Host is no host name or address.")
    if request.path in _ALWAYS:
        return
    if fault == FOREIGN:
        raise ApiError(
            421,
            "Host is no name of this daemon: list it in http.allowed.hosts, ask by address, or "
            "turn on authentication (http.auth).",
        )
    if request.path.startswith(DEBUG_PREFIX):
        return
    if api.state.phase is not Phase.SERVING:
        raise api.refusal()
    if (
        api.state.requests_in_work - api.delayed_fetches.waiting_count
        > api.config.http_max_inflight_requests
    ):
        raise ApiError(42902, "Too many requests in work; nothing was appended. Try again.")


def _refuse_other_pages(filters: Filters, request: web.Request) -> None:
    """A page of another origin may change nothing, unless CORS allows its origin."""
    if request.method in _SAFE or not is_of_other_page(request):
        return
    if filters.cors is None or not filters.cors.allows(request):
        raise ApiError(
            40301, "A page of another origin asked; access.control.allow.origin names those."
        )


async def _continue(request: web.Request, spec: Endpoint | None, body_limit_bytes: int) -> None:
    """Send 100 Continue, unless the body would be refused: then the refusal is sent at once."""
    declared = request.content_length or 0
    is_taken = declared <= body_limit_bytes or (spec is not None and spec.is_stream)
    if request.version == HttpVersion11 and is_taken:
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # the answer itself has not begun


def _is_event_source(request: web.Request, spec: Endpoint | None) -> bool:
    """Whether it is from a browser's EventSource, which reconnects only after a status of 200."""
    if request.headers.get(hdrs.ACCEPT, "").strip().lower() != EVENT_STREAM:
        return False
    answer = spec.answers.get(200) if spec is not None else None
    return answer is not None and EVENT_STREAM in answer.content


async def _near_route(request: web.Request) -> str | None:
    """The route of a path that differs in its prefix, in a slash or a plural: GET /topics.

    Without names of the request, which an answer should not repeat.
    """
    first, *rest = request.rel_url.raw_path.strip("/").split("/")
    if rest and first in _FOREIGN_PREFIXES:
        first, *rest = rest
    for prefix, ending in itertools.product(("", NATIVE_PREFIX.rstrip("/"), "/admin"), ("", "s")):
        path = "/".join((prefix, first + ending, *rest))
        found = await request.app.router.resolve(
            request.clone(rel_url=URL.build(path=path, encoded=True))
        )
        if found.http_exception is None and found.route.resource is not None:
            return f"{request.method} {found.route.resource.canonical}"
    return None


async def _answer_error(
    api: Api, request: web.Request, spec: Endpoint | None, raised: Exception
) -> web.Response:
    """The answer to what a handler raised."""
    request_id = request[REQUEST_ID]
    error: KafkalogError | ApiError
    if isinstance(raised, (ApiError, KafkalogError)):
        error = v3_fault(raised) if request.path.startswith(_V3_PREFIXES) else raised
    elif isinstance(raised, web.HTTPException):
        is_not_found = isinstance(raised, web.HTTPNotFound)
        error = framework_error(raised, await _near_route(request) if is_not_found else None)
    else:
        path = request.path[:200]
        _log.error(
            "Unhandled error in a request", request_id=request_id, path=path, exc_info=raised
        )
        error = ApiError(50000, "Internal error; quote the request id.")
    if isinstance(error, NotReady) and _is_event_source(request, spec):
        return retry_stream()
    is_v2 = not request.path.startswith(_NATIVE_PREFIXES)
    response = error_reply(error, request_id, is_v2=is_v2)
    if wants_page(request):
        response = await error_page(
            api, error, response, request_id, is_form=request.method == "POST"
        )
    framing = isinstance(error, ApiError) and error.entry.error_code == 40000
    if framing or response.status in CLOSING_STATUSES:
        response.force_close()
    return response
