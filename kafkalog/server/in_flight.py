"""Bodies: a bound on what is in memory at once, and reading one within its limits.

A request whose body would pass the bound is refused before it is read (429, nothing appended).
Compressed bodies are inflated here and not by aiohttp, in bounded steps and to the very end: a
stream that breaks off or carries a wrong checksum is refused, never taken as a shorter body.
Owned by the event loop.
"""

from __future__ import annotations

import asyncio
import zlib
from typing import TYPE_CHECKING

from aiohttp import hdrs, web
from aiohttp.http_exceptions import HttpProcessingError

from kafkalog.server.error_map import ApiError

if TYPE_CHECKING:
    from kafkalog.server.api import Api

_WINDOW_BITS = {"gzip": 31, "x-gzip": 31, "deflate": 15}
IDENTITY = ("", "identity")
# What a reader of the body gets for bad chunks: the pure parser wakes it with its own error first.
BROKEN_BODY = (web.RequestPayloadError, HttpProcessingError)
# Inflated at most between two turns of the loop: some milliseconds.
_INFLATE_STEP_BYTES = 1 << 20


class InFlightBytes:
    """Bytes of request bodies that are being read or waited for."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
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
        if others and self._used_bytes + size_bytes > self._limit_bytes:
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

    def __init__(self, request: web.Request, api: Api, *, most_bytes: int | None = None) -> None:
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
        """The whole body, which came with its header."""
        try:
            data = self._request.content.read_nowait()
        except BROKEN_BODY as error:
            raise broken_framing() from error
        self._keep(data, limit)
        return data

    async def _collect(self, limit: int, inflater: Inflater | None) -> None:
        """All chunks as they come, each counted before the next is asked for."""
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
