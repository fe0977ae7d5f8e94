"""Goal: list-offsets finds the first record at or after a time, and the three named offsets.
Method: the daemon against a plain search over the same records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.http_world import append, batch_of, refused

if TYPE_CHECKING:
    from tests.integration.daemon import Answer, Daemon

STAMPS = [1000, 5000, 3000, 9000, 9000, 2000, 7000, 12000]


@pytest.fixture(scope="module")
def topic(daemon: Daemon) -> str:
    """One record a batch, times out of order, over several small segments."""
    daemon.create_topic("timed", internal_segment_bytes="200", index_interval_bytes="1")
    for stamp in STAMPS:
        assert append(daemon, "timed", batch_of(b"v", timestamp_ms=stamp)).status == 200
    return "timed"


def spec(daemon: Daemon, topic: str, text: str) -> Answer:
    """``?spec=``."""
    return daemon.request("GET", f"/v1/topics/{topic}/partitions/0/offsets?spec={text}")


def found(answer: Answer) -> tuple[int, int]:
    """(offset, timestamp)."""
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
        (None, 40401),
    ]
    assert [(e["topic"], e["partition"]) for e in got] == [
        (w["topic"], w["partition"]) for w in wanted
    ]


def test_wrong_bodies(daemon: Daemon) -> None:
    path = "/v1/offsets:list"
    refused(daemon.request("POST", path, {"partitions": [{"topic": "t"}]}), 422, 422)
    refused(daemon.request("POST", path, {"partitions": 5}), 422, 422)
    refused(daemon.request("POST", path, b"{"), 400, 400)
    refused(daemon.request("POST", path, b""), 400, 400)


def test_unknown_topic_and_partition(daemon: Daemon, topic: str) -> None:
    refused(spec(daemon, "nope", "latest"), 404, 40401)
    answer = daemon.request("GET", f"/v1/topics/{topic}/partitions/5/offsets")
    refused(answer, 404, 40402)
    answer = daemon.request("GET", f"/v1/topics/{topic}/partitions/0/offsets?isolation=x")
    refused(answer, 400, 40005)
