"""The offset axis: named offsets on a line from the start of a log to its end. Pure.

Labels stand in as many rows as it takes that none covers another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH = 960.0
_CHARACTER_WIDTH = 7.5
_GAP = 8.0


class Tick(NamedTuple):
    """A named offset: where it stands, and its label, which ends there when ``is_left``."""

    name: str
    offset: int
    x: float
    row: int
    is_left: bool
    label: str


class Axis(NamedTuple):
    """The whole picture."""

    width: float
    rows: int
    ticks: list[Tick]


def lay_out(offsets: Sequence[tuple[str, int]], low: int, high: int) -> Axis:
    """Offsets by name, of [low, high]; what lies outside is left out."""
    ticks, row_ends = list[Tick](), list[float]()
    for name, offset in sorted(offsets, key=lambda each: each[1]):
        if not low <= offset <= high:
            continue
        x = WIDTH * (offset - low) / (high - low) if high > low else 0.0
        label = f"{name} {offset:,}"
        length = len(label) * _CHARACTER_WIDTH
        is_left = x + length > WIDTH
        begin = x - length if is_left else x
        row = next((at for at, end in enumerate(row_ends) if end + _GAP <= begin), len(row_ends))
        row_ends[row : row + 1] = [begin + length]
        ticks.append(Tick(name, offset, x, row, is_left, label))
    return Axis(WIDTH, len(row_ends), ticks)
