"""Retention what-if: what would go of a topic under other limits, asked of the planner itself.

Nothing is changed. As things stand: no append, and each partition by itself, as the limits are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from kafkalog.errors import InvalidRequest, KafkalogError
from kafkalog.ui.partition_view import (
    DueView,
    PolicyView,
    ScheduleView,
    due_view,
    policy_view,
    schedule_view,
)
from kafkalog.ui.view import Fragment, View
from kafkalog.ui.words import plural, size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkalog.log.retention_forecast import Departure
    from kafkalog.manager.operations import Operations
    from kafkalog.manager.retention_report import RetentionSimulation

DEPARTURES_SHOWN = 200
PARTITIONS_SHOWN = 100
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

    Sums are over all partitions; ``partitions`` has the first PARTITIONS_SHOWN of them.
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
    curve: list[CurvePoint]

    @property
    def title(self) -> str:
        """See View."""
        return f"Retention of {self.topic}"


def retention_view(
    operations: Operations, topic: str, configs: Mapping[str, str], horizon_days: int
) -> RetentionView:
    """What goes within ``horizon_days``. UnknownTopic, InvalidTopicConfig. Blocks: may read."""
    now_ms, entries = operations.now_ms(), list[PartitionWhatIf]()
    going: list[Departure] = []
    for number in range(operations.partition_count(topic)):
        try:
            simulation = operations.simulate_retention(
                topic, number, configs, start_ms=None, horizon_ms=horizon_days * DAY_MS
            )
        except InvalidRequest:
            raise  # what was asked about is wrong, not the partition
        except KafkalogError as fault:
            entries.append(PartitionWhatIf(partition=number, fault=fault.public_message))
        else:
            entries.append(_entry(number, simulation))
            going += simulation.departures
    bytes_left = sum(each.bytes_left for each in entries)
    return RetentionView(
        now_ms=now_ms,
        topic=topic,
        configs=dict(configs),
        horizon_days=horizon_days,
        warnings=_warnings(entries),
        segments_going=sum(each.segments_going for each in entries),
        bytes_going=sum(each.bytes_going for each in entries),
        bytes_left=bytes_left,
        partition_count=len(entries),
        partitions=entries[:PARTITIONS_SHOWN],
        curve=_curve(going, bytes_left, now_ms, now_ms + horizon_days * DAY_MS),
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


def _warnings(entries: Sequence[PartitionWhatIf]) -> list[str]:
    """What makes these limits do less, or more, than they seem to."""
    known = [each for each in entries if each.policy is not None]
    warnings = []
    if any(each.schedule is None for each in known):
        warnings.append("No task looks at these logs: nothing is deleted.")
    policy = known[0].policy if known else None
    if policy is not None and not policy.is_deleted:
        warnings.append("cleanup.policy has no delete: no limit of time or size counts.")
    elif policy is not None and policy.retention_bytes >= 0 and len(entries) > 1:
        together = size(policy.retention_bytes * len(entries))
        warnings.append(
            f"retention.bytes counts for each partition: {len(entries)} of them may keep {together}"
            " and their active segments."
        )
    unknown = len(entries) - len(known)
    if unknown:
        warnings.append(f"{plural(unknown, 'partition')} not served and not counted.")
    return warnings


def _curve(
    going: Sequence[Departure], bytes_left: int, now_ms: int, end_ms: int
) -> list[CurvePoint]:
    """The bytes after each check that takes something, from now to the horizon."""
    falls = dict[int, int]()
    for each in going:
        at = each.due.latest_ms if each.due.expected_ms is None else each.due.expected_ms
        at = min(max(at, now_ms), end_ms)
        falls[at] = falls.get(at, 0) + each.facts.size_bytes
    size_bytes = bytes_left + sum(falls.values())
    points = [CurvePoint(moment_ms=now_ms, size_bytes=size_bytes)]
    for at in sorted(falls):
        size_bytes -= falls[at]
        points.append(CurvePoint(moment_ms=at, size_bytes=size_bytes))
    points.append(CurvePoint(moment_ms=end_ms, size_bytes=size_bytes))
    return points
