"""Goal: an archive goes on with the log that it has the beginning of, and with no other one.
Method: topics that are made anew, logs that lose their end and grow, tables of older versions and
damaged ones, into Parquet and Iceberg tables.
"""

from __future__ import annotations

import json
import struct
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
import pytest
from crc32c import crc32c

from kafkalog.errors import CorruptData
from kafkalog.format.disk.properties import encode_partition_metadata
from kafkalog.format.topic_names import encode_id
from kafkalog.jobs.archive.archive import ArchiveAhead
from kafkalog.jobs.archive.archive_files import SCHEMA, last_record
from kafkalog.jobs.archive.archive_table import Position, UnusableTable
from kafkalog.jobs.tasks import InProcess
from kafkalog.spark.logs.values import AmbiguousPartition
from tests.archive_world import GrowingLogs, PlainPlace, offsets_in, some_logs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.archive_world import Place

ONE, ANOTHER = UUID(int=1 << 100), UUID(int=2 << 100)
PLACES = [PlainPlace]
"""``tests/spark/test_archive_into_iceberg.py`` has the same tests with the other one."""


@pytest.fixture
def logs(tmp_path: Path) -> GrowingLogs:
    return some_logs(tmp_path)


def test_a_log_that_ends_before_the_table(tmp_path: Path, logs: GrowingLogs) -> None:
    """A topic made anew, or a log that was cut: refused, and nothing is written."""
    place = PlainPlace(tmp_path)
    logs.run(place.open())
    other = GrowingLogs(tmp_path / "other")
    other.append(0, 3)
    with pytest.raises(ArchiveAhead, match="from offset 430 on, but the log ends at 3"):
        other.run(place.open())


@pytest.mark.parametrize("kind", PLACES)
def test_a_topic_that_was_made_anew(tmp_path: Path, logs: GrowingLogs, kind: type[Place]) -> None:
    """Goal: records of another topic are never taken for the rest of the archived one's.
    Method: a directory with another topic id and more records than the table wants; and one whose
    topic is made anew between the reading and the commit.
    """
    place, anew = kind(tmp_path), GrowingLogs(tmp_path / "anew", topic_id=ANOTHER)
    logs.topic_id = ONE
    logs.append(0, 1)
    logs.run(place.open())
    anew.append(0, 900)
    with pytest.raises(ArchiveAhead, match=r"orders with the id .* was deleted and recreated"):
        anew.run(place.open())
    assert offsets_in(place) == logs.offsets

    class Recreating(InProcess):
        def run(self, tasks: Any, work: Callable[[Any], Any], on_done: Any) -> Any:
            """Work, and then it is another topic."""
            done = super().run(tasks, work, on_done)
            for path in (tmp_path / "logs").glob("orders-*/partition.metadata"):
                path.write_bytes(encode_partition_metadata(ANOTHER))
            return done

    before = list(logs.offsets)
    logs.append(0, 5)
    with pytest.raises(ArchiveAhead, match="recreated"):
        logs.run(place.open(), runner=Recreating())
    assert offsets_in(place) == before


@pytest.mark.parametrize("kind", PLACES)
def test_a_log_that_lost_its_end_and_grew(
    tmp_path: Path, logs: GrowingLogs, kind: type[Place]
) -> None:
    """What came at offsets that the table has is noticed, however long the log is by now."""
    place = kind(tmp_path)
    logs.run(place.open())
    before = list(logs.offsets)
    logs.lose(0, 230)
    logs.append(0, 700, b"other %d")
    with pytest.raises(ArchiveAhead, match="another record of orders-0 at offset 429"):
        logs.run(place.open())
    assert offsets_in(place) == before
    logs.lose(0, 230)
    logs.append(0, 200)
    logs.append(0, 9)
    logs.run(place.open())
    assert offsets_in(place) == logs.offsets


def test_a_position_that_is_damaged(tmp_path: Path, logs: GrowingLogs) -> None:
    """No half of a position is believed."""
    logs.topic_id = ONE
    logs.append(0, 1)
    logs.run(PlainPlace(tmp_path).open())
    commit = tmp_path / "table" / "_kafkalog" / f"{1:020}.json"
    whole = json.loads(commit.read_text())
    assert whole["topics"]["orders"]["id"] == encode_id(ONE)
    damaged: list[object] = [
        [],
        {"orders": 1},
        {"orders": {"id": "x"}},
        {"orders": {"last": {"0": [1]}}},
    ]
    for topics in damaged:
        commit.write_text(json.dumps({**whole, "topics": topics}))
        with pytest.raises(UnusableTable, match="are damaged"):
            PlainPlace(tmp_path).open()
    for offsets in ({"orders": {"0": "7"}}, {"orders": {"zero": 7}}, None):
        commit.write_text(json.dumps({**whole, "offsets": offsets}))
        with pytest.raises(UnusableTable, match="are damaged"):
            PlainPlace(tmp_path).open()


def test_what_the_checksum_is_of() -> None:
    """Goal: it never changes, tables hold it; null is not empty, and where a field ends counts.
    Method: the parts by hand, and records that differ in one thing.
    """
    rows: list[tuple[bytes, bytes | None, list[tuple[str, bytes | None]]]] = [
        (b"k", b"v", []),
        (b"kv", b"", []),
        (b"k", None, []),
        (b"k", b"", []),
        (b"", b"kv", []),
        (b"k", b"v", [("h", None)]),
        (b"k", b"v", [("h", b"")]),
    ]
    found = []
    for key, value, headers in rows:
        row: dict[str, Any] = {
            "key": key,
            "value": value,
            "topic": "t",
            "partition": 0,
            "offset": 4,
        }
        stamp = datetime.fromtimestamp(7, UTC)
        row |= {"timestamp": stamp, "timestampType": 0, "headers": headers or None}
        found.append(last_record(pa.RecordBatch.from_pylist([row], SCHEMA)))
    assert len(set(found)) == len(rows)
    parts = struct.pack(">qq", 7_000_000, 1) + b"k" + struct.pack(">q", 1) + b"v"
    assert found[0] == (4, crc32c(parts))


@pytest.mark.parametrize("kind", PLACES)
def test_a_table_of_an_older_version(tmp_path: Path, logs: GrowingLogs, kind: type[Place]) -> None:
    """It goes on, and knows its topics from the next run on, also one with nothing new."""
    place = kind(tmp_path)
    logs.topic_id = ONE
    logs.append(0, 1)
    table = place.open()
    table.commit([], Position({("orders", 0): 431, ("orders", 1): 5}))
    table.close()
    for _ in range(2):
        assert logs.run(place.open()) == []
    table = place.open()
    assert table.position.topic_ids == {"orders": encode_id(ONE)}
    table.close()
    logs.append(1, 3)
    logs.run(place.open())
    assert offsets_in(place) == [(1, 5), (1, 6), (1, 7)]
    table = place.open()
    assert [each.offset for each in table.position.last_records.values()] == [7]
    table.close()


def test_a_directory_of_two_topics(tmp_path: Path, logs: GrowingLogs) -> None:
    """Partitions with different ids under one name, and a file of ids that is damaged: told."""
    other = GrowingLogs(tmp_path / "logs", topic_id=ANOTHER, ends={3: 0})
    other.append(3, 2)
    logs.topic_id = ONE
    logs.append(0, 2)
    with pytest.raises(AmbiguousPartition, match="two topics have the name orders"):
        logs.run(PlainPlace(tmp_path).open())
    (tmp_path / "logs" / "orders-3" / "partition.metadata").write_text("version: 0\n")
    with pytest.raises(CorruptData, match="Malformed"):
        logs.run(PlainPlace(tmp_path).open())
