"""Goal: spark.read finds the rows of a log directory that Spark's Kafka source would find.
Method: a real Spark over directories whose rows are known; one JVM for all.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from kafkalog.format.disk.file_names import segment_file_name
from kafkalog.spark import register
from tests.spark.log_directory import TIME_MS, LogDirectory, every_shape, in_order, plain, rows_of

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
    """A batch query on the directory, of topic a unless told otherwise."""
    if not {"subscribe", "subscribePattern", "assign"} & options.keys():
        options["subscribe"] = "a"
    return spark.read.format("kafkalog").options(**options).load(str(directory.path))


def offsets_of(frame: DataFrame) -> dict[int, list[int]]:
    """By partition."""
    found: dict[int, list[int]] = {}
    for row in frame.select("partition", "offset").collect():
        found.setdefault(row["partition"], []).append(row["offset"])
    return {partition: sorted(found[partition]) for partition in sorted(found)}


def failure_of(frame: DataFrame) -> str:
    """What a query that cannot succeed says."""
    with pytest.raises(PySparkException) as caught:
        frame.collect()
    return str(caught.value)


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


def test_read_committed(spark: SparkSession, tmp_path: Path) -> None:
    """kafka.isolation.level leaves out aborted records."""
    made = LogDirectory(tmp_path / "logs")
    every_shape(made, "t")
    frame = read(spark, made, subscribe="t", **{"kafka.isolation.level": "read_committed"}).where(
        "partition = 1"
    )
    assert offsets_of(frame) == {1: [0, 1, 2, 3, 4, 7, 8]}


@pytest.mark.parametrize(
    ("options", "topics"),
    [
        ({"subscribe": "a, b,c"}, "ab"),
        ({"subscribePattern": "[bc]"}, "b"),
        ({"assign": '{"b":[0],"c":[0]}'}, "b"),
        ({"subscribe": "c"}, ""),
    ],
)
def test_subscriptions(
    spark: SparkSession, directory: LogDirectory, options: dict[str, str], topics: str
) -> None:
    """M27. Names, a pattern, partitions; a topic without records is an empty table."""
    wanted = in_order(row for topic in topics for row in directory.of(topic))
    assert rows_of(read(spark, directory, **options)) == plain(wanted)


def test_positions(spark: SparkSession, directory: LogDirectory) -> None:
    """Offsets, extremes and times, as options say."""
    offsets = {
        "startingOffsets": json.dumps({"a": {"0": 15, "1": -2}}),
        "endingOffsets": json.dumps({"a": {"0": -1, "1": 103}}),
    }
    found = offsets_of(read(spark, directory, **offsets))
    assert found == {0: [15, 16, 17, 18, 19], 1: [100, 101, 102]}
    times = {
        "startingTimestamp": TIME_MS + 18_000,
        "endingTimestamp": TIME_MS + 101_500,
    }
    assert offsets_of(read(spark, directory, **times)) == {0: [18, 19], 1: [100, 101]}
    by_partition = {
        "startingOffsetsByTimestamp": json.dumps({"a": {"0": TIME_MS + 17_001, "1": TIME_MS * 2}}),
        "startingOffsetsByTimestampStrategy": "latest",
    }
    assert offsets_of(read(spark, directory, **by_partition)) == {0: [18, 19]}


def test_the_tasks_of_a_query(spark: SparkSession, directory: LogDirectory) -> None:
    """A task a partition, more for minPartitions, maxRecordsPerPartition and targetBytes."""
    counts = {}
    for options in ({}, {"minPartitions": 6}, {"maxRecordsPerPartition": 4}, {"targetBytes": 1}):
        frame = read(spark, directory, **options)
        counts[str(options)] = frame.rdd.getNumPartitions()
        assert rows_of(frame) == plain(directory.of("a"))
    assert list(counts.values()) == [2, 6, 8, 3]


def test_filters(spark: SparkSession, directory: LogDirectory) -> None:
    """Goal: the same rows with filters pushed and not; pushed, fewer tasks and offsets are read.
    Method: queries over partition, topic, offset and timestamp, with Spark's setting on and off.
    """
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


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("key string", "Column key is binary, not string: cast it in the query"),
        ("id int", "There is no column id: a schema has any of key, value, topic"),
    ],
)
def test_a_schema_that_is_not_ours(
    spark: SparkSession, directory: LogDirectory, schema: str, message: str
) -> None:
    """M27. No cast and no guess."""
    reader = spark.read.format("kafkalog").option("subscribe", "b").schema(schema)
    assert message in failure_of(reader.load(str(directory.path)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "aa"}, "There is no topic aa; existing topics: a, b, c"),
        ({"assign": '{"a":[0,5]}'}, "There is no partition a-5: a has 0, 1"),
        ({"startingOffsets": "{"}, "Option startingOffsets is '{', but it must be JSON as"),
        ({"startingOffsets": "latest"}, "a batch query cannot begin at the latest"),
        ({"startingOffsets": '{"a":{"0":1}}'}, "Option startingOffsets lacks a-1"),
        ({"startingOffsets": '{"a":{"0":1,"1":999}}'}, "offset 999 of a-1, after its end 110"),
        ({"startingTimestamp": "9999999999999"}, "no record at or after 9999999999999 ms"),
    ],
)
def test_refused_queries(
    spark: SparkSession, directory: LogDirectory, options: dict[str, str], message: str
) -> None:
    """M27. An error that names the option and what would be right."""
    assert message in failure_of(read(spark, directory, **options))


def test_an_unknown_option_is_refused_at_once(spark: SparkSession, directory: LogDirectory) -> None:
    """A slip shows before anything runs."""
    with pytest.raises(PySparkException, match="did you mean startingOffsets"):
        read(spark, directory, startingOffset="earliest")


def test_lost_offsets(spark: SparkSession, directory: LogDirectory) -> None:
    """An error that names the range, or the rest (the warnings: unit/test_spark_reading.py)."""
    lost = {
        "startingOffsets": '{"a":{"0":-2,"1":95}}',
        "endingOffsets": '{"a":{"0":-1,"1":115}}',
    }
    message = failure_of(read(spark, directory, **lost))
    assert "The records of a-1 [95, 100) are missing" in message
    assert "option failOnDataLoss=false goes on" in message
    found = offsets_of(read(spark, directory, failOnDataLoss=False, **lost))
    assert found == {0: list(range(20)), 1: list(range(100, 110))}


def test_a_corrupt_batch_is_never_skipped(spark: SparkSession, directory: LogDirectory) -> None:
    """An error with partition, offset, file and position, whatever failOnDataLoss says."""
    file = directory.path / "a-0" / segment_file_name(10, ".log")
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)
    directory.fill("a", 0, 20, 1)  # so that it is no torn tail
    message = failure_of(read(spark, directory, failOnDataLoss=False))
    assert "a-0: the batch at offset 10 is not valid: its CRC is wrong" in message
    assert f"{file} at 0" in message
    unchecked = read(spark, directory, checkCrcs=False)
    assert offsets_of(unchecked)[0] == list(range(21))


def test_options_of_kafka_do_no_harm(spark: SparkSession, directory: LogDirectory) -> None:
    """M27. A query brought from Kafka runs (what it is told: unit/test_spark_options.py)."""
    frame = read(spark, directory, **{"kafka.bootstrap.servers": "b:9092"})
    assert frame.count() == 30


def test_registered_by_hand(spark: SparkSession, directory: LogDirectory) -> None:
    """M27. A session that does not find the source by its name."""
    register(spark)
    assert read(spark, directory, subscribe="b").count() == 3
