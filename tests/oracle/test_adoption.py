"""Goal: data moves from Kafka to kafkalog and back, backed up, new or with aborted transactions,
and every record of both is still there.
Method: a real broker and a daemon in turns over the same directories; Kafka's own dump.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.cli.offline.scan import record_line
from kafkalog.client import Client
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
from kafkalog.log.log_config import LogConfig
from tests.integration.daemon import BINARY, Daemon
from tests.integration.http_world import until
from tests.integration.test_backup import manifest_of, restore
from tests.integration.test_cli_over_http import done, run
from tests.oracle.kafka import action, files_in, record
from tests.oracle.real_directories import TOPICS, TRIMMED_TO
from tests.sim.sim_manager import SimManager

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kafkalog.format.disk.backup_manifest import BackupPartition
    from tests.oracle.kafka import Broker, Kafka
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
    state = str(request.param)
    root = tmp_path_factory.mktemp(f"adopted-{state}")
    shutil.copytree(getattr(real_directories, state), root / "dir0")
    with Daemon(root) as daemon:
        yield state, daemon


def expected_lines(directories: RealDirectories, state: str, topic: str) -> list[str]:
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
    check_dump(kafka, tmp_path / "dump", *(tmp_path / "dir0" / f"{topic}-0" for topic in TOPICS))
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


def check_dump(kafka: Kafka, home: Path, *directories: Path) -> None:
    """Copies in ``home`` have nothing to find but gaps: offsets that compaction took."""
    for each in directories:
        assert verify_directory(str(each), SystemFilesystem()) == []
    files = files_in(*(shutil.copytree(each, home / each.name) for each in directories))
    assert kafka.dump("--files", files, "--index-sanity-check").stderr == ""
    found = kafka.dump("--files", files).stderr.splitlines()
    assert not [line for line in found if line and not re.search("consecutive|followed by", line)]


NEW = [f"new {number}" for number in range(40)]


def append_all(daemon: Daemon) -> None:
    """Some batches to every topic, over a roll."""
    for topic in TOPICS:
        for start in range(0, len(NEW), 4):
            append_over_http(daemon, topic, NEW[start : start + 4])


@pytest.mark.parametrize("how", ["link", "copy"])
def test_kafka_takes_a_backup(
    kafka: Kafka, real_directories: RealDirectories, tmp_path: Path, how: str
) -> None:
    """Transactions, gaps of compaction and a moved log start come along; later records do not."""
    shutil.copytree(real_directories.killed, tmp_path / "dir0")
    backup, restored = tmp_path / "backup", tmp_path / "restored"
    with Daemon(tmp_path) as daemon:
        append_all(daemon)
        served = {topic: list(raw_lines(daemon, topic)) for topic in TOPICS}
        committed = {
            topic: json_records(daemon, topic, "&isolation=read_committed") for topic in TOPICS
        }
        options = ("--copy",) if how == "copy" else ()
        done(run(daemon, "backup", str(backup), *options))
        append_all(daemon)
        daemon.kill()
    result = restore(backup, "--to", restored)
    assert result.returncode == 0, result.stderr
    assert result.stderr == b""
    (log_dir,) = manifest_of(backup).log_dirs
    every = {each.topic_partition.topic: each for each in log_dir.partitions}
    partitions = {topic: every[topic] for topic in TOPICS}  # Kafka's own topics are there, too
    for topic, partition in partitions.items():
        for place in (backup / log_dir.name, restored):
            check_directory(kafka, place / f"{topic}-0", partition, served[topic], tmp_path)
    copy = Daemon(tmp_path / "copy")
    copy.log_dirs = [shutil.copytree(restored, tmp_path / "started")]
    with copy:
        for topic in TOPICS:
            assert list(raw_lines(copy, topic)) == served[topic]
            assert json_records(copy, topic, "&isolation=read_committed") == committed[topic]
    broker = real_directories.broker
    for topic, partition in partitions.items():
        start = partition.log_start_offset
        broker.plant(f"{topic}-0", restored / f"{topic}-0", "recover", log_start=start)
    broker.start()
    try:
        for topic in TOPICS:
            first = json.loads(served[topic][0])["offset"]
            assert broker.consume(topic, from_offset=first) == served[topic]
            shown = broker.consume(topic, from_offset=first, committed=True)
            offsets = [json.loads(line)["offset"] for line in shown]
            assert offsets == [each[0] for each in committed[topic]]
    finally:
        broker.stop()


def check_directory(
    kafka: Kafka, path: Path, partition: BackupPartition, served: list[str], tmp_path: Path
) -> None:
    """Nothing to find for our check and Kafka's tool; Kafka's loader ends where we said."""
    home = tmp_path / "kafka" / path.parent.name
    start, end = partition.log_start_offset, partition.end_offset
    options = ("--recovery-point", str(end), "--log-start", str(start))
    loaded = kafka.load(path, home / path.name, *options)["loaded"]
    assert (loaded["logStartOffset"], loaded["logEndOffset"]) == (start, end)
    check_dump(kafka, home / "dump", path)
    scanned = kafka.scan(home / "dump" / path.name, json.loads(served[0])["offset"])
    assert scanned == served


EPOCHS = "leader-epoch-checkpoint"


def kafkas_files(directory: Path) -> dict[str, bytes]:
    """Once the leader has noted its epoch, which is the last thing it does."""
    epochs = directory / EPOCHS
    until(lambda: epochs.exists() and epochs.stat().st_size, "no epoch before the first append")
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_a_new_partition_has_kafkas_files(broker: Broker) -> None:
    """M02: names, preallocated sizes and the first leader epoch, before any append."""
    broker.create_topic("new-partition")
    kafkas = kafkas_files(broker.data / "new-partition-0")
    sim = SimManager(config=BrokerConfig(log_dirs=("/data/a",)), topic_defaults=LogConfig()).start()
    sim.operations.topics.create("new-partition", 1)
    directory = "/data/a/new-partition-0"
    ours = {
        name: sim.disk.read_file(f"{directory}/{name}") for name in sim.disk.list_dir(directory)
    }
    assert ours.keys() == kafkas.keys()
    assert ours[EPOCHS] == kafkas[EPOCHS] == b"0\n1\n0 0\n"
    metadata = "partition.metadata"
    assert len(ours.pop(metadata)) == len(kafkas.pop(metadata))
    assert ours == kafkas


def test_kafka_reads_on_behind_our_marker(
    kafka: Kafka, new_broker: Callable[..., Broker], tmp_path: Path
) -> None:
    """M04 M25: nothing behind the open transaction is readable before, all but its own after.

    Method: a producer that has committed before, so that the log knows its coordinator; the dump of
    our marker; a broker with our indexes and snapshots, and one that makes its own.
    """
    written = new_broker()
    written.create_topic("t")
    committed = [action("begin"), record(b"k", b"a"), action("flush"), action("commit")]
    opened = [action("begin"), record(b"k", b"open"), action("flush")]
    written.produce("t", [*committed, *opened], "--transactional", "tx", "--abandon")
    written.produce("t", [record(b"k", b"b")])
    written.stop()
    adopting = Daemon(tmp_path)
    shutil.copytree(written.data / "t-0", adopting.log_dirs[0] / "t-0")
    with adopting as daemon:
        with Client(f"http://127.0.0.1:{daemon.port}") as client:
            seen = client.fetch("t", 0, 0, isolation="read_committed")
            assert [each.value for each in seen.records] == [b"a"]
            (entry,) = client.describe_producers("t", 0)
            start_offset = entry["current_transaction_start_offset"]
            client.abort_transaction("t", 0, start_offset)
        daemon.stop()
    directory = adopting.log_dirs[0] / "t-0"
    dumped = kafka.dump("--deep-iteration", "--files", next(directory.glob("*.log"))).stdout
    assert "isvalid: false" not in dumped
    assert dumped.count("endTxnMarker: ABORT") == 1
    for mode in ("clean", "recover"):
        reader = new_broker()
        reader.create_topic("t")
        reader.stop()
        reader.plant("t-0", directory, mode)
        reader.start()
        lines = reader.consume("t", committed=True)
        assert [base64.b64decode(json.loads(each)["value"]) for each in lines] == [b"a", b"b"]
