"""The plan of a range by the plainest way: one table of every index entry of the partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kafkalog.spark.logs.partition_files import PartitionFiles, offset_entries
from kafkalog.spark.logs.values import Piece

if TYPE_CHECKING:
    from kafkalog.env.filesystem import ReadFilesystem
    from kafkalog.spark.logs.values import OffsetRange


def plain_pieces(
    filesystem: ReadFilesystem, place: str, wanted: OffsetRange, target_bytes: int
) -> list[Piece]:
    """See `Logs.pieces`."""
    if wanted.from_offset >= wanted.to_offset:
        return []
    files = PartitionFiles.listed(filesystem, place)
    first = files.floor(wanted.from_offset) or next(iter(files.segments), None)
    rows: list[tuple[int, int, int, int]] = []  # offset, bytes before it, base offset, position
    total = 0
    for segment in files.segments:
        if first is None or segment.base_offset < first.base_offset:
            continue
        if segment.base_offset >= wanted.to_offset:
            break
        file = filesystem.open_read(segment.path())
        base, size = segment.base_offset, file.size()
        entries = offset_entries(filesystem, segment, file, size).tolist()
        found = [(base, total, base, 0)]
        found += [(last + 1, total + at, base, at) for last, at in entries]
        for row in found:
            if row[0] > max((each[0] for each in rows[-1:]), default=-1):
                rows.append(row)
        total += size
    return plain_cut(place, wanted, rows, total, target_bytes)


def plain_cut(
    place: str,
    wanted: OffsetRange,
    rows: list[tuple[int, int, int, int]],
    total_bytes: int,
    target_bytes: int,
) -> list[Piece]:
    """Split a range that is not empty."""
    if not rows:
        return [Piece(wanted, place, None, 0)]
    table = np.array(rows, np.int64)
    offsets, totals = table[:, 0], table[:, 1]
    cuts = [max(int(np.searchsorted(offsets, wanted.from_offset, side="right")) - 1, 0)]
    end = int(np.searchsorted(offsets, wanted.to_offset))
    end_total = int(totals[end]) if end < len(table) else total_bytes
    while True:
        row = int(np.searchsorted(totals, totals[cuts[-1]] + max(target_bytes, 1)))
        if row >= end:
            break
        cuts.append(row)
    if len(cuts) > 1 and end_total - totals[cuts[-1]] < target_bytes // 4:
        cuts.pop()
    starts = [wanted.from_offset, *(int(offsets[row]) for row in cuts[1:])]
    ends = [*starts[1:], wanted.to_offset]
    sizes = np.diff([*totals[cuts].tolist(), end_total]).tolist()
    return [
        Piece(
            wanted._replace(from_offset=start, to_offset=stop),
            place,
            (int(table[row, 2]), int(table[row, 3])),
            size,
        )
        for row, start, stop, size in zip(cuts, starts, ends, sizes, strict=True)
    ]
