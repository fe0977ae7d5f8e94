"""Goal: the offline commands keep their word: SRC unchanged, clear errors, exit status 0, 1 and 2.
Method: the golden partition and damaged copies of it, through the command line.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from kafkalog.cli.main import make_cli
from kafkalog.cli.offline.scan import record_line
from kafkalog.format.disk.backup_manifest import MANIFEST_FILE
from kafkalog.format.records.record import Record

if TYPE_CHECKING:
    from click.testing import Result

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "dump" / "t-0"
LOG = "00000000000000000000.log"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return shutil.copytree(GOLDEN, tmp_path / "src" / "t-0")


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(make_cli(), [str(word) for word in words])


def answered(command: str, *words: str | Path) -> Any:
    """The JSON of ``offline load`` or ``offline compact``."""
    result = run("offline", command, *words)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def contents(directory: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in directory.iterdir()}


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def test_load_reports_and_leaves_the_source_alone(source: Path, tmp_path: Path) -> None:
    """M14: the kit's JSON; --roll adds a state; OUT holds what the files say."""
    before = contents(source)
    out = tmp_path / "out" / "t-0"
    result = answered("load", source, out, "--roll", "--now", "1700000000000")
    assert contents(source) == before
    assert (result["loaded"]["logEndOffset"], result["loaded"]["recoveryPoint"]) == (18, 0)
    assert [each["base"] for each in result["after"]["segments"]] == [0, 18]
    assert result["files"] == {path.name: path.stat().st_size for path in out.iterdir()}
    assert (out / LOG).stat().st_mtime_ns == (source / LOG).stat().st_mtime_ns


def test_load_options(source: Path, tmp_path: Path) -> None:
    """M14: a clean start, a log start, a high watermark, deleted records, topic configs."""
    clean = answered(
        "load", source, tmp_path / "a" / "t-0", "--clean", "--log-start", "4", "--hw", "9"
    )
    assert clean["loaded"]["recoveryPoint"] == 18
    assert clean["loaded"]["logStartOffset"] == 4
    assert clean["loaded"]["lastStableOffset"] == 9
    deleted = answered(
        "load",
        *(source, tmp_path / "b" / "t-0", "--delete-records", "7"),
        *("--set", "internal.segment.bytes=100", "--set", "index.interval.bytes=0"),
    )
    assert deleted["deleteRecords"] is True
    assert deleted["after"]["logStartOffset"] == 7
    assert deleted["loaded"]["segments"][0]["indexEntries"] > 0


def test_both_policies_of_corruption(source: Path, tmp_path: Path) -> None:
    """M14: cut as Kafka does, or keep what follows; what was found goes to standard error."""
    flip(source / LOG, 61 + 12)
    kafka = run("offline", "load", source, tmp_path / "a" / "t-0")
    assert json.loads(kafka.stdout)["loaded"]["logEndOffset"] == 0
    assert "segment_cut" in kafka.stderr
    keep = answered("load", source, tmp_path / "b" / "t-0", "--corruption", "keep")
    assert keep["loaded"]["logEndOffset"] == 18


@pytest.mark.parametrize(
    ("command", "out", "extra", "status", "complaint"),
    [
        ("load", "src", "", 2, "exists"),
        ("load", "out/topic", "", 2, "TOPIC-PARTITION"),
        ("load", "out/t-0.0123-delete", "", 2, "TOPIC-PARTITION"),
        ("load", "src/t-0/t-0", "", 2, "inside SRC"),
        ("load", "out/t-0", "--set segment.bites=1", 2, "segment.bytes"),
        ("load", "out/t-0", "--set segment.bytes=x", 2, "Invalid value"),
        ("load", "out/t-0", "--set segment.bytes", 2, "key=value"),
        ("load", "out/t-0", "--recovery-point -1", 2, "range"),
        ("load", "out/t-0", "--compact", 2, "No such option"),
        ("compact", "out/t-0", "--map-bytes 24 --load-factor 0.5", 1, "cleaner.dedupe.buffer.size"),
        ("compact", "out/t-0", "--map-bytes 0", 2, "range"),
        ("compact", "out/t-0", "--load-factor 1.1", 2, "range"),
        ("compact", "out/t-0", "--tombstone-horizon never", 2, "batch"),
        ("compact", "out/t-0", "--set cleanup.policy=compress", 2, "compact"),
    ],
)
def test_wrong_usage(
    source: Path, tmp_path: Path, command: str, out: str, extra: str, status: int, complaint: str
) -> None:
    """M14 M19 M20: a status and a reason; SRC stays as it is, and nothing was written."""
    before = contents(source)
    result = run("offline", command, source, tmp_path / out, "--roll", *extra.split())
    assert result.exit_code == status
    assert complaint in result.stderr
    assert status == 1 or not (tmp_path / "out").exists()
    assert contents(source) == before


@pytest.mark.parametrize("mark", ["meta.properties", ".lock"])
@pytest.mark.parametrize("command", ["load", "compact"])
def test_no_copy_into_a_log_directory(
    command: str, mark: str, source: Path, tmp_path: Path
) -> None:
    """A daemon would take it for a partition of its own."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / mark).touch()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    for out in (tmp_path / "data" / "t-1", tmp_path / "link" / "t-1"):
        result = run("offline", command, source, out)
        assert result.exit_code == 2
        assert f"in the log directory {tmp_path / 'data'}" in result.stderr
    assert [path.name for path in (tmp_path / "data").iterdir()] == [mark]


def test_what_cannot_be_loaded(source: Path, tmp_path: Path) -> None:
    """M14: status 1 with the file; OUT stays for a look."""
    (source / "leader-epoch-checkpoint").write_text("nonsense")
    result = run("offline", "load", source, tmp_path / "out" / "t-0")
    assert result.exit_code == 1
    assert "leader-epoch-checkpoint" in result.stderr
    assert result.stdout == ""
    assert (tmp_path / "out" / "t-0" / LOG).exists()


def test_compact_reports_and_leaves_the_source_alone(source: Path, tmp_path: Path) -> None:
    """M20: the kit's JSON; the active segment is closed by --roll alone."""
    before = contents(source)
    out = tmp_path / "out" / "t-0"
    idle = answered("compact", source, tmp_path / "idle" / "t-0", "--now", "1700000000000")
    assert idle["nothingToClean"] is True
    assert (idle["cleanableBytes"], idle["cleanableRatio"]) == (0, "NaN")
    result = answered("compact", source, out, "--roll", "--now", "1700000000000")
    assert contents(source) == before
    assert result["now"] == 1700000000000
    assert result["endOffset"] == result["firstUncleanableOffset"] == 18
    assert result["bytesRead"] == result["cleanableBytes"] == result["before"]["size"]
    assert result["bytesWritten"] == result["after"]["segments"][0]["bytes"] > 0
    assert result["messagesWritten"] < result["messagesRead"]
    assert result["files"] == {path.name: path.stat().st_size for path in out.iterdir()}
    assert (out / LOG).stat().st_mtime_ns // 10**6 == (source / LOG).stat().st_mtime_ns // 10**6


def test_compact_options(source: Path, tmp_path: Path) -> None:
    """M19 M20: where the round begins, how much fits the map, and how much is read at a time."""
    common = ("--roll", "--now", "1700000000000")
    late = answered("compact", source, tmp_path / "a" / "t-0", *common, "--first-dirty", "5")
    assert (late["firstDirtyOffset"], late["cleanBytes"]) == (5, late["cleanableBytes"])
    small = answered(
        "compact",
        *(source, tmp_path / "b" / "t-0", *common),
        *("--map-bytes", "48", "--load-factor", "0.5", "--io-buffer", "100", "--unclean"),
    )
    assert (small["mapSlots"], small["mapSize"]) == (2, 1)
    assert small["endOffset"] < 18
    bounded = answered(
        "compact", source, tmp_path / "c" / "t-0", *common, "--hw", "3", "--log-start", "2"
    )
    assert bounded["nothingToClean"] is True
    kept = answered(
        "compact",
        *(source, tmp_path / "d" / "t-0", *common, "--set", "min.compaction.lag.ms=1000000000"),
    )
    assert kept["nothingToClean"] is True
    older = answered(
        "compact", source, tmp_path / "e" / "t-0", *common, "--tombstone-horizon", "segment"
    )
    assert older["endOffset"] == 18


def test_compact_refuses_damage(source: Path, tmp_path: Path) -> None:
    """M20: a rotten batch is named with file and place, and nothing is written over it."""
    flip(source / LOG, 61 + 12)
    result = run("offline", "compact", source, tmp_path / "out" / "t-0", "--roll")
    assert result.exit_code == 1
    assert LOG in result.stderr
    assert result.stdout == ""


def test_scan(source: Path) -> None:
    """M02: lines from an offset on; a damaged batch ends it with status 1 behind those before."""
    whole = run("offline", "scan", source)
    assert whole.exit_code == 0
    lines = whole.stdout.splitlines()
    assert json.loads(lines[0])["offset"] == 0
    assert run("offline", "scan", source, "--from", "4").stdout.splitlines() == lines[4:]
    second = 12 + int.from_bytes((source / LOG).read_bytes()[8:12], "big")
    flip(source / LOG, second + 61)
    damaged = run("offline", "scan", source)
    assert damaged.exit_code == 1
    assert damaged.stdout.splitlines() == lines[:3]
    assert "fails its CRC, base offset 3" in damaged.stderr
    assert LOG in damaged.stderr


def test_header_names_are_escaped_one_by_one() -> None:
    """Jackson's escapes; a name that looks like one stays what it is."""
    name = b'\x00\x1f\x7f"\\\\u001f\t\r\n\b\f/\xc3\xa9\xff'
    line = record_line(Record(1, 2, None, b"", ((name, None),)), "CreateTime")
    shown = '\\u0000\\u001F\x7f\\"\\\\\\\\u001f\\t\\r\\n\\b\\f/\u00e9\ufffd'
    assert line == (
        '{"offset":1,"timestamp":2,"timestampType":"CreateTime","key":null,"value":"",'
        f'"headers":[["{shown}",null]]}}\n'
    )


def test_verify(source: Path) -> None:
    """M02 M07: sound: 0; findings: 1, as lines and as JSON; no directory: 2."""
    sound = run("segments", "verify", source)
    assert (sound.exit_code, sound.stdout) == (0, f"{source}: sound\n")
    flip(source / LOG, 70)
    found = run("segments", "verify", source)
    assert found.exit_code == 1
    assert f"{LOG} at 0: " in found.stdout
    (document,) = json.loads(run("segments", "verify", source, "--output", "json").stdout)
    rows = document["findings"]
    assert [(row["file"], row["position"]) for row in rows] == [(LOG, 0)]
    other = shutil.copytree(GOLDEN, source.with_name("t-1"))
    both = run("segments", "verify", source, other)
    assert (both.exit_code, both.stdout) == (1, f"{found.stdout}{other}: sound\n")
    assert run("segments", "verify", source / "absent").exit_code == 2


@pytest.mark.parametrize(
    "command", [("segments", "verify"), ("segments", "list"), ("offline", "scan")]
)
def test_what_is_no_partition_directory_does_not_pass(
    command: tuple[str, str], source: Path, tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert run(*command, empty).exit_code == 2
    above = run(*command, source.parent)
    assert above.exit_code == 2
    assert source.name in above.output
    (empty / "cron.log").touch()
    other = run(*command, empty)
    assert other.exit_code == 2
    assert "20 digits" in other.output


def test_a_dump_of_nothing_fails(source: Path, tmp_path: Path) -> None:
    """Kafka's own tool says that it ignores the file, and ends with 0."""
    text = tmp_path / "notes.txt"
    text.touch()
    for path, complaint in (
        (source, f"{source} is a directory: name its .log files"),
        (text, f"{text} is not a file of a segment (.log, .index, .timeindex, .snapshot, .txn"),
        (tmp_path / "absent.log", "No such file or directory"),
    ):
        result = run("segments", "dump", path)
        assert (result.exit_code, result.stdout) == (1, "")
        assert complaint in result.stderr
    assert run("segments", "dump", text, source / LOG).exit_code == 0
    assert run("compat", "kafka-dump-log", "--files", text).exit_code == 0


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("adopt --execute {}", "kafkalog restore {}"),
        ("hand-back --execute {}", "kafkalog restore {}"),
        ("adopt --execute {}/log-dir-0", "kafkalog restore {}"),
        ("doctor --override log.dirs={}", "kafkalog restore {}"),
        ("doctor --repair --override log.dirs={}/log-dir-0", "kafkalog restore {}"),
        ("segments convert {}", "kafkalog restore {}"),
        ("segments convert --execute {}/log-dir-0", "kafkalog restore {}"),
        ("spark stats {}", "{}/log-dir-0"),
        ("spark audit {}", "{}/log-dir-0"),
        ("archive run {} --parquet {}-table", "{}/log-dir-0"),
    ],
)
def test_a_backup_is_no_log_directory(
    words: str, remedy: str, source: Path, tmp_path: Path
) -> None:
    """Its ``log-dir-0`` reads like partition 0 of a topic ``log-dir``."""
    backup = tmp_path / "backup"
    shutil.copytree(source, backup / "log-dir-0" / "t-0")
    (backup / MANIFEST_FILE).write_text("{}")
    before = sorted(backup.rglob("*"))
    result = run(*words.replace("{}", str(backup)).split())
    assert result.exit_code == 1
    assert remedy.replace("{}", str(backup)) in result.output
    assert "a backup" in result.output
    assert sorted(backup.rglob("*")) == before
