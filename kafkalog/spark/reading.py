"""What one task does: the records of a piece as Arrow batches, across what was lost.

Runs in Spark's pooled workers, or in any process: no pyspark, no state but the one below.

Records of chunks as Arrow record batches, in exactly the columns that a schema asks for.

No Python statement per record, and per v2 batch only for compressed ones. Each Arrow batch owns its
memory, which is filled once. Columns that nobody asked for cost nothing. Control batches are left
out; records of aborted transactions are not in the chunks (`logs.read_piece`). Any thread.

Imports pyarrow: an optional dependency.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from kafkalog.errors import KafkalogError
from kafkalog.format.integers import INT64_MAX, FormatError
from kafkalog.format.records.batch_builder import has_records, sources
from kafkalog.format.records.batch_scan import BatchColumn, scan
from kafkalog.format.records.record import DECOMPRESSED_BYTES_MAX
from kafkalog.format.wire.arrow_columns import ArrowColumns, check_schema
from kafkalog.kernels.records.arrow_columns import (
    FILL_CELL_COUNT,
    FillCell,
    FillStatus,
    OmittedColumn,
)
from kafkalog.spark.logs.open import read_piece
from kafkalog.spark.logs.values import CHUNK_BYTES, CorruptLog, DataLost
from kafkalog.spark.planning import LossPolicy
from kafkalog.spark.workers import settle_worker

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    import numpy.typing as npt
    import pyarrow as pa

    from kafkalog.spark.logs.values import Chunk, OffsetRange, Piece
    from kafkalog.spark.options import SourceOptions


def batches_of(
    piece: Piece, options: SourceOptions, schema: pa.Schema
) -> Generator[pa.RecordBatch, None, None]:
    """The piece's records in these columns, in offset order.

    Raises DataLost when offsets are missing; with failOnDataLoss=false tells of it and goes on
    behind them. CorruptLog ends it in any case. Descriptors and connections are let go of at its
    end, also when it is closed early.
    """
    policy = LossPolicy(fails=options.fail_on_data_loss)
    while True:
        try:
            yield from _batches(piece, options, schema)
            return
        except DataLost as error:
            policy.lost(error.missing, error.reason)
            from_offset = error.missing.to_offset
        assert from_offset > piece.range.from_offset, "loss without progress"
        if from_offset >= piece.range.to_offset:
            return
        left = piece.range._replace(from_offset=from_offset)
        piece = replace(piece, range=left, start_position=None)


def _batches(
    piece: Piece, options: SourceOptions, schema: pa.Schema
) -> Generator[pa.RecordBatch, None, None]:
    from kafkalog.spark.reading import record_batches

    chunks = read_piece(
        piece, options.access, chunk_bytes=options.chunk_bytes, check_crcs=options.check_crcs
    )
    settle_worker()
    with closing(chunks):
        yield from record_batches(chunks, piece.range, schema)


RECORDS_MAX = 1 << 16
"""Of an Arrow batch: small records fill one before ``batch_bytes`` of them are together."""


def record_batches(
    chunks: Iterable[Chunk],
    wanted: OffsetRange,
    schema: pa.Schema,
    *,
    max_decompressed_bytes: int = DECOMPRESSED_BYTES_MAX,
    batch_bytes: int = CHUNK_BYTES,
) -> Generator[pa.RecordBatch, None, None]:
    """The records of the range, in order.

    schema                  any of Spark's Kafka columns in any order (`check_schema`)
    max_decompressed_bytes  of one v2 batch: what inflates to more is CorruptLog
    batch_bytes             of keys, values and headers, about, in an Arrow batch

    Before an error is raised, also one of the chunks', every record in front of it was given.
    Raises ValueError for another schema, CorruptLog for what is no sound batch or record.
    """
    check_schema(schema)
    filler = _Filler(wanted, schema, max_decompressed_bytes, batch_bytes)
    try:
        for chunk in chunks:
            yield from filler.add(chunk)
    except KafkalogError:
        yield from filler.rest()
        raise
    yield from filler.rest()


class _Filler:
    """The Arrow batch in the making."""

    def __init__(
        self, wanted: OffsetRange, schema: pa.Schema, max_decompressed_bytes: int, batch_bytes: int
    ) -> None:
        self._wanted = wanted
        self._schema = schema
        self._max_decompressed_bytes = max_decompressed_bytes
        self._with_headers = "headers" in schema.names
        # A batch ends behind the record that fills it, names of headers may grow. Without them all
        # of it stays below what glibc asks the kernel for anew each time, 32 MiB.
        self._data_bytes = 2 * batch_bytes if self._with_headers else batch_bytes * 5 // 4
        self._columns: ArrowColumns | None = None
        self._place = ""
        self._state = state = np.zeros(FILL_CELL_COUNT, np.int64)
        state[FillCell.FROM_OFFSET] = state[FillCell.NEXT_OFFSET] = wanted.from_offset
        state[FillCell.END_OFFSET] = wanted.to_offset
        for bound in (FillCell.UNTIL_TIMESTAMP, FillCell.MAX_RECORDS, FillCell.MAX_BYTES):
            state[bound] = INT64_MAX
        state[FillCell.CHUNK_BYTES] = batch_bytes
        state[FillCell.LEFT_OUT] = sum(
            column for column in OmittedColumn if column.name.lower() not in schema.names
        )

    def add(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """Take the records of a chunk; the Arrow batches that it fills."""
        rows = scan(chunk.batches, check_crc=False)
        wanted, self._place = self._wanted, chunk.place
        table = rows.table[has_records(rows.table, wanted.from_offset, wanted.to_offset)]
        try:
            for source in sources(
                chunk.batches, table, max_decompressed_bytes=self._max_decompressed_bytes
            ):
                yield from self._fill(source.data, source.batches)
        except CorruptLog:
            raise
        except (FormatError, KafkalogError) as error:
            raise self._corrupt(chunk, table, str(error)) from error
        if rows.consumed_bytes != len(chunk.batches):
            at = chunk.position + rows.stop_position
            problem = rows.stop.name.lower().replace("_", " ")
            base_offset = int(self._state[FillCell.NEXT_OFFSET])
            raise CorruptLog(wanted, base_offset, problem, file=chunk.place, position=at)

    def rest(self) -> Iterator[pa.RecordBatch]:
        """The rows that wait for more, if there are any."""
        if self._state[FillCell.ROWS]:
            yield self._take()

    def _fill(
        self, source: npt.NDArray[np.uint8], batches: npt.NDArray[np.int64]
    ) -> Iterator[pa.RecordBatch]:
        state = self._state
        state[FillCell.BATCH], state[FillCell.RECORDS_LEFT] = 0, -1
        while True:
            if self._columns is None:
                self._columns = ArrowColumns(
                    self._data_bytes, RECORDS_MAX, with_headers=self._with_headers
                )
            status = self._columns.fill(source, batches, state)
            if status is FillStatus.BAD_RECORD:
                raise FormatError("a record breaks its format")
            if status is not FillStatus.CHUNK_FULL:
                return
            if state[FillCell.ROWS]:
                yield self._take()
            else:  # a record that is larger than a batch
                self._columns = ArrowColumns(
                    int(state[FillCell.DATA_BYTES_NEEDED]), 1, with_headers=self._with_headers
                )

    def _take(self) -> pa.RecordBatch:
        """The rows at hand, with the memory that they lie in."""
        columns, self._columns = self._columns, None
        assert columns is not None, "rows lie in columns"
        topic, partition, state = self._wanted.topic, self._wanted.partition, self._state
        try:
            return columns.batch(self._schema, topic, partition, state)
        except FormatError as error:
            base_offset = int(state[FillCell.NEXT_OFFSET] - state[FillCell.ROWS])
            raise CorruptLog(
                self._wanted, base_offset, error.reason, file=self._place, position=0
            ) from error
        finally:
            state[FillCell.ROWS : FillCell.DATA_BYTES_NEEDED] = 0

    def _corrupt(self, chunk: Chunk, table: npt.NDArray[np.int64], problem: str) -> CorruptLog:
        """Of the batch that the next record is in."""
        next_offset = int(self._state[FillCell.NEXT_OFFSET])
        slot = int(np.searchsorted(table[:, BatchColumn.LAST_OFFSET], next_offset))
        row = table[min(slot, len(table) - 1)]
        return CorruptLog(
            self._wanted,
            int(row[BatchColumn.BASE_OFFSET]),
            problem,
            file=chunk.place,
            position=chunk.position + int(row[BatchColumn.POSITION]),
        )
