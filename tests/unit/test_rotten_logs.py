"""Goal: rot costs at most what it hit, whichever field of a batch it hit, moves no record, costs no
neighbour, and is never served.
Method: logs on a simulated disk, each field of each batch damaged between two lives.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from kafkalog.errors import CorruptBatch, LostOffsets
from kafkalog.format.records.record_batch import patch_prefix
from kafkalog.log.inspect.directory_check import verify_directory
from kafkalog.log.inspect.invariants import check_invariants
from kafkalog.log.log_config import LogConfig
from kafkalog.log.state.leader_epoch_cache import EpochEntry
from kafkalog.log.values import Isolation, LogProof
from tests.partition_world import DIRECTORY, PartitionWorld, batch, records_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


SEGMENTED = LogConfig(internal_segment_bytes=300, index_interval_bytes=0)
COUNT = 12  # batches of one record; three segments of three and more


def world_of(config: LogConfig = SEGMENTED, count: int = COUNT) -> PartitionWorld:
    """A log of one-record batches, all of one size."""
    world = PartitionWorld(config, corruption="keep")
    for number in range(count):
        world.append(batch([b"value-%02d" % number], producer=(7, 0, number)))
    assert len(world.bases()) >= 3 or config is not SEGMENTED
    return world


BATCH_BYTES = len(batch([b"value-00"], producer=(7, 0, 0)))


def place_of(world: PartitionWorld, offset: int) -> tuple[str, int]:
    base = max(base for base in world.bases() if base <= offset)
    return f"{DIRECTORY}/{base:020d}.log", (offset - base) * BATCH_BYTES


def damage(world: PartitionWorld, offset: int, at: int, data: bytes) -> None:
    path, position = place_of(world, offset)
    world.filesystem.open_write(path).pwrite(data, position + at)


def logs_of(world: PartitionWorld) -> dict[str, bytes]:
    return {
        name: world.filesystem.read_file(f"{DIRECTORY}/{name}")
        for name in world.names()
        if name.endswith(".log")
    }


def crashed(world: PartitionWorld, recovery_point: int = 0) -> Sequence[Mapping[str, object]]:
    """Kill and load again; the lines that were logged."""
    world.log.close_handles()
    with capture_logs() as lines:
        world.open(clean=False, recovery_point=recovery_point)
    assert not [name for name in world.names() if name.endswith(".deleted")]
    return lines


def consumed(
    world: PartitionWorld, max_bytes: int = 1 << 20, start: int = 0
) -> tuple[list[int], list[int]]:
    served, refused = world.consumed(max_bytes, start)
    for offset, value in served.items():
        assert value is not None
        assert value[:8] == b"value-%02d" % offset, "under a wrong offset"
    return list(served), refused


def offsets(world: PartitionWorld, start: int = 0) -> list[int]:
    served, refused = consumed(world, start=start)
    assert refused == []
    return served


BASES = [0, 1, 3, 5, 6, 7, 9, 11, 12, 13, 2**31 + 7, 2**40, -1, 2**63 - 1]


@pytest.mark.parametrize("rotten", BASES)
def test_a_rotten_base_offset_is_repaired(rotten: int) -> None:
    """First, last and between in closed and active segments; what was written comes back."""
    world = world_of()
    before = logs_of(world)
    for offset in range(COUNT - 1):
        if offset == rotten:
            continue
        damage(world, offset, 0, struct.pack(">q", rotten))
        lines = crashed(world)
        assert logs_of(world) == before
        assert offsets(world) == list(range(COUNT))
        repairs = [line for line in lines if line["event"] == "batch_prefix_repaired"]
        assert [line["log_level"] for line in repairs] == ["warning"]
        path, position = place_of(world, offset)
        kept = world.filesystem.read_file(f"{path}.{position}.torn")
        assert kept[:8] == struct.pack(">q", rotten)
        check_invariants(world.log)


@pytest.mark.parametrize(
    ("at", "data"),
    [
        (8, b"\x40"),
        (8, b"\xff\xff\xff\xff"),
        (11, b"\x00"),
        (11, b"\x01"),
        (10, b"\x07"),
        (8, bytes(4)),
        (16, b"\x00"),
        (16, b"\x01"),
        (16, b"\x03"),
        (16, b"\x82"),
        (8, b"\x00\x00\x12\x34\x00\x00\x00\x00\x03"),
    ],
)
def test_a_rotten_length_or_magic_is_repaired(at: int, data: bytes) -> None:
    """The CRC is right over the bytes up to the next batch, or up to the end."""
    world = world_of()
    before = logs_of(world)
    for offset in (0, 1, 3, 5, 8, COUNT - 1):
        damage(world, offset, at, data)
        crashed(world)
        assert logs_of(world) == before
        assert offsets(world) == list(range(COUNT))
    check_invariants(world.log)
    assert verify_directory(DIRECTORY, world.filesystem) == []


def test_a_rotten_magic_at_the_start_of_a_clean_log_is_no_legacy_format() -> None:
    """The partition is not put out of service by one bit."""
    world = world_of()
    before = logs_of(world)
    damage(world, 0, 16, b"\x00")
    world.flush()
    world.log.close()
    world.open(clean=True, recovery_point=COUNT)
    assert logs_of(world) == before
    assert offsets(world) == list(range(COUNT))


def test_zeros_below_the_recovery_point_cost_what_they_hit() -> None:
    """They are bridged by a header, so that readers get to the sound batch behind them."""
    world = world_of()
    lost = world.bases()[1] + 1
    damage(world, lost, 0, bytes(BATCH_BYTES))
    path, position = place_of(world, lost)
    for _ in range(2):
        crashed(world, lost + 1)
        served, refused = consumed(world)
        assert refused == [lost]
        assert served == [each for each in range(COUNT) if each != lost]
    assert world.filesystem.read_file(f"{path}.{position}.torn") == bytes(BATCH_BYTES)


def test_a_lost_tail_below_the_recovery_point_costs_no_later_segment() -> None:
    """What was durable is no torn tail: later segments stay, the cut bytes are kept and named."""
    world = world_of()
    bases = world.bases()
    first = bases[1] + 1
    lost = range(first, bases[2])
    damage(world, first, 0, b"\x55" * BATCH_BYTES * len(lost))
    path, position = place_of(world, first)
    cut = world.filesystem.read_file(path)[position:]
    lines = crashed(world, first + 1)
    assert offsets(world, bases[2]) == list(range(bases[2], COUNT))
    with pytest.raises(LostOffsets) as refused:
        world.log.read(min(lost), 1 << 20, Isolation.LOG_END)
    assert refused.value.details["last_offset"] == max(lost)
    assert world.bases() == bases
    assert world.filesystem.read_file(f"{path}.{position}.torn") == cut
    told = [line for line in lines if line["event"] == "offsets_lost"]
    assert [(each["path"], each["position"], each["log_level"]) for each in told] == [
        (path, position, "error")
    ]
    assert (told[0]["first_offset"], told[0]["last_offset"]) == (min(lost), max(lost))
    crashed(world, first + 1)
    assert offsets(world, bases[2]) == list(range(bases[2], COUNT)), "the next start keeps it too"


def test_zeros_behind_a_closed_segment_cost_nothing() -> None:
    """Nothing is missing in front of the next segment, so nothing goes."""
    world = world_of()
    path, _ = place_of(world, 0)
    before = logs_of(world)
    size = world.filesystem.stat(path).size
    world.filesystem.open_write(path).pwrite(bytes(500), size)
    crashed(world)
    assert logs_of(world) == before
    assert world.filesystem.read_file(f"{path}.{size}.torn") == bytes(500)
    assert offsets(world) == list(range(COUNT))
    check_invariants(world.log)


def test_a_missing_segment_below_the_recovery_point_costs_itself() -> None:
    """Its offsets are refused; all others are served."""
    world = world_of()
    bases = world.bases()
    world.log.close_handles()
    world.filesystem.unlink(f"{DIRECTORY}/{bases[1]:020d}.log")
    lines = crashed(world, bases[1] + 1)
    assert offsets(world, bases[2]) == list(range(bases[2], COUNT))
    with pytest.raises(LostOffsets) as refused:
        world.log.read(bases[1], 1 << 20, Isolation.LOG_END)
    assert refused.value.details["last_offset"] == bases[2] - 1
    assert [line["first_offset"] for line in lines if line["event"] == "offsets_lost"] == [bases[1]]


@pytest.mark.parametrize("kind", ["missing", "zeros"])
def test_what_lies_behind_a_loss_that_was_not_durable_is_set_aside(kind: str) -> None:
    """It may be what a power cut left of unsynced data; not served, and no byte is deleted."""
    world = world_of()
    bases = world.bases()
    before = logs_of(world)
    world.log.close_handles()
    if kind == "missing":
        world.filesystem.unlink(f"{DIRECTORY}/{bases[1]:020d}.log")
        end = bases[1]
    else:
        end = bases[1] + 1
        damage(world, end, 0, bytes(BATCH_BYTES))
    for _ in range(2):
        crashed(world)
        assert offsets(world) == list(range(end))
    check_invariants(world.log)
    world.clock.advance_ms(world.config.file_delete_delay_ms)
    for base in bases[2:]:
        name = f"{base:020d}.log"
        kept = world.filesystem.read_file(f"{DIRECTORY}/{name}.behind-{end}.torn")
        assert kept == before[name]
    assert world.append(batch([b"value-%02d" % end], producer=(7, 0, end))).first_offset == end


@pytest.mark.parametrize("offset", [3, 4, 5])
@pytest.mark.parametrize("at", [17, 23, 26, 35, 60, 65])
def test_rot_that_the_crc_covers_costs_its_batch(offset: int, at: int) -> None:
    """Delta, timestamp, count, payload; also in the last batch of a closed segment."""
    world = world_of()
    assert 3 in world.bases()
    path, position = place_of(world, offset)
    byte = world.filesystem.read_file(path)[position + at]
    damage(world, offset, at, bytes((byte ^ 0x04,)))
    is_like_a_torn_tail = at in (23, 26) and offset + 1 in world.bases()
    crashed(world, COUNT if is_like_a_torn_tail else 0)
    with pytest.raises(CorruptBatch) as refused:
        world.log.read(offset, 1 << 20, Isolation.LOG_END)
    assert refused.value.details["last_offset"] == offset
    assert offsets(world, offset + 1) == list(range(offset + 1, COUNT))


def test_a_base_offset_that_cannot_be_proven_is_refused_and_stepped_over() -> None:
    """Compaction left a gap behind the batch: it could have had several offsets."""
    world = world_of(LogConfig(index_interval_bytes=0))
    world.config = LogConfig(cleanup_policy=frozenset({"compact"}), index_interval_bytes=0)
    whole = logs_of(world)["00000000000000000000.log"]
    gap = whole[: 5 * BATCH_BYTES] + whole[7 * BATCH_BYTES :]
    world.log.close_handles()
    file = world.filesystem.open_write(f"{DIRECTORY}/{0:020d}.log")
    file.truncate(0)
    file.pwrite(gap, 0)
    file.pwrite(struct.pack(">q", 1), 4 * BATCH_BYTES)
    for _ in range(2):
        crashed(world)
        assert world.log.log_end_offset == COUNT
        for offset in (4, 5, 6):
            with pytest.raises(CorruptBatch) as refused:
                world.log.read(offset, 1 << 20, Isolation.LOG_END)
            assert refused.value.details["base_offset"] == 4
            last_offset = refused.value.details["last_offset"]
        assert isinstance(last_offset, int)
        assert offsets(world, last_offset + 1) == [7, 8, 9, 10, 11]
    answer = world.log.read(0, 1 << 20, Isolation.LOG_END)
    assert [record.offset for record in records_of(answer.data)] == [0, 1, 2, 3]


def test_kafkas_rule_still_cuts_there() -> None:
    """corruption='kafka': plain truncation at a base offset that does not rise."""
    world = world_of()
    world.corruption = "kafka"
    damage(world, 4, 0, struct.pack(">q", 1))
    world.log.close_handles()
    world.open(clean=False)
    assert world.log.log_end_offset == 4
    assert [name for name in world.names() if name.endswith(".log.deleted")]


def test_a_clean_log_that_ends_below_its_recovery_point_says_so() -> None:
    """Durable data is gone; the log starts all the same, and gives no lost offset again."""
    world = world_of()
    bases = world.bases()
    world.flush()
    world.log.close()
    for base in bases[2:]:
        world.filesystem.unlink(f"{DIRECTORY}/{base:020d}.log")
    with capture_logs() as lines:
        world.open(clean=True, recovery_point=COUNT)
    told = [line for line in lines if line["event"] == "durable_records_lost"]
    assert [(line["log_end_offset"], line["recovery_point"]) for line in told] == [
        (bases[2], COUNT)
    ]
    assert told[0]["log_level"] == "error"
    with pytest.raises(LostOffsets) as refused:
        world.log.read(bases[2], 1 << 20, Isolation.LOG_END)
    assert refused.value.details["last_offset"] == COUNT - 1
    assert world.log.recovery_point == world.log.log_end_offset == COUNT
    assert world.append(batch([b"value-%02d" % COUNT])).first_offset == COUNT
    assert offsets(world, COUNT) == [COUNT]


def test_the_recovery_point_proves_the_last_batch_of_a_clean_log() -> None:
    """Its base offset rotted downwards: the log would end too low, and offsets be given twice."""
    world = world_of()
    before = logs_of(world)
    world.flush()
    world.log.close()
    damage(world, COUNT - 1, 0, struct.pack(">q", 2))
    world.open(clean=True, recovery_point=COUNT)
    assert logs_of(world) == before
    assert offsets(world) == list(range(COUNT))


def test_a_log_below_its_start_is_set_aside() -> None:
    """The start is a number in a text file, which may have rotted as well."""
    world = world_of()
    before = logs_of(world)
    world.log.close_handles()
    world.open(clean=False, log_start_offset=50)
    assert (world.log.log_start_offset, world.log.log_end_offset) == (50, 50)
    world.clock.advance_ms(world.config.file_delete_delay_ms)
    for name, data in before.items():
        assert world.filesystem.read_file(f"{DIRECTORY}/{name}.behind-{COUNT}.torn") == data
    check_invariants(world.log)


def test_what_is_missing_below_the_log_start_is_not_missed() -> None:
    """Nothing that lives is lost: the segments behind it stay, also above the recovery point."""
    world = world_of()
    bases = world.bases()
    world.log.close_handles()
    world.filesystem.unlink(f"{DIRECTORY}/{bases[1]:020d}.log")
    world.open(clean=False, log_start_offset=bases[2])
    assert offsets(world, bases[2]) == list(range(bases[2], COUNT))


def with_epochs(*epochs: int) -> PartitionWorld:
    """A killed log whose batches carry these leader epochs, and no checkpoint of them."""
    world = world_of(LogConfig(), len(epochs))
    path = f"{DIRECTORY}/{0:020d}.log"
    whole = world.filesystem.read_file(path)
    world.log.close_handles()
    file = world.filesystem.open_write(path)
    for offset, epoch in enumerate(epochs):
        file.pwrite(
            patch_prefix(whole[offset * BATCH_BYTES :], offset, epoch), offset * BATCH_BYTES
        )
    world.filesystem.open_write(f"{DIRECTORY}/leader-epoch-checkpoint").truncate(0)
    return world


@pytest.mark.parametrize(
    ("epochs", "adopted"),
    [
        ((0, 0, 7, 0, 1, 1), [(0, 0), (1, 4)]),
        ((3, 3, 3, 2**30, 3, 4), [(3, 0), (4, 5)]),
        ((9, 0, 0, 1, 5, 1), [(0, 1), (1, 3)]),
        ((0, 1, 1, 2, 2, 2), [(0, 0), (1, 1), (2, 3)]),
    ],
)
def test_an_epoch_that_later_batches_contradict_is_not_adopted(
    epochs: tuple[int, ...], adopted: list[tuple[int, int]]
) -> None:
    """Epochs never fall; one that stands out is rot outside the CRC."""
    world = with_epochs(*epochs)
    world.open(clean=False)
    assert world.log.epochs.entries == tuple(EpochEntry(*each) for each in adopted)


@pytest.mark.parametrize("interval_bytes", [0, 150, 4096])
@pytest.mark.parametrize("segment_bytes", [300, 1 << 20])
@pytest.mark.parametrize("rotten", BASES)
def test_a_live_log_serves_no_batch_under_a_wrong_offset(
    interval_bytes: int, segment_bytes: int, rotten: int
) -> None:
    """Every batch in turn; all others are served, that one is 50010 with its offsets."""
    config = LogConfig(internal_segment_bytes=segment_bytes, index_interval_bytes=interval_bytes)
    world = world_of(config)
    for offset in range(COUNT):
        if rotten == offset or (rotten > offset == COUNT - 1 and rotten < COUNT):
            continue
        path, position = place_of(world, offset)
        damage(world, offset, 0, struct.pack(">q", rotten))
        for max_bytes in (1, 2 * BATCH_BYTES, 1 << 20):
            served, refused = consumed(world, max_bytes)
            assert refused == [offset], (offset, max_bytes)
            assert served == [each for each in range(COUNT) if each != offset]
        with pytest.raises(CorruptBatch, match="bad offset"):
            world.log.read(offset, 1 << 20, Isolation.LOG_END)
        world.filesystem.open_write(path).pwrite(struct.pack(">q", offset), position)
    assert consumed(world) == (list(range(COUNT)), [])


@pytest.mark.parametrize("at", [23, 26])
def test_a_rotten_delta_hides_no_batch_behind_it(at: int) -> None:
    """Its own last offset reaches over those that follow; the CRC tells which of them is wrong."""
    world = world_of(LogConfig(index_interval_bytes=0))
    damage(world, 4, at, b"\x05")
    served, refused = consumed(world)
    assert 4 in refused
    assert served == [each for each in range(COUNT) if each not in refused]
    assert offsets(world, 5) == list(range(5, COUNT))


@pytest.mark.parametrize("rotten", [0, 2, 3, 6, 11, 2**40])
def test_batches_larger_than_a_read_are_held_against_their_neighbours(rotten: int) -> None:
    """Batches of 100 KB: the next one lies in another chunk of recovery, or of a fetch."""
    world = PartitionWorld(LogConfig(), corruption="keep")
    for number in range(COUNT):
        world.append(batch([b"value-%02d" % number + b"v" * 100_000]))
    path = f"{DIRECTORY}/{0:020d}.log"
    before = world.filesystem.read_file(path)
    size = len(before) // COUNT
    for number in range(COUNT - 1):
        if rotten == number:
            continue
        world.filesystem.open_write(path).pwrite(struct.pack(">q", rotten), number * size)
        for max_bytes in (1, 3 * size):
            served, refused = consumed(world, max_bytes)
            assert refused == [number], max_bytes
            assert served == [each for each in range(COUNT) if each != number]
        crashed(world)
        assert world.filesystem.read_file(path) == before


CONFIG = LogConfig(
    internal_segment_bytes=300, index_interval_bytes=1 << 20, segment_index_bytes=4096
)
BATCH_RECORDS = 3
BATCHES = 8
END = BATCHES * BATCH_RECORDS
PLACES = {"first": 0, "middle": 4, "last": BATCHES - 1}
FIELDS = {
    "base offset": (0, 8),
    "length": (8, 4),
    "epoch": (12, 4),
    "magic": (16, 1),
    "crc": (17, 4),
}


def values(number: int) -> list[bytes | None]:
    first = number * BATCH_RECORDS
    return [b"value-%02d" % offset for offset in range(first, first + BATCH_RECORDS)]


@dataclass(frozen=True)
class Files:
    """The files of a log of BATCHES batches, killed or closed; where each batch begins."""

    content: dict[str, bytes]
    places: tuple[tuple[str, int], ...]


@cache
def written(config: LogConfig, *, clean: bool) -> Files:
    world = PartitionWorld(config, corruption="keep")
    places = []
    for number in range(BATCHES):
        world.append(batch(values(number), producer=(7, 0, number * BATCH_RECORDS)))
        base = world.bases()[-1]
        segment = world.log.segments.active
        size = len(batch(values(number)))
        places.append((f"{base:020d}.log", segment.size_bytes - size))
    world.flush()
    if clean:
        world.log.close()
    content = {
        name: world.filesystem.read_file(f"{DIRECTORY}/{name}")
        for name in world.names()
        if clean or not name.endswith(".snapshot")
    }
    return Files(content, tuple(places))


class Table:
    """One disk for all cases."""

    def __init__(
        self, config: LogConfig, *, clean: bool, recovery_point: int, proof: LogProof
    ) -> None:
        self.files = written(config, clean=clean)
        self.world = PartitionWorld(config, corruption="keep")
        self.clean, self.recovery_point, self.proof = clean, recovery_point, proof

    def put_back(self, without: Iterable[str] = ()) -> None:
        world = self.world
        world.log.close_handles()
        for name in world.names():
            world.filesystem.unlink(f"{DIRECTORY}/{name}")
        for name, data in self.files.content.items():
            if name not in without:
                world.filesystem.open_write(f"{DIRECTORY}/{name}").pwrite(data, 0)

    def flip(self, number: int, at: int, mask: int) -> None:
        name, position = self.files.places[number]
        file = self.world.filesystem.open_write(f"{DIRECTORY}/{name}")
        file.pwrite(bytes((file.pread(1, position + at)[0] ^ mask,)), position + at)

    def open(self) -> None:
        self.world.open(clean=self.clean, recovery_point=self.recovery_point, proof=self.proof)

    def is_as_written(self) -> bool:
        return all(
            self.world.filesystem.read_file(f"{DIRECTORY}/{name}") == data
            for name, data in self.files.content.items()
            if name.endswith(".log")
        )


TRUTH = {
    offset: value
    for number in range(BATCHES)
    for offset, value in enumerate(values(number), number * BATCH_RECORDS)
}
KNOWLEDGE = {
    "clean, gapless": (True, END, LogProof(end_offset=END, is_gapless=True)),
    "clean, end under a checksum": (True, 0, LogProof(end_offset=END)),
    "clean, checkpoint": (True, END, LogProof()),
    "clean, snapshot": (True, 0, LogProof()),
    "unclean, gapless": (False, 0, LogProof(is_gapless=True)),
    "unclean, checkpoint, gapless": (False, END, LogProof(is_gapless=True)),
    "unclean, checkpoint": (False, END, LogProof()),
    "unclean, nothing": (False, 0, LogProof()),
}


def outcome(table: Table, place: str, field: str, at: int, mask: int, *, is_proven: bool) -> str:
    number = PLACES[place]
    hit = range(number * BATCH_RECORDS, (number + 1) * BATCH_RECORDS)
    table.put_back()
    table.flip(number, at, mask)
    name, position = table.files.places[number]
    damaged = bytearray(table.files.content[name][position:])
    damaged[at] ^= mask
    table.open()
    world = table.world
    served, refused = world.consumed()
    end = world.log.log_end_offset
    if field == "epoch":
        assert (served, refused, end) == (TRUTH, [], END)
        result = "repaired" if table.is_as_written() else "left"
    elif refused:
        # Not proven: it may have had these offsets or later ones, so one is left free behind it.
        is_known = is_proven or place != "last"
        assert refused == ([*hit] if is_known else [*hit, hit[-1] + 1])
        assert served == {key: value for key, value in TRUTH.items() if key not in hit}
        assert end == (END if is_known else END + 1)
        result = "refused"
    elif served == TRUTH:
        assert table.is_as_written()
        assert end == END
        result = "repaired"
    else:
        assert not is_proven
        assert place == "last"
        before = {key: value for key, value in TRUTH.items() if key not in hit}
        assert {key: served[key] for key in before} == before
        if field == "crc":  # as a torn tail, which nobody knows to have been durable
            assert (served, end) == (before, hit[0])
            result = "cut"
        else:
            base = struct.unpack_from(">q", damaged)[0]
            assert field == "base offset"
            assert hit[0] < base == end - BATCH_RECORDS
            result = "gap"
    assert world.append(batch([b"next"])).first_offset == end
    for clean in (False, True):
        world.reopen(clean=clean)
        again, refused_again = world.consumed()
        assert again == served | {end: b"next"}
        assert refused_again == refused
        assert world.log.log_end_offset == end + 1
    return result


def run(knowledge: str, place: str, bits: Iterable[tuple[str, int]]) -> dict[str, set[str]]:
    clean, recovery_point, proof = KNOWLEDGE[knowledge]
    table = Table(CONFIG, clean=clean, recovery_point=recovery_point, proof=proof)
    is_proven = knowledge != "unclean, nothing"
    found: dict[str, set[str]] = {}
    for field, bit in bits:
        at = FIELDS[field][0] + bit // 8
        proven = is_proven and not (field == "crc" and recovery_point == 0 and not clean)
        result = outcome(table, place, field, at, 0x80 >> bit % 8, is_proven=proven)
        found.setdefault(field, set()).add(result)
    return found


ALL_BITS = [(field, bit) for field, (_, size) in FIELDS.items() for bit in range(size * 8)]
SOME_BITS = [(field, bit) for field, bit in ALL_BITS if bit % 7 == 3 or bit == 62]


@pytest.mark.parametrize("knowledge", KNOWLEDGE)
def test_some_bits(knowledge: str) -> None:
    for place in PLACES:
        found = run(knowledge, place, SOME_BITS)
        if place == "last" and knowledge != "unclean, nothing":
            assert found["base offset"] == {"repaired"}
        if place == "last" or (not KNOWLEDGE[knowledge][1] and "unclean" in knowledge):
            assert found["length"] == found["magic"] == {"repaired"}
        is_looked_at = "unclean" not in knowledge and place == "last"
        if (
            is_looked_at
            or knowledge == "unclean, gapless"
            or (place != "last" and knowledge == "unclean, nothing")
        ):
            assert found["epoch"] == {"repaired"}


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("knowledge", KNOWLEDGE)
def test_every_bit(knowledge: str, place: str) -> None:
    run(knowledge, place, ALL_BITS)


def killed(count: int = 40, config: LogConfig | None = None) -> tuple[PartitionWorld, int]:
    world = PartitionWorld(config or LogConfig(), corruption="keep")
    for number in range(count):
        world.append(batch([b"value-%02d" % number]), synced=True)
    world.flush()
    world.log.close_handles()
    return world, len(batch([b"value-00"]))


def flip(world: PartitionWorld, position: int, mask: int, base: int = 0) -> None:
    file = world.filesystem.open_write(f"{DIRECTORY}/{base:020d}.log")
    file.pwrite(bytes((file.pread(1, position)[0] ^ mask,)), position)


def test_record_39_is_not_served_as_131111() -> None:
    """Bit 1 of byte 5 of the last base offset of a log that is gapless since its birth."""
    world, size = killed()
    flip(world, 39 * size + 5, 2)
    world.open(clean=False, proof=LogProof(is_gapless=True))
    served, refused = world.consumed()
    assert served == {offset: b"value-%02d" % offset for offset in range(40)}
    assert refused == []
    assert world.append(batch([b"next"])).first_offset == 40
    assert verify_directory(DIRECTORY, world.filesystem) == []


def test_rot_does_not_move_the_end_that_a_clean_stop_left() -> None:
    """The checkpoints hold it, and the end that is kept under a checksum."""
    world = PartitionWorld(corruption="keep")
    for number in range(40):
        world.append(batch([b"value-%02d" % number]))
    size = len(batch([b"value-00"]))
    world.flush()
    world.log.close()
    for recovery_point, told in ((40, None), (40, 40), (9, 40), (0, 40)):
        flip(world, 39 * size + 5, 2)
        world.open(clean=True, recovery_point=recovery_point, proof=LogProof(end_offset=told))
        assert sorted(world.consumed()[0]) == list(range(40))
        assert world.log.log_end_offset == 40
        world.log.close()


def test_offset_39_is_not_given_again() -> None:
    """A payload bit of the last batch, below the recovery point: what was durable is kept."""
    world, size = killed()
    flip(world, 40 * size - 3, 1)
    for _ in range(2):
        world.open(clean=False, recovery_point=40)
        served, refused = world.consumed()
        assert sorted(served) == list(range(39))
        assert refused == [39]
        world.log.close_handles()
    world.open(clean=False, recovery_point=40)
    assert world.append(batch([b"next"])).first_offset == 40


@pytest.mark.parametrize("at", [8, 10, 11, 16])
def test_a_rotten_length_or_magic_in_a_closed_segment_costs_its_own_batch(at: int) -> None:
    """Every batch of it, every bit; no recovery runs there."""
    for interval_bytes in (0, 200, 4096):
        config = LogConfig(internal_segment_bytes=700, index_interval_bytes=interval_bytes)
        world, size = killed(20, config)
        closed = world.bases()[1]
        assert closed * 2 < 20
        for offset in range(closed):
            for mask in (0x01, 0x04, 0x40):
                flip(world, offset * size + at, mask)
                world.open(clean=True)
                served, refused = world.consumed()
                assert refused == [offset]
                assert sorted(served) == [each for each in range(20) if each != offset]
                world.log.close()
                flip(world, offset * size + at, mask)
