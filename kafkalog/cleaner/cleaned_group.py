"""CleanedGroup: what a group of sources becomes, while it is being written.

One ``.cleaned`` segment of the base of the first source; another one only where its positions would
not fit, so that output which grew (another codec, another level) never makes a log uncleanable
(KAFKA-20036). The thread that cleans. All or nothing: ``finish``, or ``discard``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.format.batch_scan import BatchColumn, BatchRows, ScanStop
from kafkalog.log.cleaned_segment import CleanedSegment

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalog.cleaner.record_filter import FilteredChunk
    from kafkalog.log.environment import LogEnvironment
    from kafkalog.log.log_config import LogConfig
    from kafkalog.log.log_segment import LogSegment
    from kafkalog.log.segment_file import MovableDirectory
    from kafkalog.log.values import AbortedTransaction


class CleanedGroup:
    """See the module."""

    def __init__(
        self,
        environment: LogEnvironment,
        directory: MovableDirectory,
        config: LogConfig,
        base_offset: int,
    ) -> None:
        """Makes the first file."""
        self._environment = environment
        self._directory = directory
        self._config = config
        self._segments: list[CleanedSegment] = []
        self._begin_segment(base_offset)

    def append(self, chunk: FilteredChunk) -> None:
        """What stays of a chunk; to be discarded after SegmentOffsetOverflow and OSError."""
        size = len(chunk.data)
        if not size:
            return
        if not self._segments[-1].has_room_for(size):
            self._begin_segment(int(chunk.table[0, BatchColumn.BASE_OFFSET]))
        self._segments[-1].append(chunk.data, BatchRows(chunk.table, ScanStop.END, size, size))

    def add_aborted(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Transactions whose abort markers were met and stay."""
        self._segments[-1].add_aborted(transactions)

    def finish(self, last_modified_ms: int) -> list[LogSegment]:
        """The closed ``.cleaned`` segments, not synced."""
        return [each.finish(last_modified_ms) for each in self._segments]

    def discard(self, cause: BaseException) -> None:
        """Delete what was written; what cannot be deleted is left to the next attempt or load."""
        try:
            for each in self._segments:
                each.delete()
        except OSError as error:
            cause.add_note(f"removing .cleaned files of {self._directory.path} failed: {error}")

    def _begin_segment(self, base_offset: int) -> None:
        self._segments.append(
            CleanedSegment(self._environment, self._directory, base_offset, self._config)
        )
