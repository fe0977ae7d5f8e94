"""Job ``archive``: new records of topics go into a table, each exactly once.

Each partition is read from the offset where the table ends, up to what is committed, durable and,
on request, old enough. Pieces of log become Parquet files, in parallel. Commits of bounded size add
the files to the table together with the next offsets (`progress`). After each commit the daemons
are told which offsets are archived, and with ``archive.hold`` retention may delete what lies below
them.

Crash rule: before a commit nothing of its pieces counts, after it everything does. A run that died
between a commit and the report to the daemons is completed by the next run, which reports again.
The offsets are stored in the table alone.

A partition that cannot be read, or whose log is not the one of the table, is quarantined: the run
names it, leaves it where it is and goes on with the others. A run that can archive nothing because
of that raises the reason. A fault of the table, the daemons or a process ends the run; its commits
stay.

A log must be the one whose beginning the table has. Offsets alone do not prove that: a topic that
was deleted and recreated, or a log that lost its end, grows until it reaches the table's next
offset. Its records below would never be archived, and retention would delete them. Therefore a
commit holds the topic's id, and for each partition the offset of the newest record with a
checksum of what compaction keeps of a record. ArchiveAhead is the fault of a topic with another id,
of another record at that offset and of a log that ends below the table's offset. Two cases are not
noticed: a log that lost its end where the record at that offset is now cleaned away, deleted or
aborted; and whatever happened before a version that stores ids and checksums wrote to the table.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import structlog

from kafkalog.client.errors import ClientError
from kafkalog.env.clock import SystemClock
from kafkalog.errors import KafkalogError
from kafkalog.jobs.archive.archive_files import archive_piece, is_of_log, last_record
from kafkalog.jobs.archive.archive_table import Position
from kafkalog.jobs.archive.file_layout import SCHEMA
from kafkalog.jobs.archive.progress import ArchivedPartition, Progress
from kafkalog.jobs.attempts import reason_of, tried
from kafkalog.jobs.tasks import TaskFailed, abandoned_on_error, progress, result_of
from kafkalog.spark.logs.object_store import scheme_of
from kafkalog.spark.logs.open import open_logs, read_piece
from kafkalog.spark.logs.values import MAX_COMMIT_BYTES, TARGET_BYTES, DataLost, OffsetRange
from kafkalog.spark.planning import unknown_topic
from kafkalog.spark.reading import record_batches

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from kafkalog.env.clock import Clock
    from kafkalog.jobs.archive.archive_files import ArchivedPiece
    from kafkalog.jobs.archive.archive_table import ArchiveTable, LastRecord
    from kafkalog.jobs.tasks import Ended, Runner
    from kafkalog.spark.logs.open import OpenedLogs
    from kafkalog.spark.logs.values import Access, Bounds, Piece

_WHAT_TO_DO = "Archive it into another table"


class ArchiveAhead(KafkalogError):
    """The table holds records that are not in the log: it was truncated, or its topic recreated."""


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
    max_commit_bytes  bytes of log in a commit; a larger file has one of its own
    may_lose      continue at the log start if records after the table's end were deleted
    """

    topics: frozenset[str] | None = None
    before_ms: int | None = None
    target_bytes: int = TARGET_BYTES
    max_commit_bytes: int = MAX_COMMIT_BYTES
    may_lose: bool = False


def archive(
    logs: OpenedLogs,
    table: ArchiveTable,
    options: ArchiveOptions,
    runner: Runner,
    *,
    clock: Clock | None = None,
) -> list[ArchivedPartition]:
    """Archive once; the partitions with new records and those that are quarantined, by name.

    clock  for the pauses between two tries of the plan; None: the machine's

    If nothing could be archived, raises the fault of the first quarantined partition: DataLost,
    ArchiveAhead, TaskFailed, an error of its log. Raises UnknownTopic for a requested topic that
    neither the logs nor the table have, TaskFailed, TableChanged, UnusableTable, and the errors of
    table and daemons. The commits before an error stay.
    """
    run = _Run(logs, table, options, clock or SystemClock())
    run.plan()
    work = partial(
        archive_piece,
        access=logs.access,
        store=table.store,
        layout=table.layout,
        dead_store=table.dead_store,
    )
    pieces = list(run.progress.pieces())
    with (
        progress("archive", pieces) as on_done,
        abandoned_on_error("archive", table.abandon),
        closing(
            runner.stream(run.progress.pieces(), work, wave_bytes=options.max_commit_bytes)
        ) as all_ended,
    ):
        for ended in all_ended:
            on_done(ended.task)
            run.take(ended)
            while run.commit(is_last=False):
                pass
        while run.commit(is_last=True):
            pass
        run.commit_ids()
    run.report(run.checked)
    return run.outcome()


class _Run:
    """One run: its plan, what of it is committed, which partitions are quarantined.

    checked  the partitions whose log is that of the table: daemons are told of these alone
    """

    def __init__(
        self, logs: OpenedLogs, table: ArchiveTable, options: ArchiveOptions, clock: Clock
    ) -> None:
        self._logs, self._table, self._options, self._clock = logs, table, options, clock
        self._topic_ids: dict[str, str] = {}
        self._commits = 0
        self.progress = Progress(options.max_commit_bytes)
        self.checked: set[tuple[str, int]] = set()

    def plan(self) -> None:
        """The pieces of each partition. Raises UnknownTopic, the errors of daemons."""
        logs, before, wanted = self._logs, self._table.position, self._options.topics
        there = logs.topics()
        known = {topic for topic, _ in before.next_offsets}  # may be deleted by now
        for topic in sorted((wanted or frozenset()) - there.keys() - known):
            raise unknown_topic(topic, there)
        topics = {name: there[name] for name in there if wanted is None or name in wanted}
        ids, faults = self._ids_of(topics)
        for topic, partitions in topics.items():
            fault = faults.get(topic) or _id_fault(before.topic_ids, ids, topic)
            if fault is None and topic in ids:
                self._topic_ids[topic] = ids[topic]
            for partition in partitions:
                if fault is None:
                    self._plan_partition(topic, partition)
                else:
                    self._refuse(topic, partition, fault)

    def _ids_of(self, topics: Collection[str]) -> tuple[dict[str, str], dict[str, Exception]]:
        """The ids of topics, and the faults of those where it cannot be read."""
        try:
            return tried(partial(self._logs.topic_ids, topics), self._clock), {}
        except (KafkalogError, OSError) as error:
            if len(topics) == 1:
                return {}, dict.fromkeys(topics, error)
        ids: dict[str, str] = {}
        faults: dict[str, Exception] = {}
        for topic in topics:
            found, fault = self._ids_of([topic])
            ids |= found
            faults |= fault
        return ids, faults

    def _plan_partition(self, topic: str, partition: int) -> None:
        name = topic, partition

        def planned() -> tuple[OffsetRange | None, list[Piece]]:
            before = self._table.position
            wanted = _range_of(self._logs, before, self._options, topic, partition)
            self.checked.add(name)
            if wanted is None:
                return None, []
            return wanted, self._logs.pieces(wanted, self._options.target_bytes)

        try:
            wanted, pieces = tried(planned, self._clock)
        except (KafkalogError, ClientError, OSError) as error:
            if not is_of_log(error):
                raise
            self._refuse(topic, partition, error)
        else:
            if wanted is not None:
                self.progress.plan(wanted, pieces)

    def _refuse(self, topic: str, partition: int, fault: Exception) -> None:
        begin = self._table.position.next_offsets.get((topic, partition), 0)
        self.progress.refused((topic, partition), begin, fault)
        _tell(topic, partition, fault)

    def take(self, ended: Ended[Piece, ArchivedPiece]) -> None:
        """A task has ended. Raises TaskFailed if that is not the fault of its partition alone."""
        piece = ended.task
        try:
            archived = result_of(ended)
        except TaskFailed as failure:
            if not ended.done.is_of_part:
                raise
            self._remove(self.progress.failed(piece, failure))
            _tell(piece.range.topic, piece.range.partition, failure)
        else:
            useless = self.progress.archived(piece, archived)
            self._remove([] if useless is None else [useless])

    def commit(self, *, is_last: bool) -> bool:
        """One commit, if there is enough for it or the run is at its end; whether there was."""
        pieces = self.progress.next_commit(is_last=is_last)
        if not pieces:
            return False
        pieces = self._of_same_topics(pieces)
        if pieces:
            files = [file for each in pieces for file in each.files]
            dead = [file for each in pieces for file in each.dead]
            self._table.commit(files, self._position_with(pieces), dead)
            self._commits += 1
            self.progress.committed(pieces)
            self.report({each.range[:2] for each in pieces})
        return True

    def commit_ids(self) -> None:
        """A table of an older version learns the ids of its topics, also without new records."""
        after = self._position_with([])
        if after != self._table.position:
            self._table.commit([], after)

    def _of_same_topics(self, pieces: list[ArchivedPiece]) -> list[ArchivedPiece]:
        """The pieces without those of topics that were recreated since the plan."""
        if any(map(scheme_of, self._logs.access.paths)):
            return pieces  # no daemon serves a directory on a store
        topics = {each.range.topic for each in pieces}
        ids, faults = self._ids_of(topics)
        for topic in sorted(topics):
            fault = faults.get(topic) or _id_fault(self._topic_ids, ids, topic)
            if fault is None:
                continue
            self._topic_ids.pop(topic, None)
            self._remove([each for each in pieces if each.range.topic == topic])
            pieces = [each for each in pieces if each.range.topic != topic]
            for name in self.progress.partitions_of(topic):
                self._remove(self.progress.withdraw(name, fault))
                self.checked.discard(name)
                _tell(*name, fault)
        return pieces

    def _position_with(self, pieces: Sequence[ArchivedPiece]) -> Position:
        """The table's position with these pieces; only topics with an offset get an id."""
        before = self._table.position
        next_offsets = {each.range[:2]: each.range.to_offset for each in pieces}
        last_records = {each.range[:2]: each.last for each in pieces if each.last is not None}
        offsets = {**before.next_offsets, **next_offsets}
        ids = {topic: self._topic_ids[topic] for topic, _ in offsets if topic in self._topic_ids}
        last = {**before.last_records, **last_records}
        return Position(offsets, {**before.topic_ids, **ids}, last)

    def report(self, partitions: Collection[tuple[str, int]]) -> None:
        """Tell the daemons which offsets of these partitions the table has; durable on return."""
        archived = self._table.position
        by_topic: dict[str, dict[int, int]] = {}
        for (topic, partition), offset in archived.next_offsets.items():
            if (topic, partition) in partitions and topic in archived.topic_ids:
                by_topic.setdefault(topic, {})[partition] = offset
        for topic, offsets in by_topic.items():
            self._logs.report_archived(topic, offsets, archived.topic_ids[topic])

    def outcome(self) -> list[ArchivedPartition]:
        """The rows. Raises the first fault, with the others as notes, if nothing was archived."""
        faults = self.progress.faults
        if faults and not self._commits:
            first, *others = faults
            for topic, partition in others:
                faults[first].add_note(
                    f"{topic}-{partition}: {reason_of(faults[topic, partition])}"
                )
            raise faults[first]
        return self.progress.rows()

    def _remove(self, useless: Collection[ArchivedPiece]) -> None:
        """Remove files that will be in no commit."""
        table = self._table
        for store, files in (
            (table.store, [file for each in useless for file in each.files]),
            (table.dead_store, [file for each in useless for file in each.dead]),
        ):
            for file in files:
                assert store is not None
                try:
                    store.remove(file.path)
                except OSError as error:  # it is in no commit: harmless but for its space
                    _log.warning("file_not_removed", path=file.path, reason=reason_of(error))


def _tell(topic: str, partition: int, fault: Exception) -> None:
    _log.error("partition_quarantined", partition=f"{topic}-{partition}", reason=reason_of(fault))


def _id_fault(
    archived: Mapping[str, str], found: Mapping[str, str], topic: str
) -> ArchiveAhead | None:
    """The fault of a topic with another id than in the table; unknown ids are none."""
    archived_id, found_id = archived.get(topic), found.get(topic)
    if archived_id is None or found_id is None or archived_id == found_id:
        return None
    return ArchiveAhead(
        f"The table holds topic {topic} with the id {archived_id}, but the topic of that "
        f"name has the id {found_id}: it was deleted and recreated. {_WHAT_TO_DO}",
        topic=topic,
    )


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
