"""Write one batch of a cleaned segment: unchanged, with fewer records, or its header alone.

Owns the layout of a rebuilt batch. Offsets, sequence, producer and leader epoch are those of its
source, and so is the rest of each record after its timestamp. A batch whose source has the
CRC_STATE VALID is written uncompressed and without a CRC: the caller compresses its records, and
`pack_batches` then puts the compressed batches and the unchanged ones into their final form.
Inlined into `record_filter.py`. Source: Kafka 4.1 `MemoryRecordsBuilder`,
`DefaultRecordBatch.writeEmptyHeader`.
"""

from __future__ import annotations

from enum import IntEnum

from kafkalog.kernels.compile import (
    BYTES,
    BYTES_OUT,
    I64,
    I64_TABLE_OUT,
    I64S,
    Bytes,
    Int64s,
    Int64Table,
    inlined,
    kernel,
)
from kafkalog.kernels.crc32c import crc32c_of
from kafkalog.kernels.loads import store_i16be, store_i32be, store_i64be
from kafkalog.kernels.records.batch_scan import BatchColumn
from kafkalog.kernels.records.record_scan import (
    RecordColumn,
    as_int,
    copy_bytes,
    size_of_zigzag,
    write_zigzag,
)

RECORD_GROWTH_MAX = 15
"""Bytes by which a rebuilt record may grow: its timestamp delta to ten, its size to five."""


class OutCell(IntEnum):
    """The position of the next batch, in and out."""

    OUT_POSITION = 0
    """Byte of `out` after what was written."""
    OUT_ROWS = 1
    """Rows of `out_table`."""
    RECORDS_KEPT = 2
    """Adds up."""


_POSITION, _SIZE = int(BatchColumn.POSITION), int(BatchColumn.SIZE)
_BASE_OFFSET, _LAST_OFFSET = int(BatchColumn.BASE_OFFSET), int(BatchColumn.LAST_OFFSET)
_LEADER_EPOCH, _CRC_STATE = int(BatchColumn.LEADER_EPOCH), int(BatchColumn.CRC_STATE)
_ATTRIBUTES, _RECORD_COUNT = int(BatchColumn.ATTRIBUTES), int(BatchColumn.RECORD_COUNT)
_BASE_TIMESTAMP = int(BatchColumn.BASE_TIMESTAMP)
_MAX_TIMESTAMP = int(BatchColumn.MAX_TIMESTAMP)
_PRODUCER_ID, _PRODUCER_EPOCH = int(BatchColumn.PRODUCER_ID), int(BatchColumn.PRODUCER_EPOCH)
_BASE_SEQUENCE = int(BatchColumn.BASE_SEQUENCE)
_TAIL, _END = int(RecordColumn.TAIL_POSITION), int(RecordColumn.RECORD_END)
_TIMESTAMP = int(RecordColumn.TIMESTAMP_DELTA)
_OUT_POSITION, _OUT_ROWS, _RECORDS_KEPT = 0, 1, 2
_HEADER = 61
_LOG_APPEND_TIME_BIT, _HORIZON_BIT = 0x08, 0x40
_KEPT_ATTRIBUTES = 0x3F
_EMPTY_ATTRIBUTES = 0x38
_NO_TIMESTAMP = -1


@inlined
def _write_header(
    out: Bytes,
    at: int,
    table: Int64Table,
    row: int,
    size: int,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    count: int,
) -> None:
    """61 bytes; offsets, producer fields and leader epoch are the source's, the CRC is 0 yet."""
    store_i64be(out, at, table[row, _BASE_OFFSET])
    store_i32be(out, at + 8, size - 12)
    store_i32be(out, at + 12, table[row, _LEADER_EPOCH])
    out[at + 16] = 2
    store_i32be(out, at + 17, 0)
    store_i16be(out, at + 21, attributes)
    store_i32be(out, at + 23, table[row, _LAST_OFFSET] - table[row, _BASE_OFFSET])
    store_i64be(out, at + 27, base_timestamp)
    store_i64be(out, at + 35, max_timestamp)
    store_i64be(out, at + 43, table[row, _PRODUCER_ID])
    store_i16be(out, at + 51, table[row, _PRODUCER_EPOCH])
    store_i32be(out, at + 53, table[row, _BASE_SEQUENCE])
    store_i32be(out, at + 57, count)


@inlined
def _seal(out: Bytes, table: Int64Table, row: int, start: int, size: int, level: int) -> None:
    """The CRC of the batch written for the source in this row."""
    if table[row, _CRC_STATE] == 0:
        store_i32be(out, start + 17, crc32c_of(out, start + 21, start + size, level))


@inlined
def _note_batch(
    table: Int64Table,
    row: int,
    size: int,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    count: int,
    out_table: Int64Table,
    cells: Int64s,
) -> None:
    """A row for the batch of this size that was written at OUT_POSITION."""
    out_row = cells[_OUT_ROWS]
    for column in range(table.shape[1]):
        out_table[out_row, column] = table[row, column]
    out_table[out_row, _POSITION] = cells[_OUT_POSITION]
    out_table[out_row, _SIZE] = size
    out_table[out_row, _CRC_STATE] = 0
    out_table[out_row, _ATTRIBUTES] = attributes
    out_table[out_row, _BASE_TIMESTAMP] = base_timestamp
    out_table[out_row, _MAX_TIMESTAMP] = max_timestamp
    out_table[out_row, _RECORD_COUNT] = count
    cells[_OUT_ROWS] = out_row + 1
    cells[_OUT_POSITION] += size
    cells[_RECORDS_KEPT] += count


@inlined
def copy_batch(
    source: Bytes, table: Int64Table, row: int, out: Bytes, out_table: Int64Table, cells: Int64s
) -> bool:
    """Take the batch over as it is; False: no room."""
    size, position = table[row, _SIZE], cells[_OUT_POSITION]
    if size > len(out) - position:
        return False
    copy_bytes(source, table[row, _POSITION], size, out, position)
    _note_batch(
        table,
        row,
        size,
        table[row, _ATTRIBUTES],
        table[row, _BASE_TIMESTAMP],
        table[row, _MAX_TIMESTAMP],
        table[row, _RECORD_COUNT],
        out_table,
        cells,
    )
    return True


@inlined
def empty_batch(
    table: Int64Table, row: int, out: Bytes, out_table: Int64Table, cells: Int64s, level: int
) -> bool:
    """Write the header alone; False: no room."""
    position = cells[_OUT_POSITION]
    if len(out) - position < _HEADER:
        return False
    attributes = table[row, _ATTRIBUTES] & _EMPTY_ATTRIBUTES
    largest = table[row, _MAX_TIMESTAMP]
    _write_header(out, position, table, row, _HEADER, attributes, _NO_TIMESTAMP, largest, 0)
    _seal(out, table, row, position, _HEADER, level)
    _note_batch(
        table, row, _HEADER, attributes, as_int(_NO_TIMESTAMP), largest, as_int(0), out_table, cells
    )
    return True


@inlined
def _body_size(kept: Int64Table, index: int, base_timestamp: int) -> int:
    """Bytes of a rebuilt record after its size."""
    delta_size: int = size_of_zigzag(kept[index, _TIMESTAMP] - base_timestamp)
    return int(1 + delta_size + kept[index, _END] - kept[index, _TAIL])


@inlined
def rebuild_batch(
    source: Bytes,
    table: Int64Table,
    row: int,
    kept: Int64Table,
    count: int,
    horizon: int,
    out: Bytes,
    out_table: Int64Table,
    cells: Int64s,
    level: int,
) -> bool:
    """Write the first `count` rows of `kept` (at least one) as a batch; False: no room.

    kept     `RecordColumn`, but with the timestamp itself in place of its delta

    horizon  delete horizon of the batch in ms; below 0: none
    """
    attributes = table[row, _ATTRIBUTES] & _KEPT_ATTRIBUTES
    base_timestamp = kept[0, _TIMESTAMP]
    if horizon >= 0:
        attributes |= _HORIZON_BIT
        base_timestamp = horizon
    largest = as_int(_NO_TIMESTAMP)
    size = as_int(_HEADER)
    for index in range(count):
        body = _body_size(kept, index, base_timestamp)
        size += body + size_of_zigzag(body)
        largest = max(largest, kept[index, _TIMESTAMP])
    if attributes & _LOG_APPEND_TIME_BIT:
        largest = table[row, _MAX_TIMESTAMP]
    start = cells[_OUT_POSITION]
    if size > len(out) - start:
        return False
    _write_header(out, start, table, row, size, attributes, base_timestamp, largest, count)
    position = start + _HEADER
    for index in range(count):
        position = write_zigzag(out, position, _body_size(kept, index, base_timestamp))
        out[position] = 0
        position = write_zigzag(out, position + 1, kept[index, _TIMESTAMP] - base_timestamp)
        tail = kept[index, _TAIL]
        position = copy_bytes(source, tail, kept[index, _END] - tail, out, position)
    _seal(out, table, row, start, size, level)
    _note_batch(
        table, row, size, attributes, base_timestamp, largest, as_int(count), out_table, cells
    )
    return True


@kernel(I64(BYTES, I64_TABLE_OUT, I64, BYTES, I64S, BYTES_OUT, I64, I64))
def pack_batches(
    plain: Bytes,
    out_table: Int64Table,
    first_row: int,
    streams: Bytes,
    stream_sizes: Int64s,
    out: Bytes,
    out_position: int,
    level: int,
) -> int:
    """Write the batches of these rows into `out`; the position after them.

    plain         uint8[n]      holds them; only the records of unchanged ones are compressed
    out_table     int64[q, 14]  their rows from first_row on; position and size become those in out
    streams       uint8[s]      compressed records, one stream after the other
    stream_sizes  int64[c]      a row: bytes of its stream, in place of the records in `plain`;
                                -1: the batch is written as it is
    out           uint8[m]      has room for all of them from out_position on
    level                       `processor.LEVEL`, or a lower one
    """
    stream = 0
    for index in range(len(stream_sizes)):
        row = first_row + index
        position, size = out_table[row, _POSITION], out_table[row, _SIZE]
        start, stream_size = out_position, stream_sizes[index]
        if stream_size < 0:
            out_position = copy_bytes(plain, position, size, out, start)
        else:
            out_position = copy_bytes(plain, position, _HEADER, out, start)
            out_position = copy_bytes(streams, stream, stream_size, out, out_position)
            stream += stream_size
            store_i32be(out, start + 8, out_position - start - 12)
            store_i32be(out, start + 17, crc32c_of(out, start + 21, out_position, level))
        out_table[row, _POSITION] = start
        out_table[row, _SIZE] = out_position - start
    return out_position
