"""Goal: a sink that does not come to its end is seen; what nobody wants is ended at once.
Method: a whole manager on simulated disks, its metrics, its markers, a lost registry.
"""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from kafkalog.broker.directory.log_dir import REGISTRY_FILE
from kafkalog.broker.transactions.coordinator import ABORT_TASK
from kafkalog.broker.transactions.producer_ids import ProducerIdentity
from kafkalog.errors import DiskFull, NotReady
from kafkalog.format.integers import INT16_MAX
from tests.sim.sim_faults import Effect, Fault
from tests.sim.sim_manager import DIRS, SimManager
from tests.sink_world import (
    CONFIG,
    QUERY,
    Producer,
    begin,
    committed,
    markers,
    sinks_of,
    with_topic,
)

NO_SPACE = Fault(Effect.RAISE, errno.ENOSPC, frozenset({"write"}), "/t-0", times=1_000)


def sample(sim: SimManager, name: str, **labels: str) -> float | None:
    return sim.metrics.registry.get_sample_value(name, labels)


def test_a_commit_that_is_not_shown_is_seen() -> None:
    """An operator can be told that a decided batch waits for its markers, and since when."""
    sim = with_topic(1)
    sinks_of(sim).commit("other", 1, [])
    one = begin(sim, 1)
    one.send("a")
    names = ("kafkalog_sinks_committing", "kafkalog_sink_committing_age_seconds")
    assert [sample(sim, name) for name in names] == [0, 0]
    sim.disk.faults.add(NO_SPACE)
    sinks_of(sim).commit(QUERY, 1, [one.winner()])
    sim.clock.advance_ms(60_000)
    assert [sample(sim, name) for name in names] == [1, pytest.approx(60, abs=1)]
    with pytest.raises(DiskFull):
        begin(sim, 2)
    sim.disk.faults.clear()
    sim.clock.advance_ms(20_000)
    assert [sample(sim, name) for name in names] == [0, 0]
    assert committed(sim) == ["a"]


def test_a_call_that_hangs_fails_no_task() -> None:
    """A query behind a disk that hangs holds up no other one, and is told once."""
    sim = with_topic(1)
    sinks = sinks_of(sim)
    begin(sim, 1)
    sinks.begin("other", 1, 0, 0)
    sim.clock.advance_ms(CONFIG.transaction_max_timeout_ms - 60_000)
    failures = sample(sim, "kafkalog_scheduler_task_failures_total", task=ABORT_TASK)
    with capture_logs() as lines, sinks._table.turn(QUERY):
        sim.clock.advance_ms(110_000)
        assert sinks.describe("other").state == "aborted"
        assert sinks.describe(QUERY).state == "open"
    told = [line for line in lines if line["event"] == "sink_call_hangs"]
    assert [line["query"] for line in told] == [QUERY]
    assert sample(sim, "kafkalog_scheduler_task_failures_total", task=ABORT_TASK) == failures
    sim.clock.advance_ms(20_000)
    assert sinks.describe(QUERY).state == "aborted"


def used_up(sim: SimManager) -> Producer:
    """A producer at its last epoch, with something open."""
    one = begin(sim, 1)
    table = sinks_of(sim)._table
    with table.turn(QUERY) as sink:
        (key,) = sink.producers
        table.write(sink, [(key, replace(sink.producers[key], producer_epoch=INT16_MAX))])
    one.identity = ProducerIdentity(one.identity.producer_id, INT16_MAX)
    assert one.send("old").error is None
    return one


def test_what_a_used_up_producer_left_open_is_ended_by_the_next_begin() -> None:
    """Readers of committed records do not wait for the task when a begin has come before it."""
    sim = with_topic(1)
    used_up(sim)
    fresh = begin(sim, 1)
    assert markers(sim) == ["ABORT"]
    fresh.send("new")
    sinks_of(sim).commit(QUERY, 1, [fresh.winner()])
    assert committed(sim) == ["new"]


def test_what_a_used_up_producer_left_open_is_ended_by_the_commit() -> None:
    """Also where the begin could not do it."""
    sim = with_topic(1)
    used_up(sim)
    sim.disk.faults.add(Fault(NO_SPACE.effect, NO_SPACE.error, NO_SPACE.kinds, "/t-0"))
    begin(sim, 1)
    assert markers(sim) == []
    sim.disk.faults.clear()
    sinks_of(sim).commit(QUERY, 1, [])
    assert markers(sim) == ["ABORT"]


def test_no_id_of_a_sink_is_given_before_the_sinks_are_known() -> None:
    """Never one producer id for two, also when the registry was lost and the start is young."""
    sim = with_topic(1)
    producer_id = begin(sim, 1).identity.producer_id
    disk = sim.stop()
    for path in DIRS:
        disk.unlink(f"{path}/{REGISTRY_FILE}")
    sim = SimManager(disk, seed=1, config=CONFIG).start()
    with pytest.raises(NotReady, match="sinks"):
        sim.operations.producers.allocate()
    with pytest.raises(NotReady, match="sinks"):
        sim.operations.producers.bump(producer_id)
    sim.clock.advance_ms(1)
    given = {sim.operations.producers.allocate().producer_id for _ in range(1_500)}
    assert producer_id not in given
    assert len(given) == 1_500


def test_a_lost_directory_of_the_state_stops_no_other_producer() -> None:
    """Where the sinks cannot be known, clients that have nothing to do with them go on."""
    sim = with_topic(1)
    begin(sim, 1)
    state_dir = next(each for each in DIRS if sim.disk.exists(f"{each}/__sink_state-0"))
    sim = SimManager(sim.stop(), seed=1, config=CONFIG).start()
    sim.manager.unit_at(state_dir).log_dir.take_offline("gone")
    sim.clock.advance_ms(1)
    identity = sim.operations.producers.allocate()
    assert sim.operations.producers.bump(identity.producer_id).producer_epoch == 1
