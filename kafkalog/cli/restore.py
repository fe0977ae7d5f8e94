"""``kafkalog restore DIR --to LOGDIR``: log directories from a backup, without a server."""

from __future__ import annotations

import dataclasses
import json
import os

import click

from kafkalog.cli.connection import output_option
from kafkalog.env.clock import SystemClock
from kafkalog.env.random import SystemRandom
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.errors import KafkalogError
from kafkalog.manager.restore import Restore


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False))
@click.option("--to", "targets", required=True, help="Log directories to make, as a,b.")
@output_option
def restore(directory: str, targets: str, output: str) -> None:
    """Make log directories from the backup in DIRECTORY; start the daemon on them afterwards.

    The log directories must be empty or not exist. All is copied, never linked, and the backup
    stays as it is. With another number of log directories than the backup has, partitions are
    spread over them by size.

    Example: kafkalog restore /backup/2026-11-21 --to /data/a,/data/b
    """
    paths = [os.path.abspath(path.strip()) for path in targets.split(",") if path.strip()]
    if not paths:
        raise click.UsageError("--to names no log directory.")
    try:
        report = Restore(
            SystemFilesystem(), SystemClock(), SystemRandom(), os.path.abspath(directory), paths
        ).run()
    except KafkalogError as error:
        raise click.ClickException(error.message) from error
    for name in report.left_out:
        click.echo(f"{name} has changed since the backup; the start makes it anew", err=True)
    if output == "json":
        click.echo(json.dumps(dataclasses.asdict(report)))
        return
    for each in report.log_dirs:
        click.echo(f"{each.path}: {each.partitions} partitions, {each.size_bytes} bytes")
    click.echo("Restored. Start: kafkalog server --override log.dirs=" + ",".join(paths))
