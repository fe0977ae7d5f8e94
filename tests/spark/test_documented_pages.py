"""Goal: what the pages of Spark and of the archive show in Python works when pasted, and so do the
commands of archive-to-tables.md.
Method: the blocks, word for word but for port and directories, in one Spark beside a daemon.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.catalog import load_catalog
from pyspark.sql import functions as f

from tests.integration.daemon import ROOT, Daemon
from tests.integration.documented_session import as_here, run_session, steps_of
from tests.operate.documents import blocks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
DOCS = ROOT / "docs"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """With three records in the topic orders."""
    one = Daemon(tmp_path / "daemon")
    one.log_dirs = [tmp_path / "data"]
    with one:
        one.create_topic("orders")
        one.produce_text("orders", "1", "2", "3")
        yield one


def python_of(name: str, daemon: Daemon, directory: Path) -> list[str]:
    """The page's blocks that a test runs."""
    found = [each for each in blocks(DOCS / name) if each.language == "python" and not each.reason]
    return [as_here(each.text, daemon, directory) for each in found]


def count(spark: SparkSession, daemon: Daemon, topic: str = "orders") -> int:
    options = {"url": f"http://127.0.0.1:{daemon.port}", "subscribe": topic}
    return int(spark.read.format("kafkalog").options(**options).load().count())


def test_the_source(spark: SparkSession, daemon: Daemon, tmp_path: Path) -> None:
    batch, stream = python_of("reference/spark.md", daemon, tmp_path)
    stopped = tmp_path / "stopped"
    shutil.copytree(tmp_path / "data", stopped)
    names: dict[str, Any] = {"spark": spark}
    exec(batch.replace("/var/lib/kafkalog", str(stopped)), names)
    assert names["orders"].count() == names["archived"].count() == 3
    exec(stream, names)
    assert names["query"].awaitTermination(60)
    assert spark.read.parquet(f"{tmp_path}/data/orders").count() == 3


def stream_of(spark: SparkSession, frame: DataFrame, directory: Path) -> DataFrame:
    frame.write.json(str(directory))
    return spark.readStream.schema(frame.schema).json(str(directory))


def test_the_sink(spark: SparkSession, daemon: Daemon, tmp_path: Path) -> None:
    both, each_batch = python_of("reference/spark-sink.md", daemon, tmp_path)
    orders = spark.createDataFrame([("ann", 1), ("bob", 7)], "customer string, cart int")
    names = {"orders": orders, "orders_stream": stream_of(spark, orders, tmp_path / "first")}
    exec(both, names)
    names["query"].processAllAvailable()
    names["query"].stop()
    assert count(spark, daemon) == 3 + 2 + 2
    values = orders.select(f.col("customer").alias("value"))
    options = {"url": f"http://127.0.0.1:{daemon.port}", "topic": "orders"}
    stream = stream_of(spark, values, tmp_path / "second")
    exec(each_batch, {"stream": stream, "url_and_topic": options})
    (query,) = spark.streams.active
    query.processAllAvailable()
    query.stop()
    assert count(spark, daemon) == 3 + 2 + 2 + 2


def test_the_jobs(spark: SparkSession, daemon: Daemon, tmp_path: Path) -> None:
    (audit,) = python_of("reference/spark-jobs.md", daemon, tmp_path)
    for name in ("data1", "data2"):
        shutil.copytree(tmp_path / "data" / "orders-0", tmp_path / name / "orders-0")
    names: dict[str, Any] = {"spark": spark}
    exec(audit, names)
    assert len(names["partitions"]) == 2
    assert [row for row in names["found"].rows if row["severity"] == "error"] == []


def test_the_archive(spark: SparkSession, daemon: Daemon, tmp_path: Path) -> None:
    page = DOCS / "how-to/archive-to-tables.md"
    run_session([each.command for each in steps_of(page.read_text())], daemon, tmp_path)
    (read,) = python_of("how-to/archive-to-tables.md", daemon, tmp_path)
    uri = f"sqlite:///{tmp_path}/archive/lake/catalog.db"
    catalog = load_catalog("default", type="sql", uri=uri)
    names: dict[str, Any] = {"spark": spark, "catalog": catalog}
    parquet, iceberg = read.split("\n", 1)
    assert eval(parquet, names).count() == 4
    assert eval(iceberg, names).to_arrow().num_rows == 4
