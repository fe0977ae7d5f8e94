"""Walk the records of one inflated v2 batch: spans per record, or the facts validation needs.

Owns the count: exactly the counted number of records and nothing behind the last. A record itself
is read by `record_fields.py`. Knows nothing of the batch header; the caller passes the bytes behind
it and the header's record count. Any thread. Source: Kafka 4.1 `DefaultRecordBatch`.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from kafkalog.kernels.compile import BYTES, I64, I64_TABLE_OUT, I64S_OUT, kernel
from kafkalog.kernels.record_fields import (
    MINIMUM_RECORD_BYTES,
    RECORD_COLUMN_COUNT,
    RecordColumn,
    RecordFault,
    fault_of,
    read_record,
)

if TYPE_CHECKING:
    from kafkalog.kernels.compile import Bytes, Int64s, Int64Table

__all__ = [
    "RECORD_COLUMN_COUNT",
    "RECORD_FACT_COUNT",
    "RecordColumn",
    "RecordFact",
    "RecordFault",
    "fault_of",
    "scan_records",
    "validate_records",
]


class RecordFact(enum.IntEnum):
    """What `validate_records` reports; an index of -1 means that there is none."""

    MAX_TIMESTAMP_DELTA = 0
    MAX_TIMESTAMP_INDEX = 1  # the first record that has it
    MIN_TIMESTAMP_DELTA = 2
    MIN_TIMESTAMP_INDEX = 3
    NULL_KEYS = 4
    FIRST_NULL_KEY_INDEX = 5
    LAST_NULL_KEY_INDEX = 6
    FIRST_MISNUMBERED_INDEX = 7  # offset delta is not the record's index
    LAST_OFFSET_DELTA = 8  # of the last record


_FIRST_ROW_CELL = len(RecordFact)
RECORD_FACT_COUNT = _FIRST_ROW_CELL + RECORD_COLUMN_COUNT
"""The cells of RecordFact and behind them the fields of the record at hand."""

_OFFSET_DELTA = int(RecordColumn.OFFSET_DELTA)
_TIMESTAMP_DELTA = int(RecordColumn.TIMESTAMP_DELTA)
_KEY_LENGTH = int(RecordColumn.KEY_LENGTH)
_RECORD_END = int(RecordColumn.RECORD_END)
_LEFTOVER_IN_BATCH = int(RecordFault.LEFTOVER_IN_BATCH)
_BAD_COUNT = int(RecordFault.BAD_COUNT)

_MAX_TIMESTAMP_DELTA = int(RecordFact.MAX_TIMESTAMP_DELTA)
_MAX_TIMESTAMP_INDEX = int(RecordFact.MAX_TIMESTAMP_INDEX)
_MIN_TIMESTAMP_DELTA = int(RecordFact.MIN_TIMESTAMP_DELTA)
_MIN_TIMESTAMP_INDEX = int(RecordFact.MIN_TIMESTAMP_INDEX)
_NULL_KEYS = int(RecordFact.NULL_KEYS)
_FIRST_NULL_KEY_INDEX = int(RecordFact.FIRST_NULL_KEY_INDEX)
_LAST_NULL_KEY_INDEX = int(RecordFact.LAST_NULL_KEY_INDEX)
_FIRST_MISNUMBERED_INDEX = int(RecordFact.FIRST_MISNUMBERED_INDEX)
_LAST_OFFSET_DELTA = int(RecordFact.LAST_OFFSET_DELTA)


@kernel(I64(BYTES, I64, I64_TABLE_OUT))
def scan_records(records: Bytes, count: int, table: Int64Table) -> int:
    """Fill one row of `table` per record; return 0 or a negative status (`fault_of`).

    records  uint8[n]       the inflated bytes behind a batch header, all of them
    count                   the header's record count, at most the rows of `table`
    table    int64[m, 11]   `RecordColumn`; rows before a bad record are filled
    """
    if count < 0 or count > len(table) or count > len(records) // MINIMUM_RECORD_BYTES:
        return -_BAD_COUNT
    position = 0
    for index in range(count):
        row = table[index]
        fault = read_record(records, position, len(records), row)
        if fault < 0:
            return -16 * index + fault
        position = row[_RECORD_END]
    if position != len(records):
        return -16 * count - _LEFTOVER_IN_BATCH
    return 0


@kernel(I64(BYTES, I64, I64S_OUT))
def validate_records(records: Bytes, count: int, facts: Int64s) -> int:
    """Check every record without a table; return 0 or a negative status (`fault_of`).

    records  uint8[n]   the inflated bytes behind a batch header, all of them
    count               the header's record count
    facts    int64[RECORD_FACT_COUNT]   `RecordFact`; complete only when the result is 0
    """
    facts[:_FIRST_ROW_CELL] = -1
    facts[_NULL_KEYS] = 0
    if count < 0 or count > len(records) // MINIMUM_RECORD_BYTES:
        return -_BAD_COUNT
    row = facts[_FIRST_ROW_CELL:]
    position = 0
    for index in range(count):
        fault = read_record(records, position, len(records), row)
        if fault < 0:
            return -16 * index + fault
        position = row[_RECORD_END]
        delta = row[_TIMESTAMP_DELTA]
        if index == 0 or delta > facts[_MAX_TIMESTAMP_DELTA]:
            facts[_MAX_TIMESTAMP_DELTA] = delta
            facts[_MAX_TIMESTAMP_INDEX] = index
        if index == 0 or delta < facts[_MIN_TIMESTAMP_DELTA]:
            facts[_MIN_TIMESTAMP_DELTA] = delta
            facts[_MIN_TIMESTAMP_INDEX] = index
        if row[_KEY_LENGTH] < 0:
            facts[_NULL_KEYS] += 1
            facts[_LAST_NULL_KEY_INDEX] = index
            if facts[_FIRST_NULL_KEY_INDEX] < 0:
                facts[_FIRST_NULL_KEY_INDEX] = index
        if row[_OFFSET_DELTA] != index and facts[_FIRST_MISNUMBERED_INDEX] < 0:
            facts[_FIRST_MISNUMBERED_INDEX] = index
        facts[_LAST_OFFSET_DELTA] = row[_OFFSET_DELTA]
    if position != len(records):
        return -16 * count - _LEFTOVER_IN_BATCH
    return 0
