"""Goal: a begin that is repeated fences nobody, and a run leaves nothing open to the next one.
Method: a whole manager on the simulated disks; begins that tell their call and their run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkalog.broker.transactions.sink import Caller
from kafkalog.errors import InvalidTxnState, ProducerFenced
from tests.sink_world import (
    QUERY,
    Producer,
    committed,
    is_settled,
    markers,
    sinks_of,
    started,
    with_topic,
)

if TYPE_CHECKING:
    from tests.sim.sim_manager import SimManager


def begin(
    sim: SimManager,
    batch_id: int,
    partition_id: int = 0,
    attempt: int = 0,
    *,
    run_id: str | None = None,
    call_id: str | None = None,
) -> Producer:
    """By somebody who may tell who it is."""
    caller = Caller(run_id, call_id)
    identity = sinks_of(sim).begin(QUERY, batch_id, partition_id, attempt, caller)
    assert identity is not None
    return Producer(sim, identity)


def test_a_repetition_of_a_begin_fences_nobody() -> None:
    """A client that gave up waiting and asked again is not fenced by its first question."""
    sim = with_topic()
    one = begin(sim, 1, call_id="x")
    assert begin(sim, 1, call_id="x").identity == one.identity
    assert one.send("a").error is None
    assert begin(sim, 1, call_id="x").identity == one.identity
    assert one.send("b").error is None
    sinks_of(sim).commit(QUERY, 1, [one.winner()])
    assert committed(sim) == ["a", "b"]
    epochs = [
        begin(sim, 2, call_id=call_id).identity.producer_epoch
        for call_id in ("x", "y", None, None, "z")
    ]
    assert epochs == [1, 2, 3, 4, 5]


def test_a_begin_that_is_overtaken_fences_nobody() -> None:
    """A call that its sender gave up, and that comes late, takes nothing from a newer one."""
    sim = with_topic()
    begin(sim, 1, call_id="x")
    newer = begin(sim, 1, call_id="y")
    assert newer.send("a").error is None
    with pytest.raises(ProducerFenced, match="A newer begin of this attempt of query q"):
        begin(sim, 1, call_id="x")
    assert begin(sim, 1, call_id="y").identity == newer.identity
    assert newer.send("b").error is None
    begin(sim, 1, partition_id=1, call_id="x")
    sinks_of(sim).commit(QUERY, 1, [newer.winner()])
    assert committed(sim) == ["a", "b"]
    begin(sim, 2)
    begin(sim, 2, call_id="x")
    unnamed = begin(sim, 2)
    with pytest.raises(ProducerFenced):
        begin(sim, 2, call_id="x")
    assert unnamed.send("c").error is None


def test_calls_are_forgotten_with_their_batch() -> None:
    """A query that is over costs no memory for its begins."""
    sim = with_topic()
    one, *_ = [begin(sim, 1, part, call_id=f"c{part}") for part in range(3)]
    sink = sinks_of(sim)._table.find(QUERY)
    assert sink is not None
    assert sink.runs.call_count == 3
    assert one.send("a").error is None
    sinks_of(sim).commit(QUERY, 1, [one.winner()], is_last=True)
    assert sink.runs.call_count == 0


def test_a_call_is_one_of_its_batch() -> None:
    """Nobody is given a producer that may not append."""
    sim = with_topic()
    one = begin(sim, 1, call_id="x")
    assert begin(sim, 1, 1, call_id="x").identity.producer_id != one.identity.producer_id
    sinks_of(sim).abort(QUERY, 1)
    again = begin(sim, 1, call_id="x")
    assert again.identity.producer_epoch == 1
    assert again.send("a").error is None
    sim = started(sim.kill(), seed=1)
    after = begin(sim, 1, call_id="x")
    assert after.identity.producer_epoch == 2
    assert after.send("b").error is None
    sinks_of(sim).commit(QUERY, 1, [after.winner()])
    assert begin(sim, 2, call_id="x").send("c").error is None
    assert committed(sim) == ["b"]


def test_a_run_leaves_nothing_open_to_the_next_one() -> None:
    """A query that fails again and again holds nobody up who reads what is committed."""
    sim = with_topic()
    old = [begin(sim, 1, 0, attempt, run_id="one") for attempt in (0, 1)]
    for each in old:
        assert each.send("old").error is None
    new = begin(sim, 1, 1, run_id="two")
    assert markers(sim) == ["ABORT", "ABORT"]
    assert new.send("new").error is None
    with pytest.raises(ProducerFenced, match="Another run of query q"):
        begin(sim, 1, 0, run_id="one")
    for each in old:
        assert isinstance(each.send("late").error, InvalidTxnState)
    begin(sim, 1, 2, run_id="two")
    sinks_of(sim).commit(QUERY, 1, [new.winner()])
    assert committed(sim) == ["new"]
    assert is_settled(sim)


def test_a_former_run_ends_no_batch_of_the_next_one() -> None:
    """A driver that finds out late that it was replaced costs its successor nothing."""
    sim = with_topic()
    sinks = sinks_of(sim)
    begin(sim, 1, run_id="one")
    new = begin(sim, 1, run_id="two")
    with pytest.raises(ProducerFenced, match="Another run of query q"):
        sinks.abort(QUERY, 1, run_id="one")
    with pytest.raises(ProducerFenced, match="Another run of query q"):
        sinks.commit(QUERY, 1, [], run_id="one")
    assert new.send("new").error is None
    sinks.commit(QUERY, 1, [new.winner()], run_id="two")
    assert committed(sim) == ["new"]
    sinks.commit(QUERY, 1, [], run_id="one")  # it is committed: an answer that was lost


def test_a_run_without_a_begin_ends_its_batch() -> None:
    """A batch without records is committed by its run, whoever had the sink before."""
    sim = with_topic()
    begin(sim, 1, run_id="one")
    sinks_of(sim).commit(QUERY, 1, [], run_id="two")
    begin(sim, 2, run_id="one")
    sinks_of(sim).abort(QUERY, 2, run_id="two")
    assert sinks_of(sim).describe(QUERY).open_batch_id is None
    assert is_settled(sim)


def test_a_run_goes_on_over_restarts_and_batches() -> None:
    """No run takes from itself."""
    sim = with_topic()
    one = begin(sim, 1, 0, run_id="one")
    assert one.send("a").error is None
    sim = started(sim.kill(), seed=1)
    one.bind(sim)
    two, three = begin(sim, 1, 1, run_id="one"), begin(sim, 1, 2)
    for each in (one, two, three):
        assert each.send("b").error is None
    sinks_of(sim).commit(QUERY, 1, [one.winner(), two.winner(), three.winner()])
    assert committed(sim) == ["a", "b", "b", "b"]
    assert begin(sim, 2, run_id="one").send("c").error is None
    assert markers(sim) == ["COMMIT"] * 3
