"""An Iceberg table with the last value of each key: the table of a compacted topic.

A row is the newest record of its key in its partition, as the cleaner would retain it; a tombstone
removes the row. Keys of different partitions are different keys, because only the records of one
partition have an order. A record without key quarantines its partition: Kafka does not accept one
in a compacted topic either.

The table is partitioned by a hash of the key into buckets. A commit is copy-on-write:

1. The tasks of the archive write the records of a piece into files by bucket (*staged* files).
2. For each bucket with staged files a task reads the file of the bucket and the staged ones, and
   writes a new file. It has the rows of one bucket in memory.
3. One commit replaces the files of these buckets and sets the position.
4. The staged files, which were in no commit, are removed.

A run that ends before the commit has changed nothing, and one that ends after it has left staged
files for ``archive maintain``. If others commit in between, the position decides as for any other
archive, and the buckets whose files have changed are written again.

pyiceberg writes no equality deletes, which would make commits smaller and reads slower.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog.env.random import SystemRandom
from kafkalog.jobs.archive.archive_table import UnusableTable
from kafkalog.jobs.archive.file_layout import FileLayout
from kafkalog.jobs.archive.iceberg.data_files import data_file, replace_files
from kafkalog.jobs.archive.iceberg.merge_files import rows_of
from kafkalog.jobs.archive.iceberg.partition_spec import PartitionField, SortField
from kafkalog.jobs.archive.iceberg_table import IcebergTable
from kafkalog.jobs.archive.parquet_file import ParquetFile
from kafkalog.jobs.attempts import PartFailed
from kafkalog.jobs.tasks import result_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkalog.jobs.archive.archive_table import ArchivedFile, FileStore
    from kafkalog.jobs.archive.iceberg.data_files import DataFile, LoadedTable
    from kafkalog.jobs.tasks import Runner

BUCKETS = 16
_KEY = ("topic", "partition", "key")


@dataclass(frozen=True, slots=True)
class UpsertLayout(FileLayout):
    """The layout of staged files."""

    def decode(self, records: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
        """See FileLayout. Raises PartFailed for a record without key."""
        keys = records.column("key")
        if keys.null_count:
            at = pc.index(pc.is_null(keys), pa.scalar(value=True)).as_py()
            offset = records.column("offset")[at].as_py()
            raise PartFailed(
                f"The record at offset {offset} has no key, so that it can be no row of an upsert "
                "table: archive the topic without --upsert"
            )
        return FileLayout.decode(self, records)


class Upsert(NamedTuple):
    """A task: one bucket.

    old     the paths of its files in the table
    staged  of its new records, in the order of offsets within each partition
    """

    values: tuple[Any, ...]
    topic: str
    old: tuple[str, ...]
    staged: tuple[str, ...]
    read_bytes: int

    @property
    def label(self) -> str:
        """See Task."""
        return f"bucket {', '.join(map(str, self.values))}"

    @property
    def size_bytes(self) -> int:
        """See Task."""
        return self.read_bytes


class Upserted(NamedTuple):
    """The new file of a bucket, durable and verified; None: no key is left."""

    path: str | None
    size_bytes: int


def upsert(task: Upsert, store: FileStore, layout: FileLayout) -> Upserted:
    """The work of a task. Raises PartFailed, WrongFile and the errors of the store."""
    batches: list[pa.RecordBatch] = []
    for path in (*task.old, *task.staged):
        with closing(rows_of(path, store, layout.schema)) as found:
            batches += found
    rows = last_of_keys(pa.Table.from_batches(batches, layout.schema))
    if not rows.num_rows:
        return Upserted(None, 0)
    name = f"upsert-{SystemRandom().uuid_bytes().hex()}.parquet"
    file = ParquetFile(store, store.path_of(task.topic, name))
    try:
        file.write(layout.shape.sorted(rows))
        return Upserted(file.path, file.finish().size_bytes)
    except BaseException:
        file.remove()
        raise


def last_of_keys(rows: pa.Table) -> pa.Table:
    """The last row of each key in its partition, without tombstones; older rows come first."""
    keys = rows.select(_KEY).append_column("row", pa.array(np.arange(rows.num_rows)))
    last = keys.group_by(_KEY).aggregate([("row", "max")])["row_max"]
    newest = rows.take(pa.array(np.sort(last.to_numpy())))
    return newest.filter(pc.is_valid(newest["value"]))


class UpsertTable(IcebergTable):
    """``ArchiveTable``; see the module. A missing table is created."""

    is_upsert = True

    def __init__(
        self,
        catalog: str,
        identifier: str,
        properties: Mapping[str, str],
        runner: Runner,
        *,
        partition_by: Sequence[PartitionField] | None = None,
    ) -> None:
        """``runner``: does the tasks of commits. Raises IcebergMissing, UnusableTable."""
        if partition_by is not None and not _is_by_key(partition_by):
            raise UnusableTable(
                "An upsert table is partitioned by bucket(N, key), and perhaps by topic or "
                "partition: only so are all records of a key in one place"
            )
        self._runner = runner
        self._written: dict[tuple[str, ...], Upserted] = {}
        super().__init__(catalog, identifier, properties, partition_by=partition_by)
        self._rows = self.layout
        self.layout = UpsertLayout(shape=self._rows.shape.unsorted())

    def _new_shape(
        self, partition_by: Sequence[PartitionField] | None, sort_by: Sequence[SortField] | None
    ) -> tuple[Sequence[PartitionField], Sequence[SortField]]:
        by_key = (PartitionField("key", "bucket", BUCKETS),)
        return partition_by or by_key, sort_by or (SortField("key"),)

    def _write(
        self, table: LoadedTable, files: Sequence[ArchivedFile], marks: Mapping[str, str]
    ) -> None:
        if not files:
            super()._write(table, files, marks)
            return
        live = {each.file.file_path: each.file for each in self._plan(table)}
        tasks = self._tasks(table, live, files)
        new = [task for task in tasks if (*task.old, *task.staged) not in self._written]
        work = partial(upsert, store=self.store, layout=self._rows)
        with closing(self._runner.stream(new, work)) as all_ended:
            for ended in all_ended:
                task = ended.task
                self._written[*task.old, *task.staged] = result_of(ended)
        done = [(task, self._written[*task.old, *task.staged]) for task in tasks]
        replace_files(
            table,
            [live[path] for task in tasks for path in task.old],
            [
                data_file(table, each.path, each.size_bytes, task.values)
                for task, each in done
                if each.path is not None
            ],
            marks,
            properties=marks,
        )
        self._tidy(files, [each for _, each in done])

    def _plan(self, table: LoadedTable) -> list[Any]:
        """The files of the current snapshot, as pyiceberg scans them. Raises UnusableTable."""
        planned = list(table.scan().plan_files())
        if any(each.delete_files for each in planned):
            raise UnusableTable(
                f"{self.name} has rows that another engine deleted: let it rewrite its files first"
            )
        return planned

    def _tasks(
        self, table: LoadedTable, live: Mapping[str, DataFile], files: Sequence[ArchivedFile]
    ) -> list[Upsert]:
        """A task for each bucket that has new records. Raises UnusableTable."""
        buckets: dict[tuple[Any, ...], list[ArchivedFile]] = {}
        for each in files:
            buckets.setdefault(each.partition_values, []).append(each)
        fields = range(len(table.spec().fields))
        old: dict[tuple[Any, ...], list[Any]] = {}
        for file in live.values():
            if file.spec_id != self._spec_id:
                raise UnusableTable(f"{self.name} was partitioned anew: rewrite its files first")
            old.setdefault(tuple(file.partition[at] for at in fields), []).append(file)
        return [
            Upsert(
                values,
                staged[0].topic,
                tuple(sorted(each.file_path for each in old.get(values, ()))),
                tuple(each.path for each in sorted(staged, key=_by_offset)),
                sum(each.file_size_in_bytes for each in old.get(values, ()))
                + sum(each.size_bytes for each in staged),
            )
            for values, staged in buckets.items()
        ]

    def _tidy(self, staged: Sequence[ArchivedFile], used: Sequence[Upserted]) -> None:
        """After a commit: remove what was staged, and what was written for a lost race."""
        kept = {each.path for each in used}
        unused = [each.path for each in self._written.values() if each.path not in kept]
        self._written.clear()
        self.store.remove_all([*(each.path for each in staged), *filter(None, unused)])


def _by_offset(file: ArchivedFile) -> tuple[str, int, int]:
    return file.topic, file.partition, file.first_offset


def _is_by_key(fields: Sequence[PartitionField]) -> bool:
    """Whether all records of a key are in one partition of the table, and a hash divides them."""
    return any(each.source == "key" and each.transform == "bucket" for each in fields) and all(
        each.source in _KEY for each in fields
    )
