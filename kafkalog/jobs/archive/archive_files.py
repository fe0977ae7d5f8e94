"""The task of an archive: the records of a piece of log as Parquet files, synced and verified.

The table's `FileLayout` says which files and columns. Offsets and timestamps, which rise by small
steps, are encoded as deltas; topic, partition and timestampType are dictionaries with one entry. A
file has records of one partition, so that its statistics have the exact offsets and times. Runs on
any machine with access to log and store; imports pyarrow.
"""

from __future__ import annotations

import struct
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from kafkalog.client.errors import ClientError, NotAuthenticated
from kafkalog.errors import KafkalogError
from kafkalog.jobs.archive.archive_table import ArchivedFile, LastRecord, footer_of
from kafkalog.jobs.archive.file_layout import SCHEMA, FileLayout
from kafkalog.jobs.archive.formats.records import PartOutgrown
from kafkalog.jobs.archive.parquet_file import PieceFiles, WrongFile
from kafkalog.jobs.attempts import PartFailed, passes, reason_of
from kafkalog.spark.logs.object_store import StoreMissing
from kafkalog.spark.logs.open import read_piece
from kafkalog.spark.logs.secrets import SecretMissing
from kafkalog.spark.reading import record_batches

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from kafkalog.jobs.archive.archive_table import FileStore
    from kafkalog.spark.logs.values import Access, OffsetRange, Piece

_OFFSET = SCHEMA.get_field_index("offset")


class ArchivedPiece(NamedTuple):
    """The result of a task; ``last`` is None, and there is no file, if no record can be read.

    files  of rows;  dead: of dead letters
    wider  the types that an inferred schema has to have first: then there are no files
    """

    range: OffsetRange
    files: tuple[ArchivedFile, ...]
    dead: tuple[ArchivedFile, ...]
    last: LastRecord | None
    wider: Mapping[str, pa.DataType] | None = None


def archive_piece(
    piece: Piece,
    access: Access,
    store: FileStore,
    layout: FileLayout = FileLayout(),  # noqa: B008 - a constant
    dead_store: FileStore | None = None,
) -> ArchivedPiece:
    """The work of one task: complete and durable files, which are in no commit yet.

    dead_store  for the layout's dead letters

    May run twice: each attempt writes new files. Raises PartFailed if the log cannot be read,
    ClientError without a daemon, WrongFile and the errors of the store; then the files are removed.
    """
    wanted = piece.range
    last_offset, newest, last = wanted.from_offset - 1, None, None
    files = PieceFiles(wanted, store, layout.shape)
    dead_files = PieceFiles(wanted, dead_store)
    written: tuple[ArchivedFile, ...] = ()
    dead_written: tuple[ArchivedFile, ...] = ()
    try:
        with closing(_records(piece, access)) as batches:
            for batch in batches:
                last_offset = _checked_end(batch, wanted, last_offset)
                newest = batch
                new = layout.without_dead(batch, wanted.topic, wanted.partition)
                if not new.num_rows:
                    continue
                rows, dead = layout.decode(new)
                if rows.num_rows + (0 if dead is None else dead.num_rows) != new.num_rows:
                    raise WrongFile(f"{wanted}: a record up to {last_offset} is in no file")
                for values, part in layout.split(rows):
                    files.write(values, part)
                if dead is not None:
                    dead_files.write((), dead)
        if newest is not None:
            last = last_record(newest)
            footer = footer_of(wanted[:2], piece.topic_id, last)
            written, dead_written = files.finish(footer), dead_files.finish(footer)
    except BaseException as error:
        try:
            files.remove()
        finally:
            dead_files.remove()
        if isinstance(error, PartOutgrown):
            return ArchivedPiece(wanted, (), (), None, {error.part: error.type})
        raise
    return ArchivedPiece(wanted, written, dead_written, last)


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


def _checked_end(batch: pa.RecordBatch, wanted: OffsetRange, last_offset: int) -> int:
    """The last offset of a batch. Raises WrongFile unless offsets rise in the range."""
    offsets = batch.column(_OFFSET)
    begin: int = offsets[0].as_py()
    end: int = offsets[-1].as_py()
    is_rising = batch.num_rows == 1 or pc.min(pc.pairwise_diff(offsets)).as_py() > 0
    if not (is_rising and last_offset < begin and end < wanted.to_offset):
        raise WrongFile(f"{wanted}: offsets {begin} to {end} came after {last_offset}")
    return end
