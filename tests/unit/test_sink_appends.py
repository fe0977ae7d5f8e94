"""Goal: what a sink's producer appends goes on with its transaction, repeats it, or is refused.
Method: a whole manager on the simulated disks; appends behind markers, into topics made anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkalog.broker.transactions.markers import SinkTransactions
from kafkalog.broker.transactions.sink import LastSequence
from kafkalog.errors import InvalidTxnState, OutOfOrderSequence
from kafkalog.format.records.batch_builder import RecordColumns, build_batch
from kafkalog.log.values import LogAppendInfo
from tests.sink_world import (
    NOW_MS,
    QUERY,
    Producer,
    T,
    begin,
    committed,
    sinks_of,
    started,
    transactional,
    with_topic,
)

if TYPE_CHECKING:
    from tests.sim.sim_manager import SimManager


def answer(sim: SimManager, data: bytes) -> LogAppendInfo:
    """Of an append that is taken."""
    command = sim.produce("t", data)
    assert command.error is None
    assert isinstance(command.result, LogAppendInfo)
    return command.result


def test_repetitions_of_the_open_transaction_are_told_as_such() -> None:
    """After a lost answer a task sends again, and its records stand once."""
    sim = with_topic(1)
    identity = begin(sim, 1).identity
    one, two = transactional(identity, 0, ["a"]), transactional(identity, 1, ["b"])
    assert not answer(sim, one + two).duplicate
    for data in (one, two, one + two):
        assert answer(sim, data).duplicate
    plain = sim.operations.producers.allocate()
    columns = RecordColumns.of([None], ["x"], NOW_MS)
    data = build_batch(
        columns,
        producer_id=plain.producer_id,
        producer_epoch=plain.producer_epoch,
        base_sequence=0,
    )
    assert [answer(sim, data).duplicate for _ in range(2)] == [False, True]
    assert sim.manager.log_of("t", 0).log_end_offset == 3


def test_a_transaction_begins_with_its_first_record() -> None:
    """A commit shows all that its winner was told is appended, or nothing."""
    sim = with_topic(1)
    one = begin(sim, 1)
    assert one.send("a").error is None
    sim.operations.topics.delete("t")
    sim.operations.topics.create("t", 1, {})
    refused = one.send("b")
    assert isinstance(refused.error, OutOfOrderSequence)
    assert refused.error.details == {"expected_sequence": 0}
    with pytest.raises(InvalidTxnState):
        sinks_of(sim).commit(QUERY, 1, [one.winner()])
    again = begin(sim, 1)
    assert again.send("a", "b").error is None
    sinks_of(sim).commit(QUERY, 1, [again.winner()])
    assert committed(sim) == ["a", "b"]


def test_nothing_comes_behind_the_marker_of_its_own_epoch() -> None:
    """What a producer sends once its transaction has ended in a log is written nowhere, and not
    acknowledged as a repetition.
    """
    sim = with_topic(1)
    one = begin(sim, 1)
    one.send("a")
    transactions = SinkTransactions(sim.manager)
    transactions.commit([one.winner()])
    first, second = transactional(one.identity, 0, ["a"]), transactional(one.identity, 1, ["b"])
    for data in (first, second, first + second):
        refused = sim.produce("t", data)
        assert isinstance(refused.error, InvalidTxnState), data
    assert sim.manager.log_of("t", 0).log_end_offset == 2
    again = begin(sim, 1)
    assert answer(sim, transactional(again.identity, 0, ["c"])).first_offset == 2


def test_a_commit_may_tell_the_last_sequences() -> None:
    """A winner whose acknowledged records are not all there is not committed."""
    sim = with_topic(2)
    one = begin(sim, 1)
    one.send("a", "b")
    one.send("c")
    path = sim.manager.log_of("t", 0).segments.first.log_file.path
    disk = sim.kill()
    size = disk.stat(path).size
    disk.open_write(path).pwrite(b"\xff", size - 1)
    sim = started(disk, seed=1)
    producer_id = one.identity.producer_id
    for lasts in ([(T[0], 2)], [(T[0], 0)], [(T[0], 1), (T[1], 0)]):
        with pytest.raises(InvalidTxnState, match="nothing was committed"):
            commit(sim, 1, one, *(LastSequence(producer_id, *last) for last in lasts))
    assert committed(sim) == []
    again = begin(sim, 1)
    again.send("a", "b")
    again.send("c")
    commit(sim, 1, again, LastSequence(producer_id, T[0], 2))
    assert committed(sim) == ["a", "b", "c"]


def commit(sim: SimManager, batch_id: int, winner: Producer, *lasts: LastSequence) -> None:
    sinks_of(sim).commit(QUERY, batch_id, [winner.winner()], lasts)
