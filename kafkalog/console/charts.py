"""Curves over time and sparklines as SVG paths. Pure.

A chart is drawn without text in a box of WIDTH times HEIGHT, which the page stretches; the words
around it are HTML. So it needs no script, and has any width.
"""

from __future__ import annotations

import enum
import math
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.console.formatting import duration, quantity, size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Points = Sequence[tuple[int, float | None]]

WIDTH = 600.0
HEIGHT = 100.0
LEAST_SAMPLES = 6
"""Of a curve or a sparkline: fewer of them look like a trend and are none."""
SPARK_WIDTH = 100.0
SPARK_HEIGHT = 20.0
_LEAST = 1e-300  # below it powers of ten have no digits left


class Unit(enum.Enum):
    """What a value is; the value is how console.js writes it."""

    COUNT = "count"
    RATE = "rate"
    BYTES = "bytes"
    BYTE_RATE = "byte-rate"
    SECONDS = "seconds"

    def words(self, value: float) -> str:
        """For people."""
        return {
            Unit.COUNT: lambda: quantity(value),
            Unit.RATE: lambda: f"{quantity(value)}/s",
            Unit.BYTES: lambda: size(round(value)),
            Unit.BYTE_RATE: lambda: f"{size(round(value))}/s",
            Unit.SECONDS: lambda: duration(value),
        }[self]()

    def scale_end(self, value: float) -> float:
        """The end of an axis for values up to this: a round number."""
        if self in (Unit.BYTES, Unit.BYTE_RATE):  # from 1 KiB on: half of it has a figure, too
            return 2.0 ** max(10, math.ceil(math.log2(max(value, 1.0))))
        if value < _LEAST:
            return 1.0
        power = 10.0 ** math.floor(math.log10(value))
        return next(step * power for step in (1, 2, 5, 10) if value <= step * power * (1 + 1e-9))


class Line(NamedTuple):
    """One curve: its stroke, and the area below it. ``last`` None: there is no value at the end."""

    name: str
    path: str
    area: str
    last: float | None
    most: float | None


class Chart(NamedTuple):
    """The whole drawing; ``most`` is at its upper edge, 0 at its lower one.

    sampled_since_ms    not drawn: there are too few samples, the first of this time; None: drawn
    """

    name: str
    unit: Unit
    from_ms: int
    to_ms: int
    most: float
    lines: list[Line]
    sampled_since_ms: int | None = None

    @property
    def words(self) -> str:
        """What it shows, for those who do not see it."""
        parts = []
        for line in self.lines:
            if line.most is None:
                parts.append(f"{line.name}: none")
                continue
            last = "none" if line.last is None else self.unit.words(line.last)
            parts.append(f"{line.name}: last {last}, most {self.unit.words(line.most)}")
        return f"{self.name}; {'; '.join(parts)}"


def lay_out_chart(
    name: str,
    unit: Unit,
    series: Mapping[str, Points],
    from_ms: int,
    to_ms: int,
    *,
    is_stepped: bool = False,
    least_samples: int = 0,
) -> Chart:
    """Points outside [from_ms, to_ms] are left out; None is a gap.

    With fewer points than ``least_samples`` there are their values, and no curve.
    """
    shown = {
        each: [(at, value) for at, value in points if from_ms <= at <= to_ms]
        for each, points in series.items()
    }
    known = [value for points in shown.values() for _, value in points if value is not None]
    most = unit.scale_end(max(known, default=0.0))
    span_ms = max(to_ms - from_ms, 1)

    def place(at_ms: int, value: float) -> tuple[float, float]:
        return WIDTH * (at_ms - from_ms) / span_ms, HEIGHT * (1 - value / most)

    lines = [_line(each, points, place, is_stepped) for each, points in shown.items()]
    times = [at for points in shown.values() for at, _ in points]
    if max(map(len, shown.values()), default=0) < least_samples:
        since_ms = min(times, default=to_ms)
        lines = [each._replace(path="", area="") for each in lines]
        return Chart(name, unit, from_ms, to_ms, most, lines, since_ms)
    return Chart(name, unit, from_ms, to_ms, most, lines)


def _line(
    name: str, points: Points, place: Callable[[int, float], tuple[float, float]], is_stepped: bool
) -> Line:
    runs, run = list[list[tuple[float, float]]](), list[tuple[float, float]]()
    for at_ms, value in points:
        if value is None:
            runs, run = ([*runs, run] if run else runs), []
        else:
            run.append(place(at_ms, value))
    runs = [*runs, run] if run else runs
    strokes = ["M" + _along(each, is_stepped) for each in runs]
    areas = [
        f"M{_number(each[0][0])} {HEIGHT:.0f}L{_along(each, is_stepped)}V{HEIGHT:.0f}Z"
        for each in runs
    ]
    known = [value for _, value in points if value is not None]
    last = points[-1][1] if points else None
    return Line(name, "".join(strokes), "".join(areas), last, max(known, default=None))


def _along(run: Sequence[tuple[float, float]], is_stepped: bool) -> str:
    """Its points in order; a point alone becomes a dash."""
    text = f"{_number(run[0][0])} {_number(run[0][1])}"
    if len(run) == 1:
        return f"{text}h2"
    for _, (x, y) in pairwise(run):
        text += f"H{_number(x)}V{_number(y)}" if is_stepped else f"L{_number(x)} {_number(y)}"
    return text


def spark(values: Sequence[float]) -> str:
    """A path in a box of SPARK_WIDTH times SPARK_HEIGHT; empty: nothing, or too few values."""
    most = max(values, default=0.0)
    if most <= 0 or len(values) < LEAST_SAMPLES:
        return ""
    step = SPARK_WIDTH / (len(values) - 1)
    places = (
        f"{_number(step * at)} {_number(SPARK_HEIGHT * (1 - value / most))}"
        for at, value in enumerate(values)
    )
    return "M" + "L".join(places)


def thinned(
    points: Points, most: int, combine: Callable[[Sequence[float]], float]
) -> list[tuple[int, float | None]]:
    """At most so many points: neighbours are combined at the time of the last of them."""
    of_each = max(1, -(-len(points) // most))
    found = list[tuple[int, float | None]]()
    for first in range(0, len(points), of_each):
        group = points[first : first + of_each]
        known = [value for _, value in group if value is not None]
        found.append((group[-1][0], combine(known) if known else None))
    return found


def _number(value: float) -> str:
    """One digit after the point, none where it is 0."""
    return f"{value:.1f}".removesuffix(".0")
