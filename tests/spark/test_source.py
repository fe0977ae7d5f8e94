"""Goal: spark.read and spark.readStream find the rows that Spark's Kafka source would find, in a
directory and over HTTP, checkpoints included.
Method: a real Spark over logs of every shape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from kafkalog.spark import register
from kafkalog.spark.logs.values import DataLost
from kafkalog.spark.option_values import InvalidOption
from kafkalog.spark.options import stream_options
from kafkalog.spark.planning import PartitionsGone
from kafkalog.spark.stream_reader import KafkalogStreamReader, UnlimitedStreamReader, limits
from tests.sim.sim_clock import SimClock
from tests.spark.log_directory import TIME_MS, LogDirectory, every_shape, in_order, plain, rows_of
from tests.spark.stream_query import Query

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


pytestmark = pytest.mark.spark
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def directory(tmp_path: Path) -> LogDirectory:
    """Topic a: partitions from 0 and 100 on; topic b: one; topic c: nothing yet."""
    made = LogDirectory(tmp_path / "logs")
    for first in (0, 10):
        made.fill("a", 0, first, 10)
    made.fill("a", 1, 100, 10)
    made.fill("b", 0, 0, 3)
    made.empty("c", 0)
    return made


def read(spark: SparkSession, directory: LogDirectory, **options: Any) -> DataFrame:
    if not {"subscribe", "subscribePattern", "assign"} & options.keys():
        options["subscribe"] = "a"
    return spark.read.format("kafkalog").options(**options).load(str(directory.path))


def offsets_of(frame: DataFrame) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for row in frame.select("partition", "offset").collect():
        found.setdefault(row["partition"], []).append(row["offset"])
    return {partition: sorted(found[partition]) for partition in sorted(found)}


def test_the_schema_is_the_kafka_sources(spark: SparkSession, directory: LogDirectory) -> None:
    """A query moves over by its format's name."""
    columns = (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int"
    )
    assert read(spark, directory).schema.simpleString() == columns + ">"
    headers = read(spark, directory, includeHeaders=True).schema
    assert headers.simpleString() == columns + ",headers:array<struct<key:string,value:binary>>>"
    assert all(field.nullable for field in headers)


@pytest.mark.gate
def test_every_shape_of_record(spark: SparkSession, tmp_path: Path) -> None:
    """Codecs, nulls, headers, times, gaps, markers, a start above 0; small and large chunks."""
    made = LogDirectory(tmp_path / "logs")
    every_shape(made, "t")
    for chunk_bytes in ("1k", "8m"):
        frame = read(spark, made, subscribe="t", includeHeaders=True, chunkBytes=chunk_bytes)
        assert rows_of(frame) == made.of("t")


def test_filters(spark: SparkSession, directory: LogDirectory) -> None:
    """The same rows with filters pushed and not; pushed, fewer tasks and offsets are read."""
    wheres = {
        "partition = 1": ({1: range(100, 110)}, 1),
        "partition in (0, 7) and offset >= 17": ({0: range(17, 20)}, 1),
        "offset between 8 and 11": ({0: range(8, 12)}, 1),
        "topic in ('b', 'x')": ({}, 1),  # Spark makes up a task when there is none
        "topic like 'a%' and offset = 105": ({1: range(105, 106)}, 1),
        f"timestamp >= timestamp_millis({TIME_MS + 105_000})": ({1: range(105, 110)}, 1),
        f"timestamp < timestamp_millis({TIME_MS + 2_000})": ({0: range(2)}, 2),
        "key = cast('k101' as binary)": ({1: range(101, 102)}, 2),
        "offset = 3 or partition = 5": ({0: range(3, 4)}, 2),
    }
    for is_on in ("false", "true"):
        spark.conf.set(PUSHDOWN, is_on)
        for where, (wanted, tasks) in wheres.items():
            frame = read(spark, directory).where(where)
            found = {
                partition: range(x[0], x[-1] + 1) for partition, x in offsets_of(frame).items()
            }
            assert found == wanted, where
            assert frame.rdd.getNumPartitions() == (tasks if is_on == "true" else 2), where
    spark.conf.unset(PUSHDOWN)


def test_a_schema_of_ones_own(spark: SparkSession, directory: LogDirectory) -> None:
    """Any of the columns in any order, as Spark prunes none itself."""
    reader = (
        spark.read.format("kafkalog").option("subscribe", "b").schema("offset long, key binary")
    )
    rows = reader.load(str(directory.path)).collect()
    assert sorted((row[0], bytes(row[1])) for row in rows) == [(0, b"k0"), (1, b"k1"), (2, b"k2")]
    values = reader.schema("value binary").load(str(directory.path))
    assert values.agg(f.sum(f.length("value"))).first()[0] == 21
    with_headers = reader.schema("headers array<struct<key:string,value:binary>>")
    assert with_headers.load(str(directory.path)).where("headers is null").count() == 3


def test_an_unknown_option_is_refused_at_once(spark: SparkSession, directory: LogDirectory) -> None:
    """A slip shows before anything runs."""
    with pytest.raises(PySparkException, match="did you mean startingOffsets"):
        read(spark, directory, startingOffset="earliest")


def test_registered_by_hand(spark: SparkSession, directory: LogDirectory) -> None:
    """M27. A session that does not find the source by its name."""
    register(spark)
    assert read(spark, directory, subscribe="b").count() == 3


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
    return Query(spark, {"path": str(logs.path)}, tmp_path)


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


def test_progress(query: Query) -> None:
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
    assert reader.getDefaultReadLimit() == limits.ReadMaxRows(80)
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset(reader.initialOffset(), limit)
    assert first == {"a": {"0": 48, "1": 132}}
    assert reader.latestOffset(first, limit) == first, "20 wait, 50 are wanted"
    clock.advance_ms(10_000)
    assert reader.latestOffset(first, limit) == {"a": {"0": 60, "1": 140}}
    assert reader.latestOffset(first, limits.ReadAllAvailable()) == {"a": {"0": 60, "1": 140}}
    reader.stop()


def test_a_least_alone(logs: LogDirectory) -> None:
    """M27. The limit's name, and no wait under Trigger.AvailableNow, which would never end."""
    reader = reader_of(logs, SimClock(), minoffsetspertrigger="1000")
    limit = reader.getDefaultReadLimit()
    assert limit == limits.ReadMinRows(1000)
    reader.prepareForTriggerAvailableNow()
    end = {"a": {"0": 60, "1": 140}}
    assert reader.latestOffset(reader.initialOffset(), limit) == end
    logs.fill("a", 0, 60, 5)
    assert reader.latestOffset(end, limit) == end, "what came later does not count"
    assert reader.reportLatestOffset() == end
    reader.stop()


def test_a_reader_for_an_older_spark(logs: LogDirectory) -> None:
    """Spark 4.1 names no position and no limit: the reader knows where the query is, and refuses
    limits.
    """
    options = {"path": str(logs.path), "subscribe": "a", "startingoffsets": "earliest"}
    reader = UnlimitedStreamReader(StructType(), stream_options(options))
    begin, end = {"a": {"0": 0, "1": 100}}, {"a": {"0": 60, "1": 140}}
    assert reader.initialOffset() == begin
    assert reader.latestOffset() == end
    assert len(reader.partitions(begin, end)) == 2
    logs.fill("a", 0, 60, 5)
    assert reader.latestOffset() == {"a": {"0": 65, "1": 140}}
    reader.stop()
    continued = UnlimitedStreamReader(StructType(), stream_options(options))
    gone = {"a": {"0": 60, "1": 140, "2": 7}}
    continued.partitions(end, end)  # as Spark does, from a checkpoint
    assert continued.latestOffset() == {"a": {"0": 65, "1": 140}}
    with pytest.raises(PartitionsGone, match="a-2"):
        continued.partitions(end, gone)
    with pytest.raises(PartitionsGone, match="a-2"):
        continued.latestOffset()
    continued.stop()
    for name in ("minOffsetsPerTrigger", "maxOffsetsPerTrigger"):
        limited = stream_options(options | {name.lower(): "5"})
        with pytest.raises(InvalidOption, match=f"Option {name} needs Spark 4.2"):
            UnlimitedStreamReader(StructType(), limited)


def test_an_end_that_goes_back_for_a_while(logs: LogDirectory) -> None:
    """A high watermark that a new daemon has not written yet is no data loss; one that stays low
    is.
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
    assert reader.latestOffset(read, limits.ReadAllAvailable()) == read
    assert looks == 2
    ahead = {"a": {"0": 99, "1": 140}}
    end = reader.latestOffset(ahead, limits.ReadAllAvailable())
    assert (looks, end) == (4, read)
    with pytest.raises(DataLost, match=r"a-0 \[65, 99\) are missing"):
        reader.partitions(ahead, end)
    reader.stop()
