"""Goal: what compaction took never counts as lost, here or in a directory that Kafka wrote,
whatever the policy is by now.
Method: cleaned logs loaded again, with the files around a gap changed one by one.
"""

from __future__ import annotations

import errno
import struct
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from kafkalog.broker.compaction.evidence import is_known_compacted
from kafkalog.broker.directory.log_dir import CLEANER_OFFSETS, REGISTRY_FILE
from kafkalog.broker.startup.plan import FoundPartition, plan_startup
from kafkalog.broker.topics.registry import RegistryState
from kafkalog.broker.values import ConfigChange
from kafkalog.cleaner.stats import CleanRequest
from kafkalog.format.disk.checkpoints import encode_offsets
from kafkalog.format.disk.file_names import segment_file_name
from kafkalog.format.integers import INT64_MAX
from kafkalog.format.topic_names import DirectoryState, TopicPartition
from kafkalog.log.inspect.directory_check import verify_directory
from kafkalog.log.log_config import LogConfig
from kafkalog.log.segment.index_repair import next_offset, verified_floor
from kafkalog.log.segment.segment_reader import position_of
from kafkalog.log.values import Isolation, WouldBlock
from tests.cleaning_daemon import keyed_batch
from tests.naive.batches import PlainBatch
from tests.partition_world import DIRECTORY, NOW_MS, PartitionWorld, batch, records_of
from tests.sim.sim_faults import Fault
from tests.sim.sim_manager import SimManager, batch_of

if TYPE_CHECKING:
    from kafkalog.cleaner.stats import CleaningRun
    from kafkalog.log.unified_log import UnifiedLog
    from tests.sim.sim_filesystem import SimFilesystem


SMALL = LogConfig(segment_index_bytes=96)


def with_a_gap(policy: str) -> tuple[SimFilesystem, str]:
    """Segments 0, 1 and 2 of one record, of which 1 is gone with all its files."""
    sim = SimManager(topic_defaults=SMALL).start().with_topic("t", 1, {"cleanup.policy": policy})
    log = sim.operations.partition_log("t", 0)
    for _ in range(3):
        sim.produce("t", batch([b"v"], keys=[b"k"]))
        sim.manager.logs.unit_of(log).writer.call(log.roll)
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


SEGMENTS = {"cleanup.policy": "compact", "internal.segment.bytes": "300"}


def ends_of(log: UnifiedLog) -> tuple[list[int], int]:
    return [segment.base_offset for segment in log.segments.values], log.log_end_offset


def begun() -> SimManager:
    """A daemon with a topic in which one key fills many segments."""
    sim = SimManager().start().with_topic("t", 1, SEGMENTS)
    for number in range(24):
        sim.produce("t", keyed_batch((f"k{0 if number < 16 else number}", "v" * 40)))
    return sim


def cleaned(sim: SimManager) -> CleaningRun:
    """What became of a clean by order."""
    done: list[CleaningRun] = []
    log = sim.operations.partition_log("t", 0)
    sim.manager.cleaning.cleaner.submit(CleanRequest(log, False, done.append))
    sim.threads.run_until(lambda: bool(done))
    return done[0]


def no_more_compacted(sim: SimManager) -> None:
    sim.operations.topics.alter_configs("t", [ConfigChange("cleanup.policy", "delete")])


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_log_that_was_compacted_keeps_its_gaps(
    *, is_killed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    sim = begun()
    assert cleaned(sim).error is None
    no_more_compacted(sim)
    before = ends_of(sim.operations.partition_log("t", 0))
    again = SimManager(sim.kill() if is_killed else sim.stop()).start()
    assert ends_of(again.operations.partition_log("t", 0)) == before
    assert "lost" not in capsys.readouterr().out


def test_a_clean_that_was_broken_off_leaves_gaps_too() -> None:
    sim = begun()
    later = segment_file_name(6, ".log.cleaned")
    sim.disk.faults.add(Fault(error=errno.ENOSPC, path_contains=later))
    assert cleaned(sim).error is not None
    log = sim.operations.partition_log("t", 0)
    first, second = log.segments.values[:2]
    assert next_offset(first) < second.base_offset, "no swap before the fault"
    no_more_compacted(sim)
    before = ends_of(log)
    again = SimManager(sim.kill()).start()
    assert ends_of(again.operations.partition_log("t", 0)) == before


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
    sim = SimManager().start().with_topic("c", 1, {"internal.segment.bytes": "200"})
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


SPAN, KEPT, COUNT = 5, 3, 40
INDEX = f"{DIRECTORY}/{0:020d}.index"
ENTRY = struct.Struct(">ii")
GAPS = {
    "no gaps": [],
    "a gap behind many": [number for number in range(COUNT) if number % 4 == 1],
    "gaps on both sides": [number for number in range(COUNT) if number % 2],
    "wide gaps": [number for number in range(COUNT) if number % 7],
}


class World:
    """One closed segment of batches that have 5 offsets and 3 records each, and one behind it."""

    def __init__(self, gone: list[int], *, batches_a_set: int) -> None:
        self.batches = [
            PlainBatch(
                number * SPAN,
                tuple(NOW_MS + number * SPAN + each for each in range(KEPT)),
                (b"v" * 300,) * KEPT,
                last_offset_delta=SPAN - 1,
            )
            for number in range(COUNT)
            if number not in gone
        ]
        self.partition = PartitionWorld(LogConfig(cleanup_policy=frozenset({"compact"})))
        self.partition.log.close()
        disk = self.partition.filesystem
        data = b"".join(each.encode() for each in self.batches)
        disk.open_write(f"{DIRECTORY}/{0:020d}.log").pwrite(data, 0)
        following = PlainBatch(COUNT * SPAN, (NOW_MS + COUNT * SPAN,), (b"v",))
        disk.open_write(f"{DIRECTORY}/{COUNT * SPAN:020d}.log").pwrite(following.encode(), 0)
        disk.unlink(INDEX)
        self.open()  # makes the time index
        self.partition.log.close()
        self.entries, position = [], 0
        for number in range(0, len(self.batches), batches_a_set):
            some = self.batches[number : number + batches_a_set]
            self.entries.append((some[-1].base_offset + KEPT - 1, position))
            position += sum(len(each.encode()) for each in some)
        del self.entries[0]  # an entry comes behind the first interval
        file = disk.open_write(INDEX)
        file.truncate(0)
        file.pwrite(b"".join(ENTRY.pack(*each) for each in self.entries), 0)
        self.open()

    def open(self) -> None:
        self.partition.open(clean=True, recovery_point=COUNT * SPAN)


SOME_GAPS = pytest.mark.parametrize("gone", GAPS.values(), ids=GAPS)


@SOME_GAPS
@pytest.mark.parametrize("batches_a_set", [1, 2, 3])
def test_every_offset_and_time_is_served(gone: list[int], batches_a_set: int) -> None:
    world = World(gone, batches_a_set=batches_a_set)
    log = world.partition.log
    with capture_logs() as lines:
        for offset in range(COUNT * SPAN):
            wanted = next((each for each in world.batches if each.last_offset >= offset), None)
            for max_bytes in (1, 2500, 1 << 20):
                answer = log.read(offset, max_bytes, Isolation.LOG_END)
                first = COUNT * SPAN if wanted is None else wanted.base_offset
                assert records_of(answer.data)[0].offset == first
            later = (
                each.base_offset + number
                for each in world.batches
                for number in range(KEPT)
                if each.base_offset + number >= offset
            )
            found = log.offset_for_timestamp(NOW_MS + offset, Isolation.LOG_END)
            assert found is not None
            assert found.offset == next(later, COUNT * SPAN)
    assert not lines


@SOME_GAPS
def test_who_looks_for_places_believes_them(gone: list[int]) -> None:
    """Log end, the place of an offset, and where the cleaner begins."""
    world = World(gone, batches_a_set=1)
    segment = world.partition.log.segments.first
    assert next_offset(segment) == world.batches[-1].last_offset + 1
    position = 0
    for each in world.batches:
        assert position_of(segment, each.last_offset) == position
        position += len(each.encode())
    floor = verified_floor(segment, INT64_MAX)
    assert (floor.offset, floor.position) == world.entries[-1]


def test_a_read_that_may_not_block_leaves_what_is_doubtful_to_one_that_may() -> None:
    world = World([], batches_a_set=1)
    offset = world.entries[3][0] + 1
    world.partition.log.read(offset, 1, Isolation.LOG_END)
    with pytest.raises(WouldBlock):
        world.partition.log.read(offset, 1, Isolation.LOG_END, may_block=False)
