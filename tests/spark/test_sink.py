"""Goal: df.write and df.writeStream put every row into a daemon's logs; exactly once where asked.
Method: a real Spark and a daemon of its own process; logs are read back by the client, which shows
what readers of committed records see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from kafkalog.client import Client
from kafkalog.spark.sink.writers import RUN_ID
from tests.integration.daemon import Daemon

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession

    from kafkalog.client import ConsumerRecord

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """For every test here; each has topics of its own."""
    with Daemon(tmp_path_factory.mktemp("daemon")) as one:
        yield one


def to(daemon: Daemon, topic: str | None, **options: Any) -> dict[str, Any]:
    named = {} if topic is None else {"topic": topic}
    return {"url": f"http://127.0.0.1:{daemon.port}", **named, **options}


def write(frame: DataFrame, options: dict[str, Any], mode: str = "append") -> None:
    frame.write.format("kafkalog").options(**options).mode(mode).save()


def committed(daemon: Daemon, topic: str) -> list[ConsumerRecord]:
    with Client(f"http://127.0.0.1:{daemon.port}") as client:
        return [
            record
            for partition in range(len(client.partitions(topic)))
            for record in client.tail(
                topic, partition, start="earliest", is_endless=False, isolation="read_committed"
            )
        ]


def numbers(records: list[ConsumerRecord]) -> list[int]:
    return sorted(int(record.value or b"") for record in records)


@pytest.mark.gate
@pytest.mark.parametrize("exactly_once", ["false", "true"])
def test_a_frame_is_written_whole(spark: SparkSession, daemon: Daemon, exactly_once: str) -> None:
    """Many rows of several tasks, compressed; the rows of a task keep their order."""
    topic = f"whole-{exactly_once}"
    daemon.create_topic(topic, partitions=3)
    frame = spark.range(0, 60_000, numPartitions=3).select(
        (f.col("id") % 100).cast("string").alias("key"), f.col("id").cast("string").alias("value")
    )
    write(frame, to(daemon, topic, exactlyOnce=exactly_once, compression="lz4", batchBytes="32k"))
    records = committed(daemon, topic)
    assert numbers(records) == list(range(60_000))
    for key in (b"1", b"99"):
        of_key = [record for record in records if record.key == key]
        assert len({record.partition for record in of_key}) == 1
        for low in range(0, 60_000, 20_000):
            values = [
                int(r.value or b"") for r in of_key if low <= int(r.value or b"") < low + 20_000
            ]
            assert values == sorted(values)


def test_a_job_that_fails_shows_nothing_exactly_once(spark: SparkSession, daemon: Daemon) -> None:
    """One task of four fails at its last row; a job after it is not held up by what it left."""
    daemon.create_topic("failed", partitions=2)
    fail = f.when(f.col("id") == 3999, f.raise_error(f.lit("no such row")))
    frame = spark.range(0, 4000, numPartitions=4).select(
        f.coalesce(fail.cast("string"), f.col("id").cast("string")).alias("value")
    )
    options = to(daemon, "failed", exactlyOnce="true", batchBytes="1k")
    with pytest.raises(PySparkException, match="no such row"):
        write(frame, options)
    assert committed(daemon, "failed") == []
    write(frame.limit(10), options)
    assert len(committed(daemon, "failed")) == 10


def test_a_log_is_not_overwritten(spark: SparkSession, daemon: Daemon) -> None:
    with pytest.raises(PySparkException, match="Save mode overwrite is not supported"):
        write(spark.range(1).select(f.lit("x").alias("value")), to(daemon, "t"), "overwrite")


class Files:
    """The input of a stream: a file is a micro-batch of its own."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._spark = spark
        self._directory = directory
        self.count = 0
        (directory / "input").mkdir()

    def add(self, rows: int) -> None:
        lines = "".join(f"{number}\n" for number in range(self.count, self.count + rows))
        self.count += rows
        made = self._directory / "made"
        made.write_text(lines)
        made.rename(self._directory / "input" / f"{self.count:08d}.txt")

    def run(self, options: dict[str, Any], value: Column | str = "value") -> str:
        """A query over what is there, from its checkpoint on; two tasks a batch. Its run's id."""
        rows = self._spark.readStream.option("maxFilesPerTrigger", 1)
        query = (
            rows.text(str(self._directory / "input"))
            .repartition(2)
            .select(value)
            .writeStream.format("kafkalog")
            .options(**options)
            .option("checkpointLocation", str(self._directory / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return str(query.runId)


@pytest.mark.parametrize("exactly_once", ["false", "true"])
def test_a_stream_is_written_batch_by_batch(
    spark: SparkSession, daemon: Daemon, tmp_path: Path, exactly_once: str
) -> None:
    """A query that goes on from its checkpoint writes what is new, once."""
    topic = f"stream-{exactly_once}"
    daemon.create_topic(topic, partitions=2)
    files = Files(spark, tmp_path)
    options = to(daemon, topic, exactlyOnce=exactly_once)
    for _ in range(2):
        files.add(100)
        files.add(50)
        files.run(options)
        assert numbers(committed(daemon, topic)) == list(range(files.count))
    files.run(options)
    assert numbers(committed(daemon, topic)) == list(range(300))


def test_the_tasks_of_a_stream_know_its_run(
    spark: SparkSession, daemon: Daemon, tmp_path: Path
) -> None:
    """By it the daemon tells the start of a query from what its former start left behind."""
    daemon.create_topic("runs")
    files, name = Files(spark, tmp_path), RUN_ID
    options = to(daemon, "runs", exactlyOnce="true")

    def run_of(_: str) -> str | None:
        from pyspark import TaskContext

        found: str | None = TaskContext.get().getLocalProperty(name)
        return found

    runs = []
    for _ in range(2):
        files.add(1)
        value = f.udf(run_of, "string", useArrow=False)("value").alias("value")
        runs.append(files.run(options, value))
    assert [(record.value or b"").decode() for record in committed(daemon, "runs")] == runs
    assert len(set(runs)) == 2


def test_a_batch_whose_commit_was_not_noted_is_written_once(
    spark: SparkSession, daemon: Daemon, tmp_path: Path
) -> None:
    """The driver died between the daemon's commit and its own: Spark runs the batch again."""
    daemon.create_topic("again", partitions=2)
    files = Files(spark, tmp_path)
    options = to(daemon, "again", exactlyOnce="true")
    files.add(100)
    files.add(100)
    files.run(options)
    (tmp_path / "checkpoint" / "commits" / "1").unlink()
    (tmp_path / "checkpoint" / "commits" / ".1.crc").unlink(missing_ok=True)
    files.add(100)
    files.run(options)
    assert numbers(committed(daemon, "again")) == list(range(300))


def test_a_batch_of_for_each_batch_that_is_called_again_is_written_once(
    spark: SparkSession, daemon: Daemon
) -> None:
    """As Spark does when the function failed behind its save; the next batch goes on."""
    daemon.create_topic("each", partitions=2)
    for batch_id, first in ((0, 0), (0, 0), (1, 100), (1, 100)):
        frame = spark.range(first, first + 100, numPartitions=2).selectExpr(
            "cast(id AS string) AS value"
        )
        write(frame, to(daemon, "each", exactlyOnce="true", query="each", batchId=batch_id))
    assert numbers(committed(daemon, "each")) == list(range(200))


def test_a_save_leaves_no_producer_behind(spark: SparkSession, daemon: Daemon) -> None:
    """Its commit says that no batch follows."""
    daemon.create_topic("saves")
    frame = spark.createDataFrame([("1",)], "value string")
    with Client(f"http://127.0.0.1:{daemon.port}") as client:
        before = {each["query"] for each in client.list_sinks()}
        for _ in range(3):
            write(frame, to(daemon, "saves", exactlyOnce="true"))
        saves = [each["query"] for each in client.list_sinks() if each["query"] not in before]
        assert len(saves) == 3
        for query in saves:
            described = client.describe_sink(query)
            assert (described["state"], described["producers"]) == ("committed", [])
