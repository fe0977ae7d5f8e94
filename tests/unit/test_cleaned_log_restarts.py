"""Goal: what compaction took of a log never counts as lost, whatever its policy is by now.
Method: a simulated daemon whose cleaner really cleans; a change of policy, then the end of it.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from kafkalog.broker.values import ConfigChange
from kafkalog.cleaner.stats import CleanRequest
from kafkalog.format.disk.file_names import segment_file_name
from tests.cleaning_daemon import keyed_batch
from tests.sim.sim_faults import Fault
from tests.sim.sim_manager import SimManager

if TYPE_CHECKING:
    from kafkalog.cleaner.stats import CleaningRun
    from kafkalog.log.unified_log import UnifiedLog

SEGMENTS = {"cleanup.policy": "compact", "internal.segment.bytes": "300"}


def ends_of(log: UnifiedLog) -> tuple[list[int], int]:
    """Bases of the segments, and where the log ends."""
    return [segment.base_offset for segment in log.segments.values], log.log_end_offset


def begun() -> SimManager:
    """A daemon with a topic in which one key fills many segments."""
    sim = SimManager().start()
    sim.operations.topics.create("t", 1, SEGMENTS)
    for number in range(24):
        sim.produce("t", keyed_batch((f"k{0 if number < 16 else number}", "v" * 40)))
    return sim


def cleaned(sim: SimManager) -> CleaningRun:
    """What became of a clean by order."""
    done: list[CleaningRun] = []
    log = sim.operations.partition_log("t", 0)
    sim.manager.cleaning.cleaner.submit(CleanRequest(log, False, done.append))
    sim.threads.run_until(lambda: bool(done))
    return done[0]


def no_more_compacted(sim: SimManager) -> None:
    """An operator changes his mind."""
    sim.operations.topics.alter_configs("t", [ConfigChange("cleanup.policy", "delete")])


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_log_that_was_compacted_keeps_its_gaps(
    *, is_killed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing behind a gap of compaction is set aside, or told as lost."""
    sim = begun()
    assert cleaned(sim).error is None
    no_more_compacted(sim)
    before = ends_of(sim.operations.partition_log("t", 0))
    again = SimManager(sim.kill() if is_killed else sim.stop()).start()
    assert ends_of(again.operations.partition_log("t", 0)) == before
    assert "lost" not in capsys.readouterr().out


def test_a_clean_that_was_broken_off_leaves_gaps_too() -> None:
    """The same when the first clean of the log never ended."""
    sim = begun()
    later = segment_file_name(6, ".log.cleaned")
    sim.disk.faults.add(Fault(error=errno.ENOSPC, path_contains=later))
    assert cleaned(sim).error is not None
    log = sim.operations.partition_log("t", 0)
    first, second = log.segments.values[:2]
    assert first.read_next_offset() < second.base_offset, "no swap before the fault"
    no_more_compacted(sim)
    before = ends_of(log)
    again = SimManager(sim.kill()).start()
    assert ends_of(again.operations.partition_log("t", 0)) == before
