"""Goal: what Kafka 1.1 wrote in formats v0 and v1 is the same for Kafka 4.1 once it is converted.

Method: a log by the classes of 1.1, also as its cleaner left it; both read it, then only 4.1.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.format.disk.file_names import segment_file_name
from kafkalog.format.records.record_batch import MAGIC_AT, iterate_batches
from kafkalog.log.format_conversion import convert_partition, needs_conversion
from kafkalog.log.inspect.directory_check import verify_directory
from kafkalog.log.inspect.findings import FindingCode
from tests.oracle.kafka import files_in

if TYPE_CHECKING:
    from tests.oracle.kafka import Kafka

pytestmark = pytest.mark.oracle
PROGRAM = Path(__file__).parent / "OldFormats.java"
SEGMENTS = 10
OLD_SEGMENTS = 9
OF_COMPACTION = re.compile(r"Non-consecutive offsets in \S+$|  \d+ is followed by \d+$")
COMPACTED = ("--set", "cleanup.policy=compact")


@pytest.fixture(scope="module")
def old(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[Any]]]:
    """The partition and its records as Kafka 1.1 reads them."""
    directory = tmp_path_factory.mktemp("old") / "old-0"
    lines = kafka.run("old", PROGRAM, directory).lines()
    assert len(lines) > 400
    return directory, [line.split(" ") for line in lines]


@pytest.fixture(scope="module")
def converted(old: tuple[Path, list[list[Any]]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    source, _ = old
    directory = tmp_path_factory.mktemp("converted") / "old-0"
    shutil.copytree(source, directory)
    done = convert_partition(SystemFilesystem(), str(directory))
    assert len(done) == OLD_SEGMENTS
    return directory


def records_of(kafka: Kafka, directory: Path) -> list[list[Any]]:
    """As Kafka 4.1 reads them, in the words of the program."""
    found = []
    for line in kafka.scan(directory):
        record = json.loads(line)
        assert record["headers"] == []
        # A record of format v0 has no timestamp type, a v2 batch always has one.
        kind = record["timestampType"] if record["timestamp"] >= 0 else "NoTimestampType"
        texts = ["null" if each is None else each for each in (record["key"], record["value"])]
        found.append([str(record["offset"]), str(record["timestamp"]), kind, *texts])
    return found


def test_kafka_4_1_reads_the_same_before_and_after(
    kafka: Kafka, old: tuple[Path, list[list[Any]]], converted: Path
) -> None:
    source, records = old
    assert {each[2] for each in records} == {"NoTimestampType", "CreateTime", "LogAppendTime"}
    assert len(needs_conversion(SystemFilesystem(), str(source), is_thorough=True)) == OLD_SEGMENTS
    assert needs_conversion(SystemFilesystem(), str(converted), is_thorough=True) == ()
    assert records_of(kafka, source) == records
    assert records_of(kafka, converted) == records


def test_only_v2_batches_with_the_same_codecs_are_left(converted: Path) -> None:
    logs = sorted(converted.glob("*.log"))
    assert len(logs) == SEGMENTS
    for log in logs:
        for _, batch in iterate_batches(log.read_bytes()):
            assert batch[MAGIC_AT] == 2
    codecs = [
        {header.attributes & 7 for header, _ in iterate_batches(log.read_bytes())}
        for log in logs[:8]
    ]
    assert codecs == [{0}, {1}, {2}, {3}] * 2


def test_kafka_4_1_dumps_and_loads_it(kafka: Kafka, converted: Path, tmp_path: Path) -> None:
    """Indexes too: they are ours, and its loader finds the same after a crash."""
    found = verify_directory(str(converted), SystemFilesystem(), is_compacted=True)
    last = sorted(path.stem for path in converted.glob("*.log"))[-1]
    assert {(each.file[:20], each.code) for each in found} == {  # it was v2 and had no indexes
        (last, FindingCode.MISSING_FILE)
    }
    copy = tmp_path / "dumped" / "old-0"
    shutil.copytree(converted, copy)
    for options in (("--deep-iteration",), ("--index-sanity-check",), ("--verify-index-only",)):
        dumped = kafka.dump(*options, "--files", files_in(copy))
        others = [line for line in dumped.stderr.splitlines() if not OF_COMPACTION.match(line)]
        assert others == [], options
        assert "isvalid: false" not in dumped.stdout
        assert "mismatch" not in dumped.stdout.lower()
    loaded = kafka.load(converted, tmp_path / "out" / "old-0", *COMPACTED)
    sizes = {each["base"]: each["bytes"] for each in loaded["loaded"]["segments"]}
    for log in converted.glob("*.log"):
        assert sizes[int(log.stem)] == log.stat().st_size
        assert log.name == segment_file_name(int(log.stem), ".log")


def test_kafka_4_1_cleans_both_to_the_same_records(
    kafka: Kafka, old: tuple[Path, list[list[Any]]], converted: Path, tmp_path: Path
) -> None:
    """Its cleaner converts what it keeps: that is the same as ours, record by record."""
    source, _ = old
    outputs = []
    for name, directory in (("a", source), ("b", converted)):
        out = tmp_path / name / "old-0"
        kafka.compact(directory, out, "--now", "1600000000000", *COMPACTED)
        for path in out.glob("*.deleted"):
            path.unlink()
        outputs.append(records_of(kafka, out))
    assert outputs[0] == outputs[1]
    assert base64.b64decode(outputs[0][0][3]).startswith(b"key-")
