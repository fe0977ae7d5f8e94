"""Goal: `segments dump` prints what Kafka 4.1.0's DumpLogSegments prints, both streams, every byte.

Method: a real broker writes every kind of batch; both tools dump the same copies, also damaged.
"""

from __future__ import annotations

import io
import shutil
from typing import TYPE_CHECKING

import pytest

from kafkalog.cli.offline.dump import DumpOptions, dump
from kafkalog.errors import CorruptData
from tests.oracle.kafka import Broker, Kafka, action, record
from tests.oracle.real_directories import CODECS, TIME, records_of_every_kind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.oracle

SEGMENT = "00000000000000000000"
FLAGS: dict[str, dict[str, bool | int]] = {
    "plain": {},
    "deep": {"deep_iteration": True},
    "data": {"print_data_log": True},
    "data only": {"print_data_log": True, "skip_record_metadata": True},
    "no metadata": {"deep_iteration": True, "skip_record_metadata": True},
    "verify": {"verify_index_only": True},
    "sanity": {"index_sanity_check": True},
    "cut": {"deep_iteration": True, "max_bytes": 700},
    "small": {"print_data_log": True, "max_message_size": 200_000},
}


def write_everything(broker: Broker) -> None:
    """Topic `dump`: several small segments with dense indexes. Topic `late`: LogAppendTime."""
    configs = {"internal_segment_bytes": 6000, "index_interval_bytes": 300}
    broker.create_topic("dump", **configs)
    broker.create_topic("late", message_timestamp_type="LogAppendTime", **configs)
    for codec in CODECS:
        for topic in ("dump", "late"):
            broker.produce(topic, records_of_every_kind(5), "--codec", codec)
        few = [record(b"%d" % n, codec.encode() * 9, timestamp_ms=TIME + n) for n in range(40)]
        broker.produce("dump", few, "--codec", codec, "--idempotent", "--each")
    for end in ("commit", "abort", "commit", "abort"):
        lines = [action("begin"), record(b"t", end.encode()), action("flush"), record(b"u", None)]
        broker.produce("dump", [*lines, action(end)], "--transactional", f"tx-{end}")
    lines = [action("begin"), record(b"open", b"transaction"), action("flush")]
    broker.produce("dump", lines, "--transactional", "tx-open", "--abandon")


@pytest.fixture(scope="module")
def directories(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Copies of the partitions while the broker ran (padded indexes) and after it had stopped."""
    home = tmp_path_factory.mktemp("dump")
    copies: dict[str, Path] = {}
    with Broker(kafka, home / "broker") as broker:
        write_everything(broker)
        for state in ("running", "stopped"):
            if state == "stopped":
                broker.stop()
            for topic in ("dump", "late"):
                copies[f"{topic} {state}"] = home / state / f"{topic}-0"
                shutil.copytree(broker.data / f"{topic}-0", copies[f"{topic} {state}"])
    kafka.compact(copies["dump stopped"], home / "compacted" / "dump-0", "--now", str(TIME + 10**9))
    copies["dump compacted"] = home / "compacted" / "dump-0"
    return copies


def words(files: list[str], flags: dict[str, bool | int]) -> list[str]:
    arguments = ["--files", ",".join(files)]
    for name, value in flags.items():
        arguments.append("--" + name.replace("_", "-"))
        if value is not True:
            arguments.append(str(value))
    return arguments


def ours(files: list[str], flags: dict[str, bool | int]) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    dump(files, DumpOptions(**flags), out, err)  # type: ignore[arg-type]  # bool and int by name
    return out.getvalue(), err.getvalue()


def assert_same(
    kafka: Kafka, directory: Path, files: list[str], flags: dict[str, bool | int]
) -> tuple[str, str]:
    """Both tools, same files in the same directory; return what they printed."""
    expected = kafka.dump(*words(files, flags), cwd=directory)
    assert expected.status == 0, expected.stderr
    out, err = ours(files, flags)
    assert out.split("\n") == expected.stdout.split("\n")
    assert err.split("\n") == expected.stderr.split("\n")
    return out, err


@pytest.mark.parametrize("name", ["dump running", "dump stopped", "late running", "late stopped"])
@pytest.mark.parametrize("flags", FLAGS.values(), ids=list(FLAGS))
def test_all_files_with_all_options(
    kafka: Kafka,
    directories: dict[str, Path],
    name: str,
    flags: dict[str, bool | int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """M07: logs, indexes, time indexes, transaction indexes, snapshots, and a file of no kind."""
    directory = directories[name]
    monkeypatch.chdir(directory)
    # A name without a dot ends Kafka's tool with an exception.
    files = sorted(path.name for path in directory.iterdir() if "." in path.name)
    if "index_sanity_check" in flags and "running" in name:
        # The padded indexes of the active segment fail the check in both tools.
        active = max(file for file in files if file.endswith(".log")).removesuffix(".log")
        files = [file for file in files if file != f"{active}.timeindex"]
    out, err = assert_same(kafka, directory, files, flags)
    assert "Ignoring unknown file partition.metadata" in err
    assert out.count("Dumping") == len(files)


def test_paths_are_printed_as_given(
    kafka: Kafka, directories: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = directories["dump stopped"]
    monkeypatch.chdir(directory)
    files = [
        str(directory / f"{SEGMENT}.log"),
        f"./{SEGMENT}.log",
        f"..//{directory.name}///{SEGMENT}.index",
    ]
    assert_same(kafka, directory, files, {})


def test_a_compacted_log_has_gaps(
    kafka: Kafka, directories: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = directories["dump compacted"]
    monkeypatch.chdir(directory)
    found = [
        assert_same(kafka, directory, [log], {"print_data_log": True})[1]
        for log in sorted(path.name for path in directory.glob("*.log"))
    ]
    assert any(f"Non-consecutive offsets in {directory}" in err for err in found)


def zero_crc(data: bytearray) -> None:
    data[17:21] = bytes(4)


def cut_tail(data: bytearray) -> None:
    del data[-10:]


def short_tail(data: bytearray) -> None:
    data += b"x" * 16


def wrong_offsets(data: bytearray) -> None:
    """Offset index: every entry one too high, so that each finds another batch end."""
    for position in range(0, len(data), 8):
        data[position + 3] ^= 1


def wrong_timestamps(data: bytearray) -> None:
    """Time index: out of order and unlike the log."""
    for position in range(0, len(data), 12):
        data[position + 6 : position + 8] = (5000 - position).to_bytes(2, "big")


def wrong_time_offsets(data: bytearray) -> None:
    for position in range(0, len(data), 12):
        data[position + 10] ^= 1


def flip(data: bytearray) -> None:
    data[-1] ^= 1


def new_version(data: bytearray) -> None:
    data[1] = 2


@pytest.mark.parametrize(
    ("suffix", "damage"),
    [
        (".log", zero_crc),
        (".log", cut_tail),
        (".log", short_tail),
        (".index", wrong_offsets),
        (".index", cut_tail),
        (".timeindex", wrong_timestamps),
        (".timeindex", wrong_time_offsets),
        (".timeindex", cut_tail),
        (".snapshot", flip),
        (".snapshot", new_version),
        (".txnindex", short_tail),
    ],
)
def test_damage_is_reported_alike(
    kafka: Kafka,
    directories: dict[str, Path],
    tmp_path: Path,
    suffix: str,
    damage: Callable[[bytearray], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """M07: mismatches on the error stream in Kafka's words and order."""
    copy = tmp_path / "dump-0"
    shutil.copytree(directories["dump stopped"], copy)
    target = max(copy.glob(f"*{suffix}"), key=lambda path: (path.stat().st_size, path.name))
    data = bytearray(target.read_bytes())
    damage(data)
    target.write_bytes(data)
    monkeypatch.chdir(copy)
    variants: list[dict[str, bool | int]] = [
        {},
        {"deep_iteration": True},
        {"verify_index_only": True},
    ]
    for flags in variants:
        assert_same(kafka, copy, [target.name], flags)


def test_what_kills_kafkas_tool_is_an_error_here(
    kafka: Kafka, directories: dict[str, Path], tmp_path: Path
) -> None:
    """Zeros behind the last batch and an index entry beyond the log."""
    copy = tmp_path / "dump-0"
    shutil.copytree(directories["dump stopped"], copy)
    log, index = copy / f"{SEGMENT}.log", copy / f"{SEGMENT}.index"
    index.write_bytes(index.read_bytes() + (10**6).to_bytes(4, "big") + (10**6).to_bytes(4, "big"))
    assert kafka.dump("--files", index).status != 0
    with pytest.raises(CorruptData):
        ours([str(index)], {})
    log.write_bytes(log.read_bytes() + bytes(100))
    assert kafka.dump("--files", log).status != 0
    with pytest.raises(CorruptData, match="Found record size 0 smaller than minimum"):
        ours([str(log)], {})
