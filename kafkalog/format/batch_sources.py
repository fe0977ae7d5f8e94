"""Batches of a chunk as sources of records for the kernels that spread them over columns.

Owns the choice of batches that may hold records to show, and their inflation: plain batches that
follow each other are one source, a compressed one is a source of its own. No Python statement per
record, and per batch only for compressed ones. Any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kafkalog.format.batch_scan import BatchColumn
from kafkalog.format.compression import decompress
from kafkalog.format.record_batch import HEADER_BYTES, TimestampType, codec_of
from kafkalog.kernels.arrow_columns import SOURCE_COLUMN_COUNT, SourceColumn

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from kafkalog.format.batch_scan import Buffer

    Table = npt.NDArray[np.int64]
    Mask = npt.NDArray[np.bool_]

_CODEC, _CONTROL = 0x07, 0x20
_LOG_APPEND_TIME = TimestampType.LOG_APPEND_TIME << 3


class BatchSource(NamedTuple):
    """Inflated records and the batches that they belong to (`SourceColumn`)."""

    data: npt.NDArray[np.uint8]
    batches: Table


def sources(chunk: Buffer, table: Table, *, max_decompressed_bytes: int) -> Iterator[BatchSource]:
    """The batches of these rows (`BatchColumn`, positions in chunk), in order.

    Raises what ``decompress`` does, for one compressed batch at a time.
    """
    is_packed = table[:, BatchColumn.ATTRIBUTES] & _CODEC != 0
    cuts = np.flatnonzero(is_packed[1:] | is_packed[:-1]) + 1
    data = np.frombuffer(chunk, np.uint8)
    for run in np.split(table, cuts) if len(table) else ():
        rows = _source_rows(run)
        codec = codec_of(int(run[0, BatchColumn.ATTRIBUTES]))
        if not codec:
            yield BatchSource(data, rows)
            continue
        start, end = rows[0, : SourceColumn.END + 1].tolist()
        records = decompress(codec, data[start:end].data, max_bytes=max_decompressed_bytes)
        rows[0, : SourceColumn.END + 1] = 0, len(records)
        yield BatchSource(np.frombuffer(records, np.uint8), rows)


def has_records(table: Table, from_offset: int, end_offset: int) -> Mask:
    """Which batches may hold records of clients in ``[from_offset, end_offset)``: no control."""
    wanted: Mask = table[:, BatchColumn.LAST_OFFSET] >= from_offset
    wanted &= table[:, BatchColumn.BASE_OFFSET] < end_offset
    wanted &= table[:, BatchColumn.ATTRIBUTES] & _CONTROL == 0
    return wanted


def _source_rows(table: Table) -> Table:
    """The batches of a scan, which lie in its chunk."""
    rows = np.empty((len(table), SOURCE_COLUMN_COUNT), np.int64)
    position = table[:, BatchColumn.POSITION]
    rows[:, SourceColumn.START] = position + HEADER_BYTES
    rows[:, SourceColumn.END] = position + table[:, BatchColumn.SIZE]
    rows[:, SourceColumn.RECORD_COUNT] = table[:, BatchColumn.RECORD_COUNT]
    rows[:, SourceColumn.BASE_OFFSET] = table[:, BatchColumn.BASE_OFFSET]
    rows[:, SourceColumn.NEXT_OFFSET] = table[:, BatchColumn.LAST_OFFSET] + 1
    rows[:, SourceColumn.BASE_TIMESTAMP] = table[:, BatchColumn.BASE_TIMESTAMP]
    rows[:, SourceColumn.APPEND_TIMESTAMP] = table[:, BatchColumn.MAX_TIMESTAMP]
    is_append_time = table[:, BatchColumn.ATTRIBUTES] & _LOG_APPEND_TIME != 0
    rows[:, SourceColumn.IS_APPEND_TIME] = is_append_time
    return rows
