"""Job ``archive``: what is new in topics goes into a table, exactly once.

Each partition is taken from where the table says that it ends, up to what is committed, durable
and, if asked, old enough. Pieces of log become Parquet files, in parallel; one commit adds them all
to the table together with the offsets that it wants next; then the daemons hear how far the archive
is, and ``archive.hold`` lets retention have what lies below. A log that is no longer the one that
the table has the beginning of is refused (`archived_logs`).

Crash rule: before the commit nothing of a run counts, after it everything does. A run that died
between the commit and the last word is made good by the next one, which says it again. Offsets are
nowhere but in the table.

Whether a log is still the one that a table holds the beginning of.

Offsets alone do not say. A topic that was deleted and made anew, and a log that lost its end, both
grow until they reach the offset that the table wants next; what they have below it would never be
archived, and retention would hear that it was. So a commit notes the topic's id, and of the newest
record of each partition its offset and a checksum of what compaction keeps of it. Another id,
another record there, or an end below the table's: ArchiveAhead.

Not noticed: a log that lost its end where no record can be seen any more at that offset, because it
was cleaned away, deleted or aborted; and anything that happened before the table was written to by
a version that notes these.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import structlog

from kafkalog.errors import KafkalogError
from kafkalog.jobs.archive.archive_files import SCHEMA, ArchiveTask, archive_piece, last_record
from kafkalog.jobs.archive.archive_table import Position
from kafkalog.jobs.tasks import Job, run_job
from kafkalog.spark.logs.open import open_logs, read_piece
from kafkalog.spark.logs.values import TARGET_BYTES, DataLost, OffsetRange
from kafkalog.spark.planning import unknown_topic
from kafkalog.spark.reading import record_batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kafkalog.jobs.archive.archive_files import ArchivedPiece
    from kafkalog.jobs.archive.archive_sources import ArchiveSource
    from kafkalog.jobs.archive.archive_table import ArchiveTable, LastRecord
    from kafkalog.jobs.tasks import Progress, Runner
    from kafkalog.spark.logs.values import Access, Bounds


_WHAT_TO_DO = "Archive it into another table"


class ArchiveAhead(KafkalogError):
    """The table holds records that the log has not: it was cut, or made anew under its name."""


def check_topics(
    archived: Mapping[str, str], found: Mapping[str, str], topics: Iterable[str]
) -> None:
    """ArchiveAhead when one of the topics has another id than the table's; unknown ids pass."""
    for topic in topics:
        archived_id, found_id = archived.get(topic), found.get(topic)
        if None not in (archived_id, found_id) and archived_id != found_id:
            raise ArchiveAhead(
                f"The table holds topic {topic} with the id {archived_id}, but the topic of that "
                f"name has the id {found_id}: it was deleted and made anew. {_WHAT_TO_DO}",
                topic=topic,
            )


def check_log(
    source: ArchiveSource, archived: Position, topic: str, partition: int, bounds: Bounds
) -> None:
    """ArchiveAhead unless the log goes on where the table ends, as far as that can be seen.

    bounds   of the log, which are asked for anyway
    """
    next_offset = archived.next_offsets.get((topic, partition), bounds.log_start_offset)
    if next_offset > bounds.end_offset:
        raise _beyond(source.access, topic, partition, next_offset, bounds.end_offset)
    last = archived.last_records.get((topic, partition))
    if last is None or last.offset < bounds.log_start_offset:
        return
    found = _record_at(source, OffsetRange(topic, partition, last.offset, last.offset + 1))
    if found not in (None, last):
        raise ArchiveAhead(
            f"The table holds another record of {topic}-{partition} at offset {last.offset} than "
            f"the log: it lost its end, and others came there. {_WHAT_TO_DO}",
            topic=topic,
            partition=partition,
        )


def _beyond(access: Access, topic: str, partition: int, next_offset: int, end: int) -> ArchiveAhead:
    """Why the table is further than what can be read."""
    if access.read_committed and next_offset <= _visible(access, topic, partition).end_offset:
        return ArchiveAhead(
            f"The table wants {topic}-{partition} from offset {next_offset} on, but a transaction "
            f"is open there since {end}: it was archived with --uncommitted. Go on with that, or "
            "wait until the transaction has ended",
            topic=topic,
            partition=partition,
        )
    return ArchiveAhead(
        f"The table wants {topic}-{partition} from offset {next_offset} on, but the log ends at "
        f"{end}: it lost its end, or is another topic of that name. {_WHAT_TO_DO}",
        topic=topic,
        partition=partition,
    )


def _visible(access: Access, topic: str, partition: int) -> Bounds:
    """Of all that is written, committed or not."""
    with closing(open_logs(replace(access, read_committed=False))) as logs:
        return logs.bounds(topic, partition)


def _record_at(source: ArchiveSource, wanted: OffsetRange) -> LastRecord | None:
    """The record of an offset; None: none can be seen there (any more)."""
    try:
        for piece in source.logs.pieces(wanted, TARGET_BYTES):
            with closing(cast("Any", read_piece(piece, source.access))) as chunks:
                for batch in record_batches(chunks, wanted, SCHEMA):
                    if batch.num_rows:
                        return last_record(batch)
    except DataLost:  # deleted a moment ago
        return None
    return None


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
