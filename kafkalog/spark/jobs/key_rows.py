"""Rows of keys and of transactions on their way between the tasks of a split compaction, in files.

A row is 24 bytes, three little-endian int64: the halves of a key's hash and its last offset + 1 (0:
asked for, see ``cleaner.split_round``), or an event of a transaction (``SourceEvents``). Files are
written once, under a name of their own, and read by parts, so that values and keys themselves never
leave their segments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.env.filesystem import Filesystem

Rows = npt.NDArray[np.int64]

ROW_BYTES = 24
_HIGH = 1
_COUNTED_MAX = 1 << 16


class RowRange(NamedTuple):
    """Rows of a file from ``start`` on before ``end``."""

    path: str
    start: int
    end: int


class RowFile:
    """A file of rows that is being written; the rows of one call lie in parts, one by one."""

    def __init__(self, path: str, filesystem: Filesystem) -> None:
        """Makes the file. OSError."""
        self._file = filesystem.open_write(path, exclusive=True)
        self._rows = 0

    def append(self, parts: Sequence[Rows]) -> tuple[int, ...]:
        """Write the parts at the end; the row at which each begins, and where the last ends."""
        bounds = [self._rows]
        for part in parts:
            data = np.ascontiguousarray(part, "<i8")
            self._file.pwrite(data.reshape(-1).view(np.uint8).data, self._rows * ROW_BYTES)
            self._rows += len(part)
            bounds.append(self._rows)
        return tuple(bounds)

    def close(self) -> None:
        """Nothing more comes. Not synced: a crash ends the job."""
        self._file.close()


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
        read = file.pread_into(target, each.start * ROW_BYTES)
        file.close()
        if read != count * ROW_BYTES:
            raise OSError(f"{each.path} ends before row {each.end}: somebody has cut it")
        at += count
    return rows
