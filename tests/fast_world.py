"""Connections of a simulated daemon, with the fast path in front and without, on made-up sockets.

Time stands still for the daemon's threads and disk; the event loop is a real one, which a test
turns. What comes to a connection, in which pieces and when, is the test's choice.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpRequestParser
from aiohttp.http_parser import HttpRequestParserPy

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.log.values import Isolation
from kafkalog.server.api import Phase
from kafkalog.server.app import close_listeners, open_listeners
from kafkalog.server.fast_path.front import Front
from kafkalog.server.protocol.connection import Connection
from kafkalog.server.protocol.replies import RequestIds
from kafkalog.server.security.gate import AccessFiles
from kafkalog.settings import load_settings
from tests.integration.http_world import BATCHES, parse_answers
from tests.made_api import api_over
from tests.partition_world import batch, records_of
from tests.sim.sim_manager import DIRS, SimManager

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from aiohttp.http import RawRequestMessage

    from kafkalog.server.app import Listener
    from tests.integration.daemon import Answer

P = ParamSpec("P")
T = TypeVar("T")

PORTS = {"http.port": "0"}
# With it every answer is marked, so that no listener is fast.
ORDINARY = {**PORTS, "access.control.allow.origin": "https://pages.example"}
PARSERS = (HttpRequestParser, HttpRequestParserPy)
TURNS = 400
"""Turns of the loop after which an answer that is not there never comes."""


def parsed(head: bytes, parser: type[HttpRequestParserPy] = HttpRequestParser) -> RawRequestMessage:
    """The one request whose head it is, as a parser of aiohttp reads it."""
    loop = asyncio.new_event_loop()
    try:
        reader = parser(BaseProtocol(loop), loop, 1 << 16)
        ((message, _),) = reader.feed_data(head)[0]
    finally:
        loop.close()
    return message


def append_head(topic: str, length: int, *, query: str = "", extra: str = "") -> bytes:
    """As kafkalog's own client sends it; ``extra``: header lines with their ends."""
    head = (
        f"POST /v1/topics/{topic}/partitions/0/batches{query} HTTP/1.1\r\nHost: 127.0.0.1:8082\r\n"
    )
    head += f"Content-Type: {BATCHES}\r\nContent-Length: {length}\r\n{extra}\r\n"
    return head.encode()


def append_request(topic: str, data: bytes, *, query: str = "", extra: str = "") -> bytes:
    return append_head(topic, len(data), query=query, extra=extra) + data


def records(*values: str, **given: object) -> bytes:
    """One batch at the daemon's time."""
    return batch(values, **given)  # type: ignore[arg-type] # as batch takes them


class Inline(Executor):
    """A pool that works at once: the simulated threads know no real ones."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - as a pool does
            future.set_exception(error)
        return future


class Line(asyncio.Transport):
    """A socket without a kernel: what the client sends, and what it has been sent."""

    def __init__(self, protocol: asyncio.BaseProtocol, **extra: object) -> None:
        super().__init__(extra)
        self._loop = asyncio.get_running_loop()
        self.protocol = protocol
        self.sent = bytearray()  # what the client has taken
        self.written = 0  # calls of write
        self.backlog = bytearray()  # what waits for it
        self.takes = True
        self._is_lost = False
        self._is_reading = True
        self._has_paused = False
        self._is_closing = False
        self._coming: deque[bytes] = deque()
        self._has_ended = False

    # ---- the client

    def connect(self) -> Line:
        self.protocol.connection_made(self)
        return self

    def send(self, *pieces: bytes) -> None:
        """Each comes by itself, when the daemon reads."""
        self._coming.extend(filter(None, pieces))
        self._deliver()

    def end(self) -> None:
        """The client closes its half."""
        self._has_ended = True
        self._deliver()

    def take(self) -> None:
        """It takes everything from now on."""
        self.takes = True
        self.sent += self.backlog
        self.backlog.clear()
        if self._has_paused:
            self._has_paused = False
            self.protocol.resume_writing()
        if self._is_closing:
            self._lose(None)

    def lose(self) -> None:
        """The connection breaks."""
        self._is_closing = True
        self._lose(ConnectionResetError("lost"))

    @property
    def waiting_bytes(self) -> int:
        """Those that the daemon has not read."""
        return sum(map(len, self._coming))

    def is_lost(self) -> bool:
        return self._is_lost

    def answers(self) -> list[Answer]:
        return parse_answers(bytes(self.sent))

    def _deliver(self) -> None:
        protocol = self.protocol
        while self._is_reading and self._coming and not self._is_closing:
            piece = self._coming.popleft()
            if isinstance(protocol, asyncio.BufferedProtocol):
                buffer = memoryview(protocol.get_buffer(-1))
                size = min(len(buffer), len(piece))
                assert size
                buffer[:size] = piece[:size]
                if piece[size:]:
                    self._coming.appendleft(piece[size:])
                del buffer
                protocol.buffer_updated(size)
            else:
                assert isinstance(protocol, asyncio.Protocol)
                protocol.data_received(piece)
        if self._is_reading and self._has_ended and not self._coming and not self._is_closing:
            self._has_ended = False
            assert isinstance(protocol, (asyncio.BufferedProtocol, asyncio.Protocol))
            if not protocol.eof_received():
                self.close()

    # ---- the daemon's transport

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing:
            return
        self.written += 1
        if self.takes:
            self.sent += data
            return
        self.backlog += data
        if self.backlog and not self._has_paused:
            self._has_paused = True
            self.protocol.pause_writing()

    def is_reading(self) -> bool:
        return self._is_reading

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self._loop.call_soon(self._deliver)

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            if not self.backlog:
                self._loop.call_soon(self._lose, None)

    def abort(self) -> None:
        self._is_closing = True
        self.backlog.clear()
        self._loop.call_soon(self._lose, None)

    def is_closing(self) -> bool:
        return self._is_closing

    def get_write_buffer_size(self) -> int:
        return len(self.backlog)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert (high, low) == (1, 0)

    def _lose(self, error: Exception | None) -> None:
        if not self._is_lost:
            self._is_lost = True
            self.protocol.connection_lost(error)


@dataclass(slots=True)
class Both:
    """A connection and what is behind its front."""

    line: Line
    connection: Connection

    @property
    def ordinary_count(self) -> int:
        """Requests that came to aiohttp."""
        return self.connection._request_count

    def awaits_head(self) -> bool:
        """Whether a head has to be whole within its time."""
        return self.connection._header_timer is not None


class FastWorld:
    """``with FastWorld() as world``: topics named ``t``, ``u`` and as asked, of one partition."""

    def __init__(self, **overrides: str) -> None:
        self._runner = asyncio.Runner()
        self._ahead_seconds = 0.0  # of the machine's clock
        self._overrides = {name.replace("_", "."): value for name, value in overrides.items()}
        self.sim = SimManager(config=BrokerConfig(log_dirs=DIRS)).start()
        self.listeners: list[Listener] = []

    def __enter__(self) -> FastWorld:
        self.run(self._open())
        return self

    def __exit__(self, *exc: object) -> None:
        self.run(close_listeners(self.listeners, 0))
        self._runner.close()
        self.sim.kill()

    def run(self, step: Coroutine[None, None, T]) -> T:
        return self._runner.run(step)

    async def _open(self) -> None:
        loop = asyncio.get_running_loop()
        machine_time = loop.time
        loop.time = lambda: machine_time() + self._ahead_seconds  # type: ignore[method-assign]
        settings = load_settings(None, {}, PORTS | self._overrides)
        self.api = api_over(self.sim, settings, Inline())
        self.api.state.phase = Phase.SERVING
        marked = load_settings(None, {}, ORDINARY | self._overrides)
        ids, files = RequestIds("test"), AccessFiles(settings.server)
        for api in (self.api, replace(self.api, config=marked.server, settings=marked)):
            self.listeners += await open_listeners(api, files, ids)

    def with_topics(self, *names: str, **configs: str) -> FastWorld:
        named = {key.replace("_", "."): value for key, value in configs.items()}
        for name in names:
            self.sim.operations.topics.create(name, 1, named)
        return self

    async def line(self, *, fast: bool = True, **extra: object) -> Both:
        """A connection that waits for its first request."""
        protocol = self.listeners[0 if fast else 1].server.new_protocol()
        connection = protocol._connection if isinstance(protocol, Front) else protocol
        assert isinstance(connection, Connection)
        assert isinstance(protocol, Front) is fast
        line = Line(protocol, **extra).connect()
        await turn()
        return Both(line, connection)

    async def pass_time(self, seconds: float) -> None:
        """For the timers of the loop."""
        self._ahead_seconds += seconds
        await turn(8)

    async def learn(self, *heads: bytes) -> None:
        """Heads that are known from now on."""
        for head in heads:
            known = await self.line()
            known.line.send(head)
            await turn()
            known.line.lose()
            await turn()

    async def settle(self, is_done: Callable[[], bool] = lambda: True) -> None:
        """Turn loop and threads until it is done, and a while longer for what is too much."""
        left = TURNS
        while left and not is_done():
            left -= 1
            await asyncio.sleep(0)
            self.sim.threads.run_until_idle()
        for _ in range(12):
            await asyncio.sleep(0)
            self.sim.threads.run_until_idle()

    async def answers(self, both: Both, count: int) -> list[Answer]:
        """All of them, once there are so many or the connection has ended."""
        line = both.line
        await self.settle(lambda: line.is_lost() or bytes(line.sent).count(b"HTTP/1.1 ") >= count)
        return line.answers()

    def check_idle(self) -> None:
        """Nothing is held for any request."""
        assert self.api.in_flight.used_bytes == 0
        assert self.api.state.requests_in_work == 0
        assert not self.api.state.pending

    def values(self, topic: str, start: int = 0) -> list[bytes | None]:
        """Of all records from an offset on."""
        log = self.sim.operations.partition_log(topic, 0)
        found: list[bytes | None] = []
        while start < log.log_end_offset:
            read = log.read(start, 1 << 20, Isolation.LOG_END)
            found += [record.value for record in records_of(read.data)]
            start = read.next_offset
        return found

    def end_offset(self, topic: str) -> int:
        return self.sim.operations.partition_log(topic, 0).log_end_offset


async def turn(count: int = 3) -> None:
    """Let the loop go round."""
    for _ in range(count):
        await asyncio.sleep(0)


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    """Its pieces, cut there."""
    ends = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(ends)]
