"""Records of a piece of log as Arrow record batches, in exactly the columns of a schema.

No Python statement runs per record, and per v2 batch only for compressed ones. Each Arrow batch
owns its memory, which is written once; columns outside the schema cost nothing. Control batches are
skipped; the chunks have no records of aborted transactions (`logs.read_piece`). Runs in any process
and thread, without pyspark. Imports pyarrow, an optional dependency.
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
from kafkalog.spark.logs.open import other_topic, read_piece, require_same_topic
from kafkalog.spark.logs.values import CHUNK_BYTES, CorruptLog, DataLost
from kafkalog.spark.planning import LOGGER, LossPolicy

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    import numpy.typing as npt
    import pyarrow as pa

    from kafkalog.spark.logs.values import Chunk, OffsetRange, Piece
    from kafkalog.spark.options import SourceOptions


def batches_of(
    piece: Piece, options: SourceOptions, schema: pa.Schema, *, skips_recreated: bool = False
) -> Generator[pa.RecordBatch, None, None]:
    """The records of a task of Spark in these columns, in offset order.

    skips_recreated   a topic that was recreated before the task began is a warning, and none of its
                      records are read: the next micro-batch reads them from the start

    Missing offsets raise DataLost; with failOnDataLoss=false they are logged and skipped. Raises
    CorruptLog in any case, and DataLost for a topic that was recreated: the rows that were yielded
    may be of either topic. Descriptors and connections are closed at the end, also of a generator
    that is closed early.
    """
    policy = LossPolicy.of(options)
    other = other_topic(piece, options.access) if skips_recreated else None
    if other is not None:
        LOGGER.warning("%s; the next batch reads the new topic from its start", other)
        return
    while True:
        chunks = read_piece(
            piece, options.access, chunk_bytes=options.chunk_bytes, check_crcs=options.check_crcs
        )
        try:
            with closing(chunks):
                yield from record_batches(chunks, piece.range, schema)
            require_same_topic(piece, options.access)
            return
        except DataLost as error:
            require_same_topic(piece, options.access)
            policy.lost(error.missing, error.reason)
            from_offset = error.missing.to_offset
        assert from_offset > piece.range.from_offset, "loss without progress"
        if from_offset >= piece.range.to_offset:
            return
        left = piece.range._replace(from_offset=from_offset)
        piece = replace(piece, range=left, start_position=None)


RECORDS_MAX = 1 << 16
"""Records in an Arrow batch: small records reach this before ``batch_bytes``."""


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
    max_decompressed_bytes  limit for one v2 batch: a larger one is CorruptLog
    batch_bytes             about the bytes of keys, values and headers in an Arrow batch

    All records before an error are yielded before it is raised, also before an error of the
    chunks. Raises ValueError for another schema, CorruptLog for an invalid batch or record.
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
    """Fills Arrow batches with the records of chunks."""

    def __init__(
        self, wanted: OffsetRange, schema: pa.Schema, max_decompressed_bytes: int, batch_bytes: int
    ) -> None:
        self._wanted = wanted
        self._schema = schema
        self._max_decompressed_bytes = max_decompressed_bytes
        self._with_headers = "headers" in schema.names
        # A batch ends after the record that fills it, and header names may take more. Without
        # headers it stays below 32 MiB, from which on glibc maps new memory for each allocation.
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
        """Add the records of a chunk; yields the Arrow batches that they fill."""
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
        """Yield the last rows, which fill no batch."""
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
        """The current rows as a batch, which owns their memory."""
        columns, self._columns = self._columns, None
        assert columns is not None, "there are rows"
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
        """The error for the batch that the next record is in."""
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
