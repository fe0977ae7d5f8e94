"""Where the first record at or after a time may be, by the time indexes, and the record itself.

The last entry of a time index names the newest record of its segment, unless the segment is the
last one. Over a store these entries are read together, in order, until one is new enough; what they
say is held as long as the index is the same object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kafkalog.errors import KafkalogError
from kafkalog.format.disk.file_names import TIME_INDEX_SUFFIX
from kafkalog.format.disk.index_entries import TIME_ENTRY
from kafkalog.format.integers import FormatError
from kafkalog.format.records.batch_scan import BatchColumn
from kafkalog.format.records.record import read_records
from kafkalog.spark.logs.partition_files import time_entries
from kafkalog.spark.logs.piece_plan import FIRST_READS_AHEAD, READS_AHEAD, IndexRead
from kafkalog.spark.logs.values import CorruptLog

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from kafkalog.env.filesystem import ReadFilesystem
    from kafkalog.spark.logs.directory_reader import Walked
    from kafkalog.spark.logs.listed_store import ListedStore
    from kafkalog.spark.logs.partition_files import PartitionFiles, Segment
    from kafkalog.spark.logs.plan_cache import PlanCache
    from kafkalog.spark.logs.values import OffsetRange

_UNKNOWN = -1  # no entry, or padding


def newer_from(
    store: ListedStore, cache: PlanCache, files: PartitionFiles, wanted: OffsetRange, time_ms: int
) -> Generator[list[IndexRead], list[bytes], int]:
    """The first offset of the range that is in a segment which may have a record of the time.

    Yields reads and receives their bytes.
    """
    segments = [
        segment
        for segment, following in zip(files.segments[:-1], files.segments[1:], strict=True)
        if following.base_offset > wanted.from_offset and segment.base_offset < wanted.to_offset
    ]
    most = FIRST_READS_AHEAD
    for first in range(len(segments)):
        known = _known(store, cache, segments[first])
        if known is None:
            some = segments[first : first + most]
            unknown = [each for each in some if _known(store, cache, each) is None]
            most = min(4 * most, READS_AHEAD)
            reads = [_last_entry(store, each) for each in unknown]
            for segment, part in zip(unknown, (yield reads), strict=True):
                _remember(store, cache, segment, part)
            known = _known(store, cache, segments[first])
        if known is None or known == _UNKNOWN or known >= time_ms:
            return max(wanted.from_offset, segments[first].base_offset)
    return max(wanted.from_offset, files.segments[-1].base_offset) if files.segments else 0


def _last_entry(store: ListedStore, segment: Segment) -> IndexRead:
    path = segment.path(TIME_INDEX_SUFFIX)
    end = store.stat(path).size // TIME_ENTRY.size * TIME_ENTRY.size
    return IndexRead(path, end - TIME_ENTRY.size, TIME_ENTRY.size)


def _known(store: ListedStore, cache: PlanCache, segment: Segment) -> int | None:
    """The newest time of a segment by its index; None: it is not read yet."""
    path = segment.path(TIME_INDEX_SUFFIX)
    if not store.exists(path) or store.stat(path).size < TIME_ENTRY.size:
        return _UNKNOWN
    identity = _identity(store, segment)
    return _UNKNOWN if identity is None else cache.newest.get(path, identity)


def _remember(store: ListedStore, cache: PlanCache, segment: Segment, part: bytes) -> None:
    newest = _UNKNOWN
    if len(part) == TIME_ENTRY.size:
        time_ms, relative_offset = TIME_ENTRY.unpack(part)
        newest = time_ms if time_ms > 0 and relative_offset >= 0 else _UNKNOWN
    cache.newest.put(segment.path(TIME_INDEX_SUFFIX), _identity(store, segment), newest)


def _identity(store: ListedStore, segment: Segment) -> object:
    both = store.identity(segment.path(TIME_INDEX_SUFFIX)), store.identity(segment.path())
    return None if None in both else both


def candidates(
    filesystem: ReadFilesystem, files: PartitionFiles, wanted: OffsetRange, timestamp_ms: int
) -> Iterator[OffsetRange]:
    """The ranges in which the record may be, in order."""
    for segment in files.segments:
        following = files.after(segment)
        end = wanted.to_offset if following is None else following.base_offset
        begin, end = max(wanted.from_offset, segment.base_offset), min(wanted.to_offset, end)
        if begin >= end:
            continue
        file = filesystem.open_read(segment.path())
        entries = time_entries(filesystem, segment, file)
        slot = int(np.searchsorted(entries[:, 0], timestamp_ms)) - 1
        if slot >= 0 and slot == len(entries) - 1 and following is not None:
            continue  # the last entry of an inactive segment is for its newest record
        if slot >= 0:
            begin = max(begin, int(entries[slot, 1]))
        if begin < end:
            yield wanted._replace(from_offset=begin, to_offset=end)


def first_in(read: Walked, wanted: OffsetRange, timestamp_ms: int) -> int | None:
    """The first record of a read that is not older; decodes only batches that may have one."""
    rows = read.table[read.table[:, BatchColumn.MAX_TIMESTAMP] >= timestamp_ms]
    for row in rows.tolist():
        start = row[BatchColumn.POSITION]
        batch = read.data[start : start + row[BatchColumn.SIZE]]
        try:
            records = read_records(batch)
        except (FormatError, KafkalogError) as error:
            raise CorruptLog(
                wanted,
                row[BatchColumn.BASE_OFFSET],
                str(error),
                file=read.file,
                position=read.position + start,
            ) from error
        hits = np.flatnonzero(
            (records.timestamps >= timestamp_ms)
            & (records.offsets >= wanted.from_offset)
            & (records.offsets < wanted.to_offset)
        )
        if len(hits):
            return int(records.offsets[hits[0]])
    return None
