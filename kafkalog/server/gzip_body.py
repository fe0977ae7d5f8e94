"""Gzip of answers: whole bodies, and streams whose every piece arrives when it is sent."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalog.server.api import Api

GZIP_MIN_BYTES = 1024
"""A smaller body gains nothing."""

_GZIP_BITS = 31
_LEVEL = 1  # JSON of records shrinks little more at five times the time
# Some hundred microseconds; more goes to a pool.
_INLINE_BYTES = 32 << 10


class GzipStream:
    """One stream."""

    def __init__(self, api: Api) -> None:
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


async def gzipped(api: Api, body: bytes) -> bytes:
    """A whole body."""
    if len(body) > _INLINE_BYTES:
        return await api.blocking(zlib.compress, body, _LEVEL, _GZIP_BITS)
    return zlib.compress(body, _LEVEL, _GZIP_BITS)
