"""Goal: a topic is a table of Spark's catalog, for SQL and for data frames.
Method: the in-memory catalog of a real Spark; a log directory, and a daemon for what is written.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from pyspark.errors import PySparkException
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import LongType, StructType

from kafkalog.spark import register, with_table_options
from kafkalog.spark.source import KafkalogDataSource
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


def test_where_a_query_without_a_place_reads(tmp_path: Path) -> None:
    """The comment of a column, then the session; as the source gets it from Spark."""
    logs = LogDirectory(tmp_path / "logs")
    logs.fill("a", 0, 0, 5)
    logs.fill("b", 0, 0, 3)
    registered = cast("Any", SimpleNamespace(dataSource=SimpleNamespace()))
    registered.dataSource.register = lambda source: setattr(registered, "source", source)
    register(registered, path=str(logs.path), Topic="b", columns="offset")
    of_session = CloudPickleSerializer().loads(CloudPickleSerializer().dumps(registered.source))
    comment = f'kafkalog {{"path": "{logs.path}", "topic": "a"}}'
    commented = StructType().add("offset", LongType(), metadata={"comment": comment})
    plain = StructType().add("offset", LongType())
    for source, schema, options, count in (
        (KafkalogDataSource, commented, {}, 5),
        (of_session, commented, {}, 5),
        (of_session, plain, {}, 3),
        (of_session, of_session({}).schema(), {"topic": "a"}, 5),
        (of_session, plain, {"path": str(logs.path), "subscribe": "a"}, 5),
    ):
        reader = source(CaseInsensitiveDict(options)).reader(schema)
        rows = [batch.num_rows for task in reader.partitions() for batch in reader.read(task)]
        assert sum(rows) == count


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


def test_a_table_with_columns_of_its_own(sql: SparkSession, tmp_path: Path) -> None:
    """Spark asks the source for the columns of a new table only if none are given: such a table has
    its options in the comment of a column, from the start or later.
    """
    logs = LogDirectory(tmp_path / "logs")
    logs.fill("a", 0, 0, 5)
    comment = f'COMMENT \'kafkalog {{"path": "{logs.path}", "topic": "a"}}\''
    sql.sql(f"CREATE TABLE narrow (offset BIGINT {comment}) USING kafkalog")
    assert sorted(row[0] for row in sql.read.table("narrow").collect()) == list(range(5))
    sql.sql("CREATE TABLE bare (value BINARY) USING kafkalog OPTIONS (url 'http://a:1', topic 'a')")
    with pytest.raises(PySparkException, match=r"created without columns.*ALTER TABLE t ALTER"):
        sql.table("bare").count()
    sql.sql(f"ALTER TABLE bare ALTER COLUMN value {comment}")
    assert sql.table("bare").count() == 5


def test_option_columns_of_a_table(sql: SparkSession, tmp_path: Path) -> None:
    """With it a table has few columns, and its options."""
    logs = LogDirectory(tmp_path / "logs")
    logs.fill("a", 0, 0, 5)
    given = f"path '{logs.path}', topic 'a', columns 'offset,key'"
    sql.sql(f"CREATE TABLE chosen USING kafkalog OPTIONS ({given})")
    assert sql.table("chosen").columns == ["offset", "key"]
    assert sql.table("chosen").agg({"offset": "max"}).first()[0] == 4


def test_a_table_that_save_as_table_makes(sql: SparkSession, daemon: Daemon) -> None:
    url = f"http://127.0.0.1:{daemon.port}"
    rows = sql.createDataFrame([("1",), ("2",)], "value string").selectExpr("binary(value) value")
    options = {"url": url, "topic": "orders"}
    writer = with_table_options(rows, **options).write.format("kafkalog").options(**options)
    writer.mode("append").saveAsTable("made")
    assert sorted(bytes(row.value) for row in sql.read.table("made").collect()) == [b"1", b"2"]


def test_options_of_a_session(sql: SparkSession, daemon: Daemon) -> None:
    """For tables and queries that name no place."""
    register(sql, url=f"http://127.0.0.1:{daemon.port}", topic="orders")
    try:
        daemon.produce_text("orders", "1", "2")
        assert sql.read.format("kafkalog").load().count() == 2
        sql.sql("CREATE TABLE bare (value BINARY) USING kafkalog")
        assert sorted(bytes(row.value) for row in sql.table("bare").collect()) == [b"1", b"2"]
    finally:
        register(sql)


def test_what_is_wrong_shows_before_there_is_a_table(sql: SparkSession) -> None:
    for options, message in (
        ("url 'http://a:1', subscrib 'a'", "did you mean subscribe"),
        ("url 'http://a:1', topic 'a', token 'secret'", "use tokenFile"),
    ):
        with pytest.raises(PySparkException, match=message):
            sql.sql(f"CREATE TABLE wrong USING kafkalog OPTIONS ({options})")
    assert not sql.catalog.tableExists("wrong")
