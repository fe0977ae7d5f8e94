"""Goal: a kill anywhere in a conversion leaves each segment old or new, and the next one ends it.

Method: convert a partition of all formats, stop at every call in every crash mode, load what is
left, convert it again, and read every record.
"""

from __future__ import annotations

import errno
from functools import cache
from typing import TYPE_CHECKING

import pytest

from kafkalog.errors import UnsupportedMessageFormat
from kafkalog.log.format_conversion import convert_partition, needs_conversion
from tests.old_formats import DIRECTORY, LINES, LOG_END, OLD_BASES, OldWorld
from tests.sim.crash_enumeration import CrashPoint, enumerate_crashes
from tests.sim.sim_clock import SimClock
from tests.sim.sim_crash import CrashMode
from tests.sim.sim_faults import Fault

if TYPE_CHECKING:
    from tests.sim.sim_filesystem import SimFilesystem

NOWHERE = CrashPoint(0, is_partial=False, mode=None, seed=0)


@cache
def original() -> SimFilesystem:
    """After a clean stop: with indexes."""
    world = OldWorld()
    world.flush()
    world.log.close()
    world.disk.is_kept = True
    world.disk.sync_all()
    return world.disk


def new_disk() -> SimFilesystem:
    return original().crash(CrashMode.KEEP_ALL)


def convert(disk: SimFilesystem, done: list[bool]) -> None:
    convert_partition(disk, DIRECTORY, clock=SimClock())
    done.append(True)


def is_whole(disk: SimFilesystem) -> None:
    """Whatever is converted: a load finds the end, and refuses what is not by its name."""
    world = OldWorld(disk.crash(CrashMode.KEEP_ALL))
    assert world.log.log_end_offset == LOG_END
    segments = world.log.segments.values
    ends = [*(each.base_offset for each in segments[1:]), LOG_END]
    for segment, end in zip(segments, ends, strict=True):
        if segment.holds_messages:
            with pytest.raises(UnsupportedMessageFormat):
                world.lines(segment.base_offset, end)
        else:
            base = segment.base_offset
            assert world.lines(base, end) == [line for line in LINES if base <= line[0] < end]


def check(disk: SimFilesystem, done: list[bool], point: CrashPoint) -> None:
    if point.seed == 0:
        is_whole(disk)
    if done:
        assert needs_conversion(disk, DIRECTORY, is_thorough=True) == ()
    convert_partition(disk, DIRECTORY, clock=SimClock())
    assert needs_conversion(disk, DIRECTORY, is_thorough=True) == ()
    world = OldWorld(disk)
    assert world.lines() == LINES
    names = disk.list_dir(DIRECTORY)
    assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]


def test_the_workload_converts() -> None:
    disk = new_disk()
    assert tuple(each.base_offset for each in needs_conversion(disk, DIRECTORY)) == OLD_BASES
    convert(disk, [])
    check(disk, [True], NOWHERE)


@pytest.mark.slow
def test_a_crash_anywhere_loses_nothing() -> None:
    assert enumerate_crashes(list, convert, check, new_disk=new_disk, seeds=2) > 1_000


def test_a_kill_anywhere_loses_nothing() -> None:
    """The page cache lives: what the nightly run does in every mode, in one."""
    assert enumerate_crashes(list, convert, check, new_disk=new_disk, modes=()) > 100


def test_a_full_disk_anywhere_loses_nothing() -> None:
    whole = new_disk()
    convert(whole, [])
    assert len(whole.operations) > 60
    for number in range(1, len(whole.operations) + 1):
        disk = new_disk()
        disk.faults.add(Fault(error=errno.ENOSPC, nth=number))
        with pytest.raises(OSError, match="simulated"):
            convert(disk, [])
        disk.faults.disarm()
        check(disk, [], NOWHERE)
