"""Splitting a range of offsets into pieces with about the same number of bytes. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kafkalog.spark.logs.values import Piece

if TYPE_CHECKING:
    import numpy.typing as npt

    from kafkalog.spark.logs.values import OffsetRange

    Table = npt.NDArray[np.int64]

SHORT_SHARE = 4
"""A last piece smaller than a quarter of the target is added to the one before it."""

_OFFSET, _TOTAL, _BASE, _POSITION = range(4)


class Cuts:
    """Offsets at which a partition may be split, and the bytes of log before each."""

    def __init__(self) -> None:
        self._tables: list[Table] = [np.empty((0, 4), np.int64)]
        self.total_bytes = 0

    def add_segment(self, base_offset: int, size_bytes: int, entries: Table) -> None:
        """The next segment; ``entries``: int64[n, 2] of last offset and position of a batch.

        A piece begins after such a batch, so that the index finds its position without reading.
        """
        table = np.empty((len(entries) + 1, 4), np.int64)
        table[0] = base_offset, 0, base_offset, 0
        table[1:, _OFFSET] = entries[:, 0] + 1
        table[1:, _TOTAL] = table[1:, _POSITION] = entries[:, 1]
        table[:, _BASE] = base_offset
        table[:, _TOTAL] += self.total_bytes
        self._tables.append(table)
        self.total_bytes += size_bytes

    def table(self) -> Table:
        """Rows by rising offset, without later rows of overlapping segments (during a swap)."""
        table = np.concatenate(self._tables)
        highest = np.maximum.accumulate(table[:, _OFFSET])
        return table[np.diff(highest, prepend=-1) > 0]


def cut(place: str, wanted: OffsetRange, cuts: Cuts, target_bytes: int) -> list[Piece]:
    """Split a range that is not empty: see `Logs.pieces`."""
    table = cuts.table()
    if not len(table):
        return [Piece(wanted, place, None, 0)]  # no segment: the reader raises what is wrong
    offsets, totals = table[:, _OFFSET], table[:, _TOTAL]
    rows = [max(int(np.searchsorted(offsets, wanted.from_offset, side="right")) - 1, 0)]
    end = int(np.searchsorted(offsets, wanted.to_offset))
    end_total = int(totals[end]) if end < len(table) else cuts.total_bytes
    while True:
        row = int(np.searchsorted(totals, totals[rows[-1]] + max(target_bytes, 1)))
        if row >= end:
            break
        rows.append(row)
    if len(rows) > 1 and end_total - totals[rows[-1]] < target_bytes // SHORT_SHARE:
        rows.pop()
    starts = [wanted.from_offset, *(int(offsets[row]) for row in rows[1:])]
    ends = [*starts[1:], wanted.to_offset]
    sizes = np.diff([*totals[rows].tolist(), end_total]).tolist()
    return [
        Piece(
            wanted._replace(from_offset=start, to_offset=stop),
            place,
            (int(table[row, _BASE]), int(table[row, _POSITION])),
            size,
        )
        for row, start, stop, size in zip(rows, starts, ends, sizes, strict=True)
    ]
