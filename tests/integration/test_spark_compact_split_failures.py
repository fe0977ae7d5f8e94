"""Goal: a split compaction that ends early, wherever it does, leaves the source as it was, and the
next one makes what the first would have made.
Method: tasks that fail and die in every phase, drivers that are killed, damage, late tasks.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.errors import CorruptIndex
from kafkalog.log.log_config import LogConfig
from kafkalog.spark.jobs import compact_split
from kafkalog.spark.jobs.compact import compact_directories
from kafkalog.spark.jobs.fleet import UnusableDirectory, find_partitions
from kafkalog.spark.jobs.tasks import InProcess, ProcessPool, TaskFailed
from tests.fleet_world import contents, flip_record, kept_logging, keyed_segments, plant_partition
from tests.split_runners import (
    PHASES,
    DisturbedRunner,
    LateRunner,
    die_on,
    fail_on,
)
from tests.split_world import (
    NOW_MS,
    SEGMENT_BYTES,
    small_groups,
    split,
    split_in_processes,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.spark.jobs.tasks import Runner

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 60


@pytest.fixture(autouse=True)
def _log_lines_go_where_they_went() -> Iterator[None]:
    with kept_logging():
        yield


@pytest.mark.slow
@pytest.mark.parametrize(
    "phase",
    [pytest.param(each, marks=() if each == "rewrite" else pytest.mark.slow) for each in PHASES],
)
def test_a_killed_process_leaves_nothing_behind(tmp_path: Path, phase: str) -> None:
    """Goal: whole or not at all, in every phase; the error names the partition, and the next run
    makes what the first one would have made.
    Method: kill -9 of a process beside one that works.
    """
    ends_early(tmp_path, DisturbedRunner(phase, die_on), "ended with -9")


@pytest.mark.parametrize("phase", PHASES)
def test_damage_that_a_task_meets_leaves_nothing_behind(tmp_path: Path, phase: str) -> None:
    """Goal: as for a process that is killed. Method: a task that finds a wrong CRC."""
    ends_early(tmp_path, DisturbedRunner(phase, fail_on, processes=1), "A batch fails")


def ends_early(tmp_path: Path, runner: Runner, said: str) -> None:
    """A job that fails, and one that does not."""
    source = tmp_path / "a"
    plant_partition(source / "t-0", keyed_segments(6, 5))
    before = contents(tmp_path)
    out = str(tmp_path / "out")
    with pytest.raises(TaskFailed, match=said) as caught:
        split_in_processes(str(source), out, runner)
    assert "t-0" in caught.value.message
    assert contents(tmp_path) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]
    split(str(source), out, InProcess(), segment_bytes=SEGMENT_BYTES)
    assert contents(tmp_path / "out" / "t-0") == small_groups(source, tmp_path / "check")


@pytest.mark.slow
@pytest.mark.parametrize("phase", PHASES)
def test_a_killed_driver_leaves_the_source_as_it_was(tmp_path: Path, phase: str) -> None:
    """Goal: kill -9 in any phase costs the work alone. The next run names what lies there, also
    while processes of the killed one still work, and makes the same bytes once it is removed.
    Method: a driver whose process is held at the end of a task; it goes on when the driver is dead.
    """
    source, out, gate = tmp_path / "a", tmp_path / "out", tmp_path / "gate"
    plant_partition(source / "t-0", keyed_segments(6, 5))
    before = contents(source)
    os.mkfifo(gate)
    words = [sys.executable, "-m", "tests.held_split", *map(str, (source, out, phase, gate))]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline().startswith("held ")
        driver.kill()
        driver.wait(DEADLINE_S)
        with pytest.raises(UnusableDirectory, match="remove it when none is"):
            split(str(source), str(out), InProcess(), segment_bytes=SEGMENT_BYTES)
        with gate.open("wb"):
            pass
        assert not driver.communicate(timeout=DEADLINE_S)[0]  # its processes have ended
    assert contents(source) == before
    assert not out.exists()
    SystemFilesystem().remove_tree(f"{out}.unfinished")
    split(str(source), str(out), ProcessPool(2), segment_bytes=SEGMENT_BYTES)
    assert contents(out / "t-0") == small_groups(source, tmp_path / "check")
    assert contents(source) == before


def test_what_cannot_be_removed_takes_nothing_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a late second try that still makes files costs no finished job; what is left is named.
    Method: directories that are never empty.
    """
    source = tmp_path / "a"
    plant_partition(source / "t-0", keyed_segments(6, 5))

    def refuse(_: SystemFilesystem, path: str) -> None:
        if "attempt-" not in path:
            raise OSError(errno.ENOTEMPTY, "Directory not empty", path)

    monkeypatch.setattr(SystemFilesystem, "remove_tree", refuse)
    with capture_logs() as lines:
        split(str(source), str(tmp_path / "out"), InProcess(), segment_bytes=SEGMENT_BYTES)
    assert contents(tmp_path / "out" / "t-0") == small_groups(source, tmp_path / "check")
    (line,) = (each for each in lines if each["log_level"] == "warning")
    assert line["event"] == "compact_left_files"
    assert line["path"] == f"{tmp_path}/out.unfinished"


def test_late_tasks_of_a_former_run_change_nothing(tmp_path: Path) -> None:
    """Goal: what a killed driver left running on other machines gets nothing into the next run's
    place: with other segments that would be the records of another group.
    Method: all tasks of a run with large segments once more, in each phase of one with small ones;
    a partition that is split, and one that is not.
    """
    source = tmp_path / "a"
    plant_partition(source / "t-0", keyed_segments(6, 5))
    plant_partition(source / "t-1", keyed_segments(1, 1))
    former = LateRunner()
    out = str(tmp_path / "out")
    for runner, segment_bytes in ((former, 2_000), (LateRunner(former), SEGMENT_BYTES)):
        config = LogConfig(internal_segment_bytes=segment_bytes)
        partitions = find_partitions(
            [str(source)], SystemFilesystem(), config_of=lambda *_, config=config: config
        )
        compact_directories(partitions, out, runner, now_ms=NOW_MS, split_bytes=1_000)
        assert len(runner.phases) == 1 + len(PHASES)
        made = contents(tmp_path / "out" / "t-0")
        SystemFilesystem().remove_tree(out)
    assert made == small_groups(source, tmp_path / "check")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "check"]


def test_a_damaged_source_leaves_nothing_behind(tmp_path: Path) -> None:
    """Goal: damage ends the job, and the error names the file.
    Method: a flipped bit in the first of several segments.
    """
    source = tmp_path / "a"
    directory = plant_partition(source / "t-0", keyed_segments(3, 4))
    flip_record(directory)
    before = contents(tmp_path)
    with pytest.raises(
        TaskFailed, match=r"t-0, keys from offset 0 on: .*00000000000000000000\.log"
    ):
        split(str(source), str(tmp_path / "out"), InProcess())
    assert contents(tmp_path) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]


def test_a_plan_that_fails_leaves_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a program that runs the job in its own process does not run out of descriptors.
    Method: an index that proves damaged while the round is planned; the files that are open.
    """
    source = tmp_path / "a"
    plant_partition(source / "t-0", keyed_segments(6, 5))

    def refuse(*_: object) -> None:
        raise CorruptIndex("An entry is out of order", file="a.index", position=8)

    monkeypatch.setattr(compact_split, "plan_split", refuse)
    with pytest.raises(CorruptIndex):
        split(str(source), str(tmp_path / "out"), InProcess(), segment_bytes=SEGMENT_BYTES)
    fds = (path for path in Path("/proc/self/fd").iterdir() if path.is_symlink())
    assert not [each for each in fds if "out.unfinished" in os.readlink(each)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]
