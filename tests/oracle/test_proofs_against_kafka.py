"""Goal: kafkalog.checkpoint proves nothing that a Kafka has changed, and its attacks end alike on
directories that Kafka wrote.
Method: a daemon on copies of a broker's data directory, lines changed between its lives; a broker
that leads a partition of ours.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kafkalog.format.disk.checkpoints import (
    decode_leader_epochs,
    decode_offsets,
    encode_offsets,
)
from kafkalog.format.disk.log_proofs import decode_proofs, encode_proofs
from kafkalog.format.topic_names import TopicPartition
from tests.integration.daemon import Daemon
from tests.oracle.real_directories import TRIMMED_TO

if TYPE_CHECKING:
    from pathlib import Path

    from tests.oracle.kafka import Kafka
    from tests.oracle.real_directories import RealDirectories

pytestmark = pytest.mark.oracle

TRIMMED, PLAIN = TopicPartition("trimmed", 0), TopicPartition("plain", 0)


def starts(daemon: Daemon) -> dict[str, int]:
    """First offset of each topic."""
    topics = ("trimmed", "plain", "compacted")
    paths = {topic: f"/topics/{topic}/partitions/0/offsets" for topic in topics}
    return {
        topic: daemon.request("GET", path).json["beginning_offset"] for topic, path in paths.items()
    }


def told(daemon: Daemon) -> list[str]:
    """Logs whose starts contradict, as the log says; it begins anew."""
    lines = [json.loads(line) for line in daemon.log_path.read_text().splitlines() if "{" in line]
    daemon.log_path.write_text("")
    return sorted(
        line["partition"] for line in lines if line.get("event") == "log_starts_contradict"
    )


@pytest.mark.parametrize("state", ["stopped", "killed"])
def test_rotten_lines_of_a_kafka(
    real_directories: RealDirectories, tmp_path: Path, state: str
) -> None:
    """Adopted, stopped, and then a line lowered and another one raised."""
    root = tmp_path / "dir0"
    shutil.copytree(getattr(real_directories, state), root)
    path = root / "log-start-offset-checkpoint"
    daemon = Daemon(tmp_path)
    daemon.start()
    before = starts(daemon)
    assert told(daemon) == []
    assert daemon.stop() == 0
    _, entries = decode_proofs((root / "kafkalog.checkpoint").read_bytes())
    assert not any(each.is_gapless for each in entries.values()), "none was made here"
    for topic, offset in ((TRIMMED, TRIMMED_TO - 1), (PLAIN, 30)):
        lines = decode_offsets(path.read_bytes())
        path.write_bytes(encode_offsets({**lines, topic: offset}))
    daemon.start()
    lowered = ["trimmed-0"] if before["trimmed"] == TRIMMED_TO else []
    assert starts(daemon) == {**before, "plain": 30, "trimmed": max(before["trimmed"], 56)}
    assert told(daemon) == sorted(["plain-0", *(lowered or ["trimmed-0"])])
    assert daemon.stop() == 0


def test_what_a_kafka_moved_counts(real_directories: RealDirectories, tmp_path: Path) -> None:
    """Our file is from before Kafka deleted records: its leader epochs begin at the new start."""
    root = tmp_path / "dir0"
    shutil.copytree(real_directories.stopped, root)
    daemon = Daemon(tmp_path)
    daemon.start()
    assert daemon.stop() == 0
    epochs = real_directories.partition("stopped", "trimmed") / "leader-epoch-checkpoint"
    assert decode_leader_epochs(epochs.read_bytes())[0][1] == TRIMMED_TO
    path = root / "kafkalog.checkpoint"
    directory_id, entries = decode_proofs(path.read_bytes())
    old = {key: replace(entry, log_start_offset=0) for key, entry in entries.items()}
    path.write_bytes(encode_proofs(directory_id, old))
    daemon.start()
    assert starts(daemon)["trimmed"] == TRIMMED_TO
    assert told(daemon) == []
    assert daemon.stop() == 0


def test_a_kafka_that_leads_ends_gaplessness(
    kafka: Kafka, real_directories: RealDirectories, tmp_path: Path
) -> None:
    """It begins an epoch of its own; from then on it may compact without touching our file."""
    with Daemon(tmp_path) as daemon:
        daemon.create_topic("plain")
        daemon.produce_text("plain", *(f"v{number}" for number in range(40)))
    root = tmp_path / "dir0"
    _, entries = decode_proofs((root / "kafkalog.checkpoint").read_bytes())
    assert [each.is_gapless for each in entries.values()] == [True]
    epochs = root / "plain-0" / "leader-epoch-checkpoint"
    assert decode_leader_epochs(epochs.read_bytes()) == [(0, 0)]
    broker = real_directories.broker
    broker.plant("plain-0", root / "plain-0", "clean")
    broker.start()
    try:
        assert len(broker.consume("plain", from_offset=0)) == 40
    finally:
        broker.stop()
    found = decode_leader_epochs((broker.data / "plain-0" / epochs.name).read_bytes())
    assert max(epoch for epoch, _ in found) > 0
    shutil.copyfile(broker.data / "plain-0" / epochs.name, epochs)
    with Daemon(tmp_path) as daemon:
        assert starts_of_plain(daemon) == 0
    _, entries = decode_proofs((root / "kafkalog.checkpoint").read_bytes())
    assert [each.is_gapless for each in entries.values()] == [False]


def starts_of_plain(daemon: Daemon) -> int:
    """Its first offset."""
    return int(daemon.request("GET", "/topics/plain/partitions/0/offsets").json["beginning_offset"])
