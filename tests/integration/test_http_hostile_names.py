"""Goal: no name or number in a path reaches the disk or breaks the daemon.
Method: 5,000 generated names over every route that takes one; the directory must not change.
"""

from __future__ import annotations

import http.client
import json
import random
from typing import TYPE_CHECKING
from urllib.parse import quote

from kafkalog.format.topic_names import topic_name_fault
from tests.integration.http_world import refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.daemon import Daemon

SETTINGS = {"auto_create_topics_enable": "false"}
NAMES = 5000
PIECES = [
    *("..", "/", "\\", "\0", ".", "~", "etc", "passwd", "%2f", "%2e", "%00", "%"),
    *("\n", "\r\n", " "),
    *("-delete", "-future", ".swap", ".log", "C:", "\u202e", "\ufeff", "\u2028", "é", "😀"),
    *("*", "?", "|", "$(id)", "`id`", ";", "&", "'", '"', "<script>", "{{7*7}}", "\x1b[31m"),
    *("CON", "topic", "a" * 250, "\x7f", "\x01", "#", "..;", "....//", "／", "．．"),
]


def hostile_names() -> Iterator[str]:
    """Names that Kafka's rule refuses, drawn from what attackers write."""
    rng = random.Random(3)
    fixed = [".", "..", "../../etc/passwd", "..%2f..%2fetc", "a/b", "a\0b", "x" * 250, "a b", "ä"]
    yield from fixed
    count = len(fixed)
    while count < NAMES:
        name = "".join(rng.choice(PIECES) for _ in range(rng.randrange(1, 6)))
        if name and topic_name_fault(name) is not None:
            count += 1
            yield name


def listing(daemon: Daemon) -> list[tuple[str, int]]:
    """Every file below the root of the daemon and its size, without what it writes by itself.

    That is its log, checkpoints and their ``.tmp``; what earlier modules deleted goes meanwhile.
    """
    return sorted(
        (path.relative_to(daemon.root).as_posix(), path.stat().st_size if path.is_file() else 0)
        for path in daemon.root.rglob("*")
        if path != daemon.log_path and "checkpoint" not in path.name and "-delete" not in str(path)
    )


def test_hostile_names(daemon: Daemon) -> None:
    """Each is refused with 4xx in our shape; none is created, followed or echoed raw."""
    daemon.create_topic("victim")
    daemon.produce_text("victim", "a")
    before = listing(daemon)
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=30)
    rng = random.Random(4)
    for name in hostile_names():
        path = quote(name, safe="") if rng.random() < 0.8 else quote(name, safe="%/\\.;")
        method, target, body = rng.choice(
            [
                ("GET", f"/topics/{path}", None),
                ("POST", f"/topics/{path}", '{"records":[{"value":1}]}'),
                ("POST", f"/topics/{path}/partitions/0", '{"records":[{"value":1}]}'),
                ("GET", f"/topics/{path}/partitions/0/records?offset=0", None),
                ("GET", f"/v1/topics/{path}/partitions/0/batches?offset=0", None),
                ("GET", f"/v1/topics/{path}/partitions/0/offsets", None),
                ("GET", f"/v1/topics/{path}/partitions/0/segments", None),
                ("POST", f"/v1/topics/{path}/partitions/0/log:retain", "{}"),
                ("POST", "/admin/topics", json.dumps({"topic_name": name})),
            ]
        )
        connection.request(method, target, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
        assert 400 <= answer.status < 500, (name, answer.status, content)
        error = json.loads(content)
        assert error["error_code"] in (40002, 40000, 404, 405, 40401, 414), (name, error)
        assert b"<script>" not in content or b'"message"' in content
        assert "/" + daemon.root.name not in content.decode()
    connection.close()
    assert listing(daemon) == before
    assert daemon.request("GET", "/topics").json == ["victim"]


def test_illegal_names_say_why(daemon: Daemon) -> None:
    for name in ("..", ".", "a b", "a/b", "x" * 250, "é", ""):
        body = {"topic_name": name}
        error = refused(daemon.request("POST", "/admin/topics", body), 400, 40002)
        assert error["kafka_error"] == "INVALID_TOPIC_EXCEPTION"
    assert refused(daemon.request("GET", "/topics/a%2Fb"), 400, 40002)
    assert refused(daemon.request("GET", "/topics/a%00b"), 400, 40002)
    assert refused(daemon.request("GET", "/topics/%2e%2e%2fx"), 400, 40002)


def test_the_longest_name_works(daemon: Daemon) -> None:
    """249 characters, and names that look like Kafka's suffixes."""
    for name in ("x" * 249, "a-delete", "b.swap", "c-0-1", "-", "_", "0"):
        daemon.create_topic(name)
        daemon.produce_text(name, "v")
        assert len(daemon.fetch_all(name)) == 1


def test_no_auto_creation_when_it_is_off(daemon: Daemon) -> None:
    answer = daemon.request("POST", "/topics/absent", {"records": [{"value": 1}]})
    refused(answer, 404, 40401)
    assert "absent" not in daemon.request("GET", "/topics").json
