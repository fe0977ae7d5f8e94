"""Goal: of many things that can fail, one that does holds up none of the others.
Method: the one loop that all such work goes through, over items of which some raise.
"""

from __future__ import annotations

import pytest

from kafkalog.errors import DiskFull, KafkalogError, UnknownTopic, first_fault, work_on_each

FAULTS: dict[str, Exception] = {"b": DiskFull("b"), "c": UnknownTopic("c")}


class Work:
    """Notes what it was asked for, and raises where it is told to."""

    def __init__(self, faults: dict[str, Exception]) -> None:
        self.done: list[str] = []
        self._faults = faults

    def __call__(self, item: str) -> None:
        self.done.append(item)
        if item in self._faults:
            raise self._faults[item]


def test_all_are_tried_and_the_first_fault_is_kept() -> None:
    """Neither a fault is lost nor what comes behind it."""
    work = Work(FAULTS)
    assert first_fault("abcd", work) is FAULTS["b"]
    assert work.done == list("abcd")
    with pytest.raises(DiskFull):
        work_on_each("abcd", work)
    assert work.done == list("abcdabcd")
    assert first_fault("ad", work) is None
    work_on_each("ad", work)


def test_each_fault_is_told_with_its_item() -> None:
    """The log names every one, once."""
    told: list[tuple[str, KafkalogError]] = []
    faults = {name: DiskFull(name) for name in "bc"}
    assert not faults["b"].already_logged
    first_fault("abcd", Work(dict(faults)), lambda item, fault: told.append((item, fault)))
    assert told == list(faults.items())
    assert all(fault.already_logged for fault in faults.values())


def test_a_defect_ends_it() -> None:
    """No error of ours is taken for one of a disk."""
    work = Work({"b": AssertionError("defect")})
    with pytest.raises(AssertionError):
        work_on_each("abc", work)
    assert work.done == ["a", "b"]
