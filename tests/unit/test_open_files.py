"""Goal: descriptors and cached indexes stay within their settings, whatever the number of segments,
and renames never mislead a reader.
Method: logs with many segments on a simulated disk that counts what is open.
"""

from __future__ import annotations

import errno
import threading

import pytest

from kafkalog.broker.broker_config import OPEN_FILES_MIN, BrokerConfig
from kafkalog.broker.directory.commands import FlushCommand
from kafkalog.broker.values import Acks
from kafkalog.errors import AppendOutcomeUnknown, DescriptorsShort
from kafkalog.log.environment import ENTRY_OVERHEAD_BYTES, IndexCache
from kafkalog.log.inspect.invariants import check_invariants
from kafkalog.log.log_config import LogConfig
from kafkalog.log.segment.segment_file import MovableDirectory, SegmentFile
from kafkalog.log.values import Isolation, WouldBlock
from tests.log_world import DIRECTORY, LogWorld
from tests.sim.sim_faults import Fault
from tests.sim.sim_filesystem import SimFilesystem
from tests.sim.sim_manager import SimManager, batch_of

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
    for log in sim.manager.logs.table.logs():
        sim.manager.logs.unit_of(log).writer.run(FlushCommand(log))
    sim.threads.run_until_idle()
    return sim.disk.open_handles


def fill(sim: SimManager, acks: Acks) -> None:
    for _ in range(BATCHES):
        for partition in range(PARTITIONS):
            assert sim.produce("t", batch_of(VALUE), acks, partition).error is None


def read_all(sim: SimManager, partition: int) -> int:
    log = sim.operations.partition_log("t", partition)
    offset, count = log.log_start_offset, 0
    while offset < log.log_end_offset:
        found = sim.operations.fetch(
            sim.operations.partition_log("t", partition),
            offset,
            1,
            Isolation.HIGH_WATERMARK,
            may_block=True,
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
    segments = sum(len(log.segments) for log in sim.manager.logs.table.logs())
    assert segments >= PARTITIONS * BATCHES
    for partition in range(PARTITIONS):
        assert read_all(sim, partition) == BATCHES
        log = sim.operations.partition_log("t", partition)
        found = sim.operations.list_offset(log, 1, Isolation.LOG_END, may_block=True)
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
    sim = started().with_topic("t", 1)
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
        sim.clock.advance_ms(60_001)  # so long the directory is shown as failing
        assert sim.operations.readiness().faults == ()
        again = started(sim.stop())
        assert read_all(again, 0) == log.log_end_offset == 4, nth


def test_an_append_that_follows_another_opens_nothing() -> None:
    """M28: what was lent comes back from the cache, not from the disk."""
    sim = started().with_topic("t", 1)
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


def made_file(world: LogWorld, name: str, content: bytes) -> SegmentFile:
    world.filesystem.open_write(f"{DIRECTORY}/{name}").pwrite(content, 0)
    return SegmentFile(world.environment, world.directory, name)


def test_least_recently_used_index_goes_first() -> None:
    cache = IndexCache(threading.Lock(), 3 * (ENTRY_OVERHEAD_BYTES + 100))
    for owner in "abc":
        cache.put(owner, owner.upper(), ENTRY_OVERHEAD_BYTES + 100)
    assert cache.get("a") == "A"
    cache.put("d", "D", ENTRY_OVERHEAD_BYTES + 100)
    assert [cache.get(owner) for owner in "abcd"] == ["A", None, "C", "D"]
    cache.put("e", "E", 10_000)
    assert cache.get("e") is None
    assert len(cache) == 3
    for owner in "acd":
        cache.forget(owner)
    assert cache.size_bytes == 0


def test_reader_never_replaces_what_is_cached() -> None:
    cache = IndexCache(threading.Lock(), 10_000)
    cache.put("a", "new", 10)
    assert cache.put("a", "stale", 10) == "new"
    assert cache.put("b", "first", 10) == "first"
    assert cache.get("a") == "new"


def test_files_open_lazily_and_evicted_ones_live_on_in_their_reader() -> None:
    """The world keeps two descriptors."""
    world = LogWorld()
    files = [made_file(world, f"{number}.log", b"%d" % number) for number in range(3)]
    with pytest.raises(WouldBlock):
        files[0].acquire(may_block=False)
    reader = files[0].acquire()
    assert files[0].acquire(may_block=False) is reader
    for file in files[1:]:
        file.acquire()
    assert len(world.environment.open_files) == 2
    with pytest.raises(WouldBlock):
        files[0].acquire(may_block=False)
    assert reader.pread(1, 0) == b"0"


def test_renamed_and_moved_files_are_found() -> None:
    """M12: a segment found before its renaming is still readable after it."""
    world = LogWorld()
    file = made_file(world, "1.log", b"data")
    assert file.rename("1.log.deleted")
    assert file.acquire().pread(4, 0) == b"data"
    file.release()
    world.directory.rename(world.filesystem, f"{DIRECTORY}.x-delete")
    assert file.acquire().pread(4, 0) == b"data"
    assert file.path == f"{DIRECTORY}.x-delete/1.log.deleted"
    assert file.unlink()
    assert not file.unlink()
    assert not file.datasync()
    with pytest.raises(FileNotFoundError):
        file.acquire()


@pytest.mark.parametrize("is_directory", [False, True])
def test_a_walk_begins_in_the_middle_of_a_rename(*, is_directory: bool) -> None:
    """M26: a segment that changes its name at this moment is no missing file."""
    read: list[bytes] = []

    def walk() -> None:
        if is_renaming and not read:
            read.append(b"")  # asks the disk, too
            read[0] = file.open_scan().pread(4, 0)

    is_renaming = False
    world = LogWorld(disk=SimFilesystem(on_call=walk))
    file = made_file(world, "1.log.swap", b"data")
    is_renaming = True
    if is_directory:
        world.directory.rename(world.filesystem, f"{DIRECTORY}.x-delete")
    else:
        file.rename("1.log")
    assert read == [b"data"]


def test_missing_file_keeps_the_new_name() -> None:
    world = LogWorld()
    file = SegmentFile(world.environment, world.directory, "9.log")
    assert not file.rename("9.log.deleted")
    assert file.name == "9.log.deleted"


def test_failed_directory_rename_keeps_the_old_path() -> None:
    world = LogWorld()
    directory = MovableDirectory("/nowhere")
    with pytest.raises(FileNotFoundError):
        directory.rename(world.filesystem, "/elsewhere")
    assert directory.path == "/nowhere"
