"""Goal: a table that is partitioned by time, hash or field has each row in its partition, once.
Method: pyiceberg's transforms of single values as the twin; archives of days of records, read back
by pyiceberg and DuckDB; files in small numbers.
"""

from __future__ import annotations

import re
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given, settings, strategies as st
from pyiceberg import types
from pyiceberg.transforms import parse_transform

from kafkalog.cli.main import make_cli
from kafkalog.format.records.record import Record
from kafkalog.jobs.archive import parquet_file
from kafkalog.jobs.archive.archive import ArchiveOptions
from kafkalog.jobs.archive.archive_table import TableChanged, UnusableTable
from kafkalog.jobs.archive.iceberg.partition_spec import (
    PartitionField,
    TableShape,
    WrongSpec,
    partition_field,
    sort_field,
)
from kafkalog.jobs.archive.iceberg_table import IcebergTable
from tests.archive_world import GrowingLogs, IcebergPlace
from tests.naive.stored_batches import stored_batch
from tests.spark.duckdb_reader import read_by_duckdb
from tests.spark.test_archive_maintain import maintained, options

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark

DAY_MS = 86_400_000
INT64 = st.integers(-(2**62), 2**62)
TIMES = st.integers(-(10**15), 4 * 10**15)
CASES: list[tuple[str, Any, pa.DataType, Any, pa.DataType]] = [
    *(
        (each, st.binary(max_size=9), pa.binary(), types.BinaryType(), pa.binary())
        for each in ("bucket[16]", "truncate[3]", "identity")
    ),
    (
        "bucket[16]",
        st.binary(min_size=4090, max_size=4100),
        pa.binary(),
        types.BinaryType(),
        pa.binary(),
    ),
    *(
        (each, st.text(max_size=9), pa.utf8(), types.StringType(), pa.utf8())
        for each in ("bucket[16]", "truncate[3]", "identity")
    ),
    *(
        (each, INT64, pa.int64(), types.LongType(), pa.int64())
        for each in ("bucket[7]", "truncate[10]", "identity")
    ),
    *(
        (each, TIMES, pa.timestamp("us", tz="UTC"), types.TimestamptzType(), pa.int64())
        for each in ("bucket[7]", "year", "month", "day", "hour", "identity")
    ),
    *(
        (each, st.integers(-(10**5), 10**5), pa.date32(), types.DateType(), pa.int32())
        for each in ("bucket[7]", "year", "month", "day")
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda each: f"{each[0]}-{each[2]}")
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_values_are_those_of_iceberg(case: tuple[Any, ...], data: st.DataObject) -> None:
    """Of whole columns with null and of slices, as pyiceberg has them for single values."""
    text, strategy, kind, iceberg_type, raw = case
    found = data.draw(st.lists(st.none() | strategy, max_size=20))
    column = pa.array([None, *found], raw).cast(kind).slice(1)
    name, width = re.fullmatch(r"(\w+)(?:\[(\d+)\])?", text).groups()  # type: ignore[union-attr]
    field = PartitionField("column", name, int(width) if width else None)
    twin = parse_transform(text).transform(iceberg_type)
    assert field.values(pa.record_batch({"column": column})).to_pylist() == list(map(twin, found))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("topic", "topic"),
        ("days(timestamp)", "day(timestamp)"),
        ("bucket( 16,key )", "bucket(16, key)"),
        ("value.city", "value.city"),
        ("truncate(4, value.city)", "truncate(4, value.city)"),
    ],
)
def test_how_fields_are_written(text: str, shown: str) -> None:
    assert str(partition_field(text)) == shown


@pytest.mark.parametrize(
    "text",
    ["", "day()", "bucket(key)", "bucket(0, key)", "week(timestamp)", "day(2, timestamp)", "a b"],
)
def test_fields_that_are_refused(text: str) -> None:
    with pytest.raises(WrongSpec, match=r"'.*'"):
        partition_field(text)


def days_of_logs(root: Path, days: int = 5) -> GrowingLogs:
    """Two partitions; records of all days in each batch."""
    grown = GrowingLogs(root / "logs")
    for partition, records in ((0, 40), (1, 15), (0, 40)):
        first = grown.ends.get(partition, 0)
        written = [
            Record(at, 7 * DAY_MS + (at % days) * DAY_MS + at, b"k%d" % (at % 9), b"v%d" % at)
            for at in range(first, first + records)
        ]
        grown.append_batch(partition, records, stored_batch(written))
    return grown


def opened(place: IcebergPlace, *fields: str, sort_by: tuple[str, ...] = ()) -> IcebergTable:
    return IcebergTable(
        "default",
        "lake.orders",
        place.properties,
        partition_by=tuple(map(partition_field, fields)) or None,
        sort_by=tuple(map(sort_field, sort_by)) or None,
    )


def files_of(place: IcebergPlace) -> list[Any]:
    with closing(opened(place)) as table, table.loaded() as loaded:
        return [each.file for each in loaded.scan().plan_files()]


def rows_of(place: IcebergPlace, **scan: Any) -> list[tuple[int, int]]:
    with closing(opened(place)) as table, table.loaded() as loaded:
        found = loaded.scan(**scan).to_arrow().to_pylist()
    return sorted((each["partition"], each["offset"]) for each in found)


def test_by_day_and_by_hash(tmp_path: Path) -> None:
    """Each file lies in one partition; scans with a filter read only some files; all are merged."""
    logs, place = days_of_logs(tmp_path), IcebergPlace(tmp_path)
    logs.run(opened(place, "day(timestamp)", "bucket(4, key)"), ArchiveOptions(target_bytes=1))
    files = files_of(place)
    for each in files:
        rows = pq.read_table(each.file_path.removeprefix("file://"))
        shape = TableShape((partition_field("day(timestamp)"), partition_field("bucket(4, key)")))
        (part,) = shape.split(rows.combine_chunks().to_batches()[0])
        assert part[0] == (each.partition[0], each.partition[1])
    assert rows_of(place) == logs.offsets == read_by_duckdb(place)
    with closing(opened(place)) as table, table.loaded() as loaded:
        scan = loaded.scan(
            row_filter="timestamp >= '1970-01-09T00:00:00+00:00' "
            "and timestamp < '1970-01-10T00:00:00+00:00'"
        )
        assert 0 < len(list(scan.plan_files())) < len(files) / 2
        assert {each["offset"] % 5 for each in scan.to_arrow().to_pylist()} == {1}
    logs.append(0, 3)
    logs.run(opened(place))  # its own partitions count
    assert maintained(place, options())[0].files_after < len(files)
    assert rows_of(place) == logs.offsets == read_by_duckdb(place)


def test_few_files_are_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More partitions than open files, and little memory: still each row once, in offset order."""
    logs, place = days_of_logs(tmp_path, days=20), IcebergPlace(tmp_path)
    monkeypatch.setattr(parquet_file, "OPEN_MAX", 2)
    monkeypatch.setattr(parquet_file, "WAITING_BYTES_MAX", 500)
    most, now = [], set()

    class Counted(parquet_file.ParquetFile):
        def write(self, rows: Any) -> None:
            super().write(rows)
            now.add(self.path)
            most.append(len(now))

        def close(self) -> None:
            super().close()
            now.discard(self.path)

        def finish(self, footer: Any = None) -> Any:
            now.discard(self.path)
            return super().finish(footer)

    monkeypatch.setattr(parquet_file, "ParquetFile", Counted)
    logs.run(opened(place, "topic", "day(timestamp)"), ArchiveOptions())
    assert max(most) <= 3  # two, and one of what waited
    assert rows_of(place) == logs.offsets
    for each in files_of(place):
        offsets = pq.read_table(each.file_path.removeprefix("file://"))["offset"].to_pylist()
        assert offsets == sorted(offsets)


def test_sorted_files(tmp_path: Path) -> None:
    """Each file is sorted, also a merged one; equal rows stay in offset order."""
    logs, place = days_of_logs(tmp_path), IcebergPlace(tmp_path)
    logs.run(opened(place, sort_by=("key", "timestamp desc")), ArchiveOptions(target_bytes=1))
    maintained(place, options())
    files = files_of(place)
    assert len(files) == 2
    for each in files:
        assert each.sort_order_id == 1
        rows = pq.read_table(each.file_path.removeprefix("file://")).to_pylist()
        assert rows == sorted(rows, key=lambda row: (row["key"], -row["timestamp"].timestamp()))
    assert rows_of(place) == logs.offsets


def test_another_shape_is_refused(tmp_path: Path) -> None:
    """A table keeps its shape; a shape that its columns cannot have makes no table."""
    logs, place = days_of_logs(tmp_path), IcebergPlace(tmp_path)
    with pytest.raises(UnusableTable, match=r"There is no column value\.city"):
        opened(place, "value.city")
    with pytest.raises(UnusableTable, match="key is of type binary"):
        opened(place, "day(key)")
    logs.run(opened(place, "day(timestamp)"))
    opened(place, "day(timestamp)").close()
    with pytest.raises(UnusableTable, match=r"has --partition-by day\(timestamp\)"):
        opened(place, "hour(timestamp)")
    with pytest.raises(UnusableTable, match="has --sort-by nothing"):
        opened(place, "day(timestamp)", sort_by=("key",))
    late = opened(place)
    logs.append(0, 1)
    with closing(opened(place)) as table, table.loaded() as loaded, loaded.update_spec() as spec:
        spec.add_identity("topic")
    with pytest.raises(TableChanged, match="partitioned anew"):
        logs.run(late)
    logs.run(opened(place))
    assert rows_of(place) == logs.offsets


def test_the_options(tmp_path: Path) -> None:
    """On the command line; for Iceberg alone."""
    logs, place = days_of_logs(tmp_path), IcebergPlace(tmp_path)
    named = [f"--catalog-property={key}={value}" for key, value in place.properties.items()]
    command = ["archive", "run", str(tmp_path / "logs"), "--processes", "1", *named]
    by_day = ["--partition-by", "day(timestamp)", "--sort-by", "key"]
    done = CliRunner().invoke(make_cli(), [*command, "--iceberg", "lake.orders", *by_day])
    assert done.exit_code == 0, done.output
    assert rows_of(place) == logs.offsets
    assert {each.partition[0] for each in files_of(place)} == {7, 8, 9, 10, 11}
    for wrong in (
        ["--parquet", str(tmp_path / "p"), *by_day],
        ["--iceberg", "lake.o", "--partition-by", "week(x)"],
    ):
        assert CliRunner().invoke(make_cli(), [*command, *wrong]).exit_code == 2
