"""The client for asyncio: the same operations, HTTP by aiohttp."""

from __future__ import annotations

import asyncio
import io
from typing import TYPE_CHECKING, Literal, Self, TypeVar

import aiohttp
from yarl import URL

from kafkalog.client.client import MAX_WAIT_MS, reason_of
from kafkalog.client.fetch import MAX_BYTES, OutOfRange, TailState
from kafkalog.client.messages import (
    Answer,
    NoAnswer,
    Request,
)
from kafkalog.client.operations import Awaiting, Operations
from kafkalog.client.producer import ProducerIdentity, ProducerState
from kafkalog.client.retry import Pause, Steps, played

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
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

_WHOLE_BYTES = 1 << 20


class AsyncClient(Awaiting, Operations):
    """A daemon at a URL (`Operations` has the parameters), for tasks of one event loop.

    Close it, or use it in ``async with``. A call that is cancelled may have been carried out all
    the same, as one with OutcomeUnknown.
    """

    _session: aiohttp.ClientSession | None

    def _open(self) -> None:
        self._session = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; a later call opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def producer(
        self,
        identity: ProducerIdentity | None = None,
        *,
        acks: Acks | None = None,
        codec: CodecName = "none",
    ) -> AsyncProducer:
        """See `Client.producer`."""
        return AsyncProducer(self, ProducerState(identity, acks=acks, codec=codec))

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
    ) -> AsyncTail:
        """See `Client.tail`."""
        state = TailState(
            topic, partition, start, on_out_of_range, is_endless, max_wait_ms, max_bytes, isolation
        )
        return AsyncTail(self, state)

    async def run(self, steps: Steps[T]) -> T:
        """Carry out an operation. Raises ClientError."""
        effects = played(steps, self._manner)
        outcome: Answer | NoAnswer | None = None
        try:
            while True:
                effect = effects.send(outcome)
                if isinstance(effect, Pause):
                    await asyncio.sleep(effect.seconds)
                    outcome = None
                else:
                    outcome = await self._try(effect)
        except StopIteration as end:
            result: T = end.value
            return result

    async def _try(self, request: Request) -> Answer | NoAnswer:
        """One try. aiohttp itself repeats a GET, PUT or DELETE whose kept connection was closed."""
        timeout = aiohttp.ClientTimeout(
            sock_connect=self._timeout_seconds,
            sock_read=self._timeout_seconds + request.wait_seconds,
        )
        try:
            async with self._open_session().request(
                request.method,
                URL(f"{self.address}{request.target}", encoded=True),
                data=_payload(request.body),
                headers=self._headers_of(request),
                timeout=timeout,
                allow_redirects=False,
            ) as response:
                body = await response.read()
        except aiohttp.ClientConnectorCertificateError as error:
            reason = reason_of(error.certificate_error)
            return NoAnswer(reason, was_sent=False, is_hopeless=True)
        except aiohttp.ClientConnectorError as error:
            return NoAnswer(reason_of(error.os_error), was_sent=False)
        except aiohttp.ConnectionTimeoutError as error:
            return NoAnswer(reason_of(error), was_sent=False)
        except (aiohttp.ClientError, OSError) as error:
            return NoAnswer(reason_of(error), was_sent=True)
        named = {name.lower(): value for name, value in response.headers.items()}
        return Answer(response.status, named, body)

    def _open_session(self) -> aiohttp.ClientSession:
        """Made at the first call, because it belongs to the loop that runs then."""
        if self._session is None:
            connector = aiohttp.TCPConnector(ssl=self._context or True, limit=0)
            self._session = aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), requote_redirect_url=False
            )
        return self._session


def _payload(body: bytes | None) -> bytes | io.BytesIO | None:
    """Large bodies in pieces: aiohttp would write one in a single step of the event loop."""
    return body if body is None or len(body) <= _WHOLE_BYTES else io.BytesIO(body)


class AsyncProducer:
    """Appends each record exactly once (`ProducerState`). Tasks take turns.

    Kept in memory only: another process, or this one after a restart, is another producer.
    """

    def __init__(self, client: AsyncClient, state: ProducerState) -> None:
        self._client = client
        self._state = state
        self._turn = asyncio.Lock()

    async def send(
        self, topic: str, records: Sequence[ProducerRecord], *, partition: int | None = None
    ) -> tuple[AppendReceipt, ...]:
        """See `ProducerState.send`."""
        async with self._turn:
            return await self._client.run(self._state.send(topic, records, partition=partition))

    async def resend(self, topic: str, partition: int) -> AppendReceipt | None:
        """See `ProducerState.resend`."""
        async with self._turn:
            return await self._client.run(self._state.resend(topic, partition))

    @property
    def identity(self) -> ProducerIdentity | None:
        """None before the first send."""
        return self._state.identity

    @property
    def unanswered(self) -> list[tuple[str, int]]:
        """Topic and partition of the batches whose fate is open."""
        return self._state.unanswered


class AsyncTail:
    """An asynchronous iterable of records; each iteration goes on at ``position``. For one task."""

    def __init__(self, client: AsyncClient, state: TailState) -> None:
        self._client = client
        self._state = state

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        self._state.is_at_end = False
        while not self._state.is_at_end:
            page = await self._client.run(self._state.next_page())
            for record in self._state.taken(page):
                yield record

    @property
    def position(self) -> int | None:
        """Behind the last record that was taken; None before the first fetch."""
        return self._state.position
