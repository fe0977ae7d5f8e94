"""Builds v2 batches from columns, and passes stored batches to kernels that write columns.

Owns the conversion of Python sequences to columns, the header of a batch that kafkalog builds, and
which stored batches are one source of records: consecutive uncompressed batches are, each
compressed batch is one of its own. Runs no Python statement per record, and per stored batch only
for compressed ones. Records are written by `kernels/records/record_build.py`. Any thread.
Source: Kafka 4.1 `MemoryRecordsBuilder`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, compress, repeat
from operator import is_not, itemgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog.format.field_reader import encode_varint
from kafkalog.format.records import compression
from kafkalog.format.records.batch_scan import BatchColumn
from kafkalog.format.records.compression import decompress
from kafkalog.format.records.record_batch import (
    HEADER_BYTES,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    Codec,
    TimestampType,
    codec_of,
    pack_attributes,
    seal_batch,
)
from kafkalog.kernels.records.arrow_columns import SOURCE_COLUMN_COUNT, SourceColumn
from kafkalog.kernels.records.record_build import (
    BUILD_COLUMN_COUNT,
    BUILD_FACT_COUNT,
    BuildColumn,
    build_records,
    encode_headers,
    measure_records,
    partition_keys,
    place_records,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalog.format.records.batch_scan import Buffer

    Headers = Sequence[tuple[bytes, bytes | None]]
    _Column = tuple["Int64s | int", "Bytes"]
    Table = npt.NDArray[np.int64]
    Mask = npt.NDArray[np.bool_]


Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]

_HEADER_NUMBERS_MAX = 10  # two varints of five bytes
_EMPTY = np.empty(0, np.uint8)
_NULL = encode_varint(-1)  # the length of a null key or value
_TIMESTAMP = int(BuildColumn.TIMESTAMP)
_KEY_LENGTH, _VALUE_LENGTH = int(BuildColumn.KEY_LENGTH), int(BuildColumn.VALUE_LENGTH)


@dataclass(frozen=True, slots=True)
class FlatHeaders:
    """The headers of all records one after the other: how many each record has, names, values."""

    counts: Int64s
    names: Sequence[bytes]
    values: Sequence[bytes | None]


class Blob(NamedTuple):
    """A column of keys, values or names: the length of each or -1, all bytes back to back."""

    lengths: Int64s
    data: Bytes


class HeaderBlobs(NamedTuple):
    """As `FlatHeaders`, from columns."""

    counts: Int64s
    names: Blob
    values: Blob


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Records as blobs and one table (`BuildColumn`: spans in the blobs, counts, timestamps)."""

    keys: Bytes
    values: Bytes
    headers: Bytes
    table: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.table)

    @classmethod
    def of(
        cls,
        keys: Sequence[bytes | str | None],
        values: Sequence[bytes | str | None],
        timestamps: Sequence[int] | Int64s | int,
        headers: Sequence[Headers] | FlatHeaders | None = None,
    ) -> RecordColumns:
        """Columns of parallel sequences; None is null, one int stamps every record (ms).

        A column of keys or values holds bytes, or str that is stored as UTF-8. A header is
        (name, value or None); names may repeat. Raises ValueError when the lengths
        differ, OverflowError for a timestamp beyond 64 bits.
        """
        count = len(values)
        if count == 1 and headers is None and len(keys) == 1 and isinstance(timestamps, int):
            return cls._of_one(keys, values, timestamps)
        if headers is not None and not isinstance(headers, FlatHeaders):
            counts = np.fromiter(map(len, headers), np.int64, len(headers))
            names_and_values = list(chain.from_iterable(headers))
            names = list(map(itemgetter(0), names_and_values))
            headers = FlatHeaders(counts, names, list(map(itemgetter(1), names_and_values)))
        if len(keys) != count or (headers is not None and len(headers.counts) != count):
            raise ValueError("keys, values and headers differ in length")
        header_blobs = None if headers is None else _header_blobs(headers)
        return cls._of(count, _blob(keys), _blob(values), timestamps, header_blobs)

    @classmethod
    def of_blobs(
        cls, keys: Blob, values: Blob, timestamps: Int64s, headers: HeaderBlobs | None
    ) -> RecordColumns:
        """The same from columns of equal length; null values take no bytes in their blobs."""
        return cls._of(len(values.lengths), keys, values, timestamps, headers)

    @classmethod
    def _of(
        cls,
        count: int,
        keys: _Column,
        values: _Column,
        timestamps: Sequence[int] | Int64s | int,
        headers: HeaderBlobs | None,
    ) -> RecordColumns:
        table = np.zeros((count, BUILD_COLUMN_COUNT), np.int64)
        table[:, BuildColumn.TIMESTAMP] = timestamps
        table[:, BuildColumn.KEY_LENGTH], key_data = keys
        table[:, BuildColumn.VALUE_LENGTH], value_data = values
        header_data = _EMPTY
        if headers is not None:
            table[:, BuildColumn.HEADERS_LENGTH], header_data = _encoded(headers)
            table[:, BuildColumn.HEADERS_COUNT] = headers.counts
        place_records(table)
        return cls(key_data, value_data, header_data, table)

    @classmethod
    def _of_one(
        cls, keys: Sequence[bytes | str | None], values: Sequence[bytes | str | None], stamp: int
    ) -> RecordColumns:
        """One record without headers: every position is 0, so its row is written at once."""
        key_length, key_blob = _blob(keys)
        value_length, value_blob = _blob(values)
        row: list[Int64s | int] = [0] * BUILD_COLUMN_COUNT
        row[_TIMESTAMP], row[_KEY_LENGTH], row[_VALUE_LENGTH] = stamp, key_length, value_length
        return cls(key_blob, value_blob, _EMPTY, np.array((row,), np.int64))

    def partitions(self, partition_count: int) -> Int64s:
        """Partition of each key by murmur2 as Java's producer; -1 for a null key."""
        chosen = np.empty(len(self), np.int64)
        lengths = np.ascontiguousarray(self.key_lengths)
        partition_keys(self.keys, lengths, partition_count, chosen)
        return chosen

    @property
    def null_key_count(self) -> int:
        """Records without a key."""
        return int(np.count_nonzero(self.key_lengths < 0))

    @property
    def key_lengths(self) -> Int64s:
        """Bytes of each key, -1 for none."""
        return self.table[:, BuildColumn.KEY_LENGTH]

    @property
    def value_lengths(self) -> Int64s:
        """Bytes of each value, -1 for none."""
        return self.table[:, BuildColumn.VALUE_LENGTH]

    @property
    def field_bytes(self) -> Int64s:
        """Bytes of the key, the value and the encoded headers of each record together."""
        fields = np.maximum(self.key_lengths, 0) + np.maximum(self.value_lengths, 0)
        return fields + self.table[:, BuildColumn.HEADERS_LENGTH]

    @property
    def timestamps(self) -> Int64s:
        """Milliseconds of each record."""
        return self.table[:, BuildColumn.TIMESTAMP]


def _blob(column: Sequence[bytes | str | None]) -> tuple[Int64s | int, Bytes]:
    """(length of each or -1, all bytes back to back); one number when all lengths are the same."""
    count, null_count = len(column), column.count(None)
    if null_count == count:
        return -1, _EMPTY
    if count == 1:
        (whole,) = _as_bytes(column)
        return len(whole), np.frombuffer(whole, np.uint8)
    if not null_count:
        texts = _as_bytes(column)
        lengths = np.fromiter(map(len, texts), np.int64, count)
        return lengths, np.frombuffer(b"".join(texts), np.uint8)
    present = np.fromiter(map(is_not, column, repeat(None)), np.bool_, count)
    texts = _as_bytes(list(compress(column, present.tolist())))
    lengths = np.full(count, -1, np.int64)
    lengths[present] = np.fromiter(map(len, texts), np.int64, len(texts))
    return lengths, np.frombuffer(b"".join(texts), np.uint8)


def _as_bytes(column: Sequence[bytes | str | None]) -> Sequence[bytes]:
    """A column without None: as it is, or its strings in UTF-8."""
    if column and isinstance(column[0], str):
        return list(map(str.encode, column))  # type: ignore[arg-type] # all of one kind
    return column  # type: ignore[return-value] # likewise


def _header_blobs(headers: FlatHeaders) -> HeaderBlobs:
    count = len(headers.names)
    name_lengths, names = _blob(headers.names)
    value_lengths, values = _blob(headers.values)
    return HeaderBlobs(
        headers.counts,
        Blob(_spread(name_lengths, count), names),
        Blob(_spread(value_lengths, count), values),
    )


def _encoded(headers: HeaderBlobs) -> tuple[Int64s, Bytes]:
    """(bytes of each record's encoded headers, all of them back to back)."""
    counts, (name_lengths, names), (value_lengths, values) = headers
    numbers_bytes = _HEADER_NUMBERS_MAX * len(name_lengths)
    out = np.empty(len(names) + len(values) + numbers_bytes, np.uint8)
    lengths = np.empty(len(counts), np.int64)
    used = encode_headers(names, name_lengths, values, value_lengths, counts, out, lengths)
    return lengths, out[:used]


def _spread(lengths: Int64s | int, count: int) -> Int64s:
    return np.full(count, lengths, np.int64) if isinstance(lengths, int) else lengths


class ProducerStamp(NamedTuple):
    """The producer of an idempotent append; -1 in all three: none."""

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE


NO_PRODUCER = ProducerStamp()


class BuiltBatch(NamedTuple):
    """An uncompressed CreateTime batch, and the facts that its validation needs."""

    data: memoryview
    record_count: int
    base_timestamp: int  # ms
    max_timestamp: int
    min_timestamp: int
    null_key_count: int
    producer: ProducerStamp = NO_PRODUCER


def build_plain_batch(
    columns: RecordColumns, selection: Int64s | None = None, producer: ProducerStamp = NO_PRODUCER
) -> BuiltBatch:
    """The selected rows as a batch at offset 0, without codec; see build_batch."""
    out, count, facts = _encode(columns, selection)
    base_timestamp, max_timestamp, min_timestamp, null_key_count = facts
    producer_id, producer_epoch, base_sequence = producer
    seal_batch(
        out,
        attributes=0,
        record_count=count,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    return BuiltBatch(
        out, count, base_timestamp, max_timestamp, min_timestamp, null_key_count, producer
    )


def build_single_batch(key: bytes | None, value: bytes | None, timestamp_ms: int) -> BuiltBatch:
    """``build_plain_batch`` for one record without headers, whose deltas are all 0.

    Without columns and kernels it takes less than half the time.
    """
    key_part = _NULL if key is None else encode_varint(len(key)) + key
    value_part = _NULL if value is None else encode_varint(len(value)) + value
    record = b"\0\0\0" + key_part + value_part + b"\0"
    batch = bytearray(HEADER_BYTES) + encode_varint(len(record)) + record
    seal_batch(
        batch, attributes=0, record_count=1, base_timestamp=timestamp_ms, max_timestamp=timestamp_ms
    )
    return BuiltBatch(
        memoryview(batch), 1, timestamp_ms, timestamp_ms, timestamp_ms, int(key is None)
    )


def _encode(
    columns: RecordColumns, selection: Int64s | None
) -> tuple[memoryview, int, Sequence[int]]:
    """(batch with its header still to be written, record count, `BuildFact` values)."""
    if selection is None:
        selection = np.arange(len(columns), dtype=np.int64)
    count = len(selection)
    assert count > 0, "a batch holds at least one record"
    facts = np.empty(BUILD_FACT_COUNT, np.int64)
    size = measure_records(columns.table, selection, facts)
    out = np.empty(HEADER_BYTES + size, np.uint8)
    build_records(
        columns.keys, columns.values, columns.headers, columns.table, selection, out, HEADER_BYTES
    )
    return out.data, count, facts.tolist()


def cuts(sizes: Int64s, piece_bytes: int) -> Iterator[int]:
    """Ends of pieces of records of these sizes that are no larger, of one record at least."""
    ends = np.cumsum(sizes)
    start, used = 0, 0
    while start < len(ends):
        start = max(int(np.searchsorted(ends, used + piece_bytes, side="right")), start + 1)
        used = int(ends[start - 1])
        yield start


def build_batch(  # noqa: PLR0913 - the fields of a header
    columns: RecordColumns,
    selection: Int64s | None = None,
    *,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    log_append_time_ms: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """One batch of the selected rows (None: all), in their order, with its CRC.

    selection           int64[m], m >= 1, each a row of the columns
    level               of the codec, None for Kafka's default
    log_append_time_ms  makes the timestamp type LogAppendTime; None is CreateTime
    """
    plain, count, facts = _encode(columns, selection)
    base_timestamp, max_timestamp, _, _ = facts
    batch: bytearray | memoryview = plain
    if codec is not Codec.NONE:
        records = compression.compress(codec, plain[HEADER_BYTES:], level)
        batch = bytearray(HEADER_BYTES) + records
    is_append_time = log_append_time_ms is not None
    timestamp_type = TimestampType.LOG_APPEND_TIME if is_append_time else TimestampType.CREATE_TIME
    seal_batch(
        batch,
        attributes=pack_attributes(codec, timestamp_type, transactional=is_transactional),
        record_count=count,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp if log_append_time_ms is None else log_append_time_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )
    return bytes(batch)


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
    """The batches of a scan, whose positions are in its chunk."""
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
