"""Job ``archive``: what is new in topics goes into a table, exactly once.

Each partition is taken from where the table says that it ends, up to what is committed, durable
and, if asked, old enough. Pieces of log become Parquet files, in parallel; one commit adds them all
to the table together with the offsets that it wants next; then the daemons hear how far the archive
is, and ``archive.hold`` lets retention have what lies below.

Crash rule: before the commit nothing of a run counts, after it everything does. A run that died
between the commit and the last word is made good by the next one, which says it again. Offsets are
nowhere but in the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import structlog

from kafkalog.errors import KafkalogError
from kafkalog.spark.jobs.archive_files import ArchiveTask, archive_piece
from kafkalog.spark.jobs.tasks import Job, run_job
from kafkalog.spark.logs import TARGET_BYTES, DataLost, OffsetRange

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from kafkalog.spark.jobs.archive_files import ArchivedPiece
    from kafkalog.spark.jobs.archive_sources import ArchiveSource
    from kafkalog.spark.jobs.archive_table import ArchiveTable, Offsets
    from kafkalog.spark.jobs.tasks import Progress, Runner

_log = structlog.get_logger(__name__)


class ArchiveAhead(KafkalogError):
    """The table holds offsets that the log has not: it was cut, or made anew under its name."""


@dataclass(frozen=True, slots=True)
class ArchiveOptions:
    """What goes into the table.

    topics        None: all but internal ones
    before_ms     records from the first one on that is as new as this stay for a later run
    target_bytes  of log in a file
    may_lose      go on where a log begins when the records behind the table's end are gone
    """

    topics: frozenset[str] | None = None
    before_ms: int | None = None
    target_bytes: int = TARGET_BYTES
    may_lose: bool = False


class ArchivedPartition(NamedTuple):
    """What a run did with one partition; ``next_offset`` is where the next one begins."""

    topic: str
    partition: int
    from_offset: int
    next_offset: int
    rows: int
    files: int
    bytes: int


def archive(
    source: ArchiveSource,
    table: ArchiveTable,
    options: ArchiveOptions,
    runner: Runner,
    progress: Progress | None = None,
) -> list[ArchivedPartition]:
    """One run; the partitions that had something new, by name.

    Raises DataLost, ArchiveAhead, TaskFailed, TableChanged, UnusableTable, and what reaching logs,
    table and daemons raises. After an error of ``tell`` the commit stands.
    """
    before = dict(table.next_offsets)
    ranges = plan_ranges(source, before, options)
    tasks = [
        ArchiveTask(piece, source.access, table.store)
        for wanted in ranges
        for piece in source.logs.pieces(wanted, options.target_bytes)
    ]
    after = before | {(each.topic, each.partition): each.to_offset for each in ranges}

    def commit(pieces: list[ArchivedPiece]) -> list[ArchivedPiece]:
        if after != before:
            table.commit([each.file for each in pieces if each.file is not None], after)
        return pieces

    job = Job("archive", tasks, archive_piece, merge=commit, abandon=table.abandon)
    pieces = run_job(job, runner, progress)
    source.tell({key: at for key, at in after.items() if _is_wanted(key[0], options)})
    return _rows(ranges, pieces)


def plan_ranges(
    source: ArchiveSource, before: Offsets, options: ArchiveOptions
) -> list[OffsetRange]:
    """What is new, by topic and partition. Raises DataLost and ArchiveAhead."""
    ranges = []
    for topic, partitions in source.logs.topics().items():
        if not _is_wanted(topic, options):
            continue
        for partition in partitions:
            wanted = _range_of(source, before, options, topic, partition)
            if wanted is not None:
                ranges.append(wanted)
    return ranges


def _is_wanted(topic: str, options: ArchiveOptions) -> bool:
    return options.topics is None or topic in options.topics


def _range_of(
    source: ArchiveSource, before: Offsets, options: ArchiveOptions, topic: str, partition: int
) -> OffsetRange | None:
    """Of one partition; None when it has nothing new."""
    bounds = source.logs.bounds(topic, partition)
    begin = before.get((topic, partition), bounds.log_start_offset)
    if begin > bounds.end_offset:
        raise ArchiveAhead(
            f"The table wants {topic}-{partition} from offset {begin} on, but the log ends at "
            f"{bounds.end_offset}: it lost its end, or is another topic of that name. Archive it "
            "into another table",
            topic=topic,
            partition=partition,
        )
    if begin < bounds.log_start_offset:
        missing = OffsetRange(topic, partition, begin, bounds.log_start_offset)
        reason = "they were deleted before they were archived; set archive.hold=true on the topic"
        if not options.may_lose:
            raise DataLost(missing, reason)
        _log.warning("records_not_archived", range=str(missing), reason=reason)
        begin = bounds.log_start_offset
    end = bounds.end_offset
    durable_end = source.durable_end(topic, partition)
    if durable_end is not None:
        end = min(end, durable_end)
    if options.before_ms is not None:
        too_new = source.logs.offset_at(topic, partition, options.before_ms)
        end = end if too_new is None else min(end, too_new)
    return OffsetRange(topic, partition, begin, end) if begin < end else None


def _rows(
    ranges: Sequence[OffsetRange], pieces: Sequence[ArchivedPiece]
) -> list[ArchivedPartition]:
    """A row a partition, from what its pieces became."""
    rows = []
    for wanted in ranges:
        files = [
            each.file for each in pieces if each.file is not None and each.range[:2] == wanted[:2]
        ]
        rows.append(
            ArchivedPartition(
                *wanted,
                rows=sum(each.rows for each in files),
                files=len(files),
                bytes=sum(each.size_bytes for each in files),
            )
        )
    return rows


def totals_of(rows: Sequence[ArchivedPartition]) -> dict[str, Any]:
    """The sums of a run."""
    return {
        "partitions": len(rows),
        "rows": sum(row.rows for row in rows),
        "files": sum(row.files for row in rows),
        "bytes": sum(row.bytes for row in rows),
    }


if __name__ == "__main__":
    from kafkalog.spark.jobs.submit import run_as_program

    run_as_program("archive")
