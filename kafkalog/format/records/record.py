"""Records of a stored v2 batch: as columns for hot paths, one by one for tools and tests.

Owns the meaning of a record's fields in its batch: absolute offset, timestamp (LogAppendTime takes
the batch's maximum; with a delete horizon the deltas are relative to it), sequence. Also renumbers
the records of a batch whose offset deltas a producer compressed wrongly, as Kafka's LogValidator
does. The structure is checked by `kernels/records/record_scan.py`. Pure; any thread. Source: Kafka
4.1 `DefaultRecordBatch`, `DefaultRecord`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kafkalog.format.field_reader import decode_varint
from kafkalog.format.integers import FormatError
from kafkalog.format.records.compression import decompress
from kafkalog.format.records.record_batch import (
    HEADER_BYTES,
    NO_SEQUENCE,
    BatchHeader,
    TimestampType,
    add_to_sequence,
    codec_of,
    read_header,
    timestamp_type_of,
)
from kafkalog.kernels.records.record_build import (
    BUILD_COLUMN_COUNT,
    BUILD_FACT_COUNT,
    BuildColumn,
    BuildFact,
    build_records,
    measure_records,
)
from kafkalog.kernels.records.record_scan import (
    RECORD_COLUMN_COUNT,
    RecordColumn,
    RecordFault,
    fault_of,
    scan_records,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


Buffer = bytes | bytearray | memoryview

DECOMPRESSED_BYTES_MAX = 64 << 20
"""Default bound of an inflated batch (`max.decompressed.batch.bytes`)."""

Headers = tuple[tuple[bytes, bytes | None], ...]
Fields = tuple[int, int, bytes | None, bytes | None, Headers]
"""Offset, timestamp (ms), key, value, headers."""

_FIELD_COLUMNS = [
    int(column)
    for column in (
        RecordColumn.KEY_POSITION,
        RecordColumn.KEY_LENGTH,
        RecordColumn.VALUE_POSITION,
        RecordColumn.VALUE_LENGTH,
        RecordColumn.HEADERS_POSITION,
        RecordColumn.HEADERS_COUNT,
    )
]

_REASONS = {
    RecordFault.BAD_SIZE: "record size is negative or beyond the batch",
    RecordFault.BAD_VARINT: "a number in the record is cut off or too long",
    RecordFault.BAD_KEY: "key reaches beyond the record",
    RecordFault.BAD_VALUE: "value reaches beyond the record",
    RecordFault.BAD_HEADER_COUNT: "header count is negative or beyond the record",
    RecordFault.BAD_HEADER: "a header reaches beyond the record or has no name",
    RecordFault.LEFTOVER_IN_RECORD: "bytes are left over in the record",
    RecordFault.LEFTOVER_IN_BATCH: "bytes follow the last record",
    RecordFault.BAD_COUNT: "the batch cannot hold that many records",
    RecordFault.MISNUMBERED: "its offset does not rise, or is beyond the batch",
}


class MalformedRecord(FormatError):
    """A record is malformed; ``index`` is its position in the batch, ``fault`` the broken rule."""

    def __init__(self, fault: RecordFault, index: int) -> None:
        super().__init__(f"{_REASONS[fault]} (record {index})")
        self.fault = fault
        self.index = index


@dataclass(frozen=True, slots=True)
class Record:
    """One record. A header is (name, value or None); sequence is -1 without a producer's."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    sequence: int = NO_SEQUENCE


@dataclass(frozen=True, slots=True)
class RecordTable:
    """All records of one batch: `records` are the inflated bytes, `table` the spans in them.

    table has one row per record and the columns of `RecordColumn`. Offsets and timestamps are
    absolute, int64.
    """

    header: BatchHeader
    records: bytes
    table: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    timestamps: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.table)

    def record(self, index: int) -> Record:
        """One record as a value; for tools, a Python object per call."""
        row = self.table[index]
        header = self.header
        sequence = NO_SEQUENCE
        if header.base_sequence != NO_SEQUENCE:
            delta = int(row[RecordColumn.OFFSET_DELTA])
            sequence = add_to_sequence(header.base_sequence, delta)
        return Record(
            offset=int(self.offsets[index]),
            timestamp=int(self.timestamps[index]),
            key=self._field(int(row[RecordColumn.KEY_POSITION]), int(row[RecordColumn.KEY_LENGTH])),
            value=self._field(
                int(row[RecordColumn.VALUE_POSITION]), int(row[RecordColumn.VALUE_LENGTH])
            ),
            headers=self._headers(
                int(row[RecordColumn.HEADERS_POSITION]), int(row[RecordColumn.HEADERS_COUNT])
            ),
            sequence=sequence,
        )

    def fields(self, first: int = 0) -> Iterator[Fields]:
        """Offset, timestamp, key, value and headers of each record from a row on.

        For many records: several times faster than ``record``.
        """
        rows = self.table[first:]
        for offset, timestamp, row in zip(
            self.offsets[first:].tolist(),
            self.timestamps[first:].tolist(),
            rows[:, _FIELD_COLUMNS].tolist(),
            strict=True,
        ):
            key_at, key_length, value_at, value_length, headers_at, headers_count = row
            yield (
                offset,
                timestamp,
                self._field(key_at, key_length),
                self._field(value_at, value_length),
                self._headers(headers_at, headers_count) if headers_count else (),
            )

    def _field(self, position: int, length: int) -> bytes | None:
        return None if length < 0 else self.records[position : position + length]

    def _headers(self, position: int, count: int) -> Headers:
        """The scan has checked every length."""
        headers = []
        for _ in range(count):
            length, position = decode_varint(self.records, position)
            name = self.records[position : position + length]
            position += length
            length, position = decode_varint(self.records, position)
            headers.append((name, self._field(position, length)))
            position += max(length, 0)
        return tuple(headers)


def read_records(batch: Buffer, *, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> RecordTable:
    """Inflate and scan exactly one batch; the CRC is not checked.

    Raises MalformedBatch (header), MalformedRecord, DecompressedTooLarge, UnsupportedCompression.
    """
    header = read_header(batch)
    stream = memoryview(batch)[HEADER_BYTES : header.size_bytes]
    records = decompress(codec_of(header.attributes), stream, max_bytes=max_bytes)
    # More records than bytes cannot be: keeps a hostile count from taking memory.
    rows = header.record_count if 0 <= header.record_count <= len(records) else 0
    table = np.empty((rows, RECORD_COLUMN_COUNT), np.int64)
    status = scan_records(np.frombuffer(records, np.uint8), header.record_count, table)
    if status < 0:
        raise MalformedRecord(*fault_of(status))
    offsets = table[:, RecordColumn.OFFSET_DELTA] + header.base_offset
    if timestamp_type_of(header.attributes) is TimestampType.LOG_APPEND_TIME:
        timestamps = np.full(rows, header.max_timestamp, np.int64)
    else:
        timestamps = table[:, RecordColumn.TIMESTAMP_DELTA] + header.base_timestamp
    return RecordTable(header, records, table, offsets, timestamps)


def iterate_records(batch: Buffer, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """The records of exactly one batch in order; errors as `read_records`, before the first."""
    table = read_records(batch, max_bytes=max_bytes)
    return map(table.record, range(len(table)))


_COPIED_COLUMNS = (
    (BuildColumn.KEY_POSITION, RecordColumn.KEY_POSITION),
    (BuildColumn.KEY_LENGTH, RecordColumn.KEY_LENGTH),
    (BuildColumn.VALUE_POSITION, RecordColumn.VALUE_POSITION),
    (BuildColumn.VALUE_LENGTH, RecordColumn.VALUE_LENGTH),
    (BuildColumn.HEADERS_POSITION, RecordColumn.HEADERS_POSITION),
    (BuildColumn.HEADERS_COUNT, RecordColumn.HEADERS_COUNT),
)


def renumber_records(
    records: bytes | memoryview, count: int, base_timestamp: int
) -> tuple[bytes, int]:
    """The same records with offset deltas 0, 1, 2 ..., and the base timestamp of their deltas.

    records  the inflated bytes after a batch header, already found well-formed
    """
    source = np.frombuffer(records, dtype=np.uint8)
    spans = np.empty((count, RECORD_COLUMN_COUNT), dtype=np.int64)
    status = scan_records(source, count, spans)
    assert status == 0, "the records were found valid"
    table = np.empty((count, BUILD_COLUMN_COUNT), dtype=np.int64)
    table[:, BuildColumn.TIMESTAMP] = base_timestamp + spans[:, RecordColumn.TIMESTAMP_DELTA]
    for target, origin in _COPIED_COLUMNS:
        table[:, target] = spans[:, origin]
    headers_at = spans[:, RecordColumn.HEADERS_POSITION]
    table[:, BuildColumn.HEADERS_LENGTH] = spans[:, RecordColumn.RECORD_END] - headers_at
    selection = np.arange(count, dtype=np.int64)
    facts = np.empty(BUILD_FACT_COUNT, dtype=np.int64)
    out = np.empty(measure_records(table, selection, facts), dtype=np.uint8)
    written = build_records(source, source, source, table, selection, out, 0)
    assert written == len(out), "valid records fit"
    return out.tobytes(), int(facts[BuildFact.BASE_TIMESTAMP])
