"""Goal: directories are described truly, cordoned and slowed down while the daemon serves, and what
they do not hold is named, never made anew without being told so.
Method: managers over several simulated disks, some of which are taken away.
"""

from __future__ import annotations

import errno
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.broker.directory.free_space import UNKNOWN_SPACE
from kafkalog.broker.directory.log_dir import REGISTRY_FILE
from kafkalog.broker.topics.registry import RegisteredTopic, decode_registry
from kafkalog.broker.values import Acks, ConfigChange, MoveState
from kafkalog.errors import DiskFull, InvalidReplicaAssignment, InvalidRequest, LogDirOffline
from kafkalog.format.disk.properties import decode_meta_properties
from kafkalog.format.topic_names import encode_id
from kafkalog.observe.prometheus import values_of
from kafkalog.server.admin.logs import _log_dir
from tests.sim.sim_crash import CrashMode
from tests.sim.sim_faults import Fault
from tests.sim.sim_manager import DIRS, SimManager, batch_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.broker.values import LogDirDescription
    from kafkalog.env.filesystem import DiskSpace
    from tests.sim.sim_filesystem import SimFilesystem


def sizes(description: LogDirDescription) -> dict[str, int]:
    """Bytes by partition, in the order of the description."""
    return {str(each.topic_partition): each.size_bytes for each in description.partitions}


def filled() -> SimManager:
    """Two topics over two directories, with records in some of their partitions."""
    sim = SimManager().start().with_topic("b", 11).with_topic("a", 2)
    for topic, partition in (("a", 0), ("a", 1), ("b", 10)):
        for _ in range(partition + 1):
            assert sim.produce(topic, batch_of("v"), partition=partition).error is None
    return sim


def test_every_partition_with_its_bytes() -> None:
    """M14: in the order of log.dirs, sorted by topic and number; what the .log files hold."""
    sim = filled()
    described = sim.operations.log_dirs.describe()
    assert [each.path for each in described] == list(DIRS)
    assert sum(len(each.partitions) for each in described) == 13
    for each in described:
        keys = [partition.topic_partition for partition in each.partitions]
        assert keys == sorted(keys)
        for name, size in sizes(each).items():
            assert sim.disk.exists(f"{each.path}/{name}")
            data = sim.disk.read_file(f"{each.path}/{name}/00000000000000000000.log")
            assert size == len(data)
    batch = len(batch_of("v"))
    every = {name: size for each in described for name, size in sizes(each).items()}
    assert {name: size for name, size in every.items() if size} == {
        "a-0": batch, "a-1": 2 * batch, "b-10": 11 * batch
    }  # fmt: skip


def test_only_the_topics_asked_for() -> None:
    """M14: unknown ones have no partitions, as in Kafka's tool; the directories stay."""
    operations = filled().operations

    def names(*topics: str) -> list[str]:
        described = operations.log_dirs.describe(set(topics))
        assert [each.path for each in described] == list(DIRS)
        return sorted(name for each in described for name in sizes(each))

    assert names("a") == ["a-0", "a-1"]
    assert names("a", "nope") == ["a-0", "a-1"]
    assert names("nope", "../b") == []
    assert len(names("a", "b")) == len(names()) == 13


def test_a_full_and_a_failing_directory_are_described_as_the_probe_does() -> None:
    """They were shown as if nothing was wrong; ``/readyz`` listed them."""
    config = BrokerConfig(log_dirs=("/data/a", "/data/b", "/data/c"))
    sim = SimManager(config=config).start()
    first, second, _ = (unit.log_dir for unit in sim.manager.logs.units)
    first.free_space.note_full("no space left")
    second.note_broken("t-0 takes no appends")
    described = sim.operations.log_dirs.describe()
    states = [each.state for each in described]
    assert states == ["full", "failing", "online"]
    faults = {each.log_dir: (each.state, each.reason) for each in sim.operations.readiness().faults}
    shown = {each.path: (each.state, each.reason) for each in described if each.reason is not None}
    assert shown == faults
    assert [each.error for each in map(_log_dir, described)] == [None] * 3, "Kafka's: offline only"
    assert [each.state for each in map(_log_dir, described)] == states


def test_space_is_known_from_the_start_and_measured_again() -> None:
    """M14: what a task measured; asking touches no disk."""
    sim = SimManager().start()

    def space() -> set[DiskSpace]:
        calls: list[str] = []
        sim.disk.on_call = lambda: calls.append("disk")
        found = {each.space for each in sim.operations.log_dirs.describe()}
        sim.disk.on_call = None
        assert calls == []
        return found

    (first,) = space()
    assert first == sim.disk.space(DIRS[0])
    sim.operations.topics.create("t", 1)
    for _ in range(3):
        assert sim.produce("t", batch_of("v" * 100_000), Acks.ALL).error is None
    assert space() == {first}
    sim.clock.advance_ms(10_000)
    (second,) = space()
    assert second.total_bytes == first.total_bytes
    assert second.usable_bytes <= first.usable_bytes - 300_000
    assert second == sim.disk.space(DIRS[0])


def test_a_disk_is_as_full_as_df_shows() -> None:
    """What is reserved for root is neither used nor available."""
    sim = SimManager().start()
    sim.disk.capacity_bytes, sim.disk.reserved_bytes = 1_000_000, 600_000
    sim.clock.advance_ms(10_000)
    (space,) = {each.space for each in sim.operations.log_dirs.describe()}
    used_bytes = space.used_bytes
    assert space == (1_000_000, 400_000 - used_bytes, used_bytes)
    assert space.used_ratio == used_bytes / 400_000
    metrics = sim.metrics
    for gauge, size_bytes in (
        (metrics.log_dir_used_bytes, used_bytes),
        (metrics.log_dir_free_bytes, 400_000 - used_bytes),
        (metrics.log_dir_capacity_bytes, 400_000),
    ):
        assert dict(values_of(gauge)) == {(path,): size_bytes for path in DIRS}
    assert UNKNOWN_SPACE.used_ratio is None


A, B = DIRS
CORDONED = "cordoned.log.dirs"
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
HOUR_MS = 3_600_000


def alter(sim: SimManager, key: str, value: str | None) -> None:
    sim.operations.alter_broker_configs([ConfigChange(key, value)])


def counts(sim: SimManager) -> list[int]:
    return [len(sim.manager.logs.table.logs_in(path)) for path in DIRS]


def cordons(sim: SimManager) -> list[bool]:
    return [each.is_cordoned for each in sim.operations.log_dirs.describe()]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (B, [True, False]),
        (f"{A}/", [False, True]),
        ("*", [True, False]),  # as in Kafka the first one then takes everything
        (f"{A},{B}", [True, False]),
        ("", [False, False]),
    ],
)
def test_a_cordon_counts_at_once(value: str, expected: Sequence[bool]) -> None:
    """M14: KIP-1066, no restart. What is there is served and deleted as before."""
    sim = SimManager().start().with_topic("old", 2)
    alter(sim, CORDONED, value)
    sim.operations.topics.create("new", 4)
    measured = [
        sim.metrics.registry.get_sample_value("kafkalog_log_dir_cordoned", {"log_dir": path})
        for path in DIRS
    ]
    assert measured == [float(each) for each in cordons(sim)]
    took = [count > 1 for count in counts(sim)]
    assert took == ([True, True] if value == "" else expected)
    for topic, number in (("old", 2), ("new", 4)):
        for partition in range(number):
            assert sim.produce(topic, batch_of("v"), partition=partition).error is None
    sim.operations.topics.delete("old")


def test_a_cordon_survives_a_restart_and_is_taken_back() -> None:
    """M14: it goes over the file's value, is as durable as any config, and is told."""
    config = BrokerConfig(log_dirs=DIRS, cordoned_log_dirs=(A,))
    sim = SimManager(config=config).start().with_topic("first", 2)
    assert (cordons(sim), counts(sim)) == ([True, False], [0, 2])
    with capture_logs() as lines:
        alter(sim, CORDONED, B)
    assert [(line["event"], line["log_dir"]) for line in lines] == [
        ("log_dir_uncordoned", A),
        ("log_dir_cordoned", B),
    ]
    assert cordons(sim) == [False, True]
    sim.operations.topics.create("t", 1)
    with pytest.raises(InvalidReplicaAssignment):
        sim.operations.log_dirs.move("t", 0, B)
    again = SimManager(sim.stop(), config=config).start()
    assert cordons(again) == [False, True]
    alter(again, CORDONED, None)
    assert cordons(again) == [True, False]


@pytest.mark.parametrize("value", ["/elsewhere", f"*,{A}", f"{A},/elsewhere"])
def test_only_log_directories_are_cordoned(value: str) -> None:
    """M14: refused as the file's value is. A mistyped path is no cordon that nobody notices."""
    sim = SimManager().start()
    with pytest.raises(InvalidRequest, match="must name directories"):
        alter(sim, CORDONED, value)
    assert cordons(sim) == [False, False]
    assert CORDONED not in sim.manager.registry.state.broker_configs


def test_a_cordoned_directory_may_leave_the_configuration() -> None:
    """M14: a stored cordon of a directory that is gone stops neither the start nor a change."""
    sim = SimManager().start()
    alter(sim, CORDONED, B)
    again = SimManager(sim.stop(), config=BrokerConfig(log_dirs=(A,))).start()
    alter(again, "log.retention.ms", "5000")
    assert [each.is_cordoned for each in again.operations.log_dirs.describe()] == [False]
    with pytest.raises(InvalidRequest, match="must name directories"):
        alter(again, CORDONED, f"{A},{B}")


def test_another_rate_ends_the_pause_of_a_move() -> None:
    """M14: as Kafka's dynamic replication quota."""
    sim = SimManager().start().with_topic("t", 1)
    for _ in range(50):
        assert sim.produce("t", batch_of("v" * 100)).error is None
    alter(sim, RATE, "1")
    sim.operations.log_dirs.move("t", 0, B)
    sim.clock.advance_ms(HOUR_MS)
    assert sim.operations.log_dirs.moves()[0].state is MoveState.COPYING
    alter(sim, RATE, None)
    sim.threads.run_until(lambda: sim.operations.log_dirs.moves()[0].state is MoveState.DONE)
    with pytest.raises(InvalidRequest, match=RATE):
        alter(sim, RATE, "0")


PARTITIONS = 6


def stopped() -> SimFilesystem:
    """Topic t with three partitions in each directory, after a clean stop."""
    sim = SimManager().start().with_topic("t", PARTITIONS)
    for partition in range(PARTITIONS):
        sim.produce("t", batch_of("v"), partition=partition)
    return sim.stop()


def assert_half_is_told(sim: SimManager, lines: list[Any], victim: str) -> None:
    names = sorted(f"t-{n}" for n in range(PARTITIONS) if sim.disk.exists(f"{victim}/t-{n}"))
    (line,) = [line for line in lines if line["event"] == "partitions_offline"]
    own = [line["partition"] for line in lines if line["event"] == "partition_offline"]
    assert sorted(line["first"] + own) == names
    assert line["count"] == len(line["first"])
    (bad,) = [each for each in sim.operations.log_dirs.describe() if each.offline_reason]
    assert (bad.path, bad.space, bad.partitions) == (victim, UNKNOWN_SPACE, [])
    ready = sim.operations.readiness()
    assert (ready.offline_dirs, ready.offline_partitions) == (1, PARTITIONS // 2)
    assert ready.partitions == PARTITIONS // 2


@pytest.mark.parametrize(
    "file", [".lock", "meta.properties", "recovery-point-offset-checkpoint", "00000.log"]
)
def test_a_directory_that_fails_at_the_start(file: str) -> None:
    """What it holds counts as offline though nobody could look into it."""
    sim, victim = SimManager(stopped()), DIRS[0]
    kinds = frozenset({"open", "create", "read"})
    path = file if file.endswith(".log") else f"{victim}/{file}"
    sim.disk.faults.add(Fault(error=errno.EIO, kinds=kinds, path_contains=path))
    with capture_logs() as lines:
        sim.start()
    (dead,) = [unit.log_dir.path for unit in sim.manager.logs.units if not unit.log_dir.is_online]
    assert_half_is_told(sim, lines, dead)


def test_a_directory_that_fails_at_run_time() -> None:
    sim = SimManager(stopped()).start()
    with capture_logs() as lines:
        sim.manager.logs.units[0].log_dir.take_offline("it broke")
    assert_half_is_told(sim, lines, DIRS[0])


_CREATE = frozenset({"create"})


def manager_on(
    disk: SimFilesystem | None = None, log_dirs: tuple[str, ...] = DIRS, *, give_up: bool = False
) -> SimManager:
    seed = 0 if disk is None else disk.generation
    config = BrokerConfig(
        log_dirs=log_dirs,
        create_missing_partitions=give_up,
        log_retention_clock_guard=False,  # its checks would write the registry, too
    )
    return SimManager(disk, seed=seed, config=config)


def stopped_with_a_record_in_each() -> SimFilesystem:
    """Topic t: partition 0 in one directory, 1 in the other."""
    sim = manager_on().start().with_topic("t", 2)
    for partition in range(2):
        assert sim.produce("t", batch_of("v"), partition=partition).error is None
    return sim.stop()


def partition_in(disk: SimFilesystem, log_dir: str) -> int:
    return next(number for number in range(2) if disk.exists(f"{log_dir}/t-{number}"))


def directory_id(disk: SimFilesystem, log_dir: str) -> str:
    found = decode_meta_properties(disk.read_file(f"{log_dir}/meta.properties")).directory_id
    assert found is not None
    return encode_id(found)


def lines_of(lines: list[Any], event: str) -> list[Any]:
    return [line for line in lines if line["event"] == event]


def assert_all_served(sim: SimManager) -> None:
    for partition in range(2):
        assert sim.operations.partition_log("t", partition).log_end_offset == 1


def assert_completed(sim: SimManager, topic: str, partitions: int) -> None:
    for partition in range(partitions):
        assert sim.operations.partition_log(topic, partition).log_end_offset == 0
    assert not sim.manager.registry.state.in_making


def test_an_entry_left_out_keeps_its_partitions_offline() -> None:
    disk = stopped_with_a_record_in_each()
    lost, kept = partition_in(disk, A), partition_in(disk, B)
    identity = directory_id(disk, A)
    sim = manager_on(disk, (B,))
    with capture_logs() as lines:
        sim.start()
    with pytest.raises(LogDirOffline, match=identity):
        sim.operations.partition_log("t", lost)
    assert sim.operations.partition_log("t", kept).log_end_offset == 1
    (line,) = lines_of(lines, "partition_offline")
    assert line["partition"] == f"t-{lost}"
    assert f"{identity} (last at {A})" in line["reason"]
    assert "create.missing.partitions=true" in line["remedy"]
    (missing,) = lines_of(lines, "log_dir_missing")
    assert (missing["directory_id"], missing["last_path"]) == (identity, A)
    assert sim.operations.readiness().offline_partitions == 1
    again = sim.stop()
    assert not again.exists(f"{B}/t-{lost}")
    assert_all_served(manager_on(again).start())


@pytest.mark.parametrize("is_made", [False, True])
def test_a_replaced_disk_keeps_its_partitions_offline(*, is_made: bool) -> None:
    """An empty directory at the same path is another directory: it joins, and that is all."""
    disk = stopped_with_a_record_in_each()
    lost, identity = partition_in(disk, A), directory_id(disk, A)
    disk.remove_tree(A)
    if is_made:
        disk.make_dir(A)
    for _ in range(2):
        sim = manager_on(disk).start()
        with pytest.raises(LogDirOffline, match=identity):
            sim.operations.partition_log("t", lost)
        assert directory_id(disk, A) != identity
        sim.operations.topics.create(f"new{disk.generation}", 2)
        disk = sim.stop()
    assert not disk.exists(f"{A}/t-{lost}")


def test_a_partition_directory_that_vanished_is_not_made_anew() -> None:
    disk = stopped_with_a_record_in_each()
    lost = partition_in(disk, A)
    disk.remove_tree(f"{A}/t-{lost}")
    sim = manager_on(disk).start()
    with pytest.raises(LogDirOffline, match="its directory was removed"):
        sim.operations.partition_log("t", lost)


def test_the_operator_gives_the_records_up() -> None:
    disk = stopped_with_a_record_in_each()
    lost = partition_in(disk, A)
    sim = manager_on(disk, (B,), give_up=True)
    with capture_logs() as lines:
        sim.start()
    (made,) = lines_of(lines, "partition_missing_created_empty")
    assert made["partition"] == f"t-{lost}"
    assert [line["last_path"] for line in lines_of(lines, "log_dir_forgotten")] == [A]
    assert sim.produce("t", batch_of("v"), partition=lost).error is None
    with capture_logs() as lines:
        again = manager_on(sim.stop(), (B,)).start()
    assert not lines_of(lines, "log_dir_missing")
    assert_all_served(again)


@pytest.mark.parametrize("file", ["meta.properties", "recovery-point-offset-checkpoint"])
def test_a_missing_directory_is_named_also_beside_an_offline_one(file: str) -> None:
    third = "/data/c"
    disk = manager_on(stopped_with_a_record_in_each(), (A, B, third)).start().stop()
    identity = directory_id(disk, third)
    disk.faults.add(Fault(kinds=frozenset({"read"}), path_contains=f"{B}/{file}", times=10**6))
    with capture_logs() as lines:
        manager_on(disk, (A, B)).start()
    (missing,) = lines_of(lines, "log_dir_missing")
    assert (missing["directory_id"], missing["last_path"]) == (identity, third)
    assert [line["count"] for line in lines_of(lines, "partitions_offline")] == [1]


def test_a_directory_without_partitions_is_forgotten() -> None:
    disk = stopped_with_a_record_in_each()
    disk = manager_on(disk, (*DIRS, "/data/c")).start().stop()
    assert len(decode_registry(disk.read_file(f"{A}/kafkalog.registry")).log_dirs) == 3
    sim = manager_on(disk).start()
    assert_all_served(sim)
    assert len(decode_registry(sim.stop().read_file(f"{A}/kafkalog.registry")).log_dirs) == 2


@pytest.mark.parametrize("mode", list(CrashMode))
def test_a_creation_that_a_crash_cut_off_is_completed(mode: CrashMode) -> None:
    sim = manager_on().start()
    registry = sim.manager.registry
    topic = RegisteredTopic(UUID(int=7), "u", 3)
    registry.change(registry.state.with_new_topics([topic]))
    again = manager_on(sim.disk.crash(mode)).start()
    assert_completed(again, "u", 3)


def test_a_creation_that_was_not_taken_back_outlives_the_next_one() -> None:
    sim = manager_on().start()
    full = partial(Fault, error=errno.ENOSPC)
    sim.disk.faults.add(full(kinds=frozenset({"make_dir"}), path_contains="/t-1"))
    unregistered = 1 + len(DIRS)  # the registration is one file a directory
    sim.disk.faults.add(full(kinds=_CREATE, path_contains=REGISTRY_FILE, nth=unregistered))
    with pytest.raises(DiskFull):
        sim.operations.topics.create("t", 2)
    sim.operations.topics.create("u", 1)
    again = manager_on(sim.kill()).start()
    assert_completed(again, "t", 2)


def test_a_growth_that_a_disk_kept_is_completed() -> None:
    sim = manager_on().start().with_topic("t", 1)
    sim.disk.faults.add(
        Fault(error=errno.ENOSPC, kinds=_CREATE, path_contains=REGISTRY_FILE, nth=2, times=3)
    )
    with pytest.raises(DiskFull):
        sim.operations.topics.create_partitions("t", 3)
    sim.clock.advance_ms(10 * 60_000)
    disk = sim.kill()
    assert not any(name.startswith(("t-1", "t-2")) for each in DIRS for name in disk.list_dir(each))
    again = manager_on(disk).start()
    assert_completed(again, "t", 3)
