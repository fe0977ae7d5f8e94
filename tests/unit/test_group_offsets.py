"""Goal: commits of groups are Kafka's records to the byte and outlive every restart; nothing of
them is lost, revived or ahead.
Method: records that Kafka wrote; managers that end at any moment.
"""

from __future__ import annotations

import errno
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from kafkalog import errors
from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.broker.directory.commands import AppendCommand
from kafkalog.broker.groups.offsets import GroupOffsets, GroupOffsetsReplay, is_expired
from kafkalog.broker.values import Acks
from kafkalog.format.disk.group_offsets import (
    CommittedOffset,
    GroupPartition,
    MalformedGroupRecord,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    partition_of_group,
)
from kafkalog.format.integers import FormatError
from kafkalog.format.records.batch_builder import RecordColumns, build_batch
from kafkalog.format.records.control_record import ControlRecordType, build_end_transaction_marker
from kafkalog.format.topic_names import GROUP_OFFSETS_TOPIC, INTERNAL_TOPICS, TopicPartition
from tests.sim.sim_crash import CrashMode
from tests.sim.sim_faults import Fault
from tests.sim.sim_manager import DIRS, SimManager, batch_of, records_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.sim.sim_filesystem import SimFilesystem


DAY_MS = 86_400_000
T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
U0 = TopicPartition("u", 0)
CONFIG = BrokerConfig(log_dirs=DIRS, offsets_topic_num_partitions=4)  # few, to be quick


def started(disk: SimFilesystem | None = None, config: BrokerConfig = CONFIG) -> SimManager:
    """A manager whose groups are loaded."""
    sim = SimManager(disk, config=config).start()
    sim.clock.advance_ms(1)
    return sim


def world(config: BrokerConfig = CONFIG) -> SimManager:
    """Topics t with two partitions and u with one, three records in each."""
    sim = started(None, config)
    for name, count in (("t", 2), ("u", 1)):
        sim.operations.topics.create(name, count)
        for number in range(count):
            sim.produce(name, batch_of("a", "b", "c"), partition=number)
    return sim


def commit(sim: SimManager, group: str, commits: Mapping[TopicPartition, int]) -> None:
    groups = sim.manager.group_offsets
    groups.create_topic()
    now_ms = sim.clock.wall_ms()
    answers: list[errors.KafkalogError | None] = []
    values = {at: CommittedOffset(offset, "", now_ms) for at, offset in commits.items()}
    groups.submit(group, values, answers.append)
    sim.threads.run_until(lambda: bool(answers))
    if answers[0] is not None:
        raise answers[0]


def offsets(sim: SimManager, group: str) -> dict[TopicPartition, int]:
    found = sim.manager.group_offsets.committed(group)
    return {at: committed.offset for at, committed in found.items()}


def test_commits_survive_a_restart_and_a_kill() -> None:
    """M24. An answered commit is there after any end of the process, in a compacted topic."""
    sim = world()
    commit(sim, "g", {T0: 1, T1: 2})
    commit(sim, "h", {T0: 3})
    commit(sim, "g", {T0: 2})
    topic = sim.operations.topics.describe(GROUP_OFFSETS_TOPIC)
    assert topic.is_internal
    assert (topic.partition_count, topic.overrides["cleanup.policy"]) == (4, "compact")
    sim = started(sim.stop())
    assert offsets(sim, "g") == {T0: 2, T1: 2}
    assert offsets(sim, "h") == {T0: 3}
    commit(sim, "g", {T1: 3})
    sim = started(sim.kill())
    assert offsets(sim, "g") == {T0: 2, T1: 3}
    assert sim.manager.group_offsets.groups() == ["g", "h"]


def test_groups_are_not_ready_until_they_are_loaded() -> None:
    sim = world()
    commit(sim, "g", {T0: 1})
    sim = SimManager(sim.stop(), config=sim.config).start()
    for ask in (
        lambda: sim.manager.group_offsets.committed("g"),
        sim.manager.group_offsets.groups,
        lambda: commit(sim, "g", {T0: 2}),
        lambda: sim.manager.group_offsets.delete("g"),
    ):
        with pytest.raises(errors.NotReady):
            ask()
    sim.clock.advance_ms(1)
    assert offsets(sim, "g") == {T0: 1}


def test_a_list_of_groups_loads_all_that_was_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start on a full disk reads no partition; one question later all of them are there."""
    sim = world()
    commit(sim, "g", {T0: 1})
    disk = sim.stop()

    def no_space(*_: object) -> None:
        raise errors.NotReady("no space")

    with monkeypatch.context() as patch:
        patch.setattr(GroupOffsets, "_replay", no_space)
        sim = started(disk)
    with pytest.raises(errors.NotReady):
        sim.manager.group_offsets.groups()
    sim.clock.advance_ms(1)
    assert sim.manager.group_offsets.groups() == ["g"]


def test_what_is_refused_commits_nothing() -> None:
    sim = world()
    commit(sim, "g", {T0: 1})
    unknown = TopicPartition("nope", 0)
    for kind, group, at, offset in (
        (errors.UnknownTopic, "g", unknown, 1),
        (errors.UnknownPartition, "g", TopicPartition("t", 2), 1),
        (errors.InvalidRequest, "g", T0, -1),
        (errors.InvalidRequest, "", T0, 1),
        (errors.InvalidRequest, "x" * 40_000, T0, 1),
        (errors.InvalidRequest, "\ud800", T0, 1),
    ):
        with pytest.raises(kind):
            commit(sim, group, {T1: 2, at: offset})
    too_long = CommittedOffset(1, "x" * 4097, 0)
    with pytest.raises(errors.InvalidRequest, match=r"offset\.metadata\.max\.bytes"):
        sim.manager.group_offsets.submit("g", {T0: too_long}, lambda _: None)
    assert offsets(sim, "g") == {T0: 1}


def test_a_deleted_topic_takes_its_commits_along() -> None:
    sim = world()
    commit(sim, "g", {T0: 3, U0: 1})
    now = CommittedOffset(2, "", sim.clock.wall_ms())
    sim.manager.group_offsets.submit("h", {T1: now}, lambda _: None)
    sim.operations.topics.delete("t")
    assert offsets(sim, "g") == {U0: 1}
    assert offsets(sim, "h") == {}
    sim.operations.topics.create("t", 2)
    sim = started(sim.kill())
    assert offsets(sim, "g") == {U0: 1}
    assert sim.manager.group_offsets.groups() == ["g"]


def test_a_crash_before_the_tombstones_leaves_nothing_to_a_new_topic() -> None:
    for is_loaded in (False, True):
        sim = world()
        commit(sim, "g", {T0: 3, U0: 1})
        sim.manager.topics.delete("t")
        sim = SimManager(sim.kill(), config=CONFIG).start()
        if is_loaded:
            sim.clock.advance_ms(1)
            assert offsets(sim, "g") == {T0: 3, U0: 1}  # what is not here may come by adoption
        sim.operations.topics.create("t", 2)
        sim.clock.advance_ms(1)
        assert offsets(sim, "g") == {U0: 1}
        assert offsets(started(sim.kill()), "g") == {U0: 1}


def test_more_goes_than_one_batch_of_tombstones_holds() -> None:
    sim = world(replace(CONFIG, offsets_topic_num_partitions=1))
    commit(sim, "other", {T0: 1})
    value = CommittedOffset(1, "", sim.clock.wall_ms())
    for number in range(1001):
        sim.manager.group_offsets.submit(f"g{number}", {U0: value}, lambda _: None)
    sim.operations.topics.delete("u")
    assert sim.manager.group_offsets.groups() == ["other"]
    assert started(sim.kill()).manager.group_offsets.groups() == ["other"]


def test_a_deleted_group_is_gone_for_good() -> None:
    sim = world()
    commit(sim, "g", {T0: 1, T1: 1, U0: 2})
    commit(sim, "h", {T0: 1})
    assert sim.manager.group_offsets.delete("g", ["u", "nope"]) == 1
    assert offsets(sim, "g") == {T0: 1, T1: 1}
    assert sim.manager.group_offsets.delete("g") == 2
    assert sim.manager.group_offsets.delete("g") == 0
    sim = started(sim.kill())
    assert sim.manager.group_offsets.groups() == ["h"]


def test_unused_commits_expire() -> None:
    """offsets.retention.minutes after the last commit and the last member, not before."""
    sim = world(replace(CONFIG, offsets_retention_minutes=1440))
    commit(sim, "g", {T0: 1})
    commit(sim, "used", {T0: 1})
    sim.manager.group_offsets.watch_use(lambda group: sim.clock.wall_ms() if group == "used" else 0)
    sim.clock.advance_ms(DAY_MS - 1)
    commit(sim, "g", {T1: 1})
    sim.manager.group_offsets.expire_once()
    assert offsets(sim, "g") == {T0: 1, T1: 1}
    sim.clock.advance_ms(1)
    sim.manager.group_offsets.expire_once()
    assert offsets(sim, "g") == {T1: 1}
    assert offsets(sim, "used") == {T0: 1}
    sim = started(sim.kill())
    assert offsets(sim, "g") == {T1: 1}


@pytest.mark.parametrize(
    ("expiry", "used_ms", "now_ms", "expected"),
    [
        (-1, 0, 1009, False),
        (-1, 0, 1010, True),
        (-1, 1001, 1010, False),
        (1005, 9999, 1004, False),
        (1005, 9999, 1005, True),
    ],
)
def test_when_a_commit_expires(expiry: int, used_ms: int, now_ms: int, expected: bool) -> None:
    committed = CommittedOffset(1, "", 1000, -1, expiry)
    assert is_expired(committed, used_ms, now_ms, 10) is expected


def test_a_commit_on_its_way_does_not_expire() -> None:
    sim = world(replace(CONFIG, offsets_retention_minutes=1))
    commit(sim, "g", {T0: 1})
    sim.clock.advance_ms(120_000)
    fresh = CommittedOffset(2, "", sim.clock.wall_ms())
    sim.manager.group_offsets.submit("g", {T0: fresh}, lambda _: None)
    sim.manager.group_offsets.expire_once()
    sim.threads.run_until(lambda: offsets(sim, "g") == {T0: 2})
    sim = started(sim.kill())
    assert offsets(sim, "g") == {T0: 2}


def test_no_group_is_ahead_of_its_log_after_a_power_cut() -> None:
    """Design 5. Records that a power cut takes are not skipped when they come anew."""
    sim = world()
    sim.produce("t", batch_of("lost", "lost"), Acks.LEADER)
    commit(sim, "g", {T0: 5, T1: 3})
    sim.threads.kill_all()
    sim = started(sim.disk.crash(CrashMode.DROP_ALL))
    end = sim.manager.logs.log_of("t", 0).log_end_offset
    assert end == 3
    assert offsets(sim, "g") == {T0: 3, T1: 3}
    assert sim.metrics.group_offsets_clamped._value.get() == 1
    sim.produce("t", batch_of("d", "e", "f"))
    sim = started(sim.stop())
    assert offsets(sim, "g") == {T0: 3, T1: 3}


def test_only_what_kafka_would_count_is_read() -> None:
    """An adopted topic: other records are passed over, transactions count."""
    known: dict[GroupPartition, CommittedOffset | None] = {}

    def batch(group: str, value: int | bytes | None, **header: object) -> bytes:
        key = GroupPartition(group, "t", 0)
        data = encode_value(CommittedOffset(value, "", 1)) if isinstance(value, int) else value
        columns = RecordColumns.of([encode_key(key)], [data], 1_700_000_000_000)
        return build_batch(columns, **header)  # type: ignore[arg-type] # of build_batch

    def in_transaction(producer: int, group: str, value: int) -> bytes:
        sender = {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0}
        return batch(group, value, **sender, is_transactional=True)

    def marker(producer: int, kind: ControlRecordType) -> bytes:
        return build_end_transaction_marker(producer, 0, 0, kind, timestamp_ms=1)

    metadata = build_batch(RecordColumns.of([b"\0\2\0\1g"], [b"\0\3anything"], 1_700_000_000_000))
    log = [
        batch("plain", 1),
        metadata,
        in_transaction(7, "committed", 2),
        in_transaction(8, "aborted", 3),
        in_transaction(9, "open", 4),
        batch("plain", b"\0\x09"),
        batch("gone", 5),
        marker(7, ControlRecordType.COMMIT),
        marker(8, ControlRecordType.ABORT),
        batch("gone", None),
        batch("plain", 6),
    ]
    replay = GroupOffsetsReplay(known.update)
    for data in log:
        replay.read(data, 1 << 20)
    left = {key.group: committed.offset for key, committed in known.items() if committed}
    assert left == {"plain": 6, "committed": 2}


def test_foreign_records_stay_and_the_partition_is_kafkas() -> None:
    """M24. What Kafka keeps beside commits is still there, and commits are where it looks."""
    sim = world()
    commit(sim, "g", {T0: 1})
    number = partition_of_group("g", 4)
    log = sim.manager.logs.log_of(GROUP_OFFSETS_TOPIC, number)
    foreign = build_batch(RecordColumns.of([b"\0\2\0\1g"], [b"x"], 1_700_000_000_000))
    append = AppendCommand(log, records_of(foreign, log), Acks.ALL, None, None)
    sim.manager.logs.unit_of(log).writer.run(append)
    commit(sim, "g", {T0: 2})
    sim = started(sim.stop())
    assert offsets(sim, "g") == {T0: 2}
    assert sim.manager.logs.log_of(GROUP_OFFSETS_TOPIC, number).log_end_offset == 3
    assert GROUP_OFFSETS_TOPIC in INTERNAL_TOPICS


def test_commits_count_in_the_order_of_the_log() -> None:
    sim = world()
    commit(sim, "g", {T0: 0})
    answers: Counter[bool] = Counter()
    for offset in range(1, 21):
        value = CommittedOffset(offset, "", sim.clock.wall_ms())
        sim.manager.group_offsets.submit("g", {T0: value}, lambda e: answers.update([e is None]))
    sim.threads.run_until(lambda: answers[True] == 20)
    assert offsets(sim, "g") == {T0: 20}
    assert offsets(started(sim.stop()), "g") == {T0: 20}


def test_a_disk_that_fails_commits_nothing() -> None:
    sim = world()
    commit(sim, "g", {T0: 1})
    for fail in (lambda: commit(sim, "g", {T0: 2}), lambda: sim.manager.group_offsets.delete("g")):
        sim.disk.faults.add(
            Fault(error=errno.ENOSPC, kinds=frozenset({"write"}), path_contains=GROUP_OFFSETS_TOPIC)
        )
        with pytest.raises(errors.DiskFull):
            fail()
        sim.disk.faults.clear()
        assert offsets(sim, "g") == {T0: 1}
        sim.clock.advance_ms(20_000)  # the directory is looked at again
    commit(sim, "g", {T0: 3})
    assert offsets(started(sim.kill()), "g") == {T0: 3}


# From Kafka's generated classes: tests/oracle/GroupRecords.java encode.
KEY = GroupPartition("grüße", "orders", 7)
KEY_V0 = bytes.fromhex("000000076772c3bcc39f6500066f726465727300000007")
KEY_V1 = bytes.fromhex("000100076772c3bcc39f6500066f726465727300000007")
VALUES = {
    0: "0000000000000000002a00046de2889a0000018bcfe56800",
    1: "0001000000000000002a00046de2889a0000018bcfe568000000018bcfed0920",
    2: "0002000000000000002a00046de2889a0000018bcfe56800",
    3: "0003000000000000002a0000000500046de2889a0000018bcfe56800",
    4: "0004000000000000002a00000005056de2889a0000018bcfe56800"
    "01001000000000000000010000000000000002",
}
PLAIN = CommittedOffset(42, "m√", 1_700_000_000_000)
WITH_EPOCH = CommittedOffset(42, "m√", 1_700_000_000_000, 5)
EXPIRING = CommittedOffset(42, "m√", 1_700_000_000_000, -1, 1_700_000_500_000)
READ_AS = {0: PLAIN, 1: EXPIRING, 2: PLAIN, 3: WITH_EPOCH, 4: WITH_EPOCH}
TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


def test_keys_are_those_of_kafka() -> None:
    assert encode_key(KEY) == KEY_V1
    assert decode_key(KEY_V1) == KEY
    assert decode_key(KEY_V0) == KEY


def test_values_are_those_of_kafka() -> None:
    for version, text in VALUES.items():
        assert decode_value(bytes.fromhex(text)) == READ_AS[version]
    assert encode_value(WITH_EPOCH) == bytes.fromhex(VALUES[3])
    assert encode_value(EXPIRING) == bytes.fromhex(VALUES[1])


def test_other_keys_are_nobody_elses_business() -> None:
    """Group metadata (2) and the newer protocols' keys are told apart by version alone."""
    for version in (2, 3, 10, 23, 32767, -1):
        assert decode_key(version.to_bytes(2, "big", signed=True) + b"anything") is None


def test_the_partition_of_a_group_is_javas() -> None:
    assert partition_of_group("grüße", 50) == 23
    assert partition_of_group("", 50) == 0
    assert partition_of_group("a", 50) == 97 % 50
    # "polygenelubricants".hashCode() is the smallest integer, which has no absolute value.
    assert partition_of_group("polygenelubricants", 50) == 0
    assert partition_of_group("\U0001f600", 1 << 40) == 31 * 0xD83D + 0xDE00


@given(TEXT, TEXT, INT32, INT64, TEXT, INT64, INT32, INT64)
def test_what_is_written_is_read(
    group: str,
    topic: str,
    partition: int,
    offset: int,
    metadata: str,
    at: int,
    epoch: int,
    end: int,
) -> None:
    key = GroupPartition(group, topic, partition)
    assert decode_key(encode_key(key)) == key
    value = CommittedOffset(offset, metadata, at, epoch if end == -1 else -1, end)
    assert decode_value(encode_value(value)) == value


@pytest.mark.parametrize("version", sorted(VALUES))
def test_damage_is_an_error_of_its_own(version: int) -> None:
    whole = bytes.fromhex(VALUES[version])
    for size in range(len(whole)):
        with pytest.raises(FormatError):
            decode_value(whole[:size])
    for size in range(len(KEY_V1)):
        with pytest.raises(MalformedGroupRecord):
            decode_key(KEY_V1[:size])
    for bad in (b"\0\1\xff\xff", b"\0\1\0\1\xff\0\1t\0\0\0\0"):
        with pytest.raises(MalformedGroupRecord):
            decode_key(bad)
    for wrong in (5, -1):
        with pytest.raises(MalformedGroupRecord):
            decode_value(wrong.to_bytes(2, "big", signed=True) + whole[2:])
