"""What the tests of streams share: an open stream of records, its events and how they end; lines to
produce, and a chunked request with answers meanwhile.
"""

from __future__ import annotations

import http.client
import json
import select
import socket
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalog.server.protocol.errors import REGISTER
from tests.integration.http_world import Wire

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType

    from tests.integration.daemon import Daemon

JSON = "application/json"
NDJSON = "application/x-ndjson"
EVENTS = "text/event-stream"


def failed_stream(message: Any, code: int) -> Any:
    """What ended a stream is this error, in the one shape; returns it."""
    assert message["error_code"] == code, message
    entry = REGISTER[code]
    assert message["retriable"] is entry.retriable
    assert message["kafka_error"]
    assert message["message"]
    assert message["request_id"]
    return message


class Event(NamedTuple):
    """One server-sent event."""

    name: str
    id: str
    data: Any


def parse_event(block: str) -> Event | None:
    """An event from its lines; None for comments and blocks without data."""
    fields: dict[str, str] = {}
    for line in block.splitlines():
        name, _, value = line.partition(": ")
        if name:
            assert name in ("event", "id", "data", "retry"), line
            assert name not in fields, "one line a field"
            fields[name] = value
    if "data" not in fields:
        return None
    return Event(fields["event"], fields["id"], json.loads(fields["data"]))


def parse_events(body: bytes) -> list[Event]:
    events = [parse_event(block) for block in body.decode().split("\n\n")]
    return [event for event in events if event is not None]


class Stream:
    """``with Stream(daemon, path) as stream``: an answer that is read as it comes."""

    def __init__(
        self,
        daemon: Daemon,
        path: str,
        accept: str = EVENTS,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float = 20,
    ) -> None:
        self._connection = daemon.connect(timeout)
        self._connection.request("GET", path, headers={"Accept": accept, **(headers or {})})
        self.response = self._connection.getresponse()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc: object) -> None:
        self._connection.close()

    def lines(self) -> Iterator[str]:
        while line := self.response.readline():
            yield line.decode().rstrip("\n")

    def blocks(self) -> Iterator[str]:
        """What stands between empty lines, comments too."""
        held: list[str] = []
        for line in self.lines():
            if line:
                held.append(line)
            else:
                yield "\n".join(held)
                held = []

    def events(self) -> Iterator[Event]:
        for block in self.blocks():
            event = parse_event(block)
            if event is not None:
                yield event

    def records(self, count: int) -> list[Any]:
        """The next so many records, of either kind of stream."""
        if self.response.headers["Content-Type"] == NDJSON:
            lines = self.lines()
            return [json.loads(next(lines)) for _ in range(count)]
        found: list[Any] = []
        for event in self.events():
            if event.name == "record":
                found.append(event.data)
                if len(found) == count:
                    break
        assert len(found) == count, found
        return found


def lines(*records: object) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


class Duplex:
    """A POST that stays open: chunks go out, lines of the answer come back in between."""

    def __init__(
        self, daemon: Daemon, path: str, headers: Mapping[str, str], *, timeout: float = 15
    ) -> None:
        self._wire = Wire(daemon, timeout=timeout)
        head = {"Host": "x", "Transfer-Encoding": "chunked", **headers}
        head_lines = [
            f"POST {path} HTTP/1.1",
            *(f"{name}: {value}" for name, value in head.items()),
        ]
        self._wire.send("\r\n".join((*head_lines, "", "")).encode())
        self._response: http.client.HTTPResponse | None = None

    def __enter__(self) -> Duplex:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._wire.__exit__(kind, error, trace)

    @property
    def answer(self) -> http.client.HTTPResponse:
        """Its status and headers; waits for them."""
        if self._response is None:
            self._response = http.client.HTTPResponse(self._wire.socket, method="POST")
            self._response.begin()
        return self._response

    def send(self, data: bytes) -> None:
        self.send_raw(b"%x\r\n%b\r\n" % (len(data), data))

    def send_raw(self, data: bytes) -> None:
        """Bytes outside of any chunk."""
        self._wire.send(data)

    def finish(self) -> None:
        self._wire.send(b"0\r\n\r\n")

    def reset(self) -> None:
        """Go away without a word: what was sent and not read by the daemon yet may be lost."""
        linger = b"\1\0\0\0\0\0\0\0"
        self._wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._wire.socket.close()

    def line(self) -> Any:
        """The next line of the answer as JSON; waits for it."""
        return json.loads(self.answer.readline())

    def has_more(self) -> bool:
        """Whether bytes of the answer wait to be read."""
        return bool(select.select([self._wire.socket], [], [], 0)[0])

    def rest(self) -> list[Any]:
        """All that come until the answer ends."""
        return [json.loads(line) for line in self.answer.read().splitlines()]
