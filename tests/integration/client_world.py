"""Both clients behind one face, so that one test speaks for both; a proxy that cuts connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Any, cast

from kafkalog.client import AsyncClient, Client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KINDS = ("sync", "async")


class Blocked:
    """An asynchronous client whose methods are waited for: looks like the blocking one."""

    def __init__(self, inner: Any, runner: asyncio.Runner) -> None:
        self._inner = inner
        self._runner = runner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            made = found(*args, **kwargs)
            if asyncio.iscoroutine(made):
                return self._runner.run(made)
            return Blocked(made, self._runner)

        return call

    def __iter__(self) -> Iterator[Any]:
        steps = aiter(self._inner)
        while True:
            try:
                yield self._runner.run(anext(steps))
            except StopAsyncIteration:
                return


@contextlib.contextmanager
def client_of(kind: str, url: str, **options: Any) -> Iterator[Client]:
    """A client of one kind, closed at the end."""
    if kind == "sync":
        with Client(url, **options) as client:
            yield client
        return
    with asyncio.Runner() as runner:

        async def made() -> AsyncClient:
            return AsyncClient(url, **options)

        inner = runner.run(made())
        try:
            yield cast(Client, Blocked(inner, runner))
        finally:
            runner.run(inner.close())


class CuttingProxy:
    """TCP to a port of this machine, with a saboteur in between.

    ``cut(head)`` is asked for each request with its first bytes: "before" closes the connection
    without passing anything on, "after" passes the request on and closes when the answer has
    begun to come, "half" lets some of the answer through, "" does no harm.
    """

    def __init__(self, port: int, cut: Callable[[bytes], str]) -> None:
        self._target = port
        self._cut = cut
        self._server = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []
        self.cuts: list[str] = []
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"

    def __enter__(self) -> CuttingProxy:
        self._start(self._accept)
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for thread in self._threads:
            thread.join(60)

    def _start(self, body: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=body, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        """Request after request of one connection, each over a connection of its own."""
        with client, contextlib.suppress(OSError):
            client.settimeout(10)
            while request := _read_message(client):
                how = self._cut(request)
                if how:
                    self.cuts.append(how)
                if how == "before":
                    return
                try:
                    answer = self._asked(request)
                except OSError:
                    return  # the daemon is away
                if how == "after":
                    return
                if how == "half":
                    client.sendall(answer[: len(answer) - 3])
                    return
                client.sendall(answer)

    def _asked(self, request: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self._target), 10) as daemon:
            daemon.sendall(request)
            return _read_message(daemon)


class Scripted:
    """A server that gives one answer after the other, whatever is asked; "" closes instead."""

    def __init__(self, answers: list[bytes]) -> None:
        self._answers = list(answers)
        self._server = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self.requests: list[bytes] = []
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"

    def __enter__(self) -> Scripted:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(60)

    def _serve(self) -> None:
        while self._answers:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            with client, contextlib.suppress(OSError):
                client.settimeout(10)
                while self._answers and (request := _read_message(client)):
                    self.requests.append(request)
                    answer = self._answers.pop(0)
                    if not answer:
                        break
                    client.sendall(answer)


def reply(body: bytes, status: str = "200 OK", **headers: str) -> bytes:
    """An answer for `Scripted`; names of headers with underscores."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def _read_message(peer: socket.socket) -> bytes:
    """A request or an answer with a Content-Length or without a body; empty at the end."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = peer.recv(1 << 16)
        if not piece:
            return b""
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    length = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    while len(body) < length:
        piece = peer.recv(1 << 16)
        if not piece:
            return b""
        body += piece
    return head + b"\r\n\r\n" + body
