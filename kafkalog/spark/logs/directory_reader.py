"""Batches of a range of offsets from a partition's directory, whatever happens to it meanwhile.

Theory: `partition_files`. A walk goes by offset, not by file: behind the last batch of a file it
asks where the next offset lies now. A segment is opened once, its size taken once, and read up to
there; nothing that a range may hold is appended later, as its end was readable when it was planned.
Between two segments offsets may be missing, after a cleaning; before a gap is believed the
directory is listed again, and the file that was read must still have its name. What a daemon would
refuse as lost is lost here, too: the log is gapless, or an index without a log is left. A record
below the first segment is gone by retention, one below the log start by delete-records, though its
segment may hold it still.

Of a partition's directory: which transactions were aborted, and up to where all are decided.

A transaction index holds the aborts whose markers lie in its segment, and is written before anybody
may read the marker. What it says stays true; a cleaning takes an entry when it took the data. So
whoever reads the entries first and the data behind that leaves out all aborted records.
"""

from __future__ import annotations

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
from kafkalog.log.inspect.directory_proof import proof_of
from kafkalog.spark.logs.object_store import filesystem_for, shown
from kafkalog.spark.logs.partition_files import (
    LISTINGS_MAX,
    Checkpoints,
    PartitionFiles,
    offset_entries,
    place_of,
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

    Their markers lie in the segment of ``from_offset`` or behind it. Raises CorruptIndex, OSError.
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
    raise OSError(f"The transaction indexes of {shown(files.path)} change with every look")


def _entries(
    filesystem: ReadFilesystem, files: PartitionFiles, from_offset: int, to_offset: int
) -> Table:
    """All entries from the segment of from_offset on, as far as they can matter."""
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
            break  # later aborts began behind the range
    return np.concatenate(tables)


def newest_snapshot(
    filesystem: ReadFilesystem, files: PartitionFiles, end_offset: int
) -> tuple[int, dict[int, int]]:
    """The offset up to which a producer snapshot knows, and the open transactions there.

    (Where the log begins, nothing) without one that can be used.
    """
    for offset in reversed(files.snapshots):
        if offset > end_offset:
            continue
        name = segment_file_name(offset, SNAPSHOT_SUFFIX)
        try:
            entries = decode_snapshot(filesystem.read_file(f"{files.path}/{name}"))
        except (FileNotFoundError, FormatError):
            continue  # as at a start: the next older one, and more to look through
        opened = ((each.producer_id, each.current_txn_first_offset) for each in entries)
        return offset, {producer: first for producer, first in opened if first >= 0}
    return (files.segments[0].base_offset if files.segments else 0), {}


def last_stable_offset(opened: dict[int, int], tables: Iterable[Table], end_offset: int) -> int:
    """Behind what is decided: the first record of the first transaction that is open at the end.

    opened  producer id -> first offset of those open where the tables begin
    tables  `BatchColumn` of all batches from there up to end_offset, which is the high watermark
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
"""A read of who looks at headers, or for one record."""

TRIES_MAX = 1000
"""Of opening a segment whose name is gone at every try."""

_SOUND_ENDS = (ScanStop.END, ScanStop.PARTIAL)


class Walked(NamedTuple):
    """Batches of one read that lie in the range: rows of `BatchColumn`, positions in ``data``."""

    data: memoryview
    table: Table
    file: str
    position: int  # of data's first byte in the file


class LogWalk:
    """A walk through the batches of a range, once, by one thread; see the module."""

    def __init__(
        self,
        filesystem: ReadFilesystem,
        path: str,
        wanted: OffsetRange,
        *,
        paths: Sequence[str] = (),
        chunk_bytes: int = WALK_BYTES,
        check_crcs: bool = False,
        refuses_lost: bool = False,
    ) -> None:
        """``path``: the partition's directory; ``paths``: where to look when it has moved.

        ``refuses_lost``: DataLost for what a missing ``.log`` held, until the loss is accepted;
        else every gap is passed by.
        """
        self._filesystem = filesystem
        self._path = path
        self._paths = paths
        self._wanted = wanted
        self._chunk_bytes = max(chunk_bytes, HEADER_BYTES)
        self._check_crcs = check_crcs
        self._refuses_lost = refuses_lost
        self.next_offset = wanted.from_offset
        """Behind the last batch that came, and behind the gap that follows it."""
        self.end_offset = wanted.from_offset
        """Behind the last sound batch that was looked at, in front of the range, too."""

    def chunks(self) -> Iterator[Walked]:
        """The batches in order. Ends at the end of the log, too: see ``next_offset``.

        Raises DataLost for offsets below the first segment and lost ranges, CorruptLog, OSError.
        """
        files, tries = self.listed(), 0
        while self.next_offset < self._wanted.to_offset:
            segment = files.floor(self.next_offset)
            if segment is None:
                raise self._lost(files)
            try:
                file = self._filesystem.open_read(segment.path())
            except FileNotFoundError:
                tries += 1
                if tries == TRIES_MAX:
                    raise
                files = self.listed()
                continue
            tries = 0
            yield from self._of_segment(segment, file)
            following = files.behind(segment)
            if following is not None and following.base_offset == self.next_offset:
                continue
            files = self.listed()
            if self._is_end_of(segment, file, files):
                return

    def _is_end_of(self, segment: Segment, file: ReadableFile, files: PartitionFiles) -> bool:
        """Behind a file, with a new listing: step over a gap; whether nothing follows."""
        now = files.floor(self.next_offset)
        if now is None or now.base_offset != segment.base_offset:
            return False
        if not self._filesystem.is_at(file, now.path()):
            return False  # cleaned meanwhile: what is there now may reach further
        following = files.behind(now)
        if following is None:
            return True
        if self._refuses_lost and self.next_offset < following.base_offset:
            self._require_legal_gap(files, following.base_offset)
        self.next_offset = following.base_offset
        return False

    def _require_legal_gap(self, files: PartitionFiles, end_offset: int) -> None:
        """DataLost when records were in the gap from the next offset on, and nobody gave them up.

        The proof is read behind the listing: who makes a legal gap says so before.
        """
        wanted = self._wanted
        proof = proof_of(self._filesystem, files.path)
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
        previous, wanted = segment.base_offset - 1, self._chunk_bytes
        self.end_offset = segment.base_offset
        while position < end and self.next_offset < self._wanted.to_offset:
            data = memoryview(file.pread(min(wanted, end - position), position))
            rows = scan(data, check_crc=self._check_crcs)
            if not rows.count and rows.stop is ScanStop.PARTIAL and position + len(data) < end:
                size = int.from_bytes(data[LENGTH_AT:LOG_OVERHEAD], "big") + LOG_OVERHEAD
                wanted = max(size, len(data) + 1)
                continue
            if hint is not None and not _begins_at(rows, previous, hint):
                position, hint = 0, None
                continue
            hint, wanted = None, self._chunk_bytes
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
            if self.next_offset >= self._wanted.to_offset:
                return
            if rows.stop not in _SOUND_ENDS or (rows.stop is ScanStop.PARTIAL and is_at_end):
                raise self._corrupt(rows.stop, previous + 1, file.path, position)
            if is_at_end:
                return

    def _start(self, segment: Segment, file: ReadableFile, end: int) -> tuple[int, int | None]:
        """(Position to begin at, last offset of the batch there as the index has it)."""
        if self.next_offset <= segment.base_offset:
            return 0, None
        entries = offset_entries(self._filesystem, segment, file, end)
        slot = int(np.searchsorted(entries[:, 0], self.next_offset, side="right")) - 1
        if slot < 0:
            return 0, None
        return int(entries[slot, 1]), int(entries[slot, 0])

    def _taken(self, rows: BatchRows) -> Table:
        """The rows that lie in the range, which count as delivered."""
        last_offsets = rows.column(BatchColumn.LAST_OFFSET)
        first = int(np.searchsorted(last_offsets, self.next_offset))
        end = int(np.searchsorted(rows.column(BatchColumn.BASE_OFFSET), self._wanted.to_offset))
        if first < end:
            self.next_offset = int(last_offsets[end - 1]) + 1
        if end < rows.count:
            self.next_offset = max(self.next_offset, self._wanted.to_offset)
        return rows.table[first:end]

    def listed(self) -> PartitionFiles:
        """What the directory holds now, wherever the partition lies. Raises DataLost."""
        try:
            return PartitionFiles.listed(self._filesystem, self._path)
        except FileNotFoundError:
            place = place_of(
                self._filesystem, self._paths, self._wanted.topic, self._wanted.partition
            )
            if place is None:
                raise DataLost(self._rest(), "the partition was deleted") from None
            self._path = place
            return PartitionFiles.listed(self._filesystem, place)

    def _rest(self) -> OffsetRange:
        return self._wanted._replace(from_offset=self.next_offset)

    def _lost(self, files: PartitionFiles) -> DataLost:
        """Below the first segment."""
        if not files.segments:
            return DataLost(self._rest(), "the partition has no segment")
        start = files.segments[0].base_offset
        end = min(start, self._wanted.to_offset)
        return DataLost(self._rest()._replace(to_offset=end), f"the log starts at {start}")

    def _corrupt(self, stop: ScanStop, base_offset: int, file: str, position: int) -> CorruptLog:
        problem = _PROBLEMS[stop]
        return CorruptLog(self._wanted, base_offset, problem, file=file, position=position)


_PROBLEMS = {
    ScanStop.PARTIAL: "it is cut short",
    ScanStop.BAD_SIZE: "its length is none",
    ScanStop.LEGACY: "it is of magic 0 or 1",
    ScanStop.BAD_MAGIC: "its magic is none",
    ScanStop.SHORT_BATCH: "it is shorter than a header",
    ScanStop.BAD_CRC: "its CRC is wrong",
    ScanStop.BAD_OFFSET: "its offsets lie before those in front of it",
}


def _begins_at(rows: BatchRows, previous: int, hint: int) -> bool:
    """Whether a batch begins where an index entry points, and can be the one that it means."""
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
    if access.read_committed:  # before the data: see `transactions`
        offsets = wanted.from_offset, wanted.to_offset
        aborted = aborted_transactions(filesystem, walk.listed, *offsets)
    for read in walk.chunks():
        yield from _runs(read, aborted)
    if walk.next_offset < wanted.to_offset:
        missing = wanted._replace(from_offset=walk.next_offset)
        raise DataLost(missing, f"the log ends at {walk.next_offset}")


def _check_log_start(filesystem: ReadFilesystem, place: str, wanted: OffsetRange) -> None:
    """Raises DataLost for what is deleted as far as the log start was written down."""
    log_dir = place.rsplit("/", 1)[0]
    starts = Checkpoints(filesystem).offsets(log_dir, LOG_START_OFFSET_CHECKPOINT)
    start = starts.get(TopicPartition(wanted.topic, wanted.partition), 0)
    if wanted.from_offset < start:
        missing = wanted._replace(to_offset=min(start, wanted.to_offset))
        raise DataLost(missing, f"the log starts at {start}")


def _runs(read: Walked, aborted: Table) -> Iterator[Chunk]:
    """The batches of a read, without those of aborted transactions: what is left lies in runs."""
    for start, end in spans_of(read.table, is_committed(read.table, aborted)):
        yield Chunk(read.data[start:end], read.file, read.position + start)
