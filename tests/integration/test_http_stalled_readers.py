"""Goal: a reader that stops holds little, is cut off and counted; what it held is given back.
Method: clients with small receive buffers that ask for more than the kernel keeps for them and
never read; what is waited for is the count of cut readers.
"""

from __future__ import annotations

import resource
import socket
import time
from typing import TYPE_CHECKING

import pytest

from tests.integration.daemon import Daemon
from tests.integration.http_world import (
    BATCHES as BATCH_TYPE,
    Wire,
    append,
    batch_of,
    end_offset,
    others_in_work,
    until,
)
from tests.integration.stream_world import EVENTS, JSON, NDJSON
from tests.integration.test_http_stream_load import settle

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SETTINGS = {"http_write_stall_ms": "2000"}
EVERYTHING = 1 << 29
BATCHES = 12  # of 1 MB: more than the kernel keeps for both sides
READERS = 500
STREAM_BYTES_MAX = 128 << 10
GIVEN_BACK_BYTES = 20 << 20


def fill(daemon: Daemon) -> None:
    daemon.create_topic("unread")
    for number in range(BATCHES):
        values = [b"%07d" % number + b"v" * 993] * 1000
        assert append(daemon, "unread", batch_of(*values)).status == 200


def get(path: str, accept: str) -> bytes:
    head = f"GET /v1/topics/unread/partitions/0/{path} HTTP/1.1"
    return f"{head}\r\nHost: x\r\nAccept: {accept}\r\n\r\n".encode()


RECORDS = "records?offset=0&value_format=text"
UNREAD = {
    "events": get(RECORDS, EVENTS),
    "lines": get(RECORDS, NDJSON),
    "page": get(f"{RECORDS}&max_bytes={EVERYTHING}", JSON),
    "batches": get(f"batches?offset=0&max_bytes={EVERYTHING}", "*/*"),
    "many small pages": get(f"{RECORDS}&max_bytes=50000", JSON) * 400,
}


def cut_count(daemon: Daemon) -> int:
    page = daemon.request("GET", "/metrics").body.decode()
    name = "kafkalog_http_stalled_readers_total "
    (line,) = [each for each in page.splitlines() if each.startswith(name)]
    return int(float(line.split()[1]))


@pytest.fixture(scope="module", autouse=True)
def _filled(daemon: Daemon) -> None:
    fill(daemon)


def _is_reset(wire: Wire) -> bool:
    """Whether what comes still ends with a reset."""
    try:
        while wire.socket.recv(1 << 16):
            pass
    except ConnectionResetError:
        return True
    return False


def test_readers_that_stop_are_cut(daemon: Daemon) -> None:
    """Of every kind of answer, 20 in all, each with a reset; one line of the log tells of them."""
    wires = [
        (kind, Wire(daemon, receive_bytes=4096))
        for kind in UNREAD
        for _ in range(20 // len(UNREAD))
    ]
    for kind, wire in wires:
        wire.send(UNREAD[kind])
    until(lambda: cut_count(daemon) == len(wires), "not all of them were cut")
    until(lambda: others_in_work(daemon) == 0)
    for kind, wire in wires:
        with wire:
            assert _is_reset(wire), f"{kind}: ended as if it were whole"
    assert daemon.log_path.read_text().count("Readers that stalled were cut off") == 1


@pytest.mark.slow
def test_appends_whose_answers_nobody_reads(daemon: Daemon) -> None:
    """No more is begun than the kernel keeps answers of; who sends is cut; nothing is held."""
    daemon.create_topic("unheard")
    batch = batch_of(b"a")
    head = "POST /v1/topics/unheard/partitions/0/batches?acks=1 HTTP/1.1\r\nHost: x\r\n"
    head += f"Content-Type: {BATCH_TYPE}\r\nContent-Length: {len(batch)}\r\n\r\n"
    before, cut_before = daemon.rss_bytes(), cut_count(daemon)
    count = 60_000  # of 400 bytes are 24 MB
    with Wire(daemon, timeout=60, receive_bytes=4096) as wire:
        wire.send((head.encode() + batch) * count)
        until(lambda: cut_count(daemon) == cut_before + 1, "it was not cut")
    until(lambda: others_in_work(daemon) == 0)
    assert daemon.rss_bytes() - before < 60_000_000
    assert end_offset(daemon, "unheard") < count


def test_what_was_taken_is_not_held(daemon: Daemon) -> None:
    """Idle connections: each held its last answer until its next request, 12 MB here."""
    wires = [Wire(daemon) for _ in range(20)]
    grown = []
    for wire in wires:
        wire.send(UNREAD["batches"])
        assert len(wire.read_answer().body) > BATCHES * 1_000_000
        grown.append(daemon.rss_bytes())
    for wire in wires:
        wire.socket.close()
    assert grown[-1] - grown[4] < 60_000_000  # some are on their way out of the first threads


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """Room for a socket a reader."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4 * READERS)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.usefixtures("many_descriptors")
@pytest.mark.parametrize("receive_bytes", [4096, 0])
def test_five_hundred_event_streams_give_their_memory_back(
    tmp_path: Path, receive_bytes: int
) -> None:
    """They raised 178 MB to 363 MB, where it stayed.

    While they stand: 128 KiB each. Two minutes after they left: within 20 MB of before.
    """
    with Daemon(tmp_path) as daemon:
        fill(daemon)
        with Wire(daemon) as first:  # what the first of all streams costs is none of theirs
            first.send(UNREAD["events"])
            first.socket.recv(1 << 16)
        until(lambda: others_in_work(daemon) == 0)
        before = daemon.rss_bytes()
        wires = [Wire(daemon, receive_bytes=receive_bytes, timeout=60) for _ in range(READERS)]
        for wire in wires:
            wire.send(UNREAD["events"])
        for wire in wires:
            wire.socket.recv(1, socket.MSG_PEEK)
        settle(daemon)
        assert others_in_work(daemon) == READERS
        grown = daemon.rss_bytes() - before
        for wire in wires:
            wire.socket.close()
        until(lambda: others_in_work(daemon) == 0)
        assert grown < READERS * STREAM_BYTES_MAX, f"{grown / READERS:.0f} bytes a stream"
        until(
            lambda: daemon.rss_bytes() < before + GIVEN_BACK_BYTES,
            "the memory was not given back",
            seconds=120,
            pace_seconds=1,
        )


@pytest.mark.slow
def test_a_slow_reader_is_no_stalled_one(tmp_path: Path) -> None:
    """1 KB/s, of which the kernels tell each other every 6 s: as long as it takes anything."""
    with Daemon(tmp_path, http_write_stall_ms="15000") as daemon:
        fill(daemon)
        with Wire(daemon, receive_bytes=4096) as wire:
            wire.send(UNREAD["events"])
            for _ in range(45):  # three times the setting
                assert wire.socket.recv(1000)
                time.sleep(1)  # the pace of the reader is the test's subject
            assert others_in_work(daemon) == 1
            assert cut_count(daemon) == 0
