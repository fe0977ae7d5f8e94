"""Goal: whatever call fails, a batch of a sink is committed once and whole, or not at all: failing
calls, a full disk, a directory that is away, a backup that holds half of a batch.
Method: managers on simulated disks whose calls fail one by one, are full, or are taken away.
"""

from __future__ import annotations

import contextlib
import errno
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kafkalog.broker.background import OperationState
from kafkalog.broker.backup.backup import Backup
from kafkalog.broker.directory.commands import AppendCommand
from kafkalog.broker.values import Acks, MoveState
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
from kafkalog.format.disk.sink_state import ProducerKey, QueryKey, Winner, encode_key
from kafkalog.format.field_reader import INT16
from kafkalog.format.integers import INT16_MAX
from kafkalog.format.topic_names import SINK_STATE_TOPIC
from tests.backup_world import back_up, backup_arguments, make_places, manifest_of, restored
from tests.partition_world import batch
from tests.sim.sim_crash import CrashMode
from tests.sim.sim_faults import Effect, Fault, SimulatedCrash
from tests.sim.sim_manager import DIRS, SimManager, records_of
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
    with_topic,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sim.sim_filesystem import SimFilesystem


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
    sim = with_topic(4)
    one = begin(sim, 1)
    state_dir = sim.manager.logs.log_of(SINK_STATE_TOPIC, 0).parent_dir
    mine = next(
        number
        for number in range(4)
        if sim.manager.logs.log_of("t", number).parent_dir != state_dir
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
    sinks_of(sim).reconcile_once()
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
    sim = with_topic(1)
    one = begin(sim, 1)
    one.send("a")
    log = sim.manager.logs.log_of(SINK_STATE_TOPIC, 0)
    newer = INT16.pack(2) + encode_key(QueryKey(QUERY))[2:]
    record = batch([b""], keys=[newer])
    sim.manager.logs.unit_of(log).writer.run(
        AppendCommand(log, records_of(record, log), Acks.ALL, None, None)
    )
    sim = started(sim.stop())
    for _ in range(2):
        with pytest.raises(CorruptData, match="of version 2"):
            commit(sim, 1, one.winner())
        sim.clock.advance_ms(20_000)
    one.bind(sim)
    assert isinstance(one.send("b").error, NotReady)
    assert markers(sim) == []


TIMEOUT = replace(CONFIG, transaction_max_timeout_ms=60_000)


def move_state(sim: SimManager) -> None:
    here = sim.manager.logs.log_of(SINK_STATE_TOPIC, 0).parent_dir
    (there,) = (each for each in DIRS if each != here)
    sim.operations.log_dirs.move(SINK_STATE_TOPIC, 0, there)
    sim.threads.run_until(lambda: sim.operations.log_dirs.moves()[0].state is not MoveState.COPYING)
    assert sim.manager.logs.log_of(SINK_STATE_TOPIC, 0).parent_dir == there


def fill(sim: SimManager) -> None:
    free_bytes = sim.manager.runtime.config.log_dir_min_free_bytes // 2
    for unit in sim.manager.logs.online_units:
        sim.disk.capacity_bytes += free_bytes - sim.disk.space(unit.log_dir.path).usable_bytes
        unit.log_dir.measure_space()
        assert unit.log_dir.is_full


def test_idle_batches_are_aborted_on_a_full_disk() -> None:
    sim = with_topic(1, config=TIMEOUT)
    begin(sim, 1).send("a")
    fill(sim)
    sim.clock.advance_ms(90_000)
    assert is_settled(sim)
    assert markers(sim) == ["ABORT"]
    with pytest.raises(DiskFull):
        begin(sim, 1)


def test_a_written_batch_is_committed_on_a_full_disk() -> None:
    sim = with_topic(1, config=TIMEOUT)
    one, other = begin(sim, 1), sinks_of(sim).begin("other", 1, 0, 0)
    one.send("a")
    assert other is not None
    fill(sim)
    sinks_of(sim).commit(QUERY, 1, [one.winner()])
    assert committed(sim) == ["a"]
    assert sinks_of(sim).describe(QUERY).state == "committed"
    sinks_of(sim).abort("other", 1)
    assert sinks_of(sim).describe("other").state == "aborted"
    with pytest.raises(DiskFull):  # nothing is open: it may not eat up the reserve
        sinks_of(sim).commit(QUERY, 2, [])


@pytest.mark.parametrize("is_moved", [False, True])
def test_a_decision_that_is_not_whole_in_the_log_is_not_believed(is_moved: bool) -> None:
    sim = with_topic(2)
    one = begin(sim, 1)
    one.send("a")
    one.send("b", partition=1)
    short = Fault(Effect.SHORT_WRITE, errno.ENOSPC, frozenset({"write"}), SINK_STATE_TOPIC)
    uncut = Fault(Effect.RAISE, errno.EIO, frozenset({"truncate"}), SINK_STATE_TOPIC)
    sim.disk.faults.add(short)
    sim.disk.faults.add(uncut)
    with pytest.raises(AppendOutcomeUnknown):
        sinks_of(sim).commit(QUERY, 1, [one.winner()])
    sim.disk.faults.clear()
    if is_moved:
        move_state(sim)
    for _ in range(2):
        with pytest.raises(LogDirOffline, match="restart the daemon"):
            sinks_of(sim).commit(QUERY, 1, [one.winner()])
        with contextlib.suppress(KafkalogError):
            sim.clock.advance_ms(20_000)
    assert [committed(sim, each) for each in (0, 1)] == [[], []]
    sim = started(sim.kill(), seed=1)
    assert sinks_of(sim).describe(QUERY).state == "open"
    one.bind(sim)
    sinks_of(sim).commit(QUERY, 1, [one.winner()])
    assert [committed(sim, each) for each in (0, 1)] == [["a"], ["b"]]


ALL = range(4)


def state_dir_of(sim: SimManager) -> str:
    return sim.manager.logs.log_of(SINK_STATE_TOPIC, 0).parent_dir


def partitions_in(sim: SimManager, log_dir: str) -> list[int]:
    return [each for each in ALL if sim.manager.logs.log_of("t", each).parent_dir == log_dir]


def test_a_decision_is_shown_where_its_partitions_are_served() -> None:
    sim = with_topic()
    one = begin(sim, 1)
    for partition in ALL:
        one.send("a", partition=partition)
    here = partitions_in(sim, state_dir_of(sim))
    (away,) = (each for each in DIRS if each != state_dir_of(sim))
    no_space = Fault(Effect.RAISE, errno.ENOSPC, frozenset({"write"}), "/t-", times=1_000)
    sim.disk.faults.add(no_space)
    sinks_of(sim).commit(QUERY, 1, [one.winner()])
    assert [committed(sim, each) for each in ALL] == [[]] * 4
    sim.disk.faults.clear()
    disk = sim.kill()
    disk.faults.add(Fault(Effect.RAISE, errno.EIO, frozenset(), away, times=1_000_000))
    sim = started(disk, seed=1)
    assert 0 < len(here) < 4
    assert [committed(sim, each) for each in here] == [["a"]] * len(here)
    with pytest.raises(LogDirOffline):
        begin(sim, 2)
    sim.disk.faults.clear()
    sim = started(sim.kill(), seed=2)
    assert [(committed(sim, each), markers(sim, each)) for each in ALL] == [(["a"], ["COMMIT"])] * 4
    begin(sim, 2)


def test_a_loser_in_a_lost_directory_holds_up_no_query() -> None:
    sim = with_topic()
    begin(sim, 0)
    here = partitions_in(sim, state_dir_of(sim))[0]
    (away,) = (each for each in DIRS if each != state_dir_of(sim))
    there = partitions_in(sim, away)[0]
    loser, winner = begin(sim, 1, 0, 0), begin(sim, 1, 0, 1)
    loser.send("lost", partition=there)
    loser.send("lost", partition=here)
    winner.send("a", partition=here)
    sim.manager.logs.unit_at(away).log_dir.take_offline("gone")
    sinks_of(sim).commit(QUERY, 1, [winner.winner()])
    assert committed(sim, here) == ["a"]
    assert sorted(markers(sim, here)) == ["ABORT", "COMMIT"]
    assert sinks_of(sim).describe(QUERY).state == "committed"
    again = begin(sim, 2)
    assert again.send("b", partition=here).error is None
    sim = started(sim.kill(), seed=1)
    assert (markers(sim, there), committed(sim, there)) == (["ABORT"], [])
    again.bind(sim)
    sinks_of(sim).commit(QUERY, 2, [again.winner()])
    assert committed(sim, here) == ["a", "b"]
    assert is_settled(sim)


class WatchedBackup(Backup):
    """Something happens behind the capture of its first partition."""

    meanwhile: Callable[[], object]

    def _count(self, name: str, count: int) -> None:
        super()._count(name, count)
        if (name, self._progress[name]) == ("partitions_done", 1):
            self.meanwhile()


def back_up_around(sim: SimManager, meanwhile: Callable[[], object]) -> None:
    backup = WatchedBackup(*backup_arguments(sim, may_link=True))
    backup.meanwhile = meanwhile
    backup.prepare()
    backup.run(sim.manager.background.begin("backup", {}, lambda _: None))


def with_places() -> SimManager:
    sim = with_topic(1)
    make_places(sim.disk)
    write(sim, 1, "a1 b1")
    return sim


def write(sim: SimManager, batch_id: int, *appends: str) -> Producer:
    """A whole batch: begun, a record for each word of each append, committed."""
    producer = begin(sim, batch_id)
    for values in appends:
        assert producer.send(*values.split()).error is None
    sinks_of(sim).commit(QUERY, batch_id, [producer.winner()])
    return producer


def restored_with_sinks(sim: SimManager) -> SimManager:
    copy = restored(sim)
    copy.clock.advance_ms(1)
    return copy


@pytest.mark.parametrize("ahead", [1, 5])
def test_epochs_go_on_behind_what_a_restored_log_knows(ahead: int) -> None:
    sim = with_places()

    def meanwhile() -> None:
        for batch_id in range(2, 2 + ahead):
            write(sim, batch_id, f"a{batch_id} b{batch_id}")

    back_up_around(sim, meanwhile)
    copy = restored_with_sinks(sim)
    before = committed(copy)
    assert before[-2:] == [f"a{1 + ahead}", f"b{1 + ahead}"]
    assert [each.value.producer_epoch for each in sinks_of(copy).describe(QUERY).producers] == [0]
    after = write(copy, 2 + ahead, "c d", "e")
    assert committed(copy) == [*before, "c", "d", "e"]
    assert after.identity.producer_epoch == 1 + ahead


def test_a_producer_whose_epochs_a_log_has_seen_to_the_end_gets_a_successor() -> None:
    sim = with_places()

    def meanwhile() -> None:
        sink = sinks_of(sim)._table.find(QUERY)
        assert sink is not None
        key = ProducerKey(QUERY, 0, 0)
        value = sink.producers[key]
        with sinks_of(sim)._table.lock(QUERY) as current:
            last = replace(value, producer_epoch=INT16_MAX - 1)
            sinks_of(sim)._table.write(current, [(key, last)])
        assert write(sim, 2, "a2").identity.producer_epoch == INT16_MAX

    back_up_around(sim, meanwhile)
    copy = restored_with_sinks(sim)
    former = sinks_of(copy).describe(QUERY).producers[0].value.producer_id
    after = write(copy, 3, "c")
    assert after.identity.producer_id != former
    assert after.identity.producer_epoch == 0
    assert committed(copy) == ["a1", "b1", "a2", "c"]


def test_a_task_that_outlives_a_restore_repeats_nothing() -> None:
    sim = with_places()
    two = begin(sim, 2)

    def meanwhile() -> None:
        assert two.send("a2").error is None
        sinks_of(sim).commit(QUERY, 2, [two.winner()])

    back_up_around(sim, meanwhile)
    copy = restored_with_sinks(sim)
    assert committed(copy) == ["a1", "b1", "a2"]
    again = Producer(copy, two.identity)
    assert isinstance(again.send("x2").error, InvalidTxnState)
    two.bind(copy)
    assert isinstance(two.send("b2").error, InvalidTxnState)
    with pytest.raises(InvalidTxnState):
        sinks_of(copy).commit(QUERY, 2, [two.winner()])
    write(copy, 3, "c")
    assert committed(copy) == ["a1", "b1", "a2", "c"]


def test_what_the_state_calls_committed_is_shown() -> None:
    sim = with_places()
    back_up_around(sim, lambda: write(sim, 2, "a2"))
    copy = restored_with_sinks(sim)
    newest = max(int(value[1:]) for value in committed(copy))
    known = sinks_of(copy).describe(QUERY).committed_batch_id
    assert known is not None
    assert known <= newest
    assert is_settled(copy)


def test_a_backup_of_some_topics_holds_the_state_of_their_sinks() -> None:
    sim = with_places()
    sim.operations.topics.create("other", 1, {})
    identity = sinks_of(sim).begin("open", 7, 0, 0)
    assert identity is not None
    opened = Producer(sim, identity)
    assert opened.send("a7").error is None
    two = begin(sim, 2)
    assert two.send("a2").error is None
    no_space = Fault(Effect.RAISE, errno.ENOSPC, frozenset({"write"}), "/t-", times=1_000)
    sim.disk.faults.add(no_space)
    sinks_of(sim).commit(QUERY, 2, [two.winner()])
    sim.disk.faults.clear()
    assert committed(sim) == ["a1", "b1"]
    operation = back_up(sim, "t")
    assert operation.state is OperationState.SUCCEEDED, operation.error
    held = {
        str(partition.topic_partition)
        for log_dir in manifest_of(sim.disk).log_dirs
        for partition in log_dir.partitions
    }
    assert held == {"t-0", f"{SINK_STATE_TOPIC}-0"}
    copy = restored_with_sinks(sim)
    assert sinks_of(copy).begin(QUERY, 2, 0, 0) is None
    assert markers(copy) == ["COMMIT", "COMMIT"]
    opened.bind(copy)
    assert opened.send("b7").error is None
    sinks_of(copy).commit("open", 7, [opened.winner()])
    assert committed(copy) == ["a1", "b1", "a7", "a2", "b7"]
    assert is_settled(copy)
