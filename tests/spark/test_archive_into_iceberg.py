"""Goal: an Iceberg table takes every record once, whoever else writes to it; Spark reads archives.
Method: the tests of a Parquet archive with pyiceberg's SQLite catalog; commits of others between;
tasks on Spark, and its own reader over a topic's directory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitStateUnknownException

from kafkalog.jobs.archive.archive_files import SCHEMA
from kafkalog.jobs.archive.archive_table import Position, TableChanged, UnusableTable
from kafkalog.jobs.on_spark import SparkRunner
from tests.archive_world import (
    GrowingLogs,
    IcebergPlace,
    PlainPlace,
    Stopped,
    StoppingTable,
    offsets_in,
    some_logs,
)
from tests.integration import test_spark_archive as scenarios

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from kafkalog.jobs.archive.iceberg_table import IcebergTable
    from tests.archive_world import Place

pytestmark = pytest.mark.spark


@pytest.fixture
def logs(tmp_path: Path) -> GrowingLogs:
    return some_logs(tmp_path)


@pytest.mark.parametrize(
    "scenario",
    [
        scenarios.test_every_record_once,
        scenarios.test_a_task_that_fails_leaves_nothing,
        scenarios.test_a_topic_that_was_made_anew,
        scenarios.test_a_log_that_lost_its_end_and_grew,
        scenarios.test_a_table_of_an_older_version,
    ],
    ids=lambda each: each.__name__.removeprefix("test_"),
)
def test_as_into_parquet(
    tmp_path: Path, logs: GrowingLogs, scenario: Callable[[Path, GrowingLogs, type[Place]], None]
) -> None:
    """What ``integration/test_spark_archive.py`` says of the other table."""
    scenario(tmp_path, logs, IcebergPlace)


@pytest.mark.parametrize("stop_at", ["plan", "before commit", "after commit"])
def test_a_run_that_ends_at_a_step(tmp_path: Path, logs: GrowingLogs, stop_at: str) -> None:
    scenarios.test_a_run_that_ends_at_a_step(tmp_path, logs, IcebergPlace, stop_at)


def test_a_commit_whose_answer_was_lost(tmp_path: Path, logs: GrowingLogs) -> None:
    """M27. Nobody is told that nothing of it is there, and the next run goes on behind it."""
    place = IcebergPlace(tmp_path)
    table = cast("IcebergTable", place.open())
    commit_table = table._catalog.commit_table

    def done_without_a_word(*told: Any) -> Any:
        commit_table(*told)
        raise CommitStateUnknownException("It may have happened")

    table._catalog.commit_table = done_without_a_word
    with pytest.raises(UnusableTable, match="It may have happened"):
        logs.run(table)
    assert offsets_in(place) == logs.offsets
    assert logs.run(place.open()) == []


def test_two_jobs_on_one_iceberg_table(tmp_path: Path, logs: GrowingLogs) -> None:
    """The second one to commit is refused, also in the first commit of a table."""
    place = IcebergPlace(tmp_path)
    late = place.open()
    logs.run(place.open())
    with pytest.raises(TableChanged):
        late.commit([], Position({("orders", 0): 1}))
    assert offsets_in(place) == logs.offsets
    table = place.open()
    logs.append(0, 2)
    catalog = load_catalog("default", **place.properties)
    stranger = catalog.load_table("lake.orders")
    with stranger.transaction() as transaction:
        transaction.set_properties({"owner": "somebody"})
        with transaction.update_snapshot().fast_append():
            pass
    catalog.close()
    logs.run(table)
    assert logs.run(place.open()) == []
    assert offsets_in(place) == logs.offsets


def test_an_iceberg_table_of_others(tmp_path: Path) -> None:
    """Without our offsets, or without our columns: refused by name."""
    place = IcebergPlace(tmp_path)
    catalog = load_catalog("default", **place.properties)
    catalog.create_namespace("lake")
    catalog.create_table("lake.orders", pa.schema([("key", pa.binary())]))
    with pytest.raises(UnusableTable, match=r"default\.lake\.orders has no column"):
        place.open()
    catalog.drop_table("lake.orders")
    made = catalog.create_table("lake.orders", SCHEMA)
    place.open().close()
    made.append(SCHEMA.empty_table())
    with pytest.raises(UnusableTable, match="up to which offsets"):
        place.open()
    catalog.close()


def test_tasks_on_spark_and_a_reader(
    tmp_path: Path, logs: GrowingLogs, spark: SparkSession
) -> None:
    """M27. Spark writes what one process writes, and reads committed files alone."""
    place = PlainPlace(tmp_path)
    logs.run(place.open(), runner=SparkRunner(spark))
    assert offsets_in(place) == logs.offsets
    topic = str(tmp_path / "table" / "topic-orders")
    before = len(logs.offsets)
    logs.append(0, 50)
    with pytest.raises(Stopped):
        logs.run(StoppingTable(place.open(), "before commit"))
    assert spark.read.parquet(topic).count() == before
    logs.run(place.open(), runner=SparkRunner(spark))
    frame = spark.read.parquet(topic)
    assert frame.count() == len(logs.offsets)
    assert dict(frame.dtypes)["timestamp"] == "timestamp"
    assert sorted(map(tuple, frame.select("partition", "offset").collect())) == logs.offsets
