"""Goal: raw appends that are answered without aiohttp are answered, counted and ordered as others.
Method: the same request with a head that is known and with a harmless header more; connections
that send ahead, in pieces, and close their half.
"""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING

import pytest

from kafkalog.format.records.record_batch import Codec
from tests.integration.http_world import (
    BATCHES,
    Wire,
    batch_of,
    end_offset,
    others_in_work,
    parse_answers,
    stored,
    until,
)

if TYPE_CHECKING:
    from tests.integration.daemon import Daemon

ODD = b"X-Odd: 1\r\n"
LAST = b"Connection: close\r\n"
DIFFERENT = re.compile(
    rb"(Date|X-Request-Id|Content-Length): [^\r]*\r\n|\"(request_id|log_append_time)\":[^,}]*"
)


def raw(topic: str, data: bytes, *, query: str = "", extra: bytes = b"") -> bytes:
    head = f"POST /v1/topics/{topic}/partitions/0/batches{query} HTTP/1.1\r\nHost: x\r\n"
    head += f"Content-Type: {BATCHES}\r\nContent-Length: {len(data)}\r\n"
    return head.encode() + extra + b"\r\n" + data


def said(wire: Wire, request: bytes) -> bytes:
    """The bytes of the answer to one request."""
    wire.send(request)
    data = b""
    while (end := data.find(b"\r\n\r\n")) < 0:
        data += wire.socket.recv(1 << 16)
    (length,) = re.findall(rb"Content-Length: (\d+)", data)
    while len(data) < end + 4 + int(length):
        data += wire.socket.recv(1 << 16)
    return data


BODIES = [
    batch_of(b"a"),
    batch_of(b"a", b"b", keys=[b"k", None]),
    batch_of(b"x" * 100_000),
    batch_of(b"x" * 300_000),
    batch_of(b"a" * 99, codec=Codec.ZSTD),
    batch_of(b"a") * 2,
    batch_of(b"a", producer_id=5, producer_epoch=0, base_sequence=0),
    batch_of(b"a", producer_id=5, producer_epoch=0, base_sequence=0),
    batch_of(b"a", producer_id=5, producer_epoch=0, base_sequence=7),
    batch_of(b"a", is_transactional=True, producer_id=6, producer_epoch=0, base_sequence=0),
    batch_of(b"a")[:-1] + b"\1",
    batch_of(b"a")[:-1],
    b"",
]


def counted(daemon: Daemon, topic: str) -> list[str]:
    """What the metrics say of appends to a topic, without its name."""
    page = daemon.request("GET", "/metrics").body.decode()
    lines = [line.replace(topic, "topic") for line in page.splitlines() if f'"{topic}"' in line]
    return sorted(line for line in lines if "_created" not in line and "timestamp" not in line)


def requests_counted(daemon: Daemon) -> float:
    page = daemon.request("GET", "/metrics").body.decode()
    found = re.findall(r'^kafkalog_http_requests_total\{.*/batches".* (\S+)$', page, re.MULTILINE)
    return sum(map(float, found))


@pytest.mark.parametrize(
    ("name", "configs"),
    [
        ("plain", {}),
        ("stamped", {"message_timestamp_type": "LogAppendTime"}),
        ("packed", {"compression_type": "lz4"}),
        ("compact", {"cleanup_policy": "compact"}),
        ("small", {"max_message_bytes": "1000", "internal_segment_bytes": "500"}),
    ],
)
def test_both_ways_answer_alike(daemon: Daemon, name: str, configs: dict[str, str]) -> None:
    """Byte for byte, with each acks; the metrics count both alike; no request id is given twice."""
    topics = [f"{name}-{side}" for side in ("fast", "slow")]
    ids = set[bytes]()
    before = requests_counted(daemon)
    for topic in topics:
        daemon.create_topic(topic, 1, **configs)
    for query in ("?acks=1", "?acks=all", ""):
        for data in BODIES:
            answers = []
            for topic, extra in zip(topics, (b"", ODD), strict=True):
                with Wire(daemon) as wire:
                    said(wire, b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
                    answer = said(wire, raw(topic, data, query=query, extra=extra))
                ids.update(re.findall(rb"X-Request-Id: (\S+)", answer))
                answers.append(DIFFERENT.sub(b"", answer).replace(topic.encode(), b"topic"))
            assert answers[0] == answers[1], (query, data[:100])
    count = 3 * len(BODIES) * 2
    assert len(ids) == count
    assert requests_counted(daemon) - before == count
    # Records of logs are counted every ten seconds, so perhaps between both topics.
    until(lambda: counted(daemon, topics[0]) == counted(daemon, topics[1]), "counted differently")
    assert any("topic" in line for line in counted(daemon, topics[0]))
    assert others_in_work(daemon) == 0


def test_five_hundred_requests_at_once(daemon: Daemon) -> None:
    """Known ones, others and refused ones are answered in order, and appended in it."""
    daemon.create_topic("ahead")
    said_by = []
    data = b""
    with Wire(daemon, timeout=60) as wire:
        said(wire, raw("ahead", batch_of(b"first"), query="?acks=all"))
        for number in range(500):
            value = batch_of(b"%d" % number)
            kind = (0, 0, 0, 1, 0, 0, 2, 0, 0, 3)[number % 10]
            if kind == 3:
                data += b"GET /v1/topics/none HTTP/1.1\r\nHost: x\r\n\r\n"
            else:
                value = value[:-1] + b"\1" if kind == 2 else value
                data += raw("ahead", value, query="?acks=all", extra=ODD * (kind == 1))
            said_by.append((200, 200, 422, 404)[kind])
        data += raw("ahead", batch_of(b"last"), extra=LAST)
        wire.send(data)
        answers = parse_answers(wire.read_to_close())
    assert [answer.status for answer in answers] == [*said_by, 200]
    values = [record.value for record in stored(daemon, "ahead")]
    expected = [b"%d" % number for number in range(500) if said_by[number] == 200]
    assert values == [b"first", *expected, b"last"]
    offsets = [answer.json["base_offset"] for answer in answers if answer.status == 200]
    assert offsets == list(range(1, len(offsets) + 1))


def test_a_client_that_sends_no_more(daemon: Daemon) -> None:
    """Everything that was asked is answered; a read behind an append too."""
    daemon.create_topic("halved")
    one = raw("halved", batch_of(b"a"))
    get = b"GET /v1/topics/none HTTP/1.1\r\nHost: x\r\n\r\n"
    for data, statuses in (
        (one, [200]),
        (one * 300, [200] * 300),
        (one + get, [200, 404]),
        (one * 3 + raw("halved", batch_of(b"a"), extra=ODD), [200] * 4),
        (one + one[:-9], [200, 400]),
        (one + one[:50], [200]),
        (one[:50], []),
    ):
        with Wire(daemon, timeout=60) as wire:
            said(wire, one)
            wire.send(data)
            wire.socket.shutdown(socket.SHUT_WR)
            answers = parse_answers(wire.read_to_close())
        assert [answer.status for answer in answers] == statuses, data


def test_requests_in_pieces(daemon: Daemon) -> None:
    """Cut at every byte, each piece a packet; a large body in some."""
    daemon.create_topic("pieces")
    one = raw("pieces", batch_of(b"a"))
    with Wire(daemon) as wire:
        wire.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        said(wire, one)
        for at in range(1, len(one), 3):
            wire.send(one[:at])
            others_in_work(daemon)  # a round trip: the piece has come
            wire.send(one[at:])
            assert wire.read_answer("POST").status == 200
        large = raw("pieces", batch_of(b"x" * 200_000))
        for at in range(0, len(large), 50_000):
            wire.send(large[at : at + 50_000])
            assert others_in_work(daemon) <= 1
        assert wire.read_answer("POST").status == 200
    assert end_offset(daemon, "pieces") == 2 + len(range(1, len(one), 3))


def test_clients_that_leave(daemon: Daemon) -> None:
    """In the middle of anything: nothing stays in work, and what was appended is whole."""
    daemon.create_topic("left")
    one = raw("left", batch_of(b"a", b"b"))
    large = raw("left", batch_of(b"x" * 200_000, b"y"))
    for data in (one, one * 200, one + one[:-5], one[:40], large[:-9], one + large[:-9]):
        for linger in (b"\0\0\0\0\0\0\0\0", b"\1\0\0\0\0\0\0\0"):
            wire = Wire(daemon)
            said(wire, one)
            wire.send(data)
            wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            wire.socket.close()
    until(lambda: others_in_work(daemon) == 0)
    assert end_offset(daemon, "left") % 2 == 0
    assert len(stored(daemon, "left")) == end_offset(daemon, "left")
