"""Goal: idempotent produce over HTTP, of batches and by headers: ids, epochs, retries, gaps and
fences as documented; what a Kafka left open in an adopted directory is ended by whom it may.
Method: a real daemon, batches with producers, restarts orderly and by SIGKILL; two principals.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.client import Client, Conflict
from tests.integration.access_world import access_settings, ask
from tests.integration.daemon import Daemon
from tests.integration.http_world import append, batch_of, end_offset, refused
from tests.integration.test_cli_over_http import done, run as run_cli
from tests.open_transactions import left_open

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.daemon import Answer


def new_producer(daemon: Daemon) -> int:
    answer = daemon.request("POST", "/v1/producers")
    assert answer.status == 200, answer.body
    assert answer.json["producer_epoch"] == 0
    producer_id = answer.json["producer_id"]
    assert isinstance(producer_id, int)
    return producer_id


def bump(daemon: Daemon, producer_id: int) -> Answer:
    return daemon.request("POST", f"/v1/producers/{producer_id}:bump")


def send(
    daemon: Daemon, topic: str, producer_id: int, epoch: int, sequence: int, count: int = 1
) -> Answer:
    values = (b"v%d" % number for number in range(sequence, sequence + count))
    return append(
        daemon,
        topic,
        batch_of(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence),
    )


def test_retries_gaps_and_stale_epochs(daemon: Daemon) -> None:
    """200 with the first offsets for the last five batches, 409 for what does not fit."""
    daemon.create_topic("idempotent")
    producer_id = new_producer(daemon)
    sequences, first_answers = [0], []
    for count in range(1, 8):
        answer = send(daemon, "idempotent", producer_id, 0, sequences[-1], count)
        assert answer.json["duplicate"] is False
        first_answers.append(answer.json)
        sequences.append(sequences[-1] + count)
    for number in range(2, 7):
        repeated = send(daemon, "idempotent", producer_id, 0, sequences[number], number + 1)
        assert repeated.json == {**first_answers[number], "duplicate": True}
    for sequence in (sequences[-1] + 1, sequences[1]):
        body = refused(send(daemon, "idempotent", producer_id, 0, sequence), 409, 40905)
        assert body["details"] == {"expected_sequence": sequences[-1]}
        assert body["kafka_error"] == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert bump(daemon, producer_id).json == {"producer_id": producer_id, "producer_epoch": 1}
    body = refused(send(daemon, "idempotent", producer_id, 0, sequences[-1]), 409, 40906)
    assert body["details"] == {"current_epoch": 1}
    assert body["kafka_error"] == "INVALID_PRODUCER_EPOCH"
    body = refused(send(daemon, "idempotent", producer_id, 1, 3), 409, 40905)
    assert body["details"] == {"expected_sequence": 0}
    assert send(daemon, "idempotent", producer_id, 1, 0).json["base_offset"] == sequences[-1]


def test_what_is_no_producer(daemon: Daemon) -> None:
    given = new_producer(daemon)
    for text in ("x", "-1", "+1", "1.0", "9" * 19, "9" * 30, "0", str(given + 1), "%00"):
        refused(daemon.request("POST", f"/v1/producers/{text}:bump"), 404, 404)
    assert new_producer(daemon) == given + 1


@pytest.mark.gate
@pytest.mark.parametrize("is_orderly", [True, False])
def test_producers_survive_a_restart(tmp_path: Path, is_orderly: bool) -> None:
    with Daemon(tmp_path) as daemon:
        daemon.create_topic("t", partitions=2)
        kept, bumped = new_producer(daemon), new_producer(daemon)
        answer = send(daemon, "t", kept, 0, 0, 2).json
        assert bump(daemon, bumped).json["producer_epoch"] == 1
        if is_orderly:
            daemon.stop()
        else:
            daemon.kill()
        daemon.start()
        assert new_producer(daemon) > bumped
        assert send(daemon, "t", kept, 0, 0, 2).json == {**answer, "duplicate": True}
        refused(send(daemon, "t", kept, 0, 1), 409, 40905)
        refused(send(daemon, "t", bumped, 0, 0), 409, 40906)
        assert bump(daemon, bumped).json["producer_epoch"] == 2


def test_who_may_write_somewhere_may_be_a_producer(tmp_path: Path) -> None:
    """Kafka's idempotent write (KIP-679): the right to write to some topic is enough."""
    rules = (
        "allow reader read topic *\nallow writer write,create topic t-*\n"
        "allow denied write topic t-1\ndeny denied write topic t-*\n"
    )
    with Daemon(tmp_path, **access_settings(tmp_path, rules)) as daemon:
        given = ask(daemon, "writer", "POST", "/v1/producers")
        assert given.status == 200, given.body
        path = f"/v1/producers/{given.json['producer_id']}:bump"
        assert ask(daemon, "writer", "POST", path).status == 200
        for principal in ("reader", "denied"):
            refused(ask(daemon, principal, "POST", "/v1/producers"), 403, 40301)
            refused(ask(daemon, principal, "POST", path), 403, 40301)
        listing = "/v1/topics/t-1/partitions/0/producers"
        refused(ask(daemon, "writer", "GET", listing), 403, 40301)
        refused(ask(daemon, "reader", "GET", listing), 404, 40401)
        refused(ask(daemon, "writer", "GET", "/metrics"), 403, 40301)


NDJSON, TEXT = "application/x-ndjson", "text/plain"


def names(producer_id: object, epoch: object = 0, sequence: object = 0) -> dict[str, str]:
    return {
        "Kafka-Producer-Id": str(producer_id),
        "Kafka-Producer-Epoch": str(epoch),
        "Kafka-Base-Sequence": str(sequence),
    }


def send_records(
    daemon: Daemon, topic: str, body: bytes, headers: dict[str, str], kind: str = "application/json"
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
    topic = f"again-{count}-{kind.rpartition('/')[2]}"
    daemon.create_topic(topic)
    send_records(daemon, topic, array("before"), {})
    producer_id = new_producer(daemon)
    first = send_records(daemon, topic, body, names(producer_id), kind).json
    expected = {"partition": 0, "count": count, "base_offset": 1, "last_offset": count}
    assert first["partitions"] == [expected]
    assert "duplicate" not in first
    again = send_records(daemon, topic, body, names(producer_id), kind).json
    assert again == {**first, "duplicate": True}
    assert end_offset(daemon, topic) == 1 + count
    next_one = send_records(daemon, topic, body, names(producer_id, sequence=count), kind).json
    assert next_one["partitions"][0]["base_offset"] == 1 + count
    gap = refused(
        send_records(daemon, topic, body, names(producer_id, sequence=9 * count), kind), 409, 40905
    )
    assert gap["details"] == {"expected_sequence": 2 * count}
    daemon.request("POST", f"/v1/producers/{producer_id}:bump")
    late = send_records(daemon, topic, body, names(producer_id, sequence=2 * count), kind)
    assert refused(late, 409, 40906)["details"] == {"current_epoch": 1}
    assert send_records(daemon, topic, body, names(producer_id, 1), kind).status == 200


def test_receipts_of_a_retry(daemon: Daemon) -> None:
    daemon.create_topic("receipts-again")
    headers = names(new_producer(daemon)) | {"Accept": NDJSON}
    answers = [
        send_records(daemon, "receipts-again", lines(1, 2), headers, NDJSON) for _ in range(2)
    ]
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
    body = refused(send_records(daemon, "headers-wrong", array(1), headers), 400, 40005)
    assert body["details"] == {"parameter": name}


@pytest.mark.parametrize(
    ("producer_id", "epoch", "sequence"), [(2**63, 0, 0), (1, 2**15, 0), (1, 0, 2**31)]
)
def test_numbers_that_are_too_large(
    daemon: Daemon, producer_id: int, epoch: int, sequence: int
) -> None:
    """What a batch's header cannot hold is refused."""
    refused(
        send_records(daemon, "headers-wrong", array(1), names(producer_id, epoch, sequence)),
        400,
        40005,
    )
    largest = names(2**63 - 1 - epoch, 2**15 - 1, 2**31 - 1)
    assert send_records(daemon, "headers-largest", array(1), largest).status in (200, 409)


def test_a_producers_records_go_to_one_partition(daemon: Daemon) -> None:
    """Sequences belong to a partition, so it is in the path, and all records go there."""
    daemon.create_topic("one-partition", partitions=2)
    headers = names(new_producer(daemon))
    path = "/v1/topics/one-partition/records"
    refused(daemon.request("POST", path, array(1), headers), 400, 40005)
    other = b'[{"value":1},{"value":2,"partition":1}]'
    refused(send_records(daemon, "one-partition", other, headers), 422, 422)
    refused(
        send_records(daemon, "one-partition", b'{"value":1}\n{"x":1}', headers, NDJSON), 422, 422
    )
    refused(send_records(daemon, "one-partition", b'{"value":1}\n{', headers, NDJSON), 400, 400)
    assert end_offset(daemon, "one-partition") == 0
    same = b'[{"value":1},{"value":2,"partition":0}]'
    assert send_records(daemon, "one-partition", same, headers).json["count"] == 2


@pytest.mark.parametrize(
    ("bad", "status", "words"),
    [
        (b"{bad", 400, "at byte 1"),
        (b'{"valeu":1}', 422, "Unrecognized field: `valeu`; did you mean value?"),
    ],
)
def test_which_line_is_bad(daemon: Daemon, bad: bytes, status: int, words: str) -> None:
    """Of lines that are read whole, the answer says which one the client has to mend."""
    body = lines(1, 2) + b"\n\n" + bad + b"\n" + lines(4)
    answer = send_records(daemon, "bad-line", body, names(7), NDJSON)
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


PATH = "/v1/topics/adopted/partitions/0/transactions:abort"


@pytest.fixture
def lone(tmp_path: Path) -> Iterator[Daemon]:
    """``adopted-0``: two records of an open transaction, then one of nobody's."""
    daemon = Daemon(tmp_path)
    directory = daemon.log_dirs[0] / "adopted-0"
    directory.mkdir(parents=True)
    (directory / "00000000000000000000.log").write_bytes(left_open(7, "open", "too"))
    with daemon:
        assert append(daemon, "adopted", batch_of(b"x")).status == 200
        yield daemon


def test_over_http(lone: Daemon) -> None:
    refused(lone.request("POST", PATH, {"start_offset": 1}), 409, 40908)
    refused(lone.request("POST", PATH, {}), 422, 422)
    refused(lone.request("POST", PATH, {"start_offset": -1}), 422, 422)
    refused(lone.request("POST", PATH.replace("/0/", "/9/"), {"start_offset": 0}), 404, 40402)
    refused(lone.request("POST", PATH.replace("adopted", "no"), {"start_offset": 0}), 404, 40401)
    answer = lone.request("POST", PATH, {"start_offset": 0})
    assert answer.status == 200, answer.body
    assert answer.json == {
        "topic": "adopted",
        "partition": 0,
        "producer_id": 7,
        "producer_epoch": 0,
        "start_offset": 0,
        "last_stable_offset": 4,
    }
    lone.kill()
    lone.start()
    refused(lone.request("POST", PATH, {"start_offset": 0}), 409, 40908)
    with Client(f"http://127.0.0.1:{lone.port}") as client:
        found = client.fetch("adopted", 0, 0, isolation="read_committed")
        assert [each.value for each in found.records] == [b"x"]
        with pytest.raises(Conflict) as conflict:
            client.abort_transaction("adopted", 0, 0)
        assert conflict.value.details["first_open_offset"] is None
    audited = [
        line for line in lone.log_path.read_text().splitlines() if "abortTransaction" in line
    ]
    assert len(audited) >= 2


def test_by_the_command_line(lone: Daemon) -> None:
    listed: Any = json.loads(
        done(run_cli(lone, "transactions", "list", "adopted", "--output", "json"))
    )
    (entry,) = listed["transactions"]
    assert (entry["partition"], entry["start_offset"], entry["producer_id"]) == (0, 0, 7)
    words = ("transactions", "abort", "adopted", "--partition", "0", "--start-offset")
    wrong = run_cli(lone, *words, "1")
    assert wrong.returncode == 1
    assert b"No open transaction begins at offset 1" in wrong.stderr
    assert done(run_cli(lone, *words, "0")) == (
        b"Aborted the transaction of producer 7 in adopted-0: committed records are readable below "
        b"4\n"
    )
    assert done(run_cli(lone, "transactions", "list", "adopted")) == (
        b"TOPIC  PARTITION  START-OFFSET  PRODUCER-ID  EPOCH  LAST-TIMESTAMP\n"
    )
