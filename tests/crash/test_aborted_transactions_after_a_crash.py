"""Goal: after a crash an adopted transaction is open or aborted, and what was answered holds.
Method: cut the power at every disk call of an operator's abort, in all modes; look in two lives,
and abort again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from kafkalog.errors import InvalidTxnState
from kafkalog.log.inspect.invariants import check_invariants
from tests.crash.after_a_start import anywhere, crashes_after_a_start, durable
from tests.open_transactions import left_open, replicate
from tests.sim.sim_crash import CrashMode
from tests.sim.sim_manager import SimManager, batch_of
from tests.sink_world import committed, is_settled, markers, started, with_topic

if TYPE_CHECKING:
    from tests.sim.crash_enumeration import CrashPoint
    from tests.sim.sim_filesystem import SimFilesystem

START_OFFSET = 1


@dataclass
class Told:
    is_aborted: bool = False


def disk_with_a_transaction() -> SimFilesystem:
    """A record, one of a transaction that is open, and another one."""
    sim = with_topic(1)
    assert sim.produce("t", batch_of("a")).error is None
    replicate(sim, left_open(7, "open"))
    assert sim.produce("t", batch_of("b")).error is None
    return durable(sim)


def abort(sim: SimManager, told: Told) -> None:
    sim.operations.producers.abort_transaction("t", 0, START_OFFSET)
    told.is_aborted = True


def check(disk: SimFilesystem, told: Told, point: CrashPoint) -> None:
    """What a reader has seen of it once stays; the call may be repeated."""
    first = started(disk, seed=2)
    is_aborted = is_settled(first)
    assert is_aborted or not told.is_aborted
    assert committed(first) == (["a", "b"] if is_aborted else ["a"])
    first.threads.kill_all()
    again = started(first.disk.crash(CrashMode.DROP_ALL, 0), seed=3)
    assert is_settled(again) is is_aborted
    if is_aborted:
        with pytest.raises(InvalidTxnState):
            abort(again, Told())
    else:
        abort(again, Told())
    assert committed(again) == ["a", "b"]
    assert markers(again) == ["ABORT"]
    check_invariants(again.manager.logs.log_of("t", 0))
    again.threads.kill_all()


@pytest.mark.parametrize(("stride", "least"), [(3, 8), anywhere(1, 20)])
def test_an_abort_holds_after_a_crash(stride: int, least: int) -> None:
    checked = crashes_after_a_start(
        Told,
        abort,
        check,
        disk_with_a_transaction,
        stride=stride,
        start=lambda disk: started(disk, seed=1),
    )
    assert checked > least
