"""The Parquet files of a table while a task writes them: durable and verified at their end.

Each write to Parquet is a row group, so that small batches are collected for one. Offsets and
timestamps, which rise by small steps, are encoded as deltas; topic, partition and timestampType are
dictionaries with few entries.

A piece of log may have rows for very many partitions of a table. Only few files are open at once
(an open one has buffers of Parquet and of the store); the rows of other partitions wait in memory.
Above a limit the partition with the most bytes is written. If its file is not open, it takes the
place of the file that was written last longest ago, so that a partition may get more than one file
of a piece. Where rows are sorted, a file is sorted in memory as a whole: all rows wait, and what is
above the limit becomes a file.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kafkalog.env.random import SystemRandom
from kafkalog.errors import KafkalogError
from kafkalog.jobs.archive.archive_table import ArchivedFile
from kafkalog.jobs.archive.iceberg.partition_spec import WITHOUT_SHAPE, TableShape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.jobs.archive.archive_table import FileStore
    from kafkalog.spark.logs.values import OffsetRange

_LAYOUT: dict[str, Any] = {
    "compression": "zstd",
    "use_dictionary": ["topic", "partition", "timestampType"],
    "column_encoding": dict.fromkeys(("offset", "timestamp"), "DELTA_BINARY_PACKED"),
    "write_page_checksum": True,
}
OPEN_MAX = 16
WAITING_BYTES_MAX = 128 << 20
ROW_GROUP_BYTES = 32 << 20
"""Of Arrow columns: what readers decode at once, and a writer has in memory."""


class WrongFile(KafkalogError):
    """A file is not what was written: a bug, or a store that loses bytes."""


class WrittenFile(NamedTuple):
    """What a file has: the offsets are the lowest and the highest."""

    rows: int
    size_bytes: int
    first_offset: int
    last_offset: int


class ParquetFile:
    """One file; it is created with its first rows. What is not finished must be removed."""

    def __init__(self, store: FileStore, path: str) -> None:
        # constant after construction
        self.path = path
        self._store = store
        self._opened = ExitStack()
        self._writer: Any = None
        # of what is written
        self._rows = 0
        self._first_offset, self._last_offset = -1, -1
        # of the next row group
        self._waiting: list[pa.RecordBatch | pa.Table] = []
        self.waiting_bytes = 0

    def write(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Append at least one row; all have one schema."""
        if self._writer is None:
            sink = self._opened.enter_context(self._store.create(self.path))
            writer = pq.ParquetWriter(sink, rows.schema, store_schema=False, **_LAYOUT)
            self._writer = self._opened.enter_context(writer)
        self._waiting.append(rows)
        self.waiting_bytes += rows.nbytes
        if self.waiting_bytes >= ROW_GROUP_BYTES:
            self.write_group()
        low, high = pc.min_max(rows.column("offset")).as_py().values()
        self._first_offset = min(self._first_offset, low) if self._rows else low
        self._last_offset = max(self._last_offset, high)
        self._rows += rows.num_rows

    def write_group(self) -> None:
        """Write what waits."""
        batches = [
            batch
            for each in self._waiting
            for batch in (each.to_batches() if isinstance(each, pa.Table) else [each])
        ]
        self._writer.write_table(pa.Table.from_batches(batches))
        self._waiting, self.waiting_bytes = [], 0

    def finish(self, footer: Mapping[str, str] | None = None) -> WrittenFile:
        """The durable file; ``footer``: key-value metadata.

        Raises WrongFile unless its footer has what was written.
        """
        if self._waiting:
            self.write_group()
        self._writer.add_key_value_metadata(footer or {})
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

    def close(self) -> None:
        """Close the file, complete or not."""
        self._opened.close()

    def remove(self) -> None:
        """Close and remove the file."""
        try:
            self.close()
        finally:
            self._store.remove(self.path)


class PieceFiles:
    """The files of a piece of log in one store."""

    def __init__(
        self, wanted: OffsetRange, store: FileStore | None, shape: TableShape = WITHOUT_SHAPE
    ) -> None:
        """``store``: None: no row will be written."""
        # constant after construction
        self._wanted, self._store, self._shape = wanted, store, shape
        self._attempt = SystemRandom().uuid_bytes().hex()[:12]
        # by values of a partition; the open file that was written last is the last one
        self._open: dict[tuple[Any, ...], ParquetFile] = {}
        self._waiting: dict[tuple[Any, ...], list[pa.RecordBatch]] = {}
        self._waiting_bytes: dict[tuple[Any, ...], int] = {}
        self._unchecked_bytes = 0
        self._paths: list[str] = []
        self._finished: list[ArchivedFile] = []

    def write(self, values: tuple[Any, ...], rows: pa.RecordBatch) -> None:
        """Append rows to the file of a partition of the table."""
        if not rows.num_rows:
            return
        is_open = values in self._open
        if not self._shape.sort_by and (is_open or len(self._open) < OPEN_MAX):
            file = self._open.pop(values, None) or self._new_file()
            self._open[values] = file
            file.write(rows)
        else:
            self._waiting.setdefault(values, []).append(rows)
            self._waiting_bytes[values] = self._waiting_bytes.get(values, 0) + rows.nbytes
        self._unchecked_bytes += rows.nbytes
        if self._unchecked_bytes > WAITING_BYTES_MAX // 8:
            self._unchecked_bytes = 0
            self._limit_waiting()

    def _limit_waiting(self) -> None:
        """Write the partitions with the most bytes until few enough wait."""
        while True:
            sizes = {values: file.waiting_bytes for values, file in self._open.items()}
            sizes |= self._waiting_bytes
            if sum(sizes.values()) <= WAITING_BYTES_MAX:
                return
            largest = max(sizes, key=sizes.__getitem__)
            if largest in self._open:
                self._open[largest].write_group()
            elif self._shape.sort_by:
                self._write_waiting(largest)
            else:
                oldest = next(iter(self._open))
                self._finish(oldest, self._open[oldest])
                del self._open[oldest]
                file = self._open[largest] = self._new_file()
                for each in self._take_waiting(largest):
                    file.write(each)

    def finish(self, footer: Mapping[str, str]) -> tuple[ArchivedFile, ...]:
        """The files, durable and verified; ``footer``: of those that are open until now."""
        for values, file in self._open.items():
            self._finish(values, file, footer)
        self._open.clear()
        for values in list(self._waiting):
            self._write_waiting(values)
        return tuple(self._finished)

    def remove(self) -> None:
        """Remove the files; may be called at any time."""
        with ExitStack() as removals:
            for path in self._paths:
                assert self._store is not None
                removals.callback(self._store.remove, path)
            for file in self._open.values():
                removals.callback(file.close)

    def _new_file(self) -> ParquetFile:
        assert self._store is not None
        wanted, number = self._wanted, len(self._paths)
        span = f"{wanted.from_offset:020}-{wanted.to_offset:020}-{self._attempt}"
        name = f"{wanted.partition}-{span}{f'-{number}' if number else ''}.parquet"
        self._paths.append(self._store.path_of(wanted.topic, name))
        return ParquetFile(self._store, self._paths[-1])

    def _take_waiting(self, values: tuple[Any, ...]) -> list[pa.RecordBatch]:
        del self._waiting_bytes[values]
        return self._waiting.pop(values)

    def _write_waiting(self, values: tuple[Any, ...]) -> None:
        """All rows of a partition that wait become a file."""
        file = self._new_file()
        try:
            rows = self._take_waiting(values)
            if self._shape.sort_by:
                file.write(self._shape.sorted(pa.Table.from_batches(rows)))
            else:
                for each in rows:
                    file.write(each)
            self._finish(values, file)
        finally:
            file.close()

    def _finish(
        self, values: tuple[Any, ...], file: ParquetFile, footer: Mapping[str, str] | None = None
    ) -> None:
        written = file.finish(footer)
        partition = self._wanted.topic, self._wanted.partition
        self._finished.append(ArchivedFile(*partition, file.path, *written, values))
