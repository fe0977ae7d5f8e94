"""Goal: a producer id is given once, an older epoch is refused by every log, and what an adopted
directory left open can be ended, and nothing else by mistake.
Method: managers on a simulated disk, restarts, logs with open transactions.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.broker.directory.log_dir import REGISTRY_FILE
from kafkalog.broker.topics.registry import ProducerEpoch, decode_registry
from kafkalog.broker.transactions.producer_ids import (
    BLOCK_IDS,
    FIRST_PRODUCER_ID,
    AbortedTransaction,
)
from kafkalog.broker.values import Acks
from kafkalog.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    KafkalogError,
    NotReady,
    OutOfOrderSequence,
    Overloaded,
    StorageFault,
    UnknownPartition,
    UnknownProducer,
    UnknownTopic,
)
from kafkalog.format.records.control_record import ControlRecordType
from kafkalog.log.inspect.invariants import check_invariants
from kafkalog.log.values import LogAppendInfo
from tests.open_transactions import left_open, marker_of, replicate
from tests.partition_world import batch
from tests.sim.sim_faults import Fault
from tests.sim.sim_manager import DIRS, SimManager, batch_of, records_of
from tests.sink_world import (
    QUERY,
    begin,
    committed,
    is_settled,
    markers,
    sinks_of,
    started as started_with_sinks,
    with_topic,
)

if TYPE_CHECKING:
    from kafkalog.broker.directory.commands import Command
    from tests.sim.sim_filesystem import SimFilesystem


EXPIRATION_MS = BrokerConfig().producer_id_expiration_ms
EPOCH_MAX = 32_767


def started(disk: SimFilesystem | None = None) -> SimManager:
    """A manager with the topic t of two partitions, which lie in different directories."""
    sim = SimManager(disk).start()
    if "t" not in sim.operations.topic_names():
        sim.operations.topics.create("t", 2, {})
    return sim


def again(sim: SimManager) -> SimManager:
    return started(sim.stop())


def append(
    sim: SimManager, producer_id: int, epoch: int, sequence: int = 0, partition: int = 0
) -> LogAppendInfo:
    done = sim.produce(
        "t", batch([b"x"], producer=(producer_id, epoch, sequence)), partition=partition
    )
    if done.error is not None:
        raise done.error
    assert isinstance(done.result, LogAppendInfo)
    return done.result


def give(sim: SimManager) -> int:
    identity = sim.operations.producers.allocate()
    assert identity.producer_epoch == 0
    return identity.producer_id


def bump(sim: SimManager, producer_id: int) -> tuple[int, int]:
    identity = sim.operations.producers.bump(producer_id)
    return identity.producer_id, identity.producer_epoch


def generation(sim: SimManager) -> int:
    return sim.manager.registry.state.generation


def test_ids_rise_and_a_block_is_written_once() -> None:
    sim = started()
    before = generation(sim)
    given = [give(sim) for _ in range(2 * BLOCK_IDS + 1)]
    assert given == list(range(FIRST_PRODUCER_ID, FIRST_PRODUCER_ID + len(given)))
    assert generation(sim) == before + 3
    files = {sim.disk.read_file(f"{path}/{REGISTRY_FILE}") for path in DIRS}
    assert len(files) == 1
    assert decode_registry(files.pop()).next_producer_id == FIRST_PRODUCER_ID + 3 * BLOCK_IDS


@pytest.mark.parametrize("is_orderly", [True, False])
def test_a_restart_skips_what_is_left_of_a_block(is_orderly: bool) -> None:
    sim = started()
    assert give(sim) == FIRST_PRODUCER_ID
    sim = started(sim.stop() if is_orderly else sim.kill())
    assert give(sim) == FIRST_PRODUCER_ID + BLOCK_IDS


def test_an_id_that_an_adopted_log_knows_is_left_out() -> None:
    sim = started()
    append(sim, FIRST_PRODUCER_ID + 1, 0)
    append(sim, FIRST_PRODUCER_ID + 2, 0, partition=1)
    append(sim, 7, 0)
    disk = sim.stop()
    for path in DIRS:
        disk.unlink(f"{path}/{REGISTRY_FILE}")
    sim = started(disk)
    assert [give(sim) - FIRST_PRODUCER_ID for _ in range(3)] == [0, 3, 4]
    start = FIRST_PRODUCER_ID + BLOCK_IDS
    for number in range(BLOCK_IDS):
        append(sim, start + number, 0)
    rest = [give(sim) for _ in range(BLOCK_IDS - 4)]
    assert rest[-2:] == [start - 1, start + BLOCK_IDS]


def test_a_block_that_could_not_be_written_is_not_given() -> None:
    sim = started()
    sim.disk.faults.add(
        Fault(error=errno.ENOSPC, kinds=frozenset({"write"}), path_contains=REGISTRY_FILE, times=9)
    )
    with pytest.raises(StorageFault):
        give(sim)
    sim.disk.faults.clear()
    first = give(sim)
    sim = started(sim.kill())
    assert give(sim) > first


def test_a_bump_fences_the_older_epoch_everywhere() -> None:
    """Also in partitions where the newer epoch never wrote, also what was stored before."""
    sim = started()
    producer_id = give(sim)
    append(sim, producer_id, 0)
    assert bump(sim, producer_id) == (producer_id, 1)
    for life in range(3):
        for partition, sequence in ((0, 0), (0, 1), (1, 0)):
            with pytest.raises(InvalidProducerEpoch, match="was given epoch 1") as refused:
                append(sim, producer_id, 0, sequence, partition)
            assert refused.value.details["current_epoch"] == 1
        sim = again(sim) if life == 0 else started(sim.kill())
    with pytest.raises(OutOfOrderSequence) as gap:
        append(sim, producer_id, 1, sequence=5)
    assert gap.value.details["expected_sequence"] == 0
    assert append(sim, producer_id, 1).first_offset == 1
    assert append(sim, producer_id, 1).duplicate
    assert bump(sim, producer_id) == (producer_id, 2)


def test_a_bump_goes_behind_what_logs_have_seen() -> None:
    """Clients that raise their epoch themselves, as Java's, are fenced too."""
    sim = started()
    for producer_id in (give(sim), 7):
        append(sim, producer_id, 4)
        append(sim, producer_id, 9, partition=1)
        assert bump(sim, producer_id) == (producer_id, 10)
        with pytest.raises(InvalidProducerEpoch):
            append(sim, producer_id, 9, sequence=1, partition=1)


def test_appends_that_were_queued_are_through_or_refused_when_a_bump_returns() -> None:
    sim = started()
    producer_id = give(sim)
    done: list[Command] = []
    for partition in (0, 1):
        log = sim.operations.partition_log("t", partition)
        sim.operations.submit_produce(
            log,
            records_of(batch([b"x"], producer=(producer_id, 0, 0)), log),
            Acks.LEADER,
            on_done=done.append,
        )
    bump(sim, producer_id)
    logs = [sim.operations.partition_log("t", partition) for partition in (0, 1)]
    ends = [log.log_end_offset for log in logs]
    sim.threads.run_until(lambda: len(done) == 2)
    assert [log.log_end_offset for log in logs] == ends
    assert sum(command.error is None for command in done) == sum(ends)


def test_used_up_epochs_end_in_another_id() -> None:
    sim = started()
    old = give(sim)
    append(sim, old, EPOCH_MAX - 1)
    assert bump(sim, old) == (old, EPOCH_MAX)
    append(sim, old, EPOCH_MAX)
    new, epoch = bump(sim, old)
    assert (new, epoch) == (old + 1, 0)
    for _ in range(2):
        with pytest.raises(InvalidProducerEpoch, match="has no epoch left"):
            append(sim, old, EPOCH_MAX, sequence=1)
        sim = again(sim)
    append(sim, new, 0)
    assert bump(sim, old)[0] > new


def test_forgotten_epochs_are_not_given_again() -> None:
    sim = started()
    idle, other = give(sim), give(sim)
    for _ in range(3):
        bump(sim, idle)
    sim.clock.step_wall_ms(EXPIRATION_MS)
    bump(sim, other)
    state = sim.manager.registry.state
    assert (set(state.producer_epochs), state.forgotten_epoch) == ({other}, 3)
    assert state.producer_epochs[other].epoch == 1
    sim = again(sim)
    assert bump(sim, idle) == (idle, 4)
    assert bump(sim, give(sim))[1] == 4


def test_a_fence_lasts_as_long_as_a_log_remembers_the_producer() -> None:
    sim = started()
    producer_id = give(sim)
    bump(sim, producer_id)
    sim.clock.step_wall_ms(EXPIRATION_MS)
    append(sim, producer_id, 1)
    bump(sim, give(sim))
    with pytest.raises(InvalidProducerEpoch):
        append(sim, producer_id, 0, partition=1)


def test_ids_that_nobody_has() -> None:
    sim = started()
    given = give(sim)
    for producer_id in (0, 7, given - 1, given + 1, given + BLOCK_IDS, 2**63 - 1):
        with pytest.raises(UnknownProducer):
            bump(sim, producer_id)
    assert give(sim) == given + 1
    assert bump(sim, given + 1) == (given + 1, 1)
    sim.stop()
    with pytest.raises(NotReady):
        give(sim)


def test_too_many_bumps_are_refused() -> None:
    sim = started()
    first, second = give(sim), give(sim)
    bump(sim, first)
    registry = sim.manager.registry
    many = {number: ProducerEpoch(1, sim.clock.wall_ms()) for number in range(9_999)}
    epochs = {**registry.state.producer_epochs, **many}
    registry.change(registry.state.with_producer_epochs(epochs))
    with pytest.raises(Overloaded):
        bump(sim, second)
    append(sim, second, 0)
    assert bump(sim, first) == (first, 2)


def test_a_dead_directory_does_not_hold_up_a_bump() -> None:
    sim = started()
    producer_id = give(sim)
    logs = [sim.operations.partition_log("t", number) for number in (0, 1)]
    sim.manager.logs.unit_of(logs[0]).log_dir.take_offline("test")
    assert bump(sim, producer_id) == (producer_id, 1)
    with pytest.raises(InvalidProducerEpoch):
        append(sim, producer_id, 0, partition=1)


def test_what_a_log_remembers() -> None:
    sim = started()
    first, second = give(sim), give(sim)
    append(sim, second, 3)
    append(sim, first, 0)
    append(sim, first, 0, sequence=1)
    for _ in range(2):
        entries = sim.operations.producers.describe("t", 0)
        seen = [(e.producer_id, e.producer_epoch, e.last_sequence) for e in entries]
        assert seen == [(first, 0, 1), (second, 3, 0)]
        assert entries[0].current_txn_first_offset is None
        assert sim.operations.producers.describe("t", 1) == []
        sim = again(sim)
    with pytest.raises(UnknownTopic):
        sim.operations.producers.describe("missing", 0)
    with pytest.raises(KafkalogError):
        sim.operations.producers.describe("t", 9)


def adopted() -> SimManager:
    """``t-0``: producer 7 open at 0; producer 8 committed, by coordinator epoch 5, open at 5."""
    sim = with_topic(1)
    replicate(sim, left_open(7, "a", "b"))
    replicate(sim, left_open(8, "c", epoch=3))
    replicate(sim, marker_of(8, ControlRecordType.COMMIT, epoch=3, coordinator=5))
    assert sim.produce("t", batch_of("d")).error is None
    replicate(sim, left_open(8, "e", epoch=3, sequence=1))
    return sim


def test_each_ends_by_itself() -> None:
    sim = adopted()
    assert committed(sim) == []
    aborted = sim.operations.producers.abort_transaction("t", 0, 5)
    assert aborted == (8, 3, 5, 0)
    assert committed(sim) == []
    aborted = sim.operations.producers.abort_transaction("t", 0, 0)
    assert aborted == (7, 0, 0, 8)
    assert committed(sim) == ["c", "d"]
    assert markers(sim) == ["COMMIT", "ABORT", "ABORT"]
    sim = started_with_sinks(sim.kill())
    check_invariants(sim.manager.logs.log_of("t", 0))
    assert is_settled(sim)
    assert committed(sim) == ["c", "d"]


def test_what_is_not_open_is_not_aborted() -> None:
    sim = adopted()
    for offset in (1, 2, 4, 99):
        with pytest.raises(InvalidTxnState, match=f"begins at offset {offset} of t-0") as refused:
            sim.operations.producers.abort_transaction("t", 0, offset)
        assert refused.value.details["first_open_offset"] == 0
    sim.operations.producers.abort_transaction("t", 0, 0)
    with pytest.raises(InvalidTxnState):
        sim.operations.producers.abort_transaction("t", 0, 0)
    with pytest.raises(UnknownPartition):
        sim.operations.producers.abort_transaction("t", 1, 0)
    with pytest.raises(UnknownTopic):
        sim.operations.producers.abort_transaction("u", 0, 0)
    assert markers(sim) == ["COMMIT", "ABORT"]


def test_one_of_two_operators_aborts_it() -> None:
    sim = adopted()
    ended: list[object] = []

    def abort() -> None:
        try:
            ended.append(sim.operations.producers.abort_transaction("t", 0, 0))
        except InvalidTxnState as refused:
            ended.append(refused.message)

    for name in ("one", "two"):
        sim.threads.start(name, abort)
    sim.threads.run_until(lambda: len(ended) == 2)
    assert sorted(map(type, ended), key=lambda kind: kind is str) == [AbortedTransaction, str]
    assert "No open transaction begins at offset 0 of t-0" in ended
    assert markers(sim) == ["COMMIT", "ABORT"]


def test_a_sink_decides_on_its_own() -> None:
    sim = with_topic(1)
    producer = begin(sim, 1)
    producer.send("a")
    with pytest.raises(InvalidTxnState, match="is a sink's"):
        sim.operations.producers.abort_transaction("t", 0, 0)
    replicate(sim, left_open(FIRST_PRODUCER_ID + 5_000_000, "x"))
    assert sim.operations.producers.abort_transaction("t", 0, 1).start_offset == 1
    sinks_of(sim).commit(QUERY, 1, [producer.winner()])
    assert committed(sim) == ["a"]


def test_a_full_disk_does_not_keep_it_open() -> None:
    """The reserve is for this; a disk that has no byte left is told, and it may be repeated."""
    sim = adopted()
    sim.disk.faults.add(
        Fault(error=errno.ENOSPC, kinds=frozenset({"write"}), path_contains="t-0", times=9)
    )
    with pytest.raises(StorageFault):
        sim.operations.producers.abort_transaction("t", 0, 0)
    assert not is_settled(sim)
    sim.disk.faults.clear()
    sim.operations.producers.abort_transaction("t", 0, 0)
    sim.operations.producers.abort_transaction("t", 0, 5)
    assert committed(sim) == ["c", "d"]
