"""Request bodies within their limits, and gzip of answers.

All bodies together have a memory bound: a request above it is refused before its body is read (429,
nothing appended). ``Body`` reads one whole; ``BodyStream`` and ``DocumentStream`` give the bytes
and JSON documents of one of any length, and count what was read until it is released. Compressed
bodies are inflated here, not by aiohttp, in bounded steps and to the end: a stream that is cut or
has a wrong checksum is refused, never taken as a shorter body. A client that stops in the middle of
a document is cut off after a time-out. Streamed answers are compressed so that each piece arrives
when it is sent. Owned by the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from typing import TYPE_CHECKING, NamedTuple, ParamSpec, Protocol, TypeVar

from aiohttp import hdrs, web
from aiohttp.http_exceptions import HttpProcessingError

from kafkalog.errors import KafkalogError
from kafkalog.format.wire.json_page import MalformedJson, check_envelope
from kafkalog.server.protocol.errors import ApiError
from kafkalog.server.security.rate_limits import RATE_LIMITS, RateLimits

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.format.wire.json_documents import Splitter
    from kafkalog.server.fetch.delayed_fetch import DelayedFetches
    from kafkalog.settings import ServerConfig

P = ParamSpec("P")
T = TypeVar("T")

_WINDOW_BITS = {"gzip": 31, "x-gzip": 31, "deflate": 15}
IDENTITY = ("", "identity")
# What a reader of the body gets for bad chunks: the pure parser wakes it with its own error first.
BROKEN_BODY = (web.RequestPayloadError, HttpProcessingError)
# Inflated at most between two yields to the loop: some milliseconds.
_INFLATE_STEP_BYTES = 1 << 20


class BodyHost(Protocol):
    """What a body needs of the Api."""

    config: ServerConfig
    in_flight: InFlightBytes
    delayed_fetches: DelayedFetches

    @property
    def stopping(self) -> bool:
        """Whether the daemon stops."""

    def refusal(self) -> KafkalogError:
        """Why a request is not served in this phase."""

    async def blocking(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run the call on the control pool."""


class InFlightBytes:
    """Bytes of request bodies that are being read or waited for."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes  # constant after construction
        self._used_bytes = 0

    @property
    def used_bytes(self) -> int:
        """Bytes reserved now."""
        return self._used_bytes

    def reserve(self, size_bytes: int, *, held_bytes: int = 0) -> None:
        """Take size_bytes; 429/42902 when the bound would be passed.

        ``held_bytes`` is what the request has already: one that is alone is never refused.
        """
        others = self._used_bytes - held_bytes
        if others and self._used_bytes + size_bytes > self.limit_bytes:
            raise ApiError(
                42902, "Too many request bytes in flight; nothing was appended. Try again."
            )
        self._used_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        """Give back what reserve took."""
        self._used_bytes -= size_bytes
        assert self._used_bytes >= 0


class Inflater:
    """One compressed body, in steps; several gzip members make one body."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._stream = zlib.decompressobj(_WINDOW_BITS[encoding])
        self._input = b""

    def feed(self, data: bytes) -> None:
        """More compressed bytes."""
        self._input += data

    def step(self) -> bytes:
        """The next inflated bytes; empty when more input is needed. ApiError 40006."""
        while self._input:
            if self._stream.eof:
                if self._encoding == "deflate":
                    raise self._broken()
                self._stream = zlib.decompressobj(_WINDOW_BITS[self._encoding])
            try:
                data = self._stream.decompress(self._input, _INFLATE_STEP_BYTES)
            except zlib.error as error:
                raise self._broken() from error
            self._input = self._stream.unconsumed_tail or self._stream.unused_data
            if data:
                return data
        return b""

    def finish(self) -> None:
        """The input is over: so must be the stream, its checksum included. ApiError 40006."""
        if not self._stream.eof:
            raise self._broken()

    def _broken(self) -> ApiError:
        return ApiError(40006, f"The {self._encoding} body does not inflate.")


class Body:
    """A request body held in memory: ``async with Body(request, api) as data``.

    ``most_bytes``: what such a body may have where that is less than any may.
    """

    __slots__ = ("_api", "_chunks", "_most_bytes", "_request", "_reserved", "_size")

    def __init__(
        self, request: web.Request, api: BodyHost, *, most_bytes: int | None = None
    ) -> None:
        self._request = request
        self._api = api
        self._most_bytes = most_bytes
        self._reserved = 0
        self._size = 0
        self._chunks: list[bytes] = []

    async def __aenter__(self) -> bytes:
        try:
            return await self._read()
        except BaseException:
            self._release()
            raise

    async def __aexit__(self, *exc: object) -> None:
        self._release()

    def _release(self) -> None:
        self._api.in_flight.release(self._reserved)
        self._reserved = 0

    def _reserve(self, size_bytes: int) -> None:
        if size_bytes > self._reserved:
            self._api.in_flight.reserve(size_bytes - self._reserved, held_bytes=self._reserved)
            self._reserved = size_bytes

    async def _read(self) -> bytes:
        request, limit = self._request, self._api.config.socket_request_max_bytes
        if self._most_bytes is not None:
            limit = min(limit, self._most_bytes)
        encoding = request.headers.get(hdrs.CONTENT_ENCODING, "").strip().lower()
        refuse_encoding(encoding)
        declared = request.content_length or 0
        if declared > limit:
            raise self._too_large(limit)
        self._reserve(declared)
        if encoding in IDENTITY and request.content.is_eof():  # nothing to wait for
            return self._rest(limit)
        inflater = Inflater(encoding) if encoding in _WINDOW_BITS else None
        try:
            # The deadline covers a body that stops; a steady one only has to keep its pace.
            async with asyncio.timeout(self._api.config.body_timeout_seconds(declared)):
                await self._collect(limit, inflater)
        except TimeoutError:
            raise ApiError(408, "The request body came too slowly.") from None
        except BROKEN_BODY as error:
            raise broken_framing() from error
        return self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)

    def _rest(self, limit: int) -> bytes:
        """The whole body, which arrived with its header."""
        try:
            data = self._request.content.read_nowait()
        except BROKEN_BODY as error:
            raise broken_framing() from error
        self._keep(data, limit)
        return data

    async def _collect(self, limit: int, inflater: Inflater | None) -> None:
        """All chunks as they arrive, each counted before the next is read."""
        content = self._request.content
        while chunk := await content.readany():
            if inflater is None:
                self._keep(chunk, limit)
                continue
            inflater.feed(chunk)
            while data := inflater.step():
                self._keep(data, limit)
                await asyncio.sleep(0)  # let others have the loop between two steps
        if inflater is not None:
            inflater.finish()

    def _keep(self, chunk: bytes, limit: int) -> None:
        self._size += len(chunk)
        if self._size > limit:
            raise self._too_large(limit)
        self._reserve(self._size)
        self._chunks.append(chunk)

    def _too_large(self, limit: int) -> ApiError:
        if limit != self._most_bytes:
            return too_large(limit)
        return ApiError(41302, f"This request's body may have {limit} bytes at most.")


def refuse_encoding(encoding: str) -> None:
    """ApiError 41502 for a Content-Encoding that is neither inflated here nor none."""
    if encoding not in IDENTITY and encoding not in _WINDOW_BITS:
        raise ApiError(41502, "Content-Encoding is gzip, deflate or identity.")


def broken_framing() -> ApiError:
    """The body ends before its end."""
    return ApiError(40000, "The request body is broken off or badly framed.")


def too_large(limit: int) -> ApiError:
    """More than ``socket.request.max.bytes``."""
    return ApiError(
        41302,
        f"The request body is larger than {limit} bytes (socket.request.max.bytes).",
        details={"max_request_bytes": limit},
    )


# A longer stream is ended; its client begins another, as in v3.
_LIFE_SECONDS = 24 * 3600.0
# Documents that arrive together are processed together, up to so many; and bytes that are awaited
# when it is known that they follow.
_GROUP_DOCUMENTS = 2_000
_GROUP_BYTES = 512 << 10


class BodyStream:
    """``with BodyStream(request, api) as body``: takes one place of ``http.max.streams``.

    ApiError 41502 and 42903 from the beginning.
    """

    def __init__(
        self, request: web.Request, api: BodyHost, *, life_seconds: float = _LIFE_SECONDS
    ) -> None:
        self._request = request
        self._content = request.content
        self._api = api
        self._rates: RateLimits | None = request.get(RATE_LIMITS)
        encoding = request.headers.get(hdrs.CONTENT_ENCODING, "").strip().lower()
        refuse_encoding(encoding)
        self._inflater = None if encoding in IDENTITY else Inflater(encoding)
        self._held_bytes = 0
        self._ends_at = asyncio.get_running_loop().time() + life_seconds
        self._patience: asyncio.Timeout | None = None  # of the wait for more
        self._slot = contextlib.ExitStack()

    def __enter__(self) -> BodyStream:
        self._slot.enter_context(self._api.delayed_fetches.stream(self._stop_waiting))
        return self

    def __exit__(self, *exc: object) -> None:
        self._slot.close()
        self.release(self._held_bytes)

    async def chunk(self, deadline: float) -> bytes:
        """The next bytes, inflated, as soon as there are any; empty at the end of the body.

        ``deadline`` is a time of the event loop: 408 when nothing came until then. ApiError 40000,
        40006, 42902; NotReady at a stop.
        """
        while True:
            data = self._inflater.step() if self._inflater is not None else b""
            if data:
                await asyncio.sleep(0)  # let others have the loop between two steps
            else:
                data = await self._received(deadline)
                if data and self._inflater is not None:
                    self._inflater.feed(data)
                    continue
            self.hold(len(data))
            return data

    async def pace(self) -> float:
        """Wait until what was read is within the principal's rate; how many seconds it took."""
        if self._rates is None:
            return 0
        seconds = self._rates.owed_seconds(self._request)
        if seconds and not self._api.stopping:
            try:
                async with asyncio.timeout(seconds) as self._patience:
                    await asyncio.get_running_loop().create_future()  # a stop ends it sooner
            except TimeoutError:
                pass
            finally:
                self._patience = None
        return seconds

    @property
    def is_at_end(self) -> bool:
        """Whether it is known already that nothing follows; an inflater has to be asked."""
        return self._inflater is None and self._content.at_eof()

    def hold(self, size_bytes: int) -> None:
        """So many bytes more are in memory for this body. ApiError 42902."""
        self._api.in_flight.reserve(size_bytes, held_bytes=self._held_bytes)
        self._held_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        """So many of the bytes that are held are done with."""
        self._held_bytes -= size_bytes
        self._api.in_flight.release(size_bytes)

    async def _received(self, deadline: float) -> bytes:
        """The next bytes of the connection; empty at the end."""
        if self._api.stopping:
            raise self._api.refusal()
        try:
            data = self._content.read_nowait() or await self._awaited(deadline)
        except BROKEN_BODY as error:
            raise broken_framing() from error
        if not data and self._inflater is not None:
            self._inflater.finish()
        return data

    async def _awaited(self, deadline: float) -> bytes:
        try:
            async with asyncio.timeout_at(min(deadline, self._ends_at)) as self._patience:
                return await self._content.readany()
        except TimeoutError:
            if self._api.stopping:
                raise self._api.refusal() from None
            if self._ends_at < deadline:
                raise ApiError(408, "The stream is a day old: begin another.") from None
            raise ApiError(408, "The request body came too slowly.") from None
        finally:
            self._patience = None

    def _stop_waiting(self) -> None:
        """The daemon stops: nothing more is read."""
        if self._patience is not None and not self._patience.expired():
            self._patience.reschedule(asyncio.get_running_loop().time())


class DocumentGroup(NamedTuple):
    """Documents that arrived together, and the bytes to release when they are done."""

    documents: list[bytes]
    size_bytes: int


class DocumentStream:
    """The documents of a body, in groups of those that have arrived.

    A document has to be whole ``http.body.timeout.ms`` and a second per MiB after its first byte,
    the next one to begin within ``connections.max.idle.ms``; it may have
    ``socket.request.max.bytes``.
    """

    def __init__(
        self, request: web.Request, api: BodyHost, body: BodyStream, splitter: Splitter
    ) -> None:
        self._body = body
        self._splitter = splitter
        self._config = api.config
        # The client of a body with a length sends all of it before it reads the answer.
        self._left_bytes = request.content_length or 0
        self._since = 0.0  # of the event loop: when the document in hand began
        self._unclaimed_bytes = 0
        self._whole: list[bytes] = []  # documents that were not given out
        self._is_over = False  # nothing more is read
        self._fault: KafkalogError | ApiError | None = None

    async def next(self) -> DocumentGroup | None:
        """The next documents, at least one; None at the end of the body.

        Errors as ``BodyStream.chunk``, and ApiError 41302 for a document that is too large; whole
        documents before the fault are given first. An unfinished one at the end is a document too.
        """
        while not self._is_over and (not self._whole or self._is_filling()):
            try:
                self._whole += await self._feed()
            except (KafkalogError, ApiError) as fault:
                self._fault, self._is_over = fault, True
        if not self._whole and self._fault is not None:
            raise self._fault
        if not self._whole:
            return None
        documents = self._whole[:_GROUP_DOCUMENTS]
        self._whole = self._whole[_GROUP_DOCUMENTS:]
        size_bytes = sum(map(len, documents))
        if not self._whole:  # with the text between them
            size_bytes = self._unclaimed_bytes - self._splitter.pending_bytes
        self._unclaimed_bytes -= size_bytes
        return DocumentGroup(documents, size_bytes)

    @property
    def is_empty(self) -> bool:
        """Whether it is known already that there are no more."""
        return self._is_over and not self._whole and self._fault is None

    def _is_filling(self) -> bool:
        return self._left_bytes > 0 and self._unclaimed_bytes < _GROUP_BYTES

    async def _feed(self) -> list[bytes]:
        """What the next chunk completes."""
        splitter, now = self._splitter, asyncio.get_running_loop().time()
        wait_seconds = self._config.keep_alive_seconds
        if splitter.pending_bytes:
            wait_seconds = self._config.body_timeout_seconds(splitter.pending_bytes)
            wait_seconds -= now - self._since
        chunk = await self._body.chunk(now + wait_seconds)
        self._unclaimed_bytes += len(chunk)
        self._left_bytes -= len(chunk)
        had_pending = splitter.pending_bytes > 0
        documents = splitter.feed(chunk) if chunk else []
        paced_seconds = await self._body.pace()
        if documents or not had_pending:
            self._since = asyncio.get_running_loop().time()
        else:
            self._since += paced_seconds
        if splitter.pending_bytes > self._config.socket_request_max_bytes:
            splitter.finish()
            self._fault, self._is_over = too_large(self._config.socket_request_max_bytes), True
            return documents
        self._is_over = not chunk or self._body.is_at_end or splitter.is_lost
        return documents + splitter.finish() if self._is_over else documents


GZIP_MIN_BYTES = 1024
"""A smaller body gains nothing."""

_GZIP_BITS = 31
_LEVEL = 1  # JSON of records shrinks little more at five times the time
# Some hundred microseconds; more is done on a pool.
_INLINE_BYTES = 32 << 10


class GzipStream:
    """One stream."""

    def __init__(self, api: BodyHost) -> None:
        self._api = api
        self._stream = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP_BITS)

    async def step(self, piece: bytes) -> bytes:
        """The piece compressed, to its last byte."""
        if len(piece) > _INLINE_BYTES:
            return await self._api.blocking(self._step, piece)
        return self._step(piece)

    def _step(self, piece: bytes) -> bytes:
        return self._stream.compress(piece) + self._stream.flush(zlib.Z_SYNC_FLUSH)

    def end(self) -> bytes:
        """What ends the stream."""
        return self._stream.flush()


async def gzipped(api: BodyHost, body: bytes) -> bytes:
    """A whole body."""
    if len(body) > _INLINE_BYTES:
        return await api.blocking(zlib.compress, body, _LEVEL, _GZIP_BITS)
    return zlib.compress(body, _LEVEL, _GZIP_BITS)


class NotJson(ApiError):
    """400: text that is no acceptable JSON; its shape was not checked."""

    def __init__(self, reason: str) -> None:
        super().__init__(400, f"The body is not acceptable JSON: {reason}")


def refuse_empty(data: bytes) -> None:
    """ApiError 42206 for a body without JSON."""
    if not data or data.isspace():
        raise ApiError(42206, "The body is empty; send JSON.")


def check_json(data: bytes, *, opening: bytes = b"", closing: bytes = b"") -> None:
    """Refuse no JSON, broken JSON, other encodings, duplicate keys, NaN, and depth (JSON bombs).

    Where the data is a part of JSON, ``opening`` and ``closing`` complete it: an error
    counts the bytes of ``data``.
    """
    if not opening:
        refuse_empty(data)
    try:
        check_envelope(opening + data + closing)
    except MalformedJson as error:
        position = min(max((error.position or 0) - len(opening), 0), len(data))
        raise NotJson(f"{error.reason} at byte {position}") from error
