"""``kafkalog dirs``: the log directories of a running daemon. Text is kafka-log-dirs'."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from kafkalog.cli.command_group import CommandGroup
from kafkalog.cli.compat.log_dirs import tool_lines
from kafkalog.cli.connection import output_option, with_client
from kafkalog.cli.dir_moves import cancel_move, move, moves

if TYPE_CHECKING:
    from kafkalog.client import Client


@click.group(cls=CommandGroup)
def dirs() -> None:
    """Look at the log directories, and move partitions between them."""


dirs.add_command(move)
dirs.add_command(moves)
dirs.add_command(cancel_move)


@dirs.command()
@click.option("--topics", "--topic-list", default="", help="Only these, as a,b. Default: all.")
@with_client
@output_option
def describe(topics: str, client: Client, output: str) -> None:
    """Partitions of each log directory with their bytes, and what is offline.

    The last line of the text is kafka-log-dirs' JSON; why a directory is offline goes to standard
    error. --output json adds that reason, and total and usable bytes (-1: unknown).

    Example: kafkalog dirs describe --topics orders | tail -1 | jq .
    """
    answer = client.describe_log_dirs(topics)
    if output == "json":
        click.echo(json.dumps(answer))
        return
    for line in tool_lines(answer):
        click.echo(line)
    for broker in answer["brokers"]:
        for log_dir in broker["logDirs"]:
            if log_dir["error"] is not None:
                click.echo(f"{log_dir['logDir']} is offline: {log_dir['reason']}", err=True)
