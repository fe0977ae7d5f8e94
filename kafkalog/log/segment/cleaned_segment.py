"""CleanedSegment: a segment under the name ``.cleaned`` while its batches are being written.

What the cleaner writes becomes a segment like one that was appended to in one go: the same index
cadence, the forced last time index entry, trimmed indexes, and the modification time of the last
source. No Python statement per batch: the bytes go out chunk by chunk, the index entries come from
the cadence kernel and are written at the end.

The thread that cleans; nobody else sees the segment before its swap. Nothing is synced here:
``SegmentSwap.prepare`` does. A crash leaves ``.cleaned`` files, which every load removes.
Source: Kafka's UnifiedLog.createNewCleanedSegment, LogSegment. Differs from Kafka: an index that is
smaller than the entries of the merged segment stays sparse at its end, where Kafka gives up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.format.disk.file_names import CLEANED_SUFFIX, SEGMENT_SUFFIXES, segment_file_name
from kafkalog.format.records.batch_scan import BatchColumn
from kafkalog.log.segment.log_segment import MAX_SEGMENT_BYTES, LogSegment
from kafkalog.log.segment.segment_recovery import IndexCadence, SegmentOffsetOverflow, entries_of
from kafkalog.log.values import MAX_RELATIVE_OFFSET, NO_TIMESTAMP, TimestampOffset

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalog.env.filesystem import Buffer
    from kafkalog.format.records.batch_scan import BatchRows
    from kafkalog.log.environment import LogEnvironment
    from kafkalog.log.log_config import LogConfig
    from kafkalog.log.segment.segment_file import MovableDirectory
    from kafkalog.log.values import AbortedTransaction


class CleanedSegment:
    """See the module."""

    __slots__ = ("_cadence", "_config", "_directory", "_environment", "_segment", "size_bytes")

    def __init__(
        self,
        environment: LogEnvironment,
        directory: MovableDirectory,
        base_offset: int,
        config: LogConfig,
    ) -> None:
        """Make the ``.log.cleaned``, without what an earlier attempt left behind."""
        self._environment = environment
        self._directory = directory
        self._config = config
        remove_cleaned_files(environment, directory, base_offset)
        self._segment = self._closed(base_offset, size_bytes=0, last_modified_ms=0, aborted=False)
        self._segment.log_file.pin_for_write(create=True)
        self._cadence = IndexCadence(config.index_interval_bytes)
        self.size_bytes = 0

    @property
    def base_offset(self) -> int:
        """Of the segment."""
        return self._segment.base_offset

    def has_room_for(self, size_bytes: int) -> bool:
        """Whether positions still fit: a segment holds at most 2^31 - 1 bytes."""
        return self.size_bytes + size_bytes <= MAX_SEGMENT_BYTES

    def append(self, data: Buffer, rows: BatchRows) -> None:
        """Write whole batches at the end; ``rows`` are those of ``data``, not none.

        Raises SegmentOffsetOverflow before anything is written, and OSError: ``delete`` it then.
        """
        last_offset = int(rows.column(BatchColumn.LAST_OFFSET)[-1])
        if last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            raise SegmentOffsetOverflow(self.base_offset, last_offset)
        assert self.has_room_for(len(data)), "the caller asked before"
        self._segment.log_file.pin_for_write().pwrite(data, self.size_bytes)
        self._cadence.add(rows, self.size_bytes)
        self.size_bytes += len(data)

    def add_aborted(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Entries of the transaction index, by rising last offset."""
        for each in transactions:
            self._segment.transaction_index.append(each)

    def finish(self, last_modified_ms: int) -> LogSegment:
        """Write the indexes, set the modification times; the closed ``.cleaned`` segment."""
        segment = self._segment
        offsets, times = entries_of(segment, self._cadence)
        segment.offset_index.replace_entries(offsets)
        segment.time_index.replace_entries(times)
        nothing = TimestampOffset(NO_TIMESTAMP, self.base_offset)
        segment.restore(self.size_bytes, self._cadence.largest or nothing)
        segment.seal()
        segment.close_handles()
        for file in (segment.log_file, segment.offset_index.file, segment.time_index.file):
            self._environment.filesystem.set_mtime_ms(file.path, last_modified_ms)
        return self._closed(
            self.base_offset,
            size_bytes=self.size_bytes,
            last_modified_ms=last_modified_ms,
            aborted=segment.transaction_index.exists,
        )

    def delete(self) -> None:
        """Give it up: none of its files stays."""
        self._segment.close_handles()
        remove_cleaned_files(self._environment, self._directory, self.base_offset)

    def _closed(
        self, base_offset: int, *, size_bytes: int, last_modified_ms: int, aborted: bool
    ) -> LogSegment:
        return LogSegment(
            self._environment,
            self._directory,
            base_offset,
            self._config,
            size_bytes=size_bytes,
            last_modified_ms=last_modified_ms,
            has_transaction_index=aborted,
            suffix=CLEANED_SUFFIX,
        )


def remove_cleaned_files(
    environment: LogEnvironment, directory: MovableDirectory, base_offset: int
) -> None:
    """Delete the ``.cleaned`` files of a base; missing ones are fine."""
    filesystem = environment.filesystem
    for suffix in SEGMENT_SUFFIXES:
        path = f"{directory.path}/{segment_file_name(base_offset, suffix, CLEANED_SUFFIX)}"
        if filesystem.exists(path):
            filesystem.unlink(path)
