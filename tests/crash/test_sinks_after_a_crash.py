"""Goal: after a crash each batch of a sink is shown whole or not at all, and never twice.
Method: cut the power at every disk call of begins, appends, commits and an abort; what was answered
stands, what was not is repeated by its client; two lives, then the batch is complete.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from kafkalog.errors import InvalidRequest
from kafkalog.log.invariants import check_invariants
from tests.sim.crash_enumeration import CrashPoint, enumerate_crashes
from tests.sim.sim_crash import CrashMode
from tests.sink_world import (
    QUERY,
    begin,
    committed,
    is_settled,
    sinks_of,
    started,
    with_topic,
)

if TYPE_CHECKING:
    from kafkalog.format.sink_state import Winner
    from tests.sim.sim_filesystem import SimFilesystem
    from tests.sim.sim_manager import SimManager

BATCHES = (1, 2, 3)


@dataclass
class Told:
    """What the driver of the query knows: commits that it asked for, and those answered."""

    winners: dict[int, list[Winner]] = field(default_factory=dict)
    answered: int = 0


def disk_with_a_topic() -> SimFilesystem:
    """A topic on both disks, and a sink that has committed batch 0."""
    sim = with_topic(2)
    sinks_of(sim).commit(QUERY, 0, [])
    disk = sim.stop()
    disk.sync_all()
    return disk


def write_batch(sim: SimManager, batch_id: int) -> list[Winner]:
    """Two tasks; of the first an attempt that loses, of the second one that is fenced."""
    loser, winner = begin(sim, batch_id, 0, 0), begin(sim, batch_id, 0, 1)
    loser.send(f"{batch_id} lost")
    winner.send(f"{batch_id}a")
    winner.send(f"{batch_id}b", partition=1)
    fenced = begin(sim, batch_id, 1)
    fenced.send(f"{batch_id} fenced", partition=1)
    other = begin(sim, batch_id, 1)
    other.send(f"{batch_id}c", partition=1)
    return [winner.winner(), other.winner()]


def shown_after(batch_id: int) -> list[list[str]]:
    """What the partitions show when this batch was committed last."""
    done = range(1, batch_id + 1)
    return [
        [f"{each}a" for each in done],
        [f"{each}{part}" for each in done for part in "bc"],
    ]


def shown(sim: SimManager) -> list[list[str]]:
    return [committed(sim, number) for number in (0, 1)]


def work(disk: SimFilesystem, told: Told) -> None:
    """Batch 1 is committed; 2 is aborted, then written anew and committed; 3 is left open."""
    sim = started(disk, seed=1)
    try:
        for batch_id in (1, 2):
            winners = write_batch(sim, batch_id)
            if batch_id == 2:
                sinks_of(sim).abort(QUERY, batch_id)
                winners = write_batch(sim, batch_id)
            told.winners[batch_id] = winners
            sinks_of(sim).commit(QUERY, batch_id, winners)
            told.answered = batch_id
        write_batch(sim, 3)
    finally:
        sim.threads.kill_all()


def resume(sim: SimManager, told: Told) -> None:
    """The driver comes back: it commits what it wanted to commit, else writes the batch again."""
    for batch_id in BATCHES[told.answered :]:
        winners = told.winners.get(batch_id)
        if winners is not None:
            try:
                sinks_of(sim).commit(QUERY, batch_id, winners)
                continue
            except InvalidRequest:
                assert shown(sim) == shown_after(batch_id - 1)
        if sinks_of(sim).begin(QUERY, batch_id, 5, 0) is not None:
            sinks_of(sim).commit(QUERY, batch_id, write_batch(sim, batch_id))


def check(disk: SimFilesystem, told: Told, point: CrashPoint) -> None:
    """What was answered is shown; at most the next one, whole; the client ends it, once."""
    first = started(disk, seed=2)
    asked = max(told.winners, default=0)
    allowed = [shown_after(batch_id) for batch_id in range(told.answered, asked + 1)]
    found = shown(first)
    assert found in allowed
    first.threads.kill_all()
    again = started(first.disk.crash(CrashMode.DROP_ALL, 0), seed=3)
    assert shown(again) == found
    resume(again, told)
    assert shown(again) == shown_after(BATCHES[-1])
    assert is_settled(again)
    for log in again.manager.table.logs():
        check_invariants(log)
    again.threads.kill_all()
    last = started(again.disk.crash(CrashMode.DROP_ALL, 0), seed=4)
    assert shown(last) == shown_after(BATCHES[-1])
    last.threads.kill_all()


def calls_of_a_start() -> int:
    disk = disk_with_a_topic()
    before = len(disk.operations)
    started(disk, seed=1).threads.kill_all()
    return len(disk.operations) - before


def crash_everywhere(stride: int) -> int:
    return enumerate_crashes(
        Told,
        work,
        check,
        new_disk=disk_with_a_topic,
        seeds=1,
        stride=stride,
        first=calls_of_a_start(),
    )


def test_batches_are_whole_after_a_crash() -> None:
    """M24. Goal: as above, at some calls.

    Method: every mode of a power cut, and a kill.
    """
    assert crash_everywhere(37) > 30


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_batches_are_whole_after_a_crash_anywhere() -> None:
    """M24. Goal: as above, at every call, also within each write.

    Method: every mode of a power cut, and a kill.
    """
    assert crash_everywhere(1) > 500
