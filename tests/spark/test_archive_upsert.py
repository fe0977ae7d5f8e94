"""Goal: an upsert table has the last value of each key, exactly, also after kills at every step.
Method: a dict as the twin; random records, tombstones and kills; commits of others; pyiceberg and
DuckDB as readers.
"""

from __future__ import annotations

import random
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from kafkalog.cli.main import make_cli
from kafkalog.format.records.record import Record
from kafkalog.jobs.archive import iceberg_table
from kafkalog.jobs.archive.archive import ArchiveOptions
from kafkalog.jobs.archive.archive_table import TableChanged, UnusableTable
from kafkalog.jobs.archive.iceberg import data_files, upsert_table
from kafkalog.jobs.archive.iceberg.partition_spec import partition_field
from kafkalog.jobs.archive.iceberg.upsert_table import UpsertTable, last_of_keys
from kafkalog.jobs.archive.iceberg_table import IcebergTable
from kafkalog.jobs.on_spark import SparkRunner
from kafkalog.jobs.tasks import InProcess, TaskFailed
from tests.archive_world import GrowingLogs, IcebergPlace, Stopped, StoppingTable
from tests.naive.stored_batches import stored_batch
from tests.spark.duckdb_reader import query_duckdb
from tests.spark.test_archive_maintain import maintained, options

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from kafkalog.jobs.tasks import Runner

pytestmark = pytest.mark.spark

Rows = dict[tuple[int, bytes], tuple[int, bytes]]
"""Offset and value by partition and key."""
SMALL = ArchiveOptions(target_bytes=300, max_commit_bytes=900)


class KeyedLogs(GrowingLogs):
    """Logs with keys; ``rows`` is what a table of the last values has."""

    def __init__(self, root: Path) -> None:
        super().__init__(root / "logs")
        self.rows: Rows = {}

    def put(self, partition: int, records: Sequence[tuple[bytes | None, bytes | None]]) -> None:
        first = self.ends.get(partition, 0)
        written = [
            Record(first + at, 1_000 + first + at, key, value)
            for at, (key, value) in enumerate(records)
        ]
        for each in written:
            if each.key is None:
                continue
            if each.value is None:
                self.rows.pop((partition, each.key), None)
            else:
                self.rows[partition, each.key] = each.offset, each.value
        self.append_batch(partition, len(records), stored_batch(written))


def opened(
    place: IcebergPlace, runner: Runner | None = None, buckets: int | None = None
) -> UpsertTable:
    by_key = None if buckets is None else (partition_field(f"bucket({buckets}, key)"),)
    return UpsertTable(
        "default", "lake.orders", place.properties, runner or InProcess(), partition_by=by_key
    )


def rows_of(place: IcebergPlace) -> Rows:
    """What pyiceberg reads; each key is there once."""
    with closing(opened(place)) as table, table.loaded() as loaded:
        found = loaded.scan().to_arrow().to_pylist()
    rows = {(each["partition"], each["key"]): (each["offset"], each["value"]) for each in found}
    assert len(rows) == len(found)
    return rows


def some_records(rnd: random.Random, count: int) -> list[tuple[bytes, bytes | None]]:
    return [
        (b"k%d" % rnd.randrange(12), None if rnd.random() < 0.3 else b"v%d" % rnd.randrange(99))
        for _ in range(count)
    ]


@pytest.fixture
def logs(tmp_path: Path) -> KeyedLogs:
    grown, rnd = KeyedLogs(tmp_path), random.Random(7)
    for partition in (0, 1, 0):
        grown.put(partition, some_records(rnd, 20))
    return grown


@pytest.mark.parametrize("seed", range(3))
def test_as_a_dict_through_kills(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs over growing logs, most of which are killed at some step; the twin is a dict."""
    rnd, logs, place = random.Random(seed), KeyedLogs(tmp_path), IcebergPlace(tmp_path)
    steps = ["upsert", "replace_files", "data_file", "_tidy", "before commit", "after commit", ""]
    for _ in range(6):
        for partition in range(2):
            logs.put(partition, some_records(rnd, rnd.randint(1, 12)))
        step = rnd.choice(steps)
        table: Any = StoppingTable(opened(place, buckets=4), step)
        with monkeypatch.context() as patched:
            if step == "_tidy":
                patched.setattr(UpsertTable, step, stop)
            elif step and " " not in step:
                patched.setattr(upsert_table, step, stop)
            try:
                logs.run(table, SMALL)
            except Stopped:
                assert step
    logs.run(opened(place, buckets=4), SMALL)
    assert rows_of(place) == logs.rows
    assert logs.run(opened(place)) == []
    maintained(place, options(days=9))
    assert rows_of(place) == logs.rows
    with closing(opened(place)) as opened_table, opened_table.loaded() as loaded:
        files = [each.file.file_path for each in loaded.scan().plan_files()]
    there = [str(each) for each in (tmp_path / "warehouse").rglob("*.parquet")]
    assert sorted(there) == sorted(each.removeprefix("file://") for each in files)


def stop(*_: Any, **__: Any) -> None:
    raise Stopped


def test_on_spark_and_read_by_duckdb(tmp_path: Path, logs: KeyedLogs, spark: SparkSession) -> None:
    place, runner = IcebergPlace(tmp_path), SparkRunner(spark)
    logs.run(opened(place, runner), runner=runner)
    logs.put(1, [(b"k1", b"newest"), (b"k2", None)])
    logs.run(opened(place, runner), runner=runner)
    assert rows_of(place) == logs.rows
    found = query_duckdb(place, 'SELECT "partition", key, "offset", value FROM {table}')
    assert {(each[0], each[1]): (each[2], each[3]) for each in found} == logs.rows


def test_only_touched_buckets_are_written(tmp_path: Path, logs: KeyedLogs) -> None:
    """A commit leaves the files of other buckets; the last key of a bucket takes its file along."""
    place = IcebergPlace(tmp_path)
    logs.run(opened(place, buckets=64))
    before = files_of(place)
    (name, *_) = (key for partition, key in logs.rows if partition == 0)
    logs.put(0, [(name, b"again")])
    logs.run(opened(place, buckets=64))
    after = files_of(place)
    assert len(before - after) == len(after - before) == 1
    for partition, key in list(logs.rows):
        logs.put(partition, [(key, None)])
    logs.run(opened(place, buckets=64))
    assert files_of(place) == set()
    assert rows_of(place) == {} == logs.rows


def files_of(place: IcebergPlace) -> set[str]:
    table = IcebergTable("default", "lake.orders", place.properties, must_exist=True)
    with closing(table), table.loaded() as loaded:
        return {each.file.file_path for each in loaded.scan().plan_files()}


def test_others_commit_meanwhile(
    tmp_path: Path, logs: KeyedLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change of the table is no conflict; another archive is one, and nothing is doubled."""
    place = IcebergPlace(tmp_path)
    logs.run(opened(place))
    logs.put(0, [(b"k1", b"new"), (b"k3", None)])
    raced: list[bool] = []

    def late(*given: Any, **named: Any) -> None:
        if not raced:
            raced.append(True)
            with closing(opened(place)) as table, table.loaded() as loaded:
                loaded.manage_snapshots().create_tag(
                    loaded.current_snapshot().snapshot_id, "audit"
                ).commit()
        data_files.replace_files(*given, **named)

    monkeypatch.setattr(upsert_table, "replace_files", late)
    slow = opened(place)
    logs.run(opened(place))
    assert raced
    assert rows_of(place) == logs.rows
    with pytest.raises(TableChanged):
        logs.run(slow)
    assert rows_of(place) == logs.rows


def test_a_record_without_key(tmp_path: Path, logs: KeyedLogs) -> None:
    """Its partition is quarantined before it; the other one is archived."""
    place = IcebergPlace(tmp_path)
    before = dict(logs.rows)
    logs.put(1, [(b"k1", b"v"), (None, b"nobody's")])
    rows = logs.run(opened(place), ArchiveOptions(target_bytes=1))
    assert [each.problem is None for each in rows] == [True, False]
    assert "offset 21 has no key" in str(rows[1].problem)
    assert rows_of(place) == before


def test_wrong_tables(tmp_path: Path, logs: KeyedLogs) -> None:
    """A table stays what it is; one whose rows would move between partitions is not made."""
    place = IcebergPlace(tmp_path)
    for fields in (("day(timestamp)",), ("topic",), ("bucket(4, key)", "day(timestamp)")):
        with pytest.raises(UnusableTable, match=r"partitioned by bucket\(N, key\)"):
            UpsertTable(
                "default",
                "lake.orders",
                place.properties,
                InProcess(),
                partition_by=tuple(map(partition_field, fields)),
            )
    logs.run(opened(place))
    with pytest.raises(UnusableTable, match="with --upsert"):
        place.open()
    other = IcebergPlace(tmp_path / "other")
    other.root.mkdir()
    logs.run(other.open())
    with pytest.raises(UnusableTable, match="without --upsert"):
        opened(other)


def test_a_task_that_fails(
    tmp_path: Path, logs: KeyedLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ends, the table is as before, and the next run does it."""
    place = IcebergPlace(tmp_path)

    def failing(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "no permission", "file")

    with monkeypatch.context() as patched:
        patched.setattr(upsert_table, "upsert", failing)
        with pytest.raises(TaskFailed, match="no permission"):
            logs.run(opened(place))
    logs.run(opened(place))
    assert rows_of(place) == logs.rows


def test_the_command(tmp_path: Path, logs: KeyedLogs) -> None:
    place = IcebergPlace(tmp_path)
    named = [f"--catalog-property={key}={value}" for key, value in place.properties.items()]
    command = ["archive", "run", str(tmp_path / "logs"), "--processes", "1", *named]
    upserting = [*command, "--iceberg", "lake.orders", "--upsert"]
    done = CliRunner().invoke(make_cli(), upserting)
    assert done.exit_code == 0, done.output
    with (
        closing(UpsertTable("default", "lake.orders", place.properties, InProcess())) as table,
        table.loaded() as loaded,
    ):
        assert str(loaded.spec().fields[0].transform) == "bucket[16]"
        assert loaded.scan().count() == len(logs.rows)
    assert CliRunner().invoke(make_cli(), [*upserting, "--sort-by", "key"]).exit_code == 2
    refused = [*command, "--parquet", str(tmp_path / "p"), "--upsert"]
    assert CliRunner().invoke(make_cli(), refused).exit_code == 2


def test_the_last_of_each_key() -> None:
    """By topic, partition and key; what comes later counts."""
    rows = pa.table(
        {
            "topic": ["a", "a", "b", "a", "a", "a"],
            "partition": [0, 1, 0, 0, 1, 0],
            "key": [b"", b"", b"", b"", b"x", b"y"],
            "value": [b"1", b"2", b"3", b"4", None, b""],
        }
    )
    assert last_of_keys(rows)["value"].to_pylist() == [b"2", b"3", b"4", b""]
    assert iceberg_table.UPSERT == "kafkalog.upsert"
