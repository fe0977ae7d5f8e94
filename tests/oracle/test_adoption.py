"""Goal: data moves from Kafka to kafkalog and back, and every record of both is still there.

Method: a daemon adopts a broker's data directory, serves and appends; the broker gets it back.
"""

from __future__ import annotations

import base64
import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.cli.offline.scan import record_line
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.format.records.record import iterate_records
from kafkalog.format.records.record_batch import (
    TimestampType,
    is_control,
    is_crc_valid,
    read_header,
    timestamp_type_of,
)
from kafkalog.log.inspect.directory_check import verify_directory
from tests.integration.daemon import BINARY, Daemon
from tests.oracle.real_directories import TOPICS, TRIMMED_TO

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.oracle.kafka import Kafka
    from tests.oracle.real_directories import RealDirectories

pytestmark = pytest.mark.oracle

BATCHES = "application/vnd.kafka.record-batches"
TIMESTAMP_TYPES = {
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}
STATES = ("stopped", "killed")


def as_kafka_shows(line: str) -> tuple[Any, ...]:
    """One line of Kafka's consumer without the timestamp type, which JSON answers lack."""
    record = json.loads(line)
    headers = [(name, value) for name, value in record["headers"]]
    return record["offset"], record["timestamp"], record["key"], record["value"], headers


def as_http_shows(record: dict[str, Any]) -> tuple[Any, ...]:
    headers = [(header["key"], header["value"]) for header in record.get("headers") or ()]
    return record["offset"], record["timestamp"], record["key"], record["value"], headers


def json_records(daemon: Daemon, topic: str, query: str = "") -> list[tuple[Any, ...]]:
    """Every record over the JSON route."""
    base = f"/topics/{topic}/partitions/0"
    position = daemon.request("GET", f"{base}/offsets").json["beginning_offset"]
    records: list[tuple[Any, ...]] = []
    while True:
        path = f"{base}/records?offset={position}&max_bytes=9000{query}"
        answer = daemon.request("GET", path, None, {"Accept": BINARY})
        assert answer.status == 200, answer.body
        following = int(answer.headers["Kafka-Next-Offset"])
        records += map(as_http_shows, answer.json)
        if following == position:
            return records
        position = following


def raw_lines(daemon: Daemon, topic: str) -> Iterator[str]:
    """Every data record over the route of raw batches, as lines of Kafka's consumer."""
    base = f"/topics/{topic}/partitions/0"
    offsets = daemon.request("GET", f"{base}/offsets").json
    position, start = offsets["beginning_offset"], offsets["beginning_offset"]
    while position < offsets["end_offset"]:
        answer = daemon.request("GET", f"/v1{base}/batches?offset={position}&max_bytes=9000")
        assert answer.status == 200, answer.body
        data = memoryview(answer.body)
        while data:
            header = read_header(data)
            batch, data = data[: header.size_bytes], data[header.size_bytes :]
            assert is_crc_valid(batch)
            position = header.next_offset
            if not is_control(header.attributes):
                stamp = TIMESTAMP_TYPES[timestamp_type_of(header.attributes)]
                for record in iterate_records(batch):
                    if record.offset >= start:
                        yield record_line(record, stamp).removesuffix("\n")


@pytest.fixture(scope="module", params=STATES)
def adopted(
    request: pytest.FixtureRequest,
    real_directories: RealDirectories,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[str, Daemon]]:
    """A daemon on a copy of the broker's data directory."""
    state = str(request.param)
    root = tmp_path_factory.mktemp(f"adopted-{state}")
    shutil.copytree(getattr(real_directories, state), root / "dir0")
    with Daemon(root) as daemon:
        yield state, daemon


def expected_lines(directories: RealDirectories, state: str, topic: str) -> list[str]:
    """What Kafka's consumer read of that directory."""
    if (state, topic) == ("killed", "trimmed"):
        return directories.killed_trimmed
    return directories.consumed[topic]


def test_every_record_is_served(
    adopted: tuple[str, Daemon], real_directories: RealDirectories
) -> None:
    """M01 M02 M14: over JSON and as raw batches, after a clean stop and after a crash."""
    state, daemon = adopted
    for topic in TOPICS:
        expected = expected_lines(real_directories, state, topic)
        assert json_records(daemon, topic) == [as_kafka_shows(line) for line in expected]
        assert list(raw_lines(daemon, topic)) == expected


def test_read_committed_hides_what_kafka_hides(
    adopted: tuple[str, Daemon], real_directories: RealDirectories
) -> None:
    """M22 M25: aborted and open transactions."""
    _, daemon = adopted
    for topic, expected in real_directories.committed.items():
        found = json_records(daemon, topic, "&isolation=read_committed")
        assert found == [as_kafka_shows(line) for line in expected]


def append_over_http(daemon: Daemon, topic: str, values: list[str]) -> None:
    """One JSON produce request."""
    encoded = [base64.b64encode(value.encode()).decode() for value in values]
    answer = daemon.request(
        "POST",
        f"/topics/{topic}",
        {"records": [{"key": text, "value": text, "partition": 0} for text in encoded]},
        {"Content-Type": BINARY},
    )
    assert answer.status == 200, answer.body


@pytest.mark.parametrize("mode", ["clean", "recover"])
def test_a_broker_takes_its_directory_back(
    kafka: Kafka, real_directories: RealDirectories, tmp_path: Path, mode: str
) -> None:
    """M02 M04 M05 M07 M14 M25: old and new records, trusted as they are and recovered."""
    state = "stopped" if mode == "clean" else "killed"
    shutil.copytree(getattr(real_directories, state), tmp_path / "dir0")
    values = [f"new {number}" for number in range(200)]
    with Daemon(tmp_path) as daemon:
        for topic in TOPICS:
            for start in range(0, len(values), 20):
                append_over_http(daemon, topic, values[start : start + 20])
        served = {topic: list(raw_lines(daemon, topic)) for topic in TOPICS}
        assert daemon.stop() == 0
    files = []
    for topic in TOPICS:
        directory = tmp_path / "dir0" / f"{topic}-0"
        assert verify_directory(str(directory), SystemFilesystem()) == []
        copy = shutil.copytree(directory, tmp_path / "dump" / directory.name)
        files += sorted(str(path) for path in copy.iterdir() if path.name[0].isdigit())
    dumped = kafka.dump("--files", ",".join(files), "--index-sanity-check")
    assert dumped.stderr == ""
    dumped = kafka.dump("--files", ",".join(files))
    assert without_gaps(dumped.stderr) == []
    broker = real_directories.broker
    for topic in TOPICS:
        log_start = TRIMMED_TO if (state, topic) == ("stopped", "trimmed") else None
        broker.plant(f"{topic}-0", tmp_path / "dir0" / f"{topic}-0", mode, log_start=log_start)
    broker.start()
    try:
        for topic in TOPICS:
            expected = served[topic]
            assert broker.consume(topic, from_offset=json.loads(expected[0])["offset"]) == expected
            new = [json.loads(line)["value"] for line in expected[-len(values) :]]
            assert [base64.b64decode(value).decode() for value in new] == values
    finally:
        broker.stop()


def without_gaps(report: str) -> list[str]:
    """Findings of DumpLogSegments but for offsets that compaction took."""
    lines = [line for line in report.splitlines() if line]
    return [line for line in lines if "consecutive" not in line and "followed by" not in line]
