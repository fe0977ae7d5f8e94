"""Goal: an archive with typed columns has each record once, as a row or as a dead letter, through
kills, changes of the schema and a table of others; other readers see the same.
Method: growing logs with records that do not decode; stops between the two commits; a table before
and after each change, read by pyiceberg and DuckDB.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyiceberg.catalog import load_catalog

from kafkalog.cli.main import make_cli
from kafkalog.env.clock import SystemClock
from kafkalog.format.records.record import Record
from kafkalog.jobs.archive.archive import ArchiveAhead, ArchiveOptions
from kafkalog.jobs.archive.archive_table import TableChanged, UnusableTable
from kafkalog.jobs.archive.continuous import Continuous, Pace
from kafkalog.jobs.archive.dead_letters import SUFFIX, WithDeadLetters
from kafkalog.jobs.archive.formats.avro_values import AvroDecoder
from kafkalog.jobs.archive.formats.json_values import JsonDecoder
from kafkalog.jobs.archive.formats.records import DEAD_SCHEMA, RecordDecoder
from kafkalog.jobs.archive.iceberg_table import IcebergTable
from kafkalog.jobs.tasks import InProcess
from kafkalog.spark.logs.open import open_logs
from kafkalog.spark.logs.values import Access
from tests.archive_world import GrowingLogs, IcebergPlace, Stopped, StoppingTable
from tests.naive.stored_batches import stored_batch
from tests.spark.duckdb_reader import arrow_by_duckdb

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kafkalog.jobs.archive.archive_table import ArchivedFile, ArchiveTable, Position
    from kafkalog.jobs.archive.formats.decoder import Decoder

pytestmark = pytest.mark.spark
GOOD, POISON = b'{"id": %d, "name": "n"}', b"poison %d"
ORDER = pa.struct([("id", pa.int32()), ("name", pa.utf8())])
ORDERS = JsonDecoder(ORDER)
SMALL = ArchiveOptions(target_bytes=1, max_commit_bytes=1)
"""A commit for each segment."""


@dataclass(frozen=True)
class TypedPlace(IcebergPlace):
    """Two tables in an SQLite catalog."""

    value: Decoder = ORDERS

    def open(self) -> ArchiveTable:
        opened = partial(IcebergTable, "default", properties=self.properties)
        rows = opened("lake.orders", decoder_of=lambda *_: RecordDecoder(None, self.value))
        dead = opened("lake.orders" + SUFFIX, schema=DEAD_SCHEMA, partition_by=())
        return WithDeadLetters(rows, dead)

    def rows(self, suffix: str = "") -> list[dict[str, Any]]:
        """All rows of a table, by partition and offset."""
        catalog = load_catalog("default", **self.properties)
        try:
            found = catalog.load_table("lake.orders" + suffix).scan().to_arrow().to_pylist()
        finally:
            catalog.close()
        return sorted(found, key=lambda each: (each["partition"], each["offset"]))

    def check(self, logs: GrowingLogs) -> None:
        """Each record is in one of the two tables, once."""
        found = Counter(
            (each["partition"], each["offset"])
            for suffix in ("", SUFFIX)
            for each in self.rows(suffix)
        )
        assert found == Counter(logs.offsets)


@pytest.fixture
def logs(tmp_path: Path) -> GrowingLogs:
    """Two partitions; some records of both do not decode."""
    grown = GrowingLogs(tmp_path / "logs", topic_id=UUID(int=1 << 100))
    for value in (GOOD, POISON, GOOD):
        grown.append(0, 4, value)
    grown.append(1, 3, POISON)
    return grown


@dataclass
class StopsBetween(StoppingTable):
    """Ends the process at a step of the n-th commit that has dead letters."""

    after: int = 0
    commits: int = 0

    def commit(
        self, files: Sequence[ArchivedFile], position: Position, dead: Sequence[ArchivedFile] = ()
    ) -> None:
        assert isinstance(self.table, WithDeadLetters)
        self.commits += bool(dead)
        is_meant = bool(dead) and self.commits > self.after
        if is_meant and self.stop_at == "before both":
            raise Stopped
        if is_meant and self.stop_at == "between":
            self.table.commit_dead(position, dead)
            raise Stopped
        self.table.commit(files, position, dead)
        if is_meant and self.stop_at == "after both":
            raise Stopped


@pytest.mark.parametrize("stop_at", ["before both", "between", "after both"])
def test_each_record_once_through_kills(tmp_path: Path, logs: GrowingLogs, stop_at: str) -> None:
    """Also if the next run has another schema, by which a dead letter would decode."""
    place = TypedPlace(tmp_path)
    with pytest.raises(Stopped):
        logs.run(StopsBetween(place.open(), stop_at), replace(SMALL, max_commit_bytes=1 << 30))
    with suppress(Stopped):  # what is a dead letter already is none again
        logs.run(StopsBetween(place.open(), stop_at), SMALL)
    logs.append(0, 2, POISON)
    logs.append(1, 2, GOOD)
    other = replace(place, value=JsonDecoder(pa.struct([("id", pa.int64()), ("x", pa.utf8())])))
    with pytest.raises(Stopped):
        logs.run(StopsBetween(other.open(), stop_at), SMALL)
    logs.run(place.open(), SMALL)
    place.check(logs)
    assert {each["value"] for each in place.rows(SUFFIX)} == {
        POISON % offset for offset in (0, 1, 2, 4, 5, 6, 7, 12, 13)
    }


def test_a_record_that_would_decode_now_stays_a_dead_letter(tmp_path: Path) -> None:
    """What a run left in the dead letters is in no row, whatever the next schema is."""
    logs = GrowingLogs(tmp_path / "logs")
    logs.append(0, 4, b'{"id": "%d"}')
    numbers = TypedPlace(tmp_path)
    with pytest.raises(Stopped):
        logs.run(StopsBetween(numbers.open(), "between"))
    catalog = load_catalog("default", **numbers.properties)
    catalog.drop_table("lake.orders")
    catalog.close()
    words = replace(numbers, value=JsonDecoder(pa.struct([("id", pa.utf8())])))
    logs.append(0, 1, b'{"id": "%d"}')
    logs.run(words.open())
    assert [each["value"] for each in words.rows()] == [{"id": "4"}]
    words.check(logs)


def test_a_recreated_topic_is_not_mixed_with_dead_letters_of_a_killed_run(tmp_path: Path) -> None:
    logs = GrowingLogs(tmp_path / "logs", topic_id=UUID(int=1 << 100))
    logs.append(0, 4, POISON)
    place = TypedPlace(tmp_path)
    with pytest.raises(Stopped):
        logs.run(StopsBetween(place.open(), "between"))
    anew = GrowingLogs(tmp_path / "anew", topic_id=UUID(int=2 << 100))
    anew.append(0, 9, GOOD)
    with pytest.raises(ArchiveAhead, match="deleted and recreated"):
        anew.run(place.open())


def test_two_jobs_at_once(tmp_path: Path, logs: GrowingLogs) -> None:
    """The second one is refused by the dead letters, or by the rows; nothing is doubled."""
    place = TypedPlace(tmp_path)
    late = place.open()
    logs.run(place.open(), SMALL)
    with pytest.raises(TableChanged):
        logs.run(late, SMALL)
    place.check(logs)
    late = place.open()
    logs.append(0, 2, GOOD)
    logs.append(1, 2, POISON)
    logs.run(place.open(), replace(SMALL, topics=frozenset({"orders"})))
    with pytest.raises(TableChanged):
        logs.run(late, SMALL)
    place.check(logs)


def test_a_tombstone_is_a_row(tmp_path: Path) -> None:
    logs = GrowingLogs(tmp_path / "logs")
    written = [Record(0, 5, b"k", None), Record(1, 6, None, b"null"), Record(2, 7, b"k", b"{}")]
    logs.append_batch(0, 3, stored_batch(written))
    place = TypedPlace(tmp_path)
    logs.run(place.open())
    assert [(each["offset"], each["value"]) for each in place.rows()] == [
        (0, None),
        (2, {"id": None, "name": None}),
    ]
    (letter,) = place.rows(SUFFIX)
    assert (letter["offset"], letter["key"], letter["value"]) == (1, None, b"null")
    assert letter["reason"] == "it is not a JSON object"


WIDER = pa.struct(
    [
        ("id", pa.int64()),
        ("name", pa.utf8()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("tags", pa.list_(pa.struct([("k", pa.utf8())]))),
    ]
)


def by_duckdb(place: TypedPlace) -> list[dict[str, Any]]:
    """All rows by DuckDB's own reader."""
    found: list[dict[str, Any]] = arrow_by_duckdb(place).to_pylist()
    return sorted(found, key=lambda each: (each["partition"], each["offset"]))


def test_a_schema_grows(tmp_path: Path) -> None:
    """A new field, int to long; older files have it as null; an older schema writes on."""
    logs, place = GrowingLogs(tmp_path / "logs"), TypedPlace(tmp_path)
    logs.append(0, 2, GOOD)
    logs.run(place.open())
    wider = replace(place, value=JsonDecoder(WIDER))
    logs.append(0, 1, b'{"id": 5000000000%d, "at": "2024-01-02T00:00:00Z", "tags": [{"k": "a"}]}')
    late = place.open()
    logs.run(wider.open())
    with pytest.raises(TableChanged):
        logs.run(late)
    logs.append(0, 1, GOOD)
    logs.run(place.open())
    rows = place.rows()
    assert [each["value"]["id"] for each in rows] == [0, 1, 50000000002, 3]
    shown = [each["value"]["tags"] or None for each in rows]  # pyiceberg has [] for some nulls
    assert shown == [None, None, [{"k": "a"}], None]
    assert rows[2]["value"]["at"].year == 2024
    assert place.rows(SUFFIX) == []
    read = by_duckdb(place)
    assert [each["value"]["id"] for each in read] == [0, 1, 50000000002, 3]
    assert [each["value"]["tags"] for each in read] == [None, None, [{"k": "a"}], None]


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (pa.struct([("id", pa.utf8())]), r"field value\.id is int in the table and string"),
        (pa.struct([("name", pa.struct([("a", pa.int32())]))]), r"value\.name is string"),
        (pa.int64(), r"field value is struct in the table and long"),
    ],
)
def test_any_other_change_is_refused(tmp_path: Path, other: pa.DataType, words: str) -> None:
    place = TypedPlace(tmp_path)
    place.open().close()
    with pytest.raises(UnusableTable, match=words):
        replace(place, value=JsonDecoder(other)).open()
    with pytest.raises(UnusableTable, match="give the --value-format"):
        IcebergPlace(tmp_path).open()


def test_two_jobs_add_fields_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafkalog.jobs.archive import iceberg_schema

    place = TypedPlace(tmp_path)
    place.open().close()
    changes = iceberg_schema.schema_changes
    others = [replace(place, value=JsonDecoder(pa.struct([("b", pa.int32())])))]

    def meanwhile(*given: Any) -> Any:
        found = changes(*given)
        if found and others:
            others.pop().open().close()
        return found

    monkeypatch.setattr(iceberg_schema, "schema_changes", meanwhile)
    table = replace(place, value=JsonDecoder(pa.struct([("a", pa.int32())]))).open()
    names = {each.name for each in table.layout.schema.field("value").type}
    table.close()
    assert names == {"id", "name", "a", "b"}


INFERRED = JsonDecoder(ORDER, is_inferred=True)
LATE = b'{"id": %d, "extra": {"a": 1.5, "b": []}, "more": [1]}'
LATER = b'{"id": %d, "extra": {"a": 2, "c": "x"}, "note": null}'


@pytest.fixture
def growing(tmp_path: Path) -> GrowingLogs:
    """Records of one partition have fields that no sample had, behind others and poison."""
    grown = GrowingLogs(tmp_path / "logs", topic_id=UUID(int=1 << 100))
    for value in (GOOD, POISON, LATE, LATER, b'{"id": %d, "more": ["x"]}', GOOD):
        grown.append(0, 2, value)
    grown.append(1, 2, GOOD)
    return grown


def check_grown(place: TypedPlace, logs: GrowingLogs) -> None:
    place.check(logs)
    values = {each["offset"]: each["value"] for each in place.rows() if each["partition"] == 0}
    assert values.keys() == {0, 1, 4, 5, 6, 7, 10, 11}
    assert values[4] == {"id": 4, "name": None, "extra": {"a": 1.5, "c": None}, "more": [1]}
    assert values[7]["extra"] == {"a": 2.0, "c": "x"}
    letters = {each["offset"]: each["reason"] for each in place.rows(SUFFIX)}
    assert letters.keys() == {2, 3, 8, 9}
    assert "changed from number to string" in letters[8]


@pytest.mark.parametrize("options", [SMALL, ArchiveOptions()])
def test_an_inferred_schema_grows_in_a_run(
    tmp_path: Path, growing: GrowingLogs, options: ArchiveOptions
) -> None:
    """A field that the sample did not have is a column, whatever the type of most of it."""
    place = TypedPlace(tmp_path, INFERRED)
    rows = growing.run(place.open(), options)
    assert [(each.from_offset, each.next_offset) for each in rows] == [(0, 12), (0, 2)]
    assert [(each.rows, each.dead_letters) for each in rows] == [(8, 4), (2, 0)]
    check_grown(place, growing)


@pytest.mark.parametrize("stop_at", ["before a wider schema", "after a wider schema"])
def test_a_schema_grows_through_kills(tmp_path: Path, growing: GrowingLogs, stop_at: str) -> None:
    place = TypedPlace(tmp_path, INFERRED)
    with pytest.raises(Stopped):
        growing.run(StoppingTable(place.open(), stop_at), SMALL)
    growing.run(place.open(), SMALL)
    check_grown(place, growing)


def test_a_schema_grows_in_a_continuous_archive(tmp_path: Path, growing: GrowingLogs) -> None:
    """It would else lose every record of a producer that has a new field, until it is started
    again.
    """
    place = TypedPlace(tmp_path, INFERRED)
    tables: list[ArchiveTable] = []
    ends = {(growing.topic, partition): end for partition, end in growing.ends.items()}

    def opened() -> ArchiveTable:
        tables.append(place.open())
        return tables[-1]

    def is_stopped() -> bool:
        return bool(tables) and tables[-1].position.next_offsets == ends

    logs = partial(open_logs, Access(paths=(str(growing.log_dir),)))
    loop = Continuous(
        logs, opened, SMALL, Pace(), InProcess(), clock=SystemClock(), is_stopped=is_stopped
    )
    rows = loop.run()
    assert [(each.rows, each.dead_letters) for each in rows] == [(8, 4), (2, 0)]
    assert len(tables) == 1
    check_grown(place, growing)


AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}


def test_avro_into_a_table(tmp_path: Path) -> None:
    import fastavro

    schema = fastavro.parse_schema(AVRO)
    logs, place = (
        GrowingLogs(tmp_path / "logs"),
        TypedPlace(tmp_path, AvroDecoder.of(json.dumps(AVRO))),
    )
    for number in range(3):
        stream = io.BytesIO()
        row = {"id": number, "at": 1_700_000_000_000, "tags": {"a": number}, "note": None}
        fastavro.schemaless_writer(stream, schema, row)
        record = Record(number, 1_000 * number, b"k", stream.getvalue())
        logs.append_batch(0, 1, stored_batch([record]))
    logs.append(0, 1, b"%d")
    rows = logs.run(place.open())
    assert [(each.rows, each.dead_letters) for each in rows] == [(3, 1)]
    values = [each["value"] for each in place.rows()]
    assert [each["id"] for each in values] == [0, 1, 2]
    assert values[0]["at"].year == 2023
    assert [dict(each["tags"]) for each in values] == [{"a": 0}, {"a": 1}, {"a": 2}]
    place.check(logs)


def test_the_command(tmp_path: Path, logs: GrowingLogs) -> None:
    place = TypedPlace(tmp_path)
    command = ["archive", "run", str(logs.log_dir), "--iceberg", "lake.orders"]
    for name, value in place.properties.items():
        command += ["--catalog-property", f"{name}={value}"]
    ran = CliRunner().invoke(make_cli(), [*command, "--value-format", "json", "--infer"])
    assert ran.exit_code == 0, ran.output
    assert "dead letters: 7" in ran.output
    place.check(logs)
    logs.append(0, 2, b'{"id": %d, "more": true}')
    ran = CliRunner().invoke(make_cli(), [*command, "--value-format", "json", "--infer"])
    assert [each["value"]["more"] for each in place.rows()][-2:] == [True, True]
    for wrong, words in (
        (["--value-format", "avro"], "--value-format avro needs --schema"),
        (["--schema", "x"], "--schema and its ids need --value-format"),
        (["--infer"], "--infer is for JSON"),
        (["--value-format", "protobuf", "--schema", "x"], "DESCRIPTORS:MESSAGE"),
    ):
        ran = CliRunner().invoke(make_cli(), [*command, *wrong])
        assert ran.exit_code != 0
        assert words in ran.output
    parquet = ["archive", "run", str(logs.log_dir), "--parquet", str(tmp_path / "p")]
    ran = CliRunner().invoke(make_cli(), [*parquet, "--value-format", "json", "--infer"])
    assert "Typed columns need --iceberg" in ran.output
