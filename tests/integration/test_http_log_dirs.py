"""Goal: an operator sees what lies in each log directory and what is offline, in Kafka's shape.
Method: a real daemon over two directories, one of which is taken away; route and command line.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.daemon import Daemon
from tests.integration.http_world import append, batch_of, check_sealed
from tests.integration.test_cli_over_http import done, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OFFLINE = "org.apache.kafka.common.errors.KafkaStorageException"


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon over two directories, with partitions in both."""
    with Daemon(tmp_path_factory.mktemp("dirs"), log_dirs=2) as daemon:
        fill(daemon)
        yield daemon


def fill(daemon: Daemon) -> None:
    """Four partitions over the directories, two of them with records."""
    daemon.create_topic("orders", 3, internal_segment_bytes="1000")
    daemon.create_topic("other", 1)
    for partition in range(3):
        for _ in range(partition):
            batch = batch_of(b"v" * 100)
            assert append(daemon, "orders", batch, partition=partition).status == 200


def described(daemon: Daemon, query: str = "") -> list[dict[str, Any]]:
    """The entries of the one broker."""
    answer = daemon.request("GET", f"/v1/log-dirs{query}")
    assert answer.status == 200
    check_sealed(answer)
    assert answer.headers["Content-Type"] == "application/json"
    assert list(answer.json) == ["version", "brokers"]
    assert answer.json["version"] == 1
    (broker,) = answer.json["brokers"]
    assert list(broker) == ["broker", "logDirs"]
    assert broker["broker"] == 1
    entries: list[dict[str, Any]] = broker["logDirs"]
    return entries


def names(entries: list[dict[str, Any]]) -> list[str]:
    """Partitions of all directories."""
    return sorted(each["partition"] for entry in entries for each in entry["partitions"])


def test_partitions_sizes_and_space(two: Daemon) -> None:
    """M14: every partition once, with the bytes of its .log files; the file system's bytes."""
    entries = described(two)
    assert [entry["logDir"] for entry in entries] == [str(path) for path in two.log_dirs]
    assert names(entries) == ["orders-0", "orders-1", "orders-2", "other-0"]
    for entry in entries:
        assert (entry["error"], entry["reason"], entry["isCordoned"]) == (None, None, False)
        usage = shutil.disk_usage(entry["logDir"])
        assert entry["totalBytes"] == usage.total
        assert 0 < entry["usableBytes"] <= usage.total
        for partition in entry["partitions"]:
            assert list(partition) == ["partition", "size", "offsetLag", "isFuture"]
            assert (partition["offsetLag"], partition["isFuture"]) == (0, False)
            files = (path for log_dir in two.log_dirs for path in log_dir.glob("*/*.log"))
            own = (path for path in files if path.parent.name == partition["partition"])
            assert partition["size"] == sum(path.stat().st_size for path in own)


def test_only_some_topics(two: Daemon) -> None:
    """M14: lists with commas, several parameters, empties; unknown names have no partitions."""
    assert names(described(two, "?topics=other")) == ["other-0"]
    for query in ("?topics=other,orders", "?topics=other&topics=orders", "?topics=", "?topics=,"):
        assert len(names(described(two, query))) == 4, query
    for query in ("?topics=nope", "?topics=..%2Forders", "?topics=%00", "?topics=orders-0"):
        entries = described(two, query)
        assert len(entries) == 2
        assert names(entries) == []


def test_the_command_line(two: Daemon) -> None:
    """M14: kafka-log-dirs' three lines, directories in order; the whole answer as JSON."""
    result = run(two, "dirs", "describe", "--topics", "other,nope")
    first, second, last = done(result).decode().splitlines()
    assert result.stderr == b""
    assert first == "Querying brokers for log directories information"
    assert second == "Received log directory information from brokers 1"
    size = '{"partition":"other-0","size":0,"offsetLag":0,"isFuture":false}'
    lists = [size if path.joinpath("other-0").exists() else "" for path in two.log_dirs]
    by_path = {
        str(path): f'{{"partitions":[{partitions}],"error":null,"logDir":"{path}"}}'
        for partitions, path in zip(lists, two.log_dirs, strict=True)
    }
    entries = ",".join(by_path.values())
    assert last == f'{{"brokers":[{{"broker":1,"logDirs":[{entries}]}}],"version":1}}'
    document = json.loads(done(run(two, "dirs", "describe", "--output", "json")))
    (broker,) = document["brokers"]
    assert names(broker["logDirs"]) == ["orders-0", "orders-1", "orders-2", "other-0"]
    assert all(entry["usableBytes"] > 0 for entry in broker["logDirs"])
    assert run(None, "dirs", "describe").returncode == 1


def test_an_offline_directory(tmp_path: Path) -> None:
    """M15: Kafka's error, the reason, nothing else of it; the other directory is described."""
    with Daemon(tmp_path, log_dirs=2) as daemon:
        fill(daemon)
        before = {entry["logDir"]: entry for entry in described(daemon)}
        lost = next(path for path in daemon.log_dirs if path.joinpath("orders-1").exists())
        kept = next(path for path in daemon.log_dirs if path != lost)
        lost.rename(tmp_path / "gone")
        lost.write_bytes(b"no directory")
        for _ in range(30):
            if append(daemon, "orders", batch_of(b"v" * 100), partition=1).status != 200:
                break
        entries = {entry["logDir"]: entry for entry in described(daemon)}
        bad, good = entries[str(lost)], entries[str(kept)]
        assert bad["error"] == OFFLINE
        assert bad["reason"].startswith(f"Log directory {lost} failed: ")
        assert (bad["totalBytes"], bad["usableBytes"], bad["partitions"]) == (-1, -1, [])
        assert good["error"] is None
        assert good["partitions"] == before[str(kept)]["partitions"]
        result = run(daemon, "dirs", "describe")
        entry = f'{{"partitions":[],"error":"{OFFLINE}","logDir":"{lost}"}}'
        assert entry in done(result).decode()
        assert result.stderr.decode() == f"{lost} is offline: {bad['reason']}\n"
