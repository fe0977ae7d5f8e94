"""The first page: what needs attention, the traffic of the last hour, directories, largest topics.

An alert says in a sentence what needs an operator, and names the runbook. The limits are those of
the Prometheus alerts (``deploy/prometheus/kafkalog.rules.yml``, for the default interval between
retention checks), so that the page and an alert do not contradict each other.
"""

from __future__ import annotations

import statistics
from collections import Counter
from typing import TYPE_CHECKING, ClassVar

from kafkalog.broker.retention.clock_hold import WHAT_TO_DO
from kafkalog.broker.retention.retention import RETENTION_TASK
from kafkalog.console.assets import runbooks
from kafkalog.console.charts import LEAST_SAMPLES, Chart, Unit, lay_out_chart, spark, thinned
from kafkalog.console.formatting import number, percent, plural, relative, span, visible
from kafkalog.console.view import Fragment, View, listed_topics
from kafkalog.console.views.daemon import LogDirView, TaskRow, log_dir_view, runbook_rows, task_rows
from kafkalog.format.topic_names import is_internal
from kafkalog.observe.history import HOUR_MS, TrafficRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kafkalog.broker.compaction.cleaning import CleanerHealth
    from kafkalog.broker.groups.lags import GroupHealth
    from kafkalog.broker.operations import Operations
    from kafkalog.broker.values import LogDirDescription, Readiness, UncleanStart
    from kafkalog.observe.history import TrafficHistory


LARGEST = 8
POINTS = 120
"""How many of the samples of an hour a curve has."""
_TABLE_ROWS = 12
_LEAST_MIDDLE_MS = 120_000  # of an axis with a word in its middle


class LargeTopic(Fragment):
    """A topic and the bytes of its logs in all directories, with copies that are being made.

    ``size_bytes`` is of its served partitions: it has at least that; null: none is known.
    """

    name: str
    is_internal: bool
    partitions_unserved: int
    size_bytes: int | None
    bytes_in: list[float]

    @property
    def spark(self) -> str:
        """Its appends of the last hour as a drawing."""
        return spark(self.bytes_in)


class AlertView(Fragment):
    """What needs an operator. ``runbook``: the name of what to do; null: there is none.

    ``is_critical``: as the index of the runbooks says, like the rule of Prometheus; else a warning.
    """

    sentence: str
    is_critical: bool = False
    runbook: str | None = None


class UncleanStartView(Fragment):
    """What the last start had to recover."""

    log_dirs: int
    partitions: int
    bytes_recovered: int
    bytes_cut: int
    ended_ms: int
    runbook: str | None


class TrafficView(Fragment):
    """Rates per second up to ``at_ms``; p99 null: nothing ended."""

    at_ms: int
    records_in: float
    append_requests: float
    fetch_requests: float
    bytes_in: float
    bytes_out: float
    append_p99_seconds: float | None
    fetch_p99_seconds: float | None


class OverviewView(View):
    """``alerts``: the worst first, empty when healthy; ``troubles``: their sentences.

    ``sentence`` sums up: the first alert, or that all is well; ``service``: what is served.

    ``traffic`` is of the last hour, oldest first; empty within ten seconds after the start.
    ``traffic_since_ms``: an hour ago, or when a younger daemon began to take samples. What topics
    have in counts since then, too.
    ``unclean_start``: what a start of the last day had to recover; null: it was clean.

    ``topics`` are those that the caller may see, ``topics_unserved`` those of them of which not
    every partition is served; every other number is of all topics. ``log_bytes`` are those of the
    directories that are online.
    """

    template: ClassVar[str] = "overview.html"
    heading: ClassVar[str] = "Overview"

    is_healthy: bool
    sentence: str
    service: str
    troubles: list[str]
    alerts: list[AlertView]
    unclean_start: UncleanStartView | None
    traffic: list[TrafficView]
    traffic_since_ms: int
    cluster_id: str
    node_id: int
    topics: int
    internal_topics: int
    partitions: int
    partitions_unserved: int
    topics_unserved: int
    log_bytes: int
    log_dirs: list[LogDirView]
    largest_topics: list[LargeTopic]

    @property
    def charts(self) -> list[Chart]:
        """The drawings of the traffic."""

        def series(field: str) -> list[tuple[int, float | None]]:
            return [(each.at_ms, getattr(each, field)) for each in self.traffic]

        return [
            lay_out_chart(
                name,
                unit,
                {line: series(field) for line, field in lines.items()},
                self.traffic_since_ms,
                self.now_ms,
                least_samples=LEAST_SAMPLES,
            )
            for name, unit, lines in _CHARTS
        ]

    @property
    def axis(self) -> list[str]:
        """The words below a drawing, from left to right."""
        span_ms = self.now_ms - self.traffic_since_ms
        if span_ms >= HOUR_MS:
            return ["−60 min", "−40", "−20", "now"]
        middle = [f"−{span(span_ms // 2)}"] if span_ms >= _LEAST_MIDDLE_MS else []
        return [f"start, −{span(span_ms)}", *middle, "now"]

    @property
    def table(self) -> list[TrafficView]:
        """The traffic in few rows."""
        return _thinned(self.traffic, _TABLE_ROWS)


_CHARTS = (
    ("Records appended", Unit.RATE, {"records": "records_in"}),
    ("Requests", Unit.RATE, {"append": "append_requests", "fetch": "fetch_requests"}),
    ("Bytes", Unit.BYTE_RATE, {"in": "bytes_in", "out": "bytes_out"}),
    (
        "Latency, 99th percentile",
        Unit.SECONDS,
        {"append": "append_p99_seconds", "read": "fetch_p99_seconds"},
    ),
)


def _thinned(rows: Sequence[TrafficRow | TrafficView], most: int) -> list[TrafficView]:
    """At most so many: rates are means, a latency is the worst."""
    columns = []
    for field in TrafficRow._fields[1:]:
        combine: Callable[[Sequence[float]], float] = (
            max if field.endswith("_seconds") else statistics.fmean
        )
        points = [(row.at_ms, getattr(row, field)) for row in rows]
        columns.append([value for _, value in thinned(points, most, combine)])
    times = [at for at, _ in thinned([(row.at_ms, None) for row in rows], most, max)]
    return [
        TrafficView(**dict(zip(TrafficRow._fields, row, strict=True)))
        for row in zip(times, *columns, strict=True)
    ]


def overview_view(operations: Operations) -> OverviewView:
    """No disk; visits every partition."""
    now_ms, names = operations.now_ms(), operations.topic_names()
    readiness, described = operations.readiness(), operations.log_dirs.describe()
    history = operations.history()
    log_dirs = [log_dir_view(each, history) for each in described]
    tasks = task_rows(operations)
    health = operations.cleaning.health()
    alerts = alerts_of(readiness, log_dirs, tasks, health, now_ms)
    alerts += alerts_of_groups(operations.group_health())
    if operations.retention.clock_hold().logs:
        sentence = f"the wall clock jumped and retention waits: {WHAT_TO_DO}"
        alerts.append(_alert(sentence, "KafkalogRetentionHeldByClock"))
    alerts.sort(key=lambda each: not each.is_critical)
    rows = history.rows()
    service = _service(readiness, tasks, now_ms)
    unserved = Counter(
        each.name
        for each in (operations.partitions() if readiness.offline_partitions else ())
        if each.fault is not None
    )
    return OverviewView.of(
        readiness,
        operations,
        now_ms=now_ms,
        is_healthy=not alerts,
        sentence=_summary(alerts) if alerts else f"Healthy: {service}",
        service=service,
        troubles=[each.sentence for each in alerts],
        alerts=alerts,
        unclean_start=_unclean_start(operations.unclean_start()),
        traffic=_thinned(rows, POINTS),
        traffic_since_ms=history.since_ms(now_ms),
        topics=len(names),
        internal_topics=listed_topics(names, with_internal=False)[1],
        partitions_unserved=readiness.offline_partitions,
        topics_unserved=len(unserved),
        log_bytes=sum(size.size_bytes for each in described for size in each.partitions),
        log_dirs=log_dirs,
        largest_topics=_largest(history, described, unserved),
    )


def _unclean_start(found: UncleanStart | None) -> UncleanStartView | None:
    if found is None:
        return None
    runbook = "KafkalogUncleanStart"
    return UncleanStartView.of(found, runbook=runbook if runbook in runbooks() else None)


def _summary(alerts: Sequence[AlertView]) -> str:
    """Of one or more."""
    more = len(alerts) - 1
    return f"Needs attention: {alerts[0].sentence}{f'; {number(more)} more' if more else ''}"


def _service(readiness: Readiness, tasks: Sequence[TaskRow], now_ms: int) -> str:
    every = readiness.online_dirs + readiness.offline_dirs
    parts = [
        f"{readiness.online_dirs} of {plural(every, 'log directory', 'log directories')} online",
        f"{plural(readiness.partitions, 'partition')} served",
    ]
    for task in tasks:
        if task.name == RETENTION_TASK:
            if task.last_run_ms is None:
                parts.append("retention has not run yet")
            else:
                parts.append(f"retention ran {relative(task.last_run_ms, now_ms)}")
            if task.next_run_ms is not None:
                parts.append(f"next {relative(task.next_run_ms, now_ms)}")
    return f"{', '.join(parts)}."


def _largest(
    history: TrafficHistory, log_dirs: Sequence[LogDirDescription], unserved: Counter[str]
) -> list[LargeTopic]:
    """By the right of the cluster, as all of the page: none of the topics themselves is asked.

    ``unserved``: partitions by topic; those of unknown size come last.
    """
    sizes = Counter(dict.fromkeys(unserved, 0))
    for log_dir in log_dirs:
        for each in log_dir.partitions:
            sizes[each.topic_partition.topic] += each.size_bytes
    return [
        LargeTopic(
            name=name,
            is_internal=is_internal(name),
            partitions_unserved=unserved[name],
            size_bytes=size or (None if unserved[name] else 0),
            bytes_in=list(history.topic_bytes_known(name)),
        )
        for name, size in sizes.most_common(LARGEST)
    ]


# ---- alerts


LEAST_FREE_RATIO = 0.15
_CRITICAL_FREE_RATIO = 0.05
MISSED_CHECKS = 3
LEAST_LEFT_RATIO = 0.2
GROUPS_SHOWN = 5
_LEAST_STALL_MS = 60_000  # three missed checks are not late when one is due every second
_ONE_SHOT_MS = 86_400_000  # how long the failure of a task that runs once is shown
_RUNBOOK_OF_FAULT = {"full": "disk-full", "low": "disk-full"}


def _alert(sentence: str, runbook: str) -> AlertView:
    """As severe as its runbook."""
    is_critical = {each.name: each.severity for each in runbook_rows()}[runbook] == "critical"
    return AlertView(sentence=sentence, is_critical=is_critical, runbook=runbook)


def alerts_of(
    readiness: Readiness,
    log_dirs: Sequence[LogDirView],
    tasks: Sequence[TaskRow],
    cleaner: CleanerHealth,
    now_ms: int,
) -> list[AlertView]:
    """Empty when healthy."""
    faulty = {each.log_dir for each in readiness.faults}
    alerts = [
        _alert(
            f"{each.log_dir} is {each.state}: {each.reason}",
            _RUNBOOK_OF_FAULT.get(each.state, "KafkalogLogDirOffline"),
        )
        for each in readiness.faults
    ]
    if readiness.offline_partitions:
        unserved = f"{plural(readiness.offline_partitions, 'partition')} not served"
        alerts.append(_alert(unserved, "KafkalogPartitionsOffline"))
    for each in log_dirs:
        if each.path not in faulty and each.used_ratio is not None:
            available_ratio = 1 - each.used_ratio
            if available_ratio < LEAST_FREE_RATIO:
                is_low = available_ratio >= _CRITICAL_FREE_RATIO
                runbook = "KafkalogDiskLow" if is_low else "KafkalogDiskCritical"
                sentence = f"{each.path} has {percent(available_ratio)} available"
                alerts.append(_alert(sentence, runbook))
    alerts += [
        _alert(f"{name} is dead", "KafkalogCleanerThreadDead") for name in cleaner.dead_threads
    ]
    if cleaner.failed_logs:
        logs = plural(cleaner.failed_logs, "log")
        sentence = f"{logs} not compacted because of an error: see Compaction"
        alerts.append(_alert(sentence, "uncleanable-log"))
    return alerts + list(_of_tasks(tasks, now_ms))


def alerts_of_groups(health: GroupHealth) -> list[AlertView]:
    """Those near retention, then those that fall behind, the nearest and furthest first."""
    near = sorted(
        (each.left, each.group, each.topic, each.deleted)
        for each in health.samples
        if each.left is not None and each.left < LEAST_LEFT_RATIO
    )
    rising = sorted(health.rising.items(), key=lambda each: (-each[1], each[0]))
    return [
        *_of_groups(
            "KafkalogGroupNearRetention",
            [
                f"group {visible(str(group))} has not read records of {topic} that retention"
                f" deletes soon: {left:.0%} of the limit is left"
                + (f"; {plural(deleted, 'offset')} deleted unread" if deleted else "")
                for left, group, topic, deleted in near
            ],
        ),
        *_of_groups(
            "KafkalogGroupFallsBehind",
            [
                f"group {visible(group)} is {plural(lag, 'record')} behind and falls further behind"
                for group, lag in rising
            ],
        ),
    ]


def _of_groups(runbook: str, sentences: Sequence[str]) -> Iterator[AlertView]:
    """The first GROUPS_SHOWN of one kind, and how many there are besides."""
    for sentence in sentences[:GROUPS_SHOWN]:
        yield _alert(sentence, runbook)
    more = len(sentences) - GROUPS_SHOWN
    if more > 0:
        yield _alert(f"{number(more)} more of these: see Groups, by lag", runbook)


def _of_tasks(tasks: Sequence[TaskRow], now_ms: int) -> Iterator[AlertView]:
    for each in tasks:
        failed_ms, period_ms = each.last_failure_ms, each.period_ms
        if each.is_failing and failed_ms is not None:
            # A task that runs once has no later run that could succeed.
            if period_ms is not None or now_ms - failed_ms <= _ONE_SHOT_MS:
                # One failed check is not a stall yet: a warning.
                runbook = "KafkalogRetentionStalled" if each.name == RETENTION_TASK else None
                sentence = f"task {each.name} failed: {each.last_error}"
                yield AlertView(sentence=sentence, is_critical=False, runbook=runbook)
        elif each.name == RETENTION_TASK and period_ms is not None:
            known = (each.last_success_ms, each.last_run_ms, each.next_run_ms)
            # Since when the end of a run is expected.
            waited_ms = now_ms - next((at for at in known if at is not None), now_ms)
            if waited_ms > max(MISSED_CHECKS * period_ms, _LEAST_STALL_MS):
                ended_ms = each.last_success_ms
                if ended_ms is None:
                    sentence = "retention is stalled: no check has ended yet"
                else:
                    ended = relative(ended_ms, now_ms)
                    sentence = f"retention is stalled: its last check ended {ended}"
                yield _alert(sentence, "KafkalogRetentionStalled")
