"""``kafkalog segments preview DIR``: what a start after a crash would do to a partition.

``segments repair DIR --dry-run`` is its former name: it never repaired, a start does. Owns the
comparison: the directory is copied to a scratch directory, the daemon's loader loads the copy from
recovery point 0, and the files of both are compared. What the format check then finds in the copy
is damage that a start does not repair. The directory is only read. Two changes are not reported
because no answer depends on them: a sound index that would be rewritten, and a sound producer
snapshot that would be removed because no segment begins there, as that of each clean stop. One
thread.
"""

from __future__ import annotations

import filecmp
import io
import os
import tempfile
from typing import TYPE_CHECKING, NamedTuple

import click

from kafkalog.broker.compaction.evidence import is_known_compacted
from kafkalog.cli.arguments import check_partition_directory
from kafkalog.cli.main import sentence_of
from kafkalog.cli.offline.load import (
    LoadOptions,
    corruption_option,
    load_copy,
    sets_option,
    topic_config,
)
from kafkalog.cli.offline.segments import finding_json
from kafkalog.cli.output import is_printed, output_option
from kafkalog.env.system_filesystem import SystemFilesystem, copy_files
from kafkalog.errors import KafkalogError
from kafkalog.format.disk.file_names import (
    LEADER_EPOCH_CHECKPOINT,
    LOCK,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    sibling,
)
from kafkalog.format.topic_names import live_partition
from kafkalog.log.inspect.directory_check import verify_directory
from kafkalog.log.recovery.corruption_policy import TORN_SUFFIX
from kafkalog.observe.logging import configure_logging

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

    from kafkalog.log.inspect.findings import Finding


class FileChange(NamedTuple):
    """One file that a start would change; a size of None: the file does not exist.

    renamed_to  the name under which its bytes are kept
    """

    file: str
    size_before: int | None
    size_after: int | None
    renamed_to: str | None = None

    @property
    def text(self) -> str:
        """What a start would do to it."""
        before, after = self.size_before, self.size_after
        if self.renamed_to is not None:
            return f"set aside as {self.renamed_to} ({before} bytes)"
        if after is None:
            return f"removed ({before} bytes)"
        if before is None:
            return f"created ({after} bytes)"
        if after < before and self.file.endswith(LOG_SUFFIX):
            return f"cut from {before} to {after} bytes"
        if after == before:
            return "repaired in place"
        return f"rewritten ({before} bytes, then {after})"


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False))
@sets_option
@corruption_option("keep")
@click.option(
    "--scratch",
    type=click.Path(exists=True, file_okay=False, writable=True),
    help="Directory for the copy, which is as large as the partition. Default: the system's"
    " temporary directory.",
)
@output_option
def preview(
    directory: str,
    sets: tuple[str, ...],
    corruption: Literal["kafka", "keep"],
    scratch: str | None,
    output: str,
) -> None:
    """Show what a start after a crash would do to a partition directory.

    Exit 1 with changes, or with damage that a start does not repair, such as a corrupt batch. Works
    on a copy, which is removed afterwards. The directory is only read; it should not be written
    meanwhile, and a warning says so if a daemon serves it. The loader's messages go to standard
    error.

    Example: kafkalog segments preview ./data/orders-0
    """
    check_partition_directory(directory)
    config, source = topic_config(sets), os.path.abspath(directory)
    is_served = _warn_if_served(source)
    log_lines = io.StringIO()
    configure_logging(log_lines, log_format="console", level="warning")
    with tempfile.TemporaryDirectory(prefix="kafkalog-", dir=scratch) as root:
        name = os.path.basename(source)  # users may name copies as they like, the loader may not
        target = f"{root}/{'partition-0' if live_partition(name) is None else name}"
        try:
            copy_files(source, target)
            result = load_copy(target, config, LoadOptions(corruption=corruption))
            changes, remaining = _changes(source, target), _findings(source, target)
        except KafkalogError as error:
            raise click.ClickException(error.message.replace(target, directory)) from error
        except OSError as error:
            raise click.ClickException(sentence_of(error).replace(target, directory)) from error
        finally:
            # The copy is removed, so its path would lead nowhere.
            click.echo(log_lines.getvalue().replace(target, source), err=True, nl=False)
    document = {
        "directory": directory,
        "is_served": is_served,
        "log_start_offset": result["loaded"]["logStartOffset"],
        "log_end_offset": result["loaded"]["logEndOffset"],
        "changes": [each._asdict() | {"change": each.text} for each in changes],
        "remaining": [finding_json(each) for each in remaining],
    }
    if not is_printed(output, document, (each.file for each in changes)):
        _print(directory, result["loaded"]["logEndOffset"], changes, remaining)
    if changes or remaining:
        raise click.exceptions.Exit(1)


def _need_dry_run(_context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if not value:
        raise click.UsageError(
            "Only with --dry-run: a start of the daemon repairs. `kafkalog segments preview` shows"
            " what it would do, `kafkalog offline load` makes a repaired copy"
        )


_dry_run = click.Option(
    ["--dry-run"], is_flag=True, expose_value=False, callback=_need_dry_run, help="Required."
)
repair = click.Command(
    "repair",
    callback=preview.callback,
    params=[*preview.params, _dry_run],
    help=preview.help,
    hidden=True,
)


def _print(
    directory: str, log_end_offset: int, changes: Sequence[FileChange], remaining: Sequence[Finding]
) -> None:
    for each in changes:
        click.echo(f"{each.file}: {each.text}")
    for finding in remaining:
        click.echo(f"{finding.file} at {finding.position}: not repaired: {finding.problem}")
    done = "nothing to repair"
    if changes:
        done = "1 change" if len(changes) == 1 else f"{len(changes)} changes"
    click.echo(f"{directory}: {done}; the log would end at offset {log_end_offset}")


def _warn_if_served(source: str) -> bool:
    """Whether a process has locked the log directory around ``source``; prints a warning."""
    try:
        is_served = SystemFilesystem().is_locked(f"{os.path.dirname(source)}/{LOCK}")
    except OSError as error:
        raise click.ClickException(sentence_of(error)) from error
    if is_served:
        click.echo(
            f"Warning: a daemon serves {source} and may write to it: what it appends meanwhile can"
            " look like damage. Run this again when it has stopped, or on a backup.",
            err=True,
        )
    return is_served


def _findings(source: str, path: str) -> list[Finding]:
    """Violations of the format in ``path``, which is ``source`` or its copy."""
    filesystem = SystemFilesystem()
    is_compacted = is_known_compacted(source, filesystem)
    return verify_directory(path, filesystem, is_compacted=is_compacted)


def _changes(source: str, target: str) -> list[FileChange]:
    """The changed files, sorted by name."""

    def is_same(name: str, new_name: str) -> bool:
        return filecmp.cmp(f"{source}/{name}", f"{target}/{new_name}", shallow=False)

    filesystem = SystemFilesystem()
    sizes = [
        {stat.name: stat.size for stat in filesystem.list_dir_stats(path) if stat.is_file}
        for path in (source, target)
    ]
    unsound = {each.file for each in _findings(source, source)}
    aside = [name for name in sizes[1] if name not in sizes[0] and name.endswith(TORN_SUFFIX)]
    renamed: dict[str, str] = {}
    for name in sizes[0].keys() - sizes[1].keys():
        for new_name in aside:
            if new_name.startswith(f"{name}.") and is_same(name, new_name):
                renamed[name] = new_name
    changes = []
    for name in sorted(sizes[0].keys() | (sizes[1].keys() - set(renamed.values()))):
        before, after = sizes[0].get(name), sizes[1].get(name)
        # A new file, or an index beside a sound log, can be rebuilt from the other files.
        is_source = before is not None and name.endswith((LOG_SUFFIX, LEADER_EPOCH_CHECKPOINT))
        is_reported = (
            is_source
            or (after is None and not name.endswith(SNAPSHOT_SUFFIX))
            or name in aside
            or not unsound.isdisjoint((name, sibling(name, LOG_SUFFIX)))
        )
        if is_reported and not (before == after and is_same(name, name)):
            changes.append(FileChange(name, before, after, renamed.get(name)))
    return changes
