"""Job ``whatif``: what retention would delete and compaction would save, over a fleet.

A task a partition. Retention: the daemon's planner and its forecast over facts that are read from
names, indexes and batch headers (``log.inspect.directory_facts``). Compaction: a dry run of the
daemon's cleaner over the directory as it is, its active segment rolled (both passes, no write).
Nothing in the directories is changed, and they may be served meanwhile; a partition that goes, or
whose segments are exchanged under a dry run, has no figures.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.cleaner.offline import preview_clean
from kafkalog.errors import KafkalogError
from kafkalog.jobs.compact import MAP_BYTES
from kafkalog.jobs.tasks import Job, run_job
from kafkalog.log.inspect.directory_facts import directory_facts
from kafkalog.log.retention.execute import policy_of
from kafkalog.log.retention.forecast import Schedule, departures
from kafkalog.log.retention.plan import plan
from kafkalog.spark.logs.object_store import filesystem_for, scheme_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from kafkalog.jobs.fleet import FleetPartition
    from kafkalog.jobs.tasks import Progress, Runner
    from kafkalog.log.retention.plan import LogFacts

CHECK_INTERVAL_MS = 300_000
"""As log.retention.check.interval.ms."""
LOOKS_MAX = 5
"""At a partition whose segments are exchanged meanwhile."""


@dataclass(frozen=True, slots=True)
class WhatifTask:
    """One partition under the configs that it would have; times are of the wall clock."""

    partition: FleetPartition
    now_ms: int
    horizon_ms: int
    with_compaction: bool
    map_bytes: int

    @property
    def label(self) -> str:
        """See Task."""
        return self.partition.label

    @property
    def size_bytes(self) -> int:
        """See Task: what a dry run reads; a forecast of retention reads next to nothing."""
        return self.partition.size_bytes if self.with_compaction else 0


class WhatifRow(NamedTuple):
    """One partition. None in the figures of compaction: not asked for, or not to be had.

    newest_ms             largest timestamp, of the file where no record has one
    due_*                 goes with the next check
    leaving_*             goes within the horizon, those included
    compacted_bytes       of the log after a round of the cleaner
    problem               why figures are missing
    """

    topic: str
    partition: int
    directory: str
    segments: int
    bytes: int
    log_start_offset: int
    log_end_offset: int
    newest_ms: int
    due_segments: int
    due_bytes: int
    leaving_segments: int
    leaving_bytes: int
    bytes_left: int
    compacted_bytes: int | None
    records_removed: int | None
    problem: str | None


def forecast(
    partitions: Sequence[FleetPartition],
    runner: Runner,
    *,
    now_ms: int,
    horizon_ms: int,
    with_compaction: bool = False,
    map_bytes: int = MAP_BYTES,
    progress: Progress | None = None,
) -> list[WhatifRow]:
    """A row a partition; ``map_bytes``: the offset map of a dry run. Raises TaskFailed."""
    tasks = [
        WhatifTask(each, now_ms, horizon_ms, with_compaction, map_bytes) for each in partitions
    ]
    job = Job("whatif", tasks, forecast_partition, merge=_present)
    return run_job(job, runner, progress)


def _present(rows: list[WhatifRow | None]) -> list[WhatifRow]:
    """Without partitions that were deleted since they were found."""
    return [row for row in rows if row is not None]


def forecast_partition(task: WhatifTask) -> WhatifRow | None:
    """The work of one task; None: it is no longer there. OSError."""
    partition = task.partition
    facts = _facts(partition)
    if facts is None:
        return None
    policy = policy_of(partition.config)
    due = plan(facts, policy, task.now_ms).deletions
    schedule = Schedule(task.now_ms, CHECK_INTERVAL_MS, 0)
    leaving = list(departures(facts, policy, task.now_ms, task.horizon_ms, schedule))
    leaving_bytes = sum(each.facts.size_bytes for each in leaving)
    row = WhatifRow(
        topic=partition.topic,
        partition=partition.partition,
        directory=partition.label,
        segments=len(facts.segments),
        bytes=facts.size_bytes,
        log_start_offset=facts.log_start_offset,
        log_end_offset=facts.log_end_offset,
        newest_ms=max(each.largest_timestamp_ms for each in facts.segments),
        due_segments=len(due),
        due_bytes=sum(each.size_bytes for each in facts.segments[: len(due)]),
        leaving_segments=len(leaving),
        leaving_bytes=leaving_bytes,
        bytes_left=facts.size_bytes - leaving_bytes,
        compacted_bytes=None,
        records_removed=None,
        problem=None,
    )
    return _with_compaction(row, task) if task.with_compaction else row


def _facts(partition: FleetPartition) -> LogFacts | None:
    """The facts of one look; None: no segment is there any more."""
    filesystem = filesystem_for([partition.directory])
    for look in range(LOOKS_MAX):
        try:
            return directory_facts(
                partition.directory,
                filesystem,
                partition.log_start_offset,
                partition.high_watermark,
            )
        except FileNotFoundError:  # a segment was deleted or exchanged, or the whole partition
            if look == LOOKS_MAX - 1 and filesystem.exists(partition.directory):
                raise
    return None


def _with_compaction(row: WhatifRow, task: WhatifTask) -> WhatifRow:
    """The row with what a round of the cleaner would leave."""
    partition = task.partition
    if scheme_of(partition.directory) is not None:
        return row._replace(problem="a dry run of the cleaner needs the directory on a disk")
    config = replace(partition.config, cleanup_policy=frozenset({"compact"}))
    try:
        stats = preview_clean(
            partition.directory,
            config,
            now_ms=task.now_ms,
            log_start=partition.log_start_offset,
            map_bytes=task.map_bytes,
        )
    except KafkalogError as error:
        return row._replace(problem=error.message)
    except OSError as error:
        return row._replace(problem=str(error))
    return row._replace(
        compacted_bytes=row.bytes - stats.bytes_read + stats.bytes_written,
        records_removed=stats.messages_read - stats.messages_written,
    )


def totals_of(rows: Sequence[WhatifRow]) -> dict[str, Any]:
    """The sums of a run; what has no figures counts as it is."""
    return {
        "partitions": len(rows),
        "bytes": sum(row.bytes for row in rows),
        "due_bytes": sum(row.due_bytes for row in rows),
        "leaving_bytes": sum(row.leaving_bytes for row in rows),
        "bytes_left": sum(row.bytes_left for row in rows),
        "compacted_bytes": sum(
            row.bytes if row.compacted_bytes is None else row.compacted_bytes for row in rows
        ),
        "problems": sum(row.problem is not None for row in rows),
    }
