"""Goal: of the last batch of a log, a base offset is written back only where two proofs agree; a
    gap that is merely a gap stays, and what was durable is given to no other record.
Method: logs that compaction, a leader, a policy switch, transactions, delete-records or a loss
    left, killed or stopped, with and without rot; what each witness beside the batches says.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from kafkalog.errors import CorruptBatch
from kafkalog.format.disk.log_proofs import CheckedOffsets
from kafkalog.log.inspect.directory_check import verify_directory
from kafkalog.log.log_config import LogConfig
from kafkalog.log.values import NO_PROOF, Isolation, LogProof
from tests.partition_world import DIRECTORY, PartitionWorld, batch, records_of

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    """Offsets served, and refused."""
    found: list[int] = []
    refused: list[int] = []
    position = 0
    while position < world.log.log_end_offset:
        try:
            answer = world.log.read(position, 1 << 20, Isolation.LOG_END)
        except CorruptBatch as error:
            last = error.details["last_offset"]
            assert isinstance(last, int)
            refused += range(position, last + 1)
            position = last + 1
            continue
        found += [record.offset for record in records_of(answer.data)]
        position = max(answer.next_offset, position + 1)
    return found, refused


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
    assert world.log.segments.first.read_next_offset() == world.log.log_end_offset == 12


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


def test_appends_after_a_repair_keep_their_own_place() -> None:
    """Two lives with rot in each."""
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
