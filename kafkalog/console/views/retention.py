"""Retention: the checks and what they find, by topic; and the what-if of one topic.

What-if: what retention would delete of a topic under other limits.

The planner of the retention pass answers; nothing is changed. It assumes that nothing is appended,
and plans each partition by itself, as the limits are per partition. A topic may have any number of
segments: the lists of a page and the memory to make it are bounded, its sums are of all segments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from kafkalog.broker.retention.retention import RETENTION_TASK
from kafkalog.console.charts import Chart, Unit, lay_out_chart
from kafkalog.console.formatting import plural, size
from kafkalog.console.view import Fragment, View
from kafkalog.console.views.daemon import TaskRow, task_rows
from kafkalog.console.views.partition import DepartureView, PolicyView, ScheduleView
from kafkalog.console.views.topics import TopicOrder, TopicRow, topics_view
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
LIMITS = ("retention.ms", "retention.bytes", "cleanup.policy")
"""Topic configs that a what-if may have other values for."""


class PartitionWhatIf(Fragment):
    """One partition, with its first DEPARTURES_SHOWN departures; ``fault``: why it has no plan."""

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
    """Bytes of the whole topic from a time on."""

    moment_ms: int
    size_bytes: int


class RetentionView(View):
    """``configs`` are those of the request, which take precedence over the topic's own.

    refusal         why they mean nothing: everything else is of the topic's own
    segments_next, bytes_next  that the next check deletes, of those within ``horizon_days``
    Sums are over all partitions; ``partitions`` has the first PARTITIONS_SHOWN of them, ``curve``
    CURVE_POINTS of ``curve_steps`` points, among them the first and the last; each is exact.
    """

    template: ClassVar[str] = "retention.html"
    heading: ClassVar[str] = "Retention of {topic}"
    limits: ClassVar[tuple[str, ...]] = LIMITS

    topic: str
    topic_id: str
    configs: dict[str, str]
    refusal: str | None
    horizon_days: int
    warnings: list[str]
    segments_next: int
    bytes_next: int
    segments_going: int
    bytes_going: int
    bytes_left: int
    partition_count: int
    partitions: list[PartitionWhatIf]
    curve_steps: int
    curve: list[CurvePoint]

    @property
    def chart(self) -> Chart:
        """The drawing of the curve."""
        points = [(each.moment_ms, float(each.size_bytes)) for each in self.curve]
        span_ms = points[0][0], points[-1][0]
        name = f"Bytes of {self.topic}"
        return lay_out_chart(name, Unit.BYTES, {name: points}, *span_ms, is_stepped=True)


class _Sums:
    """Over the partitions so far; of a segment only the time of its deletion is kept."""

    def __init__(self, now_ms: int, end_ms: int) -> None:
        self.span_ms = (now_ms, end_ms)
        self.partitions = 0
        self.unknown = 0  # partitions that are in no sum
        self.unscheduled = 0
        self.policy: RetentionPolicy | None = None
        self.segments_next = 0
        self.bytes_next = 0
        self.segments_going = 0
        self.bytes_left = 0
        self.deletions = dict[int, int]()  # bytes, by the time of the check that deletes them

    @property
    def bytes_going(self) -> int:
        """Bytes deleted within the span."""
        return sum(self.deletions.values())

    def add(self, simulation: RetentionSimulation) -> None:
        """Add one partition."""
        now_ms, end_ms = self.span_ms
        self.policy = self.policy or simulation.policy
        self.unscheduled += simulation.schedule is None
        self.segments_going += len(simulation.departures)
        self.bytes_left += simulation.bytes_left
        for each in simulation.departures:
            at = each.due.latest_ms if each.due.expected_ms is None else each.due.expected_ms
            if simulation.schedule is not None:
                next_ms = simulation.schedule.next_check_ms
                is_next = each.due.moment_ms <= (now_ms if next_ms is None else next_ms)
                self.segments_next += is_next
                self.bytes_next += is_next * each.facts.size_bytes
            at = min(max(at, now_ms), end_ms)
            self.deletions[at] = self.deletions.get(at, 0) + each.facts.size_bytes


def retention_view(
    operations: Operations, topic: str, configs: Mapping[str, str], horizon_days: int
) -> RetentionView:
    """What is deleted within ``horizon_days``. Blocks. Raises UnknownTopic, InvalidTopicConfig."""
    now_ms, entries = operations.now_ms(), list[PartitionWhatIf]()
    sums = _Sums(now_ms, now_ms + horizon_days * DAY_MS)
    for number in range(operations.partition_count(topic)):
        sums.partitions += 1
        try:
            simulation = operations.retention.simulate(
                topic, number, configs, start_ms=None, horizon_ms=horizon_days * DAY_MS
            )
        except InvalidRequest:
            raise  # the request is wrong, not the partition
        except KafkalogError as fault:
            sums.unknown += 1
            if number < PARTITIONS_SHOWN:
                entries.append(PartitionWhatIf(partition=number, fault=fault.public_message))
        else:
            sums.add(simulation)
            if number < PARTITIONS_SHOWN:
                entries.append(_entry(number, simulation))
    points = _points(sums)
    return RetentionView.of(
        sums,
        now_ms=now_ms,
        topic=topic,
        topic_id=operations.topics.describe(topic).topic_id,
        configs=dict(configs),
        horizon_days=horizon_days,
        warnings=_warnings(sums),
        partition_count=sums.partitions,
        partitions=entries,
        curve_steps=len(points),
        curve=[CurvePoint(moment_ms=at, size_bytes=left) for at, left in _thinned(points)],
    )


def _entry(number: int, simulation: RetentionSimulation) -> PartitionWhatIf:
    departures = simulation.departures
    return PartitionWhatIf.of(
        simulation,
        partition=number,
        departures=[DepartureView.of(each, each.facts) for each in departures[:DEPARTURES_SHOWN]],
        segments_going=len(departures),
        bytes_going=sum(each.facts.size_bytes for each in departures),
    )


def _warnings(sums: _Sums) -> list[str]:
    """Why these limits delete less, or more, than they seem to."""
    warnings = []
    if sums.unscheduled:
        warnings.append("No task checks these logs: nothing is deleted.")
    policy = sums.policy
    if policy is not None and not policy.is_deleted:
        warnings.append("cleanup.policy has no delete: limits of time and size have no effect.")
    elif policy is not None and policy.retention_bytes >= 0 and sums.partitions > 1:
        together = size(policy.retention_bytes * sums.partitions)
        warnings.append(
            f"retention.bytes is per partition: {sums.partitions} partitions may keep "
            f"{together} and their active segments."
        )
    if sums.unknown:
        warnings.append(f"Not counted because not served: {plural(sums.unknown, 'partition')}.")
    return warnings


def _points(sums: _Sums) -> list[tuple[int, int]]:
    """The bytes left at times: now, at each check that deletes something, at the end."""
    now_ms, end_ms = sums.span_ms
    size_bytes = sums.bytes_left + sums.bytes_going
    points = [(now_ms, size_bytes)]
    for at in sorted(sums.deletions):
        size_bytes -= sums.deletions[at]
        points.append((at, size_bytes))
    return [*points, (end_ms, size_bytes)]


def _thinned(points: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """At most CURVE_POINTS of them, evenly chosen, among them the first and the last."""
    if len(points) <= CURVE_POINTS:
        return points
    last = len(points) - 1
    return [points[step * last // (CURVE_POINTS - 1)] for step in range(CURVE_POINTS)]


# ---- all topics


class RetentionsView(View):
    """Topics by their oldest record, a hundred a page.

    task             the retention check; null: there is none
    deletable_bytes  of topics that have some now and the caller may see, as the metrics task saw
                     it last, without what was deleted since
    """

    template: ClassVar[str] = "retentions.html"
    heading: ClassVar[str] = "Retention"

    name_contains: str
    with_internal: bool
    internal_hidden: int
    task: TaskRow | None
    deletable_bytes: dict[str, int]
    total: int
    page: int
    pages: int
    topics: list[TopicRow]


def retentions_view(
    operations: Operations, name_contains: str, page: int, *, with_internal: bool = False
) -> RetentionsView:
    """Page ``page`` (from 1). No disk; visits every partition."""
    topics = topics_view(
        operations, name_contains, TopicOrder.OLDEST, page, with_internal=with_internal
    )
    # The snapshot is of all topics, and a right of the cluster: it may not name what is not listed.
    deletable = dict.fromkeys(operations.topic_names(), 0)
    for each in operations.metrics_snapshot().deletable:
        if each.topic in deletable:
            deletable[each.topic] += each.size_bytes
    tasks = (each for each in task_rows(operations) if each.name == RETENTION_TASK)
    return RetentionsView.of(
        topics, task=next(tasks, None), deletable_bytes={k: v for k, v in deletable.items() if v}
    )
