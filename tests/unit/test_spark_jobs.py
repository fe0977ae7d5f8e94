"""Goal: the parts of jobs that need no process keep their word: packs, rows, progress, overlays.
Method: values in and out, a terminal in memory, a directory whose files must not change.
"""

from __future__ import annotations

import errno
import io
import os
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.env.overlay import overlay
from kafkalog.spark.jobs.on_spark import TASKS_MIN, packs_of
from kafkalog.spark.jobs.progress import ProgressLine
from kafkalog.spark.jobs.rows import columns_of, write_parquet
from tests.sim.sim_clock import SimClock

if TYPE_CHECKING:
    from pathlib import Path


REFUSED = "|".join(
    os.strerror(each) for each in (errno.EBADF, errno.EINVAL, errno.EROFS, errno.EEXIST)
)


@given(st.lists(st.integers(0, 300), max_size=300), st.integers(1, 500))
def test_packs_hold_every_task_once_in_order(sizes: list[int], target_bytes: int) -> None:
    """Goal: nothing is lost by packing, and a pack is as large as it may be and no larger.
    Method: any sizes; neighbouring packs could not be one.
    """
    packs = packs_of(sizes, target_bytes)
    assert [number for pack in packs for number in pack.numbers] == list(range(len(sizes)))
    limit = min(target_bytes, max(sum(sizes) // TASKS_MIN, 1))
    for pack in packs:
        assert pack.size_bytes == sum(sizes[number] for number in pack.numbers)
        assert len(pack.numbers) == 1 or pack.size_bytes <= limit
    for pack, following in pairwise(packs):
        assert pack.size_bytes + sizes[following.numbers[0]] > limit


def test_a_small_fleet_is_spread() -> None:
    """Goal: many slots find work in a fleet of little data.
    Method: a thousand small tasks.
    """
    assert TASKS_MIN <= len(packs_of([1_000] * 1_000)) <= 2 * TASKS_MIN


class Row(NamedTuple):
    """A row of every type."""

    name: str
    number: int | None
    ratio: float
    is_so: bool


def test_rows_become_parquet_or_nothing(tmp_path: Path) -> None:
    """Goal: a file is whole or the old one; types come from the fields, also without rows.
    Method: rows, no rows, a row that does not fit, a directory that is not there.
    """
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
    """Goal: tasks, bytes, rate and the time left; an empty line at the end.
    Method: a clock that moves by hand.
    """
    stream, clock = io.StringIO(), SimClock()
    line = ProgressLine(stream, clock)
    line.begin("audit", 4, 400 << 20)
    clock.advance_ms(2_000)
    line.advance(100 << 20)
    shown = "audit: 1 of 4 tasks, 100 of 400 MiB, 50 MiB/s, 6 s left"
    assert shown.startswith(stream.getvalue().rpartition("\x1b[K")[2])
    line.end()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_an_overlay_shows_a_directory_and_changes_nothing(tmp_path: Path) -> None:
    """Goal: files can be read, made and changed; what stays below refuses every change.
    Method: each operation on a file that is kept, on a copied one and on a new one.
    """
    source = tmp_path / "t-0"
    source.mkdir()
    (source / "0.log").write_bytes(b"large")
    (source / "0.index").write_bytes(b"small")
    (source / "inside").mkdir()
    with overlay(str(source), ".log") as (disk, directory):
        assert directory.endswith("/t-0")
        assert disk.list_dir(directory) == ["0.index", "0.log"]
        log = f"{directory}/0.log"
        assert disk.read_file(log) == b"large"
        assert (disk.stat(log).size, disk.exists(log)) == (5, True)
        opened = disk.open_write(log)
        assert opened.pread(9, 0) == b"large"
        for change in (
            lambda: opened.pwrite(b"x", 0),
            lambda: opened.truncate(0),
            lambda: disk.unlink(log),
            lambda: disk.rename(log, f"{directory}/1.log"),
            lambda: disk.set_mtime_ms(log, 0),
            lambda: disk.open_write(log, exclusive=True),
        ):
            with pytest.raises(OSError, match=REFUSED):
                change()
        disk.open_write(f"{directory}/0.index").pwrite(b"S", 0)
        disk.open_write(f"{directory}/5.log").pwrite(b"new", 0)
        assert disk.list_dir(directory) == ["0.index", "0.log", "5.log"]
        disk.rename(f"{directory}/5.log", f"{directory}/6.log")
        assert disk.read_file(f"{directory}/6.log") == b"new"
    assert not disk.exists(directory)
    assert (source / "0.log").read_bytes() + (source / "0.index").read_bytes() == b"largesmall"
