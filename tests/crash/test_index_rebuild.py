"""Goal: indexes of a durable segment that are made anew are whole after a crash anywhere.
Method: take or damage an index of a closed segment, stop the load at every call in every mode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.crash.partition_run import DIRECTORY, Ledger, PartitionRun, check, copy_of, new_disk
from tests.sim.crash_enumeration import enumerate_crashes
from tests.sim.sim_crash import CrashMode

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sim.sim_filesystem import SimFilesystem

    Damage = Callable[[SimFilesystem], None]

BASE = f"{DIRECTORY}/{0:020d}"
LAST_OFFSET_AT = 18  # in the first entry of a transaction index


def no_offset_index(disk: SimFilesystem) -> None:
    disk.unlink(f"{BASE}.index")


def no_time_index(disk: SimFilesystem) -> None:
    disk.unlink(f"{BASE}.timeindex")


def no_index_at_all(disk: SimFilesystem) -> None:
    for suffix in ("index", "timeindex", "txnindex"):
        disk.unlink(f"{BASE}.{suffix}")


def rotten_transaction_index(disk: SimFilesystem) -> None:
    disk.open_write(f"{BASE}.txnindex").pwrite(b"\xff" * 8, LAST_OFFSET_AT)


def aborted_below_the_recovery_point(count: int) -> tuple[SimFilesystem, Ledger]:
    """A closed segment with so many aborted transactions, all durable, and a later one."""
    disk, ledger = new_disk(), Ledger()
    run = PartitionRun(disk, ledger)
    for _ in range(count):
        run.append(producer=1, transactional=True)
        run.append(producer=2)
        run.end_transaction(1, commit=False)
    run.roll()
    run.append(producer=2)
    run.flush()
    run.checkpoint()
    return run.disk.crash(CrashMode.DROP_ALL), ledger


@pytest.mark.parametrize("count", [pytest.param(1, marks=pytest.mark.slow), 2])
@pytest.mark.parametrize("is_clean", [False, True], ids=["unclean", "clean"])
@pytest.mark.parametrize(
    "damage",
    [no_offset_index, no_time_index, no_index_at_all, rotten_transaction_index],
    ids=lambda damage: damage.__name__,
)
def test_a_rebuild_is_whole_or_repeated(damage: Damage, count: int, *, is_clean: bool) -> None:
    """M08 M25: aborted records stay hidden wherever the load that makes an index anew ends."""
    before, ledger = aborted_below_the_recovery_point(count)
    damage(before)
    before.sync_all()

    def new_ledger() -> Ledger:
        copy = copy_of(ledger)
        copy.is_clean = is_clean
        return copy

    def load(disk: SimFilesystem, kept: Ledger) -> None:
        PartitionRun(disk, kept)

    checked = enumerate_crashes(
        new_ledger, load, check, new_disk=lambda: before.crash(CrashMode.DROP_ALL)
    )
    assert checked > 40
