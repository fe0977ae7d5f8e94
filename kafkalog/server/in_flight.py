"""Bodies: a bound on what is in memory at once, and reading one within its limits.

A request whose body would pass the bound is refused before it is read (429, nothing appended).
Owned by the event loop.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web

from kafkalog.server.error_map import ApiError

if TYPE_CHECKING:
    from kafkalog.server.api import Api

_IDENTITY = ("", "identity", "gzip", "deflate")


class InFlightBytes:
    """Bytes of request bodies that are being read or waited for."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._used_bytes = 0

    @property
    def used_bytes(self) -> int:
        """Bytes reserved now."""
        return self._used_bytes

    def reserve(self, size_bytes: int) -> None:
        """Take size_bytes; 429/42902 when the bound would be passed by more than one request."""
        if self._used_bytes and self._used_bytes + size_bytes > self._limit_bytes:
            raise ApiError(
                42902,
                "Too many request bytes in flight; nothing was appended. Try again.",
                headers={"Retry-After": "1"},
            )
        self._used_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        """Give back what reserve took."""
        self._used_bytes -= size_bytes
        assert self._used_bytes >= 0


class Body:
    """A request body held in memory: ``async with Body(request, api) as data``."""

    __slots__ = ("_api", "_request", "_reserved")

    def __init__(self, request: web.Request, api: Api) -> None:
        self._request = request
        self._api = api
        self._reserved = 0

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
            self._api.in_flight.reserve(size_bytes - self._reserved)
            self._reserved = size_bytes

    async def _read(self) -> bytes:
        request, limit = self._request, self._api.config.socket_request_max_bytes
        encoding = request.headers.get("Content-Encoding", "").strip().lower()
        if encoding not in _IDENTITY:
            raise ApiError(41502, f"Content-Encoding '{encoding[:40]}' is not accepted; use gzip.")
        declared = request.content_length or 0
        if declared > limit:
            raise _too_large(limit)
        self._reserve(declared)
        chunks: list[bytes] = []
        size = 0
        content = request.content
        try:
            # The deadline covers a body that stops; a steady one only has to keep its pace.
            async with asyncio.timeout(self._api.config.body_timeout_seconds(declared)):
                while chunk := await content.readany():
                    size += len(chunk)
                    if size > limit:
                        raise _too_large(limit)
                    self._reserve(size)
                    chunks.append(chunk)
        except TimeoutError:
            raise ApiError(408, "The request body came too slowly.") from None
        except web.RequestPayloadError as error:
            if encoding:
                raise ApiError(40006, f"The {encoding} body does not inflate.") from error
            raise ApiError(40000, "The request body is broken off or badly framed.") from error
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _too_large(limit: int) -> ApiError:
    return ApiError(
        41302,
        f"The request body is larger than {limit} bytes (socket.request.max.bytes).",
        details={"max_request_bytes": limit},
    )
