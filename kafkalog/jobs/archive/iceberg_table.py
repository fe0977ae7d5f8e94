"""An archive as an Iceberg table, through pyiceberg: any catalog and any store that it supports.

The position is in the summary of the snapshot that adds the files, as ``kafkalog.offsets`` and
``kafkalog.topics``. The nearest ancestor of the current snapshot that has it counts: other writers
may compact the table, and a rollback of the table is a rollback of the archive. Both are
properties of the table as well, for when those snapshots have expired.

A commit names the snapshot that was read. pyiceberg would retry on top of another one, so that two
jobs could add the same records: its retries are switched off. After a lost race the commit is tried
again only if the position has not changed, because the other commit was a compaction. A lost answer
is UnusableTable, as any error of a catalog: the next opening shows whether the commit was made.
Files without a commit are orphans, as of any writer, for ``archive maintain``.
"""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import structlog

from kafkalog.env.clock import SystemClock
from kafkalog.errors import KafkalogError
from kafkalog.jobs.archive.archive_table import (
    TOPICS,
    Position,
    TableChanged,
    UnusableTable,
    offsets_text,
    position_of,
    sync_local,
    topics_text,
)
from kafkalog.jobs.archive.file_layout import SCHEMA, FileLayout
from kafkalog.jobs.archive.formats.decoder import table_type
from kafkalog.jobs.archive.formats.records import PARTS
from kafkalog.jobs.archive.iceberg.data_files import (
    THREADS,
    WHOLE_TOPIC,
    ancestors,
    append_files,
    give_shape,
    properties_of,
    shape_of,
)
from kafkalog.jobs.archive.iceberg.partition_spec import BY_TOPIC, TableShape, WrongSpec
from kafkalog.jobs.archive.iceberg_schema import column_type, evolve, layout_schema
from kafkalog.jobs.attempts import reason_of
from kafkalog.spark.logs.secrets import SecretByValue, SecretMissing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from kafkalog.jobs.archive.archive_table import ArchivedFile, FileStore
    from kafkalog.jobs.archive.formats.records import RecordDecoder
    from kafkalog.jobs.archive.iceberg.data_files import LoadedTable
    from kafkalog.jobs.archive.iceberg.partition_spec import PartitionField, SortField

    DecoderOf = Callable[[Position, Mapping[str, pa.DataType]], RecordDecoder]
    """Makes the decoder for a table at a position, with keys and values of these types."""

OFFSETS = "kafkalog.offsets"
UPSERT = "kafkalog.upsert"
_TRIES = 5
_WAIT_SECONDS = 30  # for a lock on an SQLite catalog; a commit holds it for some ms
_PASSING = frozenset(
    {
        *("ServerError", "ServiceUnavailableError", "CommitFailedException"),
        *("CommitStateUnknownException", "WaitingForLockException", "OperationalError"),
    }
)
"""Errors of pyiceberg and of SQLAlchemy that another try may mend: a busy catalog, a lock."""
_SECRETS_KEPT_NS = 600 * 10**9
_SECRET = re.compile(r"secret|password|token|key|credential|sas|connection|header\.", re.I)
"""In names of properties. More than enough: what is no secret is looked up as well."""


_log = structlog.get_logger(__name__)


class IcebergMissing(KafkalogError):
    """pyiceberg is missing; the message says what to install."""


class StoredFile(NamedTuple):
    """A file of a store; ``modified_ms``: None: the store does not say."""

    size_bytes: int
    modified_ms: int | None


@dataclass(frozen=True, slots=True)
class IcebergStore:
    """The files below a table's location, in the store of its catalog.

    properties  properties of the catalog, with address and credentials of the store
    catalog, identifier  where the table is
    given       names of the properties that the caller gave by value
    secrets     names of the properties that are left out: pyiceberg's configuration of this machine
                has them, or the catalog, which hands out credentials with the table
    """

    location: str
    properties: Mapping[str, str]
    catalog: str = ""
    identifier: str = ""
    given: frozenset[str] = frozenset()
    secrets: tuple[str, ...] = ()

    def by_reference(self) -> IcebergStore:
        """See Referable."""
        secrets = tuple(sorted(filter(self._is_secret, self.properties)))
        if not self.given.isdisjoint(secrets):
            names = ", ".join(sorted(self.given.intersection(secrets)))
            variable = f"PYICEBERG_CATALOG__{self.catalog.upper()}__S3__SECRET_ACCESS_KEY"
            raise SecretByValue(
                f"The catalog properties {names} would stand in Spark's plan: give them in "
                "pyiceberg's configuration on each machine, by ~/.pyiceberg.yaml or by environment "
                f"variables ({variable}, for executors with spark.executorEnv. before it)"
            )
        left_out = {*secrets, "uri"} if self._has_password("uri") else set(secrets)
        kept = {name: self.properties[name] for name in self.properties if name not in left_out}
        return replace(self, properties=kept, secrets=secrets)

    def _is_secret(self, name: str) -> bool:
        if name == "uri":  # of the catalog, which only the driver asks
            return False
        return _SECRET.search(name) is not None or self._has_password(name)

    def _has_password(self, name: str) -> bool:
        return "@" in self.properties.get(name, "").partition("://")[2].partition("/")[0]

    def path_of(self, topic: str, name: str) -> str:
        """See FileStore: readers of the table only see files of snapshots."""
        return f"{self.location}/data/topic-{topic}/{name}"

    def create(self, path: str) -> AbstractContextManager[Any]:
        """See FileStore."""
        stream: AbstractContextManager[Any] = self._io().new_output(path).create()
        return stream

    def open(self, path: str) -> AbstractContextManager[Any]:
        """See FileStore."""
        stream: AbstractContextManager[Any] = self._io().new_input(path).open()
        return stream

    def sync(self, path: str) -> None:
        """See FileStore; objects of an object store are durable when they are closed."""
        local = path.removeprefix("file://")
        if local.startswith("/"):
            sync_local(local)

    def remove(self, path: str) -> None:
        """See FileStore."""
        if self._io().new_input(path).exists():
            self._io().delete(path)

    def stored_files(self) -> dict[str, StoredFile]:
        """What is stored below the table's location, by path. Raises UnusableTable, OSError."""
        from pyarrow.fs import FileSelector

        io = self._io()
        if not hasattr(io, "fs_by_scheme"):
            raise UnusableTable(
                f"{type(io).__name__} cannot list files: set the catalog property "
                "py-io-impl=pyiceberg.io.pyarrow.PyArrowFileIO"
            )
        scheme, authority, root = io.parse_location(self.location, io.properties)
        found: dict[str, StoredFile] = {}
        for folder in ("data", "metadata"):
            wanted = FileSelector(f"{root}/{folder}", allow_not_found=True, recursive=True)
            for each in io.fs_by_scheme(scheme, authority).get_file_info(wanted):
                if each.is_file:
                    modified_ms = None if each.mtime_ns is None else each.mtime_ns // 10**6
                    path = self.location + each.path.removeprefix(root)
                    found[path] = StoredFile(each.size, modified_ms)
        return found

    def remove_all(self, paths: Sequence[str]) -> None:
        """Remove files that are in no commit; one that cannot be removed is named in a warning."""

        def remove(path: str) -> None:
            try:
                self.remove(path)
            except OSError as error:  # harmless but for its space
                _log.warning("file_not_removed", path=path, reason=reason_of(error))

        with ThreadPoolExecutor(THREADS, "kafkalog-remove") as threads:
            list(threads.map(remove, paths))

    def place_of(self, path: str) -> str:
        """A path without its scheme, to be compared with others."""
        from pyiceberg.io.pyarrow import PyArrowFileIO

        place: str = PyArrowFileIO.parse_location(path, dict(self.properties))[2]
        return place

    def _io(self) -> Any:  # noqa: ANN401 - pyiceberg's FileIO
        from pyiceberg.io import load_file_io

        found = _looked_up(self) if self.secrets else {}
        return load_file_io({**self.properties, **found}, self.location)


@lru_cache(maxsize=8)
def _secrets_here(
    catalog: str, identifier: str, names: tuple[str, ...], period: int
) -> dict[str, str]:
    """The properties of these names in pyiceberg's configuration here, else from the catalog.

    ``period``: they are looked up again in another one, because a catalog's credentials end.
    """
    del period
    from pyiceberg.utils.config import Config

    configured = Config().get_catalog_config(catalog) or {}
    found = {name: str(configured[name]) for name in names if name in configured}
    if len(found) < len(names):
        with _naming(f"{catalog}.{identifier}"), closing(_load(catalog, {})) as opened:
            found = {**opened.load_table(identifier).io.properties, **found}
    return {name: found[name] for name in names if name in found}


def _looked_up(store: IcebergStore) -> dict[str, str]:
    """The secrets of a store that travelled without them. Raises SecretMissing, UnusableTable."""
    period = SystemClock().monotonic_ns() // _SECRETS_KEPT_NS
    found = _secrets_here(store.catalog, store.identifier, store.secrets, period)
    missing = [name for name in store.secrets if name not in found]
    if missing:
        raise SecretMissing(
            f"pyiceberg's configuration of this machine has no {', '.join(missing)} for catalog "
            f"{store.catalog}: give them there as on the driver"
        )
    return found


def catalog_in(warehouse: str) -> dict[str, str]:
    """Properties of a catalog without a server: an SQLite file beside the tables, for one machine.

    A job waits for a lock of another one on that file.
    """
    address = f"sqlite:///{warehouse}/catalog.db?timeout={_WAIT_SECONDS}"
    return {"type": "sql", "uri": address, "warehouse": f"file://{warehouse}"}


class IcebergTable:
    """``ArchiveTable`` for a table of a catalog; see the module. A missing table is created."""

    is_upsert = False

    def __init__(
        self,
        catalog: str,
        identifier: str,
        properties: Mapping[str, str],
        *,
        must_exist: bool = False,
        partition_by: Sequence[PartitionField] | None = None,
        sort_by: Sequence[SortField] | None = None,
        schema: pa.Schema = SCHEMA,
        decoder_of: DecoderOf | None = None,
    ) -> None:
        """``properties`` have precedence over those of pyiceberg's configuration.

        identifier    NAMESPACE.TABLE
        partition_by  of a new table; None: by topic. One that exists must have these, if any
        sort_by       likewise; None: offset order
        schema        of its files; with a decoder that of records in the log
        decoder_of    makes the decoder of typed keys and values; None: they are bytes

        Raises IcebergMissing, UnusableTable, and what ``decoder_of`` raises.
        """
        # constant after construction
        self._identifier = identifier
        self._name = f"{catalog}.{identifier}"
        with _naming(self._name):
            self._catalog = _load(catalog, properties)
            exists = self._catalog.table_exists(identifier)
            if must_exist and not exists:
                raise UnusableTable(f"{self._name} does not exist: nothing was archived there")
            table = self._catalog.load_table(identifier) if exists else None
            decoder = None if decoder_of is None else self._decoder(decoder_of, table)
            for part, each in {} if decoder is None else decoder.decoders.items():
                schema = schema.set(schema.get_field_index(part), pa.field(part, each.type))
            if table is None:
                self._create(schema, partition_by, sort_by)
                table = self._catalog.load_table(identifier)
            if not must_exist:
                self._check(table, schema)
                evolve(table, schema, self._name)
        self._spec_id = table.spec().spec_id
        self.position = _last_position(table, self._name)
        self.store = IcebergStore(
            table.location(), dict(table.io.properties), catalog, identifier, frozenset(properties)
        )
        self.dead_store: FileStore | None = None
        self.layout = FileLayout(
            schema if decoder is None else layout_schema(table),
            self._shape_of(table, partition_by, sort_by),
            decoder,
        )

    def commit(
        self, files: Sequence[ArchivedFile], position: Position, dead: Sequence[ArchivedFile] = ()
    ) -> None:
        """See ArchiveTable."""
        assert not dead
        from pyiceberg.exceptions import CommitFailedException

        for _ in range(_TRIES):
            with _naming(self._name):
                table = self._unmoved()
                if table.spec().spec_id != self._spec_id:
                    raise TableChanged(f"{self._name} was partitioned anew meanwhile: run again")
                try:
                    self._write(table, files, _marks_of(position))
                except CommitFailedException:
                    continue  # retry on the current snapshot, unless the position changed
            self.position = position
            return
        what = f"{self._name} was changed during each of {_TRIES} commits: try again"
        raise UnusableTable(what, passes=True)

    def _write(
        self, table: LoadedTable, files: Sequence[ArchivedFile], marks: Mapping[str, str]
    ) -> None:
        """One commit on top of the loaded table. Raises CommitFailedException."""
        append_files(table, files, marks)

    def check_position(self) -> None:
        """Raise TableChanged if another job moved the position since it was read."""
        with _naming(self._name):
            self._unmoved()

    def _unmoved(self) -> LoadedTable:
        """The table as it is now. Raises TableChanged if another job moved the position."""
        table = self._catalog.load_table(self._identifier)
        if _last_position(table, self._name) != self.position:
            raise TableChanged(f"Another job archived into {self._name} meanwhile")
        return table

    def row_count(self) -> int:
        """The number of rows in the current snapshot. Raises UnusableTable."""
        with self.loaded() as table:
            return int(table.scan().count())

    def widen(self, types: Mapping[str, pa.DataType]) -> None:
        """See ArchiveTable."""
        assert self.layout.decoder is not None, "only decoded columns are inferred"
        with self.loaded() as table:
            schema = layout_schema(table)
            for part, each in types.items():
                at = schema.get_field_index(part)
                schema = schema.set(at, pa.field(part, table_type(each)))
            evolve(table, schema, self._name)
            decoder = self.layout.decoder.widened(types)
            self.layout = replace(self.layout, schema=layout_schema(table), decoder=decoder)
        _log.info("schema_grew", table=self._name, **{part: str(types[part]) for part in types})

    def complete(self) -> None:
        """See ArchiveTable: snapshots say it."""

    def abandon(self) -> None:
        """See ArchiveTable: orphans are left to ``archive maintain``."""

    def close(self) -> None:
        """See ArchiveTable."""
        self._catalog.close()

    @property
    def name(self) -> str:
        """The name of the table with its catalog, for messages."""
        return self._name

    @contextmanager
    def loaded(self) -> Iterator[Any]:
        """pyiceberg's table as it is now. Errors of pyiceberg in the block are UnusableTable."""
        with _naming(self._name):
            yield self._catalog.load_table(self._identifier)

    def offsets_from(self, topic: str, partition: int, offset: int) -> pa.Array:
        """The offsets of a partition's rows from one on. Raises UnusableTable."""
        from pyiceberg.expressions import And, EqualTo, GreaterThanOrEqual

        wanted = And(
            And(EqualTo("topic", topic), EqualTo("partition", partition)),
            GreaterThanOrEqual("offset", offset),
        )
        with self.loaded() as table:
            rows = table.scan(row_filter=wanted, selected_fields=("offset",)).to_arrow()
            return rows.column("offset").combine_chunks()

    def _create(
        self,
        schema: pa.Schema,
        partition_by: Sequence[PartitionField] | None,
        sort_by: Sequence[SortField] | None,
    ) -> None:
        """Create the table, unless another job is faster. Raises UnusableTable."""
        from pyiceberg.exceptions import TableAlreadyExistsError

        catalog = self._catalog
        fields, order = self._new_shape(partition_by, sort_by)
        shape = TableShape(tuple(fields), tuple(order))
        try:
            shape.check(schema)
        except WrongSpec as error:
            raise UnusableTable(f"{self._name}: {error}") from error
        catalog.create_namespace_if_not_exists(self._identifier.rpartition(".")[0])
        try:
            with catalog.create_table_transaction(self._identifier, schema) as transaction:
                upsert = {UPSERT: "true"} if self.is_upsert else {}
                transaction.set_properties({WHOLE_TOPIC: "full", **upsert})
                give_shape(transaction, shape)
        except TableAlreadyExistsError:
            pass

    def _check(self, table: LoadedTable, schema: pa.Schema) -> None:
        """Raise UnusableTable unless rows of this schema and kind can be added."""
        lacking = set(schema.names) - set(table.schema().column_names)
        if lacking:
            raise UnusableTable(
                f"{self._name} has no column {', '.join(sorted(lacking))}: give another table"
            )
        is_upsert = table.properties.get(UPSERT) == "true"
        if is_upsert is not self.is_upsert:
            has = "the last record of each key" if is_upsert else "all records"
            option = "with" if is_upsert else "without"
            raise UnusableTable(f"{self._name} has {has}: archive into it {option} --upsert")

    def _decoder(self, decoder_of: DecoderOf, table: LoadedTable | None) -> RecordDecoder:
        """The decoder for the table as it is; None: there is none yet."""
        if table is None:
            return decoder_of(Position(), {})
        found = {part: column_type(table, part) for part in PARTS}
        types = {part: each for part, each in found.items() if each is not None}
        return decoder_of(_last_position(table, self._name), types)

    def _new_shape(
        self, partition_by: Sequence[PartitionField] | None, sort_by: Sequence[SortField] | None
    ) -> tuple[Sequence[PartitionField], Sequence[SortField]]:
        """The shape of a new table, where the caller wants none."""
        return BY_TOPIC.partition_by if partition_by is None else partition_by, sort_by or ()

    def _shape_of(
        self,
        table: LoadedTable,
        partition_by: Sequence[PartitionField] | None,
        sort_by: Sequence[SortField] | None,
    ) -> TableShape:
        """The shape of the table. Raises UnusableTable unless it is what the caller wants."""
        try:
            shape = shape_of(table)
        except WrongSpec as error:
            raise UnusableTable(f"{self._name} cannot be archived into: {error}") from error
        for option, wanted, found in (
            ("--partition-by", partition_by, shape.partition_by),
            ("--sort-by", sort_by, shape.sort_by),
        ):
            if wanted is not None and tuple(wanted) != tuple(found):
                has = ", ".join(map(str, found)) or "nothing"
                raise UnusableTable(
                    f"{self._name} has {option} {has}: these options are for a new table. Leave "
                    f"{option} out, or archive into another table"
                )
        return shape


def _load(catalog: str, properties: Mapping[str, str]) -> Any:  # noqa: ANN401 - pyiceberg's Catalog
    """Open a catalog. Raises IcebergMissing, ValueError for wrong properties."""
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError as error:
        raise IcebergMissing(
            "Iceberg tables need pyiceberg: pip install 'kafkalog[spark]'"
        ) from error
    return load_catalog(catalog, **dict(properties))


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Errors of pyiceberg become UnusableTable with the name of the table."""
    try:
        yield
    except (KafkalogError, OSError):
        raise
    except Exception as error:  # catalogs raise whatever their libraries do
        if "database is locked" in str(error):
            raise UnusableTable(
                f"{name}: another process has locked the SQLite file of the catalog for too long: "
                "wait until it has ended, and run again",
                passes=True,
            ) from error
        what = f"{name}: {type(error).__name__}: {error}"
        raise UnusableTable(what, passes=type(error).__name__ in _PASSING) from error


def _last_position(table: Any, name: str) -> Position:  # noqa: ANN401 - pyiceberg's Table
    """The position in the nearest snapshot that has one, else in the table. UnusableTable."""
    for snapshot in ancestors(table):
        marks = properties_of(snapshot)
        if marks.get(OFFSETS):
            return _position_in(marks, name)
    if OFFSETS not in table.properties and table.current_snapshot() is not None:
        raise UnusableTable(
            f"{name} has data, but no snapshot or property says up to which offsets: give another "
            "table"
        )
    return _position_in(table.properties, name)


def _position_in(marks: Mapping[str, str], name: str) -> Position:
    """The position in properties of a table or snapshot; empty without any."""
    try:
        offsets, topics = (json.loads(marks.get(mark, "{}")) for mark in (OFFSETS, TOPICS))
    except ValueError as error:
        raise UnusableTable(f"The offsets in {name} are not JSON: {dict(marks)}") from error
    return position_of(offsets, topics, name)


def _marks_of(position: Position) -> dict[str, str]:
    """The properties with a position."""
    return {OFFSETS: json.dumps(offsets_text(position)), TOPICS: json.dumps(topics_text(position))}
