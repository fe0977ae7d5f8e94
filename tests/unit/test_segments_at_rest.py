"""Goal: `segments list` and `segments repair --dry-run` tell what files hold, and touch none.
Method: the golden partition, damaged copies of it, and segments of several sizes and stages.
"""

from __future__ import annotations

import json
import logging
import shutil
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from click.testing import CliRunner

from kafkalog.cli.main import make_cli
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.format.records.record_batch import LEADER_EPOCH_AT, MAGIC_AT
from kafkalog.log.inspect import directory_facts
from kafkalog.log.inspect.directory_facts import summarize_segments

if TYPE_CHECKING:
    from collections.abc import Iterator

    from click.testing import Result

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "dump" / "t-0"
LOG = f"{0:020}.log"
MARKER_AT = 564
INDEX = f"{0:020}.index"


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A copy of the golden partition; log lines go where they went before, afterwards.

    Its abort marker was made with an epoch between two smaller ones, which no Kafka writes: rot.
    """
    handlers, level = logging.root.handlers, logging.root.level
    path = shutil.copytree(GOLDEN, tmp_path / "t-0")
    data = bytearray((path / LOG).read_bytes())
    data[MARKER_AT + LEADER_EPOCH_AT : MARKER_AT + MAGIC_AT] = bytes(4)
    (path / LOG).write_bytes(data)
    yield path
    logging.root.handlers, logging.root.level = handlers, level
    structlog.reset_defaults()


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(make_cli(), [str(word) for word in words])


def repaired(*words: str | Path) -> tuple[int, Any]:
    """Exit status and document of a dry run."""
    result = run("segments", "repair", *words, "--dry-run", "--output", "json")
    return result.exit_code, json.loads(result.stdout)


def contents(directory: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in directory.iterdir()}


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def moved(data: bytes, by: int) -> bytes:
    """Batches at higher offsets; these lie outside the CRC."""
    parts, position = [], 0
    while position < len(data):
        base_offset, length = struct.unpack_from(">qi", data, position)
        parts.append(struct.pack(">q", base_offset + by))
        parts.append(data[position + 8 : position + 12 + length])
        position += 12 + length
    return b"".join(parts)


def test_the_list_is_what_a_scan_finds(directory: Path) -> None:
    """Bounds, sizes, records and moments of a segment are those of its records."""
    lines = run("offline", "scan", directory).stdout.splitlines()
    stamps = [json.loads(line)["timestamp"] for line in lines]
    (segment,) = json.loads(
        run("segments", "list", directory, "--output", "json").stdout
    )["segments"]  # fmt: skip
    size = (directory / LOG).stat().st_size
    assert (segment["base_offset"], segment["next_offset"]) == (0, 18)
    assert segment["size_bytes"] == segment["whole_bytes"] == size
    assert (segment["state"], segment["records"]) == ("active", len(lines))
    assert segment["oldest_ms"] == stamps[0]
    assert segment["newest_ms"] >= max(stamps)
    text = run("segments", "list", directory)
    assert text.exit_code == 0
    heading, row = text.stdout.splitlines()
    assert heading.split() == [
        *("STATE", "BASE", "NEXT", "BYTES", "BATCHES", "RECORDS", "OLDEST", "NEWEST", "NOTE")
    ]
    assert row.split()[:4] == ["active", "0", "18", str(size)]


def test_states(directory: Path) -> None:
    """Closed, active, broken and set-aside segments are told apart, in their order."""
    data = (directory / LOG).read_bytes()
    (directory / f"{0:020}.log.deleted").write_bytes(data)
    (directory / f"{18:020}.log").write_bytes(data[:-1])
    (directory / f"{36:020}.log").write_bytes(b"")
    (directory / f"{36:020}.log.swap").write_bytes(b"")
    (directory / "no segment.log").write_bytes(b"")
    answer = run("segments", "list", directory, "--output", "json")
    segments = json.loads(answer.stdout)["segments"]
    assert [(each["base_offset"], each["state"]) for each in segments] == [
        (0, "closed"), (0, "deleted"), (18, "broken"), (36, "active"), (36, "swap"),
    ]  # fmt: skip
    assert segments[3]["oldest_ms"] is None
    assert segments[2]["whole_bytes"] < segments[2]["size_bytes"]


def test_segments_that_do_not_meet_are_marked(directory: Path) -> None:
    """Who reads the list sees the damage between segments that each alone are sound."""
    data = (directory / LOG).read_bytes()
    for base in (12, 40):
        (directory / f"{base:020}.log").write_bytes(moved(data, base))
    (directory / f"{30:020}.log.deleted").write_bytes(data)
    answer = run("segments", "list", directory, "--output", "json")
    segments = json.loads(answer.stdout)["segments"]
    assert [(each["base_offset"], each["gap_offsets"]) for each in segments] == [
        (0, None), (12, -6), (30, None), (40, 10),
    ]  # fmt: skip
    rows = run("segments", "list", directory).stdout.splitlines()
    assert rows[1].split()[0] == "closed"
    assert [row.endswith("overlap of 6") for row in rows[1:]] == [False, True, False, False]
    assert rows[4].endswith("gap of 10")


def test_batches_are_counted_across_chunks(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a read ends changes nothing."""
    whole = list(summarize_segments(str(directory), SystemFilesystem()))
    monkeypatch.setattr(directory_facts, "_CHUNK_BYTES", 70)
    assert list(summarize_segments(str(directory), SystemFilesystem())) == whole


def test_a_sound_partition_needs_no_repair(directory: Path) -> None:
    """No false alarm, and not a byte or a time of the directory changes."""
    before = contents(directory)
    assert repaired(directory) == (
        0,
        {
            "directory": str(directory),
            "is_served": False,
            "log_start_offset": 0,
            "log_end_offset": 18,
            "changes": [],
            "remaining": [],
        },
    )
    assert contents(directory) == before
    text = run("segments", "repair", directory, "--dry-run")
    assert text.stdout == f"{directory}: nothing to repair; the log would end at offset 18\n"


def test_the_snapshot_of_a_clean_stop_is_no_damage(directory: Path) -> None:
    """A check in a script ends with 0 for a sound partition, whatever it was stopped at."""
    stray = directory / f"{10:020}.snapshot"
    stray.write_bytes(sorted(directory.glob("*.snapshot"))[-1].read_bytes())
    status, told = repaired(directory)
    assert (status, told["changes"], told["remaining"]) == (0, [], [])
    stray.write_bytes(b"rotten")
    status, told = repaired(directory)
    assert (status, [each["file"] for each in told["changes"]]) == (1, [stray.name])


def test_a_served_directory_is_named_as_such(directory: Path) -> None:
    """Nobody takes what a running daemon appends meanwhile for damage."""
    lock = SystemFilesystem().lock(str(directory.parent / ".lock"))
    try:
        served = run("segments", "repair", directory, "--dry-run", "--output", "json")
    finally:
        lock.release()
    assert "a daemon serves" in served.stderr
    assert json.loads(served.stdout)["is_served"] is True
    assert "serves" not in run("segments", "repair", directory, "--dry-run").stderr


def test_what_a_start_would_do_is_told(directory: Path, tmp_path: Path) -> None:
    """Goal: the changes are those of the load itself, and the directory stays damaged.

    Method: a torn tail, an index that lies and a file that a replacement left; a load of a copy.
    """
    size = (directory / LOG).stat().st_size
    with (directory / LOG).open("ab") as log:
        log.write(b"torn")
    (directory / INDEX).write_bytes(b"\0\0\0\1\0\0\0\1")
    (directory / f"{0:020}.log.cleaned").write_bytes(b"x")
    before = contents(directory)
    status, told = repaired(directory)
    assert status == 1
    assert told["log_end_offset"] == 18
    changes = {each["file"]: (each["size_before"], each["size_after"]) for each in told["changes"]}
    load = run("offline", "load", directory, tmp_path / "out" / "t-0", "--corruption", "keep")
    files = json.loads(load.stdout)["files"]
    assert {name: after for name, (_, after) in changes.items()} == {
        name: files.get(name) for name in changes
    }
    assert changes[LOG] == (size + 4, size)
    assert changes[INDEX][0] == 8
    assert changes[f"{0:020}.log.cleaned"] == (1, None)
    assert changes[f"{LOG}.{size}.torn"] == (None, 4), "what is cut off is kept"
    assert contents(directory) == before
    text = run("segments", "repair", directory, "--dry-run")
    assert f"{LOG}: cut from {size + 4} to {size} bytes" in text.stdout
    assert f"{len(changes)} changes" in text.stdout


def test_what_is_set_aside_is_not_called_removed(directory: Path) -> None:
    """Nobody reads that records go which a start keeps, and everybody where they are then."""
    data = moved((directory / LOG).read_bytes(), 40)
    (directory / f"{18:020}.log").write_bytes(b"")
    (directory / f"{40:020}.log").write_bytes(data)
    status, told = repaired(directory)
    assert status == 1
    new_name = f"{40:020}.log.behind-18.torn"
    (change,) = [each for each in told["changes"] if each["file"] == f"{40:020}.log"]
    assert (change["size_before"], change["size_after"]) == (len(data), None)
    assert change["renamed_to"] == new_name
    assert new_name not in [each["file"] for each in told["changes"]]
    text = run("segments", "repair", directory, "--dry-run")
    assert f"{40:020}.log: set aside as {new_name} ({len(data)} bytes)" in text.stdout
    assert "/kafkalog-" not in text.stderr, "nobody can look into the copy, which is gone"
    assert str(directory) in text.stderr


def test_what_a_start_leaves_is_told(directory: Path) -> None:
    """A rotten batch is no "nothing to repair" with status 0 for a program."""
    flip(directory / LOG, 61 + 12)
    status, told = repaired(directory)
    assert status == 1
    assert LOG not in [each["file"] for each in told["changes"]]
    assert [(each["file"], each["position"], each["code"]) for each in told["remaining"]] == [
        (LOG, 0, "batch_crc")
    ]
    text = run("segments", "repair", directory, "--dry-run").stdout
    assert f"{LOG} at 0: stays as it is: " in text


def test_both_policies_of_corruption(directory: Path) -> None:
    """Whoever decides between the two sees what each costs."""
    flip(directory / LOG, 61 + 12)
    assert repaired(directory)[1]["log_end_offset"] == 18
    assert repaired(directory, "--corruption", "kafka")[1]["log_end_offset"] == 0


def test_nothing_is_repaired_in_place(directory: Path, tmp_path: Path) -> None:
    """Nobody takes it for a repair; a copy under any name can be looked at."""
    refused = run("segments", "repair", directory)
    assert refused.exit_code == 2
    assert "Only --dry-run" in refused.stderr
    other = shutil.copytree(directory, tmp_path / "saved")
    assert repaired(other)[0] == 0
    assert run("segments", "repair", tmp_path, "--dry-run").exit_code == 2
    assert run("segments", "list", tmp_path).exit_code == 2
