"""Goal: over HTTP Spark finds the rows that lie in the daemon's log directory.
Method: a daemon that is produced to; the same query by url and, when it has stopped, by path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from kafkalog.client import Client, ProducerRecord
from tests.integration.daemon import Daemon
from tests.spark.log_directory import rows_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from kafkalog.client.records import CodecName

pytestmark = pytest.mark.spark


def fill(client: Client, topic: str) -> None:
    """Two partitions, every codec, keys and headers, values of some KB."""
    client.create_topic(topic, partitions=2)
    codecs: tuple[CodecName, ...] = ("none", "gzip", "snappy", "lz4", "zstd")
    for number, codec in enumerate(codecs):
        for partition in range(2):
            records = [
                ProducerRecord(
                    b"%d" % record * 500,
                    key=b"k" if record % 2 else None,
                    headers=(("h", b"x"), ("g", None)) if record % 3 == 0 else (),
                )
                for record in range(20 * number, 20 * number + 20)
            ]
            client.produce(topic, records, partition=partition, codec=codec)


def read(spark: SparkSession, **options: Any) -> DataFrame:
    """Small reads and several tasks a partition."""
    wanted = {"includeHeaders": True, "chunkBytes": "4k", "targetBytes": "16k"} | options
    return spark.read.format("kafkalog").options(**wanted).load()


def test_daemon_and_directory_agree(spark: SparkSession, tmp_path: Path) -> None:
    """The same rows in all columns; a fleet; a token that is needed and not."""
    with Daemon(tmp_path / "one") as one, Daemon(tmp_path / "two") as two:
        urls = [f"http://127.0.0.1:{each.port}" for each in (one, two)]
        for url, topic in zip(urls, ("a", "b"), strict=True):
            with Client(url) as client:
                fill(client, topic)
        over_http = rows_of(read(spark, url=urls[0], subscribe="a"))
        assert len(over_http) == 200
        fleet = rows_of(read(spark, url=",".join(urls), subscribePattern="[ab]"))
        assert [row for row in fleet if row["topic"] == "a"] == over_http
        assert len(fleet) == 400
        with pytest.raises(PySparkException, match="no topic aa"):
            read(spark, url=urls[0], subscribe="aa").collect()
    path = str(one.log_dirs[0])
    assert rows_of(read(spark, path=path, subscribe="a")) == over_http
    with pytest.raises(PySparkException, match=urls[0]):
        read(spark, url=urls[0], subscribe="a").collect()


def test_a_stream_follows_a_daemon(spark: SparkSession, tmp_path: Path) -> None:
    """Goal: Trigger.AvailableNow over HTTP, twice. Method: records between the runs."""
    with Daemon(tmp_path / "one") as daemon, Client(f"http://127.0.0.1:{daemon.port}") as client:
        fill(client, "a")

        def run() -> int:
            frame = spark.readStream.format("kafkalog").options(
                url=f"http://127.0.0.1:{daemon.port}",
                subscribe="a",
                startingOffsets="earliest",
                maxOffsetsPerTrigger=150,
            )
            query = (
                frame.load()
                .writeStream.format("parquet")
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start(str(tmp_path / "table"))
            )
            query.awaitTermination()
            return int(spark.read.parquet(str(tmp_path / "table")).count())

        assert run() == 200
        client.produce("a", [ProducerRecord(b"late")])
        assert run() == 201
