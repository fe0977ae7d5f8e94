"""The blocking client: HTTP by the standard library, connections kept and shared by threads."""

from __future__ import annotations

import http.client
import os
import select
import ssl
import threading
import time
from typing import TYPE_CHECKING, Self, TypeVar

from kafkalog.client.fetch import Reader, TailState
from kafkalog.client.messages import Answer, NoAnswer, Request
from kafkalog.client.operations import Blocking, Operations
from kafkalog.client.producer import Appender, ProducerState
from kafkalog.client.retry import Pause, Steps, with_retries

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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

    def _new_producer(self, state: ProducerState) -> Producer:
        return Producer(self, state)

    def _new_tail(self, state: TailState) -> Tail:
        return Tail(self, state)

    def run(self, steps: Steps[T]) -> T:
        """Carry out an operation. Raises ClientError."""
        effects = with_retries(steps, self._retry_context)
        outcome: Answer | NoAnswer | None = None
        try:
            while True:
                effect = effects.send(outcome)
                if isinstance(effect, Pause):
                    time.sleep(effect.seconds)
                    outcome = None
                else:
                    outcome = self._try(effect)
        except StopIteration as end:
            result: T = end.value
            return result

    # ---- one try

    def _try(self, request: Request) -> Answer | NoAnswer:
        connection = self._take()
        try:
            if connection.sock is None:
                connection.connect()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            is_hopeless = isinstance(error, ssl.SSLCertVerificationError)
            return NoAnswer(reason_of(error), was_sent=False, is_hopeless=is_hopeless)
        try:
            return self._exchange(connection, request)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            return NoAnswer(reason_of(error), was_sent=True)
        except BaseException:
            connection.close()  # interrupted: its answer must not be read for another request
            raise

    def _exchange(self, connection: http.client.HTTPConnection, request: Request) -> Answer:
        connection.sock.settimeout(self._timeout_seconds + request.wait_seconds)
        is_whole = True
        try:
            connection.request(
                request.method, request.target, request.body, self._headers_of(request)
            )
        except (BrokenPipeError, ConnectionResetError):
            is_whole = False  # a server that refuses a body may close early; the answer says why
        response = connection.getresponse()
        body = response.read()
        if is_whole and not response.will_close:
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


def _is_silent(connection: http.client.HTTPConnection) -> bool:
    """Whether nothing arrived since its last answer; usually that is the end of the connection.

    The outcome of a request on a closed connection would be unknown.
    """
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return not poll.poll(0)


def reason_of(error: Exception) -> str:
    """Why there is no answer."""
    if isinstance(error, TimeoutError):
        return "it took too long"
    if isinstance(error, ConnectionError) and error.errno:
        return os.strerror(error.errno)
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


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
