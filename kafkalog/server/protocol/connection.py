"""The HTTP/1.1 connection: timeouts and refusals that aiohttp does not have.

The header must arrive within a time-out, a client must read its answer within another
(``ReaderWatch``), and connections are counted. What the parser refuses gets our error and a close,
without a byte of the client's echoed. Nothing is written after what the socket did not take: a
reader that stops holds one write in memory. Owned by the event loop.

``ReaderWatch`` measures what the client's kernel has acknowledged (``tcpi_bytes_acked`` of Linux's
TCP_INFO): the kernel's send buffer holds megabytes, so our own buffer says nothing of a slow
reader. A reader at 1 KB/s with Linux's default buffers acknowledges every 66 s on the loopback
device, every few seconds elsewhere.

This relies on aiohttp's web_protocol.RequestHandler, checked against 3.14: ``_request_count`` grows
with each parsed message, refused ones too; ``finish_response`` runs once for each. A message that
the parser refuses is queued as ``_ErrInfo``, after the request whose body it broke. Of
web.Application: ``_handle`` resolves a request by method and path alone, and sets ``_match_info``,
which does not change later.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import struct
from typing import TYPE_CHECKING, Protocol

import structlog
from aiohttp import HttpVersion10, HttpVersion11, hdrs, web
from aiohttp.http import HttpRequestParser
from aiohttp.http_exceptions import BadHttpMethod, BadStatusLine, LineTooLong
from aiohttp.http_parser import HttpRequestParserPy
from aiohttp.web_protocol import RequestHandler, _ErrInfo

from kafkalog.server.protocol.errors import ApiError
from kafkalog.server.protocol.pure_parser import PureRequestParser
from kafkalog.server.protocol.replies import (
    HAS_OTHER_VERSION,
    add_standard_headers,
    error_reply,
    framework_error,
    serialized,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp import StreamReader
    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.http import RawRequestMessage
    from aiohttp.web_protocol import _MsgType
    from aiohttp.web_request import BaseRequest
    from aiohttp.web_urldispatcher import UrlMappingMatchInfo
    from prometheus_client import Counter

    from kafkalog.server.protocol.replies import RequestIds
    from kafkalog.settings import ServerConfig

    _Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
    _RequestFactory = Callable[
        [RawRequestMessage, StreamReader, RequestHandler, AbstractStreamWriter, asyncio.Task[None]],
        BaseRequest,
    ]


# Looks a stall: a reader is cut at most this share of the time too late.
_LOOKS = 4
# struct tcp_info of linux/tcp.h: since 4.1 it has the field.
_BYTES_ACKED = struct.Struct("=Q")
_BYTES_ACKED_AT = 120
_TCP_INFO_BYTES = _BYTES_ACKED_AT + _BYTES_ACKED.size


class ReaderWatch:
    """See the module. ``begin`` while there is something to take, ``end`` once there is not."""

    __slots__ = (
        "_cut",
        "_loop",
        "_since",
        "_stall_seconds",
        "_taken_before",
        "_taken_bytes",
        "_timer",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        taken_bytes: Callable[[], int],
        stall_seconds: float,
        cut: Callable[[], None],
    ) -> None:
        """``taken_bytes`` only grows; ``cut`` is called once it has not for ``stall_seconds``."""
        self._loop = loop
        self._taken_bytes = taken_bytes
        self._stall_seconds = stall_seconds
        self._cut = cut
        self._timer: asyncio.TimerHandle | None = None
        self._taken_before = 0
        self._since = 0.0

    def begin(self) -> None:
        """From now on the client has to take something."""
        self.end()
        self._taken_before, self._since = self._taken_bytes(), self._loop.time()
        self._look_later()

    def end(self) -> None:
        """It has taken everything, or is gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_later(self) -> None:
        self._timer = self._loop.call_later(self._stall_seconds / _LOOKS, self._look)

    def _look(self) -> None:
        self._timer = None
        taken, now = self._taken_bytes(), self._loop.time()
        if taken != self._taken_before:
            self._taken_before, self._since = taken, now
        elif now - self._since >= self._stall_seconds:
            self._cut()
            return
        self._look_later()


def taken_bytes(transport: asyncio.Transport) -> int:
    """Bytes that the peer has acknowledged; if unknown, bytes that our kernel has taken."""
    found: socket.socket | None = transport.get_extra_info("socket")
    if found is not None and hasattr(socket, "TCP_INFO"):
        info = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        if len(info) == _TCP_INFO_BYTES:
            return int(_BYTES_ACKED.unpack_from(info, _BYTES_ACKED_AT)[0])
    return -transport.get_write_buffer_size()


_log = structlog.get_logger("kafkalog.server")
MAX_HEADERS = 100
MAX_FIELD_BYTES = 8190
# Differs from the field's limit so that the parser's error shows which of the two it was.
MAX_REQUEST_LINE_BYTES = 8192
# A client that is refused in the middle of its body may finish sending for so long: otherwise the
# reset that follows a close would take our answer with it.
_LINGER_SECONDS = 2.0
# The transport says that it waits when the socket has left one byte more than this; TLS when it has
# left as many. 0 would have TLS wait indefinitely.
_LEFT_BYTES = 1
_ABORT = struct.pack("ii", 1, 0)  # of SO_LINGER: a reset that drops the kernel's buffer at once
# Paths whose route is remembered, and the longest: some megabytes. Beyond, all are dropped.
_KNOWN_PATHS = 8192
_KNOWN_CHARS = 320
_LINE_SECONDS = 60.0
_TLS_HANDSHAKE = 0x16
_HTTP_2 = b"PRI * HTTP/2"
# How a request of Kafka's protocol begins: its size, the number and the version of its API. Kafka
# takes 100 MiB, and 4.1 has APIs up to 92; a method of HTTP would be a size above 1 GiB.
_KAFKA_HEAD = struct.Struct(">ihh")
_KAFKA_BYTES = 100 << 20
_KAFKA_APIS = 255
# Requests by these methods may wait, and end with their client.
_READING = frozenset({hdrs.METH_GET, hdrs.METH_HEAD})
_HEADER_LINE = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:")


class Front(Protocol):
    """What answers common requests before they come to the connection."""

    @property
    def is_busy(self) -> bool:
        """Whether it has a request in work, or its client an answer to take."""


class Connection(RequestHandler):
    """One client connection."""

    __slots__ = (
        "_answered_count",
        "_asked",
        "_header_timeout_seconds",
        "_header_timer",
        "_is_behind_append",
        "_is_fresh",
        "_is_refused",
        "_reader_watch",
        "_sends_no_more",
        "_server",
        "_stall_seconds",
        "front",
        "was_cut",
    )

    def __init__(
        self, server: ConnectionServer, *, loop: asyncio.AbstractEventLoop, config: ServerConfig
    ) -> None:
        super().__init__(
            server,
            loop=loop,
            keepalive_timeout=config.keep_alive_seconds,
            lingering_time=_LINGER_SECONDS,
            access_log=None,  # type: ignore[arg-type] # None turns it off, as AppRunner documents
            max_line_size=MAX_REQUEST_LINE_BYTES,
            max_headers=MAX_HEADERS,
            max_field_size=MAX_FIELD_BYTES,
            auto_decompress=False,  # in_flight.Body inflates: bounded, and to the very end
        )
        if HttpRequestParser is HttpRequestParserPy:
            self._parser = PureRequestParser(
                self,
                loop,
                self._read_bufsize,
                max_line_size=MAX_REQUEST_LINE_BYTES,
                max_headers=MAX_HEADERS,
                max_field_size=MAX_FIELD_BYTES,
                payload_exception=web.RequestPayloadError,
                auto_decompress=False,
                max_msg_queue_size=self._max_msg_queue_size,
            )
        self._server = server
        self._answered_count = 0
        # The newest request that was parsed, and its body; None: everything is answered.
        self._asked: _MsgType | None = None
        self._is_fresh = True  # no byte has come yet
        self._is_refused = False  # the parser found what is no HTTP
        self._is_behind_append = False  # what is in work waited for an append of the front
        self._sends_no_more = False  # its client has closed its half
        self._header_timer: asyncio.TimerHandle | None = None
        self._header_timeout_seconds = config.http_header_timeout_ms / 1000
        self._reader_watch: ReaderWatch | None = None  # once there was something to wait for
        self._stall_seconds = config.stall_ms / 1000
        self.was_cut = False  # it ended before its client had taken everything
        self.front: Front | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Refuse beyond the bounds of connections by closing at once; start the header timer."""
        super().connection_made(transport)
        assert self.transport is not None
        self.transport.set_write_buffer_limits(high=_LEFT_BYTES, low=0)
        if self._server.is_full(transport):
            self._server.note_refused()
            self.force_close()
            return
        self._start_header_timer()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Drop the timers with the connection; a reset means that an answer was not read."""
        transport = self.transport
        left_bytes = 0 if transport is None else transport.get_write_buffer_size()
        self.was_cut = exc is not None or left_bytes > 0
        self._stop_header_timer()
        if self._reader_watch is not None:
            self._reader_watch.end()
            self._reader_watch = None
        super().connection_lost(exc)
        self._server.note_idle()

    # ---- a header that drips

    def data_received(self, data: bytes) -> None:
        """A whole header stops the timer; the first bytes of the next one start it again.

        What follows bytes that are no HTTP is not parsed: it would be refused once more.
        """
        if self._is_refused:
            return
        if self._is_fresh and data:
            self._is_fresh = False
            if data[0] == _TLS_HANDSHAKE:  # aiohttp's pure parser would wait for a line end
                self._refuse(40000, "This port speaks plain HTTP, not TLS.")
                return
            if data.startswith(_HTTP_2):  # llhttp waits for the rest of the preface
                self._refuse(505, "Use HTTP/1.1.")
                return
            if _is_kafka(data):  # it would take an answer of ours for the size of one
                self._stop_header_timer()
                self._server.note_kafka_client(self.transport)
                self.force_close()
                return
        before = self._request_count
        super().data_received(data)
        if self._request_count != before:
            self._stop_header_timer()
            self._note_asked()
        elif data and self._header_timer is None and before == self._answered_count:
            self._start_header_timer()

    def _note_asked(self) -> None:
        """Remember the newest request, unless it is a later packet of a body that is no framing.

        The parser in C leaves the body's reader waiting, and both would have the fault answered a
        second time: the reader is closed after its answer.
        """
        newest = self._messages[-1]
        self._is_refused = isinstance(newest[0], _ErrInfo)
        if self._is_refused and self._end_body("broken framing"):
            self._messages.pop()
            self._request_count -= 1
            self.close()
        else:
            self._asked = newest

    def _end_body(self, reason: str) -> bool:
        """Tell the reader of the newest request's body that it does not end; False: it has."""
        if self._asked is None or self._asked[1].is_eof():
            return False
        self._asked[1].set_exception(web.RequestPayloadError(reason))
        self._lingering_time = 0.0  # nothing further is read
        return True

    # ---- a client that sends no more

    def eof_received(self) -> bool:  # type: ignore[override] # True keeps the connection open
        """Answer what changes something, or is refused, before the connection closes.

        A client that left cannot be told from it, so a request that only reads ends then.
        TLS has no half connections.
        """
        asked = self._asked
        if asked is None or self.transport is None or self.ssl_context is not None:
            return False
        kinds = {_kind_of(message) for message, _ in (asked, *self._messages)}
        if self._current_request is not None:
            kinds.add(self._current_request.method)
        if kinds <= _READING and not self._is_behind_append:
            return False
        self.end_input()
        return True

    def end_input(self) -> None:
        """Nothing more comes: close behind the last answer."""
        if not self.is_busy:
            self.force_close()
            return
        self._sends_no_more = True
        self._end_body("broken off")

    async def finish_response(
        self, request: BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Count answers: when there are as many as requests, the next bytes are a new header."""
        if self._server.is_finishing or (self._sends_no_more and not self._messages):
            resp.force_close()
        try:
            finished = await super().finish_response(request, resp, start_time)
            if self._paused:  # who sends requests and reads no answers gets no more of them
                await self._drain_helper()
            return finished
        finally:
            self._answered_count += 1
            if self._answered_count == self._request_count:
                self._asked = None
                self._is_behind_append = False
                if self._sends_no_more and not self.is_busy:
                    self.force_close()
            self._server.note_idle()

    @property
    def is_busy(self) -> bool:
        """Whether a request is in work and its client is connected."""
        if self.transport is None:
            return False
        if self._request_count != self._answered_count:
            return True
        return self.front is not None and self.front.is_busy

    # ---- behind a front

    @property
    def is_idle(self) -> bool:
        """Whether it waits for its next request and takes one."""
        if self._close or self._force_close:
            return False
        waiter = self._waiter  # its task makes one when it begins, and after each answer
        return self._request_count == 0 if waiter is None else not waiter.done()

    @property
    def is_finishing(self) -> bool:
        """Whether the daemon stops."""
        return self._server.is_finishing

    @property
    def is_reading_paused(self) -> bool:
        """Whether it wants no bytes now."""
        return self._reading_paused or self._buffer_paused

    def second_socket(self) -> socket.socket | None:
        """One for the same connection, whose own belongs to the loop; None: too many are open."""
        if self.transport is None:
            return None
        first: socket.socket = self.transport.get_extra_info("socket")
        try:
            second = socket.socket(fileno=os.dup(first.fileno()))
        except OSError:
            return None
        if second.fileno() < self._server.descriptors // 2:  # the others are for connections
            return second
        second.close()
        return None

    def take_head(self, head: bytes) -> RawRequestMessage | None:
        """Receive a whole head; the request that it is, None when that is not one sound request."""
        before = self._request_count
        self.data_received(head)
        if self._request_count != before + 1:
            return None
        message = self._messages[-1][0]
        return None if isinstance(message, _ErrInfo) else message

    def begin_header_timer(self) -> None:
        """A head has begun that the front keeps until it is whole."""
        if self._header_timer is None:
            self._start_header_timer()

    def note_front_request(self) -> None:
        """The front has a whole head."""
        self._stop_header_timer()

    def note_waited(self) -> None:
        """What it has in work now waited in the front, and came before an append was answered."""
        self._is_behind_append = self._request_count != self._answered_count

    def note_front_idle(self) -> None:
        """The front has answered everything: the time that the connection may be idle begins."""
        self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        self._server.note_idle()

    def _process_keepalive(self) -> None:
        """Close an idle connection, which one with a busy front is not."""
        if self.is_busy:
            self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        super()._process_keepalive()

    def _start_header_timer(self) -> None:
        self._header_timer = self._loop.call_later(self._header_timeout_seconds, self._too_slow)

    def _stop_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _too_slow(self) -> None:
        self._header_timer = None
        self._refuse(408, "The request header came too slowly.")

    def _refuse(self, code: int, text: str) -> None:
        """Answer where no request exists yet, and close."""
        self._stop_header_timer()
        if self.transport is not None:
            request_id = self._server.request_ids.next()
            reply = error_reply(ApiError(code, text), request_id)
            add_standard_headers(reply, request_id)
            self.transport.write(serialized(reply, closes=True))
        self.force_close()

    # ---- a reader that stalls

    def pause_writing(self) -> None:
        """The socket did not take everything: from now on the client must take something."""
        super().pause_writing()
        self.begin_reader_watch()

    def begin_reader_watch(self) -> None:
        """From now on the client must take something."""
        transport = self.transport
        if transport is None:
            return
        if self._reader_watch is None:
            self._reader_watch = ReaderWatch(
                self._loop,
                lambda: taken_bytes(transport),
                self._stall_seconds,
                lambda: self._cut(transport),
            )
        self._reader_watch.begin()

    def resume_writing(self) -> None:
        """The socket has everything."""
        self.end_reader_watch()
        super().resume_writing()

    def end_reader_watch(self) -> None:
        """The client has nothing to take."""
        if self._reader_watch is not None:
            self._reader_watch.end()

    def _cut(self, transport: asyncio.Transport) -> None:
        """The answer has no end: no client takes it for complete."""
        self._server.note_cut()
        found: socket.socket | None = transport.get_extra_info("socket")
        if found is not None:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
        transport.abort()

    # ---- what the parser refuses

    def handle_error(
        self,
        request: BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """What the parser refused, in our shape, closing; client bytes are never echoed."""
        if request.writer.output_size > 0 or isinstance(exc, ConnectionError):
            raise ConnectionError("an answer is being sent, or the client is not connected")
        request_id = self._server.request_ids.next()
        error = _classify(status, exc)
        if error.entry.status >= 500 and error.entry.error_code != 505:
            _log.error("Unhandled error around a request", request_id=request_id, exc_info=exc)
        response = error_reply(error, request_id)
        add_standard_headers(response, request_id)
        response.headers["Connection"] = "close"
        response.force_close()
        return response


class _Told:
    """Log lines that a client can cause at any rate: one at once, then a count each minute."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._count = 0  # since the last line
        self._next_line_seconds = 0.0  # of the loop's clock

    def note(self, event: str, **facts: object) -> None:
        """It happened once more."""
        self._count += 1
        now_seconds = self._loop.time()
        if now_seconds < self._next_line_seconds:
            return
        _log.warning(event, count=self._count, **facts)
        self._count = 0
        self._next_line_seconds = now_seconds + _LINE_SECONDS


class ConnectionServer(web.Server):
    """Makes connections for one listener."""

    def __init__(
        self,
        app: web.Application,
        *,
        loop: asyncio.AbstractEventLoop,
        config: ServerConfig,
        request_ids: RequestIds,
        descriptors: int,
        stalled_readers: Counter,
        front_of: Callable[[Connection], asyncio.BaseProtocol] | None,
    ) -> None:
        """``descriptors``: a connection whose own number is as high is refused.

        ``front_of``: the protocol of a connection's transport, in front of it.
        """
        # The same two hooks that aiohttp's own AppRunner takes from an application. A client that
        # leaves ends its handler: a waiting fetch releases its slot at once.
        super().__init__(
            _handler_of(app, request_ids),  # type: ignore[arg-type] # gets what the factory makes
            request_factory=_one_version(app._make_request),
            handler_cancellation=True,
            loop=loop,
        )
        self._config = config
        self._max_connections = config.max_connections
        self.descriptors = descriptors
        self.request_ids = request_ids
        self.is_finishing = False
        self._all_idle = asyncio.Event()
        self._stalled_readers = stalled_readers
        self._front_of = front_of
        self._refusals = _Told(loop)
        self._cuts = _Told(loop)
        self._kafka_clients = _Told(loop)

    async def finish(self, timeout_seconds: float) -> None:
        """Close what idles, let each request in work be answered, then close everything."""
        self.is_finishing = True
        self.note_idle()
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._all_idle.wait()
        except TimeoutError:
            _log.warning("Requests were cut off", count=len(self._busy()))
        self.pre_shutdown()
        await self.shutdown(timeout=1)

    def is_full(self, transport: asyncio.BaseTransport) -> bool:
        """Whether the connection that was just made is one too many."""
        if len(self.connections) > self._max_connections:
            return True
        found: socket.socket | None = transport.get_extra_info("socket")
        return found is not None and found.fileno() >= self.descriptors

    def note_refused(self) -> None:
        """A connection beyond the bound."""
        self._refusals.note(
            "Connections are refused",
            max_connections=self._max_connections,
            descriptors=self.descriptors,
            remedy="Find who holds them, or raise max.connections, or the limit of open files.",
        )

    def note_kafka_client(self, transport: asyncio.BaseTransport | None) -> None:
        """Who connected speaks Kafka's protocol."""
        peer = transport.get_extra_info("peername") if transport is not None else None
        self._kafka_clients.note(
            "A Kafka client connected to the HTTP port",
            peer=peer[0] if peer else None,
            remedy="kafkalog does not speak Kafka's protocol: take this port out of the client's "
            "bootstrap.servers, and use the HTTP API or a client of a Kafka REST proxy.",
        )

    def note_cut(self) -> None:
        """A reader took nothing for http.write.stall.ms."""
        self._stalled_readers.inc()
        self._cuts.note("Readers that stalled were cut off", stall_ms=self._config.stall_ms)

    def _busy(self) -> list[RequestHandler]:
        return [each for each in self.connections if isinstance(each, Connection) and each.is_busy]

    def note_idle(self) -> None:
        """A request was answered or its client left: perhaps the last one."""
        if self.is_finishing and not self._busy():
            self._all_idle.set()

    def new_protocol(self) -> asyncio.BaseProtocol:
        """That of a new connection's transport."""
        connection = Connection(self, loop=self._loop, config=self._config)
        return connection if self._front_of is None else self._front_of(connection)


def _one_version(make: _RequestFactory) -> _RequestFactory:
    """Requests of other versions than 1.0 and 1.1 (llhttp lets some pass) are marked.

    Their own version is taken away: aiohttp would answer HTTP/2.0 as HTTP/2.0.
    """

    def factory(
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> BaseRequest:
        if message.version in (HttpVersion10, HttpVersion11):
            return make(message, payload, protocol, writer, task)
        message = message._replace(version=HttpVersion11, should_close=True)
        request = make(message, payload, protocol, writer, task)
        request[HAS_OTHER_VERSION] = True
        return request

    return factory


def _handler_of(app: web.Application, request_ids: RequestIds) -> _Handler:
    """The application's own handler, but a path is resolved once.

    The route of a method and a path is kept for later requests with both; the
    application's only middleware is called directly. A request with Expect is resolved by aiohttp.
    """
    (middleware,) = app.middlewares
    assert middleware is not None
    known: dict[tuple[str, str], UrlMappingMatchInfo] = {}

    def handler(request: web.Request) -> Awaitable[web.StreamResponse]:
        match = known.get((request.method, request.rel_url.raw_path))
        if match is None or hdrs.EXPECT in request.headers:
            return resolve(request)
        request._match_info = match
        return middleware(request, match.handler)

    async def resolve(request: web.Request) -> web.StreamResponse:
        path = request.rel_url.raw_path
        try:
            return await app._handle(request)
        except web.HTTPException as error:  # what aiohttp raises before any middleware (Expect)
            request_id = request_ids.take(request)
            response = error_reply(framework_error(error), request_id)
            add_standard_headers(response, request_id)
            response.force_close()
            return response
        finally:
            match = request._match_info
            if match is not None and match.http_exception is None and len(path) <= _KNOWN_CHARS:
                if len(known) >= _KNOWN_PATHS:
                    known.clear()
                known[request.method, path] = match

    return handler


def _is_kafka(data: bytes) -> bool:
    """Whether the first bytes of a connection are the head of a request to a Kafka broker."""
    if len(data) < _KAFKA_HEAD.size:
        return False
    head: tuple[int, int, int] = _KAFKA_HEAD.unpack_from(data)
    size, api, version = head
    return 0 < size <= _KAFKA_BYTES and 0 <= api <= _KAFKA_APIS and 0 <= version <= _KAFKA_APIS


def _kind_of(message: RawRequestMessage | _ErrInfo) -> str:
    """The method; empty of what is refused."""
    return "" if isinstance(message, _ErrInfo) else message.method


def _classify(status: int, exc: BaseException | None) -> ApiError:
    """The register's number for what aiohttp's parsers found."""
    if isinstance(exc, LineTooLong):
        line, limit = exc.args[0], exc.args[1]
        if limit == MAX_REQUEST_LINE_BYTES and not _HEADER_LINE.match(line):
            return ApiError(414, f"The request line is longer than {MAX_FIELD_BYTES} bytes.")
        return ApiError(431, f"A header line is longer than {MAX_FIELD_BYTES} bytes.")
    if exc is not None and "Too many headers" in str(exc):
        return ApiError(431, f"More than {MAX_HEADERS} headers.")
    if isinstance(exc, BadStatusLine) and not isinstance(exc, BadHttpMethod):
        if "\n" in exc.line or "CRLF" in exc.message:  # bare LF, as pure parser and llhttp see it
            return ApiError(40000, "Lines of a request end with CR and LF.")
        return ApiError(505, "Use HTTP/1.1.")
    if status >= 500:
        return ApiError(50000, "Internal error; quote the request id.")
    return ApiError(40000, "The request is not valid HTTP/1.1.")
