"""Goal: the fast path answers, appends and orders as aiohttp does, however requests come, and holds
nothing afterwards; a head that it knows asks for what aiohttp's parsers read in it.
Method: the same requests, cut and timed by chance, on a connection with the front and on one
without; heads mutated by chance.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from aiohttp.http_exceptions import HttpProcessingError
from hypothesis import given, strategies as st

from kafkalog.format.records.record_batch import CRC_AT, Codec
from kafkalog.server.fast_path.heads import KnownHeads
from kafkalog.server.security.hosts import Hosts
from tests.fast_world import (
    PARSERS,
    FastWorld,
    append_head,
    append_request,
    cut,
    parsed,
    records,
    turn,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiohttp.http_parser import HttpRequestParserPy

    from tests.fast_world import Both
    from tests.integration.daemon import Answer

FAST, PLAIN, BROKEN = "fast-", "plain", "broken"
QUERIES = ("", "?acks=1", "?acks=all")
UNKNOWN = "none-"


@pytest.fixture(scope="module")
def world() -> Iterator[FastWorld]:
    with FastWorld(auto_create_topics_enable="false") as one:  # of the unknown topic
        one.with_topics(FAST, PLAIN, BROKEN)
        topics = (FAST, BROKEN, UNKNOWN)
        one.run(one.learn(*(append_head(each, 70, query=q) for each in topics for q in QUERIES)))
        yield one


def broken(data: bytes) -> bytes:
    """Its checksum is another one."""
    return data[:CRC_AT] + struct.pack(">I", 7) + data[CRC_AT + 4 :]


def bodies(number: int, producer_id: int) -> st.SearchStrategy[bytes]:
    """Of an append: good ones with the request's number in them, and others."""
    value = f"value {number}"
    good = records(value)
    return st.one_of(
        *[st.just(good)] * 3,
        st.sampled_from((0, 1, 2, 5)).map(
            lambda sequence: records(value, producer=(producer_id, 0, sequence))
        ),
        st.sampled_from(
            (
                records(value, "x" * 3000),
                records(value) + records(value),
                records(value, codec=Codec.LZ4),
                broken(good),
                good[:-1],
                good + b"\0",
                b"",
                b"\r\n\r\n" * 30,
                append_request(FAST, b"smuggled"),
            )
        ),
    )


@st.composite
def requests(draw: st.DrawFn, *topics: str) -> list[list[bytes]]:
    """The same requests to each of the topics."""
    producer_id = draw(st.integers(1, 1 << 40))
    found = []
    for number in range(draw(st.integers(1, 7))):
        kind = draw(st.sampled_from(("known", "known", "known", "odd", "get", "chunked", "none")))
        body = draw(bodies(number, producer_id))
        query = draw(st.sampled_from(QUERIES))
        if kind == "get":
            head = b"GET /v1/topics/%b/%d HTTP/1.1\r\nHost: x\r\n\r\n"
            found.append([head % (b"x", number)] * len(topics))
        elif kind == "chunked":
            lines = "Transfer-Encoding: chunked\r\n"
            chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
            heads = [append_head(topic, 0, query=query, extra=lines) for topic in topics]
            found.append([head.replace(b"Content-Length: 0\r\n", b"") + chunks for head in heads])
        else:
            extra = "X-Odd: 1\r\n" if kind == "odd" else ""
            names = [UNKNOWN] * len(topics) if kind == "none" else topics
            found.append([append_request(each, body, query=query, extra=extra) for each in names])
    return found


def said(answer: Answer) -> object:
    """An answer without what differs from one request to the next, or from topic to topic."""
    ours = ("Date", "X-Request-Id", "Content-Length", "Vary")
    headers = [entry for entry in answer.headers.items() if entry[0] not in ours]
    body = dict(answer.json)
    body.pop("request_id", None)
    return answer.status, headers, str(body).replace(PLAIN, FAST)


CUTS = st.one_of(
    st.just(list[int]()), st.just(list(range(4000))), st.lists(st.integers(0, 2000), max_size=12)
)
PAUSES = st.lists(
    st.sampled_from(("on", "on", "turn", "turns", "settle", "stall", "take")), max_size=12
)


async def begun(world: FastWorld, topic: str) -> Both:
    """A connection that has had an append answered: the next head may come in pieces."""
    both = await world.line(fast=topic != PLAIN)
    both.line.send(append_request(topic, records("value 0")))
    await world.answers(both, 1)
    return both


async def play(world: FastWorld, both: Both, pieces: list[bytes], pauses: list[str]) -> None:
    """Send the pieces with these pauses behind them."""
    line = both.line
    for number, piece in enumerate(pieces):
        line.send(piece)
        match pauses[number % len(pauses)] if pauses else "on":
            case "turn":
                await turn(1)
            case "turns":
                await turn(20)
            case "settle":
                await world.settle()
            case "stall":
                line.takes = False
            case "take":
                line.take()


@given(asked=requests(FAST, PLAIN), places=CUTS, pauses=PAUSES)
def test_both_ways_do_the_same(
    world: FastWorld, asked: list[list[bytes]], places: list[int], pauses: list[str]
) -> None:
    """Each request is answered once, in order, and appended where aiohttp would have."""
    start = world.end_offset(FAST)

    async def run() -> None:
        found = []
        for side, topic in enumerate((FAST, PLAIN)):
            both = await begun(world, topic)
            pieces = cut(b"".join(each[side] for each in asked), places)
            await play(world, both, pieces, pauses)
            both.line.take()
            answers = await world.answers(both, len(asked) + 1)
            found.append([said(answer) for answer in answers])
            world.check_idle()
            if topic == FAST and len(answers) > len(asked) and not both.line.is_lost():
                assert not both.connection.is_busy
                assert not both.awaits_head()
            both.line.lose()
        assert found[0] == found[1]
        assert world.values(FAST, start) == world.values(PLAIN, start)

    world.run(run())


@given(asked=requests(BROKEN), places=CUTS, pauses=PAUSES, stop=st.integers(0, 200))
def test_a_connection_that_breaks_anywhere(
    world: FastWorld, asked: list[list[bytes]], places: list[int], pauses: list[str], stop: int
) -> None:
    """Nothing is held; what was acknowledged is there, and what is there was sent, in order."""
    start = world.end_offset(BROKEN)

    async def run() -> None:
        both = await begun(world, BROKEN)
        pieces = cut(b"".join(each[0] for each in asked), places)
        await play(world, both, pieces[: stop % (len(pieces) + 1)], pauses)
        both.line.lose()
        answers = both.line.answers()
        acknowledged = [answer.json["last_offset"] for answer in answers if answer.status == 200]
        await world.settle()
        world.check_idle()
        assert not both.connection.is_busy
        assert not both.awaits_head()
        assert all(last < world.end_offset(BROKEN) for last in acknowledged)
        numbers = [value for value in world.values(BROKEN, start) if value and value[:1] == b"v"]
        assert numbers == sorted(numbers)

    world.run(run())


SPLINTERS = (
    *(
        b"\r\n",
        b"\n",
        b"\r",
        b"\0",
        b" ",
        b"\t",
        b":",
        b";",
        b",",
        b"\xff",
        b"%00",
        b"0",
        b"9",
        b"-",
    ),
    *(b"\r\n\r\n", b"Content-Length: 5\r\n", b"content-length: 5\r\n", b"\r\nContent-Length: 5"),
    *(b"Transfer-Encoding: chunked\r\n", b"X: a\r\n", b"Connection: close\r\n", b"Host: x\r\n"),
)
WHOLE = (
    append_head("t", 70),
    append_head("t", 123456789, query="?acks=1"),
    b"\r\n" + append_head("t", 70),
    append_head("t", 70, extra="User-Agent: content-length: 4\r\nAccept: */*\r\n"),
)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A head with some bytes taken out, put in or doubled."""
    data = draw(st.sampled_from(WHOLE))
    for _ in range(draw(st.integers(0, 2))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(len(data), start + 30)))
        put_in = draw(st.sampled_from((b"", data[start:end] * 2, draw(st.sampled_from(SPLINTERS)))))
        data = data[:start] + put_in + data[end:]
    return data


def sent_alone(head: bytes, parser: type[HttpRequestParserPy]) -> object:
    """What the parser reads in it, but for the length: None when it is not one head."""
    if head.find(b"\r\n\r\n") != len(head) - 4:
        return None
    with suppress(HttpProcessingError, ValueError):
        return parsed(head, parser)
    return None


@pytest.mark.parametrize("parser", PARSERS)
@given(taught=st.lists(mutated(), min_size=1, max_size=4), head=mutated())
def test_a_known_head_means_what_the_parsers_read(
    parser: type[HttpRequestParserPy], taught: list[bytes], head: bytes
) -> None:
    """Both of them, in the very bytes; whichever heads were learnt before."""
    heads = KnownHeads(Hosts((), (), is_open=False), None)
    for each in (*WHOLE, *taught):
        message = sent_alone(each, parser)
        if message is not None:
            heads.learn(each, message)  # type: ignore[arg-type] # a message
    found = heads.find(head)
    if found is None:
        return
    for reader in PARSERS:
        message = parsed(head, reader)
        asked, length = found
        assert (message.method, message.version, message.chunked) == ("POST", (1, 1), False)
        assert not message.should_close
        assert message.headers.getall("Content-Length") == [message.headers["Content-Length"]]
        assert int(message.headers["Content-Length"]) == length
        path, _, query = message.path.partition("?")
        assert path == f"/v1/topics/{asked.topic}/partitions/{asked.partition}/batches"
        assert query in ("", "acks=all", "acks=-1", "acks=1")
