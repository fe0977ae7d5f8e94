"""Goal: what is held because the wall clock jumped ahead stays held through restarts, full disks
and threads that meet, until an operator or the clock itself ends it.
Method: logs on a simulated disk and clock; what the registry says and what passes delete.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from structlog.testing import capture_logs

from kafkalog.broker.retention import clock_hold
from kafkalog.broker.retention.report import RetentionOutcome
from kafkalog.log.retention import execute
from kafkalog.log.retention.plan import plan
from tests.sim.sim_faults import Fault
from tests.unit.test_retention import (
    HOUR,
    MINUTE,
    TEN_YEARS,
    TP,
    fill,
    held_bytes,
    jumped,
    restarted,
    started,
)

if TYPE_CHECKING:
    from tests.sim.sim_manager import SimManager


def passes(sim: SimManager, count: int = 2) -> int:
    """How many segments they delete; the first one after a jump is guarded."""
    return sum(sim.manager.retention.run_once() for _ in range(count))


def test_a_start_notes_the_boot_before_its_first_check() -> None:
    """M09 M14: a crash right after it, a jump while the daemon is down: known, so held."""
    sim = started(check_ms=10**12).with_topic("t", 1, {"retention.ms": "600000"})
    fill(sim, 4)
    booted = restarted(sim, sim.kill(), is_rebooted=True)
    noted = booted.manager.registry.state
    again = restarted(booted, booted.kill(), is_rebooted=False)
    state = again.manager.registry.state
    assert state.unclean_start is not None
    assert state == noted.with_unclean_start(state.unclean_start)  # nothing else is new
    last = restarted(again, again.kill(), is_rebooted=False, step_ms=TEN_YEARS)
    assert passes(last) == 0
    assert last.operations.retention.clock_hold().logs.keys() == {TP}


def test_a_full_directory_holds_up_no_note() -> None:
    """M09 M14: below log.dir.min.free.bytes a write still succeeds."""
    sim = jumped()
    sim.manager.logs.units[0].log_dir.free_space.note_full("no space", None)
    assert passes(sim) == 0
    clock = sim.manager.registry.state.clock
    assert clock is not None
    assert clock.held == {"t": [0]}


@pytest.mark.parametrize("steps", range(5))
def test_a_check_that_ends_meanwhile_takes_no_acceptance_back(steps: int) -> None:
    """M13 M14: what it read before is not written after it."""
    sim = jumped()
    sim.operations.retention.retain("t", 0, dry_run=False)  # held, and not written yet
    hold, now = sim.manager.retention.clock_hold, sim.clock.reading()
    sim.threads.start("check", lambda: hold.save(now))
    sim.threads.run_steps(steps)
    sim.operations.retention.accept_clock()
    sim.threads.run_until_idle()
    clock = sim.manager.registry.state.clock
    assert clock is not None
    assert (clock.held, clock.jump_ms) == ({}, 0)
    assert clock.offset_ms == now.wall_ms - now.since_boot_ms


def test_a_pass_in_flight_holds_nothing_after_an_acceptance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """M13: it measured the jump before; a later pass goes by the accepted clock."""
    sim = jumped()

    def accepted_meanwhile(*args: Any) -> Any:
        monkeypatch.setattr(clock_hold, "plan", plan)
        sim.operations.retention.accept_clock()
        return plan(*args)

    monkeypatch.setattr(clock_hold, "plan", accepted_meanwhile)
    log = sim.operations.partition_log("t", 0)
    assert not sim.manager.retention.plan_of(log).deletions
    assert sim.operations.retention.clock_hold() == (0, {})
    assert held_bytes(sim) == 0
    assert len(sim.manager.retention.plan_of(log).deletions) == 4


@pytest.mark.parametrize("is_ordered", [True, False])
def test_a_pass_over_all_logs_sums_what_is_held_a_few_times(
    monkeypatch: pytest.MonkeyPatch, *, is_ordered: bool
) -> None:
    """M13: not once for each held log: 10,000 of them would cost 10,000 times as much."""
    sim = jumped()
    for number in range(8):
        sim.clock.step_wall_ms(-TEN_YEARS)
        sim.operations.topics.create(f"u{number}", 1, {"retention.ms": str(HOUR)})
        fill(sim, 1, topic=f"u{number}")
        sim.clock.step_wall_ms(TEN_YEARS)
    hold = sim.manager.retention.clock_hold
    show, copy = Mock(wraps=hold._show), Mock(wraps=hold.held)
    monkeypatch.setattr(hold, "_show", show)
    monkeypatch.setattr(hold, "held", copy)
    if is_ordered:
        outcomes = list(sim.operations.retention.retain_all(dry_run=False))
        assert sum(isinstance(each, RetentionOutcome) for _, each in outcomes) == 9
    else:
        passes(sim, 1)
    assert len(hold._held) == 9
    assert show.call_count + copy.call_count <= 5


def test_a_clock_that_comes_back_in_small_steps_has_come_back() -> None:
    """M09: each of less than a second and looked at: the jump shrinks with them to nothing."""
    sim = started(check_ms=10**12).with_topic("t", 1, {"retention.ms": "1000"})
    fill(sim, 1)
    assert passes(sim) == 1
    fill(sim, 2, age_ms=0)
    sim.clock.step_wall_ms(20_000)
    assert passes(sim) == 0
    for step in range(24, -1, -1):
        sim.clock.step_wall_ms(-800)
        jump_ms = sim.operations.retention.clock_hold().jump_ms
        assert jump_ms == (step * 800 if step > 1 else 0)
    sim.manager.retention.run_once()
    assert sim.operations.retention.clock_hold() == (0, {})


@pytest.mark.parametrize("is_accepted", [True, False])
def test_a_guard_that_was_off_brings_back_no_hold(*, is_accepted: bool) -> None:
    """M09: what was held before it was off; nor does a jump count that came meanwhile."""
    sim = jumped()
    sim.clock.advance_ms(5 * MINUTE)
    disk = sim.kill()
    config = sim.config
    sim.config = replace(config, log_retention_clock_guard=False)
    off = restarted(sim, disk, is_rebooted=False)
    off.clock.step_wall_ms(HOUR)
    if is_accepted:
        assert off.operations.retention.accept_clock() == (0, {})
    else:
        off.manager.retention.clock_hold.save(off.clock.reading())  # as at the end of a check
    disk = off.kill()
    off.config = config
    again = restarted(off, disk, is_rebooted=False)
    assert again.operations.retention.clock_hold() == (0, {})
    assert passes(again) == 4


def test_a_guard_that_was_never_on_notes_nothing() -> None:
    """M09: nothing could come back."""
    sim = started(guard=False).with_topic("t", 1, {"retention.ms": str(HOUR)})
    fill(sim, 2)
    passes(sim)
    assert sim.manager.registry.state.clock is None


def test_a_full_disk_refuses_no_acceptance() -> None:
    """M09 M15: else nothing would make room; it is durable with the first check that writes it."""
    sim = jumped()
    sim.clock.advance_ms(5 * MINUTE)
    fault = Fault.no_space("kafkalog.registry")
    sim.disk.faults.add(fault)
    with capture_logs() as lines:
        assert sim.operations.retention.accept_clock().logs.keys() == {TP}
    assert "clock_acceptance_not_written" in [line["event"] for line in lines]
    assert sim.operations.retention.clock_hold() == (0, {})
    clock = sim.manager.registry.state.clock
    assert clock is not None
    assert clock.held == {"t": [0]}
    assert passes(sim, 1) == 4
    sim.disk.faults.clear()
    passes(sim, 1)
    clock = sim.manager.registry.state.clock
    assert clock is not None
    assert (clock.held, clock.jump_ms) == ({}, 0)


def test_a_pass_over_a_held_log_looks_at_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """M13: what was planned to know what is held is the plan of the pass."""
    sim = jumped(segments=4, old=1)
    inspect = Mock(wraps=execute.inspect)
    monkeypatch.setattr(execute, "inspect", inspect)
    planned = sim.manager.retention.plan_of(sim.operations.partition_log("t", 0))
    assert [each.base_offset for each in planned.deletions] == [0]
    assert inspect.call_count == 1
