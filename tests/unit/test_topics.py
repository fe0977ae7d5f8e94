"""Goal: topics and broker are configured and topics grow at run time, all or nothing, for good; a
directory that fails while a topic is made costs that directory, never records.
Method: managers on simulated disks; failures at each call.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.broker.directory.commands import Command, Step
from kafkalog.broker.directory.log_dir import REGISTRY_FILE
from kafkalog.broker.topics.registry import decode_registry, encode_registry
from kafkalog.broker.values import ConfigChange
from kafkalog.errors import (
    DescriptorsShort,
    DiskFull,
    InvalidConfig,
    InvalidPartitions,
    InvalidRequest,
    InvalidTopicConfig,
    InvalidTopicName,
    KafkalogError,
    LogDirOffline,
    NotReady,
    PolicyViolation,
    RecordBatchTooLarge,
    StorageFault,
    UnknownPartition,
    UnknownTopic,
)
from kafkalog.log.log_config import LogConfig
from tests.sim.sim_faults import MUTATING, Fault
from tests.sim.sim_manager import DIRS, SimManager, batch_of

if TYPE_CHECKING:
    from tests.sim.sim_filesystem import SimFilesystem


CALLS = MUTATING | {"open"}


def started(disk: SimFilesystem | None = None, config: BrokerConfig | None = None) -> SimManager:
    return SimManager(disk, config=config).start()


def alter(sim: SimManager, *changes: tuple[str, str | None], topic: str = "t") -> None:
    sim.operations.topics.alter_configs(topic, [ConfigChange(*change) for change in changes])


def alter_broker(sim: SimManager, *changes: tuple[str, str | None]) -> None:
    sim.operations.alter_broker_configs([ConfigChange(*change) for change in changes])


def overrides(sim: SimManager) -> dict[str, str]:
    return dict(sim.operations.topics.describe("t").overrides)


def registries(sim: SimManager) -> list[bytes]:
    return [sim.disk.read_file(f"{path}/{REGISTRY_FILE}") for path in DIRS]


def homes(sim: SimManager, partition: int) -> list[str]:
    return [path for path in DIRS if sim.disk.exists(f"{path}/t-{partition}")]


def test_configs_take_effect_in_every_partition_at_once() -> None:
    """M13 M16: no restart; the registry of every directory has them before the answer."""
    sim = started().with_topic("t", 3, {"cleanup.policy": "compact"})
    with pytest.raises(PolicyViolation):
        sim.manager.logs.log_of("t", 2).delete_records(0)
    alter(sim, ("max.message.bytes", "10"), ("cleanup.policy", None))
    assert overrides(sim) == {"max.message.bytes": "10"}
    for number in range(3):
        with pytest.raises(RecordBatchTooLarge):
            sim.produce("t", batch_of("a"), partition=number)
        assert sim.manager.logs.log_of("t", number).config.has_delete_policy
    for data in registries(sim):
        assert dict(decode_registry(data).topics["t"].overrides) == {"max.message.bytes": "10"}
    alter(sim, ("max.message.bytes", None))
    assert sim.produce("t", batch_of("a")).error is None
    again = started(sim.stop())
    assert overrides(again) == {}


def test_acks_of_a_topic_change_with_its_config() -> None:
    """M13: what requests ask the topic's configuration is resolved anew."""
    sim = started().with_topic("t", 1)
    assert sim.operations.default_acks("t").value == "all"
    alter(sim, ("http.produce.acks", "1"))
    assert sim.operations.default_acks("t").value == "1"


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ([("retention.byte", "7")], InvalidTopicConfig, "Unknown topic config name: retention"),
        ([("retention.byte", None)], InvalidTopicConfig, "Unknown topic config name: retention"),
        ([("retention.ms", "abc")], InvalidTopicConfig, "Invalid value abc for configuration"),
        (
            [("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "5")],
            InvalidTopicConfig,
            r"min.compaction.lag.ms \(10\) > max.compaction.lag.ms \(5\)",
        ),
        ([("flush.ms", "1"), ("flush.ms", "2")], InvalidRequest, "duplicate config keys : flush"),
        ([("flush.ms", "1"), ("flush.ms", None)], InvalidRequest, "duplicate config keys : flush"),
    ],
)
def test_what_kafka_refuses_changes_nothing(
    changes: list[tuple[str, str | None]], kind: type[KafkalogError], message: str
) -> None:
    """M13: also what is right in the same request."""
    sim = started().with_topic("t", 1, {"flush.messages": "9"})
    before = registries(sim)
    with pytest.raises(kind, match=message):
        alter(sim, ("flush.messages", "5"), *changes)
    assert registries(sim) == before
    assert sim.manager.logs.log_of("t", 0).config.flush_messages == 9


def test_a_dry_run_and_an_alteration_to_the_same_write_nothing() -> None:
    """M13: the answer is the same, the disk is left alone."""
    sim = started().with_topic("t", 1, {"flush.ms": "9"})
    before = len(sim.disk.operations)
    tried = sim.operations.topics.alter_configs(
        "t", [ConfigChange("flush.ms", "5")], validate_only=True
    )
    assert dict(tried.overrides) == {"flush.ms": "5"}
    alter(sim, ("flush.ms", "9"), ("retention.ms", None))
    assert len(sim.disk.operations) == before
    assert overrides(sim) == {"flush.ms": "9"}
    with pytest.raises(UnknownTopic):
        alter(sim, ("flush.ms", "5"), topic="nope")


class Waiting(Command):
    def run(self, writer: object) -> Step:
        return Step.DONE


def test_a_full_queue_holds_up_no_change_of_a_topic() -> None:
    """M13 M14: what is durable reaches the logs, whatever waits before it, and so does a deletion:
    it was answered with 429 when the topic was gone and its directories were not.
    """
    sim = started(config=BrokerConfig(log_dirs=DIRS, queued_max_request_bytes=600))
    sim.operations.topics.create("t", 2)
    sim.manager.logs.unit_of(sim.manager.logs.log_of("t", 0)).writer.submit(Waiting(None, 5_000))
    alter(sim, ("flush.messages", "3"))
    assert [log.config.flush_messages for log in sim.manager.logs.table.logs()] == [3, 3]
    sim.operations.topics.delete("t")
    assert [homes(sim, number) for number in (0, 1)] == [[], []]


def test_a_topic_whose_configs_no_longer_fit_the_file_can_be_mended() -> None:
    """M13: a new default in the file clashes with an override: deleting that is possible."""
    sim = started().with_topic("t", 1, {"min.compaction.lag.ms": "10"})
    strict = LogConfig(max_compaction_lag_ms=5)
    again = SimManager(sim.stop(), topic_defaults=strict).start()
    with pytest.raises(LogDirOffline, match=r"t-0 is out of service: .* min\.compaction\.lag\.ms"):
        again.operations.partition_log("t", 0)
    described = again.operations.topics.describe("t")
    assert (list(described.faults), described.overrides) == ([0], {"min.compaction.lag.ms": "10"})
    alter(again, ("min.compaction.lag.ms", None))
    assert overrides(again) == {}
    assert started(again.stop()).manager.logs.log_of("t", 0).log_end_offset == 0


def test_a_directory_that_was_away_learns_the_configs() -> None:
    """M14 M15: its partitions come back with what was altered meanwhile."""
    sim = started().with_topic("t", 2)
    away = sim.manager.logs.log_of("t", 1).directory.rpartition("/")[0]
    sim.manager.logs.unit_at(away).log_dir.take_offline("pulled")
    alter(sim, ("flush.messages", "3"))
    again = started(sim.stop())
    assert [again.manager.logs.log_of("t", n).config.flush_messages for n in (0, 1)] == [3, 3]


def test_dynamic_broker_configs_reach_every_log_without_an_override() -> None:
    """M13: dynamic over static, the topic over both; kept over a restart, gone when deleted."""
    sim = started().with_topic("t", 2).with_topic("own", 1, {"flush.messages": "9"})
    alter_broker(sim, ("log.flush.interval.messages", "4"), ("log.segment.delete.delay.ms", "5"))

    def seen(run: SimManager) -> list[int]:
        partitions = (("t", 0), ("t", 1), ("own", 0))
        return [run.manager.logs.log_of(*each).config.flush_messages for each in partitions]

    assert seen(sim) == [4, 4, 9]
    assert sim.operations.topics.create("new").configs
    assert sim.manager.logs.log_of("new", 0).config.flush_messages == 4
    sim.operations.topics.delete("new")
    sim.clock.advance_ms(60_000)
    assert not [name for path in DIRS for name in sim.disk.list_dir(path) if "new" in name]
    entries = {entry.name: entry for entry in sim.operations.topics.describe("t").configs}
    assert entries["flush.messages"].source == "DYNAMIC_BROKER_CONFIG"
    again = started(sim.stop())
    assert seen(again) == [4, 4, 9]
    alter_broker(again, ("log.flush.interval.messages", None))
    assert seen(again)[0] == 2**63 - 1
    assert seen(started(again.stop()))[0] == 2**63 - 1


def test_wrong_broker_configs_change_nothing() -> None:
    """M13: static and unknown keys, wrong values, and what a topic's own configs forbid."""
    sim = started().with_topic("t", 1, {"min.compaction.lag.ms": "10"})
    before = registries(sim)
    for name, value in (
        ("log.retention.hours", "7"),
        ("log.retention.ms", "0"),
        ("log.segment.bytes", "7"),
        ("no.such", "7"),
        ("no.such", None),
        ("log.cleaner.max.compaction.lag.ms", "5"),
    ):
        with pytest.raises(InvalidRequest):
            alter_broker(sim, ("log.retention.bytes", "5"), (name, value))
    sim.operations.alter_broker_configs(
        [ConfigChange("log.retention.bytes", "5")], validate_only=True
    )
    assert registries(sim) == before


def test_a_registry_of_format_1_is_read() -> None:
    """M14: as it was written before there were broker configs."""
    old = (
        b'{"checksum": "973c359c", "deleted": [], "format": 1, "generation": 1, "topics":'
        b' {"AAAAAAAAAAAAAAAAAAAD6Q": {"configs": {}, "name": "t", "partitions": 2}}}'
    )
    assert decode_registry(old).topics["t"].partition_count == 2


def test_a_registry_with_broker_configs_of_tomorrow_refuses_the_start() -> None:
    """M14: the operator is told which, and nothing is loaded with other settings than asked."""
    sim = started()
    disk = sim.stop()
    state = sim.manager.registry.state.with_broker_configs({"log.flush.interval.messages": "x"})
    for path in DIRS:
        disk.write_file_atomically(f"{path}/{REGISTRY_FILE}", encode_registry(state))
    with pytest.raises(InvalidConfig, match=r"log\.flush\.interval\.messages"):
        started(disk)


def test_a_topic_grows() -> None:
    """M14: new partitions where the fewest logs are; old ones keep what they hold."""
    sim = started().with_topic("t", 1, {"flush.messages": "9"})
    sim.produce("t", batch_of("a"))
    tried = sim.operations.topics.create_partitions("t", 4, validate_only=True)
    assert (tried.partition_count, sim.operations.partition_count("t")) == (4, 1)
    grown = sim.operations.topics.create_partitions("t", 4)
    assert grown.partition_count == 4
    assert [len(sim.manager.logs.table.logs_in(path)) for path in DIRS] == [2, 2]
    assert sim.manager.logs.log_of("t", 3).config.flush_messages == 9
    assert sim.produce("t", batch_of("b"), partition=3).error is None
    again = started(sim.stop())
    ends = [again.manager.logs.log_of("t", number).log_end_offset for number in range(4)]
    assert ends == [1, 0, 0, 1]


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (2, r"Topic already has 2 partition\(s\)\."),
        (1, r"The topic t currently has 2 partition\(s\); 1 would not be an increase\."),
        (0, r"The topic t currently has 2 partition\(s\); 0 would not be an increase\."),
        (-1, r"-1 would not be an increase\."),
        (10_001, "1 to 10000, not 10001"),
    ],
)
def test_a_topic_never_shrinks(count: int, message: str) -> None:
    """M14: Kafka's words."""
    sim = started().with_topic("t", 2)
    with pytest.raises(InvalidPartitions, match=message):
        sim.operations.topics.create_partitions("t", count)
    assert sim.operations.partition_count("t") == 2
    with pytest.raises(UnknownTopic):
        sim.operations.topics.create_partitions("nope", 3)
    with pytest.raises(InvalidTopicName):
        sim.operations.topics.create("__consumer_offsets")


def test_nobody_sees_a_partition_before_all_are_there() -> None:
    """M14: at every disk call of a growth the count is the old one, or all logs are served."""
    sim = started().with_topic("t", 1)
    seen = set()

    def look() -> None:
        count = sim.operations.partition_count("t")
        served = 0
        for number in range(1, 4):
            try:
                sim.operations.partition_log("t", number)
                served += 1
            except UnknownPartition:
                continue
        seen.add((count, served))

    sim.disk.on_call = look
    sim.operations.topics.create_partitions("t", 4)
    sim.disk.on_call = None
    look()
    assert seen == {(1, 0), (4, 3)}


def make(sim: SimManager, before: int, after: int) -> None:
    if before:
        sim.operations.topics.create_partitions("t", after)
    else:
        sim.operations.topics.create("t", after)


def calls_of(before: int, after: int) -> int:
    sim = started()
    if before:
        sim.with_topic("t", before)
    counter = sim.disk.faults.add(Fault(kinds=CALLS, path_contains="/t-", nth=10**9))
    make(sim, before, after)
    return counter.seen


PREALLOCATED = {"preallocate": "true", "segment.bytes": "1048576"}


@pytest.mark.parametrize(
    ("before", "after", "configs"), [(0, 2, {}), (1, 4, {}), (1, 4, PREALLOCATED)]
)
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_the_next_directory_takes_the_partitions(
    error: int, before: int, after: int, configs: dict[str, str]
) -> None:
    """M15: of a new topic and of one that grows; left-overs go when the directory comes back."""
    count = calls_of(before, after)
    assert count > 10
    for nth in range(1, count + 1, 2):
        sim = started()
        if before:
            sim.with_topic("t", before, configs)
        sim.disk.faults.add(Fault(error=error, kinds=CALLS, path_contains="/t-", nth=nth))
        make(sim, before, after)
        new = range(before, after)
        for number in new:
            assert sim.produce("t", batch_of("a"), partition=number).error is None, f"call {nth}"
        if not before:
            assert sim.operations.readiness().offline_dirs == (1 if error == errno.EIO else 0)
        sim.disk.faults.clear()
        again = started(sim.stop())
        ends = [again.manager.logs.log_of("t", number).log_end_offset for number in new]
        assert ends == [1] * len(new), f"call {nth}"
        assert [len(homes(again, number)) for number in range(after)] == [1] * after, f"call {nth}"


def test_a_growth_that_fails_everywhere_leaves_nothing() -> None:
    """M15: full disks: the count stays, what was made goes, the next try succeeds."""
    for nth in range(1, calls_of(1, 4) + 1, 2):
        sim = started().with_topic("t", 1)
        sim.disk.faults.add(Fault.no_space("/t-", nth=nth))
        try:
            sim.operations.topics.create_partitions("t", 4)
        except StorageFault:
            assert sim.operations.partition_count("t") == 1
            assert not sim.operations.readiness().offline_dirs
        sim.disk.faults.clear()
        sim.clock.advance_ms(120_000)
        if sim.operations.partition_count("t") == 1:
            left = [name for path in DIRS for name in sim.disk.list_dir(path) if "t-" in name]
            assert [name for name in left if name.startswith("t")] == ["t-0"], f"call {nth}"
            sim.operations.topics.create_partitions("t", 4)
        assert sim.produce("t", batch_of("a"), partition=3).error is None, f"call {nth}"
        again = started(sim.stop())
        assert again.manager.logs.log_of("t", 3).log_end_offset == 1, f"call {nth}"


def test_a_start_does_not_need_room_for_the_registry() -> None:
    """M15: a directory that took no change for want of space is behind, serves, and catches up."""
    sim = started().with_topic("t", 4)
    full = Fault.no_space(f"{DIRS[1]}/{REGISTRY_FILE}")
    sim.disk.faults.add(full)
    change = [ConfigChange("retention.ms", "7")]
    with pytest.raises(StorageFault):
        sim.operations.topics.alter_configs("t", change)
    disk = sim.kill()
    disk.faults.add(full)
    again = started(disk)
    assert full.seen > 2, "the start tried"
    assert not again.operations.readiness().offline_dirs
    assert all(again.produce("t", batch_of("a"), partition=n).error is None for n in range(4))
    again.disk.faults.clear()
    again.operations.topics.alter_configs("t", change)
    first, second = (again.disk.read_file(f"{path}/{REGISTRY_FILE}") for path in DIRS)
    assert first == second


def test_a_registry_that_cannot_grow_keeps_the_old_count() -> None:
    """M15: partitions that were made for nothing are removed."""
    sim = started().with_topic("t", 1)
    sim.disk.faults.add(Fault.no_space(REGISTRY_FILE))
    with pytest.raises(StorageFault):
        sim.operations.topics.create_partitions("t", 3)
    sim.disk.faults.clear()
    assert sim.operations.partition_count("t") == 1
    assert [homes(sim, number) for number in (1, 2)] == [[], []]
    again = started(sim.stop())
    assert again.operations.partition_count("t") == 1


def served(sim: SimManager) -> list[int]:
    return [sim.operations.partition_log("t", number).log_end_offset for number in (0, 1)]


def test_a_second_try_does_not_inherit_the_first_ones_id() -> None:
    """M15: else the next start would take the new records for those of a dead topic."""
    count = calls_of(0, 2)
    for nth in range(1, count + 1, 2):
        sim = SimManager(config=BrokerConfig(log_dirs=DIRS[:1])).start()
        fault = Fault(error=errno.ENOSPC, kinds=CALLS, path_contains="/t-", nth=nth, times=3)
        sim.disk.faults.add(fault)
        with pytest.raises(StorageFault):
            sim.operations.topics.create("t", 2)
        sim.disk.faults.clear()
        sim.clock.advance_ms(1_000)
        sim.operations.topics.create("t", 2)
        for number in (0, 1):
            assert sim.produce("t", batch_of("a"), partition=number).error is None, f"call {nth}"
        again = SimManager(sim.stop(), config=BrokerConfig(log_dirs=DIRS[:1])).start()
        assert served(again) == [1, 1], f"call {nth}"


def test_a_topic_in_creation_is_not_called_offline() -> None:
    """M15: requests between its registration and its logs are told to come back."""
    sim = SimManager().start()
    seen: list[type[KafkalogError]] = []

    def look() -> None:
        try:
            sim.operations.partition_log("t", 1)
        except KafkalogError as error:
            seen.append(type(error))

    for _ in range(2):
        sim.disk.on_call = look
        sim.operations.topics.create("t", 2)
        sim.disk.on_call = None
        assert set(seen) == {UnknownTopic, NotReady}
        seen.clear()
        assert served(sim) == [0, 0]
        sim.operations.topics.delete("t")


def test_what_a_full_disk_kept_of_a_deleted_topic_goes_when_it_is_made_again() -> None:
    """M14 M15: its directory was not renamed; it takes no space for ever as somebody's stray."""
    sim = SimManager(config=BrokerConfig(log_dirs=DIRS[:1])).start().with_topic("t", 2)
    for number in (0, 1):
        assert sim.produce("t", batch_of("old"), partition=number).error is None
    kinds = frozenset({"rename"})
    sim.disk.faults.add(Fault(error=errno.ENOSPC, kinds=kinds, path_contains="/t-", times=9))
    sim.operations.topics.delete("t")
    sim.disk.faults.clear()
    assert {"t-0", "t-1"} <= set(sim.disk.list_dir(DIRS[0]))
    sim.clock.advance_ms(300)
    sim.operations.topics.create("t", 1)
    assert sim.produce("t", batch_of("new")).error is None
    sim.clock.advance_ms(120_000)
    left = [name for name in sim.disk.list_dir(DIRS[0]) if name.startswith("t")]
    assert left == ["t-0", "t-1"]
    again = SimManager(sim.stop(), seed=1, config=sim.config).start()
    assert again.operations.partition_log("t", 0).log_end_offset == 1
    again.clock.advance_ms(120_000)
    left = [name for name in again.disk.list_dir(DIRS[0]) if name.startswith("t")]
    assert left == ["t-0"]


def test_what_somebody_put_into_the_place_of_a_new_partition_is_kept() -> None:
    """M14: an id that was never deleted may be wanted: it is put aside."""
    sim = SimManager(config=BrokerConfig(log_dirs=DIRS[:1])).start().with_topic("other", 1)
    metadata = sim.disk.read_file(f"{DIRS[0]}/other-0/partition.metadata")
    sim.disk.make_dir(f"{DIRS[0]}/t-0")
    sim.disk.write_file_atomically(f"{DIRS[0]}/t-0/partition.metadata", metadata)
    sim.operations.topics.create("t", 1)
    sim.clock.advance_ms(120_000)
    names = [name for name in sim.disk.list_dir(DIRS[0]) if name.startswith("t-0")]
    assert [name.rpartition("-")[2] for name in names] == ["0", "stray"]


THREE = (*DIRS, "/data/c")


def managed(disk: SimFilesystem | None = None, log_dirs: tuple[str, ...] = THREE) -> SimManager:
    config = BrokerConfig(log_dirs=log_dirs, log_dir_min_free_bytes=0)
    return SimManager(disk, config=config).start()


def retention_in(sim: SimManager, path: str) -> str | None:
    state = decode_registry(sim.disk.read_file(f"{path}/{REGISTRY_FILE}"))
    return state.topics["t"].overrides.get("retention.ms") if "t" in state.topics else None


@pytest.mark.parametrize("lost", THREE)
def test_a_full_disk_holds_up_no_change_that_two_others_took(lost: str) -> None:
    """M13 M15: topics are made and altered; the loss of any directory loses no change."""
    sim = managed()
    sim.operations.topics.create("t", 1)
    fault = sim.disk.faults.add(Fault.no_space(f"{THREE[2]}/", times=10**6))
    sim.operations.topics.alter_configs("t", [ConfigChange("retention.ms", "7")])
    sim.operations.topics.create("u", 4)
    sim.operations.topics.create_partitions("t", 2)
    assert [retention_in(sim, path) for path in THREE] == ["7", "7", None]
    assert all(sim.produce("u", batch_of("v"), partition=n).error is None for n in range(4))
    disk = sim.kill()
    disk.faults.add(fault)
    left = managed(disk, tuple(path for path in THREE if path != lost))
    assert left.manager.registry.state.topics["t"].overrides["retention.ms"] == "7"
    assert left.operations.partition_count("t") == 2
    disk = left.kill()
    disk.faults.clear()
    again = managed(disk)
    assert len({again.disk.read_file(f"{path}/{REGISTRY_FILE}") for path in THREE}) == 1
    assert all(again.manager.logs.log_of("u", number).log_end_offset == 1 for number in range(4))


def test_a_change_that_is_refused_for_want_of_descriptors_reaches_no_other_directory() -> None:
    """M15: what a directory took of it could come into force at the next start."""
    sim = managed()
    sim.operations.topics.create("t", 1)
    for number, path in enumerate(THREE):  # the first takes nothing, the others one file each
        place, nth = f"{path}/{REGISTRY_FILE}", min(number, 1) + 1
        sim.disk.faults.add(
            Fault(
                error=errno.EMFILE,
                kinds=frozenset({"create"}),
                path_contains=place,
                nth=nth,
                times=99,
            )
        )
    with pytest.raises(DescriptorsShort):
        sim.operations.topics.alter_configs("t", [ConfigChange("retention.ms", "7")])
    assert [retention_in(sim, path) for path in THREE] == [None, None, None]


def test_one_directory_with_room_is_too_few() -> None:
    """M13 M15: what only one of three holds may be lost with it."""
    sim = managed()
    sim.operations.topics.create("t", 1)
    for path in THREE[1:]:
        sim.disk.faults.add(Fault.no_space(f"{path}/", times=10**6))
    with pytest.raises(DiskFull):
        sim.operations.topics.alter_configs("t", [ConfigChange("retention.ms", "7")])
    assert "retention.ms" not in sim.operations.topics.describe("t").overrides
    sim.disk.faults.clear()
    sim.disk.faults.add(Fault.no_space(f"{THREE[2]}/", times=10**6))
    sim.operations.topics.alter_configs("t", [ConfigChange("retention.ms", "8")])
    assert [retention_in(sim, path) for path in THREE[:2]] == ["8", "8"]
