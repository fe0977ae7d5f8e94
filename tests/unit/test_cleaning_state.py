"""Goal: the cleaner's states change as Kafka's do, and in no other way.
Method: every pair of state and event against a table written out by hand (log-lifecycle 12.2).
"""

from __future__ import annotations

import itertools

import pytest

from kafkalog.cleaner.log_cleaner_manager import (
    NONE,
    CleaningEvent,
    CleaningPhase,
    CleaningState,
    IllegalTransition,
    next_state,
)

IN_PROGRESS = CleaningState(CleaningPhase.IN_PROGRESS)
ABORTED = CleaningState(CleaningPhase.ABORTED)


def paused(count: int) -> CleaningState:
    """Kafka's LogCleaningPaused(count)."""
    return CleaningState(CleaningPhase.PAUSED, count)


def looked_at(pauses: int, phase: CleaningPhase = CleaningPhase.IN_PROGRESS) -> CleaningState:
    """A dry run beside pauses, or one that somebody waits for."""
    return CleaningState(phase, pauses)


STATES = (
    *(NONE, IN_PROGRESS, ABORTED, paused(1), paused(2), paused(7)),
    *(looked_at(2), looked_at(2, CleaningPhase.ABORTED)),
)
LEGAL = {
    (NONE, CleaningEvent.GRAB): IN_PROGRESS,
    (NONE, CleaningEvent.PAUSE): paused(1),
    (IN_PROGRESS, CleaningEvent.PAUSE): ABORTED,
    (IN_PROGRESS, CleaningEvent.DONE): NONE,
    (ABORTED, CleaningEvent.DONE): paused(1),
    (paused(1), CleaningEvent.PAUSE): paused(2),
    (paused(2), CleaningEvent.PAUSE): paused(3),
    (paused(7), CleaningEvent.PAUSE): paused(8),
    (paused(1), CleaningEvent.RESUME): NONE,
    (paused(2), CleaningEvent.RESUME): paused(1),
    (paused(7), CleaningEvent.RESUME): paused(6),
    (paused(1), CleaningEvent.LOOK): looked_at(1),
    (paused(2), CleaningEvent.LOOK): looked_at(2),
    (paused(7), CleaningEvent.LOOK): looked_at(7),
    (looked_at(2), CleaningEvent.RESUME): looked_at(1),
    (looked_at(2), CleaningEvent.DONE): paused(2),
    (looked_at(2), CleaningEvent.PAUSE): looked_at(2, CleaningPhase.ABORTED),
    (looked_at(2, CleaningPhase.ABORTED), CleaningEvent.RESUME): looked_at(
        1, CleaningPhase.ABORTED
    ),
    (looked_at(2, CleaningPhase.ABORTED), CleaningEvent.DONE): paused(3),
}


@pytest.mark.parametrize(
    ("state", "event"),
    list(itertools.product(STATES, CleaningEvent)),
    ids=lambda each: str(each) if isinstance(each, CleaningState) else each.value,
)
def test_every_event_in_every_state(state: CleaningState, event: CleaningEvent) -> None:
    """Legal changes lead where Kafka's do, all others raise."""
    expected = LEGAL.get((state, event))
    if expected is None:
        with pytest.raises(IllegalTransition, match=event.value):
            next_state(state, event)
    else:
        assert next_state(state, event) == expected


def test_states_are_told_as_the_documents_write_them() -> None:
    """A state reads as in Kafka's own words."""
    assert [str(state) for state in STATES[:5]] == [
        "none",
        "in_progress",
        "aborted",
        "paused(1)",
        "paused(2)",
    ]
