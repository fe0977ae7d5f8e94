"""Goal: what is not clean HTTP/1.1 is refused in our shape, closed, never echoed or appended.
Method: a corpus of raw bytes on sockets against two daemons, one for each of aiohttp's parsers.
"""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from tests.integration.daemon import Daemon
from tests.integration.hostile_json import examples
from tests.integration.http_world import (
    BATCHES,
    Wire,
    batch_of,
    end_offset,
    others_in_work,
    parse_answers,
    refused,
    until,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.daemon import Answer

SECRET = b"zzCANARYzz"
PRODUCE = b"POST /topics/smuggled HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
BODY = b'{"records":[{"value":1}]}'
CHUNKED = b"19\r\n" + BODY + b"\r\n0\r\n\r\n"
GET = b"GET /livez HTTP/1.1\r\nHost: x\r\n"
BATCH = batch_of(b"a")
# The front of a connection answers it, once its head was seen.
RAW = b"POST /v1/topics/mutated/partitions/0/batches HTTP/1.1\r\nHost: x\r\nContent-Type: "
RAW += BATCHES.encode() + b"\r\nContent-Length: %d\r\n\r\n" % len(BATCH) + BATCH


pytestmark = pytest.mark.gate  # hostile bytes, and each parser is one start


@pytest.fixture(scope="module", params=["llhttp", "pure"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Daemon]:
    """A daemon for each parser, with the topic that must stay empty."""
    environment = {"AIOHTTP_NO_EXTENSIONS": "1"} if request.param == "pure" else {}
    one = Daemon(
        tmp_path_factory.mktemp("framing"),
        environment=environment,
        http_header_timeout_ms="3000",
        http_body_timeout_ms="3000",
    )
    one.start()
    try:
        one.create_topic("smuggled")
        one.create_topic("mutated")
        one.create_topic("halved")
        yield one
        assert end_offset(one, "smuggled") == 0
        assert one.request("GET", "/readyz").status == 200
    finally:
        assert one.stop() == 0
    assert "Unhandled" not in one.log_path.read_text(), one.log_tail()
    assert SECRET.decode() not in one.log_path.read_text()


def is_pure(daemon: Daemon) -> bool:
    """Whether its parser is aiohttp's own, in Python, not llhttp."""
    return bool(daemon.environment)


def answers(daemon: Daemon, *packets: bytes) -> list[Answer]:
    """Everything the daemon says until it closes, none of it ours."""
    with Wire(daemon) as wire:
        for packet in packets:
            wire.send(packet)
        said = wire.read_to_close()
    assert SECRET not in said, said
    assert b"aiohttp" not in said
    assert b"Python" not in said
    assert b"Traceback" not in said
    return parse_answers(said)


BROKEN = {
    "CL and TE": PRODUCE + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKED,
    "TE and CL": PRODUCE + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n" + CHUNKED,
    "two CL": PRODUCE + b"Content-Length: 25\r\nContent-Length: 5\r\n\r\n" + BODY,
    "two equal CL": PRODUCE + b"Content-Length: 25\r\nContent-Length: 25\r\n\r\n" + BODY,
    "CL list": PRODUCE + b"Content-Length: 25, 25\r\n\r\n" + BODY,
    "CL plus": PRODUCE + b"Content-Length: +25\r\n\r\n" + BODY,
    "CL minus": PRODUCE + b"Content-Length: -1\r\n\r\n" + BODY,
    "CL hex": PRODUCE + b"Content-Length: 0x19\r\n\r\n" + BODY,
    "CL underscore": PRODUCE + b"Content-Length: 2_5\r\n\r\n" + BODY,
    "CL empty": PRODUCE + b"Content-Length: \r\n\r\n" + BODY,
    "CL unicode digit": PRODUCE + b"Content-Length: \xd9\xa3\r\n\r\n" + BODY,
    "TE not chunked": PRODUCE + b"Transfer-Encoding: identity\r\n\r\n" + BODY,
    "TE gzip": PRODUCE + b"Transfer-Encoding: gzip\r\n\r\n" + BODY,
    "TE chunked not last": PRODUCE + b"Transfer-Encoding: chunked, gzip\r\n\r\n" + CHUNKED,
    "TE twice": PRODUCE + b"Transfer-Encoding: chunked, chunked\r\n\r\n" + CHUNKED,
    "TE odd": PRODUCE + b"Transfer-Encoding: xchunked\r\n\r\n" + CHUNKED,
    "space before colon": GET + b"X : " + SECRET + b"\r\n\r\n",
    "CL space before colon": PRODUCE + b"Content-Length : 25\r\n\r\n" + BODY,
    "obs-fold": GET + b"X: a\r\n " + SECRET + b"\r\n\r\n",
    "header without colon": GET + SECRET + b"\r\n\r\n",
    "empty header name": GET + b": " + SECRET + b"\r\n\r\n",
    "NUL in a header": GET + b"X: a\0" + SECRET + b"\r\n\r\n",
    "NUL in a name": GET + b"X\0: " + SECRET + b"\r\n\r\n",
    "CR in a header": GET + b"X: a\r" + SECRET + b"\r\n\r\n",
    "NUL in the path": b"GET /\0" + SECRET + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "bare LF": b"GET /livez HTTP/1.1\nHost: x\nX: " + SECRET + b"\n\n",
    "no host": b"GET /livez HTTP/1.1\r\nX: " + SECRET + b"\r\n\r\n",
    "two hosts": GET + b"Host: " + SECRET + b"\r\n\r\n",
    "no method": b" /" + SECRET + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "method with a colon": b"GE:T /" + SECRET + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + SECRET,
    "zeros": bytes(100) + b"\r\n\r\n",
    "noise": bytes(range(128, 256)) + b"\r\n" + SECRET + b"\r\n\r\n",
    "relative path": b"GET livez HTTP/1.1\r\nHost: x\r\n\r\n",
    "bad port": b"GET http://x:99999999/livez HTTP/1.1\r\nHost: x\r\n\r\n",
    "bad address": b"GET http://[::1/livez HTTP/1.1\r\nHost: x\r\n\r\n",
}
# Broken after a good header: the handler meets the end of the body.
BROKEN_BODIES = {
    "chunk size": b"zz\r\n" + BODY + b"\r\n0\r\n\r\n",
    "chunk size minus": b"-19\r\n" + BODY + b"\r\n0\r\n\r\n",
    "chunk size 0x": b"0x19\r\n" + BODY + b"\r\n0\r\n\r\n",
    "chunk size huge": b"f" * 40 + b"\r\n" + BODY + b"\r\n0\r\n\r\n",
    "chunk too short": b"10\r\n" + BODY + b"\r\n0\r\n\r\n",
    "chunk bare LF": b"19\n" + BODY + b"\n0\n\n",
    "LF in an extension": b"19;a\nb\r\n" + BODY + b"\r\n0\r\n\r\n",
    "no line end": b"19\r\n" + BODY + b"xx0\r\n\r\n",
}
VERSIONS = [b"HTTP/2.0", b"HTTP/0.9", b"HTTP/3.0", b"HTTP/1.2", b"HTTP/9.9"]
ODD_LINES = [
    b"GET /livez HTTP/1\r\nHost: x\r\n\r\n",
    b"GET /livez HTTP/11.1\r\nHost: x\r\n\r\n",
    b"GET /livez HTTP/1.1.1\r\nHost: x\r\n\r\n",
    b"GET /livez JUNK/1.1\r\nHost: x\r\n\r\n",
    b"GET /livez http/1.1\r\nHost: x\r\n\r\n",
    b"GET /livez \r\nHost: x\r\n\r\n",
    b"GET /livez\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET /livez HTTP/1.1 \r\nHost: x\r\n\r\n",
]


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_broken_framing(server: Daemon, name: str) -> None:
    """400/40000 and a close; whatever follows on the connection is never a request."""
    follower = b"POST /topics/smuggled HTTP/1.1\r\n\r\n"
    (answer,) = answers(server, BROKEN[name] + follower)
    refused(answer, 400, 40000)
    head, end, rest = BROKEN[name].partition(b"\r\n\r\n")
    (answer,) = answers(server, head + end, rest + follower)  # as two packets
    refused(answer, 400, 40000)
    assert answer.headers["Connection"] == "close"


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_broken_framing_behind_appends(server: Daemon, name: str) -> None:
    """The same where the requests before were answered without the parser, however it is cut."""
    broken = BROKEN[name] + b"POST /topics/smuggled HTTP/1.1\r\n\r\n"
    middle = len(BROKEN[name]) // 2
    for pieces in ((broken,), (RAW + broken,), (broken[:middle], broken[middle:])):
        with Wire(server) as wire:
            for _ in range(2):
                wire.send(RAW)
                assert wire.read_answer("POST").status == 200
            for piece in pieces:
                wire.send(piece)
            *appended, answer = parse_answers(wire.read_to_close())
        assert [each.status for each in appended] == [200] * pieces[0].startswith(RAW)
        refused(answer, 400, 40000)
        assert answer.headers["Connection"] == "close"


def test_a_length_beyond_all_numbers(server: Daemon) -> None:
    """llhttp calls it no number, the pure parser a large one; neither reads on.

    So it is seen as well that each of the two daemons has the parser that it was started for.
    """
    (answer,) = answers(server, PRODUCE + b"Content-Length: " + b"9" * 40 + b"\r\n\r\n" + BODY)
    if is_pure(server):
        refused(answer, 413, 41302)
    else:
        refused(answer, 400, 40000)


@pytest.mark.parametrize(
    "target", [b"/topics/\xff", b"/v1/groups/gr\xc3\xbc", b"/v1/configs?explain=\xff", b"/\x80"]
)
def test_bytes_that_must_be_percent_encoded(server: Daemon, target: bytes) -> None:
    """Broken framing to both, also where the pure parser lets them pass."""
    request = b"GET " + target + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    (answer,) = answers(server, request)
    refused(answer, 400, 40000)
    assert answer.headers["Connection"] == "close"


@pytest.mark.parametrize("method", [b"BREW", b"X1", b"G" * 60, b"M-SEARCH", b"TRACE", b"G@T"])
def test_unknown_methods(server: Daemon, method: bytes) -> None:
    """llhttp knows some by name and refuses the rest as broken; no route takes any of them."""
    request = method + b" /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    (answer,) = answers(server, request)
    if method == b"G@T" or not (is_pure(server) or method in (b"M-SEARCH", b"TRACE")):
        refused(answer, 400, 40000)
    else:
        refused(answer, 405, 405)
        assert answer.headers["Allow"] == "GET, HEAD"


@pytest.mark.parametrize("name", sorted(BROKEN_BODIES))
def test_broken_bodies(server: Daemon, name: str) -> None:
    """The header was good, the chunks are not: 400/40000 and a close, nothing appended."""
    head = PRODUCE + b"Transfer-Encoding: chunked\r\n\r\n"
    got = answers(server, head + BROKEN_BODIES[name])
    assert len(got) == 1
    refused(got[0], 400, 40000)


@pytest.mark.parametrize("path", [b"/topics/smuggled", b"/v1/topics/smuggled/records"])
@pytest.mark.parametrize("name", sorted(BROKEN_BODIES))
def test_bodies_that_break_in_a_later_packet(server: Daemon, path: bytes, name: str) -> None:
    """The same when the handler waits for the body already: soon, once, and a close."""
    kind = PRODUCE.split(b"\r\n", 1)[1]
    if path.endswith(b"/records"):
        kind = b"Host: x\r\nContent-Type: application/x-ndjson\r\nAccept: application/x-ndjson\r\n"
    with Wire(server) as wire:
        wire.send(b"POST " + path + b" HTTP/1.1\r\n" + kind + b"Transfer-Encoding: chunked\r\n\r\n")
        until(lambda: others_in_work(server) == 1, "the request never was in work")
        wire.send(BROKEN_BODIES[name])
        said = wire.read_to_close()
    assert said.count(b"HTTP/1.1 ") == 1, said
    assert b"400" in said, said
    assert b"40000" in said, said


# Where a chunk's size should be; none of it ends a line, so whoever waits for one waits long.
NO_SIZES = (
    b"\0",
    b"\0\0\0\0",
    bytes(100),
    b"\0\x0019",
    b"zz",
    b"-1",
    b"0x",
    b"\xff",
    b" ",
    b"\r\n",
    b"19\rx",
)


def test_bytes_before_a_chunk_size(server: Daemon) -> None:
    """400 at once, not when the body's time is over: in the first chunk and behind one."""
    head = PRODUCE + b"Transfer-Encoding: chunked\r\n\r\n"
    for junk in NO_SIZES:
        for before in (b"", b"19\r\n" + BODY + b"\r\n"):
            (answer,) = answers(server, head + before + junk)
            refused(answer, 400, 40000)


@pytest.mark.parametrize("size", [b"1" + b"0" * 16, b"f" * 17, b"F" * 18, b"f" * 40])
def test_a_chunk_size_beyond_all_numbers(server: Daemon, size: bytes) -> None:
    """More than 64 bits is no size, however much of the chunk comes with it.

    Zeros before it do not count. One of 64 bits is ended by the body's time, or its largest size.
    """
    head = PRODUCE + b"Transfer-Encoding: chunked\r\n\r\n"
    for rest in (b"", b"\r\n", b"\r\n" + BODY):
        (answer,) = answers(server, head + size + rest)
        refused(answer, 400, 40000)
    zeros = head.replace(b"smuggled", b"halved") + b"0" * 40 + CHUNKED
    with Wire(server) as wire:
        wire.send(zeros)
        assert wire.read_answer().status == 200


@pytest.mark.parametrize("method", [b"get", b"Get", b"gET", b"post", b"pri"])
def test_methods_are_of_one_case(server: Daemon, method: bytes) -> None:
    """Methods are case-sensitive (RFC 9110, 9.1), and these are no known ones."""
    (answer,) = answers(server, method + b" /livez HTTP/1.1\r\nHost: x\r\n\r\n")
    refused(answer, 400, 40000)


@pytest.mark.parametrize(
    "rest", [b"", b"\r\n", b"\r\nSM\r\n\r\n", b"\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"]
)
def test_http_2_by_prior_knowledge(server: Daemon, rest: bytes) -> None:
    """The preface (RFC 9113, 3.4) is answered 505 at once: its client falls back to HTTP/1.1."""
    (answer,) = answers(server, b"PRI * HTTP/2.0\r\n" + rest)
    refused(answer, 505, 505)
    assert answer.headers["Connection"] == "close"


# The first requests of Kafka's clients: ApiVersions in three versions, Metadata of an old one.
KAFKA_REQUESTS = (
    b"\0\0\0\x16\0\x12\0\x04\0\0\0\0\0\x0aproducer-1\0\0",
    b"\0\0\0\x2e\0\x12\0\x03\0\0\0\1\0\x07rdkafka\0\x0blibrdkafka\x0d2.3.0-dirty-x\0",
    b"\0\0\0\x0a\0\x12\0\0\0\0\0\0\xff\xff",
    b"\0\0\0\x12\0\3\0\0\0\0\0\0\0\4test\0\0\0\0\r\n\r\n",
)


def test_a_client_of_kafka(server: Daemon) -> None:
    """Closed without a byte, which it would take for a size; one log line says what to do."""
    for request in KAFKA_REQUESTS:
        with Wire(server) as wire:
            wire.send(request)
            assert wire.read_to_close() == b""
    lines = [line for line in server.log_path.read_text().splitlines() if "Kafka client" in line]
    assert len(lines) == 1
    told = json.loads(lines[0])
    assert (told["count"], told["peer"], told["level"]) == (1, "127.0.0.1", "warning")
    assert "bootstrap.servers" in told["remedy"]
    for other in (b"\0\0\0\0\0\x12\0\3", b"\0\0\0\x10\1\0\0\0\0\0", b"\0\0\0\x10\r\n"):
        (answer,) = answers(server, other + b"\r\n\r\n")
        refused(answer, 400, 40000)


def test_a_client_that_sends_no_more(server: Daemon) -> None:
    """Who closes its half of the connection behind a POST reads the answer, then the end."""
    lines = b"application/x-ndjson"
    produce = PRODUCE.replace(b"smuggled", b"halved")
    stream = b"POST /v1/topics/halved/records HTTP/1.1\r\nHost: x\r\nContent-Type: " + lines
    stream += b"\r\nAccept: " + lines + b"\r\nTransfer-Encoding: chunked\r\n\r\n"
    sized = b"Content-Length: 25\r\n\r\n"
    chunked = b"Transfer-Encoding: chunked\r\n\r\n"
    for data, statuses in (
        (produce + sized + BODY, [200]),
        (produce + chunked + CHUNKED, [200]),
        ((produce + sized + BODY) * 3, [200] * 3),
        ((produce + sized + BODY) * 40, [200] * 40),
        (GET + b"\r\n" + produce + sized + BODY, [200, 200]),
        (produce.replace(b"halved", b"none") + sized + BODY[:-1] + b" ", [400]),
        (produce + sized + BODY[:10], [400]),
        (produce + chunked + CHUNKED[:10], [400]),
        (produce + b"Content-Length: x\r\n\r\n", [400]),
    ):
        with Wire(server) as wire:
            wire.send(data)
            wire.socket.shutdown(socket.SHUT_WR)
            got = parse_answers(wire.read_to_close())
        assert [answer.status for answer in got] == statuses, data
    with Wire(server) as wire:
        wire.send(stream + b'c\r\n{"value":1}\n\r\n0\r\n\r\n')
        wire.socket.shutdown(socket.SHUT_WR)
        said = wire.read_to_close()
    assert b" 200 OK" in said
    assert b'"offset":' in said


@pytest.mark.parametrize("version", VERSIONS)
def test_other_versions(server: Daemon, version: bytes) -> None:
    """505 and a close, also where llhttp would answer."""
    got = answers(server, b"GET /livez " + version + b"\r\nHost: x\r\nX: " + SECRET + b"\r\n\r\n")
    refused(got[0], 505, 505)
    assert len(got) == 1


@pytest.mark.parametrize("line", ODD_LINES)
def test_odd_request_lines(server: Daemon, line: bytes) -> None:
    """The two parsers differ about which it is; neither answers 200 nor leaves it open."""
    (answer,) = answers(server, line)
    assert (answer.status, answer.json["error_code"]) in ((400, 40000), (505, 505))


def get_with(*, path: int = 6, header: int = 0, count: int = 0) -> bytes:
    """A request of a given path length, header line length and number of headers."""
    data = b"GET /" + b"a" * (path - 1) + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    data += b"".join(b"X%d: y\r\n" % number for number in range(count))
    if header:
        data += b"X: " + b"a" * (header - 3) + b"\r\n"
    return data + b"\r\n"


def test_long_lines_and_many_headers(server: Daemon) -> None:
    """A request line or header line of 8,190 bytes and 97 headers pass; more is 414 or 431."""
    assert answers(server, get_with(path=8170))[0].status == 404
    assert answers(server, get_with(header=8190))[0].status == 404
    assert answers(server, get_with(count=95))[0].status == 404
    refused(answers(server, get_with(path=8200))[0], 414, 414)
    refused(answers(server, get_with(path=60_000))[0], 414, 414)
    refused(answers(server, get_with(header=8300))[0], 431, 431)
    refused(answers(server, get_with(header=60_000))[0], 431, 431)
    refused(answers(server, get_with(count=100))[0], 431, 431)
    refused(answers(server, get_with(count=5000))[0], 431, 431)
    long_name = b"GET / HTTP/1.1\r\nHost: x\r\n" + b"N" * 9000 + b": x\r\n\r\n"
    refused(answers(server, long_name)[0], 431, 431)


def test_a_header_without_end(server: Daemon) -> None:
    """A line that never ends is cut at its bound, not kept in memory."""
    (answer,) = answers(server, b"GET /" + b"a" * 200_000)
    refused(answer, 414, 414)
    (answer,) = answers(server, GET + b"X: " + b"a" * 200_000)
    refused(answer, 431, 431)


def test_expect(server: Daemon) -> None:
    """100-continue is answered before the body; a body that would be refused gets its refusal."""
    head = PRODUCE.replace(b"smuggled", b"expected") + b"Expect: 100-continue\r\n"
    with Wire(server) as wire:
        wire.send(head + b"Content-Length: 25\r\n\r\n")
        assert wire.socket.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        wire.send(BODY)
        assert wire.read_answer().status == 200
    (answer,) = answers(server, head + b"Content-Length: 1000000000\r\n\r\n")
    refused(answer, 413, 41302)
    (answer,) = answers(server, PRODUCE + b"Expect: " + SECRET + b"\r\nContent-Length: 25\r\n\r\n")
    refused(answer, 417, 417)
    unrouted = b"GET /nope HTTP/1.1\r\nHost: x\r\nExpect: x\r\n\r\n"
    refused(answers(server, unrouted)[0], 417, 417)


def test_header_bytes_that_are_no_utf8(server: Daemon) -> None:
    """In every header that is looked at: an ordinary refusal or an answer, nothing echoed."""
    odd = b"\xdf\xff" + SECRET
    close = b"Connection: close\r\n"
    post = b"POST /topics/smuggled HTTP/1.1\r\nHost: x\r\nContent-Length: 25\r\n" + close
    for name, status, code in (
        (b"Content-Type: ", 415, 415),
        (b"Content-Type: application/json; charset=", 415, 415),
        (b"Accept: ", 406, 406),
        (b"Content-Encoding: ", 415, 41502),
        (b"Kafka-Acks: ", 400, 40005),
    ):
        head = post if name[:9] == b"Content-T" else post + b"Content-Type: application/json\r\n"
        (answer,) = answers(server, head + name + odd + b"\r\n\r\n" + BODY)
        refused(answer, status, code)
    get = b"GET /topics/smuggled/partitions/0/records?offset=0 HTTP/1.1\r\nHost: x\r\n" + close
    refused(answers(server, get + b"Accept: " + odd + b"\r\n\r\n")[0], 406, 406)
    for name in (b"X-Request-Id: ", b"Cookie: ", b"X: "):
        assert answers(server, get + name + odd + b"\r\n\r\n")[0].status == 200
    hosted = b"GET /v3/clusters HTTP/1.1\r\n" + close + b"Host: " + odd + b"\r\n\r\n"
    refused(answers(server, hosted)[0], 400, 40000)
    (old,) = answers(server, b"GET /v3/clusters HTTP/1.0\r\n\r\n")
    assert old.json["metadata"]["self"].startswith("http://127.0.0.1:")


def test_pipelining_and_keep_alive(server: Daemon) -> None:
    """Several requests at once are answered in order; HTTP/1.0 closes."""
    last = GET + b"Connection: close\r\n\r\n"
    got = answers(server, (GET + b"\r\n") * 40 + last)
    assert [answer.status for answer in got] == [200] * 41
    (old,) = answers(server, b"GET /livez HTTP/1.0\r\n\r\n")
    assert old.status == 200
    with Wire(server) as wire:
        for _ in range(3):
            wire.send(b"GET /nope HTTP/1.1\r\nHost: x\r\n\r\n")
            refused(wire.read_answer(), 404, 404)
        wire.send(PRODUCE + b"Content-Length: 1\r\n\r\n{")
        refused(wire.read_answer(), 400, 400)
        wire.send(GET + b"\r\n")
        assert wire.read_answer().status == 200


def test_good_requests_before_broken_ones_are_answered(server: Daemon) -> None:
    got = answers(server, GET + b"\r\n" + BROKEN["obs-fold"])
    # What came in one piece with the broken bytes is not answered by either parser.
    assert [answer.status for answer in got] in ([200, 400], [400])


def test_upgrades_are_declined(server: Daemon) -> None:
    """No websocket, no h2c, no tunnel: an ordinary answer or an error, and the daemon lives."""
    for upgrade in (b"websocket", b"h2c", b"TLS/1.3"):
        data = GET + b"Connection: Upgrade\r\nUpgrade: " + upgrade + b"\r\n\r\n"
        with Wire(server) as wire:
            wire.send(data)
            assert wire.read_answer().status == 200
    with Wire(server) as wire:
        wire.send(b"CONNECT x:80 HTTP/1.1\r\nHost: x:80\r\n\r\n")
        assert wire.read_answer().status in (400, 404, 405)
    with Wire(server) as wire:
        wire.send(b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n")
        assert wire.read_answer().status in (404, 405)


@pytest.mark.slow
def test_a_dripping_header_is_cut(server: Daemon) -> None:
    """408/408 and a close, on a fresh connection and after an answered request."""
    with Wire(server) as wire:
        wire.send(b"GET /livez HT")
        refused(parse_answers(wire.read_to_close())[0], 408, 408)
    with Wire(server) as wire:
        refused(parse_answers(wire.read_to_close())[0], 408, 408)
    with Wire(server) as wire:
        wire.send(GET + b"\r\n")
        assert wire.read_answer().status == 200
        wire.send(b"G")
        refused(parse_answers(wire.read_to_close())[0], 408, 408)


def test_a_client_that_leaves_in_the_middle(server: Daemon) -> None:
    """Half a header, half a body, half an answer: the daemon goes on and nothing is appended."""
    for data in (
        b"GET /li",
        PRODUCE + b"Content-Length: 25\r\n\r\n" + BODY[:10],
        PRODUCE + b"Transfer-Encoding: chunked\r\n\r\n19\r\n" + BODY[:5],
        GET + b"\r\n",
    ):
        for _ in range(5):
            with Wire(server) as wire:
                wire.send(data)
    assert server.request("GET", "/readyz").status == 200


WHOLE = (
    RAW * 3 + GET + b"Connection: close\r\n\r\n",
    GET + b"Connection: close\r\n\r\n",
    PRODUCE + b"Connection: close\r\nContent-Length: 25\r\n\r\n" + BODY,
    PRODUCE + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKED,
    GET + b"\r\n" + GET + b"Connection: close\r\n\r\n",
)
SPLINTERS = (
    *(b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b":", b";", b","),
    *(b"\xff", b"%00", b"0", b"-", b"f"),
    *(b"\r\n\r\n", b"0\r\n\r\n", b"HTTP/1.1", b"Host: x\r\n", b"chunked", b"a" * 9000),
    *(b"Content-Length: 0\r\n", b"Transfer-Encoding: chunked\r\n", b"Expect: 100-continue\r\n"),
    *(b"Connection: keep-alive\r\n", b"Content-Encoding: gzip\r\n", b"X: \xe9\r\n"),
)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A good request with some bytes taken out, put in or doubled."""
    data = draw(st.sampled_from(WHOLE)).replace(b"smuggled", b"mutated")
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(len(data), start + 30)))
        put_in = draw(st.sampled_from((b"", data[start:end] * 2, draw(st.sampled_from(SPLINTERS)))))
        data = data[:start] + put_in + data[end:]
    return data


LONG = (pytest.mark.slow, pytest.mark.timeout(3600))


@pytest.mark.parametrize("count", [150, pytest.param(2_000, marks=LONG)])
def test_mutated_requests(server: Daemon, count: int) -> None:
    """Requests that are nearly good: our answers or a close, soon, and the daemon lives."""

    @examples(count)
    @given(mutated())
    def send(data: bytes) -> None:
        with Wire(server) as wire:
            wire.send(data)
            with suppress(OSError):  # it is closed already
                wire.socket.shutdown(socket.SHUT_WR)
            said = wire.read_to_close()
        for word in (b"aiohttp", b"Python", b"Traceback"):
            assert word not in said
        # What is behind it may be the client's own end.
        for answer in parse_answers(said.replace(b"HTTP/1.1 100 Continue\r\n\r\n", b"")):
            assert answer.status < 500 or answer.status == 505, answer.body

    send()


def test_a_path_is_resolved_the_same_way_each_time(daemon: Daemon) -> None:
    """The route that was remembered for a method and a path answers as the first time."""
    daemon.create_topic("again")
    for method, path, status in (
        ("GET", "/topics/again", 200),
        ("HEAD", "/topics/again", 200),
        ("GET", "/topics/%61gain", 200),
        ("GET", "/topics/again?x=1", 200),
        ("PUT", "/topics/again", 405),
        ("GET", "/topics/again/", 200),
        ("GET", "/topics/again//", 404),
        ("GET", "/topics/none", 404),
    ):
        answers = [daemon.request(method, path) for _ in range(3)]
        assert [answer.status for answer in answers] == [status] * 3
        assert len({answer.headers.get("Allow") for answer in answers}) == 1
        if status == 200:
            assert answers[0].body == answers[1].body == answers[2].body
