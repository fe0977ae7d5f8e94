"""Job ``whatif``: what retention would delete and compaction would save.

Each partition is one task. For retention it runs the daemon's planner and forecast over facts from
file names, indexes and batch headers (``log.inspect.directory_facts``). For compaction it does a
dry run of the daemon's cleaner, with the active segment rolled: both passes, without writing.
Nothing in the directories is changed, and they may be served meanwhile. A partition has no figures
if it is deleted, or if its segments are replaced during the dry run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.cleaner.offline import preview_clean
from kafkalog.errors import KafkalogError
from kafkalog.jobs.attempts import reason_of
from kafkalog.jobs.compact import MAP_BYTES
from kafkalog.jobs.fleet import sums
from kafkalog.jobs.tasks import run_job
from kafkalog.log.inspect.directory_facts import directory_facts
from kafkalog.log.retention.execute import policy_of
from kafkalog.log.retention.forecast import Schedule, departures
from kafkalog.log.retention.plan import plan
from kafkalog.spark.logs.object_store import filesystem_for, scheme_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.jobs.fleet import FleetPartition
    from kafkalog.jobs.tasks import Runner
    from kafkalog.log.retention.plan import LogFacts

CHECK_INTERVAL_MS = 300_000
"""As log.retention.check.interval.ms."""
TRIES_MAX = 5
"""Tries for a partition whose segments are replaced meanwhile."""


@dataclass(frozen=True, slots=True)
class WhatifTask:
    """One partition with the topic configs to try; times are of the wall clock."""

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
        """See Task: a dry run reads everything, a forecast of retention almost nothing.

        Not 0: Spark gets tasks without a size in one pack, which one slot would do alone.
        """
        return self.partition.size_bytes if self.with_compaction else 1


class WhatifRow(NamedTuple):
    """One partition. Figures of compaction are None if not requested or not available.

    newest_ms             largest timestamp; of the file if no record has one
    due_*                 the next retention check deletes them
    leaving_*             deleted within the horizon, with those that are due
    compacted_bytes       bytes of the log after a round of the cleaner
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
) -> list[WhatifRow]:
    """A row for each partition; ``map_bytes``: offset map of a dry run. Raises TaskFailed."""
    tasks = [
        WhatifTask(each, now_ms, horizon_ms, with_compaction, map_bytes) for each in partitions
    ]
    rows: list[WhatifRow | None] = run_job("whatif", tasks, forecast_partition, list, runner)
    return [row for row in rows if row is not None]


def forecast_partition(task: WhatifTask) -> WhatifRow | None:
    """The work of one task; None: the partition was deleted. Raises OSError."""
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
    """The facts of a partition at one time; None: it was deleted."""
    filesystem = filesystem_for([partition.directory])
    for tries in range(TRIES_MAX):
        try:
            return directory_facts(
                partition.directory,
                filesystem,
                partition.log_start_offset,
                partition.high_watermark,
            )
        except FileNotFoundError:  # a segment was deleted or replaced, or the whole partition
            if tries == TRIES_MAX - 1 and filesystem.exists(partition.directory):
                raise
    return None


def _with_compaction(row: WhatifRow, task: WhatifTask) -> WhatifRow:
    """The row with the figures of a dry run."""
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
        return row._replace(problem=reason_of(error))
    return row._replace(
        compacted_bytes=row.bytes - stats.bytes_read + stats.bytes_written,
        records_removed=stats.messages_read - stats.messages_written,
    )


def totals_of(rows: Sequence[WhatifRow]) -> dict[str, int]:
    """The sums of a run; a partition without figures of compaction counts with its bytes."""
    kept = sum(row.bytes for row in rows if row.compacted_bytes is None)
    found = sums(rows, "bytes", "due_bytes", "leaving_bytes", "bytes_left", "compacted_bytes")
    found["compacted_bytes"] += kept
    return {**found, "problems": sum(row.problem is not None for row in rows)}
