"""``kafkalog spark archive``: topics of daemons or directories into a Parquet or Iceberg table."""

from __future__ import annotations

import importlib.util
from contextlib import closing
from typing import TYPE_CHECKING

import click

from kafkalog.cli.arguments import Duration, config_pairs
from kafkalog.cli.connection import RequestFailed, message_of, with_credentials
from kafkalog.cli.jobs.spark import job_options, job_progress, path_on_disk
from kafkalog.client import ClientError
from kafkalog.env.clock import SystemClock
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.jobs.fleet import ArrowMissing
from kafkalog.spark.logs.open import open_logs
from kafkalog.spark.logs.values import TARGET_BYTES, Access

if TYPE_CHECKING:
    from kafkalog.cli.jobs.spark import JobArguments
    from kafkalog.client import Basic, Bearer, Tls
    from kafkalog.jobs.archive.archive_table import ArchiveTable


def _table(
    parquet: str | None, iceberg: str | None, catalog: str, properties: dict[str, str]
) -> ArchiveTable:
    """Open the table. Raises UnusableTable, IcebergMissing, OSError."""
    if parquet is not None:
        root = path_on_disk("--parquet", parquet, "; --iceberg writes to stores")
        from kafkalog.jobs.archive.parquet_table import ParquetTable

        return ParquetTable(root, SystemFilesystem())
    assert iceberg is not None, "checked with the arguments"
    if "." not in iceberg:
        raise click.UsageError("--iceberg takes NAMESPACE.TABLE")
    from kafkalog.jobs.archive.iceberg_table import IcebergTable

    return IcebergTable(catalog, iceberg, properties)


@click.command()
@job_options
@click.option(
    "--url", "urls", metavar="URL,...", help="Daemons, instead of --dirs: http(s)://host:port."
)
@with_credentials
@click.option("--parquet", metavar="DIR", help="Archive into Parquet files in this directory.")
@click.option("--iceberg", metavar="NAMESPACE.TABLE", help="Archive into this Iceberg table.")
@click.option(
    "--catalog", default="default", show_default=True, help="Catalog of the Iceberg table."
)
@click.option(
    "--catalog-property",
    "properties",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override pyiceberg's configuration: type, uri, warehouse, ... Repeatable.",
)
@click.option("--min-age", type=Duration(), help="Leave younger records for later: 1h, 30m.")
@click.option(
    "--uncommitted", is_flag=True, help="Archive records of open and aborted transactions as well."
)
@click.option(
    "--may-lose", is_flag=True, help="Continue if records were deleted before they were archived."
)
@click.option(
    "--target-bytes",
    type=click.IntRange(min=1),
    default=TARGET_BYTES,
    show_default=True,
    metavar="N",
    help="Bytes of log in a file.",
)
def archive(
    arguments: JobArguments,
    urls: str | None,
    credentials: Basic | Bearer | None,
    tls: Tls | None,
    parquet: str | None,
    iceberg: str | None,
    catalog: str,
    properties: tuple[str, ...],
    min_age: int | None,
    uncommitted: bool,
    may_lose: bool,
    target_bytes: int,
) -> None:
    """Append the new records of topics to a table, each once, and report this to the daemons.

    The table stores the position: run this repeatedly, also after a run that was killed. With
    archive.hold=true a daemon keeps records until they are archived.

    Example: kafkalog spark archive --url http://127.0.0.1:8082 --parquet ./archive
    """
    if (parquet is None) is (iceberg is None):
        raise click.UsageError("Give either --parquet or --iceberg")
    if bool(urls) is bool(arguments.dirs):
        raise click.UsageError("Give either --url or --dirs")
    access = Access(
        paths=tuple(arguments.paths),
        urls=tuple(each for each in (urls or "").split(",") if each),
        credentials=credentials,
        tls=tls,
        read_committed=not uncommitted,
    )
    if importlib.util.find_spec("pyarrow") is None:
        raise ArrowMissing("An archive needs pyarrow: pip install 'kafkalog[spark]'")
    from kafkalog.jobs.archive import archive as job

    options = job.ArchiveOptions(
        topics=frozenset(arguments.topics) or None,
        before_ms=None if min_age is None else SystemClock().wall_ms() - min_age,
        target_bytes=target_bytes,
        may_lose=may_lose,
    )
    table = _table(parquet, iceberg, catalog, dict(config_pairs(properties, "--catalog-property")))
    try:
        with closing(open_logs(access)) as logs:
            rows = job.archive(logs, table, options, arguments.runner("archive"), job_progress())
    except ClientError as error:
        raise RequestFailed(message_of(error)) from error
    finally:
        table.close()
    arguments.show(job.ArchivedPartition, rows, job.totals_of(rows))
