"""What batch headers say of each segment of a directory at rest, without a log object.

For ``kafkalog segments list``. Opens ``.log`` files for reading only and checks no CRC: what is
broken is the business of ``segment_check``. Files that are set aside (``.deleted``) or not yet in
place (``.cleaned``, ``.swap``) are told as well. Any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafkalog.format.batch_scan import BatchColumn, ScanStop, scan
from kafkalog.format.file_names import LOG_SUFFIX, parse_segment_file
from kafkalog.format.format_error import FormatError
from kafkalog.log.record_count import oldest_in, records_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.env.filesystem import ReadFilesystem
    from kafkalog.format.batch_scan import BatchRows
    from kafkalog.format.file_names import SegmentFileName

_CHUNK_BYTES = 8 * 1024 * 1024


class SegmentSummary(NamedTuple):
    """One ``.log`` file.

    stage             empty, or what its name ends with: .deleted, .cleaned, .swap
    next_offset       behind its last whole batch
    size_bytes        of the file; whole_bytes of them are batches
    records           that are no transaction markers
    oldest_ms         of the first record, newest_ms the largest of all; None without any, and where
                      the first record's batch cannot be opened
    """

    base_offset: int
    stage: str
    is_last: bool
    next_offset: int
    size_bytes: int
    whole_bytes: int
    batches: int
    records: int
    oldest_ms: int | None
    newest_ms: int | None


def summarize_segments(path: str, filesystem: ReadFilesystem) -> Iterator[SegmentSummary]:
    """Every segment of a partition directory by base offset; OSError."""
    files = [stat.name for stat in filesystem.list_dir_stats(path) if stat.is_file]
    names = [name for file in files if (name := _segment_of(file)) is not None]
    last = max((name.offset for name in names if not name.stage), default=None)
    for name in sorted(names, key=lambda each: (each.offset, each.stage)):
        is_last = not name.stage and name.offset == last
        yield _summarize(f"{path}/{name}", filesystem, name, is_last=is_last)


def _segment_of(file_name: str) -> SegmentFileName | None:
    """None for every file that is no ``.log``; a name that is wrong is ``verify``'s to tell."""
    try:
        name = parse_segment_file(file_name)
    except FormatError:
        return None
    return name if name is not None and name.suffix == LOG_SUFFIX else None


def _summarize(
    file_path: str, filesystem: ReadFilesystem, name: SegmentFileName, *, is_last: bool
) -> SegmentSummary:
    file = filesystem.open_read(file_path)
    try:
        size_bytes = file.size()
        position, batches, records, next_offset = 0, 0, 0, name.offset
        oldest_ms: int | None = None
        newest_ms = -1
        wanted = _CHUNK_BYTES
        while position < size_bytes:
            data = file.pread(min(wanted, size_bytes - position), position)
            rows = scan(data, check_crc=False)
            if rows.count:
                batches += rows.count
                records += records_in(rows, rows.count)
                next_offset = int(rows.column(BatchColumn.LAST_OFFSET)[-1]) + 1
                newest_ms = max(newest_ms, int(rows.column(BatchColumn.MAX_TIMESTAMP).max()))
                if oldest_ms is None:
                    oldest_ms = oldest_in(data, rows)
            position += rows.consumed_bytes
            if _is_over(rows, is_whole=position + wanted >= size_bytes):
                break
            wanted = _CHUNK_BYTES if rows.count else wanted * 2  # a batch larger than the chunk
    finally:
        file.close()
    return SegmentSummary(
        name.offset, name.stage, is_last, next_offset, size_bytes, position, batches, records,
        oldest_ms if oldest_ms is not None and oldest_ms >= 0 else None,
        newest_ms if newest_ms >= 0 else None,
    )  # fmt: skip


def _is_over(rows: BatchRows, *, is_whole: bool) -> bool:
    """Whether no batch begins where the walk has come; ``is_whole``: all was read from there."""
    return rows.stop not in (ScanStop.END, ScanStop.PARTIAL) or (not rows.count and is_whole)
