"""Goal: a directory that is away holds up what lies in it, and nothing else of a query.
Method: a whole manager on two simulated disks, one of which goes around a commit.
"""

from __future__ import annotations

import errno

import pytest

from kafkalog.errors import LogDirOffline
from kafkalog.format.topic_names import SINK_STATE_TOPIC
from tests.sim.sim_faults import Effect, Fault
from tests.sim.sim_manager import DIRS, SimManager
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

ALL = range(4)


def state_dir_of(sim: SimManager) -> str:
    """Where the coordinator's records lie."""
    return sim.manager.log_of(SINK_STATE_TOPIC, 0).parent_dir


def partitions_in(sim: SimManager, log_dir: str) -> list[int]:
    """Of the topic ``t``."""
    return [each for each in ALL if sim.manager.log_of("t", each).parent_dir == log_dir]


def test_a_decision_is_shown_where_its_partitions_are_served() -> None:
    """Goal: one disk that is gone keeps no other partition's marker back.
    Method: no marker of a decision can be written; the next life misses a disk, the third does not.
    """
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
    """Goal: a query whose winners are all shown goes on; what lost is aborted when it can be.
    Method: the directory with a loser's records fails before the commit; the next life has it.
    """
    sim = with_topic()
    begin(sim, 0)
    here = partitions_in(sim, state_dir_of(sim))[0]
    (away,) = (each for each in DIRS if each != state_dir_of(sim))
    there = partitions_in(sim, away)[0]
    loser, winner = begin(sim, 1, 0, 0), begin(sim, 1, 0, 1)
    loser.send("lost", partition=there)
    loser.send("lost", partition=here)
    winner.send("a", partition=here)
    sim.manager.unit_at(away).log_dir.take_offline("gone")
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
