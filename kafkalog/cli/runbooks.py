"""``kafkalog runbooks``: what to do about an alert or a message, without a daemon or a network."""

from __future__ import annotations

import click

from kafkalog.cli.main import CommandGroup
from kafkalog.cli.output import is_printed, output_option, print_entries
from kafkalog.format.suggestions import did_you_mean

_COLUMNS = (("RUNBOOK", "name"), ("SEVERITY", "severity"), ("MEANING", "meaning"))


@click.group(cls=CommandGroup)
def runbooks() -> None:
    """Read what to do about an alert or a message, without a daemon."""


@runbooks.command("list")
@output_option
def list_command(output: str) -> None:
    """List the runbooks with the severity of their alerts.

    Example: kafkalog runbooks list --output name
    """
    from kafkalog.console.views.daemon import runbook_rows  # late: --help needs no pydantic

    rows = [each.model_dump() for each in runbook_rows()]
    if not is_printed(output, rows, (row["name"] for row in rows)):
        print_entries(_COLUMNS, rows)


@runbooks.command()
@click.argument("name")
def describe(name: str) -> None:
    """Print a runbook as Markdown.

    Example: kafkalog runbooks describe lost-offsets
    """
    from kafkalog.console.assets import runbooks as texts
    from kafkalog.console.views.daemon import runbook_rows

    found = {each.name.lower(): each.name for each in runbook_rows()}
    exact = found.get(name.lower())
    if exact is None:
        near = did_you_mean(name, found.values()) or "; kafkalog runbooks list shows all"
        raise click.ClickException(f"There is no runbook {name}{near}")
    click.echo(texts()[exact].rstrip("\n"))
