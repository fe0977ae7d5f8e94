"""Goal: bodies that are too large, compressed bombs or broken JSON cost little and append nothing.
Method: each bad body against a daemon with small limits; the topic stays empty, memory bounded.
"""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import pytest

from kafkalog.format.records import compression
from kafkalog.format.records.batch_builder import RecordColumns, build_batch
from kafkalog.format.records.record_batch import (
    CRC_AT,
    HEADER_BYTES,
    LOG_OVERHEAD,
    Codec,
    compute_crc,
)
from tests.integration.http_world import Wire, append, end_offset, parse_answers, refused

if TYPE_CHECKING:
    from tests.integration.daemon import Daemon

LIMIT = 2 << 20
SETTINGS = {"socket_request_max_bytes": str(LIMIT), "max_decompressed_batch_bytes": str(4 << 20)}
JSON_TYPE = {"Content-Type": "application/vnd.kafka.json.v2+json"}


@pytest.fixture(scope="module")
def topic(daemon: Daemon) -> str:
    """A topic that must stay empty."""
    daemon.create_topic("empty", max_message_bytes=str(1 << 30))
    return "empty"


def padded(size: int) -> bytes:
    """A good produce body of exactly this many bytes."""
    head, tail = b'{"records":[{"value":"', b'"}]}'
    return head + b"x" * (size - len(head) - len(tail)) + tail


def test_the_limit_itself_and_one_more(daemon: Daemon) -> None:
    """With Content-Length and chunked; the refusal comes and the daemon goes on."""
    daemon.create_topic("atlimit", max_message_bytes=str(1 << 30))
    path = "/topics/atlimit"
    assert daemon.request("POST", path, padded(LIMIT), JSON_TYPE).status == 200
    body = refused(daemon.request("POST", path, padded(LIMIT + 1), JSON_TYPE), 413, 41302)
    assert body["details"] == {"max_request_bytes": LIMIT}
    for size, status in ((LIMIT, 200), (LIMIT + 1, 413)):
        data = padded(size)
        chunks = b"".join(
            b"%x\r\n%b\r\n" % (len(data[at : at + 50_000]), data[at : at + 50_000])
            for at in range(0, size, 50_000)
        )
        with Wire(daemon) as wire:
            wire.send(
                b"POST /topics/atlimit HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
            wire.send(chunks + b"0\r\n\r\n")
            assert parse_answers(wire.read_to_close())[0].status == status
    assert end_offset(daemon, "atlimit") == 2
    small = {"topic_name": "x", "configs": {"retention.ms": "1" * 5_000_000}}
    refused(daemon.request("POST", "/admin/topics", small), 413, 41302)


def test_a_declared_giant_is_refused_before_its_body(daemon: Daemon, topic: str) -> None:
    with Wire(daemon) as wire:
        wire.send(
            f"POST /topics/{topic} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Content-Length: {1 << 62}\r\n\r\n".encode()
        )
        refused(wire.read_answer(), 413, 41302)
        assert wire.read_to_close() == b""


def test_http_bombs(daemon: Daemon, topic: str) -> None:
    """200 MiB of zeros in 200 kB of gzip: 413 while inflating, memory does not follow."""
    bomb = gzip.compress(bytes(200 << 20), 9)
    assert len(bomb) < LIMIT
    twice = gzip.compress(bomb)
    path = f"/topics/{topic}"
    before = daemon.rss_bytes()
    for data in (bomb, bomb, bomb):
        answer = daemon.request("POST", path, data, {**JSON_TYPE, "Content-Encoding": "gzip"})
        refused(answer, 413, 41302)
    answer = daemon.request("POST", path, twice, {**JSON_TYPE, "Content-Encoding": "gzip"})
    refused(answer, 400, 400)  # one layer is taken off; what is inside is no JSON
    assert daemon.rss_bytes() - before < 8 * LIMIT
    assert end_offset(daemon, topic) == 0


@pytest.mark.slow
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_bombs_inside_batches(daemon: Daemon, topic: str, codec: Codec) -> None:
    """64 MiB of zeros in one batch: 413/41303 at the limit of 4 MiB, whatever the codec."""
    payload = compression.compress(codec, bytes(64 << 20))
    head = build_batch(RecordColumns.of([None], [b"x"], 0))[:HEADER_BYTES]
    batch = bytearray(head + payload)
    batch[8:12] = (len(batch) - LOG_OVERHEAD).to_bytes(4, "big")
    batch[21:23] = int(codec).to_bytes(2, "big")
    batch[CRC_AT : CRC_AT + 4] = compute_crc(batch).to_bytes(4, "big")
    if len(batch) > LIMIT:  # snappy shrinks zeros twentyfold only: a bomb of what fits
        payload = compression.compress(codec, bytes(24 << 20))
        batch[HEADER_BYTES:] = payload
        batch[8:12] = (len(batch) - LOG_OVERHEAD).to_bytes(4, "big")
        batch[CRC_AT : CRC_AT + 4] = compute_crc(batch).to_bytes(4, "big")
    before = daemon.rss_bytes()
    for _ in range(3):
        refused(append(daemon, topic, bytes(batch)), 413, 41303)
    assert daemon.rss_bytes() - before < 48 << 20
    assert end_offset(daemon, topic) == 0


def nested(depth: int) -> bytes:
    return b'{"records":[{"value":' + b"[" * depth + b"]" * depth + b"}]}"


BAD_JSON = {
    "cut": b'{"records":[{"value":1}',
    "trailing comma": b'{"records":[{"value":1},]}',
    "two documents": b'{"records":[{"value":1}]}{}',
    "trailing bytes": b'{"records":[{"value":1}]} x',
    "comment": b'{"records":[{"value":1}]}//',
    "single quotes": b"{'records':[]}",
    "NaN": b'{"records":[{"value":NaN}]}',
    "Infinity": b'{"records":[{"value":[Infinity]}]}',
    "-Infinity": b'{"records":[{"value":-Infinity}]}',
    "plus": b'{"records":[{"value":+1}]}',
    "leading zero": b'{"records":[{"value":01}]}',
    "bare point": b'{"records":[{"value":1.}]}',
    "hex": b'{"records":[{"value":0x10}]}',
    "long number": b'{"records":[{"value":' + b"9" * 5000 + b"}]}",
    "BOM": b'\xef\xbb\xbf{"records":[{"value":1}]}',
    "UTF-16": '{"records":[{"value":1}]}'.encode("utf-16"),
    "latin-1": '{"records":[{"value":"é"}]}'.encode("latin-1"),
    "overlong": b'{"records":[{"value":"\xc0\xaf"}]}',
    "surrogate bytes": b'{"records":[{"value":"\xed\xa0\x80"}]}',
    "above Unicode": b'{"records":[{"value":"\xf4\x90\x80\x80"}]}',
    "cut UTF-8": b'{"records":[{"value":"\xe2\x82"}]}',
    "lone high surrogate": b'{"records":[{"value":"\\ud800"}]}',
    "lone low surrogate": b'{"records":[{"value":"\\udc00x"}]}',
    "bad escape": b'{"records":[{"value":"\\x41"}]}',
    "raw newline": b'{"records":[{"value":"a\nb"}]}',
    "raw NUL": b'{"records":[{"value":"a\0b"}]}',
    "duplicate key": b'{"records":[{"value":1,"value":2}]}',
    "duplicate records": b'{"records":[{"value":1}],"records":[{"value":2}]}',
    "escaped duplicate": b'{"records":[{"value":1,"v\\u0061lue":2}]}',
    "deep": nested(70),
    "very deep": nested(500_000),
    "half deep": b'{"records":[{"value":' + b'{"a":' * 300_000,
}


@pytest.mark.parametrize("name", sorted(BAD_JSON))
def test_bad_json(daemon: Daemon, topic: str, name: str) -> None:
    """400/400 on produce, and on a control-plane body too; nothing is appended or made."""
    refused(daemon.request("POST", f"/topics/{topic}", BAD_JSON[name], JSON_TYPE), 400, 400)
    data = BAD_JSON[name].replace(b'"records"', b'"topic_name"')
    refused(daemon.request("POST", "/admin/topics", data), 400, 400)
    assert end_offset(daemon, topic) == 0


def test_a_body_that_nobody_reads(daemon: Daemon, topic: str) -> None:
    """Of a native route that changes something: whoever sends one asks for what it does not do."""
    group = "/v1/groups/asked"
    commits = [{"topic": topic, "partition": 0, "offset": 0}]
    daemon.request("PUT", f"{group}/offsets", {"offsets": commits})
    for method, path in (
        ("DELETE", f"{group}/offsets"),
        ("DELETE", group),
        ("POST", "/v1/producers"),
        ("POST", f"/v1/topics/{topic}/partitions/0/log:roll"),
    ):
        answer = daemon.request(method, path, {"partitions": [{"topic": "other", "partition": 0}]})
        assert "reads no body, and nothing was done" in str(refused(answer, 422, 422)["message"])
    assert daemon.request("GET", f"{group}/offsets").json["offsets"][0]["topic"] == topic
    assert daemon.request("DELETE", f"{group}/offsets", {}).json["removed"] == 1


def test_an_empty_body(daemon: Daemon, topic: str) -> None:
    """422/42206 wherever a body is needed, as Confluent's v3; white space is no more."""
    cluster = daemon.cluster()
    for method, path in (
        ("POST", f"/topics/{topic}"),
        ("POST", f"/topics/{topic}/partitions/0"),
        ("POST", f"{cluster}/topics/{topic}/records"),
        ("POST", f"{cluster}/topics/{topic}/records:batch"),
        ("POST", f"/v1/topics/{topic}/records"),
        ("POST", "/admin/topics"),
        ("POST", f"{cluster}/topics"),
        ("POST", f"{cluster}/topics/-/configs:alter"),
        ("PUT", f"{cluster}/topics/{topic}/configs/retention.ms"),
        ("POST", "/v1/records:delete"),
    ):
        for body in (b"", b"  \n"):
            answer = daemon.request(method, path, body, {"Content-Type": "application/json"})
            refused(answer, 422, 42206)
    assert end_offset(daemon, topic) == 0


def test_values_are_kept_as_sent(daemon: Daemon) -> None:
    """What a value holds is the client's business: 50 levels, a member twice."""
    twice = b'{"records":[{"value":{"a":1,"a":2}}]}'
    assert daemon.request("POST", "/topics/deep", twice, JSON_TYPE).status == 200
    answer = daemon.request("POST", "/topics/deep", nested(50), JSON_TYPE)
    assert answer.status == 200


def test_a_charset_is_utf_8(daemon: Daemon, topic: str) -> None:
    """On every route that reads JSON: another would give other values, or none."""
    records = json.dumps({"records": [{"value": 1}]})
    cluster = daemon.cluster()
    for method, path, body in (
        ("POST", f"/topics/{topic}", records),
        ("POST", f"{cluster}/topics/{topic}/records", "{}"),
        ("POST", f"{cluster}/topics/{topic}/records:batch", '{"entries":[{"id":"a"}]}'),
        ("POST", f"/v1/topics/{topic}/records", '[{"value":1}]'),
        ("POST", f"{cluster}/topics", '{"topic_name":"no"}'),
        ("POST", "/consumers/charset", "{}"),
        ("PUT", f"{cluster}/topics/{topic}/configs/retention.ms", '{"value":"5"}'),
    ):
        for charset, said in (
            ("ISO-8859-1", "ISO-8859-1 is not decoded"),
            ('"latin1"', "ISO-8859-1 is not decoded"),
            ("utf-16", "The body must be UTF-8"),
            ("no-such", "The body must be UTF-8"),
            ("", "The body must be UTF-8"),
        ):
            headers = {"Content-Type": f"application/json;charset={charset}"}
            answer = daemon.request(method, path, body.encode(), headers)
            assert said in str(refused(answer, 415, 415)["message"]), (path, charset)
    assert end_offset(daemon, topic) == 0
    for charset in ("utf8", "UTF-8", '"utf-8"', "us-ascii"):
        headers = {"Content-Type": f"application/json; charset={charset}"}
        assert daemon.request("POST", "/consumers/charset", b"{}", headers).status == 200


def test_many_headers_in_a_record(daemon: Daemon, topic: str) -> None:
    """100,000 header names: taken or refused, in time, and the daemon goes on."""
    headers = [{"key": f"h{number}", "value": None} for number in range(30_000)]
    body = json.dumps({"records": [{"value": 1, "headers": headers}]}).encode()
    answer = daemon.request("POST", "/topics/headers", body, JSON_TYPE)
    assert answer.status in (200, 413, 422)
    assert daemon.request("GET", "/livez").status == 200
    assert end_offset(daemon, topic) == 0


def test_what_is_mistyped_is_named(daemon: Daemon, topic: str) -> None:
    """A field, an offset by its name, and a path."""
    wrong = daemon.request("POST", f"/topics/{topic}", {"record": []}, JSON_TYPE)
    assert "did you mean records?" in json.loads(wrong.body)["message"]
    reset = {"to": "earliest", "dry_rum": True}
    wrong = daemon.request("POST", "/v1/groups/g/offsets:reset", reset)
    assert "did you mean dry_run?" in json.loads(wrong.body)["message"]
    partition = f"/v1/topics/{topic}/partitions/0"
    for route in ("records", "batches"):
        wrong = daemon.request("GET", f"{partition}/{route}?offset=earliest")
        assert (wrong.status, b"offsets?spec=earliest" in wrong.body) == (400, True)
    assert b"GET /openapi.json" in daemon.request("GET", "/v1/topic").body
