"""``kafkalog backup``, ``restore`` and ``auth``.

``backup DIR`` makes a consistent copy of a running daemon's log directories. ``restore DIR --to
LOGDIR`` makes log directories from a backup, without a daemon. ``auth`` prints lines for the
credentials file (``http.auth.file``), without a daemon: the line goes to standard output, so that
it can be appended to the file, and a secret that only its owner may see to standard error.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from kafkalog.cli.connection import RequestFailed, with_client_and_output
from kafkalog.cli.output import is_printed, output_option, progress
from kafkalog.env.clock import SystemClock
from kafkalog.env.random import SystemRandom
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.errors import KafkalogError
from kafkalog.format.disk.credentials import (
    SALT_BYTES,
    TOKEN_BYTES,
    PasswordHash,
    basic_line,
    bearer_line,
    login_fault,
)

if TYPE_CHECKING:
    from kafkalog.client import Client


_POLL_SECONDS_MIN = 0.05
_POLL_SECONDS_MAX = 1.0


@click.command()
@click.argument("directory")
@click.option("--topic", "topics", multiple=True, help="Only this topic. Repeatable; default: all.")
@click.option("--copy", "is_copied", is_flag=True, help="Copy every file; make no hard links.")
@with_client_and_output
def backup(
    directory: str, topics: tuple[str, ...], is_copied: bool, client: Client, output: str
) -> None:
    """Back up all topics, or some, into DIRECTORY, an absolute path on the daemon's machine.

    The daemon continues to serve. DIRECTORY must be empty or not exist. On the file system of the
    logs, closed segments become hard links: this is fast and needs no space, but does not protect
    from a failure of the disk. On another file system, and with --copy, they are copied. The backup
    is complete when this command says so and exits with 0. Interrupting the command does not stop
    the backup.

    Example: kafkalog backup /backup/2026-11-21
    """
    operation = client.begin_backup(directory, topics=topics or None, is_linked=not is_copied)
    wait_seconds = _POLL_SECONDS_MIN
    with progress() as shown:
        while operation["state"] == "running":
            time.sleep(wait_seconds)
            wait_seconds = min(wait_seconds * 2, _POLL_SECONDS_MAX)
            operation = client.describe_operation(operation["id"])
            counts = operation["progress"]
            text = "Starting"
            if counts:  # there are none before the first partition
                done, count = counts["partitions_done"], counts["partitions"]
                text = f"{done} of {count} partitions, {_bytes(counts)}"
            shown.show(text)
    is_complete = operation["state"] == "succeeded"
    is_document = is_printed(output, operation, [directory] if is_complete else [])
    if not is_complete:
        error = operation["error"] or {"message": "the daemon's log has the reason"}
        raise RequestFailed(f"The backup is not complete: {error['message']}")
    if not is_document:
        _print(operation)


def _print(operation: dict[str, Any]) -> None:
    result = operation["result"]
    for log_dir in result["log_dirs"]:
        how = "closed segments are hard links" if log_dir["is_linked"] else "all files are copies"
        click.echo(
            f"{log_dir['source']} -> {result['directory']}/{log_dir['name']}: "
            f"{log_dir['partitions']} partitions, {how}"
        )
    for topic in result["deleted_topics"]:
        click.echo(f"{topic} was deleted meanwhile and is not in the backup")
    click.echo(f"Backup complete: {result['directory']}, {_bytes(operation['progress'])}")


def _bytes(counts: dict[str, int]) -> str:
    return f"{counts['linked_bytes']} bytes linked, {counts['copied_bytes']} copied"


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False))
@click.option("--to", "targets", required=True, help="Log directories to create, as a,b.")
@output_option
def restore(directory: str, targets: str, output: str) -> None:
    """Create log directories from the backup in DIRECTORY, for a daemon to start on.

    The log directories must be empty or not exist. All files are copied, never linked; the backup
    is not changed. If their number is not that of the backup, partitions are distributed over them
    by size.

    Example: kafkalog restore /backup/2026-11-21 --to /data/a,/data/b
    """
    paths = [os.path.abspath(path.strip()) for path in targets.split(",") if path.strip()]
    if not paths:
        raise click.UsageError("--to names no log directory.")
    from kafkalog.broker.backup.restore import Restore  # late: numpy and the broker

    try:
        report = Restore(
            SystemFilesystem(), SystemClock(), SystemRandom(), os.path.abspath(directory), paths
        ).run()
    except KafkalogError as error:
        raise click.ClickException(error.message) from error
    for name in report.left_out:
        click.echo(
            f"{name} has changed since the backup; the daemon recreates it at its start", err=True
        )
    if is_printed(output, dataclasses.asdict(report), (each.path for each in report.log_dirs)):
        return
    for each in report.log_dirs:
        click.echo(f"{each.path}: {each.partitions} partitions, {each.size_bytes} bytes")
    click.echo("Restored. Start: kafkalog server --override log.dirs=" + ",".join(paths))


def _principal(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    fault = login_fault(value)
    if fault is not None:
        raise click.BadParameter(fault)
    return value


def _not_empty(password: str) -> str:
    if not password:
        raise click.ClickException("The password is empty.")
    return password


@click.command()
@click.argument("principal", callback=_principal)
def hash_password(principal: str) -> None:
    """Print the line for a password, which is prompted for or read from standard input.

    Say `umask 077` before, so that a new file has mode 0600: the daemon does not start with
    credentials that others can read. The file belongs to the user that the daemon runs as.

    Example: kafkalog auth hash-password alice >> credentials
    """
    if sys.stdin.isatty():
        password = click.prompt(
            "Password",
            default="",
            show_default=False,
            value_proc=_not_empty,
            hide_input=True,
            confirmation_prompt=True,
            err=True,
        )
    else:
        password = _not_empty(sys.stdin.readline().rstrip("\r\n"))
    hashed = PasswordHash.of(password.encode(), secrets.token_bytes(SALT_BYTES))
    click.echo(basic_line(principal, hashed))


@click.command()
@click.argument("principal", callback=_principal)
def new_token(principal: str) -> None:
    """Create a token; print its line, and the token itself on standard error.

    Say `umask 077` before, as with `kafkalog auth hash-password`.

    Example: kafkalog auth new-token ci >> credentials
    """
    token = secrets.token_urlsafe(TOKEN_BYTES)
    click.echo(bearer_line(principal, token.encode()))
    click.echo(f"The token of {principal}, shown this once: {token}", err=True)
