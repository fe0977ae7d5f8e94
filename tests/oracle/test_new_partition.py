"""Goal: a partition that has just been created looks as Kafka makes it, byte for byte.
Method: a topic in a running Kafka and one in a manager on a real directory, their files compared.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.log.log_config import LogConfig
from tests.sim.sim_manager import SimManager

if TYPE_CHECKING:
    from pathlib import Path

    from tests.oracle.kafka import Broker

pytestmark = pytest.mark.oracle

EPOCHS = "leader-epoch-checkpoint"


def kafkas_files(directory: Path) -> dict[str, bytes]:
    """Once the leader has noted its epoch, which is the last thing it does."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if (directory / EPOCHS).exists() and (directory / EPOCHS).stat().st_size:
            return {path.name: path.read_bytes() for path in directory.iterdir()}
        time.sleep(0.1)  # another process
    raise AssertionError("Kafka made no epoch checkpoint before the first append")


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
