"""``kafkalog backup DIR``: a consistent copy of a running daemon's log directories."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import click

from kafkalog.cli.connection import RequestFailed, output_option, with_client
from kafkalog.cli.progress import progress

if TYPE_CHECKING:
    from kafkalog.client import Client

_POLL_SECONDS_MIN = 0.05
_POLL_SECONDS_MAX = 1.0


@click.command()
@click.argument("directory")
@click.option("--topic", "topics", multiple=True, help="Only this topic. Repeatable; default: all.")
@click.option("--copy", "is_copied", is_flag=True, help="Copy every file, make no hard links.")
@with_client
@output_option
def backup(
    directory: str, topics: tuple[str, ...], is_copied: bool, client: Client, output: str
) -> None:
    """Back up all topics, or some, into DIRECTORY, an absolute path on the daemon's machine.

    The daemon serves on meanwhile. DIRECTORY must be empty or not exist. On the file system of the
    logs, closed segments become hard links: quick and without room of their own, but no protection
    from a dying disk; elsewhere, and with --copy, they are copied. The backup is complete when this
    command says so and ends with status 0; interrupting it does not stop the daemon's work.

    Example: kafkalog backup /backup/2026-11-21
    """
    operation = client.begin_backup(directory, topics=topics or None, is_linked=not is_copied)
    wait_seconds = _POLL_SECONDS_MIN
    with progress() as shown:
        while operation["state"] == "running":
            time.sleep(wait_seconds)
            wait_seconds = min(wait_seconds * 2, _POLL_SECONDS_MAX)
            operation = client.describe_operation(operation["id"])
            shown.show(_so_far(operation["progress"]))
    if output == "json":
        click.echo(json.dumps(operation))
    if operation["state"] != "succeeded":
        error = operation["error"] or {"message": "the daemon's log has the reason"}
        raise RequestFailed(f"The backup is not complete: {error['message']}")
    if output == "text":
        _print(operation)


def _so_far(counts: dict[str, int]) -> str:
    """Nothing is counted before the first partition."""
    if not counts:
        return "Beginning"
    done, count = counts["partitions_done"], counts["partitions"]
    return f"{done} of {count} partitions, {_bytes(counts)}"


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
