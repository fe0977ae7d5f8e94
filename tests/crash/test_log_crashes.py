"""Goal: whatever a crash leaves of a partition, loading gives back all that was acknowledged.
Method: stop stories of appends, rolls, deletions and closings at every call, in every crash mode,
also while the log is being loaded; fail every write and every sync once.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from kafkalog.log.inspect.invariants import check_invariants
from tests.crash.partition_run import (
    DIRECTORY,
    Ledger,
    PartitionRun,
    check,
    check_content,
    check_producers,
    copy_of,
    new_disk,
)
from tests.sim.crash_enumeration import CrashPoint, enumerate_crashes
from tests.sim.sim_crash import CrashMode
from tests.sim.sim_faults import Effect, Fault, SimulatedCrash

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.log.recovery.corruption_policy import Corruption
    from tests.sim.sim_filesystem import SimFilesystem

    Story = Callable[[PartitionRun], None]


QUICK_STRIDE = 4


def appends_and_rolls(run: PartitionRun) -> None:
    run.append()
    run.append(producer=1)
    run.flush()
    run.append(producer=1, count=3)
    run.append_many(2)
    run.append(producer=2)
    run.roll()
    run.append(producer=1)
    run.flush(include_active=False)
    run.checkpoint()
    run.append(producer=3)
    run.flush()
    run.append(producer=3)
    run.append(200)
    run.append(producer=2)
    run.append(300)
    run.flush()
    run.checkpoint()
    run.append(producer=2)


def transactions(run: PartitionRun) -> None:
    run.append(producer=1, transactional=True)
    run.append()
    run.append(producer=2, transactional=True)
    run.flush()
    run.checkpoint()
    run.end_transaction(1, commit=False)
    run.append(producer=1, transactional=True)
    run.flush()
    run.checkpoint()
    run.roll()
    run.flush(include_active=False)
    run.checkpoint()
    run.end_transaction(2, commit=True)
    run.append(producer=2, transactional=True)
    run.end_transaction(1, commit=False)
    run.roll()
    run.end_transaction(2, commit=False)
    run.flush()
    run.checkpoint()


def deletions(run: PartitionRun) -> None:
    for producer in (1, 2, 1, 2, 1):
        run.append(producer=producer)
    run.roll()
    run.append(producer=1)
    run.append()
    run.flush(include_active=False)
    run.delete_records(5)
    run.checkpoint_recovery_point()
    run.append(producer=2)
    run.flush()
    run.checkpoint()
    run.retain()
    run.checkpoint_start()
    run.append(producer=1)
    run.run_tasks()
    run.roll()
    run.append(300)
    run.delete_records(9, answered=False)
    run.checkpoint_recovery_point()
    run.append(producer=2)
    run.flush()
    run.checkpoint()


def retentions(run: PartitionRun) -> None:
    for producer in (1, 2, 1, 2, 1, 1):
        run.append(250, producer=producer)
    run.flush()
    run.checkpoint()
    run.retain(900)
    run.append(producer=2)
    run.flush()
    run.run_tasks()
    run.retain(0)
    run.append(producer=1)
    run.flush()
    run.checkpoint()
    run.retain(0)
    run.restart(clean=True)
    run.append(producer=1)
    run.flush()


def closings(run: PartitionRun) -> None:
    run.append(producer=1)
    run.append(200)
    run.restart(clean=True)
    run.append(producer=2)
    run.append(200)
    run.append(producer=1, transactional=True)
    run.restart(clean=True)
    run.restart(clean=True)
    run.end_transaction(1, commit=False)
    run.append(400)
    run.restart(clean=False)
    run.append(producer=2)
    run.flush()
    run.roll()
    run.stop_cleanly()


def one_clean_life(run: PartitionRun) -> None:
    run.append(producer=1)
    run.append(producer=2, transactional=True)
    run.stop_cleanly()


def truncations(run: PartitionRun) -> None:
    for number in range(6):
        run.append(producer=number % 2)
    run.flush()
    run.checkpoint()
    run.truncate_to(4)
    run.ledger.sequences = {0: 2, 1: 2}
    run.append(90, producer=1)
    run.append(80)
    run.flush()
    run.checkpoint()
    run.truncate_to(1)
    run.ledger.sequences = {0: 1, 1: 0}
    run.append(70, producer=1)
    run.flush()
    run.checkpoint()


STORIES: list[Story] = [
    appends_and_rolls,
    transactions,
    deletions,
    retentions,
    closings,
    one_clean_life,
    truncations,
]


def workload(story: Story) -> Callable[[SimFilesystem, Ledger], None]:
    return lambda disk, ledger: story(PartitionRun(disk, ledger))


@pytest.mark.parametrize("corruption", ["keep", "kafka"])
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_nothing_acknowledged_is_lost(story: Story, corruption: Corruption) -> None:
    """M14 M25: content, producers, log start and the next life behind every crash."""

    def new_ledger() -> Ledger:
        return Ledger(corruption=corruption)

    checked = enumerate_crashes(
        new_ledger, workload(story), check, new_disk=new_disk, seeds=1, stride=QUICK_STRIDE
    )
    assert checked > 50


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_nothing_acknowledged_is_lost_at_any_call(story: Story) -> None:
    """M14 M25: every call, five seeds of every mode that has chance in it."""
    checked = enumerate_crashes(Ledger, workload(story), check, new_disk=new_disk, seeds=5)
    assert checked > 400


def stopped(story: Story, call: int) -> tuple[SimFilesystem, Ledger]:
    """The disk and the ledger of a run that ended before a mutating call."""
    disk, ledger = new_disk(), Ledger()
    disk.stop_at(len(disk.operations) + call)
    with pytest.raises(SimulatedCrash):
        story(PartitionRun(disk, ledger))
    return disk, ledger


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_a_crash_while_loading_is_harmless(story: Story) -> None:
    """M14: cut off at any call of the load, the next load gives the same promises."""
    whole = new_disk()
    before = len(whole.operations)
    story(PartitionRun(whole, Ledger()))
    for call in range(11, len(whole.operations) - before, 37):
        disk, ledger = stopped(story, call)
        for seed, mode in enumerate((CrashMode.DROP_ALL, CrashMode.SUBSET, CrashMode.NAMES_ONLY)):
            after = disk.crash(mode, seed)
            count = calls_of_load(after, ledger)
            for step in range(seed, count, 5):
                torn, kept = after.crash(CrashMode.KEEP_ALL), copy_of(ledger)
                torn.stop_at(step, is_partial=bool(step % 2))
                with pytest.raises(SimulatedCrash):
                    PartitionRun(torn, kept)
                for again in (CrashMode.DROP_ALL, CrashMode.KEEP_ALL, CrashMode.SUBSET):
                    point = CrashPoint(call, False, again, 0)
                    check(torn.crash(again, step), kept, point)


@pytest.mark.parametrize("corruption", ["keep", "kafka"])
@pytest.mark.parametrize("mode", [CrashMode.ZEROED_DATA, CrashMode.TORN_BYTE])
def test_a_cut_tail_stays_cut(mode: CrashMode, corruption: Corruption) -> None:
    """M08 M14: also when all below it was durable before and the log goes on in another segment.

    The segment lies below the recovery point then: no flush and no later start looks at it.
    """
    run = PartitionRun(new_disk(), Ledger(corruption=corruption))
    run.append()
    run.flush()
    run.checkpoint()
    run.append(200)
    disk = run.disk.crash(mode)
    torn = PartitionRun(disk, run.ledger)
    run.ledger.batches = check_content(torn, run.ledger, is_kill=False)
    assert len(run.ledger.batches) == 1
    torn.roll()
    torn.append()
    again = PartitionRun(disk.kill(), run.ledger)
    again.flush()
    again.checkpoint()
    for cut in (CrashMode.DROP_ALL, CrashMode.NAMES_ONLY, CrashMode.KEEP_ALL):
        check(disk.crash(cut), copy_of(run.ledger), CrashPoint(0, False, cut, 0))


@pytest.mark.parametrize("corruption", ["keep", "kafka"])
def test_what_was_set_aside_does_not_come_back(corruption: Corruption) -> None:
    """M08 M14: a segment behind lost offsets, once the log has given these offsets anew."""
    run = PartitionRun(new_disk(), Ledger(corruption=corruption))
    run.append()
    run.flush()
    run.checkpoint()
    size = run.log.size_bytes
    run.append(200)
    run.roll()
    run.append(100)
    disk = run.disk.crash(CrashMode.KEEP_ALL)
    log = disk.open_write(f"{DIRECTORY}/{0:020d}.log")
    log.truncate(size + 80)
    disk.sync_all()
    torn = PartitionRun(disk, run.ledger)
    assert torn.log.log_end_offset == 1
    run.ledger.batches = run.ledger.batches[:1]
    torn.append(90)
    for seed in range(60):
        point = CrashPoint(0, False, CrashMode.SUBSET, seed)
        check(disk.crash(CrashMode.SUBSET, seed), copy_of(run.ledger), point)


@pytest.mark.parametrize("mode", [CrashMode.SUBSET, CrashMode.PREFIX, CrashMode.NAMES_ONLY])
def test_a_log_begins_where_it_was_made(mode: CrashMode) -> None:
    """M14: also when the process that made it was killed before its name was durable.

    A power cut that kept a later segment alone let the log start there.
    """
    whole = new_disk()
    count = calls_of_load(whole, Ledger())
    for call in range(1, count + 1):
        disk = new_disk()
        disk.stop_at(len(disk.operations) + call)
        with suppress(SimulatedCrash):
            PartitionRun(disk, Ledger())
        again = disk.kill()
        run = PartitionRun(again, Ledger())
        for _ in range(3):
            run.append(300, producer=1)
            run.roll()
        for seed in range(20):
            point = CrashPoint(call, False, mode, seed)
            check(again.crash(mode, seed), copy_of(run.ledger), point)


def calls_of_load(disk: SimFilesystem, ledger: Ledger) -> int:
    """Mutating calls that a load of this disk makes; the disk stays as it is."""
    copy = disk.crash(CrashMode.KEEP_ALL)
    PartitionRun(copy, copy_of(ledger))
    return len(copy.operations)


def stubborn(run: PartitionRun) -> None:
    """Each append is tried again when it fails, as long as the log takes appends."""
    for number in range(14):
        end = run.log.log_end_offset
        try:
            run.append(110, producer=number % 2)
        except OSError:
            if run.log.is_broken:
                return
            check_invariants(run.log)
            assert run.log.log_end_offset == end
            run.append(110, producer=number % 2)
            assert run.log.log_end_offset == end + 1, "the same offset"


@pytest.mark.parametrize(
    ("effect", "error"),
    [
        (Effect.RAISE, errno.EIO),
        (Effect.RAISE, errno.ENOSPC),
        (Effect.SHORT_WRITE, errno.ENOSPC),
        (Effect.SHORT_WRITE, errno.EIO),
    ],
)
def test_a_failed_write_leaves_the_log_as_it_was(effect: Effect, error: int) -> None:
    """M15: the next append takes the same offset, or the log says that it is broken."""
    broken = 0
    kinds = frozenset({"write"}) if effect is Effect.SHORT_WRITE else frozenset({"write", "create"})
    nth = 1
    while True:
        disk, ledger = new_disk(), Ledger()
        run = PartitionRun(disk, ledger)
        fault = disk.faults.add(Fault(effect, error, kinds, nth=nth))
        stubborn(run)
        if fault.seen < nth:
            break
        broken += run.log.is_broken
        if not run.log.is_broken:
            run.flush()
            check_producers(run.log)
            assert ledger.durable_end == 14
        for mode in (CrashMode.DROP_ALL, CrashMode.KEEP_ALL, CrashMode.TORN_BYTE):
            check(disk.crash(mode), ledger, CrashPoint(nth, False, mode, 0))
        check(disk.kill(), ledger, CrashPoint(nth, False, None, 0))
        nth += 1
    assert nth > 20
    assert broken < nth / 2, "most failures leave a log that goes on"


def test_a_tail_that_cannot_be_cut_back_breaks_the_log() -> None:
    """M15: no append behind torn bytes; the next load cuts them off."""
    disk, ledger = new_disk(), Ledger()
    run = PartitionRun(disk, ledger)
    run.append()
    disk.faults.add(Fault(Effect.SHORT_WRITE, errno.EIO, frozenset({"write"})))
    disk.faults.add(Fault(Effect.RAISE, errno.EIO, frozenset({"truncate"})))
    with pytest.raises(OSError, match="simulated"):
        run.append()
    assert run.log.is_broken
    check(disk.kill(), ledger, CrashPoint(0, False, None, 0))


@pytest.mark.parametrize("kind", ["datasync", "sync_dir"])
def test_a_failed_sync_acknowledges_nothing(kind: str) -> None:
    """M15: the high watermark stays, the plan cannot run twice, what was lost is not believed."""
    nth = 1
    while True:
        disk, ledger = new_disk(), Ledger()
        run = PartitionRun(disk, ledger)
        fault = disk.faults.add(Fault(Effect.LOSE_SYNC, kinds=frozenset({kind}), nth=nth))
        watermark = 0
        try:
            for number in range(8):
                run.append(producer=number % 2)
                watermark = run.log.high_watermark
                if number % 3 == 2:
                    run.flush()
                if number == 4:
                    run.roll()
        except OSError:
            assert run.log.high_watermark == watermark == ledger.durable_end
        if fault.seen < nth:
            break
        for mode in (CrashMode.DROP_ALL, CrashMode.KEEP_ALL, CrashMode.ZEROED_DATA):
            check(disk.crash(mode), ledger, CrashPoint(nth, False, mode, 0))
        nth += 1
    assert nth > 2


def test_a_plan_never_runs_twice() -> None:
    """M15: after a failed fsync the pages may be gone, and the next call would say nothing."""
    disk = new_disk()
    run = PartitionRun(disk, Ledger())
    run.append()
    plan = run.log.plan_flush()
    assert plan is not None
    disk.faults.add(Fault(Effect.LOSE_SYNC, kinds=frozenset({"datasync"})))
    with pytest.raises(OSError, match="simulated"):
        plan.run()
    with pytest.raises(AssertionError):
        plan.run()
    with pytest.raises(AssertionError):
        run.log.mark_flushed(plan)


def test_a_closed_segment_gives_its_descriptors_back() -> None:
    """M06: also one that was closed when its last byte was durable already."""
    disk = new_disk()
    run = PartitionRun(disk, Ledger())
    for _ in range(40):
        run.append(300)
        run.flush()
    assert len(run.log.segments) > 15
    pinned = [segment for segment in run.log.segments.values[:-1] if segment.log_file.is_pinned]
    assert pinned == []
    check_content(run, run.ledger, is_kill=True)
