"""Which offset and time index entries the batches of a scan produce.

The same rule serves appending and recovery (Kafka 4.1 LogSegment.append and recover): an entry is
due when more than the interval has been written since the last entry, tested before the batch
itself counts. The state carries over from chunk to chunk.
"""

from __future__ import annotations

from enum import IntEnum

from kafkalog.kernels.compile import (
    I64,
    I64_TABLE,
    I64_TABLE_OUT,
    I64S_OUT,
    Int64s,
    Int64Table,
    kernel,
)
from kafkalog.kernels.records.batch_scan import BatchColumn


class IndexState(IntEnum):
    """Slots of the state array; EMPTY_STATE is that of a new segment."""

    BYTES_SINCE_ENTRY = 0
    """Bytes of batches since the last offset entry."""
    MAX_TIMESTAMP = 1
    """Greatest batch timestamp so far; -1 for none."""
    OFFSET_OF_MAX = 2
    """Last offset of the first batch that had it; -1 for none."""
    LAST_TIME_ENTRY = 3
    """Timestamp of the last time index entry; -1 for none."""
    OFFSET_ENTRIES = 4
    """Out: rows written to offset_out by this call."""
    TIME_ENTRIES = 5
    """Out: rows written to time_out by this call."""


EMPTY_STATE = (0, -1, -1, -1, 0, 0)

_BYTES, _MAX_TIMESTAMP, _OFFSET_OF_MAX, _LAST_TIME_ENTRY, _OFFSETS, _TIMES = 0, 1, 2, 3, 4, 5
_POSITION_COLUMN = int(BatchColumn.POSITION)
_SIZE_COLUMN = int(BatchColumn.SIZE)
_LAST_OFFSET_COLUMN = int(BatchColumn.LAST_OFFSET)
_TIMESTAMP_COLUMN = int(BatchColumn.MAX_TIMESTAMP)


@kernel(I64(I64_TABLE, I64, I64, I64, I64S_OUT, I64_TABLE_OUT, I64_TABLE_OUT))
def index_entries(
    table: Int64Table,
    first_row: int,
    position_shift: int,
    interval_bytes: int,
    state: Int64s,
    offset_out: Int64Table,
    time_out: Int64Table,
) -> int:
    """Run the cadence over table[first_row:]; return the first row not taken (all: row count).

    table           int64[n, 14]  rows of kernels/batch_scan
    position_shift  position in the segment of the chunk's first byte
    interval_bytes  index.interval.bytes
    state           int64[6]      IndexState, in and out; its entry counts start from 0 each call
    offset_out      int64[a, 2]   (last offset, position in the segment)
    time_out        int64[b, 2]   (timestamp, offset): only together with an offset entry, and only
                                  when above the last entry's timestamp
    Stops before the row that would need an entry beyond a or b: these lengths are the limits that
    the caller sets. State and entries then are exactly those of the rows before.
    """
    state[_OFFSETS] = 0
    state[_TIMES] = 0
    for row in range(first_row, table.shape[0]):
        timestamp = table[row, _TIMESTAMP_COLUMN]
        last_offset = table[row, _LAST_OFFSET_COLUMN]
        is_due = state[_BYTES] > interval_bytes
        is_newer = timestamp > state[_MAX_TIMESTAMP]
        greatest = timestamp if is_newer else state[_MAX_TIMESTAMP]
        needs_time = is_due and greatest > state[_LAST_TIME_ENTRY]
        if is_due and state[_OFFSETS] == offset_out.shape[0]:
            return row
        if needs_time and state[_TIMES] == time_out.shape[0]:
            return row
        if is_newer:
            state[_MAX_TIMESTAMP] = timestamp
            state[_OFFSET_OF_MAX] = last_offset
        if is_due:
            offset_out[state[_OFFSETS], 0] = last_offset
            offset_out[state[_OFFSETS], 1] = position_shift + table[row, _POSITION_COLUMN]
            state[_OFFSETS] += 1
            state[_BYTES] = 0
        if needs_time:
            time_out[state[_TIMES], 0] = greatest
            time_out[state[_TIMES], 1] = state[_OFFSET_OF_MAX]
            state[_TIMES] += 1
            state[_LAST_TIME_ENTRY] = greatest
        state[_BYTES] += table[row, _SIZE_COLUMN]
    return int(table.shape[0])
