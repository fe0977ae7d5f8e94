"""Goal: every record is in the archive once, whatever stops a run; an archive goes on with the log
that it has the beginning of, and with no other one.
Method: growing, remade and damaged logs into Parquet and Iceberg tables; a stop at every step.
"""

from __future__ import annotations

import json
import shutil
import struct
from collections import Counter
from datetime import UTC, datetime
from itertools import count, islice
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import structlog
from crc32c import crc32c

from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.errors import CorruptData, UnknownTopic
from kafkalog.format.disk.file_names import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARK_CHECKPOINT,
    LOCK,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from kafkalog.format.disk.properties import encode_partition_metadata
from kafkalog.format.records.control_record import ControlRecordType, build_end_transaction_marker
from kafkalog.format.topic_names import TopicPartition, encode_id
from kafkalog.jobs.archive.archive import ArchiveAhead, ArchiveOptions
from kafkalog.jobs.archive.archive_files import archive_piece, last_record
from kafkalog.jobs.archive.archive_table import Position, UnusableTable
from kafkalog.jobs.archive.file_layout import SCHEMA
from kafkalog.jobs.archive.parquet_table import LocalStore, ParquetTable
from kafkalog.jobs.tasks import InProcess, TaskFailed
from kafkalog.spark.logs.directory import DirectoryLogs
from kafkalog.spark.logs.values import Access, AmbiguousPartition, DataLost
from tests.archive_world import (
    GrowingLogs,
    PlainPlace,
    Stopped,
    StoppingTable,
    archived_files,
    offsets_in,
    rows_in,
    some_logs,
)
from tests.naive.stored_batches import TRANSACTIONAL, Producer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.archive_world import Place


PLACES = [PlainPlace]
"""``tests/spark/test_archive_into_iceberg.py`` has the same tests with the other one."""


@pytest.fixture
def logs(tmp_path: Path) -> GrowingLogs:
    return some_logs(tmp_path)


@pytest.mark.parametrize("kind", PLACES)
def test_every_record_once(tmp_path: Path, logs: GrowingLogs, kind: type[Place]) -> None:
    """Runs between appends; the last one finds nothing. Rows are those of the log."""
    place = kind(tmp_path)
    (first, second) = logs.run(place.open())
    assert first._replace(bytes=0) == ("orders", 0, 0, 430, 430, first.files, 0, 0, None)
    assert second._replace(bytes=0) == ("orders", 1, 0, 5, 5, 1, 0, 0, None)
    assert first.files > 1
    logs.append(1, 7)
    logs.append(2, 3)
    rows = logs.run(place.open())
    assert [each[:6] for each in rows] == [("orders", 1, 5, 12, 7, 1), ("orders", 2, 0, 3, 3, 1)]
    assert logs.run(place.open()) == []
    assert offsets_in(place) == logs.offsets
    some = rows_in(place.read())[7]
    assert (some["topic"], some["key"], some["value"]) == ("orders", b"k7", b"v7")
    assert some["timestamp"].timestamp() == 7.0
    assert (some["timestampType"], some["headers"]) == (0, None)


@pytest.mark.parametrize("kind", PLACES)
@pytest.mark.parametrize("stop_at", ["plan", "before commit", "after commit"])
def test_a_run_that_ends_at_a_step(
    tmp_path: Path, logs: GrowingLogs, kind: type[Place], stop_at: str
) -> None:
    """No record lost or doubled."""
    place = kind(tmp_path)
    for records in (11, 1):
        with pytest.raises(Stopped):
            logs.run(StoppingTable(place.open(), stop_at))
        logs.append(0, records)
        logs.run(place.open())
        assert offsets_in(place) == logs.offsets
        logs.append(1, records)
    logs.run(place.open())
    assert offsets_in(place) == logs.offsets


def stopping_disk(stop_at: int) -> SystemFilesystem:
    """Ends the process before the n-th call that changes the disk."""
    disk, calls = SystemFilesystem(), count(1)

    def stops(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            if next(calls) == stop_at:
                raise Stopped
            return call(*arguments, **named)

        return counted

    calls_of_a_run = ("rename", "unlink", "remove_tree", "sync_dir", "make_dir")
    for name in (*calls_of_a_run, "write_file_atomically"):
        setattr(disk, name, stops(getattr(disk, name)))
    return disk


def test_a_commit_that_ends_at_any_call_of_the_disk(tmp_path: Path) -> None:
    """Readers see the beginning of each partition at any time; no row is lost or doubled."""
    logs, place = GrowingLogs(tmp_path / "logs"), PlainPlace(tmp_path)
    options, success = ArchiveOptions(target_bytes=1), tmp_path / "table" / "_SUCCESS"
    stops = partial = seen = 0
    for call in range(1, 200):
        for partition in (0, 1, 0):
            logs.append(partition, 1)
        try:
            table = ParquetTable(str(tmp_path / "table"), stopping_disk(call))
            logs.run(StoppingTable(table, "never"), options)
        except Stopped:
            stops += 1
        else:
            break
        found = offsets_in(place)
        ends = Counter(partition for partition, _ in found)
        assert found == [each for each in logs.offsets if each[1] < ends[each[0]]]
        assert not success.exists() or len(found) in (seen, len(logs.offsets))
        partial += seen < len(found) < len(logs.offsets)
        seen = len(found)
        if call % 2:
            logs.run(place.open(), options)
            seen = len(logs.offsets)
            assert success.exists()
    assert stops >= 15
    assert partial >= 3
    logs.run(place.open())
    assert offsets_in(place) == logs.offsets
    names = sorted(each.name for each in (tmp_path / "table").iterdir())
    assert names == ["_SUCCESS", "_kafkalog.lock", "topic=orders"]


def test_a_name_is_durable_before_the_next_one(tmp_path: Path, logs: GrowingLogs) -> None:
    """A power failure takes the end of a partition at most, and nothing from the middle."""
    disk, calls = SystemFilesystem(), list[tuple[str, str]]()
    rename, sync_dir = disk.rename, disk.sync_dir

    def renamed(source: str, target: str) -> None:
        calls.append(("rename", target.rpartition("/")[0]))
        rename(source, target)

    def synced(path: str) -> None:
        calls.append(("sync", path))
        sync_dir(path)

    disk.rename, disk.sync_dir = renamed, synced  # type: ignore[method-assign]
    logs.run(ParquetTable(str(tmp_path / "table"), disk))
    renames = [at for at, (name, _) in enumerate(calls) if name == "rename"]
    assert len(renames) > 3
    for at in renames:
        directory = calls[at][1]
        assert calls[at + 1] == ("sync", directory)
        before = calls[:at]
        assert ("sync", directory.rpartition("/")[0]) in before
        assert ("sync", str(tmp_path / "table")) in before


@pytest.mark.parametrize("kind", PLACES)
def test_a_task_that_fails_leaves_nothing(
    tmp_path: Path, logs: GrowingLogs, kind: type[Place]
) -> None:
    """The table is as before, and the next run gets everything."""
    place = kind(tmp_path)
    logs.run(place.open())
    before = list(logs.offsets)
    for _ in range(3):
        logs.append(0, 300)

    def fails_later(tasks: Any, work: Callable[[Any], Any], **_: Any) -> Any:
        for ended in islice(InProcess().stream(tasks, work), 1):
            yield ended
            raise TaskFailed(f"{ended.task.label}: no disk, 1 done")

    runner = InProcess()
    runner.stream = fails_later  # type: ignore[method-assign]  # a runner of its own
    with pytest.raises(TaskFailed):
        logs.run(place.open(), runner=runner)
    assert offsets_in(place) == before
    logs.run(place.open())
    assert offsets_in(place) == logs.offsets


def test_how_a_file_is_written(tmp_path: Path, logs: GrowingLogs) -> None:
    """Deltas, dictionaries, zstd, page checksums, statistics that tell the offsets."""
    logs.run(PlainPlace(tmp_path).open())
    (one,) = [each for each in archived_files(str(tmp_path / "table")) if each.partition == 1]
    assert (one.rows, one.first_offset, one.last_offset) == (5, 0, 4)
    with pq.ParquetFile(one.path) as file:
        group = file.metadata.row_group(0)
        columns = {group.column(each).path_in_schema: group.column(each) for each in range(5)}
    for name in ("offset", "timestamp"):
        assert "DELTA_BINARY_PACKED" in columns[name].encodings
    assert "RLE_DICTIONARY" in columns["timestampType"].encodings
    assert set(columns) == {"key", "value", "offset", "timestamp", "timestampType"}
    assert {each.compression for each in columns.values()} == {"ZSTD"}
    assert (columns["offset"].statistics.min, columns["offset"].statistics.max) == (0, 4)


def test_records_that_were_deleted_unarchived(tmp_path: Path, logs: GrowingLogs) -> None:
    """Named as lost; with ``may_lose`` the archive goes on where the log begins."""
    place = PlainPlace(tmp_path)
    logs.run(place.open())
    end = logs.ends[0]
    logs.append(0, 9)
    logs.append(0, 9)
    checkpoint = tmp_path / "logs" / LOG_START_OFFSET_CHECKPOINT
    checkpoint.write_text(f"0\n1\norders 0 {end + 9}\n")
    with pytest.raises(DataLost) as lost:
        logs.run(place.open())
    assert lost.value.missing == ("orders", 0, end, end + 9)
    (row,) = logs.run(place.open(), ArchiveOptions(may_lose=True))
    assert (row.from_offset, row.next_offset, row.rows) == (end + 9, end + 18, 9)


def test_records_that_are_too_new_wait(tmp_path: Path, logs: GrowingLogs) -> None:
    """Up to the first record of that time."""
    place = PlainPlace(tmp_path)
    rows = logs.run(place.open(), ArchiveOptions(before_ms=230_000))
    assert [(each.partition, each.next_offset) for each in rows] == [(0, 230), (1, 5)]
    (row,) = logs.run(place.open())
    assert (row.from_offset, row.next_offset) == (230, 430)
    assert offsets_in(place) == logs.offsets


def test_only_the_topics_that_were_asked_for(tmp_path: Path, logs: GrowingLogs) -> None:
    place = PlainPlace(tmp_path)
    other = GrowingLogs(tmp_path / "logs", "users")
    other.append(0, 4)
    rows = logs.run(place.open(), ArchiveOptions(topics=frozenset({"users"})))
    assert [(each.topic, each.rows) for each in rows] == [("users", 4)]
    logs.run(place.open(), ArchiveOptions(topics=frozenset({"orders"})))
    assert place.open().position.next_offsets == {
        ("users", 0): 4,
        ("orders", 0): 430,
        ("orders", 1): 5,
    }


def test_a_topic_that_nobody_has_is_an_error(tmp_path: Path, logs: GrowingLogs) -> None:
    """A typo in a timer must not archive nothing for ever; one that was deleted since may be."""
    place = PlainPlace(tmp_path)
    with pytest.raises(UnknownTopic, match="no topic order; did you mean orders"):
        logs.run(place.open(), ArchiveOptions(topics=frozenset({"orders", "order"})))
    logs.run(place.open())
    for directory in (tmp_path / "logs").glob("orders-*"):
        shutil.rmtree(directory)
    GrowingLogs(tmp_path / "logs", "users").append(0, 4)
    rows = logs.run(place.open(), ArchiveOptions(topics=frozenset({"orders", "users"})))
    assert [(each.topic, each.rows) for each in rows] == [("users", 4)]


def test_a_task_that_runs_twice(tmp_path: Path, logs: GrowingLogs) -> None:
    """Spark speculates: both files are whole, one is of the commit, the other one goes."""
    from kafkalog.spark.logs.values import OffsetRange

    place = PlainPlace(tmp_path)
    access = Access(paths=(str(tmp_path / "logs"),))
    table = place.open()
    (piece,) = DirectoryLogs(access).pieces(OffsetRange("orders", 1, 0, 5), 1 << 20)
    files = [file for _ in range(2) for file in archive_piece(piece, access, table.store).files]
    assert len(files) == 2
    assert files[0].path != files[1].path
    table.commit([files[1]], Position({("orders", 1): 5}))
    table.close()
    logs.run(place.open())
    assert offsets_in(place) == logs.offsets


def test_what_is_no_archive_is_left_alone(tmp_path: Path, logs: GrowingLogs) -> None:
    root = tmp_path / "table"
    root.mkdir()
    (root / "mine.txt").write_text("mine")
    with pytest.raises(UnusableTable, match="not empty"):
        PlainPlace(tmp_path).open()
    (root / "mine.txt").unlink()
    table = PlainPlace(tmp_path).open()
    with pytest.raises(UnusableTable, match="Another job"):
        PlainPlace(tmp_path).open()
    table.close()
    logs.run(PlainPlace(tmp_path).open())
    (root / "_kafkalog.lock").unlink()  # as in a copy of what readers see
    assert logs.run(PlainPlace(tmp_path).open()) == []


def test_an_archive_has_a_place_of_its_own(tmp_path: Path, logs: GrowingLogs) -> None:
    root = tmp_path / "table"
    root.write_text("mine")
    with pytest.raises(UnusableTable, match="is not a directory: give another"):
        PlainPlace(tmp_path).open()
    root.unlink()
    root.symlink_to(tmp_path / "nowhere")
    with pytest.raises(UnusableTable, match="is not a directory: give another"):
        PlainPlace(tmp_path).open()
    root.unlink()
    (tmp_path / "meta.properties").write_text("version=1\n")
    with pytest.raises(UnusableTable, match=f"would be in the log directory {tmp_path}"):
        PlainPlace(tmp_path).open()
    assert not root.exists()


def test_a_directory_that_is_served(tmp_path: Path, logs: GrowingLogs) -> None:
    """What its daemon noted as visible and as durable, whichever is less."""
    place, log_dir = PlainPlace(tmp_path), tmp_path / "logs"
    filesystem = SystemFilesystem()
    lock = filesystem.lock(str(log_dir / LOCK))
    assert logs.run(place.open()) == []
    (log_dir / HIGH_WATERMARK_CHECKPOINT).write_text("0\n2\norders 0 230\norders 1 2\n")
    assert logs.run(place.open()) == []
    (log_dir / RECOVERY_POINT_CHECKPOINT).write_text("0\n2\norders 0 30\norders 1 5\n")
    rows = logs.run(place.open())
    assert [(each.partition, each.next_offset) for each in rows] == [(0, 30), (1, 2)]
    lock.release()
    logs.run(place.open())
    assert offsets_in(place) == logs.offsets


def test_a_directory_that_was_not_left_cleanly(tmp_path: Path, logs: GrowingLogs) -> None:
    """Nothing is archived that a power cut can still take from the log."""
    place, log_dir = PlainPlace(tmp_path), tmp_path / "logs"
    (log_dir / CLEAN_SHUTDOWN).unlink()
    with structlog.testing.capture_logs() as told:
        assert logs.run(place.open()) == []
    assert [each["event"] for each in told] == ["archive_ends_at_recovery_point"]
    (log_dir / RECOVERY_POINT_CHECKPOINT).write_text("0\n1\norders 0 30\n")
    (row,) = logs.run(place.open())
    assert (row.partition, row.next_offset) == (0, 30)
    (log_dir / CLEAN_SHUTDOWN).touch()
    logs.run(place.open())
    assert offsets_in(place) == logs.offsets


def test_a_partition_between_two_directories(tmp_path: Path, logs: GrowingLogs) -> None:
    """A move has taken the old name and not yet given the new one: nothing is known as durable."""
    opened = DirectoryLogs(Access(paths=(str(tmp_path / "logs"),)))
    ends = {TopicPartition("orders", 0): 430}
    assert opened.all_durable_ends(ends) == ends
    (tmp_path / "logs" / "orders-0").rename(tmp_path / "logs" / "orders-0.a-delete")
    assert opened.all_durable_ends(ends) == {TopicPartition("orders", 0): 0}


def test_a_table_that_was_filled_uncommitted(tmp_path: Path, logs: GrowingLogs) -> None:
    """A run without --uncommitted says what stands in its way, and goes on when it is gone."""
    place = PlainPlace(tmp_path)
    producer = Producer(7, 0, 0)
    logs.append(0, 3, attributes=TRANSACTIONAL, producer=producer)
    logs.run(place.open(), read_committed=False)
    with pytest.raises(
        ArchiveAhead, match="orders-0 from offset 433 on, but a transaction is open"
    ):
        logs.run(place.open())
    marker = build_end_transaction_marker(
        7, 0, 0, ControlRecordType.COMMIT, timestamp_ms=0, base_offset=433
    )
    logs.append_batch(0, 1, marker)
    logs.append(0, 2)
    (row,) = logs.run(place.open())
    assert (row.from_offset, row.next_offset, row.rows) == (433, 436, 2)


def test_a_commit_that_raised_and_stood(tmp_path: Path, logs: GrowingLogs) -> None:
    """Another commit through the same table is a later one, never in its place."""
    filesystem = FailingFilesystem()
    table = ParquetTable(str(tmp_path / "table"), filesystem)
    filesystem.is_failing = True
    with pytest.raises(OSError, match="behind"):
        table.commit([], Position({("orders", 0): 1}))
    filesystem.is_failing = False
    table.abandon()
    assert table.position == Position({("orders", 0): 1})
    table.commit([], Position({("orders", 0): 2}))
    table.close()
    names = [each.name for each in sorted((tmp_path / "table").rglob("*.parquet"))]
    assert names == [name_of(1, 1), name_of(1, 2)]


def name_of(from_offset: int, to_offset: int) -> str:
    return f"{from_offset:020}-{to_offset:020}.parquet"


class FailingFilesystem(SystemFilesystem):
    """Renames a file, and then fails."""

    is_failing = False

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        if self.is_failing:
            raise OSError(5, "The disk failed behind the rename")


def test_a_store_that_loses_bytes_is_noticed(tmp_path: Path, logs: GrowingLogs) -> None:
    """A file that is not what was written is of no commit."""
    from kafkalog.jobs.archive.parquet_file import WrongFile
    from kafkalog.spark.logs.values import OffsetRange

    class LosingStore(LocalStore):
        def sync(self, path: str) -> None:
            """Another range of the partition."""
            table = pq.read_table(path)
            pq.write_table(table.slice(1), path)

    access = Access(paths=(str(tmp_path / "logs"),))
    (piece,) = DirectoryLogs(access).pieces(OffsetRange("orders", 1, 0, 5), 1 << 20)
    with pytest.raises(WrongFile):
        archive_piece(piece, access, LosingStore(str(tmp_path / "table")))
    assert list((tmp_path / "table").rglob("*.pending")) == []


ONE, ANOTHER = UUID(int=1 << 100), UUID(int=2 << 100)
"""``tests/spark/test_archive_into_iceberg.py`` has the same tests with the other one."""


def test_a_log_that_ends_before_the_table(tmp_path: Path, logs: GrowingLogs) -> None:
    place = PlainPlace(tmp_path)
    logs.run(place.open())
    other = GrowingLogs(tmp_path / "other")
    other.append(0, 3)
    with pytest.raises(ArchiveAhead, match="from offset 430 on, but the log ends at 3"):
        other.run(place.open())


@pytest.mark.parametrize("kind", PLACES)
def test_a_topic_that_was_made_anew(tmp_path: Path, logs: GrowingLogs, kind: type[Place]) -> None:
    place, anew = kind(tmp_path), GrowingLogs(tmp_path / "anew", topic_id=ANOTHER)
    logs.topic_id = ONE
    logs.append(0, 1)
    logs.run(place.open())
    anew.append(0, 900)
    with pytest.raises(ArchiveAhead, match=r"orders with the id .* was deleted and recreated"):
        anew.run(place.open())
    assert offsets_in(place) == logs.offsets

    class Recreating(InProcess):
        def stream(self, tasks: Any, work: Callable[[Any], Any], **options: Any) -> Any:
            """Work, and then it is another topic."""
            yield from super().stream(tasks, work, **options)
            for path in (tmp_path / "logs").glob("orders-*/partition.metadata"):
                path.write_bytes(encode_partition_metadata(ANOTHER))

    before = list(logs.offsets)
    logs.append(0, 5)
    with pytest.raises(ArchiveAhead, match="recreated"):
        logs.run(place.open(), runner=Recreating())
    assert offsets_in(place) == before


@pytest.mark.parametrize("kind", PLACES)
def test_a_log_that_lost_its_end_and_grew(
    tmp_path: Path, logs: GrowingLogs, kind: type[Place]
) -> None:
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


def test_the_names_and_footers_are_the_position(tmp_path: Path, logs: GrowingLogs) -> None:
    logs.topic_id = ONE
    logs.append(0, 1)
    table = PlainPlace(tmp_path).open()
    logs.run(table)
    again = PlainPlace(tmp_path).open()
    assert again.position == table.position
    assert again.position.next_offsets == {("orders", 0): 431, ("orders", 1): 5}
    assert again.position.topic_ids == {"orders": encode_id(ONE)}
    assert [each.offset for each in again.position.last_records.values()] == [430, 4]
    again.close()
    files = sorted((tmp_path / "table" / "topic=orders" / "partition=0").iterdir())
    ranges = [tuple(map(int, each.stem.split("-"))) for each in files]
    assert ranges[0][0] == 0
    assert [end for _, end in ranges] == [*(begin for begin, _ in ranges[1:]), 431]


def test_files_that_are_not_what_a_run_leaves(tmp_path: Path, logs: GrowingLogs) -> None:
    """Each is named with what to do; nothing is archived on top of it."""
    logs.topic_id = ONE
    logs.append(0, 1)
    logs.run(PlainPlace(tmp_path).open(), ArchiveOptions(target_bytes=1))
    topic = tmp_path / "table" / "topic=orders"
    first, second, *_, last = sorted((topic / "partition=0").iterdir())
    (other,) = (topic / "partition=1").iterdir()
    wrong_moves = [
        (second, tmp_path / "away", "does not begin where .* ends: restore what is between"),
        (second, first.with_name(name_of(0, 77)), "does not begin where"),
        (first, first.with_name("part-0.parquet"), "part-0.parquet is of no archive: move it"),
        (topic / "partition=1", topic / "partition=one", "partition=one is of no archive"),
        (topic / "partition=1", topic / "partition=2", "of another partition: move it back"),
        (topic, topic.with_name("topic=users"), "of another partition: move it back"),
    ]
    for path, moved, words in wrong_moves:
        path.rename(moved)
        with pytest.raises(UnusableTable, match=words):
            PlainPlace(tmp_path).open()
        moved.rename(path)
    whole = last.read_bytes()
    last.write_bytes(whole[:-9])
    with pytest.raises(UnusableTable, match=r"cannot be read: .*; restore it"):
        PlainPlace(tmp_path).open()
    last.write_bytes(whole)
    rows, sound = pq.read_table(other), pq.read_metadata(other).metadata
    damaged: list[object] = [[], {"orders": 1}, {"orders": {"id": "x"}}, {"orders": {"id": None}}]
    for marks in (*damaged, {"orders": {"last": {"1": [1]}}}):
        text = {**sound, b"kafkalog.topics": json.dumps(marks).encode()}
        pq.write_table(rows.replace_schema_metadata(text), other)
        with pytest.raises(UnusableTable, match="are damaged"):
            PlainPlace(tmp_path).open()
    text = {b"kafkalog.topics": json.dumps({"orders": {"id": encode_id(ANOTHER)}}).encode()}
    pq.write_table(rows.replace_schema_metadata(text), other)
    with pytest.raises(UnusableTable, match="are of two topics of that name"):
        PlainPlace(tmp_path).open()


def test_an_id_is_not_forgotten(tmp_path: Path, logs: GrowingLogs) -> None:
    """By a run over a directory that has none."""
    logs.topic_id = ONE
    logs.append(0, 1)
    logs.run(PlainPlace(tmp_path).open())
    for path in (tmp_path / "logs").glob("orders-*/partition.metadata"):
        path.unlink()
    logs.topic_id = None
    for partition in (0, 1):
        logs.append(partition, 1)
    logs.run(PlainPlace(tmp_path).open())
    table = PlainPlace(tmp_path).open()
    assert table.position.topic_ids == {"orders": encode_id(ONE)}
    table.close()


def test_the_oldest_files_may_be_moved_away(tmp_path: Path, logs: GrowingLogs) -> None:
    """The newest one of a partition says where the next run begins."""
    place = PlainPlace(tmp_path)
    logs.run(place.open())
    *old, newest = sorted((tmp_path / "table" / "topic=orders" / "partition=0").iterdir())
    for each in old:
        each.unlink()
    begin = int(newest.stem.partition("-")[0])
    logs.append(0, 9)
    (row,) = logs.run(place.open())
    assert (row.from_offset, row.rows) == (430, 9)
    assert offsets_in(place) == [each for each in logs.offsets if each[0] or each[1] >= begin]


def test_offsets_without_records(tmp_path: Path) -> None:
    """Markers alone are archived once: a file without rows has their range and the last record."""
    logs, place = GrowingLogs(tmp_path / "logs", topic_id=ONE), PlainPlace(tmp_path)
    logs.append(0, 3)
    for _ in range(2):
        logs.append_batch(0, 1, marker_at(logs.ends[0]))
    logs.run(place.open())
    logs.append_batch(0, 1, marker_at(5))
    (row,) = logs.run(place.open(), ArchiveOptions(target_bytes=1))
    assert (row.from_offset, row.next_offset, row.rows, row.files) == (5, 6, 0, 0)
    assert logs.run(place.open()) == []
    logs.append(0, 2)
    logs.append_batch(0, 1, marker_at(8))
    logs.run(place.open(), ArchiveOptions(target_bytes=1))
    names = [each.name for each in sorted((tmp_path / "table").rglob("*.parquet"))]
    assert names == [name_of(0, 5), name_of(5, 6), name_of(6, 9)]
    assert offsets_in(place) == [(0, 0), (0, 1), (0, 2), (0, 6), (0, 7)]
    logs.lose(0, 3)
    logs.append(0, 50, b"other %d")
    with pytest.raises(ArchiveAhead, match="another record of orders-0 at offset 7"):
        logs.run(place.open())


def marker_at(offset: int) -> bytes:
    return build_end_transaction_marker(
        7, 0, 0, ControlRecordType.COMMIT, timestamp_ms=0, base_offset=offset
    )


def test_a_marker_file_knows_the_last_record(tmp_path: Path) -> None:
    """A log that lost its end is noticed also where the newest file has no rows."""
    logs, place = GrowingLogs(tmp_path / "logs", topic_id=ONE), PlainPlace(tmp_path)
    logs.append(0, 3)
    logs.run(place.open())
    logs.append_batch(0, 1, marker_at(3))
    logs.run(place.open())
    logs.lose(0, 0)
    logs.append(0, 50, b"other %d")
    with pytest.raises(ArchiveAhead, match="another record of orders-0 at offset 2"):
        logs.run(place.open())


def test_what_the_checksum_is_of() -> None:
    """It never changes, tables hold it; null is not empty, and where a field ends counts."""
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
    other = GrowingLogs(tmp_path / "logs", topic_id=ANOTHER, ends={3: 0})
    other.append(3, 2)
    logs.topic_id = ONE
    logs.append(0, 2)
    with pytest.raises(AmbiguousPartition, match="two topics have the name orders"):
        logs.run(PlainPlace(tmp_path).open())
    (tmp_path / "logs" / "orders-3" / "partition.metadata").write_text("version: 0\n")
    with pytest.raises(CorruptData, match="Malformed"):
        logs.run(PlainPlace(tmp_path).open())
