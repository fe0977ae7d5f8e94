"""``kafkalog segments verify DIR``: every invariant of the format, checked on files at rest.

Owns the printed lines alone; the rules are ``log/inspect/directory_check.py``. Nothing is written.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import click

from kafkalog.cli.connection import output_option
from kafkalog.cli.partition_argument import require_partition_directory
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.log.inspect.directory_check import verify_directory
from kafkalog.log.inspect.directory_proof import proof_of
from kafkalog.manager.compaction_evidence import is_known_compacted

if TYPE_CHECKING:
    from kafkalog.log.inspect.findings import Finding


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False))
@output_option
@click.pass_context
def verify(ctx: click.Context, directory: str, output: str) -> None:
    """Check all batches, indexes and snapshots of a partition directory. Exit 1 with findings.

    The directory must not be written meanwhile: stop the server or take a copy. Whether offsets may
    be missing, and which were given up (accept-loss), is read from the log directory around it,
    where there is one.

    Example: kafkalog segments verify ./data/orders-0
    """
    require_partition_directory(directory)
    path, filesystem = os.path.abspath(directory), SystemFilesystem()
    try:
        is_compacted = is_known_compacted(path, filesystem)
        proof = proof_of(filesystem, path)
        findings = verify_directory(path, filesystem, is_compacted=is_compacted, proof=proof)
    except OSError as error:
        raise click.ClickException(str(error)) from error
    if output == "json":
        rows = [finding_json(finding) for finding in findings]
        click.echo(json.dumps({"directory": directory, "findings": rows}))
    else:
        for finding in findings:
            click.echo(f"{finding.file} at {finding.position}: {finding.problem}")
        click.echo(f"{directory}: {f'{len(findings)} findings' if findings else 'sound'}")
    if findings:
        ctx.exit(1)


def finding_json(finding: Finding) -> dict[str, object]:
    """As both commands that tell findings print it."""
    return {
        "file": finding.file,
        "position": finding.position,
        "code": finding.code.value,
        "problem": finding.problem,
    }
