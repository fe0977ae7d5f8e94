"""Retention what-if: what would go of a topic under other limits, asked of the planner itself.

Nothing is changed. As things stand: no append, and each partition by itself, as the limits are.
A topic may have any number of segments: what a page shows and what is kept to make it are bounded,
its sums are of all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from kafkalog.console.formatting import plural, size
from kafkalog.console.view import Fragment, View
from kafkalog.console.views.partition import (
    DueView,
    PolicyView,
    ScheduleView,
    due_view,
    policy_view,
    schedule_view,
)
from kafkalog.errors import InvalidRequest, KafkalogError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.broker.operations import Operations
    from kafkalog.broker.retention.report import RetentionSimulation
    from kafkalog.log.retention.plan import RetentionPolicy

DEPARTURES_SHOWN = 200
PARTITIONS_SHOWN = 100
CURVE_POINTS = 400
DAY_MS = 86_400_000


class DepartureView(Fragment):
    """A segment that would go."""

    base_offset: int
    size_bytes: int
    rule: str
    due: DueView | None


class PartitionWhatIf(Fragment):
    """One partition; ``fault``: why nobody knows. ``departures``: the first DEPARTURES_SHOWN."""

    partition: int
    fault: str | None = None
    policy: PolicyView | None = None
    schedule: ScheduleView | None = None
    departures: list[DepartureView] = Field(default_factory=list)
    segments_going: int = 0
    segments_left: int = 0
    bytes_going: int = 0
    bytes_left: int = 0


class CurvePoint(Fragment):
    """Bytes of the whole topic from a moment on."""

    moment_ms: int
    size_bytes: int


class RetentionView(View):
    """``configs`` are those that were asked about, over the topic's own.

    Sums are over all partitions; ``partitions`` has the first PARTITIONS_SHOWN of them, ``curve``
    CURVE_POINTS of ``curve_steps`` points: each is exact, the first and the last are there.
    """

    template: ClassVar[str] = "retention.html"

    topic: str
    configs: dict[str, str]
    horizon_days: int
    warnings: list[str]
    segments_going: int
    bytes_going: int
    bytes_left: int
    partition_count: int
    partitions: list[PartitionWhatIf]
    curve_steps: int
    curve: list[CurvePoint]

    @property
    def title(self) -> str:
        """See View."""
        return f"Retention of {self.topic}"


class _Sums:
    """Over the partitions so far; nothing is kept of a segment but the moment when its bytes go."""

    def __init__(self, now_ms: int, end_ms: int) -> None:
        self.span_ms = (now_ms, end_ms)
        self.partitions = 0
        self.unknown = 0  # partitions that nothing was added of
        self.unscheduled = 0
        self.policy: RetentionPolicy | None = None
        self.segments_going = 0
        self.bytes_left = 0
        self.falls = dict[int, int]()  # bytes, by the moment of the check that takes them

    @property
    def bytes_going(self) -> int:
        """Within the span."""
        return sum(self.falls.values())

    def add(self, simulation: RetentionSimulation) -> None:
        """One partition's."""
        now_ms, end_ms = self.span_ms
        self.policy = self.policy or simulation.policy
        self.unscheduled += simulation.schedule is None
        self.segments_going += len(simulation.departures)
        self.bytes_left += simulation.bytes_left
        for each in simulation.departures:
            at = each.due.latest_ms if each.due.expected_ms is None else each.due.expected_ms
            at = min(max(at, now_ms), end_ms)
            self.falls[at] = self.falls.get(at, 0) + each.facts.size_bytes


def retention_view(
    operations: Operations, topic: str, configs: Mapping[str, str], horizon_days: int
) -> RetentionView:
    """What goes within ``horizon_days``. UnknownTopic, InvalidTopicConfig. Blocks: may read."""
    now_ms, entries = operations.now_ms(), list[PartitionWhatIf]()
    sums = _Sums(now_ms, now_ms + horizon_days * DAY_MS)
    for number in range(operations.partition_count(topic)):
        sums.partitions += 1
        try:
            simulation = operations.simulate_retention(
                topic, number, configs, start_ms=None, horizon_ms=horizon_days * DAY_MS
            )
        except InvalidRequest:
            raise  # what was asked about is wrong, not the partition
        except KafkalogError as fault:
            sums.unknown += 1
            if number < PARTITIONS_SHOWN:
                entries.append(PartitionWhatIf(partition=number, fault=fault.public_message))
        else:
            sums.add(simulation)
            if number < PARTITIONS_SHOWN:
                entries.append(_entry(number, simulation))
    points = _points(sums)
    return RetentionView(
        now_ms=now_ms,
        topic=topic,
        configs=dict(configs),
        horizon_days=horizon_days,
        warnings=_warnings(sums),
        segments_going=sums.segments_going,
        bytes_going=sums.bytes_going,
        bytes_left=sums.bytes_left,
        partition_count=sums.partitions,
        partitions=entries,
        curve_steps=len(points),
        curve=[CurvePoint(moment_ms=at, size_bytes=left) for at, left in _thinned(points)],
    )


def _entry(number: int, simulation: RetentionSimulation) -> PartitionWhatIf:
    going = simulation.departures
    return PartitionWhatIf(
        partition=number,
        policy=policy_view(simulation.policy),
        schedule=schedule_view(simulation.schedule),
        departures=[
            DepartureView(
                base_offset=each.facts.base_offset,
                size_bytes=each.facts.size_bytes,
                rule=each.rule.value,
                due=due_view(each.due),
            )
            for each in going[:DEPARTURES_SHOWN]
        ],
        segments_going=len(going),
        segments_left=simulation.segments_left,
        bytes_going=sum(each.facts.size_bytes for each in going),
        bytes_left=simulation.bytes_left,
    )


def _warnings(sums: _Sums) -> list[str]:
    """What makes these limits do less, or more, than they seem to."""
    warnings = []
    if sums.unscheduled:
        warnings.append("No task looks at these logs: nothing is deleted.")
    policy = sums.policy
    if policy is not None and not policy.is_deleted:
        warnings.append("cleanup.policy has no delete: no limit of time or size counts.")
    elif policy is not None and policy.retention_bytes >= 0 and sums.partitions > 1:
        together = size(policy.retention_bytes * sums.partitions)
        warnings.append(
            f"retention.bytes counts for each partition: {sums.partitions} of them may keep "
            f"{together} and their active segments."
        )
    if sums.unknown:
        warnings.append(f"{plural(sums.unknown, 'partition')} not served and not counted.")
    return warnings


def _points(sums: _Sums) -> list[tuple[int, int]]:
    """From when on how many bytes are left: now, each check that takes something, the end."""
    now_ms, end_ms = sums.span_ms
    size_bytes = sums.bytes_left + sums.bytes_going
    points = [(now_ms, size_bytes)]
    for at in sorted(sums.falls):
        size_bytes -= sums.falls[at]
        points.append((at, size_bytes))
    return [*points, (end_ms, size_bytes)]


def _thinned(points: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """CURVE_POINTS of them at most, evenly by their number, the first and the last among them."""
    if len(points) <= CURVE_POINTS:
        return points
    last = len(points) - 1
    return [points[step * last // (CURVE_POINTS - 1)] for step in range(CURVE_POINTS)]
