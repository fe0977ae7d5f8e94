"""Goal: the benchmarks' load client sends Kafka's protocol, finds every answer of both protocols
however it comes, and keeps as many requests under way as it is told.
Method: bytes written down from the protocol guide; streams cut at every place; a small server.
"""

from __future__ import annotations

import os
import socket
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.bench import datasets, kafka_wire
from tests.bench.load_client import Answers, Load, build_request, http_length, run_load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Size, correlation id, topics, name; partitions, partition, error code, offset, time; throttle.
PRODUCED = bytes.fromhex(
    "0000002b 00000000 00000001 0003 726177"
    "00000001 00000000 0000 0000000000000007 ffffffffffffffff 00000000"
)
# Size, correlation id, throttle time, topics, name; partitions, partition, error code, high
# watermark, last stable offset, aborted transactions; bytes of records, records.
FETCHED = bytes.fromhex(
    "00000036 00000000 00000000 00000001 0003 726177"
    "00000001 00000000 0000 0000000000000009 0000000000000009 ffffffff 00000003 616263"
)
HTTP = b"HTTP/1.1 200 OK\r\ncontent-LENGTH: 5\r\nKafka-Durability: os\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"
PROTOCOLS = [
    (http_length, HTTP),
    (http_length, EMPTY),
    (kafka_wire.produced_length, PRODUCED),
    (kafka_wire.fetched_length, FETCHED),
    (kafka_wire.fetched_length, b"\0\0\7\x35" + FETCHED[4:] + bytes(1791)),
]


def test_a_produce_request_carries_the_batch_as_it_is() -> None:
    """Size, key, version, correlation id, client id; transactional id, acks, time-out, topics."""
    batch = datasets.batch_of(2, 10)
    begin = bytes.fromhex("0000 0003 00000000 0005 62656e6368 ffff ffff 00007530 00000001")
    begin += bytes.fromhex("0003 726177 00000001 00000000") + len(batch).to_bytes(4)
    whole = (len(begin) + len(batch)).to_bytes(4) + begin + batch
    assert kafka_wire.produce_request("raw", batch, acks=-1) == whole


def test_a_fetch_request_names_offset_and_most_bytes() -> None:
    """The body: replica, wait, least and most bytes, isolation, topics; then of the partition."""
    assert kafka_wire.fetch_request("raw", 42, max_bytes=1 << 20) == bytes.fromhex(
        "0000003d 0001 0004 00000000 0005 62656e6368"
        "ffffffff 00000000 00000001 00100000 00 00000001 0003 726177"
        "00000001 00000000 000000000000002a 00100000"
    )


@pytest.mark.parametrize(("length_of", "answer"), PROTOCOLS)
def test_answers_are_found_however_they_come(
    length_of: Callable[[bytes], int], answer: bytes
) -> None:
    stream = memoryview(answer * 4)
    for step in range(1, len(stream) + 1):
        answers, found = Answers(length_of), 0
        for at in range(0, len(stream), step):
            found += answers.take(stream[at : at + step])
            assert found == min(at + step, len(stream)) // len(answer)


@pytest.mark.parametrize("step", [1, 2, 7, 30, len(CHUNKED)])
def test_a_chunked_answer_ends_with_its_last_chunk(step: int) -> None:
    answers, pieces = Answers(http_length), range(0, len(CHUNKED), step)
    for _ in range(2):
        ends = [answers.take(memoryview(CHUNKED)[at : at + step]) for at in pieces]
        assert ends == [0] * (len(ends) - 1) + [1]


@pytest.mark.parametrize(
    ("length_of", "answer", "message"),
    [
        (http_length, HTTP.replace(b"200 OK", b"503 Busy"), "503 Busy"),
        (kafka_wire.produced_length, PRODUCED[:25] + b"\0\3" + PRODUCED[27:], "error code 3"),
        (kafka_wire.fetched_length, FETCHED[:29] + b"\0\1" + FETCHED[31:], "error code 1"),
        (kafka_wire.fetched_length, FETCHED[:-7] + bytes(4), "without records"),
    ],
)
def test_a_refusal_is_no_answer(
    length_of: Callable[[bytes], int], answer: bytes, message: str
) -> None:
    with pytest.raises(AssertionError, match=message):
        Answers(length_of).take(memoryview(answer))


@dataclass
class _Server:
    port: int
    pid: int


@contextmanager
def _server(requests: list[bytes], answer: bytes, together: int) -> Iterator[_Server]:
    """Reads so many requests of a connection before it answers them, then answers each."""

    def serve(connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            received = 0
            while request := stream.read(len(requests[0])):
                assert request in requests
                received += 1
                if received >= together:
                    connection.sendall(answer * (together if received == together else 1))

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield _Server(listener.getsockname()[1], os.getpid())
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("size", [100, 2 << 20])
@pytest.mark.parametrize("length_of", [http_length, kafka_wire.produced_length])
def test_requests_are_under_way_together(length_of: Callable[[bytes], int], size: int) -> None:
    """The server answers no request before it has five; large ones fill the socket."""
    bodies = [bytes([number]) * size for number in range(3)]
    if length_of is http_length:
        requests, answer = [build_request("POST", "/raw", body) for body in bodies], HTTP
    else:
        requests, answer = [kafka_wire.produce_request("raw", body) for body in bodies], PRODUCED
    with _server(requests, answer, together=5) as server:
        found = run_load(server, requests, Load(10, connections=1, in_flight=5), length_of)
    assert found.requests == len(found.latencies_ms) == 10
    assert found.bytes_received == 10 * len(answer)
    assert found.client_cpu_seconds > 0


def test_a_refusal_ends_the_run() -> None:
    request = build_request("GET", "/")
    with (
        _server([request], EMPTY.replace(b"204", b"404"), together=1) as server,
        pytest.raises(AssertionError, match="404"),
    ):
        run_load(server, [request], Load(3, connections=1))
