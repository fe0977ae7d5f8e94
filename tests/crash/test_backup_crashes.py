"""Goal: a daemon that dies while it backs up loses nothing; no half backup passes for a whole one.
Method: stop at the disk calls of a backup and of a restore, in all modes; start the source again,
restore what says that it is complete, and see that the rest is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from kafkalog.broker.directory.log_dir import META_PROPERTIES
from kafkalog.broker.values import Acks
from kafkalog.errors import BackupFailed, InvalidConfig
from kafkalog.format.disk.backup_manifest import MANIFEST_FILE, RESTORE_MARKER
from tests.backup_world import (
    BACKUP,
    NEW_DIRS,
    Batches,
    back_up,
    batch,
    check_restored,
    check_sound,
    log_of,
    manifest_of,
    new_disk,
    restore,
    snapshot,
    started,
    with_data,
)
from tests.crash.after_a_start import durable
from tests.sim.crash_enumeration import CrashPoint, enumerate_crashes

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sim.sim_filesystem import SimFilesystem
    from tests.sim.sim_manager import SimManager


@dataclass
class Story:
    """What a workload noted: what was there, of that the durable part, what it was told."""

    before: dict[str, tuple[int, int, Batches]] = field(default_factory=dict)
    durable: dict[str, tuple[int, int, Batches]] = field(default_factory=dict)
    is_answered: bool = False
    sim: SimManager | None = None


def _backing_up(*, may_link: bool) -> Callable[[SimFilesystem, Story], None]:
    def work(disk: SimFilesystem, story: Story) -> None:
        sim = story.sim = with_data(disk)
        try:
            durable = snapshot(sim)
            log = log_of(sim, "orders", 2)
            for number in range(3):
                sim.produce("orders", batch(f"unsynced {number}"), Acks.LEADER, 2)
                if number == 1:
                    sim.manager.logs.unit_of(log).writer.call(log.roll)
            story.before, story.durable = snapshot(sim), durable
            story.is_answered = back_up(sim, may_link=may_link).error is None
            assert story.is_answered
        finally:
            sim.threads.kill_all()

    return work


def check_backup(disk: SimFilesystem, story: Story, point: CrashPoint) -> None:
    """The source has all it acknowledged; the backup is whole, or is none and says so."""
    del point
    if story.before:
        source = started(disk)
        found = snapshot(source)
        unsynced = found.pop("orders-2")[2]
        assert found == {name: story.durable[name] for name in found}
        assert unsynced == story.before["orders-2"][2][: len(unsynced)]
        check_sound(source)
        source.kill()
    if disk.exists(f"{BACKUP}/{MANIFEST_FILE}") and manifest_of(disk).is_complete:
        restore(disk)
        check_restored(disk)
        copy = started(disk, NEW_DIRS)
        assert snapshot(copy) == story.before
        check_sound(copy)
        copy.threads.kill_all()
    else:
        assert not story.is_answered, "told that it is complete"
        with pytest.raises(BackupFailed, match=r"not complete|no backup"):
            restore(disk)


def calls_of(
    work: Callable[[SimFilesystem, Story], object], fresh: Callable[[], SimFilesystem] = new_disk
) -> int:
    """Mutating calls of a workload, which does the same each time."""
    disk = fresh()
    before = len(disk.operations)
    work(disk, Story())
    return len(disk.operations) - before


def _filling(disk: SimFilesystem, _: Story) -> None:
    with_data(disk).threads.kill_all()


def crashes(
    work: Callable[[SimFilesystem, Story], None],
    check: Callable[[SimFilesystem, Story, CrashPoint], None],
    fresh: Callable[[], SimFilesystem],
    *ranges: tuple[int, int, int],
) -> int:
    """Each range from a first call on: that call, the stride and the seeds; the states checked."""
    return sum(
        enumerate_crashes(
            Story, work, check, new_disk=fresh, seeds=seeds, stride=stride, first=first
        )
        for first, stride, seeds in ranges
    )


@pytest.mark.parametrize("may_link", [True, False])
def test_a_crash_in_a_backup(may_link: bool) -> None:
    """Some calls, and the last ones; links in one run, copies in the other."""
    work = _backing_up(may_link=may_link)
    ranges = (calls_of(_filling), 13, 1), (calls_of(work) - 1, 1, 8)
    assert crashes(work, check_backup, new_disk, *ranges) > 100


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("may_link", [True, False])
def test_a_crash_at_every_call_of_a_backup(may_link: bool) -> None:
    every = calls_of(_filling), 1, 2
    assert crashes(_backing_up(may_link=may_link), check_backup, new_disk, every) > 1000


def a_backup() -> SimFilesystem:
    sim = with_data(new_disk())
    assert back_up(sim).error is None
    return durable(sim)


def _restoring(disk: SimFilesystem, story: Story) -> None:
    restore(disk)
    story.is_answered = True


def check_restore(disk: SimFilesystem, story: Story, point: CrashPoint) -> None:
    """What is restored is whole and starts, or no daemon starts on it, ours or Kafka's."""
    del point
    source = started(disk)
    expected = snapshot(source)
    source.kill()
    names = [f"{path}/{RESTORE_MARKER}" for path in NEW_DIRS]
    has_meta = [disk.exists(f"{path}/{META_PROPERTIES}") for path in NEW_DIRS]
    if any(map(disk.exists, names)):
        assert not story.is_answered, "told that it is complete"
        with pytest.raises(InvalidConfig, match="has not ended"):
            started(disk, NEW_DIRS)
    elif any(has_meta):
        assert all(has_meta)
        check_restored(disk)
        copy = started(disk, NEW_DIRS)
        assert snapshot(copy) == expected
        copy.threads.kill_all()
    else:
        assert not story.is_answered
        found = [name for path in NEW_DIRS if disk.exists(path) for name in disk.list_dir(path)]
        assert set(found) <= {".lock"}, "files of a restore and no mark"
    again = ("/new/c",)
    restore(disk, again)
    assert snapshot(started(disk, again)) == expected


def test_a_crash_in_a_restore() -> None:
    """Some calls, and the last ones; and the backup can be restored again."""
    ranges = (0, 15, 1), (calls_of(_restoring, a_backup) - 8, 1, 1)
    assert crashes(_restoring, check_restore, a_backup, *ranges) > 100


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_crash_at_every_call_of_a_restore() -> None:
    assert crashes(_restoring, check_restore, a_backup, (0, 1, 2)) > 1000
