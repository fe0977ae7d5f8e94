"""Goal: the front of a connection keeps order, bounds and time-outs as the ordinary way does, and
answers what it answers byte for byte as that.
Method: a simulated daemon's connections on made-up sockets, which send, stop, take nothing and
break where the test says.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, cast

import pytest
from structlog.testing import capture_logs

from kafkalog.errors import UnknownTopic
from kafkalog.format.records.record_batch import CRC_AT, Codec, compute_crc
from kafkalog.server.api import Phase
from kafkalog.server.fast_path.front import Front
from tests.fast_world import FastWorld, append_head, append_request, records, turn
from tests.integration.http_world import refused
from tests.partition_world import NOW_MS, batch

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from kafkalog.server.fast_path.fetch import Sending


HEAD = append_head("t", 70)
BATCH = records("a")


@pytest.fixture(scope="module")
def shared() -> Iterator[FastWorld]:
    with FastWorld(connections_max_idle_ms="600000", http_write_stall_ms="6000000") as world:
        yield world.with_topics("t", "u")


@pytest.fixture
def world(shared: FastWorld) -> Iterator[FastWorld]:
    """One in which nothing is in work, before and after."""
    shared.check_idle()
    shared.run(shared.learn(HEAD, append_head("u", 70)))
    yield shared
    shared.run(shared.settle())
    shared.check_idle()


def in_loop(
    test: Callable[[FastWorld], Coroutine[None, None, None]],
) -> Callable[[FastWorld], None]:
    """The test runs in the loop of its world."""

    def run(world: FastWorld) -> None:
        world.run(test(world))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


APPEND = append_request("t", BATCH)
ODD = append_request("t", BATCH, extra="X-Odd: 1\r\n")
QUERIES = ("", "?acks=1", "?acks=all")
GET = b"GET /v1/topics/none%d HTTP/1.1\r\nHost: x\r\n\r\n"


@in_loop
async def test_a_known_append_is_answered_by_the_front(world: FastWorld) -> None:
    both = await world.line()
    both.line.send(APPEND)
    assert world.api.state.requests_in_work == 1
    assert world.api.in_flight.used_bytes == len(BATCH)
    (answer,) = await world.answers(both, 1)
    assert answer.status == 200
    assert both.ordinary_count == 0
    assert both.line.written == 1


@in_loop
async def test_requests_sent_ahead_are_in_work_together(world: FastWorld) -> None:
    """Their answers leave in one write; a request for aiohttp waits for them, and they for it."""
    both = await world.line()
    both.line.send(APPEND * 20)
    assert world.api.state.requests_in_work == 20
    assert len(await world.answers(both, 20)) == 20
    assert (both.line.written, both.ordinary_count) == (1, 0)
    both.line.send(APPEND * 2 + GET % 1 + APPEND + GET % 2)
    assert world.api.state.requests_in_work == 2
    answers = await world.answers(both, 25)
    assert [answer.status for answer in answers[20:]] == [200, 200, 404, 200, 404]


async def steps(world: FastWorld, is_done: Callable[[], bool]) -> None:
    """One step of the daemon's threads a turn of the loop: what waits for no disk ends first."""
    for _ in range(300):
        if is_done():
            return
        world.sim.threads.run_steps(1)
        await turn(2)


@in_loop
async def test_what_ends_first_is_not_answered_first(world: FastWorld) -> None:
    """An append that waits for the disk, and one behind it that does not."""
    await world.learn(*(append_head(topic, 70, query="?acks=1") for topic in "tu"))
    both = await world.line()
    synced, quick = append_request("u", BATCH), append_request("t", BATCH, query="?acks=1")
    both.line.send(synced + quick)
    front = both.line.protocol
    assert isinstance(front, Front)
    first, second = front._in_work
    await steps(world, lambda: second.has_ended)
    assert not first.has_ended
    assert not both.line.sent
    answers = await world.answers(both, 2)
    assert [answer.headers["Kafka-Durability"] for answer in answers] == ["synced", "os"]


@in_loop
async def test_answers_wait_for_who_takes_nothing(world: FastWorld) -> None:
    """One is with the transport; those that end meanwhile are made when it has gone."""
    await world.learn(append_head("t", 70, query="?acks=1"))
    both = await world.line()
    both.line.takes = False
    both.line.send(append_request("t", BATCH, query="?acks=1") + append_request("u", BATCH) * 3)
    await steps(world, lambda: both.line.written > 0)
    await world.settle()
    assert world.api.state.requests_in_work == 0
    assert both.line.written == 1
    assert bytes(both.line.backlog).count(b"HTTP/1.1 ") == 1
    both.line.take()
    assert [answer.status for answer in await world.answers(both, 4)] == [200] * 4


@in_loop
async def test_appends_of_one_log_keep_their_order(world: FastWorld) -> None:
    """Small ones, which are joined, with others between them: large, of a producer, other acks."""
    await world.learn(*(append_head("t", 70, query=query) for query in QUERIES))
    start = world.end_offset("t")
    sizes = {"a": 1, "b": 3000, "c": 1, "d": 1, "e": 1, "f": 1, "g": 1, "h": 2000}
    bodies = [records(name * size) for name, size in sizes.items()]
    bodies[3] = records("d", producer=(77, 0, 0))
    both = await world.line()
    both.line.send(
        b"".join(
            append_request("t", body, query=QUERIES[number % 3])
            for number, body in enumerate(bodies * 3)
        )
    )
    answers = await world.answers(both, 24)
    assert both.ordinary_count == 0
    assert [answer.status for answer in answers] == [200] * 24
    names = [value[:1] for value in world.values("t", start) if value]
    assert names == [b"%c" % each for each in b"abcdefgh" + b"abcefgh" * 2]  # a retry is not stored


@in_loop
async def test_no_more_than_so_many_are_in_work(world: FastWorld) -> None:
    both = await world.line()
    both.line.send(APPEND * 300)
    assert world.api.state.requests_in_work == 128
    assert not both.line.is_reading()
    answers = await world.answers(both, 300)
    offsets = [answer.json["base_offset"] for answer in answers]
    assert offsets == list(range(offsets[0], offsets[0] + 300))
    assert both.line.is_reading()


@in_loop
async def test_a_client_that_takes_nothing_begins_nothing(world: FastWorld) -> None:
    """What it sends stays in its socket; once it reads, everything is answered."""
    both = await world.line()
    both.line.takes = False
    both.line.send(APPEND)
    await world.settle()
    both.line.send(*[APPEND * 2] * 10)
    await world.settle()
    assert world.api.state.requests_in_work == 0
    assert not both.line.is_reading()
    assert both.line.waiting_bytes == len(APPEND) * 18
    assert both.connection.is_busy
    both.line.take()
    assert [answer.status for answer in await world.answers(both, 21)] == [200] * 21
    assert not both.connection.is_busy


@in_loop
async def test_a_body_in_pieces_counts_while_it_comes(world: FastWorld) -> None:
    """It was received without a bound: a thousand clients held 256 KiB each."""
    both = await world.line()
    both.line.send(APPEND[:-30], APPEND[-30:-20])
    assert world.api.state.requests_in_work == 1
    assert world.api.in_flight.used_bytes == len(BATCH)
    assert both.connection.is_busy
    both.line.send(APPEND[-20:])
    assert [answer.status for answer in await world.answers(both, 1)] == [200]
    assert both.ordinary_count == 0
    both.line.send(APPEND[:-30])
    both.line.lose()


@in_loop
async def test_bytes_in_flight_are_bounded(world: FastWorld) -> None:
    """A body that does not fit is refused before it is read, as the ordinary way does."""
    limit = world.api.in_flight.limit_bytes
    first, second = await world.line(), await world.line()
    world.api.in_flight.reserve(limit - 10)
    first.line.send(APPEND[:-10])
    (answer,) = await world.answers(first, 1)
    refused(answer, 429, 42902)
    second.line.send(APPEND)
    (answer,) = await world.answers(second, 1)
    refused(answer, 429, 42902)
    world.api.in_flight.release(limit - 10)
    first.line.lose()


@in_loop
async def test_who_sends_ahead_takes_nobodys_place(world: FastWorld) -> None:
    """One connection's requests took up every place, and others were refused for it.

    Of the bytes as of the requests it has half; the rest comes when its own are answered.
    """
    limit = world.api.in_flight.limit_bytes
    large = append_request("t", records("x" * (limit // 10)))
    both, other = await world.line(), await world.line()
    both.line.send(large * 12)
    assert world.api.in_flight.used_bytes <= limit // 2
    other.line.send(large)
    assert [answer.status for answer in await world.answers(other, 1)] == [200]
    assert [answer.status for answer in await world.answers(both, 12)] == [200] * 12


@in_loop
async def test_a_body_that_stops_is_aiohttps(world: FastWorld) -> None:
    """After a second, whose header it has then stopped waiting for; its rest is taken there."""
    both = await world.line()
    both.line.send(APPEND[:-30])
    assert not both.awaits_head()
    await asyncio.sleep(1.1)  # the pause is the test's subject
    assert both.ordinary_count == 1
    both.line.send(APPEND[-30:] + APPEND)
    assert [answer.status for answer in await world.answers(both, 2)] == [200, 200]


@in_loop
async def test_a_head_in_pieces(world: FastWorld) -> None:
    """After a request of the fast path the next head may come byte by byte, under its time-out."""
    both = await world.line()
    both.line.send(APPEND)
    await world.answers(both, 1)
    assert not both.awaits_head()
    both.line.send(APPEND[:1])
    assert both.awaits_head()
    both.line.send(*(APPEND[at : at + 1] for at in range(1, len(APPEND))))
    assert len(await world.answers(both, 2)) == 2
    assert both.ordinary_count == 0
    assert not both.awaits_head()


@in_loop
async def test_a_head_that_begins_behind_a_waiting_request(world: FastWorld) -> None:
    """The header's time-out ran against the request before it, and cut its answer off."""
    both = await world.line()
    both.line.send(APPEND)
    await world.answers(both, 1)
    both.line.send(ODD, APPEND[:20])
    await turn(20)
    assert world.api.state.requests_in_work == 1
    assert not both.awaits_head()
    both.line.send(APPEND[20:])
    statuses = [answer.status for answer in await world.answers(both, 3)]
    assert statuses == [200, 200, 200]


@in_loop
async def test_half_closed_connections(world: FastWorld) -> None:
    """Everything that was asked is answered, reads behind an append too, then comes the end."""
    bad = APPEND[:-1] + b"\1"
    for data, statuses in (
        (APPEND, [200]),
        (APPEND * 3, [200] * 3),
        (APPEND * 200, [200] * 200),
        (APPEND + GET % 1, [200, 404]),
        (APPEND + GET % 1 + APPEND + ODD, [200, 404, 200, 200]),
        (APPEND + bad + APPEND, [200, 422, 200]),
        (APPEND + APPEND[:40], [200]),
        (APPEND + APPEND[:-10], [200, 400]),
        (APPEND[:-10], [400]),
        (APPEND[:40], []),
        (b"", []),
    ):
        both = await world.line()
        both.line.send(data)
        both.line.end()
        answers = await world.answers(both, len(statuses) + 1)
        assert [answer.status for answer in answers] == statuses, data
        assert both.line.is_lost(), data
        if statuses:
            assert answers[-1].headers["Connection"] == "close"


@in_loop
async def test_the_end_behind_the_beginning_of_a_head(world: FastWorld) -> None:
    """Such a connection stood until the header's time-out."""
    for before, behind in ((APPEND, APPEND[:40]), (ODD, APPEND[:40]), (APPEND, b"P")):
        both = await world.line()
        both.line.send(APPEND)
        await world.answers(both, 1)
        both.line.send(before)
        await world.answers(both, 2)
        both.line.send(behind)
        both.line.end()
        assert len(await world.answers(both, 3)) == 2
        assert both.line.is_lost()


@in_loop
async def test_a_long_answer_behind_the_end(world: FastWorld) -> None:
    """A client that had closed its half and took its answer slowly got a part of it."""
    both = await world.line()
    stream = (
        b"POST /v1/topics/t/records HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\n"
        b"Accept: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    lines = b'{"value":1}\n' * 2500
    both.line.takes = False
    both.line.send(stream + b"%x\r\n" % len(lines) + lines + b"\r\n0\r\n\r\n")
    both.line.end()
    for _ in range(40):
        await world.settle()
        both.line.take()
        both.line.takes = False
    assert both.line.is_lost()
    assert bytes(both.line.sent).count(b'"offset":') == 2500


@in_loop
async def test_what_the_writer_refuses_is_answered_here(world: FastWorld) -> None:
    both = await world.line()
    late = records("a", producer=(7, 0, 5))
    both.line.send(append_request("t", records("a", producer=(7, 0, 0))))
    both.line.send(append_request("t", late) + APPEND)
    answers = await world.answers(both, 3)
    assert [answer.status for answer in answers] == [200, 409, 200]
    refused(answers[1], 409, 40905)
    assert both.ordinary_count == 0


@in_loop
async def test_a_refusal_that_closes(world: FastWorld) -> None:
    """A batch that is larger than a segment: 413 and a close, behind what is in work already."""
    world.with_topics("tiny", internal_segment_bytes="300")
    await world.learn(append_head("tiny", 70))
    both = await world.line()
    both.line.send(append_request("tiny", records("x" * 300)))
    (answer,) = await world.answers(both, 1)
    refused(answer, 413, 41304)
    assert answer.headers["Connection"] == "close"
    assert both.line.is_lost()
    both = await world.line()
    both.line.send(append_request("tiny", records("x" * 300)) + APPEND * 2)
    answers = await world.answers(both, 3)
    assert [answer.status for answer in answers] == [413, 200, 200]
    assert ["Connection" in answer.headers for answer in answers] == [False, False, True]
    assert both.line.is_lost()


@in_loop
async def test_what_the_writer_refuses_is_not_counted_as_appended(world: FastWorld) -> None:
    """Nor as bytes rejected, which in Kafka are those above max.message.bytes; both ways."""
    traffic = world.sim.metrics.traffic
    for number, extra in enumerate(("", "X-Odd: 1\r\n")):
        topic = f"counted{number}"
        world.with_topics(topic, internal_segment_bytes="300")
        await world.learn(append_head(topic, 70))
        both = await world.line()
        for data in (BATCH, records("x" * 300)):
            both.line.send(append_request(topic, data, extra=extra))
        answers = await world.answers(both, 2)
        assert [answer.status for answer in answers] == [200, 413]
        assert both.ordinary_count == 2 * number
        for tell in world.sim.metrics.before_page:
            tell()
        (found,) = [each for each in traffic.totals() if each.topic == topic]
        assert (found.messages_in, found.bytes_in) == (1, len(BATCH))
        assert (found.produce_requests, found.failed_produce, found.bytes_rejected) == (2, 1, 0)


@in_loop
async def test_a_lost_connection(world: FastWorld) -> None:
    """What is in work is appended; what waits, or is not whole, is not; nothing is held."""
    for data, grown in (
        (APPEND * 3, 3),
        (APPEND * 3 + ODD, 3),
        (APPEND * 200, 128),
        (APPEND + APPEND[:-5], 1),
        (APPEND + APPEND[:30], 1),
    ):
        start = world.end_offset("t")
        both = await world.line()
        both.line.send(data)
        both.line.lose()
        await world.settle()
        world.check_idle()
        assert world.end_offset("t") - start == grown
        assert both.connection.front is None
        assert not both.line.sent


@in_loop
async def test_phases(world: FastWorld) -> None:
    """While the daemon starts or stops the front begins nothing."""
    both = await world.line()
    for phase in (Phase.STARTING, Phase.STOPPING):
        world.api.state.phase = phase
        both.line.send(APPEND)
    await world.answers(both, 2)
    world.api.state.phase = Phase.SERVING
    for answer in both.line.answers():
        refused(answer, 503, 50304)
    assert both.ordinary_count == 2


@in_loop
async def test_a_topic_that_is_deleted_meanwhile(world: FastWorld) -> None:
    """Its head is known, so the next request goes the ordinary way, which creates the topic."""
    world.with_topics("brief")
    await world.learn(append_head("brief", 70))
    both = await world.line()
    request = append_request("brief", BATCH)
    both.line.send(request)
    assert [answer.status for answer in await world.answers(both, 1)] == [200]
    assert both.ordinary_count == 0
    former = world.sim.operations.topics.describe("brief").topic_id
    world.sim.operations.topics.delete("brief")
    both.line.send(request)
    answer = (await world.answers(both, 2))[1]
    assert (answer.status, both.ordinary_count) == (200, 1)
    assert world.sim.operations.topics.describe("brief").topic_id != former


def changed(data: bytes, at: int, code: str, value: int) -> bytes:
    """One field of the header changed, the checksum right again."""
    batch = bytearray(data)
    struct.pack_into(f">{code}", batch, at, value)
    struct.pack_into(">I", batch, CRC_AT, compute_crc(batch))
    return bytes(batch)


CORPUS = {
    "one record": BATCH,
    "keys": records("a", "b", keys=[b"k", b""]),
    "some keys": records("a", "b", keys=[b"k", None]),
    "no value": batch([None], keys=[b"k"]),
    "300 KiB": records("x" * (300 << 10)),
    "200 KiB": records("x" * (200 << 10)),
    "300 bytes": records("x" * 300),
    "first of a producer": records("a", producer=(9, 0, 0)),
    "the same again": records("a", producer=(9, 0, 0)),
    "the next": records("a", "b", producer=(9, 0, 1)),
    "out of order": records("a", producer=(9, 0, 9)),
    "a later epoch": records("a", producer=(9, 1, 0)),
    "a former epoch": records("a", producer=(9, 0, 3)),
    "no sequence": records("a", producer=(9, 0, -1)),
    "compressed": records("a" * 90, codec=Codec.LZ4),
    "transactional": records("a", producer=(8, 0, 0), is_transactional=True),
    "two batches": BATCH + BATCH,
    "a wrong checksum": BATCH[:-1] + b"\1",
    "cut": BATCH[:-1],
    "a tail": BATCH + b"\0",
    "empty": b"",
    "less than a header": BATCH[:60],
    "a header alone": BATCH[:61],
    "no batch": b"x" * 100,
    "a base offset": changed(BATCH, 0, "q", 3),
    "an epoch": changed(BATCH, 12, "i", 3),
    "magic 1": changed(BATCH, 16, "b", 1),
    "control": changed(BATCH, 21, "h", 32),
    "stamped": changed(BATCH, 21, "h", 8),
    "codec 7": changed(BATCH, 21, "h", 7),
    "two of one": changed(BATCH, 57, "i", 2),
    "wrong time": changed(BATCH, 35, "q", 5),
    "old": batch(["a"], timestamps=NOW_MS - 3_600_000),
    "young": batch(["a"], timestamps=NOW_MS + 7_200_000),
    "timeless": batch(["a"], timestamps=-1),
    "before 1970": batch(["a"], timestamps=-5),
}
TOPICS: dict[str, dict[str, str]] = {
    "as by default": {},
    "stamped": {"message_timestamp_type": "LogAppendTime"},
    "compressed": {"compression_type": "zstd"},
    "uncompressed": {"compression_type": "uncompressed"},
    "compacted": {"cleanup_policy": "compact"},
    "with small batches": {"max_message_bytes": "200"},
    "with small segments": {"internal_segment_bytes": "300"},
    "with a quota": {"quota_bytes": "1000", "internal_segment_bytes": "300"},
    "with young records": {"message_timestamp_before_max_ms": "1000"},
    "acks 0": {"http_produce_acks": "0"},
    "acks 1": {"http_produce_acks": "1"},
    "always synced": {"flush_messages": "1"},
}
DIFFERENT = re.compile(rb"(Date|X-Request-Id|Content-Length): [^\r]*\r\n")


def bare(said: bytes, topic: str) -> bytes:
    """Without what differs from answer to answer, or from topic to topic."""
    said = DIFFERENT.sub(b"", said).replace(topic.encode(), b"topic")
    return re.sub(rb'"request_id":"test-[0-9a-f]+"', b"", said)


@pytest.mark.parametrize("name", TOPICS)
def test_both_ways_answer_alike(world: FastWorld, name: str) -> None:
    """Byte for byte: the head that is known, and the same with a header more; all bodies."""
    topics = [f"{side}{list(TOPICS).index(name)}" for side in ("fast", "slow")]
    world.with_topics(*topics, **TOPICS[name])
    world.run(world.learn(*(append_head(topics[0], 1, query=query) for query in QUERIES)))
    fast_count = 0

    async def said(topic: str, data: bytes, query: str) -> bytes:
        nonlocal fast_count
        extra = "" if topic == topics[0] else "X-Odd: 1\r\n"
        both = await world.line()
        both.line.send(append_request(topic, data, query=query, extra=extra))
        await world.answers(both, 1)
        fast_count += not both.ordinary_count
        end = b"closed" if both.line.is_lost() else b"open"
        both.line.lose()
        await turn()
        return bare(bytes(both.line.sent), topic) + end

    for query, (what, data) in product(QUERIES, CORPUS.items()):
        fast, slow = [world.run(said(topic, data, query)) for topic in topics]
        assert fast == slow, (query, what)
        assert fast.startswith(b"HTTP/1.1 ")
    assert world.values(topics[0]) == world.values(topics[1])
    assert fast_count > len(QUERIES)


FETCHES = {
    "offset=0": True,
    "max_bytes=1&offset=0": True,
    "max_bytes=0&offset=1": True,
    "max_bytes=300&offset=1": True,
    "max_bytes=1000000&offset=1": True,
    "max_wait_ms=1&min_bytes=2&offset=2": True,
    "isolation=read_uncommitted&offset=2": True,
    "max_bytes=10000000&offset=0": False,  # may be too much to read at once
    "offset=3": False,  # nothing is there
    "offset=4": False,
}


@pytest.fixture(scope="module")
def fetched(shared: FastWorld) -> str:
    """A topic of three small batches."""
    shared.with_topics("fetched")

    async def fill() -> None:
        both = await shared.line()
        both.line.send(*(append_request("fetched", records(value * 100)) for value in "abc"))
        await shared.answers(both, 3)

    shared.run(fill())
    return "fetched"


def fetch_request(topic: str, query: str, extra: str = "") -> bytes:
    path = f"/v1/topics/{topic}/partitions/0/batches?{query}"
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n{extra}\r\n".encode()


@pytest.mark.parametrize("query", FETCHES)
def test_small_fetches_are_answered_alike(world: FastWorld, fetched: str, query: str) -> None:
    """Byte for byte; the front answers what it may read and need not wait for."""

    async def said(extra: str) -> tuple[bytes, int]:
        request = fetch_request(fetched, query, extra)
        await world.learn(request)
        both = await world.line()
        both.line.send(request * 3)
        answers = await world.answers(both, 3)
        assert len(answers) == 3
        return DIFFERENT.sub(b"", bytes(both.line.sent)), both.ordinary_count

    (fast, ordinary), (slow, all_ordinary) = world.run(said("")), world.run(said("X-Odd: 1\r\n"))
    assert re.sub(rb'"request_id":"[^"]*"', b"", fast) == re.sub(
        rb'"request_id":"[^"]*"', b"", slow
    )
    assert all_ordinary == 3
    assert (ordinary == 0) == FETCHES[query]


def test_a_fetch_that_waits_is_not_answered_by_the_front(world: FastWorld, fetched: str) -> None:
    async def wait() -> None:
        await world.learn(fetch_request(fetched, "max_wait_ms=60000&min_bytes=9000&offset=0"))
        both = await world.line()
        both.line.send(fetch_request(fetched, "max_wait_ms=60000&min_bytes=9000&offset=1"))
        await world.settle()
        assert (bytes(both.line.sent), both.ordinary_count) == (b"", 1)
        both.line.lose()

    world.run(wait())


class Broken:
    """An answer of which the rest cannot be had."""

    async def read_rest(self) -> None:
        raise MemoryError


def test_a_cold_answer_that_cannot_be_read_ends_the_connection(world: FastWorld) -> None:
    """Whatever is missing: the client does not wait for good."""

    async def read() -> None:
        both = await world.line()
        front = both.line.protocol
        assert isinstance(front, Front)
        ours, theirs = socket.socketpair()
        broken = cast("Sending", Broken())
        front._sending, front._socket, front._is_paused = broken, ours, True
        with theirs, pytest.raises(MemoryError):
            await front._read_rest(broken)
        await turn()
        assert both.line.is_lost()
        assert front._socket is None

    world.run(read())


@in_loop
async def test_common_headers_change_nothing(world: FastWorld) -> None:
    """What a head may say beside the usual: the answer is the same as to one without it."""
    both = await world.line()
    both.line.send(ODD)
    await world.answers(both, 1)
    expected = both.line.answers()[0].headers.keys()
    for extra in (
        "Accept-Encoding: gzip, deflate, br\r\n",
        "Accept: text/html\r\n",
        "Accept: application/vnd.kafka.v2+json;q=0\r\nUser-Agent: x\r\n",
        "Connection: keep-alive\r\n",
    ):
        both = await world.line()
        for _ in range(2):
            both.line.send(append_request("t", BATCH, extra=extra))
            await world.answers(both, 1)
            await world.settle()
        first, second = both.line.answers()
        assert first.headers.keys() == second.headers.keys() == expected, extra
        assert (first.status, second.status, both.ordinary_count) == (200, 200, 1), extra


@in_loop
async def test_a_topic_that_is_deleted_before_the_writer_comes_to_it(world: FastWorld) -> None:
    """The writer's refusal is that of the ordinary way, which had the same in work."""
    found = []
    for number, extra in enumerate(("", "X-Odd: 1\r\n")):
        topic = f"gone{number}"
        world.with_topics(topic)
        await world.learn(append_head(topic, 70))
        log = world.sim.operations.partition_log(topic, 0)
        log.refusal = partial(UnknownTopic, f"Topic {topic} was deleted", topic=topic)  # retired
        both = await world.line()
        both.line.send(append_request(topic, BATCH, extra=extra))
        (answer,) = await world.answers(both, 1)
        refused(answer, 404, 40401)
        assert both.ordinary_count == number
        found.append(bare(bytes(both.line.sent), topic))
    assert found[0] == found[1]


def test_a_stop_answers_what_is_in_work() -> None:
    """All of it, the last answer with the close; what waits behind is not begun."""
    with FastWorld() as world:
        world.with_topics("t")

        async def stop() -> None:
            await world.learn(HEAD)
            busy, idle, sending = [await world.line() for _ in range(3)]
            busy.line.send(APPEND * 3 + ODD)
            sending.line.send(APPEND[:-10])
            stopping = asyncio.create_task(world.listeners[0].server.finish(20))
            await turn()
            assert not stopping.done()
            answers = await world.answers(busy, 4)
            assert [answer.status for answer in answers] == [200] * 3
            closes = ["Connection" in answer.headers for answer in answers]
            assert closes == [False, False, True]
            assert busy.line.is_lost()
            assert not stopping.done(), "a body is on its way"
            sending.line.send(APPEND[-10:])
            (answer,) = await world.answers(sending, 1)
            assert (answer.status, answer.headers["Connection"]) == (200, "close")
            await asyncio.wait_for(stopping, 10)
            assert idle.line.is_lost()

        world.run(stop())
        world.check_idle()


def test_a_client_of_kafka_is_closed() -> None:
    """Whatever stands behind its first bytes, and with each count of a minute in one line."""
    request = b"\0\0\0\x0a\0\x12\0\0\0\0\0\0\xff\xff"
    with FastWorld(connections_max_idle_ms="600000") as world:
        world.with_topics("t")

        async def connect() -> None:
            await world.learn(HEAD)
            for sent in (request, request * 9, request + b"\r\n\r\n" + APPEND, request + APPEND):
                both = await world.line()
                both.line.send(sent)
                await turn()
                assert both.line.is_lost()
                assert not both.line.sent
                assert not both.awaits_head()
                assert both.ordinary_count == 0

        for counts in ([1], [4]):
            with capture_logs() as lines:
                world.run(connect())
            assert [line["count"] for line in lines] == counts
            world.run(world.pass_time(60))
        assert world.end_offset("t") == 0
        world.check_idle()


def test_idle_connections_are_closed() -> None:
    """One that only ever made requests of the fast path too, and none in whose work it is."""
    with FastWorld(connections_max_idle_ms="600000", http_write_stall_ms="6000000") as world:
        world.with_topics("t")

        async def idle() -> None:
            await world.learn(HEAD)
            both, busy, pausing = [await world.line() for _ in range(3)]
            pausing.line.takes = False
            for each in (both, pausing):
                each.line.send(APPEND)
                await world.answers(each, 1)
            busy.line.send(APPEND)
            await world.pass_time(601)
            assert both.line.is_lost()
            assert not busy.line.is_lost()
            assert not pausing.line.is_lost()
            pausing.line.take()
            assert len(await world.answers(busy, 1)) == 1
            assert not busy.line.is_lost()
            await world.pass_time(601)
            assert busy.line.is_lost()
            assert pausing.line.is_lost()

        world.run(idle())


def test_small_bounds() -> None:
    """A body above socket.request.max.bytes was taken; requests in work are bounded as ever."""
    with FastWorld(socket_request_max_bytes="1000", http_max_inflight_requests="4") as world:
        world.with_topics("t")

        async def bounds() -> None:
            await world.learn(HEAD)
            both = await world.line()
            both.line.send(append_request("t", records("x" * 2000)))
            (answer,) = await world.answers(both, 1)
            refused(answer, 413, 41302)
            others = [await world.line() for _ in range(5)]
            for each in others:
                each.line.send(APPEND)
            assert world.api.state.requests_in_work == 4
            await turn(20)
            statuses = [(await world.answers(each, 1))[0].status for each in others]
            assert statuses == [200] * 4 + [429]
            ahead = await world.line()
            ahead.line.send(APPEND * 9)
            assert world.api.state.requests_in_work == 2
            assert [each.status for each in await world.answers(ahead, 9)] == [200] * 9

        world.run(bounds())
        world.check_idle()
