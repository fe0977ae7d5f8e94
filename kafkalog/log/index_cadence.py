"""IndexCadence: the index entries that the batches of a segment lead to, found again from a walk.

Owns the state that goes from chunk to chunk and the entries so far; the rule is the kernel's
(``kernels/index_build``, log-lifecycle 4). Never touches a disk. One thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kafkalog.kernels.index_build import EMPTY_STATE, IndexState, index_entries
from kafkalog.log.values import NO_TIMESTAMP, TimestampOffset

if TYPE_CHECKING:
    from kafkalog.format.batch_scan import BatchRows

Table = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


class IndexCadence:
    """Feed it the rows of a segment in order."""

    __slots__ = ("_interval_bytes", "_offset_tables", "_state", "_time_tables")

    def __init__(self, interval_bytes: int) -> None:
        """``interval_bytes``: index.interval.bytes."""
        self._interval_bytes = interval_bytes
        self._state = np.array(EMPTY_STATE, dtype=np.int64)
        self._offset_tables: list[Table] = []
        self._time_tables: list[Table] = []

    def add(self, rows: BatchRows, chunk_position: int) -> None:
        """The batches of a chunk that starts at chunk_position of the segment."""
        offsets = np.empty((rows.count, 2), dtype=np.int64)
        times = np.empty((rows.count, 2), dtype=np.int64)
        taken = index_entries(
            rows.table, 0, chunk_position, self._interval_bytes, self._state, offsets, times
        )
        assert taken == rows.count, "a batch gives at most one entry in each index"
        self._offset_tables.append(offsets[: self._state[IndexState.OFFSET_ENTRIES]].copy())
        self._time_tables.append(times[: self._state[IndexState.TIME_ENTRIES]].copy())

    @property
    def largest(self) -> TimestampOffset | None:
        """Largest timestamp and the last offset of its batch; None without any timestamp."""
        timestamp_ms = int(self._state[IndexState.MAX_TIMESTAMP])
        if timestamp_ms <= NO_TIMESTAMP:
            return None
        return TimestampOffset(timestamp_ms, int(self._state[IndexState.OFFSET_OF_MAX]))

    def offset_entries(self) -> Table:
        """int64[n, 2]: last offset, position in the segment."""
        return _joined(self._offset_tables)

    def time_entries(self) -> Table:
        """int64[n, 2]: timestamp, offset; without the forced last entry."""
        return _joined(self._time_tables)


def _joined(tables: list[Table]) -> Table:
    """One table of all."""
    return np.concatenate(tables) if tables else np.empty((0, 2), dtype=np.int64)
