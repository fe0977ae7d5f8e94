"""Goal: slow and greedy clients are cut or refused in time; the others do not notice.
Method: raw sockets that drip, stall and flood a daemon with short limits.
"""

from __future__ import annotations

import json
import select
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

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
    from tests.integration.daemon import Daemon

pytestmark = pytest.mark.slow
SETTINGS = {
    "http_header_timeout_ms": "2000",
    "http_body_timeout_ms": "5000",  # some tests hold bodies back while they look
    "http_write_stall_ms": "500",
    "http_max_streams": "3",
    "http_max_inflight_requests": "8",
    "queued_max_request_bytes": "1000000",
    "max_connections": "60",
    "connections_max_idle_ms": "4000",  # above the bound of a header, which would not be told
    "http_max_fetch_bytes": "1000000000",
}
HEAD = b"POST /topics/slow HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
BODY = b'{"records":[{"value":1}]}'
BATCH = batch_of(b"x" * 100)
# The front of a connection answers it, once its head was seen.
RAW = b"POST /v1/topics/raw/partitions/0/batches HTTP/1.1\r\nHost: x\r\nContent-Type: "
RAW += BATCHES.encode() + b"\r\nContent-Length: %d\r\n\r\n" % len(BATCH) + BATCH
POLL = b"GET /topics/slow/partitions/0/records?offset=0&timeout=60000 HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture(scope="module", autouse=True)
def slow(daemon: Daemon) -> None:
    daemon.create_topic("slow")
    daemon.create_topic("raw")


def append_raw(daemon: Daemon) -> Wire:
    """A connection that has made appends, of which all but the first had a head that was known."""
    wire = Wire(daemon)
    for _ in range(3):
        wire.send(RAW)
        assert wire.read_answer("POST").status == 200
    return wire


def test_slow_appends_of_the_fast_path(daemon: Daemon) -> None:
    """A body that stops, a head that drips: 408 and a close. One that is slow is appended."""
    for start in (RAW[:-30], RAW + RAW[:-1]):
        with append_raw(daemon) as wire:
            wire.send(start)
            *appended, answer = parse_answers(wire.read_to_close())
            assert len(appended) == (len(start) > len(RAW))
            refused(answer, 408, 408)
    for start in (RAW[:1], RAW[:60], RAW[: RAW.index(BATCH) - 2]):
        with append_raw(daemon) as wire:
            wire.send(start)
            (answer,) = parse_answers(wire.read_to_close())
            refused(answer, 408, 408)
    with append_raw(daemon) as wire:
        wire.send(RAW[:-30])
        time.sleep(1.5)  # longer than the front waits
        wire.send(RAW[-30:])
        assert wire.read_answer("POST").status == 200
    until(lambda: others_in_work(daemon) == 0)


def test_idle_connections_of_the_fast_path_are_closed(daemon: Daemon) -> None:
    """After the same time as others, counted from the last answer."""
    with append_raw(daemon) as wire:
        time.sleep(2)  # half of it
        wire.send(RAW)
        assert wire.read_answer("POST").status == 200
        started = time.monotonic()
        assert wire.read_to_close() == b""
        assert 3 < time.monotonic() - started < 10


def test_a_body_that_stops_is_cut(daemon: Daemon) -> None:
    """408/408 and a close, with a length and chunked; nothing is appended."""
    for start in (
        HEAD + b"Content-Length: 25\r\n\r\n" + BODY[:20],
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n19\r\n" + BODY[:3],
    ):
        with Wire(daemon) as wire:
            wire.send(start)
            refused(parse_answers(wire.read_to_close())[0], 408, 408)
    assert end_offset(daemon, "slow") == 0


def test_drips_are_cut_and_others_are_served(daemon: Daemon) -> None:
    """Forty clients that send a header byte by byte; a good one is answered meanwhile.

    Half of them fall silent long before they are cut: who goes on sending may meet a reset instead
    of the answer, when a byte crosses the close.
    """
    patient, dripping = [Wire(daemon) for _ in range(20)], [Wire(daemon) for _ in range(20)]
    started = time.monotonic()
    line, cut = b"GET /" + b"a" * 500, list[Wire]()
    for number in range(len(line)):
        is_early = time.monotonic() - started < 0.5
        for wire in (*dripping, *patient) if is_early else dripping:
            wire.send(line[number : number + 1])
        assert daemon.request("GET", "/livez", timeout=5).status == 200
        time.sleep(0.1)  # the pace of the drip is the test's subject
        readable, _, _ = select.select([wire.socket for wire in dripping], [], [], 0)
        cut += [wire for wire in dripping if wire.socket in readable]
        dripping = [wire for wire in dripping if wire.socket not in readable]
        if not dripping:
            break
    assert len(cut) == 20
    for wire in (*cut, *patient):
        said = wire.read_to_close()
        assert b" 408 " in said or (wire in cut and not said)
        wire.socket.close()
    assert time.monotonic() - started < 15


def test_a_reader_that_stalls_is_cut(daemon: Daemon) -> None:
    """An answer that nobody takes: the connection ends, short of its length.

    It is 10 MB longer than what the kernel keeps of it for a reader.
    """
    daemon.create_topic("large")
    kept = int(Path("/proc/sys/net/ipv4/tcp_wmem").read_text().split()[2])
    count = (kept + 10_000_000) // 900_000
    for _ in range(count):
        daemon.produce_text("large", "x" * 900_000)
    with Wire(daemon, receive_bytes=4096) as wire:
        wire.send(
            b"GET /v1/topics/large/partitions/0/batches?offset=0&max_bytes=500000000 HTTP/1.1\r\n"
            b"Host: x\r\n\r\n"
        )
        wire.socket.recv(100)
        time.sleep(3)  # the stall is the test's subject
        taken = sum(len(piece) for piece in wire.pieces())
    assert taken < count * 900_000
    assert daemon.request("GET", "/livez").status == 200


def test_idle_connections_are_closed(daemon: Daemon) -> None:
    with Wire(daemon) as wire:
        wire.send(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        assert wire.read_answer().status == 200
        started = time.monotonic()
        assert wire.read_to_close() == b""
        assert 1 < time.monotonic() - started < 10


def test_request_bytes_in_flight_are_bounded(daemon: Daemon) -> None:
    """Two declared bodies of 600 kB: the second is 429/42902 before it is read, then free again."""
    with Wire(daemon) as first:
        first.send(HEAD + b"Content-Length: 600000\r\n\r\n" + BODY)
        until(lambda: others_in_work(daemon) == 1)
        with Wire(daemon) as second:
            second.send(HEAD + b"Content-Length: 600000\r\n\r\n")
            refused(second.read_answer(), 429, 42902)
        assert daemon.request("POST", "/topics/slow", BODY).status == 200
    until(lambda: others_in_work(daemon) == 0)
    padding = b" " * 600_000
    assert daemon.request("POST", "/topics/slow", BODY + padding).status == 200


def test_waiting_fetches_are_bounded_and_leave_with_their_client(daemon: Daemon) -> None:
    """The fourth long poll is 429/42903; a client that goes away frees its place at once."""
    end = end_offset(daemon, "slow")
    poll = POLL.replace(b"offset=0", f"offset={end}".encode())
    wires = [Wire(daemon) for _ in range(3)]
    for wire in wires:
        wire.send(poll)
    until(lambda: others_in_work(daemon) == 3)
    with Wire(daemon) as fourth:
        fourth.send(poll)
        refused(fourth.read_answer(), 429, 42903)
    for wire in wires:
        wire.socket.close()
    until(lambda: others_in_work(daemon) == 0)
    path = f"/topics/slow/partitions/0/records?offset={end}&timeout=10"
    assert daemon.request("GET", path).status == 200


def test_requests_in_work_are_bounded(daemon: Daemon) -> None:
    """Beyond http.max.inflight.requests: 429/42902; probes are answered all the same."""
    wires = [Wire(daemon) for _ in range(8)]
    for wire in wires:
        wire.send(HEAD + b"Content-Length: 25\r\n\r\n")
    until(lambda: others_in_work(daemon) == 8)
    refused(daemon.request("GET", "/topics"), 429, 42902)
    assert daemon.request("GET", "/readyz").status == 200
    for wire in wires:
        wire.send(BODY)
        assert wire.read_answer().status == 200
        wire.socket.close()
    assert daemon.request("GET", "/topics").status == 200


def test_connections_are_bounded(daemon: Daemon) -> None:
    """Those above max.connections are closed at once, with one line of the log; the others live."""
    wires = [Wire(daemon) for _ in range(60)]
    for _ in range(3):
        with Wire(daemon) as extra:
            assert extra.read_to_close() == b""
    lines = [json.loads(line) for line in daemon.log_path.read_text().splitlines()]
    (told,) = [line for line in lines if line["event"] == "Connections are refused"]
    assert (told["level"], told["max_connections"], told["count"]) == ("warning", 60, 1)
    wires[0].send(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
    assert wires[0].read_answer().status == 200
    for wire in wires:
        wire.socket.close()
    while True:  # the daemon may see the next connection before the end of these
        try:
            until(lambda: others_in_work(daemon) == 0)
            break
        except ConnectionError:
            continue


def test_a_client_that_resets_in_the_middle_of_an_append(daemon: Daemon) -> None:
    """The append is whole or absent: the end grows by whole requests only."""
    daemon.create_topic("whole")
    body = b'{"records":[' + b",".join([b'{"value":"x"}'] * 100) + b"]}"
    head = HEAD.replace(b"slow", b"whole") + b"Content-Length: %d\r\n\r\n" % len(body)
    for cut in range(0, len(body) + 1, 100):
        wire = Wire(daemon)
        wire.send(head + body[:cut])
        linger = b"\1\0\0\0\0\0\0\0"
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        wire.socket.close()
    for _ in range(3):
        wire = Wire(daemon)
        wire.send(head + body)
        wire.socket.close()
    until(lambda: others_in_work(daemon) == 0)
    daemon.produce_text("whole", "last")
    assert end_offset(daemon, "whole") % 100 == 1
