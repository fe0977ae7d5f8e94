"""The first page: the state of the daemon in words; its log directories and largest topics.

An alert says in a sentence what needs an operator. The limits are those of the Prometheus alerts
(``deploy/prometheus/kafkalog.rules.yml``, for the default interval between retention checks), so
that the page and an alert do not contradict each other.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, ClassVar

from kafkalog.broker.retention.clock_hold import WHAT_TO_DO
from kafkalog.broker.retention.retention import RETENTION_TASK
from kafkalog.console.formatting import plural, relative
from kafkalog.console.view import Fragment, View
from kafkalog.console.views.daemon import LogDirView, TaskRow, log_dir_view, task_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalog.broker.compaction.cleaning import CleanerHealth
    from kafkalog.broker.operations import Operations
    from kafkalog.broker.values import LogDirDescription, Readiness


LARGEST = 10


class LargeTopic(Fragment):
    """A topic and the bytes of its logs in all directories, with copies that are being made."""

    name: str
    size_bytes: int


class OverviewView(View):
    """``troubles``: one sentence per alert, empty when healthy; ``sentence`` sums them up.

    ``topics`` are those that the caller may see; every other number is of all topics.
    """

    template: ClassVar[str] = "overview.html"
    heading: ClassVar[str] = "Overview"

    is_healthy: bool
    sentence: str
    troubles: list[str]
    cluster_id: str
    node_id: int
    topics: int
    partitions: int
    partitions_unserved: int
    log_bytes: int
    log_dirs: list[LogDirView]
    largest_topics: list[LargeTopic]


def overview_view(operations: Operations) -> OverviewView:
    """No disk; visits every partition."""
    now_ms = operations.now_ms()
    readiness, described = operations.readiness(), operations.log_dirs.describe()
    log_dirs = [log_dir_view(each) for each in described]
    tasks = task_rows(operations)
    health = operations.cleaning.health()
    alerts = alerts_of(readiness, log_dirs, tasks, health, now_ms)
    if operations.retention.clock_hold().logs:
        alerts.insert(0, f"the wall clock jumped and retention waits: {WHAT_TO_DO}")
    return OverviewView.of(
        readiness,
        operations,
        now_ms=now_ms,
        is_healthy=not alerts,
        sentence=_sentence(readiness, tasks, now_ms, is_healthy=not alerts),
        troubles=alerts,
        topics=len(operations.topic_names()),
        partitions_unserved=readiness.offline_partitions,
        log_bytes=sum(size.size_bytes for each in described for size in each.partitions),
        log_dirs=log_dirs,
        largest_topics=_largest(described),
    )


def _sentence(
    readiness: Readiness, tasks: Sequence[TaskRow], now_ms: int, *, is_healthy: bool
) -> str:
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
    return f"{'Healthy' if is_healthy else 'Needs attention'}: {', '.join(parts)}."


def _largest(log_dirs: Sequence[LogDirDescription]) -> list[LargeTopic]:
    sizes = Counter[str]()
    for log_dir in log_dirs:
        for each in log_dir.partitions:
            sizes[each.topic_partition.topic] += each.size_bytes
    return [LargeTopic(name=name, size_bytes=size) for name, size in sizes.most_common(LARGEST)]


# ---- alerts


LEAST_FREE_RATIO = 0.15
MISSED_CHECKS = 3
_LEAST_STALL_MS = 60_000  # three missed checks are not late when one is due every second
_ONE_SHOT_MS = 86_400_000  # how long the failure of a task that runs once is shown


def alerts_of(
    readiness: Readiness,
    log_dirs: Sequence[LogDirView],
    tasks: Sequence[TaskRow],
    cleaner: CleanerHealth,
    now_ms: int,
) -> list[str]:
    """Worst first; empty when healthy."""
    faulty = {each.log_dir for each in readiness.faults}
    alerts = [f"{each.log_dir} is {each.state}: {each.reason}" for each in readiness.faults]
    if readiness.offline_partitions:
        alerts.append(f"{plural(readiness.offline_partitions, 'partition')} not served")
    for each in log_dirs:
        if each.path not in faulty and each.used_ratio is not None:
            free_ratio = 1 - each.used_ratio
            if free_ratio < LEAST_FREE_RATIO:
                alerts.append(f"{each.path} has {free_ratio:.1%} free")
    alerts += [f"{name} is dead" for name in cleaner.dead_threads]
    if cleaner.failed_logs:
        logs = plural(cleaner.failed_logs, "log")
        alerts.append(f"{logs} not compacted because of an error: see Compaction")
    return alerts + list(_of_tasks(tasks, now_ms))


def _of_tasks(tasks: Sequence[TaskRow], now_ms: int) -> Iterator[str]:
    for each in tasks:
        failed_ms, period_ms = each.last_failure_ms, each.period_ms
        if each.is_failing and failed_ms is not None:
            # A task that runs once has no later run that could succeed.
            if period_ms is not None or now_ms - failed_ms <= _ONE_SHOT_MS:
                yield f"task {each.name} failed: {each.last_error}"
        elif each.name == RETENTION_TASK and period_ms is not None:
            known = (each.last_success_ms, each.last_run_ms, each.next_run_ms)
            # Since when the end of a run is expected.
            waited_ms = now_ms - next((at for at in known if at is not None), now_ms)
            if waited_ms > max(MISSED_CHECKS * period_ms, _LEAST_STALL_MS):
                ended_ms = each.last_success_ms
                if ended_ms is None:
                    yield "retention is stalled: no check has ended yet"
                else:
                    yield f"retention is stalled: its last check ended {relative(ended_ms, now_ms)}"
