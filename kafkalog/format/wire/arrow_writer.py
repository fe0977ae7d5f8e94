"""ArrowWriter: the records of an answer as an Arrow IPC stream (schema: `arrow_columns`).

Owns the choice of batches and the end of chunks: an answer is the schema, one Arrow batch per
chunk, and the end of the stream. Runs no Python statement per record, and per batch only for
compressed ones.

pyarrow is an optional dependency. Only `arrow_columns`, `arrow_reader` and this module import it,
and their users import them with the first request that needs Arrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kafkalog.errors import KafkalogError
from kafkalog.format.integers import FormatError
from kafkalog.format.records.batch_builder import has_records, sources
from kafkalog.format.records.batch_scan import ScanStop, is_committed, scan
from kafkalog.format.records.record_batch import MalformedBatch
from kafkalog.format.wire.arrow_columns import SCHEMA, ArrowColumns
from kafkalog.format.wire.record_writer import Chunk
from kafkalog.kernels.records.arrow_columns import (
    FILL_CELL_COUNT,
    FillCell,
    FillStatus,
    OmittedColumn,
    SourceColumn,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from kafkalog.format.records.batch_builder import BatchSource
    from kafkalog.format.wire.record_writer import Bounds, RecordRead, RecordShape


BATCH_BYTES = 1 << 20
"""Of keys, values and headers in an Arrow batch: more than a chunk of text has, because each batch
costs a tenth of a millisecond, and a page is not sent before it is whole."""

_COMES_WITH = {"timestampType": "timestamp"}  # a column without its own name in `fields=`
_STOPS = (ScanStop.END, ScanStop.PARTIAL)


class _Collector:
    """The file of the stream's writer: collects the bytes until they are taken."""

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
        self._schema = pa.schema(
            field for field in SCHEMA if _COMES_WITH.get(field.name, field.name) in shape.fields
        )
        self._max_decompressed_bytes = max_decompressed_bytes
        self._max_records = bounds.max_records
        self._is_full = False
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
        self._stream = pa.ipc.new_stream(self._collector, self._schema)

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

    def write(self, read: RecordRead) -> Generator[Chunk, None, None]:
        """Chunks of one Arrow batch each, maybe of none; see `RecordWriter`."""
        state = self._state
        state[FillCell.FROM_OFFSET] = state[FillCell.NEXT_OFFSET] = read.from_offset
        state[FillCell.END_OFFSET] = read.end_offset
        found = self._sources(read)
        while True:
            try:
                source = next(found, None)
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
            batch = self._columns.batch(self._schema, read.topic, read.partition, state)
            self._stream.write_batch(batch)
            state[FillCell.ROWS : FillCell.DATA_BYTES_NEEDED] = 0
        return Chunk(self._collector.take(), rows, next_offset, is_end)

    def _sources(self, read: RecordRead) -> Iterator[BatchSource]:
        """The wanted batches in order, then MalformedBatch if the read ends in invalid bytes."""
        rows = scan(read.batches, check_crc=False)
        table = rows.table
        aborted = np.array(read.aborted, np.int64).reshape(-1, 3)
        wanted = has_records(table, read.from_offset, read.end_offset)
        table = table[wanted & is_committed(table, aborted)]
        yield from sources(read.batches, table, max_decompressed_bytes=self._max_decompressed_bytes)
        if rows.stop not in _STOPS:
            raise MalformedBatch("this is no batch", rows.stop_position)
