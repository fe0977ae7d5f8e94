"""``kafkalog segments repair DIR --dry-run``: what a start after a crash would do to a partition.

Owns the comparison: the directory is copied to a scratch directory, the copy is loaded by the
daemon's own loader from recovery point 0, and the files of both are compared. The directory is only
read. An index that is sound and would be written anew is not told: that changes no answer. One
thread.
"""

from __future__ import annotations

import filecmp
import json
import os
import sys
import tempfile
from typing import TYPE_CHECKING, NamedTuple

import click

from kafkalog.cli.connection import output_option
from kafkalog.cli.offline_load import LoadOptions, load_copy
from kafkalog.cli.partition_argument import require_partition_directory
from kafkalog.cli.partition_copy import corruption_option, sets_option, topic_config
from kafkalog.env.directory_copy import copy_files
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.errors import KafkalogError
from kafkalog.format.file_names import LEADER_EPOCH_CHECKPOINT, LOG_SUFFIX, sibling
from kafkalog.format.format_error import FormatError
from kafkalog.format.topic_partition import DirectoryState, parse_directory_name
from kafkalog.log.directory_check import verify_directory
from kafkalog.manager.compaction_evidence import is_known_compacted
from kafkalog.observe.logging import configure_logging

if TYPE_CHECKING:
    from typing import Literal


class FileChange(NamedTuple):
    """One file that would be another one; None bytes: it is not there."""

    file: str
    size_before: int | None
    size_after: int | None

    @property
    def text(self) -> str:
        """What happens to it."""
        before, after = self.size_before, self.size_after
        if after is None:
            return f"removed ({before} bytes)"
        if before is None:
            return f"made ({after} bytes)"
        if after < before and self.file.endswith(LOG_SUFFIX):
            return f"cut from {before} to {after} bytes"
        if after == before:
            return "mended in place"
        return f"written anew ({before} bytes, then {after})"


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False))
@click.option("--dry-run", is_flag=True, help="Must be given: a start of the daemon repairs.")
@sets_option
@corruption_option("keep")
@click.option(
    "--scratch",
    type=click.Path(exists=True, file_okay=False, writable=True),
    help="Where the copy is made, which has the size of the partition. Default: the machine's"
    " directory for such files.",
)
@output_option
@click.pass_context
def repair(
    ctx: click.Context,
    directory: str,
    dry_run: bool,
    sets: tuple[str, ...],
    corruption: Literal["kafka", "keep"],
    scratch: str | None,
    output: str,
) -> None:
    """Show what a start after a crash would do to a partition directory. Exit 1 with changes.

    Works on a copy, which is removed afterwards; the directory is only read, and should not be
    written meanwhile. What the loader finds goes to standard error.

    Example: kafkalog segments repair ./data/orders-0 --dry-run
    """
    if not dry_run:
        raise click.UsageError(
            "Only --dry-run: a start of the daemon repairs, 'kafkalog offline load' makes a"
            " repaired copy"
        )
    require_partition_directory(directory)
    config, source = topic_config(sets), os.path.abspath(directory)
    configure_logging(sys.stderr, log_format="console", level="warning")
    try:
        with tempfile.TemporaryDirectory(prefix="kafkalog-", dir=scratch) as root:
            target = f"{root}/{_copy_name(source)}"
            copy_files(source, target)
            result = load_copy(target, config, LoadOptions(corruption=corruption))
            changes = _changes(source, target)
    except KafkalogError as error:
        raise click.ClickException(error.message) from error
    except OSError as error:
        raise click.ClickException(str(error)) from error
    loaded = result["loaded"]
    if output == "json":
        document = {
            "directory": directory,
            "log_start_offset": loaded["logStartOffset"],
            "log_end_offset": loaded["logEndOffset"],
            "changes": [each._asdict() | {"change": each.text} for each in changes],
        }
        click.echo(json.dumps(document))
    else:
        for each in changes:
            click.echo(f"{each.file}: {each.text}")
        told = f"{len(changes)} changes" if changes else "nothing to repair"
        click.echo(f"{directory}: {told}; the log would end at offset {loaded['logEndOffset']}")
    if changes:
        ctx.exit(1)


def _copy_name(source: str) -> str:
    """The directory's own name, or any that the loader takes: a copy may be called as one likes."""
    name = os.path.basename(source)
    try:
        is_live = parse_directory_name(name).state is DirectoryState.LIVE
    except FormatError:
        is_live = False
    return name if is_live else "partition-0"


def _changes(source: str, target: str) -> list[FileChange]:
    """By file name."""
    filesystem = SystemFilesystem()
    sizes = [
        {stat.name: stat.size for stat in filesystem.list_dir_stats(path) if stat.is_file}
        for path in (source, target)
    ]
    is_compacted = is_known_compacted(source, filesystem)
    findings = verify_directory(source, filesystem, is_compacted=is_compacted)
    unsound = {each.file for each in findings}
    changes = []
    for name in sorted(sizes[0].keys() | sizes[1].keys()):
        before, after = sizes[0].get(name), sizes[1].get(name)
        # What is new, or an index beside a sound log, can be made of what is there.
        is_kept = before is not None and name.endswith((LOG_SUFFIX, LEADER_EPOCH_CHECKPOINT))
        is_told = (
            is_kept or after is None or not unsound.isdisjoint((name, sibling(name, LOG_SUFFIX)))
        )
        is_same = before == after and filecmp.cmp(
            f"{source}/{name}", f"{target}/{name}", shallow=False
        )
        if is_told and not is_same:
            changes.append(FileChange(name, before, after))
    return changes
