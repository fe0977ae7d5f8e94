"""Goal: the dump tool prints what Kafka 4.1.0 printed for the same files, and reports every damage.
Method: golden outputs of Kafka's tool; damaged copies with the wording of the reference.
"""

from __future__ import annotations

import io
import shutil
import struct
from pathlib import Path

import pytest
from click.testing import CliRunner

from kafkalog.cli.offline.dump import DumpOptions, dump, dump_command
from kafkalog.errors import CorruptBatch, CorruptIndex

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "dump"
NAME = "00000000000000000000"
FILES = [
    f"{NAME}.log",
    f"{NAME}.index",
    f"{NAME}.timeindex",
    f"{NAME}.txnindex",
    "00000000000000000018.snapshot",
]
OPTIONS = {
    "plain": DumpOptions(),
    "deep": DumpOptions(deep_iteration=True),
    "data": DumpOptions(print_data_log=True),
    "data-only": DumpOptions(print_data_log=True, skip_record_metadata=True),
    "verify": DumpOptions(verify_index_only=True),
    "cut": DumpOptions(deep_iteration=True, max_bytes=339),
}


@pytest.fixture
def partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the golden partition, which is also the current directory."""
    copy = tmp_path / "t-0"
    shutil.copytree(GOLDEN / "t-0", copy)
    monkeypatch.chdir(copy)
    return copy


def run(files: list[str], options: DumpOptions | None = None) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    dump(files, options or DumpOptions(), out, err)
    return out.getvalue(), err.getvalue()


def test_the_golden_files_are_listed() -> None:
    assert sorted(OPTIONS) == sorted(path.stem for path in GOLDEN.glob("*.txt"))


@pytest.mark.parametrize("name", OPTIONS)
def test_output_equals_kafkas(partition: Path, name: str) -> None:
    """M07: every kind of file with every kind of record."""
    before = {path.name: path.read_bytes() for path in partition.iterdir()}
    out, err = run(FILES, OPTIONS[name])
    assert out.split("\n") == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8").split("\n")
    gap = f"Non-consecutive offsets in {partition}/{NAME}.log\n  14 is followed by 16\n"
    assert err == (gap if name in ("deep", "data", "data-only") else "")
    assert {path.name: path.read_bytes() for path in partition.iterdir()} == before


def test_the_command_takes_kafkas_options(partition: Path) -> None:
    result = CliRunner().invoke(
        dump_command,
        ["--files", ",".join(FILES), "--print-data-log", "--skip-record-metadata"],
    )
    assert result.exit_code == 0
    assert result.stdout == (GOLDEN / "data-only.txt").read_text(encoding="utf-8")
    assert "14 is followed by 16" in result.stderr


def test_the_command_fails_with_one_line(partition: Path) -> None:
    result = CliRunner().invoke(dump_command, ["--files", "00000000000000000007.log"])
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")
    assert len(result.stderr.splitlines()) == 1


def test_an_unknown_file_is_ignored(partition: Path) -> None:
    out, err = run(["a/partition.metadata", "x"])
    assert out == "Dumping a/partition.metadata\nDumping x\n"
    assert err == "Ignoring unknown file a/partition.metadata\nIgnoring unknown file x\n"


def test_paths_are_printed_as_java_keeps_them(partition: Path) -> None:
    out, _ = run([f"..//t-0/./{NAME}.txnindex"])
    assert out.startswith(f"Dumping ../t-0/./{NAME}.txnindex\n")


def test_sanity_check_and_empty_index(partition: Path) -> None:
    sanity = DumpOptions(index_sanity_check=True)
    index, time_index = partition / f"{NAME}.index", partition / f"{NAME}.timeindex"
    assert run([time_index.name], sanity)[0].endswith(f"{time_index.name} passed sanity check.\n")
    assert run([index.name], sanity)[0].endswith(f"{index.name} passed sanity check.\n")
    index.write_bytes(b"")
    assert run([index.name], sanity)[0].endswith(f"{index.name} is empty.\n")
    index.write_bytes(bytes(9))
    with pytest.raises(CorruptIndex, match="found 9 bytes which is neither positive nor a multi"):
        run([index.name], sanity)
    time_index.write_bytes(time_index.read_bytes() + bytes(12))
    with pytest.raises(CorruptIndex, match="last timestamp is 0 which is less than the first"):
        run([time_index.name], sanity)


def test_negative_relative_offsets_fail_the_sanity_check(partition: Path) -> None:
    sanity = DumpOptions(index_sanity_check=True)
    (partition / f"{NAME}.index").write_bytes(struct.pack(">ii", -1, 0))
    (partition / f"{NAME}.timeindex").write_bytes(struct.pack(">qi", 1, -1))
    with pytest.raises(CorruptIndex, match="last offset is -1 which is less than the base"):
        run([f"{NAME}.index"], sanity)
    with pytest.raises(CorruptIndex, match="last offset is -1 which is less than the first"):
        run([f"{NAME}.timeindex"], sanity)


def test_mismatches_are_reported_newest_first(partition: Path) -> None:
    """M07: the index names offsets that the batches do not end with."""
    index = partition / f"{NAME}.index"
    index.write_bytes(struct.pack(">iiii", 4, 99, 10, 339))
    out, err = run([index.name])
    assert out.splitlines()[1:] == ["offset: 4 position: 99", "offset: 10 position: 339"]
    assert err == (
        f"Mismatches in :{index}\n"
        "  Index offset: 10, log offset: 11\n"
        "  Index offset: 4, log offset: 5\n"
    )


def test_time_index_findings(partition: Path) -> None:
    """M07: wrong time, out of order, no such batch end, nothing behind the log's end."""
    time_index = partition / f"{NAME}.timeindex"
    time_index.write_bytes(
        struct.pack(">qiqiqiqi", 1700000000009, 5, 1700000000002, 8, 1700000000014, 10, 5, 99)
    )
    _, err = run([time_index.name], DumpOptions(verify_index_only=True))
    assert err == (
        f"Found timestamp mismatch in :{time_index}\n"
        "  Index timestamp: 1700000000009, log timestamp: 1700000000008\n"
        "  Index timestamp: 1700000000002, log timestamp: 1700000000011\n"
        f"Found out of order timestamp in :{time_index}\n"
        "  Index timestamp: 1700000000002, Previously indexed timestamp: 1700000000009\n"
        "The following indexed offsets are not found in the log.\n"
        "Indexed offset: 10, found log offset: 11\n"
        "Indexed offset: 99, found log offset: -1\n"
    )


def test_a_missing_offset_index_is_not_created(partition: Path) -> None:
    (partition / f"{NAME}.index").unlink()
    out, err = run([f"{NAME}.timeindex"])
    assert out.count("timestamp:") == 2
    assert not err
    assert not (partition / f"{NAME}.index").exists()


def test_a_damaged_log(partition: Path) -> None:
    log = partition / f"{NAME}.log"
    whole = log.read_bytes()
    log.write_bytes(whole[:60] + b"\xff" + whole[61:])
    assert "isvalid: false" in run([log.name])[0]
    log.write_bytes(whole + b"x" * 17)
    assert run([log.name])[0].endswith(f"Found 17 invalid bytes at the end of {log.name}\n")
    log.write_bytes(whole[:-1])
    assert run([log.name])[0].endswith(f"Found 72 invalid bytes at the end of {log.name}\n")
    log.write_bytes(whole + bytes(18))
    with pytest.raises(CorruptBatch, match="record size 0 smaller") as caught:
        run([log.name])
    assert (caught.value.file, caught.value.position) == (log.name, len(whole))
    log.write_bytes(whole[:22] + b"\x07" + whole[23:])
    with pytest.raises(CorruptBatch, match="compression type 7"):
        run([log.name])
    log.write_bytes(whole[:16] + b"\x01" + whole[17:])
    with pytest.raises(CorruptBatch, match="format 1 is not supported"):
        run([log.name])


def test_a_damaged_record_is_named_by_its_batch(partition: Path) -> None:
    log = partition / f"{NAME}.log"
    whole = log.read_bytes()
    log.write_bytes(whole[:160] + bytes(20) + whole[180:])
    with pytest.raises(CorruptBatch) as caught:
        run([log.name], DumpOptions(deep_iteration=True))
    assert caught.value.position == 99


def test_an_entry_beyond_the_log_is_an_error(partition: Path) -> None:
    index = partition / f"{NAME}.index"
    index.write_bytes(struct.pack(">ii", 5, 100000))
    with pytest.raises(CorruptIndex, match="No batch at position 100000"):
        run([index.name])


def test_a_corrupt_snapshot_is_a_message_only(partition: Path) -> None:
    snapshot = partition / FILES[-1]
    snapshot.write_bytes(snapshot.read_bytes()[:-1] + b"\0")
    out, err = run([snapshot.name])
    assert out == f"Dumping {snapshot.name}\n"
    assert err.startswith("Snapshot is corrupt (CRC is no longer valid). Stored crc: 1979569588.")
