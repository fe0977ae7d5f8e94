"""Goal: descriptors are bounded by a setting, whatever the number of segments, and none is needed
for good: what runs short of them is refused whole and works again when they are back.
Method: a whole manager with a small bound on a disk that counts its open handles and refuses opens.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from kafkalog.broker.broker_config import OPEN_FILES_MIN, BrokerConfig
from kafkalog.broker.directory.commands import FlushCommand
from kafkalog.broker.values import Acks
from kafkalog.errors import AppendOutcomeUnknown, DescriptorsShort
from kafkalog.log.inspect.invariants import check_invariants
from kafkalog.log.log_config import LogConfig
from kafkalog.log.values import Isolation
from tests.sim.sim_faults import Fault
from tests.sim.sim_manager import SimManager, batch_of

if TYPE_CHECKING:
    from tests.sim.sim_filesystem import SimFilesystem

SMALL = LogConfig(segment_index_bytes=96, internal_segment_bytes=200, retention_bytes=1_000)
BOUND = BrokerConfig(log_dirs=("/data/a",), log_dir_max_open_files=OPEN_FILES_MIN)
PARTITIONS = 20
BATCHES = 12  # a segment each
VALUE = "v" * 60


def started(disk: SimFilesystem | None = None) -> SimManager:
    seed = 0 if disk is None else disk.generation
    return SimManager(disk, seed=seed, config=BOUND, topic_defaults=SMALL).start()


def settle(sim: SimManager) -> int:
    """Handles that are open when nothing is under way or unsynced."""
    for log in sim.manager.table.logs():
        sim.manager.unit_of(log).writer.run(FlushCommand(log))
    sim.threads.run_until_idle()
    return sim.disk.open_handles


def fill(sim: SimManager, acks: Acks) -> None:
    for _ in range(BATCHES):
        for partition in range(PARTITIONS):
            assert sim.produce("t", batch_of(VALUE), acks, partition).error is None


def read_all(sim: SimManager, partition: int) -> int:
    """Records that a reader finds from the log start on."""
    log = sim.operations.partition_log("t", partition)
    offset, count = log.log_start_offset, 0
    while offset < log.log_end_offset:
        found = sim.operations.fetch(
            "t", partition, offset, 1, Isolation.HIGH_WATERMARK, may_block=True
        )
        assert found.next_offset > offset
        offset, count = found.next_offset, count + 1
    return count


@pytest.mark.parametrize("acks", [Acks.ALL, Acks.LEADER])
def test_open_files_are_bounded_whatever_the_segments(acks: Acks) -> None:
    """M28: creations, appends, rolls, flushes, reads, look-ups, retention, a restart."""
    sim = started()
    least = settle(sim)
    most = least + OPEN_FILES_MIN
    sim.operations.topics.create("t", PARTITIONS)
    assert sim.disk.open_handles <= most
    fill(sim, acks)
    assert settle(sim) <= most
    segments = sum(len(log.segments) for log in sim.manager.table.logs())
    assert segments >= PARTITIONS * BATCHES
    for partition in range(PARTITIONS):
        assert read_all(sim, partition) == BATCHES
        found = sim.operations.list_offset("t", partition, 1, Isolation.LOG_END, may_block=True)
        assert found is not None
        assert found.offset == 0
    assert sim.disk.open_handles <= most
    assert sim.manager.retention.run_once() > PARTITIONS
    assert settle(sim) <= most
    again = started(sim.stop())
    assert again.disk.open_handles <= most
    for partition in range(PARTITIONS):
        assert again.produce("t", batch_of(VALUE), acks, partition).error is None
        check_invariants(again.operations.partition_log("t", partition))
    assert settle(again) <= most
    again.stop()
    assert again.disk.open_handles == 0


def opens_of(sim: SimManager, appends: int, value: str = VALUE) -> int:
    counter = sim.disk.faults.add(Fault(kinds=frozenset({"open"}), path_contains="/t-", nth=10**9))
    for _ in range(appends):
        assert sim.produce("t", batch_of(value)).error is None
    return counter.seen


def lent() -> SimManager:
    """One partition whose handles others have taken: its next append has to open its files."""
    sim = started()
    sim.operations.topics.create("t", 1)
    assert sim.produce("t", batch_of(VALUE)).error is None
    sim.operations.topics.create("others", 8)
    settle(sim)
    return sim


def test_short_descriptors_refuse_an_append_whole_and_pass() -> None:
    """M15: at every open of appends, rolls and flushes; the log is whole and takes the next one."""
    count = opens_of(lent(), 3)
    assert count >= 6
    for nth in range(1, count + 1):
        sim = lent()
        log = sim.operations.partition_log("t", 0)
        short = Fault(error=errno.EMFILE, kinds=frozenset({"open"}), path_contains="/t-", nth=nth)
        sim.disk.faults.add(short)
        for _ in range(3):
            end = log.log_end_offset
            command = sim.produce("t", batch_of(VALUE))
            assert not log.is_broken, nth
            if command.error is None:
                continue
            if isinstance(command.error, AppendOutcomeUnknown):  # the flusher found none
                assert log.log_end_offset == end + 1
                continue
            assert isinstance(command.error, DescriptorsShort), (nth, command.error)
            assert log.log_end_offset == end
            assert sim.produce("t", batch_of(VALUE)).error is None
        check_invariants(log)
        assert sim.operations.readiness().faults == ()
        again = started(sim.stop())
        assert read_all(again, 0) == log.log_end_offset == 4, nth


def test_an_append_that_follows_another_opens_nothing() -> None:
    """M28: what was lent comes back from the cache, not from the disk."""
    sim = started()
    sim.operations.topics.create("t", 1)
    assert sim.produce("t", batch_of("v")).error is None
    settle(sim)
    assert opens_of(sim, 1, "v") == 0


@pytest.mark.parametrize(
    ("limit", "directories", "kept"),
    [(1 << 20, 1, 4_096), (1_024, 1, 512), (1_024, 4, 128), (64, 8, OPEN_FILES_MIN)],
)
def test_segments_keep_at_most_half_of_the_processs_descriptors(
    limit: int, directories: int, kept: int
) -> None:
    """M28: the rest is for connections, rolls, checkpoints and recovery."""
    config = BrokerConfig(log_dirs=tuple(f"/{number}" for number in range(directories)))
    assert config.within_descriptors(limit).log_dir_max_open_files == kept
