"""Goal: records in JSON, lines or as they are can be sent again without harm, as raw batches can.
Method: a real daemon; the three headers right, halved, out of range; retries, gaps, old epochs.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.integration.http_world import batch_of, end_offset, refused

if TYPE_CHECKING:
    from tests.integration.daemon import Answer, Daemon

NDJSON, TEXT = "application/x-ndjson", "text/plain"


def names(producer_id: object, epoch: object = 0, sequence: object = 0) -> dict[str, str]:
    """The three headers."""
    return {
        "Kafka-Producer-Id": str(producer_id),
        "Kafka-Producer-Epoch": str(epoch),
        "Kafka-Base-Sequence": str(sequence),
    }


def new_producer(daemon: Daemon) -> int:
    producer_id = daemon.request("POST", "/v1/producers").json["producer_id"]
    assert isinstance(producer_id, int)
    return producer_id


def send(
    daemon: Daemon,
    topic: str,
    body: bytes,
    headers: dict[str, str],
    kind: str = "application/json",
) -> Answer:
    path = f"/v1/topics/{topic}/partitions/0/records"
    return daemon.request("POST", path, body, {"Content-Type": kind, **headers})


def array(*values: object) -> bytes:
    return json.dumps([{"value": value} for value in values]).encode()


def lines(*values: object) -> bytes:
    return b"\n".join(json.dumps({"value": value}).encode() for value in values)


@pytest.mark.parametrize(
    ("kind", "body", "count"),
    [
        ("application/json", array(1, 2, 3), 3),
        (NDJSON, lines(*range(2000)), 2000),
        (TEXT, b"one", 1),
        ("application/octet-stream", b"\x00", 1),
    ],
)
def test_the_same_request_again(daemon: Daemon, kind: str, body: bytes, count: int) -> None:
    """One batch, stored once, answered alike."""
    topic = f"again-{count}-{kind.rpartition('/')[2]}"
    daemon.create_topic(topic)
    send(daemon, topic, array("before"), {})
    producer_id = new_producer(daemon)
    first = send(daemon, topic, body, names(producer_id), kind).json
    expected = {"partition": 0, "count": count, "base_offset": 1, "last_offset": count}
    assert first["partitions"] == [expected]
    assert "duplicate" not in first
    again = send(daemon, topic, body, names(producer_id), kind).json
    assert again == {**first, "duplicate": True}
    assert end_offset(daemon, topic) == 1 + count
    next_one = send(daemon, topic, body, names(producer_id, sequence=count), kind).json
    assert next_one["partitions"][0]["base_offset"] == 1 + count
    gap = refused(
        send(daemon, topic, body, names(producer_id, sequence=9 * count), kind), 409, 40905
    )
    assert gap["details"] == {"expected_sequence": 2 * count}
    daemon.request("POST", f"/v1/producers/{producer_id}:bump")
    late = send(daemon, topic, body, names(producer_id, sequence=2 * count), kind)
    assert refused(late, 409, 40906)["details"] == {"current_epoch": 1}
    assert send(daemon, topic, body, names(producer_id, 1), kind).status == 200


def test_receipts_of_a_retry(daemon: Daemon) -> None:
    """Who asks for lines gets the first offsets again."""
    daemon.create_topic("receipts-again")
    headers = names(new_producer(daemon)) | {"Accept": NDJSON}
    answers = [send(daemon, "receipts-again", lines(1, 2), headers, NDJSON) for _ in range(2)]
    assert answers[0].body == answers[1].body
    assert [json.loads(line)["offset"] for line in answers[0].body.splitlines()] == [0, 1]


@pytest.mark.parametrize("missing", range(3))
@pytest.mark.parametrize("value", [None, "", "x", "-1", "+1", "1.5", "1,2", "1" * 20])
def test_all_three_or_none(daemon: Daemon, missing: int, value: str | None) -> None:
    """No append is taken for idempotent by half; each header is a number in its range."""
    headers = names(7)
    name = list(headers)[missing]
    if value is None:
        del headers[name]
    else:
        headers[name] = value
    body = refused(send(daemon, "headers-wrong", array(1), headers), 400, 40005)
    assert body["details"] == {"parameter": name}


@pytest.mark.parametrize(
    ("producer_id", "epoch", "sequence"), [(2**63, 0, 0), (1, 2**15, 0), (1, 0, 2**31)]
)
def test_numbers_that_are_too_large(
    daemon: Daemon, producer_id: int, epoch: int, sequence: int
) -> None:
    """What a batch's header cannot hold is refused."""
    refused(
        send(daemon, "headers-wrong", array(1), names(producer_id, epoch, sequence)), 400, 40005
    )
    largest = names(2**63 - 1 - epoch, 2**15 - 1, 2**31 - 1)
    assert send(daemon, "headers-largest", array(1), largest).status in (200, 409)


def test_a_producers_records_go_to_one_partition(daemon: Daemon) -> None:
    """Sequences belong to a partition, so it is in the path, and all records go there."""
    daemon.create_topic("one-partition", partitions=2)
    headers = names(new_producer(daemon))
    path = "/v1/topics/one-partition/records"
    refused(daemon.request("POST", path, array(1), headers), 400, 40005)
    other = b'[{"value":1},{"value":2,"partition":1}]'
    refused(send(daemon, "one-partition", other, headers), 422, 422)
    refused(send(daemon, "one-partition", b'{"value":1}\n{"x":1}', headers, NDJSON), 422, 422)
    refused(send(daemon, "one-partition", b'{"value":1}\n{', headers, NDJSON), 400, 400)
    assert end_offset(daemon, "one-partition") == 0
    same = b'[{"value":1},{"value":2,"partition":0}]'
    assert send(daemon, "one-partition", same, headers).json["count"] == 2


@pytest.mark.parametrize(
    ("bad", "status", "words"),
    [(b"{bad", 400, "at byte 1"), (b'{"valeu":1}', 422, "Unrecognized field: `valeu`")],
)
def test_which_line_is_bad(daemon: Daemon, bad: bytes, status: int, words: str) -> None:
    """Of lines that are read whole, the answer says which one the client has to mend."""
    body = lines(1, 2) + b"\n\n" + bad + b"\n" + lines(4)
    answer = send(daemon, "bad-line", body, names(7), NDJSON)
    assert answer.status == status
    assert answer.json["details"] == {"index": 2}
    assert answer.json["message"].endswith(words)


@pytest.mark.parametrize(
    ("path", "kind", "body"),
    [
        ("/topics/{t}", "application/json", b'{"records":[{"value":1}]}'),
        ("/topics/{t}/partitions/0", "application/json", b'{"records":[{"value":1}]}'),
        ("/v3/clusters/{c}/topics/{t}/records", "application/json", b"{}"),
        (
            "/v3/clusters/{c}/topics/{t}/records:batch",
            "application/json",
            b'{"entries":[{"id":"a"}]}',
        ),
        ("/v1/topics/{t}/partitions/0/batches", "application/octet-stream", batch_of(b"v")),
    ],
)
def test_routes_that_cannot_keep_the_promise_refuse_it(
    daemon: Daemon, path: str, kind: str, body: bytes
) -> None:
    """Nobody takes an append for one that can be sent again, and so appends it twice."""
    topic = "unkept"
    if daemon.request("GET", f"/topics/{topic}").status != 200:
        daemon.create_topic(topic)
    (cluster,) = daemon.request("GET", "/v3/clusters").json["data"]
    path = path.format(t=topic, c=cluster["cluster_id"])
    end = end_offset(daemon, topic)
    for name, value in names(new_producer(daemon)).items():
        answer = daemon.request("POST", path, body, {"Content-Type": kind, name: value})
        assert refused(answer, 400, 40005)["details"] == {"parameter": name}
    assert end_offset(daemon, topic) == end
    answer = daemon.request("POST", path, body, {"Content-Type": kind})
    assert answer.status in (200, 207), answer.body
    assert end_offset(daemon, topic) == end + 1
