"""Goal: a curve says what its points say, at any scale, with gaps where nothing is known.
Method: points by hand, and any points.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

from kafkalog.console.charts import HEIGHT, SPARK_HEIGHT, WIDTH, Unit, lay_out_chart, spark, thinned
from kafkalog.console.formatting import duration, quantity


def test_a_chart_is_to_scale() -> None:
    points = [(0, 0.0), (500, 4.0), (1000, 2.0)]
    chart = lay_out_chart("Appends", Unit.RATE, {"appends": points}, 0, 1000)
    assert chart.most == 5.0
    (line,) = chart.lines
    assert line.path == "M0 100L300 20L600 60"
    assert line.area == "M0 100L0 100L300 20L600 60V100Z"
    assert chart.words == "Appends; appends: last 2/s, most 4/s"


def test_what_is_not_known_is_a_gap() -> None:
    points = [(0, 1.0), (1, None), (2, 1.0), (3, 1.0), (4, None)]
    (line,) = lay_out_chart("p99", Unit.SECONDS, {"p99": points}, 0, 4).lines
    assert line.path == "M0 0h2M300 0L450 0"
    assert (line.last, line.most) == (None, 1.0)


def test_a_step_keeps_its_height_until_the_next() -> None:
    points = [(0, 4096.0), (50, 2048.0), (100, 0.0)]
    (line,) = lay_out_chart("b", Unit.BYTES, {"b": points}, 0, 100, is_stepped=True).lines
    assert line.path == "M0 0H300V50H600V100"


def test_two_lines_have_one_scale_and_old_points_are_left_out() -> None:
    series = {"in": [(0, 9000.0), (10, 1000.0)], "out": [(10, 3000.0)]}
    chart = lay_out_chart("Bytes", Unit.BYTE_RATE, series, 5, 10)
    assert chart.most == 4096
    assert [each.most for each in chart.lines] == [1000.0, 3000.0]


def test_nothing_at_all() -> None:
    chart = lay_out_chart("Appends", Unit.RATE, {"appends": []}, 0, 0)
    assert chart.lines[0].path == chart.lines[0].area == ""
    assert chart.words == "Appends; appends: none"
    assert spark([]) == spark([0.0, 0.0]) == ""
    assert [Unit.RATE.scale_end(value) for value in (0.0, 5e-324)] == [1.0, 1.0]


@given(st.lists(st.none() | st.floats(0, 1e15), max_size=50), st.sampled_from(Unit), st.booleans())
def test_every_curve_is_inside_its_box(
    values: list[float | None], unit: Unit, is_stepped: bool
) -> None:
    points = list(enumerate(values))
    chart = lay_out_chart("c", unit, {"c": points}, 0, len(values), is_stepped=is_stepped)
    path = chart.lines[0].path
    for x, y in re.findall(r"[ML]([-\d.]+) ([-\d.]+)", path):
        assert 0 <= float(x) <= WIDTH
        assert 0 <= float(y) <= HEIGHT
    assert chart.words
    known = [each for each in values if each is not None]
    for y in re.findall(r" ([-\d.]+)", spark(known)):
        assert 0 <= float(y) <= SPARK_HEIGHT


@given(st.integers(0, 500), st.integers(1, 200))
def test_few_points_are_left(count: int, most: int) -> None:
    points = [(at, float(at)) for at in range(count)]
    found = thinned(points, most, max)
    assert len(found) <= most
    assert found[-1:] == points[-1:]


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (quantity(0), "0"),
        (quantity(0.254), "0.254"),
        (quantity(12.34), "12.3"),
        (quantity(1234.5), "1,234"),
        (duration(0.00081), "0.81 ms"),
        (duration(0.0124), "12.4 ms"),
        (duration(2.5), "2.5 s"),
    ],
)
def test_words(shown: str, expected: str) -> None:
    assert shown == expected
