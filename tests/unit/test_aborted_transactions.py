"""Goal: what an adopted directory left open can be ended, and nothing else by mistake.
Method: a manager on the simulated disk, batches and markers of a coordinator that is not here.
"""

from __future__ import annotations

import errno

import pytest

from kafkalog.broker.transactions.producer_ids import FIRST_PRODUCER_ID
from kafkalog.broker.transactions.producers import AbortedTransaction
from kafkalog.errors import InvalidTxnState, StorageFault, UnknownPartition, UnknownTopic
from kafkalog.format.records.control_record import ControlRecordType
from kafkalog.log.inspect.invariants import check_invariants
from tests.open_transactions import left_open, marker_of, replicate
from tests.sim.sim_faults import Fault
from tests.sim.sim_manager import SimManager, batch_of
from tests.sink_world import (
    QUERY,
    begin,
    committed,
    is_settled,
    markers,
    sinks_of,
    started,
    with_topic,
)


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
    """Readers of committed records go on, without what was aborted; it is so after a kill."""
    sim = adopted()
    assert committed(sim) == []
    aborted = sim.operations.producers.abort_transaction("t", 0, 5)
    assert aborted == (8, 3, 5, 0)
    assert committed(sim) == []
    aborted = sim.operations.producers.abort_transaction("t", 0, 0)
    assert aborted == (7, 0, 0, 8)
    assert committed(sim) == ["c", "d"]
    assert markers(sim) == ["COMMIT", "ABORT", "ABORT"]
    sim = started(sim.kill())
    check_invariants(sim.manager.log_of("t", 0))
    assert is_settled(sim)
    assert committed(sim) == ["c", "d"]
    sim.stop()


def test_what_is_not_open_is_not_aborted() -> None:
    """A call says exactly which transaction it means."""
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
    sim.stop()


def test_one_of_two_operators_aborts_it() -> None:
    """A call that wrote no marker does not say that it did."""
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
    """Nobody takes from a sink what it may have decided to show."""
    sim = with_topic(1)
    producer = begin(sim, 1)
    producer.send("a")
    with pytest.raises(InvalidTxnState, match="is a sink's"):
        sim.operations.producers.abort_transaction("t", 0, 0)
    replicate(sim, left_open(FIRST_PRODUCER_ID + 5_000_000, "x"))
    assert sim.operations.producers.abort_transaction("t", 0, 1).start_offset == 1
    sinks_of(sim).commit(QUERY, 1, [producer.winner()])
    assert committed(sim) == ["a"]
    sim.stop()


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
    sim.stop()
