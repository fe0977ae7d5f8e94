"""How the records of an archive become rows, and rows become files: what a table tells its tasks.

By default a row is a record in the columns of Spark's Kafka source with headers, and all rows of a
piece of log are one file in offset order. Picklable: it travels with the task. Imports pyarrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kafkalog.format.wire.arrow_columns import HEADER_TYPE
from kafkalog.jobs.archive.iceberg.partition_spec import WITHOUT_SHAPE, TableShape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.jobs.archive.formats.records import DeadOffsets, RecordDecoder

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.utf8()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(HEADER_TYPE)),
    ]
)
"""The columns of a record as it is in the log."""


@dataclass(frozen=True, slots=True)
class FileLayout:
    """The layout of a table's files.

    schema    the columns of its files
    shape     the partitions of the table, and the order of rows in a file
    decoder   of typed keys and values
    dead      offsets whose dead letters are in their table already
    """

    schema: pa.Schema = SCHEMA
    shape: TableShape = WITHOUT_SHAPE
    decoder: RecordDecoder | None = None
    dead: tuple[DeadOffsets, ...] = ()

    def without_dead(self, records: pa.RecordBatch, topic: str, partition: int) -> pa.RecordBatch:
        """The records of a partition without those that are dead letters already."""
        for each in self.dead:
            if (each.topic, each.partition) == (topic, partition):
                return each.left_out(records)
        return records

    def decode(self, records: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
        """The rows of records in ``SCHEMA``, and the dead letters in theirs; None: there are none.

        Each record is in one of the two, in offset order.
        """
        if self.decoder is None:
            return records, None
        return self.decoder.decode(records, self.schema)

    def split(self, rows: pa.RecordBatch) -> Sequence[tuple[tuple[Any, ...], pa.RecordBatch]]:
        """The rows by partition of the table: the values of a partition with its rows, in order."""
        return self.shape.split(rows)
