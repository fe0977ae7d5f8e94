"""``kafkalog doctor``: judges a configuration and its machine, or repairs damaged files.

The rules are ``doctor_findings``; the repair is ``broker.directory.repair``. A repair holds the
lock of every log directory while it works.
"""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from kafkalog.cli.configs import settings_from, with_settings_source
from kafkalog.cli.connection import output_option
from kafkalog.cli.output import is_printed_as_json
from kafkalog.errors import InvalidConfig, StorageFault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.broker.broker_config import BrokerConfig
    from kafkalog.broker.directory.repair import LogDirRepair
    from kafkalog.cli.offline.doctor_findings import Finding, Level


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
    directories (nested ones, and damaged registries and meta.properties), mounts and open files.
    Exit 1 with an error.

    With --repair, while no daemon runs: damaged kafkalog.registry and meta.properties files are
    rewritten from the copies in other log directories, from their checksum if one bit has flipped,
    or from the partition directories. Each line names the source, and what is lost. The damaged
    files are kept as *.damaged. Exit 1 when something could not be repaired.

    Example: kafkalog doctor config/server.properties

    Example: kafkalog doctor --repair --dry-run config/server.properties
    """
    if not repair and (dry_run or cluster_id is not None):
        raise click.UsageError("--dry-run and --cluster-id need --repair.")
    if repair:
        found = _repaired(properties, overrides, cluster_id, dry_run=dry_run)
    else:
        found = _examined(properties, overrides)
    if not is_printed_as_json(output, list(map(dataclasses.asdict, found))):
        for finding in found:
            click.echo(f"{finding.level}: {finding.subject}: {finding.message}")
        click.echo(_summary(found))
    if any(finding.level == "error" for finding in found):
        raise click.exceptions.Exit(1)


def _examined(properties: tuple[str, ...], overrides: tuple[str, ...]) -> list[Finding]:
    """The findings; of a configuration that a daemon would refuse, only that."""
    from kafkalog.cli.offline.doctor_findings import Finding, findings, machine_facts
    from kafkalog.env.system_filesystem import SystemFilesystem
    from kafkalog.log.inspect.directory_facts import check_apart

    filesystem = SystemFilesystem()
    try:
        settings = settings_from(properties, overrides)
        check_apart(filesystem, settings.broker.log_dirs)
        facts = machine_facts(settings.broker.log_dirs, filesystem)
    except InvalidConfig as error:
        return [Finding("error", "configuration", error.message)]
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}") from error
    return findings(settings, facts)


def _repaired(
    properties: tuple[str, ...],
    overrides: tuple[str, ...],
    cluster_id: str | None,
    *,
    dry_run: bool,
) -> list[Finding]:
    """Repaired files, or those that would be, as infos; the others as errors."""
    from kafkalog.cli.offline.doctor_findings import Finding
    from kafkalog.observe.logging import configure_logging

    configure_logging(sys.stderr, log_format="console", level="error")
    found: list[Finding] = []
    try:
        settings = settings_from(properties, overrides)
        with _open_repair(settings.broker, cluster_id) as repair:
            for step, kept in repair.run(dry_run=dry_run):
                message = f"would be repaired: {step.message}" if dry_run else step.message
                if kept is not None:
                    message += f"; the damaged file is kept as {kept}"
                level: Level = "error" if step.data is None else "info"
                found.append(Finding(level, step.file, message))
    except InvalidConfig as error:
        found.append(Finding("error", "configuration", error.message))
    except StorageFault as fault:
        found.append(Finding("error", str(fault.details.get("log_dir")), fault.message))
    return found


@contextmanager
def _open_repair(broker: BrokerConfig, cluster_id: str | None) -> Iterator[LogDirRepair]:
    """All existing log directories, locked. InvalidConfig when a daemon uses one; StorageFault."""
    from kafkalog.broker.directory.repair import LogDirRepair
    from kafkalog.env.clock import SystemClock
    from kafkalog.env.random import SystemRandom
    from kafkalog.env.system_filesystem import SystemFilesystem
    from kafkalog.env.system_threads import SystemThreads
    from kafkalog.log.inspect.directory_facts import check_apart, log_dir_path

    filesystem = SystemFilesystem()
    check_apart(filesystem, broker.log_dirs)
    paths = dict.fromkeys(log_dir_path(filesystem, entry) for entry in broker.log_dirs)
    existing = [path for path in paths if filesystem.exists(path)]
    seams = (filesystem, SystemClock(), SystemRandom(), SystemThreads(_thread_failed))
    repair = LogDirRepair(existing, broker.node_id, cluster_id, seams)
    try:
        repair.open()
        yield repair
    finally:
        repair.close()


def _thread_failed(name: str, error: BaseException) -> None:
    """The repair starts no thread."""
    raise AssertionError(name) from error


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
