"""The client for asyncio: the same operations, over HTTP with aiohttp."""

from __future__ import annotations

import asyncio
import io
from typing import TYPE_CHECKING, Self, TypeVar

import aiohttp
from yarl import URL

from kafkalog.client.client import unanswered
from kafkalog.client.fetch import Reader, TailState
from kafkalog.client.messages import Answer, NoAnswer, Request
from kafkalog.client.operations import Awaiting, Operations
from kafkalog.client.producer import Appender, ProducerState
from kafkalog.client.retry import Pause, Steps, with_retries

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from kafkalog.client.records import AppendReceipt, ConsumerRecord, ProducerRecord

T = TypeVar("T")

_WHOLE_BYTES = 1 << 20


class AsyncClient(Awaiting, Operations["AsyncProducer", "AsyncTail"]):
    """A daemon at a URL (`Operations` has the parameters), for tasks of one event loop.

    Close it, or use it in ``async with``. A cancelled call may have been carried out, as after
    OutcomeUnknown.
    """

    _session: aiohttp.ClientSession | None

    def _open(self) -> None:
        self._session = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; a later call opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _new_producer(self, state: ProducerState) -> AsyncProducer:
        return AsyncProducer(self, state)

    def _new_tail(self, state: TailState) -> AsyncTail:
        return AsyncTail(self, state)

    async def run(self, steps: Steps[T]) -> T:
        """Carry out an operation. Raises ClientError."""
        effects = with_retries(steps, self._retry_context)
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
        """One try. aiohttp itself repeats a GET, PUT or DELETE whose idle connection was closed."""
        timeout = aiohttp.ClientTimeout(
            sock_connect=self._timeout_seconds,
            sock_read=self._timeout_seconds + request.wait_seconds,
        )
        body: bytes | io.BytesIO | None = request.body
        if request.body is not None and len(request.body) > _WHOLE_BYTES:
            body = io.BytesIO(request.body)  # which aiohttp writes in several steps of the loop
        try:
            async with self._open_session().request(
                request.method,
                URL(f"{self.address}{request.target}", encoded=True),
                data=body,
                headers=self._headers_of(request),
                timeout=timeout,
                allow_redirects=False,
            ) as response:
                answered = await response.read()
        except aiohttp.ClientConnectorCertificateError as error:
            return unanswered(error.certificate_error, self.address, was_sent=False)
        except aiohttp.ClientConnectorError as error:
            return unanswered(error.os_error, self.address, was_sent=False)
        except aiohttp.ConnectionTimeoutError as error:
            return unanswered(error, self.address, was_sent=False)
        except (aiohttp.ClientError, OSError) as error:
            return unanswered(error, self.address, was_sent=True)
        named = {name.lower(): value for name, value in response.headers.items()}
        return Answer(response.status, named, answered)

    def _open_session(self) -> aiohttp.ClientSession:
        """Created at the first call, because it belongs to the event loop that runs then."""
        if self._session is None:
            connector = aiohttp.TCPConnector(ssl=self._context or True, limit=0)
            self._session = aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), requote_redirect_url=False
            )
        return self._session


class AsyncProducer(Appender):
    """Appends each record exactly once (`ProducerState`). Tasks may share it; a lock orders them.

    Its state is only in memory: another process, or this one after a restart, is another producer.
    """

    def __init__(self, client: AsyncClient, state: ProducerState) -> None:
        super().__init__(state)
        self._client = client
        self._lock = asyncio.Lock()

    async def send(
        self, topic: str, records: Sequence[ProducerRecord], *, partition: int | None = None
    ) -> tuple[AppendReceipt, ...]:
        """See `ProducerState.send`."""
        async with self._lock:
            return await self._client.run(self._state.send(topic, records, partition=partition))

    async def resend(self, topic: str, partition: int) -> AppendReceipt | None:
        """See `ProducerState.resend`."""
        async with self._lock:
            return await self._client.run(self._state.resend(topic, partition))


class AsyncTail(Reader):
    """An asynchronous iterable of records; iterations continue at ``position``. For one task."""

    def __init__(self, client: AsyncClient, state: TailState) -> None:
        super().__init__(state)
        self._client = client

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        self._state.is_at_end = False
        while not self._state.is_at_end:
            page = await self._client.run(self._state.next_page())
            for record in self._state.taken(page):
                yield record
