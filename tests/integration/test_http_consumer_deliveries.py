"""Goal: what a v2 consumer was not known to have read is delivered again, nothing else is.
Method: a live daemon; connections that break before the answer is read, commits, one connection.
"""

from __future__ import annotations

import http.client
import json
import socket
import struct
from typing import TYPE_CHECKING, Any

from tests.integration.test_http_consumers import (
    CONFLUENT,
    HEADERS,
    SETTINGS,
    STRIMZI,
    Instance,
    topic_of,
)

if TYPE_CHECKING:
    from tests.integration.daemon import Daemon

__all__ = ["SETTINGS"]  # of the daemon fixture


def test_a_lost_answer_comes_again(daemon: Daemon) -> None:
    """A client whose connection broke before it read its records gets them again."""
    topic = topic_of(daemon, "lost")
    one = Instance(daemon, "losing", **CONFLUENT)
    one.subscribe(topic)
    request = f"GET {one.path}/records?timeout=0 HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    for _ in range(2):
        raw = socket.create_connection(("127.0.0.1", daemon.port))
        raw.sendall(request)
        assert raw.recv(20, socket.MSG_PEEK)  # it is there, and nobody takes it
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raw.close()
    assert daemon.request("HEAD", f"{one.path}/records?timeout=0").status == 200
    assert one.offsets() == [0, 1, 2]
    assert one.offsets() == []
    one.call("POST", "/offsets")
    assert one.committed(topic, 0) == {0: 3}


def test_a_lost_answer_is_not_committed(daemon: Daemon) -> None:
    """A commit without body never covers records that were lost on the way."""
    topic = topic_of(daemon, "uncommitted")
    one = Instance(daemon, "uncommitted", **CONFLUENT)
    one.subscribe(topic)
    raw = socket.create_connection(("127.0.0.1", daemon.port))
    raw.sendall(f"GET {one.path}/records?timeout=0 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert raw.recv(20, socket.MSG_PEEK)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    raw.close()
    assert one.call("POST", "/offsets").status == 200
    assert one.committed(topic, 0) == {0: 0}


def test_auto_commit_covers_what_was_delivered_before(daemon: Daemon) -> None:
    """The next poll commits what the one before delivered; leaving commits the rest."""
    topic = topic_of(daemon, "automatic")
    config = {"auto.offset.reset": "earliest", "auto.commit.interval.ms": 0}
    one = Instance(daemon, "automatic", **config)
    one.subscribe(topic)
    watcher = Instance(daemon, "automatic", **CONFLUENT)
    assert one.offsets() == [0, 1, 2]
    assert watcher.committed(topic, 0) == {0: 0}
    assert one.offsets() == []
    assert watcher.committed(topic, 0) == {0: 3}
    daemon.produce_text(topic, "more")
    assert one.offsets() == [3]
    one.done("DELETE")
    assert watcher.committed(topic, 0) == {0: 4}


def test_bodies_with_every_verb_and_a_connection_that_stays(daemon: Daemon) -> None:
    """Clients that send ``{}`` with GET and DELETE are understood, on one connection."""
    topic = topic_of(daemon, "verbose")
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=20)

    def call(method: str, path: str, body: object) -> tuple[int, Any]:
        connection.request(method, path, json.dumps(body), HEADERS)
        answer = connection.getresponse()
        data = answer.read()
        return answer.status, json.loads(data) if data else None

    _, made = call("POST", "/consumers/verbose", {**STRIMZI, "name": "v"})
    path = made["base_uri"].removeprefix(f"http://127.0.0.1:{daemon.port}")
    assert call("POST", f"{path}/subscription", {"topics": [topic]})[0] == 204
    status, records = call("GET", f"{path}/records?timeout=0", {})
    assert (status, len(records)) == (200, 3)
    assert call("POST", f"{path}/offsets/", {})[0] == 204
    assert call("GET", f"{path}/offsets", {})[1]["offsets"][0]["offset"] == 3
    assert call("DELETE", path, {})[0] == 204
    connection.close()
