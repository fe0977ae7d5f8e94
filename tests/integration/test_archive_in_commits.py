"""Goal: an archive grows by commits of bounded size, a partition that cannot be archived holds up
only itself, and a store that is busy for a moment costs a moment.
Method: growing logs with damage in the middle; stops at each commit; stores and disks that fail.
"""

from __future__ import annotations

import errno
import json
import random
import re
import shutil
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import pytest
import structlog
from click.testing import CliRunner

from kafkalog.cli.main import make_cli
from kafkalog.client.errors import NotAuthenticated
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.format.disk.file_names import LOG_START_OFFSET_CHECKPOINT
from kafkalog.jobs.archive import archive_files
from kafkalog.jobs.archive.archive import ArchiveAhead, ArchiveOptions, archive
from kafkalog.jobs.archive.archive_files import ArchivedPiece
from kafkalog.jobs.archive.parquet_table import ParquetTable
from kafkalog.jobs.archive.progress import Progress
from kafkalog.jobs.tasks import InProcess, TaskFailed
from kafkalog.spark.logs import directory_reader
from kafkalog.spark.logs.directory import DirectoryLogs
from kafkalog.spark.logs.object_store import StoreMissing
from kafkalog.spark.logs.secrets import SecretMissing
from kafkalog.spark.logs.values import Access, DataLost, OffsetRange, Piece
from tests.archive_world import (
    GrowingLogs,
    PlainPlace,
    Stopped,
    StoppingTable,
    archived_files,
    offsets_in,
)
from tests.fleet_world import kept_logging
from tests.sim.sim_clock import SimClock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from kafkalog.jobs.archive.archive_table import ArchivedFile, FileStore, Position

SEGMENTS, RECORDS = 6, 20
SMALL = ArchiveOptions(target_bytes=1, max_commit_bytes=900)
"""A file for each segment, of some 400 bytes, and two of them in a commit."""


@pytest.fixture
def logs(tmp_path: Path) -> GrowingLogs:
    """Three partitions of six segments."""
    grown = GrowingLogs(tmp_path / "logs")
    for _ in range(SEGMENTS):
        for partition in range(3):
            grown.append(partition, RECORDS)
    return grown


class NotingTable(ParquetTable):
    """Notes its commits."""

    def __init__(self, root: Path, commits: list[Commit]) -> None:
        super().__init__(str(root), SystemFilesystem())
        self._noted = commits

    def commit(self, files: Sequence[ArchivedFile], position: Position, *more: Any) -> None:
        super().commit(files, position, *more)
        self._noted.append(Commit(tuple(files), position))


class Commit(NamedTuple):
    files: tuple[ArchivedFile, ...]
    position: Position

    @property
    def offsets(self) -> dict[int, int]:
        return {partition: end for (_, partition), end in self.position.next_offsets.items()}


@dataclass(frozen=True)
class NotingPlace(PlainPlace):
    """The commits of all tables that were opened."""

    commits: list[Commit] = field(default_factory=list)

    def open(self) -> NotingTable:
        return NotingTable(self.root / "table", self.commits)


def segment(logs: GrowingLogs, partition: int, number: int) -> Path:
    return sorted((logs.log_dir / f"orders-{partition}").glob("*.log"))[number]


def flip(path: Path) -> None:
    """Damage in a batch; again: as it was."""
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)


class Shuffled(InProcess):
    """Some tasks are under way at once, and end in any order."""

    def __init__(self, seed: int) -> None:
        super().__init__(SimClock())
        self._random = random.Random(seed)

    def stream(self, tasks: Any, work: Any, **options: Any) -> Any:
        under_way: list[Any] = []
        for ended in super().stream(tasks, work, **options):
            under_way.append(ended)
            if len(under_way) == 5:
                yield under_way.pop(self._random.randrange(5))
        self._random.shuffle(under_way)
        yield from under_way


@pytest.mark.parametrize("seed", range(5))
def test_commits_are_bounded_and_in_the_order_of_offsets(
    tmp_path: Path, logs: GrowingLogs, seed: int
) -> None:
    place = NotingPlace(tmp_path)
    logs.run(place.open(), SMALL, Shuffled(seed))
    commits = place.commits
    assert len(commits) >= 3 * SEGMENTS / 4
    reached = dict.fromkeys(range(3), 0)
    for each in commits:
        size = 0
        for file in each.files:
            assert file.first_offset == reached[file.partition]
            reached[file.partition] = file.last_offset + 1
            base = f"{file.first_offset:020}.log"
            size += (logs.log_dir / f"orders-{file.partition}" / base).stat().st_size
        assert size <= (SMALL.max_commit_bytes or 0)
        assert each.offsets == {at: end for at, end in reached.items() if end}
    assert offsets_in(place) == logs.offsets


@pytest.mark.parametrize(("pieces", "commit_bytes"), [(20, 1 << 30), (80_000, 80 << 27)])
def test_commits_of_any_run_are_a_thousand_at_most(pieces: int, commit_bytes: int) -> None:
    """10 TB in pieces of 128 MiB: each commit rewrites what names all snapshots of a table."""
    progress = Progress()
    ranges = [OffsetRange("t", 0, number, number + 1) for number in range(pieces)]
    planned = [Piece(each, "/logs/t-0", None, 1 << 27) for each in ranges]
    progress.plan(OffsetRange("t", 0, 0, pieces), planned)
    assert progress.max_commit_bytes == commit_bytes
    commits = []
    for piece in planned:
        assert progress.archived(piece, ArchivedPiece(piece.range, (), (), None)) is None
        if found := progress.next_commit(is_last=False):
            commits.append(len(found))
    if found := progress.next_commit(is_last=True):
        commits.append(len(found))
    assert sum(commits) == pieces
    assert len(commits) == -(-pieces * (1 << 27) // commit_bytes) <= 1000
    assert progress.next_commit(is_last=True) == []


def test_a_file_that_is_larger_than_a_commit_has_one(tmp_path: Path, logs: GrowingLogs) -> None:
    place = NotingPlace(tmp_path)
    logs.run(place.open(), replace(SMALL, max_commit_bytes=1))
    assert [len(each.files) for each in place.commits] == [1] * 3 * SEGMENTS
    assert offsets_in(place) == logs.offsets


@dataclass
class StoppingAtCommit(StoppingTable):
    """Ends the process at the n-th commit."""

    after: int = 0
    commits: int = 0

    def step(self, name: str) -> None:
        self.commits += name == "before commit"
        if self.commits > self.after:
            super().step(name)


@pytest.mark.parametrize("stop_at", ["before commit", "after commit"])
def test_a_run_that_ends_at_any_commit_keeps_those_before_it(
    tmp_path: Path, logs: GrowingLogs, stop_at: str
) -> None:
    place, kept = NotingPlace(tmp_path), 0
    for after in (0, 2, 1, 0):
        with pytest.raises(Stopped):
            logs.run(StoppingAtCommit(place.open(), stop_at, after=after), SMALL)
        kept += after + (stop_at == "after commit")
        assert len(place.commits) == kept
        logs.append(1, RECORDS)
    logs.run(place.open(), SMALL)
    assert len(place.commits) > kept
    assert offsets_in(place) == logs.offsets


@pytest.mark.parametrize("seed", range(4))
def test_one_damaged_partition_holds_only_itself(
    tmp_path: Path, logs: GrowingLogs, seed: int
) -> None:
    """It is archived up to the damage, named, and goes on when it is repaired."""
    place, bad = PlainPlace(tmp_path), segment(logs, 1, 3)
    flip(bad)
    with structlog.testing.capture_logs() as told:
        rows = logs.run(place.open(), SMALL, Shuffled(seed))
    assert [each.next_offset for each in rows] == [120, 60, 120]
    assert [each.rows for each in rows] == [120, 60, 120]
    assert [each.problem is None for each in rows] == [True, False, True]
    assert "orders-1" in str(rows[1].problem)
    assert "offset 60 is not valid" in str(rows[1].problem)
    (line,) = [each for each in told if each["event"] == "partition_quarantined"]
    assert line["partition"] == "orders-1"
    assert offsets_in(place) == [each for each in logs.offsets if each[0] != 1 or each[1] < 60]
    assert list((tmp_path / "table").rglob("*.pending")) == []
    logs.append(0, 7)
    rows = logs.run(place.open(), SMALL)
    assert [(each.partition, each.next_offset, each.rows) for each in rows] == [
        (0, 127, 7),
        (1, 60, 0),
    ]
    with pytest.raises(TaskFailed, match=r"orders-1.*offset 60 is not valid"):
        logs.run(place.open(), SMALL)
    flip(bad)
    (row,) = logs.run(place.open(), SMALL)
    assert (row.from_offset, row.next_offset, row.problem) == (60, 120, None)
    assert offsets_in(place) == logs.offsets


def test_nothing_behind_damage_is_read(tmp_path: Path, logs: GrowingLogs) -> None:
    """The other pieces of the partition that had not begun are left out."""
    begun: list[tuple[int, int]] = []

    class Noting(InProcess):
        def stream(self, tasks: Any, work: Any, **options: Any) -> Any:
            def noted(piece: Any) -> Any:
                begun.append(piece.range[1:3])
                return work(piece)

            yield from super().stream(tasks, noted, **options)

    flip(segment(logs, 1, 0))
    logs.run(PlainPlace(tmp_path).open(), SMALL, Noting(SimClock()))
    assert [at for at, _ in begun].count(1) == 1


@pytest.mark.parametrize("damage", ["lost", "link", "ahead", "recreated"])
def test_what_stops_a_partition_or_topic_stops_no_other(
    tmp_path: Path, logs: GrowingLogs, damage: str
) -> None:
    """In the plan: what ended the run before."""
    place, logs.topic_id = PlainPlace(tmp_path), UUID(int=1 << 100)
    users = GrowingLogs(tmp_path / "logs", "users", UUID(int=2 << 100))
    users.append(0, RECORDS)
    logs.append(2, RECORDS)
    logs.run(place.open(), SMALL)
    directory = logs.log_dir / "orders-2"
    users.append(0, 3)
    logs.append(2, RECORDS)
    if damage == "lost":
        checkpoint = logs.log_dir / LOG_START_OFFSET_CHECKPOINT
        checkpoint.write_text("0\n1\norders 2 150\n")
    if damage == "link":
        shutil.move(directory, tmp_path / "elsewhere")
        directory.symlink_to(tmp_path / "elsewhere")
    if damage == "ahead":
        logs.lose(2, 100)
    if damage == "recreated":
        shutil.rmtree(directory)
        anew = GrowingLogs(logs.log_dir, "orders", UUID(int=3 << 100))
        anew.append(2, 500)
        for partition in (0, 1):
            shutil.rmtree(logs.log_dir / f"orders-{partition}")
    rows = logs.run(place.open(), SMALL)
    assert [(each.topic, each.partition, each.problem is None) for each in rows] == [
        ("orders", 2, False),
        ("users", 0, True),
    ]
    assert (rows[1].next_offset, rows[0].from_offset) == (RECORDS + 3, 140)
    with pytest.raises((DataLost, ArchiveAhead, Exception)) as failed:
        logs.run(place.open(), SMALL)
    assert str(failed.value) == rows[0].problem


def test_all_that_failed_is_named(tmp_path: Path, logs: GrowingLogs) -> None:
    for partition in range(3):
        flip(segment(logs, partition, 0))
    with pytest.raises(TaskFailed, match=r"orders-0") as failed:
        logs.run(PlainPlace(tmp_path).open(), SMALL)
    notes = failed.value.__notes__
    assert [each.partition(":")[0] for each in notes] == ["orders-1", "orders-2"]


class ReportingLogs(DirectoryLogs):
    """As logs of a daemon: what is archived is reported."""

    def __init__(self, access: Access) -> None:
        super().__init__(access)
        self.reports: list[dict[int, int]] = []

    def report_archived(self, topic: str, offsets: Mapping[int, int], topic_id: str) -> None:
        self.reports.append(dict(offsets))


def test_holds_follow_each_partition(tmp_path: Path, logs: GrowingLogs) -> None:
    """After each commit, for the partitions in it; at the end for all whose log was checked."""
    logs.topic_id = UUID(int=1 << 100)
    for partition in range(3):
        logs.append(partition, 1)
    place = NotingPlace(tmp_path)
    flip(segment(logs, 1, 3))
    opened, table = ReportingLogs(Access(paths=(str(logs.log_dir),))), place.open()
    with closing(table):
        archive(opened, table, SMALL, InProcess(SimClock()))
    commits = place.commits
    assert len(opened.reports) == len(commits) + 1
    for each, told in zip(commits, opened.reports, strict=False):
        in_it = {file.partition for file in each.files}
        assert told == {at: end for at, end in each.offsets.items() if at in in_it}
    assert opened.reports[-1] == {0: 121, 1: 60, 2: 121}


def test_a_log_that_is_another_one_releases_nothing(tmp_path: Path, logs: GrowingLogs) -> None:
    """An offset that the table has of another log is not reported for this one."""
    logs.topic_id = UUID(int=1 << 100)
    for partition in range(3):
        logs.append(partition, 1)
    place = PlainPlace(tmp_path)
    logs.run(place.open(), SMALL)
    logs.lose(1, 100)
    logs.append(1, 300, b"other %d")
    logs.append(0, 1)
    opened, table = ReportingLogs(Access(paths=(str(logs.log_dir),))), place.open()
    with closing(table):
        rows = archive(opened, table, SMALL, InProcess(SimClock()))
    assert [(each.partition, each.problem is None) for each in rows] == [(0, True), (1, False)]
    assert opened.reports == [{0: 122}, {0: 122, 2: 121}]


@dataclass
class FlakyTable(StoppingTable):
    """A table whose store fails for some calls; counts them."""

    stop_at: str = "never"
    faults: list[Exception] = field(default_factory=list)
    creations: int = 0

    @property
    def store(self) -> FileStore:
        return _FlakyStore(self)

    def abandon(self) -> None:
        self.table.abandon()

    def commit(
        self, files: Sequence[ArchivedFile], position: Position, dead: Sequence[ArchivedFile] = ()
    ) -> None:
        self.table.commit(files, position, dead)


class _FlakyStore:
    def __init__(self, table: FlakyTable) -> None:
        self._table = table

    def create(self, path: str) -> Any:
        self._table.creations += 1
        if self._table.creations % 4 == 0 and self._table.faults:
            raise self._table.faults.pop()
        return self._table.table.store.create(path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table.table.store, name)


def test_a_store_that_is_busy_for_a_moment(tmp_path: Path, logs: GrowingLogs) -> None:
    """One file more is begun, and nothing else is seen of it."""
    place, clock = PlainPlace(tmp_path), SimClock()
    table = FlakyTable(place.open(), faults=[OSError(errno.EBUSY, "SlowDown (503)")])
    rows = logs.run(table, SMALL, InProcess(clock))
    assert table.creations == 3 * SEGMENTS + 1
    assert [each.problem for each in rows] == [None] * 3
    assert offsets_in(place) == logs.offsets


def test_a_table_that_refuses_ends_the_run_at_once(tmp_path: Path, logs: GrowingLogs) -> None:
    """No partition is at fault; what was committed stays, and the next run goes on."""
    place, clock = PlainPlace(tmp_path), SimClock()
    refused = PermissionError(errno.EACCES, "Permission denied", "/lake")
    table = FlakyTable(place.open(), faults=[refused])
    begin = clock.monotonic_ns()
    with pytest.raises(TaskFailed, match="/lake: Permission denied"):
        logs.run(table, replace(SMALL, max_commit_bytes=1), InProcess(clock))
    assert (table.creations, clock.monotonic_ns()) == (4, begin)
    assert len(archived_files(str(tmp_path / "table"))) == 3
    logs.run(place.open(), SMALL)
    assert offsets_in(place) == logs.offsets


def test_a_log_that_cannot_be_read_for_a_moment_or_at_all(
    tmp_path: Path, logs: GrowingLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a task and in the plan: tried again, then the fault of that partition alone."""
    faults = {"orders-0": 1, "orders-2": 1 << 30}

    class Failing(SystemFilesystem):
        def open_read(self, path: str) -> Any:
            for name, left in faults.items():
                if f"/{name}/" in path and left:
                    faults[name] -= 1
                    raise OSError(errno.EIO, "Input/output error", path)
            return super().open_read(path)

    disk = Failing()
    monkeypatch.setattr(directory_reader, "filesystem_for", lambda _: disk)
    place, clock = PlainPlace(tmp_path), SimClock()
    rows = logs.run(place.open(), SMALL, InProcess(clock))
    assert [(each.next_offset, each.problem is None) for each in rows] == [
        (120, True),
        (120, True),
        (0, False),
    ]
    assert "Input/output error" in str(rows[2].problem)
    faults["orders-2"] = 1
    opened = DirectoryLogs(Access(paths=(str(logs.log_dir),)), disk)
    logs.append(1, 1)
    table = place.open()
    with closing(table):
        rows = archive(opened, table, SMALL, InProcess(clock), clock=clock)
    assert [(each.partition, each.problem) for each in rows] == [(1, None), (2, None)]
    assert offsets_in(place) == logs.offsets


@pytest.mark.parametrize(
    "fault",
    [
        SecretMissing("KAFKALOG_TOKEN is not set on this machine"),
        StoreMissing("Paths with s3:// need fsspec"),
        NotAuthenticated("401", status=401),
    ],
    ids=repr,
)
def test_a_machine_without_access_ends_the_run(
    tmp_path: Path, logs: GrowingLogs, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    """No partition is at fault: each one would fail in the same way."""
    calls: list[int] = []

    def fails(*_: Any, **__: Any) -> Any:
        calls.append(1)
        raise fault

    monkeypatch.setattr(archive_files, "read_piece", fails)
    with pytest.raises(TaskFailed, match=re.escape(str(fault))):
        logs.run(PlainPlace(tmp_path).open(), SMALL, InProcess(SimClock()))
    assert len(calls) == 1


def run_command(logs: GrowingLogs, tmp_path: Path, *words: str) -> Any:
    command = ["archive", "run", str(logs.log_dir), "--parquet", str(tmp_path / "table")]
    with kept_logging():
        return CliRunner().invoke(make_cli(), [*command, "--processes", "1", *words])


def test_the_exit_status_says_partial(tmp_path: Path, logs: GrowingLogs) -> None:
    """3 if others were archived, 1 if nothing was, 0 when it is repaired."""
    flip(segment(logs, 1, 3))
    small = ("--target-bytes", "1", "--max-commit-bytes", "2500")
    result = run_command(logs, tmp_path, *small, "--output", "json")
    assert result.exit_code == 3
    told = json.loads(result.stdout)
    assert told["totals"] | {"bytes": 0} == {
        "partitions": 3,
        "rows": 300,
        "files": 15,
        "bytes": 0,
        "dead_letters": 0,
        "quarantined": 1,
    }
    assert [each["problem"] is None for each in told["rows"]] == [True, False, True]
    result = run_command(logs, tmp_path)
    assert result.exit_code == 1
    assert "orders-1" in result.stderr
    assert "Traceback" not in result.stderr
    flip(segment(logs, 1, 3))
    assert run_command(logs, tmp_path).exit_code == 0
    assert offsets_in(PlainPlace(tmp_path)) == logs.offsets
