"""Splitting a segment whose offsets lie more than 2^31 - 1 above its base (KAFKA-5413, KAFKA-6264).

Old cleaners could leave such a segment: no index can hold its offsets. Its batches are copied, as
they are, into new segments that start where the range ends. Runs in the loader, on the loader's
thread; blocks for syncs. Source: Kafka's LocalLog.splitOverflowedSegment.

Crash safety is the suffix protocol alone: the copies are ``.cleaned`` until all are durable, then
``.swap``, the highest base first, each name durable before the next one (a lower ``.swap`` says
that all above it are there). What is left is what ``LoaderFiles.reconcile`` does after any crash,
and the split ends by running it. The new segments have no indexes: the loader makes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kafkalog.format.disk.file_names import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    segment_file_name,
)
from kafkalog.format.records.batch_scan import BatchColumn
from kafkalog.log.segment.segment_file import read_chunk, scan_chunks
from kafkalog.log.values import MAX_RELATIVE_OFFSET

if TYPE_CHECKING:
    from kafkalog.env.filesystem import Filesystem
    from kafkalog.log.segment.log_segment import LogSegment

_COPY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes [start, end) of the segment become the segment of this base."""

    base_offset: int
    start: int
    end: int


def plan_split(segment: LogSegment) -> list[Piece]:
    """Pieces whose offsets fit, rising and without gaps; they end at the first bad batch.

    The first piece keeps the segment's base if its first batch fits it.
    """
    starts: list[tuple[int, int]] = []
    base, end, last_offset = segment.base_offset, 0, segment.base_offset - 1
    for chunk in scan_chunks(
        segment.log_file, 0, segment.size_bytes, check_crc=True, with_messages=True
    ):
        rows = chunk.rows
        disorder = rows.first_disorder(last_offset)
        table = rows.table if disorder is None else rows.table[:disorder]
        if len(table):
            lasts = table[:, BatchColumn.LAST_OFFSET]
            if not starts:
                starts.append((base, 0))
            while (row := int(np.searchsorted(lasts, base + MAX_RELATIVE_OFFSET, "right"))) < len(
                lasts
            ):
                base = int(table[row, BatchColumn.BASE_OFFSET])
                starts.append((base, chunk.position + int(table[row, BatchColumn.POSITION])))
            last_offset = int(lasts[-1])
            end = chunk.position + int(
                table[-1, BatchColumn.POSITION] + table[-1, BatchColumn.SIZE]
            )
        if disorder is not None:
            break
    ends = [*(start for _, start in starts[1:]), end]
    pieces = [Piece(first, start, stop) for (first, start), stop in zip(starts, ends, strict=True)]
    return [piece for piece in pieces if piece.start < piece.end]


def write_pieces(
    filesystem: Filesystem, directory: str, segment: LogSegment, pieces: list[Piece]
) -> None:
    """Bring the pieces to the ``.swap`` stage, durably. They may share no base with a successor."""
    source = segment.log_file.acquire()
    for piece in pieces:
        path = _path(directory, piece, CLEANED_SUFFIX)
        file = filesystem.open_write(path)
        file.truncate(0)
        for position in range(piece.start, piece.end, _COPY_BYTES):
            size = min(_COPY_BYTES, piece.end - position)
            data = read_chunk(source, position, size, may_block=True)
            file.pwrite(data, position - piece.start)
        file.sync()
        file.close()
        filesystem.set_mtime_ms(path, segment.last_modified_ms)
    filesystem.sync_dir(directory)
    for piece in reversed(pieces):
        filesystem.rename(
            _path(directory, piece, CLEANED_SUFFIX), _path(directory, piece, SWAP_SUFFIX)
        )
        filesystem.sync_dir(directory)


def _path(directory: str, piece: Piece, stage: str) -> str:
    return f"{directory}/{segment_file_name(piece.base_offset, LOG_SUFFIX, stage)}"
