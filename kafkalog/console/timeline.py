"""The cleaner's timeline: where each phase of each clean stands in the lane of its thread. Pure.

Time goes from left to right. A phase is as long as it took, and at least ``LEAST_WIDTH`` so that a
short clean among hours is seen; what overlaps for that reason is in the table below the picture.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH = 960.0
LEAST_WIDTH = 3.0
_TICKS = 6


class Phase(enum.Enum):
    """What a thread does; between its phases it is idle."""

    MAP = "map"
    COPY = "copy"
    SWAP = "swap"
    RUNNING = "running"
    EMPTY = "nothing_cleanable"
    ABORTED = "aborted"
    FAILED = "failed"

    @property
    def letter(self) -> str:
        """Beside its colour and pattern."""
        return _LETTERS[self]

    @property
    def style(self) -> str:
        """The state of a segment whose colour and pattern it shares."""
        return _STYLES[self]


_LETTERS = {
    Phase.MAP: "M",
    Phase.COPY: "C",
    Phase.SWAP: "S",
    Phase.RUNNING: "~",
    Phase.EMPTY: "N",
    Phase.ABORTED: "A",
    Phase.FAILED: "F",
}
_STYLES = {
    Phase.MAP: "clean",
    Phase.COPY: "dirty",
    Phase.SWAP: "active",
    Phase.RUNNING: "cleaning",
    Phase.EMPTY: "kept",
    Phase.ABORTED: "deleting",
    Phase.FAILED: "deletable",
}


class Stretch(NamedTuple):
    """A phase of a thread; ``clean`` is the number of its clean. Moments in ms."""

    thread: str
    clean: int
    phase: Phase
    began_ms: float
    ended_ms: float


class Bar(NamedTuple):
    """A stretch as it is drawn."""

    x: float
    width: float
    clean: int
    phase: Phase


class Lane(NamedTuple):
    """One thread."""

    thread: str
    bars: list[Bar]


class Tick(NamedTuple):
    """A moment of the axis."""

    x: float
    moment_ms: int


class Timeline(NamedTuple):
    """The whole picture."""

    width: float
    lanes: list[Lane]
    ticks: list[Tick]


def lay_out(
    threads: Sequence[str], stretches: Sequence[Stretch], from_ms: int, to_ms: int
) -> Timeline:
    """Lanes in the order of ``threads``; what ended before from_ms is left out, the rest cut."""
    span_ms = max(to_ms - from_ms, 1)

    def place(moment_ms: float) -> float:
        return WIDTH * min(max((moment_ms - from_ms) / span_ms, 0.0), 1.0)

    lanes = {thread: Lane(thread, []) for thread in threads}
    for each in stretches:
        lane = lanes.get(each.thread)
        if lane is None or each.ended_ms < from_ms or each.began_ms > to_ms:
            continue
        x = place(each.began_ms)
        width = max(place(each.ended_ms) - x, LEAST_WIDTH)
        lane.bars.append(Bar(min(x, WIDTH - width), width, each.clean, each.phase))
    steps = (from_ms + span_ms * number // _TICKS for number in range(_TICKS + 1))
    return Timeline(WIDTH, list(lanes.values()), [Tick(place(moment), moment) for moment in steps])
