"""The task of an archive: the records of a piece of log as one Parquet file, synced and verified.

Columns are those of Spark's Kafka source with headers. Offsets and timestamps, which rise by small
steps, are encoded as deltas; topic, partition and timestampType are dictionaries with one entry. A
file has one partition, so that its statistics have the exact offsets and times. Runs on any
machine with access to log and store; imports pyarrow.
"""

from __future__ import annotations

import struct
from contextlib import closing
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from crc32c import crc32c

from kafkalog.client.errors import ClientError, NotAuthenticated
from kafkalog.env.random import SystemRandom
from kafkalog.errors import KafkalogError
from kafkalog.format.wire.arrow_columns import HEADER_TYPE
from kafkalog.jobs.archive.archive_table import ArchivedFile, LastRecord
from kafkalog.jobs.attempts import PartFailed, passes, reason_of
from kafkalog.spark.logs.object_store import StoreMissing
from kafkalog.spark.logs.open import read_piece
from kafkalog.spark.logs.secrets import SecretMissing
from kafkalog.spark.reading import record_batches

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from kafkalog.jobs.archive.archive_table import FileStore
    from kafkalog.spark.logs.values import Access, OffsetRange, Piece

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
_OFFSET = SCHEMA.get_field_index("offset")
_LAYOUT: dict[str, Any] = {
    "compression": "zstd",
    "use_dictionary": ["topic", "partition", "timestampType"],
    "column_encoding": dict.fromkeys(("offset", "timestamp"), "DELTA_BINARY_PACKED"),
    "write_page_checksum": True,
}


class WrongFile(KafkalogError):
    """A file is not what was written: a bug, or a store that loses bytes."""


class ArchivedPiece(NamedTuple):
    """The result of a task; ``file`` and ``last`` are None if no record can be read."""

    range: OffsetRange
    file: ArchivedFile | None
    last: LastRecord | None


def archive_piece(piece: Piece, access: Access, store: FileStore) -> ArchivedPiece:
    """The work of one task: a complete and durable file, which is in no commit yet.

    May run twice: each attempt writes a new file. Raises PartFailed if the log cannot be read,
    ClientError without a daemon, WrongFile and the errors of the store; then the file is removed.
    """
    wanted = piece.range
    attempt = SystemRandom().uuid_bytes().hex()[:12]
    name = f"{wanted.partition}-{wanted.from_offset:020}-{wanted.to_offset:020}-{attempt}.parquet"
    path = store.path_of(wanted.topic, name)
    with closing(_records(piece, access)) as batches:
        first = next(batches, None)
        if first is None:
            return ArchivedPiece(wanted, None, None)
        try:
            written, last = _write(store, path, wanted, chain([first], batches))
            store.sync(path)
            size_bytes = _verified_size(store, path, written)
        except BaseException:
            store.remove(path)
            raise
    rows, first_offset, last_offset = written
    partition = wanted.topic, wanted.partition
    file = ArchivedFile(*partition, path, rows, size_bytes, first_offset, last_offset)
    return ArchivedPiece(wanted, file, last)


def _records(piece: Piece, access: Access) -> Generator[pa.RecordBatch, None, None]:
    """The records of a piece. What is wrong with its log is PartFailed: others can be read."""
    try:
        with closing(read_piece(piece, access)) as chunks:
            for batch in record_batches(chunks, piece.range, SCHEMA):
                if batch.num_rows:
                    yield batch
    except (KafkalogError, ClientError, OSError) as error:
        if not is_of_log(error):
            raise
        raise PartFailed(reason_of(error), passes=passes(error)) from error


def is_of_log(error: Exception) -> bool:
    """Whether an error is one log's, and not that of a daemon, of this machine or of its access."""
    if isinstance(error, ClientError):
        return not (error.may_be_down or isinstance(error, NotAuthenticated))
    return not isinstance(error, SecretMissing | StoreMissing)


def last_record(batch: pa.RecordBatch) -> LastRecord:
    """The last row in ``SCHEMA``, with a CRC-32C of what compaction keeps of a record.

    These are timestamp, key, value and headers, each part with its length. The checksum is stored
    in tables: never change it.
    """
    row = batch.slice(batch.num_rows - 1)
    timestamp_us = row.column("timestamp").cast(pa.int64())[0].as_py()
    (headers,) = row.column("headers").to_pylist()
    parts = [row.column("key")[0].as_py(), row.column("value")[0].as_py()]
    for header in headers or ():
        parts += [header["key"].encode(), header["value"]]
    checksum = crc32c(struct.pack(">q", timestamp_us))
    for part in parts:
        length = -1 if part is None else len(part)
        checksum = crc32c(part or b"", crc32c(struct.pack(">q", length), checksum))
    return LastRecord(row.column(_OFFSET)[0].as_py(), checksum)


class _Written(NamedTuple):
    """The number of rows in a file, and their first and last offset."""

    rows: int
    first_offset: int
    last_offset: int


def _write(
    store: FileStore, path: str, wanted: OffsetRange, batches: Iterator[pa.RecordBatch]
) -> tuple[_Written, LastRecord]:
    """Write batches, at least one, to a file. Raises WrongFile unless offsets rise in the range."""
    rows, first_offset, last_offset = 0, -1, wanted.from_offset - 1
    with (
        store.create(path) as sink,
        pq.ParquetWriter(sink, SCHEMA, store_schema=False, **_LAYOUT) as writer,
    ):
        for batch in batches:
            offsets = batch.column(_OFFSET)
            begin, end = offsets[0].as_py(), offsets[-1].as_py()
            is_rising = batch.num_rows == 1 or pc.min(pc.pairwise_diff(offsets)).as_py() > 0
            if not (is_rising and last_offset < begin and end < wanted.to_offset):
                raise WrongFile(f"{wanted}: offsets {begin} to {end} came after {last_offset}")
            writer.write_batch(batch)
            first_offset = begin if rows == 0 else first_offset
            last_offset = end
            rows += batch.num_rows
    return _Written(rows, first_offset, last_offset), last_record(batch)


def _verified_size(store: FileStore, path: str, written: _Written) -> int:
    """The size of the file. Raises WrongFile unless its footer has what was written."""
    with store.open(path) as source, pq.ParquetFile(source) as file:
        metadata = file.metadata
        groups = [metadata.row_group(each) for each in range(metadata.num_row_groups)]
        offsets = [each.column(_OFFSET).statistics for each in groups]
        found = _Written(
            metadata.num_rows, min(each.min for each in offsets), max(each.max for each in offsets)
        )
        source.seek(0, 2)
        size_bytes: int = source.tell()
    if found != written:
        raise WrongFile(f"{path} holds {found}, but {written} were written")
    return size_bytes
