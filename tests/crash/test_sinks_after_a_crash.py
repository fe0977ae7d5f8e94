"""Goal: after a crash each batch of a sink is shown whole or not at all, and never twice.
Method: cut the power at every disk call of begins with their appends, of a commit and of an abort;
what was answered stands, what was not is repeated by its client; then the batch is complete.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from kafkalog.format.disk.sink_state import Winner
from kafkalog.log.inspect.invariants import check_invariants
from tests.crash.after_a_start import crashes_after_a_start, durable
from tests.sim.sim_crash import CrashMode
from tests.sink_world import QUERY, T, begin, committed, is_settled, sinks_of, started, with_topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sim.crash_enumeration import CrashPoint
    from tests.sim.sim_filesystem import SimFilesystem
    from tests.sim.sim_manager import SimManager

    Story = Callable[[SimManager, "Told"], None]

WINNERS = ((0, 1), (1, 0))  # partition id and attempt
SHOWN = [["a"], ["b", "c"]]  # when the batch is committed
NOTHING: list[list[str]] = [[], []]


@dataclass
class Told:
    is_committed: bool = False
    is_aborted: bool = False


def disk_with_a_topic() -> SimFilesystem:
    """A topic on both disks, and a sink that has committed batch 0."""
    sim = with_topic(2)
    sinks_of(sim).commit(QUERY, 0, [])
    return durable(sim)


def disk_with_a_batch() -> SimFilesystem:
    """The same, with batch 1 written and open."""
    sim = started(disk_with_a_topic())
    write_batch(sim)
    return durable(sim)


def write_batch(sim: SimManager) -> None:
    """Two tasks; of the first an attempt that loses, of the second one that is fenced."""
    loser, winner = begin(sim, 1, 0, 0), begin(sim, 1, 0, 1)
    loser.send("lost")
    winner.send("a")
    winner.send("b", partition=1)
    begin(sim, 1, 1).send("fenced", partition=1)
    begin(sim, 1, 1).send("c", partition=1)


def winners(sim: SimManager) -> list[Winner]:
    """As the tasks told the driver; a crash changes neither their ids nor their epochs."""
    found = {}
    for each in sinks_of(sim).describe(QUERY).producers:
        found[each.key.partition_id, each.key.attempt] = each.value
    return [
        Winner(found[key].producer_id, found[key].producer_epoch, tuple(T[key[0] : 2]))
        for key in WINNERS
    ]


def shown(sim: SimManager) -> list[list[str]]:
    return [committed(sim, number) for number in (0, 1)]


def commits(sim: SimManager, told: Told) -> None:
    sinks_of(sim).commit(QUERY, 1, winners(sim))
    told.is_committed = True


def aborts(sim: SimManager, told: Told) -> None:
    sinks_of(sim).abort(QUERY, 1)
    told.is_aborted = True


def writes(sim: SimManager, told: Told) -> None:
    write_batch(sim)


STORIES = {
    "writes": (disk_with_a_topic, writes),
    "commits": (disk_with_a_batch, commits),
    "aborts": (disk_with_a_batch, aborts),
}


def resume(sim: SimManager, story: str) -> None:
    """The driver comes back: it commits what it wanted to commit, else writes the batch again."""
    if story == "commits":
        commits(sim, Told())
    elif sinks_of(sim).begin(QUERY, 1, 5, 0) is not None:
        write_batch(sim)
        commits(sim, Told())


def check(story: str) -> Callable[[SimFilesystem, Told, CrashPoint], None]:
    def look(disk: SimFilesystem, told: Told, point: CrashPoint) -> None:
        first = started(disk, seed=2)
        found = shown(first)
        allowed = [NOTHING] * (not told.is_committed) + [SHOWN] * (story == "commits")
        assert found in allowed
        if told.is_aborted:
            assert sinks_of(first).describe(QUERY).state == "aborted"
        first.threads.kill_all()
        again = started(first.disk.crash(CrashMode.DROP_ALL, 0), seed=3)
        assert shown(again) == found
        resume(again, story)
        assert shown(again) == SHOWN
        assert is_settled(again)
        assert sinks_of(again).begin(QUERY, 1, 0, 0) is None
        for log in again.manager.logs.table.logs():
            check_invariants(log)
        again.threads.kill_all()

    return look


@pytest.mark.parametrize(
    ("story", "stride", "least"),
    [
        ("writes", 67, 8),
        ("commits", 17, 8),
        ("aborts", 17, 8),
        *(
            pytest.param(story, 1, 50, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])
            for story in STORIES
        ),
    ],
)
def test_batches_are_whole_after_a_crash(story: str, stride: int, least: int) -> None:
    """As above, at some calls or at every one, also within each write."""
    new_disk, act = STORIES[story]
    checked = crashes_after_a_start(
        Told, act, check(story), new_disk, stride=stride, start=lambda disk: started(disk, seed=1)
    )
    assert checked > least
