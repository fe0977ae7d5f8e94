"""Goal: records of one partition or several begin, end and look as the query says, in each format.
Method: a live daemon with a few records whose keys, values, times and batches differ; every
selector, bound and format asked for as a page, as lines and as events.
"""

from __future__ import annotations

import base64
import gzip
import json
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.format.records.batch_builder import RecordColumns, build_batch
from kafkalog.format.records.record_batch import Codec
from tests.integration.daemon import Daemon
from tests.integration.http_world import append, delete_records, refused
from tests.integration.stream_world import EVENTS, JSON, NDJSON, Stream, parse_events

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.daemon import Answer

SETTINGS = {"http_max_wait_ms": "20000", "min_insync_replicas": "1"}
ONE = "/v1/topics/t/partitions/0/records"
ALL = "/v1/topics/t/records"
VALUES = [b'{"a": 1}', b'"two"', None, b"4", b"[5]", b"6.0", b"true", b'"acht"']
KEYS = [b"k0", b"k1", b"k2", None, b"k4", b"k5", b"k6", b"k7"]
TIMES = [100, 200, 150, 300, 300, 400, 500, 600]


def columns(numbers: range) -> RecordColumns:
    return RecordColumns.of(
        [KEYS[number] for number in numbers],
        [VALUES[number] for number in numbers],
        [TIMES[number] for number in numbers],
        [[(b"h", b"x"), (b"n", None)] if number == 1 else [] for number in numbers],
    )


@pytest.fixture(scope="module", autouse=True)
def filled(daemon: Daemon) -> None:
    """Eight records in three batches, the second compressed; partition 2 has two, 1 has none."""
    daemon.create_topic("t", 3)
    for numbers, codec in (
        (range(3), Codec.NONE),
        (range(3, 6), Codec.ZSTD),
        (range(6, 8), Codec.NONE),
    ):
        assert append(daemon, "t", build_batch(columns(numbers), codec=codec)).status == 200
    assert append(daemon, "t", build_batch(columns(range(6, 8))), partition=2).status == 200


def expected(number: int, partition: int = 0) -> dict[str, Any]:
    key, value = KEYS[number], VALUES[number]
    shown: dict[str, Any] = {
        "topic": "t",
        "key": None if key is None else key.decode(),
        "value": None if value is None else json.loads(value),
        "partition": partition,
        "offset": number if partition == 0 else number - 6,
        "timestamp": TIMES[number],
    }
    if number == 1:
        shown["headers"] = [
            {"key": "h", "value": base64.b64encode(b"x").decode()},
            {"key": "n", "value": None},
        ]
    return shown


def is_new(daemon: Daemon, topic: str) -> bool:
    """Make the topic unless the test made it for another format."""
    body = {"topic_name": topic, "partitions_count": 1}
    return daemon.request("POST", "/admin/topics", body).status == 201


def ask(daemon: Daemon, path: str, accept: str = JSON, **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return daemon.request("GET", path, headers={"Accept": accept, **named})


def read(daemon: Daemon, path: str, accept: str) -> list[Any]:
    """The records of an answer of any format, whose end comes at once."""
    wait = "&max_wait_ms=0" if accept == EVENTS else ""
    answer = ask(daemon, path + wait, accept)
    assert answer.status in (200, 204), answer.body
    if answer.status == 204:
        assert accept == EVENTS
        return []
    assert answer.headers["Content-Type"] == accept
    if accept == JSON:
        records: list[Any] = answer.json
        return records
    if accept == NDJSON:
        return [json.loads(line) for line in answer.body.decode().splitlines()]
    events = parse_events(answer.body)
    assert events[-1].name == "end"
    assert "error_code" not in events[-1].data
    return [event.data for event in events if event.name == "record"]


FORMATS = pytest.mark.parametrize("accept", [JSON, NDJSON, EVENTS])


@FORMATS
@pytest.mark.parametrize(
    ("query", "numbers"),
    [
        ("offset=0", range(8)),
        ("offset=4", range(4, 8)),
        ("offset=8", range(0)),
        ("from=earliest", range(8)),
        ("from=latest", range(0)),
        ("tail=3", range(5, 8)),
        ("tail=100", range(8)),
        ("timestamp=150", range(1, 8)),
        ("timestamp=301", range(5, 8)),
        ("timestamp=1970-01-01T00:00:00.5Z", range(6, 8)),
        ("timestamp=601", range(0)),
        ("offset=5&until_offset=5", range(0)),
        ("offset=0&until_timestamp=300", range(3)),
        ("offset=0&max_bytes=19", range(3)),
        ("offset=3&max_bytes=4&max_records=8", range(3, 4)),
        ("tail=5&max_records=2&until_offset=7", range(3, 5)),
    ],
)
def test_starts_and_bounds(daemon: Daemon, query: str, numbers: range, accept: str) -> None:
    """M01: each start and bound, across batches, compressed or not."""
    assert read(daemon, f"{ONE}?{query}", accept) == [expected(number) for number in numbers]


@FORMATS
def test_formats_of_key_and_value(daemon: Daemon, accept: str) -> None:
    path = f"{ONE}?offset=1&max_records=3"
    texts = read(daemon, f"{path}&value_format=text", accept)
    assert [record["value"] for record in texts] == ['"two"', None, "4"]
    coded = read(daemon, f"{path}&key_format=base64&value_format=base64", accept)
    assert [record["key"] for record in coded] == ["azE=", "azI=", None]
    assert [record["value"] for record in coded] == ["InR3byI=", None, "NA=="]
    some = read(daemon, f"{path}&fields=value,offset", accept)
    assert some == [
        {"value": "two", "offset": 1},
        {"value": None, "offset": 2},
        {"value": 4, "offset": 3},
    ]
    assert read(daemon, f"{path}&fields=headers,topic", accept)[1:] == [{"topic": "t"}] * 2
    only = read(daemon, f"{path}&fields=headers", accept)
    assert [sorted(record) for record in only] == [["headers"], [], []]


@FORMATS
def test_line_ends_in_stored_json(daemon: Daemon, accept: str) -> None:
    """White space between tokens never breaks a line; inside a string it stays forbidden."""
    path = "/v1/topics/spaced/partitions/0/records?from=earliest"
    if is_new(daemon, "spaced"):
        first = build_batch(RecordColumns.of([None], [b'{\r\n"a":\n[1,\r2]\n}'], 1))
        assert append(daemon, "spaced", first).status == 200
        broken = build_batch(RecordColumns.of([None], [b'"a\nb"'], 1))
        assert append(daemon, "spaced", broken).status == 200
    shown = read(daemon, f"{path}&fields=value&until_offset=1", accept)
    assert shown == [{"value": {"a": [1, 2]}}]
    second = ask(daemon, "/v1/topics/spaced/partitions/0/records?offset=1", accept)
    refused(second, 406, 40602)


def test_a_record_that_is_not_representable(daemon: Daemon) -> None:
    """40602 names it when it would be the first; a page ends before it, a stream says so."""
    daemon.create_topic("mixed")
    path = "/v1/topics/mixed/partitions/0/records"
    data = build_batch(RecordColumns.of([b"k", b"\xff", b"k"], [b"1", b"2", b"{"], 1))
    assert append(daemon, "mixed", data).status == 200
    at_key = refused(ask(daemon, f"{path}?offset=1"), 406, 40602)
    assert at_key["details"] == {"topic": "mixed", "partition": 0, "offset": 1}
    assert "key" in str(at_key["message"])
    at_value = refused(ask(daemon, f"{path}?offset=2", NDJSON), 406, 40602)
    assert "value" in str(at_value["message"])
    page = ask(daemon, f"{path}?offset=0")
    assert ([r["offset"] for r in page.json], page.headers["Kafka-Next-Offset"]) == ([0], "1")
    lines = [json.loads(line) for line in ask(daemon, f"{path}?offset=0", NDJSON).body.splitlines()]
    assert [lines[0]["offset"], lines[1]["error_code"], lines[1]["next_offset"]] == [0, 40602, 1]
    assert len(lines) == 2
    events = parse_events(ask(daemon, f"{path}?offset=0", EVENTS).body)
    assert [event.name for event in events] == ["record", "end"]
    assert (events[1].data["error_code"], events[1].id) == (40602, "0:0")
    good = read(daemon, f"{path}?offset=0&key_format=base64&value_format=text", EVENTS)
    assert [record["offset"] for record in good] == [0, 1, 2]


def test_headers_of_a_page(daemon: Daemon) -> None:
    answer = ask(daemon, f"{ONE}?offset=2&max_records=2")
    assert answer.headers["Kafka-Base-Offset"] == "2"
    assert answer.headers["Kafka-Next-Offset"] == "4"
    assert answer.headers["Kafka-High-Watermark"] == "8"
    assert answer.headers["Kafka-Log-Start-Offset"] == "0"
    assert "Kafka-Up-To-Date" not in answer.headers
    assert answer.headers["Cache-Control"] == "no-store"
    assert ask(daemon, f"{ONE}?offset=7").headers["Kafka-Up-To-Date"] == "true"
    empty = ask(daemon, f"{ONE}?offset=5&until_offset=5")  # nothing was read
    assert (empty.json, empty.headers["Kafka-Log-Start-Offset"]) == ([], "0")
    merged = ask(daemon, f"{ALL}?offset=2:1,0:7")
    assert merged.headers["Kafka-Base-Offset"] == "0:7,2:1"
    assert merged.headers["Kafka-Next-Offset"] == "0:8,2:2"


@FORMATS
@pytest.mark.parametrize(
    ("query", "zero", "two"),
    [
        ("from=earliest", range(8), range(6, 8)),
        ("partitions=2,1&from=earliest", range(0), range(6, 8)),
        ("offset=2:1,0:6", range(6, 8), range(7, 8)),
        ("from=earliest&until_offset=0:2", range(2), range(6, 8)),
        ("from=earliest&until_timestamp=500", range(6), range(0)),
    ],
)
def test_several_partitions(
    daemon: Daemon, query: str, zero: range, two: range, accept: str
) -> None:
    """M01: all or the named ones, in order within each."""
    records = read(daemon, f"{ALL}?{query}", accept)
    by_partition = [[r for r in records if r["partition"] == number] for number in (0, 2)]
    assert by_partition == [[expected(n) for n in zero], [expected(n, 2) for n in two]]
    assert len(records) == len(zero) + len(two)


def test_bounds_of_several_are_of_all(daemon: Daemon) -> None:
    assert len(read(daemon, f"{ALL}?from=earliest&max_records=9", NDJSON)) == 9
    assert len(read(daemon, f"{ALL}?from=earliest&max_records=1", EVENTS)) == 1


@pytest.mark.parametrize(
    ("path", "queries"),
    [
        (ONE, ("", "offset=1&tail=2", "offset=-1", "timestamp=yesterday")),
        (ONE, ("offset=0&max_records=0", "offset=0&key_format=avro", "offset=0&isolation=none")),
        (ONE, ("offset=0&fields=", "offset=0&fields=key,colour", "offset=0&until_timestamp=x")),
        (ALL, ("offset=0", "offset=0:1,0:2", "offset=0:1&partitions=0,1")),
        (ALL, ("from=earliest&partitions=0,0", "from=earliest&until_offset=7:1")),
    ],
)
def test_queries_that_are_refused(daemon: Daemon, path: str, queries: tuple[str, ...]) -> None:
    for query in queries:
        refused(ask(daemon, f"{path}?{query}"), 400, 40005)


@pytest.mark.parametrize("accept", [NDJSON, EVENTS])
def test_a_stream_has_no_min_bytes(daemon: Daemon, accept: str) -> None:
    refused(ask(daemon, f"{ONE}?offset=0&min_bytes=5", accept), 400, 40005)


@FORMATS
def test_errors_come_with_their_status(daemon: Daemon, accept: str) -> None:
    """What is known before the first byte is never told inside a stream."""
    refused(ask(daemon, f"{ONE}?offset=9", accept), 416, 41601)
    refused(ask(daemon, "/v1/topics/none/partitions/0/records?tail=1", accept), 404, 40401)
    refused(ask(daemon, "/v1/topics/t/partitions/7/records?tail=1", accept), 404, 40402)
    refused(ask(daemon, "/v1/topics/none/records?tail=1", accept), 404, 40401)
    refused(ask(daemon, f"{ALL}?from=earliest&partitions=0,7", accept), 404, 40402)
    refused(ask(daemon, f"{ONE}?offset=0", "text/html"), 406, 406)
    path = "/v1/topics/shrunk/partitions/0/records?offset=0"
    if is_new(daemon, "shrunk"):
        assert append(daemon, "shrunk", build_batch(columns(range(3)))).status == 200
        delete_records(daemon, ("shrunk", 0, 2))
    refused(ask(daemon, path, accept), 410, 41001)


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("", JSON),
        ("application/*", JSON),
        ("text/*", EVENTS),
        (f"{EVENTS}, */*", EVENTS),
        (f"{NDJSON};q=0.5, {JSON};q=0.4", NDJSON),
        (f"{JSON};q=0, */*;q=0.1", NDJSON),
    ],
)
def test_accept_chooses(daemon: Daemon, accept: str, chosen: str) -> None:
    """RFC 9110: the most specific range decides about a type, then its quality."""
    answer = ask(daemon, f"{ONE}?offset=0&max_wait_ms=0", accept)
    assert answer.headers["Content-Type"] == chosen
    assert "Accept" in answer.headers["Vary"]


@pytest.mark.parametrize("accept", [JSON, NDJSON])
def test_closed_ranges_have_a_tag(daemon: Daemon, accept: str) -> None:
    """Of history, that can be kept; of tails there is none."""
    path = f"{ONE}?offset=1&until_offset=6"
    first = ask(daemon, path, accept)
    tag = first.headers["ETag"]
    assert first.headers["Cache-Control"] == "private, no-cache"
    assert ":0:1-6:" in tag
    for given in (tag, f'"x", {tag}', "*", tag.removeprefix("W/")):
        again = ask(daemon, path, accept, If_None_Match=given)
        assert (again.status, again.body, again.headers["ETag"]) == (304, b"", tag)
    assert ask(daemon, path, accept, If_None_Match='"other"').status == 200
    for tail in ("offset=1", "offset=1&until_offset=9", "tail=3&until_offset=6"):
        answer = ask(daemon, f"{ONE}?{tail}", accept, If_None_Match="*")
        assert (answer.status, answer.headers["Cache-Control"]) == (200, "no-store")
        assert "ETag" not in answer.headers


def test_a_clean_changes_the_tag(daemon: Daemon) -> None:
    """M07: a cache asks again and gets what compaction left."""
    daemon.create_topic("tagged", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    same = build_batch(RecordColumns.of([b"k", b"k"], [b"1", b"2"], 1))
    assert append(daemon, "tagged", same).status == 200
    base = "/v1/topics/tagged/partitions/0"
    assert daemon.request("POST", f"{base}/log:roll").status == 200
    path = f"{base}/records?offset=0&until_offset=2"
    before = ask(daemon, path)
    assert [record["value"] for record in before.json] == [1, 2]
    assert daemon.request("POST", f"{base}/log:clean", {}).status == 200
    after = ask(daemon, path, If_None_Match=before.headers["ETag"])
    assert after.status == 200
    assert [record["value"] for record in after.json] == [2]


@pytest.mark.parametrize("accept", [JSON, NDJSON])
def test_gzip_when_it_is_accepted(daemon: Daemon, accept: str) -> None:
    """Above 1 KiB; the same records come out."""
    path = "/v1/topics/long/partitions/0/records?from=earliest&value_format=text"
    if is_new(daemon, "long"):
        data = build_batch(RecordColumns.of([None] * 3000, [b"v" * 300] * 3000, 1))
        assert append(daemon, "long", data).status == 200
    plain = ask(daemon, path, accept)
    assert "Content-Encoding" not in plain.headers
    packed = ask(daemon, path, accept, Accept_Encoding="gzip, deflate;q=0.5")
    assert packed.headers["Content-Encoding"] == "gzip"
    assert "Accept-Encoding" in packed.headers["Vary"]
    assert gzip.decompress(packed.body) == plain.body
    assert len(packed.body) < len(plain.body) / 20
    refusing = ask(daemon, path, accept, Accept_Encoding="gzip;q=0, br")
    assert "Content-Encoding" not in refusing.headers
    small = ask(daemon, f"{path}&max_records=1", JSON, Accept_Encoding="gzip")
    assert "Content-Encoding" not in small.headers
    events = ask(daemon, f"{path}&max_wait_ms=0", EVENTS, Accept_Encoding="gzip")
    assert "Content-Encoding" not in events.headers


@pytest.mark.parametrize("accept", [JSON, NDJSON, EVENTS])
def test_head(daemon: Daemon, accept: str) -> None:
    answer = daemon.request("HEAD", f"{ONE}?offset=0&max_wait_ms=0", headers={"Accept": accept})
    assert (answer.status, answer.headers["Content-Type"], answer.body) == (200, accept, b"")


def test_a_page_waits_for_the_append(daemon: Daemon) -> None:
    daemon.create_topic("later")
    path = "/v1/topics/later/partitions/0/records?from=earliest"
    answers: list[Answer] = []

    def wait() -> None:
        answers.append(ask(daemon, f"{path}&max_wait_ms=15000&min_bytes=250"))

    started = time.monotonic()
    thread = threading.Thread(target=wait)
    thread.start()
    one = build_batch(RecordColumns.of([None], [b'"' + b"v" * 80 + b'"'], 1))
    for _ in range(2):
        assert append(daemon, "later", one).status == 200
    thread.join()
    assert [record["offset"] for record in answers[0].json] == [0, 1]
    assert time.monotonic() - started < 10
    assert ask(daemon, f"{path}&max_wait_ms=10&min_bytes=1000000").json != []
    assert (
        ask(daemon, "/v1/topics/later/partitions/0/records?from=latest&max_wait_ms=10").json == []
    )


@pytest.mark.parametrize("accept", [NDJSON, EVENTS])
def test_a_stream_follows_the_log(daemon: Daemon, accept: str) -> None:
    topic = f"followed-{accept.rpartition('/')[2]}"
    daemon.create_topic(topic, 2)
    one = f"/v1/topics/{topic}/partitions/0/records?from=latest&max_wait_ms=15000"
    every = f"/v1/topics/{topic}/records?from=latest&max_wait_ms=15000"
    with Stream(daemon, one, accept) as single, Stream(daemon, every, accept) as merged:
        for number in range(3):
            value = build_batch(RecordColumns.of([None], [b"%d" % number], 1))
            assert append(daemon, topic, value, partition=number % 2).status == 200
            (record,) = merged.records(1)
            assert (record["partition"], record["value"]) == (number % 2, number)
        assert [record["value"] for record in single.records(2)] == [0, 2]


def test_a_stream_ends_when_nothing_comes(daemon: Daemon) -> None:
    """After max_wait_ms without a record: an end that is none of a failure."""
    daemon.create_topic("quiet")
    path = "/v1/topics/quiet/partitions/0/records?from=latest&max_wait_ms=300"
    started = time.monotonic()
    assert ask(daemon, path, NDJSON).body == b""
    events = parse_events(ask(daemon, path, EVENTS).body)
    assert [event.name for event in events] == ["control", "end"]
    assert events[0].data == {"next_offset": 0, "high_watermark": 0, "up_to_date": True}
    assert time.monotonic() - started > 0.55


def test_the_path_of_the_v1_api(daemon: Daemon) -> None:
    """GET .../messages?offset&count: one record unless it says how many."""
    path = "/topics/t/partitions/0/messages"
    kind = "application/vnd.kafka.binary.v1+json"
    (one,) = ask(daemon, f"{path}?offset=3", kind).json
    assert (one["offset"], base64.b64decode(one["value"])) == (3, b"4")
    answer = ask(daemon, f"{path}?offset=3&count=4", "application/vnd.kafka.text.v2+json")
    assert [record["value"] for record in answer.json] == ["4", "[5]", "6.0", "true"]
    assert answer.headers["Kafka-Next-Offset"] == "7"
    refused(ask(daemon, f"{path}?offset=99"), 400, 40002)
    refused(ask(daemon, path), 400, 40005)


def test_a_partition_that_is_done_with_is_not_asked_again(tmp_path: Path) -> None:
    """A stream of several partitions needs no more of one that has reached its bound."""
    with Daemon(tmp_path, log_dirs=2) as lone:
        lone.create_topic("t", 2)
        lost = next(path for path in lone.log_dirs if path.joinpath("t-0").exists())
        assert not lost.joinpath("t-1").exists()
        for partition in (0, 1):
            append(lone, "t", build_batch(columns(range(1))), partition=partition)
        path = f"{ALL}?offset=0:0,1:0&until_offset=0:1,1:2&max_wait_ms=20000"
        with Stream(lone, path, NDJSON) as stream:
            assert [record["offset"] for record in stream.records(2)] == [0, 0]
            lost.rename(tmp_path / "gone")
            lost.write_bytes(b"no directory")
            refused(lone.request("POST", "/v1/topics/t/partitions/0/log:roll"), 503, 50303)
            append(lone, "t", build_batch(columns(range(1))), partition=1)
            (last,) = stream.records(1)
            assert (last["partition"], last["offset"]) == (1, 1), last
            assert list(stream.lines()) == []
