"""Goal: every directory found at the start gets one decision, Kafka's where brokers showed a
difference; a start that is stopped half way loses nothing, and its progress is seen.
Method: directories on a simulated disk; stops at every segment.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.broker.directory.log_dir import (
    CLEAN_SHUTDOWN_MARKER,
    LOG_START_OFFSETS,
    PROOFS,
    RECOVERY_POINTS,
)
from kafkalog.broker.startup.plan import FoundPartition, StartupPlan, plan_startup, suspects
from kafkalog.broker.topics.registry import RegisteredTopic, RegistryState
from kafkalog.broker.values import Acks
from kafkalog.errors import CorruptBatch
from kafkalog.format.disk.file_names import segment_file_name
from kafkalog.format.disk.producer_snapshot import decode_snapshot
from kafkalog.format.records.control_record import ControlRecordType, build_end_transaction_marker
from kafkalog.format.topic_names import DirectoryState, TopicPartition
from kafkalog.log.inspect.invariants import check_invariants
from kafkalog.log.log_config import LogConfig
from kafkalog.log.recovery.log_loader import LoadHooks, load_log
from kafkalog.log.segment.segment_recovery import RECOVERY_CHUNK_BYTES
from kafkalog.log.values import AppendOrigin
from tests.partition_world import DIRECTORY, NOW_MS, PartitionWorld, batch
from tests.sim.sim_crash import CrashMode
from tests.sim.sim_manager import DIRS, SimManager, batch_of
from tests.simulation.daemon_run import DaemonRun, new_disk

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from tests.sim.sim_filesystem import SimFilesystem


ALIVE, DEAD, OTHER = UUID(int=1001), UUID(int=1002), UUID(int=1003)


def found(
    topic: str,
    partition: int = 0,
    topic_id: UUID | None = None,
    state: DirectoryState = DirectoryState.LIVE,
) -> FoundPartition:
    name = f"{topic}-{partition}{state.value}"
    return FoundPartition("/a", name, TopicPartition(topic, partition), state, topic_id)


def registry() -> RegistryState:
    state = RegistryState().with_topics(
        [RegisteredTopic(ALIVE, "t", 2), RegisteredTopic(DEAD, "gone", 1)]
    )
    return state.without_topic("gone")


def plan_of(
    *parts: FoundPartition, unused: Collection[str] = (), adopt: bool = False
) -> StartupPlan:
    return plan_startup(registry(), parts, unused, adopt=adopt, new_topic_id=lambda: OTHER)


def test_each_kind_of_directory() -> None:
    """M14: known id or name: load; dead id: delete; unknown or contradicting: stray."""
    load = [found("t", 0, ALIVE), found("t", 1)]
    delete = [found("gone", 0, DEAD), found("t", 0, DEAD)]
    stray = [found("t", 2, ALIVE), found("t", 1, OTHER), found("new", 0, OTHER), found("gone")]
    remove = [found("x", state=DirectoryState.DELETE)]
    alone = [found("x", state=DirectoryState.STRAY), found("x", state=DirectoryState.FUTURE)]
    plan = plan_of(*load, *delete, *stray, *remove, *alone)
    assert [each for each, _ in plan.load] == load
    assert (plan.delete, plan.stray) == (delete, stray)
    assert (plan.remove, plan.left_alone) == (remove, alone)
    assert plan.registry == registry()


def test_an_id_that_contradicts_the_registry() -> None:
    """M14: with records in it and no other home the partition is refused; else the old rules."""
    unknown = replace(found("t", 0, OTHER), has_records=True)
    twin = replace(found("t", 1, OTHER), has_records=True)
    dead = replace(found("t", 0, DEAD), has_records=True)
    beyond = replace(found("t", 2, OTHER), has_records=True)
    home = replace(found("t", 1, ALIVE), log_dir="/b")
    for adopt in (True, False):
        plan = plan_of(unknown, twin, dead, beyond, home, found("t", 0, OTHER), adopt=adopt)
        assert plan.contradicted == [(unknown, registry().topics["t"])]
        assert [each for each, _ in plan.load] == [home]
        assert plan.delete == [dead]
        assert plan.stray == [twin, beyond, found("t", 0, OTHER)]
        assert plan.adopted == []


def test_one_partition_half_made_in_two_directories() -> None:
    """M14: a creation failed in one and a crash ended it in the other, before either had an id."""
    here, there = found("t", 0), replace(found("t", 0), log_dir="/b")
    for unused, loads, deletes in (
        ({here.path, there.path}, [there], [here]),
        ({here.path}, [there], [here]),
        ({there.path}, [here], [there]),
        (set[str](), [here, there], []),  # refused afterwards: both may hold records
    ):
        assert suspects(registry(), [here, there]) == [here, there]
        plan = plan_of(here, there, unused=unused)
        assert [each for each, _ in plan.load] == loads
        assert (plan.delete, plan.stray) == (deletes, [])


def test_adoption() -> None:
    """M14: ids are kept, holes are counted in, internal topics stay compacted."""
    plan = plan_startup(
        RegistryState(),
        [found("n", 3, OTHER), found("n", 0), found("__consumer_offsets", 49, ALIVE)],
        adopt=True,
        new_topic_id=lambda: DEAD,
    )
    topics = plan.registry.topics
    assert plan.registry.generation == 1
    assert (topics["n"].topic_id, topics["n"].partition_count) == (OTHER, 4)
    assert topics["__consumer_offsets"].partition_count == 50
    assert topics["__consumer_offsets"].overrides["cleanup.policy"] == "compact"
    assert topics["n"].overrides == {"retention.ms": "-1", "retention.bytes": "-1"}
    assert len(plan.load) == 3
    assert plan.stray == []


def test_adopted_records_outlive_the_default_retention() -> None:
    """M09 M14: what a topic was told to keep did not come along, so nothing of it is deleted."""
    sim = SimManager().start().with_topic("t", 1)
    sim.produce("t", batch_of("old"))
    disk = sim.stop()
    for path in DIRS:
        disk.unlink(f"{path}/kafkalog.registry")
    again = SimManager(disk, seed=1).start()
    again.clock.step_wall_ms(30 * 86_400_000)
    assert again.manager.retention.run_once() == 0
    assert again.manager.retention.run_once() == 0
    assert again.operations.partition_log("t", 0).log_start_offset == 0
    assert again.operations.partition_log("t", 0).size_bytes > 0


def test_a_topic_that_died_while_its_directory_was_away() -> None:
    """M14 M15: the directory that comes back finishes the delete, the id is dead for good."""
    sim = SimManager().start().with_topic("t", 2)
    away = sim.operations.partition_log("t", 1).directory.rpartition("/")[0]
    sim.manager.logs.unit_at(away).log_dir.take_offline("pulled")
    sim.threads.run_until_idle()
    sim.operations.topics.delete("t")
    disk = sim.stop()
    assert disk.exists(f"{away}/t-1")
    again = SimManager(disk, seed=1).start()
    assert again.operations.topic_names() == []
    assert not disk.exists(f"{away}/t-1")
    again.clock.advance_ms(200_000)
    assert not [name for path in DIRS for name in disk.list_dir(path) if name.startswith("t-")]


X, Y = "0" * 31 + "1", "0" * 31 + "2"


def moved(state: DirectoryState, unique_id: str, topic_id: UUID | None = ALIVE) -> FoundPartition:
    return replace(found("t", 0, topic_id, state), unique_id=unique_id)


def test_a_pair_of_one_move_tells_that_its_copy_is_complete() -> None:
    """Between its two renamings a move has left a -delete and a -future of one id."""
    doomed, future = moved(DirectoryState.DELETE, X), moved(DirectoryState.FUTURE, X)
    plan = plan_of(doomed, future)
    (move,) = plan.committed
    assert (move.future, move.doomed, move.topic.name) == (future, doomed, "t")
    assert (plan.remove, plan.orphans, plan.moving) == ([], [], [])

    other = moved(DirectoryState.DELETE, Y)
    plan = plan_of(other, future)
    assert (plan.committed, plan.orphans, plan.remove) == ([], [future, other], [])

    live = found("t", 0, ALIVE)
    plan = plan_of(live, doomed, future)
    assert (plan.committed, plan.moving, plan.remove) == ([], [future], [doomed])


def test_what_a_move_has_named_without_its_pair() -> None:
    """A copy is filled on where its partition is live; nothing goes where nothing is live."""
    future, doomed = moved(DirectoryState.FUTURE, X), moved(DirectoryState.DELETE, X)
    dead = moved(DirectoryState.FUTURE, Y, DEAD)
    foreign = moved(DirectoryState.FUTURE, Y, OTHER)
    nameless = moved(DirectoryState.FUTURE, "no-id")
    unnamed = moved(DirectoryState.DELETE, Y, None)
    second = moved(DirectoryState.FUTURE, Y)

    assert plan_of(future).orphans == [future]
    assert plan_of(doomed).orphans == [doomed]
    assert plan_of(dead).delete == [dead]
    assert plan_of(foreign).left_alone == [foreign]
    assert plan_of(nameless).left_alone == [nameless]
    assert plan_of(unnamed).remove == [unnamed]
    live = found("t", 0, ALIVE)
    assert plan_of(live, future, doomed, second).moving == [future]
    assert plan_of(live, future, doomed, second).delete == [second]
    assert plan_of(live, doomed).remove == [doomed]


TOPIC_DEFAULTS = LogConfig(internal_segment_bytes=600, segment_index_bytes=240)


def killed_daemon(partition_count: int = 8) -> DaemonRun:
    """Two directories, partitions with records, a moved start; then SIGKILL."""
    run = DaemonRun(new_disk(DIRS), dirs=DIRS, racy=False)
    run.config = replace(run.config, num_recovery_threads_per_data_dir=1)
    run.start()
    run.create_topic("t", partition_count)
    for partition in range(partition_count):
        for _ in range(8):
            run.produce("t", partition, Acks.ALL, client=1)
        run.run_until_idle()
        run.delete_records("t", partition, 3)
    run.run_until_idle()
    run.kill()
    return run


def stopped_daemon() -> DaemonRun:
    """The same, and then a start that recovered it and an orderly stop."""
    run = killed_daemon()
    run.start()
    run.stop()
    return run


def stopped_start(run: DaemonRun, calls: int) -> SimManager:
    """A life that is told to stop after so many calls of the disk, and does."""
    life = SimManager(run.disk, config=run.config, topic_defaults=TOPIC_DEFAULTS)
    left, is_late = calls, False

    def count() -> None:
        nonlocal left, is_late
        left -= 1
        if left == 0:
            loading = life.manager.progress.loading
            is_late = 0 < loading.partitions == loading.partitions_loaded
            life.manager.stop_loading()

    run.disk.on_call = count
    life.start()
    run.disk.on_call = None
    assert not life.manager.registry.is_ready or left > 0 or is_late
    return life


def next_lives(make: Callable[[], DaemonRun], mode: CrashMode | None) -> Iterator[DaemonRun]:
    """The life behind an orderly stop at each moment of a load, then a kill or a power cut."""
    partial, calls, is_loaded = 0, 0, False
    while not is_loaded:
        calls += 7
        run = make()
        life = stopped_start(run, calls)
        is_loaded = life.manager.registry.is_ready
        loading = life.manager.progress.loading
        partial += 0 < loading.partitions_loaded < loading.partitions
        life.stop()
        if mode is not None:
            run.disk = run.disk.crash(mode, 0)
        run.start()
        yield run
    assert partial > 3, "stops between two partitions"


@pytest.mark.parametrize(
    "mode",
    [
        None,
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in (CrashMode.DROP_ALL, CrashMode.ZEROED_DATA)
        ),
    ],
)
def test_a_stop_at_any_moment_of_the_load_loses_nothing(mode: CrashMode | None) -> None:
    """M14: an orderly stop, then a kill or a power cut: the next life keeps every promise."""
    for run in next_lives(killed_daemon, mode):
        run.check_restart(is_kill=mode is None)


@pytest.mark.parametrize("mode", [None, CrashMode.DROP_ALL])
def test_a_clean_directory_stays_clean(mode: CrashMode | None) -> None:
    """M14: what was not loaded lies as the last stop left it, what was is closed again."""
    for run in next_lives(stopped_daemon, mode):
        assert all(unit.log_dir.was_clean for unit in run.life.manager.logs.units)
        run.check_restart(is_kill=mode is None)


def test_what_was_recovered_is_not_recovered_again() -> None:
    """M16: a probe that ends a long recovery sends one partition back to its beginning, not all."""
    run = killed_daemon(partition_count=9)
    for path in DIRS:
        run.disk.unlink(f"{path}/{PROOFS}")  # it has every recovery point, since the last deletion
    starts = {path: run.disk.read_file(f"{path}/{LOG_START_OFFSETS}") for path in DIRS}
    life = SimManager(run.disk, config=run.config, topic_defaults=TOPIC_DEFAULTS)
    table = life.manager.logs.table

    def stop_in_the_ninth() -> None:
        if len(table) == 8:
            life.manager.stop_loading()

    run.disk.on_call = stop_in_the_ninth
    life.start()
    run.disk.on_call = None
    assert life.manager.progress.loading.partitions_loaded == 8
    loaded = {(log.topic_partition.topic, log.topic_partition.partition) for log in table.logs()}
    life.stop()
    assert {path: run.disk.read_file(f"{path}/{LOG_START_OFFSETS}") for path in DIRS} == starts
    clean = [run.disk.exists(f"{path}/{CLEAN_SHUTDOWN_MARKER}") for path in DIRS]
    assert sorted(clean) == [False, True], "the directory that was loaded whole is clean"
    points = {
        tuple(line.split()[:2]): line.split()[2]
        for path in DIRS
        for line in run.disk.read_file(f"{path}/{RECOVERY_POINTS}").decode().splitlines()[2:]
    }
    assert {(topic, int(number)) for topic, number in points} == loaded
    assert set(points.values()) == {"8"}


def test_a_long_recovery_ends_in_its_segment() -> None:
    """M01 M16: a probe's patience is shorter than the recovery of one large log."""
    sim = SimManager(topic_defaults=TOPIC_DEFAULTS).start().with_topic("t", 1)
    while len(sim.operations.partition_log("t", 0).segments) < 20:
        assert sim.produce("t", batch_of("v" * 60)).error is None
    end = sim.operations.partition_log("t", 0).log_end_offset
    life = SimManager(sim.kill(), topic_defaults=TOPIC_DEFAULTS)
    left: list[int] = []

    def stop_in_the_fifth() -> None:
        left.append(life.manager.progress.loading.segments_to_recover)
        if left[-1] == 16:
            life.manager.stop_loading()

    life.disk.on_call = stop_in_the_fifth
    with capture_logs() as lines:
        life.start()
    life.disk.on_call = None
    assert min(count for count in left if count) == 16
    assert life.manager.progress.loading.partitions_loaded == 0
    assert not [line for line in lines if line["log_level"] == "error"], "nothing is at fault"
    disk = life.stop()
    home = partition_path(disk).rpartition("/")[0]
    assert not disk.exists(f"{home}/{CLEAN_SHUTDOWN_MARKER}")
    again = SimManager(disk, topic_defaults=TOPIC_DEFAULTS).start()
    assert again.operations.partition_log("t", 0).log_end_offset == end


LARGE = LogConfig(segment_index_bytes=240)
BATCHES = 24


def large_log() -> SimFilesystem:
    """Two segments of twelve chunks each, of which the checkpoint knows nothing; SIGKILL."""
    sim = SimManager(topic_defaults=LARGE).start().with_topic("t", 1)
    for number in range(BATCHES):
        if number == BATCHES // 2:
            sim.operations.partition_log("t", 0).roll()
        sim.produce("t", batch_of("v" * RECOVERY_CHUNK_BYTES))
    return sim.kill()


def partition_path(disk: SimFilesystem) -> str:
    return next(f"{path}/t-0" for path in DIRS if disk.exists(f"{path}/t-0"))


def large_log_durable_to(recovery_point: int) -> tuple[SimFilesystem, str]:
    """The same with a checkpoint, and the partition's directory."""
    disk = large_log()
    directory = partition_path(disk)
    path = f"{directory.rpartition('/')[0]}/{RECOVERY_POINTS}"
    disk.write_file_atomically(path, f"0\n1\nt 0 {recovery_point}\n".encode())
    return disk, directory


def scanned_for_producers() -> SimFilesystem:
    """The last segment alone lies above it, but no snapshot says who wrote the first."""
    disk, directory = large_log_durable_to(BATCHES // 2)
    disk.unlink(f"{directory}/{BATCHES // 2:020d}.snapshot")
    return disk


def scanned_for_epochs() -> SimFilesystem:
    """All is durable, but for a damaged epoch checkpoint."""
    disk, directory = large_log_durable_to(BATCHES)
    disk.write_file_atomically(f"{directory}/leader-epoch-checkpoint", b"x\n")
    return disk


@pytest.mark.parametrize(
    "make", [large_log, scanned_for_producers, scanned_for_epochs], ids=lambda make: make.__name__
)
def test_a_stop_does_not_wait_for_a_large_partition(make: Callable[[], SimFilesystem]) -> None:
    """M16: at any moment of its load; nothing is lost, and the next start recovers it."""
    whole = CountedStart(make(), stop_at=None)
    assert whole.life.manager.registry.is_ready
    assert whole.calls > 80
    interrupted = 0
    for stop_at in range(1, whole.calls, 5):
        start = CountedStart(make(), stop_at=stop_at)
        assert start.calls - stop_at <= 40, "the last calls of a start included"
        loading = start.life.manager.progress.loading
        assert loading.partitions_loaded == len(start.life.manager.logs.table)
        interrupted += not loading.partitions_loaded
        disk = start.life.stop()
        marker = f"{partition_path(disk).rpartition('/')[0]}/{CLEAN_SHUTDOWN_MARKER}"
        assert disk.exists(marker) == bool(loading.partitions_loaded)
        again = SimManager(disk.crash(CrashMode.DROP_ALL), topic_defaults=LARGE).start()
        assert again.operations.partition_log("t", 0).log_end_offset == BATCHES
    assert interrupted > 5


class CountedStart:
    """A start that is told to stop at a call of its disk, counted from the begin of the load."""

    def __init__(self, disk: SimFilesystem, *, stop_at: int | None) -> None:
        self.life = SimManager(disk, topic_defaults=LARGE)
        self.calls = 0
        self.stop_at = stop_at
        disk.on_call = self.count
        self.life.start()
        disk.on_call = None

    def count(self) -> None:
        self.calls += bool(self.life.manager.progress.loading.partitions)
        if self.calls == self.stop_at:
            self.life.manager.stop_loading()


def left_by_a_kill() -> PartitionWorld:
    world = PartitionWorld(LogConfig(segment_index_bytes=96))
    for _ in range(4):
        world.append(batch([b"a"]))
        world.log.roll()
    world.log.close_handles()
    return world


def test_each_segment_counts_down() -> None:
    """M16: from all to none."""
    world = left_by_a_kill()
    files = [f"{DIRECTORY}/{number:020d}.log" for number in range(5)]
    sizes = [world.filesystem.stat(file).size for file in files]
    assert len({*sizes[:4]}) == 1 < len({*sizes}), "the active segment is empty"
    notes: list[tuple[int, int]] = []
    hooks = LoadHooks(note_recovery=lambda *note: notes.append(note))
    load_log(DIRECTORY, world.config, world.environment(), clean=False, hooks=hooks)
    segments, size_bytes = zip(*notes, strict=True)
    assert [left for left in accumulate(segments) if left] == [5, 4, 3, 2, 1]
    assert [*accumulate(size_bytes)][:5] == [sizes[0] * left for left in (4, 3, 2, 1, 0)]
    assert (sum(segments), sum(size_bytes)) == (0, 0)


def test_a_load_that_fails_leaves_nothing_behind() -> None:
    """M16: a partition that is out of service is not "recovering" for ever."""
    world = left_by_a_kill()
    legacy = world.filesystem.open_write(f"{DIRECTORY}/{2:020d}.log")
    legacy.pwrite(b"\x01", 16)
    notes: list[tuple[int, int]] = []
    hooks = LoadHooks(note_recovery=lambda *note: notes.append(note))
    with pytest.raises(CorruptBatch):
        load_log(DIRECTORY, world.config, world.environment(), clean=False, hooks=hooks)
    assert notes[0][0] == 5
    assert [sum(column) for column in zip(*notes, strict=True)] == [0, 0]


def test_an_unclean_start_says_what_it_recovered() -> None:
    """After the load, for a day: a clean start that followed at once hid it."""
    sim = SimManager(topic_defaults=LARGE).start().with_topic("t", 3)
    log = sim.operations.partition_log("t", 0)
    sim.produce("t", batch_of("a"))
    path, size_bytes, parent = (
        log.local.active_segment.log_file.path,
        log.size_bytes,
        log.parent_dir,
    )
    disk = sim.kill()
    disk.open_write(path).pwrite(b"torn", size_bytes)
    again = SimManager(disk, topic_defaults=LARGE)
    assert again.operations.unclean_start() is None
    again.start()
    found = again.operations.unclean_start()
    assert found is not None
    assert (found.partitions, found.bytes_cut) == (3, 4)
    assert found.bytes_recovered == size_bytes + 4
    assert found.log_dirs == len({each.parent_dir for each in again.manager.logs.table.logs()})
    cut = again.metrics.registry.get_sample_value(
        "kafkalog_recovery_cut_bytes_total", {"log_dir": parent}
    )
    assert cut == 4
    clean = SimManager(again.stop(), topic_defaults=LARGE).start()
    assert clean.operations.unclean_start() == found
    clean.clock.advance_ms(86_400_001)
    assert clean.operations.unclean_start() is None


def test_a_long_recovery_is_told() -> None:
    """M16: Kafka's sentences; between the first and the last one line in ten seconds."""
    config = BrokerConfig(log_dirs=("/data/a",), num_recovery_threads_per_data_dir=1)
    defaults = LogConfig(segment_index_bytes=96, internal_segment_bytes=200)
    sim = SimManager(config=config, topic_defaults=defaults).start().with_topic("t", 10)
    for partition in range(10):
        for _ in range(5):
            sim.produce("t", batch_of("a"), Acks.LEADER, partition=partition)
    again = SimManager(sim.kill(), config=config, topic_defaults=defaults)
    again.disk.on_call = lambda: again.clock.sleep(0.1)
    with capture_logs() as captured:
        again.start()
    again.disk.on_call = None
    events = [line["event"] for line in captured]
    first, *between, last, cleanup, flusher, cleaner = events
    assert cleanup == "Starting log cleanup with a period of 300000 ms."
    assert flusher.startswith("Starting log flusher with a default period of ")
    assert cleaner == "Starting the log cleaner"
    assert first == "Recovering 10 logs from /data/a since no clean shutdown file was found"
    took = re.fullmatch(r"Loaded 10 logs in (\d+)ms", last)
    assert took is not None
    periods = int(took[1]) // 10_000
    assert periods > 3
    assert periods // 2 <= len(between) <= periods
    log = r"Completed load of t-\d with \d segments, local-log-start-offset 0 and log-end-offset 5 "
    log += r"in \d+ms \(\d+/10 completed in /data/a\)"
    segment = r"Recovering unflushed segments\. \d+ left \(\d+/10 logs completed in /data/a\)"
    assert all(re.fullmatch(f"{log}|{segment}", event) for event in between), between


def test_nothing_is_told_once_loaded() -> None:
    """M16: a topic that is made later is no recovery."""
    sim = SimManager().start()
    sim.clock.advance_ms(12_000)
    with capture_logs() as lines:
        sim.operations.topics.create("t", 1)
    assert [line["event"] for line in lines if "ecover" in line["event"]] == []


SMALL = LogConfig(internal_segment_bytes=300, index_interval_bytes=0)
DAY_MS = 86_400_000


def path(offset: int, suffix: str) -> str:
    return f"{DIRECTORY}/{segment_file_name(offset, suffix)}"


def filled(config: LogConfig = SMALL, count: int = 10) -> PartitionWorld:
    world = PartitionWorld(config)
    for number in range(count):
        world.append(batch([b"value-%d" % number], producer=(number, 0, 0)))
    world.flush()
    world.log.close()
    return world


def test_expired_producers_are_dropped_at_every_segment() -> None:
    """M25: each recovered segment starts from the snapshot before it, without the expired."""
    world = filled()
    world.clock.advance_ms(2 * DAY_MS)
    world.open(clean=False)
    last = world.bases()[-1]
    ids = sorted(world.log.producers.entries)
    assert ids == []
    snapshot = decode_snapshot(world.filesystem.read_file(path(last, ".snapshot")))
    before_last = world.bases()[-2]
    assert [entry.producer_id for entry in snapshot] == list(range(before_last, last))


def test_a_clean_load_without_snapshots_counts_an_empty_segment() -> None:
    """M25. Snapshots at the last two segments, one of which may be empty, and no other."""
    world = PartitionWorld(SMALL)
    for number in range(10):
        world.append(batch([b"value-%d" % number]))
    world.log.roll()
    world.flush()
    world.log.close()
    for name in world.names():
        if name.endswith(".snapshot"):
            world.filesystem.unlink(f"{DIRECTORY}/{name}")
    world.open(clean=True)
    assert world.bases()[-1] == world.log.log_end_offset
    left = [name for name in world.names() if name.endswith(".snapshot")]
    assert left == [segment_file_name(base, ".snapshot") for base in world.bases()[-2:]]


def test_recovery_leaves_no_transaction_unstable() -> None:
    """M25: transactions that ended before a crash do not hold the last stable offset back."""
    world = PartitionWorld()
    world.append(batch([b"a"], producer=(1, 0, 0), is_transactional=True))
    world.append(batch([b"b"]))
    marker = build_end_transaction_marker(1, 0, 0, ControlRecordType.COMMIT, timestamp_ms=NOW_MS)
    world.append(marker, origin=AppendOrigin.COORDINATOR)
    world.append(batch([b"c"] * 5))
    world.log.close_handles()
    log = load_log(DIRECTORY, world.config, world.environment(), clean=False)
    log.update_high_watermark(2)
    assert log.last_stable_offset == 2


def test_a_dropped_log_has_no_snapshot_at_its_new_start() -> None:
    """M02: Kafka writes none either."""
    world = filled()
    world.open(clean=False, log_start_offset=50)
    world.flush()
    world.log.close()
    assert not [name for name in world.names() if name.endswith(".snapshot")]


@pytest.mark.parametrize("tail", [b"\0", b"\0" * 100, b"\xaa" * 200, b"\xaa"])
def test_a_clean_log_that_does_not_end_with_a_batch_is_recovered(tail: bytes) -> None:
    """M14: Kafka refuses to start, or appends behind the torn bytes; here they are cut."""
    world = filled()
    log = path(world.bases()[-1], ".log")
    size = world.filesystem.stat(log).size
    world.filesystem.open_write(log).pwrite(tail, size)
    world.open(clean=True, recovery_point=10)
    assert world.filesystem.stat(log).size == size
    assert world.append(batch([b"next"])).first_offset == 10
    check_invariants(world.log)
    assert len(world.read_all(0)) == 11


def test_a_clean_log_with_a_zeroed_tail_is_recovered() -> None:
    """M14: no offset is given a second time behind bytes that nobody can read."""
    world = filled()
    log = path(world.bases()[-1], ".log")
    size = world.filesystem.stat(log).size
    last = len(batch([b"value-9"], producer=(9, 0, 0)))
    world.filesystem.open_write(log).pwrite(bytes(last), size - last)
    world.open(clean=True, recovery_point=10)
    assert world.log.log_end_offset == 9
    assert world.append(batch([b"next"])).first_offset == 9
    check_invariants(world.log)


def test_files_that_a_clean_directory_lacks_are_made() -> None:
    """M02: an empty time index and an empty epoch checkpoint, as Kafka makes them."""
    world = filled()
    first = path(0, ".timeindex")
    world.filesystem.unlink(first)
    world.filesystem.unlink(f"{DIRECTORY}/leader-epoch-checkpoint")
    world.open(clean=True, recovery_point=10)
    world.log.close()
    assert world.filesystem.stat(first).size == 0
    assert world.filesystem.stat(f"{DIRECTORY}/leader-epoch-checkpoint").size == 0


def test_what_lies_behind_a_hole_is_kept_when_there_may_be_holes() -> None:
    """M22: compaction may have made them before the topic's configs were lost."""
    world = filled()
    second = world.bases()[1]
    for suffix in (".log", ".index", ".timeindex"):
        world.filesystem.unlink(path(second, suffix))
    log = load_log(DIRECTORY, world.config, world.environment(), clean=False, may_have_gaps=True)
    assert log.log_end_offset == 10
