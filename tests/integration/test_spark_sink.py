"""Goal: what a task of the Spark sink writes is in the logs of a real daemon, once, or it fails.
Method: Arrow batches as Spark hands them over, a daemon of its own process, a proxy that cuts
answers; the logs are read back by the client.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from kafkalog.client import Client
from kafkalog.format.records.record_batch import read_header
from kafkalog.spark.sink.failures import SinkFailed
from kafkalog.spark.sink.options import sink_options
from kafkalog.spark.sink.write import Written, close_connections, write_at_least_once
from tests.integration.client_world import CuttingProxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.client import ConsumerRecord
    from tests.integration.daemon import Daemon

PAIR = pa.struct([("key", pa.utf8()), ("value", pa.binary())])


@pytest.fixture(autouse=True)
def _no_connection_outlasts_its_test() -> Iterator[None]:
    yield
    close_connections()


def url_of(daemon: Daemon) -> str:
    return f"http://127.0.0.1:{daemon.port}"


def write(url: str, batches: list[pa.RecordBatch], **options: str) -> Written:
    """One task with these options; every column of the first batch is written."""
    checked = sink_options({"url": url, **options})
    return write_at_least_once(batches, checked, batches[0].schema.names)


def read_back(daemon: Daemon, topic: str, partition: int) -> list[ConsumerRecord]:
    with Client(url_of(daemon)) as client:
        return list(client.tail(topic, partition, start="earliest", is_endless=False))


def test_every_column_arrives(daemon: Daemon) -> None:
    """Two topics by a column, partitions by column and key, headers, nulls, times."""
    daemon.create_topic("one", partitions=2, retention_ms="-1")
    daemon.create_topic("two", partitions=1, retention_ms="-1")
    rows = pa.record_batch(
        {
            "topic": pa.array(["one", "two", "one", "one"]),
            "key": pa.array([b"k1", None, b"k1", None]),
            "value": pa.array(["a", None, "c", "d"]),
            "headers": pa.array(
                [[{"key": "h", "value": b"x"}, {"key": "h", "value": None}], None, [], None],
                pa.list_(PAIR),
            ),
            "partition": pa.array([None, None, None, 0], pa.int32()),
            "timestamp": pa.array([1_500, 2_000_000, 0, 3_999], pa.timestamp("us", "UTC")),
        }
    )
    written = write(url_of(daemon), [rows])
    (two,) = read_back(daemon, "two", 0)
    assert (two.key, two.value, two.timestamp_ms, two.headers) == (None, None, 2000, ())
    ones = [
        (each.partition, each.key, each.value, each.timestamp_ms, each.headers)
        for partition in (0, 1)
        for each in read_back(daemon, "one", partition)
    ]
    keyed = next(partition for partition, key, *_ in ones if key is not None)
    assert sorted(ones, key=lambda each: each[3]) == [
        (keyed, b"k1", b"c", 0, ()),
        (keyed, b"k1", b"a", 1, (("h", b"x"), ("h", None))),
        (0, None, b"d", 3, ()),
    ]
    assert written.record_count == 4
    assert written.partitions == tuple(sorted({("one", 0), ("one", keyed), ("two", 0)}))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_many_records_arrive_in_order(daemon: Daemon, codec: str) -> None:
    """A hundred batches over three partitions; each partition keeps the order of the rows."""
    topic = f"many-{codec}"
    daemon.create_topic(topic, partitions=3)
    batches = [
        pa.record_batch(
            {
                "key": pa.array([f"key-{number % 50}" for number in range(start, start + 500)]),
                "value": pa.array([f"{number:08d}" * 10 for number in range(start, start + 500)]),
            }
        )
        for start in range(0, 20_000, 500)
    ]
    write(url_of(daemon), batches, topic=topic, compression=codec, batchBytes="20k")
    found: list[int] = []
    for partition in range(3):
        numbers = [int((each.value or b"")[:8]) for each in read_back(daemon, topic, partition)]
        assert numbers == sorted(numbers)
        found += numbers
    assert sorted(found) == list(range(20_000))


def test_the_tasks_of_a_process_share_a_producer(daemon: Daemon) -> None:
    """A cluster has as many as it has workers; after a failed task a new one is drawn."""
    daemon.create_topic("shared", partitions=1)
    rows = pa.record_batch({"value": pa.array(["a", "b", "c"])})
    for topic in ("shared", "shared", "nowhere", "shared"):
        if topic == "nowhere":
            with pytest.raises(SinkFailed, match="Topic nowhere cannot be written to"):
                write(url_of(daemon), [rows], topic=topic)
        else:
            write(url_of(daemon), [rows], topic=topic)
    producers, sequences, position = [], [], 0
    with Client(url_of(daemon)) as client:
        data = client.fetch_batches("shared", 0, 0).data
    while position < len(data):
        header = read_header(data, position)
        producers.append(header.producer_id)
        sequences.append(header.base_sequence)
        position += header.size_bytes
    assert sequences == [0, 3, 0]
    assert producers[0] == producers[1] != producers[2]


@pytest.mark.slow
def test_a_lost_answer_appends_nothing_twice(daemon: Daemon) -> None:
    """Every third answer to an append is cut off; each record is in the log once."""
    daemon.create_topic("cut", partitions=2)
    appends = 0

    def cut(head: bytes) -> str:
        nonlocal appends
        if b"/batches" not in head:
            return ""
        appends += 1
        return ("after", "", "half", "before")[appends % 4] if appends < 16 else ""

    rows = pa.record_batch(
        {
            "key": pa.array([str(number) for number in range(3000)]),
            "value": pa.array([str(number) for number in range(3000)]),
        }
    )
    with CuttingProxy(daemon.port, cut) as proxy:
        write(proxy.url, [rows], topic="cut", batchBytes="4k")
        assert len(proxy.cuts) == 11
    found = [each.value for number in (0, 1) for each in read_back(daemon, "cut", number)]
    assert sorted(found, key=lambda value: int(value or b"")) == [
        str(number).encode() for number in range(3000)
    ]


def test_a_daemon_that_is_away_is_waited_for_and_then_named() -> None:
    """Not for ever, and the error says where to look."""
    rows = pa.record_batch({"value": pa.array(["a"])})
    began = time.monotonic()
    with pytest.raises(SinkFailed) as caught:
        write("http://127.0.0.1:9", [rows], topic="t", deliveryTimeout="300ms")
    assert time.monotonic() - began < 20
    assert "No answer from http://127.0.0.1:9" in caught.value.message
    assert "Check that the daemon of option url runs" in caught.value.message


def test_what_the_daemon_refuses_fails_the_task(daemon: Daemon) -> None:
    """A topic that is not there, a null key for a compacted one, a batch above its bound."""
    daemon.create_topic("compacted", cleanup_policy="compact")
    daemon.create_topic("narrow", max_message_bytes="2000")
    rows = pa.record_batch({"value": pa.array(["x" * 100] * 40)})
    for topic, message in (
        ("missing", "Create the topic first"),
        ("compacted", "could not be appended to compacted-0"),
        ("narrow", "Decrease option batchBytes"),
    ):
        with pytest.raises(SinkFailed) as caught:
            write(url_of(daemon), [rows], topic=topic)
        assert message in caught.value.message
    write(url_of(daemon), [rows], topic="narrow", batchBytes="1900")
    assert len(read_back(daemon, "narrow", 0)) == 40
