"""The first page: the state of the daemon in words; its log directories and largest topics."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, ClassVar

from kafkalog.broker.retention.retention import RETENTION_TASK
from kafkalog.console.alerts import alerts_of
from kafkalog.console.formatting import plural, relative
from kafkalog.console.view import Fragment, View
from kafkalog.console.views.daemon import LogDirView, TaskRow, log_dir_view, task_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

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
