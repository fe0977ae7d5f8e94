"""Goal: no bit of a batch header that lies outside the CRC, nor one of the CRC itself, moves a
    record, costs a neighbour or gives an offset twice.
Method: a table of every bit x first, middle and last batch x what is known of the log; the files of
one log are put back for each case, loaded, consumed, appended to and loaded again.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import pytest

from kafkalog.errors import CorruptBatch
from kafkalog.log.inspect.directory_check import verify_directory
from kafkalog.log.log_config import LogConfig
from kafkalog.log.values import Isolation, LogProof
from tests.partition_world import DIRECTORY, PartitionWorld, batch, records_of

if TYPE_CHECKING:
    from collections.abc import Iterable

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
    """Of one batch."""
    first = number * BATCH_RECORDS
    return [b"value-%02d" % offset for offset in range(first, first + BATCH_RECORDS)]


@dataclass(frozen=True)
class Files:
    """The files of a log of BATCHES batches, killed or closed; where each batch begins."""

    content: dict[str, bytes]
    places: tuple[tuple[str, int], ...]


@cache
def written(config: LogConfig, *, clean: bool) -> Files:
    """What a life of the log left."""
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
        """The files as they were."""
        world = self.world
        world.log.close_handles()
        for name in world.names():
            world.filesystem.unlink(f"{DIRECTORY}/{name}")
        for name, data in self.files.content.items():
            if name not in without:
                world.filesystem.open_write(f"{DIRECTORY}/{name}").pwrite(data, 0)

    def flip(self, number: int, at: int, mask: int) -> None:
        """Bits of a byte of a batch."""
        name, position = self.files.places[number]
        file = self.world.filesystem.open_write(f"{DIRECTORY}/{name}")
        file.pwrite(bytes((file.pread(1, position + at)[0] ^ mask,)), position + at)

    def open(self) -> None:
        """Load as the daemon does."""
        self.world.open(clean=self.clean, recovery_point=self.recovery_point, proof=self.proof)

    def is_as_written(self) -> bool:
        """Whether every batch has its bytes again."""
        return all(
            self.world.filesystem.read_file(f"{DIRECTORY}/{name}") == data
            for name, data in self.files.content.items()
            if name.endswith(".log")
        )


def consumed(world: PartitionWorld) -> tuple[dict[int, bytes | None], list[range]]:
    """Values by the offset they are served at, and the ranges refused, by who steps over them."""
    served: dict[int, bytes | None] = {}
    refused = []
    position = 0
    while position < world.log.log_end_offset:
        try:
            answer = world.log.read(position, 1 << 20, Isolation.LOG_END)
        except CorruptBatch as error:
            last = error.details["last_offset"]
            assert isinstance(last, int)
            assert last >= position
            refused.append(range(position, last + 1))
            position = last + 1
            continue
        served |= {each.offset: each.value for each in records_of(answer.data)}
        assert answer.next_offset > position, f"a reader hangs at {position}"
        position = answer.next_offset
    return served, refused


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
    """One case; what became of it."""
    number = PLACES[place]
    hit = range(number * BATCH_RECORDS, (number + 1) * BATCH_RECORDS)
    table.put_back()
    table.flip(number, at, mask)
    name, position = table.files.places[number]
    damaged = bytearray(table.files.content[name][position:])
    damaged[at] ^= mask
    table.open()
    world = table.world
    served, refused = consumed(world)
    end = world.log.log_end_offset
    if field == "epoch":
        assert (served, refused, end) == (TRUTH, [], END)
        result = "repaired" if table.is_as_written() else "left"
    elif refused:
        # Not proven: it may have had these offsets or later ones, so one is left free behind it.
        is_known = is_proven or place != "last"
        assert refused == [hit] if is_known else [range(hit[0], hit[-1] + 2)]
        assert served == {key: value for key, value in TRUTH.items() if key not in hit}
        assert end == END if is_known else END + 1
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
        again, refused_again = consumed(world)
        assert again == served | {end: b"next"}
        assert refused_again == refused
        assert world.log.log_end_offset == end + 1
    return result


def run(knowledge: str, place: str, bits: Iterable[tuple[str, int]]) -> dict[str, set[str]]:
    """Cases of one place; the outcomes of each field."""
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
    """A sample of the table."""
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
    """The whole table."""
    run(knowledge, place, ALL_BITS)


# ---- the attacks of issue 19, points 5, 6 and 10


def killed(count: int = 40, config: LogConfig | None = None) -> tuple[PartitionWorld, int]:
    """A log of one-record batches after acks=all and kill -9; the size of each batch."""
    world = PartitionWorld(config or LogConfig(), corruption="keep")
    for number in range(count):
        world.append(batch([b"value-%02d" % number]), synced=True)
    world.flush()
    world.log.close_handles()
    return world, len(batch([b"value-00"]))


def flip(world: PartitionWorld, position: int, mask: int, base: int = 0) -> None:
    """Bits of one byte of a segment."""
    file = world.filesystem.open_write(f"{DIRECTORY}/{base:020d}.log")
    file.pwrite(bytes((file.pread(1, position)[0] ^ mask,)), position)


def test_record_39_is_not_served_as_131111() -> None:
    """Bit 1 of byte 5 of the last base offset of a log that is gapless since its birth."""
    world, size = killed()
    flip(world, 39 * size + 5, 2)
    world.open(clean=False, proof=LogProof(is_gapless=True))
    served, refused = consumed(world)
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
        assert sorted(consumed(world)[0]) == list(range(40))
        assert world.log.log_end_offset == 40
        world.log.close()


def test_offset_39_is_not_given_again() -> None:
    """A payload bit of the last batch, below the recovery point: what was durable is kept."""
    world, size = killed()
    flip(world, 40 * size - 3, 1)
    for _ in range(2):
        world.open(clean=False, recovery_point=40)
        served, refused = consumed(world)
        assert sorted(served) == list(range(39))
        assert refused == [range(39, 40)]
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
                served, refused = consumed(world)
                assert refused == [range(offset, offset + 1)]
                assert sorted(served) == [each for each in range(20) if each != offset]
                world.log.close()
                flip(world, offset * size + at, mask)
