"""Files as Kafka's DumpLogSegments reads them, and its report of what is wrong in them.

- DumpReport owns the wording and order of the report, which is printed at the end. Files appear in
  the order in which they were dumped (Kafka: the order of its hash map). Source: Kafka 4.1
  `DumpLogSegments` and its `TimeIndexDumpErrors`.
- DumpedOffsetIndex and DumpedTimeIndex own the sanity rules and the lookup of Kafka's `OffsetIndex`
  and `TimeIndex` opened read-only: by length, padding included.
- DumpedLog owns the iteration of Kafka's `FileLogInputStream`. Unlike recovery
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

from kafkalog.errors import CorruptBatch, CorruptIndex, InvalidRequest
from kafkalog.format.disk.index_entries import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    unpack_offset_entries,
    unpack_time_entries,
)
from kafkalog.format.integers import INT32_MAX, FormatError
from kafkalog.format.records.record import iterate_records
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
    from kafkalog.format.records.record import Record


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


class _DumpedIndex:
    """Entries of an index file; zeros of a preallocated tail count as entries."""

    def __init__(
        self, path: str, data: bytes, table: npt.NDArray[np.int64], base_offset: int, column: int
    ) -> None:
        """``column``: that of the offsets in the table, which are relative."""
        self._path = path
        self._base_offset = base_offset
        self._length = len(data)
        self._table = table
        self._offsets = table[:, column]
        self._offsets += base_offset

    @property
    def entry_count(self) -> int:
        """Length of the file in entries."""
        return len(self._table)

    def _end(self) -> int:
        """Number of entries before the padding: only the first may hold the base offset."""
        padding = np.flatnonzero(self._offsets[1:] == self._base_offset)
        return int(padding[0]) + 1 if len(padding) else len(self._offsets)

    def entries(self) -> Iterator[tuple[int, int]]:
        """The entries up to the first padding entry after the first entry."""
        return ((first, second) for first, second in self._table[: self._end()].tolist())


class DumpedOffsetIndex(_DumpedIndex):
    """An `.index` file: offset and position."""

    def __init__(self, filesystem: Filesystem, path: str, base_offset: int) -> None:
        data = filesystem.read_file(path) if filesystem.exists(path) else b""
        super().__init__(path, data, unpack_offset_entries(data), base_offset, 0)

    def lookup(self, offset: int) -> int:
        """Position of the greatest entry at or below offset, 0 without one; without padding."""
        slot = int(np.searchsorted(self._offsets[: self._end()], offset, side="right")) - 1
        return int(self._table[slot, 1]) if slot >= 0 else 0

    def check_sanity(self, absolute_path: str) -> None:
        """Raise CorruptIndex in Kafka's words."""
        if self.entry_count and self._offsets[-1] < self._base_offset:
            raise CorruptIndex(
                f"Corrupt index found, index file ({absolute_path}) has non-zero size but the last "
                f"offset is {self._offsets[-1]} which is less than the base offset "
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


class DumpedTimeIndex(_DumpedIndex):
    """A `.timeindex` file: timestamp and offset."""

    def __init__(self, filesystem: Filesystem, path: str, base_offset: int) -> None:
        data = filesystem.read_file(path)
        super().__init__(path, data, unpack_time_entries(data), base_offset, 1)

    def check_sanity(self, absolute_path: str) -> None:
        """Raise CorruptIndex in Kafka's words."""
        count, stamps, offsets = self.entry_count, self._table[:, 0], self._offsets
        problem, slot = None, max(count - 1, 0)
        nonzero = f"Corrupt time index found, time index file ({absolute_path}) has non-zero size"
        if count and stamps[-1] < stamps[0]:
            problem = (
                f"{nonzero} but the last timestamp is {stamps[-1]} which is less than the first "
                f"timestamp {stamps[0]}"
            )
        elif count and offsets[-1] < self._base_offset:
            problem = (
                f"{nonzero} but the last offset is {offsets[-1]} which is less than the first "
                f"offset {self._base_offset}"
            )
        elif self._length % TIME_ENTRY.size:
            slot = count
            problem = (
                f"Time index file {absolute_path} is corrupt, found {self._length} bytes which is "
                f"neither positive nor a multiple of {TIME_ENTRY.size}"
            )
        if problem is not None:
            raise CorruptIndex(problem, file=self._path, position=slot * TIME_ENTRY.size)


INFLATED_BATCH_MAX = INT32_MAX  # what Java could hold: the operator asked for this file


@dataclass(frozen=True, slots=True)
class DumpedBatch:
    """One whole batch, its file and its position there."""

    path: str
    position: int
    header: BatchHeader
    data: bytes

    def records(self) -> Iterator[Record]:
        """Its records. Raises CorruptBatch when they are malformed or cannot be inflated."""
        try:
            return iterate_records(self.data, max_bytes=INFLATED_BATCH_MAX)
        except FormatError as error:
            raise self.corrupt(error.reason) from error
        except InvalidRequest as error:
            raise self.corrupt(error.message) from error

    def corrupt(self, reason: str) -> CorruptBatch:
        """The error that names this batch."""
        offset = self.header.base_offset
        return CorruptBatch(
            f"{reason}, base offset {offset}",
            file=self.path,
            position=self.position,
            base_offset=offset,
        )


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
                raise self._corrupt(
                    f"A message set of format {magic} is not supported: convert it with kafkalog "
                    "segments convert",
                    position,
                )
            if size + LOG_OVERHEAD < HEADER_BYTES:
                raise self._corrupt(f"Found record batch size {size} below its header", position)
            data = self._file.pread(size + LOG_OVERHEAD, position)
            try:
                header = read_header(data)
            except FormatError as error:
                raise self._corrupt(error.reason, position) from error
            yield DumpedBatch(self.path, position, header, data)
            position += len(data)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _corrupt(self, reason: str, position: int) -> CorruptBatch:
        return CorruptBatch(reason, file=self.path, position=position)
