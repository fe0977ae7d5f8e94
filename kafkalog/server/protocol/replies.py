"""Responses: JSON bodies, errors in their one shape, headers of every answer."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, cast

import msgspec
from aiohttp import HttpVersion11, hdrs, web
from aiohttp.helpers import rfc822_formatted_time
from aiohttp.http_writer import _serialize_headers

from kafkalog.format.wire.record_text import RETRY_MS
from kafkalog.server.protocol.errors import ApiError, entry_of, error_body
from kafkalog.server.protocol.media_types import EVENT_STREAM, JSON, V2_JSON

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.http_writer import StreamWriter

    from kafkalog import errors

_ENCODER = msgspec.json.Encoder()
_CLIENT_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
CLOSING_STATUSES = frozenset({408, 413, 417, 505})
"""After these the rest of a body is not read."""
# Where a second system call costs less than a copy.
_UNJOINED_BYTES = 64 << 10


# Keys of a request: whether its HTTP version is neither 1.0 nor 1.1; its id.
HAS_OTHER_VERSION = web.RequestKey("has_other_version", bool)
REQUEST_ID = web.RequestKey("request_id", str)
PRINCIPAL = web.RequestKey("principal", str)  # by the gate, if there is one


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
        return self.next()

    def next(self) -> str:
        """A new one."""
        return f"{self._prefix}-{next(self._numbers):x}"


def add_standard_headers(response: web.StreamResponse, request_id: str) -> None:
    """Headers of every answer: its id, no sniffing of untrusted bytes, no version banner."""
    headers = response.headers
    headers["X-Content-Type-Options"] = "nosniff"
    headers[hdrs.SERVER] = "kafkalog"
    headers["X-Request-Id"] = request_id


def encode_json(value: object) -> bytes:
    """One JSON document."""
    return _ENCODER.encode(value)


def json_reply(
    value: object,
    *,
    content_type: str = JSON,
    status: int = 200,
    headers: dict[str, str] | None = None,
) -> web.Response:
    """One JSON document."""
    return bytes_reply(
        _ENCODER.encode(value), content_type=content_type, status=status, headers=headers
    )


def bytes_reply(
    body: bytes | bytearray | memoryview,
    *,
    content_type: str,
    status: int = 200,
    headers: dict[str, str] | None = None,
) -> web.Response:
    """A body that is ready."""
    all_headers: dict[str, str] = {hdrs.CONTENT_TYPE: content_type}
    if headers:
        all_headers.update(headers)
    if len(body) >= _UNJOINED_BYTES:
        return _LargeReply(body, status, all_headers)
    return _SmallReply(body=bytes(body), status=status, headers=all_headers)


class _SmallReply(web.Response):
    """A body that is sent together with its head.

    aiohttp's way to the same bytes asks about cookies, compression, chunks and upgrades, which no
    answer here has: 3 us of each request. Whatever is not a plain keep-alive answer with a body
    takes that way. Leans on ``_serialize_headers``, ``StreamWriter._write`` and ``_eof_sent`` of
    aiohttp, checked against 3.14.
    """

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Send everything; nothing is left for ``write_eof``."""
        body = self._body
        if (
            not body
            or request.version != HttpVersion11
            or not request.keep_alive
            or self.keep_alive is False
            or request.method == hdrs.METH_HEAD
            or self.prepared
        ):
            return await super().prepare(request)
        assert isinstance(body, bytes)
        headers = self._headers
        headers[hdrs.CONTENT_LENGTH] = str(len(body))
        headers[hdrs.DATE] = rfc822_formatted_time()
        head = _serialize_headers(f"HTTP/1.1 {self._status} {self._reason}", headers)
        writer = cast("StreamWriter", request.writer)
        writer._write(head + body)  # counts it and refuses a transport that is gone
        self._keep_alive = True
        self._eof_sent = True
        return None


class _LargeReply(web.Response):
    """A body that is handed to the transport without a copy, after its head.

    aiohttp would join the two into one more copy of the body. The transport keeps a view of what
    the socket did not take at once, so the body's memory must not change.
    """

    _send_headers_immediately = True

    def __init__(
        self, body: bytes | bytearray | memoryview, status: int, headers: dict[str, str]
    ) -> None:
        super().__init__(status=status, headers=headers)
        # The public setter wraps a view into a payload object that joins as well.
        self._body = body  # type: ignore[assignment] # write_eof takes a view as it takes bytes

    async def write_eof(self, data: bytes = b"") -> None:
        """The body is the transport's now: aiohttp keeps an answer until the next request comes."""
        await super().write_eof(data)
        self._body = None


def error_reply(
    error: errors.KafkalogError | ApiError,
    request_id: str,
    *,
    is_v2: bool = False,
    extra: Mapping[str, object] | None = None,
) -> web.Response:
    """The one error shape, with the request's id and what the route adds to it."""
    entry = entry_of(error)
    body = {**error_body(error), "request_id": request_id, **(extra or {})}
    headers = dict(error.headers) if isinstance(error, ApiError) else {}
    if entry.status in (429, 503) and "Retry-After" not in headers:
        headers["Retry-After"] = "1"
    return json_reply(
        body, content_type=V2_JSON if is_v2 else JSON, status=entry.status, headers=headers
    )


def serialized(reply: web.Response, *, closes: bool) -> bytes:
    """A whole answer as bytes, for writing without a request."""
    body = reply.body
    assert isinstance(body, bytes)
    head = [f"HTTP/1.1 {reply.status} {reply.reason}"]
    head += [f"{name}: {value}" for name, value in reply.headers.items()]
    head += [f"Content-Length: {len(body)}", f"Date: {rfc822_formatted_time()}"]
    head += ["Connection: close"] if closes else []
    return "\r\n".join((*head, "", "")).encode() + body


def retry_stream() -> web.Response:
    """An event stream that ends at once: its client connects again after a while."""
    headers = {hdrs.CONTENT_TYPE: EVENT_STREAM, hdrs.CACHE_CONTROL: "no-store"}
    return web.Response(body=b"retry: %d\n\n" % RETRY_MS, headers=headers)


def framework_error(error: web.HTTPException, near: str | None = None) -> ApiError:
    """aiohttp's own refusals in our shape; ``near``: a route like the one that is not found."""
    if isinstance(error, web.HTTPMethodNotAllowed):
        allow = ", ".join(sorted(error.allowed_methods))
        return ApiError(405, f"This path takes {allow}.", headers={"Allow": allow})
    if isinstance(error, web.HTTPExpectationFailed):
        return ApiError(417, "Only 'Expect: 100-continue' is understood.")
    if isinstance(error, web.HTTPNotFound):
        hint = "" if near is None else f" Did you mean {near}?"
        return ApiError(404, f"There is no such path.{hint} GET /openapi.json lists all paths.")
    return ApiError(40000, "The request is not understood.")
