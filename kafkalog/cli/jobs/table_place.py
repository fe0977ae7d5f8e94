"""The options that say where the table of an archive is."""

from __future__ import annotations

import functools
import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from kafkalog.cli.arguments import config_pairs
from kafkalog.cli.jobs.formats import WantedFormats, with_formats
from kafkalog.cli.jobs.shape import WantedShape, with_shape
from kafkalog.cli.jobs.spark import path_on_disk
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.jobs.archive.archive_table import UnusableTable
from kafkalog.jobs.fleet import ArrowMissing
from kafkalog.log.inspect.directory_facts import enclosing_log_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from kafkalog.jobs.archive.archive_table import ArchiveTable
    from kafkalog.jobs.archive.iceberg_table import IcebergTable
    from kafkalog.jobs.tasks import Runner
    from kafkalog.spark.logs.open import OpenedLogs

    Command = Callable[..., None]

_NOT_IN_ADDRESSES = "#?%"  # they end a part of an address, or are decoded


@dataclass(frozen=True, slots=True)
class Catalog:
    """A catalog of Iceberg tables.

    given      properties that override all others
    warehouse  the directory of a catalog that is a file in it
    """

    name: str
    given: Mapping[str, str]
    warehouse: str | None = None

    @property
    def properties(self) -> Mapping[str, str]:
        """What overrides pyiceberg's configuration of the catalog. Needs pyarrow."""
        if self.warehouse is None:
            return self.given
        from kafkalog.jobs.archive.iceberg_table import catalog_in

        return {**catalog_in(self.warehouse), **self.given}


@dataclass(frozen=True, slots=True)
class TablePlace:
    """Where a table is: in the directory ``parquet``, or as ``iceberg`` in the catalog.

    shape, formats  what a new Iceberg table is like
    """

    parquet: str | None
    iceberg: str | None
    catalog: Catalog
    shape: WantedShape
    formats: WantedFormats

    def open(
        self, open_logs: Callable[[], OpenedLogs], topics: Collection[str] | None, runner: Runner
    ) -> ArchiveTable:
        """Open the table.

        open_logs, topics  for a schema that is inferred
        runner             for tasks of the table

        Raises UnusableTable, UnusableSchema, IcebergMissing, OSError, errors of the logs.
        """
        filesystem = SystemFilesystem()
        if self.parquet is not None:
            from kafkalog.jobs.archive.parquet_table import ParquetTable

            return ParquetTable(self.parquet, filesystem)
        assert self.iceberg is not None, "checked with the arguments"
        warehouse = self.catalog.warehouse
        if warehouse is not None:
            around = enclosing_log_dir(filesystem, filesystem.real_path(warehouse))
            if around is not None:
                raise UnusableTable(
                    f"{warehouse} would be in the log directory {around}: give another path"
                )
            filesystem.make_dir(warehouse)
        catalog, properties = self.catalog.name, self.catalog.properties
        shape = self.shape
        if shape.is_upsert:
            from kafkalog.jobs.archive.iceberg.upsert_table import UpsertTable

            return UpsertTable(
                catalog, self.iceberg, properties, runner, partition_by=shape.partition_by
            )
        from kafkalog.jobs.archive.iceberg_table import IcebergTable

        def opened(identifier: str, **given: Any) -> IcebergTable:  # noqa: ANN401 - its own
            return IcebergTable(catalog, identifier, properties, **given)

        of_rows = {"partition_by": shape.partition_by, "sort_by": shape.sort_by}
        return self.formats.open(opened, self.iceberg, open_logs, topics, of_rows)


_catalog_options = (
    click.option(
        "--warehouse",
        metavar="DIR",
        help="Directory for Iceberg tables and an SQLite catalog of them: no server is needed.",
    ),
    click.option("--catalog", default="default", help="Catalog of the Iceberg table."),
    click.option(
        "--catalog-property",
        "properties",
        multiple=True,
        metavar="KEY=VALUE",
        help="Override --warehouse and pyiceberg's configuration: type, uri, ... Repeatable.",
    ),
)


def with_catalog(command: Command) -> Command:
    """Add the options of a catalog; the command gets ``catalog``."""

    @functools.wraps(command)
    def body(
        *args: object,
        warehouse: str | None,
        catalog: str,
        properties: tuple[str, ...],
        **options: object,
    ) -> None:
        given = dict(config_pairs(properties, "--catalog-property"))
        if warehouse is not None:
            warehouse = path_on_disk(
                "--warehouse", warehouse, "; for stores give --catalog-property"
            )
            if any(each in warehouse for each in _NOT_IN_ADDRESSES):
                raise click.UsageError("--warehouse has no #, ? or % in its path")
        command(*args, catalog=Catalog(catalog, given, warehouse), **options)

    for option in reversed(_catalog_options):
        body = option(body)
    return body


def _identifier(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value is not None and "." not in value:
        raise click.UsageError("--iceberg takes NAMESPACE.TABLE")
    return value


def iceberg_option(help_text: str, *, required: bool = False) -> Callable[[Command], Command]:
    """The option for the name of an Iceberg table."""
    return click.option(
        "--iceberg",
        metavar="NAMESPACE.TABLE",
        required=required,
        callback=_identifier,
        help=help_text,
    )


def check_arrow() -> None:
    """Raise ArrowMissing, which says what to install, unless tables can be read and written."""
    if importlib.util.find_spec("pyarrow") is None:
        raise ArrowMissing("An archive needs pyarrow: pip install 'kafkalog[spark]'")


def with_table(command: Command) -> Command:
    """Add the options of a table and its catalog; the command gets ``place``."""

    @click.option("--parquet", metavar="DIR", help="Archive into Parquet files in this directory.")
    @iceberg_option("Archive into this Iceberg table.")
    @with_catalog
    @with_shape
    @with_formats
    @functools.wraps(command)
    def body(
        *args: object,
        parquet: str | None,
        iceberg: str | None,
        catalog: Catalog,
        shape: WantedShape,
        formats: WantedFormats,
        **options: object,
    ) -> None:
        if (parquet is None) is (iceberg is None):
            raise click.UsageError("Give either --parquet or --iceberg")
        if parquet is not None:
            if catalog.warehouse is not None:
                raise click.UsageError("--warehouse is for --iceberg")
            if shape != WantedShape():
                raise click.UsageError("--partition-by, --sort-by and --upsert are for --iceberg")
            if formats.are_typed:
                raise click.UsageError("Typed columns need --iceberg: Parquet files have bytes")
            parquet = path_on_disk("--parquet", parquet, "; --iceberg writes to stores")
        if shape.is_upsert and formats.are_typed:
            raise click.UsageError("--upsert keeps keys and values as bytes: leave out the formats")
        place = TablePlace(parquet, iceberg, catalog, shape, formats)
        command(*args, place=place, **options)

    return body
