"""What one task does: the records of a piece as Arrow batches, across what was lost.

Runs in Spark's pooled workers, or in any process: no pyspark, no state but the one below.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from kafkalog.spark.logs import DataLost, read_piece
from kafkalog.spark.offset_reader import LossPolicy
from kafkalog.spark.workers import settle_worker

if TYPE_CHECKING:
    from collections.abc import Generator

    import pyarrow as pa

    from kafkalog.spark.logs import Piece
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
    from kafkalog.spark.record_batches import record_batches

    chunks = read_piece(
        piece, options.access, chunk_bytes=options.chunk_bytes, check_crcs=options.check_crcs
    )
    settle_worker()
    with closing(chunks):
        yield from record_batches(chunks, piece.range, schema)
