"""An archive as an Iceberg table, through pyiceberg: any catalog and any store that it knows.

The position stands in the summary of the snapshot that adds its files, ``kafkalog.offsets`` and
``kafkalog.topics``, and counts where the nearest ancestor of the current snapshot has it: other
writers may compact the table, and a rollback of the table is one of the archive. Beside it they are
properties of the table, for the time when those snapshots have expired.

Who commits says which snapshot he read. pyiceberg would try again on top of another one, and two
jobs would both add the same records: that is switched off here, and a commit that lost the race is
tried again only if the position is still the one that was read (a compaction came between, not an
archive). An answer that was lost is UnusableTable, as any error of a catalog: the next opening
tells what came of it. Files of no commit are orphans, as of any writer: Iceberg's own
``remove_orphan_files`` takes them.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafkalog.errors import KafkalogError
from kafkalog.jobs.archive.archive_files import SCHEMA
from kafkalog.jobs.archive.archive_table import (
    TableChanged,
    UnusableTable,
    offsets_text,
    position_of,
    settle_local,
    topics_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from kafkalog.jobs.archive.archive_table import ArchivedFile, Position

OFFSETS = "kafkalog.offsets"
TOPICS = "kafkalog.topics"
_TRIES = 5


class IcebergMissing(KafkalogError):
    """pyiceberg is not there; the message says what to install."""


@dataclass(frozen=True, slots=True)
class IcebergStore:
    """Files below a table's location, by the store that its catalog names.

    properties  of the catalog: where the store is, and how to get in
    """

    location: str
    properties: Mapping[str, str]

    def path_of(self, topic: str, name: str) -> str:
        """See FileStore: readers of the table see what snapshots name alone."""
        return f"{self.location}/data/topic-{topic}/{name}"

    def create(self, path: str) -> AbstractContextManager[Any]:
        """See FileStore."""
        stream: AbstractContextManager[Any] = self._io().new_output(path).create()
        return stream

    def open(self, path: str) -> AbstractContextManager[Any]:
        """See FileStore."""
        stream: AbstractContextManager[Any] = self._io().new_input(path).open()
        return stream

    def settle(self, path: str) -> None:
        """See FileStore; an object store's files are durable when they are closed."""
        local = path.removeprefix("file://")
        if local.startswith("/"):
            settle_local(local)

    def remove(self, path: str) -> None:
        """See FileStore."""
        if self._io().new_input(path).exists():
            self._io().delete(path)

    def _io(self) -> Any:  # noqa: ANN401 - pyiceberg's FileIO
        from pyiceberg.io import load_file_io

        return load_file_io(dict(self.properties), self.location)


class IcebergTable:
    """``ArchiveTable`` over a table of a catalog; see the module. Opening makes a missing one."""

    def __init__(self, catalog: str, identifier: str, properties: Mapping[str, str]) -> None:
        """``properties`` of the catalog, over those of pyiceberg's own configuration.

        ``identifier``: NAMESPACE.TABLE. IcebergMissing, UnusableTable.
        """
        # constant after construction
        self._identifier = identifier
        self._name = f"{catalog}.{identifier}"
        with _told(self._name):
            self._catalog = _load(catalog, properties)
            table = self._made()
        self._position = _last_position(table, self._name)
        self._store = IcebergStore(table.location(), dict(table.io.properties))

    @property
    def store(self) -> IcebergStore:
        """See ArchiveTable."""
        return self._store

    @property
    def position(self) -> Position:
        """See ArchiveTable."""
        return self._position

    def commit(self, files: Sequence[ArchivedFile], position: Position) -> None:
        """See ArchiveTable."""
        from pyiceberg.exceptions import CommitFailedException

        for _ in range(_TRIES):
            with _told(self._name):
                table = self._catalog.load_table(self._identifier)
                if _last_position(table, self._name) != self._position:
                    raise TableChanged(f"Another job archived into {self._name} meanwhile")
                try:
                    _append(table, [each.path for each in files], position)
                except CommitFailedException:
                    continue  # on top of which snapshot, decides the next look
            self._position = position
            return
        raise UnusableTable(f"{self._name} changes faster than a commit takes: try again")

    def row_count(self) -> int:
        """Rows of the current snapshot. UnusableTable."""
        with _told(self._name):
            return int(self._catalog.load_table(self._identifier).scan().count())

    def abandon(self) -> None:
        """See ArchiveTable: orphans stay for Iceberg's own procedure."""

    def close(self) -> None:
        """See ArchiveTable."""
        self._catalog.close()

    def _made(self) -> Any:  # noqa: ANN401 - pyiceberg's Table
        """The table; a new one is partitioned by topic."""
        from pyiceberg.exceptions import TableAlreadyExistsError

        catalog, namespace = self._catalog, self._identifier.rpartition(".")[0]
        if not catalog.table_exists(self._identifier):
            catalog.create_namespace_if_not_exists(namespace)
            try:
                with (
                    catalog.create_table_transaction(self._identifier, SCHEMA) as transaction,
                    transaction.update_spec() as spec,
                ):
                    spec.add_identity("topic")
            except TableAlreadyExistsError:
                pass  # another job was faster
        table = catalog.load_table(self._identifier)
        lacking = set(SCHEMA.names) - set(table.schema().column_names)
        if lacking:
            raise UnusableTable(
                f"{self._name} has no column {', '.join(sorted(lacking))}: name another table"
            )
        return table


def _load(catalog: str, properties: Mapping[str, str]) -> Any:  # noqa: ANN401 - pyiceberg's Catalog
    """IcebergMissing; ValueError for properties that name no catalog."""
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError as error:
        raise IcebergMissing(
            "Iceberg tables need pyiceberg: pip install 'kafkalog[spark]'"
        ) from error
    return load_catalog(catalog, **dict(properties))


@contextmanager
def _told(name: str) -> Iterator[None]:
    """Around calls of pyiceberg: its errors become UnusableTable, which names the table."""
    try:
        yield
    except (KafkalogError, OSError):
        raise
    except Exception as error:  # catalogs raise whatever their libraries do
        raise UnusableTable(f"{name}: {type(error).__name__}: {error}") from error


def _last_position(table: Any, name: str) -> Position:  # noqa: ANN401 - pyiceberg's Table
    """Of the nearest snapshot that has one, else of the table. UnusableTable."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        marks = snapshot.summary.additional_properties if snapshot.summary else {}
        if marks.get(OFFSETS):
            return _position_in(marks, name)
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    if OFFSETS not in table.properties and table.current_snapshot() is not None:
        raise UnusableTable(
            f"{name} holds data and no snapshot or property says up to which offsets: name another "
            "table"
        )
    return _position_in(table.properties, name)


def _position_in(marks: Mapping[str, str], name: str) -> Position:
    """Of a table's properties or a snapshot's; without any it is empty."""
    return position_of(_document_in(marks, OFFSETS, name), _document_in(marks, TOPICS, name), name)


def _document_in(marks: Mapping[str, str], mark: str, name: str) -> object:
    text = marks.get(mark, "{}")
    try:
        document: object = json.loads(text)
    except ValueError as error:
        raise UnusableTable(f"{mark} of {name} is no JSON: {text}") from error
    return document


def _append(
    table: Any,  # noqa: ANN401 - pyiceberg's Table
    paths: list[str],
    position: Position,
) -> None:
    """One commit on top of the snapshot that ``table`` was loaded with; CommitFailedException."""
    once = {**table.metadata.properties, "commit.retry.num-retries": "0"}
    # Of this copy alone: the table's own property is for its other writers.
    table.metadata = table.metadata.model_copy(update={"properties": once})
    marks = {
        OFFSETS: json.dumps(offsets_text(position)),
        TOPICS: json.dumps(topics_text(position)),
    }
    with table.transaction() as transaction:
        transaction.set_properties(marks)
        if paths:
            transaction.add_files(paths, snapshot_properties=marks, check_duplicate_files=False)
        else:  # control batches alone: the position moves, and a snapshot says so
            with transaction.update_snapshot(snapshot_properties=marks).fast_append():
                pass
