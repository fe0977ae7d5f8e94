"""Goal: sinks that nobody uses any more cost little, and no batch is written twice for that.
Method: a whole manager on simulated disks and clock: time, jumps of the wall clock, restarts.
"""

from __future__ import annotations

import contextlib
import errno
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kafkalog.broker.transactions import coordinator, sink_table
from kafkalog.errors import DiskFull, InvalidTxnState
from kafkalog.format.topic_names import SINK_STATE_TOPIC
from tests.sim.sim_crash import CrashMode
from tests.sim.sim_faults import Effect, Fault, SimulatedCrash
from tests.sink_world import (
    CONFIG,
    QUERY,
    Producer,
    begin,
    committed,
    is_settled,
    sinks_of,
    started,
    with_topic,
)

if TYPE_CHECKING:
    from tests.sim.sim_filesystem import SimFilesystem
    from tests.sim.sim_manager import SimManager

MINUTE_MS = 60_000
EXPIRATION_MS = 20 * MINUTE_MS
# Seven days, looked at once an hour, at the speed of a test.
SHORT = replace(
    CONFIG,
    transactional_id_expiration_ms=EXPIRATION_MS,
    transaction_remove_expired_transaction_cleanup_interval_ms=MINUTE_MS,
)


def save(sim: SimManager, query: str, value: str = "a") -> Producer:
    """What a ``df.write`` does: one batch, the last one."""
    identity = sinks_of(sim).begin(query, 0, 0, 0)
    assert identity is not None
    producer = Producer(sim, identity)
    assert producer.send(value).error is None
    sinks_of(sim).commit(query, 0, [producer.winner()], is_last=True)
    return producer


def again(disk: SimFilesystem) -> SimManager:
    """The daemon's next life."""
    return started(disk, seed=1, config=SHORT)


def names(sim: SimManager) -> list[str]:
    return [each.name for each in sinks_of(sim).describe_all()]


def test_a_jump_of_the_clock_forgets_no_commit() -> None:
    """A clock that is set wrong makes no batch be written twice, and takes no producer."""
    sim = with_topic(1, config=SHORT)
    one = begin(sim, 1)
    one.send("a")
    sinks_of(sim).commit(QUERY, 1, [one.winner()])
    sim.clock.step_wall_ms(2 * EXPIRATION_MS)
    sim.clock.advance_ms(3 * MINUTE_MS)
    assert len(sinks_of(sim).describe(QUERY).producers) == 1
    sim.clock.advance_ms(EXPIRATION_MS)
    assert sinks_of(sim).describe(QUERY).producers == ()
    assert sinks_of(sim).begin(QUERY, 1, 0, 0) is None


def test_a_silent_stream_keeps_its_commit() -> None:
    """A stream that stands still for weeks does not write its last batch again."""
    sim = with_topic(1, config=SHORT)
    one = begin(sim, 1)
    one.send("a")
    sinks_of(sim).commit(QUERY, 1, [one.winner()])
    sim.clock.advance_ms(3 * EXPIRATION_MS)
    sim = again(sim.stop())
    described = sinks_of(sim).describe(QUERY)
    assert (described.committed_batch_id, described.producers) == (1, ())
    assert sinks_of(sim).begin(QUERY, 1, 0, 0) is None
    two = begin(sim, 2)
    assert two.identity.producer_id > one.identity.producer_id
    two.send("b")
    sinks_of(sim).commit(QUERY, 2, [two.winner()])
    assert committed(sim) == ["a", "b"]


def test_attempts_that_never_come_again_go_from_a_stream_that_runs() -> None:
    """The second attempt of a task of last week costs nothing; what is open stays."""
    sim = with_topic(1, config=SHORT)
    begin(sim, 0, 0, 1)
    for batch_id in range(10):
        one = begin(sim, batch_id)
        one.send(str(batch_id))
        sinks_of(sim).commit(QUERY, batch_id, [one.winner()])
        sim.clock.advance_ms(4 * MINUTE_MS)
    last = begin(sim, 10)
    sim.clock.advance_ms(4 * MINUTE_MS)
    assert [each.key.attempt for each in sinks_of(sim).describe(QUERY).producers] == [0]
    last.send("last")
    sinks_of(sim).commit(QUERY, 10, [last.winner()])
    assert committed(sim)[-1] == "last"


def test_a_query_that_never_committed_is_forgotten() -> None:
    """Where there is nothing to know, nothing is kept."""
    sim = with_topic(1, config=SHORT)
    begin(sim, 1)
    sim.clock.advance_ms(EXPIRATION_MS + 17 * MINUTE_MS)
    assert names(sim) == []
    assert names(again(sim.stop())) == []


def test_silent_queries_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commits of streams that were given up do not fill the table for ever."""
    monkeypatch.setattr(coordinator, "SILENT_KEPT_MAX", 2)
    sim = with_topic(1, config=SHORT)
    for query in ("c", "b", "a"):
        sinks_of(sim).commit(query, 7, [])
        sim.clock.advance_ms(1_000)
    sim.clock.advance_ms(EXPIRATION_MS - MINUTE_MS)
    assert names(sim) == ["a", "b", "c"]
    sim.clock.advance_ms(2 * MINUTE_MS)
    assert names(sim) == ["a", "b"]


def test_names_that_are_used_once_keep_no_new_query_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that is nearly full makes room long before the expiration."""
    monkeypatch.setattr(sink_table, "SINKS_MAX", 5)
    monkeypatch.setattr(coordinator, "CROWDED", 4)
    monkeypatch.setattr(coordinator, "CROWDED_KEPT_MS", 3 * MINUTE_MS)
    sim = with_topic(1, config=SHORT)
    begin(sim, 1)
    for number in range(7):
        sinks_of(sim).commit(f"run-{number}", 7, [])
        sim.clock.advance_ms(2 * MINUTE_MS)
    assert names(sim) == [QUERY, "run-4", "run-5", "run-6"]
    assert sinks_of(sim).describe(QUERY).state == "open"


def test_an_ended_query_keeps_one_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """A save leaves no producer behind, and is still known as committed to late calls."""
    sim = with_topic(2, config=SHORT)
    monkeypatch.setattr(coordinator, "ENDED_KEPT_MS", EXPIRATION_MS // 2)
    identity = sinks_of(sim).begin("save", 0, 0, 1)
    assert identity is not None
    loser = Producer(sim, identity)
    loser.send("lost", partition=1)
    producer = save(sim, "save")
    for _ in range(2):
        (described,) = sinks_of(sim).describe_all()
        assert (described.state, described.producers) == ("committed", ())
        assert sinks_of(sim).begin("save", 0, 1, 0) is None
        sinks_of(sim).commit("save", 0, [producer.winner()], is_last=True)
        assert [committed(sim, each) for each in (0, 1)] == [["a"], []]
        assert is_settled(sim)
        for late in (producer, loser):
            late.bind(sim)
            assert isinstance(late.send("late").error, InvalidTxnState)
        sim = again(sim.kill())
    sim.clock.advance_ms(EXPIRATION_MS - 5 * MINUTE_MS)
    assert names(sim) == []


def test_more_saves_than_queries_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any number of saves passes, and holds up no stream."""
    monkeypatch.setattr(sink_table, "SINKS_MAX", 3)
    monkeypatch.setattr(coordinator, "ENDED_KEPT_MAX", 1)
    sim = with_topic(1, config=SHORT)
    begin(sim, 1)
    for number in range(5):
        save(sim, f"save-{number}", str(number))
        sim.clock.advance_ms(20_000)
    assert names(sim) == [QUERY, "save-4"]
    assert len(sinks_of(sim).producer_ids()) == 1
    begin(sim, 1, 1)


def test_an_ended_query_may_begin_anew() -> None:
    """Who said "last" and comes back loses nothing."""
    sim = with_topic(1, config=SHORT)
    save(sim, QUERY)
    one = begin(sim, 1)
    sim.clock.advance_ms(5 * MINUTE_MS)
    one.send("b")
    sinks_of(sim).expire_once()
    sinks_of(sim).commit(QUERY, 1, [one.winner()])
    assert committed(sim) == ["a", "b"]
    assert len(sinks_of(sim).describe(QUERY).producers) == 1


def surplus(sim: SimManager) -> list[str]:
    """Ended queries, if none may stay."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coordinator, "ENDED_KEPT_MAX", 0)
        before = set(names(sim))
        sinks_of(sim).settle_once()
        return sorted(before.difference(names(sim)))


def saved_until(stop: int | None) -> tuple[SimManager, int]:
    """A save on a disk that is gone after so many calls; the next life, and how many there were."""
    sim = with_topic(1, config=SHORT)
    begin(sim, 0)
    before = len(sim.disk.operations)
    if stop is not None:
        sim.disk.stop_at(before + stop)
    with contextlib.suppress(SimulatedCrash):
        save(sim, "save")
    sim.threads.kill_all()
    count = len(sim.disk.operations) - before
    return again(sim.disk.crash(CrashMode.DROP_ALL, 0)), count


def test_a_crash_in_the_middle_of_an_end() -> None:
    """An ended query is cleared away by the next life when this one did not come to it."""
    _, calls = saved_until(None)
    seen = set()
    for stop in range(calls + 1):
        sim, _ = saved_until(stop)
        sim.clock.advance_ms(20_000)
        is_committed = committed(sim) == ["a"]
        seen.add(is_committed)
        if is_committed:
            assert sinks_of(sim).describe("save").producers == ()
            assert surplus(sim) == ["save"]
    assert seen == {False, True}


@pytest.mark.parametrize("nth", range(2, 6))
def test_a_fault_in_the_middle_of_an_end(nth: int) -> None:
    """What a passing fault left of an ended query goes by itself."""
    sim = with_topic(1, config=SHORT)
    begin(sim, 0)
    writes = frozenset({"write"})
    fault = Fault(Effect.RAISE, errno.ENOSPC, writes, SINK_STATE_TOPIC, nth=nth)
    sim.disk.faults.add(fault)
    with contextlib.suppress(DiskFull):
        save(sim, "save")
    assert (fault.seen >= nth) is (nth < 5)
    sim.disk.faults.clear()
    sim.clock.advance_ms(20_000)
    if nth == 2:
        save(sim, "save")
    assert committed(sim)[-1] == "a"
    assert sinks_of(sim).describe("save").producers == ()
    assert surplus(sim) == ["save"]
