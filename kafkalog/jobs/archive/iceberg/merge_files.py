"""Which small files of an Iceberg archive become one, and the task that does it.

Only files of one partition of the table, of one topic and of one of its partitions are merged, and
only neighbours in the order of offsets: a merged file has its rows in offset order as any other,
and statistics with the exact offsets. What has rows of several partitions is another writer's and
is left alone.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from kafkalog.env.random import SystemRandom
from kafkalog.jobs.archive.parquet_file import ParquetFile, WrongFile
from kafkalog.jobs.attempts import PartFailed
from kafkalog.jobs.tasks import packed

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from kafkalog.jobs.archive.archive_table import FileStore
    from kafkalog.jobs.archive.file_layout import FileLayout

_SMALL = 0.75
"""A file above this share of the target is large enough, as in Iceberg's ``rewrite_data_files``."""


class SmallFile(NamedTuple):
    """A file with rows of one partition of a topic.

    values  of the table's partition
    """

    path: str
    values: tuple[Any, ...]
    topic: str
    partition: int
    first_offset: int
    last_offset: int
    rows: int
    size_bytes: int

    @property
    def group(self) -> tuple[Any, ...]:
        """Files of one group may be merged."""
        return self.values, self.topic, self.partition


class Merge(NamedTuple):
    """A task: neighbours that become one file."""

    files: tuple[SmallFile, ...]

    @property
    def label(self) -> str:
        """See Task."""
        first, last = self.files[0], self.files[-1]
        return f"{first.topic}-{first.partition} [{first.first_offset}, {last.last_offset}]"

    @property
    def size_bytes(self) -> int:
        """See Task."""
        return sum(each.size_bytes for each in self.files)


class Merged(NamedTuple):
    """A new file, durable and verified, which is in no commit yet."""

    path: str
    size_bytes: int


def merges_of(files: Sequence[SmallFile], target_bytes: int, min_files: int) -> list[Merge]:
    """What to merge so that files have about ``target_bytes``.

    min_files  fewer files are merged only if they fill a file: others are left for later, or
               each run would write the same rows again
    """
    merges: list[Merge] = []
    enough = int(target_bytes * _SMALL)
    for run in _runs(files, enough):
        for pack in packed([each.size_bytes for each in run], target_bytes):
            merge = Merge(tuple(run[number] for number in pack.numbers))
            if len(merge.files) > 1 and (
                len(merge.files) >= min_files or merge.size_bytes >= enough
            ):
                merges.append(merge)
    return merges


def _runs(files: Sequence[SmallFile], enough: int) -> Iterator[list[SmallFile]]:
    """Small files of one group that are neighbours, in the order of their offsets."""
    run: list[SmallFile] = []
    ordered = sorted(files, key=lambda each: (repr(each.group), each.first_offset))
    for each in ordered:
        is_next = not run or (
            run[-1].group == each.group and run[-1].last_offset < each.first_offset
        )
        if run and (not is_next or each.size_bytes >= enough):
            yield run
            run = []
        if each.size_bytes < enough:
            run.append(each)
    if run:
        yield run


def merge_files(merge: Merge, store: FileStore, layout: FileLayout) -> Merged:
    """The work of a task: the rows of all files as one file; sorted rows are sorted in memory.

    Columns that a file lacks are null, and narrower types are widened, as readers do it. Raises
    PartFailed for a file with columns that the schema lacks, WrongFile and the errors of the store.
    """
    first, last = merge.files[0], merge.files[-1]
    attempt = SystemRandom().uuid_bytes().hex()[:12]
    span = f"{first.first_offset:020}-{last.last_offset + 1:020}"
    path = store.path_of(first.topic, f"{first.partition}-{span}-merged-{attempt}.parquet")
    file = ParquetFile(store, path)
    waiting: list[pa.RecordBatch] = []
    try:
        for each in merge.files:
            with closing(rows_of(each.path, store, layout.schema)) as batches:
                for batch in batches:
                    if layout.shape.sort_by:
                        waiting.append(batch)
                    else:
                        file.write(batch)
        if waiting:
            file.write(layout.shape.sorted(pa.Table.from_batches(waiting)))
        rows, size_bytes, first_offset, last_offset = file.finish()
        wanted = sum(each.rows for each in merge.files), first.first_offset, last.last_offset
        if (rows, first_offset, last_offset) != wanted:
            raise WrongFile(
                f"{path} holds {rows} rows from {first_offset} on, but {wanted} it should"
            )
    except BaseException:
        file.remove()
        raise
    return Merged(path, size_bytes)


def rows_of(
    path: str, store: FileStore, schema: pa.Schema
) -> Generator[pa.RecordBatch, None, None]:
    """The rows of a file in the columns of ``schema``; see `merge_files`."""
    with store.open(path) as source, pq.ParquetFile(source) as file:
        unknown = leaves_of(file.schema_arrow) - leaves_of(schema)
        if unknown:
            raise PartFailed(
                f"{path} has columns that the table lacks: {', '.join(sorted(unknown))}. They were "
                "dropped or renamed: rewrite the file with another engine"
            )
        for batch in file.iter_batches():
            if batch.num_rows:
                yield in_schema(batch, schema)


def in_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of ``schema``, null where the batch lacks one."""
    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def leaves_of(schema: pa.Schema) -> set[str]:
    """The paths of all primitive columns; what is in a list has no name of its own."""
    found: set[str] = set()

    def walk(prefix: str, kind: pa.DataType) -> None:
        if pa.types.is_struct(kind):
            for at in range(kind.num_fields):
                walk(f"{prefix}.{kind.field(at).name}", kind.field(at).type)
        elif pa.types.is_map(kind):
            walk(f"{prefix}.key", kind.key_type)
            walk(f"{prefix}.value", kind.item_type)
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            walk(prefix, kind.value_type)
        else:
            found.add(prefix)

    for field in schema:
        walk(field.name, field.type)
    return found
