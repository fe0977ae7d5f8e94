"""A load client with pre-built requests: epoll, many keep-alive connections, no protocol library.

One client for both sides: the same loop, buffers and checks drive HTTP and Kafka's protocol, which
differ only in the bytes that are sent and in how the length of an answer is found. Closed loop: a
connection has a fixed number of requests under way, answered in their order (`run_paced` is the
open one). Latency runs from the first byte sent to the last byte read. `run_load` drives from a
process of its own; its CPU time is reported, so that a reader can see how much of the machine the
client took.
"""

from __future__ import annotations

import multiprocessing
import select
import socket
import time
from collections import deque
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tests.bench.machine_use import cpu_seconds, own_cpu_seconds
from tests.bench.results import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_BUFFER_BYTES = 4 << 20
_HEAD_BYTES = 512
_HEAD_END = b"\r\n\r\n"
_LENGTH_NAME = b"content-length:"
_CHUNKED = b"transfer-encoding: chunked"
_LAST_CHUNK = b"\r\n0\r\n\r\n"  # of a body of text that has no bare line ends of this kind
_UNTIL_LAST_CHUNK = -1
_LOOK_SECONDS = 0.05


class Server(Protocol):
    """What is put under load."""

    port: int

    @property
    def pid(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Load:
    """How many requests, over how many connections, how many under way on each."""

    count: int
    connections: int
    in_flight: int = 1


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


def http_length(head: bytes) -> int:
    """Bytes of the HTTP answer that begins with ``head``; 0 while its head is not whole.

    _UNTIL_LAST_CHUNK for a chunked one. Raises AssertionError unless the status is 2xx.
    """
    end = head.find(_HEAD_END)
    if end < 0:
        return 0
    if not head.startswith(b"HTTP/1.1 2"):
        raise AssertionError(f"the server answered {head[:400]!r}")
    lower = head[:end].lower()
    if _CHUNKED in lower:
        return _UNTIL_LAST_CHUNK
    at = lower.find(_LENGTH_NAME)
    line = lower[at + len(_LENGTH_NAME) :].partition(b"\r")[0]
    return end + len(_HEAD_END) + (int(line) if at >= 0 else 0)


def run_load(
    server: Server,
    requests: Sequence[bytes],
    load: Load,
    length_of: Callable[[bytes], int] = http_length,
) -> LoadResult:
    """Send ``requests`` round and round; every answer must be a good one.

    length_of  the protocol: `http_length`, or one of `tests.bench.kafka_wire`
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        before = cpu_seconds(server.pid)
        result = pool.submit(_drive, server.port, requests, load, length_of).result()
        result.server_cpu_share = (cpu_seconds(server.pid) - before) / result.seconds
    return result


def _drive(
    port: int, requests: Sequence[bytes], load: Load, length_of: Callable[[bytes], int]
) -> LoadResult:
    return _Client(port, load.connections, length_of).run(requests, load)


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
    return _Client(port, connections, http_length).run_paced(requests, rate, is_over)


class Answers:
    """Finds where answers end in the bytes of one connection."""

    __slots__ = ("_head", "_length_of", "_remaining", "_tail")

    def __init__(self, length_of: Callable[[bytes], int]) -> None:
        self._length_of = length_of
        self._remaining = 0  # bytes of the answer still to come; 0: its head is not whole
        self._head = b""
        self._tail = b""  # of a chunked answer: what came last

    def take(self, data: memoryview) -> int:
        """How many answers end in what was read."""
        ended = 0
        while data:
            if not self._remaining:
                before = len(self._head)
                self._head += data[:_HEAD_BYTES]
                length = self._length_of(self._head)
                if not length:
                    data = data[_HEAD_BYTES:]
                    continue
                self._remaining = length if length < 0 else length - before
                self._head = b""
            if self._remaining == _UNTIL_LAST_CHUNK:  # such requests go one by one
                self._tail = (self._tail + data[-len(_LAST_CHUNK) :])[-len(_LAST_CHUNK) :]
                if self._tail != _LAST_CHUNK:
                    return ended
                self._remaining, self._tail = 0, b""
                return ended + 1
            step = min(len(data), self._remaining)
            self._remaining -= step
            data = data[step:]
            ended += not self._remaining
        return ended


class _Connection:
    __slots__ = ("answers", "is_blocked", "pending", "socket", "started")

    def __init__(self, port: int, length_of: Callable[[bytes], int]) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.answers = Answers(length_of)
        self.pending = memoryview(b"")  # of a request: what the socket has not taken yet
        self.is_blocked = False
        self.started: deque[float] = deque()  # when each request under way was begun


class _Client:
    def __init__(self, port: int, connections: int, length_of: Callable[[bytes], int]) -> None:
        self._connections = [_Connection(port, length_of) for _ in range(connections)]
        self._by_fd = {item.socket.fileno(): item for item in self._connections}
        self._poll = select.epoll()
        for fd in self._by_fd:
            self._poll.register(fd, select.EPOLLIN)
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._received = 0

    def run(self, requests: Sequence[bytes], load: Load) -> LoadResult:
        """The closed loop; closes the connections at its end."""
        latencies: list[float] = []
        left = (requests[number % len(requests)] for number in range(load.count))
        cpu_before, started = own_cpu_seconds(), time.perf_counter()
        for connection in self._connections:
            self._fill(connection, left, load.in_flight)
        while len(latencies) < load.count:
            for connection, ended in self._events():
                now = time.perf_counter()
                latencies += [(now - connection.started.popleft()) * 1000 for _ in range(ended)]
                self._fill(connection, left, load.in_flight)
        seconds, cpu = time.perf_counter() - started, own_cpu_seconds() - cpu_before
        self._close()
        return LoadResult(load.count, seconds, self._received, cpu, latencies)

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
                self._begin(idle.pop(), requests[sent % cycle], due)
                sent += 1
                continue
            for connection, ended in self._events(max(0.0, due - now) if idle else _LOOK_SECONDS):
                if ended:
                    taken = time.perf_counter() - connection.started.popleft()
                    latencies.append(taken * 1000)
                    idle.append(connection)
        seconds, cpu = time.perf_counter() - started, time.thread_time() - cpu_before
        self._close()
        return LoadResult(sent, seconds, self._received, cpu, latencies)

    def _events(self, timeout_seconds: float | None = None) -> Iterator[tuple[_Connection, int]]:
        """Wait for something to happen; the connections with how many answers became whole."""
        for fd, events in self._poll.poll(timeout_seconds):
            connection, ended = self._by_fd[fd], 0
            if events & select.EPOLLOUT:
                self._send(connection)
            if events & ~select.EPOLLOUT:
                size = connection.socket.recv_into(self._buffer)
                if size == 0:
                    raise ConnectionError("the server closed the connection")
                self._received += size
                ended = connection.answers.take(self._view[:size])
            yield connection, ended

    def _close(self) -> None:
        for connection in self._connections:
            connection.socket.close()
        self._poll.close()

    def _fill(self, connection: _Connection, left: Iterator[bytes], in_flight: int) -> None:
        """Begin requests until enough are under way, the socket takes no more or none is left."""
        while len(connection.started) < in_flight and not connection.pending:
            request = next(left, None)
            if request is None:
                return
            self._begin(connection, request, time.perf_counter())

    def _begin(self, connection: _Connection, request: bytes, started: float) -> None:
        connection.started.append(started)
        connection.pending = memoryview(request)
        self._send(connection)

    def _send(self, connection: _Connection) -> None:
        try:
            done = connection.socket.send(connection.pending)
        except BlockingIOError:
            done = 0
        connection.pending = connection.pending[done:]
        is_blocked = bool(connection.pending)
        if is_blocked != connection.is_blocked:
            connection.is_blocked = is_blocked
            wanted = select.EPOLLIN | (select.EPOLLOUT if is_blocked else 0)
            self._poll.modify(connection.socket, wanted)
