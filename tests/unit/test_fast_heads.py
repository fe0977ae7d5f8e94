"""Goal: only heads that ask for a common append in a common way are known, each by all its bytes.
Method: heads as aiohttp's two parsers read them, changed by a byte, a header or a word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkalog.broker.values import Acks
from kafkalog.server.fast_path.heads import AskedAppend, KnownHeads
from kafkalog.server.security.hosts import Hosts
from tests.fast_world import PARSERS, append_head, parsed
from tests.integration.http_world import BATCHES

if TYPE_CHECKING:
    from aiohttp.http_parser import HttpRequestParserPy

HEAD = append_head("t", 70)


def known_heads() -> KnownHeads:
    return KnownHeads(Hosts((), (), is_open=False), None)


def learnt(head: bytes, parser: type[HttpRequestParserPy] = PARSERS[0]) -> KnownHeads:
    heads = known_heads()
    heads.learn(head, parsed(head, parser))
    return heads


def with_lines(*lines: str, path: str = "/v1/topics/t/partitions/0/batches") -> bytes:
    """A head of these header lines, in this order."""
    return "\r\n".join((f"POST {path} HTTP/1.1", *lines, "", "")).encode()


HOST, KIND, LENGTH = "Host: 127.0.0.1", f"Content-Type: {BATCHES}", "Content-Length: 70"


@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize(
    ("head", "asked"),
    [
        (HEAD, AskedAppend("t", 0, None, None)),
        (append_head("t", 70, query="?acks=all"), AskedAppend("t", 0, None, Acks.ALL)),
        (append_head("t", 70, query="?acks=-1"), AskedAppend("t", 0, None, Acks.ALL)),
        (append_head("a.B_c-1", 70, query="?acks=1"), AskedAppend("a.B_c-1", 0, None, Acks.LEADER)),
        (with_lines(LENGTH, KIND, HOST), AskedAppend("t", 0, None, None)),
        (
            with_lines("host:localhost:80", "content-length:70", KIND),
            AskedAppend("t", 0, None, None),
        ),
        (with_lines(HOST, LENGTH, f"{KIND}; v=1", "Accept: */*"), AskedAppend("t", 0, None, None)),
        (with_lines(HOST, LENGTH, KIND, "Connection: Keep-Alive"), AskedAppend("t", 0, None, None)),
        (
            with_lines(HOST, LENGTH, "Content-Type: application/octet-stream", "User-Agent: x"),
            AskedAppend("t", 0, None, None),
        ),
        (
            with_lines(HOST, LENGTH, KIND, path="/v1/topics/t/partitions/2147483647/batches"),
            AskedAppend("t", 2147483647, None, None),
        ),
    ],
)
def test_common_appends_are_known(
    head: bytes, asked: AskedAppend, parser: type[HttpRequestParserPy]
) -> None:
    """Whatever the length of the body, written in up to nine digits."""
    heads = learnt(head, parser)
    assert heads.find(head) == (asked, 70)
    at = head.lower().index(b"length")
    for length in (b"0", b"007", b"1", b"123456789"):
        other = head[:at] + head[at:].replace(b"70", length, 1)
        assert heads.find(other) == (asked, int(length))
    for length in (b"", b"1234567890", b"+70", b"-70", b"7_0", b"0x70", b"70 ", b" 70", b"\xb2"):
        assert heads.find(head[:at] + head[at:].replace(b"70", length, 1)) is None


UNCOMMON = {
    "a GET": with_lines(HOST, LENGTH, KIND).replace(b"POST", b"GET"),
    "HTTP/1.0": with_lines(HOST, LENGTH, KIND).replace(b"1.1\r", b"1.0\r"),
    "another header": with_lines(HOST, LENGTH, KIND, "X-Odd: 1"),
    "a request id": with_lines(HOST, LENGTH, KIND, "X-Request-Id: a"),
    "a page's origin": with_lines(HOST, LENGTH, KIND, "Origin: http://x"),
    "a page's site": with_lines(HOST, LENGTH, KIND, "Sec-Fetch-Site: cross-site"),
    "two credentials": with_lines(
        HOST, LENGTH, KIND, "Authorization: Basic YTpi", "Authorization: Basic YTpi"
    ),
    "acks in a header": with_lines(HOST, LENGTH, KIND, "Kafka-Acks: 1"),
    "a producer": with_lines(HOST, LENGTH, KIND, "Kafka-Producer-Id: 1"),
    "Expect": with_lines(HOST, LENGTH, KIND, "Expect: 100-continue"),
    "an encoding": with_lines(HOST, LENGTH, KIND, "Content-Encoding: gzip"),
    "no encoding": with_lines(HOST, LENGTH, KIND, "Content-Encoding: identity"),
    "an upgrade": with_lines(HOST, LENGTH, KIND, "Connection: Upgrade", "Upgrade: h2c"),
    "a close": with_lines(HOST, LENGTH, KIND, "Connection: close"),
    "two tokens": with_lines(HOST, LENGTH, KIND, "Connection: keep-alive, close"),
    "chunks": with_lines(HOST, KIND, "Transfer-Encoding: chunked"),
    "no length": with_lines(HOST, KIND),
    "a long length": with_lines(HOST, KIND, "Content-Length: 1000000000"),
    "two spaces": with_lines(HOST, KIND, "Content-Length:  70"),
    "a header twice": with_lines(HOST, LENGTH, KIND, "Accept: a", "accept: b"),
    "no type": with_lines(HOST, LENGTH),
    "another type": with_lines(HOST, LENGTH, "Content-Type: application/json"),
    "a foreign host": with_lines("Host: www.shop.example", LENGTH, KIND),
    "a bad host": with_lines("Host: a b", LENGTH, KIND),
    "an empty path": with_lines(HOST, LENGTH, KIND, path="/v1/topics//partitions/0/batches"),
    "a coded path": with_lines(HOST, LENGTH, KIND, path="/v1/topics/%74/partitions/0/batches"),
    "a dotted topic": with_lines(HOST, LENGTH, KIND, path="/v1/topics/../partitions/0/batches"),
    "a long topic": with_lines(
        HOST, LENGTH, KIND, path=f"/v1/topics/{'t' * 250}/partitions/0/batches"
    ),
    "no partition": with_lines(HOST, LENGTH, KIND, path="/v1/topics/t/partitions/-1/batches"),
    "a large partition": with_lines(
        HOST, LENGTH, KIND, path="/v1/topics/t/partitions/2147483648/batches"
    ),
    "another place": with_lines(HOST, LENGTH, KIND, path="/v1/topics/t/partitions/0/records"),
    "a slash": with_lines(HOST, LENGTH, KIND, path="/v1/topics/t/partitions/0/batches/"),
    "a whole address": with_lines(
        HOST, LENGTH, KIND, path="http://127.0.0.1/v1/topics/t/partitions/0/batches"
    ),
    "a fragment": with_lines(HOST, LENGTH, KIND, path="/v1/topics/t/partitions/0/batches#x"),
    **{
        query: append_head("t", 70, query=query)
        for query in (
            *(
                "?",
                "?acks=0",
                "?acks=ALL",
                "?acks=2",
                "?acks=",
                "?acks=1&acks=1",
                "?acks=1&flush=1",
            ),
            *("?expected_offset=3", "?flush=true", "?x=1", "?acks=al%6c", "?acks=1&", "?Acks=1"),
        )
    },
    "bytes beyond ASCII": with_lines(HOST, LENGTH, KIND, "User-Agent: \xe9"),
    "a tab": with_lines(HOST, LENGTH, KIND, "User-Agent:\tx"),
    "an empty line before": b"\r\n" + HEAD,
    "2049 bytes": with_lines(HOST, LENGTH, KIND, f"User-Agent: {'x' * (2049 - len(HEAD))}"),
}


@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize("name", UNCOMMON)
def test_what_is_uncommon_is_never_learnt(name: str, parser: type[HttpRequestParserPy]) -> None:
    heads = learnt(UNCOMMON[name], parser)
    assert heads.find(UNCOMMON[name]) is None
    assert not heads._known


def test_a_head_that_differs_by_a_byte_is_not_known() -> None:
    """But for the digits: any byte changed, left out, put in or doubled."""
    heads = learnt(HEAD)
    number = HEAD.index(b"Length: 70") + len("Length: ")
    for at in range(len(HEAD)):
        for change in (b"", b"\0", b" ", b"0", b"\r", b"\n", b"a", bytes([HEAD[at] ^ 32]), b"\xff"):
            for other in (HEAD[:at] + change + HEAD[at + 1 :], HEAD[:at] + change + HEAD[at:]):
                found = heads.find(other)
                is_other_number = (
                    other.startswith(HEAD[:number])
                    and other.endswith(HEAD[number + 2 :])
                    and other[number : len(other) - len(HEAD[number + 2 :])].isdigit()
                )
                assert (found is not None) == is_other_number, other
                assert found is None or found[0] == AskedAppend("t", 0, None, None)


def test_the_mark_of_the_number_is_no_number() -> None:
    """A head with the byte that stands for the number finds nothing, wherever the byte is."""
    heads = learnt(HEAD)
    assert heads.find(HEAD.replace(b"70", b"\0")) is None
    marked = HEAD.replace(b"Length: 70", b"Length: \0")
    assert heads.find(marked[:-2] + b"Content-Length: 5\r\n\r\n") is None
    assert heads.find(b"\r\nContent-Length: 5" + marked) is None
    assert heads.find(b"") is None


def test_a_line_feed_before_a_request_is_never_learnt() -> None:
    """llhttp passes it by, the parser in Python refuses it."""
    assert parsed(b"\n" + HEAD).path == parsed(HEAD).path
    heads = known_heads()
    heads.learn(b"\n" + HEAD, parsed(HEAD))
    assert not heads._known


def test_what_is_remembered_is_bounded() -> None:
    """By the bytes of heads, also of those that differ in their number alone."""
    heads = known_heads()
    for number in range(5000):
        head = append_head(f"t{number}", 70, extra=f"User-Agent: {'x' * 1700}\r\n")
        message = parsed(head)
        heads.learn(head, message)
        for length in (1, 70):
            found = heads.find(head.replace(b"Length: 70", b"Length: %d" % length))
            assert found is not None
            assert found[1] == length
    for _ in range(40_000):  # it is known
        heads.learn(head, message)
    assert len(heads._known) > 1000
    for remembered in (heads._known, heads._appends):
        assert sum(map(len, remembered)) <= 8 << 20
        assert 0 < len(remembered) < 5000


def test_beginnings() -> None:
    """Each piece from the head's first byte on, whatever its number; of nothing else."""
    at = HEAD.index(b"70")
    for number in (b"", b"7", b"70", b"123456789"):
        other = HEAD[:at] + number + HEAD[at + 2 :]
        for size in range(1, len(other)):
            assert KnownHeads.is_beginning(other[:size], HEAD)
    for size in range(1, len(HEAD)):
        wrong = HEAD[: size - 1] + b"\0"
        assert not KnownHeads.is_beginning(wrong, HEAD)
    assert not KnownHeads.is_beginning(HEAD + b"x", HEAD)


def test_a_number_without_end_is_no_beginning() -> None:
    """It was kept as long as digits came: memory without a bound, and copied for each piece."""
    at = HEAD.index(b"70")
    assert not KnownHeads.is_beginning(HEAD[:at] + b"1" * 10, HEAD)
    assert not KnownHeads.is_beginning(HEAD[:at] + b"1" * 100_000, HEAD)
