"""Raw fetches of the fast path: sent from the page cache to the socket, without a copy of ours.

What ``Operations.fetch_checked`` finds is sent so. Other batches that are in the page cache are
read and checked on the event loop, as the ordinary way does. What needs the disk or has to wait,
and what would be refused, is the ordinary way's (``server/fetch/fetch.py``).
"""

from __future__ import annotations

import enum
import os
import socket
from typing import TYPE_CHECKING

from aiohttp.helpers import rfc822_formatted_time

from kafkalog.errors import KafkalogError
from kafkalog.server.fetch.fetch import fetch_headers
from kafkalog.server.protocol.errors import ApiError

if TYPE_CHECKING:
    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.log.values import FetchDataInfo, FetchSpan
    from kafkalog.server.api import Api
    from kafkalog.server.fast_path.heads import AskedFetch
    from kafkalog.server.protocol.replies import RequestIds

# As aiohttp writes the answer of the route.
_HEAD = (
    "HTTP/1.1 200 OK\r\nContent-Type: application/vnd.kafkalog.record-batches\r\n%s"
    "X-Content-Type-Options: nosniff\r\nServer: kafkalog\r\nX-Request-Id: %s\r\n"
    "Content-Length: %d\r\nDate: %s\r\n\r\n"
)


_PIECE_BYTES = 1 << 20
# The largest answer that is read on the event loop.
_READ_BYTES = 1 << 20


class SendState(enum.Enum):
    """How far an answer got."""

    WHOLE = enum.auto()
    SOCKET_FULL = enum.auto()  # send again when it takes more
    COLD = enum.auto()  # the rest has left the page cache: ``read_rest`` first


class Sending:
    """An answer on its way: its head, then bytes of a file.

    They were in the page cache when it began, and may leave it while the client takes its time.
    Only the disk has the rest then, which nobody has checked: all of it is read and checked again
    on a thread, and sent from memory.
    """

    __slots__ = ("_api", "_cached_end", "_head", "_log", "_position", "_read", "_span")

    def __init__(self, api: Api, log: UnifiedLog, span: FetchSpan, head: bytes) -> None:
        self._api = api
        self._log = log
        self._span = span  # it keeps the file open
        self._head = head
        self._position = 0  # in the span
        self._cached_end = _PIECE_BYTES  # so far it was seen in the page cache a moment ago
        self._read: memoryview | None = None  # the whole span, once it was read again

    def send(self, to: socket.socket) -> SendState:
        """Send what the socket takes now. OSError of the connection; EOFError: the file was cut."""
        size_bytes = self._span.size_bytes
        try:
            if self._head:
                sent = to.send(self._head, socket.MSG_MORE)
                self._head = self._head[sent:]
            while self._position < size_bytes and not self._head:
                sent = self._send_piece(to, min(size_bytes - self._position, _PIECE_BYTES))
                if sent == 0:
                    return SendState.COLD
                self._position += sent
        except BlockingIOError:
            pass
        if self._head or self._position < size_bytes:
            self._cached_end = self._position
            return SendState.SOCKET_FULL
        return SendState.WHOLE

    def _send_piece(self, to: socket.socket, size: int) -> int:
        """Bytes sent; 0: they are not in the page cache."""
        if self._read is not None:
            return to.send(self._read[self._position : self._position + size])
        position = self._span.position + self._position
        if self._position + size > self._cached_end:
            if self._span.file.cached_descriptor(position, size) is None:
                return 0
            self._cached_end = self._position + _PIECE_BYTES
        sent = os.sendfile(to.fileno(), self._span.descriptor, position, size)
        if sent == 0:
            raise EOFError(self._span.file.path)
        return sent

    async def read_rest(self) -> None:
        """Have all of it in memory; CorruptBatch, StorageFault, LogDirOffline."""
        self._read = await self._api.read_again(self._log, self._span)


def log_of(api: Api, asked: AskedFetch) -> UnifiedLog | None:
    """The log that is asked for; None: the ordinary way says why not."""
    if not api.lets_in():
        return None
    try:
        return api.operations.partition_log(asked.topic, asked.partition)
    except (KafkalogError, ApiError):
        return None


def span_of(api: Api, log: UnifiedLog, asked: AskedFetch, offset: int) -> FetchSpan | None:
    """Where the answer lies, if it can be sent from there; else None, and nothing is changed."""
    if not api.config.remembers_checked_batches:
        return None
    max_bytes = min(asked.max_bytes, api.config.http_max_fetch_bytes)
    try:
        span = api.operations.fetch_checked(log, offset, max_bytes)
    except (KafkalogError, ApiError):
        return None
    return None if span is None or _waits(asked, span.size_bytes, max_bytes) else span


def begin_sending(api: Api, log: UnifiedLog, span: FetchSpan, request_id: str) -> Sending:
    """The answer with what lies there."""
    return Sending(api, log, span, _head(span, span.size_bytes, request_id))


def read_now(
    api: Api, log: UnifiedLog, asked: AskedFetch, offset: int, request_ids: RequestIds
) -> tuple[bytes, bytes | memoryview] | None:
    """Head and body of the answer, if it needs no disk, no wait and no refusal; else None."""
    max_bytes = min(asked.max_bytes, api.config.http_max_fetch_bytes)
    if max_bytes > _READ_BYTES:
        return None
    remembers = api.config.remembers_checked_batches
    try:
        info = api.operations.fetch_now(log, offset, max_bytes, remembers=remembers)
    except (KafkalogError, ApiError):
        return None
    if info is None or not len(info.data) or _waits(asked, len(info.data), max_bytes):
        return None
    return _head(info, len(info.data), request_ids.next()), info.data


def _waits(asked: AskedFetch, size_bytes: int, max_bytes: int) -> bool:
    """Whether the client would rather wait for more than this."""
    return bool(asked.max_wait_ms) and size_bytes < min(asked.min_bytes, max_bytes)


def _head(found: FetchDataInfo | FetchSpan, size_bytes: int, request_id: str) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in fetch_headers(found).items())
    return (_HEAD % (lines, request_id, size_bytes, rfc822_formatted_time())).encode()
