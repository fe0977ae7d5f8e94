"""Goal: a full disk keeps no transaction open, and makes nobody believe what is not in the log.
Method: a whole manager on simulated disks that have no space left, or fail in the middle of a
write.
"""

from __future__ import annotations

import contextlib
import errno
from dataclasses import replace

import pytest

from kafkalog.broker.values import MoveState
from kafkalog.errors import AppendOutcomeUnknown, DiskFull, KafkalogError, LogDirOffline
from kafkalog.format.topic_names import SINK_STATE_TOPIC
from tests.sim.sim_faults import Effect, Fault
from tests.sim.sim_manager import DIRS, SimManager
from tests.sink_world import (
    CONFIG,
    QUERY,
    begin,
    committed,
    is_settled,
    markers,
    sinks_of,
    started,
    with_topic,
)

TIMEOUT = replace(CONFIG, transaction_max_timeout_ms=60_000)


def move_state(sim: SimManager) -> None:
    """To the other directory, while it serves."""
    here = sim.manager.log_of(SINK_STATE_TOPIC, 0).parent_dir
    (there,) = (each for each in DIRS if each != here)
    sim.operations.log_dirs.move(SINK_STATE_TOPIC, 0, there)
    sim.threads.run_until(lambda: sim.operations.log_dirs.moves()[0].state is not MoveState.COPYING)
    assert sim.manager.log_of(SINK_STATE_TOPIC, 0).parent_dir == there


def fill(sim: SimManager) -> None:
    """Somebody else takes all but less than the reserve of every disk."""
    free_bytes = sim.manager.config.log_dir_min_free_bytes // 2
    for unit in sim.manager.online_units:
        sim.disk.capacity_bytes += free_bytes - sim.disk.space(unit.log_dir.path)[1]
        unit.log_dir.measure_space()
        assert unit.log_dir.is_full


def test_idle_batches_are_aborted_on_a_full_disk() -> None:
    """Readers of committed records do not wait for a disk to be emptied."""
    sim = with_topic(1, config=TIMEOUT)
    begin(sim, 1).send("a")
    fill(sim)
    sim.clock.advance_ms(90_000)
    assert is_settled(sim)
    assert markers(sim) == ["ABORT"]
    with pytest.raises(DiskFull):
        begin(sim, 1)


def test_a_written_batch_is_committed_on_a_full_disk() -> None:
    """What is written already is shown, or aborted by order, whatever space is left."""
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
    """Goal: what is answered as committed is committed in the next life.
    Method: the write of the decision is cut short by a full disk and cannot be cut back; the commit
    again, also behind a move of the state, which leaves the torn end behind; a kill.
    """
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
