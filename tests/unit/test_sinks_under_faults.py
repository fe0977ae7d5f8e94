"""Goal: whatever call fails, a batch of a sink is committed once and whole, or not at all.
Method: a whole manager on the simulated disks: a fault at every call of a commit, lost directories,
power cuts, a state that nobody can read.
"""

from __future__ import annotations

import contextlib
import errno
from typing import TYPE_CHECKING

import pytest

from kafkalog.broker.directory.commands import AppendCommand
from kafkalog.broker.values import Acks
from kafkalog.errors import (
    AppendOutcomeUnknown,
    ConcurrentTransactions,
    CorruptData,
    DiskFull,
    InvalidTxnState,
    KafkalogError,
    LogDirOffline,
    NotReady,
    StorageFault,
)
from kafkalog.format.disk.sink_state import QueryKey, Winner, encode_key
from kafkalog.format.field_reader import INT16
from kafkalog.format.records.batch_builder import RecordColumns, build_batch
from kafkalog.format.topic_names import SINK_STATE_TOPIC
from tests.sim.sim_crash import CrashMode
from tests.sim.sim_faults import Effect, Fault, SimulatedCrash
from tests.sim.sim_manager import SimManager, records_of
from tests.sink_world import (
    QUERY,
    Producer,
    T,
    begin,
    committed,
    is_settled,
    markers,
    sinks_of,
    started,
    with_topic,
)

if TYPE_CHECKING:
    from tests.sim.sim_filesystem import SimFilesystem


def commit(sim: SimManager, batch_id: int, *winners: Winner) -> None:
    sinks_of(sim).commit(QUERY, batch_id, winners)


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
    """What fails is refused, unclear or follows by itself; nothing is lost or doubled."""
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
    """A commit that is decided is answered, and shown as soon as its disk takes markers."""
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
    """What a fenced epoch left open is aborted without the batches of the next one."""
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
    state_dir = sim.manager.log_of(SINK_STATE_TOPIC, 0).parent_dir
    mine = next(
        number for number in range(4) if sim.manager.log_of("t", number).parent_dir != state_dir
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
    """What a commit left unclear is known before its query goes on; a restart says the same."""
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
    """Data is durable before its commit is."""
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


def test_a_state_that_cannot_be_read_decides_nothing() -> None:
    """A record that is damaged or from a newer version is no reason to abort or to commit."""
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
