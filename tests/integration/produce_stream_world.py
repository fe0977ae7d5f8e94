"""What the tests of produce streams share: lines, and a chunked request with answers meanwhile."""

from __future__ import annotations

import http.client
import json
import select
import socket
from typing import TYPE_CHECKING, Any

from tests.integration.http_world import Wire

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from tests.integration.daemon import Daemon

NDJSON = "application/x-ndjson"


def lines(*records: object) -> bytes:
    """NDJSON."""
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
        """One chunk."""
        self.send_raw(b"%x\r\n%b\r\n" % (len(data), data))

    def send_raw(self, data: bytes) -> None:
        """Bytes outside of any chunk."""
        self._wire.send(data)

    def finish(self) -> None:
        """The last chunk."""
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
