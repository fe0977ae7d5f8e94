"""Goal: what a sink is given is checked before anything is sent, and every error says what to do.
Method: tables of options, columns and rows; a delivery over a scripted daemon.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from kafkalog.client import ClientError, OutcomeUnknown, ProducerIdentity, UnknownTopic
from kafkalog.client.produce import Partitions
from kafkalog.env.random import SystemRandom
from kafkalog.format.records.batch_builder import RecordColumns
from kafkalog.format.records.record_batch import Codec, read_header
from kafkalog.spark.option_values import InvalidOption
from kafkalog.spark.sink.delivery import (
    BATCHES_IN_FLIGHT,
    Delivery,
    OutgoingBatch,
    SinkFailed,
    sink_failed,
)
from kafkalog.spark.sink.options import SINK_OPTIONS, UnusableSchema, sink_options, written_columns
from kafkalog.spark.sink.write import BatchPlanner, NoSuchPartition, NullTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

URL = {"url": "http://127.0.0.1:1"}
HEADERS = "array<struct<key:string,value:binary>>"


# columns


def test_all_columns_of_the_source_may_come_back() -> None:
    """A frame that was read: what no record can be given is passed over."""
    fields = [
        ("key", "binary"),
        ("value", "string"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", HEADERS),
    ]
    written = ("key", "value", "headers", "partition", "timestamp")
    assert written_columns(fields, None) == ("topic", *written)
    assert written_columns(fields, "t") == written


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([("value", "string")], "topic option required when no 'topic' attribute is present"),
        ([("topic", "string")], "Required attribute 'value' not found"),
        (
            [("topic", "binary"), ("value", "string")],
            "topic attribute unsupported type binary. topic must be a(n) string",
        ),
        (
            [("topic", "string"), ("value", "int")],
            "value attribute unsupported type int. value must be a(n) string or binary",
        ),
        (
            [("topic", "string"), ("value", "string"), ("partition", "bigint")],
            "partition attribute unsupported type bigint. partition must be a(n) int",
        ),
        (
            [("topic", "string"), ("value", "string"), ("headers", "map<string,string>")],
            "headers attribute unsupported type map<string,string>. "
            f"headers must be a(n) {HEADERS}",
        ),
        (
            [("topic", "string"), ("value", "string"), ("timestamp", "timestamp_ntz")],
            "timestamp attribute unsupported type timestamp_ntz. timestamp must be a(n) timestamp",
        ),
        (
            [("topic", "string"), ("value", "string"), ("value", "string")],
            "There are several columns 'value'.",
        ),
    ],
)
def test_a_frame_that_cannot_be_written_is_refused(
    fields: list[tuple[str, str]], message: str
) -> None:
    """In the words of Spark's Kafka sink where it has them."""
    with pytest.raises(UnusableSchema) as caught:
        written_columns(fields, None)
    assert caught.value.message.startswith(message)


# options


def test_options_and_their_defaults() -> None:
    """Names of any case; Kafka's own are taken where they mean something."""
    assert sink_options(URL).codec is Codec.NONE
    assert sink_options(URL).access.retry_seconds == 120
    given = {
        "URL": "http://host:8082",
        "Topic": "t",
        "compression": "zstd",
        "kafka.compression.type": "gzip",
        "kafka.acks": "1",
        "kafka.delivery.timeout.ms": "5000",
        "kafka.linger.ms": "20",
        "batchbytes": "256k",
        "checkpointLocation": "/c",
    }
    options = sink_options(given)
    assert options.codec is Codec.ZSTD
    assert (options.topic, options.acks, options.batch_bytes) == ("t", "1", 256 << 10)
    assert options.access.retry_seconds == 5
    assert options.ignored == ("kafka.compression.type", "kafka.linger.ms")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"compresion": "lz4"}, "did you mean compression?"),
        ({"compression": "lzma"}, "Option compression is 'lzma', but it must be none or gzip"),
        ({"acks": "0"}, "Option acks is '0', but it must be all or -1 or 1"),
        ({"kafka.acks": "0"}, "Option kafka.acks is '0'"),
        ({"batchBytes": "12"}, "Option batchBytes is '12'"),
        ({"deliveryTimeout": "soon"}, "Option deliveryTimeout is 'soon'"),
        ({"path": "/logs"}, "Option path is for reading"),
        ({"exactlyOnce": "yes"}, "Option exactlyOnce is 'yes', but it must be true or false"),
        ({"exactlyOnce": "true", "kafka.acks": "1"}, "Option kafka.acks must be all"),
        ({"exactlyOnce": "true", "query": "q"}, "Option query needs the other one"),
        ({"exactlyOnce": "true", "batchId": "0"}, "Option batchId needs the other one"),
        ({"query": "q", "batchId": "0"}, "Options query and batchId need exactlyOnce true"),
        ({"exactlyOnce": "true", "query": "a/b", "batchId": "0"}, "Option query is 'a/b'. The"),
        ({"exactlyOnce": "true", "query": "q", "batchId": "-1"}, "Option batchId is '-1'"),
        ({"url": "http://a,http://b"}, "Option url names several daemons"),
        ({"url": ""}, "option url"),
    ],
)
def test_an_option_that_is_wrong_is_named(given: Mapping[str, str], message: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        sink_options({**URL, **given})
    assert message in str(caught.value)


def test_every_option_is_documented() -> None:
    page = Path(__file__).resolve().parents[2] / "docs/reference/spark-sink.md"
    text = page.read_text(encoding="utf-8")
    assert [name for name in SINK_OPTIONS if f"| `{name}` |" not in text] == []


# rows


def planner(columns: list[str], topic: str | None = None) -> BatchPlanner:
    return BatchPlanner(
        topic, columns, lambda _: Partitions(2, (0, 1)), batch_bytes=1000, random=SystemRandom()
    )


def test_a_row_without_topic_is_refused() -> None:
    block = pa.record_batch({"topic": pa.array(["a", None]), "value": pa.array(["1", "2"])})
    with pytest.raises(NullTopic, match="null topic present in the data"):
        list(planner(["topic", "value"]).batches(block, 0))


def test_a_partition_that_the_topic_does_not_have_is_refused() -> None:
    block = pa.record_batch({"partition": pa.array([0, 2], pa.int32()), "value": pa.array("ab")})
    with pytest.raises(NoSuchPartition, match=r"names t-2, but the topic has 2 partitions"):
        list(planner(["partition", "value"], "t").batches(block, 0))


# delivery


ME = ProducerIdentity(7, 3)


def outgoing(count: int, partition: int = 0) -> OutgoingBatch:
    columns = RecordColumns.of([None] * count, ["v"] * count, 0)
    return OutgoingBatch("t", partition, columns, np.arange(count, dtype=np.int64))


def test_batches_leave_in_order_with_their_sequences() -> None:
    sent: dict[int, list[int]] = {0: [], 1: [], 2: [], 3: [], 4: []}

    def send(_: str, partition: int, data: bytes) -> None:
        header = read_header(data)
        assert (header.producer_id, header.producer_epoch) == (7, 3)
        sent[partition].append(header.base_sequence)

    sequences = {("t", 1): 2**31 - 2}
    with Delivery(send, ME, sequences) as delivery:
        for _ in range(30):
            for partition in range(4):
                delivery.append(outgoing(3, partition))
        assert delivery.finish() == tuple(("t", partition) for partition in range(4))
    plain = [3 * number for number in range(30)]
    wrapped = [2**31 - 2, *range(1, 88, 3)]
    assert sent == {0: plain, 1: wrapped, 2: plain, 3: plain, 4: []}
    assert sequences == {("t", 0): 90, ("t", 1): 88, ("t", 2): 90, ("t", 3): 90}


def test_a_delivery_holds_few_batches() -> None:
    may_answer, is_full = threading.Event(), threading.Event()
    appended = 0

    def send(*_: object) -> None:
        assert is_full.wait(30)
        assert appended == BATCHES_IN_FLIGHT
        may_answer.wait(30)

    def watch() -> None:
        is_full.set()
        may_answer.set()

    with Delivery(send, ME, {}) as delivery:
        for _ in range(BATCHES_IN_FLIGHT):
            delivery.append(outgoing(1))
            appended += 1
        blocked = threading.Timer(0.05, watch)
        blocked.start()
        delivery.append(outgoing(1))
        delivery.finish()
    assert is_full.is_set()


def deliver(
    send: Callable[[str, int, bytes], object], count: int, at_end: Callable[[], object]
) -> None:
    with Delivery(send, ME, {}) as delivery:
        for _ in range(count):
            delivery.append(outgoing(1))
        at_end()
        delivery.finish()


def test_nothing_is_sent_behind_a_failure() -> None:
    sent = []

    def send(_: str, partition: int, data: bytes) -> None:
        sent.append((partition, read_header(data).base_sequence))
        if len(sent) == 3:
            raise OutcomeUnknown("No answer from there.")

    for count in (3, 100):
        with pytest.raises(
            SinkFailed, match=r"A batch of 69 bytes could not be appended to t-0: No answer"
        ):
            deliver(send, count, at_end=lambda: None)
        assert sent == [(0, 0), (0, 1), (0, 2)]
        sent.clear()


def test_a_task_that_fails_sends_no_more() -> None:
    has_begun, may_answer = threading.Event(), threading.Event()
    sent = []

    def send(_: str, partition: int, data: bytes) -> None:
        sent.append(read_header(data).base_sequence)
        has_begun.set()
        may_answer.wait(30)

    def fail() -> None:
        has_begun.wait(30)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        deliver(send, 3, at_end=fail)
    may_answer.set()
    for thread in threading.enumerate():
        if thread.name.startswith("kafkalog-append"):
            thread.join(30)
    assert sent == [0]


def test_an_error_of_the_lane_itself_reaches_the_task() -> None:
    def send(*_: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        deliver(send, 1, at_end=lambda: None)


@pytest.mark.parametrize(
    ("failure", "advice"),
    [
        (UnknownTopic("Topic t does not exist."), "Create the topic first"),
        (
            OutcomeUnknown("No answer from http://x:1: it took too long."),
            "the daemon of option url",
        ),
        (ClientError("Something new."), "Something new."),
    ],
)
def test_a_failure_says_what_to_do(failure: ClientError, advice: str) -> None:
    message = sink_failed(failure, "It failed").message
    assert message.startswith(f"It failed: {failure.message}")
    assert advice in message
