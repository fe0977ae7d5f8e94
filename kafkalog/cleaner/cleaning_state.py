"""CleaningState: what the cleaner does with one log, and the table of all legal changes.

Pure values; ``LogCleanerManager`` owns who is in which state and the lock around it. A log without
an entry there is ``NONE``. Whoever grabs a log owns it until DONE: nobody else truncates, deletes,
retains or cleans it meanwhile.
Source: Kafka 4.1 LogCleaningState and LogCleanerManager, log-lifecycle 12.2. Differs from Kafka: a
paused log may be looked at, which leaves its pauses as they are.
"""

from __future__ import annotations

import enum
from typing import NamedTuple


class CleaningPhase(enum.Enum):
    """Kafka's states; the value is what the API shows."""

    NONE = "none"
    IN_PROGRESS = "in_progress"  # a cleaner thread cleans it, or deletes its old segments
    ABORTED = "aborted"  # somebody waits for that thread to let go of it
    PAUSED = "paused"  # no cleaner thread takes it until every pause is taken back


class CleaningEvent(enum.Enum):
    """What may happen to a log."""

    GRAB = "grab"  # a cleaner thread takes it
    LOOK = "look"  # the same although it is paused, for a dry run
    PAUSE = "pause"  # abort and pause
    RESUME = "resume"  # takes one pause back
    DONE = "done"  # the thread that grabbed it lets go


class CleaningState(NamedTuple):
    """``pauses`` is n of Kafka's Paused(n); in another phase those that a dry run looks beside."""

    phase: CleaningPhase
    pauses: int = 0

    def __str__(self) -> str:
        return f"{self.phase.value}({self.pauses})" if self.pauses else self.phase.value


class IllegalTransition(AssertionError):
    """A change that the table does not have: a defect of ours."""


NONE = CleaningState(CleaningPhase.NONE)

# (phase, event) -> (next phase, change of pauses); a PAUSED without pauses is NONE.
TRANSITIONS: dict[tuple[CleaningPhase, CleaningEvent], tuple[CleaningPhase, int]] = {
    (CleaningPhase.NONE, CleaningEvent.GRAB): (CleaningPhase.IN_PROGRESS, 0),
    (CleaningPhase.NONE, CleaningEvent.PAUSE): (CleaningPhase.PAUSED, 1),
    (CleaningPhase.IN_PROGRESS, CleaningEvent.PAUSE): (CleaningPhase.ABORTED, 0),
    (CleaningPhase.IN_PROGRESS, CleaningEvent.RESUME): (CleaningPhase.IN_PROGRESS, -1),
    (CleaningPhase.IN_PROGRESS, CleaningEvent.DONE): (CleaningPhase.PAUSED, 0),
    (CleaningPhase.ABORTED, CleaningEvent.RESUME): (CleaningPhase.ABORTED, -1),
    (CleaningPhase.ABORTED, CleaningEvent.DONE): (CleaningPhase.PAUSED, 1),
    (CleaningPhase.PAUSED, CleaningEvent.LOOK): (CleaningPhase.IN_PROGRESS, 0),
    (CleaningPhase.PAUSED, CleaningEvent.PAUSE): (CleaningPhase.PAUSED, 1),
    (CleaningPhase.PAUSED, CleaningEvent.RESUME): (CleaningPhase.PAUSED, -1),
}


def next_state(state: CleaningState, event: CleaningEvent) -> CleaningState:
    """The state after the event; IllegalTransition."""
    change = TRANSITIONS.get((state.phase, event))
    if change is None or state.pauses + change[1] < 0:
        raise IllegalTransition(f"{event.value} of a log that is {state}")
    phase, pauses = change[0], state.pauses + change[1]
    if phase is CleaningPhase.PAUSED and pauses == 0:
        return NONE
    return CleaningState(phase, pauses)
