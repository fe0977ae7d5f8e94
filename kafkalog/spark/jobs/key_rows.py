"""Rows of keys and of transactions on their way between the tasks of a split compaction, in files.

A row is 24 bytes, three little-endian int64: the halves of a key's hash and its last offset + 1 (0:
asked for, see ``cleaner.split_round``), or an event of a transaction (``SourceEvents``). Files are
written once, under a name of their own, and read by parts, so that values and keys themselves never
leave their segments.

Where the parts of a file lie is told in the file: behind its rows comes for each block, the rows
of one call, the row at which each part begins and where the last one ends, and at the very end how
many rows, blocks and parts there are, all int64. A reader who knows a file's name and the number of
a part needs nothing else: nothing of the number of files times that of parts is ever shipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafkalog.env.filesystem import Filesystem, ReadableFile

Rows = npt.NDArray[np.int64]

ROW_BYTES = 24
_HIGH = 1
_NUMBER_BYTES = 8
_END_BYTES = 3 * _NUMBER_BYTES
_COUNTED_MAX = 1 << 16


class RowRange(NamedTuple):
    """Rows of a file from ``start`` on before ``end``."""

    path: str
    start: int
    end: int


class RowFile:
    """A file of rows that is being written."""

    def __init__(self, path: str, filesystem: Filesystem) -> None:
        """Makes the file. OSError."""
        self._file = filesystem.open_write(path, exclusive=True)
        self._rows = 0
        self._blocks: list[list[int]] = []

    @property
    def row_count(self) -> int:
        """Rows that were written."""
        return self._rows

    def append_parts(self, parts: Sequence[Rows]) -> None:
        """Write a block; all of a file's have as many parts."""
        bounds = [self._rows, *(self.append(part) for part in parts)]
        assert not self._blocks or len(self._blocks[0]) == len(bounds)
        self._blocks.append(bounds)

    def append(self, rows: Rows) -> int:
        """Write rows that are in no part; the row behind them."""
        self._write(rows, self._rows * ROW_BYTES)
        self._rows += len(rows)
        return self._rows

    def close(self) -> None:
        """Nothing more comes. Not synced: a crash ends the job."""
        parts = len(self._blocks[0]) - 1 if self._blocks else 0
        index = [bound for bounds in self._blocks for bound in bounds]
        end = [self._rows, len(self._blocks), parts]
        self._write(np.array([*index, *end]), self._rows * ROW_BYTES)
        self._file.close()

    def _write(self, numbers: Rows, position: int) -> None:
        data = np.ascontiguousarray(numbers, "<i8")
        self._file.pwrite(data.reshape(-1).view(np.uint8).data, position)


def parts_by_hash(rows: Rows, count: int) -> list[Rows]:
    """The rows in ``count`` parts; all rows of one key are in the same one."""
    if count == 1:
        return [rows]
    part_of = rows[:, _HIGH].astype(np.uint64) % np.uint64(count)
    # Of 16 bits numpy sorts by counting.
    order = np.argsort(
        part_of.astype(np.uint16) if count <= _COUNTED_MAX else part_of, kind="stable"
    )
    sizes = np.bincount(part_of.astype(np.int64), minlength=count)
    return np.split(rows[order], np.cumsum(sizes)[:-1])


def read_part(paths: Iterable[str], part: int, filesystem: Filesystem) -> Rows:
    """The rows of a part of all files, one behind the other. OSError."""
    ranges = [each for path in paths for each in _part_ranges(path, part, filesystem)]
    return read_rows(ranges, filesystem)


def read_rows(ranges: Sequence[RowRange], filesystem: Filesystem) -> Rows:
    """The rows of all ranges, one behind the other. OSError."""
    rows = np.empty((sum(each.end - each.start for each in ranges), 3), "<i8")
    at = 0
    for each in ranges:
        count = each.end - each.start
        if not count:
            continue
        target = rows[at : at + count].reshape(-1).view(np.uint8).data
        file = filesystem.open_read(each.path)
        try:
            read = file.pread_into(target, each.start * ROW_BYTES)
        finally:
            file.close()
        if read != count * ROW_BYTES:
            raise _is_cut(each.path)
        at += count
    return rows


def _part_ranges(path: str, part: int, filesystem: Filesystem) -> list[RowRange]:
    """Where the rows of a part lie in a file, none for a file without blocks."""
    file = filesystem.open_read(path)
    try:
        size = file.size()
        rows, blocks, parts = _numbers(file, size - _END_BYTES, 3)
        index = size - _END_BYTES - blocks * (parts + 1) * _NUMBER_BYTES
        if index != rows * ROW_BYTES or (blocks and not (blocks > 0 and 0 <= part < parts)):
            raise _is_cut(path)
        places = (index + (block * (parts + 1) + part) * _NUMBER_BYTES for block in range(blocks))
        found = [RowRange(path, *_numbers(file, place, 2)) for place in places]
    finally:
        file.close()
    if any(not 0 <= each.start <= each.end <= rows for each in found):
        raise _is_cut(path)
    return found


def _numbers(file: ReadableFile, position: int, count: int) -> list[int]:
    data = file.pread(count * _NUMBER_BYTES, position) if position >= 0 else b""
    if len(data) != count * _NUMBER_BYTES:
        raise _is_cut(file.path)
    return [int(number) for number in np.frombuffer(data, "<i8")]


def _is_cut(path: str) -> OSError:
    return OSError(f"{path} ends early, or is no file of rows: somebody has changed it")
