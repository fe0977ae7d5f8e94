"""The blocking client: HTTP by the standard library, connections kept and shared by threads."""

from __future__ import annotations

import copy
import http.client
import os
import re
import select
import socket
import ssl
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, NamedTuple, Self, TypeVar

from kafkalog.client.fetch import Reader, TailState
from kafkalog.client.messages import Address, Answer, NoAnswer, Request
from kafkalog.client.operations import Blocking, Operations
from kafkalog.client.producer import Appender, ProducerState
from kafkalog.client.retry import Effect, Outcome, Pause, Retries, Steps, with_retries

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from kafkalog.client.records import AppendReceipt, ConsumerRecord, ProducerRecord

T = TypeVar("T")


class Client(Blocking, Operations["Producer", "Tail"]):
    """A daemon at a URL (`Operations` has the parameters). Any thread may call any method.

    Close it, or use it in ``with``.
    """

    _idle: list[http.client.HTTPConnection]

    def _open(self) -> None:
        self._idle = []  # append and pop are atomic

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the idle connections; a later call opens new ones."""
        while self._idle:
            self._idle.pop().close()

    def with_retries(self, retries: Retries) -> Client:
        """The same client with other retries; it shares the connections, and ``close``."""
        other = copy.copy(self)
        other._retry_context = replace(self._retry_context, retries=retries)
        return other

    def _new_producer(self, state: ProducerState) -> Producer:
        return Producer(self, state)

    def _new_tail(self, state: TailState) -> Tail:
        return Tail(self, state)

    def run(self, steps: Steps[T]) -> T:
        """Carry out an operation. Raises ClientError."""
        return self.begin(steps).result()

    def begin(self, steps: Steps[T]) -> Begun[T]:
        """Send the first request of an operation; ``result`` waits for its answer, and the rest.

        ``client.begin(Client.produce("t", records, partition=0))``. Several may be begun, each on a
        connection of its own: the daemon orders appends as they reach it, and one that is retried
        comes behind the others.
        """
        return Begun(self, with_retries(steps, self._retry_context))

    # ---- one try

    def send(self, request: Request) -> Sent | NoAnswer:
        """A request, on a connection that nobody else uses until ``receive``."""
        connection = self._take()
        try:
            if connection.sock is None:
                connection.connect()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            return unanswered(error, self.address, was_sent=False)
        is_whole = True
        try:
            connection.sock.settimeout(self._timeout_seconds + request.wait_seconds)
            connection.request(
                request.method, request.target, request.body, self._headers_of(request)
            )
        except (BrokenPipeError, ConnectionResetError):
            is_whole = False  # a server that refuses a body may close early; the answer says why
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            return unanswered(error, self.address, was_sent=True)
        except BaseException:
            connection.close()  # interrupted: its answer must not be read for another request
            raise
        return Sent(connection, is_whole)

    def receive(self, sent: Sent) -> Answer | NoAnswer:
        """The answer of a request that was sent."""
        connection = sent.connection
        try:
            # Closed here: a Ctrl-C that comes in its finalizer, where else it is, would be lost.
            with connection.getresponse() as response:
                body = response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            return unanswered(error, self.address, was_sent=True)
        except BaseException:
            connection.close()  # as above
            raise
        if sent.is_whole and not response.will_close:
            self._idle.append(connection)
        else:
            connection.close()
        named = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, named, body)

    def _take(self) -> http.client.HTTPConnection:
        """An idle connection that is still open, or a new one that is not opened yet."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                break
            if _is_silent(connection):
                return connection
            connection.close()
        host, port = self.address.host, self.address.port
        if self._context is None:
            return http.client.HTTPConnection(host, port, timeout=self._timeout_seconds)
        return http.client.HTTPSConnection(
            host, port, timeout=self._timeout_seconds, context=self._context
        )


class Sent(NamedTuple):
    """A request that waits for its answer. ``is_whole``: the daemon took all of it."""

    connection: http.client.HTTPConnection
    is_whole: bool


class Begun(Generic[T]):
    """An operation whose first request was sent. For one thread.

    Without ``result`` nobody learns its outcome.
    """

    def __init__(self, client: Client, effects: Generator[Effect, Outcome, T]) -> None:
        self._client = client
        self._effects = effects
        self._sent: Sent | NoAnswer | None = None
        self._has_value = False
        self._go_on(None)

    @property
    def is_answered(self) -> bool:
        """Whether ``result`` would not have to wait for the answer to the last request."""
        return not isinstance(self._sent, Sent) or not _is_silent(self._sent.connection)

    def result(self) -> T:
        """Receive the answer, and carry out what is left. Raises ClientError. Once."""
        while self._sent is not None:
            sent, self._sent = self._sent, None
            self._go_on(self._client.receive(sent) if isinstance(sent, Sent) else sent)
        if not self._has_value:
            raise RuntimeError("The operation has failed before, or was interrupted")
        return self._value

    def _go_on(self, outcome: Answer | NoAnswer | None) -> None:
        """To the next request, which is sent, or to the end."""
        try:
            while isinstance(effect := self._effects.send(outcome), Pause):
                time.sleep(effect.seconds)
                outcome = None
        except StopIteration as end:
            self._value: T = end.value
            self._has_value = True
            return
        self._sent = self._client.send(effect)


def _is_silent(connection: http.client.HTTPConnection) -> bool:
    """Whether nothing arrived since its last answer; usually that is the end of the connection.

    The outcome of a request on a closed connection would be unknown.
    """
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return not poll.poll(0)


_UNKNOWN_NAMES = (socket.EAI_NONAME, socket.EAI_NODATA)
_NO_TLS = "WRONG_VERSION_NUMBER"  # OpenSSL's word for bytes that are no TLS
_TLS_ALERT = "\x15\x03"
_PLACE_IN_PYTHON = re.compile(r" \(_ssl\.c:\d+\)")


def unanswered(error: Exception, address: Address, *, was_sent: bool) -> NoAnswer:
    """The outcome of a try that ended with this error."""
    return NoAnswer(
        _reason_of(error, address),
        was_sent=was_sent,
        is_hopeless=not was_sent and _is_hopeless(error),
        may_be_down=_may_be_down(error, was_sent=was_sent),
    )


def _is_hopeless(error: Exception) -> bool:
    """Whether a retry would fail for the same reason."""
    return _is_plain(error) or isinstance(error, ssl.SSLCertVerificationError)


def _is_plain(error: Exception) -> bool:
    """Whether what answered speaks no TLS. An error of Python's own has no ``reason``."""
    return isinstance(error, ssl.SSLError) and getattr(error, "reason", None) == _NO_TLS


def _may_be_down(error: Exception, *, was_sent: bool) -> bool:
    """Not if something speaks there, or the address itself is the trouble.

    A proxy without the daemon behind it accepts a connection and closes it: SSLEOFError.
    """
    if isinstance(error, TimeoutError):
        return not was_sent
    if isinstance(error, ssl.SSLError):
        return isinstance(error, ssl.SSLEOFError)
    if isinstance(error, ConnectionError | http.client.IncompleteRead):
        return True
    return not isinstance(error, socket.gaierror | http.client.HTTPException)


def _reason_of(error: Exception, address: Address) -> str:
    """Why there is no answer; never bytes of what answers there."""
    if isinstance(error, TimeoutError):
        return "it took too long"
    if isinstance(error, socket.gaierror) and error.errno in _UNKNOWN_NAMES:
        return f"the name {address.host} is not known"
    if isinstance(error, ConnectionError) and error.errno:
        return os.strerror(error.errno)
    if _is_plain(error):
        return f"{address.host}:{address.port} does not speak TLS, use http://"
    if isinstance(error, http.client.BadStatusLine) and not isinstance(error, ConnectionError):
        is_tls = str(error).startswith(_TLS_ALERT)
        return "what answers is not HTTP" + (" but TLS, use https://" if is_tls else "")
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return _PLACE_IN_PYTHON.sub("", reason)


class Producer(Appender):
    """Appends each record exactly once (`ProducerState`). Threads may share it; a lock orders them.

    Its state is only in memory: another process, or this one after a restart, is another producer.
    """

    def __init__(self, client: Client, state: ProducerState) -> None:
        super().__init__(state)
        self._client = client
        self._lock = threading.Lock()

    def send(
        self, topic: str, records: Sequence[ProducerRecord], *, partition: int | None = None
    ) -> tuple[AppendReceipt, ...]:
        """See `ProducerState.send`."""
        with self._lock:
            return self._client.run(self._state.send(topic, records, partition=partition))

    def resend(self, topic: str, partition: int) -> AppendReceipt | None:
        """See `ProducerState.resend`."""
        with self._lock:
            return self._client.run(self._state.resend(topic, partition))


class Tail(Reader):
    """An iterable of records; each iteration continues at ``position``. For one thread."""

    def __init__(self, client: Client, state: TailState) -> None:
        super().__init__(state)
        self._client = client

    def __iter__(self) -> Iterator[ConsumerRecord]:
        self._state.is_at_end = False
        while not self._state.is_at_end:
            yield from self._state.taken(self._client.run(self._state.next_page()))
