"""ArrowWriter: the records of an answer as an Arrow IPC stream (schema: `arrow_columns`).

Owns the choice of batches and the end of chunks: an answer is the schema, one Arrow batch per
chunk, and the end of the stream. No Python statement per record, and per batch only for compressed
ones.

pyarrow is an optional dependency, and only `arrow_columns`, `arrow_reader` and this module import
it: who imports them does so when the first such answer is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from kafkalog.errors import KafkalogError
from kafkalog.format.arrow_columns import SCHEMA, ArrowColumns
from kafkalog.format.batch_scan import BatchColumn, ScanStop, scan
from kafkalog.format.compression import decompress
from kafkalog.format.format_error import FormatError
from kafkalog.format.record_batch import HEADER_BYTES, MalformedBatch, TimestampType, codec_of
from kafkalog.format.record_writer import Chunk
from kafkalog.kernels.arrow_columns import (
    FILL_CELL_COUNT,
    SOURCE_COLUMN_COUNT,
    FillCell,
    FillStatus,
    OmittedColumn,
    SourceColumn,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from kafkalog.format.record_batch import Codec
    from kafkalog.format.record_writer import Bounds, RecordRead, RecordShape

    Table = npt.NDArray[np.int64]

BATCH_BYTES = 1 << 20
"""Of keys, values and headers in an Arrow batch: more than a chunk of text has, because each batch
costs a tenth of a millisecond, and a page is not sent before it is whole."""

_COMES_WITH = {"timestampType": "timestamp"}  # a column that has no name of its own in `fields=`
_CODEC, _TRANSACTIONAL, _CONTROL = 0x07, 0x10, 0x20
_LOG_APPEND_TIME = TimestampType.LOG_APPEND_TIME << 3
_STOPS = (ScanStop.END, ScanStop.PARTIAL)


class _Source(NamedTuple):
    """Inflated records and the batches that they belong to (`SourceColumn`)."""

    data: npt.NDArray[np.uint8]
    batches: Table


class _Collector:
    """The file of the stream's writer: keeps what is written until it is taken."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[pa.Buffer | bytes] = []

    def write(self, data: pa.Buffer | bytes) -> int:
        """Keep it; the memory of a buffer is still the columns'."""
        self._parts.append(data)
        return len(data)

    def flush(self) -> None:
        """Nothing waits anywhere else."""

    def close(self) -> None:
        """The stream's end is written like all else."""

    def take(self) -> bytes:
        """What was written since the last time."""
        parts, self._parts = self._parts, []
        return b"".join(parts)


class ArrowWriter:
    """A `RecordWriter`. Keys and values are bytes: the formats in the shape mean nothing here."""

    def __init__(
        self,
        shape: RecordShape,
        bounds: Bounds,
        *,
        max_decompressed_bytes: int,
        chunk_bytes: int = BATCH_BYTES,
    ) -> None:
        self._names = [name for name in SCHEMA.names if _COMES_WITH.get(name, name) in shape.fields]
        self._max_decompressed_bytes = max_decompressed_bytes
        self._max_records = bounds.max_records
        self._is_full = False
        self._topics: dict[str, pa.Array] = {}
        self._columns = ArrowColumns(2 * chunk_bytes)
        self._state = state = np.zeros(FILL_CELL_COUNT, np.int64)
        state[FillCell.UNTIL_TIMESTAMP] = bounds.until_timestamp_ms
        state[FillCell.MAX_RECORDS] = bounds.max_records
        state[FillCell.MAX_BYTES] = bounds.max_bytes
        state[FillCell.CHUNK_BYTES] = chunk_bytes
        state[FillCell.LEFT_OUT] = sum(
            column for column in OmittedColumn if column.name.lower() not in shape.fields
        )
        self._collector = _Collector()
        schema = pa.schema([SCHEMA.field(name) for name in self._names])
        self._stream = pa.ipc.new_stream(self._collector, schema)

    @property
    def count(self) -> int:
        """Records written so far, of all reads."""
        return int(self._state[FillCell.COUNT])

    @property
    def is_full(self) -> bool:
        """Whether max_records or max_bytes was reached."""
        return self._is_full or self.count >= self._max_records

    def begin(self) -> bytes:
        """Nothing: pyarrow writes the schema with the first batch, or with the end."""
        return self._collector.take()

    def end(self) -> bytes:
        """The end of the stream."""
        self._stream.close()
        return self._collector.take()

    def write(self, read: RecordRead) -> Iterator[Chunk]:
        """Chunks of one Arrow batch each, maybe of none; see `RecordWriter`."""
        state = self._state
        state[FillCell.FROM_OFFSET] = state[FillCell.NEXT_OFFSET] = read.from_offset
        state[FillCell.END_OFFSET] = read.end_offset
        sources = self._sources(read)
        while True:
            try:
                source = next(sources, None)
            except (FormatError, KafkalogError):
                yield self._take(read)
                raise
            if source is None:
                break
            state[FillCell.BATCH], state[FillCell.RECORDS_LEFT] = 0, -1
            while True:
                status = self._columns.fill(source.data, source.batches, state)
                if status is not FillStatus.CHUNK_FULL:
                    break
                if state[FillCell.ROWS]:
                    yield self._take(read)
                else:  # a record that is larger than a chunk
                    self._columns = ArrowColumns(int(state[FillCell.DATA_BYTES_NEEDED]))
            if status is FillStatus.BAD_RECORD:
                yield self._take(read)
                batch = source.batches[state[FillCell.BATCH], SourceColumn.BASE_OFFSET]
                raise MalformedBatch(f"a record breaks its format in the batch at offset {batch}")
            if status is not FillStatus.SOURCE_DONE:
                self._is_full |= status is FillStatus.ANSWER_FULL
                yield self._take(read, is_end=True)
                return
        state[FillCell.NEXT_OFFSET] = max(read.from_offset, read.end_offset)
        yield self._take(read, is_end=self.is_full)

    def _take(self, read: RecordRead, *, is_end: bool = False) -> Chunk:
        """The rows at hand, which leave the columns."""
        state = self._state
        rows, next_offset = int(state[FillCell.ROWS]), int(state[FillCell.NEXT_OFFSET])
        if rows:
            topic = self._topics.setdefault(read.topic, pa.array([read.topic]))
            self._stream.write_batch(self._columns.batch(self._names, topic, read.partition, state))
            state[FillCell.ROWS : FillCell.DATA_BYTES_NEEDED] = 0
        return Chunk(self._collector.take(), rows, next_offset, is_end)

    def _sources(self, read: RecordRead) -> Iterator[_Source]:
        """The wanted batches in order: plain ones that follow each other in one, others alone."""
        rows = scan(read.batches, check_crc=False)
        table = rows.table[_wanted(rows.table, read)]
        is_packed = table[:, BatchColumn.ATTRIBUTES] & _CODEC != 0
        cuts = np.flatnonzero(is_packed[1:] | is_packed[:-1]) + 1
        data = np.frombuffer(read.batches, np.uint8)
        for run in np.split(table, cuts) if len(table) else ():
            source = _Source(data, _source_rows(run))
            codec = codec_of(int(run[0, BatchColumn.ATTRIBUTES]))
            yield self._inflated(source, codec) if codec else source
        if rows.stop not in _STOPS:
            raise MalformedBatch("this is no batch", rows.stop_position)

    def _inflated(self, source: _Source, codec: Codec) -> _Source:
        """The records of the one compressed batch of this source."""
        start, end = source.batches[0, : SourceColumn.END + 1].tolist()
        records = decompress(
            codec, source.data[start:end].data, max_bytes=self._max_decompressed_bytes
        )
        source.batches[0, : SourceColumn.END + 1] = 0, len(records)
        return _Source(np.frombuffer(records, np.uint8), source.batches)


def _wanted(table: Table, read: RecordRead) -> npt.NDArray[np.bool_]:
    """Which batches hold records to show: none of control, none of an aborted transaction."""
    attributes = table[:, BatchColumn.ATTRIBUTES]
    base_offsets = table[:, BatchColumn.BASE_OFFSET]
    wanted: npt.NDArray[np.bool_] = table[:, BatchColumn.LAST_OFFSET] >= read.from_offset
    wanted &= (base_offsets < read.end_offset) & (attributes & _CONTROL == 0)
    for producer_id, first, last in read.aborted:
        wanted &= (
            (attributes & _TRANSACTIONAL == 0)
            | (table[:, BatchColumn.PRODUCER_ID] != producer_id)
            | (base_offsets < first)
            | (base_offsets > last)
        )
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
