"""Goal: a batch of a sink is committed once and whole, or not at all; a run that begins again
fences nobody, and what its producer appends goes on with the transaction, repeats it, or is
refused.
Method: managers on a simulated disk, batches as clients send them, every wrong argument.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafkalog.broker.transactions import coordinator, sink as sink_checks, sink_table
from kafkalog.broker.transactions.markers import SinkTransactions
from kafkalog.broker.transactions.producer_ids import ProducerIdentity
from kafkalog.broker.transactions.sink import Caller, LastSequence
from kafkalog.errors import (
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTxnState,
    KafkalogError,
    NotReady,
    OutOfOrderSequence,
    Overloaded,
    ProducerFenced,
    UnknownPartition,
    UnknownSink,
)
from kafkalog.format.disk.sink_state import Winner
from kafkalog.format.topic_names import TopicPartition
from kafkalog.log.values import LogAppendInfo
from tests.partition_world import batch
from tests.sim.sim_manager import SimManager
from tests.sink_world import (
    CONFIG,
    QUERY,
    Producer,
    T,
    begin,
    commit,
    committed,
    is_settled,
    markers,
    sinks_of,
    started,
    transactional,
    used_up,
    with_topic,
)


def test_a_batch_is_shown_whole_by_its_commit() -> None:
    sim = with_topic()
    one, two = begin(sim, 7, 0), begin(sim, 7, 1)
    assert one.send("a").error is None
    assert one.send("b", partition=1).error is None
    assert two.send("c", "d").error is None
    assert [committed(sim, n) for n in (0, 1)] == [[], []]
    assert sinks_of(sim).describe(QUERY).state == "open"
    assert sim.metrics.registry.get_sample_value("kafkalog_sink_transactions_open") == 2
    commit(sim, 7, one.winner(), two.winner())
    assert [committed(sim, n) for n in (0, 1)] == [["a", "c", "d"], ["b"]]
    assert markers(sim, 0) == ["COMMIT", "COMMIT"]
    described = sinks_of(sim).describe(QUERY)
    assert (described.state, described.committed_batch_id, described.pending) == (
        "committed",
        7,
        (),
    )
    assert sim.metrics.registry.get_sample_value("kafkalog_sink_commits_total") == 1
    assert sinks_of(sim).begin(QUERY, 7, 0, 0) is None
    end = sim.manager.logs.log_of("t", 0).log_end_offset
    commit(sim, 7, one.winner(), two.winner())
    assert sim.manager.logs.log_of("t", 0).log_end_offset == end


def test_losers_are_aborted() -> None:
    sim = with_topic()
    one, again, idle = begin(sim, 1, 0, 0), begin(sim, 1, 0, 1), begin(sim, 1, 1)
    assert len({each.identity.producer_id for each in (one, again, idle)}) == 3
    one.send("one")
    again.send("again")
    again.send("again", partition=2)
    one.send("one more")
    commit(sim, 1, one.winner())
    assert committed(sim, 0) == ["one", "one more"]
    assert committed(sim, 2) == []
    assert (markers(sim, 0), markers(sim, 2)) == (["COMMIT", "ABORT"], ["ABORT"])
    assert is_settled(sim)
    for late in (one, again, idle):
        assert isinstance(late.send("late").error, InvalidTxnState)
    assert sinks_of(sim).describe(QUERY).open_batch_id is None


def test_an_older_epoch_is_fenced() -> None:
    sim = with_topic()
    zombie = begin(sim, 1)
    zombie.send("zombie")
    fresh = begin(sim, 1)
    assert fresh.identity == ProducerIdentity(zombie.identity.producer_id, 1)
    assert markers(sim) == ["ABORT"]
    refused = zombie.send("zombie")
    assert isinstance(refused.error, InvalidProducerEpoch)
    assert refused.error.details == {"current_epoch": 1}
    assert fresh.send("fresh").error is None
    with pytest.raises(ProducerFenced):
        commit(sim, 1, zombie.winner())
    assert committed(sim) == []
    commit(sim, 1, fresh.winner())
    assert committed(sim) == ["fresh"]
    assert begin(sim, 2).identity.producer_epoch == 2


def test_what_a_commit_may_not_name() -> None:
    sim = with_topic()
    other = sinks_of(sim).begin("other", 1, 0, 0)
    assert other is not None
    one, two = begin(sim, 1, 0), begin(sim, 1, 1)
    one.send("a")
    one.send("b", partition=1)
    two.send("c")
    mine, its_id = one.winner(), one.identity.producer_id
    for winner, kind in (
        (Winner(1 << 50, 0, ()), InvalidProducerIdMapping),
        (Winner(*other, ()), InvalidProducerIdMapping),
        (Winner(its_id, 1, mine.partitions), ProducerFenced),
        (Winner(its_id, 0, (T[0],)), InvalidTxnState),
        (Winner(its_id, 0, (T[0], T[1], T[2])), InvalidTxnState),
        (Winner(its_id, 0, (T[0], T[1], TopicPartition("t", 9))), UnknownPartition),
    ):
        with pytest.raises(kind):
            commit(sim, 1, winner, two.winner())
    with pytest.raises(InvalidRequest, match="once"):
        commit(sim, 1, mine, mine)
    assert committed(sim) == []
    commit(sim, 1, mine, two.winner())
    assert committed(sim) == ["a", "c"]


def test_batches_follow_each_other() -> None:
    sim = with_topic()
    old = begin(sim, 4, 0)
    old.send("old")
    new = begin(sim, 5, 1)
    assert markers(sim) == ["ABORT"]
    new.send("new")
    for call in (
        lambda: begin(sim, 4, 0),
        lambda: commit(sim, 4),
        lambda: commit(sim, 4, old.winner()),
    ):
        with pytest.raises(ProducerFenced, match="is older"):
            call()
    with pytest.raises(InvalidTxnState, match="aborted"):
        commit(sim, 5, old.winner())
    commit(sim, 5, new.winner())
    commit(sim, 6)
    assert committed(sim) == ["new"]
    assert sinks_of(sim).describe(QUERY).committed_batch_id == 6
    assert sinks_of(sim).begin(QUERY, 6, 0, 0) is None
    samples = sim.metrics.registry
    assert samples.get_sample_value("kafkalog_sink_aborts_total", {"reason": "superseded"}) == 1


def test_a_batch_below_the_committed_one_is_refused() -> None:
    """A query whose checkpoint was put back or copied does not go on as if it had written."""
    sim = with_topic(1)
    for batch_id in (1, 2):
        one = begin(sim, batch_id)
        one.send(str(batch_id))
        commit(sim, batch_id, one.winner())
    refuse_older(sim, one.winner())
    later = begin(sim, 4)
    later.send("4")
    refuse_older(sim, one.winner())
    sim = started(sim.kill(), seed=1)
    refuse_older(sim, one.winner())
    commit(sim, 4, later.winner())
    assert committed(sim) == ["1", "2", "4"]


def refuse_older(sim: SimManager, winner: Winner) -> None:
    for call in (lambda: begin(sim, 1), lambda: commit(sim, 1), lambda: commit(sim, 0, winner)):
        with pytest.raises(ProducerFenced, match="2 of query q is committed: batch") as refused:
            call()
        assert refused.value.details == {"committed_batch_id": 2}
    assert sinks_of(sim).begin(QUERY, 2, 0, 0) is None
    commit(sim, 2, winner)


def test_abort() -> None:
    sim = with_topic()
    sinks_of(sim).abort("nobody", 1)
    with pytest.raises(UnknownSink):
        sinks_of(sim).describe("nobody")
    one = begin(sim, 1)
    one.send("a")
    sinks_of(sim).abort(QUERY, 2)
    assert markers(sim) == []
    sinks_of(sim).abort(QUERY, 1)
    sinks_of(sim).abort(QUERY, 1)
    assert (markers(sim), committed(sim), is_settled(sim)) == (["ABORT"], [], True)
    assert sinks_of(sim).describe(QUERY).state == "aborted"
    assert isinstance(one.send("late").error, InvalidTxnState)
    with pytest.raises(InvalidTxnState):
        commit(sim, 1, one.winner())
    again = begin(sim, 1)
    again.send("b")
    commit(sim, 1, again.winner())
    with pytest.raises(InvalidTxnState, match="is committed"):
        sinks_of(sim).abort(QUERY, 1)
    assert committed(sim) == ["b"]


def test_only_what_was_begun_is_taken() -> None:
    sim = with_topic()
    stranger = sim.operations.producers.allocate()
    refused = sim.produce("t", transactional(stranger, 0, ["x"]))
    assert isinstance(refused.error, InvalidTxnState)
    one = begin(sim, 1)
    later = ProducerIdentity(one.identity.producer_id, 1)
    refused = sim.produce("t", transactional(later, 0, ["x"]))
    assert isinstance(refused.error, InvalidProducerEpoch)
    plain = sim.produce("t", batch(["x"], producer=(one.identity.producer_id, 0, 0)))
    assert isinstance(plain.error, InvalidTxnState)
    with pytest.raises(InvalidTxnState, match="a sink's"):
        sim.operations.producers.bump(one.identity.producer_id)
    assert sim.manager.logs.log_of("t", 0).log_end_offset == 0


def test_a_used_up_producer_gets_a_successor() -> None:
    sim = with_topic()
    one = used_up(sim)
    fresh = begin(sim, 1)
    assert markers(sim) == ["ABORT"], "readers of committed records do not wait for the task"
    assert fresh.identity.producer_id != one.identity.producer_id
    assert fresh.identity.producer_epoch == 0
    assert isinstance(one.send("old").error, InvalidTxnState)
    fresh.send("new")
    commit(sim, 1, fresh.winner())
    assert committed(sim) == ["new"]


@pytest.mark.parametrize("is_orderly", [True, False])
def test_a_restart_between_all_calls(is_orderly: bool) -> None:
    sim = with_topic()

    def next_life() -> SimManager:
        return started(sim.stop() if is_orderly else sim.kill(), seed=1)

    one = begin(sim, 1)
    sim = next_life()
    one.bind(sim)
    assert one.send("a").error is None
    sim = next_life()
    one.bind(sim)
    assert one.send("b").error is None
    assert committed(sim) == []
    sim = next_life()
    commit(sim, 1, one.winner())
    sim = next_life()
    assert committed(sim) == ["a", "b"]
    assert sinks_of(sim).begin(QUERY, 1, 0, 0) is None
    assert begin(sim, 2).identity == ProducerIdentity(one.identity.producer_id, 1)


def test_before_the_state_is_loaded() -> None:
    sim = with_topic()
    one = begin(sim, 1)
    sim = SimManager(sim.stop(), config=CONFIG).start()
    one.bind(sim)
    assert isinstance(one.send("a").error, NotReady)
    with pytest.raises(NotReady):
        sinks_of(sim).begin(QUERY, 1, 0, 0)
    with pytest.raises(NotReady):
        sinks_of(sim).describe_all()
    sim.clock.advance_ms(1)
    assert one.send("a").error is None


def test_idle_batches_are_aborted() -> None:
    config = replace(CONFIG, transaction_max_timeout_ms=60_000)
    sim = with_topic(config=config)
    one = begin(sim, 1, 0)
    one.send("a")
    sim.clock.advance_ms(50_000)
    one.send("b")
    sim.clock.advance_ms(50_000)
    two = begin(sim, 1, 1)
    sim.clock.advance_ms(50_000)
    assert one.send("c").error is None
    assert two.send("d", partition=1).error is None
    sim.clock.advance_ms(71_000)
    assert (markers(sim, 0), markers(sim, 1)) == (["ABORT"], ["ABORT"])
    with pytest.raises(InvalidTxnState):
        commit(sim, 1, one.winner())
    samples = sim.metrics.registry
    assert samples.get_sample_value("kafkalog_sink_aborts_total", {"reason": "timed_out"}) == 1


def test_limits() -> None:
    sim = with_topic()
    for name in ("", "a/b", "x" * 250, "ü"):
        with pytest.raises(InvalidRequest, match="name of a query"):
            sinks_of(sim).begin(name, 1, 0, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sink_table, "SINKS_MAX", 1)
        one = begin(sim, 1)
        with pytest.raises(Overloaded):
            sinks_of(sim).begin("other", 1, 0, 0)
        for bound in ("PRODUCERS_MAX", "PRODUCERS_ALL_MAX"):
            patch.setattr(coordinator, bound, 1)
            with pytest.raises(Overloaded, match="1 producers"):
                begin(sim, 1, 1)
            patch.setattr(coordinator, bound, 2)
        patch.setattr(sink_checks, "PARTITIONS_MAX", 0)
        with pytest.raises(InvalidRequest, match="at most"):
            commit(sim, 1, one.winner())


def test_a_deleted_topic_holds_up_nobody() -> None:
    sim = with_topic()
    one = begin(sim, 1)
    one.send("a")
    sim.operations.topics.delete("t")
    with pytest.raises(UnknownPartition):
        commit(sim, 1, one.winner())
    commit(sim, 1)
    assert begin(sim, 2).identity.producer_epoch == 1


@pytest.mark.parametrize("seed", range(25))
def test_a_late_batch_of_a_winner(seed: int) -> None:
    sim = started(with_topic(2).stop(), seed=seed)
    one = begin(sim, 1)
    one.send("a")
    winner = one.winner()
    outcome: list[KafkalogError | None] = []

    def body() -> None:
        try:
            commit(sim, 1, winner)
        except InvalidTxnState as refusal:
            outcome.append(refusal)
        else:
            outcome.append(None)

    sim.disk.on_call = sim.threads.switch_point
    sim.threads.start("commit", body)
    late = one.send("late", partition=1)
    sim.threads.run_until(lambda: bool(outcome))
    assert outcome[0] is None or late.error is None
    assert committed(sim, 0) == (["a"] if outcome[0] is None else [])
    if outcome[0] is None:
        assert isinstance(late.error, InvalidTxnState)
    else:
        commit(sim, 1, one.winner())
        assert [committed(sim, n) for n in (0, 1)] == [["a"], ["late"]]


def answer(sim: SimManager, data: bytes) -> LogAppendInfo:
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
    data = batch(["x"], producer=(*sim.operations.producers.allocate(), 0))
    assert [answer(sim, data).duplicate for _ in range(2)] == [False, True]
    assert sim.manager.logs.log_of("t", 0).log_end_offset == 3


def test_a_transaction_begins_with_its_first_record() -> None:
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
    sim = with_topic(1)
    one = begin(sim, 1)
    one.send("a")
    transactions = SinkTransactions(sim.manager.logs, sim.clock)
    transactions.commit([one.winner()])
    first, second = transactional(one.identity, 0, ["a"]), transactional(one.identity, 1, ["b"])
    for data in (first, second, first + second):
        refused = sim.produce("t", data)
        assert isinstance(refused.error, InvalidTxnState), data
    assert sim.manager.logs.log_of("t", 0).log_end_offset == 2
    again = begin(sim, 1)
    assert answer(sim, transactional(again.identity, 0, ["c"])).first_offset == 2


def test_a_commit_may_tell_the_last_sequences() -> None:
    sim = with_topic(2)
    one = begin(sim, 1)
    one.send("a", "b")
    one.send("c")
    path = sim.manager.logs.log_of("t", 0).segments.first.log_file.path
    disk = sim.kill()
    size = disk.stat(path).size
    disk.open_write(path).pwrite(b"\xff", size - 1)
    sim = started(disk, seed=1)
    producer_id = one.identity.producer_id
    for lasts in ([(T[0], 2)], [(T[0], 0)], [(T[0], 1), (T[1], 0)]):
        with pytest.raises(InvalidTxnState, match="nothing was committed"):
            sinks_of(sim).commit(
                QUERY, 1, [one.winner()], [LastSequence(producer_id, *last) for last in lasts]
            )
    assert committed(sim) == []
    again = begin(sim, 1)
    again.send("a", "b")
    again.send("c")
    sinks_of(sim).commit(QUERY, 1, [again.winner()], [LastSequence(producer_id, T[0], 2)])
    assert committed(sim) == ["a", "b", "c"]


def begin_run(
    sim: SimManager,
    batch_id: int,
    partition_id: int = 0,
    attempt: int = 0,
    *,
    run_id: str | None = None,
    call_id: str | None = None,
) -> Producer:
    caller = Caller(run_id, call_id)
    identity = sinks_of(sim).begin(QUERY, batch_id, partition_id, attempt, caller)
    assert identity is not None
    return Producer(sim, identity)


def test_a_repetition_of_a_begin_fences_nobody() -> None:
    sim = with_topic()
    one = begin_run(sim, 1, call_id="x")
    assert begin_run(sim, 1, call_id="x").identity == one.identity
    assert one.send("a").error is None
    assert begin_run(sim, 1, call_id="x").identity == one.identity
    assert one.send("b").error is None
    sinks_of(sim).commit(QUERY, 1, [one.winner()])
    assert committed(sim) == ["a", "b"]
    epochs = [
        begin_run(sim, 2, call_id=call_id).identity.producer_epoch
        for call_id in ("x", "y", None, None, "z")
    ]
    assert epochs == [1, 2, 3, 4, 5]


def test_a_begin_that_is_overtaken_fences_nobody() -> None:
    """A call that its sender gave up, and that comes late, takes nothing from a newer one."""
    sim = with_topic()
    begin_run(sim, 1, call_id="x")
    newer = begin_run(sim, 1, call_id="y")
    assert newer.send("a").error is None
    with pytest.raises(ProducerFenced, match="A newer begin of this attempt of query q"):
        begin_run(sim, 1, call_id="x")
    assert begin_run(sim, 1, call_id="y").identity == newer.identity
    assert newer.send("b").error is None
    begin_run(sim, 1, partition_id=1, call_id="x")
    sinks_of(sim).commit(QUERY, 1, [newer.winner()])
    assert committed(sim) == ["a", "b"]
    begin_run(sim, 2)
    begin_run(sim, 2, call_id="x")
    unnamed = begin_run(sim, 2)
    with pytest.raises(ProducerFenced):
        begin_run(sim, 2, call_id="x")
    assert unnamed.send("c").error is None


def test_calls_are_forgotten_with_their_batch() -> None:
    sim = with_topic()
    one, *_ = [begin_run(sim, 1, part, call_id=f"c{part}") for part in range(3)]
    sink = sinks_of(sim)._table.find(QUERY)
    assert sink is not None
    assert sum(map(len, sink.runs._calls.values())) == 3
    assert one.send("a").error is None
    sinks_of(sim).commit(QUERY, 1, [one.winner()], is_last=True)
    assert not sink.runs._calls


def test_a_call_is_one_of_its_batch() -> None:
    sim = with_topic()
    one = begin_run(sim, 1, call_id="x")
    assert begin_run(sim, 1, 1, call_id="x").identity.producer_id != one.identity.producer_id
    sinks_of(sim).abort(QUERY, 1)
    again = begin_run(sim, 1, call_id="x")
    assert again.identity.producer_epoch == 1
    assert again.send("a").error is None
    sim = started(sim.kill(), seed=1)
    after = begin_run(sim, 1, call_id="x")
    assert after.identity.producer_epoch == 2
    assert after.send("b").error is None
    sinks_of(sim).commit(QUERY, 1, [after.winner()])
    assert begin_run(sim, 2, call_id="x").send("c").error is None
    assert committed(sim) == ["b"]


def test_a_run_leaves_nothing_open_to_the_next_one() -> None:
    sim = with_topic()
    old = [begin_run(sim, 1, 0, attempt, run_id="one") for attempt in (0, 1)]
    for each in old:
        assert each.send("old").error is None
    new = begin_run(sim, 1, 1, run_id="two")
    assert markers(sim) == ["ABORT", "ABORT"]
    assert new.send("new").error is None
    with pytest.raises(ProducerFenced, match="Another run of query q"):
        begin_run(sim, 1, 0, run_id="one")
    for each in old:
        assert isinstance(each.send("late").error, InvalidTxnState)
    begin_run(sim, 1, 2, run_id="two")
    sinks_of(sim).commit(QUERY, 1, [new.winner()])
    assert committed(sim) == ["new"]
    assert is_settled(sim)


def test_a_former_run_ends_no_batch_of_the_next_one() -> None:
    sim = with_topic()
    sinks = sinks_of(sim)
    begin_run(sim, 1, run_id="one")
    new = begin_run(sim, 1, run_id="two")
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
    begin_run(sim, 1, run_id="one")
    sinks_of(sim).commit(QUERY, 1, [], run_id="two")
    begin_run(sim, 2, run_id="one")
    sinks_of(sim).abort(QUERY, 2, run_id="two")
    assert sinks_of(sim).describe(QUERY).open_batch_id is None
    assert is_settled(sim)


def test_a_run_goes_on_over_restarts_and_batches() -> None:
    sim = with_topic()
    one = begin_run(sim, 1, 0, run_id="one")
    assert one.send("a").error is None
    sim = started(sim.kill(), seed=1)
    one.bind(sim)
    two, three = begin_run(sim, 1, 1, run_id="one"), begin_run(sim, 1, 2)
    for each in (one, two, three):
        assert each.send("b").error is None
    sinks_of(sim).commit(QUERY, 1, [one.winner(), two.winner(), three.winner()])
    assert committed(sim) == ["a", "b", "b", "b"]
    assert begin_run(sim, 2, run_id="one").send("c").error is None
    assert markers(sim) == ["COMMIT"] * 3
