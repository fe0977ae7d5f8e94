"""Goal: an Iceberg table takes every record once, whoever else writes to it; Spark reads archives.
Method: the tests of a Parquet archive with pyiceberg's SQLite catalog; commits of others between;
tasks on Spark, and its own reader over a topic's directory.
"""

from __future__ import annotations

import pickle
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitStateUnknownException

from kafkalog.cli.main import make_cli
from kafkalog.jobs.archive import iceberg_table
from kafkalog.jobs.archive.archive import ArchiveOptions
from kafkalog.jobs.archive.archive_files import archive_piece
from kafkalog.jobs.archive.archive_table import Position, TableChanged, UnusableTable
from kafkalog.jobs.archive.file_layout import SCHEMA
from kafkalog.jobs.on_spark import SparkRunner
from kafkalog.spark.logs.secrets import SecretByValue, SecretMissing, without_secrets
from tests.archive_world import (
    GrowingLogs,
    IcebergPlace,
    PlainPlace,
    Stopped,
    StoppingTable,
    offsets_in,
    some_logs,
)
from tests.fleet_world import flip_record, kept_logging
from tests.integration import test_spark_archive as scenarios
from tests.integration.daemon import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result
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
    root = str(tmp_path / "table")
    before = len(logs.offsets)
    logs.append(0, 50)
    with pytest.raises(Stopped):
        logs.run(StoppingTable(place.open(), "before commit"))
    assert spark.read.parquet(root).count() == before
    logs.run(place.open(), runner=SparkRunner(spark))
    frame = spark.read.parquet(root)
    assert frame.count() == len(logs.offsets)
    assert dict(frame.dtypes)["timestamp"] == "timestamp"
    assert sorted(map(tuple, frame.select("partition", "offset").collect())) == logs.offsets


def command(logs: GrowingLogs, warehouse: Path, *words: str) -> list[str]:
    place = ("--iceberg", "lake.orders", "--warehouse", str(warehouse))
    return ["archive", "run", str(logs.log_dir), *place, "--processes", "1", *words]


def run_command(logs: GrowingLogs, warehouse: Path, *words: str) -> Result:
    with kept_logging():
        return CliRunner().invoke(make_cli(), command(logs, warehouse, *words))


def rows_of(warehouse: Path) -> int:
    """The number of rows, by a catalog as a reader opens it."""
    uri = f"sqlite:///{warehouse}/catalog.db"
    with closing(load_catalog("default", type="sql", uri=uri)) as catalog:
        return int(catalog.load_table("lake.orders").scan().count())


def test_a_directory_is_all_that_a_table_needs(tmp_path: Path, logs: GrowingLogs) -> None:
    """A catalog in a file beside the tables; its properties can be overridden."""
    warehouse = tmp_path / "a lake"
    for _ in range(2):
        result = run_command(logs, warehouse)
        assert result.exit_code == 0, result.stderr
        assert rows_of(warehouse) == len(logs.offsets)
        logs.append(0, 10)
    assert sorted(each.name for each in warehouse.iterdir()) == ["catalog.db", "lake"]
    uri = f"sqlite:///{tmp_path}/other.db"
    result = run_command(logs, warehouse, "--catalog-property", f"uri={uri}")
    assert result.exit_code == 0, result.stderr
    assert (tmp_path / "other.db").exists()


def test_a_directory_that_cannot_have_a_catalog(tmp_path: Path, logs: GrowingLogs) -> None:
    result = run_command(logs, tmp_path / "50%")
    assert result.exit_code == 2
    assert "no #, ? or % in its path" in result.stderr
    (tmp_path / "meta.properties").write_text("version=1\n")
    result = run_command(logs, tmp_path / "lake")
    assert result.exit_code == 1
    assert "would be in the log directory" in result.stderr
    assert not (tmp_path / "lake").exists()


def test_a_catalog_that_another_process_has_locked(
    tmp_path: Path, logs: GrowingLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run waits for the lock; one that never comes is an error with a remedy, and no harm."""
    warehouse = tmp_path / "lake"
    assert run_command(logs, warehouse).exit_code == 0
    logs.append(0, 10)
    with closing(sqlite3.connect(warehouse / "catalog.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with monkeypatch.context() as patch:
            patch.setattr(iceberg_table, "_WAIT_SECONDS", 0.05)
            result = run_command(logs, warehouse)
        assert result.exit_code == 1
        assert "another process has locked the SQLite file" in result.stderr
        assert "Traceback" not in result.stderr
        words = [sys.executable, "-m", "kafkalog", *command(logs, warehouse)]
        waiting = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL)
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(timeout=8)
        other.execute("ROLLBACK")
    assert waiting.wait(timeout=300) == 0
    assert rows_of(warehouse) == len(logs.offsets)


def test_two_first_runs_into_one_directory(tmp_path: Path, logs: GrowingLogs) -> None:
    """One of them may be refused; the next run finds every record once."""
    warehouse = tmp_path / "lake"
    words = [sys.executable, "-m", "kafkalog", *command(logs, warehouse)]
    both = [
        subprocess.Popen(words, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        for _ in range(2)
    ]
    told = [each.communicate(timeout=300)[1].decode() for each in both]
    assert 0 in [each.returncode for each in both], told
    assert not any("Traceback" in each for each in told), told
    assert run_command(logs, warehouse).exit_code == 0
    assert rows_of(warehouse) == len(logs.offsets)


SECRET = "a-word-that-nobody-may-see"


def test_a_store_travels_without_its_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker finds them in pyiceberg's configuration there, or says that they are missing."""
    variable = "PYICEBERG_CATALOG__DEFAULT__S3__SECRET_ACCESS_KEY"
    monkeypatch.setenv(variable, SECRET)
    table = cast("IcebergTable", IcebergPlace(tmp_path).open())
    configured = {**table.store.properties, "s3.secret-access-key": SECRET}
    there = replace(table.store, properties=configured)
    pickled = pickle.dumps(without_secrets(partial(archive_piece, store=there)))
    assert SECRET.encode() not in pickled
    store = pickle.loads(pickled).keywords["store"]
    assert store._io().properties["s3.secret-access-key"] == SECRET
    with store.create(f"{store.location}/data/name") as file:
        file.write(b"there")
    store.remove(f"{store.location}/data/name")
    table.close()
    iceberg_table._secrets_here.cache_clear()
    monkeypatch.delenv(variable)
    with pytest.raises((SecretMissing, UnusableTable), match=r"default"):
        store._io()


def test_a_secret_of_a_store_by_value_is_refused(tmp_path: Path) -> None:
    """On Spark; processes of this machine may have it. The address of a catalog stays behind."""
    place = IcebergPlace(tmp_path)
    place.open().close()
    given = {**place.properties, "s3.secret-access-key": SECRET}
    table = iceberg_table.IcebergTable("default", "lake.orders", given)
    with pytest.raises(SecretByValue, match=r"s3\.secret-access-key would stand in") as refused:
        without_secrets(partial(archive_piece, store=table.store))
    assert SECRET not in refused.value.message
    table.close()
    of_database = {"uri": f"postgresql://kafkalog:{SECRET}@host/catalog"}
    store = replace(table.store, properties=of_database, given=frozenset(of_database))
    assert store.by_reference().properties == {}


def test_a_damaged_partition_holds_only_itself(tmp_path: Path, logs: GrowingLogs) -> None:
    """Commits of bounded size, each a snapshot; what is damaged is left out."""
    place = IcebergPlace(tmp_path)
    logs.append(1, 7)  # what is damaged at the very end is a torn tail
    flip_record(tmp_path / "logs" / "orders-1")
    rows = logs.run(place.open(), ArchiveOptions(target_bytes=1, max_commit_bytes=1))
    assert [(each.next_offset, each.problem is None) for each in rows] == [(430, True), (0, False)]
    assert offsets_in(place) == [each for each in logs.offsets if each[0] == 0]
    catalog = load_catalog("default", **place.properties)
    assert len(catalog.load_table("lake.orders").snapshots()) == 3
    catalog.close()
    flip_record(tmp_path / "logs" / "orders-1")
    logs.run(place.open())
    assert offsets_in(place) == logs.offsets
