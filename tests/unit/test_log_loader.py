"""Goal: loading finishes or undoes what a crash left, and keeps all that is still good.
Method: files of a closed or killed log are damaged, renamed or removed, then it is loaded again.
"""

from __future__ import annotations

import struct
import zlib

import pytest
from structlog.testing import capture_logs

from kafkalog.errors import CorruptBatch
from kafkalog.log.inspect.directory_check import verify_directory
from kafkalog.log.inspect.invariants import check_invariants
from kafkalog.log.log_config import LogConfig
from kafkalog.log.values import Isolation
from tests.partition_world import DIRECTORY, NOW_MS, PartitionWorld, batch
from tests.sim.sim_faults import Fault

CONFIG = LogConfig(internal_segment_bytes=300, index_interval_bytes=0)
LOG_0 = f"{DIRECTORY}/00000000000000000000.log"


def filled(count: int = 10, config: LogConfig = CONFIG) -> PartitionWorld:
    world = PartitionWorld(config)
    for number in range(count):
        world.append(batch([b"value-%d" % number], producer=(7, 0, number)))
    return world


def values(world: PartitionWorld) -> list[bytes | None]:
    return [record.value for record in world.read_all(world.log.log_start_offset)]


def change(world: PartitionWorld, path: str, position: int, data: bytes) -> None:
    world.filesystem.open_write(path).pwrite(data, position)


def test_stage_suffixes_are_settled() -> None:
    """M09: .deleted and .cleaned go, an index without log goes, .checkpoint.deleted stays."""
    world = filled()
    world.flush()
    world.log.close()
    left = "00000000000000000000.timeindex.deleted", "00000000000000000003.log.cleaned"
    for name in (*left, "00000000000000000099.index", "x.checkpoint.deleted"):
        world.filesystem.open_write(f"{DIRECTORY}/{name}")
    world.open(clean=True, recovery_point=10)
    assert not {*left, "00000000000000000099.index"} & set(world.names())
    assert "x.checkpoint.deleted" in world.names()
    assert len(values(world)) == 10
    check_invariants(world.log)


@pytest.mark.parametrize("stage", ["", ".cleaned", ".swap"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_name_of_fewer_digits_is_left_alone(stage: str, *, clean: bool) -> None:
    world = filled()
    world.flush()
    world.log.close()
    stray = f"123.log{stage}"
    world.filesystem.open_write(f"{DIRECTORY}/{stray}")
    world.open(clean=clean, recovery_point=10)
    assert stray in world.names()
    assert len(values(world)) == 10
    check_invariants(world.log)
    (finding,) = verify_directory(DIRECTORY, world.filesystem)
    assert stray in str(finding)


@pytest.mark.parametrize("corruption", ["kafka", "keep"])
def test_rot_in_the_middle(corruption: str) -> None:
    """M08: Kafka's rule cuts there; 'keep' serves everything but the rotten batch."""
    world = filled(10, LogConfig())
    world.corruption = corruption  # type: ignore[assignment] # one of the two
    size = len(batch([b"value-0"], producer=(7, 0, 0)))
    change(world, LOG_0, 4 * size + 65, b"\xff")
    world.reopen(clean=False)
    if corruption == "kafka":
        assert world.log.log_end_offset == 4
        return
    assert world.log.log_end_offset == 10
    with pytest.raises(CorruptBatch):
        world.log.read(4, 1000, Isolation.LOG_END)
    assert [record.offset for record in world.read_all(5)] == [5, 6, 7, 8, 9]


def test_rot_before_a_torn_tail() -> None:
    """M08: 'keep' steps over the rotten batch and cuts, and saves, the torn bytes alone."""
    world = filled(10, LogConfig())
    world.corruption = "keep"
    end = world.log.size_bytes
    size = len(batch([b"value-0"], producer=(7, 0, 0)))
    change(world, LOG_0, 4 * size + 65, b"\xff")
    change(world, LOG_0, end, b"torn")
    world.reopen(clean=False)
    assert (world.log.log_end_offset, world.log.size_bytes) == (10, end)
    assert [record.offset for record in world.read_all(5)] == [5, 6, 7, 8, 9]
    assert world.filesystem.read_file(f"{LOG_0}.{end}.torn") == b"torn"
    world.reopen(clean=False)
    assert world.log.log_end_offset == 10


def test_batches_that_go_back_are_kept_beside() -> None:
    """M08: what starts below the end is a torn tail like any other; its CRC may be right."""
    world = filled(3, LogConfig())
    world.corruption = "keep"
    size = world.log.size_bytes
    first = world.filesystem.read_file(LOG_0)[: size // 3]
    change(world, LOG_0, size, first)
    world.reopen(clean=False)
    assert (world.log.log_end_offset, world.log.size_bytes) == (3, size)
    assert world.filesystem.read_file(f"{LOG_0}.{size}.torn") == first


def test_a_recovery_leaves_no_snapshot_below_the_log_start() -> None:
    """M08: Kafka's truncateAndReload deletes also those that the recovery itself wrote."""
    world = filled()
    world.log.close_handles()
    for name in world.names():
        if name.endswith(".snapshot"):
            world.filesystem.unlink(f"{DIRECTORY}/{name}")
    world.open(clean=False, log_start_offset=7)
    offsets = [int(name.split(".")[0]) for name in world.names() if name.endswith(".snapshot")]
    assert offsets
    assert min(offsets) > 7
    check_invariants(world.log)


def test_kafka_10101_a_log_below_its_start_is_dropped() -> None:
    """M08, KAFKA-10101: everything was lost below the start offset: empty at the start."""
    world = filled(3)
    world.log.close_handles()
    world.open(clean=False, log_start_offset=50)
    assert (world.log.log_start_offset, world.log.log_end_offset) == (50, 50)
    assert world.append(batch([b"n"])).first_offset == 50
    check_invariants(world.log)


def test_verify_finds_what_is_wrong() -> None:
    """M09: a clean directory has no findings; a flipped bit and a bad index have one each."""
    world = filled()
    world.flush()
    world.log.close()
    assert verify_directory(DIRECTORY, world.filesystem) == []
    change(world, LOG_0, 70, b"\xff")
    found = verify_directory(DIRECTORY, world.filesystem)
    assert [(each.file, each.position) for each in found] == [("00000000000000000000.log", 0)]


def test_a_clean_load_wastes_nothing() -> None:
    """M08: 20,000 segments start in seconds: one listing, no sync, nothing read of old segments."""
    world = filled(12)
    assert len(world.bases()) > 3
    oldest = f"{world.bases()[1]:020d}"
    world.flush()
    world.log.close()
    lists = world.filesystem.faults.add(Fault(kinds=frozenset({"list"}), nth=10**9))
    syncs = frozenset({"sync", "datasync", "sync_dir"})
    synced = world.filesystem.faults.add(Fault(kinds=syncs, nth=10**9))
    opened = world.filesystem.faults.add(Fault(kinds=frozenset(), path_contains=oldest, nth=10**9))
    world.open(clean=True, recovery_point=12)
    assert (lists.seen, synced.seen, opened.seen) == (1, 0, 0)
    assert len(values(world)) == 12


@pytest.mark.parametrize("value_bytes", [1, 61, 5000])
def test_a_damaged_legacy_first_message_of_any_length_is_refused(value_bytes: int) -> None:
    """A v1 message longer than a v2 header is one too; a clean load looks at it as well."""
    world = PartitionWorld()
    body = b"\x01\x00" + struct.pack(">qi", NOW_MS, -1)
    body += struct.pack(">i", value_bytes) + b"v" * value_bytes
    message = struct.pack(">I", zlib.crc32(body) ^ 1) + body
    data = struct.pack(">qi", 0, len(message)) + message
    world.log.close_handles()
    world.filesystem.open_write(LOG_0).pwrite(data, 0)
    for clean in (True, False):
        with pytest.raises(CorruptBatch, match="v0 or v1"):
            world.open(clean=clean)
    assert world.filesystem.read_file(LOG_0)[: len(data)] == data


def stopped() -> tuple[PartitionWorld, list[int], int]:
    """A log of several segments after a clean stop, their bases, its end."""
    world = filled(18)
    world.flush()
    world.log.close()
    return world, world.bases(), world.log.log_end_offset


def told_losses(
    world: PartitionWorld, *, clean: bool, recovery_point: int = 0, log_start_offset: int = 0
) -> list[tuple[object, ...]]:
    """The holes that a load names."""
    with capture_logs() as lines:
        world.open(clean=clean, recovery_point=recovery_point, log_start_offset=log_start_offset)
    told = [line for line in lines if line["event"] == "offsets_lost"]
    assert {line["log_level"] for line in told} <= {"error"}
    return [(line["first_offset"], line["last_offset"]) for line in told]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("evidence", ["indexes", "index", "snapshot"])
def test_a_missing_log_is_told_as_lost_offsets(clean: bool, evidence: str) -> None:
    """An index, or the snapshot of a base, shows that a segment was there."""
    world, bases, end = stopped()
    assert len(bases) >= 5
    for base in (bases[1], bases[2]):
        for suffix in ("log", "timeindex", "index"):
            if suffix == "log" or evidence == "snapshot" or suffix == evidence:
                world.filesystem.unlink(f"{DIRECTORY}/{base:020d}.{suffix}")
    hole = (bases[1], bases[3] - 1)
    found = verify_directory(DIRECTORY, world.filesystem)
    missing = f"missing: no segment holds offsets {hole[0]} to {hole[1]}"
    doubt = ", unless the topic was compacted"
    proven = missing + doubt if evidence == "snapshot" else missing
    assert (f"{bases[1]:020d}.log", proven) in [(each.file, each.problem) for each in found]
    assert told_losses(world, clean=clean, recovery_point=end) == [hole]
    world.log.close()
    assert told_losses(world, clean=True, recovery_point=end) == []
    world.log.close()
    found = verify_directory(DIRECTORY, world.filesystem)
    assert [each.problem for each in found] == [missing + doubt]


@pytest.mark.parametrize("clean", [True, False])
def test_a_missing_first_and_last_log_are_told(clean: bool) -> None:
    """In front of the log by its index; behind it, how far it went is not known."""
    world, bases, end = stopped()
    for base in (bases[0], bases[-1]):
        world.filesystem.unlink(f"{DIRECTORY}/{base:020d}.log")
    problems = {each.file: each.problem for each in verify_directory(DIRECTORY, world.filesystem)}
    for base in (bases[0], bases[-1]):
        assert problems[f"{base:020d}.log"] == "missing: it has an index"
    told = told_losses(world, clean=clean, recovery_point=end)
    assert told == [(0, bases[1] - 1), (bases[-1], None)]


@pytest.mark.parametrize("clean", [True, False])
def test_what_was_deleted_or_lies_below_the_start_is_not_told(clean: bool) -> None:
    """A deletion that a crash cut short leaves an index too."""
    world, bases, end = stopped()
    log_0 = f"{DIRECTORY}/{bases[0]:020d}.log"
    world.filesystem.rename(log_0, f"{log_0}.deleted")
    world.filesystem.unlink(f"{DIRECTORY}/{bases[1]:020d}.log")
    assert told_losses(world, clean=clean, recovery_point=end, log_start_offset=bases[2]) == []


def test_verify_names_few_of_many_findings_of_one_file() -> None:
    world, bases, _ = stopped()
    name = f"{bases[0]:020d}.index"
    file = world.filesystem.open_write(f"{DIRECTORY}/{name}")
    file.truncate(0)
    file.truncate(8 * 100_000)
    found = [each for each in verify_directory(DIRECTORY, world.filesystem) if each.file == name]
    assert len(found) == 21
    assert found[-1].problem == f"... {99_999 - 20} more"
