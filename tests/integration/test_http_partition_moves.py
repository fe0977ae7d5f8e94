"""Goal: log directories are described in Kafka's shape; a partition moves between them under load,
and every acknowledged record is there once.
Method: a real daemon over two directories; producers and a reader while partitions move to and fro,
also past a SIGKILL; routes and command line.
"""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.daemon import Daemon
from tests.integration.http_world import (
    append,
    batch_of,
    check_sealed,
    read_batches,
    refused,
    until,
)
from tests.integration.test_cli_over_http import done, run
from tests.partition_world import records_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Daemon]:
    with Daemon(tmp_path, log_dirs=2) as daemon:
        yield daemon


def move(daemon: Daemon, number: int, topic: str = "t", partition: int = 0) -> dict[str, Any]:
    """Ask for a move into the numbered directory; its entry."""
    wanted = {"topic": topic, "partition": partition, "log_dir": str(daemon.log_dirs[number])}
    answer = daemon.request("POST", "/v1/partition-moves", {"moves": [wanted]})
    assert answer.status == 200, answer.body
    (entry,) = answer.json["moves"]
    return dict(entry)


def ended(daemon: Daemon) -> dict[str, Any]:
    def the_move() -> dict[str, Any]:
        (entry,) = daemon.request("GET", "/v1/partition-moves").json["moves"]
        return dict(entry)

    until(lambda: the_move()["state"] != "copying", "the move did not end")
    return the_move()


class Producer(threading.Thread):
    """Appends numbered values until it is stopped; a 503 is tried again."""

    def __init__(self, daemon: Daemon, name: str) -> None:
        super().__init__()
        self.daemon_process = daemon
        self.prefix = name
        self.acknowledged: dict[int, bytes] = {}
        self.unavailable = 0
        self.is_stopped = threading.Event()

    def run(self) -> None:
        number = 0
        while not self.is_stopped.is_set():
            value = f"{self.prefix} {number} ".encode() + b"x" * 2000
            answer = append(self.daemon_process, "t", batch_of(value))
            if answer.status == 503:
                self.unavailable += 1
                continue
            assert answer.status == 200, answer.body
            self.acknowledged[answer.json["base_offset"]] = value
            number += 1


def everything(daemon: Daemon) -> dict[int, bytes]:
    """Offset -> value, read from the start."""
    values: dict[int, bytes] = {}
    offset = 0
    while True:
        answer = read_batches(daemon, "t", offset)
        if answer.status == 204:
            return values
        assert answer.status == 200, answer.body
        records = records_of(answer.body)
        values.update({record.offset: record.value or b"" for record in records})
        offset = records[-1].offset + 1


def test_moves_under_load(two: Daemon) -> None:
    """To and fro under load: each acknowledged record is there once, also after a SIGKILL."""
    two.create_topic("t", 1, segment_bytes="1048576")
    for _ in range(30):
        assert append(two, "t", batch_of(b"y" * 100_000)).status == 200
    producers = [Producer(two, name) for name in ("first", "second")]
    for producer in producers:
        producer.start()
    try:
        for turn in range(4):
            assert move(two, (turn + 1) % 2)["state"] in ("copying", "done")
            read = everything(two)
            entry = ended(two)
            assert (entry["state"], entry["offset_lag"]) == ("done", 0), entry
            assert len(read) >= 30
    finally:
        for producer in producers:
            producer.is_stopped.set()
            producer.join()
    acknowledged = {**producers[0].acknowledged, **producers[1].acknowledged}
    assert len(acknowledged) == sum(len(each.acknowledged) for each in producers) > 20
    expected = everything(two)
    for offset, value in acknowledged.items():
        assert expected[offset] == value
    assert sorted(expected) == list(range(30 + len(acknowledged)))
    two.kill()
    two.start()
    assert everything(two) == expected


def test_a_move_goes_on_after_a_kill(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, log_dirs=2, replica_alter_log_dirs_io_max_bytes_per_second="1000")
    with daemon:
        daemon.create_topic("t", 1, segment_bytes="1048576")
        for _ in range(20):
            assert append(daemon, "t", batch_of(b"y" * 100_000)).status == 200
        expected = everything(daemon)
        assert move(daemon, 1)["state"] == "copying"
        here, there = described(daemon)
        assert [each["isFuture"] for each in here["partitions"]] == [False]
        assert [each["isFuture"] for each in there["partitions"]] == [True]
        daemon.kill()
        daemon.overrides = {}
        daemon.start()
        assert ended(daemon)["state"] == "done"
        assert everything(daemon) == expected
        here, there = described(daemon)
        assert here["partitions"] == []
        (moved,) = there["partitions"]
        assert (moved["partition"], moved["isFuture"], moved["offsetLag"]) == ("t-0", False, 0)


def test_refusals_and_cancel(tmp_path: Path) -> None:
    slow = {"replica_alter_log_dirs_io_max_bytes_per_second": "1000"}
    with Daemon(tmp_path, environment=None, log_dirs=2, **slow) as daemon:
        daemon.create_topic("t", 1, segment_bytes="1048576")
        for _ in range(20):
            assert append(daemon, "t", batch_of(b"y" * 100_000)).status == 200
        assert move(daemon, 1, "none")["error_code"] == 40401
        refused(daemon.request("POST", "/v1/partition-moves", {"moves": []}), 400, 40002)
        refused(daemon.request("DELETE", "/v1/partition-moves/t/0"), 404, 40410)
        assert move(daemon, 1)["state"] == "copying"
        answer = daemon.request("DELETE", "/v1/partition-moves/t/0")
        assert (answer.status, answer.json["state"]) == (200, "cancelled")
        assert [each["partitions"] for each in described(daemon)][1] == []


def test_moves_on_the_command_line(two: Daemon) -> None:
    two.create_topic("t", 2)
    there = str(two.log_dirs[1])
    (here,) = (each["partition"] for each in described(two)[0]["partitions"])
    lines = done(run(two, "dirs", "move", here, "--to", there, "--wait")).decode().splitlines()
    assert lines[0].split()[:2] == ["PARTITION", "STATE"]
    assert lines[1].split()[:2] == [here, "done"]
    (entry,) = json.loads(done(run(two, "dirs", "moves", "--output", "json")))
    assert (entry["target"], entry["state"]) == (there, "done")
    both = done(run(two, "dirs", "move", here, "t-1", "--to", there, "--wait"))
    assert [line.split()[1] for line in both.splitlines()[1:]] == [b"done", b"done"]
    result = run(two, "dirs", "move", here, "none-0", "--to", there)
    assert result.returncode == 3
    assert b"refused" in result.stdout
    assert run(two, "dirs", "move", "none-0", "none-1", "--to", there).returncode == 1
    nowhere = run(two, "dirs", "move", here, "--to", "nowhere")
    assert f"an absolute path: {two.log_dirs[0]}, {there}".encode() in nowhere.stdout
    result = run(two, "dirs", "cancel-move", here)
    assert result.returncode == 1
    assert b"not being moved" in result.stderr
    assert run(two, "dirs", "move", "nonumber", "--to", there).returncode == 2


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("dirs"), log_dirs=2) as daemon:
        fill(daemon)
        yield daemon


def fill(daemon: Daemon) -> None:
    daemon.create_topic("orders", 3, internal_segment_bytes="1000")
    daemon.create_topic("other", 1)
    for partition in range(3):
        for _ in range(partition):
            batch = batch_of(b"v" * 100)
            assert append(daemon, "orders", batch, partition=partition).status == 200


def described(daemon: Daemon, query: str = "") -> list[dict[str, Any]]:
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
    return sorted(each["partition"] for entry in entries for each in entry["partitions"])


def test_directories_on_the_command_line(four: Daemon) -> None:
    """M14: kafka-log-dirs' three lines, directories in order; the whole answer as JSON."""
    result = run(four, "dirs", "describe", "--topics", "other,nope")
    first, second, last = done(result).decode().splitlines()
    assert result.stderr == b""
    assert first == "Querying brokers for log directories information"
    assert second == "Received log directory information from brokers 1"
    size = '{"partition":"other-0","size":0,"offsetLag":0,"isFuture":false}'
    lists = [size if path.joinpath("other-0").exists() else "" for path in four.log_dirs]
    by_path = {
        str(path): f'{{"partitions":[{partitions}],"error":null,"logDir":"{path}"}}'
        for partitions, path in zip(lists, four.log_dirs, strict=True)
    }
    entries = ",".join(by_path.values())
    assert last == f'{{"brokers":[{{"broker":1,"logDirs":[{entries}]}}],"version":1}}'
    document = json.loads(done(run(four, "dirs", "describe", "--output", "json")))
    (broker,) = document["brokers"]
    assert names(broker["logDirs"]) == ["orders-0", "orders-1", "orders-2", "other-0"]
    assert all(entry["usableBytes"] > 0 for entry in broker["logDirs"])
    assert run(None, "dirs", "describe").returncode == 1
