"""Goal: a batch of a sink is committed once and whole, or not at all; whatever fails in between.
Method: a whole manager on the simulated disks: attempts, fences, disk faults, restarts, time.
"""

from __future__ import annotations

import contextlib
import errno
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kafkalog.errors import (
    AppendOutcomeUnknown,
    ConcurrentTransactions,
    CorruptData,
    DiskFull,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTxnState,
    KafkalogError,
    LogDirOffline,
    NotReady,
    Overloaded,
    ProducerFenced,
    StorageFault,
    UnknownPartition,
    UnknownSink,
)
from kafkalog.format.batch_builder import RecordColumns, build_batch
from kafkalog.format.field_reader import INT16
from kafkalog.format.integers import INT16_MAX
from kafkalog.format.sink_state import QueryKey, Winner, encode_key
from kafkalog.format.topic_partition import SINK_STATE_TOPIC, TopicPartition
from kafkalog.manager import sink_checks, sink_table, sinks
from kafkalog.manager.commands import AppendCommand
from kafkalog.manager.partition_table import log_dir_of
from kafkalog.manager.producer_ids import ProducerIdentity
from kafkalog.manager.values import Acks
from tests.sim.sim_crash import CrashMode
from tests.sim.sim_faults import Effect, Fault, SimulatedCrash
from tests.sim.sim_manager import SimManager, records_of
from tests.sink_world import (
    CONFIG,
    QUERY,
    Producer,
    T,
    begin,
    committed,
    is_settled,
    markers,
    sinks_of,
    started,
    transactional,
    with_topic,
)

if TYPE_CHECKING:
    from tests.sim.sim_filesystem import SimFilesystem


def commit(sim: SimManager, batch_id: int, *winners: Winner) -> None:
    sinks_of(sim).commit(QUERY, batch_id, winners)


def test_a_batch_is_shown_whole_by_its_commit() -> None:
    """Goal: nothing before the commit, everything behind it, in all partitions.
    Method: two tasks, two partitions each; a reader of committed records at each step.
    """
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
    end = sim.manager.log_of("t", 0).log_end_offset
    commit(sim, 7, one.winner(), two.winner())
    assert sim.manager.log_of("t", 0).log_end_offset == end


def test_losers_are_aborted() -> None:
    """Goal: of several attempts one is shown.
    Method: a speculative attempt that writes elsewhere too, one that wrote nothing.
    """
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
    """Goal: a zombie of an attempt can neither append nor be committed.
    Method: the same begin twice, in between a batch; then both send, both are named.
    """
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
    """Goal: nothing is committed unless everything fits; a right call then still succeeds.
    Method: an unknown producer, one of another query, one twice, too few and too many partitions.
    """
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
    """Goal: a newer batch ends an older one, never the other way round.
    Method: begins and commits of three batches out of order; an empty one.
    """
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
    """Goal: a query whose checkpoint was put back or copied does not go on as if it had written.
    Method: begins and commits below the last commit: at once, beside a later batch, after a kill.
    """
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
    """What is below the committed batch 2 is refused, that batch itself is not."""
    for call in (
        lambda: begin(sim, 1),
        lambda: commit(sim, 1),
        lambda: commit(sim, 0, winner),
    ):
        with pytest.raises(ProducerFenced, match="2 of query q is committed: batch") as refused:
            call()
        assert refused.value.details == {"committed_batch_id": 2}
    assert sinks_of(sim).begin(QUERY, 2, 0, 0) is None
    commit(sim, 2, winner)


def test_abort() -> None:
    """Goal: an aborted batch is gone, can be begun anew, and a committed one cannot be aborted.
    Method: abort twice, an unknown query, a wrong batch, after the commit.
    """
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
    """Goal: no transactional batch without a begin, no other batch of a sink's producer.
    Method: a stranger's id, an epoch that is still to come, a batch without the bit, a bump.
    """
    sim = with_topic()
    stranger = sim.operations.producers.allocate()
    refused = sim.produce("t", transactional(stranger, 0, ["x"]))
    assert isinstance(refused.error, InvalidTxnState)
    one = begin(sim, 1)
    later = ProducerIdentity(one.identity.producer_id, 1)
    refused = sim.produce("t", transactional(later, 0, ["x"]))
    assert isinstance(refused.error, InvalidProducerEpoch)
    batch = build_batch(
        RecordColumns.of([None], ["x"], 1_700_000_000_000),
        producer_id=one.identity.producer_id,
        producer_epoch=0,
        base_sequence=0,
    )
    assert isinstance(sim.produce("t", batch).error, InvalidTxnState)
    with pytest.raises(InvalidTxnState, match="a sink's"):
        sim.operations.producers.bump(one.identity.producer_id)
    assert sim.manager.log_of("t", 0).log_end_offset == 0


def test_a_used_up_producer_gets_a_successor() -> None:
    """Goal: epochs may run out.
    Method: a producer at the last epoch, its transaction open.
    """
    sim = with_topic()
    one = begin(sim, 1)
    sink = sinks_of(sim)._table.find(QUERY)
    assert sink is not None
    (key,) = sink.producers
    last = replace(sink.producers[key], producer_epoch=INT16_MAX)
    with sinks_of(sim)._table.turn(QUERY) as current:
        sinks_of(sim)._table.write(current, [(key, last)])
    one.identity = ProducerIdentity(one.identity.producer_id, INT16_MAX)
    one.send("old")
    fresh = begin(sim, 1)
    assert fresh.identity.producer_id != one.identity.producer_id
    assert fresh.identity.producer_epoch == 0
    assert isinstance(one.send("old").error, InvalidTxnState)
    sinks_of(sim).settle_once()
    assert markers(sim) == ["ABORT"]
    fresh.send("new")
    commit(sim, 1, fresh.winner())
    assert committed(sim) == ["new"]


@pytest.mark.parametrize("is_orderly", [True, False])
def test_a_restart_between_all_calls(is_orderly: bool) -> None:
    """Goal: an open batch, its producers and its epochs outlive a restart, orderly or not.
    Method: the next life at every step of a batch; an append before the state is loaded.
    """
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
    """Goal: nobody is refused for good only because a start is young.
    Method: calls and an append in the moment after the start.
    """
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
    """Goal: what a query left open does not hold back readers for ever; who works is left alone.
    Method: time; an append and a begin shortly before the end.
    """
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
    """Goal: no request and no client takes memory without end; names are as a topic's.
    Method: each bound with a small value.
    """
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
            patch.setattr(sinks, bound, 1)
            with pytest.raises(Overloaded, match="1 producers"):
                begin(sim, 1, 1)
            patch.setattr(sinks, bound, 2)
        patch.setattr(sink_checks, "PARTITIONS_MAX", 0)
        with pytest.raises(InvalidRequest, match="at most"):
            commit(sim, 1, one.winner())


def test_a_deleted_topic_holds_up_nobody() -> None:
    """Goal: a topic that is deleted behind a decision does not keep its sink from going on.
    Method: the deletion of one of two topics while its markers wait.
    """
    sim = with_topic()
    one = begin(sim, 1)
    one.send("a")
    sim.operations.topics.delete("t")
    with pytest.raises(UnknownPartition):
        commit(sim, 1, one.winner())
    commit(sim, 1)
    assert begin(sim, 2).identity.producer_epoch == 1


SPACE = (Effect.RAISE, errno.ENOSPC)
WRITES = frozenset({"write"})
SYNCS = frozenset({"datasync", "sync"})


def attempt(sim: SimManager, batch_id: int) -> list[Winner] | None:
    """One try to write a batch; None: it is committed."""
    winners = []
    for partition_id in (0, 1):
        identity = sinks_of(sim).begin(QUERY, batch_id, partition_id, 0)
        if identity is None:
            return None
        producer = Producer(sim, identity)
        for value, partition in (("a", 0), ("b", 1)):
            answer = producer.send(f"{batch_id}{value}{partition_id}", partition=partition)
            if answer.error is not None:
                raise answer.error
        winners.append(producer.winner())
    return winners


def drive(sim: SimManager, batch_id: int) -> None:
    """A client that goes on until the batch is committed: it repeats the commit, or begins anew."""
    winners: list[Winner] | None = []
    for _ in range(6):
        try:
            winners = winners or attempt(sim, batch_id)
            if winners is not None:
                commit(sim, batch_id, *winners)
            return
        except InvalidTxnState:
            winners = []
        except (StorageFault, ConcurrentTransactions):
            sim.clock.advance_ms(20_000)  # the directory is looked at again
    raise AssertionError("it never went through")


@pytest.mark.parametrize("place", [SINK_STATE_TOPIC, "/t-0", "/t-1"])
@pytest.mark.parametrize(("number", "kinds"), [(errno.ENOSPC, WRITES), (errno.EMFILE, SYNCS)])
def test_a_passing_fault_at_every_call(place: str, number: int, kinds: frozenset[str]) -> None:
    """Goal: what fails is refused, unclear or follows by itself; nothing is lost or doubled.
    Method: a full disk at the n-th write of two batches to the state or to a partition, and no
    descriptor for the n-th sync, after which a record is there and nobody knows; for every n.
    """
    for nth in range(1, 60):
        sim = with_topic(2)
        commit(sim, 0)
        fault = sim.disk.faults.add(Fault(Effect.RAISE, number, kinds, place, nth=nth))
        for batch_id in (1, 2):
            drive(sim, batch_id)
        has_struck = fault.seen >= nth
        sim.disk.faults.clear()
        sim.clock.advance_ms(40_000)
        assert committed(sim, 0) == ["1a0", "1a1", "2a0", "2a1"]
        assert committed(sim, 1) == ["1b0", "1b1", "2b0", "2b1"]
        assert is_settled(sim)
        if not has_struck:
            return
    raise AssertionError("more writes than expected")


@pytest.mark.parametrize("place", [SINK_STATE_TOPIC, "/t-0", "/t-1"])
@pytest.mark.parametrize(
    ("effect", "kinds"),
    [(Effect.RAISE, WRITES), (Effect.SHORT_WRITE, WRITES), (Effect.LOSE_SYNC, SYNCS)],
)
def test_a_directory_lost_at_every_call(place: str, effect: Effect, kinds: frozenset[str]) -> None:
    """Goal: a directory that fails between two steps takes no batch apart.
    Method: the n-th write or sync of the state or of a partition fails; the client goes on in the
    next life, after a kill.
    """
    for nth in range(1, 60):
        sim = with_topic(2)
        commit(sim, 0)
        fault = sim.disk.faults.add(Fault(effect, errno.EIO, kinds, place, nth=nth))
        winners: list[Winner] | None = None
        with contextlib.suppress(KafkalogError):
            winners = attempt(sim, 1)
            assert winners is not None
            commit(sim, 1, *winners)
        has_struck = fault.seen >= nth
        sim.disk.faults.clear()
        sim = started(sim.kill(), seed=1)
        seen = [committed(sim, 0), committed(sim, 1)]
        assert seen in ([[], []], [["1a0", "1a1"], ["1b0", "1b1"]])
        if winners is not None:
            with contextlib.suppress(InvalidTxnState):
                commit(sim, 1, *winners)
        drive(sim, 1)
        assert [committed(sim, 0), committed(sim, 1)] == [["1a0", "1a1"], ["1b0", "1b1"]]
        sim.clock.advance_ms(20_000)
        assert is_settled(sim)
        if not has_struck:
            return
    raise AssertionError("more calls than expected")


def test_a_decision_is_kept_until_its_markers_are_written() -> None:
    """Goal: a commit that is decided is answered, and shown as soon as its disk takes markers.
    Method: a full disk under the marker of one partition; the next begin, the task.
    """
    sim = with_topic(2)
    one = begin(sim, 1)
    one.send("a")
    one.send("b", partition=1)
    sim.disk.faults.add(Fault(*SPACE, WRITES, "/t-1", times=3))
    commit(sim, 1, one.winner())
    assert [committed(sim, n) for n in (0, 1)] == [["a"], []]
    described = sinks_of(sim).describe(QUERY)
    assert (described.state, described.pending) == ("committing", (T[0], T[1]))
    commit(sim, 1, one.winner())
    with pytest.raises(DiskFull):
        sinks_of(sim).begin(QUERY, 2, 0, 0)
    sim.clock.advance_ms(30_000)
    assert committed(sim, 1) == ["b"]
    assert sinks_of(sim).describe(QUERY).state == "committed"
    assert begin(sim, 2).send("c").error is None


def test_an_older_transaction_never_takes_in_newer_batches() -> None:
    """Goal: what a fenced epoch left open is aborted without the batches of the next one.
    Method: the marker of the fence meets a full disk, the next epoch appends at once.
    """
    sim = with_topic(1)
    old = begin(sim, 1)
    old.send("old")
    sim.disk.faults.add(Fault(*SPACE, WRITES, "/t-0"))
    fresh = begin(sim, 1)
    sim.disk.faults.clear()
    for _ in range(3):
        refused = fresh.send("fresh").error
        assert isinstance(refused, ConcurrentTransactions | DiskFull)
        sim.clock.advance_ms(1_000)
    assert isinstance(refused, ConcurrentTransactions)
    sim.clock.advance_ms(20_000)
    assert markers(sim) == ["ABORT"]
    assert fresh.send("fresh").error is None
    commit(sim, 1, fresh.winner())
    assert committed(sim) == ["fresh"]


def test_the_state_on_a_lost_directory() -> None:
    """Goal: without its state the coordinator decides nothing; after a repair it goes on.
    Method: the directory of the state fails; calls, an append elsewhere, the next life.
    """
    sim = with_topic(4)
    one = begin(sim, 1)
    state_dir = log_dir_of(sim.manager.log_of(SINK_STATE_TOPIC, 0))
    mine = next(
        number for number in range(4) if log_dir_of(sim.manager.log_of("t", number)) != state_dir
    )
    one.send("a", partition=mine)
    sim.disk.faults.add(Fault(kinds=WRITES, path_contains=SINK_STATE_TOPIC))
    with pytest.raises(StorageFault):
        commit(sim, 1, one.winner())
    sim.disk.faults.clear()
    for call in (
        lambda: commit(sim, 1, one.winner()),
        lambda: begin(sim, 1),
        lambda: sinks_of(sim).abort(QUERY, 1),
    ):
        with pytest.raises(LogDirOffline):
            call()
    assert sinks_of(sim).describe(QUERY).state == "open"
    sim = started(sim.kill(), seed=1)
    commit(sim, 1, one.winner())
    assert committed(sim, mine) == ["a"]


@pytest.mark.parametrize("is_aborted", [False, True])
def test_an_unclear_decision_is_cleared_up_first(is_aborted: bool) -> None:
    """Goal: what a commit left unclear is known before its query goes on; a restart says the same.
    Method: no descriptor for the sync of the decision; the query begins the batch anew, or aborts.
    """
    sim = with_topic(2)
    one = begin(sim, 1)
    one.send("a")
    sim.disk.faults.add(Fault(Effect.RAISE, errno.EMFILE, SYNCS, SINK_STATE_TOPIC))
    with pytest.raises(AppendOutcomeUnknown):
        commit(sim, 1, one.winner())
    assert committed(sim) == []
    if is_aborted:
        with pytest.raises(InvalidTxnState, match="is committed"):
            sinks_of(sim).abort(QUERY, 1)
    else:
        assert sinks_of(sim).begin(QUERY, 1, 0, 0) is None
    sinks_of(sim).settle_once()
    assert committed(sim) == ["a"]
    assert committed(started(sim.kill(), seed=1)) == ["a"]


def committed_from_the_page_cache(stop: int | None) -> tuple[SimFilesystem, list[str]]:
    """A commit of batches that nobody synced; its calls to the disk, after ``stop`` the power."""
    sim = with_topic(2)
    one = begin(sim, 1)
    for partition in (0, 1):
        one.send("a", partition=partition, acks=Acks.LEADER)
    before = len(sim.disk.operations)
    if stop is not None:
        sim.disk.stop_at(before + stop)
    with contextlib.suppress(SimulatedCrash):
        commit(sim, 1, one.winner())
    sim.threads.kill_all()
    calls = [f"{each.kind} {each.path}" for each in sim.disk.operations[before:]]
    return sim.disk.crash(CrashMode.DROP_ALL, 0), calls


def test_a_decision_never_stands_over_data_that_is_gone() -> None:
    """Goal: data is durable before its commit is.
    Method: the power goes right after the sync of the decision, and right before it.
    """
    _, calls = committed_from_the_page_cache(None)
    syncs = [
        number
        for number, call in enumerate(calls)
        if call.startswith("datasync") and SINK_STATE_TOPIC in call and call.endswith(".log")
    ]
    for stop, expected in ((syncs[0], []), (syncs[0] + 1, ["a"])):
        disk, _ = committed_from_the_page_cache(stop)
        sim = started(disk, seed=1)
        assert [committed(sim, n) for n in (0, 1)] == [expected] * 2


@pytest.mark.parametrize("seed", range(25))
def test_a_late_batch_of_a_winner(seed: int) -> None:
    """Goal: what was appended while a commit runs is refused, refuses the commit, or is shown.
    Method: both at once, in an order that the seed chooses; the batch goes to another partition.
    """
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


def test_a_state_that_cannot_be_read_decides_nothing() -> None:
    """Goal: a record that is damaged or from a newer version is no reason to abort or to commit.
    Method: a record of the next version behind an open batch; calls and an append in the next life.
    """
    sim = with_topic(1)
    one = begin(sim, 1)
    one.send("a")
    log = sim.manager.log_of(SINK_STATE_TOPIC, 0)
    newer = INT16.pack(2) + encode_key(QueryKey(QUERY))[2:]
    batch = build_batch(RecordColumns.of([newer], [b""], 1_700_000_000_000))
    sim.manager.unit_of(log).writer.run(
        AppendCommand(log, records_of(batch, log), Acks.ALL, None, None)
    )
    sim = started(sim.stop())
    for _ in range(2):
        with pytest.raises(CorruptData, match="of version 2"):
            commit(sim, 1, one.winner())
        sim.clock.advance_ms(20_000)
    one.bind(sim)
    assert isinstance(one.send("b").error, NotReady)
    assert markers(sim) == []
