"""Goal: maintenance of an Iceberg archive changes files, never rows, whatever else goes on.
Method: many small commits; other commits between the steps of the job; a clock that says the age;
pyiceberg and DuckDB as readers.
"""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.types import LongType, StringType

from kafkalog.cli.main import make_cli
from kafkalog.env.clock import SystemClock
from kafkalog.jobs.archive.archive import ArchiveOptions
from kafkalog.jobs.archive.archive_table import UnusableTable
from kafkalog.jobs.archive.file_layout import SCHEMA
from kafkalog.jobs.archive.iceberg import data_files, maintain as job
from kafkalog.jobs.archive.iceberg.merge_files import SmallFile, merges_of, rows_of
from kafkalog.jobs.archive.iceberg_table import IcebergTable
from kafkalog.jobs.attempts import PartFailed
from kafkalog.jobs.on_spark import SparkRunner
from kafkalog.jobs.tasks import InProcess, TaskFailed
from tests.archive_world import GrowingLogs, IcebergPlace, Stopped, offsets_in, rows_in, some_logs
from tests.spark.duckdb_reader import read_by_duckdb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from kafkalog.jobs.archive.iceberg.maintain import MaintainedStep
    from kafkalog.jobs.tasks import Runner

pytestmark = pytest.mark.spark

DAY_MS = 86_400_000
SMALLEST = ArchiveOptions(target_bytes=1, max_commit_bytes=1)


@pytest.fixture
def logs(tmp_path: Path) -> GrowingLogs:
    """Archived in five commits of a file each: four of partition 0, one of partition 1."""
    grown = some_logs(tmp_path)
    grown.append(0, 40)
    grown.run(IcebergPlace(tmp_path).open(), SMALLEST)
    return grown


def options(days: float = 0, **given: Any) -> job.MaintainOptions:
    """So many days later, with the ages of the command."""
    now_ms = SystemClock().wall_ms() + int(days * DAY_MS)
    ages = {
        "expire_before_ms": now_ms - job.SNAPSHOT_AGE_MS,
        "orphans_before_ms": now_ms - job.ORPHAN_AGE_MS,
        "min_files": 2,
    }
    return job.MaintainOptions(**{**ages, **given})


def opened(place: IcebergPlace) -> IcebergTable:
    return IcebergTable("default", "lake.orders", place.properties, must_exist=True)


def maintained(
    place: IcebergPlace,
    wanted: job.MaintainOptions,
    runner: Runner | None = None,
    *,
    execute: bool = True,
) -> list[MaintainedStep]:
    with closing(opened(place)) as table:
        return job.maintain(table, wanted, runner or InProcess(), execute=execute)


def stored(place: IcebergPlace, kind: str = "*") -> set[str]:
    return {str(each) for each in (place.root / "warehouse").rglob(f"*.{kind}")}


class _Between:
    """A runner that calls something when the tasks are done, before what they made is used."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act

    def stream(self, tasks: Any, work: Any, **given: Any) -> Iterator[Any]:
        ended = list(InProcess().stream(tasks, work, **given))
        self._act()
        yield from ended


def between(act: Callable[[], object]) -> Runner:
    return cast("Runner", _Between(act))


def test_small_files_become_one(tmp_path: Path, logs: GrowingLogs) -> None:
    """Rows and order stay; first it is only shown; old files go with their snapshots."""
    place = IcebergPlace(tmp_path)
    before, files = rows_in(place.read()), stored(place)
    plan = maintained(place, options(), execute=False)
    assert stored(place) == files
    done = maintained(place, options())
    assert [each.step for each in done] == ["merge", "expire", "orphans"]
    assert (done[0].files_before, done[0].files_after) == (5, 2)
    assert (plan[0].files_before, plan[0].files_after) == (5, 2)
    assert (plan[0].bytes_after, plan[0].snapshots_after) == (None, done[0].snapshots_after)
    assert files < stored(place)
    assert rows_in(place.read()) == before
    for path in stored(place, "parquet") - files:
        offsets = pq.read_table(path)["offset"].to_pylist()
        assert offsets == sorted(offsets)
        assert pq.read_metadata(path).num_row_groups == 1
    assert logs.run(place.open()) == []  # the position is still there
    assert maintained(place, options())[0][1:3] == (2, 2)

    later = maintained(place, options(days=6))
    assert later[1].snapshots_after == 1
    assert len(stored(place, "parquet")) == 2
    assert rows_in(place.read()) == before
    logs.append(0, 3)
    logs.run(place.open())
    assert offsets_in(place) == logs.offsets


def test_on_spark(tmp_path: Path, logs: GrowingLogs, spark: SparkSession) -> None:
    """As in one process; DuckDB reads the result."""
    place = IcebergPlace(tmp_path)
    assert maintained(place, options(), SparkRunner(spark))[0][1:3] == (5, 2)
    with closing(opened(place)) as table, table.loaded() as loaded:
        assert loaded.current_snapshot().summary.operation.value == "replace"
    assert read_by_duckdb(place) == logs.offsets


def test_an_archive_commits_meanwhile(tmp_path: Path, logs: GrowingLogs) -> None:
    """No conflict for either: the merge is made on top, and its position is the newest."""
    place = IcebergPlace(tmp_path)

    def archive() -> None:
        logs.append(0, 9)
        logs.append(1, 9)
        logs.run(place.open(), SMALLEST)

    assert maintained(place, options(), between(archive))[0][1:3] == (5, 4)
    assert offsets_in(place) == logs.offsets
    assert logs.run(place.open()) == []


def test_a_commit_is_lost_to_an_archive(
    tmp_path: Path, logs: GrowingLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive's commit comes after the merge has loaded the table: it loads it again."""
    place = IcebergPlace(tmp_path)
    raced: list[bool] = []

    def late(*given: Any, **named: Any) -> None:
        if not raced:
            raced.append(True)
            logs.append(0, 9)
            logs.run(place.open())
        data_files.replace_files(*given, **named)

    monkeypatch.setattr(job, "replace_files", late)
    assert maintained(place, options())[0][1:3] == (5, 3)
    assert offsets_in(place) == logs.offsets
    assert logs.run(place.open()) == []


def test_two_at_once(tmp_path: Path, logs: GrowingLogs) -> None:
    """The later one leaves the files to the faster one, and removes what it wrote."""
    place = IcebergPlace(tmp_path)
    before = rows_in(place.read())
    late = maintained(place, options(), between(lambda: maintained(place, options())))
    assert late[0].problem is not None
    assert "Another job" in late[0].problem
    assert rows_in(place.read()) == before
    maintained(place, options(days=6))
    assert len(stored(place, "parquet")) == 2


def test_a_commit_of_unknown_outcome_keeps_its_files(tmp_path: Path, logs: GrowingLogs) -> None:
    """It may have been made."""
    place = IcebergPlace(tmp_path)
    with closing(opened(place)) as table:
        commit_table = table._catalog.commit_table

        def done_without_a_word(*told: Any) -> Any:
            commit_table(*told)
            raise CommitStateUnknownException("It may have happened")

        table._catalog.commit_table = done_without_a_word
        with pytest.raises(UnusableTable, match="It may have happened"):
            job.maintain(table, options(), InProcess(), execute=True)
    assert offsets_in(place) == logs.offsets
    assert maintained(place, options())[0][1:3] == (2, 2)


@pytest.mark.parametrize("stop_at", ["merge_files", "replace_files", "_expire", "_orphans"])
def test_a_run_that_ends_at_a_step(
    tmp_path: Path, logs: GrowingLogs, monkeypatch: pytest.MonkeyPatch, stop_at: str
) -> None:
    """A killed run leaves files at most; the next run does the rest."""
    place = IcebergPlace(tmp_path)

    def stop(*_: Any, **__: Any) -> None:
        raise Stopped(stop_at)

    with monkeypatch.context() as patched:
        patched.setattr(job, stop_at, stop)
        patched.setattr(job._Job, "_remove", lambda *_: None)  # a dead process removes nothing
        with pytest.raises(Stopped):
            maintained(place, options(days=6))
    assert offsets_in(place) == logs.offsets
    maintained(place, options(days=6))
    assert offsets_in(place) == logs.offsets
    assert len(stored(place, "parquet")) == 2
    assert logs.run(place.open()) == []


def test_orphans_and_files_of_a_running_archive(tmp_path: Path, logs: GrowingLogs) -> None:
    """Files of a run before its commit stay within the grace period; what was left goes."""
    place = IcebergPlace(tmp_path)
    with closing(opened(place)) as table:
        left = f"{table.store.location}/data/topic-orders/0-left.parquet"
        with table.store.create(left) as file:
            file.write(b"left")
    week_ago = SystemClock().wall_ms() / 1000 - 7 * 86_400
    os.utime(left.removeprefix("file://"), (week_ago, week_ago))
    logs.append(0, 9)
    seen: list[MaintainedStep] = []
    logs.run(place.open(), runner=between(lambda: seen.extend(maintained(place, options()))))
    assert seen[2].files_before == seen[2].files_after + 1
    assert offsets_in(place) == logs.offsets
    assert maintained(place, options(days=4))[2].problem is None
    assert offsets_in(place) == logs.offsets


def test_a_table_with_two_paths(tmp_path: Path, logs: GrowingLogs) -> None:
    """A location that is named in two ways would make all files orphans."""
    place = IcebergPlace(tmp_path)
    link = tmp_path / "linked"
    link.symlink_to(tmp_path / "warehouse")
    with closing(opened(place)) as table:
        table.store = replace(table.store, location=f"file://{link}/lake/orders")
        with pytest.raises(UnusableTable, match="has two names"):
            job.maintain(table, options(days=9, min_files=99), InProcess(), execute=True)
    assert offsets_in(place) == logs.offsets


def test_snapshots_that_stay(tmp_path: Path, logs: GrowingLogs) -> None:
    """The newest ones, what a tag names, and the one with the position, under a stranger's."""
    place = IcebergPlace(tmp_path)
    with closing(opened(place)) as table, table.loaded() as loaded:
        tagged = loaded.snapshots()[1].snapshot_id
        holder = loaded.current_snapshot().snapshot_id
        loaded.manage_snapshots().create_tag(tagged, "audit").commit()
        with loaded.transaction() as transaction, transaction.update_snapshot().fast_append():
            pass
        newest = loaded.current_snapshot().snapshot_id
    far = options(days=99, min_files=99)
    assert maintained(place, far, execute=False)[1][5:7] == (6, 3)
    maintained(place, far)
    with closing(opened(place)) as table, table.loaded() as loaded:
        assert {each.snapshot_id for each in loaded.snapshots()} == {tagged, holder, newest}
        assert loaded.scan(snapshot_id=tagged).count() > 0
    assert logs.run(place.open()) == []


def test_columns_that_were_added_widened_or_dropped(tmp_path: Path, logs: GrowingLogs) -> None:
    """A merged file has the table's columns; a file with more of them is left alone."""
    place = IcebergPlace(tmp_path)
    with (
        closing(opened(place)) as table,
        table.loaded() as loaded,
        loaded.update_schema() as update,
    ):
        update.add_column("note", StringType())
        update.update_column("partition", LongType())
    assert maintained(place, options())[0][1:3] == (5, 2)
    with closing(opened(place)) as table, table.loaded() as loaded:
        found = loaded.scan().to_arrow()
        (path, *_) = (each.file.file_path for each in loaded.scan().plan_files())
        assert found["note"].null_count == found.num_rows == len(logs.offsets)
        lacking = SCHEMA.remove(SCHEMA.get_field_index("headers"))
        with pytest.raises(PartFailed, match="columns that the table lacks: headers"):
            list(rows_of(path, table.store, lacking))
    logs.append(0, 9)
    logs.run(place.open())
    maintained(place, options())
    with closing(opened(place)) as table, table.loaded() as loaded:
        found = loaded.scan().select("partition", "offset").to_arrow().to_pylist()
    assert sorted((each["partition"], each["offset"]) for each in found) == logs.offsets


def test_a_wrong_table(tmp_path: Path) -> None:
    """A missing one is not made; one whose files may be another's is not touched."""
    place = IcebergPlace(tmp_path)
    with pytest.raises(UnusableTable, match="does not exist"):
        opened(place)
    place.open().close()
    assert [each[1:3] for each in maintained(place, options())][:2] == [(0, 0), (0, 0)]
    with (
        closing(opened(place)) as table,
        table.loaded() as loaded,
        loaded.transaction() as transaction,
    ):
        transaction.set_properties({"gc.enabled": "false"})
    with pytest.raises(UnusableTable, match=r"gc\.enabled=false"):
        maintained(place, options())


def test_the_command(tmp_path: Path, logs: GrowingLogs) -> None:
    """Shown first, done with --execute; another job's file is refused in words."""
    place = IcebergPlace(tmp_path)
    named = [f"--catalog-property={key}={value}" for key, value in place.properties.items()]
    command = ["archive", "maintain", "--iceberg", "lake.orders", *named, "--processes", "1"]
    shown = CliRunner().invoke(make_cli(), [*command, "--min-files", "2", "--output", "json"])
    assert shown.exit_code == 0, shown.output
    assert '"dry_run": true' in shown.stdout
    assert "Nothing was changed" in shown.stderr
    done = CliRunner().invoke(make_cli(), [*command, "--min-files=2", "--yes"])
    assert done.exit_code == 0, done.output
    assert "FILES BEFORE" in done.stdout
    refused = CliRunner().invoke(make_cli(), [*command, "--orphans-older-than", "1m"])
    assert refused.exit_code == 2
    assert offsets_in(place) == logs.offsets


def small(first: int, size_bytes: int, partition: int = 0) -> SmallFile:
    return SmallFile(f"{first}", ("t",), "t", partition, first, first + 9, 10, size_bytes)


def test_what_is_merged() -> None:
    """Neighbours only, up to the target; few files wait for more; large ones stay."""

    def merged(*files: SmallFile) -> list[list[str]]:
        return [[each.path for each in merge.files] for merge in merges_of(files, 100, 3)]

    assert merged(small(0, 10), small(10, 10)) == []
    assert merged(small(10, 40), small(0, 40)) == [["0", "10"]]
    assert merged(small(0, 10), small(10, 10), small(20, 10)) == [["0", "10", "20"]]
    assert merged(small(0, 40), small(10, 90), small(20, 40)) == []
    assert merged(small(0, 40), small(10, 40, 1), small(20, 40)) == [["0", "20"]]
    assert merged(small(0, 40), small(5, 40)) == []  # another writer's: they overlap
    assert merged(*(small(each, 40) for each in range(0, 50, 10))) == [["0", "10"], ["20", "30"]]


def test_a_task_that_fails_leaves_nothing(tmp_path: Path, logs: GrowingLogs) -> None:
    """Its own file and those of the tasks before it are removed."""
    place = IcebergPlace(tmp_path)
    files = stored(place, "parquet")
    victim = sorted(each for each in files if "/0-" in each)[-1]
    data = Path(victim).read_bytes()
    Path(victim).write_bytes(data[:40] + bytes(60) + data[100:])
    with pytest.raises(TaskFailed):
        maintained(place, options())
    assert stored(place, "parquet") == files
