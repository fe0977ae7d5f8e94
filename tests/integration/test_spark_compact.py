"""Goal: the job compact makes what the daemon's cleaner makes, whole or not at all.
Method: directories with every kind of batch on the machine's disk; offline compact beside it,
damage, held locks, targets that cannot be, and tasks that run twice.
"""

from __future__ import annotations

import json
import os
import random
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from kafkalog.cleaner.offline import CompactOptions
from kafkalog.cli.main import make_cli
from kafkalog.env.overlay_filesystem import overlay_in
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.format.disk.checkpoints import decode_offsets
from kafkalog.format.disk.file_names import HIGH_WATERMARK_CHECKPOINT
from kafkalog.format.topic_names import TopicPartition
from kafkalog.jobs.compact import (
    compact_directories,
    compact_partition,
    made_in,
    make_attempt,
    make_run,
)
from kafkalog.jobs.fleet import UnusableDirectory, find_partitions
from kafkalog.jobs.tasks import InProcess
from tests.fleet_world import (
    contents,
    copy_of,
    flip_record,
    gone,
    kept_logging,
    keyed_segments,
    plant_mixed,
    plant_partition,
)
from tests.naive.cleaning_logs import TIME, MadeSegment, make_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from click.testing import Result

NOW_MS = TIME + 1_000_000


@pytest.fixture(autouse=True)
def _log_lines_go_where_they_went() -> Iterator[None]:
    with kept_logging():
        yield


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(make_cli(), [str(word) for word in words])


def compacted(*words: str | Path) -> Any:
    result = run("spark", "compact", *words, "--output", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def offline(source: Path, target: Path, *words: str) -> dict[str, bytes]:
    """What offline compact leaves, but for the files that its log no longer has."""
    result = run("offline", "compact", source, target, "--roll", "--now", str(NOW_MS), *words)
    assert result.exit_code == 0, result.output
    return {name: data for name, data in contents(target).items() if not name.endswith(".deleted")}


def last_of_each_key(directory: Path) -> dict[str, int]:
    """Offsets by key of what is stored; each key once."""
    result = run("offline", "scan", directory)
    found = [json.loads(line) for line in result.stdout.splitlines()]
    last = {each["key"]: each["offset"] for each in found}
    assert len(last) == len(found)
    return last


def test_files_are_those_of_offline_compact(tmp_path: Path) -> None:
    """Byte for byte what one round of the cleaner makes."""
    first = plant_mixed(tmp_path / "a", "orders", 6)
    second = tmp_path / "b"
    for seed in (6, 7):
        plant_partition(second / f"orders-{seed}", make_log(random.Random(seed)).segments)
    before = contents(tmp_path)
    out = tmp_path / "out"
    answer = compacted(
        *("--dirs", f"{first},{second}", "--out", out, "--now", str(NOW_MS), "--processes", "2")
    )
    made = {name: data for name, data in contents(tmp_path).items() if name.startswith("out/")}
    assert contents(tmp_path) == before | made
    assert [row["partition"] for row in answer["rows"]] == list(range(8))
    assert [row["rounds"] for row in answer["rows"]].count(1) >= 6
    assert max(row["rounds"] for row in answer["rows"]) == 1
    assert answer["totals"]["bytes_after"] < answer["totals"]["bytes_before"]
    for seed in range(8):
        source = (first if seed < 6 else second) / f"orders-{seed}"
        expected = offline(source, tmp_path / "check" / f"orders-{seed}", "--map-bytes", "1000000")
        assert contents(out / f"orders-{seed}") == expected


def test_a_map_that_is_too_small_takes_more_rounds(tmp_path: Path) -> None:
    """Latest per key also where the map holds a part of the keys."""
    source = plant_partition(tmp_path / "a" / "t-0", keyed_segments(4, 5))
    out = tmp_path / "out"
    answer = compacted(
        *("--dirs", source.parent, "--out", out, "--now", str(NOW_MS), "--map-bytes", "120")
    )
    (row,) = answer["rows"]
    assert row["rounds"] > 1
    step, first_dirty, source_of_step = 0, 0, source
    while True:
        target = tmp_path / "check" / str(step) / "t-0"
        words = ("offline", "compact", source_of_step, target, "--map-bytes", "120")
        result = run(
            *words,
            *("--now", str(NOW_MS), "--first-dirty", str(first_dirty)),
            *(("--roll",) if step == 0 else ()),
        )
        done = json.loads(result.stdout)
        for path in target.glob("*.deleted"):
            path.unlink()
        step, first_dirty, source_of_step = step + 1, done["endOffset"], target
        if first_dirty >= done["firstUncleanableOffset"]:
            break
    assert step == row["rounds"]
    assert contents(out / "t-0") == contents(target)
    assert row["records_removed"] == 60 - len(last_of_each_key(out / "t-0"))


def test_the_checkpoints_say_where_the_logs_begin_and_how_far_they_are_clean(
    tmp_path: Path,
) -> None:
    """Who serves the result serves no record that was deleted, and cleans nothing twice."""
    source = plant_partition(tmp_path / "a" / "t-0", keyed_segments(3, 4)).parent
    (source / "log-start-offset-checkpoint").write_bytes(b"0\n1\nt 0 5\n")
    compacted("--dirs", source, "--out", tmp_path / "out", "--now", str(NOW_MS))
    key = TopicPartition("t", 0)
    starts = decode_offsets((tmp_path / "out" / "log-start-offset-checkpoint").read_bytes())
    cleaned = decode_offsets((tmp_path / "out" / "cleaner-offset-checkpoint").read_bytes())
    assert (starts, cleaned) == ({key: 5}, {key: 36})


def test_a_damaged_source_leaves_nothing_behind(tmp_path: Path) -> None:
    source = tmp_path / "a"
    for partition in range(3):
        plant_partition(source / f"t-{partition}", keyed_segments(3, 4))
    log = flip_record(source / "t-1")
    before = contents(tmp_path)
    result = run("spark", "compact", "--dirs", source, "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert "t-1: " in result.output
    assert f"({log} at 0)" in " ".join(result.output.split())
    assert contents(tmp_path) == before
    assert not (tmp_path / "out.unfinished").exists()


def test_targets_that_cannot_be(tmp_path: Path) -> None:
    source = plant_partition(tmp_path / "a" / "t-0", keyed_segments(1, 1)).parent
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "meta.properties").write_text("version=1\n")
    (tmp_path / "left.unfinished").mkdir()
    before = contents(tmp_path)
    cases = {
        "a/out": "would be in the log directory",
        "a/t-0/out": "would be in the log directory",
        "other/out": "would be in the log directory",
        "other": "exists: give",
        "nowhere/out": "does not exist: make it first",
        "left": "if none is, remove it",
    }
    for out, said in cases.items():
        result = run("spark", "compact", "--dirs", source, "--out", tmp_path / out)
        assert result.exit_code == 1
        assert said in result.output
    assert contents(tmp_path) == before


def test_sources_that_cannot_be(tmp_path: Path) -> None:
    source = plant_partition(tmp_path / "a" / "t-0", keyed_segments(1, 1)).parent
    copy_of(source / "t-0", tmp_path / "b" / "t-0")
    copy_of(source / "t-0", tmp_path / "c" / "segments")
    (tmp_path / "empty").mkdir()
    cases = {
        "nowhere": "does not exist",
        "empty": "is not a log directory",
        "c/segments": "is not named TOPIC-PARTITION",
        "a/t-0/00000000000000000000.log": "is not a directory",
    }
    for name, said in cases.items():
        result = run("spark", "compact", "--dirs", tmp_path / name, "--out", tmp_path / "out")
        assert result.exit_code == 1
        assert said in result.output
    result = run("spark", "compact", "--dirs", "s3://", "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert "s3:// names no directory: write it as s3://bucket/logs" in result.output
    dirs = f"{source},{tmp_path / 'b'}"
    result = run("spark", "compact", "--dirs", dirs, "--out", tmp_path / "out")
    assert "only one of them can become" in result.output
    result = run(
        *("spark", "compact", "--dirs", source, "--out", tmp_path / "out", "--topic", "none")
    )
    assert "holds a partition of none" in result.output
    (source / ".lock").touch()
    held = SystemFilesystem().lock(str(source / ".lock"))
    result = run("spark", "compact", "--dirs", source, "--out", tmp_path / "out")
    assert "is served by a daemon or a broker" in result.output
    held.release()
    assert run("spark", "compact", "--dirs", source, "--out", tmp_path / "out").exit_code == 0


def test_a_task_that_runs_twice_is_no_error(tmp_path: Path) -> None:
    """Spark may try a task again, or twice at once."""
    source = plant_partition(tmp_path / "a" / "t-0", keyed_segments(2, 4)).parent
    staging = tmp_path / "staging"
    run = make_run(str(staging), SystemFilesystem())
    (partition,) = find_partitions([str(source)], SystemFilesystem())
    options = CompactOptions(now_ms=NOW_MS, roll=True, map_bytes=10_000)
    first, second = (compact_partition(partition, run, options) for _ in range(2))
    assert first == second
    assert os.listdir(run) == ["made"]
    assert os.listdir(made_in(run)) == ["t-0"]
    for path in sorted(staging.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    staging.rmdir()
    with pytest.raises(UnusableDirectory, match="abandoned"):
        compact_partition(partition, run, options)
    assert not staging.exists()


def test_a_task_makes_no_directory_of_a_run_anew(tmp_path: Path) -> None:
    """What a late task leaves would stop the next run, which takes it for a killed one's."""
    run = make_run(str(tmp_path / "staging"), SystemFilesystem())
    SystemFilesystem().remove_tree(run)
    with pytest.raises(UnusableDirectory, match="abandoned"):
        make_attempt(run, SystemFilesystem())
    assert not (tmp_path / "staging" / "made").exists()
    assert os.listdir(tmp_path / "staging") == []
    made = make_attempt(make_run(str(tmp_path / "staging"), SystemFilesystem()), SystemFilesystem())
    SystemFilesystem().remove_tree(str(tmp_path / "staging"))
    source = plant_partition(tmp_path / "a" / "t-0", keyed_segments(2, 4))
    with pytest.raises(FileNotFoundError):
        overlay_in(f"{made}/t-0", str(source), ".log")
    assert not (tmp_path / "staging").exists()


def test_a_torn_end_is_cut_in_the_result_alone(tmp_path: Path) -> None:
    source = tmp_path / "a"
    for number in range(2):
        plant_partition(source / f"t-{number}", keyed_segments(3, 4))
    last = source / "t-1" / "00000000000000000024.log"
    last.write_bytes(last.read_bytes() + last.read_bytes()[:50])
    last.with_suffix(".index").unlink()
    before = contents(source)
    partitions = find_partitions([str(source)], SystemFilesystem())
    out = tmp_path / "out"
    compact_directories(partitions, str(out), InProcess(), now_ms=NOW_MS)
    assert contents(out / "t-1") == contents(out / "t-0")
    assert contents(source) == before


def linked_to_nothing(directory: Path) -> None:
    gone(f"{0:020}.log")(directory)
    (directory / f"{0:020}.log").symlink_to(directory / "nowhere")


def ends_below_the_high_watermark(directory: Path) -> None:
    (directory.parent / HIGH_WATERMARK_CHECKPOINT).write_text("0\n1\nt 0 36\n")
    log = directory / f"{24:020}.log"
    log.write_bytes(log.read_bytes()[:-7])


@pytest.mark.parametrize(
    ("damage", "offsets", "base"),
    [
        (gone(f"{0:020}.log"), "0 to 11", 0),
        (gone(f"{12:020}.log"), "12 to 23", 12),
        (gone("*.log"), "0 to the log's end", 0),
        (linked_to_nothing, "0 to 11", 0),
        (ends_below_the_high_watermark, "33 to 35", 24),
    ],
)
def test_offsets_that_are_missing_end_the_job(
    tmp_path: Path, damage: Callable[[Path], None], offsets: str, base: int
) -> None:
    """A hole does not come out as if compaction had made it; the error names the file."""
    directory = plant_partition(tmp_path / "a" / "t-0", keyed_segments(3, 4))
    damage(directory)
    before = contents(tmp_path)
    words = ("--dirs", tmp_path / "a", "--out", tmp_path / "out")
    result = run("spark", "compact", *words)
    told = " ".join(result.output.split())
    assert result.exit_code == 1
    assert f"Offsets from {offsets} are missing ({directory}/{base:020}.log at 0)" in told
    assert contents(tmp_path) == before
    assert not (tmp_path / "out").exists()


def test_a_second_try_tells_the_bytes_of_the_first(tmp_path: Path) -> None:
    """Where two machines make files of other sizes, as with other compression libraries, the row is
    of what lies there.
    """
    source = plant_partition(tmp_path / "a" / "t-0", keyed_segments(2, 4)).parent
    run = make_run(str(tmp_path / "staging"), SystemFilesystem())
    (partition,) = find_partitions([str(source)], SystemFilesystem())
    options = CompactOptions(now_ms=NOW_MS, roll=True, map_bytes=10_000)
    row = compact_partition(partition, run, options)
    logs = sorted((tmp_path / "staging").rglob("*.log"))
    assert row.bytes_after == sum(each.stat().st_size for each in logs)
    with logs[0].open("ab") as log:
        log.write(b"12345")
    again = compact_partition(partition, run, options)
    assert again == row._replace(bytes_after=row.bytes_after + 5)


@pytest.mark.parametrize("segments", [[], [MadeSegment(0, TIME), MadeSegment(5, TIME)]])
def test_empty_segments_are_nothing_to_clean(tmp_path: Path, segments: list[MadeSegment]) -> None:
    """Neither a partition without any nor a dirty range without a byte."""
    source = plant_partition(tmp_path / "a" / "t-0", segments).parent
    answer = compacted("--dirs", source, "--out", tmp_path / "out", "--now", str(NOW_MS))
    assert answer["rows"][0]["rounds"] == 0
    assert contents(tmp_path / "out" / "t-0") == offline(source / "t-0", tmp_path / "check" / "t-0")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--dirs", "", "--out", "out"), "Missing argument 'DIR...'"),
        (("--dirs", ",", "--out", "out"), "Missing argument 'DIR...'"),
        (("--dirs", ".", "--out", "out", "--now", "-5"), "-5 is not in the range x>=0"),
        (("--dirs", ".", "--out", "s3://nope/out"), "--out is a path on a disk, not s3://nope/out"),
        (
            ("--dirs", ".", "--out", "out", "--output", "parquet", "--file", "s3://nope/rows"),
            "--file is a path on a disk, not s3://nope/rows",
        ),
    ],
)
def test_wrong_usage_is_named(words: tuple[str, ...], told: str) -> None:
    result = run("spark", "compact", *words)
    assert result.exit_code == 2
    assert told in result.stderr
