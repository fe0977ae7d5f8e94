"""The offset and time index as the dump tool reads them: by length, padding included.

Owns the sanity rules and the lookup of Kafka's `OffsetIndex` and `TimeIndex` opened read-only
(log-format.md 6 and 7). Never changes a file: where Kafka's tool creates a missing offset index,
this one takes it as empty. One thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kafkalog.errors import CorruptIndex
from kafkalog.format.disk.index_entries import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    unpack_offset_entries,
    unpack_time_entries,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from kafkalog.env.filesystem import Filesystem


class DumpedOffsetIndex:
    """Entries of an `.index` file; zeros of a preallocated tail count as entries."""

    def __init__(self, filesystem: Filesystem, path: str, base_offset: int) -> None:
        self._path = path
        self._base_offset = base_offset
        data = filesystem.read_file(path) if filesystem.exists(path) else b""
        self._length = len(data)
        self._table: npt.NDArray[np.int64] = unpack_offset_entries(data)
        self._table[:, 0] += base_offset

    @property
    def entry_count(self) -> int:
        """Length of the file in entries."""
        return len(self._table)

    def entries(self) -> Iterator[tuple[int, int]]:
        """(offset, position) up to the first padding entry behind the first entry."""
        return _until_padding(self._table, self._base_offset, offset_column=0)

    def lookup(self, offset: int) -> int:
        """Position of the greatest entry at or below offset, 0 without one. Padding is left out."""
        end = _entries_end(self._table[:, 0], self._base_offset)
        slot = int(np.searchsorted(self._table[:end, 0], offset, side="right")) - 1
        return int(self._table[slot, 1]) if slot >= 0 else 0

    def check_sanity(self, absolute_path: str) -> None:
        """Raise CorruptIndex in Kafka's words."""
        if self.entry_count and self._table[-1, 0] < self._base_offset:
            raise CorruptIndex(
                f"Corrupt index found, index file ({absolute_path}) has non-zero size but the last "
                f"offset is {self._table[-1, 0]} which is less than the base offset "
                f"{self._base_offset}",
                file=self._path,
                position=(self.entry_count - 1) * OFFSET_ENTRY.size,
            )
        if self._length % OFFSET_ENTRY.size:
            raise CorruptIndex(
                f"Index file {absolute_path} is corrupt, found {self._length} bytes which is "
                f"neither positive nor a multiple of {OFFSET_ENTRY.size}",
                file=self._path,
                position=self.entry_count * OFFSET_ENTRY.size,
            )


class DumpedTimeIndex:
    """Entries of a `.timeindex` file; zeros of a preallocated tail count as entries."""

    def __init__(self, filesystem: Filesystem, path: str, base_offset: int) -> None:
        self._path = path
        self._base_offset = base_offset
        data = filesystem.read_file(path)
        self._length = len(data)
        self._table: npt.NDArray[np.int64] = unpack_time_entries(data)
        self._table[:, 1] += base_offset

    def entries(self) -> Iterator[tuple[int, int]]:
        """(timestamp, offset) up to the first padding entry behind the first entry."""
        return _until_padding(self._table, self._base_offset, offset_column=1)

    def check_sanity(self, absolute_path: str) -> None:
        """Raise CorruptIndex in Kafka's words."""
        found = f"Corrupt time index found, time index file ({absolute_path}) has non-zero size but"
        last_position = max(len(self._table) - 1, 0) * TIME_ENTRY.size
        if len(self._table) and self._table[-1, 0] < self._table[0, 0]:
            raise CorruptIndex(
                f"{found} the last timestamp is {self._table[-1, 0]} which is less than the first "
                f"timestamp {self._table[0, 0]}",
                file=self._path,
                position=last_position,
            )
        if len(self._table) and self._table[-1, 1] < self._base_offset:
            raise CorruptIndex(
                f"{found} the last offset is {self._table[-1, 1]} which is less than the first "
                f"offset {self._base_offset}",
                file=self._path,
                position=last_position,
            )
        if self._length % TIME_ENTRY.size:
            raise CorruptIndex(
                f"Time index file {absolute_path} is corrupt, found {self._length} bytes which is "
                f"neither positive nor a multiple of {TIME_ENTRY.size}",
                file=self._path,
                position=len(self._table) * TIME_ENTRY.size,
            )


def _until_padding(
    table: npt.NDArray[np.int64], base_offset: int, *, offset_column: int
) -> Iterator[tuple[int, int]]:
    end = _entries_end(table[:, offset_column], base_offset)
    return ((first, second) for first, second in table[:end].tolist())


def _entries_end(offsets: npt.NDArray[np.int64], base_offset: int) -> int:
    """Number of entries before the padding: only the first may hold the base offset."""
    padding = np.flatnonzero(offsets[1:] == base_offset)
    return int(padding[0]) + 1 if len(padding) else len(offsets)
