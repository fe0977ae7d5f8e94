"""Goal: no route passes lost offsets by until somebody accepts the loss by name; then all do.
Method: a closed ``.log`` is deleted while a daemon is stopped; one topic that is gapless, one that
was cleaned; every route that gives records is asked, the loss accepted, asked again, and restarted.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.client import Client, InvalidRequest
from tests.integration.daemon import BINARY, Daemon
from tests.integration.http_world import (
    append,
    batch_of,
    end_offset,
    read_batches,
    records_of,
    refused,
)

if TYPE_CHECKING:
    from pathlib import Path

COUNT = 40
PAGES = {
    "v2": ("/topics/{topic}/partitions/0/records?offset={offset}", BINARY),
    "v1": ("/topics/{topic}/partitions/0/messages?offset={offset}&count=100", ""),
    "native": ("/v1/topics/{topic}/partitions/0/records?offset={offset}", "application/json"),
}
STREAMS = {
    "lines": "application/x-ndjson",
    "events": "text/event-stream",
    "arrow": "application/vnd.apache.arrow.stream",
}


def filled(daemon: Daemon, topic: str, cleanup_policy: str = "delete") -> list[int]:
    """Forty batches over several segments; where these begin."""
    daemon.create_topic(topic, cleanup_policy=cleanup_policy)
    for number in range(COUNT):
        value = b'"value-%02d"' % number
        assert append(daemon, topic, batch_of(value, keys=[b"%d" % number])).status == 200
        if number % 8 == 7:
            roll = f"/v1/topics/{topic}/partitions/0/log:roll"
            assert daemon.request("POST", roll, {}).status == 200
    directory = daemon.log_dirs[0] / f"{topic}-0"
    return sorted(int(path.stem) for path in directory.glob("*.log"))


def told(answer: Any, lost: tuple[int, int]) -> None:
    """The refusal names the range."""
    body = refused(answer, 500, 50010)
    details = body["details"]
    assert isinstance(details, dict)
    assert (details["first_offset"], details["last_offset"]) == lost
    assert ".log" not in str(body)


def ask_every_route(daemon: Daemon, topic: str, lost: tuple[int, int]) -> None:
    """In front of the loss, at its first and at its last offset."""
    first, last = lost
    for offset in (first, last):
        told(read_batches(daemon, topic, offset), lost)
        for path, accept in PAGES.values():
            at = path.format(topic=topic, offset=offset)
            told(daemon.request("GET", at, None, {"Accept": accept} if accept else {}), lost)
        for accept in STREAMS.values():
            at = f"/v1/topics/{topic}/partitions/0/records?offset={offset}&max_wait_ms=0"
            told(daemon.request("GET", at, None, {"Accept": accept}), lost)
    before = read_batches(daemon, topic, first - 1)
    assert [record.offset for record in records_of(before.body)] == [first - 1]
    assert before.headers["Kafka-Next-Offset"] == str(first)
    for path, accept in PAGES.values():
        at = path.format(topic=topic, offset=first - 2)
        answer = daemon.request("GET", at, None, {"Accept": accept} if accept else {})
        assert answer.status == 200, answer.body
        found = answer.json["records"] if isinstance(answer.json, dict) else answer.json
        assert [each["offset"] for each in found] == [first - 2, first - 1]
    at = f"/v1/topics/{topic}/partitions/0/records?offset={first - 1}&max_wait_ms=0"
    lines = daemon.request("GET", at, None, {"Accept": STREAMS["lines"]}).body.splitlines()
    assert json.loads(lines[0])["offset"] == first - 1
    assert b'"first_offset":%d' % first in lines[-1].replace(b" ", b"")
    events = daemon.request("GET", at, None, {"Accept": STREAMS["events"]}).body
    assert b'"error_code":50010' in events.replace(b" ", b"")
    behind = read_batches(daemon, topic, last + 1)
    assert records_of(behind.body)[0].offset == last + 1


def poll(daemon: Daemon, topic: str, offset: int) -> Any:
    """What a consumer gets there that was assigned the partition."""
    made = daemon.request(
        "POST", f"/consumers/{topic}", {"format": "binary", "auto.offset.reset": "earliest"}
    )
    assert made.status == 200, made.body
    path = f"/consumers/{topic}/instances/{made.json['instance_id']}"
    at = {"partitions": [{"topic": topic, "partition": 0}]}
    assert daemon.request("POST", f"{path}/assignments", at).status == 204
    seek = {"offsets": [{"topic": topic, "partition": 0, "offset": offset}]}
    assert daemon.request("POST", f"{path}/positions", seek).status == 204
    answer = daemon.request("GET", f"{path}/records?timeout=0", None, {"Accept": BINARY})
    assert daemon.request("DELETE", path).status == 204
    return answer


def test_a_deleted_log_is_refused_by_every_route_until_it_is_accepted(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, http_produce_acks="1", log_initial_task_delay_ms="86400000")
    with daemon:
        topics = {
            "gapless": filled(daemon, "gapless"),
            "left": filled(daemon, "left", cleanup_policy="compact"),
        }
    ranges: dict[str, tuple[int, int]] = {}
    for topic, bases in topics.items():
        ranges[topic] = bases[2], bases[3] - 1
        suffixes = ("log", "index", "timeindex", "snapshot") if topic == "gapless" else ("log",)
        for suffix in suffixes:
            path = daemon.log_dirs[0] / f"{topic}-0" / f"{bases[2]:020d}.{suffix}"
            path.unlink(missing_ok=suffix == "snapshot")
    with daemon:
        with Client(f"http://127.0.0.1:{daemon.port}") as client:
            for topic, lost in ranges.items():
                ask_every_route(daemon, topic, lost)
                told(poll(daemon, topic, lost[0]), lost)
                found = client.losses(topic, 0)
                named = {"first_offset": lost[0], "last_offset": lost[1]}
                assert (found["lost"], found["accepted"]) == ([named], [])
                with pytest.raises(InvalidRequest, match=f"accepted: {lost[0]} to {lost[1]}"):
                    client.accept_loss(topic, 0, lost[0], lost[1] + 1)
            assert "50010" in json.dumps(client.run_cleaner([("left", 0)]))
            daemon.kill()
            daemon.start()
            for topic, lost in ranges.items():
                told(read_batches(daemon, topic, lost[0]), lost)
                found = client.accept_loss(topic, 0, *lost)
                assert (found["lost"], len(found["accepted"])) == ([], 1)
                assert client.accept_loss(topic, 0, *lost) == found
        check_passed(daemon, ranges)
        assert "acceptLoss" in daemon.log_path.read_text()
    with daemon:
        check_passed(daemon, ranges)
        assert end_offset(daemon, "left") == COUNT


def check_passed(daemon: Daemon, ranges: dict[str, tuple[int, int]]) -> None:
    """Every route goes on behind the accepted ranges."""
    for topic, (first, last) in ranges.items():
        answer = read_batches(daemon, topic, first)
        assert answer.status == 200, answer.body
        assert records_of(answer.body)[0].offset == last + 1
        for path, accept in PAGES.values():
            at = path.format(topic=topic, offset=first)
            answer = daemon.request("GET", at, None, {"Accept": accept} if accept else {})
            found = answer.json["records"] if isinstance(answer.json, dict) else answer.json
            assert found[0]["offset"] == last + 1
        assert poll(daemon, topic, first).json[0]["offset"] == last + 1
