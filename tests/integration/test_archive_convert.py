"""Goal: an archive of an older version becomes one that every reader reads, whatever stops that.
Method: archives as the older version wrote them; a stop at every call of the disk.
"""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from kafkalog.cli.main import make_cli
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.jobs.archive.archive import ArchiveAhead, ArchiveOptions
from kafkalog.jobs.archive.archive_table import Position, UnusableTable, offsets_text, topics_text
from kafkalog.jobs.archive.convert import convert
from kafkalog.jobs.archive.file_layout import FileLayout
from kafkalog.jobs.archive.parquet_table import LocalStore
from tests.archive_world import GrowingLogs, PlainPlace, Stopped, offsets_in
from tests.fleet_world import kept_logging
from tests.integration.test_spark_archive import marker_at, stopping_disk

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from kafkalog.jobs.archive.archive_table import ArchivedFile, FileStore

SMALL = ArchiveOptions(target_bytes=1, max_commit_bytes=900)


class FormerTable:
    """As the older version wrote: a file for each commit, data files in a directory a topic."""

    layout = FileLayout()
    dead_store: FileStore | None = None

    def __init__(self, root: Path) -> None:
        self.root, self.commits = root, root / "_kafkalog"
        self.commits.mkdir(parents=True, exist_ok=True)
        (self.commits / "lock").touch()
        self.store = LocalStore(str(root / "written"))
        self.position = Position()

    def commit(
        self, files: Sequence[ArchivedFile], position: Position, dead: Sequence[Any] = ()
    ) -> None:
        entries = []
        for each in files:
            name = each.path.rpartition("/")[2].removesuffix(".pending")
            entry = each._replace(path=f"topic-{each.topic}/{name}")._asdict()
            del entry["partition_values"]
            entries.append(entry)
            final = self.root / entry["path"]
            final.parent.mkdir(exist_ok=True)
            shutil.move(each.path, final)
        number = len(list(self.commits.glob("*.json"))) + 1
        document = {
            "format": 1,
            "offsets": offsets_text(position),
            "topics": topics_text(position),
            "files": entries,
        }
        (self.commits / f"{number:020}.json").write_text(json.dumps(document))
        self.position = position

    def widen(self, types: Mapping[str, Any]) -> None:
        raise NotImplementedError

    def complete(self) -> None:
        shutil.rmtree(self.root / "written", ignore_errors=True)

    def abandon(self) -> None:
        """Nothing fails here."""

    def close(self) -> None:
        """There is nothing to close."""


def hide_last_commit(root: Path) -> None:
    """A run that was killed before the renames of its last commit, and left a file without one."""
    commit = max((root / "_kafkalog").glob("*.json"))
    for entry in json.loads(commit.read_text())["files"]:
        path = root / entry["path"]
        path.rename(path.with_name(f".{path.name}.pending"))
    (root / "topic-orders" / ".0-uncommitted.parquet.pending").write_bytes(b"half of a file")


@pytest.fixture
def logs(tmp_path: Path) -> GrowingLogs:
    """Three partitions: one with markers inside, one that ends with them, one without a record."""
    grown = GrowingLogs(tmp_path / "logs", topic_id=UUID(int=1 << 100))
    for _ in range(3):
        grown.append(0, 20)
        grown.append_batch(0, 1, marker_at(grown.ends[0]))
        grown.append(1, 20)
    grown.append_batch(1, 1, marker_at(60))
    grown.append_batch(2, 1, marker_at(0))
    return grown


@pytest.fixture
def former(tmp_path: Path, logs: GrowingLogs) -> Path:
    """An archive of several commits, the last of which is not finished."""
    root = tmp_path / "table"
    logs.run(FormerTable(root), SMALL)
    hide_last_commit(root)
    return root


def records_of(logs: GrowingLogs) -> list[tuple[int, int]]:
    """Without markers."""
    markers = {(0, 20), (0, 41), (0, 62), (1, 60), (2, 0)}
    return [each for each in logs.offsets if each not in markers]


def test_all_records_stay_and_the_next_run_goes_on(
    tmp_path: Path, logs: GrowingLogs, former: Path
) -> None:
    """Files are the same ones; ids and last records are known."""
    place = PlainPlace(tmp_path)
    inodes = {each.stat().st_ino for each in former.glob("topic-*/*") if "uncom" not in each.name}
    with pytest.raises(UnusableTable, match=f"run kafkalog archive convert {former}"):
        place.open()
    rows = convert(str(former), SystemFilesystem())
    assert [each[:3] for each in rows] == [("orders", 0, 3), ("orders", 1, 3), ("orders", 2, 0)]
    assert [each.next_offset for each in rows] == [63, 61, 1]
    assert offsets_in(place) == records_of(logs)
    with_rows = [each for each in former.rglob("*.parquet") if pq.read_metadata(each).num_rows]
    assert {each.stat().st_ino for each in with_rows} == inodes
    assert sorted(each.name for each in former.iterdir()) == ["_kafkalog.lock", "topic=orders"]
    assert convert(str(former), SystemFilesystem()) == []
    table = place.open()
    assert len(table.position.topic_ids) == 1
    assert [each.offset for each in table.position.last_records.values()] == [61, 59]
    assert logs.run(table) == []
    logs.append(1, 5)
    logs.run(place.open())
    assert offsets_in(place) == records_of(logs)
    anew = GrowingLogs(tmp_path / "anew", topic_id=UUID(int=2 << 100))
    anew.append(0, 100)
    with pytest.raises(ArchiveAhead, match="was deleted and recreated"):
        anew.run(place.open())


def test_a_conversion_that_ends_at_any_call_of_the_disk(
    tmp_path: Path, logs: GrowingLogs, former: Path
) -> None:
    """It is run again; readers of the new names see the beginning of each partition."""
    place, original = PlainPlace(tmp_path), tmp_path / "original"
    shutil.copytree(former, original)
    stops = 0
    for call in range(1, 200):
        shutil.rmtree(former)
        shutil.copytree(original, former)
        try:
            convert(str(former), stopping_disk(call))
        except Stopped:
            stops += 1
        else:
            break
        assert set(offsets_in(place)) <= set(records_of(logs))
        if (former / "_kafkalog").exists():
            with pytest.raises(UnusableTable, match="archive convert"):
                place.open()
        if call % 3 == 0:
            with suppress(Stopped):
                convert(str(former), stopping_disk(1 + call % 5))
        convert(str(former), SystemFilesystem())
        assert logs.run(place.open()) == []
        assert offsets_in(place) == records_of(logs)
        assert not list(former.glob("topic-*"))
    assert stops >= 20


def test_what_is_no_whole_archive_is_refused_before_a_change(former: Path) -> None:
    disk, root = SystemFilesystem(), str(former)
    commit = min((former / "_kafkalog").glob("*.json"))
    whole, before = commit.read_text(), sorted(former.rglob("*.parquet*"))
    for damaged, words in (
        (whole[:9], "is damaged"),
        (whole.replace(": 1,", ": 2,", 1), "newer"),
        (json.dumps({**json.loads(whole), "offsets": {"orders": {"zero": 7}}}), "are damaged"),
    ):
        commit.write_text(damaged)
        with pytest.raises(UnusableTable, match=words):
            convert(root, disk)
    commit.rename(former / "away")
    with pytest.raises(UnusableTable, match="lacks a commit"):
        convert(root, disk)
    (former / "away").rename(commit)
    commit.write_text(whole)
    mine = former / "topic-orders" / "mine.parquet"
    mine.touch()
    with pytest.raises(UnusableTable, match=r"mine\.parquet is in no commit: move it away"):
        convert(root, disk)
    mine.unlink()
    lock = disk.lock(f"{root}/_kafkalog/lock")
    with pytest.raises(UnusableTable, match="Another job"):
        convert(root, disk)
    lock.release()
    assert sorted(former.rglob("*.parquet*")) == before
    assert convert(root, disk)


def test_a_file_of_a_commit_that_is_missing(former: Path) -> None:
    min(former.glob("topic-orders/*.parquet")).unlink()
    with pytest.raises(UnusableTable, match="is missing: the archive is damaged, restore it"):
        convert(str(former), SystemFilesystem())


def command(*words: str) -> Any:
    with kept_logging():
        return CliRunner().invoke(make_cli(), ["archive", "convert", *words])


def test_the_command(tmp_path: Path, former: Path) -> None:
    result = command(str(former), "--output", "json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["rows"][0] == {
        "topic": "orders",
        "partition": 0,
        "files": 3,
        "next_offset": 63,
    }
    assert "needs no conversion" in command(str(former)).stdout
    missing = tmp_path / "missing"
    result = command(str(missing))
    assert result.exit_code == 1
    assert f"{missing} is no archive" in result.stderr
    assert not missing.exists()
