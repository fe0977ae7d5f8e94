"""Goal: v3's produce takes concatenated JSON and tells of each record as the REST Proxy does.
Method: requests to a real daemon, whole and in pieces, read back over HTTP.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.http_world import b64, check_sealed, end_offset, refused, stored
from tests.integration.stream_world import Duplex

if TYPE_CHECKING:
    from tests.integration.daemon import Answer, Daemon

SETTINGS = {"http_max_batch_entries": "20"}
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def cluster(daemon: Daemon) -> str:
    return daemon.cluster()


def receipts_of(answer: Answer) -> list[Any]:
    assert answer.status == 200, answer.body
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.body.endswith(b"\r\n")
    check_sealed(answer)
    return [json.loads(line) for line in answer.body.split(b"\r\n")[:-1]]


def test_types(daemon: Daemon, cluster: str) -> None:
    """Each type, none said, null and absent; a bad one in the stream takes no other with it."""
    daemon.create_topic("types")
    values: list[tuple[object, int, bytes | None]] = [
        ({"type": "STRING", "data": "grün"}, 200, "grün".encode()),
        ({"type": "JSON", "data": "x"}, 200, b'"x"'),
        ({"data": b64(b"\0\1")}, 200, b"\0\1"),
        ({"type": "JSON", "data": None}, 200, None),
        ({"type": "STRING"}, 200, None),
        (None, 200, None),
        ({"type": "BINARY", "data": ""}, 200, b""),
        ({"type": "STRING", "data": 5}, 400, None),
        ({"type": "BINARY", "data": "no base64"}, 400, None),
        ({"type": "BINARY", "data": 5}, 400, None),
        ({"type": "AVRO", "data": {}}, 422, None),
        ({"schema_id": 1, "data": {}}, 400, None),
        ("bare", 400, None),
    ]
    body = "".join(json.dumps({"value": value}) for value, _, _ in values).encode()
    told = receipts_of(daemon.request("POST", f"{cluster}/topics/types/records", body))
    assert [each["error_code"] for each in told] == [code for _, code, _ in values]
    good = [text for _, code, text in values if code == 200]
    assert [record.value for record in stored(daemon, "types")] == good
    sizes = [each["value"]["size"] if "value" in each else None for each in told[: len(good)]]
    assert sizes == [5, 3, 2, 0, 0, None, 0]
    assert all("key" not in each for each in told)
    assert all(each["message"] for each in told[len(good) :])
    for part in ("key", "value"):
        bad = [json.dumps({part: value}) for value, code, _ in values if code != 200]
        body = "".join(bad).encode()
        told = receipts_of(daemon.request("POST", f"{cluster}/topics/types/records", body))
        assert all(f"$.{part}" in each["message"] for each in told), told
    mixed = (
        b'{"partition_id":9,"value":{"data":""}}{"partition_id":-1}{"timestamp":"noon"}'
        b'{"partition_id":"0"}{"vlaue":{"data":""}}{"headers":{}}[]'
    )
    told = receipts_of(daemon.request("POST", f"{cluster}/topics/types/records", mixed))
    assert [each["error_code"] for each in told] == [40403, *[400] * 6]


def test_full_duplex(daemon: Daemon, cluster: str) -> None:
    """The receipt of a record comes before the next is sent, with no line end between them."""
    daemon.create_topic("duplex")
    with Duplex(daemon, f"{cluster}/topics/duplex/records", JSON) as wire:
        for number in range(20):
            wire.send(b'{"value":{"type":"JSON","data":%d}}' % number)
            assert wire.line()["offset"] == number
        wire.send(b'{"value":{"type":"STR')
        wire.send(b'ING","data":"x"}}')
        assert wire.line()["offset"] == 20
        wire.send(b"{}{}")
        wire.finish()
        assert [each["offset"] for each in wire.rest()] == [21, 22]
    assert len(stored(daemon, "duplex")) == 23


@pytest.mark.parametrize("tail", [b"{]{}", b",{}", b'{"value":tru}{}', b'{"value":', b"5{}"])
def test_what_is_no_json_ends_the_stream(daemon: Daemon, cluster: str, tail: bytes) -> None:
    """What came before is appended and told of, then one error, then the end."""
    topic = f"ends{tail.hex()}"
    daemon.create_topic(topic)
    path = f"{cluster}/topics/{topic}/records"
    told = receipts_of(daemon.request("POST", path, b"{}{}" + tail))
    assert [each["error_code"] for each in told] == [200, 200, 400]
    assert end_offset(daemon, topic) == 2
    assert daemon.request("POST", path, b"{}").status == 200


def test_what_is_refused_before_the_first_receipt(daemon: Daemon, cluster: str) -> None:
    daemon.create_topic("refusing")
    path = f"{cluster}/topics/refusing/records"
    for empty in (b"", b" \r\n "):
        refused(daemon.request("POST", path, empty, JSON), 422, 42206)
    refused(daemon.request("POST", path, b"x", JSON), 400, 400)
    refused(daemon.request("POST", path, b"{}", {"Content-Type": "text/plain"}), 415, 415)
    refused(daemon.request("POST", "/v3/clusters/x/topics/refusing/records", b"{}"), 404, 40403)
    refused(daemon.request("POST", f"{path}?acks=2", b"{}"), 400, 40005)
    answer = daemon.request("POST", f"{path}?acks=0", b"{}{}")
    assert (answer.status, answer.body) == (202, b"")
    daemon.produce_text("refusing", "last")
    assert end_offset(daemon, "refusing") == 3


def test_times_beyond_any_calendar(daemon: Daemon, cluster: str) -> None:
    daemon.create_topic("late")
    body = b'{"timestamp":9223372036854775807}{"timestamp":-1}'
    told = receipts_of(daemon.request("POST", f"{cluster}/topics/late/records", body))
    codes = [each["error_code"] for each in told]
    assert codes in ([200, 200], [42211, 200])
    assert told[1]["timestamp"] == "1969-12-31T23:59:59.999Z"


def test_batches_that_are_refused(daemon: Daemon, cluster: str) -> None:
    """The rules of a batch are looked at before anything is appended."""
    daemon.create_topic("strict")
    path = f"{cluster}/topics/strict/records:batch"

    def entries(*ids: str) -> object:
        return {"entries": [{"id": each} for each in ids]}

    refused(daemon.request("POST", path, entries()), 422, 42208)
    refused(daemon.request("POST", path, entries(*map(str, range(21)))), 422, 42208)
    refused(daemon.request("POST", path, entries("a", "b", "a")), 422, 42208)
    for bad in (entries("a", ""), entries("x" * 81), {"entries": [{}]}, {"records": []}, []):
        refused(daemon.request("POST", path, bad), 422, 422)
    refused(daemon.request("POST", path, b'{"entries":[{"id":"a","id":"b"}]}', JSON), 400, 400)
    refused(daemon.request("POST", path, b'{"entries":[{"id":"a"}]', JSON), 400, 400)
    refused(daemon.request("POST", path, b"", JSON), 422, 42206)
    assert end_offset(daemon, "strict") == 0
    answer = daemon.request("POST", path, entries(*map(str, range(20))))
    assert [each["offset"] for each in answer.json["successes"]] == list(range(20))
    assert daemon.request("POST", f"{path}?acks=0", entries("a")).status == 202
