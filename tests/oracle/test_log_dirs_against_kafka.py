"""Goal: the log directories are described as Kafka's own tool describes them.
Method: kafka-log-dirs of a running broker, then our route and command on a copy of its directory.
"""

from __future__ import annotations

import json
import shutil
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.daemon import Daemon
from tests.integration.test_cli_over_http import done, run
from tests.oracle.kafka import record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.oracle.kafka import Broker

pytestmark = pytest.mark.oracle

TOOL = "org.apache.kafka.tools.LogDirsCommand"
OFFLINE_SECONDS = 60


def kafkas_lines(broker: Broker, *options: str) -> list[str]:
    """What kafka-log-dirs --describe prints."""
    output = broker.kafka.run(
        "java", TOOL, "--bootstrap-server", broker.bootstrap, "--describe", *options
    )
    return output.lines()


def shape(value: Any) -> Any:
    """Keys in their order and the kinds of the values, of lists those of their first entry."""
    if isinstance(value, dict):
        return [(key, shape(each)) for key, each in value.items()]
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


def entries(line: str) -> dict[str, dict[str, Any]]:
    """Directories by their last name: error, and the partitions in the order of their names."""
    document = json.loads(line)
    (broker,) = document["brokers"]
    assert (document["version"], broker["broker"]) == (1, 1)
    return {
        entry["logDir"].rpartition("/")[2]: {
            "error": entry["error"],
            "partitions": sorted(entry["partitions"], key=lambda each: str(each["partition"])),
        }
        for entry in broker["logDirs"]
    }


def test_the_same_directory_is_described_alike(
    new_broker: Callable[..., Broker], tmp_path: Path
) -> None:
    """M14: the same lines, keys in the same order, every partition with the same bytes."""
    broker = new_broker()
    broker.create_topic("orders", 2, internal_segment_bytes=3000)
    broker.create_topic("other")
    for number in range(4):
        lines = [record(b"key", b"v" * 400) for _ in range(5)]
        broker.produce("orders", lines, partition=number % 2)
    options: tuple[tuple[str, ...], ...] = (
        (), ("--topic-list", "other"), ("--topic-list", "nope,orders,"), ("--topic-list", "")
    )  # fmt: skip
    theirs = {names: kafkas_lines(broker, *names) for names in options}
    broker.stop()
    shutil.copytree(broker.data, tmp_path / "dir0")
    with Daemon(tmp_path) as daemon:
        for names, lines_of_kafka in theirs.items():
            ours = done(run(daemon, "dirs", "describe", *names)).decode().splitlines()
            assert ours[:-1] == lines_of_kafka[:-1]
            assert shape(json.loads(ours[-1])) == shape(json.loads(lines_of_kafka[-1])), names
            (mine,), (kafkas,) = entries(ours[-1]).values(), entries(lines_of_kafka[-1]).values()
            assert mine == kafkas, names
    assert len(entries(theirs[()][-1])["data"]["partitions"]) == 3
    assert len(entries(theirs[options[2]][-1])["data"]["partitions"]) == 2


def test_an_offline_directory_is_described_alike(
    new_broker: Callable[..., Broker], tmp_path: Path
) -> None:
    """M15: no partitions, and the error that Kafka's tool names; a topic's lines as Kafka's."""
    broker = new_broker(
        f"log.dirs={tmp_path}/dir0,{tmp_path}/dir1",
        f"metadata.log.dir={tmp_path}/dir0",
        "log.flush.offset.checkpoint.interval.ms=500",
    )
    broker.create_topic("t", 4)
    # The tool that creates a topic does not wait for its directories.
    before = kafkas_when(broker, lambda dirs: sum(len(e["partitions"]) for e in dirs.values()) == 4)
    take_away(tmp_path / "dir1")
    theirs = kafkas_when(broker, lambda dirs: dirs["dir1"]["error"] is not None)
    assert theirs["dir0"] == before["dir0"]
    topics = ("topics", "--bootstrap-server", broker.bootstrap)
    described = states(broker.kafka.run(*topics, "--describe", "--topic", "t").lines())

    with Daemon(
        tmp_path / "ours",
        log_dirs=2,
        environment=None,
        log_initial_task_delay_ms="0",
        log_flush_offset_checkpoint_interval_ms="500",
    ) as daemon:
        daemon.create_topic("t", 4)
        take_away(daemon.log_dirs[1])
        deadline = time.monotonic() + OFFLINE_SECONDS
        while not daemon.request("GET", "/readyz").json["offline_log_dirs"]:
            assert time.monotonic() < deadline
        ours = entries(done(run(daemon, "dirs", "describe")).decode().splitlines()[-1])
        assert ours["dir1"] == theirs["dir1"]
        assert ours["dir0"]["error"] is None
        assert len(ours["dir0"]["partitions"]) == 2
        shown = done(run(daemon, "topics", "describe", "t")).decode().splitlines()
        assert states(shown) == described


def kafkas_when(
    broker: Broker, is_so: Callable[[dict[str, dict[str, Any]]], bool]
) -> dict[str, dict[str, Any]]:
    """Kafka's entries once they are as wanted."""
    deadline = time.monotonic() + OFFLINE_SECONDS
    while not is_so(found := entries(kafkas_lines(broker)[-1])):
        assert time.monotonic() < deadline, found
    return found


def states(lines: list[str]) -> list[str]:
    """Of a described topic: what is said of its partitions, without their numbers, sorted."""
    return sorted(line.partition("\tLeader: ")[2] for line in lines[1:])


def take_away(directory: Path) -> None:
    """As a disk that is gone: a file in its place."""
    directory.rename(directory.with_name("gone"))
    directory.write_bytes(b"no directory")
