"""Goal: a topic is a table of Spark's catalog, for SQL and for data frames.
Method: the in-memory catalog of a real Spark; a log directory, and a daemon for what is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from tests.integration.daemon import Daemon
from tests.spark.log_directory import LogDirectory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def sql(spark: SparkSession) -> Iterator[SparkSession]:
    yield spark
    for table in spark.catalog.listTables():
        spark.sql(f"DROP TABLE IF EXISTS {table.name}")


def test_a_table_over_a_directory(sql: SparkSession, tmp_path: Path) -> None:
    logs = LogDirectory(tmp_path / "logs")
    logs.fill("a", 0, 0, 5)
    options = f"OPTIONS (path '{logs.path}', subscribe 'a', includeHeaders 'true')"
    sql.sql(f"CREATE TABLE orders USING kafkalog {options} TBLPROPERTIES (owned_by 'me')")
    described = {row[0]: row[1] for row in sql.sql("DESCRIBE orders").collect()}
    assert described["value"] == "binary"
    assert described["headers"] == "array<struct<key:string,value:binary>>"
    assert sql.read.table("orders").count() == 5
    found = sql.sql("SELECT string(value) FROM orders WHERE offset >= 3 ORDER BY offset")
    assert [row[0] for row in found.collect()] == ["value 3", "value 4"]
    later = sql.read.option("startingOffsets", '{"a":{"0":4}}').table("orders")
    assert later.count() == 1
    sql.sql("DROP TABLE orders")
    assert (logs.path / "a-0").is_dir()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with Daemon(tmp_path / "daemon") as one:
        one.create_topic("orders")
        yield one


def test_a_table_that_is_written(sql: SparkSession, daemon: Daemon) -> None:
    """By INSERT INTO and by data frames; one set of options reads and writes."""
    url = f"http://127.0.0.1:{daemon.port}"
    sql.sql(f"CREATE TABLE orders USING kafkalog OPTIONS (url '{url}', topic 'orders', acks '1')")
    sql.sql("INSERT INTO orders (key, value) VALUES (binary('k'), binary('1'))")
    sql.sql("INSERT INTO orders (value) SELECT binary('2')")
    rows = sql.createDataFrame([("3",), ("4",)], "value string").selectExpr("binary(value) value")
    rows.write.format("kafkalog").mode("append").saveAsTable("orders")
    sql.table("orders").where("key IS NULL").write.insertInto("orders")
    values = sorted(bytes(row.value) for row in sql.table("orders").collect())
    assert values == [b"1", b"2", b"2", b"3", b"3", b"4", b"4"]


def test_a_table_without_options_says_how_to_make_one(sql: SparkSession) -> None:
    """Spark asks the source for the columns of a new table only if none are given."""
    sql.sql(
        "CREATE TABLE narrow (value BINARY) USING kafkalog OPTIONS (url 'http://a:1', topic 'a')"
    )
    with pytest.raises(PySparkException, match="created without columns"):
        sql.table("narrow").count()


def test_what_is_wrong_shows_before_there_is_a_table(sql: SparkSession) -> None:
    for options, message in (
        ("url 'http://a:1', subscrib 'a'", "did you mean subscribe"),
        ("url 'http://a:1', topic 'a', token 'secret'", "use tokenFile"),
    ):
        with pytest.raises(PySparkException, match=message):
            sql.sql(f"CREATE TABLE wrong USING kafkalog OPTIONS ({options})")
    assert not sql.catalog.tableExists("wrong")
