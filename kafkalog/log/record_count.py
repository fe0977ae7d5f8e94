"""What batch headers tell of a log, almost without opening it: how many records, and from when.

Each segment is walked once, as far as it goes; what is appended afterwards is walked by the next
look, so that a look at a quiet log costs no read. Records below the log start do not count: those
of the segment that the log start divides are walked a second time, up to there, and the one batch
that it divides is opened where compaction left holes in it. Transaction markers are no records;
those of aborted transactions are, as who reads uncommitted sees them. A clean replaces segments and
nothing rewrites one, so that a count by identity holds.

One thread at a time; reads what is published, by handles of its own that leave the page cache as it
was. Memory: about 200 bytes a segment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kafkalog.format.batch_scan import BatchColumn
from kafkalog.format.record import read_records
from kafkalog.format.record_batch import (
    TimestampType,
    has_delete_horizon,
    is_control,
    timestamp_type_of,
)
from kafkalog.log.segment_read import SCAN_CHUNK_BYTES, scan_chunks

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from kafkalog.format.batch_scan import BatchRows
    from kafkalog.log.log_segment import LogSegment
    from kafkalog.log.segment_read import ScannedChunk
    from kafkalog.log.unified_log import UnifiedLog

    Mask = npt.NDArray[np.bool_]

_CONTROL_BIT = 0x20
_SMALL_CHUNK_BYTES = 64 << 10  # most batches are smaller


@dataclass(slots=True)
class _Counted:
    """Records of one segment in front of ``position``, and those of them below ``start_offset``."""

    segment: LogSegment
    position: int = 0
    records: int = 0
    start_offset: int = -1
    start_position: int = 0  # of the first batch that reaches start_offset
    records_passed: int = 0  # in front of start_position
    records_divided: int = 0  # in that batch, below start_offset


class RecordCount:
    """See the module."""

    def __init__(self) -> None:
        self._segments: dict[int, _Counted] = {}  # by base offset
        self.records: int | None = None
        """That could be read at the last look; None: something of the log was not walked yet."""
        self.walked_bytes = 0
        """Of the segments that were there at the last look, but for what has to be walked again."""

    def look(self, log: UnifiedLog, most_bytes: int) -> int:
        """Walk what was not walked yet, about ``most_bytes`` of it; the bytes that were read.

        What lies behind damage is never walked. OSError; FormatError and InvalidRequest for a
        batch that the log start divides and that cannot be opened.
        """
        start, segments = log.log_start_offset, log.segments.values
        following = [each.base_offset for each in segments[1:]]
        kept: dict[int, _Counted] = {}
        read_bytes, walked_bytes, records, is_whole = 0, 0, 0, True
        for segment, next_base in zip(segments, [*following, None], strict=True):
            if next_base is not None and next_base <= start:
                continue  # retention has not taken it yet; nobody can read it
            known = self._segments.get(segment.base_offset)
            if known is None or known.segment is not segment:
                known = _Counted(segment)
            kept[segment.base_offset] = known
            size_bytes = segment.size_bytes
            read_bytes += _walk(known, size_bytes, most_bytes - read_bytes)
            is_whole = is_whole and known.position == size_bytes
            walked_bytes += known.position
            if segment.base_offset < start:
                read_bytes += _walk_to_start(known, size_bytes, start, most_bytes - read_bytes)
                if known.start_offset != start:
                    is_whole = False
                    walked_bytes -= known.position - known.start_position
                records -= known.records_passed + known.records_divided
            records += known.records
        self._segments = kept
        self.walked_bytes = walked_bytes
        self.records = records if is_whole else None
        return read_bytes


def _scan(segment: LogSegment, position: int, end: int, most_bytes: int) -> Iterator[ScannedChunk]:
    """As scan_chunks, beside the page cache and the handles of readers; small chunks for few."""
    if position < end:
        chunk_bytes = min(max(most_bytes, _SMALL_CHUNK_BYTES), SCAN_CHUNK_BYTES)
        file = segment.log_file.open_scan()
        yield from scan_chunks(
            segment, position, end, check_crc=False, chunk_bytes=chunk_bytes, file=file
        )


def _walk(known: _Counted, end: int, most_bytes: int) -> int:
    """Go on to ``end``, unless that is too far; bytes that were read."""
    first = known.position
    if most_bytes > 0:
        for chunk in _scan(known.segment, first, end, most_bytes):
            known.records += records_in(chunk.rows, chunk.rows.count)
            known.position = chunk.position + chunk.rows.consumed_bytes
            if known.position - first >= most_bytes:
                break
    return known.position - first


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
    """Of one batch; opened only when offsets do not tell."""
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
    """Timestamp of the first batch that can be read: its first record's; None without any.

    Markers have none that anybody asks for. OSError; errors as ``oldest_in``.
    """
    start = log.log_start_offset
    segment: LogSegment | None = log.segments.floor(start) or log.segments.first
    while segment is not None:
        position = segment.floor_position(start) if segment.base_offset < start else 0
        for chunk in _scan(segment, position, segment.size_bytes, most_bytes=1):
            timestamp_ms = oldest_in(chunk.data, chunk.rows, start)
            if timestamp_ms is not None:
                return timestamp_ms if timestamp_ms >= 0 else None
        segment = log.segments.higher(segment.base_offset)
    return None


def oldest_in(data: memoryview | bytes, rows: BatchRows, start: int = 0) -> int | None:
    """Of the first batch with records that reaches ``start``: its first record's timestamp.

    None without such a batch; -1 when its records have none. ``rows`` are those of ``data``. A
    delete horizon lies where the header has the first timestamp otherwise: then the batch is
    opened. FormatError and InvalidRequest when it cannot be.
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
    return int(read_records(_batch(data, rows, row)).timestamps[0])


def _batch(data: memoryview | bytes, rows: BatchRows, row: int) -> memoryview:
    position = _cell(rows, row, BatchColumn.POSITION)
    return memoryview(data)[position : position + _cell(rows, row, BatchColumn.SIZE)]
