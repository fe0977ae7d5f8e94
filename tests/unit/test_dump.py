"""Goal: the dump tool prints what Kafka 4.1.0 printed for the same files and reports every damage;
`segments list` and `segments repair --dry-run` tell what files hold, and touch none.
Method: files that Kafka wrote, and these damaged; outputs to the byte.
"""

from __future__ import annotations

import io
import json
import shutil
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from kafkalog.cli.kafka_tools.dump_log import dump_log
from kafkalog.cli.main import make_cli
from kafkalog.cli.offline.dump import DumpOptions, dump, record_line
from kafkalog.cli.offline.dump_decoders import decode_offsets
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.errors import CorruptBatch, CorruptIndex
from kafkalog.format.disk.group_offsets import (
    CommittedOffset,
    GroupPartition,
    encode_key,
    encode_value,
)
from kafkalog.format.integers import FormatError
from kafkalog.format.records.batch_builder import build_single_batch
from kafkalog.format.records.record import Record
from kafkalog.format.records.record_batch import LEADER_EPOCH_AT, MAGIC_AT
from kafkalog.log.inspect import directory_facts
from kafkalog.log.inspect.directory_facts import summarize_segments

if TYPE_CHECKING:
    from click.testing import Result


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
        dump_log, ["--files", ",".join(FILES), "--print-data-log", "--skip-record-metadata"]
    )
    assert result.exit_code == 0
    assert result.stdout == (GOLDEN / "data-only.txt").read_text(encoding="utf-8")
    assert "14 is followed by 16" in result.stderr


def test_the_command_fails_with_one_line(partition: Path) -> None:
    result = CliRunner().invoke(dump_log, ["--files", "00000000000000000007.log"])
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


def line(record: Record, *, is_control: bool = False, metadata: bool = True) -> str:
    return record_line(
        record,
        timestamp_label="CreateTime",
        is_control=is_control,
        with_metadata=metadata,
        with_contents=True,
    )


@pytest.mark.parametrize(
    ("data", "replacements"),
    [
        ("c080", 2),
        ("eda080", 1),
        ("edbfbf", 1),
        ("eda0", 1),
        ("ed", 1),
        ("eda0ed", 2),
        ("f4908080", 4),
        ("f0808080", 4),
        ("f09f98", 1),
        ("f1edbf", 2),
        ("9ff5f4eda0f3", 5),
        ("eda08fe1f1", 3),
        ("e282", 1),
        ("ff", 1),
    ],
)
def test_broken_utf8_is_replaced_as_java_does(data: str, replacements: int) -> None:
    printed = line(Record(0, 0, bytes.fromhex(data), None), metadata=False)
    assert printed == "| key: " + "\N{REPLACEMENT CHARACTER}" * replacements


def test_all_fields_in_order() -> None:
    record = Record(9, 5, b"k", b"", ((b"a", None), ("ü".encode(), b"x")), 4)
    assert line(record) == (
        "| offset: 9 CreateTime: 5 keySize: 1 valueSize: 0 sequence: 4 headerKeys: [a,ü] "
        "key: k payload: "
    )
    assert line(record, metadata=False) == "| key: k payload: "


def test_without_key_and_metadata_there_is_no_bar() -> None:
    """Kafka 4.1 prints it so; 4.3 does not."""
    assert line(Record(0, 0, None, b"v3"), metadata=False) == " payload: v3"
    assert line(Record(0, 0, None, None), metadata=False) == ""


def test_control_records() -> None:
    marker = Record(1, 5, bytes.fromhex("00000001"), bytes.fromhex("000000000007"))
    assert line(marker, is_control=True).endswith(" endTxnMarker: COMMIT coordinatorEpoch: 7")
    assert line(marker, is_control=True, metadata=False) == ""
    unknown = Record(1, 5, bytes.fromhex("00000063"), None)
    assert line(unknown, is_control=True).endswith(" controlType: UNKNOWN(99)")
    with pytest.raises(FormatError):
        line(Record(1, 5, b"", None), is_control=True)


COMMIT_KEY = encode_key(GroupPartition("billing", "ordérs", 3))
COMMIT = CommittedOffset(42, 'by "al"', 1700000000000, leader_epoch=5)
KEY_TEXT = '{"type":"1","data":{"group":"billing","topic":"ordérs","partition":3}}'


@pytest.mark.parametrize(
    ("key", "value", "printed"),
    [
        (
            COMMIT_KEY,
            encode_value(COMMIT),
            f'key: {KEY_TEXT} payload: {{"version":"3","data":{{"offset":42,"leaderEpoch":5,'
            '"metadata":"by \\"al\\"","commitTimestamp":1700000000000}}',
        ),
        (
            COMMIT_KEY,
            encode_value(CommittedOffset(42, "", 7, expire_timestamp_ms=9)),
            f'key: {KEY_TEXT} payload: {{"version":"1","data":{{"offset":42,"metadata":"",'
            '"commitTimestamp":7,"expireTimestamp":9}}',
        ),
        (COMMIT_KEY, None, f"key: {KEY_TEXT} payload: <DELETE>"),
        (bytes(1) + b"\2" + bytes(9), b"x", "key: Unknown record type 2 at offset 8, skipping."),
        (COMMIT_KEY, b"", "key: Error at offset 8, skipping. a number is cut off"),
        (b"", b"", "key: Error at offset 8, skipping. a number is cut off"),
    ],
)
def test_commits_are_decoded(key: bytes, value: bytes | None, printed: str) -> None:
    """As Kafka's OffsetsMessageParser and its converters to JSON write them."""
    shown = record_line(
        Record(8, 5, key, value),
        timestamp_label="CreateTime",
        is_control=False,
        with_metadata=False,
        with_contents=True,
        decode=decode_offsets,
    )
    assert shown == f"| {printed}"


def test_the_offsets_decoder_prints_every_record(tmp_path: Path) -> None:
    """It implies --print-data-log; a record without a key ends the tool, as in Kafka."""
    file = tmp_path / f"{NAME}.log"
    file.write_bytes(build_single_batch(COMMIT_KEY, encode_value(COMMIT), 1).data)
    words = ["--offsets-decoder", "--skip-record-metadata"]
    for tool in (["compat", "kafka-dump-log", "--files"], ["segments", "dump"]):
        result = run_segments(*tool, file, *words)
        assert result.exit_code == 0
        assert f"\n| key: {KEY_TEXT} payload: " in result.stdout
    file.write_bytes(build_single_batch(None, b"v", 1).data)
    result = run_segments("segments", "dump", file, *words)
    assert (result.exit_code, "(message had a missing key)" in result.stderr) == (1, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--transaction-log-decoder"],
            "Option --transaction-log-decoder does not exist here: docs/reference/kafka-tools.md",
        ),
        (
            ["--value-decoder-class", "x.Y"],
            "Option --value-decoder-class does not exist here: docs/reference/kafka-tools.md",
        ),
        (
            ["--no-such"],
            'Exception in thread "main" joptsimple.UnrecognizedOptionException: no-such is not a'
            " recognized option",
        ),
    ],
)
def test_other_decoders_are_refused(words: list[str], said: str) -> None:
    result = run_segments("compat", "kafka-dump-log", "--files", "x.log", *words)
    assert (result.exit_code, result.stderr) == (1, f"{said}\n")


SEGMENTS = Path(__file__).resolve().parents[1] / "golden" / "dump" / "t-0"
LOG = f"{0:020}.log"
MARKER_AT = 564
INDEX = f"{0:020}.index"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A copy of the golden partition.

    Its abort marker was made with an epoch between two smaller ones, which no Kafka writes: rot.
    """
    path = shutil.copytree(SEGMENTS, tmp_path / "t-0")
    data = bytearray((path / LOG).read_bytes())
    data[MARKER_AT + LEADER_EPOCH_AT : MARKER_AT + MAGIC_AT] = bytes(4)
    (path / LOG).write_bytes(data)
    return path


def run_segments(*words: str | Path) -> Result:
    return CliRunner().invoke(make_cli(), [str(word) for word in words])


def repaired(*words: str | Path) -> tuple[int, Any]:
    """Exit status and document of a dry run."""
    result = run_segments("segments", "repair", *words, "--dry-run", "--output", "json")
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
    lines = run_segments("offline", "scan", directory).stdout.splitlines()
    stamps = [json.loads(line)["timestamp"] for line in lines]
    (segment,) = json.loads(
        run_segments("segments", "list", directory, "--output", "json").stdout
    )["segments"]  # fmt: skip
    size = (directory / LOG).stat().st_size
    assert (segment["base_offset"], segment["next_offset"]) == (0, 18)
    assert segment["size_bytes"] == segment["whole_bytes"] == size
    assert (segment["state"], segment["records"]) == ("active", len(lines))
    assert segment["oldest_ms"] == stamps[0]
    assert segment["newest_ms"] >= max(stamps)
    text = run_segments("segments", "list", directory)
    assert text.exit_code == 0
    heading, row = text.stdout.splitlines()
    assert heading.split() == [
        *("STATE", "BASE", "NEXT", "BYTES", "BATCHES", "RECORDS", "OLDEST", "NEWEST", "NOTE")
    ]
    assert row.split()[:4] == ["active", "0", "18", str(size)]


def test_states(directory: Path) -> None:
    data = (directory / LOG).read_bytes()
    (directory / f"{0:020}.log.deleted").write_bytes(data)
    (directory / f"{18:020}.log").write_bytes(data[:-1])
    (directory / f"{36:020}.log").write_bytes(b"")
    (directory / f"{36:020}.log.swap").write_bytes(b"")
    (directory / "no segment.log").write_bytes(b"")
    answer = run_segments("segments", "list", directory, "--output", "json")
    segments = json.loads(answer.stdout)["segments"]
    assert [(each["base_offset"], each["state"]) for each in segments] == [
        (0, "closed"), (0, "deleted"), (18, "broken"), (36, "active"), (36, "swap"),
    ]  # fmt: skip
    assert segments[3]["oldest_ms"] is None
    assert segments[2]["whole_bytes"] < segments[2]["size_bytes"]


def test_segments_that_do_not_meet_are_marked(directory: Path) -> None:
    data = (directory / LOG).read_bytes()
    for base in (12, 40):
        (directory / f"{base:020}.log").write_bytes(moved(data, base))
    (directory / f"{30:020}.log.deleted").write_bytes(data)
    answer = run_segments("segments", "list", directory, "--output", "json")
    segments = json.loads(answer.stdout)["segments"]
    assert [(each["base_offset"], each["gap_offsets"]) for each in segments] == [
        (0, None), (12, -6), (30, None), (40, 10),
    ]  # fmt: skip
    rows = run_segments("segments", "list", directory).stdout.splitlines()
    assert rows[1].split()[0] == "closed"
    assert [row.endswith("overlap of 6") for row in rows[1:]] == [False, True, False, False]
    assert rows[4].endswith("gap of 10")


def test_batches_are_counted_across_chunks(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = list(summarize_segments(str(directory), SystemFilesystem()))
    monkeypatch.setattr(directory_facts, "CHUNK_BYTES", 70)
    assert list(summarize_segments(str(directory), SystemFilesystem())) == whole


def test_a_sound_partition_needs_no_repair(directory: Path) -> None:
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
    text = run_segments("segments", "repair", directory, "--dry-run")
    assert text.stdout == f"{directory}: nothing to repair; the log would end at offset 18\n"


def test_the_snapshot_of_a_clean_stop_is_no_damage(directory: Path) -> None:
    stray = directory / f"{10:020}.snapshot"
    stray.write_bytes(sorted(directory.glob("*.snapshot"))[-1].read_bytes())
    status, told = repaired(directory)
    assert (status, told["changes"], told["remaining"]) == (0, [], [])
    stray.write_bytes(b"rotten")
    status, told = repaired(directory)
    assert (status, [each["file"] for each in told["changes"]]) == (1, [stray.name])


def test_a_served_directory_is_named_as_such(directory: Path) -> None:
    lock = SystemFilesystem().lock(str(directory.parent / ".lock"))
    try:
        served = run_segments("segments", "repair", directory, "--dry-run", "--output", "json")
    finally:
        lock.release()
    assert "a daemon serves" in served.stderr
    assert json.loads(served.stdout)["is_served"] is True
    assert "serves" not in run_segments("segments", "repair", directory, "--dry-run").stderr


def test_what_a_start_would_do_is_told(directory: Path, tmp_path: Path) -> None:
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
    load = run_segments(
        "offline", "load", directory, tmp_path / "out" / "t-0", "--corruption", "keep"
    )
    files = json.loads(load.stdout)["files"]
    assert {name: after for name, (_, after) in changes.items()} == {
        name: files.get(name) for name in changes
    }
    assert changes[LOG] == (size + 4, size)
    assert changes[INDEX][0] == 8
    assert changes[f"{0:020}.log.cleaned"] == (1, None)
    assert changes[f"{LOG}.{size}.torn"] == (None, 4), "what is cut off is kept"
    assert contents(directory) == before
    text = run_segments("segments", "repair", directory, "--dry-run")
    assert f"{LOG}: cut from {size + 4} to {size} bytes" in text.stdout
    assert f"{len(changes)} changes" in text.stdout


def test_what_is_set_aside_is_not_called_removed(directory: Path) -> None:
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
    text = run_segments("segments", "repair", directory, "--dry-run")
    assert f"{40:020}.log: set aside as {new_name} ({len(data)} bytes)" in text.stdout
    assert "/kafkalog-" not in text.stderr, "nobody can look into the copy, which is gone"
    assert str(directory) in text.stderr


def test_what_a_start_leaves_is_told(directory: Path) -> None:
    flip(directory / LOG, 61 + 12)
    status, told = repaired(directory)
    assert status == 1
    assert LOG not in [each["file"] for each in told["changes"]]
    assert [(each["file"], each["position"], each["code"]) for each in told["remaining"]] == [
        (LOG, 0, "batch_crc")
    ]
    text = run_segments("segments", "repair", directory, "--dry-run").stdout
    assert f"{LOG} at 0: not repaired: " in text


def test_nothing_is_repaired_in_place(directory: Path, tmp_path: Path) -> None:
    refused = run_segments("segments", "repair", directory)
    assert refused.exit_code == 2
    assert "Only with --dry-run" in refused.stderr
    other = shutil.copytree(directory, tmp_path / "saved")
    assert repaired(other)[0] == 0
    assert run_segments("segments", "repair", tmp_path, "--dry-run").exit_code == 2
    assert run_segments("segments", "list", tmp_path).exit_code == 2
