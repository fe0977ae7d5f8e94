"""Goal: many waiting clients cost nothing while nothing arrives, one that stops reading little.
Method: processor time, memory and reads of a live daemon as the kernel counts them, under a
thousand open connections and under readers that never read.
"""

from __future__ import annotations

import os
import socket
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.http_world import Wire, append, batch_of, others_in_work, until
from tests.integration.stream_world import EVENTS, NDJSON

if TYPE_CHECKING:
    from tests.integration.daemon import Daemon

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
SETTINGS = {"http_max_streams": "1100", "http_write_stall_ms": "8000"}
CLIENTS = 1000
wait_for = partial(until, pace_seconds=0.3)  # looks are work of the daemon, too
IDLE_SECONDS = 6.0
# Timers of the daemon itself and keep-alives; a client that polled ten times a second would cost
# more than a core.
CORE_SHARE_MAX = 0.04
READERS = 20
READER_BYTES_MAX = 1 << 20


def cpu_seconds(daemon: Daemon) -> float:
    """User and system time of the process so far."""
    fields = Path(f"/proc/{daemon.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def read_bytes(daemon: Daemon) -> int:
    """What the process has read by system calls so far, from files and sockets."""
    line = Path(f"/proc/{daemon.pid}/io").read_text().splitlines()[0]
    assert line.startswith("rchar: ")
    return int(line.split()[1])


def request_of(topic: str, accept: str, query: str) -> bytes:
    path = f"/v1/topics/{topic}/partitions/0/records?value_format=text&{query}"
    return f"GET {path} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n\r\n".encode()


def test_a_thousand_clients_wait(daemon: Daemon) -> None:
    """M16: events, lines and long polls; then one append reaches all of them."""
    daemon.create_topic("idle")
    requests = [
        request_of("idle", EVENTS, "from=latest"),
        request_of("idle", NDJSON, "from=latest&max_wait_ms=60000"),
        request_of("idle", "application/json", "from=latest&max_wait_ms=60000"),
    ]
    wires = []
    try:
        for number in range(CLIENTS):
            wire = Wire(daemon)
            wires.append(wire)
            wire.send(requests[number % 3])
        wait_for(lambda: others_in_work(daemon) == CLIENTS, "not all of them wait")
        before = cpu_seconds(daemon)
        time.sleep(IDLE_SECONDS)  # the time that is measured
        used = cpu_seconds(daemon) - before
        assert used <= IDLE_SECONDS * CORE_SHARE_MAX, f"{used} s in {IDLE_SECONDS} s"
        assert append(daemon, "idle", batch_of(b"arrived")).status == 200
        for wire in wires:
            seen = b""
            while b"arrived" not in seen:
                piece = wire.socket.recv(1 << 16)
                assert piece
                seen += piece
    finally:
        for wire in wires:
            wire.socket.close()


@pytest.mark.parametrize("accept", [NDJSON, EVENTS])
def test_readers_that_stop(daemon: Daemon, accept: str) -> None:
    """M16: bounded memory, no reads for them, an end after http.write.stall.ms; others go on."""
    topic = f"unread-{accept.rpartition('/')[2]}"
    daemon.create_topic(topic)
    for number in range(300):
        values = [b"%07d" % number + b"v" * 993] * 100
        assert append(daemon, topic, batch_of(*values)).status == 200
    path = f"/v1/topics/{topic}/partitions/0/records?offset=0&value_format=text&max_wait_ms=0"
    assert daemon.request("GET", path, headers={"Accept": accept}).status == 200
    before = daemon.rss_bytes()
    wires = [Wire(daemon, receive_bytes=4096, timeout=30) for _ in range(READERS)]
    try:
        for wire in wires:
            wire.send(request_of(topic, accept, "offset=0"))
            wire.socket.recv(1, socket.MSG_PEEK)
        settle(daemon)
        grown = daemon.rss_bytes() - before
        assert grown < READERS * READER_BYTES_MAX, f"{grown / READERS:.0f} bytes a reader"
        read_before = read_bytes(daemon)
        time.sleep(2)  # the time that is measured: nothing is drained in it
        assert read_bytes(daemon) - read_before < 1 << 20
        assert daemon.request("GET", "/livez").status == 200
        wait_for(lambda: others_in_work(daemon) == 0, "they are not cut off")
        for wire in wires:  # what is left of a reader's stream is what was on its way
            assert 0 < sum(map(len, wire.pieces())) < 4 << 20
    finally:
        for wire in wires:
            wire.socket.close()


def settle(daemon: Daemon) -> None:
    """Until the daemon reads nothing more for its readers."""
    seen = [-1]

    def is_still() -> bool:
        seen.append(read_bytes(daemon))
        return seen[-1] - seen[-2] < 100_000  # its own looks at /proc are counted too

    wait_for(is_still, "it goes on reading")
