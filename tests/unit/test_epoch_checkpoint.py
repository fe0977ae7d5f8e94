"""Goal: the writer thread never syncs for leader epochs; no durable record is without its epoch.
Method: look at the calls of the simulated disk during appends and flushes, and at what loads again.
"""

from __future__ import annotations

import errno

import pytest

from kafkalog.errors import AppendOutcomeUnknown
from kafkalog.format.disk.checkpoints import decode_leader_epochs
from kafkalog.format.disk.file_names import LEADER_EPOCH_CHECKPOINT
from kafkalog.log.log_config import LogConfig
from kafkalog.log.state.leader_epoch_cache import EpochEntry
from tests.partition_world import DIRECTORY, PartitionWorld, batch, checked
from tests.sim.sim_crash import CrashMode
from tests.sim.sim_faults import Fault
from tests.sim.sim_manager import SimManager, batch_of

PATH = f"{DIRECTORY}/{LEADER_EPOCH_CHECKPOINT}"
SMALL = LogConfig(segment_index_bytes=96)
SYNCS = frozenset({"sync", "datasync", "sync_dir"})


def syncs_of(world: PartitionWorld) -> Fault:
    """A counter of syncs from now on."""
    return world.filesystem.faults.add(Fault(kinds=SYNCS, nth=10**9))


def on_disk(world: PartitionWorld) -> list[EpochEntry]:
    return [EpochEntry(*pair) for pair in decode_leader_epochs(world.filesystem.read_file(PATH))]


def test_kafka_15046_the_writer_syncs_nothing() -> None:
    """M07, KAFKA-15046: a new epoch, a roll and a truncation leave the syncs to the flusher."""
    world = PartitionWorld()
    counter = syncs_of(world)
    world.append(batch([b"a"]), synced=True)
    world.log.append(checked(batch([b"b"])), leader_epoch=4, synced=True)
    world.log.roll()
    world.append(batch([b"c"]))
    world.log.truncate_to(2)
    assert counter.seen == 0


def test_a_flush_writes_the_epochs_first() -> None:
    """M07: what a plan covers is durable with its epochs; later entries wait for the next one."""
    world = PartitionWorld()
    world.append(batch([b"a"]), synced=True)
    plan = world.log.plan_flush()
    assert plan is not None
    world.log.append(checked(batch([b"b"])), leader_epoch=4, synced=True)
    plan.run()
    world.log.mark_flushed(plan)
    assert on_disk(world) == [EpochEntry(0, 0)]
    assert world.log.epochs.is_dirty
    world.flush()
    assert on_disk(world) == [EpochEntry(0, 0), EpochEntry(4, 1)]
    assert not world.log.epochs.is_dirty


def test_epochs_survive_a_power_cut() -> None:
    """M08: those of flushed records from the file, those of recovered ones from the batches."""
    world = PartitionWorld()
    world.filesystem.sync_all()
    world.append(batch([b"a"]), synced=True)
    world.flush()
    point = world.log.recovery_point
    world.log.append(checked(batch([b"b"])), leader_epoch=4, synced=True)
    after = world.filesystem.crash(CrashMode.DROP_ALL)
    killed = world.filesystem.kill()
    world.filesystem = after
    assert world.open(clean=False, recovery_point=point).epochs.entries == (EpochEntry(0, 0),)
    world.filesystem = killed
    entries = world.open(clean=False, recovery_point=point).epochs.entries
    assert entries == (EpochEntry(0, 0), EpochEntry(4, 1))


def test_kafka_15391_a_flush_of_a_renamed_directory_is_no_error() -> None:
    """M07, KAFKA-15391: the topic was deleted while its flush was planned."""
    world = PartitionWorld()
    world.append(batch([b"a"]), synced=True)
    plan = world.log.plan_flush()
    assert plan is not None
    world.filesystem.make_dir(DIRECTORY + "-gone")
    world.log.rename_dir("orders-0.c0ffee-delete")
    world.log.delete()
    plan.run()
    assert plan.is_done


def test_a_new_partition_has_its_first_epoch_on_disk() -> None:
    """M02: as Kafka's, whose leader notes its epoch before the first append; durable."""
    sim = SimManager(topic_defaults=SMALL).start()
    sim.operations.topics.create("t", 1)
    log = sim.operations.partition_log("t", 0)
    path = f"{log.directory}/{LEADER_EPOCH_CHECKPOINT}"
    assert sim.disk.read_file(path) == b"0\n1\n0 0\n"
    assert log.epochs.entries == (EpochEntry(0, 0),)
    assert sim.disk.crash(CrashMode.DROP_ALL).read_file(path) == b"0\n1\n0 0\n"
    written = sim.disk.faults.add(Fault(path_contains="leader-epoch", nth=10**9))
    assert sim.produce("t", batch_of("a")).error is None
    assert written.seen == 0


def changed_epochs() -> SimManager:
    """A log of two records with the start at 1: its next flush writes the epochs."""
    sim = SimManager(topic_defaults=SMALL).start()
    sim.operations.topics.create("t", 1)
    sim.produce("t", batch_of("a"))
    sim.produce("t", batch_of("b"))
    assert sim.delete_records("t", 1).error is None
    return sim


@pytest.mark.parametrize("kind", ["create", "write", "sync"])
def test_no_space_for_epochs_is_no_dead_directory(kind: str) -> None:
    """M15: the outcome is unknown, not refused; with space again it is synced and readable."""
    sim = changed_epochs()
    fault = Fault(error=errno.ENOSPC, kinds=frozenset({kind}), path_contains="leader-epoch")
    sim.disk.faults.add(fault)
    assert isinstance(sim.produce("t", batch_of("c")).error, AppendOutcomeUnknown)
    log = sim.operations.partition_log("t", 0)
    assert (log.high_watermark, log.log_end_offset) == (2, 3)
    sim.disk.faults.clear()
    sim.clock.advance_ms(1_000)
    assert sim.produce("t", batch_of("d")).error is None
    assert log.high_watermark == 4
    assert sim.operations.readiness().offline_dirs == 0


def test_a_failing_disk_is_still_one() -> None:
    """M15: an I/O error at the epochs takes the directory offline."""
    sim = changed_epochs()
    fault = Fault(kinds=frozenset({"write"}), path_contains="leader-epoch")
    sim.disk.faults.add(fault)
    assert isinstance(sim.produce("t", batch_of("c")).error, AppendOutcomeUnknown)
    assert sim.operations.readiness().offline_dirs == 1
