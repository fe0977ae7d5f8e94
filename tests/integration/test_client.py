"""Goal: every method of both clients does at a live daemon what its docstring says; many tasks
share one client, and a cancelled send leaves no doubt behind.
Method: each test with both clients; the daemon judged also by the standard library's HTTP.
"""

from __future__ import annotations

import asyncio
import http.client
import random
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from kafkalog.client import (
    ONE_TRY,
    AsyncClient,
    Client,
    ClientError,
    Conflict,
    ConsumerRecord,
    ExpectedOffsetMismatch,
    InvalidRecord,
    InvalidRequest,
    NotFound,
    OffsetAboveHighWatermark,
    OffsetAboveLogEnd,
    OffsetBelowLogStart,
    OutcomeUnknown,
    OutOfOrderSequence,
    PolicyViolation,
    ProducerFenced,
    ProducerIdentity,
    ProducerRecord,
    TooLarge,
    TopicExists,
    UnknownGroup,
    UnknownPartition,
    UnknownTopic,
    path_of,
)
from tests.integration.client_world import KINDS, client_of
from tests.integration.daemon import Daemon
from tests.integration.http_world import batch_of, end_offset

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=KINDS)
def client(request: pytest.FixtureRequest, daemon: Daemon) -> Iterator[Client]:
    with client_of(request.param, f"http://127.0.0.1:{daemon.port}") as one:
        yield one


@pytest.fixture
def topic(request: pytest.FixtureRequest, client: Client) -> str:
    """A topic of the test's own with three partitions."""
    name = "t-" + "".join(c if c.isalnum() else "-" for c in request.node.name)
    client.create_topic(name, partitions=3, configs={"retention.ms": "-1"})
    return name


def texts(*values: str) -> list[ProducerRecord]:
    return [ProducerRecord(value) for value in values]


def test_records_there_and_back(client: Client, topic: str) -> None:
    """M01: keys, nulls, headers, timestamps; what comes back is what went in."""
    sent = [
        ProducerRecord(b"\x00\xff", key="k"),
        ProducerRecord(None, key=b"tombstone", timestamp_ms=5),
        ProducerRecord("naïve", headers=(("h", b"1"), ("h", None), ("ü", b""))),
    ]
    (receipt,) = client.produce(topic, sent, partition=1, acks="all", codec="lz4")
    assert (receipt.partition, receipt.base_offset, receipt.last_offset) == (1, 0, 2)
    assert receipt.durability == "synced"
    fetched = client.fetch(topic, 1, 0)
    first, second, third = fetched.records
    assert (first.key, first.value, first.headers) == (b"k", b"\x00\xff", ())
    assert second == ConsumerRecord(topic, 1, 1, 5, b"tombstone", None)
    assert third.value == "naïve".encode()
    assert third.headers == (("h", b"1"), ("h", None), ("ü", b""))
    assert fetched.position.next_offset == fetched.position.high_watermark == 3
    assert fetched.position.is_up_to_date
    assert client.fetch(topic, 1, 2).records == (third,)
    assert client.fetch(topic, 1, 3).records == ()
    assert client.fetch_page(topic, 1, 0).records == fetched.records
    assert client.fetch(topic, 1, 0, isolation="read_committed").records == fetched.records


def test_partitions_are_chosen_as_the_daemon_does(client: Client, topic: str) -> None:
    """By murmur2 of the key; records without key stay together; long calls become batches."""
    keys = [f"key-{number}" for number in range(40)]
    receipts = client.produce(topic, [ProducerRecord(key, key=key) for key in keys])
    assert [receipt.partition for receipt in receipts] == [0, 1, 2]
    mine = {
        record.value: partition
        for partition in range(3)
        for record in client.fetch(topic, partition, 0).records
    }
    answer = client.call(
        "POST",
        path_of("topics", topic),
        {"records": [{"key": key, "value": key} for key in keys]},
        content_type="application/vnd.kafka.text.v2+json",
    )
    theirs = [entry["partition"] for entry in answer.json["offsets"]]
    assert [mine[key.encode()] for key in keys] == theirs
    (together,) = client.produce(topic, texts("a", "b", "c"))
    assert together.last_offset == together.base_offset + 2
    cut = client.produce(topic, texts("x" * 600, "y" * 600, "z" * 600), batch_bytes=700)
    assert [receipt.base_offset - cut[0].base_offset for receipt in cut] == [0, 1, 2]
    assert client.produce(topic, []) == ()


def test_raw_batches(client: Client, topic: str) -> None:
    """M01: bytes as they are, conditional appends, acks=0."""
    batch = batch_of(b"one", b"two")
    receipt = client.append_batches(topic, 0, batch, expected_offset=0, acks="1")
    assert (receipt.base_offset, receipt.last_offset, receipt.durability) == (0, 1, "os")
    with pytest.raises(ExpectedOffsetMismatch) as mismatch:
        client.append_batches(topic, 0, batch, expected_offset=0)
    assert mismatch.value.details["log_end_offset"] == 2
    assert mismatch.value.nothing_was_done
    assert mismatch.value.appended == ()
    nobody = client.append_batches(topic, 0, batch, acks="0")
    assert (nobody.base_offset, nobody.durability) == (-1, "none")
    fetched = client.fetch_batches(topic, 0, 1)
    assert fetched.data[16 : len(batch)] == batch[16:]
    assert client.fetch_batches(topic, 2, 0).data == b""
    with pytest.raises(InvalidRecord):
        client.append_batches(topic, 0, b"")


def test_what_was_appended_before_a_failure(client: Client, topic: str) -> None:
    large = "x" * 2_000_000
    with pytest.raises(TooLarge) as failure:
        client.produce(topic, texts("small", large), partition=0)
    (receipt,) = failure.value.appended
    assert (receipt.base_offset, receipt.last_offset) == (0, 0)
    assert failure.value.error_code == 41301
    assert failure.value.request_id
    assert "exceeds the maximum" in failure.value.message


def test_a_producer_counts_per_partition(client: Client, topic: str) -> None:
    """M25: sequences go on from call to call; the daemon would refuse a gap or a repetition."""
    producer = client.producer(ProducerIdentity(4001 + len(topic), 0), acks="1")
    for number in range(7):
        producer.send(topic, texts(f"a{number}", f"b{number}"), partition=0)
        (receipt,) = producer.send(topic, texts("other"), partition=2)
        assert not receipt.is_duplicate
    assert [r.value for r in client.fetch(topic, 0, 12).records] == [b"a6", b"b6"]
    spread = producer.send(topic, [ProducerRecord(str(n), key=str(n)) for n in range(30)])
    assert [receipt.partition for receipt in spread] == [0, 1, 2]
    assert producer.unanswered == []
    assert producer.resend(topic, 0) is None
    with pytest.raises(TooLarge):
        producer.send(topic, texts("x" * 2_000_000), partition=0)
    assert producer.unanswered == []
    (after,) = producer.send(topic, texts("goes on"), partition=0)
    assert not after.is_duplicate


def test_a_producer_draws_its_id(client: Client, topic: str) -> None:
    """M25: at the first send; no two producers have the same."""
    first, second = client.producer(), client.producer()
    for producer in (first, second):
        producer.send(topic, texts("a"), partition=0)
        (receipt,) = producer.send(topic, texts("b"), partition=0)
        assert not receipt.is_duplicate
    assert first.identity is not None
    assert first.identity != second.identity


def test_a_producer_that_is_finished(client: Client, topic: str) -> None:
    """M25: a gap or a newer epoch ends it, in words that say what to do."""
    mine = ProducerIdentity(9001, 3)
    old = client.producer(mine)
    old.send(topic, texts("a"), partition=0)
    assert old.identity == mine
    client.producer(ProducerIdentity(9001, 4)).send(topic, texts("b"), partition=0)
    with pytest.raises(ProducerFenced) as fenced:
        old.send(topic, texts("c"), partition=0)
    assert fenced.value.error_code == 40906
    with pytest.raises(ProducerFenced, match="finished, create a new one"):
        old.send(topic, texts("d"), partition=1)
    gap = batch_of(b"x", producer_id=9001, producer_epoch=4, base_sequence=77)
    with pytest.raises(OutOfOrderSequence):
        client.append_batches(topic, 0, gap)
    with pytest.raises(ValueError, match="acks=0"):
        client.producer(acks="0")


def test_a_tail_reads_on(client: Client, topic: str) -> None:
    """M01 M10: to the end and no further, on from its position, woken by an append, moved along."""
    client.produce(topic, texts("a", "b", "c"), partition=0)
    whole = client.tail(topic, 0, start="earliest", is_endless=False)
    before = whole.position
    assert before is None
    assert [record.value for record in whole] == [b"a", b"b", b"c"]
    assert whole.position == 3
    assert list(whole) == []
    client.produce(topic, texts("d"), partition=0)
    assert [record.value for record in whole] == [b"d"]
    waiting = iter(client.tail(topic, 0, start=3, max_wait_ms=20_000))
    assert next(waiting).value == b"d"
    with client_of("sync", str(client.address)) as other:
        later = threading.Timer(0.2, other.produce, (topic, texts("e")), {"partition": 0})
        later.start()
        assert next(waiting).value == b"e"
        later.join()
    client.delete_records({(topic, 0): 4})
    with pytest.raises(OffsetBelowLogStart) as gone:
        next(iter(client.tail(topic, 0, start=1)))
    assert gone.value.details["log_start_offset"] == 4
    moved = client.tail(topic, 0, start=1, on_out_of_range="earliest", is_endless=False)
    assert [record.offset for record in moved] == [4]
    skipped = client.tail(topic, 0, start=99, on_out_of_range="latest", is_endless=False)
    assert list(skipped) == []
    assert skipped.position == 5
    with pytest.raises(OffsetAboveLogEnd):
        list(client.tail(topic, 0, start=99, is_endless=False, isolation="read_committed"))
    committed = client.tail(
        topic, 0, start="earliest", is_endless=False, isolation="read_committed"
    )
    assert [record.value for record in committed] == [b"e"]


def test_offsets(client: Client, topic: str) -> None:
    """M05: by name, by time, of many at once."""
    stamped = [ProducerRecord(str(n), timestamp_ms=1000 + n) for n in range(5)]
    client.produce(topic, stamped, partition=0)
    assert client.offset_range(topic, 0) == (0, 5)
    assert client.offset_at(topic, 0, "earliest").offset == 0
    assert client.offset_at(topic, 0, "latest").offset == 5
    newest = client.offset_at(topic, 0, "max_timestamp")
    assert (newest.offset, newest.timestamp_ms) == (4, 1004)
    assert client.offset_at(topic, 0, 1002).offset == 2
    assert client.offset_at(topic, 0, 9999).offset == -1
    found = client.list_offsets([(topic, 0), (topic, 1), ("nope", 0)], "latest")
    assert [entry.offset for entry in found] == [5, 0, -1]
    assert found[0].error is None
    assert isinstance(found[2].error, UnknownTopic)
    with pytest.raises(UnknownPartition):
        client.offset_at(topic, 9, "latest")
    with pytest.raises(UnknownTopic):
        client.fetch("nope", 0, 0)


def test_delete_records(client: Client, daemon: Daemon, topic: str) -> None:
    """M10: low watermarks; a failure is its entry's."""
    client.produce(topic, texts("a", "b", "c"), partition=0)
    first, second, third = client.delete_records({(topic, 0): 2, (topic, 1): 9, ("nope", 0): 0})
    assert (first.low_watermark, first.error) == (2, None)
    assert isinstance(second.error, OffsetAboveHighWatermark)
    assert isinstance(third.error, UnknownTopic)
    (all_gone,) = client.delete_records({(topic, 0): -1})
    assert all_gone.low_watermark == end_offset(daemon, topic) == 3
    client.create_topic(f"{topic}-compact", configs={"cleanup.policy": "compact"})
    (kept,) = client.delete_records({(f"{topic}-compact", 0): 0})
    assert isinstance(kept.error, PolicyViolation)


def test_topics_and_configs(client: Client, topic: str) -> None:
    """M13: the life of a topic."""
    assert topic in client.list_topics()
    described = client.describe_topic(topic)
    assert described["partitions_count"] == 3
    assert topic in [each["topic_name"] for each in client.describe_topics()]
    assert [each["partition"] for each in client.partitions(topic)] == [0, 1, 2]
    with pytest.raises(TopicExists):
        client.create_topic(topic)
    with pytest.raises(InvalidRequest, match=r"no\.such"):
        client.create_topic(f"{topic}-2", configs={"no.such": "1"})
    client.grow_topic(topic, 4)
    assert len(client.partitions(topic)) == 4
    client.alter_topic_configs(topic, {"retention.ms": "5", "flush.ms": "7"})
    client.alter_topic_configs(topic, to_delete=["flush.ms"])
    configs = {each["name"]: each["value"] for each in client.topic_configs(topic)}
    assert configs["retention.ms"] == "5"
    assert configs["flush.ms"] != "7"
    assert client.broker_id() == 1
    client.alter_broker_configs({"log.retention.bytes": "77"})
    broker = {each["name"]: each["value"] for each in client.broker_configs()}
    assert broker["log.retention.bytes"] == "77"
    client.alter_broker_configs(to_delete=["log.retention.bytes"])
    client.delete_topic(topic)
    assert topic not in client.list_topics()
    for unknown in (client.delete_topic, client.describe_topic, client.partitions):
        with pytest.raises(UnknownTopic):
            unknown(topic)


def test_groups(client: Client, topic: str) -> None:
    """M24: commits, lags, resets, deletion."""
    client.produce(topic, texts("a", "b", "c"), partition=0)
    group = f"g-{topic}"
    client.commit_offsets(group, {(topic, 0): 2}, metadata="mine")
    assert client.group_offsets(group) == {(topic, 0): 2}
    assert group in [each["group"] for each in client.list_groups()]
    (entry,) = client.describe_group(group)["offsets"]
    assert (entry["lag"], entry["metadata"]) == (1, "mine")
    (shown,) = client.reset_group_offsets(group, "earliest")
    assert (shown["old_offset"], shown["new_offset"]) == (2, 0)
    assert client.group_offsets(group) == {(topic, 0): 2}
    client.reset_group_offsets(group, "shift", -1, dry_run=False)
    assert client.group_offsets(group) == {(topic, 0): 1}
    client.delete_group(group)
    with pytest.raises(UnknownGroup):
        client.describe_group(group)
    with pytest.raises(UnknownTopic):
        client.commit_offsets(group, {("nope", 0): 1})


def test_logs_and_the_daemon(client: Client, topic: str) -> None:
    client.produce(topic, texts("a", "b"), partition=0)
    assert client.describe_log(topic, 0)["log_end_offset"] == 2
    client.roll_log(topic, 0)
    client.flush_log(topic, 0)
    assert [each["base_offset"] for each in client.explain_retention(topic, 0)["segments"]] == [
        0,
        2,
    ]
    assert client.run_retention([(topic, 0)], dry_run=True)["segments"] == 0
    simulated = client.simulate_retention(topic, {"retention.bytes": "0"}, 86_400_000)
    assert simulated["topic"] == topic
    client.alter_topic_configs(topic, {"cleanup.policy": "compact"})
    client.produce(topic, [ProducerRecord("v", key="k")], partition=1)
    assert client.cleaner_status(topic)["logs"]
    (run,) = client.run_cleaner([(topic, 0)], dry_run=True)
    assert run["topic"] == topic
    client.steer_cleaner(topic, 0, "pause")
    client.steer_cleaner(topic, 0, "resume")
    with pytest.raises(Conflict):
        client.steer_cleaner(topic, 0, "resume")
    assert client.info()["version"]
    client.check_ready()
    (broker,) = client.describe_log_dirs(topic)["brokers"]
    sizes = broker["logDirs"][0]["partitions"]
    assert sorted(each["partition"] for each in sizes) == [f"{topic}-{n}" for n in range(3)]
    assert any(each["name"] == "kafka-log-retention" for each in client.describe_tasks()["tasks"])
    assert client.list_moves() == []
    (refused,) = client.begin_moves({(topic, 0): "/no/such"})
    assert refused["error_code"] == 40002
    with pytest.raises(NotFound):
        client.cancel_move(topic, 0)
    with pytest.raises(InvalidRequest):
        client.begin_backup("not/absolute")
    with pytest.raises(NotFound):
        client.describe_operation("nope")


def test_any_route(client: Client, topic: str) -> None:
    """``call`` reaches what has no method, and names are quoted."""
    answer = client.call("GET", path_of("topics", topic), accept="application/vnd.kafka.v2+json")
    assert answer.status == 200
    assert answer.json["name"] == topic
    for name in ("no/such", "..", "?", "%2e", "a b", "ü"):
        with pytest.raises((NotFound, InvalidRequest)) as failure:
            client.partitions(name)
        assert failure.value.error_code in (40401, 40002)
    with pytest.raises(ValueError, match="empty"):
        client.partitions("")


def test_one_client_for_many_threads(daemon: Daemon) -> None:
    """M01: no thread gets another's answer."""
    daemon.create_topic("shared", 8)
    with client_of("sync", f"http://127.0.0.1:{daemon.port}") as one:

        def work(partition: int) -> None:
            for number in range(25):
                value = f"{partition}-{number}"
                (receipt,) = one.produce("shared", texts(value), partition=partition, acks="1")
                (record,) = one.fetch("shared", partition, receipt.base_offset).records
                assert record.value == value.encode()

        with ThreadPoolExecutor(8) as threads:
            assert list(threads.map(work, range(8))) == [None] * 8


def test_several_operations_are_begun(daemon: Daemon) -> None:
    """Results in any order; one that needs more requests or is refused; one that needs none."""
    daemon.create_topic("begun", 2)
    with Client(f"http://127.0.0.1:{daemon.port}") as one:
        begun = [
            one.begin(Client.produce("begun", texts(f"{number}"), partition=0, acks="1"))
            for number in range(5)
        ]
        receipts = [each.result()[0] for each in reversed(begun)]
        assert sorted(receipt.base_offset for receipt in receipts) == list(range(5))
        records = one.fetch("begun", 0, 0).records
        assert {record.value for record in records} == {b"0", b"1", b"2", b"3", b"4"}

        small = one.begin(
            Client.produce("begun", texts("a", "b", "c"), partition=1, batch_bytes=1, acks="1")
        )
        refused = one.begin(Client.produce("begun", texts("a"), partition=7))
        nothing = one.begin(Client.produce("begun", []))
        assert nothing.is_answered
        assert nothing.result() == ()
        with pytest.raises(UnknownPartition):
            refused.result()
        assert refused.is_answered
        with pytest.raises(RuntimeError, match="failed before"):
            refused.result()
        assert [receipt.base_offset for receipt in small.result()] == [0, 1, 2]
        assert end_offset(daemon, "begun", 1) == 3


def test_an_answer_that_is_there_is_seen(daemon: Daemon) -> None:
    with Client(f"http://127.0.0.1:{daemon.port}") as one:
        begun = one.begin(Client.info())
        deadline = time.monotonic() + 60
        while not begun.is_answered:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        assert begun.result()


def test_begun_while_the_daemon_goes_away() -> None:
    """A request that is without an answer is not sent again; one that was not taken is refused."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        port = deaf.getsockname()[1]
        with Client(f"http://127.0.0.1:{port}", retries=ONE_TRY) as one:
            begun = one.begin(Client.produce("t", texts("v"), partition=0))
            taken, _ = deaf.accept()
            assert not begun.is_answered
            taken.close()
            with pytest.raises(OutcomeUnknown):
                begun.result()
    with Client(f"http://127.0.0.1:{port}", retries=ONE_TRY) as one:
        begun = one.begin(Client.produce("t", texts("v"), partition=0))
        assert begun.is_answered
        with pytest.raises(ClientError) as caught:
            begun.result()
        assert caught.value.nothing_was_done


def test_a_connection_that_the_daemon_closed_is_not_used(tmp_path: Path) -> None:
    """A plain append after a restart has no open outcome: the old connection is seen to be dead."""
    lone = Daemon(tmp_path)
    lone.start()
    lone.create_topic("t")
    with client_of("sync", f"http://127.0.0.1:{lone.port}", retries=ONE_TRY) as one:
        for offset in range(3):
            (receipt,) = one.produce("t", texts("v"), partition=0)
            assert receipt.base_offset == offset
            assert lone.stop() == 0
            lone.start()
    assert lone.stop() == 0


def test_no_answer_is_left_to_a_finalizer(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python says nothing of an exception in one: a Ctrl-C that came there did nothing."""
    answers: list[http.client.HTTPResponse] = []

    class Kept(http.client.HTTPResponse):
        def begin(self) -> None:
            answers.append(self)
            super().begin()

    monkeypatch.setattr(http.client.HTTPConnection, "response_class", Kept)
    with Client(f"http://127.0.0.1:{daemon.port}") as client:
        client.create_topic("finalized")
        client.produce("finalized", texts("v"), partition=0)
        with pytest.raises(NotFound):
            client.topic_configs("no-such-topic")
        assert client.fetch_page("finalized", 0, 0).records
    assert len(answers) >= 4
    assert all(each.closed for each in answers)


@pytest.mark.parametrize("kind", KINDS)
def test_a_tail_of_what_is_committed_ends_at_an_open_transaction(kind: str, tmp_path: Path) -> None:
    """Where nothing more is readable is the end, also below the high watermark."""
    lone = Daemon(tmp_path)
    directory = lone.log_dirs[0] / "adopted-0"
    directory.mkdir(parents=True)
    batches = batch_of(b"whole") + batch_of(
        b"open", producer_id=7, producer_epoch=0, base_sequence=0, base_offset=1,
        is_transactional=True,
    )  # fmt: skip
    (directory / "00000000000000000000.log").write_bytes(batches)
    with lone, client_of(kind, f"http://127.0.0.1:{lone.port}") as one:
        for behind in (
            one.fetch("adopted", 0, 1, isolation="read_committed"),
            one.fetch_batches("adopted", 0, 1, isolation="read_committed"),
        ):
            assert behind.position.next_offset == 1 < behind.position.high_watermark
            assert behind.position.is_up_to_date
        tail = one.tail(
            "adopted", 0, start="earliest", is_endless=False, isolation="read_committed"
        )
        assert [record.value for record in tail] == [b"whole"]
        assert [each.value for each in one.tail("adopted", 0, start=0, is_endless=False)] == [
            b"whole",
            b"open",
        ]


def test_tasks_at_once(daemon: Daemon) -> None:
    """M01: no task gets another's answer; long polls do not hold up the rest."""
    daemon.create_topic("tasks", 4)

    async def reader(client: AsyncClient, partition: int) -> list[bytes | None]:
        found = []
        async for record in client.tail("tasks", partition, start="earliest", max_wait_ms=20_000):
            found.append(record.value)
            if len(found) == 25:
                break
        return found

    async def writer(client: AsyncClient, number: int) -> None:
        record = ProducerRecord(str(number))
        (receipt,) = await client.produce("tasks", [record], partition=number % 4, acks="1")
        fetched = await client.fetch("tasks", number % 4, receipt.base_offset)
        assert fetched.records[0].value == str(number).encode()

    async def main() -> list[list[bytes | None]]:
        async with AsyncClient(f"http://127.0.0.1:{daemon.port}") as client:
            readers = [asyncio.create_task(reader(client, partition)) for partition in range(4)]
            await asyncio.gather(*(writer(client, number) for number in range(100)))
            return await asyncio.gather(*readers)

    for partition, found in enumerate(asyncio.run(main())):
        wanted = {str(number).encode() for number in range(partition, 100, 4)}
        assert set(found) == wanted


def test_sends_that_run_out_of_time(daemon: Daemon) -> None:
    """M25: whatever was cut off is resent or was never sent; nothing is twice."""
    daemon.create_topic("cut-off")
    rng = random.Random(5)

    async def main() -> tuple[list[str], int]:
        certain, cut_off = [], 0
        async with AsyncClient(f"http://127.0.0.1:{daemon.port}") as client:
            producer = client.producer(ProducerIdentity(55, 0), acks="1")
            for number in range(60):
                value = f"v{number}"
                try:
                    async with asyncio.timeout(rng.random() * 0.01):
                        await producer.send("cut-off", [ProducerRecord(value)], partition=0)
                    certain.append(value)
                except TimeoutError:
                    cut_off += 1
                    if producer.unanswered:
                        await producer.resend("cut-off", 0)
                        certain.append(value)
            tail = client.tail("cut-off", 0, start="earliest", is_endless=False)
            stored = [(record.value or b"").decode() async for record in tail]
        assert stored == certain
        return stored, cut_off

    stored, cut_off = asyncio.run(main())
    assert len(stored) == len(set(stored))
    assert cut_off, "no send was cut off"
