"""Goal: a what-if of any topic costs a bounded page, and its sums are of all segments.
Method: operations that answer simulations of any size; values that are made are counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
from pydantic import BaseModel

from kafkalog.broker.retention.report import RetentionSimulation
from kafkalog.console.views.retention import (
    CURVE_POINTS,
    DEPARTURES_SHOWN,
    PARTITIONS_SHOWN,
    RetentionView,
    retention_view,
)
from kafkalog.errors import LogDirOffline
from kafkalog.log.retention.forecast import Departure, Due, Schedule
from kafkalog.log.retention.plan import RetentionPolicy, Rule, SegmentFacts
from tests.unit.test_console_views import calls_of, page_of

if TYPE_CHECKING:
    from kafkalog.broker.operations import Operations

HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000


class Simulated:
    """Of ``partitions`` partitions ``segments`` go, one an hour each; partition 1 is offline."""

    def __init__(self, partitions: int, segments: int) -> None:
        self.partitions = partitions
        self.departures = [self._departure(number) for number in range(segments)]

    @staticmethod
    def _departure(number: int) -> Departure:
        at = NOW_MS + HOUR_MS * (number + 1)
        due = Due(at, at, at, at + 1)
        return Departure(SegmentFacts(number, number + 1, at - HOUR_MS), Rule.TIME, due)

    def now_ms(self) -> int:
        return NOW_MS

    def partition_count(self, _: str) -> int:
        return self.partitions

    def simulate_retention(self, topic: str, partition: int, *_: object, **__: object) -> object:
        if partition == 1:
            raise LogDirOffline(f"{topic}-{partition} is offline")
        return RetentionSimulation(
            NOW_MS,
            NOW_MS + 1,
            RetentionPolicy(True, HOUR_MS, 1000),
            Schedule(NOW_MS, HOUR_MS, 0),
            self.departures,
            1,
            7,
        )


def seen(partitions: int, segments: int) -> RetentionView:
    operations = cast("Operations", Simulated(partitions, segments))
    return retention_view(operations, "t", {}, 365)


@pytest.mark.slow
def test_a_large_topic_makes_a_page_of_a_bounded_size() -> None:
    """Who may look at a topic cannot fill the daemon's memory by asking what would go."""
    partitions, segments = PARTITIONS_SHOWN + 50, 1_000
    views: list[RetentionView] = []
    models = calls_of(BaseModel.__init__.__code__, lambda: views.append(seen(partitions, segments)))
    # A departure is two models, a partition three.
    assert models <= PARTITIONS_SHOWN * (2 * DEPARTURES_SHOWN + 3) + CURVE_POINTS + 1
    (view,) = views
    served, of_each = partitions - 1, segments * (segments + 1) // 2
    assert (view.partition_count, len(view.partitions)) == (partitions, PARTITIONS_SHOWN)
    assert view.segments_going == served * segments
    assert (view.bytes_going, view.bytes_left) == (served * of_each, served * 7)
    assert view.partitions[1].fault is not None
    assert any("1 partition not served" in each for each in view.warnings)
    assert (len(view.curve), view.curve_steps) == (CURVE_POINTS, segments + 2)
    first, last = view.curve[0], view.curve[-1]
    assert (first.moment_ms, first.size_bytes) == (NOW_MS, view.bytes_going + view.bytes_left)
    assert (last.moment_ms, last.size_bytes) == (NOW_MS + 365 * 24 * HOUR_MS, view.bytes_left)
    for point in view.curve[1:-1]:
        gone = (point.moment_ms - NOW_MS) // HOUR_MS
        assert first.size_bytes - point.size_bytes == served * gone * (gone + 1) // 2
    assert "400 of 1,002 points" in page_of(view)


def test_a_small_topic_is_shown_whole() -> None:
    """No check that takes something is left out where all have room."""
    view = seen(1, 20)
    assert len(view.curve) == view.curve_steps == 22
    sizes = [point.size_bytes for point in view.curve]
    assert sizes == [*(sum(range(step, 21)) + 7 for step in range(1, 22)), 7]
    assert len(view.partitions[0].departures) == 20
    assert "after each check that takes something" in page_of(view)
