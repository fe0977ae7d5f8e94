"""``kafkalog doctor``: judges a configuration and its machine, or repairs damaged files.

The work is in `diagnosis`, imported late: it needs numpy and the broker, and `--help` does not.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING

import click

from kafkalog.cli.configs import with_settings_source
from kafkalog.cli.output import is_printed, output_option

if TYPE_CHECKING:
    from kafkalog.cli.offline.diagnosis import Finding


@click.command()
@with_settings_source
@click.option(
    "--repair",
    is_flag=True,
    help="Rewrite damaged files of the log directories, where their contents can be proven.",
)
@click.option("--dry-run", is_flag=True, help="With --repair: show what it would do.")
@click.option(
    "--cluster-id",
    metavar="ID",
    help="With --repair: the cluster.id of a meta.properties that no other file proves.",
)
@output_option
def doctor(
    properties: tuple[str, ...],
    overrides: tuple[str, ...],
    repair: bool,
    dry_run: bool,
    cluster_id: str | None,
    output: str,
) -> None:
    """Check a configuration, its log directories and this machine for problems.

    Takes the arguments of `kafkalog server`. Without --repair it changes nothing, and a daemon may
    be running. Checks unknown keys, limits that have no effect because of segments or the disk,
    directories (nested ones, damaged registries and meta.properties, segments whose .log file is
    missing), mounts and open files. It reads no records: `kafkalog segments verify` and `kafkalog
    spark audit` do. Exit 1 with an error.

    With --repair, while no daemon runs: damaged kafkalog.registry and meta.properties files are
    rewritten from the copies in other log directories, from their checksum if one bit has flipped,
    or from the partition directories. Each line names the source, and what is lost. The damaged
    files are kept as *.damaged. Exit 1 when something could not be repaired.

    Example: kafkalog doctor config/server.properties

    Example: kafkalog doctor --repair --dry-run config/server.properties
    """
    if not repair and (dry_run or cluster_id is not None):
        raise click.UsageError("--dry-run and --cluster-id need --repair.")
    from kafkalog.cli.offline.diagnosis import examined, repaired

    if repair:
        found = repaired(properties, overrides, cluster_id, dry_run=dry_run)
    else:
        found = examined(properties, overrides)
    documents = list(map(dataclasses.asdict, found))
    if not is_printed(output, documents, dict.fromkeys(finding.subject for finding in found)):
        for finding in found:
            click.echo(f"{finding.level}: {finding.subject}: {finding.message}")
        click.echo(_summary(found))
    if any(finding.level == "error" for finding in found):
        raise click.exceptions.Exit(1)


def _summary(found: list[Finding]) -> str:
    if not found:
        return "No problems found."
    counts = Counter(finding.level for finding in found)
    parts = (
        f"{counts[level]} {level}{'s' if counts[level] != 1 else ''}"
        for level in ("error", "warning", "info")
        if counts[level]
    )
    return ", ".join(parts)
