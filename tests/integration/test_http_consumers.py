"""Goal: v2 consumers work as the REST proxies' clients expect, deliver again what was not known to
be read, and never lose a record.
Method: a live daemon: both dialects, every route, rebalances, lost answers, restarts; a client of
the proxies that is not ours.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from kafka_bridge_client import KafkaBridgeConsumer, KafkaBridgeProducer, Message

from kafkalog.server.groups.consumer_configs import IGNORED, NewConsumer
from tests.integration.daemon import BINARY, TEXT, V2, Daemon
from tests.integration.http_world import delete_records, others_in_work, refused, until

if TYPE_CHECKING:
    from concurrent.futures import Future
    from pathlib import Path

    from tests.integration.daemon import Answer

SETTINGS = {"offsets_topic_num_partitions": "3", "http_trusted_proxies": "127.0.0.0/8"}
STRIMZI = {"enable.auto.commit": False, "auto.offset.reset": "earliest", "format": "binary"}
CONFLUENT = {"auto.commit.enable": "false", "auto.offset.reset": "earliest"}
HEADERS = {"Content-Type": V2}


class Instance:
    def __init__(self, daemon: Daemon, group: str, **config: object) -> None:
        self.daemon = daemon
        answer = daemon.request("POST", f"/consumers/{group}", config, HEADERS)
        assert answer.status == 200, answer.body
        self.name = answer.json["instance_id"]
        self.uri = answer.json["base_uri"]
        self.path = f"/consumers/{group}/instances/{self.name}"

    def call(self, method: str, tail: str = "", body: object = None) -> Answer:
        return self.daemon.request(method, self.path + tail, body, HEADERS)

    def done(self, method: str, tail: str = "", body: object = None) -> None:
        answer = self.call(method, tail, body)
        assert answer.status == 204, answer.body

    def subscribe(self, *topics: str) -> None:
        self.done("POST", "/subscription", {"topics": list(topics)})

    def poll(self, query: str = "timeout=0", accept: str = "*/*") -> list[Any]:
        answer = self.daemon.request(
            "GET", f"{self.path}/records?{query}", None, {"Accept": accept}
        )
        assert answer.status == 200, answer.body
        records: list[Any] = answer.json
        return records

    def offsets(self) -> list[int]:
        return [each["offset"] for each in self.poll()]

    def committed(self, topic: str, *partitions: int) -> dict[int, int]:
        asked = [{"topic": topic, "partition": number} for number in partitions]
        answer = self.call("GET", "/offsets", {"partitions": asked})
        assert answer.status == 200, answer.body
        return {each["partition"]: each["offset"] for each in answer.json["offsets"]}

    def assigned(self) -> list[tuple[str, int]]:
        answer = self.call("GET", "/assignments")
        assert answer.status == 200
        return [(each["topic"], each["partition"]) for each in answer.json["partitions"]]


def topic_of(daemon: Daemon, name: str, count: int = 3, partitions: int = 1) -> str:
    """A topic with ``count`` records, the values v0, v1, ... in its first partition."""
    daemon.create_topic(name, partitions)
    if count:
        records = [{"value": f"v{number}", "partition": 0} for number in range(count)]
        body = {"records": records}
        answer = daemon.request("POST", f"/topics/{name}", body, {"Content-Type": TEXT})
        assert answer.status == 200
    return name


@pytest.mark.parametrize("config", [CONFLUENT, STRIMZI], ids=["confluent", "strimzi"])
def test_a_consumer_reads_commits_and_comes_back(daemon: Daemon, config: dict[str, object]) -> None:
    """M24. Create, subscribe, poll, commit, leave, and go on from the commit."""
    is_confluent = config is CONFLUENT
    topic = topic_of(daemon, f"life-{is_confluent}")
    group = f"g-{is_confluent}"
    one = Instance(daemon, group, **config)
    assert one.name.startswith("rest-consumer-" if is_confluent else "kafka-bridge-consumer-")
    one.subscribe(topic)
    records = one.poll()
    assert [each["offset"] for each in records] == [0, 1, 2]
    assert records[0].keys() == {"topic", "key", "value", "partition", "offset", "timestamp"}
    assert records[0]["value"] == "djA="
    assert one.offsets() == []
    assert one.committed(topic, 0) == {}
    entry = {"topic": topic, "partition": 0, "offset": 1, "metadata": "so far"}
    answer = one.call("POST", "/offsets", {"offsets": [entry]})
    assert (answer.status, answer.body) == ((200, b"[]") if is_confluent else (204, b""))
    assert one.committed(topic, 0) == {0: 2 if is_confluent else 1}
    one.done("DELETE")
    again = Instance(daemon, group, **config)
    again.subscribe(topic)
    assert again.offsets() == ([2] if is_confluent else [1, 2])
    assert again.call("POST", "/offsets").status == (200 if is_confluent else 204)
    assert again.committed(topic, 0) == {0: 3}
    again.done("DELETE")


def test_what_is_created_wrongly_is_refused(daemon: Daemon) -> None:
    for config, code in (
        ({"format": "avro"}, 42204),
        ({"auto.offset.reset": "sometime"}, 42204),
        ({"isolation.level": "none"}, 42204),
        ({"fetch.min.bytes": "10000001"}, 42204),
        ({"consumer.request.timeout.ms": -1}, 42204),
        ({"auto.comit.enable": True}, 422),
        ({"auto.commit.enable": "maybe"}, 422),
    ):
        answer = daemon.request("POST", "/consumers/wrong", config, HEADERS)
        assert (answer.status, answer.json["error_code"]) == (422, code), config
    refused(daemon.request("POST", "/consumers/wrong", {"format": "avro"}, HEADERS), 422, 42204)
    Instance(daemon, "taken", name="me", **{"fetch.min.bytes": "1", "auto.commit.enable": "False"})
    taken = daemon.request("POST", "/consumers/taken", {"id": "me"}, HEADERS)
    refused(taken, 409, 40902)
    assert daemon.request("POST", "/consumers/no-body").status == 200


def test_configs_of_other_consumers_are_taken_and_named(daemon: Daemon) -> None:
    """What Kafka's consumer and the proxies know is no mistake; a name that none has is one."""

    def create(**config: object) -> Answer:
        return daemon.request("POST", "/consumers/others", config, HEADERS)

    karapace = {
        "format": "json",
        "auto.offset.reset": "earliest",
        "consumer.request.timeout.ms": 11000,
        "fetch.min.bytes": 100000,
        "auto.commit.enable": "true",
        "topic.metadata.refresh.interval.ms": 100,
    }
    answer = create(**karapace)
    assert answer.status == 200, answer.body
    assert answer.headers["Kafka-Ignored-Configs"] == "topic.metadata.refresh.interval.ms"
    java = {"max.poll.records": "30", "group.id": "others", "interceptor.classes": ["a"]}
    old = {"zookeeper.connect": "z:2181", "fetch.wait.max.ms": None}
    answer = create(**java, **old)
    assert answer.status == 200, answer.body
    assert answer.headers["Kafka-Ignored-Configs"].split(", ") == sorted(java | old)
    assert "Kafka-Ignored-Configs" not in create(**CONFLUENT).headers
    for name, hint in (
        ("max.poll.record", "; did you mean max.poll.records?"),
        ("auto_offset_reset", "; did you mean auto.offset.reset?"),
        ("colour", ""),
    ):
        answer = create(**{name: 1}, **java)
        refused(answer, 422, 422)
        assert answer.json["message"] == f"{name}: a consumer has no such config{hint}"
        assert answer.json["validation_errors"] == [answer.json["message"]]
    assert not IGNORED & {each.alias for each in NewConsumer.model_fields.values()}
    assert len([name for name in IGNORED if name.startswith(("ssl.", "sasl."))]) == 64  # of 4.1
    assert {"group.protocol", "share.acknowledgement.mode", "client.rack"} <= IGNORED


def test_the_way_to_an_instance(daemon: Daemon) -> None:
    answer = daemon.request("POST", "/consumers/a%2Fb", {"name": "c d/e"}, HEADERS)
    base = f"http://127.0.0.1:{daemon.port}"
    assert answer.json["base_uri"] == f"{base}/consumers/a%2Fb/instances/c%20d%2Fe"
    path = answer.json["base_uri"].removeprefix(base)
    assert daemon.request("GET", f"{path}/subscription").json == {"topics": [], "partitions": []}
    older = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "k.example"}
    standard = {"Forwarded": 'for=1.2.3.4;proto=https;host="k.example", for=5.6.7.8'}
    for headers in (older, standard):
        headers["X-Forwarded-Path"] = "/p/consumers/f/" if headers is older else "/p"
        found = daemon.request("POST", "/consumers/f", {"name": "x"}, {**HEADERS, **headers})
        assert found.json["base_uri"] == "https://k.example/p/consumers/f/instances/x"
        assert daemon.request("DELETE", "/consumers/f/instances/x").status == 204
    hostile = {"X-Forwarded-Host": 'k"><x', "X-Forwarded-Proto": "gopher"}
    found = daemon.request("POST", "/consumers/f", {"name": "x"}, {**HEADERS, **hostile})
    assert found.json["base_uri"] == f"{base}/consumers/f/instances/x"


def test_an_instance_that_is_not_there(daemon: Daemon) -> None:
    """Every route says 404/40403, which clients know how to heal."""
    path = "/consumers/nobody/instances/none"
    partitions = {"partitions": list[object]()}
    requests: tuple[tuple[str, str, object], ...] = (
        ("DELETE", "", None),
        ("GET", "/subscription", None),
        ("POST", "/subscription", {"topics": []}),
        ("DELETE", "/subscription", None),
        ("GET", "/assignments", None),
        ("POST", "/assignments", partitions),
        ("GET", "/records", None),
        ("GET", "/offsets", None),
        ("POST", "/offsets", None),
        ("POST", "/positions", {}),
        ("POST", "/positions/beginning", partitions),
        ("POST", "/positions/end", partitions),
        # A client that begins anew on 40403 gets it whatever its body is.
        ("POST", "/subscription", "no object"),
        ("POST", "/assignments", None),
        ("POST", "/offsets", "no object"),
    )
    for method, tail, body in requests:
        refused(daemon.request(method, path + tail, body), 404, 40403)
    one = Instance(daemon, "twice")
    one.done("DELETE")
    refused(one.call("DELETE"), 404, 40403)


def test_what_a_consumer_without_a_reset_is_told(daemon: Daemon) -> None:
    """No commit is 409/40914; a commit whose record is deleted is 410/41001, as on ``/v1``."""
    topic = topic_of(daemon, "unreset")
    one = Instance(daemon, "unreset", **{**CONFLUENT, "auto.offset.reset": "none"})
    one.subscribe(topic)
    body = refused(one.call("GET", "/records"), 409, 40914)
    assert body["details"] == {"group": "unreset", "topic": topic, "partition": 0}
    read = {"topic": topic, "partition": 0, "offset": 0}
    assert one.call("POST", "/offsets", {"offsets": [read]}).status == 200
    assert one.offsets() == [1, 2]
    one.done("DELETE")
    delete_records(daemon, (topic, 0, 2))
    one = Instance(daemon, "unreset", **{**CONFLUENT, "auto.offset.reset": "none"})
    one.subscribe(topic)
    body = refused(one.call("GET", "/records"), 410, 41001)
    assert body["details"] == {"log_start_offset": 2, "log_end_offset": 3}
    one.done("DELETE")


def test_a_subscription_and_an_assignment_exclude_each_other(daemon: Daemon) -> None:
    """409/40903 for what Java's consumer calls an illegal state."""
    topic = topic_of(daemon, "either", partitions=2)
    one = Instance(daemon, "either", **CONFLUENT)
    at = {"partitions": [{"topic": topic, "partition": 1}]}
    refused(one.call("GET", "/records"), 409, 40903)
    for edge in ("beginning", "end"):
        refused(one.call("POST", f"/positions/{edge}", at), 409, 40903)
    place = {"topic": topic, "partition": 1, "offset": 1}
    refused(one.call("POST", "/positions", {"offsets": [place]}), 409, 40903)
    both = {"topics": [topic], "topic_pattern": "x"}
    refused(one.call("POST", "/subscription", both), 409, 40903)
    refused(one.call("POST", "/subscription", {}), 422, 422)
    refused(one.call("POST", "/subscription", {"topic_pattern": "(x"}), 400, 40002)
    one.done("POST", "/assignments", at)
    refused(one.call("POST", "/subscription", {"topics": [topic]}), 409, 40903)
    assert one.assigned() == [(topic, 1)]
    one.done("DELETE", "/subscription")
    one.subscribe(topic)
    refused(one.call("POST", "/assignments", at), 409, 40903)
    assert one.call("GET", "/subscription").json == {
        "topics": [topic],
        "partitions": [{topic: [0, 1]}],
    }
    one.done("POST", "/subscription", {"topics": []})
    assert one.assigned() == []
    unknown = {"partitions": [{"topic": "no-such", "partition": 0}]}
    refused(one.call("POST", "/assignments", unknown), 404, 40401)
    beyond = {"partitions": [{"topic": topic, "partition": 2}]}
    refused(one.call("POST", "/assignments", beyond), 404, 40402)


def test_an_instance_of_karapace_is_answered_as_there(daemon: Daemon) -> None:
    """Its own key tells it: from the start of the log, one added, 204, 422 for what is no JSON."""
    topic = topic_of(daemon, "karapace")
    key = {"topic.metadata.refresh.interval.ms": 100, "format": "json"}
    one = Instance(daemon, "karapace", **key)
    one.subscribe(topic)
    refused(one.call("GET", "/records?timeout=0"), 422, 422)
    entry = {"topic": topic, "partition": 0, "offset": 1}
    one.done("POST", "/offsets", {"offsets": [entry]})
    assert one.committed(topic, 0) == {0: 2}
    refused(one.call("POST", "/positions", {"offsets": [{**entry, "partition": 1}]}), 409, 40903)
    other = Instance(daemon, "karapace-2", **key, **{"auto.offset.reset": "latest"})
    other.subscribe(topic)
    assert other.offsets() == []


def test_types_that_are_missing_or_foreign(daemon: Daemon) -> None:
    """The route's own is meant, unless a page may have sent the request."""
    topic = topic_of(daemon, "untyped")
    create, path = "/consumers/untyped", "/consumers/untyped/instances/i"
    steps: tuple[tuple[str, str, object, int], ...] = (
        ("POST", create, {"name": "i", **CONFLUENT}, 200),
        ("POST", f"{path}/subscription", {"topics": [topic]}, 204),
        ("GET", f"{path}/subscription", None, 200),
        ("GET", f"{path}/assignments", None, 200),
        ("GET", f"{path}/records", None, 200),
        ("POST", f"{path}/offsets", {"offsets": []}, 200),
        ("GET", f"{path}/offsets", None, 200),
        ("POST", f"{path}/positions", {"offsets": []}, 204),
        ("DELETE", path, None, 204),
    )

    def ask(method: str, path: str, body: object, **headers: str) -> tuple[int, str]:
        wire = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=60)
        data = None if body is None else json.dumps(body).encode()
        wire.request(method, path, data, {"Accept": "application/x-foreign", **headers})
        answer = wire.getresponse()
        answer.read()
        wire.close()
        return answer.status, answer.headers.get("Content-Type", "")

    marks = ({"Origin": f"http://127.0.0.1:{daemon.port}"}, {"Sec-Fetch-Site": "same-origin"})
    for method, at, body, status in steps:
        for mark in marks if body is not None else ():
            assert ask(method, at, body, **mark)[0] == 415, at
        if body is not None:
            assert ask(method, at, body, **{"Content-Type": "text/plain"})[0] == 415, at
        got, media = ask(method, at, body)
        own = BINARY if at.endswith("/records") else V2
        assert (got, media) == (status, own if status == 200 else ""), at
        if at.endswith("/records"):  # what the client could not decode moves no position
            for other in (
                "application/vnd.kafka.avro.v2+json",
                "application/vnd.kafka.json.v2+json",
            ):
                assert ask(method, at, None, Accept=other)[0] == 406


def test_an_instance_of_the_bridge_is_answered_as_there(daemon: Daemon) -> None:
    """A topic that is to come may be assigned; a seek elsewhere is 404; what is read is listed."""
    daemon.create_topic("assigned", 2)
    one = Instance(daemon, "bridge-states", **STRIMZI)
    assigned = [{"topic": name, "partition": 0} for name in ("assigned", "to-come")]
    one.done("POST", "/assignments", {"partitions": assigned})
    listed = [{"assigned": [0]}, {"to-come": [0]}]
    assert one.call("GET", "/subscription").json == {
        "topics": ["assigned", "to-come"],
        "partitions": listed,
    }
    assert one.offsets() == []
    for topic in ("assigned", "to-come"):
        daemon.produce_text(f"{topic}/partitions/0", "v0")
    records = [*one.poll("timeout=1000"), *one.poll()]
    assert {each["topic"] for each in records} == {"assigned", "to-come"}
    for place in ({"topic": "nowhere", "partition": 0}, {"topic": "assigned", "partition": 1}):
        body = {"offsets": [{**place, "offset": 0}]}
        refused(one.call("POST", "/positions", body), 404, 40402)
        for edge in ("beginning", "end"):
            refused(one.call("POST", f"/positions/{edge}", {"partitions": [place]}), 404, 40402)
    other = Instance(daemon, "bridge-states", **CONFLUENT)
    assert other.call("GET", "/subscription").json == {"topics": [], "partitions": []}
    other.done("POST", "/assignments", {"partitions": assigned[:1]})
    assert other.call("GET", "/subscription").json == {
        "topics": [],
        "partitions": [{"assigned": [0]}],
    }


def test_positions(daemon: Daemon) -> None:
    """Read on from an offset, the edges and a time; no record that late is the end, no 500."""
    daemon.create_topic("seeks")
    records = [{"value": f"v{number}", "timestamp": 1000 * number} for number in range(5)]
    daemon.request("POST", "/topics/seeks", {"records": records}, {"Content-Type": TEXT})
    one = Instance(daemon, "seeks", **CONFLUENT)
    at = {"topic": "seeks", "partition": 0}
    one.done("POST", "/assignments", {"partitions": [at]})
    assert one.offsets() == [0, 1, 2, 3, 4]
    one.done("POST", "/positions", {"offsets": [{**at, "offset": 3}]})
    assert one.offsets() == [3, 4]
    one.done("POST", "/positions/beginning", {"partitions": [at]})
    assert one.offsets() == [0, 1, 2, 3, 4]
    one.done("POST", "/positions/end", {"partitions": [at]})
    assert one.offsets() == []
    for timestamp, expected in (
        (2500, [3, 4]),
        ("1970-01-01T00:00:04Z", [4]),
        ("2999-01-01T00:00:00Z", []),
    ):
        one.done("POST", "/positions", {"timestamps": [{**at, "timestamp": timestamp}]})
        assert one.offsets() == expected
    wrong = one.call("POST", "/positions", {"timestamps": [{**at, "timestamp": "tomorrow"}]})
    refused(wrong, 400, 40005)


def test_latest_begins_at_the_subscription(daemon: Daemon) -> None:
    """What is appended between subscribing and the first poll is not missed."""
    topic = topic_of(daemon, "latest")
    one = Instance(daemon, "latest", **{"auto.commit.enable": "false"})
    one.subscribe(topic)
    daemon.produce_text(topic, "new")
    assert one.offsets() == [3]


def test_a_waiting_poll_is_woken(daemon: Daemon) -> None:
    """An append, a seek and the end of the instance end the wait; a newer poll takes over."""
    topic = topic_of(daemon, "waiting")
    one = Instance(daemon, "waiting", **CONFLUENT)
    one.subscribe(topic)
    assert one.offsets() == [0, 1, 2]

    with ThreadPoolExecutor(1) as threads:

        def waiting() -> Future[Answer]:
            poll = threads.submit(one.call, "GET", "/records?timeout=50000")
            until(lambda: others_in_work(daemon) == 1, "it does not wait")
            return poll

        poll = waiting()
        daemon.produce_text(topic, "new")
        assert [each["offset"] for each in poll.result(60).json] == [3]
        poll = waiting()
        at = {"topic": topic, "partition": 0, "offset": 2}
        one.done("POST", "/positions", {"offsets": [at]})
        assert [each["offset"] for each in poll.result(60).json] == [2, 3]
        poll = waiting()
        assert one.offsets() == []
        assert poll.result(60).json == []
        poll = waiting()
        one.done("DELETE")
        refused(poll.result(60), 404, 40403)


def test_idle_instances_leave_and_commits_stay(tmp_path: Path) -> None:
    """Goal: an instance that nobody uses leaves its group; commits survive a kill of the daemon.

    Method: a short idle time, but longer than a slow machine takes for the requests of who is not
    idle; SIGKILL and a new start, where instances are unknown.
    """
    with Daemon(
        tmp_path,
        offsets_topic_num_partitions="3",
        consumer_instance_timeout_ms="5000",
        http_v2_dialect="strimzi",
    ) as daemon:
        topic = topic_of(daemon, "t", 3, partitions=2)
        idle = Instance(daemon, "g", name="idle", **CONFLUENT)
        idle.subscribe(topic)
        one = Instance(daemon, "g", name="one", **CONFLUENT)
        one.subscribe(topic)
        assert one.assigned() == [(topic, 1)]
        until(lambda: len(one.assigned()) == 2, "the idle one stays", pace_seconds=0.05)
        refused(idle.call("GET", "/assignments"), 404, 40403)
        assert one.offsets() == [0, 1, 2]
        entry = {"topic": topic, "partition": 0, "offset": 2}
        one.done("POST", "/offsets", {"offsets": [entry]})  # http.v2.dialect says 204 and as given
        daemon.kill()
        daemon.start()
        refused(one.call("GET", "/assignments"), 404, 40403)
        again = Instance(daemon, "g", name="one", **CONFLUENT)
        again.subscribe(topic)
        until(lambda: again.call("GET", "/offsets").status != 503, "the offsets were not loaded")
        assert again.committed(topic, 0, 1) == {0: 2}
        assert again.offsets() == [2]


@pytest.mark.parametrize(
    ("dialect", "wrong_shape", "no_topic"),
    [("confluent", 422, 40401), ("strimzi", 400, 40401), ("karapace", 400, 40403)],
)
def test_a_configured_dialect(
    tmp_path: Path, dialect: str, wrong_shape: int, no_topic: int
) -> None:
    """http.v2.dialect is for all clients, whatever their media types and creations say."""
    with Daemon(tmp_path, http_v2_dialect=dialect) as daemon:
        for media in (TEXT, "application/vnd.kafka.json+json", BINARY):
            headers = {"Content-Type": media}
            answer = daemon.request("POST", "/topics/t", {"records": 5}, headers)
            refused(answer, wrong_shape, wrong_shape)
        refused(daemon.request("GET", "/topics/none"), 404, no_topic)
        refused(daemon.request("GET", "/topics/none/partitions"), 404, 40401)
        one = Instance(daemon, "configured", **CONFLUENT)
        committed = one.call("POST", "/offsets", {"offsets": []})
        assert committed.status == (200 if dialect == "confluent" else 204)


__all__ = ["SETTINGS"]  # of the daemon fixture


def test_a_lost_answer_comes_again(daemon: Daemon) -> None:
    """A client whose connection broke before it read its records gets them again, and a commit
    without body does not cover them.
    """
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
    assert one.call("POST", "/offsets").status == 200
    assert one.committed(topic, 0) == {0: 0}
    assert daemon.request("HEAD", f"{one.path}/records?timeout=0").status == 200
    assert one.offsets() == [0, 1, 2]
    assert one.offsets() == []
    one.call("POST", "/offsets")
    assert one.committed(topic, 0) == {0: 3}


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


async def read(daemon: Daemon, topic: str, proxy: str, *, group: str) -> list[Any]:
    """One life of a consumer that never deletes its old instance: poll, then commit what came."""
    consumer = KafkaBridgeConsumer(
        topic,
        bootstrap_server=f"http://127.0.0.1:{daemon.port}/",
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_name="c1",
        sleep_interval_seconds=0,
        proxy=proxy,
    )
    async with consumer:
        records: list[Any] = await consumer.poll_records(max_bytes=1_000_000, timeout=200)
        await consumer.commit()
    return records


@pytest.mark.parametrize("proxy", ["strimzi", "confluent"])
def test_produce_read_commit_and_come_back(daemon: Daemon, proxy: str) -> None:
    topic = f"bridged-{proxy}"
    daemon.create_topic(topic)
    producer = KafkaBridgeProducer(f"http://127.0.0.1:{daemon.port}", timeout=10)
    assert producer.send(topic, Message(key="k", value="text"))
    assert producer.sends(topic, [Message(key=None, value=b"\0\xff")], binary=True)
    first = asyncio.run(read(daemon, topic, proxy, group=proxy))
    values = [base64.b64decode(each["value"]) for each in first]
    assert values == [b'"text"', b"\0\xff"]
    second = asyncio.run(read(daemon, topic, proxy, group=proxy))
    assert [each["offset"] for each in second] == ([1] if proxy == "strimzi" else [])


def test_a_topic_that_is_not_there(daemon: Daemon) -> None:
    async def wait_for_it() -> list[Any]:
        consumer = KafkaBridgeConsumer(
            "later",
            bootstrap_server=f"http://127.0.0.1:{daemon.port}/",
            group_id="early",
            auto_offset_reset="earliest",
            enable_auto_commit=True,
            consumer_name="c1",
            sleep_interval_seconds=0,
        )
        async with consumer:
            assert await consumer.poll_records(max_bytes=1000, timeout=0) == []
            await asyncio.to_thread(daemon.create_topic, "later")
            await asyncio.to_thread(daemon.produce_text, "later", "first")
            records: list[Any] = await consumer.poll_records(max_bytes=1000, timeout=0)
            return records

    assert [each["offset"] for each in asyncio.run(wait_for_it())] == [0]
