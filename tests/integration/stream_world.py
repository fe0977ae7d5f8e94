"""What the tests of record streams share: an open stream, its events, and how they end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalog.server.protocol.errors import REGISTER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
    """All events of a whole body."""
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
        """Lines as they come, without their ends."""
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
        """Events as they come."""
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
