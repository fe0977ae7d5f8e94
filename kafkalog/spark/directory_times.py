"""The first record at or after a time, by the time indexes of a partition's directory.

An index entry (timestamp, offset) says that nothing up to the offset is newer. It is a hint: the
answer is a record that was read. Source: Kafka's LogSegment.findOffsetByTimestamp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kafkalog.errors import KafkalogError
from kafkalog.format.integers import FormatError
from kafkalog.format.records.batch_scan import BatchColumn
from kafkalog.format.records.record import read_records
from kafkalog.spark.directory_reads import LogWalk
from kafkalog.spark.logs import CorruptLog
from kafkalog.spark.object_store import shown
from kafkalog.spark.partition_files import LISTINGS_MAX, time_entries

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalog.env.filesystem import ReadFilesystem
    from kafkalog.spark.directory_reads import Walked
    from kafkalog.spark.logs import OffsetRange
    from kafkalog.spark.partition_files import PartitionFiles


def first_record_at(
    filesystem: ReadFilesystem,
    paths: Sequence[str],
    place: str,
    wanted: OffsetRange,
    timestamp_ms: int,
) -> int | None:
    """Offset of the first record of the range that is not older; None: all are.

    Raises CorruptLog, DataLost when retention took the range meanwhile, and OSError.
    """
    whole = LogWalk(filesystem, place, wanted, paths=paths)
    for _ in range(LISTINGS_MAX):
        files = whole.listed()
        try:
            candidates = list(_candidates(filesystem, files, wanted, timestamp_ms))
        except FileNotFoundError:
            continue  # a segment lost its name meanwhile
        break
    else:
        raise FileNotFoundError(2, "Its segments vanish at every look", shown(place))
    for candidate in candidates:
        walk = LogWalk(filesystem, files.path, candidate, paths=paths, check_crcs=True)
        for read in walk.chunks():
            found = _first_in(read, candidate, timestamp_ms)
            if found is not None:
                return found
    return None


def _candidates(
    filesystem: ReadFilesystem, files: PartitionFiles, wanted: OffsetRange, timestamp_ms: int
) -> Iterator[OffsetRange]:
    """Where it may be, segment by segment."""
    for segment in files.segments:
        following = files.behind(segment)
        end = wanted.to_offset if following is None else following.base_offset
        begin, end = max(wanted.from_offset, segment.base_offset), min(wanted.to_offset, end)
        if begin >= end:
            continue
        file = filesystem.open_read(segment.path())
        entries = time_entries(filesystem, segment, file)
        slot = int(np.searchsorted(entries[:, 0], timestamp_ms)) - 1
        if slot >= 0 and slot == len(entries) - 1 and following is not None:
            continue  # of a closed segment the last entry is the newest record
        if slot >= 0:
            begin = max(begin, int(entries[slot, 1]))
        if begin < end:
            yield wanted._replace(from_offset=begin, to_offset=end)


def _first_in(read: Walked, wanted: OffsetRange, timestamp_ms: int) -> int | None:
    """The first record of a read that is not older, in the batches whose header promises one."""
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
