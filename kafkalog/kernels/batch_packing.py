"""Bring batches that were rebuilt uncompressed into their final form: compressed, sealed, in a row.

The last step of a cleaning's second pass over compressed batches. Whole ones among them are taken
over as they are. Source: log-format.md 1.4.
"""

from __future__ import annotations

from kafkalog.kernels.batch_scan import BatchColumn
from kafkalog.kernels.compile import (
    BYTES,
    BYTES_OUT,
    I64,
    I64_TABLE_OUT,
    I64S,
    Bytes,
    Int64s,
    Int64Table,
    kernel,
)
from kafkalog.kernels.crc32c import crc32c_of
from kafkalog.kernels.loads import store_i32be
from kafkalog.kernels.record_fields import copy_bytes

_POSITION, _SIZE = int(BatchColumn.POSITION), int(BatchColumn.SIZE)
_HEADER = 61


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
    """Write the batches of these rows into `out`; the position behind them.

    plain         uint8[n]      holds them; only the records of unchanged ones are compressed
    out_table     int64[q, 14]  their rows from first_row on; position and size become those in out
    streams       uint8[s]      compressed records, one stream behind the other
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
