"""Job ``archive``: what is new in topics goes into a table, exactly once.

Each partition is taken from where the table says that it ends, up to what is committed, durable
and, if asked, old enough. Pieces of log become Parquet files, in parallel; one commit adds them all
to the table together with the offsets that it wants next; then the daemons hear how far the archive
is, and ``archive.hold`` lets retention have what lies below. A log that is no longer the one that
the table has the beginning of is refused (`archived_logs`).

Crash rule: before the commit nothing of a run counts, after it everything does. A run that died
between the commit and the last word is made good by the next one, which says it again. Offsets are
nowhere but in the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import structlog

from kafkalog.spark.jobs.archive_files import ArchiveTask, archive_piece
from kafkalog.spark.jobs.archive_table import Position
from kafkalog.spark.jobs.archived_logs import check_log, check_topics
from kafkalog.spark.jobs.tasks import Job, run_job
from kafkalog.spark.logs import TARGET_BYTES, DataLost, OffsetRange
from kafkalog.spark.offset_reader import unknown_topic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from kafkalog.spark.jobs.archive_files import ArchivedPiece
    from kafkalog.spark.jobs.archive_sources import ArchiveSource
    from kafkalog.spark.jobs.archive_table import ArchiveTable
    from kafkalog.spark.jobs.tasks import Progress, Runner

_log = structlog.get_logger(__name__)


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

    Raises UnknownTopic for one that was asked for and is neither there nor in the table, DataLost,
    ArchiveAhead, TaskFailed, TableChanged, UnusableTable, and what reaching logs, table and daemons
    raises. After an error of ``tell`` the commit stands.
    """
    before = table.position
    there = source.logs.topics()
    topics = {
        topic: partitions
        for topic, partitions in there.items()
        if options.topics is None or topic in options.topics
    }
    known = {topic for topic, _ in before.next_offsets}  # deleted since is no mistake
    for topic in sorted((options.topics or frozenset()) - there.keys() - known):
        raise unknown_topic(topic, there)
    topic_ids = source.topic_ids(topics)
    check_topics(before.topic_ids, topic_ids, topics)
    ranges = plan_ranges(source, before, options, topics)
    tasks = [
        ArchiveTask(piece, source.access, table.store)
        for wanted in ranges
        for piece in source.logs.pieces(wanted, options.target_bytes)
    ]

    def commit(pieces: list[ArchivedPiece]) -> tuple[list[ArchivedPiece], Position]:
        # Whoever read a topic that was made anew meanwhile read what nobody planned.
        check_topics(topic_ids, source.topic_ids(topics), topics)
        after = _position_after(before, topic_ids, ranges, pieces)
        if after != before:
            table.commit([each.file for each in pieces if each.file is not None], after)
        return pieces, after

    job = Job("archive", tasks, archive_piece, merge=commit, abandon=table.abandon)
    pieces, after = run_job(job, runner, progress)
    source.tell(after, topics)
    return _rows(ranges, pieces)


def _position_after(
    before: Position,
    topic_ids: Mapping[str, str],
    ranges: Sequence[OffsetRange],
    pieces: Sequence[ArchivedPiece],
) -> Position:
    """Where the table is with these pieces; topics without a place in it need no id."""
    next_offsets = {(each.topic, each.partition): each.to_offset for each in ranges}
    last_records = {each.range[:2]: each.last for each in pieces if each.last is not None}
    offsets = {**before.next_offsets, **next_offsets}
    known = {topic: topic_ids[topic] for topic, _ in offsets if topic in topic_ids}
    return Position(offsets, {**before.topic_ids, **known}, {**before.last_records, **last_records})


def plan_ranges(
    source: ArchiveSource,
    before: Position,
    options: ArchiveOptions,
    topics: Mapping[str, Sequence[int]],
) -> list[OffsetRange]:
    """What is new in these partitions, in their order. Raises DataLost and ArchiveAhead."""
    wanted = (
        _range_of(source, before, options, topic, partition)
        for topic, partitions in topics.items()
        for partition in partitions
    )
    return [each for each in wanted if each is not None]


def _range_of(
    source: ArchiveSource, before: Position, options: ArchiveOptions, topic: str, partition: int
) -> OffsetRange | None:
    """Of one partition; None when it has nothing new."""
    bounds = source.logs.bounds(topic, partition)
    begin = before.next_offsets.get((topic, partition), bounds.log_start_offset)
    check_log(source, before, topic, partition, bounds)
    if begin < bounds.log_start_offset:
        missing = OffsetRange(topic, partition, begin, bounds.log_start_offset)
        reason = "they were deleted before they were archived; set archive.hold=true on the topic"
        if not options.may_lose:
            raise DataLost(missing, reason)
        _log.warning("records_not_archived", range=str(missing), reason=reason)
        begin = bounds.log_start_offset
    end = source.durable_end(topic, partition, bounds.end_offset)
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
