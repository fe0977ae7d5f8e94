"""Goal: ``kafkalog.checkpoint`` says of each log what was written and is true, and a base offset is
written back only where two proofs agree.
Method: damage of every kind between two lives, with and without the file.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from crc32c import crc32c
from hypothesis import given, strategies as st
from structlog.testing import capture_logs

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.broker.directory.log_dir import CLEANER_OFFSETS, OWN_FILES, PROOFS, RECOVERY_POINTS
from kafkalog.broker.values import Acks
from kafkalog.format.disk.checkpoints import encode_leader_epochs, encode_offsets
from kafkalog.format.disk.log_proofs import (
    CheckedOffsets,
    LogKey,
    NewerProofsFormat,
    decode_proofs,
    encode_proofs,
)
from kafkalog.format.integers import INT32_MAX, INT64_MAX, FormatError
from kafkalog.format.topic_names import TopicPartition, encode_id
from kafkalog.log.inspect.directory_check import verify_directory
from kafkalog.log.inspect.invariants import check_invariants
from kafkalog.log.log_config import LogConfig
from kafkalog.log.segment.index_repair import next_offset
from kafkalog.log.values import NO_PROOF, Isolation, LogProof
from tests.cleaning_daemon import CleaningDaemon
from tests.moving_world import A, B, move, world
from tests.partition_world import DIRECTORY, PartitionWorld, batch
from tests.sim.sim_crash import ALL_MODES, CrashMode
from tests.sim.sim_manager import SimManager, batch_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.sim.sim_filesystem import SimFilesystem


LOG = f"{DIRECTORY}/{0:020d}.log"
SIZE = len(batch([b"value-00"]))
COMPACTED = frozenset({"compact"})
INDEXED = LogConfig(index_interval_bytes=0)


def replica(offsets: Sequence[int], config: LogConfig | None = None) -> PartitionWorld:
    """A killed log of one-record batches at these offsets, as a replica or a cleaner leaves it."""
    plain = LogConfig(index_interval_bytes=1 << 20)
    world = PartitionWorld(config if config == INDEXED else plain, corruption="keep")
    for offset in offsets:
        world.append(batch([b"value-%02d" % offset]))
    world.log.close_handles()
    world.config = config or plain
    for name in world.names():
        if name.endswith(".snapshot"):
            world.filesystem.unlink(f"{DIRECTORY}/{name}")
    file = world.filesystem.open_write(LOG)
    for slot, offset in enumerate(offsets):
        file.pwrite(struct.pack(">q", offset), slot * SIZE)
    return world


def served(world: PartitionWorld) -> tuple[list[int], list[int]]:
    found, refused = world.consumed()
    return list(found), refused


@pytest.mark.parametrize("config", [LogConfig(cleanup_policy=COMPACTED), LogConfig()])
@pytest.mark.parametrize("recovery_point", [0, 4, 8, 12])
def test_a_gap_of_a_replica_is_no_rot(config: LogConfig, recovery_point: int) -> None:
    """A compacted topic without a checkpoint, or since switched to delete: every gap stays."""
    world = replica([0, 3, 7, 11], config)
    before = world.filesystem.read_file(LOG)
    for _ in range(2):
        world.open(clean=False, recovery_point=recovery_point)
        assert served(world) == ([0, 3, 7, 11], [])
        assert world.log.log_end_offset == 12
        world.log.close_handles()
    assert world.filesystem.read_file(LOG) == before
    world.open(clean=False, recovery_point=recovery_point)
    world.reopen(clean=True)
    if not config.is_compacted:
        assert world.append(batch([b"value"])).first_offset == 12


def test_an_end_inside_the_gap_is_where_the_last_batch_begins() -> None:
    """A replica that was cut inside a gap of its leader goes on behind it."""
    world = replica([0, 3, 7, 11])
    world.open(clean=False, recovery_point=11)
    assert served(world) == ([0, 3, 7, 11], [])


def test_the_name_of_an_empty_segment_behind_a_gap_is_an_end() -> None:
    """A clean took 7 to 10 of a closed segment; the checkpoint is older, the next one is empty.

    A killed load has removed the snapshot that said it, too.
    """
    world = replica([0, 3, 6, 11], LogConfig(cleanup_policy=COMPACTED))
    world.filesystem.open_write(f"{DIRECTORY}/{12:020d}.log")
    with capture_logs() as lines:
        world.open(clean=False, recovery_point=9)
    assert [line["event"] for line in lines if line["log_level"] == "error"] == []
    assert served(world) == ([0, 3, 6, 11], [])
    assert next_offset(world.log.segments.first) == world.log.log_end_offset == 12


@pytest.mark.parametrize("base", [9, 10, 12, 8 + 2**17])
def test_a_checkpoint_that_contradicts_refuses_the_last_batch(base: int) -> None:
    """The log ended at 9: no batch reaches over that, and behind offset 7 none fits it either."""
    world = replica([0, 3, 6, base])
    before = world.filesystem.read_file(LOG)
    world.open(clean=False, recovery_point=9)
    if base == 9:
        assert served(world) == ([0, 3, 6, 9], [])
        return
    assert served(world) == ([0, 3, 6], [7, 8])
    assert world.filesystem.read_file(LOG) == before
    assert world.append(batch([b"value"])).first_offset == 9


WITNESSES = {
    "recovery point": (8, NO_PROOF, ()),
    "snapshot": (0, NO_PROOF, (8,)),
    "gapless": (0, LogProof(is_gapless=True), ()),
}


@pytest.mark.parametrize("witness", WITNESSES)
@pytest.mark.parametrize("rotten", [0, 5, 6, 9, 8, 2**40, -1, 2**63 - 1])
def test_one_witness_more_proves_a_base_offset(witness: str, rotten: int) -> None:
    """With the end of the batch before: both leave offset 7 alone."""
    recovery_point, proof, snapshots = WITNESSES[witness]
    world = replica(range(8))
    before = world.filesystem.read_file(LOG)
    for offset in snapshots:
        world.filesystem.open_write(f"{DIRECTORY}/{offset:020d}.snapshot")
    world.filesystem.open_write(LOG).pwrite(struct.pack(">q", rotten), 7 * (len(before) // 8))
    world.open(clean=False, recovery_point=recovery_point, proof=proof)
    assert world.filesystem.read_file(LOG) == before
    assert served(world) == ([*range(8)], [])


def test_the_index_entry_of_the_last_batch_proves_it_or_refuses_it() -> None:
    """It is agreed with, or contradicts; an entry that agrees with a gap keeps it."""
    world = replica(range(8), INDEXED)
    before = world.filesystem.read_file(LOG)
    last = 7 * (len(before) // 8)
    index = f"{DIRECTORY}/{0:020d}.index"
    entries = world.filesystem.read_file(index)
    for entry, base, expected, end in (
        (7, 7 + 2**17, ([*range(8)], []), 8),
        (7 + 2**17, 7 + 2**17, ([*range(7), 7 + 2**17], []), 8 + 2**17),
        (11, 7 + 2**17, ([*range(7)], [7, 8, 9, 10, 11]), 12),
    ):
        for name in world.names():
            if ".log" in name or name.endswith(".snapshot"):
                world.filesystem.unlink(f"{DIRECTORY}/{name}")
        file = world.filesystem.open_write(LOG)
        file.pwrite(before, 0)
        file.pwrite(struct.pack(">q", base), last)
        world.filesystem.open_write(index).pwrite(entries, 0)
        world.filesystem.open_write(index).pwrite(struct.pack(">i", entry), 6 * 8)
        world.open(clean=False)
        assert served(world) == expected
        assert world.log.log_end_offset == end
        world.log.close_handles()


def test_a_torn_batch_behind_the_last_whole_one_is_a_witness() -> None:
    """Its header says where the one before ended, be the rest of it cut off."""
    world = replica(range(8))
    size = len(world.filesystem.read_file(LOG)) // 8
    file = world.filesystem.open_write(LOG)
    file.truncate(8 * size - 3)
    file.pwrite(struct.pack(">q", 6 + 2**17), 6 * size)
    world.open(clean=False)
    assert served(world) == ([*range(7)], [])
    assert world.log.log_end_offset == 7


def test_a_batch_that_nothing_proves_is_kept_and_refused() -> None:
    """Its base offset fell: no torn write leaves a right CRC. It may have had later offsets."""
    world = replica(range(8))
    size = len(world.filesystem.read_file(LOG)) // 8
    world.filesystem.open_write(LOG).pwrite(struct.pack(">q", 2), 7 * size)
    before = world.filesystem.read_file(LOG)
    for _ in range(2):
        world.open(clean=False)
        assert served(world) == ([*range(7)], [7, 8])
        assert world.log.log_end_offset == 9
        world.log.close_handles()
    assert world.filesystem.read_file(LOG) == before


def test_what_two_of_three_say_is_the_end_of_a_clean_log() -> None:
    """The end that was noted under a checksum, the recovery point, and the batches."""
    world = replica(range(8))
    world.open(clean=False)
    world.flush()
    world.log.close()
    before = world.filesystem.read_file(LOG)
    for noted, recovery_point in ((8, 8), (8, 0), (8, 1000), (8, 3), (5, 8), (None, 8)):
        with capture_logs() as lines:
            world.open(clean=True, recovery_point=recovery_point, proof=LogProof(end_offset=noted))
        assert served(world) == ([*range(8)], [])
        assert world.log.log_end_offset == 8
        assert [line for line in lines if line["log_level"] == "error"] == []
        world.log.close()
    assert world.filesystem.read_file(LOG) == before


def test_a_kafka_that_appended_since_is_believed_with_its_rot() -> None:
    """Its recovery point and its snapshot agree against the end that we noted before."""
    world = replica(range(8))
    world.open(clean=False)
    world.flush()
    world.log.close()
    before = world.filesystem.read_file(LOG)
    world.filesystem.open_write(LOG).pwrite(struct.pack(">q", 7 + 64), 7 * (len(before) // 8))
    assert f"{8:020d}.snapshot" in world.names()
    world.open(clean=True, recovery_point=8, proof=LogProof(end_offset=5))
    assert served(world) == ([*range(8)], [])
    assert world.filesystem.read_file(LOG) == before


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("kept", [0, 1, 5 * SIZE, 7 * SIZE, 7 * SIZE + 61, 8 * SIZE - 1])
def test_lost_offsets_are_given_to_no_other_record(clean: bool, kept: int) -> None:
    """A file that ends below what was durable: the next append goes behind it."""
    world = PartitionWorld(LogConfig(), corruption="keep")
    for number in range(8):
        world.append(batch([b"value-%02d" % number]))
    world.flush()
    world.log.close()
    world.filesystem.open_write(LOG).truncate(kept)
    proof = LogProof(end_offset=8) if clean else NO_PROOF
    for _ in range(2):
        world.open(clean=clean, recovery_point=8, proof=proof)
        assert world.log.log_end_offset == 8
        assert served(world)[0] == [*range(kept // SIZE)]
        world.log.close_handles()
    world.open(clean=False, recovery_point=8)
    assert world.append(batch([b"value-08"])).first_offset == 8
    world.reopen(clean=True)
    assert served(world)[0] == [*range(kept // SIZE), 8]


def test_a_recovery_point_beyond_all_reach_moves_no_end() -> None:
    """A line of a text file: what no append could have reached is told and not believed."""
    world = replica(range(8))
    with capture_logs() as lines:
        world.open(clean=False, recovery_point=10**18)
    assert world.log.log_end_offset == 8
    assert "durable_records_lost" in [line["event"] for line in lines]


def test_delete_records_and_rot_of_the_last_batch() -> None:
    """The log start lies above what the rotten base offset says: nothing is set aside."""
    for rotten, proof in ((2, LogProof(is_gapless=True)), (2, NO_PROOF), (7 + 2**17, NO_PROOF)):
        world = replica(range(8))
        size = len(world.filesystem.read_file(LOG)) // 8
        world.filesystem.open_write(LOG).pwrite(struct.pack(">q", rotten), 7 * size)
        world.open(clean=False, recovery_point=8, log_start_offset=6, proof=proof)
        assert (world.log.log_start_offset, world.log.log_end_offset) == (6, 8)
        assert [record.offset for record in world.read_all(6)] == [6, 7]


def test_a_transaction_ends_where_it_ended() -> None:
    """The marker is the last batch; its rot moves neither the end nor the last stable offset."""
    world = PartitionWorld(LogConfig(), corruption="keep")
    world.append(batch([b"a", b"b"], producer=(7, 0, 0), is_transactional=True))
    world.append(batch([b"c"], producer=(7, 0, 2), is_transactional=True))
    world.flush()
    world.log.close_handles()
    first = len(batch([b"a", b"b"], producer=(7, 0, 0), is_transactional=True))
    world.filesystem.open_write(LOG).pwrite(struct.pack(">q", 2 + 2**20), first)
    world.open(clean=False, recovery_point=3, proof=LogProof(is_gapless=True))
    assert world.log.log_end_offset == 3
    assert world.log.last_stable_offset == 0
    info = world.append(batch([b"d"], producer=(7, 0, 3), is_transactional=True))
    assert info.first_offset == 3


def test_an_accepted_loss_is_a_gap_that_stays() -> None:
    """Between two segments; the log is gapless but for it, and its last batch is still proven."""
    world = PartitionWorld(LogConfig(internal_segment_bytes=300), corruption="keep")
    for number in range(8):
        world.append(batch([b"value-%02d" % number]))
    world.flush()
    bases = world.bases()
    world.log.close_handles()
    last = bases[-1]
    path = f"{DIRECTORY}/{last:020d}.log"
    world.filesystem.unlink(f"{DIRECTORY}/{bases[1]:020d}.log")
    rotten = 7 + 2**17
    world.filesystem.open_write(path).pwrite(struct.pack(">q", rotten), (7 - last) * SIZE)
    proof = LogProof(is_gapless=True, accepted_losses=((bases[1], bases[2] - 1),))
    world.open(clean=False, recovery_point=bases[2], proof=proof)
    assert world.log.log_end_offset == 8
    assert [each.offset for each in world.read_all(bases[2])] == [*range(bases[2], 8)]


def test_verify_finds_what_a_later_start_repairs() -> None:
    """The offline check says what it knows: an index entry, or that the log is gapless."""
    gapless = CheckedOffsets(is_gapless=True)
    world = replica(range(8))
    world.open(clean=False)
    world.flush()
    world.log.close()
    assert verify_directory(DIRECTORY, world.filesystem, proof=gapless) == []
    size = len(world.filesystem.read_file(LOG)) // 8
    world.filesystem.open_write(LOG).pwrite(struct.pack(">q", 7 + 2**17), 7 * size)
    told = verify_directory(DIRECTORY, world.filesystem, proof=gapless)
    assert [(each.code.value, each.position) for each in told] == [("offset_gap", 7 * size)]
    assert told[0].problem == f"offsets 7 to {6 + 2**17} are missing before it"


@pytest.mark.parametrize("rotten", [5 - 2**56, 5 + 2**20, 2])
def test_verify_names_the_batch_whose_base_offset_rotted(rotten: int) -> None:
    """And the offsets that it had; not numbers that come from the rotten ones."""
    world = replica(range(8))
    world.open(clean=False)
    world.flush()
    world.log.close()
    size = len(world.filesystem.read_file(LOG)) // 8
    world.filesystem.open_write(LOG).pwrite(struct.pack(">q", rotten), 5 * size)
    told = verify_directory(DIRECTORY, world.filesystem, proof=CheckedOffsets(is_gapless=True))
    assert [(each.code.value, each.position, each.problem) for each in told] == [
        ("offset_order", 5 * size, f"the batch is not valid: base offset {rotten} after offset 4"),
        ("offset_gap", 6 * size, "offsets 5 to 5 are missing before it"),
    ]


def test_appends_after_a_repair_keep_their_own_place() -> None:
    world = PartitionWorld(LogConfig(), corruption="keep")
    for life in range(3):
        for number in range(4 * life, 4 * life + 4):
            assert world.append(batch([b"value-%02d" % number])).first_offset == number
        world.flush()
        world.log.close_handles()
        file = world.filesystem.open_write(LOG)
        at = (4 * life + 3) * SIZE + 6
        file.pwrite(bytes((file.pread(1, at)[0] ^ 0x10,)), at)
        world.open(clean=False, proof=LogProof(is_gapless=True))
        assert served(world) == ([*range(4 * life + 4)], [])


ONE = BrokerConfig(log_dirs=("/data/a",))
SMALL = LogConfig(segment_index_bytes=96)
PATH = f"/data/a/{PROOFS}"
T0 = TopicPartition("t", 0)


def life(disk: SimFilesystem | None = None) -> SimManager:
    return SimManager(disk, config=ONE, topic_defaults=SMALL).start()


def first_life(count: int = 4) -> SimManager:
    sim = life()
    sim.operations.topics.create("t", 1)
    for _ in range(count):
        assert sim.produce("t", batch_of("v")).error is None
    return sim


def on_disk(disk: SimFilesystem, path: str = PATH) -> list[CheckedOffsets]:
    return list(decode_proofs(disk.read_file(path))[1].values())


def proof(sim: SimManager, topic: str = "t") -> LogProof:
    unit = sim.manager.logs.unit_of(sim.manager.logs.log_of(topic, 0))
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
    assert sim.manager.logs.log_of("t", 0).losses.proof.is_gapless
    sim = life(sim.stop())
    assert sim.manager.logs.log_of("t", 0).losses.proof.is_gapless, "through the stops, too"


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
    assert sim.manager.logs.log_of("t", 0).losses.proof.end_offset is None, "the log goes on"
    sim.produce("t", batch_of("v"))
    sim = life(sim.kill())
    assert proof(sim).end_offset is None
    assert sim.manager.logs.log_of("t", 0).log_end_offset == 5


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
    assert not sim.manager.logs.log_of("t", 0).losses.proof.is_gapless
    sim = life(sim.stop())
    assert not proof(sim).is_gapless


def test_a_clean_of_others_ends_gaplessness() -> None:
    """Kafka, or a version that does not know our file, has named the log in the checkpoint."""
    disk = first_life(4).stop()
    disk.write_file_atomically(f"/data/a/{CLEANER_OFFSETS}", encode_offsets({T0: 3}))
    sim = life(disk)
    assert not sim.manager.logs.log_of("t", 0).losses.proof.is_gapless


def test_the_first_clean_ends_gaplessness_before_it_changes_anything() -> None:
    """Whatever becomes of the clean, and whatever the topic's policy is at the next start."""
    daemon = CleaningDaemon()
    path = f"{daemon.sim.manager.logs.unit_of(daemon.topic()).log_dir.path}/{PROOFS}"
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
    assert sim.manager.logs.log_of("t", 0).log_start_offset == 0


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
        (lambda _: encode_proofs(encode_id(UUID(int=2**127)), {}), "proofs_not_used", "warning"),
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
    assert sims[0].manager.logs.log_of("t", 0).log_end_offset == 4
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
    sim.manager.checkpoints.write_recovery_points(sim.manager.logs.units[0].log_dir)
    disk = sim.kill()
    text = "0\n0\n" if line is None else f"0\n1\n{line}\n"
    disk.write_file_atomically(f"/data/a/{RECOVERY_POINTS}", text.encode())
    sim = life(disk)
    found = sim.manager.checkpoints.found(sim.manager.logs.units[0].log_dir, RECOVERY_POINTS)
    assert found[T0] == point
    assert sim.manager.logs.log_of("t", 0).log_end_offset == 4


@pytest.mark.parametrize(
    ("line", "dirty"), [("t 0 900", 10), ("t 0 1", 1), ("u 0 10", 10), (None, 10)]
)
def test_of_a_first_dirty_offset_the_smaller_counts(line: str | None, dirty: int) -> None:
    """Rotted up, dirty records would never be compacted, and a deleted key could come back."""
    daemon = CleaningDaemon()
    log_dir = daemon.sim.manager.logs.unit_of(daemon.topic()).log_dir
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
    sim.manager.checkpoints.write_recovery_points(sim.manager.logs.units[0].log_dir)
    sim.manager.logs.units[0].flusher.submit = lambda _: None  # type: ignore[method-assign,assignment]  # a slow disk
    for _ in range(6):
        assert sim.produce("t", batch_of("w" * 600), Acks.LEADER).error is None
    assert len(sim.manager.logs.log_of("t", 0).segments) > 2
    for seed in range(3):
        disk = sim.disk.crash(mode, seed)
        disk.write_file_atomically(f"/data/a/{RECOVERY_POINTS}", encode_offsets({T0: 10}))
        log = life(disk).manager.logs.log_of("t", 0)
        check_invariants(log)
        assert 4 <= log.log_end_offset <= 10
        offset = 0
        while offset < log.log_end_offset:  # each batch is checked against its CRC
            offset = log.read(offset, 1 << 20, Isolation.HIGH_WATERMARK).next_offset


DIRECTORY_ID = encode_id(UUID(int=2**127 + 5))
TOPIC = encode_id(UUID(int=2**126 + 9))
OFFSETS = st.integers(0, INT64_MAX)
LOSSES = st.lists(st.tuples(OFFSETS, OFFSETS).map(sorted).map(tuple), max_size=3).map(tuple)
ENTRIES = st.builds(
    CheckedOffsets,
    log_start_offset=OFFSETS,
    recovery_point=OFFSETS,
    first_dirty_offset=st.none() | OFFSETS,
    end_offset=st.none() | OFFSETS,
    is_gapless=st.booleans(),
    accepted_losses=LOSSES,
)
KEYS = st.builds(LogKey, st.uuids(version=4).map(encode_id), st.integers(0, INT32_MAX))
EXAMPLE = {
    LogKey(TOPIC, 0): CheckedOffsets(9, 40, is_gapless=True),
    LogKey(TOPIC, 1): CheckedOffsets(0, 7, 5, 7, accepted_losses=((1, 2), (4, 4))),
}


def signed(content: bytes) -> bytes:
    return content + b"crc32c %08x\n" % crc32c(content)


def test_a_file_by_hand() -> None:
    content = (
        f"kafkalog.checkpoint 1\ndirectory {DIRECTORY_ID}\n"
        f"{TOPIC} 0 9 40 - - 1 -\n{TOPIC} 1 0 7 5 7 0 1-2,4-4\n"
    )
    assert encode_proofs(DIRECTORY_ID, EXAMPLE) == signed(content.encode())


@given(entries=st.dictionaries(KEYS, ENTRIES, max_size=5), directory=st.uuids().map(encode_id))
def test_round_trip(entries: dict[LogKey, CheckedOffsets], directory: str) -> None:
    assert decode_proofs(encode_proofs(directory, entries)) == (directory, entries)


def test_every_flipped_bit_and_every_cut_is_refused() -> None:
    data = encode_proofs(DIRECTORY_ID, EXAMPLE)
    for position in range(len(data)):
        damaged = [data[:position]]
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            damaged.append(bytes(flipped))
        for each in damaged:
            with pytest.raises(FormatError):
                decode_proofs(each)
    with pytest.raises(FormatError):
        decode_proofs(data + b"\n")


def test_a_newer_format_is_named() -> None:
    data = signed(b"kafkalog.checkpoint 2\nwhatever it is\n")
    with pytest.raises(NewerProofsFormat, match="format 2; this version knows up to 1"):
        decode_proofs(data)


@pytest.mark.parametrize(
    "line",
    [
        "",
        f"{TOPIC} 0 9 40 - - 1",
        f"{TOPIC} 0 9 40 - - 2 -",
        f"{TOPIC} 0 -9 40 - - 1 -",
        f"{TOPIC} 0 09 40 - - 1 -",
        f"{TOPIC} 0 9 40 - - 1 2-1",
        f"{TOPIC} 0 9 40 - - 1 1-2,",
        f"{TOPIC} {INT32_MAX + 1} 9 40 - - 1 -",
        f"{TOPIC} 0 {INT64_MAX + 1} 40 - - 1 -",
        f"{TOPIC[1:]} 0 9 40 - - 1 -",
        f"{TOPIC} 0 9 40 - - 1 -\x0b",
    ],
)
def test_a_line_that_no_version_writes(line: str) -> None:
    """Under a right checksum: a defect, not rot, and not believed either."""
    content = f"kafkalog.checkpoint 1\ndirectory {DIRECTORY_ID}\n{line}\n"
    with pytest.raises(FormatError, match="line"):
        decode_proofs(signed(content.encode()))


@pytest.mark.parametrize(
    "content", [b"", b"kafkalog.checkpoint 1\n", b"kafkalog.checkpoint 1\nx\n"]
)
def test_a_head_that_no_version_writes(content: bytes) -> None:
    with pytest.raises(FormatError):
        decode_proofs(signed(content))
