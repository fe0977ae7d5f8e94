"""Goal: idempotent produce over HTTP: ids, epochs, retries, gaps and fences as documented.
Method: a real daemon, batches with producers, restarts orderly and by SIGKILL; two principals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.access_world import access_settings, ask
from tests.integration.daemon import Daemon
from tests.integration.http_world import append, batch_of, refused

if TYPE_CHECKING:
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
    """404 for ids that nobody has, in any spelling."""
    given = new_producer(daemon)
    for text in ("x", "-1", "+1", "1.0", "9" * 19, "9" * 30, "0", str(given + 1), "%00"):
        refused(daemon.request("POST", f"/v1/producers/{text}:bump"), 404, 404)
    assert new_producer(daemon) == given + 1


@pytest.mark.gate
@pytest.mark.parametrize("is_orderly", [True, False])
def test_producers_survive_a_restart(tmp_path: Path, is_orderly: bool) -> None:
    """No id twice, retries are still recognised, old epochs are still refused."""
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
