"""Job ``archive``: new records of topics go into a table, each exactly once.

Each partition is read from the offset where the table ends, up to what is committed, durable and,
on request, old enough. Pieces of log become Parquet files, in parallel. One commit adds all files
to the table together with the next offsets. Then the daemons are told which offsets are archived,
and with ``archive.hold`` retention may delete what lies below them.

Crash rule: before the commit nothing of a run counts, after it everything does. A run that died
between the commit and the report to the daemons is completed by the next run, which reports again.
The offsets are stored in the table alone.

A log must be the one whose beginning the table has. Offsets alone do not prove that: a topic that
was deleted and recreated, or a log that lost its end, grows until it reaches the table's next
offset. Its records below would never be archived, and retention would delete them. Therefore a
commit holds the topic's id, and for each partition the offset of the newest record with a
checksum of what compaction keeps of a record. ArchiveAhead is raised for another id, for
another record at that offset and for a log that ends below the table's offset. Two cases are not
noticed: a log that lost its end where the record at that offset is now cleaned away, deleted or
aborted; and whatever happened before a version that stores ids and checksums wrote to the table.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import structlog

from kafkalog.errors import KafkalogError
from kafkalog.jobs.archive.archive_files import SCHEMA, archive_piece, last_record
from kafkalog.jobs.archive.archive_table import Position
from kafkalog.jobs.tasks import run_job
from kafkalog.spark.logs.open import open_logs, read_piece
from kafkalog.spark.logs.values import TARGET_BYTES, DataLost, OffsetRange
from kafkalog.spark.planning import unknown_topic
from kafkalog.spark.reading import record_batches

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from kafkalog.jobs.archive.archive_files import ArchivedPiece
    from kafkalog.jobs.archive.archive_table import ArchivedFile, ArchiveTable, LastRecord
    from kafkalog.jobs.tasks import Runner
    from kafkalog.spark.logs.open import OpenedLogs
    from kafkalog.spark.logs.values import Access, Bounds

_WHAT_TO_DO = "Archive it into another table"


class ArchiveAhead(KafkalogError):
    """The table holds records that are not in the log: it was truncated, or its topic recreated."""


def check_topics(
    archived: Mapping[str, str], found: Mapping[str, str], topics: Iterable[str]
) -> None:
    """Raise ArchiveAhead if a topic has another id than in the table; unknown ids pass."""
    for topic in topics:
        archived_id, found_id = archived.get(topic), found.get(topic)
        if None not in (archived_id, found_id) and archived_id != found_id:
            raise ArchiveAhead(
                f"The table holds topic {topic} with the id {archived_id}, but the topic of that "
                f"name has the id {found_id}: it was deleted and recreated. {_WHAT_TO_DO}",
                topic=topic,
            )


def check_log(
    logs: OpenedLogs, archived: Position, topic: str, partition: int, bounds: Bounds
) -> None:
    """Raise ArchiveAhead unless the log continues where the table ends, as far as can be seen."""
    next_offset = archived.next_offsets.get((topic, partition), bounds.log_start_offset)
    if next_offset > bounds.end_offset:
        raise _beyond(logs.access, topic, partition, next_offset, bounds.end_offset)
    last = archived.last_records.get((topic, partition))
    if last is None or last.offset < bounds.log_start_offset:
        return
    found = _record_at(logs, OffsetRange(topic, partition, last.offset, last.offset + 1))
    if found not in (None, last):
        raise ArchiveAhead(
            f"The table holds another record of {topic}-{partition} at offset {last.offset} than "
            f"the log: the log lost its end and has new records there. {_WHAT_TO_DO}",
            topic=topic,
            partition=partition,
        )


def _beyond(access: Access, topic: str, partition: int, next_offset: int, end: int) -> ArchiveAhead:
    """The error for a table that ends above the readable end of the log."""
    is_open = False
    if access.read_committed:
        with closing(open_logs(replace(access, read_committed=False))) as logs:
            is_open = next_offset <= logs.bounds(topic, partition).end_offset
    if is_open:
        return ArchiveAhead(
            f"The table wants {topic}-{partition} from offset {next_offset} on, but a transaction "
            f"is open there since {end}: it was archived with --uncommitted. Use that option "
            "again, or wait until the transaction has ended",
            topic=topic,
            partition=partition,
        )
    return ArchiveAhead(
        f"The table wants {topic}-{partition} from offset {next_offset} on, but the log ends at "
        f"{end}: it lost its end, or belongs to another topic of that name. {_WHAT_TO_DO}",
        topic=topic,
        partition=partition,
    )


def _record_at(logs: OpenedLogs, wanted: OffsetRange) -> LastRecord | None:
    """The record at an offset; None: there is none, or it cannot be read (any more)."""
    try:
        for piece in logs.pieces(wanted, TARGET_BYTES):
            with closing(cast("Any", read_piece(piece, logs.access))) as chunks:
                for batch in record_batches(chunks, wanted, SCHEMA):
                    if batch.num_rows:
                        return last_record(batch)
    except DataLost:  # deleted a moment ago
        return None
    return None


_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ArchiveOptions:
    """Which records are archived.

    topics        None: all but internal topics
    before_ms     a partition ends before its first record that is as new as this
    target_bytes  bytes of log in a file
    may_lose      continue at the log start if records after the table's end were deleted
    """

    topics: frozenset[str] | None = None
    before_ms: int | None = None
    target_bytes: int = TARGET_BYTES
    may_lose: bool = False


class ArchivedPartition(NamedTuple):
    """What a run archived of one partition; the next run begins at ``next_offset``."""

    topic: str
    partition: int
    from_offset: int
    next_offset: int
    rows: int
    files: int
    bytes: int


def archive(
    logs: OpenedLogs, table: ArchiveTable, options: ArchiveOptions, runner: Runner
) -> list[ArchivedPartition]:
    """Archive once; the partitions with new records, by name.

    Raises UnknownTopic for a requested topic that neither the logs nor the table have, DataLost,
    ArchiveAhead, TaskFailed, TableChanged, UnusableTable, and the errors of logs, table and
    daemons. An error of the report to the daemons comes after the commit, which stays.
    """
    before = table.position
    there = logs.topics()
    topics = {
        topic: partitions
        for topic, partitions in there.items()
        if options.topics is None or topic in options.topics
    }
    known = {topic for topic, _ in before.next_offsets}  # may be deleted by now
    for topic in sorted((options.topics or frozenset()) - there.keys() - known):
        raise unknown_topic(topic, there)
    topic_ids = logs.topic_ids(topics)
    check_topics(before.topic_ids, topic_ids, topics)
    ranges = [
        wanted
        for topic, partitions in topics.items()
        for partition in partitions
        if (wanted := _range_of(logs, before, options, topic, partition)) is not None
    ]
    tasks = [piece for wanted in ranges for piece in logs.pieces(wanted, options.target_bytes)]
    work = partial(archive_piece, access=logs.access, store=table.store)

    def commit(pieces: list[ArchivedPiece]) -> tuple[list[ArchivedPiece], Position]:
        # Tasks may have read a topic that was recreated since the plan.
        check_topics(topic_ids, logs.topic_ids(topics), topics)
        after = _position_after(before, topic_ids, ranges, pieces)
        if after != before:
            table.commit([each.file for each in pieces if each.file is not None], after)
        return pieces, after

    pieces, after = run_job("archive", tasks, work, commit, runner, abandon=table.abandon)
    report(logs, after, topics)
    return _rows(ranges, pieces)


def report(logs: OpenedLogs, archived: Position, topics: Collection[str]) -> None:
    """Tell the daemons of these topics which offsets the table has; durable on return."""
    by_topic: dict[str, dict[int, int]] = {}
    for (topic, partition), offset in archived.next_offsets.items():
        if topic in topics and topic in archived.topic_ids:
            by_topic.setdefault(topic, {})[partition] = offset
    for topic, offsets in by_topic.items():
        logs.report_archived(topic, offsets, archived.topic_ids[topic])


def _position_after(
    before: Position,
    topic_ids: Mapping[str, str],
    ranges: Sequence[OffsetRange],
    pieces: Sequence[ArchivedPiece],
) -> Position:
    """The table's position with these pieces; only topics with an offset get an id."""
    next_offsets = {(each.topic, each.partition): each.to_offset for each in ranges}
    last_records = {each.range[:2]: each.last for each in pieces if each.last is not None}
    offsets = {**before.next_offsets, **next_offsets}
    known = {topic: topic_ids[topic] for topic, _ in offsets if topic in topic_ids}
    return Position(offsets, {**before.topic_ids, **known}, {**before.last_records, **last_records})


def _range_of(
    logs: OpenedLogs, before: Position, options: ArchiveOptions, topic: str, partition: int
) -> OffsetRange | None:
    """The new offsets of one partition; None: there are none. Raises DataLost and ArchiveAhead."""
    bounds = logs.bounds(topic, partition)
    begin = before.next_offsets.get((topic, partition), bounds.log_start_offset)
    check_log(logs, before, topic, partition, bounds)
    if begin < bounds.log_start_offset:
        missing = OffsetRange(topic, partition, begin, bounds.log_start_offset)
        reason = "they were deleted before they were archived; set archive.hold=true on the topic"
        if not options.may_lose:
            raise DataLost(missing, reason)
        _log.warning("records_not_archived", range=str(missing), reason=reason)
        begin = bounds.log_start_offset
    end = logs.durable_end(topic, partition, bounds.end_offset)
    if options.before_ms is not None:
        too_new = logs.offset_at(topic, partition, options.before_ms)
        end = end if too_new is None else min(end, too_new)
    return OffsetRange(topic, partition, begin, end) if begin < end else None


def _rows(
    ranges: Sequence[OffsetRange], pieces: Sequence[ArchivedPiece]
) -> list[ArchivedPartition]:
    """One row for each partition."""
    files: dict[tuple[str, int], list[ArchivedFile]] = {}
    for each in pieces:
        if each.file is not None:
            files.setdefault(each.range[:2], []).append(each.file)
    return [
        ArchivedPartition(
            *wanted,
            rows=sum(file.rows for file in own),
            files=len(own),
            bytes=sum(file.size_bytes for file in own),
        )
        for wanted in ranges
        for own in [files.get(wanted[:2], [])]
    ]
