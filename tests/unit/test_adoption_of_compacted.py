"""Goal: a compacted topic of Kafka keeps its records when its configs were lost with the metadata.
Method: a directory with the cleaner's checkpoint, and a hole between two segments, after a crash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from kafkalog.broker.startup.plan import FoundPartition, plan_startup
from kafkalog.broker.topics.registry import RegistryState
from kafkalog.format.disk.checkpoints import encode_offsets
from kafkalog.format.topic_names import DirectoryState, TopicPartition
from kafkalog.log.values import Isolation
from tests.sim.sim_manager import SimManager, batch_of

if TYPE_CHECKING:
    from tests.sim.sim_filesystem import SimFilesystem

KNOWN = UUID(int=10**30)
LIVE = DirectoryState.LIVE


@pytest.mark.parametrize(
    ("name", "policy"), [("c", {"cleanup.policy": "compact"}), ("__consumer_offsets", None)]
)
def test_the_cleaners_checkpoint_says_compact(name: str, policy: dict[str, str] | None) -> None:
    """M16: one compacted partition is enough; internal topics keep what they are known by."""
    found = [
        FoundPartition("/a", str(each), each, LIVE, KNOWN, was_compacted=each.partition > 0)
        for each in (TopicPartition(name, 0), TopicPartition(name, 1))
    ]
    plan = plan_startup(RegistryState(), found, adopt=True, new_topic_id=lambda: KNOWN)
    overrides = dict(plan.registry.topics[name].overrides)
    assert overrides["cleanup.policy"] == "compact"
    assert policy is None or overrides == policy


def test_nothing_behind_a_hole_is_dropped() -> None:
    """M16 M22: what compaction took is no torn tail."""
    sim = SimManager().start()
    sim.operations.topics.create("c", 1, {"internal.segment.bytes": "200"})
    for number in range(9):
        assert sim.produce("c", batch_of(f"value {number}")).error is None
    log = sim.operations.partition_log("c", 0)
    directory, second = log.directory, log.segments.values[1].base_offset
    root = directory.rpartition("/")[0]
    disk = sim.stop()
    for suffix in (".log", ".index", ".timeindex"):
        disk.unlink(f"{directory}/{second:020d}{suffix}")
    forget_all_but_the_data(disk, root)
    again = SimManager(disk).start()
    kept = again.operations.partition_log("c", 0)
    assert kept.config.is_compacted
    assert kept.log_end_offset == 9
    assert kept.read(8, 1000, Isolation.HIGH_WATERMARK).next_offset == 9


def forget_all_but_the_data(disk: SimFilesystem, root: str) -> None:
    """As a crashed Kafka leaves it: no registry, no marker, no recovery points."""
    for path in ("/data/a", "/data/b"):
        for name in disk.list_dir(path):
            if not disk.stat(f"{path}/{name}").is_dir:
                disk.unlink(f"{path}/{name}")
    offsets = {TopicPartition("c", 0): 5}
    disk.write_file_atomically(f"{root}/cleaner-offset-checkpoint", encode_offsets(offsets))
