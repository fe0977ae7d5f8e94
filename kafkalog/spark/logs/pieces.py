"""Splitting a range of offsets into pieces with about the same number of bytes. Pure.

A range may be split at a row: the first offset of a segment, and the offset after a batch that an
index names. A piece begins at the first row that is at least ``target_bytes`` after the row before
it. Rows whose offset is not above all earlier ones are not used: segments overlap during a swap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kafkalog.spark.logs.values import Piece

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from kafkalog.spark.logs.values import OffsetRange

    Table = npt.NDArray[np.int64]

SHORT_SHARE = 4
"""A last piece smaller than a quarter of the target is added to the one before it."""

_OFFSET, _TOTAL = 0, 1


class Row(NamedTuple):
    """A place to split: its offset, the bytes of log before it, its segment, its position there."""

    offset: int
    total_bytes: int
    base_offset: int
    position: int


class Cuts:
    """The rows at which one range is split, from whole segments in order; holds no others."""

    def __init__(self, wanted: OffsetRange, target_bytes: int) -> None:
        """``wanted``: a range that is not empty."""
        self._wanted = wanted
        self._target_bytes = target_bytes
        self._rows: list[Row] = []
        self._total_bytes = 0
        self._highest = -1  # offset of the rows so far
        self._is_in_range = False  # a row above the range's first offset was seen
        self._end_total: int | None = None  # bytes before the first row that is not in the range

    def add_segment(self, base_offset: int, size_bytes: int, entries: Table) -> None:
        """The next segment; ``entries``: int64[n, 2] of last offset and position of a batch.

        A piece begins after such a batch, so that the index finds its position without reading.
        """
        table = np.empty((len(entries) + 1, 4), np.int64)
        table[0] = base_offset, 0, base_offset, 0
        table[1:, _OFFSET] = entries[:, 0] + 1
        table[1:, 1] = table[1:, 3] = entries[:, 1]
        table[:, 2] = base_offset
        table[:, _TOTAL] += self._total_bytes
        self._total_bytes += size_bytes
        highest = np.maximum.accumulate(np.append(self._highest, table[:, _OFFSET]))
        self._highest = int(highest[-1])
        if self._end_total is None:
            self._add(table[np.diff(highest) > 0])

    def _add(self, table: Table) -> None:
        if not len(table):
            return
        offsets, totals = table[:, _OFFSET], table[:, _TOTAL]
        if not self._is_in_range:
            slot = int(np.searchsorted(offsets, self._wanted.from_offset, side="right"))
            if slot or not self._rows:
                self._rows = [_row(table, max(slot - 1, 0))]
            self._is_in_range = slot < len(table)
        if not self._is_in_range:
            return
        end = int(np.searchsorted(offsets, self._wanted.to_offset))
        while True:
            aim = self._rows[-1].total_bytes + max(self._target_bytes, 1)
            slot = int(np.searchsorted(totals, aim))
            if slot >= end:
                break
            self._rows.append(_row(table, slot))
        if end < len(table):
            self._end_total = int(totals[end])

    def pieces(self, place: str) -> list[Piece]:
        """See `Logs.pieces`."""
        if not self._rows:
            return [Piece(self._wanted, place, None, 0)]  # no segment: the reader raises
        end_total = self._total_bytes if self._end_total is None else self._end_total
        return pieces_at(self._rows, end_total, place, self._wanted, self._target_bytes)


def _row(table: Table, slot: int) -> Row:
    return Row(*table[slot].tolist())


def pieces_at(
    rows: Sequence[Row], end_total: int, place: str, wanted: OffsetRange, target_bytes: int
) -> list[Piece]:
    """The pieces that begin at these rows, the first one at the range's first offset.

    end_total   bytes of log before the end of the range
    """
    if len(rows) > 1 and end_total - rows[-1].total_bytes < target_bytes // SHORT_SHARE:
        rows = rows[:-1]
    starts = [wanted.from_offset, *(row.offset for row in rows[1:])]
    ends = [*starts[1:], wanted.to_offset]
    totals = [*(row.total_bytes for row in rows), end_total]
    return [
        Piece(
            wanted._replace(from_offset=start, to_offset=end),
            place,
            (row.base_offset, row.position),
            totals[slot + 1] - totals[slot],
        )
        for slot, (row, start, end) in enumerate(zip(rows, starts, ends, strict=True))
    ]
