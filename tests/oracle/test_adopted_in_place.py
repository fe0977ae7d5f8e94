"""Goal: the directories of Kafka 1.1, 2.8, 3.9 and 4.1 are adopted in place by one command, served
with every record, and handed back by one command to the broker that wrote them.
Method: for each version one JVM with its broker, ZooKeeper where it needs one, and clients; the
commands between two lives of the broker, on two log directories.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.format.disk.properties import decode_properties
from kafkalog.log.inspect.directory_check import verify_directory
from tests.integration.daemon import BINARY, ROOT, Daemon
from tests.oracle.in_jvm_broker import Version, in_jvm_broker

if TYPE_CHECKING:
    from pathlib import Path

    from tests.oracle.in_jvm_broker import InJvmBroker
    from tests.oracle.kafka import Kafka

pytestmark = pytest.mark.oracle

NODE_ID = 4
VERSIONS = (
    Version("kafka_2.12", "1.1.1", has_zookeeper=True),
    Version("kafka_2.13", "2.8.2", has_zookeeper=True),
    Version("kafka_2.13", "3.9.1", has_zookeeper=False),
    Version("kafka_2.13", "4.1.0", has_zookeeper=False),
)
TOPICS = {"orders": 3, "users": 1}
NEW = [f"new {number}" for number in range(20)]


def command(name: str, *arguments: object) -> Any:
    """The JSON document of a command that succeeds."""
    words = [sys.executable, "-m", "kafkalog", name, "--output", "json", *map(str, arguments)]
    result = subprocess.run(words, cwd=ROOT, capture_output=True, check=False, timeout=120)
    assert result.returncode == 0, (result.stdout, result.stderr)
    return json.loads(result.stdout)


def write(broker: InJvmBroker) -> None:
    """Keys, nulls, headers, two codecs, a transaction, a group's position."""
    for topic, partitions in TOPICS.items():
        broker.ask("create", topic, partitions)
        for partition in range(partitions):
            broker.ask("produce", topic, partition, 60, "none")
            broker.ask("produce", topic, partition, 30, "gzip")
    broker.ask("produce", "users", 0, 20, "none", "transactional")
    broker.ask("commit", "readers", "orders", 17)


def text(data: str | None) -> str:
    return "-" if data is None else f"b{data}"


def served(daemon: Daemon, topic: str) -> list[str]:
    """Every record over HTTP, as the broker's consumer prints them."""
    lines: list[str] = []
    for partition in range(TOPICS[topic]):
        base = f"/topics/{topic}/partitions/{partition}"
        position = daemon.request("GET", f"{base}/offsets").json["beginning_offset"]
        while True:
            answer = daemon.request(
                "GET", f"{base}/records?offset={position}", None, {"Accept": BINARY}
            )
            assert answer.status == 200, answer.body
            for each in answer.json:
                words = [partition, each["offset"], each["timestamp"], text(each["key"])]
                headers = [f"{h['key']}={text(h['value'])}" for h in each.get("headers") or ()]
                lines.append(" ".join(map(str, [*words, text(each["value"]), *headers])))
            following = int(answer.headers["Kafka-Next-Offset"])
            if following == position:
                break
            position = following
    return lines


def append(daemon: Daemon) -> None:
    for topic in TOPICS:
        values = [base64.b64encode(value.encode()).decode() for value in NEW]
        records = [{"value": value, "partition": 0} for value in values]
        path, body = f"/topics/{topic}", {"records": records}
        answer = daemon.request("POST", path, body, {"Content-Type": BINARY})
        assert answer.status == 200, answer.body


def roots(log_dirs: list[Path]) -> list[dict[str, str]]:
    return [decode_properties((each / "meta.properties").read_bytes()) for each in log_dirs]


@pytest.mark.parametrize("version", VERSIONS, ids=str)
def test_there_and_back(kafka: Kafka, tmp_path: Path, version: Version) -> None:
    """M01 M02 M04 M14 M25: node id 4, two log directories, twice there and once back."""
    daemon = Daemon(tmp_path, log_dirs=2)
    log_dirs = daemon.log_dirs
    home = tmp_path / "jvm"
    home.mkdir()
    with in_jvm_broker(kafka, version, home) as broker:
        broker.prepare(NODE_ID, log_dirs)
        with broker.running():
            write(broker)
            written = {topic: broker.ask("consume", topic) for topic in TOPICS}
        before = roots(log_dirs)
        planned = command("adopt", *log_dirs)
        assert roots(log_dirs) == before
        done = command("adopt", "--execute", *log_dirs)
        assert [each["file"] for each in done["changes"]] == [
            each["file"] for each in planned["changes"]
        ]
        assert command("adopt", "--execute", *log_dirs)["changes"] == []
        with daemon:
            assert daemon.request("GET", "/brokers").json == {"brokers": [NODE_ID]}
            assert {topic: served(daemon, topic) for topic in TOPICS} == written
            offsets = daemon.request("GET", "/v1/groups/readers/offsets")
            assert offsets.status == 200, offsets.body
            assert [each["offset"] for each in offsets.json["offsets"]] == [17]
            append(daemon)
            appended = {topic: served(daemon, topic) for topic in TOPICS}
            assert daemon.stop() == 0
        command("hand-back", "--execute", *log_dirs)
        assert roots(log_dirs) == before
        for log_dir in log_dirs:
            for each in log_dir.iterdir():
                if each.name.rpartition("-")[0] in TOPICS:
                    assert verify_directory(str(each), SystemFilesystem()) == []
        with broker.running():
            assert {topic: broker.ask("consume", topic) for topic in TOPICS} == appended
            for topic in TOPICS:
                broker.ask("produce", topic, 0, 15, "none")
            written = {topic: broker.ask("consume", topic) for topic in TOPICS}
        command("adopt", "--execute", *log_dirs)
        with daemon:
            assert {topic: served(daemon, topic) for topic in TOPICS} == written
