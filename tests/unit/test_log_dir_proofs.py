"""Goal: ``kafkalog.checkpoint`` proves of each log what is true of it, and nothing afterwards.
Method: lives of a simulated manager; its file read between them, and changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.broker.directory.log_dir import (
    CLEANER_OFFSETS,
    OWN_FILES,
    PROOFS,
    RECOVERY_POINTS,
)
from kafkalog.broker.values import Acks
from kafkalog.format.disk.checkpoints import encode_leader_epochs, encode_offsets
from kafkalog.format.disk.log_proofs import CheckedOffsets, decode_proofs, encode_proofs
from kafkalog.format.topic_names import TopicPartition
from kafkalog.log.inspect.invariants import check_invariants
from kafkalog.log.log_config import LogConfig
from kafkalog.log.values import Isolation
from tests.cleaning_daemon import CleaningDaemon
from tests.moving_world import A, B, move, world
from tests.sim.sim_crash import ALL_MODES, CrashMode
from tests.sim.sim_manager import SimManager, batch_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.log.values import LogProof
    from tests.sim.sim_filesystem import SimFilesystem

ONE = BrokerConfig(log_dirs=("/data/a",))
SMALL = LogConfig(segment_index_bytes=96)
PATH = f"/data/a/{PROOFS}"
T0 = TopicPartition("t", 0)


def life(disk: SimFilesystem | None = None) -> SimManager:
    return SimManager(disk, config=ONE, topic_defaults=SMALL).start()


def first_life(count: int = 4) -> SimManager:
    """Topic t with so many synced records."""
    sim = life()
    sim.operations.topics.create("t", 1)
    for _ in range(count):
        assert sim.produce("t", batch_of("v")).error is None
    return sim


def on_disk(disk: SimFilesystem, path: str = PATH) -> list[CheckedOffsets]:
    """The entries of the file."""
    return list(decode_proofs(disk.read_file(path))[1].values())


def proof(sim: SimManager, topic: str = "t") -> LogProof:
    """What the load of the partition got."""
    unit = sim.manager.unit_of(sim.manager.log_of(topic, 0))
    return sim.manager.checkpoints.proof_of(
        unit.log_dir, TopicPartition(topic, 0), was_clean=unit.log_dir.was_clean
    )


def errors_of(start: Callable[[], object]) -> list[dict[str, Any]]:
    with capture_logs() as captured:
        start()
    return [dict(line) for line in captured if line["log_level"] in ("warning", "error")]


def test_a_new_partition_is_gapless_from_its_birth() -> None:
    """Also when the daemon is killed, or power fails, right after the creation."""
    sim = first_life(0)
    assert on_disk(sim.disk) == [CheckedOffsets(is_gapless=True)]
    assert PATH in sim.disk.durable_files()
    assert {PROOFS, f"{PROOFS}.tmp"} <= OWN_FILES
    assert sim.produce("t", batch_of("v")).error is None
    sim = life(sim.kill())
    assert proof(sim).is_gapless
    assert sim.manager.log_of("t", 0).losses.proof.is_gapless
    sim = life(sim.stop())
    assert sim.manager.log_of("t", 0).losses.proof.is_gapless, "through the stops, too"


def test_a_creation_writes_the_file_once_a_directory() -> None:
    sim = life()
    sim.operations.topics.create("t", 30)
    operations = [each.kind for each in sim.disk.operations if each.path.startswith(PATH)]
    assert operations.count("rename") == 1
    assert len(on_disk(sim.disk)) == 30
    sim.operations.topics.create_partitions("t", 40)
    assert all(each.is_gapless for each in on_disk(sim.disk))
    assert len(on_disk(sim.disk)) == 40


def test_the_end_is_known_after_a_clean_stop_alone() -> None:
    disk = first_life(4).stop()
    assert on_disk(disk) == [CheckedOffsets(0, 4, end_offset=4, is_gapless=True)]
    sim = life(disk)
    assert proof(sim).end_offset == 4
    assert sim.manager.log_of("t", 0).losses.proof.end_offset is None, "the log goes on"
    sim.produce("t", batch_of("v"))
    sim = life(sim.kill())
    assert proof(sim).end_offset is None
    assert sim.manager.log_of("t", 0).log_end_offset == 5


@pytest.mark.parametrize(("line", "end"), [("t 0 5", None), ("t 0 3", None), ("u 0 4", 4)])
def test_another_recovery_point_leaves_the_end_unproven(line: str, end: int | None) -> None:
    """Who stopped last wrote it: a Kafka, or a version that does not know our file."""
    disk = first_life(4).stop()
    disk.write_file_atomically(f"/data/a/{RECOVERY_POINTS}", f"0\n1\n{line}\n".encode())
    assert proof(life(disk)).end_offset == end


def test_epochs_of_a_kafka_end_gaplessness() -> None:
    """It leads from an epoch of its own on, and may compact without touching our file."""
    disk = first_life(4).stop()
    disk.write_file_atomically(
        "/data/a/t-0/leader-epoch-checkpoint", encode_leader_epochs([(0, 0), (3, 2)])
    )
    sim = life(disk)
    assert proof(sim).is_gapless
    assert not sim.manager.log_of("t", 0).losses.proof.is_gapless
    sim = life(sim.stop())
    assert not proof(sim).is_gapless


def test_a_clean_of_others_ends_gaplessness() -> None:
    """Kafka, or a version that does not know our file, has named the log in the checkpoint."""
    disk = first_life(4).stop()
    disk.write_file_atomically(f"/data/a/{CLEANER_OFFSETS}", encode_offsets({T0: 3}))
    sim = life(disk)
    assert not sim.manager.log_of("t", 0).losses.proof.is_gapless


def test_the_first_clean_ends_gaplessness_before_it_changes_anything() -> None:
    """Whatever becomes of the clean, and whatever the topic's policy is at the next start."""
    daemon = CleaningDaemon()
    path = f"{daemon.sim.manager.unit_of(daemon.topic()).log_dir.path}/{PROOFS}"
    assert [each.is_gapless for each in on_disk(daemon.sim.disk, path)] == [True]
    daemon.run_into_a_clean()
    durable = daemon.sim.disk.durable_files()
    [entry] = decode_proofs(durable[path])[1].values()
    assert (entry.is_gapless, entry.first_dirty_offset) == (False, 0)
    assert not any(name.endswith(".cleaned") for name in durable)
    daemon.sim.threads.run_until_idle()
    durable = daemon.sim.disk.durable_files()
    [entry] = decode_proofs(durable[path])[1].values()
    assert (entry.is_gapless, entry.first_dirty_offset) == (False, 10)


def test_a_moved_partition_is_not_gapless() -> None:
    """The copy is no log from its birth; nor is it when it comes back."""
    sim = world()
    move(sim, B)
    assert [each.is_gapless for each in on_disk(sim.disk, f"{B}/{PROOFS}")] == [False]
    move(sim, A)
    assert [each.is_gapless for each in on_disk(sim.disk, f"{A}/{PROOFS}")] == [False]


def test_a_topic_that_is_made_again_has_no_past() -> None:
    sim = first_life(4)
    assert sim.delete_records("t", 3).error is None
    sim.operations.topics.delete("t")
    sim.operations.topics.create("t", 1)
    assert on_disk(sim.disk) == [CheckedOffsets(is_gapless=True)]
    assert sim.manager.log_of("t", 0).log_start_offset == 0


def test_a_missing_file_proves_nothing_and_is_no_fault() -> None:
    disk = first_life(4).stop()
    disk.unlink(PATH)
    sims: list[SimManager] = []
    assert errors_of(lambda: sims.append(life(disk))) == []
    assert proof(sims[0]).log_start_offset is None
    disk = sims[0].stop()
    assert on_disk(disk) == [CheckedOffsets(0, 4, end_offset=4)]


@pytest.mark.parametrize(
    ("change", "event", "level"),
    [
        (lambda data: data[:-3], "checkpoint_damaged", "error"),
        (lambda data: data.replace(b" 4 ", b" 5 "), "checkpoint_damaged", "error"),
        (lambda _: encode_proofs(UUID(int=2**127), {}), "proofs_not_used", "warning"),
    ],
)
def test_a_file_that_is_not_believed(
    change: Callable[[bytes], bytes], event: str, level: str
) -> None:
    """Told, and the daemon goes on as before the file existed; the next stop writes it anew."""
    disk = first_life(4).stop()
    disk.write_file_atomically(PATH, change(disk.read_file(PATH)))
    sims: list[SimManager] = []
    [line] = errors_of(lambda: sims.append(life(disk)))
    assert (line["event"], line["log_level"], line["file"]) == (event, level, PATH)
    assert not proof(sims[0]).is_gapless
    assert sims[0].manager.log_of("t", 0).log_end_offset == 4
    assert on_disk(sims[0].stop()) == [CheckedOffsets(0, 4, end_offset=4)]


def test_a_directory_in_its_place_is_put_aside() -> None:
    disk = first_life(4).stop()
    disk.unlink(PATH)
    disk.make_dir(PATH)
    lines = errors_of(lambda: life(disk))
    events = ["directory_skipped", "checkpoint_damaged", "directory_put_aside"]
    assert [line["event"] for line in lines] == events


@pytest.mark.parametrize(
    ("line", "point"), [("t 0 9", 4), ("t 0 1", 1), ("u 0 4", 4), ("t 1 4", 4), (None, 4)]
)
def test_of_a_recovery_point_the_smaller_counts(line: str | None, point: int) -> None:
    """Rotted up, down, and gone: nothing is believed to be durable that is not."""
    sim = first_life(4)
    sim.manager.checkpoints.write_recovery_points(sim.manager.units[0].log_dir)
    disk = sim.kill()
    text = "0\n0\n" if line is None else f"0\n1\n{line}\n"
    disk.write_file_atomically(f"/data/a/{RECOVERY_POINTS}", text.encode())
    sim = life(disk)
    found = sim.manager.checkpoints.found(sim.manager.units[0].log_dir, RECOVERY_POINTS)
    assert found[T0] == point
    assert sim.manager.log_of("t", 0).log_end_offset == 4


@pytest.mark.parametrize(
    ("line", "dirty"), [("t 0 900", 10), ("t 0 1", 1), ("u 0 10", 10), (None, 10)]
)
def test_of_a_first_dirty_offset_the_smaller_counts(line: str | None, dirty: int) -> None:
    """Rotted up, dirty records would never be compacted, and a deleted key could come back."""
    daemon = CleaningDaemon()
    log_dir = daemon.sim.manager.unit_of(daemon.topic()).log_dir
    daemon.turn()
    assert daemon.checkpoint() == 10
    disk = daemon.sim.stop()
    text = "0\n0\n" if line is None else f"0\n1\n{line}\n"
    disk.write_file_atomically(f"{log_dir.path}/{CLEANER_OFFSETS}", text.encode())
    checkpoints = CleaningDaemon(disk).sim.manager.checkpoints
    assert checkpoints.found(log_dir, CLEANER_OFFSETS)[T0] == dirty


def test_a_line_of_a_log_that_was_never_cleaned() -> None:
    """It may be another's: the log is cleaned from its start, and may have gaps."""
    disk = first_life(4).stop()
    disk.write_file_atomically(f"/data/a/{CLEANER_OFFSETS}", encode_offsets({T0: 3}))
    sim = life(disk)
    assert sim.manager.cleaning.states.first_dirty_offset(T0) == 0


@pytest.mark.parametrize("mode", ALL_MODES)
def test_a_recovery_point_that_rotted_up_hides_no_torn_record(mode: CrashMode) -> None:
    """What a power cut tore lies in a segment below it then: it is looked at all the same."""
    sim = first_life(4)
    sim.manager.topics.alter_configs("t", {"internal.segment.bytes": "1500"})
    sim.manager.checkpoints.write_recovery_points(sim.manager.units[0].log_dir)
    sim.manager.units[0].flusher.submit = lambda _: None  # type: ignore[method-assign,assignment]  # a slow disk
    for _ in range(6):
        assert sim.produce("t", batch_of("w" * 600), Acks.LEADER).error is None
    assert len(sim.manager.log_of("t", 0).segments) > 2
    for seed in range(3):
        disk = sim.disk.crash(mode, seed)
        disk.write_file_atomically(f"/data/a/{RECOVERY_POINTS}", encode_offsets({T0: 10}))
        log = life(disk).manager.log_of("t", 0)
        check_invariants(log)
        assert 4 <= log.log_end_offset <= 10
        offset = 0
        while offset < log.log_end_offset:  # each batch is checked against its CRC
            offset = log.read(offset, 1 << 20, Isolation.HIGH_WATERMARK).next_offset
