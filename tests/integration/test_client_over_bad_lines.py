"""Goal: over a line that breaks, idempotent records are there exactly once and others never twice,
and no call says more than it knows.
Method: a proxy that cuts connections before the daemon sees a request, after it carried it out, and
in the middle of the answer; what is in the log decides.
"""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING

import pytest

from kafkalog.client import (
    ONE_TRY,
    BadAnswer,
    ClientError,
    OutcomeUnknown,
    ProducerIdentity,
    ProducerRecord,
    Retries,
    TooLarge,
)
from tests.integration.client_world import KINDS, CuttingProxy, Scripted, client_of, reply
from tests.integration.daemon import Daemon

if TYPE_CHECKING:
    from pathlib import Path

QUICK = Retries(deadline_seconds=20, backoff_seconds=0.001, backoff_seconds_max=0.01)
HARMS = ("before", "after", "half")

pytestmark = pytest.mark.parametrize("kind", KINDS)


def values(daemon: Daemon, topic: str) -> list[str]:
    with client_of("sync", f"http://127.0.0.1:{daemon.port}") as client:
        tail = client.tail(topic, 0, start="earliest", is_endless=False)
        return [(record.value or b"").decode() for record in tail]


def is_append(request: bytes) -> bool:
    return request.startswith(b"POST") and b"/batches" in request.partition(b"\r\n")[0]


def test_with_a_producer_each_record_is_there_once(daemon: Daemon, kind: str) -> None:
    """M25: half of all appends lose their connection; the call waits until it knows."""
    topic, rng = f"once-{kind}", random.Random(7)
    daemon.create_topic(topic)

    def cut(request: bytes) -> str:
        return rng.choice(HARMS) if is_append(request) and rng.random() < 0.5 else ""

    wanted = [f"v{number}" for number in range(60)]
    with CuttingProxy(daemon.port, cut) as proxy, client_of(kind, proxy.url, retries=QUICK) as one:
        producer = one.producer(ProducerIdentity(71 + len(kind), 0), acks="1")
        found = 0
        for start in range(0, len(wanted), 2):
            records = [ProducerRecord(value) for value in wanted[start : start + 2]]
            (receipt,) = producer.send(topic, records, partition=0)
            assert receipt.base_offset == start
            found += receipt.is_duplicate
        assert producer.unanswered == []
    assert values(daemon, topic) == wanted
    assert set(proxy.cuts) == set(HARMS)
    assert found, "no answer was lost behind an append"


def test_without_a_producer_nothing_is_repeated(daemon: Daemon, kind: str) -> None:
    """M01: a lost answer is raised whatever became of it; what was acknowledged is there."""
    topic, rng = f"plain-{kind}", random.Random(11)
    daemon.create_topic(topic)

    def cut(request: bytes) -> str:
        return rng.choice(HARMS) if is_append(request) and rng.random() < 0.6 else ""

    acknowledged, open_ones = [], []
    with CuttingProxy(daemon.port, cut) as proxy, client_of(kind, proxy.url, retries=QUICK) as one:
        for number in range(40):
            value = f"v{number}"
            try:
                one.produce(topic, [ProducerRecord(value)], partition=0, acks="1")
                acknowledged.append(value)
            except OutcomeUnknown:
                open_ones.append(value)
    stored = values(daemon, topic)
    assert len(stored) == len(set(stored)), "a record was appended twice"
    assert set(acknowledged) <= set(stored) <= {*acknowledged, *open_ones}
    assert len(open_ones) == len(proxy.cuts)
    assert set(stored) & set(open_ones), "no answer was lost behind an append"
    assert set(open_ones) - set(stored), "no request was lost in front of the daemon"


def test_reads_and_changes_that_say_the_same_twice_go_on(daemon: Daemon, kind: str) -> None:
    """M01 M10: fetches, tails, delete-records and commits do not notice."""
    topic, rng = f"reads-{kind}", random.Random(3)
    daemon.create_topic(topic)
    daemon.produce_text(topic, *[f"v{number}" for number in range(30)])

    def cut(_request: bytes) -> str:
        return rng.choice(HARMS) if rng.random() < 0.5 else ""

    with CuttingProxy(daemon.port, cut) as proxy, client_of(kind, proxy.url, retries=QUICK) as one:
        tail = one.tail(topic, 0, start="earliest", is_endless=False, max_bytes=1)
        assert [record.offset for record in tail] == list(range(30))
        for offset in range(1, 11):
            (entry,) = one.delete_records({(topic, 0): offset})
            assert entry.low_watermark == offset
            one.commit_offsets(f"g-{kind}", {(topic, 0): offset})
        assert one.group_offsets(f"g-{kind}") == {(topic, 0): 10}
    assert len(proxy.cuts) > 10


def test_somebody_else_answers(kind: str) -> None:
    """A proxy's page with a 200, an answer without our headers, half a batch, a redirect."""
    page = reply(b"<html>Welcome to the guest network</html>")
    positions = {"Kafka_Next_Offset": "1", "Kafka_High_Watermark": "1"}
    half = reply(b"12345678", **positions, Kafka_Log_Start_Offset="0")
    moved = reply(b"", "302 Found", Location="http://127.0.0.1:1/")
    answers = [page, page, reply(b"{}"), page, half, moved, page, reply(b"{}"), reply(b"[]")]
    with Scripted(answers) as server, client_of(kind, server.url, retries=ONE_TRY) as one:
        for ask in (
            one.list_topics,
            lambda: one.append_batches("t", 0, b"x"),
            lambda: one.offset_range("t", 0),
            lambda: one.fetch("t", 0, 0),
            lambda: one.fetch("t", 0, 0),
            one.info,
            lambda: one.create_topic("t"),
            one.broker_id,
            lambda: one.delete_records({("t", 0): 1}),
        ):
            with pytest.raises(BadAnswer):
                ask()
    assert len(server.requests) == 9


def test_a_body_that_is_refused_before_it_came_whole(daemon: Daemon, kind: str) -> None:
    daemon.create_topic(f"huge-{kind}")
    with client_of(kind, f"http://127.0.0.1:{daemon.port}") as one, pytest.raises(TooLarge):
        one.append_batches(f"huge-{kind}", 0, bytes(101 << 20))


def test_a_producer_id_is_asked_for_once(kind: str) -> None:
    """At the first send, and again when that was lost; then it is in the batches."""
    drawn = reply(b'{"producer_id": 4711, "producer_epoch": 2}')
    done = reply(b'{"base_offset": 0, "last_offset": 0}')
    with Scripted([b"", drawn, done, done]) as server, client_of(kind, server.url) as one:
        producer = one.producer()
        before = producer.identity
        assert before is None
        producer.send("t", [ProducerRecord("v")], partition=0)
        producer.send("t", [ProducerRecord("w")], partition=0)
        assert producer.identity == ProducerIdentity(4711, 2)
    assert [request.split(b" ", 2)[1] for request in server.requests] == [
        b"/v1/producers",
        b"/v1/producers",
        b"/v1/topics/t/partitions/0/batches",
        b"/v1/topics/t/partitions/0/batches",
    ]
    sequences = [request.partition(b"\r\n\r\n")[2][43:57] for request in server.requests[2:]]
    assert sequences[0] == (4711).to_bytes(8, "big") + (2).to_bytes(2, "big") + bytes(4)
    assert sequences[1] == sequences[0][:-1] + b"\x01"


@pytest.mark.timeout(300)
def test_a_daemon_that_is_killed_while_records_come(tmp_path: Path, kind: str) -> None:
    """M14 M25: kill -9 and restart in a loop of sends: each record exactly once, in order."""
    lone = Daemon(tmp_path)
    lone.start()
    lone.create_topic("killed")
    url, done = f"http://127.0.0.1:{lone.port}", threading.Event()
    problems: list[BaseException] = []
    sent = 0

    def send() -> None:
        nonlocal sent
        patient = Retries(deadline_seconds=60, backoff_seconds=0.01, backoff_seconds_max=0.1)
        try:
            with client_of(kind, url, retries=patient) as one:
                producer = one.producer(ProducerIdentity(99, 0), acks="1")
                while not done.is_set():
                    records = [ProducerRecord(f"v{sent + n}") for n in range(3)]
                    producer.send("killed", records, partition=0)
                    sent += 3
        except ClientError as failure:
            problems.append(failure)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        for kill in range(3):
            wanted = sent + 60
            while sent < wanted and thread.is_alive():
                done.wait(0.001)  # the test's own pace, until the other thread has come so far
            lone.kill()
            lone.start()
            assert not problems, f"after kill {kill}: {problems}"
    finally:
        done.set()
        thread.join(90)
    assert not problems
    assert values(lone, "killed") == [f"v{number}" for number in range(sent)]
    assert lone.stop() == 0
