"""Data files of an Iceberg table with the partition values that their writer knows.

``Table.add_files`` of pyiceberg derives the values from statistics. That is impossible for
transforms such as ``bucket``, and needs every file to lie in one partition by its statistics. A
file that was written for a partition has its values already. Here is also what of a table's
partitions and order is said to pyiceberg.

A commit here names the snapshot that was read: pyiceberg's own retries are off, because a commit
that moves rows must look again at what is in the table.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any

from kafkalog.jobs.archive.iceberg.partition_spec import (
    TIMES,
    WITH_WIDTH,
    PartitionField,
    SortField,
    TableShape,
    WrongSpec,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kafkalog.jobs.archive.archive_table import ArchivedFile

LoadedTable = Any
"""pyiceberg's ``Table``, as a catalog loaded it."""
Snapshot = Any
DataFile = Any
"""pyiceberg's classes of these names."""
MARKS = "kafkalog."
"""The properties of a snapshot or table that hold the position of an archive."""
MAPPING = "schema.name-mapping.default"
WHOLE_TOPIC = "write.metadata.metrics.column.topic"
"""For ``full``: of a longer text, statistics have the first 16 characters."""
THREADS = 16
"""Requests to the store of a table at the same time."""


def shape_of(table: LoadedTable) -> TableShape:
    """The shape of a table. Raises WrongSpec for transforms that are unknown here."""
    schema = table.schema()
    partition_by: list[PartitionField] = []
    for field in table.spec().fields:
        found = re.fullmatch(r"(\w+)(?:\[(\d+)\])?", str(field.transform))
        if found is None or found[1] not in (*TIMES, *WITH_WIDTH, "identity", "void"):
            raise WrongSpec(f"its partition field {field.name} is {field.transform}")
        width = None if found[2] is None else int(found[2])
        partition_by.append(
            PartitionField(schema.find_column_name(field.source_id), found[1], width)
        )
    order = table.sort_order().fields if sort_order_id(table) is not None else ()
    sort_by = [
        SortField(schema.find_column_name(each.source_id), each.direction.value == "desc")
        for each in order
    ]
    return TableShape(tuple(partition_by), tuple(sort_by))


def give_shape(transaction: Any, shape: TableShape) -> None:  # noqa: ANN401 - pyiceberg's
    """Let a new table have a shape."""
    from pyiceberg.table.sorting import NullOrder
    from pyiceberg.transforms import IdentityTransform, parse_transform

    with transaction.update_spec() as spec:
        for each in shape.partition_by:
            width = "" if each.width is None else f"[{each.width}]"
            spec.add_field(each.source, parse_transform(f"{each.transform}{width}"), each.name)
    if shape.sort_by:
        with transaction.update_sort_order() as order:
            for by in shape.sort_by:
                add = order.desc if by.is_descending else order.asc
                add(by.source, IdentityTransform(), NullOrder.NULLS_FIRST)


def sort_order_id(table: LoadedTable) -> int | None:
    """The order in which files are sorted here; None: none, or one that is not done here."""
    fields = table.sort_order().fields
    is_done = all(
        str(each.transform) == "identity" and each.null_order.value == "nulls-first"
        for each in fields
    )
    return table.sort_order().order_id if fields and is_done else None


def without_retries(table: LoadedTable) -> None:
    """Let a commit of this copy fail if another one was faster.

    Only in this copy: the property in the table is for its other writers.
    """
    once = {**table.metadata.properties, "commit.retry.num-retries": "0"}
    table.metadata = table.metadata.model_copy(update={"properties": once})


def data_file(table: LoadedTable, path: str, size_bytes: int, values: Sequence[Any]) -> DataFile:
    """A Parquet file of the table's current spec and sort order, with statistics of its footer."""
    import pyarrow.parquet as pq
    from pyiceberg.io import pyarrow as files
    from pyiceberg.manifest import DataFile as Made, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    with table.io.new_input(path).open() as stream:
        footer = pq.read_metadata(stream)
    schema, properties = table.schema(), table.metadata.properties
    statistics = files.data_file_statistics_from_parquet_metadata(
        parquet_metadata=footer,
        stats_columns=files.compute_statistics_plan(schema, properties),
        parquet_column_mapping=files.parquet_path_to_id_mapping(schema),
    )
    made: DataFile = Made.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(*values),
        file_size_in_bytes=size_bytes,
        sort_order_id=sort_order_id(table),
        spec_id=table.spec().spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )
    return made


def append_files(
    table: LoadedTable, files: Sequence[ArchivedFile], marks: Mapping[str, str]
) -> None:
    """Add files and set properties, in one commit on top of the snapshot that was loaded.

    Without files a snapshot has the properties. Raises CommitFailedException.
    """
    without_retries(table)
    with ThreadPoolExecutor(THREADS, "kafkalog-footers") as threads:
        found = threads.map(
            lambda each: data_file(table, each.path, each.size_bytes, each.partition_values), files
        )
        added = list(found)
    with table.transaction() as transaction:
        transaction.set_properties(dict(marks))
        _map_names(transaction)
        update = transaction.update_snapshot(snapshot_properties=dict(marks))
        with update.fast_append() as append:
            for each in added:
                append.append_data_file(each)


def clean_files(table: LoadedTable) -> dict[str, DataFile]:
    """The files of the current snapshot without deleted rows, by path."""
    tasks = table.scan().plan_files()
    return {each.file.file_path: each.file for each in tasks if not each.delete_files}


def replace_files(
    table: LoadedTable,
    old: Iterable[DataFile],
    new: Iterable[DataFile],
    marks: Mapping[str, str],
    *,
    properties: Mapping[str, str] | None = None,
) -> None:
    """Commit on top of the snapshot that ``table`` has loaded. Raises CommitFailedException.

    marks       properties of the snapshot
    properties  to be set in the table; None: the new files hold the rows of the old ones, so that
                streams of the table skip the snapshot
    """
    without_retries(table)
    with table.transaction() as transaction:
        _map_names(transaction)
        update = transaction.update_snapshot(snapshot_properties=dict(marks))
        if properties is None:
            produced = _rewrite_of(update)
        else:
            transaction.set_properties(dict(properties))
            produced = update.overwrite()
        with produced as overwrite:
            for each in old:
                overwrite.delete_data_file(each)
            for each in new:
                overwrite.append_data_file(each)


def _map_names(transaction: Any) -> None:  # noqa: ANN401 - pyiceberg's Transaction
    """Let readers find the columns of files without field ids, as ``add_files`` does."""
    if transaction.table_metadata.name_mapping() is None:
        names = transaction.table_metadata.schema().name_mapping.model_dump_json()
        transaction.set_properties({MAPPING: names})


@cache
def _rewrite() -> Any:  # noqa: ANN401 - a class of pyiceberg
    """pyiceberg's overwrite whose snapshot has the operation ``replace``.

    pyiceberg 0.12 has no such update; a stream of the table fails at an ``overwrite``.
    """
    from pyiceberg.table.snapshots import Operation, Summary
    from pyiceberg.table.update.snapshot import _OverwriteFiles

    class Rewrite(_OverwriteFiles):  # type: ignore[misc]  # not typed here
        def _summary(self, snapshot_properties: Mapping[str, str] = {}) -> Summary:
            made = super()._summary(dict(snapshot_properties))
            return Summary(operation=Operation.REPLACE, **made.additional_properties)

    return Rewrite


def _rewrite_of(update: Any) -> Any:  # noqa: ANN401 - pyiceberg's UpdateSnapshot
    from pyiceberg.table.snapshots import Operation

    return _rewrite()(
        operation=Operation.OVERWRITE,
        transaction=update._transaction,
        io=update._io,
        branch=update._branch,
        snapshot_properties=update._snapshot_properties,
    )


def ancestors(table: LoadedTable) -> Iterator[Snapshot]:
    """The current snapshot and those before it, as far as they have not expired."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)


def properties_of(snapshot: Snapshot) -> dict[str, str]:
    """The properties of a snapshot that its writer gave it."""
    return {} if snapshot.summary is None else dict(snapshot.summary.additional_properties)
