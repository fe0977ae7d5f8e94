"""Goal: an Iceberg table of the archive has, for every reader, the rows that were produced.
Method: runs of the command over logs of every shape, into tables of every kind; the examples of
read-archived-tables.md, word for word but for directories, in the environment of
requirements/iceberg-readers.txt: Iceberg has a runtime for its Spark, and DuckDB its extensions.
"""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from kafkalog.cli.main import make_cli
from kafkalog.format.disk.file_names import CLEAN_SHUTDOWN
from kafkalog.format.records.record import Record
from tests.fleet_world import kept_logging
from tests.integration.daemon import ROOT
from tests.spark.iceberg_session import COORDINATES, python_of_page
from tests.spark.log_directory import TIME_MS, LogDirectory, every_shape, in_order, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

    from tests.spark.log_directory import Row

pytestmark = [pytest.mark.iceberg_readers, pytest.mark.timeout(900)]
PAGE = ROOT / "docs/how-to/read-archived-tables.md"


@dataclass
class Lake:
    """A table in which topics were archived by several runs.

    rows   what was produced into them and is committed, in order
    """

    root: Path
    logs: LogDirectory
    rows: list[Row]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Topics orders and payments, two partitions each."""
    root = tmp_path_factory.mktemp("lake")
    (root / "archive").mkdir()
    logs = LogDirectory(root / "logs")
    for topic in ("orders", "payments"):
        every_shape(logs, topic)
    (logs.path / CLEAN_SHUTDOWN).touch()
    archive(root, "--target-bytes", "200", "--max-commit-bytes", "400")
    logs.fill("orders", 1, 9, 3)
    logs.write("orders", 1, [Record(12, TIME_MS, None, None)])
    archive(root)
    aborted = [(topic, 1, 5) for topic in ("orders", "payments")]
    rows = [
        row for row in logs.rows if (row["topic"], row["partition"], row["offset"]) not in aborted
    ]
    return Lake(root, logs, in_order(rows))


def archive(root: Path, *words: str, logs: str = "logs", table: str = "orders") -> None:
    command(root, table, "run", str(root / logs), "--processes", "1", *words)


def command(root: Path, table: str, *words: str) -> None:
    place = ["--iceberg", f"lake.{table}", "--warehouse", str(root / "archive" / "lake")]
    with kept_logging():
        done = CliRunner().invoke(make_cli(), ["archive", *words, *place])
    assert done.exit_code == 0, done.output


@pytest.fixture(scope="module")
def examples(lake: Lake) -> Iterator[dict[str, Any]]:
    """The names that the page's examples have defined."""
    in_lake = f"{lake.root}/archive"
    with python_of_page(PAGE, lake.root, lambda text: text.replace("/archive", in_lake)) as names:
        yield names


def arrow_rows(table: pa.Table) -> list[Row]:
    return in_order(table.to_pylist())


def test_the_page_names_the_jars_that_are_tested() -> None:
    (named,) = COORDINATES.findall(PAGE.read_text())
    pom = ET.parse(ROOT / "tests/oracle/kit/iceberg.pom.xml").getroot()
    there = [
        ":".join(each.findtext(name, "") for name in ("groupId", "artifactId", "version"))
        for each in pom.iter("dependency")
    ]
    assert named.split(",") == there


def test_spark(lake: Lake, examples: dict[str, Any]) -> None:
    assert rows_of(examples["in_spark"]) == lake.rows
    snapshots = examples["spark"].sql("SELECT operation FROM default.lake.orders.snapshots")
    assert [row[0] for row in snapshots.collect()] == ["append"] * snapshots.count()
    assert snapshots.count() > 4
    filtered = examples["in_spark"].where("topic = 'orders' and headers is null and offset < 50")
    wanted = [
        row
        for row in lake.rows
        if row["topic"] == "orders" and row["headers"] is None and row["offset"] < 50
    ]
    assert rows_of(filtered) == wanted


def test_pyiceberg(lake: Lake, examples: dict[str, Any]) -> None:
    """Version 0.12 makes null lists empty ones. A record without headers is stored with null."""
    rows = arrow_rows(examples["in_pyiceberg"])
    for row in rows:
        row["headers"] = row["headers"] or None
    assert rows == lake.rows


def test_duckdb(lake: Lake, examples: dict[str, Any]) -> None:
    assert arrow_rows(examples["in_duckdb"]) == lake.rows
    duck, metadata = examples["duck"], examples["table"].metadata_location
    question = (
        'SELECT count(*) FROM iceberg_scan(?) WHERE topic = ? AND "offset" >= 9 AND key IS NULL'
    )
    wanted = [row for row in lake.rows if row["topic"] == "orders" and row["key"] is None]
    assert duck.execute(question, [metadata, "orders"]).fetchone() == (len(wanted),)


def test_the_source_beside_the_table(lake: Lake, examples: dict[str, Any]) -> None:
    """One session reads the topics by format kafkalog and what is archived of them."""
    reader = examples["spark"].read.format("kafkalog").option("subscribe", "orders,payments")
    reader = reader.option("includeHeaders", "true").option(
        "kafka.isolation.level", "read_committed"
    )
    topics = reader.load(str(lake.logs.path))
    assert rows_of(topics) == lake.rows
    both = topics.join(examples["in_spark"], ["topic", "partition", "offset"])
    assert both.count() == len(lake.rows)


# ---- tables of every kind

ADDRESS = {"type": "object", "properties": {"city": {"type": "string"}, "zip": {"type": "integer"}}}
OWNER = {"type": "object", "properties": {"name": {"type": "string"}, "address": ADDRESS}}
ITEM = {"type": "object", "properties": {"sku": {"type": "string"}, "n": {"type": "integer"}}}
FIRST_FIELDS = {
    "id": {"type": "integer", "format": "int32"},
    "owner": OWNER,
    "items": {"type": "array", "items": ITEM},
    "tags": {"type": "array", "items": {"type": "string"}},
}
MORE_FIELDS = {
    **FIRST_FIELDS,
    "id": {"type": "integer"},
    "at": {"type": "string", "format": "date-time"},
    "day": {"type": "string", "format": "date"},
    "ratio": {"type": "number"},
    "ok": {"type": "boolean"},
}
LATE = {"at": datetime(2024, 2, 29, 12, 0, 0, 5, UTC), "day": date(1969, 12, 31), "ratio": 0.1}
DAY_MS = 86_400_000


def values(number: int, *, late: bool) -> tuple[bytes, dict[str, Any]]:
    """The JSON of a record, and its row; some parts are missing, null or empty."""
    address = [None, {"city": "Ulm", "zip": None}, {"city": None, "zip": number}][number % 3]
    row: dict[str, Any] = {
        "id": number + (5_000_000_000 if late else 0),
        "owner": None if number % 4 == 0 else {"name": f"n{number}", "address": address},
        "items": [{"sku": f"s{each}", "n": each or None} for each in range(number % 3)],
        "tags": ["a", None, "ä"][: number % 4],
    }
    text = dict(row)
    if late:
        text |= {"at": "2024-02-29T12:00:00.000005Z", "day": "1969-12-31", "ratio": 0.1, "ok": True}
    return json.dumps(text).encode(), row | dict.fromkeys(MORE_FIELDS.keys() - row.keys()) | (
        {**LATE, "ok": True} if late else {}
    )


@dataclass
class Tables:
    """What each table of the lake has to have, by name: rows in order."""

    wanted: dict[str, list[Row]]


@pytest.fixture(scope="module")
def tables(lake: Lake) -> Tables:
    """Typed, of a schema that grew; in partitions by day and key; maintained; of last values."""
    root, logs = lake.root, LogDirectory(lake.root / "typed")
    typed: list[Row] = []
    dead: list[Row] = []
    for schema, late in ((FIRST_FIELDS, False), (MORE_FIELDS, True)):
        for partition in (0, 1):
            first = 12 if late else 0
            written = [values(first + each, late=late) for each in range(12)]
            records = [
                Record(first + at, TIME_MS + (first + at) * DAY_MS // 5, b"k%d" % (at % 5), text)
                for at, (text, _) in enumerate(written)
            ]
            records[3] = replace(records[3], value=b"poison")
            records[4] = replace(records[4], value=None)
            logs.write("devices", partition, records)
            new = logs.rows[-12:]
            dead += [new[3]]
            typed += [
                {**row, "value": None if at == 4 else value}
                for at, (row, (_, value)) in enumerate(zip(new, written, strict=True))
                if at != 3
            ]
        (logs.path / CLEAN_SHUTDOWN).touch()
        (root / "schema.json").write_text(json.dumps({"type": "object", "properties": schema}))
        formats = ["--value-format", "json", "--schema", str(root / "schema.json")]
        by_day = ["--partition-by", "day(timestamp)", "--partition-by", "bucket(16, key)"]
        small = ["--target-bytes", "1", "--max-commit-bytes", "1"]
        for table, words in (
            ("typed", formats),
            ("typed_by_day", [*formats, *(by_day if not late else [])]),
            ("by_day", by_day if not late else []),
            ("maintained", small),
            ("typed_maintained", [*formats, *small]),
            ("latest", ["--upsert"]),
        ):
            archive(root, *words, logs="typed", table=table)
    for table in ("maintained", "typed_maintained"):
        command(root, table, "maintain", "--execute", "--min-files", "2", "--processes", "1")
    latest = {(row["partition"], row["key"]): row for row in logs.rows}
    return Tables(
        {
            **dict.fromkeys(("typed", "typed_by_day", "typed_maintained"), in_order(typed)),
            **dict.fromkeys(("by_day", "maintained"), in_order(logs.rows)),
            "latest": in_order(row for row in latest.values() if row["value"] is not None),
            "typed_dead_letters": in_order(dead),
        }
    )


def plain(found: Any) -> Any:
    """Values that are equal if they are the same for a person: a reader has [] for some nulls."""
    if isinstance(found, dict):
        return {name: plain(each) for name, each in found.items()}
    if isinstance(found, list):
        return [plain(each) for each in found] or None
    return found


@pytest.mark.parametrize(
    "name",
    [
        "typed",
        "typed_by_day",
        "typed_maintained",
        "by_day",
        "maintained",
        "latest",
        "typed_dead_letters",
    ],
)
def test_every_reader_has_the_same_rows(
    tables: Tables, examples: dict[str, Any], name: str
) -> None:
    table = examples["catalog"].load_table(f"lake.{name}")
    query = "FROM iceberg_scan(?)"
    read = {
        "spark": examples["spark"].sql(f"SELECT * FROM default.lake.{name}").toArrow(),
        "pyiceberg": table.scan().to_arrow(),
        "duckdb": examples["duck"].execute(query, [table.metadata_location]).to_arrow_table(),
    }
    wanted = tables.wanted[name]
    for reader, found in read.items():
        rows = arrow_rows(found)
        if name == "typed_dead_letters":
            assert {(row.pop("part"), row.pop("reason")) for row in rows} == {
                ("value", "it is not a JSON object")
            }
            wanted = [{each: row[each] for each in rows[0]} for row in wanted]
        assert plain(rows) == plain(wanted), reader


def test_a_filter_on_a_field_and_on_a_partition(tables: Tables, examples: dict[str, Any]) -> None:
    """Statistics of nested fields and values of hidden partitions leave out no row that counts."""
    table = examples["catalog"].load_table("lake.typed_by_day")
    where = "value.id >= 5000000000 AND timestamp >= TIMESTAMP '2023-11-18 00:00:00+00:00'"
    begin = datetime(2023, 11, 18, tzinfo=UTC)
    wanted = [
        (row["partition"], row["offset"])
        for row in tables.wanted["typed_by_day"]
        if row["value"] and row["value"]["id"] >= 5_000_000_000 and row["timestamp"] >= begin
    ]
    assert len(wanted) > 5
    filtered = f'SELECT "partition", "offset" FROM iceberg_scan(?) WHERE {where} ORDER BY ALL'
    in_duckdb = examples["duck"].execute(filtered, [table.metadata_location]).fetchall()
    assert in_duckdb == wanted
    in_spark = examples["spark"].sql(
        f"SELECT partition, offset FROM default.lake.typed_by_day WHERE {where}"
    )
    assert sorted(map(tuple, in_spark.collect())) == wanted
    by_id = "value.id >= 5000000000 and timestamp >= '2023-11-18T00:00:00+00:00'"
    found = table.scan(row_filter=by_id, selected_fields=("partition", "offset")).to_arrow()
    assert sorted((row["partition"], row["offset"]) for row in found.to_pylist()) == wanted
