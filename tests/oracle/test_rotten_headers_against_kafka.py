"""Goal: what was repaired in a directory that Kafka wrote is what Kafka wrote.

Method: bits outside the CRC of the first, a middle and the last batch of a real broker's logs are
flipped; we load them after a crash; the bytes are as before, and Kafka's loader finds in our copy
what it finds in the one without damage.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.cli.offline.load import LoadOptions, load_copy
from kafkalog.log.log_config import LogConfig
from kafkalog.settings.topic_configs import parse_topic_config
from tests.oracle.damage import batch_starts, edited, logs
from tests.oracle.loads import LoadCase, comparable, load_with_kafka
from tests.oracle.real_directories import TIME, TOPICS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.oracle.kafka import Kafka
    from tests.oracle.real_directories import RealDirectories

pytestmark = pytest.mark.oracle

NOW = TIME + 2_000_000
CRASHED = LoadOptions(now_ms=NOW)
DENSE = {"index.interval.bytes": "300"}
BITS = {"base offset": (8, 33, 46, 61, 63), "length": (65, 83, 94), "magic": (128, 134, 135)}


def flip(directory: Path, place: str, bit: int) -> None:
    """One bit of a batch's first 17 bytes."""
    found = logs(directory)
    log = {"first": found[0], "middle": found[len(found) // 2], "last": found[-1]}[place]
    with edited(log) as data:
        starts = batch_starts(data)
        start = {"first": starts[0], "middle": starts[len(starts) // 2], "last": starts[-1]}[place]
        data[start + bit // 8] ^= 0x80 >> bit % 8


def load(directory: Path, topic: str, recovery_point: int = 0) -> dict[str, Any]:
    """As a start after a crash that keeps rot."""
    configs = {**DENSE, "cleanup.policy": "compact"} if topic == "compacted" else DENSE
    options = LoadOptions(now_ms=NOW, recovery_point=recovery_point, corruption="keep")
    return load_copy(str(directory), parse_topic_config(configs, LogConfig()), options)


def bytes_of(directory: Path) -> dict[str, bytes]:
    """Of every segment."""
    return {path.name: path.read_bytes() for path in logs(directory)}


def test_kafkas_loader_finds_in_what_was_repaired_what_was_there(
    kafka: Kafka, real_directories: RealDirectories, tmp_path: Path
) -> None:
    """M08: one JVM for all; next to a gap of compaction a base offset may not be provable."""
    cases: list[LoadCase] = []
    expected: list[int] = []
    for topic in TOPICS:
        source = real_directories.partition("killed", topic)
        whole = tmp_path / "whole" / source.name
        shutil.copytree(source, whole)
        end = load(whole, topic)["loaded"]["logEndOffset"]
        first_case = len(cases)
        cases.append(LoadCase(source, tmp_path / f"{topic}-whole", CRASHED, DENSE))
        expected.append(first_case)
        for place in ("first", "middle", "last"):
            for field, bits in BITS.items():
                for bit in bits:
                    name = f"{topic}-{place}-{bit}"
                    copy = tmp_path / "rotten" / name / source.name
                    shutil.copytree(source, copy)
                    flip(copy, place, bit)
                    result = load(copy, topic, end if place == "last" else 0)
                    assert result["loaded"]["logEndOffset"] == end, name
                    if bytes_of(copy) != bytes_of(source):
                        assert (topic, field) == ("compacted", "base offset"), name
                        continue
                    cases.append(LoadCase(copy, tmp_path / name, CRASHED, DENSE))
                    expected.append(first_case)
    results = load_with_kafka(kafka, tmp_path, cases)
    assert len(results) > 100
    for case, result, of_whole in zip(cases, results, expected, strict=True):
        found, wanted = comparable(result), comparable(results[of_whole])
        assert found["loaded"] == wanted["loaded"], case.home.name
