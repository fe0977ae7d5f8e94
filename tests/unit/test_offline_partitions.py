"""Goal: probes count and the log names what is not served, whenever its directory went.
Method: a whole manager on a simulated disk; one of two directories dies in or after a start.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from tests.sim.sim_faults import Fault
from tests.sim.sim_manager import DIRS, SimManager, batch_of

if TYPE_CHECKING:
    from tests.sim.sim_filesystem import SimFilesystem

PARTITIONS = 6


def stopped() -> SimFilesystem:
    """Topic t with three partitions in each directory, after a clean stop."""
    sim = SimManager().start()
    sim.operations.topics.create("t", PARTITIONS)
    for partition in range(PARTITIONS):
        sim.produce("t", batch_of("v"), partition=partition)
    return sim.stop()


def assert_half_is_told(sim: SimManager, lines: list[Any], victim: str) -> None:
    names = sorted(f"t-{n}" for n in range(PARTITIONS) if sim.disk.exists(f"{victim}/t-{n}"))
    (line,) = [line for line in lines if line["event"] == "partitions_offline"]
    own = [line["partition"] for line in lines if line["event"] == "partition_offline"]
    assert sorted(line["first"] + own) == names
    assert line["count"] == len(line["first"])
    ready = sim.operations.readiness()
    assert (ready.offline_dirs, ready.offline_partitions) == (1, PARTITIONS // 2)
    assert ready.partitions == PARTITIONS // 2


@pytest.mark.parametrize(
    "file", [".lock", "meta.properties", "recovery-point-offset-checkpoint", "00000.log"]
)
def test_a_directory_that_fails_at_the_start(file: str) -> None:
    """What it holds counts as offline though nobody could look into it."""
    sim, victim = SimManager(stopped()), DIRS[0]
    kinds = frozenset({"open", "create", "read"})
    path = file if file.endswith(".log") else f"{victim}/{file}"
    sim.disk.faults.add(Fault(error=errno.EIO, kinds=kinds, path_contains=path))
    with capture_logs() as lines:
        sim.start()
    (dead,) = [unit.log_dir.path for unit in sim.manager.units if not unit.log_dir.is_online]
    assert_half_is_told(sim, lines, dead)


def test_a_directory_that_fails_at_run_time() -> None:
    """One line for all its partitions."""
    sim = SimManager(stopped()).start()
    with capture_logs() as lines:
        sim.manager.units[0].log_dir.take_offline("it broke")
    assert_half_is_told(sim, lines, DIRS[0])
