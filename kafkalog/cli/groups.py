"""``kafkalog groups``: list, describe, reset and delete consumer groups of a running daemon."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from kafkalog.cli.command_group import CommandGroup
from kafkalog.cli.connection import output_option, with_client
from kafkalog.cli.partial_failure import end_with_failures, is_failed
from kafkalog.cli.table import print_table

if TYPE_CHECKING:
    from kafkalog.client import Client

_NONE = "-"


@click.group(cls=CommandGroup)
def groups() -> None:
    """How far consumer groups have come, and setting them back or forth."""


@groups.command("list")
@with_client
@output_option
def list_groups(client: Client, output: str) -> None:
    """Groups that have commits or members.

    Example: kafkalog groups list
    """
    found = client.list_groups()
    if output == "json":
        click.echo(json.dumps({"groups": found}))
        return
    rows = [(each["group"], each["state"], str(each["members"])) for each in found]
    print_table([("GROUP", "STATE", "MEMBERS"), *rows])


@groups.command()
@click.argument("group")
@with_client
@output_option
def describe(group: str, client: Client, output: str) -> None:
    """Commits of a group beside the logs, and who reads each partition.

    Example: kafkalog groups describe billing
    """
    answer = client.describe_group(group)
    if output == "json":
        click.echo(json.dumps(answer))
        return
    readers = {
        (at["topic"], at["partition"]): member["instance_id"]
        for member in answer["members"]
        for at in member["partitions"]
    }
    commits = {(each["topic"], each["partition"]): each for each in answer["offsets"]}
    headings = ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID")
    rows = []
    for key in sorted(readers.keys() | commits.keys()):
        commit = commits.get(key, {})
        numbers = (_cell(commit.get(name)) for name in ("offset", "log_end_offset", "lag"))
        rows.append((key[0], str(key[1]), *numbers, readers.get(key, _NONE)))
    print_table([headings, *rows])


@groups.command("reset-offsets")
@click.argument("group")
@click.option("--to-earliest", "to", flag_value="earliest", help="The first record of each log.")
@click.option("--to-latest", "to", flag_value="latest", help="Behind the last record.")
@click.option("--to-datetime", help="The first record at or after: ms since 1970, or ISO-8601.")
@click.option("--to-offset", type=click.IntRange(0), help="This offset, inside the log.")
@click.option("--shift-by", type=int, help="So many records on, or back when negative.")
@click.option("--topic", "topics", multiple=True, help="Repeatable; none: all it has committed.")
@click.option("--execute", is_flag=True, help="Do it; without, it is only shown.")
@with_client
@output_option
@click.pass_context
def reset_offsets(
    ctx: click.Context,
    group: str,
    to: str | None,
    to_datetime: str | None,
    to_offset: int | None,
    shift_by: int | None,
    topics: tuple[str, ...],
    execute: bool,
    client: Client,
    output: str,
) -> None:
    """Set the offsets of a group without members; shows the new ones.

    Exit status 3 when a partition could not be reset: the others are.

    Example: kafkalog groups reset-offsets billing --to-earliest --execute
    """
    numbers = {"timestamp": to_datetime, "offset": to_offset, "shift": shift_by}
    places: list[tuple[Any, int | str | None]] = [] if to is None else [(to, None)]
    places += [(name, value) for name, value in numbers.items() if value is not None]
    if len(places) > 1:
        raise click.UsageError("Name one place to reset to")
    if not places:
        raise click.UsageError("Say where: --to-earliest, --to-latest, --to-datetime, ...")
    entries = client.reset_group_offsets(
        group, *places[0], topics=topics or None, dry_run=not execute
    )
    if output == "json":
        click.echo(json.dumps({"group": group, "dry_run": not execute, "offsets": entries}))
    else:
        rows = [
            (
                each["topic"],
                str(each["partition"]),
                _cell(each["old_offset"]),
                str(each["new_offset"]),
            )
            for each in entries
            if not is_failed(each)
        ]
        print_table([("TOPIC", "PARTITION", "OLD-OFFSET", "NEW-OFFSET"), *rows])
    if not execute:
        click.echo("Nothing was changed; add --execute.", err=True)
    end_with_failures(ctx, entries)


@groups.command()
@click.argument("group")
@with_client
def delete(group: str, client: Client) -> None:
    """Delete a group without members: all its commits.

    Example: kafkalog groups delete billing
    """
    client.delete_group(group)
    click.echo(f"Deleted group {group}.")


def _cell(value: int | None) -> str:
    return _NONE if value is None else str(value)
