"""A load client with pre-built requests: epoll, many keep-alive connections, no HTTP library.

Closed loop: each connection has one request under way (`run_paced` is the open one). Answers are
read by their Content-Length or to their last chunk; latency runs from the first byte sent to the
last byte read. One process is enough while its own CPU share stays below one core; more are forked
on demand and start together. The CPU time of all client processes is reported, so that a reader can
see how much of the machine the client took.
"""

from __future__ import annotations

import itertools
import multiprocessing
import select
import socket
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.bench.machine_use import own_cpu_seconds
from tests.bench.results import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_BUFFER_BYTES = 4 << 20
_HEAD_END = b"\r\n\r\n"
_LENGTH_NAME = b"content-length:"
_CHUNKED = b"transfer-encoding: chunked"
_LAST_CHUNK = b"\r\n0\r\n\r\n"  # of a body of text that has no bare line ends of this kind
_LOOK_SECONDS = 0.05


@dataclass(slots=True)
class LoadResult:
    """What a run saw. Bytes count heads and bodies."""

    requests: int
    seconds: float
    bytes_received: int
    client_cpu_seconds: float
    latencies_ms: list[float] = field(repr=False)
    server_cpu_share: float | None = None

    @property
    def requests_per_second(self) -> float:
        return self.requests / self.seconds

    @property
    def client_cpu_share(self) -> float:
        """CPU seconds of the client per second; 1.0 is one core."""
        return self.client_cpu_seconds / self.seconds

    def percentile_ms(self, percent: float) -> float:
        """Latency below which so many percent of the answers stayed."""
        ordered = sorted(self.latencies_ms)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]

    def sample(self, value: float, *percents: int, **extra: float) -> Sample:
        """The figure with both CPU shares, the latencies below which so many percent stayed."""
        latencies = {f"p{percent}_ms": self.percentile_ms(percent) for percent in percents}
        return Sample(value, self.client_cpu_share, self.server_cpu_share, {**latencies, **extra})


def build_request(
    method: str, path: str, body: bytes = b"", content_type: str = "", accept: str = "*/*"
) -> bytes:
    """One HTTP/1.1 request as it goes over the wire."""
    head = f"{method} {path} HTTP/1.1\r\nHost: bench\r\nAccept: {accept}\r\n"
    if content_type:
        head += f"Content-Type: {content_type}\r\n"
    if body or method == "POST":
        head += f"Content-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


def run_load(
    port: int, requests: Sequence[bytes], *, count: int, connections: int, processes: int = 1
) -> LoadResult:
    """Send ``count`` requests, taken from ``requests`` round and round; every answer must be 2xx.

    With several processes connections and requests are divided among them, and the time runs from
    the first start to the last end.
    """
    if processes == 1:
        return _Client(port, connections).run(requests, count)
    context = multiprocessing.get_context("fork")
    together = context.Barrier(processes)
    shares = [(connections * n // processes, count * n // processes) for n in range(processes + 1)]
    pipes = []
    for (first_c, first_n), (next_c, next_n) in itertools.pairwise(shares):
        here, there = context.Pipe(duplex=False)

        def work(connection_count: int, share: int, offset: int, pipe: object = there) -> None:
            client = _Client(port, connection_count)
            turned = [*requests[offset % len(requests) :], *requests[: offset % len(requests)]]
            together.wait(60)
            pipe.send(client.run(turned, share))  # type: ignore[attr-defined]

        context.Process(target=work, args=(next_c - first_c, next_n - first_n, first_n)).start()
        there.close()
        pipes.append(here)
    results: list[LoadResult] = [pipe.recv() for pipe in pipes]
    return LoadResult(
        requests=sum(result.requests for result in results),
        seconds=max(result.seconds for result in results),
        bytes_received=sum(result.bytes_received for result in results),
        client_cpu_seconds=sum(result.client_cpu_seconds for result in results),
        latencies_ms=[ms for result in results for ms in result.latencies_ms],
    )


def run_paced(
    port: int,
    requests: Sequence[bytes],
    *,
    rate: float,
    connections: int,
    is_over: Callable[[], bool],
) -> LoadResult:
    """Send ``rate`` requests a second until ``is_over``; every answer must be 2xx.

    A request is due at a fixed moment whatever the answers before it took, and its latency runs
    from that moment: a server that stands still is charged for all that it keeps waiting. Due
    moments are met to a millisecond. CPU time is that of the calling thread.
    """
    return _Client(port, connections).run_paced(requests, rate, is_over)


class _Connection:
    __slots__ = ("head", "is_chunked", "pending", "remaining", "socket", "started", "tail")

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.pending = memoryview(b"")
        self.remaining = -1  # bytes of the answer still to come; -1: its head is not whole
        self.head = b""
        self.is_chunked = False
        self.tail = b""  # of a chunked answer: what came last
        self.started = 0.0


class _Client:
    def __init__(self, port: int, connections: int) -> None:
        self._connections = [_Connection(port) for _ in range(connections)]
        self._by_fd = {item.socket.fileno(): item for item in self._connections}
        self._poll = select.epoll()
        for fd in self._by_fd:
            self._poll.register(fd, select.EPOLLIN)
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._received = 0

    def run(self, requests: Sequence[bytes], count: int) -> LoadResult:
        """The closed loop; closes the connections at its end."""
        latencies: list[float] = []
        sent, cycle = 0, len(requests)
        cpu_before, started = own_cpu_seconds(), time.perf_counter()
        for connection in self._connections[:count]:
            self._begin(connection, requests[sent % cycle])
            sent += 1
        while len(latencies) < count:
            for connection in self._answered():
                latencies.append((time.perf_counter() - connection.started) * 1000)
                if sent < count:
                    self._begin(connection, requests[sent % cycle])
                    sent += 1
        seconds, cpu = time.perf_counter() - started, own_cpu_seconds() - cpu_before
        self._close()
        return LoadResult(count, seconds, self._received, cpu, latencies)

    def run_paced(
        self, requests: Sequence[bytes], rate: float, is_over: Callable[[], bool]
    ) -> LoadResult:
        """The open loop; closes the connections at its end."""
        latencies: list[float] = []
        idle, sent, cycle = list(self._connections), 0, len(requests)
        cpu_before, started = time.thread_time(), time.perf_counter()
        while not (over := is_over()) or len(latencies) < sent:
            due, now = started + sent / rate, time.perf_counter()
            if idle and due <= now and not over:
                connection = idle.pop()
                self._begin(connection, requests[sent % cycle])
                connection.started = due
                sent += 1
                continue
            for connection in self._answered(max(0.0, due - now) if idle else _LOOK_SECONDS):
                latencies.append((time.perf_counter() - connection.started) * 1000)
                idle.append(connection)
        seconds, cpu = time.perf_counter() - started, time.thread_time() - cpu_before
        self._close()
        return LoadResult(sent, seconds, self._received, cpu, latencies)

    def _answered(self, timeout_seconds: float | None = None) -> Iterator[_Connection]:
        """Wait for something to happen; the connections whose answers are whole."""
        for fd, events in self._poll.poll(timeout_seconds):
            connection = self._by_fd[fd]
            if events & select.EPOLLOUT:
                self._send(connection)
            if events & ~select.EPOLLOUT:
                size = connection.socket.recv_into(self._buffer)
                self._received += size
                if self._is_whole(connection, size):
                    yield connection

    def _close(self) -> None:
        for connection in self._connections:
            connection.socket.close()
        self._poll.close()

    def _begin(self, connection: _Connection, request: bytes) -> None:
        connection.remaining, connection.head, connection.is_chunked = -1, b"", False
        connection.started = time.perf_counter()
        done = connection.socket.send(request)
        if done < len(request):
            connection.pending = memoryview(request)[done:]
            self._poll.modify(connection.socket, select.EPOLLIN | select.EPOLLOUT)

    def _send(self, connection: _Connection) -> None:
        done = connection.socket.send(connection.pending)
        connection.pending = connection.pending[done:]
        if not connection.pending:
            self._poll.modify(connection.socket, select.EPOLLIN)

    def _is_whole(self, connection: _Connection, size: int) -> bool:
        """Take in what was read; True when the answer is complete."""
        if size == 0:
            raise ConnectionError("the server closed the connection")
        if connection.remaining < 0:
            before = len(connection.head)
            connection.head += self._view[: min(size, 16384)]
            end = connection.head.find(_HEAD_END)
            if end < 0:
                return False
            connection.is_chunked = _CHUNKED in connection.head[:end].lower()
            connection.tail = b""
            body = (
                0 if connection.is_chunked else _body_length(connection.head[:end], connection.head)
            )
            connection.remaining = end + len(_HEAD_END) + body - before
        if connection.is_chunked:
            ending = len(_LAST_CHUNK)
            came = bytes(self._view[max(0, size - ending) : size])
            connection.tail = (connection.tail + came)[-ending:]
            return connection.tail == _LAST_CHUNK
        connection.remaining -= size
        return connection.remaining <= 0


def _body_length(head: bytes, whole: bytes) -> int:
    if not head.startswith(b"HTTP/1.1 2"):
        raise AssertionError(f"the server answered {whole[:400]!r}")
    lower = head.lower()
    at = lower.find(_LENGTH_NAME)
    if at < 0:
        return 0
    end = lower.find(b"\r", at)
    return int(lower[at + len(_LENGTH_NAME) : end if end > 0 else None])
