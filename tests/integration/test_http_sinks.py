"""Goal: exactly-once sinks over HTTP do what docs/reference/http-sinks.md says, through kills and
slow disks.
Method: real daemons, both clients, transactional batches; SIGKILL at each step.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import islice
from typing import TYPE_CHECKING

import pytest

from kafkalog.client import Client, ClientError, Conflict, ProducerFenced, Retries, SinkWinner
from tests.integration.access_world import access_settings, ask
from tests.integration.client_world import KINDS, client_of
from tests.integration.daemon import TEXT, Answer, Daemon, GatedDaemon
from tests.integration.http_world import append, batch_of, refused

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kafkalog.client import SinkProducer


@pytest.fixture(params=KINDS)
def client(request: pytest.FixtureRequest, daemon: Daemon) -> Iterator[Client]:
    with client_of(request.param, f"http://127.0.0.1:{daemon.port}") as made:
        yield made


def transactional(producer: SinkProducer, sequence: int, *values: bytes) -> bytes:
    return batch_of(
        *values,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=sequence,
        is_transactional=True,
    )


def begun(client: Client, query: str, batch_id: int, partition_id: int = 0) -> SinkProducer:
    producer = client.begin_sink(query, batch_id, partition_id)
    assert producer is not None
    return producer


def committed(client: Client, topic: str, partition: int = 0) -> list[bytes]:
    """What a reader of committed records sees."""
    found = client.tail(
        topic, partition, start="earliest", is_endless=False, isolation="read_committed"
    )
    return [record.value or b"" for record in found]


def call(daemon: Daemon, query: str, action: str, **body: object) -> Answer:
    return daemon.request("POST", f"/v1/sinks/{query}:{action}", body)


def test_a_batch(client: Client, daemon: Daemon, request: pytest.FixtureRequest) -> None:
    """Shown at the commit, whole: two tasks, one beaten by its second attempt; each call again."""
    topic = query = f"sink-{request.node.callspec.id}"
    client.create_topic(topic, partitions=2)
    loser, other = begun(client, query, 4), begun(client, query, 4, 1)
    winner = client.begin_sink(query, 4, 0, attempt=1)
    assert winner is not None
    for producer, partition, value in ((loser, 0, b"x"), (winner, 0, b"a"), (other, 1, b"b")):
        receipt = client.append_batches(topic, partition, transactional(producer, 0, value))
        assert receipt.durability == "synced"
    assert committed(client, topic) == []
    described = client.describe_sink(query)
    assert (described["state"], described["open_batch_id"]) == ("open", 4)
    assert [
        (each["partition_id"], each["attempt"], each["is_open"]) for each in described["producers"]
    ] == [(0, 0, True), (0, 1, True), (1, 0, True)]
    winners = [
        SinkWinner(winner.producer_id, winner.producer_epoch, [(topic, 0)]),
        SinkWinner(other.producer_id, other.producer_epoch, [(topic, 1)]),
    ]
    for _ in range(2):
        client.commit_sink(query, 4, winners)
        assert [committed(client, topic, number) for number in (0, 1)] == [[b"a"], [b"b"]]
    assert client.begin_sink(query, 4, 0) is None
    with pytest.raises(Conflict):
        client.abort_sink(query, 4)
    (listed,) = [each for each in client.list_sinks() if each["query"] == query]
    assert (listed["state"], listed["committed_batch_id"], listed["pending"]) == (
        "committed",
        4,
        [],
    )
    metrics = daemon.request("GET", "/metrics").body.decode()
    assert "kafkalog_sink_commits_total" in metrics


def test_a_zombie_and_an_abort(client: Client, request: pytest.FixtureRequest) -> None:
    topic = query = f"zombie-{request.node.callspec.id}"
    client.create_topic(topic)
    zombie = begun(client, query, 1)
    client.append_batches(topic, 0, transactional(zombie, 0, b"x"))
    fresh = begun(client, query, 1)
    assert fresh.producer_epoch == zombie.producer_epoch + 1
    with pytest.raises(ProducerFenced):
        client.append_batches(topic, 0, transactional(zombie, 1, b"y"))
    with pytest.raises(ProducerFenced):
        client.commit_sink(query, 1, [SinkWinner(zombie.producer_id, 0, [(topic, 0)])])
    with pytest.raises(ProducerFenced):
        client.begin_sink(query, 0, 0)
    client.abort_sink(query, 1)
    with pytest.raises(Conflict):
        client.append_batches(topic, 0, transactional(fresh, 0, b"z"))
    assert committed(client, topic) == []


def test_numbers(daemon: Daemon) -> None:
    """Each refusal has its number of the register, and changes nothing."""
    daemon.create_topic("numbers")
    refused(daemon.request("GET", "/v1/sinks/nobody"), 404, 40411)
    refused(call(daemon, "bad%20name", "begin", batch_id=1, partition_id=0), 400, 40002)
    refused(call(daemon, "numbers", "begin", batch_id=-1, partition_id=0), 422, 422)
    refused(call(daemon, "numbers", "begin", batch_id=1), 422, 422)
    refused(call(daemon, "numbers", "commit", batch_id=1, winners=[{}]), 422, 422)
    stranger = daemon.request("POST", "/v1/producers").json["producer_id"]
    batch = batch_of(
        b"x", producer_id=stranger, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    refused(append(daemon, "numbers", batch), 409, 40908)
    given = call(daemon, "numbers", "begin", batch_id=5, partition_id=0).json
    batch = batch_of(
        b"x",
        producer_id=given["producer_id"],
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    for acks in ("1", "0"):
        refused(append(daemon, "numbers", batch, query=f"?acks={acks}"), 400, 40005)
    refused(daemon.request("POST", f"/v1/producers/{given['producer_id']}:bump"), 409, 40908)
    assert append(daemon, "numbers", batch).status == 200

    def winner(producer_id: int, epoch: int, *partitions: int) -> dict[str, object]:
        places = [{"topic": "numbers", "partition": number} for number in partitions]
        return {"producer_id": producer_id, "producer_epoch": epoch, "partitions": places}

    def commit(*winners: dict[str, object]) -> Answer:
        return call(daemon, "numbers", "commit", batch_id=5, winners=list(winners))

    refused(commit(winner(stranger, 0, 0)), 409, 40913)
    body = refused(commit(winner(given["producer_id"], 1, 0)), 409, 40912)
    assert body["kafka_error"] == "PRODUCER_FENCED"
    refused(commit(winner(given["producer_id"], 0)), 409, 40908)
    refused(commit(winner(given["producer_id"], 0, 9)), 404, 40402)
    refused(call(daemon, "numbers", "begin", batch_id=4, partition_id=0), 409, 40912)
    assert commit(winner(given["producer_id"], 0, 0)).json == {"state": "committed", "batch_id": 5}
    refused(call(daemon, "numbers", "begin", batch_id=4, partition_id=0), 409, 40912)
    refused(call(daemon, "numbers", "commit", batch_id=4, winners=[]), 409, 40912)
    refused(call(daemon, "numbers", "abort", batch_id=5), 409, 40908)
    answer = call(daemon, "numbers", "abort", batch_id=6)
    assert answer.json == {"state": "aborted", "batch_id": 6}
    refused(append(daemon, "__sink_state", batch_of(b"x", keys=[b"k"])), 400, 40002)


def test_who_may_write_which_sink(tmp_path: Path) -> None:
    rules = (
        "allow writer write topic t\nallow writer write sink mine-*\n"
        "allow reader write topic t\nallow reader describe sink mine-1\n"
    )
    with Daemon(tmp_path, **access_settings(tmp_path, rules)) as daemon:
        body = {"batch_id": 1, "partition_id": 0}
        assert ask(daemon, "writer", "POST", "/v1/sinks/mine-1:begin", body).status == 200
        assert ask(daemon, "writer", "POST", "/v1/sinks/mine-2:begin", body).status == 200
        answer = refused(ask(daemon, "writer", "POST", "/v1/sinks/other:begin", body), 403, 40301)
        assert answer["kafka_error"] == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
        for action in ("begin", "commit", "abort"):
            path = f"/v1/sinks/mine-1:{action}"
            refused(ask(daemon, "reader", "POST", path, body), 403, 40301)
        listed = ask(daemon, "reader", "GET", "/v1/sinks").json["sinks"]
        assert [each["query"] for each in listed] == ["mine-1"]
        refused(ask(daemon, "reader", "GET", "/v1/sinks/mine-2"), 403, 40301)


class Driver:
    """A query that writes batch after batch, through kills: each call until it is answered."""

    def __init__(self, port: int, batches: int) -> None:
        # Restarts on a busy machine take longer than a client waits by default.
        self._client = Client(f"http://127.0.0.1:{port}", retries=Retries(deadline_seconds=150))
        self._batches = batches
        self.committed = 0
        self.fault: Exception | None = None

    def run(self) -> None:
        """Every batch: a loser, two winners, then the commit; what is refused begins anew."""
        try:
            with self._client:
                while self.committed < self._batches:
                    with contextlib.suppress(Conflict):
                        self._write(self.committed + 1)
                        self.committed += 1
        except ClientError as fault:
            self.fault = fault

    def _write(self, batch_id: int) -> None:
        winners = []
        for partition_id, attempt in ((0, 0), (0, 1), (1, 0)):
            producer = self._client.begin_sink("killed", batch_id, partition_id, attempt)
            if producer is None:
                return
            for partition in (0, 1):
                value = b"%d-%d-%d" % (batch_id, partition_id, partition)
                self._client.append_batches(
                    "t", partition, transactional(producer, 0, value, value + b"'")
                )
            if (partition_id, attempt) != (0, 0):
                places = [("t", 0), ("t", 1)]
                winners.append(SinkWinner(producer.producer_id, producer.producer_epoch, places))
        self._client.commit_sink("killed", batch_id, winners)


@pytest.mark.timeout(300)
def test_a_daemon_that_is_killed(tmp_path: Path) -> None:
    """No batch is lost, doubled or shown in part, wherever the daemon was killed."""
    chance, batches = random.Random(7), 40
    with Daemon(tmp_path, log_dirs=2) as daemon:
        daemon.create_topic("t", partitions=2)
        driver = Driver(daemon.port, batches)
        thread = threading.Thread(target=driver.run)
        thread.start()
        kills = 0
        while thread.is_alive() and kills < 6:
            thread.join(chance.uniform(0.02, 0.7))
            daemon.kill()
            kills += 1
            daemon.start()
        thread.join(200)
        assert not thread.is_alive()
        assert driver.fault is None, driver.fault
        assert driver.committed == batches
        with Client(f"http://127.0.0.1:{daemon.port}") as client:
            for partition in (0, 1):
                expected = [
                    f"{batch_id}-{task}-{partition}{end}".encode()
                    for batch_id in range(1, batches + 1)
                    for task in (0, 1)
                    for end in ("", "'")
                ]
                assert committed(client, "t", partition) == expected


STATE = "__sink_state-0"


class SinkDaemon(GatedDaemon):
    """The state of its sinks is not synced while the gate is shut."""

    def shut(self) -> None:
        """At once for the next sync."""
        made = self.gate.with_suffix(".new")
        made.write_text(f"sync /{STATE}/")
        made.rename(self.gate)

    def commit(self) -> Answer:
        """Of nothing: only its decision needs the disk."""
        body = {"batch_id": 1, "winners": []}
        return self.request("POST", "/v1/sinks/q:commit", body, timeout=60)


@pytest.mark.timeout(120)
def test_commits_that_wait_for_a_disk_hold_up_no_other_call(tmp_path: Path) -> None:
    """A driver that repeats its commit takes no thread from others, and is told to wait."""
    daemon = SinkDaemon(tmp_path, log_dirs=2)
    with daemon, ThreadPoolExecutor(6) as threads:
        daemon.create_topic("t", 2)
        begin = {"batch_id": 1, "partition_id": 0}
        assert daemon.request("POST", "/v1/sinks/q:begin", begin).status == 200
        (state_dir,) = (each for each in daemon.log_dirs if (each / STATE).exists())
        (there,) = (number for number in (0, 1) if not (state_dir / f"t-{number}").exists())
        daemon.shut()
        commits = [threads.submit(daemon.commit) for _ in range(6)]
        deadline = time.monotonic() + 60
        for _ in range(3):
            records = {"records": [{"value": "x" * 900_000}]}
            left = deadline - time.monotonic()
            path = f"/topics/t/partitions/{there}"
            answer = daemon.request("POST", path, records, {"Content-Type": TEXT}, timeout=left)
            assert answer.status == 200, answer.body
        assert daemon.request("GET", "/v1/sinks/q", timeout=5).json["state"] == "open"
        for refused in islice(as_completed(commits, timeout=60), 5):
            answer = refused.result()
            assert (answer.status, answer.json["error_code"]) == (503, 50304)
            assert "Another call of query q is at work" in answer.json["message"]
            assert int(answer.headers["Retry-After"]) >= 1
        daemon.gate.unlink()
        assert [each.result().status for each in commits].count(200) == 1
        assert daemon.commit().status == 200
