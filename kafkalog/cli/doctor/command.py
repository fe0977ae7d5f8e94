"""``kafkalog doctor``: gathers the facts, asks the rules, prints."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from typing import TYPE_CHECKING

import click

from kafkalog.cli.connection import output_option
from kafkalog.cli.settings_source import settings_from, with_settings_source
from kafkalog.errors import InvalidConfig

if TYPE_CHECKING:
    from kafkalog.cli.doctor.findings import Finding


@click.command()
@with_settings_source
@output_option
@click.pass_context
def doctor(
    ctx: click.Context, properties: tuple[str, ...], overrides: tuple[str, ...], output: str
) -> None:
    """Look for trouble in a configuration, its log directories and this machine.

    Takes what `kafkalog server` takes and changes nothing; a daemon may be running. Judges unknown
    keys, limits that segments or the disk make void, directories (also that none lies in another
    one), mounts and open files. Exit 1 with an error.

    Example: kafkalog doctor config/server.properties
    """
    found = _examined(properties, overrides)
    if output == "json":
        click.echo(json.dumps([dataclasses.asdict(finding) for finding in found]))
    else:
        for finding in found:
            click.echo(f"{finding.level}: {finding.subject}: {finding.message}")
        click.echo(_sum(found))
    if any(finding.level == "error" for finding in found):
        ctx.exit(1)


def _examined(properties: tuple[str, ...], overrides: tuple[str, ...]) -> list[Finding]:
    """A configuration that a daemon would refuse is the one finding."""
    from kafkalog.cli.doctor.facts import machine_facts
    from kafkalog.cli.doctor.findings import Finding, findings
    from kafkalog.env.system_filesystem import SystemFilesystem
    from kafkalog.log.nested_dirs import check_apart

    filesystem = SystemFilesystem()
    try:
        settings = settings_from(properties, overrides)
        check_apart(filesystem, settings.broker.log_dirs)
    except InvalidConfig as error:
        return [Finding("error", "configuration", error.message)]
    try:
        facts = machine_facts(settings.broker.log_dirs, filesystem)
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}") from error
    return findings(settings, facts)


def _sum(found: list[Finding]) -> str:
    if not found:
        return "Nothing was found."
    counts = Counter(finding.level for finding in found)
    parts = (
        f"{counts[level]} {level}{'s' if counts[level] != 1 else ''}"
        for level in ("error", "warning", "info")
        if counts[level]
    )
    return ", ".join(parts)
