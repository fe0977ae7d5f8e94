"""Goal: the native produce takes lines, arrays and single records, and tells of each what became.
Method: requests to a real daemon, whole and in pieces, read back over HTTP.
"""

from __future__ import annotations

import base64
import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.http_world import (
    Wire,
    check_sealed,
    end_offset,
    now_ms,
    read_batches,
    refused,
    stored,
)
from tests.integration.stream_world import NDJSON, Duplex, lines
from tests.partition_world import split_batches

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.integration.daemon import Answer, Daemon

SETTINGS = {"socket_request_max_bytes": str(2 << 20), "http_max_streams": "20"}


def produce(
    daemon: Daemon,
    path: str,
    data: bytes,
    content_type: str = NDJSON,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    return daemon.request(
        "POST", f"/v1/topics/{path}", data, {"Content-Type": content_type, **(headers or {})}
    )


def receipts_of(answer: Answer) -> list[Any]:
    assert answer.status == 200, answer.body
    assert answer.headers["Content-Type"] == NDJSON
    check_sealed(answer)
    return [json.loads(line) for line in answer.body.splitlines()]


def test_lines_and_their_summary(daemon: Daemon) -> None:
    """Key, value, headers, timestamp as sent; one batch; blank lines are nothing."""
    daemon.create_topic("lines")
    stamp = now_ms() - 5
    body = (
        b'{"key":"k1","value":{"a": 1.0, "b":12345678901234567890}}\r\n\n  \n'
        + lines({"value": "x", "timestamp": stamp, "headers": [{"key": "h", "value": "AAE="}]})
        + lines({"key": "gone", "value": None}, {})
        + b'{"value":"last"}'
    )
    answer = produce(daemon, "lines/records", body)
    assert answer.status == 200
    assert answer.headers["Kafka-Durability"] == "synced"
    assert answer.json == {
        "count": 5,
        "failed_count": 0,
        "partitions": [{"partition": 0, "count": 5, "base_offset": 0, "last_offset": 4}],
        "errors": [],
        "durability": "synced",
    }
    records = stored(daemon, "lines")
    assert [record.key for record in records] == [b"k1", None, b"gone", None, None]
    assert [record.value for record in records] == [
        b'{"a": 1.0, "b":12345678901234567890}',
        b'"x"',
        None,
        None,
        b'"last"',
    ]
    assert records[1].timestamp == stamp
    assert list(records[1].headers) == [(b"h", b"\0\1")]
    assert len(split_batches(read_batches(daemon, "lines", 0).body)) == 1


def test_receipts(daemon: Daemon) -> None:
    """A line each, in order, also of those that failed; a bad line takes no other with it."""
    daemon.create_topic("told", partitions=2)
    body = b"\n".join(
        (
            b'{"value":1,"partition":1}',
            b"no json",
            b'{"value":2,"partition":7}',
            b'{"vlaue":3}',
            b'{"value":4,"partition":1}',
            b'{"value":5,"timestamp":"noon"}',
            b'{"value":6,"headers":[{"key":"h","value":"?"}]}',
            b'{"value":[7',
            b"]}",
            b'{"value":8,"value":9}',
            b'{"value":{"x":1,"x":2},"partition":1}',
        )
    )
    told = receipts_of(produce(daemon, "told/records", body, headers={"Accept": NDJSON}))
    codes = [None, 400, 40402, 422, None, 422, 400, 400, 400, 400, None]
    assert [receipt["error_code"] for receipt in told] == codes
    assert [receipt["offset"] for receipt in told if receipt["error_code"] is None] == [0, 1, 2]
    assert {receipt["partition"] for receipt in told} == {1, None}
    failed = told[2]
    assert failed["kafka_error"] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert failed["retriable"] is False
    assert failed["message"] == failed["error"]
    plain = receipts_of(produce(daemon, "told/records", lines({}, {}), headers={"Accept": NDJSON}))
    assert [set(receipt) for receipt in plain] == [
        {"partition", "offset", "error_code", "error"}
    ] * 2


@pytest.mark.parametrize(
    ("body", "kind", "byte"),
    [
        (b"{bad", NDJSON, 1),
        (b'{"value":', NDJSON, 9),
        (b'{"value":1}\n{bad\n', NDJSON, 1),
        (b'[{"value":1},{bad]', "application/json", 14),
        (b"x", "application/json", 0),
    ],
)
def test_where_json_is_broken(daemon: Daemon, body: bytes, kind: str, byte: int) -> None:
    """The byte is one of the line, or of the array, that was sent."""
    told = produce(daemon, "where/records", body, kind).json
    message = told["errors"][0]["message"] if kind == NDJSON else told["message"]
    assert message.endswith(f"this is not JSON at byte {byte}")


def test_a_summary_names_what_failed(daemon: Daemon) -> None:
    """The number of the record and its error; a status of its own when all failed alike."""
    daemon.create_topic("partly")
    body = produce(daemon, "partly/records", b'{"value":1}\nx\n{"value":2}\n{"a":1}\n').json
    assert (body["count"], body["failed_count"]) == (2, 2)
    assert [(each["index"], each["error_code"]) for each in body["errors"]] == [(1, 400), (3, 422)]
    error = refused(produce(daemon, "partly/records", b"x\n" * 150), 400, 400)
    assert (error["count"], error["failed_count"]) == (0, 150)
    assert len(error["errors"]) == 100  # type: ignore[arg-type] # a list
    answer = produce(daemon, "partly/records", b'x\n{"a":1}\n')
    assert answer.status == 200
    assert answer.json["count"] == 0
    assert end_offset(daemon, "partly") == 2


FORMATS = {
    "json": (b'{"a": [1,2.50]}', b'{"a": [1,2.50]}'),
    "text": (b'"g\\u00fcn"', "gün".encode()),
    "base64": (b'"AAH/"', b"\0\1\xff"),
}


@pytest.mark.parametrize("key_format", FORMATS)
@pytest.mark.parametrize("value_format", FORMATS)
@pytest.mark.parametrize("is_array", [False, True])
def test_keys_and_values_in_formats_of_their_own(
    daemon: Daemon, key_format: str, value_format: str, *, is_array: bool
) -> None:
    """Nine pairs, in lines and arrays, with and without more than a pair."""
    topic = f"f-{key_format}-{value_format}-{is_array}"
    daemon.create_topic(topic)
    key, value = FORMATS[key_format], FORMATS[value_format]
    records = [b'{"key":%b,"value":%b}' % (key[0], value[0]), b'{"key":null,"value":null}']
    path = f"{topic}/records?key_format={key_format}&value_format={value_format}"
    for more in ([], [b'{"value":%b,"partition":0}' % value[0]]):
        each = [*records, *more]
        data = b"[%b]" % b",".join(each) if is_array else b"\n".join(each)
        answer = produce(daemon, path, data, "application/json" if is_array else NDJSON)
        assert answer.json["count"] == len(each), answer.body
    pairs = [(record.key, record.value) for record in stored(daemon, topic)]
    assert pairs == [(key[1], value[1]), (None, None)] * 2 + [(None, value[1])]


def test_an_array_is_taken_whole_or_not(daemon: Daemon) -> None:
    """One batch a partition; the wrong shape anywhere appends nothing."""
    daemon.create_topic("array", partitions=3)
    kind = "application/json; charset=utf-8"
    keyed = json.dumps([{"key": f"k{i}", "value": i} for i in range(50)]).encode()
    body = produce(daemon, "array/records", keyed, kind).json
    assert body["count"] == 50
    assert sum(each["count"] for each in body["partitions"]) == 50
    assert [each["base_offset"] for each in body["partitions"]] == [0, 0, 0]
    told = produce(daemon, "array/records", keyed, kind, {"Accept": NDJSON})
    assert len(receipts_of(told)) == 50
    empty = produce(daemon, "array/records", b" [] ", kind)
    assert (empty.status, empty.json["count"], empty.json["partitions"]) == (200, 0, [])
    for bad, status in (
        (b"", 422),
        (b"{}", 422),
        (b"[1]", 422),
        (b'[{"value":1},{"x":1}]', 422),
        (b'[{"value":1}', 400),
        (b'[{"value":1}],"x":[2]', 400),
        (b'[{"value":1}]}{', 400),
        (b'[{"value":NaN}]', 400),
        (b"[" + b"{}," * 100_000 + b"{}]", 422),
    ):
        answer = produce(daemon, "array/records", bad, kind)
        assert answer.status == status, bad[:30]
    refused(produce(daemon, "array/records", b"[" + b"{}," * 100_000 + b"{}]", kind), 422, 42214)
    assert sum(end_offset(daemon, "array", number) for number in range(3)) == 100


def test_one_record_as_it_is(daemon: Daemon) -> None:
    """Any bytes are a value; key and headers come in those of the request."""
    daemon.create_topic("raw")
    path = "raw/partitions/0/records"
    raw = bytes(range(256))
    octets = "application/octet-stream"
    first = produce(daemon, path, raw, octets, {"Kafka-Key": "k", "Kafka-Header-Trace-Id": "7"})
    assert first.json["partitions"] == [
        {"partition": 0, "count": 1, "base_offset": 0, "last_offset": 0}
    ]
    produce(daemon, path, b"", "text/plain; charset=utf-8")
    in_base64 = base64.b64encode(b"\0\xff").decode()
    produce(daemon, f"{path}?key_format=base64", b"b", octets, {"Kafka-Key": in_base64})
    produce(daemon, f"{path}?key_format=json", b"j", octets, {"Kafka-Key": '{"a": 1}'})
    told = produce(daemon, path, b"t", "text/plain", {"Accept": NDJSON})
    assert receipts_of(told)[0]["offset"] == 4
    produce(daemon, f"{path}?key_format=json", b"n", octets, {"Kafka-Key": "null"})
    records = stored(daemon, "raw")
    assert [record.value for record in records] == [raw, b"", b"b", b"j", b"t", b"n"]
    assert [record.key for record in records] == [b"k", None, b"\0\xff", b'{"a": 1}', None, None]
    assert list(records[0].headers) == [(b"Trace-Id", b"7")]
    refused(produce(daemon, f"{path}?value_format=text", b"x", octets), 400, 40005)
    bad = produce(daemon, f"{path}?key_format=base64", b"x", octets, {"Kafka-Key": "?"})
    refused(bad, 400, 400)
    bad = produce(daemon, f"{path}?key_format=json", b"x", octets, {"Kafka-Key": '1},{"key":2'})
    refused(bad, 400, 400)
    with Wire(daemon) as wire:
        head = "Host: x\r\nContent-Type: text/plain\r\nContent-Length: 1\r\n"
        wire.send(f"POST /v1/topics/{path} HTTP/1.1\r\n{head}Kafka-Key: a\r\n".encode())
        wire.send(b"Kafka-Key: b\r\n\r\nx")
        refused(wire.read_answer("POST"), 400, 400)
    assert end_offset(daemon, "raw") == 6


def test_expected_offset(daemon: Daemon) -> None:
    """The whole body follows the offset without a gap, or nothing of it is appended."""
    daemon.create_topic("expected", partitions=2)
    path = "expected/partitions/0/records?expected_offset="
    big = lines(*({"value": "x" * 1000, "key": str(i)} for i in range(1500)))
    assert produce(daemon, f"{path}0", big).json["partitions"][0]["last_offset"] == 1499
    error = refused(produce(daemon, f"{path}0", big), 412, 41201)
    assert error["count"] == 0
    mixed = produce(daemon, f"{path}1500", lines({"value": 1, "partition": 1}, {"value": 2})).json
    assert (mixed["count"], mixed["errors"][0]["error_code"]) == (1, 422)
    assert list(mixed["errors"][0])[:2] == ["index", "error_code"]
    assert (end_offset(daemon, "expected"), end_offset(daemon, "expected", 1)) == (1501, 0)
    refused(produce(daemon, f"{path}-1", b"{}"), 400, 40005)


def test_expected_offset_needs_a_partition(daemon: Daemon) -> None:
    answer = produce(daemon, "unguarded/records?expected_offset=3", lines({"value": 1}))
    assert (answer.status, answer.json["error_code"]) == (400, 40005)
    assert answer.json["details"] == {"parameter": "expected_offset"}
    assert "unguarded" not in daemon.request("GET", "/topics").json


def test_what_is_refused_before_a_record_is_read(daemon: Daemon) -> None:
    daemon.create_topic("refusing")
    told = {"Accept": NDJSON}
    wrong = produce(daemon, "refusing/records", b"{}", "application/x-www-form-urlencoded", told)
    assert NDJSON in str(refused(wrong, 415, 415)["message"])
    refused(produce(daemon, "refusing/records", b"{}", NDJSON, {"Accept": "text/html"}), 406, 406)
    refused(produce(daemon, "refusing/records?key_format=avro", b"{}", NDJSON, told), 400, 40005)
    refused(produce(daemon, "no-topic/partitions/3/records", b"{}", NDJSON, told), 404, 40401)
    encoded = produce(daemon, "refusing/records", b"{}", NDJSON, {**told, "Content-Encoding": "br"})
    refused(encoded, 415, 41502)
    assert end_offset(daemon, "refusing") == 0


def test_groups_are_split_where_a_limit_asks_for_it(daemon: Daemon) -> None:
    """Lines that come together never fail together by the size of a batch of our making."""
    daemon.create_topic("split", max_message_bytes="2000")
    values = ["x" * 300] * 40
    values[17] = "y" * 3000
    data = lines(*({"value": value} for value in values))
    told = receipts_of(produce(daemon, "split/records", data, headers={"Accept": NDJSON}))
    assert [each["error_code"] for each in told].count(41301) == 1
    assert told[17]["error_code"] == 41301
    kept = [number for number in range(40) if number != 17]
    assert [told[number]["offset"] for number in kept] == list(range(39))
    assert all(len(batch) <= 2000 for batch in split_batches(read_batches(daemon, "split", 0).body))
    assert len(stored(daemon, "split")) == 39


def test_a_topics_rules_are_for_each_record(daemon: Daemon) -> None:
    """A null key or a wrong time is that record's fault alone."""
    daemon.create_topic("ruled", cleanup_policy="compact", message_timestamp_after_max_ms="1000")
    far = now_ms() + 10**9
    data = lines(
        {"key": "a", "value": 1},
        {"value": 2},
        {"key": "b", "value": 3, "timestamp": far},
        {"key": "c", "value": 4},
    )
    told = receipts_of(produce(daemon, "ruled/records", data, headers={"Accept": NDJSON}))
    assert [each["error_code"] for each in told] == [None, 42212, 42211, None]
    assert [record.key for record in stored(daemon, "ruled")] == [b"a", b"c"]


def test_full_duplex(daemon: Daemon) -> None:
    """The status comes before the first line, a receipt before the next line is sent."""
    daemon.create_topic("duplex")
    headers = {"Content-Type": NDJSON, "Accept": NDJSON}
    with Duplex(daemon, "/v1/topics/duplex/records", headers) as wire:
        assert wire.answer.status == 200
        for number in range(50):
            wire.send(lines({"value": number}))
            assert wire.line()["offset"] == number
        wire.send(b'{"val')
        wire.send(b'ue":50}\n{"value"')
        assert wire.line()["offset"] == 50
        wire.send(b":51}")
        wire.finish()
        assert [each["offset"] for each in wire.rest()] == [51]
    assert len(stored(daemon, "duplex")) == 52


def test_compressed_lines(daemon: Daemon) -> None:
    """Gzip in a stream, receipts while it comes; what breaks off is said in the last line."""
    daemon.create_topic("zipped")
    headers = {"Content-Type": NDJSON, "Accept": NDJSON, "Content-Encoding": "gzip"}
    packed = gzip.compress(lines({"value": 1}, {"value": 2}))
    with Duplex(daemon, "/v1/topics/zipped/records", headers) as wire:
        wire.send(packed)
        assert (wire.line()["offset"], wire.line()["offset"]) == (0, 1)
        wire.send(packed[:-3])
        assert (wire.line()["offset"], wire.line()["offset"]) == (2, 3)
        wire.finish()
        (last,) = wire.rest()
        assert (last["error_code"], last["end_of_stream"]) == (40006, True)
    bomb = gzip.compress(b'{"value":"' + b"x" * (8 << 20) + b'"}')
    told = receipts_of(produce(daemon, "zipped/records", bomb, headers=headers))
    assert [(each["error_code"], each["end_of_stream"]) for each in told] == [(41302, True)]
    error = produce(daemon, "zipped/records", bomb, headers={"Content-Encoding": "gzip"})
    refused(error, 413, 41302)
    assert end_offset(daemon, "zipped") == 4


def test_only_a_record_creates_a_topic(daemon: Daemon) -> None:
    before = daemon.request("GET", "/topics").json
    path = "made-by-a-record/records"
    for kind, body, status in (
        (NDJSON, b"x\n", 400),
        (NDJSON, b'{"value":1,"partition":99}', 404),
        (NDJSON, b"", 200),
        ("application/json", b'[{"valeu":1}]', 422),
        ("application/json", b'[{"value":1,"partition":99}]', 404),
        ("application/json", b"[]", 200),
    ):
        assert produce(daemon, path, body, kind).status == status
        told = produce(daemon, path, body, kind, {"Accept": NDJSON})
        assert told.status in (200, status)
    assert daemon.request("GET", "/topics").json == before
    told = produce(daemon, path, b'x\n{"value":1}\n', headers={"Accept": NDJSON})
    assert [each["error_code"] for each in receipts_of(told)] == [400, None]
    assert daemon.request("GET", "/topics").json == sorted([*before, "made-by-a-record"])
