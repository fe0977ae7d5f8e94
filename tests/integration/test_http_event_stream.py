"""Goal: a stream ends with its reason in it, and its client can go on where it was.
Method: live daemons under open streams: topics go, records go, directories go, the daemon stops;
ids are sent back as a browser does.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest

from tests.integration.daemon import Daemon
from tests.integration.http_world import append, batch_of, delete_records, refused, until
from tests.integration.stream_world import EVENTS, NDJSON, Stream, failed_stream, parse_events

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

SETTINGS = {"http_max_streams": "4"}
STREAMS = pytest.mark.parametrize("accept", [NDJSON, EVENTS])


def path_of(topic: str, query: str) -> str:
    return f"/v1/topics/{topic}/partitions/0/records?value_format=text&{query}"


def follow(daemon: Daemon, topic: str, accept: str, query: str = "from=latest") -> Stream:
    """A stream at the end of a log, which has said its first word if it says one."""
    wait = "" if accept == EVENTS else "&max_wait_ms=20000"
    stream = Stream(daemon, path_of(topic, query) + wait, accept)
    if accept == EVENTS:
        assert next(stream.events()).name == "control"
    return stream


def last_word(stream: Stream) -> Any:
    """What a stream says before it ends; it has said nothing else."""
    said = list(stream.blocks())
    if stream.response.headers["Content-Type"] == NDJSON:
        raise AssertionError("lines have no blocks")
    (event,) = parse_events("\n\n".join(said).encode())
    assert event.name == "end"
    return event.data


def end_of(stream: Stream, accept: str) -> Any:
    """The last message of a stream, which then is closed."""
    if accept == EVENTS:
        return last_word(stream)
    (line,) = list(stream.lines())
    return json.loads(line)


@STREAMS
def test_the_topic_is_deleted(daemon: Daemon, accept: str) -> None:
    """M14: told at once, not when the wait is over; who comes again is refused."""
    daemon.create_topic("doomed")
    started = time.monotonic()
    with follow(daemon, "doomed", accept) as stream:
        assert daemon.request("DELETE", f"{daemon.cluster()}/topics/doomed").status == 204
        failed_stream(end_of(stream, accept), 40401)
    assert time.monotonic() - started < 10
    refused(daemon.request("GET", path_of("doomed", "offset=0")), 404, 40401)


@STREAMS
def test_records_go_before_they_are_read(daemon: Daemon, accept: str) -> None:
    """M09: a reader that is overtaken is told where it was; what it got is whole and in order."""
    topic = f"overtaken-{accept.rpartition('/')[2]}"
    daemon.create_topic(topic)
    value = b"v" * 500_000
    for _ in range(40):
        assert append(daemon, topic, batch_of(value)).status == 200
    with Stream(daemon, path_of(topic, "offset=0&fields=offset,value"), accept) as stream:
        (first,) = stream.records(1)
        delete_records(daemon, (topic, 0, 39))
        seen = [first["offset"]]
        if accept == NDJSON:
            messages = [json.loads(line) for line in stream.lines()]
        else:
            messages = [event.data for event in stream.events()]
        seen += [message["offset"] for message in messages[:-1]]
        end = failed_stream(messages[-1], 41001)
    assert seen == list(range(len(seen)))
    assert end["next_offset"] == len(seen) < 39
    assert end["details"]["log_start_offset"] == 39
    refused(
        daemon.request("GET", path_of(topic, f"offset={len(seen)}"), headers={"Accept": accept}),
        410,
        41001,
    )


@STREAMS
def test_records_behind_the_position_go(daemon: Daemon, accept: str) -> None:
    """M09: a reader at the end does not notice, and gets what comes."""
    topic = f"behind-{accept.rpartition('/')[2]}"
    daemon.create_topic(topic)
    assert append(daemon, topic, batch_of(b"a", b"b")).status == 200
    with follow(daemon, topic, accept) as stream:
        delete_records(daemon, (topic, 0, -1))
        assert append(daemon, topic, batch_of(b"c")).status == 200
        assert [record["offset"] for record in stream.records(1)] == [2]


def test_the_daemon_stops(tmp_path: Path) -> None:
    """M13: every stream is told, and the stop does not wait for them."""
    daemon = Daemon(tmp_path)
    daemon.start()
    daemon.create_topic("t")
    with follow(daemon, "t", NDJSON) as lines, follow(daemon, "t", EVENTS) as events:
        started = time.monotonic()
        stopped = threading.Thread(target=daemon.stop)
        stopped.start()
        assert failed_stream(end_of(lines, NDJSON), 50304)["next_offset"] == 0
        assert failed_stream(end_of(events, EVENTS), 50304)["next_offset"] == 0
        stopped.join()
        assert time.monotonic() - started < 10


def test_who_comes_while_it_stops(tmp_path: Path) -> None:
    """M13: an EventSource is told to come again; everybody else, and every other path, gets 503."""
    daemon = Daemon(tmp_path, shutdown_grace_ms="3000")
    daemon.start()
    daemon.create_topic("t")
    with follow(daemon, "t", EVENTS) as stream:
        os.kill(daemon.pid, signal.SIGTERM)
        failed_stream(end_of(stream, EVENTS), 50304)
        headers = {"Accept": EVENTS}
        answer = daemon.request("GET", path_of("t", "from=latest"), headers=headers)
        assert (answer.status, answer.body) == (200, b"retry: 1000\n\n")
        assert answer.headers["Content-Type"] == EVENTS
        for method, path, accept in (
            ("GET", path_of("t", "from=latest"), NDJSON),
            ("GET", path_of("t", "from=latest"), f"{EVENTS}, */*"),
            ("POST", "/topics/t", EVENTS),
            ("GET", "/topics", EVENTS),
        ):
            answer = daemon.request(method, path, headers={"Accept": accept})
            refused(answer, 503, 50304)
    daemon.stop()


def test_the_log_directory_goes(tmp_path: Path) -> None:
    """M15: the stream of a partition in it ends with 503/50303, at the failed append."""
    with Daemon(tmp_path, log_dirs=2) as daemon:
        daemon.create_topic("t", internal_segment_bytes="1000")
        (home,) = (number for number in (0, 1) if list(daemon.log_dirs[number].glob("t-0")))
        lost = daemon.log_dirs[home]
        with follow(daemon, "t", EVENTS) as stream:
            lost.rename(tmp_path / "gone")
            lost.write_bytes(b"no directory")
            for _ in range(20):
                if append(daemon, "t", batch_of(b"v" * 100)).status != 200:
                    break
            ends = [event for event in stream.events() if event.name == "end"]
        assert len(ends) == 1
        failed_stream(ends[0].data, 50303)


def test_a_stream_does_not_live_for_ever(tmp_path: Path) -> None:
    """After http.stream.max.ms: lines say that there is more, events just end, to come again."""
    with Daemon(tmp_path, http_stream_max_ms="400") as daemon:
        daemon.create_topic("t")
        started = time.monotonic()
        with follow(daemon, "t", NDJSON) as stream:
            assert failed_stream(end_of(stream, NDJSON), 40801)["next_offset"] == 0
        with follow(daemon, "t", EVENTS) as stream:
            assert list(stream.events()) == []
        assert 0.75 < time.monotonic() - started < 10


def test_streams_are_counted(daemon: Daemon) -> None:
    """429/42903 beyond http.max.streams, also while they send; a place is free when one ends."""
    daemon.create_topic("counted")
    streams = [follow(daemon, "counted", EVENTS) for _ in range(4)]
    try:
        for accept in (EVENTS, NDJSON):
            answer = daemon.request(
                "GET", path_of("counted", "from=latest"), headers={"Accept": accept}
            )
            refused(answer, 429, 42903)
        page = daemon.request("GET", path_of("counted", "from=latest&max_wait_ms=100"))
        refused(page, 429, 42903)
        assert daemon.request("GET", path_of("counted", "from=latest")).json == []
    finally:
        for stream in streams:
            stream.__exit__()
    path, headers = path_of("counted", "from=latest"), {"Accept": NDJSON}
    until(lambda: daemon.request("GET", path, headers=headers).status == 200)


def test_last_event_id_goes_before_the_query(daemon: Daemon) -> None:
    """Of the one partition or of several; partitions that it does not name begin as the query."""
    daemon.create_topic("resumed", 2)
    for partition in (0, 1):
        data = batch_of(*(b"%d" % number for number in range(5)))
        assert append(daemon, "resumed", data, partition=partition).status == 200

    def offsets(path: str, last_id: str) -> list[tuple[int, int]]:
        headers = {"Accept": EVENTS, "Last-Event-ID": last_id}
        answer = daemon.request("GET", f"{path}&max_wait_ms=0", headers=headers)
        assert answer.status == 200, answer.body
        events = [event for event in parse_events(answer.body) if event.name == "record"]
        return [(event.data["partition"], event.data["offset"]) for event in events]

    one = path_of("resumed", "from=latest")
    assert offsets(one, "0:2") == [(0, 3), (0, 4)]
    assert offsets(one, "0:-1") == [(0, number) for number in range(5)]
    assert offsets(path_of("resumed", "offset=1"), "0:3,1:0") == [(0, 4)]
    every = "/v1/topics/resumed/records?from=latest"
    assert sorted(offsets(every, "0:2,1:3")) == [(0, 3), (0, 4), (1, 4)]
    assert offsets(every, "1:3") == [(1, 4)]
    for wrong in ("x", "0:", "0:1,0:2", "0:-2", "99999999999:1", "0:1;1:2"):
        headers = {"Accept": EVENTS, "Last-Event-ID": wrong}
        body = refused(daemon.request("GET", one, headers=headers), 400, 40005)
        assert "<partition>:<offset>" in str(body["message"])
    headers = {"Accept": EVENTS, "Last-Event-ID": "0:9"}
    refused(daemon.request("GET", one, headers=headers), 416, 41601)
    for path, other in ((one, "1:3"), (f"{every}&partitions=1", "0:2"), (every, "7:1")):
        headers = {"Accept": EVENTS, "Last-Event-ID": other}
        body = refused(daemon.request("GET", path, headers=headers), 400, 40005)
        assert body["details"] == {"parameter": "Last-Event-ID"}
        assert daemon.request("GET", path, headers=headers | {"Accept": NDJSON}).status == 200


@pytest.mark.parametrize("start", ["from=latest", "tail=1"])
def test_partitions_that_came_while_the_client_was_away(daemon: Daemon, start: str) -> None:
    """A client that follows all of a topic misses nothing, also of partitions added since."""
    topic = f"grown-{start[:4]}"
    daemon.create_topic(topic, 2)
    answer = daemon.request("PATCH", f"{daemon.cluster()}/topics/{topic}", {"partitions_count": 4})
    assert answer.status == 200, answer.body
    for partition in (0, 2, 3):
        assert append(daemon, topic, batch_of(b"a", b"b"), partition=partition).status == 200
    delete_records(daemon, (topic, 3, 1))

    def places(last_id: str, query: str = start) -> list[tuple[int, int]]:
        path = f"/v1/topics/{topic}/records?{query}&max_wait_ms=0&value_format=text"
        headers = {"Accept": EVENTS, "Last-Event-ID": last_id}
        events = parse_events(daemon.request("GET", path, headers=headers).body)
        data = [event.data for event in events if event.name == "record"]
        return sorted((each["partition"], each["offset"]) for each in data)

    assert places("0:0,1:-1") == [(0, 1), (2, 0), (2, 1), (3, 1)]
    assert places("0:1,1:-1,2:1,3:1") == []
    assert places("0:1,1:-1", "offset=0:0,1:0,2:1,3:2") == [(2, 1)]


def test_ids_name_every_partition_from_the_start(daemon: Daemon) -> None:
    """A client that has seen nothing yet comes again to where it was, not to a later end."""
    daemon.create_topic("empty", 2)
    with Stream(daemon, "/v1/topics/empty/records?from=latest") as stream:
        assert next(stream.blocks()) == "retry: 1000\nid: 0:-1,1:-1"
    assert append(daemon, "empty", batch_of(b"1"), partition=1).status == 200
    headers = {"Accept": EVENTS, "Last-Event-ID": "0:-1,1:-1"}
    path = "/v1/topics/empty/records?from=latest&max_wait_ms=0"
    events = parse_events(daemon.request("GET", path, headers=headers).body)
    assert [(event.name, event.id) for event in events if event.name == "record"] == [
        ("record", "0:-1,1:0")
    ]


def test_who_has_had_everything_need_not_come_again(daemon: Daemon) -> None:
    """204 stops an EventSource that came again behind until_offset."""
    daemon.create_topic("closed")
    assert append(daemon, "closed", batch_of(b"1", b"2", b"3")).status == 200
    path = path_of("closed", "offset=0&until_offset=2")
    events = parse_events(daemon.request("GET", path, headers={"Accept": EVENTS}).body)
    assert [event.name for event in events] == ["record", "record", "end"]
    assert events[-1].data == {"next_offset": 2, "high_watermark": 3, "up_to_date": False}
    headers = {"Accept": EVENTS, "Last-Event-ID": events[-1].id}
    assert daemon.request("GET", path, headers=headers).status == 204


def test_a_control_event_when_all_was_sent(daemon: Daemon) -> None:
    """Once for each time that it happens."""
    daemon.create_topic("told")
    with Stream(daemon, path_of("told", "from=earliest")) as stream:
        events = stream.events()
        assert next(events).data == {"next_offset": 0, "high_watermark": 0, "up_to_date": True}
        for number in range(2):
            assert append(daemon, "told", batch_of(b"a", b"b")).status == 200
            got = [next(events) for _ in range(3)]
            assert [event.name for event in got] == ["record", "record", "control"]
            assert got[2].data["next_offset"] == 2 * number + 2
            assert got[2].id == got[1].id == f"0:{2 * number + 1}"


@pytest.mark.slow
def test_keep_alive(daemon: Daemon) -> None:
    """A comment every 15 s, and nothing else, while nothing is appended."""
    daemon.create_topic("idle")
    with follow(daemon, "idle", EVENTS) as stream:
        started = time.monotonic()
        blocks = stream.blocks()
        for number in (1, 2):
            assert next(blocks) == ": keep-alive"
            assert abs(time.monotonic() - started - 15 * number) < 3


def test_many_at_the_same_place(daemon: Daemon) -> None:
    """M01: each gets what it asked for, though pieces are encoded once for all who are there."""
    daemon.create_topic("shared")
    queries = [
        "from=latest",
        "from=latest",
        "from=latest&fields=value",
        "from=latest&max_records=3",
    ]
    streams = [Stream(daemon, path_of("shared", query)) for query in queries]
    try:
        said = [stream.events() for stream in streams]
        for events in said:
            assert next(events).name == "control"
        for number in range(3):
            assert append(daemon, "shared", batch_of(b"%d" % number)).status == 200
            got = [next(events) for events in said]
            assert [event.id for event in got] == [f"0:{number}"] * 4
            assert got[0] == got[1] == got[3]
            assert got[0].data["value"] == str(number)
            assert got[2].data == {"value": str(number)}
            following = [next(events).name for events in said]
            assert following == ["control"] * 3 + ["end" if number == 2 else "control"]
    finally:
        for stream in streams:
            stream.__exit__()
