"""Goal: Spark, pyarrow and DuckDB read the same records out of an archive of Parquet files.
Method: logs with every shape of record, archived, then converted from the older layout as well.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
from pyarrow import dataset

from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.format.disk.file_names import CLEAN_SHUTDOWN
from kafkalog.jobs.archive.archive import ArchiveOptions, archive
from kafkalog.jobs.archive.convert import convert
from kafkalog.jobs.archive.file_layout import SCHEMA
from kafkalog.jobs.archive.parquet_table import ParquetTable
from kafkalog.jobs.tasks import InProcess
from kafkalog.spark.logs.open import open_logs
from kafkalog.spark.logs.values import Access
from tests.integration.test_archive_convert import FormerTable
from tests.spark.log_directory import LogDirectory, every_shape, in_order, rows_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from kafkalog.jobs.archive.archive_table import ArchiveTable

pytestmark = pytest.mark.spark


def by_pyarrow(root: Path) -> list[dict[str, Any]]:
    table = dataset.dataset(root, partitioning="hive").to_table()
    assert sorted(table.column_names) == sorted(SCHEMA.names)
    return in_order(table.to_pylist())


def by_duckdb(root: Path) -> list[dict[str, Any]]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        found = connection.execute(
            f"SELECT * FROM read_parquet('{root}/**/*.parquet', hive_partitioning = true)"
        ).to_arrow_table()
    assert sorted(found.column_names) == sorted(SCHEMA.names)
    return in_order(found.to_pylist())


def by_spark(root: Path, spark: SparkSession) -> list[dict[str, Any]]:
    frame = spark.read.parquet(str(root))
    assert sorted(frame.columns) == sorted(SCHEMA.names)
    return rows_of(frame)


def run(log_dir: Path, table: ArchiveTable, options: ArchiveOptions) -> None:
    access = Access(paths=(str(log_dir),), read_committed=True)
    with closing(table), closing(open_logs(access)) as logs:
        archive(logs, table, options, InProcess())


@pytest.mark.parametrize("is_converted", [False, True], ids=["archived", "converted"])
def test_all_readers_find_what_was_produced(
    tmp_path: Path, spark: SparkSession, is_converted: bool
) -> None:
    """Also while a run is under way: what it has written has no name that readers know."""
    log_dir, root = LogDirectory(tmp_path / "logs"), tmp_path / "table"
    every_shape(log_dir, "orders")
    log_dir.fill("users.v2", 12, 0, 30)
    (log_dir.path / CLEAN_SHUTDOWN).touch()
    options = ArchiveOptions(target_bytes=300, max_commit_bytes=600)
    if is_converted:
        run(log_dir.path, FormerTable(root), options)
        convert(str(root), SystemFilesystem())
    else:
        run(log_dir.path, ParquetTable(str(root), SystemFilesystem()), options)
    log_dir.fill("users.v2", 12, 30, 5)
    run(log_dir.path, ParquetTable(str(root), SystemFilesystem()), options)
    under_way = ParquetTable(str(root), SystemFilesystem())
    with under_way.store.create(under_way.store.path_of("orders", "0-1-2.parquet")) as file:
        file.write(b"half")
    aborted = {("orders", 1, 5)}
    expected = [
        row
        for row in in_order(log_dir.rows)
        if (row["topic"], row["partition"], row["offset"]) not in aborted
    ]
    assert by_spark(root, spark) == expected
    assert by_pyarrow(root) == expected
    assert by_duckdb(root) == expected
    under_way.close()


def test_types_of_the_columns(tmp_path: Path, spark: SparkSession) -> None:
    """Those of Spark's Kafka source."""
    log_dir, root = LogDirectory(tmp_path / "logs"), tmp_path / "table"
    log_dir.fill("orders", 3, 0, 5)
    (log_dir.path / CLEAN_SHUTDOWN).touch()
    run(log_dir.path, ParquetTable(str(root), SystemFilesystem()), ArchiveOptions())
    types = dict(spark.read.parquet(str(root)).dtypes)
    assert types.pop("headers") == "array<struct<key:string,value:binary>>"
    assert types == {
        "key": "binary",
        "value": "binary",
        "topic": "string",
        "partition": "int",
        "offset": "bigint",
        "timestamp": "timestamp",
        "timestampType": "int",
    }
    found = dataset.dataset(root, partitioning="hive").schema
    assert found.field("partition").type == pa.int32()
    assert found.field("topic").type == pa.utf8()
