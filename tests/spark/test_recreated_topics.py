"""Goal: no query reads on in a topic that only has the name of the one that it read.
Method: topics are deleted and recreated between two runs of a stream, and between plan and tasks of
a stream or batch; in directories, at a daemon. Readers are driven as Spark does it, and by Spark.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from kafkalog.format.topic_names import encode_id
from kafkalog.spark.logs.values import DataLost
from kafkalog.spark.options import batch_options, stream_options
from kafkalog.spark.planning import PartitionsGone
from kafkalog.spark.source import KafkalogReader
from kafkalog.spark.stream_reader import KafkalogStreamReader, limits
from tests.integration.daemon import Daemon
from tests.spark.log_directory import LogDirectory
from tests.spark.stream_query import Query

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from kafkalog.spark.offsets import OffsetDocument
    from tests.spark.log_directory import Row

pytestmark = pytest.mark.spark
FIRST, SECOND, THIRD, FOURTH = (UUID(int=number) for number in (1, 2, 3, 4))
ALL = limits.ReadAllAvailable()
OFFSETS = StructType([StructField("partition", IntegerType()), StructField("offset", LongType())])


@pytest.fixture
def logs(tmp_path: Path) -> LogDirectory:
    """Topic a: 60 records in one partition, 40 in another."""
    made = LogDirectory(tmp_path / "logs")
    made.fill("a", 0, 0, 60)
    made.fill("a", 1, 100, 40)
    made.identify("a", FIRST)
    return made


def recreate(logs: LogDirectory, topic_id: UUID, *counts: int) -> None:
    """One partition for each count; more records than the query has read of the topic before."""
    logs.delete("a")
    for partition, count in enumerate(counts):
        logs.fill("a", partition, 0, count)
    logs.identify("a", topic_id)


class Driven:
    """A stream with Trigger.AvailableNow without a Spark; ``offsets``: its checkpoint."""

    def __init__(self, where: dict[str, str]) -> None:
        """``where``: option path or url."""
        self._where = where
        self.offsets: list[OffsetDocument] = []
        self.rows: list[tuple[int, int]] = []

    def run(self, **options: str) -> None:
        reader = stream_reader(**self._where, **options)
        try:
            self._run(reader)
        finally:
            reader.stop()

    def _run(self, reader: KafkalogStreamReader) -> None:
        reader.prepareForTriggerAvailableNow()
        if not self.offsets:
            self.offsets.append(reader.initialOffset())
        limit = reader.getDefaultReadLimit()
        while (end := reader.latestOffset(self.offsets[-1], limit)) != self.offsets[-1]:
            for task in reader.partitions(self.offsets[-1], end):
                for batch in reader.read(task):
                    self.rows += zip(*(each.to_pylist() for each in batch.columns), strict=True)
            self.offsets.append(json.loads(json.dumps(end)))


def numbers(rows: list[Row]) -> list[tuple[int, int]]:
    return [(row["partition"], row["offset"]) for row in rows]


@pytest.fixture
def query(logs: LogDirectory) -> Driven:
    return Driven({"path": str(logs.path)})


def test_a_stream_ends_before_it_reads_another_topic(query: Driven, logs: LogDirectory) -> None:
    """The error says which topic and what to do; the checkpoint is as it was."""
    query.run()
    known = list(query.offsets)
    assert known[-1] == {"a": {"0": 60, "1": 140}, f"a@{encode_id(FIRST)}": {}}
    recreate(logs, SECOND, 90)
    for _ in range(2):
        with pytest.raises(DataLost) as caught:
            query.run()
        message = str(caught.value)
        assert message.startswith("The records of a-0 from offset 60 on are missing")
        assert f"its id was {encode_id(FIRST)}, it is {encode_id(SECOND)} now" in message
        assert "recreatedTopicStrategy=earliest" in message
        assert query.offsets == known


@pytest.mark.parametrize(
    "option", [{"recreatedtopicstrategy": "earliest"}, {"failondataloss": "false"}]
)
def test_a_fresh_start_by_option(query: Driven, logs: LogDirectory, option: dict[str, str]) -> None:
    """Each record of both topics once, and the next run goes on in the new one."""
    query.run(**option)
    old = logs.of("a")
    recreate(logs, SECOND, 90)
    query.run(maxoffsetspertrigger="50", **option)
    logs.fill("a", 0, 90, 10)
    query.run(**option)
    assert sorted(query.rows) == sorted(numbers(old + logs.of("a")))
    assert query.offsets[-1] == {"a": {"0": 100}, f"a@{encode_id(SECOND)}": {}}


def test_a_checkpoint_without_ids_goes_on(query: Driven, logs: LogDirectory) -> None:
    """As older versions and the Kafka source leave it: from then on it has the ids."""
    for place in logs.path.glob("a-*"):
        (place / "partition.metadata").unlink()
    query.run()
    assert query.offsets[-1] == {"a": {"0": 60, "1": 140}}
    logs.identify("a", FIRST)
    logs.fill("a", 0, 60, 5)
    query.run()
    assert sorted(query.rows) == numbers(logs.of("a"))
    recreate(logs, SECOND, 90, 200)
    with pytest.raises(DataLost, match="a-0 from offset 65 on"):
        query.run()


def stream_reader(**options: str) -> KafkalogStreamReader:
    given = {"subscribe": "a", "startingoffsets": "earliest"}
    return KafkalogStreamReader(OFFSETS, stream_options(given | options))


def test_a_topic_that_is_recreated_after_a_batch_was_planned(
    logs: LogDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    """A batch that is run again reads nothing of the other topic; the next one reads it whole."""
    reader = stream_reader(path=str(logs.path))
    start = reader.initialOffset()
    end = reader.latestOffset(start, limits.ReadAllAvailable())
    recreate(logs, SECOND, 90)
    with pytest.raises(DataLost, match=r"a-0 from offset 0 on .* recreated .*Strategy=earliest"):
        reader.partitions(start, end)
    restarting = stream_reader(path=str(logs.path), recreatedtopicstrategy="earliest")
    with caplog.at_level(logging.WARNING):
        assert restarting.partitions(start, end) == []
    assert "the new topic is read from its start" in caplog.records[-1].getMessage()
    last = restarting.latestOffset(end, limits.ReadMaxRows(1000))
    assert last == {"a": {"0": 90}, f"a@{encode_id(SECOND)}": {}}
    (task,) = restarting.partitions(end, last)
    (batch,) = restarting.read(task)
    assert batch.column("offset").to_pylist() == list(range(90))
    recreate(logs, THIRD, 90)
    with pytest.raises(DataLost, match="recreated"):
        list(reader.read(task))
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert list(restarting.read(task)) == []
    assert "the next batch reads the new topic from its start" in caplog.records[-1].getMessage()
    reading = restarting.read(restarting.partitions(end, restarting.latestOffset(end, ALL))[0])
    next(reading)
    recreate(logs, FOURTH, 90)
    with pytest.raises(DataLost, match="recreated"):  # the rows may be of both
        list(reading)


def test_a_topic_that_vanishes(logs: LogDirectory) -> None:
    """A stream that has read it says how far, before anything gets into its checkpoint."""
    for subscription in ({}, {"subscribepattern": "a|b", "subscribe": None}):
        given = {"path": str(logs.path), "startingoffsets": "earliest", "subscribe": "a"}
        options = {k: v for k, v in (given | subscription).items() if v is not None}
        reader = KafkalogStreamReader(OFFSETS, stream_options(options))
        end = reader.latestOffset(reader.initialOffset(), limits.ReadAllAvailable())
        logs.delete("a")
        with pytest.raises(PartitionsGone, match=r"deleted.* a-0 \(read up to 60\), a-1"):
            reader.latestOffset(end, limits.ReadAllAvailable())
        with pytest.raises(PartitionsGone, match=r"deleted.* a-0 \(read up to 0\)"):
            reader.partitions({"a": {"0": 0, "1": 100}}, end)
        logs.fill("a", 0, 0, 60)
        logs.fill("a", 1, 100, 40)
        logs.identify("a", FIRST)


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_batch_query_reads_one_topic(logs: LogDirectory, fails: str) -> None:
    """Its rows may be of both, so that it fails in any case."""
    given = {"path": str(logs.path), "subscribe": "a", "failondataloss": fails}
    reader = KafkalogReader(OFFSETS, batch_options(given))
    tasks = reader.partitions()
    assert sum(batch.num_rows for task in tasks for batch in reader.read(task)) == 100
    recreate(logs, SECOND, 90, 90)
    for task in tasks:
        with pytest.raises(DataLost, match="the topic was deleted and recreated"):
            list(reader.read(task))


def test_a_topic_that_is_recreated_while_a_batch_is_planned(
    logs: LogDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    """After its id was looked up, or from a store's older listing: a task sees it before it reads.
    The next batch reads the new topic whole, so that the query does not end.
    """
    restarting = stream_reader(path=str(logs.path), recreatedtopicstrategy="earliest")
    start = restarting.initialOffset()
    end = restarting.latestOffset(start, ALL)
    tasks = restarting.partitions(start, end)
    recreate(logs, SECOND, 90, 190)
    with caplog.at_level(logging.WARNING):
        assert [batch for task in tasks for batch in restarting.read(task)] == []
    assert len(caplog.records) == len(tasks) == 2
    last = restarting.latestOffset(end, ALL)
    rows = [
        batch.num_rows for t in restarting.partitions(end, last) for batch in restarting.read(t)
    ]
    assert sum(rows) == 90 + 190


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with Daemon(tmp_path / "daemon") as one:
        one.create_topic("a")
        one.produce_text("a", *map(str, range(20)))
        yield one


def delete_topic(daemon: Daemon) -> None:
    answer = daemon.request("DELETE", f"{daemon.cluster()}/topics/a")
    assert answer.status == 204


def test_at_a_daemon(daemon: Daemon) -> None:
    """The same over HTTP, where every topic has an id."""
    where = {"url": f"http://127.0.0.1:{daemon.port}"}
    query = Driven(where)
    query.run()
    batch = KafkalogReader(OFFSETS, batch_options({"subscribe": "a"} | where))
    (task,) = batch.partitions()
    assert sum(each.num_rows for each in batch.read(task)) == 20
    delete_topic(daemon)
    with pytest.raises(PartitionsGone, match=r"a-0 \(read up to 20\)"):
        query.run()
    daemon.create_topic("a")
    daemon.produce_text("a", *map(str, range(50)))
    with pytest.raises(DataLost, match="recreated"):
        list(batch.read(task))
    with pytest.raises(DataLost, match="a-0 from offset 20 on"):
        query.run()
    query.run(recreatedtopicstrategy="earliest")
    assert query.rows == [(0, offset) for offset in (*range(20), *range(50))]


def test_in_a_spark(spark: SparkSession, logs: LogDirectory, tmp_path: Path) -> None:
    """Its offset log has the ids, its exception has our error."""
    query = Query(spark, {"path": str(logs.path)}, tmp_path)
    query.run()
    (line,) = query.offset_lines()
    assert json.loads(line) == {"a": {"0": 60, "1": 140}, f"a@{encode_id(FIRST)}": {}}
    recreate(logs, SECOND, 90)
    with pytest.raises(
        StreamingQueryException, match="DataLost: The records of a-0 from offset 60"
    ):
        query.run()
    assert query.offset_lines() == [line]
    query.run(recreatedTopicStrategy="earliest")
    assert len(query.rows()) == 100 + 90
