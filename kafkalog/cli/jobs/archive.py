"""``kafkalog archive``: new records of topics into tables. The job is ``kafkalog.jobs.archive``.

Owns the arguments and what is printed. Runs in processes of this machine, or on Spark.
"""

from __future__ import annotations

import copy
import os
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from kafkalog.cli.arguments import Size, duration
from kafkalog.cli.connection import PARTIAL_FAILURE, with_credentials
from kafkalog.cli.jobs.continuous import archive_once_or_continuously, with_pace
from kafkalog.cli.jobs.spark import JobArguments, job_options, path_on_disk
from kafkalog.cli.jobs.table_place import TablePlace, check_arrow, with_table
from kafkalog.cli.main import sentence_of
from kafkalog.cli.output import document_option, is_printed, print_table
from kafkalog.env.clock import SystemClock
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.errors import KafkalogError
from kafkalog.jobs.fleet import sums
from kafkalog.spark.logs.open import open_logs
from kafkalog.spark.logs.secrets import CredentialsAt
from kafkalog.spark.logs.values import TARGET_BYTES, Access

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.client import Basic, Bearer, Tls
    from kafkalog.jobs.archive.continuous import Pace


def _by_reference(
    given: Mapping[str, Any], credentials: Basic | Bearer | None
) -> Basic | Bearer | CredentialsAt | None:
    """Where a file of the command line has the credentials: tasks elsewhere read it themselves."""
    file = given["token_file"] or given["password_file"]
    if file is None:
        return credentials
    return CredentialsAt(user=given["user"], file=os.path.abspath(file))


@click.command()
@job_options
@click.option(
    "--url", "urls", metavar="URL,...", help="Daemons, instead of DIR...: http(s)://host:port."
)
@with_credentials
@with_table
@click.option("--min-age", type=duration, help="Leave younger records for later: 1h, 30m.")
@click.option(
    "--uncommitted", is_flag=True, help="Archive records of open and aborted transactions as well."
)
@click.option(
    "--may-lose", is_flag=True, help="Continue if records were deleted before they were archived."
)
@click.option(
    "--target-bytes",
    type=Size(min=1),
    default=TARGET_BYTES,
    metavar="N",
    help="Bytes of log in a file.",
)
@click.option(
    "--max-commit-bytes",
    type=Size(min=1),
    metavar="N",
    help="Bytes of log in a commit; a larger file has one of its own.  [default: 1 GiB, or a "
    "thousandth of what is new if that is more]",
)
@with_pace
@click.pass_context
def run(
    ctx: click.Context,
    arguments: JobArguments,
    urls: str | None,
    credentials: Basic | Bearer | None,
    tls: Tls | None,
    place: TablePlace,
    min_age: int | None,
    uncommitted: bool,
    may_lose: bool,
    target_bytes: int,
    max_commit_bytes: int | None,
    pace: Pace | None,
) -> None:
    """Append the new records of topics to a table, each once, and report this to the daemons.

    The table stores the position: run this repeatedly, also after a run that was killed. With
    archive.hold=true a daemon keeps records until they are archived. A partition that cannot be
    archived is named and skipped: exit 3 if others were archived, else 1. --continuous runs again
    and again in one process, and waits for what comes back: a daemon, a store, a catalog.

    Example: kafkalog archive run --url http://127.0.0.1:8082 --parquet ./archive
    """
    if bool(urls) is bool(arguments.dirs):
        raise click.UsageError("Give either --url or DIR...")
    access = Access(
        paths=tuple(arguments.paths),
        urls=tuple(each for each in (urls or "").split(",") if each),
        credentials=_by_reference(ctx.params, credentials),
        tls=tls,
        read_committed=not uncommitted,
    )
    check_arrow()
    from kafkalog.jobs.archive import archive as job, progress

    options = job.ArchiveOptions(
        topics=frozenset(arguments.topics) or None,
        before_ms=None if min_age is None else SystemClock().wall_ms() - min_age,
        target_bytes=target_bytes,
        max_commit_bytes=max_commit_bytes,
        may_lose=may_lose,
    )
    logs, runner = partial(open_logs, access), arguments.runner("archive")
    table = partial(place.open, logs, options.topics, runner)
    rows = archive_once_or_continuously(logs, table, options, pace, runner)
    quarantined = sum(row.problem is not None for row in rows)
    totals = {**sums(rows, "rows", "files", "bytes", "dead_letters"), "quarantined": quarantined}
    arguments.show(progress.ArchivedPartition, rows, totals)
    if quarantined:
        ctx.exit(PARTIAL_FAILURE)


@click.command()
@click.argument("directory", metavar="DIR")
@document_option
def convert(directory: str, output: str) -> None:
    """Convert a Parquet archive of an older version, in place and without reading its files.

    Old archives have a directory _kafkalog with commits. Their files get the names that every
    reader of Parquet knows: topic=NAME/partition=N. Stop readers meanwhile. A conversion that was
    interrupted is run again; a second one changes nothing.

    Example: kafkalog archive convert ./archive
    """
    root = path_on_disk("DIR", directory)
    check_arrow()
    from kafkalog.jobs.archive import convert as job

    try:
        rows = job.convert(root, SystemFilesystem())
    except KafkalogError as error:
        raise click.ClickException(error.message) from error
    except OSError as error:
        raise click.ClickException(sentence_of(error)) from error
    if is_printed(output, {"rows": [each._asdict() for each in rows]}):
        return
    if not rows:
        click.echo(f"{root} needs no conversion.")
        return
    head = tuple(name.replace("_", " ").upper() for name in job.ConvertedPartition._fields)
    print_table([head, *(tuple(map(str, each)) for each in rows)])


former = copy.copy(run)  # kafkalog spark archive
former.hidden = True
