"""Goal: a crash anywhere in a swap leaves the old or the new content of a log, whole.
Method: swap cleaned segments in, stop at every call in every crash mode, load what is left.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import pytest

from kafkalog.errors import KafkalogError
from kafkalog.log.inspect.invariants import check_invariants
from kafkalog.log.segment import segment_swap
from kafkalog.log.segment.segment_swap import SegmentSwap
from tests.sim.crash_enumeration import enumerate_crashes
from tests.sim.sim_filesystem import SimFilesystem
from tests.swap_world import BASES, CASES, DIRECTORY, Case, Content, SwapWorld

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.log.local_log import OnWriter
    from tests.sim.crash_enumeration import CrashPoint


class Refused(Exception):
    """The writer refuses an aborted clean."""


def planted() -> SimFilesystem:
    disk = SimFilesystem()
    disk.make_dir(DIRECTORY)
    disk.sync_all()
    SwapWorld(disk).fill()
    disk.sync_all()
    return disk


def outcomes(case: Case) -> tuple[Content, Content]:
    world = SwapWorld(planted())
    before = world.content()
    world.swap(case)
    return before, world.content()


def crash_everywhere(
    case: Case, *, seeds: int, expected: Content, on_writer: OnWriter | None = None
) -> int:
    """Check every crash state of a swap, which ends with ``expected``; how many."""
    before, after = outcomes(case)
    assert before != after

    def swap(disk: SimFilesystem, done: list[bool]) -> None:
        world = SwapWorld(disk)
        with suppress(Refused):
            world.swap(case, on_writer)
        assert world.staged_names() == []
        done.append(True)

    def check(disk: SimFilesystem, done: list[bool], _: CrashPoint) -> None:
        world = SwapWorld(disk)
        check_invariants(world.log)
        assert world.staged_names() == []
        content = world.content()
        assert content == expected if done else content in (before, after)
        with_blank = sorted({*case.bases, case.blank_base or 0})
        assert world.bases() in ((BASES,) if content == before else (case.bases, with_blank))

    return enumerate_crashes(list, swap, check, new_disk=planted, seeds=seeds)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_crash_in_a_swap_leaves_the_old_or_the_new(case: Case) -> None:
    """M20: batches and aborted transactions, from the first byte to the last."""
    _, after = outcomes(case)
    assert crash_everywhere(case, seeds=3, expected=after) > 500


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_crash_in_a_withdrawal_leaves_the_old_or_the_new(case: Case) -> None:
    """M20: the writer refuses when all is prepared; once withdrawn, nothing new comes back."""

    def refuse(_: Callable[[], None]) -> None:
        raise Refused

    before, _ = outcomes(case)
    assert crash_everywhere(case, seeds=1, expected=before, on_writer=refuse) > 300


OMITTED = [  # case, number of the sync, what is not durable then
    ("one", 1, "the lowest swap"),
    ("one", 2, "the end of the old files"),
    ("one", 3, "the log before its indexes"),
    ("several", 1, "the swaps above the lowest"),
]


@pytest.mark.parametrize(
    ("name", "number", "what"),
    [OMITTED[0], *(pytest.param(*each, marks=pytest.mark.slow) for each in OMITTED[1:])],
)
def test_a_sync_left_out_is_found(
    monkeypatch: pytest.MonkeyPatch, name: str, number: int, what: str
) -> None:
    """M20: the net holds: without this sync some crash leaves neither the old nor the new."""
    case = CASES[name]
    _, after = outcomes(case)
    sync_names, counts = SegmentSwap._sync_names, WeakKeyDictionary[SegmentSwap, int]()

    def forgetful(swap: SegmentSwap) -> None:
        count = counts[swap] = counts.get(swap, -1) + 1
        if count != number:
            sync_names(swap)

    monkeypatch.setattr(SegmentSwap, "_sync_names", forgetful)
    with pytest.raises((AssertionError, KafkalogError)):
        crash_everywhere(case, seeds=12, expected=after)


@pytest.mark.parametrize("name", ["nothing behind the first", "nothing at all"])
def test_missing_blanks_are_found(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """M20: without them old segments behind the last record, or an old abort index, come back."""
    case = CASES[name]
    _, after = outcomes(case)
    monkeypatch.setattr(segment_swap, "plan_blanks", lambda *_: ())
    with pytest.raises((AssertionError, KafkalogError)):
        crash_everywhere(case, seeds=12, expected=after)
