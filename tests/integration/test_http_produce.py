"""Goal: v2 produce takes records in three formats and says what became of each.
Method: requests to a real daemon, read back over HTTP and as raw batches; refusals append nothing;
what the documentation shows of curl.
"""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.integration.daemon import BINARY, TEXT, V2, Answer, Daemon
from tests.integration.http_world import b64, end_offset, now_ms, read_batches, refused
from tests.integration.stream_world import NDJSON, lines
from tests.partition_world import records_of, split_batches

JSON = "application/vnd.kafka.json.v2+json"


def produce(
    daemon: Daemon,
    topic: str,
    *records: object,
    content_type: str = TEXT,
    path: str = "",
    **headers: str,
) -> Answer:
    all_headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return daemon.request(
        "POST",
        f"/topics/{topic}{path}",
        {"records": list(records)},
        {"Content-Type": content_type, **all_headers},
    )


def receipts(answer: Answer) -> list[tuple[int, int]]:
    """(partition, offset) of each record, all of which succeeded."""
    assert answer.status == 200, answer.body
    assert all(entry["error_code"] is None for entry in answer.json["offsets"])
    assert all(entry["error"] is None for entry in answer.json["offsets"])
    return [(entry["partition"], entry["offset"]) for entry in answer.json["offsets"]]


def test_receipts_come_in_request_order(daemon: Daemon) -> None:
    """M01: offsets in order, the ecosystem's answer shape, its content type."""
    daemon.create_topic("order")
    answer = produce(daemon, "order", *({"value": f"v{i}"} for i in range(5)))
    assert receipts(answer) == [(0, i) for i in range(5)]
    assert answer.json["key_schema_id"] is None
    assert answer.json["value_schema_id"] is None
    assert answer.headers["Content-Type"] == V2
    assert receipts(produce(daemon, "order", {"value": "next"})) == [(0, 5)]
    assert len(split_batches(read_batches(daemon, "order", 0).body)) == 2


def test_binary_text_and_json_round_trip(daemon: Daemon) -> None:
    daemon.create_topic("formats")
    every = bytes(range(256))
    produce(daemon, "formats", {"key": b64(every), "value": b64(every[::-1])}, content_type=BINARY)
    produce(daemon, "formats", {"key": "clé", "value": 'naïve "\n\u0000 ☃ 😀'})
    produce(daemon, "formats", {"key": {"a": [1]}, "value": [None, True]}, content_type=JSON)
    first, second, third = records_of(read_batches(daemon, "formats", 0).body)
    assert (first.key, first.value) == (every, every[::-1])
    assert second.key == "clé".encode()
    assert second.value == 'naïve "\n\u0000 ☃ 😀'.encode()
    assert third.key == b'{"a": [1]}'
    assert third.value == b"[null, true]"


@pytest.mark.parametrize(
    "text",
    [
        '{"b":1,  "a":2}',
        "1.0",
        "12345678901234567890123456789",
        "-0.0e+5",
        '"\\u0041\\/"',
        '{"n" : [ ] }',
        '"  "',
        "true",
        "[[[]]]",
    ],
)
def test_json_text_is_stored_as_sent(daemon: Daemon, text: str) -> None:
    """No re-encoding: spaces, number spelling, escapes and member order stay."""
    body = f'{{"records":[{{"value":{text}}}]}}'.encode()
    answer = daemon.request("POST", "/topics/exact", body, {"Content-Type": "application/json"})
    ((_, offset),) = receipts(answer)
    (record,) = records_of(read_batches(daemon, "exact", offset).body)
    assert record.value == text.encode()
    page = daemon.request("GET", f"/topics/exact/partitions/0/records?offset={offset}&format=json")
    assert f'"value":{text},'.encode() in page.body


def test_null_is_not_empty(daemon: Daemon) -> None:
    """A missing or null key or value is a real null, an empty one is empty, in every format."""
    daemon.create_topic("nulls")
    for content_type in (TEXT, BINARY):
        produce(
            daemon,
            "nulls",
            {},
            {"key": None, "value": None},
            {"key": "", "value": ""},
            content_type=content_type,
        )
    produce(daemon, "nulls", {}, {"key": None, "value": None}, {"value": "null"}, content_type=JSON)
    records = records_of(read_batches(daemon, "nulls", 0).body)
    got = [(record.key, record.value) for record in records]
    three = [(None, None), (None, None), (b"", b"")]
    assert got == [*three, *three, (None, None), (None, None), (None, b'"null"')]
    page = daemon.fetch_all("nulls")
    assert [(r["key"], r["value"]) for r in page[:3]] == [(None, None), (None, None), ("", "")]


def test_headers(daemon: Daemon) -> None:
    """Names repeat and keep their order; values are base64 or null; out only when there are any."""
    daemon.create_topic("headers")
    headers = [
        {"key": "a", "value": b64(b"\x00\xff")},
        {"key": "a", "value": None},
        {"key": "é", "value": ""},
    ]
    produce(daemon, "headers", {"value": "x", "headers": headers}, {"value": "y", "headers": []})
    first, second = daemon.fetch_all("headers")
    assert first["headers"] == headers
    assert "headers" not in second
    record = records_of(read_batches(daemon, "headers", 0).body)[0]
    assert list(record.headers) == [(b"a", b"\x00\xff"), (b"a", None), ("é".encode(), b"")]


def test_timestamps(daemon: Daemon) -> None:
    """Milliseconds, ISO-8601 with a zone, absent is now; all in one request."""
    daemon.create_topic("times")
    before = now_ms()
    produce(
        daemon,
        "times",
        {"value": "a", "timestamp": 1_600_000_000_000},
        {"value": "b", "timestamp": "2020-09-13T12:26:40.5Z"},
        {"value": "c", "timestamp": "2020-09-13T14:26:40+02:00"},
        {"value": "d"},
        {"value": "e", "timestamp": 0},
    )
    stamps = [record["timestamp"] for record in daemon.fetch_all("times")]
    assert stamps[:3] == [1_600_000_000_000, 1_600_000_000_500, 1_600_000_000_000]
    assert before <= stamps[3] <= now_ms()
    assert stamps[4] == 0


@pytest.mark.parametrize(
    "stamp", ["yesterday", "2020-09-13T12:26:40", "2020-13-01T00:00:00Z", -2, 2**63, 1.5, True, ""]
)
def test_wrong_timestamps(daemon: Daemon, stamp: object) -> None:
    if "badtimes" not in daemon.request("GET", "/topics").json:
        daemon.create_topic("badtimes")
    answer = produce(daemon, "badtimes", {"value": "x", "timestamp": stamp})
    refused(answer, 400, 400)  # the media type is the Bridge's
    assert end_offset(daemon, "badtimes") == 0


def test_one_batch_a_partition_in_request_order(daemon: Daemon) -> None:
    daemon.create_topic("grouped", 2)
    records = [{"value": str(i), "partition": i % 2} for i in range(10)]
    assert receipts(produce(daemon, "grouped", *records)) == [(i % 2, i // 2) for i in range(10)]
    assert [r["value"] for r in daemon.fetch_all("grouped", 1)] == [
        b64(str(i).encode()) for i in range(1, 10, 2)
    ]


def test_one_reason_for_all_is_the_status(daemon: Daemon) -> None:
    daemon.create_topic("allfail", 2)
    body = refused_produce(produce(daemon, "allfail", {"value": "x", "partition": 5}), 404, 40402)
    assert body["offsets"][0]["error_code"] == 40402
    refused(produce(daemon, "allfail", {"value": "x"}, path="/partitions/x"), 404, 404)
    refused_produce(produce(daemon, "allfail", {"value": "x"}, path="/partitions/2"), 404, 40402)


def refused_produce(answer: Answer, status: int, code: int) -> Any:
    """An error that also carries the receipts."""
    refused(answer, status, code)
    assert all(entry["error_code"] == code for entry in answer.json["offsets"])
    return answer.json


def test_durability_classes(daemon: Daemon) -> None:
    """M01: each answer names what it stands for; acks=0 and async answer at once."""
    daemon.create_topic("acks")
    assert produce(daemon, "acks", {"value": "a"}).json["durability"] == "synced"
    for query, header, said in (
        ("?acks=all", "", "synced"),
        ("?acks=-1", "", "synced"),
        ("?acks=1", "", "os"),
        ("", "1", "os"),
        ("", "all", "synced"),
        ("?acks=1", "all", "os"),
    ):
        extra = {"Kafka_Acks": header} if header else {}
        answer = produce(daemon, "acks", {"value": "a"}, path=query, **extra)
        assert answer.json["durability"] == said
    for query, status in (("?acks=0", 202), ("?async=true", 204)):
        answer = produce(daemon, "acks", {"value": "a"}, path=query)
        assert (answer.status, answer.body) == (status, b"")
        assert answer.headers["Kafka-Durability"] == "none"
    produce(daemon, "acks", {"value": "last"})
    assert len(daemon.fetch_all("acks")) == 10
    refused(produce(daemon, "acks", {"value": "a"}, path="?acks=2"), 400, 40005)
    refused(produce(daemon, "acks", {"value": "a"}, path="?async=maybe"), 400, 40005)


def test_a_topic_may_fix_the_class(daemon: Daemon) -> None:
    daemon.create_topic("fixed", http_produce_acks="1")
    assert produce(daemon, "fixed", {"value": "a"}).json["durability"] == "os"


def test_an_unknown_topic_is_created(daemon: Daemon) -> None:
    assert receipts(produce(daemon, "auto", {"value": "a"})) == [(0, 0)]
    assert "auto" in daemon.request("GET", "/topics").json


def test_requests_that_create_a_topic_together(daemon: Daemon) -> None:
    """One creates it, and the others wait until it is there: nobody is told to come again."""
    together = 8
    with ThreadPoolExecutor(together) as clients:
        for number in range(10):
            topic, barrier = f"together{number}", threading.Barrier(together)

            def ask(_: int, topic: str = topic, barrier: threading.Barrier = barrier) -> Answer:
                barrier.wait()
                return produce(daemon, topic, {"value": "a"})

            answers = list(clients.map(ask, range(together)))
            assert sorted(receipts(answer)[0] for answer in answers) == [
                (0, offset) for offset in range(together)
            ]


def test_no_topic_is_created_for_a_partition_it_would_not_have(daemon: Daemon) -> None:
    """What is refused changes nothing. A mistyped address leaves no topic behind, nor does a body
    that is refused.
    """
    before = daemon.request("GET", "/topics").json
    path = "/topics/mistyped/partitions/3"
    refused(daemon.request("POST", path, {"records": [{"value": "a"}]}), 404, 40401)
    beyond = [{"value": "a", "partition": 3}, {"value": "b", "partition": 7}]
    refused(produce(daemon, "mistyped", *beyond), 404, 40401)
    refused(produce(daemon, "mistyped", {"value": "a", "surprise": 1}), 400, 400)
    refused(produce(daemon, "mistyped"), 400, 400)
    assert daemon.request("GET", "/topics").json == before
    mixed = produce(daemon, "mixed", *beyond, {"value": "c", "partition": 0}).json["offsets"]
    assert [entry["error_code"] for entry in mixed] == [40402, 40402, None]
    path = "/topics/well-typed/partitions/0"
    assert daemon.request("POST", path, {"records": [{"value": "a"}]}).status == 200


def test_compressed_request_bodies(daemon: Daemon) -> None:
    """gzip, several members, and deflate; what does not inflate to its end is refused."""
    daemon.create_topic("zipped")
    body = json.dumps({"records": [{"value": "x" * 1000}]}).encode()
    whole = gzip.compress(body)
    for encoding, data in (
        ("gzip", whole),
        ("GZIP", whole),
        ("gzip", gzip.compress(body[:100]) + gzip.compress(body[100:])),
        ("deflate", zlib.compress(body)),
        ("identity", body),
    ):
        answer = daemon.request(
            "POST", "/topics/zipped", data, {"Content-Type": TEXT, "Content-Encoding": encoding}
        )
        receipts(answer)
    wrong_sum = whole[:-8] + bytes(4) + whole[-4:]
    for data in (whole[:-9], whole[:-1], b"", b"plain", wrong_sum, whole + b"tail"):
        answer = daemon.request(
            "POST", "/topics/zipped", data, {"Content-Type": TEXT, "Content-Encoding": "gzip"}
        )
        refused(answer, 400, 40006)
    for encoding in ("br", "zstd", "gzip, gzip", "compress", "x" * 500):
        answer = daemon.request(
            "POST", "/topics/zipped", body, {"Content-Type": TEXT, "Content-Encoding": encoding}
        )
        refused(answer, 415, 41502)
    assert end_offset(daemon, "zipped") == 5


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, 400),
        ({"records": []}, 400, 400),
        ({"records": {}}, 400, 400),
        ({"records": [{"value": 5}]}, 422, 422),  # of the right shape, and no text
        ({"records": [{"vlaue": "x"}]}, 400, 400),
        ({"records": [{"value": "x", "partition": -1}]}, 400, 400),
        ({"records": [{"value": "x", "partition": 0.5}]}, 400, 400),
        ({"records": [{"value": "x", "headers": [{"value": ""}]}]}, 400, 400),
        ({"records": [{"value": "x", "headers": [{"key": "a", "value": "?"}]}]}, 400, 400),
        ({"records": [{"value": "x"}], "more": 1}, 400, 400),
        ([], 400, 400),
    ],
    ids=str,
)
def test_the_wrong_shape_appends_nothing(
    daemon: Daemon, body: object, status: int, code: int
) -> None:
    topic = "shape"
    if topic not in daemon.request("GET", "/topics").json:
        daemon.create_topic(topic)
    answer = daemon.request("POST", f"/topics/{topic}", body, {"Content-Type": TEXT})
    error = refused(answer, status, code)
    assert error.get("validation_errors") or "base64" in str(error["message"])
    assert end_offset(daemon, topic) == 0


@pytest.mark.parametrize("text", ["a", "ab=", "YQ", "YQ==\n", "Y-_=", "YQ===", "Y Q=", "é"])
def test_base64_is_strict(daemon: Daemon, text: str) -> None:
    if "strict" not in daemon.request("GET", "/topics").json:
        daemon.create_topic("strict")
    answer = produce(daemon, "strict", {"value": text}, content_type=BINARY)
    refused(answer, 400, 400)
    assert end_offset(daemon, "strict") == 0


def test_a_wrong_shape_by_dialect(daemon: Daemon) -> None:
    """422 as the REST Proxy's, 400 as the Bridge's; Karapace's 400 is for wrong types alone.

    A key or value that is no text is 422 in the Bridge's type too.
    """
    karapace = "application/vnd.kafka.json+json"
    for body, of_karapace in (
        ({"records": "no array"}, 400),
        ({"records": ["no object"]}, 400),
        ({"records": [{"value": "v", "partition": "x"}]}, 400),
        ({"records": []}, 422),
        ({"foo": "bar"}, 422),
        ({"records": [{"valeu": 1}]}, 422),
    ):
        for media, status in ((JSON, 422), (TEXT, 400), (karapace, of_karapace)):
            answer = daemon.request("POST", "/topics/shaped", body, {"Content-Type": media})
            error = refused(answer, status, status)
            assert error["validation_errors"] == [error["message"]], (body, media)
    for record in ({"value": {"a": 1}}, {"key": ["k"], "value": "v"}):
        answer = daemon.request("POST", "/topics/t", {"records": [record]}, {"Content-Type": TEXT})
        refused(answer, 422, 422)


def test_content_types(daemon: Daemon) -> None:
    """The accepted ones are named; a schema registry is not here."""
    body = {"records": [{"value": {"a": 1}}]}
    unversioned = "application/vnd.kafka.json+json"  # Karapace's
    named = "application/json; charset=UTF-8"
    for accepted in (JSON, "application/json", named, JSON.upper(), unversioned):
        answer = daemon.request("POST", "/topics/typed", body, {"Content-Type": accepted})
        receipts(answer)
    for wrong in (
        "application/x-www-form-urlencoded",
        "text/plain",
        "application/octet-stream",
        "application/vnd.kafka.avro.v2+json",
        "application/vnd.kafka.protobuf.v2+json",
        "application/json; charset=latin-1",
        "",
        "/",
        V2,
    ):
        answer = daemon.request("POST", "/topics/typed", body, {"Content-Type": wrong})
        assert "application/vnd.kafka" in str(refused(answer, 415, 415)["message"]) or wrong != ""
    answer = daemon.request(
        "GET", "/topics/typed/partitions/0/records?offset=0", None, {"Accept": unversioned}
    )
    assert answer.headers["Content-Type"] == unversioned
    assert [each["value"] for each in answer.json] == [{"a": 1}] * 5
    assert end_offset(daemon, "typed") == 5


def test_more_records_than_allowed(daemon: Daemon) -> None:
    body = b'{"records":[' + b"{}," * 100_000 + b"{}]}"
    answer = daemon.request("POST", "/topics/typed", body, {"Content-Type": TEXT})
    refused(answer, 422, 42214)


def test_the_topics_rules_for_records(daemon: Daemon) -> None:
    """A null key on a compacted topic, a time outside the window, a set above segment.bytes."""
    daemon.create_topic("compacted", cleanup_policy="compact")
    body = refused_produce(produce(daemon, "compacted", {"value": "x"}), 422, 42212)
    assert body["kafka_error"] == "INVALID_RECORD"
    assert receipts(produce(daemon, "compacted", {"key": "k"})) == [(0, 0)]
    far = now_ms() + 7_200_000
    refused_produce(produce(daemon, "compacted", {"key": "k", "timestamp": far}), 422, 42211)
    daemon.create_topic("tiny", internal_segment_bytes="500")
    refused_produce(produce(daemon, "tiny", {"value": "x" * 600}), 413, 41304)
    assert end_offset(daemon, "compacted") == 1
    assert end_offset(daemon, "tiny") == 0


def test_a_large_request_goes_through_the_pool(daemon: Daemon) -> None:
    """20,000 records, 1.3 MB of JSON: prepared off the loop, the same receipts."""
    daemon.create_topic("many", max_message_bytes="10000000")
    records = [{"key": f"k{i}", "value": f"value-{i:050}"} for i in range(20_000)]
    assert receipts(produce(daemon, "many", *records)) == [(0, i) for i in range(20_000)]
    assert len(daemon.fetch_all("many")) == 20_000


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not here")
def test_curl_tells_of_each_line(daemon: Daemon) -> None:
    """The line that the documentation shows works: a receipt before the next line is written."""
    daemon.create_topic("curled-live")
    url = f"http://127.0.0.1:{daemon.port}/v1/topics/curled-live/records"
    command = ["curl", "-NT", ".", "--no-progress-meter", "-X", "POST", url]
    command += ["-H", f"Content-Type: {NDJSON}", "-H", f"Accept: {NDJSON}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as curl:
        assert curl.stdin is not None
        assert curl.stdout is not None
        for number in range(3):
            curl.stdin.write(lines({"value": number}))
            curl.stdin.flush()
            assert json.loads(curl.stdout.readline())["offset"] == number
        curl.stdin.close()
    assert curl.returncode == 0
