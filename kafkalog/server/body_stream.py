"""A request body that is worked on while it comes: the streaming twin of ``in_flight.Body``.

``BodyStream`` gives its bytes, ``DocumentStream`` the JSON documents in them. A body may be of any
length: what was read and not yet let go of is held, and counted in the bound of all bodies.
Compressed ones are inflated in bounded steps and to the very end. A client that stops in the middle
of a document, or says nothing for too long, is cut off. Owned by the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, NamedTuple

from aiohttp import hdrs, web

from kafkalog.errors import KafkalogError, NotReady
from kafkalog.server.error_map import ApiError
from kafkalog.server.in_flight import (
    BROKEN_BODY,
    IDENTITY,
    Inflater,
    broken_framing,
    refuse_encoding,
    too_large,
)
from kafkalog.server.security.rates import RATE_LIMITS, RateLimits

if TYPE_CHECKING:
    from kafkalog.format.wire.json_documents import Splitter
    from kafkalog.server.api import Api

# A stream that goes on for longer is told to begin anew, as v3 has it.
_LIFE_SECONDS = 24 * 3600.0
# Documents that come together are worked on together, up to so many; and bytes that are waited for
# when it is known that they come.
_GROUP_DOCUMENTS = 2_000
_GROUP_BYTES = 512 << 10


class BodyStream:
    """``with BodyStream(request, api) as body``: takes one place of ``http.max.streams``.

    ApiError 41502 and 42903 from the beginning.
    """

    def __init__(
        self, request: web.Request, api: Api, *, life_seconds: float = _LIFE_SECONDS
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
        self._place = contextlib.ExitStack()

    def __enter__(self) -> BodyStream:
        self._place.enter_context(self._api.delayed_fetches.stream(self._stop_waiting))
        return self

    def __exit__(self, *exc: object) -> None:
        self._place.close()
        self.let_go(self._held_bytes)

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
        """Whether it is known already that nothing more comes; an inflater has to be asked."""
        return self._inflater is None and self._content.at_eof()

    def hold(self, size_bytes: int) -> None:
        """So many bytes more are in memory for this body. ApiError 42902."""
        self._api.in_flight.reserve(size_bytes, held_bytes=self._held_bytes)
        self._held_bytes += size_bytes

    def let_go(self, size_bytes: int) -> None:
        """So many of the bytes that are held are done with."""
        self._held_bytes -= size_bytes
        self._api.in_flight.release(size_bytes)

    async def _received(self, deadline: float) -> bytes:
        """What came over the wire; empty at the end."""
        if self._api.stopping:
            raise NotReady(self._api.refusal())
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
                raise NotReady(self._api.refusal()) from None
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
    """Documents that came together, and the bytes to let go of when they are done with."""

    documents: list[bytes]
    size_bytes: int


class DocumentStream:
    """The documents of a body, in groups of what is there.

    A document has to be whole ``http.body.timeout.ms`` and a second per MiB after its first byte,
    the next one to begin within ``connections.max.idle.ms``; it may have
    ``socket.request.max.bytes``.
    """

    def __init__(
        self, request: web.Request, api: Api, body: BodyStream, splitter: Splitter
    ) -> None:
        self._body = body
        self._splitter = splitter
        self._config = api.config
        # A body whose length is known comes in one go: nobody waits for an answer in between.
        self._left_bytes = request.content_length or 0
        self._since = 0.0  # of the event loop: when the document in hand began
        self._unclaimed_bytes = 0
        self._whole: list[bytes] = []  # documents that were not given out
        self._is_over = False  # nothing more is read
        self._fault: KafkalogError | ApiError | None = None

    async def next(self) -> DocumentGroup | None:
        """The next documents, at least one; None at the end of the body.

        Errors as ``BodyStream.chunk``, and ApiError 41302 for a document that is too large; whole
        documents in front of the fault come first. What stands unfinished at the end is a document.
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
        if not self._whole:  # with what stood between them
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
