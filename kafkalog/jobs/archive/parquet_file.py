"""A Parquet file of a table while a task writes it: complete, durable and verified at its end.

Each write to Parquet is a row group, so that small batches are collected for one.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kafkalog.jobs.archive.archive_files import _LAYOUT, WrongFile

if TYPE_CHECKING:
    from kafkalog.jobs.archive.archive_table import FileStore

ROW_GROUP_BYTES = 32 << 20
"""Of Arrow columns: what readers decode at once, and a writer has in memory."""


class WrittenFile(NamedTuple):
    """What a file has: the offsets are the lowest and the highest."""

    rows: int
    size_bytes: int
    first_offset: int
    last_offset: int


class ParquetFile:
    """See the module. A file that is not finished must be removed."""

    def __init__(self, store: FileStore, path: str, schema: pa.Schema) -> None:
        # constant after construction
        self.path = path
        self._store = store
        self._opened = ExitStack()
        sink = self._opened.enter_context(store.create(path))
        writer = pq.ParquetWriter(sink, schema, store_schema=False, **_LAYOUT)
        self._writer = self._opened.enter_context(writer)
        # of what is written
        self._rows = 0
        self._first_offset, self._last_offset = -1, -1
        # of the next row group
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0

    def write(self, rows: pa.RecordBatch) -> None:
        """Append at least one row."""
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= ROW_GROUP_BYTES:
            self._write_group()
        low, high = pc.min_max(rows.column("offset")).as_py().values()
        self._first_offset = min(self._first_offset, low) if self._rows else low
        self._last_offset = max(self._last_offset, high)
        self._rows += rows.num_rows

    def _write_group(self) -> None:
        self._writer.write_table(pa.Table.from_batches(self._waiting))
        self._waiting, self._waiting_bytes = [], 0

    def finish(self) -> WrittenFile:
        """The durable file. Raises WrongFile unless its footer has what was written."""
        if self._waiting:
            self._write_group()
        self._opened.close()
        self._store.sync(self.path)
        with self._store.open(self.path) as source, pq.ParquetFile(source) as file:
            metadata = file.metadata
            paths = [metadata.schema.column(at).path for at in range(len(metadata.schema))]
            groups = [metadata.row_group(each) for each in range(metadata.num_row_groups)]
            offsets = [each.column(paths.index("offset")).statistics for each in groups]
            source.seek(0, 2)
            found = WrittenFile(
                metadata.num_rows,
                source.tell(),
                min(each.min for each in offsets),
                max(each.max for each in offsets),
            )
        written = found._replace(
            rows=self._rows, first_offset=self._first_offset, last_offset=self._last_offset
        )
        if found != written:
            raise WrongFile(f"{self.path} holds {found}, but {written} were written")
        return found

    def remove(self) -> None:
        """Close and remove the file."""
        try:
            self._opened.close()
        finally:
            self._store.remove(self.path)
