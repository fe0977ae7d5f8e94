"""Goal: the parts of jobs that need no process keep their word, and the generated day of telemetry
is the same everywhere.
Method: packs, rows, progress and overlays; figures of the day.
"""

from __future__ import annotations

import errno
import io
import json
import os
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import given, strategies as st

from kafkalog.env.overlay_filesystem import overlay, overlay_in
from kafkalog.jobs.fleet import FleetPartition, columns_of, write_parquet
from kafkalog.jobs.on_spark import TASKS_MIN, packs_of
from kafkalog.jobs.pipeline import DAY_START_MS, MINUTES, a_day, reports_in_a_day
from kafkalog.jobs.tasks import ProgressLine
from kafkalog.jobs.whatif import WhatifTask
from kafkalog.log.log_config import LogConfig
from tests.sim.sim_clock import SimClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@given(st.lists(st.integers(0, 300), max_size=300), st.integers(1, 500))
def test_packs_hold_every_task_once_in_order(sizes: list[int], target_bytes: int) -> None:
    packs = packs_of(sizes, target_bytes)
    assert [number for pack in packs for number in pack.numbers] == list(range(len(sizes)))
    limit = min(target_bytes, max(sum(sizes) // TASKS_MIN, 1))
    for pack in packs:
        assert pack.size_bytes == sum(sizes[number] for number in pack.numbers)
        assert len(pack.numbers) == 1 or pack.size_bytes <= limit
    for pack, following in pairwise(packs):
        assert pack.size_bytes + sizes[following.numbers[0]] > limit


def test_a_small_fleet_is_spread() -> None:
    assert TASKS_MIN <= len(packs_of([1_000] * 1_000)) <= 2 * TASKS_MIN


def test_a_forecast_of_retention_is_spread() -> None:
    """Its tasks read almost nothing, but there may be many, and on a store each one waits."""
    partition = FleetPartition(
        topic="t",
        partition=0,
        directory="/a/t-0",
        log_dir="/a",
        is_alone=False,
        size_bytes=1 << 30,
        log_start_offset=0,
        knows_log_start=True,
        high_watermark=None,
        was_cleaned=False,
        is_served=False,
        config=LogConfig(),
    )
    task = WhatifTask(partition, 0, 0, with_compaction=False, map_bytes=0)
    assert TASKS_MIN <= len(packs_of([task.size_bytes] * 1_000)) <= 2 * TASKS_MIN


class Row(NamedTuple):
    name: str
    number: int | None
    ratio: float
    is_so: bool


def test_rows_become_parquet_or_nothing(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    assert list(columns_of(Row).values()) == [str, int, float, bool]
    path = tmp_path / "rows.parquet"
    rows = [Row("a", None, 0.5, True), Row("b", 7, 1.0, False)]
    write_parquet(str(path), Row, rows)
    assert [Row(**each) for each in parquet.read_table(path).to_pylist()] == rows
    with pytest.raises(Exception, match="tried to convert"):
        write_parquet(str(path), Row, [("a", "seven", 0.5, True)])
    assert len(parquet.read_table(path)) == 2
    write_parquet(str(path), Row, [])
    assert parquet.read_schema(path).names == ["name", "number", "ratio", "is_so"]
    with pytest.raises(OSError, match="No such file"):
        write_parquet(str(tmp_path / "nowhere" / "rows"), Row, rows)
    assert [each.name for each in tmp_path.iterdir()] == ["rows.parquet"]


def test_progress_is_a_line_that_goes() -> None:
    stream, clock = io.StringIO(), SimClock()
    line = ProgressLine("audit", 4, 400 << 20, stream, clock)
    clock.advance_ms(2_000)
    line.advance(100 << 20)
    shown = "audit: 1 of 4 tasks, 100 of 400 MiB, 50 MiB/s, 6 s left"
    assert shown.startswith(stream.getvalue().rpartition("\x1b[K")[2])
    line.end()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_an_overlay_of_a_dry_run_refuses_what_would_change_its_source(tmp_path: Path) -> None:
    """A log that would have to be mended is not judged as if it were sound."""
    source = tmp_path / "t-0"
    source.mkdir()
    (source / "0.log").write_bytes(b"large")
    (source / "5.log").symlink_to(source / "0.log")
    with overlay(str(source), ".log") as (disk, directory):
        assert directory.endswith("/t-0")
        assert disk.list_dir(directory) == ["0.log"]
        log, new = f"{directory}/0.log", f"{directory}/0.log.swap"
        disk.open_write(new).pwrite(b"new", 0)
        opened = disk.open_write(log)
        changes: list[Callable[[], None]] = [
            lambda: opened.pwrite(b"x", 0),
            lambda: opened.pwritev([b"x"], 0),
            lambda: opened.truncate(0),
            lambda: disk.set_mtime_ms(log, 0),
            lambda: disk.unlink(log),
            lambda: disk.rename(log, f"{directory}/0.log.deleted"),
            lambda: disk.rename(new, log),
        ]
        for change in changes:
            with pytest.raises(OSError, match=os.strerror(errno.EROFS)):
                change()
        assert disk.read_file(log) == b"large"
    assert not disk.exists(directory)
    assert (source / "0.log").read_bytes() == b"large"


def test_an_overlay_shows_a_directory_and_changes_nothing(tmp_path: Path) -> None:
    source = tmp_path / "t-0"
    source.mkdir()
    kept = [f"{name}.log" for name in ("cut", "timed", "written", "written2")]
    for name in kept:
        (source / name).write_bytes(b"large")
    (source / "0.index").write_bytes(b"small")
    (source / "inside").mkdir()
    directory = str(tmp_path / "out")
    disk = overlay_in(directory, str(source), ".log")
    assert disk.list_dir(directory) == ["0.index", *kept]
    log = f"{directory}/cut.log"
    assert disk.read_file(log) == b"large"
    assert (disk.stat(log).size, disk.exists(log)) == (5, True)
    with pytest.raises(OSError, match=os.strerror(errno.EXDEV)):
        disk.rename(log, f"{os.path.dirname(directory)}/1.log")
    with pytest.raises(FileExistsError):
        disk.open_write(log, exclusive=True)
    assert os.listdir(directory) == ["0.index"]  # nothing was copied yet
    opened = {name: disk.open_write(f"{directory}/{name}") for name in kept}
    assert {file.pread(9, 0) for file in opened.values()} == {b"large"}
    assert os.listdir(directory) == ["0.index"]
    opened["cut.log"].truncate(1)
    opened["written.log"].pwrite(b"L", 0)
    opened["written2.log"].pwritev([b"L", b"A"], 0)
    opened["written.log"].pwrite(b"E", 4)
    disk.set_mtime_ms(f"{directory}/timed.log", 7_000)
    changed = [b"l", b"large", b"LargE", b"LArge"]
    assert [disk.read_file(f"{directory}/{name}") for name in kept] == changed
    assert [opened[name].pread(9, 0) for name in kept] == changed
    assert disk.stat(f"{directory}/timed.log").mtime_ms == 7_000
    disk.open_write(f"{directory}/0.index").pwrite(b"S", 0)
    disk.open_write(f"{directory}/5.log").pwrite(b"new", 0)
    assert sorted(disk.list_dir(directory)) == sorted(["0.index", "5.log", *kept])
    disk.rename(f"{directory}/5.log", f"{directory}/6.log")
    assert disk.read_file(f"{directory}/6.log") == b"new"
    assert [(source / name).read_bytes() for name in (*kept, "0.index")] == [b"large"] * 4 + [
        b"small"
    ]
    assert (source / "timed.log").stat().st_mtime > 7


def test_what_an_overlay_shows_can_be_renamed_and_go(tmp_path: Path) -> None:
    source, elsewhere = tmp_path / "t-0", tmp_path / "large-file"
    source.mkdir()
    for number in range(4):
        (source / f"{number}.log").write_bytes(b"%d" % number)
    elsewhere.write_bytes(b"linked")
    (source / "7.log").symlink_to(elsewhere)
    (source / "gone.log").symlink_to(tmp_path / "nothing")
    directory = str(tmp_path / "out")
    disk = overlay_in(directory, str(source), ".log")
    disk.rename(f"{directory}/0.log", f"{directory}/0.log")
    disk.rename(f"{directory}/0.log", f"{directory}/0.log.deleted")
    disk.open_write(f"{directory}/new").pwrite(b"new", 0)
    disk.rename(f"{directory}/new", f"{directory}/1.log")  # over one below
    disk.unlink(f"{directory}/1.log")
    disk.open_write(f"{directory}/new").pwrite(b"new", 0)
    disk.rename(f"{directory}/2.log", f"{directory}/new")  # one below over one here
    disk.unlink(f"{directory}/3.log")
    names = ["0.log.deleted", "7.log", "new"]
    assert disk.list_dir(directory) == names
    assert [disk.exists(f"{directory}/{each}.log") for each in range(4)] == [False] * 4
    assert disk.read_file(f"{directory}/new") == b"2"
    linked = disk.stat(f"{directory}/7.log")
    assert (linked.name, linked.size, linked.is_file) == ("7.log", 6, True)
    assert disk.is_at(disk.open_read(f"{directory}/7.log"), f"{directory}/7.log")
    assert disk.place_of(f"{directory}/new") == str(source / "2.log")
    assert os.listdir(directory) == ["7.log"]
    disk.fill(".deleted")
    assert sorted(os.listdir(directory)) == names[1:] == disk.list_dir(directory)
    assert not os.path.islink(f"{directory}/7.log")
    assert [(source / f"{number}.log").read_bytes() for number in range(4)] == [
        b"0",
        b"1",
        b"2",
        b"3",
    ]


def test_what_changes_below_an_overlay_is_not_taken_for_what_it_showed(tmp_path: Path) -> None:
    """A result never has parts of two logs: somebody may write to a source without a lock."""
    source = tmp_path / "t-0"
    source.mkdir()
    (source / "0.log").write_bytes(b"large")
    (source / "1.log").write_bytes(b"large")
    directory = str(tmp_path / "out")
    disk = overlay_in(directory, str(source), ".log")
    opened = disk.open_write(f"{directory}/0.log")
    for name in ("0.log", "1.log"):
        (source / name).write_bytes(b"larger")
    with pytest.raises(OSError, match="changed meanwhile"):
        opened.truncate(0)
    with pytest.raises(OSError, match="changed meanwhile"):
        disk.fill(".deleted")


def test_a_day_is_always_the_same() -> None:
    day = list(a_day(11))
    assert day == list(a_day(11))
    assert len(day) == reports_in_a_day(11) == 11 * MINUTES + 2
    assert len({each.key for each in day}) == 11
    times = [each.timestamp_ms for each in day]
    assert times == sorted(times)
    assert (times[0], times[-1]) == (DAY_START_MS, DAY_START_MS + 86_400_000)
    retired = [each.key for each in day if each.value is None]
    assert retired == ["device-00000", "device-00010"]
    values = [json.loads(each.value) for each in day if each.value is not None]
    assert {each["status"] for each in values} == {"ok", "alarm"}
