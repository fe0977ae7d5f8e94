"""The blocking client: HTTP by the standard library, connections kept and shared by threads."""

from __future__ import annotations

import http.client
import os
import select
import ssl
import threading
import time
from typing import TYPE_CHECKING, Literal, Self, TypeVar

from kafkalog.client.fetch import MAX_BYTES, OutOfRange, TailState
from kafkalog.client.messages import (
    Answer,
    NoAnswer,
    Request,
)
from kafkalog.client.operations import Blocking, Operations
from kafkalog.client.producer import ProducerIdentity, ProducerState
from kafkalog.client.retry import Pause, Steps, played

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from kafkalog.client.records import (
        Acks,
        AppendReceipt,
        CodecName,
        ConsumerRecord,
        Isolation,
        ProducerRecord,
    )

T = TypeVar("T")

MAX_WAIT_MS = 10_000


class Client(Blocking, Operations):
    """A daemon at a URL (`Operations` has the parameters). Any thread may call any method.

    Close it, or use it in ``with``.
    """

    _idle: list[http.client.HTTPConnection]

    def _open(self) -> None:
        self._idle = []  # append and pop are atomic

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the idle connections; a later call opens new ones."""
        while self._idle:
            self._idle.pop().close()

    def producer(
        self,
        identity: ProducerIdentity | None = None,
        *,
        acks: Acks | None = None,
        codec: CodecName = "none",
    ) -> Producer:
        """A producer that appends each record exactly once.

        identity  of a producer id that you have; None: the daemon draws one at the first send
        acks      all or 1; None: the daemon's default
        """
        return Producer(self, ProducerState(identity, acks=acks, codec=codec))

    def tail(
        self,
        topic: str,
        partition: int,
        *,
        start: int | Literal["earliest", "latest"] = "latest",
        on_out_of_range: OutOfRange = "error",
        is_endless: bool = True,
        max_wait_ms: int = MAX_WAIT_MS,
        max_bytes: int = MAX_BYTES,
        isolation: Isolation = "read_uncommitted",
    ) -> Tail:
        """Records of a partition one by one, by default as they come, for ever.

        Parameters: see `TailState`. A daemon that is away for less than the deadline of ``retries``
        is waited for; behind that a ClientError is raised, and iterating again goes on at
        ``position``.
        """
        state = TailState(
            topic, partition, start, on_out_of_range, is_endless, max_wait_ms, max_bytes, isolation
        )
        return Tail(self, state)

    def run(self, steps: Steps[T]) -> T:
        """Carry out an operation. Raises ClientError."""
        effects = played(steps, self._manner)
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
            connection.close()  # interrupted half way: its answer must not meet another request
            raise

    def _exchange(self, connection: http.client.HTTPConnection, request: Request) -> Answer:
        connection.sock.settimeout(self._timeout_seconds + request.wait_seconds)
        is_whole = True
        try:
            connection.request(
                request.method, request.target, request.body, self._headers_of(request)
            )
        except (BrokenPipeError, ConnectionResetError):
            is_whole = False  # who refuses a body closes before it came whole: the answer says why
        response = connection.getresponse()
        body = response.read()
        if is_whole and not response.will_close:
            self._idle.append(connection)
        else:
            connection.close()
        named = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, named, body)

    def _take(self) -> http.client.HTTPConnection:
        """An idle connection that still stands, or one that is yet to be opened."""
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
    """Whether nothing came since its last answer: an end, usually, as the daemon closed it.

    A request that is sent there all the same would be one whose fate nobody knows.
    """
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return not poll.poll(0)


def reason_of(error: Exception) -> str:
    """Why there is no answer, in a few words."""
    if isinstance(error, TimeoutError):
        return "it took too long"
    if isinstance(error, ConnectionError) and error.errno:
        return os.strerror(error.errno)
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


class Producer:
    """Appends each record exactly once (`ProducerState`). Threads take turns.

    Kept in memory only: another process, or this one after a restart, is another producer.
    """

    def __init__(self, client: Client, state: ProducerState) -> None:
        self._client = client
        self._state = state
        self._turn = threading.Lock()

    def send(
        self, topic: str, records: Sequence[ProducerRecord], *, partition: int | None = None
    ) -> tuple[AppendReceipt, ...]:
        """See `ProducerState.send`."""
        with self._turn:
            return self._client.run(self._state.send(topic, records, partition=partition))

    def resend(self, topic: str, partition: int) -> AppendReceipt | None:
        """See `ProducerState.resend`."""
        with self._turn:
            return self._client.run(self._state.resend(topic, partition))

    @property
    def identity(self) -> ProducerIdentity | None:
        """None before the first send."""
        return self._state.identity

    @property
    def unanswered(self) -> list[tuple[str, int]]:
        """Topic and partition of the batches whose fate is open."""
        return self._state.unanswered


class Tail:
    """An iterable of records; each iteration goes on at ``position``. For one thread."""

    def __init__(self, client: Client, state: TailState) -> None:
        self._client = client
        self._state = state

    def __iter__(self) -> Iterator[ConsumerRecord]:
        self._state.is_at_end = False
        while not self._state.is_at_end:
            yield from self._state.taken(self._client.run(self._state.next_page()))

    @property
    def position(self) -> int | None:
        """Behind the last record that was taken; None before the first fetch."""
        return self._state.position
