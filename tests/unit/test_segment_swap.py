"""Goal: a swap is planned in the order that crashes need, in turns that the writer can bear.
Method: plans of small segments by their file names; whole swaps on the simulated disk.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from kafkalog.log.segment import segment_reader
from kafkalog.log.segment.log_segment import LogSegment
from kafkalog.log.segment.segment_swap import (
    SegmentSwap,
    plan_blanks,
    plan_final_names,
    plan_retirement,
)
from kafkalog.log.values import AbortedTransaction
from tests.log_world import LogWorld, append, bytes_of, filled, joined
from tests.sim.sim_faults import Effect, Fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.log.local_log import LocalLog
    from kafkalog.log.segment.segment_swap import Turn
    from tests.naive.batches import PlainBatch


def cleaned(world: LogWorld, base_offset: int, *batches: PlainBatch) -> LogSegment:
    """A closed ``.cleaned`` segment."""
    segment = LogSegment.create(
        world.environment, world.directory, base_offset, world.config, suffix=".cleaned"
    )
    if batches:
        append(segment, *batches)
    segment.on_become_inactive()
    return segment


def swap_of(world: LogWorld, log: LocalLog, *new: LogSegment, renames_max: int = 64) -> SegmentSwap:
    old = log.segments.values[:-1]
    return SegmentSwap(world.environment, log, new, old, renames_max=renames_max)


def renames(turns: tuple[Turn, ...]) -> list[list[str]]:
    """Turn by turn, as base offset and suffix, with the stages."""
    return [
        [
            f"{each.base_offset}{each.suffix} {turn.old_stage}>{turn.new_stage}"
            for each in turn.files
        ]
        for turn in turns
    ]


def directly(call: Callable[[], None]) -> None:
    call()


def test_a_log_settles_before_its_indexes() -> None:
    """M20: and each turn with a .log has but one."""
    world = LogWorld()
    new = [cleaned(world, 0), cleaned(world, 4)]
    new[1].transaction_index.append(AbortedTransaction(1, 4, 5, 4))
    assert renames(plan_final_names(new)) == [
        ["0.log .swap>"],
        ["0.index .swap>", "0.timeindex .swap>", "4.log .swap>"],
        ["4.index .swap>", "4.timeindex .swap>", "4.txnindex .swap>"],
    ]


def test_the_writer_renames_no_more_than_it_may() -> None:
    """M20: two segments of three files in turns of four."""
    world = LogWorld()
    log, _ = filled(world)
    turns = plan_retirement(log.segments.values[:-1], 4)
    assert [len(turn.files) for turn in turns] == [4, 2]
    assert renames(turns)[0][3] == "4.log >.deleted"


def test_blanks_stand_for_old_segments_behind_the_last_record() -> None:
    """M20: for the last of them; only files that no new segment has."""
    world = LogWorld()
    log, batches = filled(world)
    old = log.segments.values[:-1]
    assert plan_blanks([cleaned(world, 0, batches[5])], 6, old) == ()
    assert plan_blanks([cleaned(world, 0, batches[5])], 5, old) == ()
    blanks = ((4, ".log"), (4, ".index"), (4, ".timeindex"))
    assert plan_blanks([cleaned(world, 0, batches[1])], 4, old) == blanks
    old[1].transaction_index.append(AbortedTransaction(1, 4, 5, 4))
    assert plan_blanks([cleaned(world, 4)], 4, old[1:]) == ((4, ".txnindex"),)


@pytest.mark.parametrize("renames_max", [1, 64])
def test_a_swap_replaces_and_old_readers_read_on(renames_max: int) -> None:
    """M20: .cleaned, .swap, published, old ones .deleted, final names; gone after the delay."""
    world = LogWorld()
    log, batches = filled(world)
    new = cleaned(world, 0, batches[3], batches[7])
    old = log.segments.first
    gone = swap_of(world, log, new, renames_max=renames_max).run(directly)
    assert [segment.base_offset for segment in gone] == [0, 4]
    assert [segment.base_offset for segment in log.segments] == [0, 8]
    assert bytes_of(log.read(0, 10_000)) == joined([batches[3], batches[7]])
    assert bytes_of(segment_reader.read(old, 0, 10_000)) == joined(batches[:4])
    assert world.size("00000000000000000000.log") == new.size_bytes
    assert not new.log_file.is_pinned
    world.run_tasks()
    assert not [name for name in world.names() if name[20:] not in (".log", ".index", ".timeindex")]
    assert bytes_of(log.read(0, 10_000)) == joined([batches[3], batches[7]])


def test_readers_see_the_new_segments_at_every_stage() -> None:
    """M20: whatever the names are at that moment, also of files that nobody has open."""
    world = LogWorld()
    log, batches = filled(world)
    new = cleaned(world, 0, batches[1])
    seen = []

    def on_writer(call: Callable[[], None]) -> None:
        call()
        for segment in log.segments:
            segment.log_file.unpin()
        seen.append(bytes_of(log.read(0, 10_000)))

    swap_of(world, log, new, renames_max=2).run(on_writer)
    assert seen == [joined(batches[1:2])] * 6
    assert not [name for name in world.names() if name.endswith((".swap", ".cleaned"))]


def refuse(_: Callable[[], None]) -> None:
    """The writer may refuse an aborted clean: the rule against deadlocks."""
    raise InterruptedError


@pytest.mark.parametrize("failure", ["refused", "file gone", "datasync", "sync_dir", "rename"])
def test_a_preparation_that_fails_is_withdrawn(failure: str) -> None:
    """M20: nothing of it is left, the log is as before."""
    world = LogWorld()
    log, batches = filled(world)
    before = world.names(), log.segments.values
    new = cleaned(world, 0, batches[1])
    swap = swap_of(world, log, new)
    if failure == "file gone":  # somebody deleted it
        new.close_handles()
        world.filesystem.unlink(new.log_file.path)
    elif failure != "refused":
        world.filesystem.faults.add(Fault(Effect.RAISE, errno.ENOSPC, frozenset({failure})))
    kinds: dict[str, tuple[type[OSError], str | None]] = {
        "refused": (InterruptedError, None),
        "file gone": (FileNotFoundError, None),
    }
    kind, said = kinds.get(failure, (OSError, "simulated"))
    with pytest.raises(kind, match=said):
        swap.run(refuse if failure == "refused" else directly)
    assert (world.names(), log.segments.values) == before
    world.run_tasks()
    assert bytes_of(log.read(0, 10_000)) == joined(batches[:4])


def test_a_swap_that_a_full_disk_stopped_can_be_completed() -> None:
    """M20: renames are done once; the log can be read in between."""
    world = LogWorld()
    log, batches = filled(world)
    swap = swap_of(world, log, cleaned(world, 0, batches[1], batches[5]), renames_max=2)
    rename = frozenset({"rename"})
    fault = Fault(Effect.RAISE, errno.ENOSPC, rename, path_contains="4.index")
    world.filesystem.faults.add(fault)
    with pytest.raises(OSError, match="simulated"):
        swap.run(directly)
    assert bytes_of(log.read(0, 10_000)) == joined([batches[1], batches[5]])
    gone = swap.complete(directly)
    assert [segment.base_offset for segment in gone] == [0, 4]
    world.run_tasks()
    assert len(world.names()) == 6
