"""Raw fetches of the fast path: sent from the page cache to the socket, without a copy of ours.

Only what ``Operations.fetch_checked`` finds is sent so. What has to be read, checked or waited for,
and what would be refused, is the ordinary way's (``server/fetch/fetch.py``).
"""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING

from aiohttp.helpers import rfc822_formatted_time

from kafkalog.errors import KafkalogError
from kafkalog.server.fetch.fetch import fetch_headers
from kafkalog.server.protocol.endpoint import PARTITION
from kafkalog.server.protocol.errors import ApiError

if TYPE_CHECKING:
    from kafkalog.log.values import FetchSpan
    from kafkalog.server.api import Api
    from kafkalog.server.fast_path.heads import AskedFetch

_ROUTE = f"{PARTITION}/batches"
# As aiohttp writes the answer of the route.
_HEAD = (
    "HTTP/1.1 200 OK\r\nContent-Type: application/vnd.kafkalog.record-batches\r\n%s"
    "X-Content-Type-Options: nosniff\r\nServer: kafkalog\r\nX-Request-Id: %s\r\n"
    "Content-Length: %d\r\nDate: %s\r\n\r\n"
)


_PIECE_BYTES = 1 << 20


class Sending:
    """An answer on its way: its head, then bytes of a file."""

    __slots__ = ("_head", "_left", "_position", "_span")

    def __init__(self, head: bytes, span: FetchSpan) -> None:
        self._head = head
        self._span = span  # it keeps the file open
        self._position = span.position
        self._left = span.size_bytes

    def send(self, to: socket.socket) -> bool:
        """Send what the socket takes now; whether that was the rest. OSError of the connection.

        EOFError when the file is shorter than it was, or the rest is in the page cache no more:
        only the disk could complete the answer, with bytes that nobody has checked.
        """
        try:
            if self._head:
                sent = to.send(self._head, socket.MSG_MORE)
                self._head = self._head[sent:]
            file = self._span.file
            while self._left and not self._head:
                size = min(self._left, _PIECE_BYTES)
                descriptor = file.cached_descriptor(self._position, size)
                if descriptor is None:
                    raise EOFError(file.path)
                sent = os.sendfile(to.fileno(), descriptor, self._position, size)
                if sent == 0:
                    raise EOFError(file.path)
                self._position += sent
                self._left -= sent
        except BlockingIOError:
            return False
        return not self._left


def span_of(api: Api, asked: AskedFetch, offset: int) -> FetchSpan | None:
    """Where the answer lies, if it can be sent from there; else None, and nothing is changed."""
    if not (api.lets_in() and api.config.remembers_checked_batches):
        return None
    max_bytes = min(asked.max_bytes, api.config.http_max_fetch_bytes)
    try:
        log = api.operations.partition_log(asked.topic, asked.partition)
        span = api.operations.fetch_checked(log, offset, max_bytes)
    except (KafkalogError, ApiError):
        return None
    if span is None or (asked.max_wait_ms and span.size_bytes < min(asked.min_bytes, max_bytes)):
        return None
    return span


def begin_sending(
    api: Api, asked: AskedFetch, span: FetchSpan, request_id: str, started: float
) -> Sending:
    """The answer with what lies there; ``started``: of the performance counter."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in fetch_headers(span).items())
    head = _HEAD % (lines, request_id, span.size_bytes, rfc822_formatted_time())
    api.metrics.traffic.observe_fetch(asked.topic, span.size_bytes)
    api.metrics.observe_http(_ROUTE, "GET", 200, time.perf_counter() - started)
    return Sending(head.encode(), span)
