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


BAD_TOPIC = "test\ntopic"
BAD_AT = {"topic": BAD_TOPIC, "partition": 0}
GROUP, INSTANCE = "/v1/groups/h", "/consumers/g/instances/one"
# Names in bodies and queries, where the request is about nothing else.
WITH_BAD_TOPICS = (
    ("POST", f"{INSTANCE}/subscription", {"topics": ["sound", BAD_TOPIC]}),
    ("POST", f"{INSTANCE}/assignments", {"partitions": [BAD_AT]}),
    ("POST", f"{INSTANCE}/positions", {"offsets": [{**BAD_AT, "offset": 0}]}),
    ("POST", f"{INSTANCE}/positions", {"timestamps": [{**BAD_AT, "timestamp": 0}]}),
    ("POST", f"{INSTANCE}/positions/beginning", {"partitions": [BAD_AT]}),
    ("POST", f"{INSTANCE}/positions/end", {"partitions": [BAD_AT]}),
    ("POST", f"{INSTANCE}/offsets", {"offsets": [{**BAD_AT, "offset": 0}]}),
    ("POST", f"{INSTANCE}/offsets/", {"partitions": [{**BAD_AT, "offset": 0}]}),
    ("GET", f"{INSTANCE}/offsets", {"partitions": [BAD_AT]}),
    ("PUT", f"{GROUP}/offsets", {"offsets": [{**BAD_AT, "offset": 0}]}),
    ("POST", f"{GROUP}/offsets:reset", {"to": "latest", "topics": [BAD_TOPIC]}),
    ("POST", f"{GROUP}/offsets:reset", {"to": "latest", "partitions": [BAD_AT]}),
    (
        "POST",
        "/v1/sinks/q:commit",
        {
            "batch_id": 0,
            "winners": [{"producer_id": 1, "producer_epoch": 0, "partitions": [BAD_AT]}],
        },
    ),
    ("POST", "/v1/backups", {"directory": "/nowhere/b", "topics": [BAD_TOPIC]}),
    ("POST", "/v1/retention:simulate", {"topic": BAD_TOPIC, "horizon_ms": 1}),
    ("DELETE", f"{GROUP}/offsets?topics=sound,test%0Atopic", None),
    ("GET", "/v1/log-dirs?topics=sound&topics=test%0Atopic", None),
    ("GET", "/v1/cleaner?topic=test%0Atopic", None),
    ("GET", "/metrics?topic=test%0Atopic", None),
    ("POST", "/admin/topics", {"topic_name": BAD_TOPIC}),
    ("POST", "{c}/topics", {"topic_name": BAD_TOPIC}),
)
WITH_BAD_GROUPS = (
    ("POST", "/consumers/My%0Dconsumer", {}),
    ("POST", "/consumers/g", {"name": "My\rconsumer"}),
    ("POST", "/consumers/g", {"id": "My\u2028consumer"}),
    *(
        (method, f"/consumers/{names}{path}", body)
        for names in ("g/instances/o%0Ane", "g%00/instances/one")
        for method, path, body in (
            ("DELETE", "", None),
            ("GET", "/records", None),
            ("GET", "/subscription", None),
            ("POST", "/subscription", {"topics": ["sound"]}),
        )
    ),
    ("GET", "/v1/groups/g%1B[31m", None),
    ("DELETE", "/v1/groups/g%0A", None),
    ("GET", "/v1/groups/g%C2%85/offsets", None),
    (
        "PUT",
        "/v1/groups/g%7F/offsets",
        {"offsets": [{"topic": "sound", "partition": 0, "offset": 0}]},
    ),
    ("GET", "{c}/consumer-groups/g%0A/lags", None),
    ("GET", "{c}/consumer-groups/g/consumers/o%0Ane", None),
)


def test_names_are_checked_wherever_they_stand(daemon: Daemon) -> None:
    """In paths, bodies, lists and queries; nothing is made, logged raw or sent back raw."""
    daemon.create_topic("sound")
    made = daemon.request("POST", "/consumers/g", {"name": "one"})
    assert made.status == 200
    places = {"c": daemon.cluster()}
    for method, path, body in (*WITH_BAD_TOPICS, *WITH_BAD_GROUPS):
        answer = daemon.request(method, path.format(**places), body)
        error = refused(answer, 400, 40002)
        if (method, path, body) in WITH_BAD_TOPICS:
            assert error["kafka_error"] == "INVALID_TOPIC_EXCEPTION", (method, path)
        else:
            assert "control character" in str(error["message"])
        for text in (*answer.headers.values(), answer.body.decode()):
            assert text.isprintable(), (path, text)
    # Of several, each has its own answer.
    entries = [{"topic": "sound", "partition": 0}, BAD_AT]
    for path, more in (
        ("/v1/offsets:list", {"timestamp": -1}),
        ("/v1/records:delete", {"offset": 0}),
    ):
        answer = daemon.request(
            "POST", path, {"partitions": [{**each, **more} for each in entries]}
        )
        assert answer.status == 200, answer.body
        good, bad = answer.json["partitions"]
        assert "error_code" not in good or good["error_code"] is None, good
        assert (bad["error_code"], bad["kafka_error"]) == (40002, "INVALID_TOPIC_EXCEPTION")
    for path in ("/v1/retention:run", "/v1/cleaner:run"):
        answer = daemon.request("POST", path, {"dry_run": True, "partitions": [BAD_AT]})
        assert "INVALID_TOPIC_EXCEPTION" in str(answer.json), answer.body
    assert daemon.request("DELETE", INSTANCE).status == 204
    assert [each["group"] for each in daemon.request("GET", "/v1/groups").json["groups"]] == []
    for line in daemon.log_path.read_text().splitlines():
        assert line.isprintable(), line


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
