"""The facts that retention is planned from, read from a partition directory without opening a log.

Sizes and names from the listing, the largest timestamp of a closed segment from the last entry of
its time index, and only where that says nothing, and at the end of the last segment, from batch
headers. Indexes are believed: this is for forecasts, not for deletions. Reads only; a directory may
be served meanwhile. Any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kafkalog.format.batch_scan import BatchColumn, ScanStop, scan
from kafkalog.format.file_names import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    parse_segment_file,
    segment_file_name,
)
from kafkalog.format.format_error import FormatError
from kafkalog.log.retention_plan import LogFacts, SegmentFacts
from kafkalog.log.segment_check import OFFSET_ENTRY, TIME_ENTRY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.env.filesystem import FileStat, ReadFilesystem

CHUNK_BYTES = 8 << 20


class _Headers(NamedTuple):
    """What batch headers say: behind the last batch, and the largest timestamp, -1 for none."""

    next_offset: int
    largest_timestamp_ms: int


def directory_facts(
    path: str, filesystem: ReadFilesystem, log_start_offset: int, high_watermark: int | None
) -> LogFacts | None:
    """The facts of a directory; None when no segment lies there. OSError.

    The log start is at least the first segment's base, as at a start; a high watermark that is not
    known, or lies above the log end, is the log end.
    """
    files = {each.name: each for each in filesystem.list_dir_stats(path)}
    bases = sorted(each for name in files if (each := _base_of(name)) is not None)
    if not bases:
        return None
    segments: list[SegmentFacts] = []
    end_offset = bases[-1]
    for base in bases:
        is_last = base == bases[-1]
        stat = files[segment_file_name(base, LOG_SUFFIX)]
        largest = _last_timestamp(path, filesystem, base, files)
        if is_last or largest < 0:
            headers = _read_headers(path, filesystem, base, is_tail=is_last and largest >= 0)
            largest = max(largest, headers.largest_timestamp_ms)
            end_offset = max(end_offset, headers.next_offset)
        shown = largest if largest >= 0 else stat.mtime_ms
        segments.append(SegmentFacts(base, stat.size, shown))
    known = end_offset if high_watermark is None else min(high_watermark, end_offset)
    return LogFacts(
        segments=tuple(segments),
        size_bytes=sum(each.size_bytes for each in segments),
        log_start_offset=max(log_start_offset, bases[0]),
        high_watermark=known,
        log_end_offset=end_offset,
    )


def _base_of(name: str) -> int | None:
    """Of a served ``.log``."""
    try:
        parsed = parse_segment_file(name)
    except FormatError:
        return None
    is_log = parsed is not None and parsed.suffix == LOG_SUFFIX and not parsed.stage
    return parsed.offset if parsed is not None and is_log else None


def _last_timestamp(
    path: str, filesystem: ReadFilesystem, base: int, files: Mapping[str, FileStat]
) -> int:
    """Of the last entry of the time index that is not padding; -1 without one."""
    name = segment_file_name(base, TIME_INDEX_SUFFIX)
    if name not in files:
        return -1
    entries = _entries(filesystem.read_file(f"{path}/{name}"), TIME_ENTRY)
    used = np.flatnonzero(entries["timestamp"])
    return int(entries["timestamp"][used[-1]]) if len(used) else -1


def _entries(raw: bytes, dtype: np.dtype[np.void]) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    return np.frombuffer(raw[: len(raw) - len(raw) % dtype.itemsize], dtype=dtype)


def _read_headers(path: str, filesystem: ReadFilesystem, base: int, *, is_tail: bool) -> _Headers:
    """Walk the batches, with is_tail only those from the last entry of the offset index on."""
    position = _last_position(path, filesystem, base) if is_tail else 0
    file = filesystem.open_read(f"{path}/{segment_file_name(base, LOG_SUFFIX)}")
    size, wanted = file.size(), CHUNK_BYTES
    next_offset, largest = base, -1
    while position < size:
        rows = scan(file.pread(min(wanted, size - position), position), check_crc=False)
        if rows.count:
            next_offset = int(rows.column(BatchColumn.LAST_OFFSET)[-1]) + 1
            largest = max(largest, int(rows.column(BatchColumn.MAX_TIMESTAMP).max()))
        is_whole = rows.stop in (ScanStop.END, ScanStop.PARTIAL)
        if not is_whole or (not rows.count and position + wanted >= size):
            break  # a torn tail, or damage, behind which nobody believes anything
        position += rows.consumed_bytes
        wanted = CHUNK_BYTES if rows.count else wanted * 2
    file.close()
    return _Headers(next_offset, largest)


def _last_position(path: str, filesystem: ReadFilesystem, base: int) -> int:
    """Where the batch of the last entry of the offset index begins; 0 without one."""
    try:
        raw = filesystem.read_file(f"{path}/{segment_file_name(base, OFFSET_INDEX_SUFFIX)}")
    except FileNotFoundError:
        return 0
    entries = _entries(raw, OFFSET_ENTRY)
    used = np.flatnonzero(entries["position"])
    return int(entries["position"][used[-1]]) if len(used) else 0
