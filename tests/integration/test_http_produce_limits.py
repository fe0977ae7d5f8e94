"""Goal: produce streams cost bounded memory and places; clients that stall, vanish or are cut off
find in the log what they were told of.
Method: raw connections that flood, drip, idle and reset a daemon with short limits.
"""

from __future__ import annotations

import collections
import contextlib
import http.client
import itertools
import json
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.daemon import Daemon
from tests.integration.http_world import Wire, end_offset, read_batches, refused
from tests.integration.stream_world import NDJSON, Duplex
from tests.partition_world import records_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow
SETTINGS = {
    "http_body_timeout_ms": "1000",
    "http_write_stall_ms": "500",
    "http_max_streams": "3",
    "http_max_inflight_requests": "2",
    "queued_max_request_bytes": "1000000",
    "connections_max_idle_ms": "2000",
}
# The same bounds for tests that are not of time: a busy machine is not a slow client.
PATIENT: dict[str, Any] = {
    name: value
    for name, value in SETTINGS.items()
    if name in {"http_max_streams", "http_max_inflight_requests", "queued_max_request_bytes"}
}
PADDING = b" " * 600_000
TOLD = {"Content-Type": NDJSON, "Accept": NDJSON}


def path_of(topic: str) -> str:
    return f"/v1/topics/{topic}/partitions/0/records?acks=1"


def last_of(wire: Duplex) -> Any:
    return wire.rest()[-1]


def test_a_million_lines_in_bounded_memory(tmp_path: Path) -> None:
    """Memory follows neither the body nor the receipts."""
    chunk = b'{"key":"some-key","value":{"text":"%b"}}\n' % (b"x" * 80) * 1000
    chunks, told = 1000, [b""]
    with Daemon(tmp_path) as one:
        one.create_topic("million")
        before = most = one.rss_bytes()
        with Duplex(one, path_of("million"), TOLD, timeout=60) as wire:

            def read() -> None:
                while line := wire.answer.readline():
                    told[0] = line

            assert wire.answer.status == 200
            reader = threading.Thread(target=read)
            reader.start()
            for number in range(chunks):
                wire.send(chunk)
                if number % 50 == 0:
                    most = max(most, one.rss_bytes())
            wire.finish()
            reader.join(60)
        assert json.loads(told[0])["offset"] == 1000 * chunks - 1
        assert end_offset(one, "million") == 1000 * chunks
        assert most - before < 48 << 20


def test_a_client_that_does_not_read_is_cut(daemon: Daemon) -> None:
    """Receipts that nobody takes hold the stream up, then end it; what was appended stays."""
    daemon.create_topic("unread")
    chunk = b"{}\n" * 20_000
    before = daemon.rss_bytes()
    with Wire(daemon, receive_bytes=4096, timeout=60) as wire:
        wire.socket.sendall(
            f"POST {path_of('unread')} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
            f"Content-Type: {NDJSON}\r\nAccept: {NDJSON}\r\n\r\n".encode()
        )
        piece = b"%x\r\n%b\r\n" % (len(chunk), chunk)
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            collections.deque(map(wire.socket.sendall, itertools.repeat(piece)), 0)
        read = b"".join(wire.pieces())
    assert daemon.rss_bytes() - before < 32 << 20
    assert read.count(b'"error_code":null') <= end_offset(daemon, "unread")
    assert daemon.request("GET", "/livez").status == 200


def test_a_line_that_stops_is_cut(daemon: Daemon) -> None:
    """408 in the last line, also for one that drips; whole lines before it are appended."""
    daemon.create_topic("dripped")
    with Duplex(daemon, path_of("dripped"), TOLD) as wire:
        wire.send(b'{"value":1}\n{"value"')
        assert wire.line()["offset"] == 0
        started = time.monotonic()
        last = last_of(wire)
        assert (last["error_code"], last["end_of_stream"]) == (408, True)
        assert 0.5 < time.monotonic() - started < 10
    with Duplex(daemon, path_of("dripped"), TOLD) as wire:
        assert wire.answer.status == 200
        for byte in b'{"value":"a line that is sent in drips"}':
            wire.send(bytes((byte,)))
            time.sleep(0.05)  # the pace of the drip is the test's subject
        assert last_of(wire)["error_code"] == 408
    assert end_offset(daemon, "dripped") == 1


def test_a_body_whose_framing_breaks(daemon: Daemon) -> None:
    """Whole lines before it are appended; the stream is not taken for complete."""
    daemon.create_topic("framed")
    with Duplex(daemon, path_of("framed"), TOLD) as wire:
        wire.send(b'{"value":1}\n{"value":')
        assert wire.line()["offset"] == 0
        wire.send_raw(b"no chunk\r\n")
        try:
            ended = wire.rest()
        except http.client.IncompleteRead:
            ended = []
    assert all(each["end_of_stream"] for each in ended)
    assert end_offset(daemon, "framed") == 1


def test_a_silent_stream_is_ended(daemon: Daemon) -> None:
    """Nobody holds a place for ever; between two lines there is more time than inside one."""
    daemon.create_topic("silent")
    with Duplex(daemon, path_of("silent"), TOLD) as wire:
        time.sleep(1.5)  # the silence is the test's subject
        wire.send(b"{}\n")
        assert wire.line()["offset"] == 0
        assert last_of(wire)["error_code"] == 408
    body = {"Content-Type": NDJSON, "Content-Length": "100"}
    with Wire(daemon) as raw:
        head = "".join(f"{name}: {value}\r\n" for name, value in body.items())
        raw.send(f"POST {path_of('silent')} HTTP/1.1\r\nHost: x\r\n{head}\r\n".encode())
        refused(raw.read_answer(), 408, 408)


def test_a_body_longer_than_any_that_is_read_whole(tmp_path: Path) -> None:
    """Lines may go on for longer than socket.request.max.bytes, also with a declared length."""
    line = b'{"value":"%b"}\n' % (b"x" * 1000)
    body = line * 4000
    head = f"Host: x\r\nContent-Length: {len(body)}\r\nExpect: 100-continue\r\n"
    with Daemon(tmp_path, socket_request_max_bytes=str(1 << 20)) as one:
        one.create_topic("long")
        with Wire(one) as wire:
            request = f"POST {path_of('long')} HTTP/1.1\r\n{head}Content-Type: {NDJSON}\r\n\r\n"
            wire.send(request.encode())
            assert wire.socket.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
            wire.send(body)
            assert wire.read_answer("POST").json["count"] == 4000
        array = {"Content-Type": "application/json"}
        refused(one.request("POST", path_of("long"), body, array), 413, 41302)
        assert end_offset(one, "long") == 4000


def test_streams_have_places_of_their_own(tmp_path: Path) -> None:
    """The fourth stream is 429/42903; three leave room for requests; a place comes back."""
    with Daemon(tmp_path, **PATIENT) as one:
        one.create_topic("places")
        with contextlib.ExitStack() as stack:
            wires = [stack.enter_context(Duplex(one, path_of("places"), TOLD)) for _ in range(3)]
            for wire in wires:
                assert wire.answer.status == 200
            fourth = one.request("POST", path_of("places"), b"{}", TOLD)
            refused(fourth, 429, 42903)
            assert one.request("GET", "/topics").status == 200
            for wire in wires:
                wire.finish()
                assert wire.rest() == []
        assert one.request("POST", path_of("places"), b"{}", TOLD).status == 200


def held_line(daemon: Daemon) -> Duplex:
    """A stream that holds a line of 900 kB without its end, seen by a body that is refused.

    Whichever of the two is read second is refused: a stream that was is begun again.
    """
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        wire = Duplex(daemon, path_of("held"), TOLD)
        assert wire.answer.status == 200
        wire.send(b'{"value":"' + b"x" * 900_000)
        while not wire.has_more():
            if daemon.request("POST", "/topics/held", PADDING).status == 429:
                return wire
            assert time.monotonic() < deadline
        with wire:
            assert last_of(wire)["error_code"] == 42902
    raise AssertionError("the stream was refused every time")


def test_bytes_of_an_unfinished_line_count(tmp_path: Path) -> None:
    """What a stream holds is in the bound of all bodies, and given back."""
    with Daemon(tmp_path, **PATIENT) as one:
        one.create_topic("held")
        with held_line(one) as wire:
            wire.send(b'"}\n')
            assert wire.line()["offset"] == 0
            body = b'{"records":[{"value":1}]}' + PADDING
            assert one.request("POST", "/topics/held", body).status == 200
            wire.finish()
            assert wire.rest() == []


def test_a_client_that_vanishes(daemon: Daemon) -> None:
    """Every receipt that was read is a record in the log, in order and once."""
    daemon.create_topic("vanished")
    for turn in range(8):
        read: list[Any] = []
        with Duplex(daemon, path_of("vanished"), TOLD) as wire:
            for number in range(turn * 5 + 1):
                wire.send(b'{"value":"%d-%d"}\n' % (turn, number) * 2)
                if number % 2:
                    read.append(wire.line())
            wire.reset()
        offsets = [each["offset"] for each in read]
        assert offsets == sorted(set(offsets))
    daemon.produce_text("vanished", "end")
    values = [record.value for record in records_of(read_batches(daemon, "vanished", 0).body)]
    for turn in range(8):
        kept = [
            value for value in values if value is not None and value[1:].startswith(b"%d-" % turn)
        ]
        wanted = [b'"%d-%d"' % (turn, number) for number in range(turn * 5 + 1) for _ in range(2)]
        assert kept == wanted[: len(kept)]
        assert len(kept) >= (turn * 5 + 1) // 2


def test_a_stop_ends_streams(tmp_path: Path) -> None:
    """An open stream does not hold up a stop, and its client is told."""
    with Daemon(tmp_path) as one:
        one.create_topic("stopped")
        with Duplex(one, path_of("stopped"), TOLD) as wire:
            wire.send(b'{"value":1}\n')
            assert wire.line()["offset"] == 0
            started = time.monotonic()
            assert one.stop() == 0
            assert time.monotonic() - started < 5
            last = last_of(wire)
            assert (last["error_code"], last["end_of_stream"]) == (50304, True)
        one.start()
        assert end_offset(one, "stopped") == 1


def test_a_killed_daemon_has_what_it_told_of(tmp_path: Path) -> None:
    """acks=all: a receipt outlives SIGKILL."""
    with Daemon(tmp_path) as one:
        one.create_topic("killed")
        path = "/v1/topics/killed/partitions/0/records?acks=all"
        told = 0
        with Duplex(one, path, TOLD) as wire:
            for number in range(200):
                wire.send(b'{"value":%d}\n' % number)
                if number >= 20:
                    assert wire.line()["offset"] == told
                    told += 1
            one.kill()
        one.start()
        values = [record.value for record in records_of(read_batches(one, "killed", 0).body)]
        assert values == [b"%d" % number for number in range(len(values))]
        assert len(values) >= told
