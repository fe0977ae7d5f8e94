"""Reads a range of offsets from a partition's directory, whatever happens to its files meanwhile.

`partition_files` describes how files change. A walk goes by offset, not by file: after the last
batch of a file it looks up which file has the next offset. A segment is opened once and read up to
the size that it had then: the end of the range was readable when it was planned, so that nothing of
it is appended later. Offsets may be missing between two segments, after a cleaning. Before a walk
accepts a gap it lists the directory again, and the file that it read must still have its name. A
gap that a daemon reports as lost is DataLost here as well: in a log without gaps, or where an index
without its log is left. A record below the first segment was deleted by retention; one below the
log start by delete-records, though its segment may still have it.

Aborted transactions: a transaction index has the aborts whose markers are in its segment. An entry
is written before any reader may see the marker, and stays valid; a cleaning removes it together
with the data. So a reader of the entries, then of the data, can skip all aborted records.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kafkalog.errors import CorruptIndex
from kafkalog.format.disk.file_names import (
    LOG_START_OFFSET_CHECKPOINT,
    SNAPSHOT_SUFFIX,
    segment_file_name,
)
from kafkalog.format.disk.index_entries import unpack_aborted_entries
from kafkalog.format.disk.producer_snapshot import decode_snapshot
from kafkalog.format.integers import FormatError
from kafkalog.format.offset_ranges import lost_in_gap
from kafkalog.format.records.batch_scan import BatchColumn, ScanStop, is_committed, scan, spans_of
from kafkalog.format.records.record_batch import HEADER_BYTES, LENGTH_AT, LOG_OVERHEAD
from kafkalog.format.topic_names import TopicPartition
from kafkalog.log.inspect.directory_facts import proof_of
from kafkalog.spark.logs.object_store import RequestRetries, filesystem_for, shown
from kafkalog.spark.logs.partition_files import (
    LISTINGS_MAX,
    Checkpoints,
    PartitionFiles,
    offset_entries,
    place_of,
    topic_id_in,
)
from kafkalog.spark.logs.values import Chunk, CorruptLog, DataLost

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    import numpy.typing as npt

    from kafkalog.env.filesystem import ReadableFile, ReadFilesystem
    from kafkalog.format.records.batch_scan import BatchRows
    from kafkalog.spark.logs.partition_files import Segment
    from kafkalog.spark.logs.values import Access, OffsetRange, Piece

    Table = npt.NDArray[np.int64]


_PRODUCER_ID, _FIRST, _LAST, _LAST_STABLE = range(4)
_TRANSACTIONAL, _CONTROL = 0x10, 0x20


def aborted_transactions(
    filesystem: ReadFilesystem,
    listed: Callable[[], PartitionFiles],
    from_offset: int,
    to_offset: int,
) -> Table:
    """Those that may overlap the range: int64[n, 3] of producer id, first and last offset.

    Their markers are in the segment of ``from_offset`` or later. Raises CorruptIndex, OSError.
    """
    files = listed()
    for _ in range(LISTINGS_MAX):
        try:
            entries = _entries(filesystem, files, from_offset, to_offset)
        except FileNotFoundError:
            entries = None
        again = listed()
        if entries is not None and again.transaction_indexes == files.transaction_indexes:
            overlaps = (entries[:, _LAST] >= from_offset) & (entries[:, _FIRST] < to_offset)
            return np.unique(entries[overlaps, :_LAST_STABLE], axis=0)
        files = again
    raise OSError(f"The transaction indexes of {shown(files.path)} change with every listing")


def _entries(
    filesystem: ReadFilesystem, files: PartitionFiles, from_offset: int, to_offset: int
) -> Table:
    """All entries from the segment of ``from_offset`` on that may overlap the range."""
    segment = files.floor(from_offset)
    first = -1 if segment is None else segment.base_offset
    tables = [np.empty((0, 4), np.int64)]
    for base_offset, path in files.transaction_indexes:
        if base_offset < first:
            continue
        try:
            table = unpack_aborted_entries(filesystem.read_file(path))
        except FormatError as error:
            raise CorruptIndex(
                error.reason, file=shown(path), position=error.position or 0
            ) from error
        tables.append(table)
        if len(table) and int(table[:, _LAST_STABLE].max()) >= to_offset:
            break  # later transactions began after the range
    return np.concatenate(tables)


def newest_snapshot(
    filesystem: ReadFilesystem, files: PartitionFiles, end_offset: int
) -> tuple[int, dict[int, int]]:
    """The offset of the newest usable producer snapshot, and the open transactions there.

    Without one: the first offset of the log, and no transactions.
    """
    for offset in reversed(files.snapshots):
        if offset > end_offset:
            continue
        name = segment_file_name(offset, SNAPSHOT_SUFFIX)
        try:
            entries = decode_snapshot(filesystem.read_file(f"{files.path}/{name}"))
        except (FileNotFoundError, FormatError):
            continue  # as a start does: use the next older one, and read more
        opened = ((each.producer_id, each.current_txn_first_offset) for each in entries)
        return offset, {producer: first for producer, first in opened if first >= 0}
    return (files.segments[0].base_offset if files.segments else 0), {}


def last_stable_offset(opened: dict[int, int], tables: Iterable[Table], end_offset: int) -> int:
    """The first offset of the transactions that are open at ``end_offset``, or that offset.

    opened  producer id -> first offset of the transactions that are open where the tables begin
    tables  `BatchColumn` of all batches from there up to the high watermark, ``end_offset``
    """
    opened = dict(opened)
    for table in tables:
        attributes = table[:, BatchColumn.ATTRIBUTES]
        rows = table[attributes & _TRANSACTIONAL != 0]
        for row in rows.tolist():
            producer_id = row[BatchColumn.PRODUCER_ID]
            if row[BatchColumn.ATTRIBUTES] & _CONTROL:
                opened.pop(producer_id, None)
            else:
                opened.setdefault(producer_id, row[BatchColumn.BASE_OFFSET])
    return min(opened.values(), default=end_offset)


WALK_BYTES = 1 << 20
"""Bytes of a read for batch headers or a single record."""

TRIES_MAX = 1000
"""Tries to open a segment whose name is missing each time."""

_SOUND_ENDS = (ScanStop.END, ScanStop.PARTIAL)


class Walked(NamedTuple):
    """The batches of one read in the range: rows of `BatchColumn`, positions in ``data``."""

    data: memoryview
    table: Table
    file: str
    position: int  # of data's first byte in the file


@dataclass(slots=True)
class LogWalk:
    """One walk through the batches of a range, for one thread; see the module.

    path           the partition's directory
    paths          log directories it may move to
    refuses_lost   a gap that is a loss raises DataLost until the loss is accepted; else gaps are
                   skipped
    next_offset    after the last yielded batch, and after the gap that follows it
    end_offset     after the last valid batch that was read, also before the range
    """

    filesystem: ReadFilesystem
    path: str
    wanted: OffsetRange
    _: KW_ONLY
    paths: Sequence[str] = ()
    chunk_bytes: int = WALK_BYTES
    check_crcs: bool = False
    refuses_lost: bool = False
    next_offset: int = field(init=False)
    end_offset: int = field(init=False)

    def __post_init__(self) -> None:
        self.chunk_bytes = max(self.chunk_bytes, HEADER_BYTES)
        self.next_offset = self.end_offset = self.wanted.from_offset

    def chunks(self) -> Iterator[Walked]:
        """The batches in order, up to the end of range or log: see ``next_offset``.

        Raises DataLost for offsets below the first segment and lost ranges, CorruptLog, OSError.
        """
        files, tries = self.listed(), 0
        while self.next_offset < self.wanted.to_offset:
            segment = files.floor(self.next_offset)
            if segment is None:
                raise self._lost(files)
            try:
                file = self.filesystem.open_read(segment.path())
            except FileNotFoundError:
                tries += 1
                if tries == TRIES_MAX:
                    raise
                files = self.listed()
                continue
            tries = 0
            yield from self._of_segment(segment, file)
            following = files.after(segment)
            if following is not None and following.base_offset == self.next_offset:
                continue
            files = self.listed()
            if self._is_end_of(segment, file, files):
                return

    def _is_end_of(self, segment: Segment, file: ReadableFile, files: PartitionFiles) -> bool:
        """At the end of a file: skip a gap, by a new listing; whether no segment follows."""
        now = files.floor(self.next_offset)
        if now is None or now.base_offset != segment.base_offset:
            return False
        if not self.filesystem.is_at(file, now.path()):
            return False  # cleaned meanwhile: the new file may have more offsets
        following = files.after(now)
        if following is None:
            return True
        if self.refuses_lost and self.next_offset < following.base_offset:
            self._require_legal_gap(files, following.base_offset)
        self.next_offset = following.base_offset
        return False

    def _require_legal_gap(self, files: PartitionFiles, end_offset: int) -> None:
        """Raise DataLost if the gap after the next offset is a loss that was not accepted.

        The proof is read after the listing: a daemon writes it before it makes a legal gap.
        """
        wanted = self.wanted
        proof = proof_of(self.filesystem, files.path)
        for first, last in lost_in_gap(
            self.end_offset,
            end_offset,
            is_gapless=proof.is_gapless,
            orphans=files.orphans,
            accepted=proof.accepted_losses,
        ):
            begin, end = max(first, self.next_offset), min(last + 1, wanted.to_offset)
            if begin < end:
                missing = wanted._replace(from_offset=begin, to_offset=end)
                raise DataLost(missing, "the file that held them is missing or was cut short")

    def _of_segment(self, segment: Segment, file: ReadableFile) -> Iterator[Walked]:
        end = file.size()
        position, hint = self._start(segment, file, end)
        previous, wanted = segment.base_offset - 1, self.chunk_bytes
        self.end_offset = segment.base_offset
        while position < end and self.next_offset < self.wanted.to_offset:
            data = memoryview(file.pread(min(wanted, end - position), position))
            rows = scan(data, check_crc=self.check_crcs)
            if not rows.count and rows.stop is ScanStop.PARTIAL and position + len(data) < end:
                size = int.from_bytes(data[LENGTH_AT:LOG_OVERHEAD], "big") + LOG_OVERHEAD
                wanted = max(size, len(data) + 1)
                continue
            if hint is not None and not _begins_at(rows, previous, hint):
                position, hint = 0, None
                continue
            hint, wanted = None, self.chunk_bytes
            disorder = rows.first_disorder(previous)
            rows = rows.before(disorder)
            if rows.count:
                previous = int(rows.table[-1, BatchColumn.LAST_OFFSET])
                self.end_offset = previous + 1
                table = self._taken(rows)
                if len(table):
                    yield Walked(data, table, file.path, position)
            is_at_end = position + len(data) >= end
            position += rows.consumed_bytes
            if self.next_offset >= self.wanted.to_offset:
                return
            if rows.stop not in _SOUND_ENDS or (rows.stop is ScanStop.PARTIAL and is_at_end):
                problem, base_offset = _PROBLEMS[rows.stop], previous + 1
                raise CorruptLog(
                    self.wanted, base_offset, problem, file=file.path, position=position
                )
            if is_at_end:
                return

    def _start(self, segment: Segment, file: ReadableFile, end: int) -> tuple[int, int | None]:
        """(Position to begin at, last offset of the batch there by the index; None: unknown)."""
        if self.next_offset <= segment.base_offset:
            return 0, None
        entries = offset_entries(self.filesystem, segment, file, end)
        slot = int(np.searchsorted(entries[:, 0], self.next_offset, side="right")) - 1
        if slot < 0:
            return 0, None
        return int(entries[slot, 1]), int(entries[slot, 0])

    def _taken(self, rows: BatchRows) -> Table:
        """The rows in the range; moves the next offset past them."""
        last_offsets = rows.column(BatchColumn.LAST_OFFSET)
        first = int(np.searchsorted(last_offsets, self.next_offset))
        end = int(np.searchsorted(rows.column(BatchColumn.BASE_OFFSET), self.wanted.to_offset))
        if first < end:
            self.next_offset = int(last_offsets[end - 1]) + 1
        if end < rows.count:
            self.next_offset = max(self.next_offset, self.wanted.to_offset)
        return rows.table[first:end]

    def listed(self) -> PartitionFiles:
        """The files of the partition, wherever it is now. Raises DataLost."""
        try:
            return PartitionFiles.listed(self.filesystem, self.path)
        except FileNotFoundError:
            place = place_of(self.filesystem, self.paths, self.wanted.topic, self.wanted.partition)
            if place is None:
                raise DataLost(self._rest(), "the partition was deleted") from None
            self.path = place
            return PartitionFiles.listed(self.filesystem, place)

    def _rest(self) -> OffsetRange:
        return self.wanted._replace(from_offset=self.next_offset)

    def _lost(self, files: PartitionFiles) -> DataLost:
        """The error for an offset below the first segment."""
        if not files.segments:
            return DataLost(self._rest(), "the partition has no segment")
        start = files.segments[0].base_offset
        end = min(start, self.wanted.to_offset)
        return DataLost(self._rest()._replace(to_offset=end), f"the log starts at {start}")


_PROBLEMS = {
    ScanStop.PARTIAL: "it is cut short",
    ScanStop.BAD_SIZE: "its length is invalid",
    ScanStop.LEGACY: "its magic is 0 or 1 (see kafkalog segments convert)",
    ScanStop.BAD_MAGIC: "its magic is invalid",
    ScanStop.SHORT_BATCH: "it is shorter than a header",
    ScanStop.BAD_CRC: "its CRC is wrong",
    ScanStop.BAD_OFFSET: "its offsets are not above those of the batch before it",
}


def _begins_at(rows: BatchRows, previous: int, hint: int) -> bool:
    """Whether a batch begins at the position of an index entry, and can be the batch of it."""
    if not rows.count:
        return False
    base, last = (int(rows.table[0, c]) for c in (BatchColumn.BASE_OFFSET, BatchColumn.LAST_OFFSET))
    return previous < base <= last <= hint


def read_directory_piece(
    piece: Piece,
    access: Access,
    chunk_bytes: int,
    *,
    check_crcs: bool,
    filesystem: ReadFilesystem | None = None,
) -> Generator[Chunk, None, None]:
    """See `logs.read_piece`."""
    filesystem = filesystem or filesystem_for(access.paths)
    wanted = piece.range
    walk = LogWalk(
        filesystem,
        piece.place,
        wanted,
        paths=access.paths,
        chunk_bytes=chunk_bytes,
        check_crcs=check_crcs,
        refuses_lost=True,
    )
    _check_log_start(filesystem, walk.listed().path, wanted)
    aborted = np.empty((0, 3), np.int64)
    if access.read_committed:  # before the data: see the module
        offsets = wanted.from_offset, wanted.to_offset
        aborted = aborted_transactions(filesystem, walk.listed, *offsets)
    for read in walk.chunks():
        yield from _runs(read, aborted)
    if walk.next_offset < wanted.to_offset:
        missing = wanted._replace(from_offset=walk.next_offset)
        raise DataLost(missing, f"the log ends at {walk.next_offset}")


def _check_log_start(filesystem: ReadFilesystem, place: str, wanted: OffsetRange) -> None:
    """Raise DataLost for offsets below the checkpointed log start."""
    log_dir = place.rsplit("/", 1)[0]
    starts = Checkpoints(filesystem).offsets(log_dir, LOG_START_OFFSET_CHECKPOINT)
    start = starts.get(TopicPartition(wanted.topic, wanted.partition), 0)
    if wanted.from_offset < start:
        missing = wanted._replace(to_offset=min(start, wanted.to_offset))
        raise DataLost(missing, f"the log starts at {start}")


def _runs(read: Walked, aborted: Table) -> Iterator[Chunk]:
    """The batches of a read without those of aborted transactions, in contiguous runs."""
    for start, end in spans_of(read.table, is_committed(read.table, aborted)):
        yield Chunk(read.data[start:end], read.file, read.position + start)


def directory_topic_id(
    piece: Piece, access: Access, filesystem: ReadFilesystem | None = None
) -> str | None:
    """The id of the topic whose partition has the name now; None: it has none, or is deleted."""
    # On a store with retries: the records are read, and a failed task reads them all again.
    filesystem = filesystem or filesystem_for(access.paths, RequestRetries())
    found = topic_id_in(filesystem, piece.place)
    if found is None:  # it may have moved
        place = place_of(filesystem, access.paths, piece.range.topic, piece.range.partition)
        found = None if place is None else topic_id_in(filesystem, place)
    return found
