"""What batch headers say of a log, almost without opening it: how many records, and from when.

Each segment is walked once, up to its end; what is appended afterwards is walked by the next count,
so that a count of a quiet log costs no read. Records below the log start do not count: those of the
segment that the log start divides are walked a second time, up to there, and the one batch that it
divides is opened where compaction left holes in it. Transaction markers are no records; those of
aborted transactions are, as readers of uncommitted records see them. A clean replaces segments and
nothing rewrites one, so that a count by identity holds.

One thread at a time; reads what is published, by handles of its own that leave the page cache as it
was. Memory: about 200 bytes a segment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kafkalog.errors import InvalidRequest
from kafkalog.format.integers import FormatError
from kafkalog.format.records.batch_scan import BatchColumn
from kafkalog.format.records.record import read_records
from kafkalog.format.records.record_batch import (
    TimestampType,
    has_delete_horizon,
    is_control,
    timestamp_type_of,
)
from kafkalog.log.segment.index_repair import floor_entry
from kafkalog.log.segment.segment_file import SCAN_CHUNK_BYTES, scan_chunks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from kafkalog.format.records.batch_scan import BatchRows, ScannedChunk
    from kafkalog.log.segment.log_segment import LogSegment
    from kafkalog.log.unified_log import UnifiedLog

    Mask = npt.NDArray[np.bool_]

_CONTROL_BIT = 0x20
_SMALL_CHUNK_BYTES = 64 << 10  # most batches are smaller


@dataclass(slots=True)
class _Counted:
    """Records of one segment before ``position``, and those of them below ``start_offset``."""

    segment: LogSegment
    position: int = 0
    records: int = 0
    start_offset: int = -1
    start_position: int = 0  # of the first batch that reaches start_offset
    records_passed: int = 0  # before start_position
    records_divided: int = 0  # in that batch, below start_offset

    def is_divided_by(self, start: int) -> bool:
        """Whether records below the log start do not count."""
        return self.segment.base_offset < start

    def walked_bytes(self, start: int) -> int:
        """But for what has to be walked again for the sake of the log start."""
        if self.is_divided_by(start) and self.start_offset != start:
            return self.start_position
        return self.position

    def records_from(self, start: int) -> int:
        """Of what was walked."""
        if self.is_divided_by(start):
            return self.records - self.records_passed - self.records_divided
        return self.records

    def walk(self, start: int, most_bytes: int) -> tuple[int, bool]:
        """Go on, unless that is too far: bytes that were read, and whether all is counted now."""
        size_bytes, first = self.segment.size_bytes, self.position
        if most_bytes > 0:
            for chunk in _scan(self.segment, first, size_bytes, most_bytes):
                self.records += records_in(chunk.rows, chunk.rows.count)
                self.position = chunk.position + chunk.rows.consumed_bytes
                if self.position - first >= most_bytes:
                    break
        read_bytes, is_whole = self.position - first, self.position == size_bytes
        if self.is_divided_by(start):
            read_bytes += _walk_to_start(self, size_bytes, start, most_bytes - read_bytes)
            is_whole = is_whole and self.start_offset == start
        return read_bytes, is_whole


class RecordCount:
    """See the module."""

    def __init__(self) -> None:
        self._segments: tuple[LogSegment, ...] = ()  # of the last look, with its log start
        self._start = -1
        self._counted: list[_Counted] = []  # those that can be read
        self._next = 0  # the first of them that may change, or was not walked to its end
        self._records = 0  # of those before it
        self.records: int | None = None
        """That could be read at the last look; None: something of the log was not walked yet."""
        self.walked_bytes = 0
        """Of the segments that were there at the last look, but for what has to be walked again."""

    def look(
        self, log: UnifiedLog, most_bytes: int, rest: Callable[[], None] = lambda: None
    ) -> int:
        """Walk what was not walked yet, about ``most_bytes`` of it; the bytes that were read.

        As long as segments and log start are the same, it begins where the last look ended.
        ``rest`` is called between two segments. What lies after damage is never walked. OSError;
        FormatError and InvalidRequest for a batch that the log start divides and that cannot be
        opened.
        """
        start, segments = log.log_start_offset, log.segments.values
        if segments is not self._segments or start != self._start:
            self._begin(segments, start, rest)
        read_bytes, is_whole = 0, True
        for known in self._counted[self._next :]:
            walked_bytes = known.walked_bytes(start)
            try:
                count, is_whole = known.walk(start, most_bytes - read_bytes)
            finally:  # a walk that fails has come some way
                self.walked_bytes += known.walked_bytes(start) - walked_bytes
            read_bytes += count
            if not is_whole or known is self._counted[-1]:
                break
            self._records += known.records_from(start)
            self._next += 1
            rest()
        last = self._counted[-1].records_from(start) if self._counted else 0
        self.records = self._records + last if is_whole else None
        return read_bytes

    def _begin(
        self, segments: tuple[LogSegment, ...], start: int, rest: Callable[[], None]
    ) -> None:
        """From the first segment on again; what was walked of those that are still there counts."""
        former = {each.segment.base_offset: each for each in self._counted}
        self._counted, self._next, self._records, self.walked_bytes = [], 0, 0, 0
        for number, segment in enumerate(segments):
            rest()
            if number + 1 < len(segments) and segments[number + 1].base_offset <= start:
                continue  # retention has not taken it yet; no reader gets there
            if segment.holds_messages:
                continue  # nor into an old format
            known = former.get(segment.base_offset)
            if known is None or known.segment is not segment:
                known = _Counted(segment)
            self._counted.append(known)
            self.walked_bytes += known.walked_bytes(start)
        self._segments, self._start = segments, start


def _scan(segment: LogSegment, position: int, end: int, most_bytes: int) -> Iterator[ScannedChunk]:
    """As scan_chunks, beside the page cache and the handles of readers; small chunks for few."""
    if position < end:
        chunk_bytes = min(max(most_bytes, _SMALL_CHUNK_BYTES), SCAN_CHUNK_BYTES)
        file = segment.log_file.open_scan()
        yield from scan_chunks(
            segment.log_file, position, end, check_crc=False, chunk_bytes=chunk_bytes, file=file
        )


def _walk_to_start(known: _Counted, end: int, start: int, most_bytes: int) -> int:
    """Count those below the log start, which only rises; bytes that were read.

    Not done, to be gone on with, while that is too far or the walk has not come so far.
    """
    if known.start_offset == start or most_bytes <= 0:
        return 0
    read_bytes, divided, is_done = 0, 0, False
    for chunk in _scan(known.segment, known.start_position, known.position, most_bytes):
        read_bytes += chunk.rows.consumed_bytes
        row = int(np.searchsorted(chunk.rows.column(BatchColumn.LAST_OFFSET), start))
        known.records_passed += records_in(chunk.rows, row)
        if row < chunk.rows.count:
            known.start_position = chunk.position + _cell(chunk.rows, row, BatchColumn.POSITION)
            divided, is_done = _records_below(chunk, row, start), True
            break
        known.start_position = chunk.position + chunk.rows.consumed_bytes
        if read_bytes >= most_bytes:
            break
    if is_done or known.start_position == end:
        known.records_divided = divided
        known.start_offset = start
    return read_bytes


def is_data(rows: BatchRows) -> Mask:
    """Which rows are no markers."""
    found: Mask = rows.column(BatchColumn.ATTRIBUTES) & _CONTROL_BIT == 0
    return found


def records_in(rows: BatchRows, count: int) -> int:
    """Records of the first ``count`` rows that are no markers."""
    return int(rows.column(BatchColumn.RECORD_COUNT)[:count][is_data(rows)[:count]].sum())


def _records_below(chunk: ScannedChunk, row: int, start: int) -> int:
    """Of one batch; opened only when its offsets do not say it."""
    rows = chunk.rows
    base = _cell(rows, row, BatchColumn.BASE_OFFSET)
    last = _cell(rows, row, BatchColumn.LAST_OFFSET)
    if base >= start or is_control(_cell(rows, row, BatchColumn.ATTRIBUTES)):
        return 0
    if _cell(rows, row, BatchColumn.RECORD_COUNT) == last - base + 1:
        return start - base
    return int((read_records(_batch(chunk.data, rows, row)).offsets < start).sum())


def _cell(rows: BatchRows, row: int, column: BatchColumn) -> int:
    return int(rows.column(column)[row])


def oldest_timestamp_ms(log: UnifiedLog) -> int | None:
    """Timestamp of the first batch that can be read: its first record's; else as ``oldest_in``.

    The log start may lie after that record, within the batch. Markers have none that anybody asks
    for. OSError.
    """
    start = log.log_start_offset
    segment: LogSegment | None = log.segments.floor(start) or log.segments.first
    while segment is not None:
        position = floor_entry(segment, start).position if segment.base_offset < start else 0
        for chunk in _scan(segment, position, segment.size_bytes, most_bytes=1):
            timestamp_ms = oldest_in(chunk.data, chunk.rows, start)
            if timestamp_ms is not None:
                return timestamp_ms
        segment = log.segments.higher(segment.base_offset)
    return None


def oldest_in(data: memoryview | bytes, rows: BatchRows, start: int = 0) -> int | None:
    """Of the first batch with records that reaches ``start``: its first record's timestamp.

    None without such a batch; -1 when its records have none, or when it cannot be opened. That is
    done for a delete horizon alone, which lies where the header has the first timestamp otherwise.
    ``rows`` are those of ``data``.
    """
    has_records = is_data(rows) & (rows.column(BatchColumn.RECORD_COUNT) > 0)
    found = np.flatnonzero(has_records & (rows.column(BatchColumn.LAST_OFFSET) >= start))
    if not len(found):
        return None
    row = int(found[0])
    attributes = _cell(rows, row, BatchColumn.ATTRIBUTES)
    if timestamp_type_of(attributes) is TimestampType.LOG_APPEND_TIME:
        return _cell(rows, row, BatchColumn.MAX_TIMESTAMP)
    if not has_delete_horizon(attributes):
        return _cell(rows, row, BatchColumn.BASE_TIMESTAMP)
    try:
        return int(read_records(_batch(data, rows, row)).timestamps[0])
    except (FormatError, InvalidRequest):
        return (
            -1
        )  # broken, or larger than what is opened: a check or a read of the batch reports that


def _batch(data: memoryview | bytes, rows: BatchRows, row: int) -> memoryview:
    position = _cell(rows, row, BatchColumn.POSITION)
    return memoryview(data)[position : position + _cell(rows, row, BatchColumn.SIZE)]
