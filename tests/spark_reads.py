"""What tests of reading for Spark share: the schema that Spark asks for, rows by a plain loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kafkalog.spark.logs.directory_reader import read_directory_piece
from kafkalog.spark.reading import record_batches
from tests.naive.arrow_rows import row_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalog.spark.logs.values import Access, OffsetRange, Piece
    from tests.naive.cleaner import PlainAborted, PlainBatch
    from tests.sim.sim_filesystem import SimFilesystem

Row = dict[str, Any]

SPARK_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.utf8()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        (
            "headers",
            pa.list_(pa.field("element", pa.struct([("key", pa.utf8()), ("value", pa.binary())]))),
        ),
    ]
)
"""As Spark 4.3 makes it of the Kafka source's columns, headers included."""


def rows_of(batches: Iterable[pa.RecordBatch], schema: pa.Schema = SPARK_SCHEMA) -> list[Row]:
    """Every Arrow batch validated, timestamps as integers of us."""
    rows: list[Row] = []
    for batch in batches:
        assert batch.schema.equals(schema)
        batch.validate(full=True)
        if "timestamp" in schema.names:
            slot = schema.get_field_index("timestamp")
            batch = batch.set_column(slot, "timestamp", batch.column(slot).cast(pa.int64()))
        rows += batch.to_pylist()
    return rows


def read_rows(
    disk: SimFilesystem,
    pieces: Iterable[Piece],
    access: Access,
    *,
    chunk_bytes: int,
    schema: pa.Schema = SPARK_SCHEMA,
) -> list[Row]:
    """The rows of pieces of a directory on a simulated disk."""
    rows: list[Row] = []
    for piece in pieces:
        chunks = read_directory_piece(piece, access, chunk_bytes, check_crcs=True, filesystem=disk)
        batches = record_batches(chunks, piece.range, schema, batch_bytes=chunk_bytes)
        rows += rows_of(batches, schema)
    return rows


def plain_rows(
    batches: Iterable[PlainBatch], wanted: OffsetRange, aborted: Iterable[PlainAborted] = ()
) -> list[Row]:
    """The same by a loop over records. ``aborted``: transactions that are left out."""
    hidden = [(each.producer_id, each.first, each.last) for each in aborted]
    rows: list[Row] = []
    for batch in batches:
        header = batch.header
        if batch.is_control:
            continue
        is_append_time = bool(header.attributes & 8)
        for record in batch.records:
            if not wanted.from_offset <= record.offset < wanted.to_offset:
                continue
            if batch.is_transactional and any(
                producer_id == header.producer_id and first <= record.offset <= last
                for producer_id, first, last in hidden
            ):
                continue
            stamp = header.max_timestamp if is_append_time else record.timestamp
            row = row_of(wanted.topic, wanted.partition, record, stamp, is_append_time)
            rows.append(row | {"timestamp": stamp * 1000})
    return rows
