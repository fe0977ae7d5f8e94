"""Alerts of the first page: what needs an operator, as sentences. Pure.

The limits are those of the Prometheus alerts (``deploy/prometheus/kafkalog.rules.yml``, for the
default interval between retention checks), so that the page and an alert do not contradict each
other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.broker.retention.retention import RETENTION_TASK
from kafkalog.console.formatting import plural, relative

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalog.broker.compaction.cleaning import CleanerHealth
    from kafkalog.broker.values import Readiness
    from kafkalog.console.views.daemon import LogDirView, TaskRow

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
            waited_ms = now_ms - _due_ms(each, now_ms)
            if waited_ms > max(MISSED_CHECKS * period_ms, _LEAST_STALL_MS):
                ended_ms = each.last_success_ms
                if ended_ms is None:
                    yield "retention is stalled: no check has ended yet"
                else:
                    yield f"retention is stalled: its last check ended {relative(ended_ms, now_ms)}"


def _due_ms(task: TaskRow, now_ms: int) -> int:
    """Since when the end of a run is expected."""
    known = (task.last_success_ms, task.last_run_ms, task.next_run_ms)
    return next((each for each in known if each is not None), now_ms)
