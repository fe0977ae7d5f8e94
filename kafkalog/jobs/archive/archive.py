"""Job ``archive``: new records of topics go into a table, each exactly once.

Each partition is read from the offset where the table ends, up to what is committed, durable and,
on request, old enough. Pieces of log become Parquet files, in parallel. Commits of bounded size add
the files to the table together with the next offsets (`progress`). After each commit the daemons
are told which offsets are archived, and with ``archive.hold`` retention may delete what lies below
them.

Crash rule: before a commit nothing of its pieces counts, after it everything does. A run that died
between a commit and the report to the daemons is completed by the next run, which reports again.
The offsets are stored in the table alone.

An inferred schema grows: at the first record with a field that has no column the run commits what
is ready before it, the table gets the field, and another run goes on.

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
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import structlog

from kafkalog.client.errors import ClientError
from kafkalog.env.clock import SystemClock
from kafkalog.errors import KafkalogError
from kafkalog.format.topic_names import TopicPartition
from kafkalog.jobs.archive.archive_files import archive_piece, is_of_log, last_record
from kafkalog.jobs.archive.archive_table import Position
from kafkalog.jobs.archive.file_layout import SCHEMA
from kafkalog.jobs.archive.progress import ArchivedPartition, Progress, joined
from kafkalog.jobs.attempts import reason_of, tried
from kafkalog.jobs.tasks import TaskFailed, abandoned_on_error, progress, result_of
from kafkalog.spark.logs.object_store import scheme_of
from kafkalog.spark.logs.open import open_logs, read_piece
from kafkalog.spark.logs.values import TARGET_BYTES, DataLost, OffsetRange
from kafkalog.spark.planning import unknown_topic
from kafkalog.spark.reading import record_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from kafkalog.env.clock import Clock
    from kafkalog.jobs.archive.archive_files import ArchivedPiece
    from kafkalog.jobs.archive.archive_table import ArchiveTable, LastRecord
    from kafkalog.jobs.archive.progress import PartitionName
    from kafkalog.jobs.tasks import Ended, Runner
    from kafkalog.spark.logs.open import OpenedLogs
    from kafkalog.spark.logs.values import Access, Bounds, Piece

T = TypeVar("T")

_WHAT_TO_DO = "Archive it into another table"


class ArchiveAhead(KafkalogError):
    """The table holds records that are not in the log: it was truncated, or its topic recreated."""


def _check_last_record(logs: OpenedLogs, last: LastRecord, at: TopicPartition) -> None:
    """Raise ArchiveAhead if the log has another record where the table has its last one."""
    found = _record_at(logs, OffsetRange(*_name(at), last.offset, last.offset + 1))
    if found not in (None, last):
        raise ArchiveAhead(
            f"The table holds another record of {at} at offset {last.offset} than the log: the "
            f"log lost its end and has new records there. {_WHAT_TO_DO}",
            topic=at.topic,
            partition=at.partition,
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
    max_commit_bytes  bytes of log in a commit; None: as Progress finds it
    may_lose      continue at the log start if records after the table's end were deleted
    """

    topics: frozenset[str] | None = None
    before_ms: int | None = None
    target_bytes: int = TARGET_BYTES
    max_commit_bytes: int | None = None
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
    before: dict[PartitionName, ArchivedPartition] = {}
    commits = 0
    while True:
        run = Run(logs, table, options, clock or SystemClock())
        run.plan()
        run.check()
        run.perform(runner)
        run.commits += commits
        if not run.wider:
            break
        table.widen(run.wider)
        before, commits = joined(before, run.progress.rows()), run.commits
    run.report(run.checked)
    rows = joined(before, run.outcome())
    if not run.progress.faults:
        table.complete()
    return [rows[name] for name in sorted(rows)]


def tell_of_fault(at: PartitionName, fault: Exception) -> None:
    """Log that a partition is quarantined."""
    _log.error("partition_quarantined", partition=f"{at[0]}-{at[1]}", reason=reason_of(fault))


class _Planned(NamedTuple):
    """One partition: the new offsets, which may be none, and their pieces."""

    wanted: OffsetRange
    log_start_offset: int
    pieces: list[Piece]


class Run:
    """One run: its plan, what of it is committed, which partitions are quarantined.

    checked  the partitions whose log is that of the table: daemons are told of these alone
    commits  that were made
    wider    types that the table has to have before the run can go on: it ended early
    """

    def __init__(
        self,
        logs: OpenedLogs,
        table: ArchiveTable,
        options: ArchiveOptions,
        clock: Clock,
        *,
        left_out: Collection[PartitionName] = (),
        on_fault: Callable[[PartitionName, Exception], None] = tell_of_fault,
    ) -> None:
        """``on_fault`` is called with each partition that is quarantined."""
        self._logs, self._table, self._options, self._clock = logs, table, options, clock
        self._left_out, self._on_fault = left_out, on_fault
        self._topic_ids: dict[str, str] = {}
        self._planned: dict[TopicPartition, _Planned] = {}
        self.commits = 0
        self.wider: Mapping[str, Any] = {}
        self.progress = Progress(options.max_commit_bytes)
        self.checked: set[PartitionName] = set()

    @property
    def planned_bytes(self) -> int:
        """About how much log is new; 0: none."""
        return sum(
            max(piece.size_bytes, 1) for each in self._planned.values() for piece in each.pieces
        )

    def plan(self) -> None:
        """Find the new offsets and their pieces. Raises UnknownTopic, the errors of daemons."""
        logs, before, wanted = self._logs, self._table.position, self._options.topics
        there = logs.topics()
        known = {topic for topic, _ in before.next_offsets}  # may be deleted by now
        for topic in sorted((wanted or frozenset()) - there.keys() - known):
            raise unknown_topic(topic, there)
        topics = {name: there[name] for name in there if wanted is None or name in wanted}
        ids, faults = self._ids_of(topics)
        names: list[TopicPartition] = []
        for topic, partitions in topics.items():
            fault = faults.get(topic) or _id_fault(before.topic_ids, ids, topic)
            if fault is None and topic in ids:
                self._topic_ids[topic] = ids[topic]
            for at in (TopicPartition(topic, each) for each in partitions):
                if _name(at) in self._left_out:
                    continue
                if fault is None:
                    names.append(at)
                else:
                    self._refuse(at, fault)
        bounds = self._asked(logs.all_bounds, names)
        ranges = self._with_safe_ends(self._ranges(bounds))
        pieces = self._all_pieces(ranges)
        for at, each in ranges.items():
            if each.from_offset >= each.to_offset or at in pieces:  # else refused or deleted
                start = bounds[at].log_start_offset
                self._planned[at] = _Planned(each, start, pieces.get(at, []))

    def check(self, *, with_unchanged: bool = True) -> None:
        """Refuse partitions whose log does not continue where the table ends.

        with_unchanged  also look at partitions without new records, which can be reported then
        """
        for at, each in self._planned.items():
            if (each.pieces or with_unchanged) and self._is_same_log(at, each.log_start_offset):
                self.checked.add(_name(at))
                if each.pieces:
                    self.progress.plan(each.wanted, each.pieces)

    def perform(self, runner: Runner, is_stopped: Callable[[], bool] = lambda: False) -> None:
        """Archive what was planned and checked. Raises TaskFailed, the errors of the table.

        is_stopped  asked after each task: then what can be committed is, and the run ends
        """
        table = self._table
        work = partial(
            archive_piece,
            access=self._logs.access,
            store=table.store,
            layout=table.layout,
            dead_store=table.dead_store,
        )
        pieces = list(self.progress.pieces())
        wave_bytes = self.progress.max_commit_bytes
        with (
            progress("archive", pieces) as on_done,
            abandoned_on_error("archive", table.abandon),
            closing(runner.stream(self.progress.pieces(), work, wave_bytes=wave_bytes)) as ends,
        ):
            for ended in ends:
                on_done(ended.task)
                self.take(ended)
                while self.commit(is_last=False):
                    pass
                if is_stopped() or self.wider:
                    break
            while self.commit(is_last=True):
                pass
            if self.wider:
                self._remove(self.progress.unfinished())
            self.commit_ids()

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

    def _ranges(self, bounds: Mapping[TopicPartition, Bounds]) -> dict[TopicPartition, OffsetRange]:
        """The new offsets of partitions, by their bounds; some are empty."""
        ranges: dict[TopicPartition, OffsetRange] = {}
        for at, each in bounds.items():
            name = _name(at)
            begin = self._table.position.next_offsets.get(name, each.log_start_offset)
            try:
                if begin > each.end_offset:
                    raise _beyond(self._logs.access, *name, begin, each.end_offset)
                ranges[at] = self._without_lost(OffsetRange(*name, begin, each.end_offset), each)
            except (KafkalogError, ClientError, OSError) as error:
                self._refuse_or_raise(at, error)
        return ranges

    def _without_lost(self, wanted: OffsetRange, bounds: Bounds) -> OffsetRange:
        """The range from the log start on. Raises DataLost unless records may be lost."""
        if wanted.from_offset >= bounds.log_start_offset:
            return wanted
        missing = wanted._replace(to_offset=bounds.log_start_offset)
        reason = "they were deleted before they were archived; set archive.hold=true on the topic"
        if not self._options.may_lose:
            raise DataLost(missing, reason)
        _log.warning("records_not_archived", range=str(missing), reason=reason)
        return wanted._replace(from_offset=bounds.log_start_offset)

    def _with_safe_ends(
        self, ranges: Mapping[TopicPartition, OffsetRange]
    ) -> dict[TopicPartition, OffsetRange]:
        """The ranges up to what is durable and, on request, old enough."""

        def durable(some: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
            return self._logs.all_durable_ends({at: ranges[at].to_offset for at in some})

        def too_new(some: Collection[TopicPartition]) -> Mapping[TopicPartition, int | None]:
            assert before_ms is not None
            return self._logs.all_offsets_at(dict.fromkeys(some, before_ms))

        ends: dict[TopicPartition, int] = self._asked(durable, ranges)
        before_ms = self._options.before_ms
        if before_ms is not None:
            news = self._asked(too_new, ends)
            ends = {at: ends[at] if new is None else min(ends[at], new) for at, new in news.items()}
        return {at: ranges[at]._replace(to_offset=end) for at, end in ends.items()}

    def _all_pieces(
        self, ranges: Mapping[TopicPartition, OffsetRange]
    ) -> dict[TopicPartition, list[Piece]]:
        """The pieces of ranges that are not empty."""

        def pieces(some: Collection[TopicPartition]) -> Mapping[TopicPartition, list[Piece]]:
            wanted = [ranges[at] for at in some]
            ids = {**self._table.position.topic_ids, **self._topic_ids}
            found = [
                replace(piece, topic_id=ids.get(piece.range.topic))
                for piece in self._logs.all_pieces(wanted, self._options.target_bytes)
            ]
            by_partition = groupby(found, lambda piece: TopicPartition(*piece.range[:2]))
            return {at: list(of_it) for at, of_it in by_partition}

        return self._asked(
            pieces, [at for at, each in ranges.items() if each.from_offset < each.to_offset]
        )

    def _is_same_log(self, at: TopicPartition, log_start_offset: int) -> bool:
        """Whether the log continues where the table ends, as far as can be seen."""
        last = self._table.position.last_records.get(_name(at))
        try:
            if last is not None and last.offset >= log_start_offset:
                tried(partial(_check_last_record, self._logs, last, at), self._clock)
        except (KafkalogError, ClientError, OSError) as error:
            self._refuse_or_raise(at, error)
            return False
        return True

    def _asked(
        self,
        ask: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, T]],
        partitions: Collection[TopicPartition],
    ) -> dict[TopicPartition, T]:
        """The answers for partitions, asked together; those with a fault are refused.

        A fault does not say whose it is: halves are asked again until it is of one partition.
        """
        names = list(partitions)
        if not names:
            return {}
        try:
            if len(names) == 1:
                return dict(tried(partial(ask, names), self._clock))
            return dict(ask(names))
        except (KafkalogError, ClientError, OSError) as error:
            if len(names) == 1 or not is_of_log(error):
                self._refuse_or_raise(names[0], error)
                return {}
        middle = len(names) // 2
        return self._asked(ask, names[:middle]) | self._asked(ask, names[middle:])

    def _refuse_or_raise(self, at: TopicPartition, error: Exception) -> None:
        """Refuse a partition for a fault of its log; a fault of all is raised."""
        if not is_of_log(error):
            raise error
        self._refuse(at, error)

    def _refuse(self, at: TopicPartition, fault: Exception) -> None:
        name = _name(at)
        self.progress.refused(name, self._table.position.next_offsets.get(name, 0), fault)
        self._on_fault(name, fault)

    def take(self, ended: Ended[Piece, ArchivedPiece]) -> None:
        """A task has ended. Raises TaskFailed if that is not the fault of its partition alone."""
        piece = ended.task
        try:
            archived = result_of(ended)
        except TaskFailed as failure:
            if not ended.done.is_of_part:
                raise
            self._remove(self.progress.failed(piece, failure))
            self._on_fault(piece.range[:2], failure)
        else:
            if archived.wider is not None:
                self.wider = archived.wider
                return
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
            self.commits += 1
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
                self._on_fault(name, fault)
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
        if faults and not self.commits:
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


def _name(at: TopicPartition) -> PartitionName:
    return at.topic, at.partition


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
