"""Goal: spark.readStream goes through a log as Spark's Kafka source does, checkpoints included.
Method: a real Spark over directories that grow, lose segments or partitions between two runs.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from pyspark.sql.types import StructType

from kafkalog.spark.logs.values import DataLost
from kafkalog.spark.options import stream_options
from kafkalog.spark.stream_reader import KafkalogStreamReader
from tests.sim.sim_clock import SimClock
from tests.spark.log_directory import LogDirectory, in_order, plain, rows_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class Query:
    """One streaming query into a table of Parquet, run as often as one likes."""

    def __init__(self, spark: SparkSession, logs: LogDirectory, directory: Path) -> None:
        self._spark = spark
        self._logs = logs
        self.checkpoint = directory / "checkpoint"
        self.table = directory / "table"

    def run(self, **options: Any) -> list[dict[str, Any]]:
        """Until all that was there is through; its progress reports. Raises what ends it."""
        wanted = {"subscribe": "a", "startingOffsets": "earliest"} | options
        given = {name: value for name, value in wanted.items() if value is not None}
        frame = self._spark.readStream.format("kafkalog").options(**given)
        query = (
            frame.load(str(self._logs.path))
            .writeStream.format("parquet")
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start(str(self.table))
        )
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return [json.loads(each.json) for each in query.recentProgress]

    def rows(self) -> list[dict[str, Any]]:
        """What came out so far."""
        return rows_of(self._spark.read.parquet(str(self.table)))

    def offset_lines(self) -> list[str]:
        """The source's line in the offset log of each batch."""
        files = sorted(
            (self.checkpoint / "offsets").glob("[0-9]*"), key=lambda file: int(file.name)
        )
        return [file.read_text().splitlines()[2] for file in files]


@pytest.fixture
def logs(tmp_path: Path) -> LogDirectory:
    """Topic a: 60 records from 0 on in three segments, and 40 from 100 on."""
    made = LogDirectory(tmp_path / "logs")
    for first in (0, 20, 40):
        made.fill("a", 0, first, 20)
    made.fill("a", 1, 100, 40)
    return made


@pytest.fixture
def query(spark: SparkSession, logs: LogDirectory, tmp_path: Path) -> Query:
    """On topic a, from the earliest offset on."""
    return Query(spark, logs, tmp_path)


def test_limited_batches(query: Query, logs: LogDirectory) -> None:
    """MaxOffsetsPerTrigger shares each batch out as the Kafka source does; every row once."""
    query.run(maxOffsetsPerTrigger=30)
    assert query.offset_lines() == [
        '{"a": {"0": 18, "1": 112}}',
        '{"a": {"0": 36, "1": 124}}',
        '{"a": {"0": 54, "1": 136}}',
        '{"a": {"0": 60, "1": 140}}',
    ]
    assert query.rows() == plain(logs.of("a"))


def test_a_checkpoint_goes_on(query: Query, logs: LogDirectory) -> None:
    """M27. Each record once over several runs; new records, a new partition and a new topic."""
    query.run(subscribePattern="a.*", subscribe=None)
    logs.fill("a", 0, 60, 5)
    logs.fill("a", 2, 0, 7)
    logs.fill("ab", 0, 0, 3)
    for _ in range(2):
        query.run(subscribePattern="a.*", subscribe=None)
    assert query.offset_lines() == [
        '{"a": {"0": 60, "1": 140}}',
        '{"a": {"0": 65, "1": 140, "2": 7}, "ab": {"0": 3}}',
    ]
    logs.fill("a", 2, 7, 1)
    query.run(subscribePattern="a.*", subscribe=None)
    assert query.rows() == plain(in_order(logs.rows))


def test_a_checkpoint_of_the_kafka_source(query: Query, logs: LogDirectory) -> None:
    """A query changes its format and keeps its checkpoint."""
    logs.fill("b", 0, 0, 9)
    query.run(subscribe="a,b")
    ours = '{"a": {"0": 60, "1": 140}, "b": {"0": 9}}'
    assert query.offset_lines() == [ours]
    first = query.checkpoint / "offsets" / "0"
    first.write_text(first.read_text().replace(ours, '{"b":{"0":9},"a":{"1":140,"0":60}}'))
    (query.checkpoint / "offsets" / ".0.crc").unlink()
    logs.fill("a", 0, 60, 5)
    query.run(subscribe="a,b")
    assert query.rows() == plain(in_order(logs.rows))


def test_latest_is_the_default(query: Query, logs: LogDirectory) -> None:
    """A stream without a start reads what comes."""
    query.run(startingOffsets=None)
    logs.fill("a", 1, 140, 4)
    query.run(startingOffsets=None)
    assert [row["offset"] for row in query.rows()] == [140, 141, 142, 143]


def test_progress(query: Query) -> None:
    """Spark's progress tells start, end and the latest offsets."""
    (report,) = (each["sources"][0] for each in query.run() if each["numInputRows"])
    end = {"a": {"0": 60, "1": 140}}
    assert (report["endOffset"], report["latestOffset"]) == (end, end)
    assert report["numInputRows"] == 100


@pytest.mark.parametrize("fails", [True, False])
def test_retention_overtakes_a_stream(query: Query, logs: LogDirectory, fails: bool) -> None:
    """An error that names the range, or the rest."""
    query.run()
    gone = logs.fill("a", 0, 60, 10)
    logs.fill("a", 0, 70, 10)
    for file in (logs.path / "a-0").glob("*.log"):
        if file <= gone:
            file.unlink()
    if fails:
        with pytest.raises(StreamingQueryException, match=r"a-0 \[60, 70\) are missing"):
            query.run()
        return
    query.run(failOnDataLoss=False)
    wanted = [row for row in logs.of("a") if row["partition"] == 1 or not 60 <= row["offset"] < 70]
    assert query.rows() == plain(wanted)


@pytest.mark.parametrize("fails", [True, False])
def test_a_partition_that_is_gone(query: Query, logs: LogDirectory, fails: bool) -> None:
    """Told with what was read of it."""
    query.run()
    (logs.path / "a-1" / f"{100:020}.log").unlink()
    (logs.path / "a-1").rmdir()
    logs.fill("a", 0, 60, 5)
    if fails:
        with pytest.raises(StreamingQueryException, match=r"deleted.*: a-1 \(read up to 140\)"):
            query.run()
        return
    query.run(failOnDataLoss=False)
    assert len(query.rows()) == 105


def test_refused_streams(query: Query) -> None:
    """M27. A stream has no end, a topic must be there."""
    with pytest.raises(
        StreamingQueryException, match="endingOffsets: a streaming query has no end"
    ):
        query.run(endingOffsets="latest")
    with pytest.raises(StreamingQueryException, match="There is no topic zz"):
        query.run(subscribe="zz")


def reader_of(logs: LogDirectory, clock: SimClock, **options: str) -> KafkalogStreamReader:
    """A reader as Spark keeps it while a query runs, without a Spark."""
    given = {"path": str(logs.path), "subscribe": "a", "startingoffsets": "earliest"}
    return KafkalogStreamReader(StructType(), stream_options(given | options), clock)


def test_a_least_and_a_most(logs: LogDirectory) -> None:
    """MinOffsetsPerTrigger waits, maxTriggerDelay ends the wait, the most still holds."""
    clock = SimClock()
    reader = reader_of(
        logs, clock, minoffsetspertrigger="50", maxoffsetspertrigger="80", maxtriggerdelay="10s"
    )
    assert reader.getDefaultReadLimit() == ReadMaxRows(80)
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset(reader.initialOffset(), limit)
    assert first == {"a": {"0": 48, "1": 132}}
    assert reader.latestOffset(first, limit) == first, "20 wait, 50 are wanted"
    clock.advance_ms(10_000)
    assert reader.latestOffset(first, limit) == {"a": {"0": 60, "1": 140}}
    assert reader.latestOffset(first, ReadAllAvailable()) == {"a": {"0": 60, "1": 140}}
    reader.stop()


def test_a_least_alone(logs: LogDirectory) -> None:
    """M27. The limit's name, and no wait under Trigger.AvailableNow, which would never end."""
    reader = reader_of(logs, SimClock(), minoffsetspertrigger="1000")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(1000)
    reader.prepareForTriggerAvailableNow()
    end = {"a": {"0": 60, "1": 140}}
    assert reader.latestOffset(reader.initialOffset(), limit) == end
    logs.fill("a", 0, 60, 5)
    assert reader.latestOffset(end, limit) == end, "what came later does not count"
    assert reader.reportLatestOffset() == end
    reader.stop()


def test_an_end_that_goes_back_for_a_while(logs: LogDirectory) -> None:
    """Goal: a high watermark that a new daemon has not written yet is no data loss; one that stays
    low is. Method: a log that is long again at the third look, and one that is not.
    """
    clock = SimClock()
    reader = reader_of(logs, clock, **{"fetchoffset.numretries": "3"})
    read = {"a": {"0": 65, "1": 140}}
    looks = 0

    def sleep(seconds: float) -> bool:
        nonlocal looks
        looks += 1
        if looks == 2:
            logs.fill("a", 0, 60, 5)
        assert seconds == 1
        return True

    clock.set_sleeper(sleep)
    assert reader.latestOffset(read, ReadAllAvailable()) == read
    assert looks == 2
    ahead = {"a": {"0": 99, "1": 140}}
    end = reader.latestOffset(ahead, ReadAllAvailable())
    assert (looks, end) == (4, read)
    with pytest.raises(DataLost, match=r"a-0 \[65, 99\) are missing"):
        reader.partitions(ahead, end)
    reader.stop()
