"""Files as Kafka's DumpLogSegments reads them, and its report of what is wrong in them.

- DumpReport owns the wording and order of the report, which is printed at the end. Files appear in
  the order in which they were dumped (Kafka: the order of its hash map). Source: Kafka 4.1
  `DumpLogSegments` and its `TimeIndexDumpErrors`, log-format.md 14.5.
- DumpedOffsetIndex and DumpedTimeIndex own the sanity rules and the lookup of Kafka's `OffsetIndex`
  and `TimeIndex` opened read-only (log-format.md 6 and 7): by length, padding included.
- DumpedLog owns the iteration of Kafka's `FileLogInputStream` (log-format.md 1.5). Unlike recovery
  it does not stop at a wrong CRC, because the tool shows such batches. It reads one batch at a
  time, so the largest batch bounds its memory.

Never changes a file: where Kafka's tool creates a missing offset index, this one takes it as empty.
One thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TextIO

import numpy as np

from kafkalog.errors import CorruptBatch, CorruptIndex
from kafkalog.format.disk.index_entries import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    unpack_offset_entries,
    unpack_time_entries,
)
from kafkalog.format.integers import FormatError
from kafkalog.format.records.record_batch import (
    HEADER_BYTES,
    HEADER_UP_TO_MAGIC,
    LEGACY_LENGTH_MIN,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAGIC_V2,
    BatchHeader,
    read_header,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from kafkalog.env.filesystem import Filesystem


class Problem(Enum):
    """A group of the report, in Kafka's order: its heading, and the line of a finding."""

    INDEX_MISMATCH = ("Mismatches in :{path}", "  Index offset: {0}, log offset: {1}")
    TIME_MISMATCH = (
        "Found timestamp mismatch in :{path}",
        "  Index timestamp: {0}, log timestamp: {1}",
    )
    OUT_OF_ORDER_TIMESTAMP = (
        "Found out of order timestamp in :{path}",
        "  Index timestamp: {0}, Previously indexed timestamp: {1}",
    )
    OFFSET_NOT_FOUND = (
        "The following indexed offsets are not found in the log.",
        "Indexed offset: {0}, found log offset: {1}",
    )
    NON_CONSECUTIVE = ("Non-consecutive offsets in {path}", "  {0} is followed by {1}")


_NEWEST_FIRST = (Problem.INDEX_MISMATCH, Problem.NON_CONSECUTIVE)  # Kafka prepends these


class DumpReport:
    """Findings by problem and absolute path of the file."""

    def __init__(self) -> None:
        self._findings: dict[Problem, dict[str, list[tuple[int, int]]]] = {
            problem: {} for problem in Problem
        }

    def add(self, problem: Problem, path: str, first: int, second: int) -> None:
        """Record one finding with the two numbers of its line."""
        found = self._findings[problem].setdefault(path, [])
        found.insert(0 if problem in _NEWEST_FIRST else len(found), (first, second))

    def write(self, err: TextIO) -> None:
        """Print all groups that have findings."""
        for problem, findings in self._findings.items():
            heading, line = problem.value
            for path, pairs in findings.items():
                err.write(heading.format(path=path) + "\n")
                for pair in pairs:
                    err.write(line.format(*pair) + "\n")


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
        """(offset, position) up to the first padding entry after the first entry."""
        return _until_padding(self._table, self._base_offset, offset_column=0)

    def lookup(self, offset: int) -> int:
        """Position of the greatest entry at or below offset, 0 without one; without padding."""
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
        """(timestamp, offset) up to the first padding entry after the first entry."""
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


@dataclass(frozen=True, slots=True)
class DumpedBatch:
    """One whole batch and its position."""

    position: int
    header: BatchHeader
    data: bytes


class DumpedLog:
    """An open log file, cut to its first max_bytes."""

    def __init__(self, filesystem: Filesystem, path: str, max_bytes: int | None = None) -> None:
        self.path = path
        self._file = filesystem.open_read(path)
        size = self._file.size()
        self.size_bytes = size if max_bytes is None else min(size, max_bytes)

    def batches(self, start: int = 0, max_bytes: int | None = None) -> Iterator[DumpedBatch]:
        """Whole batches from start, a position at which one begins.

        Ends at a partial batch. Raises CorruptBatch where no batch can begin: its size is
        impossible, as in zeros, or it is a message set of before Kafka 0.11; and for a negative
        start, as a damaged index may name.
        """
        if start < 0:
            raise self._corrupt("Invalid position", start)
        end = self.size_bytes if max_bytes is None else min(self.size_bytes, start + max_bytes)
        position = start
        while position < end - HEADER_UP_TO_MAGIC:
            head = self._file.pread(HEADER_UP_TO_MAGIC, position)
            size = int.from_bytes(head[8:12], "big", signed=True)
            if size < LEGACY_LENGTH_MIN:
                raise self._corrupt(
                    f"Found record size {size} smaller than minimum record overhead "
                    f"({LEGACY_LENGTH_MIN})",
                    position,
                )
            if position > end - LOG_OVERHEAD - size:
                return
            magic = head[MAGIC_AT]
            if magic < MAGIC_V2:
                raise self._corrupt(f"A message set of format {magic} is not supported", position)
            if size + LOG_OVERHEAD < HEADER_BYTES:
                raise self._corrupt(f"Found record batch size {size} below its header", position)
            data = self._file.pread(size + LOG_OVERHEAD, position)
            try:
                header = read_header(data)
            except FormatError as error:
                raise self._corrupt(error.reason, position) from error
            yield DumpedBatch(position, header, data)
            position += len(data)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _corrupt(self, reason: str, position: int) -> CorruptBatch:
        return CorruptBatch(reason, file=self.path, position=position)
