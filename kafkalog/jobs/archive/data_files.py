"""Data files of an Iceberg table with the partition values that their writer knows.

``Table.add_files`` of pyiceberg derives the values from statistics. That is impossible for
transforms such as ``bucket``, and needs every file to lie in one partition by its statistics. A
file that was written for a partition has its values already.

A commit here names the snapshot that was read: pyiceberg's own retries are off, because a commit
that moves rows must look again at what is in the table.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

LoadedTable = Any
"""pyiceberg's ``Table``, as a catalog loaded it."""
Snapshot = Any
DataFile = Any
"""pyiceberg's classes of these names."""
MARKS = "kafkalog."
"""The properties of a snapshot or table that hold the position of an archive."""
MAPPING = "schema.name-mapping.default"


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
        sort_order_id=table.sort_order().order_id or None,
        spec_id=table.spec().spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )
    return made


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
    are_rows_equal: bool,
) -> None:
    """Commit on top of the snapshot that ``table`` has loaded. Raises CommitFailedException.

    marks           properties of the snapshot
    are_rows_equal  new files hold the rows of the old ones, so that streams of the table skip it
    """
    without_retries(table)
    with table.transaction() as transaction:
        _map_names(transaction)
        update = transaction.update_snapshot(snapshot_properties=dict(marks))
        produced = _rewrite_of(update) if are_rows_equal else update.overwrite()
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

    class Rewrite(_OverwriteFiles):
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
