"""Goal: a body that is worked on while it comes gives whole documents, in bounded groups, and gives
back what it held.
Method: aiohttp's own reader, filled by hand; the bound of all bodies beside it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from aiohttp import StreamReader
from aiohttp.base_protocol import BaseProtocol
from aiohttp.test_utils import make_mocked_request

from kafkalog.errors import NotReady
from kafkalog.format.wire.json_documents import Lines
from kafkalog.server.fetch.delayed_fetch import DelayedFetches
from kafkalog.server.protocol.bodies import BodyStream, DocumentStream, InFlightBytes
from kafkalog.server.protocol.errors import ApiError
from kafkalog.settings import ServerConfig

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kafkalog.server.api import Api

LIMIT_BYTES = 10_000


class World:
    """A request's body and the edge around it."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        protocol = BaseProtocol(loop)
        protocol.connection_made(asyncio.Transport())
        self.content = StreamReader(protocol, 1 << 16, loop=loop)
        self.request = make_mocked_request("POST", "/", {}, payload=self.content)
        self.in_flight = InFlightBytes(LIMIT_BYTES)
        self.delayed_fetches = DelayedFetches(loop, 1)
        self.edge = SimpleNamespace(
            in_flight=self.in_flight,
            delayed_fetches=self.delayed_fetches,
            config=ServerConfig(socket_request_max_bytes=1000),
            stopping=False,
            refusal=lambda: "stopping",
        )
        self.api = cast("Api", self.edge)

    def documents(self, body: BodyStream) -> DocumentStream:
        """The lines of a body."""
        return DocumentStream(self.request, self.api, body, Lines())


def in_world(test: Callable[[World], Awaitable[None]]) -> None:
    """Run a test in a loop of its own; nothing is held when it is over."""

    async def run() -> None:
        world = World()
        await test(world)
        assert world.in_flight.used_bytes == 0
        assert world.delayed_fetches.waiting_count == 0

    asyncio.run(run())


def code_of(refusal: pytest.ExceptionInfo[ApiError]) -> int:
    """Its number."""
    return refusal.value.entry.error_code


def test_groups_are_bounded_and_let_go() -> None:
    """Goal: what came together is given out in groups, each with the bytes it held.
    Method: 5,000 short lines and half of one more; each group let go before the next.
    """

    async def test(world: World) -> None:
        with BodyStream(world.request, world.api) as body:
            documents = world.documents(body)
            world.content.feed_data(b"1\n" * 3000 + b"{")
            counts = []
            for _ in range(2):
                group = await documents.next()
                assert group is not None
                counts.append(len(group.documents))
                body.let_go(group.size_bytes)
            assert counts == [2000, 1000]
            assert world.in_flight.used_bytes == 1
            world.content.feed_data(b"}")
            world.content.feed_eof()
            group = await documents.next()
            assert group is not None
            assert group.documents == [b"{}"]
            assert documents.is_empty
            assert await documents.next() is None

    in_world(test)


def test_whole_documents_come_before_the_fault() -> None:
    """What was sent whole is not lost to what follows."""

    async def test(world: World, first: bytes, second: bytes) -> None:
        with BodyStream(world.request, world.api) as body:
            documents = world.documents(body)
            world.content.feed_data(first)
            group = await documents.next()
            assert group is not None
            assert group.documents == [b"{}"]
            world.content.feed_data(second)
            with pytest.raises(ApiError) as refusal:
                await documents.next()
            assert code_of(refusal) == 41302

    in_world(partial(test, first=b"{}\n" + b"x" * 900, second=b"x" * 200))
    in_world(partial(test, first=b"{}\n" + b"x" * 1100, second=b"x"))


def test_the_bound_of_all_bodies() -> None:
    """A stream alone is never refused; beside others it is, and gives back what it had."""

    async def test(world: World) -> None:
        deadline = asyncio.get_running_loop().time() + 60
        with BodyStream(world.request, world.api) as body:
            world.content.feed_data(b"x" * (LIMIT_BYTES + 1))
            assert len(await body.chunk(deadline)) == LIMIT_BYTES + 1
        world.in_flight.reserve(LIMIT_BYTES)
        with BodyStream(world.request, world.api) as body:
            world.content.feed_data(b"x")
            with pytest.raises(ApiError) as refusal:
                await body.chunk(deadline)
            assert code_of(refusal) == 42902
        world.in_flight.release(LIMIT_BYTES)

    in_world(test)


def test_a_stream_lives_a_day() -> None:
    """V3's longest stream; what is there is read, what would be waited for is not."""

    async def test(world: World) -> None:
        deadline = asyncio.get_running_loop().time() + 60
        with BodyStream(world.request, world.api, life_seconds=0) as body:
            world.content.feed_data(b"x")
            assert await body.chunk(deadline) == b"x"
            with pytest.raises(ApiError, match="a day old") as refusal:
                await body.chunk(deadline)
            assert code_of(refusal) == 408

    in_world(test)


def test_a_stop_wakes_who_waits() -> None:
    """A stop ends the wait for the next bytes."""

    async def test(world: World) -> None:
        deadline = asyncio.get_running_loop().time() + 60
        with BodyStream(world.request, world.api) as body:
            waiting = asyncio.create_task(body.chunk(deadline))
            await asyncio.sleep(0)
            world.edge.stopping = True
            world.delayed_fetches.wake_all()
            with pytest.raises(NotReady):
                await waiting
            with pytest.raises(ApiError) as refusal, BodyStream(world.request, world.api):
                pass
            assert code_of(refusal) == 42903

    in_world(test)


def test_a_stop_meets_a_wait_that_just_ended() -> None:
    """Goal: a stop goes through to every stream, whatever the others are doing.
    Method: the stop in the turn of the loop in which a deadline has passed and nobody knows yet.
    """

    async def test(world: World) -> None:
        loop = asyncio.get_running_loop()
        stopped = loop.create_future()

        def stop() -> None:
            try:
                world.delayed_fetches.wake_all()
            except RuntimeError as error:
                stopped.set_exception(error)
            else:
                stopped.set_result(None)

        with BodyStream(world.request, world.api) as body:
            deadline = loop.time() - 1
            waiting = asyncio.create_task(body.chunk(deadline))
            loop.call_soon(loop.call_soon, stop)  # behind the timer of the one who waits
            with pytest.raises(ApiError) as refusal:
                await waiting
            assert code_of(refusal) == 408
            await stopped

    in_world(test)
