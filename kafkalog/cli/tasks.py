"""``kafkalog tasks list``: the background tasks of a running daemon, one line each."""

from __future__ import annotations

import datetime
import json
from typing import TYPE_CHECKING, Any

import click

from kafkalog.cli.command_group import CommandGroup
from kafkalog.cli.connection import output_option, with_client
from kafkalog.cli.table import print_table

if TYPE_CHECKING:
    from kafkalog.client import Client

_HEADINGS = ("TASK", "STATE", "PERIOD", "NEXT RUN", "LAST RUN", "TOOK", "RUNS", "FAILURES")
_NONE = "-"


@click.group(cls=CommandGroup)
def tasks() -> None:
    """Look at the background tasks."""


@tasks.command("list")
@with_client
@output_option
def list_tasks(client: Client, output: str) -> None:
    """When each task ran, runs next, how long it took and what failed.

    One-shot tasks share a line by name; STATE says how many wait or run.

    Example: kafkalog tasks list --output json
    """
    answer = client.describe_tasks()
    if output == "json":
        click.echo(json.dumps(answer))
        return
    entries = answer["tasks"]
    print_table([_HEADINGS, *(_row(entry) for entry in entries)])
    for entry in entries:
        if entry["last_error"] is not None:
            moment = _moment(entry["last_failure_ms"])
            click.echo(f"{entry['name']} failed last at {moment}: {entry['last_error']}")


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    return (
        entry["name"],
        _state(entry),
        "once" if entry["period_ms"] is None else f"{entry['period_ms']} ms",
        _moment(entry["next_run_ms"]),
        _moment(entry["last_run_ms"]),
        _NONE if entry["last_duration_ms"] is None else f"{entry['last_duration_ms']} ms",
        str(entry["runs"]),
        str(entry["failures"]),
    )


def _state(entry: dict[str, Any]) -> str:
    """With the counts where there can be more than one."""
    if entry["period_ms"] is not None:
        return str(entry["state"])
    counts = ((entry[state], state) for state in ("running", "waiting"))
    return ", ".join(f"{count} {state}" for count, state in counts if count) or entry["state"]


def _moment(wall_ms: int | None) -> str:
    """UTC to the second; a period of Long.MAX ms ends after the calendar does."""
    if wall_ms is None:
        return _NONE
    try:
        moment = datetime.datetime.fromtimestamp(wall_ms / 1000, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return "never"
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
