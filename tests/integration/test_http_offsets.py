"""Goal: list-offsets finds the first record at or after a time, and the three named offsets;
delete-records takes the tool's file, prints its lines, and is durable when it answers.
Method: the daemon against a plain search over the same records, byte for byte, and over a kill.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.daemon import Daemon
from tests.integration.http_world import append, batch_of, delete_records, failed_entry, refused

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.daemon import Answer

STAMPS = [1000, 5000, 3000, 9000, 9000, 2000, 7000, 12000]


@pytest.fixture(scope="module")
def topic(daemon: Daemon) -> str:
    """One record a batch, times out of order, over several small segments."""
    daemon.create_topic("timed", internal_segment_bytes="200", index_interval_bytes="1")
    for stamp in STAMPS:
        assert append(daemon, "timed", batch_of(b"v", timestamp_ms=stamp)).status == 200
    return "timed"


def spec(daemon: Daemon, topic: str, text: str) -> Answer:
    return daemon.request("GET", f"/v1/topics/{topic}/partitions/0/offsets?spec={text}")


def found(answer: Answer) -> tuple[int, int]:
    assert answer.status == 200, answer.body
    # The epoch of the record at the offset; none where there is no offset.
    assert answer.json["leader_epoch"] in ((0,) if answer.json["offset"] > 0 else (0, -1))
    return answer.json["offset"], answer.json["timestamp"]


def test_by_time_as_a_plain_search(daemon: Daemon, topic: str) -> None:
    """M05: every interesting time, between and beyond."""
    for wanted in sorted({0, 13_000, *STAMPS, *(stamp + 1 for stamp in STAMPS)}):
        hits = [(o, stamp) for o, stamp in enumerate(STAMPS) if stamp >= wanted]
        assert found(spec(daemon, topic, str(wanted))) == (hits[0] if hits else (-1, -1))


def test_named_offsets(daemon: Daemon, topic: str) -> None:
    assert found(spec(daemon, topic, "earliest")) == (0, -1)
    assert found(spec(daemon, topic, "latest")) == (8, -1)
    assert found(spec(daemon, topic, "max_timestamp")) == (7, 12_000)
    path = f"/v1/topics/{topic}/partitions/0/offsets"
    assert found(daemon.request("GET", path)) == (8, -1)
    assert found(spec(daemon, topic, "1970-01-01T00:00:09Z")) == (3, 9000)
    assert found(spec(daemon, topic, "1970-01-01T01:00:09%2B01:00")) == (3, 9000)


@pytest.mark.parametrize(
    "text", ["-1", "-3", "soon", "1e3", "1970-01-01T00:00:09", "9223372036854775808", "%00", "--5"]
)
def test_wrong_times(daemon: Daemon, topic: str, text: str) -> None:
    refused(spec(daemon, topic, text), 400, 40005)


def test_several_partitions_at_once(daemon: Daemon, topic: str) -> None:
    """Kafka's own numbers; what fails is its own entry's error."""
    wanted = [
        {"topic": topic, "partition": 0, "timestamp": -1},
        {"topic": topic, "partition": 0, "timestamp": -2},
        {"topic": topic, "partition": 0, "timestamp": -3},
        {"topic": topic, "partition": 0, "timestamp": 5000},
        {"topic": topic, "partition": 1, "timestamp": -1},
        {"topic": "nope", "partition": 0, "timestamp": -1},
        {"topic": topic, "partition": 0, "timestamp": -9},
        {"topic": "../x", "partition": -1, "timestamp": -1},
    ]
    answer = daemon.request("POST", "/v1/offsets:list", {"partitions": wanted})
    assert answer.status == 200
    got = answer.json["partitions"]
    assert [(e.get("offset"), e.get("error_code")) for e in got] == [
        (8, None),
        (0, None),
        (7, None),
        (1, None),
        (None, 40402),
        (None, 40401),
        (None, 40002),
        (None, 40002),
    ]
    assert [(e["topic"], e["partition"]) for e in got] == [
        (w["topic"], w["partition"]) for w in wanted
    ]


def test_wrong_bodies(daemon: Daemon) -> None:
    path = "/v1/offsets:list"
    refused(daemon.request("POST", path, {"partitions": [{"topic": "t"}]}), 422, 422)
    refused(daemon.request("POST", path, {"partitions": 5}), 422, 422)
    refused(daemon.request("POST", path, b"{"), 400, 400)
    refused(daemon.request("POST", path, b""), 422, 42206)


def test_unknown_topic_and_partition(daemon: Daemon, topic: str) -> None:
    refused(spec(daemon, "nope", "latest"), 404, 40401)
    answer = daemon.request("GET", f"/v1/topics/{topic}/partitions/5/offsets")
    refused(answer, 404, 40402)
    answer = daemon.request("GET", f"/v1/topics/{topic}/partitions/0/offsets?isolation=x")
    refused(answer, 400, 40005)


def delete(daemon: Daemon, *entries: tuple[str, int, int], **extra: object) -> Answer:
    partitions = [{"topic": t, "partition": p, "offset": o} for t, p, o in entries]
    body = {"partitions": partitions, "version": 1, **extra}
    return daemon.request("POST", "/v1/records:delete", body)


def filled(daemon: Daemon, topic: str, count: int = 10, **configs: str) -> str:
    daemon.create_topic(topic, 1, **configs)
    values = [b"v%d" % i for i in range(count)]
    assert append(daemon, topic, batch_of(*values, keys=values)).status == 200
    return topic


def start_offset(daemon: Daemon, topic: str) -> int:
    answer = daemon.request("GET", f"/topics/{topic}/partitions/0/offsets")
    return int(answer.json["beginning_offset"])


def test_the_published_lines(daemon: Daemon) -> None:
    """M10: offset 40000 of test-0, the file as published, the printed bytes as published."""
    daemon.create_topic("test")
    for _ in range(4):
        assert append(daemon, "test", batch_of(*[b""] * 10_000)).status == 200
    body = b'{"partitions":[{"topic":"test","partition":0,"offset":40000}],"version":1}'
    answer = daemon.request("POST", "/v1/records:delete", body, {"Accept": "text/plain"})
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("text/plain")
    assert answer.body == (
        b"Executing records delete operation\n"
        b"Records delete operation completed:\n"
        b"partition: test-0\tlow_watermark: 40000\n"
    )
    assert start_offset(daemon, "test") == 40000


def test_json_answer(daemon: Daemon) -> None:
    """M10: low watermarks; -1 is the high watermark; going back changes nothing."""
    filled(daemon, "json")
    for offset, low in ((3, 3), (2, 3), (3, 3), (0, 3), (-1, 10), (5, 10)):
        answer = delete(daemon, ("json", 0, offset))
        expected = [{"topic": "json", "partition": 0, "low_watermark": low}]
        assert (answer.status, answer.json) == (200, {"partitions": expected})
    assert daemon.fetch_all("json") == []


def test_each_partition_fails_alone(daemon: Daemon) -> None:
    """M10: unknown, above the high watermark, compacted, negative; the good one is done."""
    filled(daemon, "good")
    filled(daemon, "kept", cleanup_policy="compact")
    wanted = [
        ("good", 0, 11),
        ("good", 7, 1),
        ("nope", 0, 1),
        ("kept", 0, 1),
        ("../etc", 0, 1),
        ("__consumer_offsets", 0, 1),
    ]
    got = delete_records(daemon, *wanted)
    failed_entry(got[0], 41602)
    failed_entry(got[1], 40402)
    failed_entry(got[2], 40401)
    failed_entry(got[3], 40907)
    assert (got[4]["error_code"], got[4]["kafka_error"]) == (40002, "INVALID_TOPIC_EXCEPTION")
    assert got[5]["error_code"] in (40401, 40002)
    (low,) = delete_records(daemon, ("good", 0, -2))
    assert low["error_code"] in (41602, 40002)
    mixed = delete_records(daemon, ("good", 0, 4), ("nope", 0, 4))
    assert mixed[0]["low_watermark"] == 4
    assert mixed[1]["error_code"] == 40401
    lines = daemon.request(
        "POST",
        "/v1/records:delete",
        {"partitions": [{"topic": "good", "partition": 0, "offset": 99}]},
        {"Accept": "text/plain"},
    ).body.decode()
    assert lines.splitlines()[2] == (
        "partition: good-0\terror: org.apache.kafka.common.errors.OffsetOutOfRangeException: "
        "The requested offset is not within the range of offsets maintained by the server."
    )
    assert start_offset(daemon, "good") == 4
    assert start_offset(daemon, "kept") == 0


@pytest.mark.parametrize(
    "body",
    [
        {"partitions": [{"topic": "t", "partition": 0, "offset": 1}], "version": 2},
        {"partitions": [{"topic": "t", "partition": 0, "offset": 1}], "version": "1"},
        {"partitions": [{"topic": "t", "partition": 0, "offset": 1}] * 2, "version": 1},
        {"partitions": [{"topic": "t", "partition": 0}]},
        {"partitions": [{"topic": "t", "partition": 0, "offset": "1"}]},
        {"partitions": [{"topic": "t", "partition": 0, "offset": 1.5}]},
        {"partitions": [{"topic": "t", "partition": 0, "offset": 1, "offsets": 1}]},
        {"partitions": {}},
        {"partitions": []},
        {"version": 1},
        [],
    ],
    ids=str,
)
def test_a_wrong_file(daemon: Daemon, body: object) -> None:
    """M10: version, duplicates, fields and types: 400/40002 and nothing moves."""
    answer = daemon.request("POST", "/v1/records:delete", body)
    refused(answer, 400, 40002)


def test_the_tools_own_messages(daemon: Daemon) -> None:
    entry = ("t", 0, 1)
    said = refused(delete(daemon, entry, version=2), 400, 40002)["message"]
    assert said == "Not supported version field value 2"
    said = refused(delete(daemon, entry, ("u", 1, 2), entry, ("u", 1, 2), entry), 400, 40002)
    assert said["message"] == "Offset json file contains duplicate topic partitions: t-0,u-1"
    refused(daemon.request("POST", "/v1/records:delete", b"{"), 400, 400)
    refused(daemon.request("GET", "/v1/records:delete"), 405, 405)


def test_the_new_start_outlives_a_kill_right_after_the_answer(tmp_path: Path) -> None:
    """M10 M14: the checkpoint is written and synced before the answer, unlike Kafka's."""
    daemon = Daemon(tmp_path)
    daemon.start()
    filled(daemon, "killed")
    assert delete_records(daemon, ("killed", 0, 6))[0]["low_watermark"] == 6
    daemon.kill()
    checkpoint = daemon.log_dirs[0] / "log-start-offset-checkpoint"
    assert "killed 0 6" in checkpoint.read_text()
    with daemon:
        assert start_offset(daemon, "killed") == 6
        assert [record["offset"] for record in daemon.fetch_all("killed")] == [6, 7, 8, 9]
