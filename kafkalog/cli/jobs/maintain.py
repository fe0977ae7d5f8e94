"""``kafkalog archive maintain``. The job is ``kafkalog.jobs.archive.iceberg.maintain``.

Owns the arguments and what is printed. Runs in processes of this machine, or on Spark.
"""

from __future__ import annotations

from contextlib import closing

import click

from kafkalog.cli.arguments import Size, duration, execute_option
from kafkalog.cli.connection import PARTIAL_FAILURE
from kafkalog.cli.jobs.spark import JobArguments, table_job_options
from kafkalog.cli.jobs.table_place import Catalog, check_arrow, iceberg_option, with_catalog
from kafkalog.cli.output import confirm
from kafkalog.env.clock import SystemClock

_ORPHAN_AGE_MIN_MS = 3_600_000


@click.command()
@click.pass_context
@table_job_options
@iceberg_option("The Iceberg table.", required=True)
@with_catalog
@click.option(
    "--target-file-bytes",
    type=Size(min=1),
    default="512MiB",
    metavar="N",
    help="Size of a merged file; files above three quarters of it stay as they are.",
)
@click.option(
    "--min-files",
    type=click.IntRange(min=2),
    default=5,
    metavar="N",
    help="Merge fewer neighbours only if they fill a file.",
)
@click.option(
    "--snapshots-older-than",
    "snapshot_age_ms",
    type=duration,
    default="5d",
    metavar="AGE",
    help="Let snapshots of this age expire, and remove the files that only they have.",
)
@click.option(
    "--keep-snapshots",
    "snapshots_kept",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="The newest snapshots stay at any age.",
)
@click.option(
    "--orphans-older-than",
    "orphan_age_ms",
    type=duration,
    default="3d",
    metavar="AGE",
    help="Remove files of this age that are in no snapshot; at least 1h.",
)
@execute_option
def maintain(
    ctx: click.Context,
    arguments: JobArguments,
    iceberg: str,
    catalog: Catalog,
    execute: bool,
    is_sure: bool,
    target_file_bytes: int,
    min_files: int,
    snapshot_age_ms: int,
    snapshots_kept: int,
    orphan_age_ms: int,
) -> None:
    """Merge small files of an Iceberg archive, expire snapshots, remove orphan files.

    The rows stay the same, and archives may run meanwhile. Who reads a snapshot that expires
    misses its files. Exit 3 if something could not be merged.

    Example: kafkalog archive maintain --iceberg lake.orders --execute
    """
    if orphan_age_ms < _ORPHAN_AGE_MIN_MS:
        raise click.UsageError(
            "--orphans-older-than is at least 1h: files of a running archive are in no snapshot"
        )
    check_arrow()
    from kafkalog.jobs.archive.iceberg import maintain as job
    from kafkalog.jobs.archive.iceberg_table import IcebergTable

    if execute:
        confirm(f"Rewrite {iceberg} and remove files of it?", is_sure=is_sure)
    now_ms = SystemClock().wall_ms()
    options = job.MaintainOptions(
        expire_before_ms=now_ms - snapshot_age_ms,
        orphans_before_ms=now_ms - orphan_age_ms,
        target_file_bytes=target_file_bytes,
        min_files=min_files,
        snapshots_kept=snapshots_kept,
    )
    with closing(IcebergTable(catalog.name, iceberg, catalog.properties, must_exist=True)) as table:
        rows = job.maintain(table, options, arguments.runner("maintain"), execute=execute)
    problems = sum(row.problem is not None for row in rows)
    arguments.show(job.MaintainedStep, rows, {"dry_run": not execute, "problems": problems})
    if not execute:
        click.echo("Nothing was changed; add --execute.", err=True)
    if problems:
        ctx.exit(PARTIAL_FAILURE)
