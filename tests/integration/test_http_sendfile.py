"""Goal: a raw fetch that is sent from the page cache is as good as one that is copied.
Method: the same fetch both ways, readers that are slow or leave, files that go while they are sent.
A connection with such an answer has a second descriptor: that tells which way was taken.
"""

from __future__ import annotations

import json
import os
import re
import socket
import struct
from collections import Counter
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, BinaryIO

import pytest

from kafkalog.client import BadAnswer, Client, DaemonFault
from kafkalog.format.records.batch_scan import scan
from tests.integration.daemon import Daemon
from tests.integration.http_world import Wire, append, batch_of, read_batches, refused, until

if TYPE_CHECKING:
    from pathlib import Path

BATCHES = 40
RECORDS = 10  # of a batch
VALUE = b"v" * 4000
EVERYTHING = 1 << 26
ORDINARY = "X-Odd: 1\r\n"  # a head with such a line is never remembered


def fetch(topic: str, offset: int, max_bytes: int = EVERYTHING, line: str = "") -> bytes:
    path = f"/v1/topics/{topic}/partitions/0/batches?max_bytes={max_bytes}&offset={offset}"
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n{line}\r\n".encode()


def seconds_of(daemon: Daemon) -> int:
    """Connections of the daemon that have a second descriptor."""
    home, sockets = f"/proc/{daemon.pid}/fd", list[str]()
    for name in os.listdir(home):
        with suppress(FileNotFoundError):  # closed since
            sockets.append(os.readlink(f"{home}/{name}"))
    counts = Counter(each for each in sockets if each.startswith("socket:"))
    return sum(count == 2 for count in counts.values())


def rot(daemon: Daemon) -> None:
    """Change a byte of a record of the topic rotten."""
    (path,) = (daemon.log_dirs[0] / "rotten-0").glob("*.log")
    with path.open("r+b") as log:
        log.seek(20_000)
        log.write(b"w")


def read_one(stream: BinaryIO) -> tuple[bytes, bytes]:
    """Head and body of an answer; what follows stays in the stream."""
    head = b""
    while (line := stream.readline()) not in (b"", b"\r\n"):
        head += line
    found = re.search(rb"Content-Length: (\d+)", head)
    assert found is not None, head
    return head, stream.read(int(found[1]))


def remember(daemon: Daemon, request: bytes) -> None:
    """Have the head known and its batches checked, which a read of an index makes forget."""
    with Wire(daemon) as wire:
        while seconds_of(daemon) == 0:
            wire.send(request)
            assert wire.read_answer().status == 200
    until(lambda: seconds_of(daemon) == 0)


def look_at_all(daemon: Daemon, topic: str) -> None:
    """What the kernel took out of the page cache is read, and all checked again."""
    with Wire(daemon) as copying:
        copying.send(fetch(topic, 0, EVERYTHING, ORDINARY))
        assert copying.read_answer().status == 200


def slow_reader(daemon: Daemon, requests: bytes, topic: str) -> Wire:
    """One whose answer is on its way from a file.

    The kernel may take a page at any time: then it is not, and another one tries.
    """
    before = seconds_of(daemon)
    while True:
        wire = Wire(daemon, receive_bytes=4096)
        wire.send(requests)
        assert wire.socket.recv(1, socket.MSG_PEEK) == b"H"
        assert daemon.request("GET", "/livez").status == 200  # the socket has what it takes
        if seconds_of(daemon) > before:
            return wire
        wire.socket.close()
        look_at_all(daemon, topic)


@pytest.fixture(scope="module")
def topic(daemon: Daemon) -> str:
    daemon.create_topic("sent")
    for number in range(BATCHES):
        assert append(daemon, "sent", batch_of(*[b"%07d" % number + VALUE] * RECORDS)).status == 200
    return "sent"


@pytest.mark.parametrize("max_bytes", [0, 1, 40_000, 100_000, EVERYTHING])
def test_both_ways_answer_alike(daemon: Daemon, topic: str, max_bytes: int) -> None:
    """But for where the answer ends: a copying read looks at a bounded number of bytes."""
    whole = read_batches(daemon, topic, 0, f"&max_bytes={EVERYTHING}").body
    remember(daemon, fetch(topic, 0, max_bytes))
    with Wire(daemon) as fast, Wire(daemon) as copying:
        for offset in (0, 7, 10, 125, 399):
            fast.send(fetch(topic, offset, max_bytes))
            copying.send(fetch(topic, offset, max_bytes, ORDINARY))
            ours, theirs = fast.read_answer(), copying.read_answer()
            assert ours.status == theirs.status == 200
            assert list(ours.headers) == list(theirs.headers)
            same = ("Kafka-Base-Offset", "Kafka-High-Watermark", "Content-Type", "Cache-Control")
            for name in same:
                assert ours.headers[name] == theirs.headers[name]
            assert ours.body.startswith(theirs.body)
            assert ours.body in whole
            rows = scan(ours.body)
            assert rows.consumed_bytes == len(ours.body)
            assert int(ours.headers["Kafka-Next-Offset"]) == rows.table[-1, 3] + 1
            assert len(ours.body) <= max_bytes or rows.count == 1
            is_last = int(ours.headers["Kafka-Next-Offset"]) == BATCHES * RECORDS
            assert ("Kafka-Up-To-Date" in ours.headers) == is_last


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("sent/partitions/0/batches?max_bytes=5&offset=400", 204),
        ("sent/partitions/0/batches?max_bytes=5&offset=401", 416),
        ("sent/partitions/1/batches?max_bytes=5&offset=0", 404),
        ("none/partitions/0/batches?max_bytes=5&offset=0", 404),
        ("sent/partitions/0/batches?max_bytes=5&offset=999999999999999999", 416),
        ("sent/partitions/0/batches?max_bytes=5&offset=0&offset=1", 400),
        ("sent/partitions/0/batches?max_bytes=5&offset=0&other=1", 400),
    ],
)
def test_what_is_refused_is_refused_both_ways(
    daemon: Daemon, topic: str, path: str, status: int
) -> None:
    assert topic
    for _ in range(3):
        answer = daemon.request("GET", f"/v1/topics/{path}")
        assert answer.status == status


def test_requests_in_a_row_are_answered_in_their_order(daemon: Daemon, topic: str) -> None:
    """Fetches, appends and others, sent at once."""
    daemon.create_topic("beside")
    data = batch_of(b"beside")
    head = "POST /v1/topics/beside/partitions/0/batches?acks=all HTTP/1.1\r\nHost: x\r\n"
    head += f"Content-Type: application/octet-stream\r\nContent-Length: {len(data)}\r\n\r\n"
    produce = head.encode() + data
    with Wire(daemon) as wire:
        wire.send(produce)
        assert wire.read_answer().status == 200
        kinds = "pfpofffppofofpp" * 5
        requests = {
            "p": produce,
            "f": fetch(topic, 0, 200_000),
            "o": b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n",
        }
        wire.send(b"".join(map(requests.__getitem__, kinds)))
        stream = wire.socket.makefile("rb")
        answers = [read_one(stream) for _ in kinds]
    marks = {"p": b'"base_offset":', "f": VALUE, "o": b'{"status":'}
    for kind, (_, body) in zip(kinds, answers, strict=True):
        assert marks[kind] in body
    offsets = [json.loads(body)["base_offset"] for _, body in answers if b"base_offset" in body]
    assert offsets == list(range(1, kinds.count("p") + 1))
    ids = re.findall(rb"X-Request-Id: (.*)\r", b"".join(head for head, _ in answers))
    assert len(set(ids)) == len(kinds)


def test_what_is_on_its_way_stays_whole(daemon: Daemon) -> None:
    """The topic is deleted while a slow reader has the first bytes: it gets all the same."""
    daemon.create_topic("leaving")
    for number in range(12):
        assert (
            append(daemon, "leaving", batch_of(*[b"%07d" % number + b"v" * 900] * 1000)).status
            == 200
        )
    whole = read_batches(daemon, "leaving", 0, f"&max_bytes={EVERYTHING}").body
    remember(daemon, fetch("leaving", 0))
    with slow_reader(daemon, fetch("leaving", 0), "leaving") as wire:
        stream = wire.socket.makefile("rb")
        assert daemon.request("DELETE", f"{daemon.cluster()}/topics/leaving").status == 204
        for path in daemon.log_dirs[0].glob("leaving-*/*.log"):
            path.unlink()
        assert read_one(stream)[1] == whole


def test_half_a_close_is_answered(daemon: Daemon, topic: str) -> None:
    """Also to a reader that is slow, and behind an append; then the connection ends."""
    data = batch_of(b"beside")
    daemon.create_topic("halved")
    head = "POST /v1/topics/halved/partitions/0/batches HTTP/1.1\r\nHost: x\r\n"
    head += f"Content-Type: application/octet-stream\r\nContent-Length: {len(data)}\r\n\r\n"
    whole = read_batches(daemon, topic, 0, f"&max_bytes={EVERYTHING}").body
    produce = head.encode() + data
    remember(daemon, fetch(topic, 0))
    with Wire(daemon) as wire:
        wire.send(produce)  # its head is remembered now
        wire.read_answer()
    for before in (b"", produce):
        with Wire(daemon, receive_bytes=4096) as wire:
            wire.send(before + fetch(topic, 0) * 4)
            stream = wire.socket.makefile("rb")
            if before:
                read_one(stream)
            answers = [read_one(stream)]
            wire.socket.shutdown(socket.SHUT_WR)
            answers += [read_one(stream) for _ in range(3)]
            assert all(body == whole for _, body in answers)
            assert stream.read() == b""


def test_what_came_from_the_disk_is_checked_again(daemon: Daemon) -> None:
    """It was changed there after it had been checked: no way of reading brings it back unseen."""
    daemon.create_topic("evicted")
    for _ in range(2):
        assert append(daemon, "evicted", batch_of(*[VALUE] * 10)).status == 200
    with Wire(daemon) as wire:
        for _ in range(3):
            wire.send(fetch("evicted", 0))
            assert wire.read_answer().status == 200
        (path,) = (daemon.log_dirs[0] / "evicted-0").glob("*.log")
        with path.open("r+b") as log:
            log.seek(20_000)
            log.write(b"w")
            log.flush()
            os.fsync(log.fileno())
            os.posix_fadvise(log.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        page = "/v1/topics/evicted/partitions/0/records?offset=0&value_format=text"
        refused(daemon.request("GET", page), 500, 50010)
        wire.send(fetch("evicted", 0))
        refused(wire.read_answer(), 500, 50010)


@pytest.mark.parametrize("is_changed", [False, True])
def test_what_leaves_the_cache_meanwhile_is_read_and_checked(
    daemon: Daemon, is_changed: bool
) -> None:
    """A slow reader has the first bytes: it gets the rest from the disk, or no wrong byte."""
    name = f"cold{is_changed:d}"
    daemon.create_topic(name)
    for _ in range(24):
        assert append(daemon, name, batch_of(*[VALUE] * 250)).status == 200
    whole = read_batches(daemon, name, 0, f"&max_bytes={EVERYTHING}").body
    remember(daemon, fetch(name, 0))
    (path,) = (daemon.log_dirs[0] / f"{name}-0").glob("*.log")
    requests = fetch(name, 0) + b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
    with slow_reader(daemon, requests, name) as wire:
        stream = wire.socket.makefile("rb")
        with path.open("r+b") as log:
            if is_changed:
                log.seek(len(whole) - 1000)
                log.write(b"w")
                log.flush()
            os.fsync(log.fileno())
            os.posix_fadvise(log.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if is_changed:
            with suppress(ConnectionResetError):
                body = read_one(stream)[1]
                assert len(body) < len(whole)
                assert whole.startswith(body)
            return
        assert read_one(stream)[1] == whole
        assert b"200 OK" in read_one(stream)[0]
    with Wire(daemon) as wire:
        wire.send(fetch(name, 0))
        assert wire.read_answer().body == whole


def test_our_own_client_is_served_so(daemon: Daemon, topic: str) -> None:
    with Client(f"http://127.0.0.1:{daemon.port}") as client:
        first = client.fetch(topic, 0, 0)
        while seconds_of(daemon) == 0:  # as for a slow reader
            look_at_all(daemon, topic)
            assert client.fetch(topic, 0, 0) == first


@pytest.mark.parametrize("ending", ["FIN", "RST"])
def test_readers_that_leave_leave_no_descriptor(daemon: Daemon, topic: str, ending: str) -> None:
    """In the middle of an answer that waits for them."""
    remember(daemon, fetch(topic, 0))
    with ExitStack() as stack:
        for _ in range(30):
            wire = stack.enter_context(slow_reader(daemon, fetch(topic, 0) * 20, topic))
            if ending == "RST":
                hard = struct.pack("ii", 1, 0)
                wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, hard)
        assert seconds_of(daemon) == 30
    until(lambda: seconds_of(daemon) == 0, "descriptors are left")


def test_no_reader_of_ours_takes_a_flipped_bit(daemon: Daemon) -> None:
    """Of records that were checked before: whoever decodes them checks them."""
    daemon.create_topic("rotten")
    assert append(daemon, "rotten", batch_of(*[VALUE] * 10)).status == 200
    client = Client(f"http://127.0.0.1:{daemon.port}")
    for _ in range(2):
        assert len(client.fetch("rotten", 0, 0).records) == 10
    rot(daemon)
    with client, pytest.raises((BadAnswer, DaemonFault)):  # the latter where it was forgotten
        client.fetch("rotten", 0, 0)
    for kind in ("json", "x-ndjson", "vnd.apache.arrow.stream"):
        accept = {"Accept": f"application/{kind}"}
        path = "/v1/topics/rotten/partitions/0/records?offset=0&value_format=text"
        refused(daemon.request("GET", path, None, accept), 500, 50010)
    path = "/topics/rotten/partitions/0/messages?offset=0"
    assert daemon.request("GET", path).status == 500


@pytest.mark.own_daemon
def test_always_checks_each_fetch(tmp_path: Path) -> None:
    with Daemon(tmp_path, fetch_raw_verify="always") as daemon:
        daemon.create_topic("rotten")
        assert append(daemon, "rotten", batch_of(*[VALUE] * 10)).status == 200
        for _ in range(3):
            assert read_batches(daemon, "rotten", 0).status == 200
        rot(daemon)
        refused(read_batches(daemon, "rotten", 0), 500, 50010)
