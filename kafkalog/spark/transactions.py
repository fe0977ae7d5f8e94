"""Of a partition's directory: which transactions were aborted, and up to where all are decided.

A transaction index holds the aborts whose markers lie in its segment, and is written before anybody
may read the marker. What it says stays true; a cleaning takes an entry when it took the data. So
whoever reads the entries first and the data behind that leaves out all aborted records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kafkalog.errors import CorruptIndex
from kafkalog.format.disk.file_names import SNAPSHOT_SUFFIX, segment_file_name
from kafkalog.format.disk.index_entries import unpack_aborted_entries
from kafkalog.format.disk.producer_snapshot import decode_snapshot
from kafkalog.format.integers import FormatError
from kafkalog.format.records.batch_scan import BatchColumn
from kafkalog.spark.object_store import shown
from kafkalog.spark.partition_files import LISTINGS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy.typing as npt

    from kafkalog.env.filesystem import ReadFilesystem
    from kafkalog.spark.partition_files import PartitionFiles

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
