"""Goal: a gap of a compacted log is no finding where the files around it tell of compaction.
Method: a topic of a manager loses a segment as compaction takes one; its directory is checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkalog.broker.compaction.evidence import is_known_compacted
from kafkalog.broker.directory.log_dir import CLEANER_OFFSETS, REGISTRY_FILE
from kafkalog.format.disk.checkpoints import encode_offsets
from kafkalog.format.topic_names import TopicPartition
from kafkalog.log.inspect.directory_check import verify_directory
from kafkalog.log.log_config import LogConfig
from tests.partition_world import batch
from tests.sim.sim_manager import SimManager

if TYPE_CHECKING:
    from tests.sim.sim_filesystem import SimFilesystem

SMALL = LogConfig(segment_index_bytes=96)


def with_a_gap(policy: str) -> tuple[SimFilesystem, str]:
    """Segments 0, 1 and 2 of one record, of which 1 is gone with all its files."""
    sim = SimManager(topic_defaults=SMALL).start()
    sim.operations.topics.create("t", 1, {"cleanup.policy": policy})
    log = sim.operations.partition_log("t", 0)
    for _ in range(3):
        sim.produce("t", batch([b"v"], keys=[b"k"]))
        sim.manager.unit_of(log).writer.call(log.roll)
    directory = log.directory
    disk = sim.stop()
    for suffix in ("log", "index", "timeindex", "snapshot"):
        disk.unlink(f"{directory}/{1:020d}.{suffix}")
    return disk, directory


def findings(disk: SimFilesystem, directory: str) -> list[str]:
    """As ``kafkalog segments verify`` asks."""
    is_compacted = is_known_compacted(directory, disk)
    found = verify_directory(directory, disk, is_compacted=is_compacted)
    return [each.problem for each in found]


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_the_policy_of_the_topic(policy: str) -> None:
    """M16: what the registry of the log directory says."""
    assert findings(*with_a_gap(policy)) == []


def test_the_checkpoint_of_the_cleaner() -> None:
    """M16: Kafka's, of a log that was compacted before its policy changed or was lost."""
    disk, directory = with_a_gap("delete")
    doubt = ["missing: no segment holds offsets 1 to 1, unless the topic was compacted"]
    assert findings(disk, directory) == doubt
    path = f"{directory.rpartition('/')[0]}/{CLEANER_OFFSETS}"
    disk.write_file_atomically(path, encode_offsets({TopicPartition("other", 0): 2}))
    assert findings(disk, directory) == doubt
    disk.unlink(path)
    disk.make_dir(path)
    assert findings(disk, directory) == doubt
    disk.remove_tree(path)
    disk.write_file_atomically(path, encode_offsets({TopicPartition("t", 0): 2}))
    assert findings(disk, directory) == []


def test_an_index_proves_a_loss_all_the_same() -> None:
    """M16: compaction leaves none."""
    disk, directory = with_a_gap("compact")
    disk.open_write(f"{directory}/{1:020d}.index").close()
    assert findings(disk, directory) == ["missing: no segment holds offsets 1 to 1"]


@pytest.mark.parametrize("content", [None, b"", b"\xff\n", b'{"format": 999}'])
def test_files_that_say_nothing(content: bytes | None) -> None:
    """M16: none, or damaged ones: the doubt is told."""
    disk, directory = with_a_gap("compact")
    log_dir = directory.rpartition("/")[0]
    for name in (REGISTRY_FILE, CLEANER_OFFSETS):
        if content is not None:
            disk.write_file_atomically(f"{log_dir}/{name}", content)
        elif disk.exists(f"{log_dir}/{name}"):
            disk.unlink(f"{log_dir}/{name}")
    assert len(findings(disk, directory)) == 1
    disk.rename(directory, "/copy")
    assert not is_known_compacted("/copy", disk)
